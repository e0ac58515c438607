"""Everything that a client sends of a job fits the frames of its scheduler, or is refused by name."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import BlobRef, JobSpec, StageSpec, TaskSpec
from sparrow_py.session.client_job import STATUSES, ClientJob
from sparrow_py.wire import messages as m
from tests.support.client_core import Rig, Told

RESULTS = st.one_of(
    st.integers(0, 2000).map(bytes),
    st.integers(1, 16).map(lambda count: BlobRef("a" * 64, 10, ("255.255.255.255:65535",) * count)),
)


@given(
    bytes_max=st.integers(3000, 20_000),
    payloads=st.lists(st.integers(0, 2000), max_size=300),
    results=st.lists(st.one_of(st.none(), RESULTS), max_size=300),
    preferred=st.integers(0, 20),
)
def test_each_message_fits(
    bytes_max: int, payloads: list[int], results: list[bytes | BlobRef | None], preferred: int
) -> None:
    nodes = [f"node-{number}-" + "x" * 60 for number in range(preferred)]
    tasks = [TaskSpec(bytes(size), preferred=nodes) for size in payloads]
    spec = JobSpec(stages=[StageSpec(tasks, name="a"), StageSpec([b""], name="b", after=["a"])], job_id="j" * 32)
    job = ClientJob(spec, Told(), 0.0)
    job.submission = msgspec.structs.replace(job.submission, epoch=1)
    for task, result in enumerate(results[: len(payloads)]):
        if result is None:
            job.starts[task] = 2
        else:
            job.settled[task] = 1 + STATUSES.index(STATUSES[0])
            job.results[task] = result
    sent = list(job.messages(bytes_max))
    assert all(len(msgspec.msgpack.encode(one)) <= bytes_max + m.MESSAGE_OVERHEAD_BYTES for one in sent)
    known = [outcome.task for one in sent if isinstance(one, m.Known) for outcome in one.outcomes]
    assert known == sorted(job.results)
    assert sum(len(one.payloads) for one in sent if isinstance(one, m.AddTasks)) == len(payloads) + 1


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (JobSpec(stages=[StageSpec([], name=n, common=bytes(600_000)) for n in "ab"]), "common"),
        (JobSpec([TaskSpec(bytes(900_000), preferred=["x" * 250 + str(n) for n in range(999)])]), r"tasks\[0\]"),
    ],
)
def test_what_fits_no_message_is_refused_by_name(spec: JobSpec, field: str) -> None:
    """And the link, and the other jobs, go on."""
    rig = Rig("s")
    with pytest.raises(InvalidRequest, match=field):
        rig.core.submit(spec, Told(), 0.0)
    _, told = rig.submit(1)
    rig.receive(m.JobAccepted("j"))
    assert told.calls == ["accepted"] and list(rig.core.jobs) == ["j"]


def test_a_job_that_cannot_be_moved_does_not_hold_up_the_others() -> None:
    rig = Rig("s")
    _, large = rig.submit([bytes(500_000)], job_id="large")
    _, small = rig.submit(1)
    for job in ("large", "j"):
        rig.receive(m.JobAccepted(job))
    rig.core.scheduler_down("s", "gone", 1.0)
    rig.core.scheduler_up("narrow", 100_000, 2.0)
    assert large.calls == ["accepted", "ended"]
    assert rig.core.jobs["j"].scheduler == "narrow" and small.calls == ["accepted"]
    rig.core.check_invariants()
