"""Speculation with real daemons: a task hangs on its first start, and its copy ends at once.

Nothing waits for a time: the gate is opened only when the test is over, so whatever arrives came from a copy.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import (
    AsyncClient,
    BlobRef,
    CallOptions,
    CallStage,
    Client,
    InvalidRequest,
    Job,
    JobSpec,
    LocalCluster,
    ResultOf,
    Speculation,
    TaskStatus,
)
from sparrow_py.session.large_inputs import INLINE_BYTES_MAX
from sparrow_py.wire import blobs
from tests.support import tasks
from tests.support.daemons import get_json, gone, workers_of
from tests.support.straggling import hold_and_count, hold_and_return, hold_every_start, hold_first_start
from tests.support.waiting import TIMEOUT_S, wait_until

SLOTS = 2
EAGER = Speculation(quantile=0.75, slowdown=1.0, copies_max=1.0, running_s_min=0.0)
OPTIONS = CallOptions(speculate=EAGER)


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of its own for a test that has workers killed."""
    with LocalCluster(node_monitors=2, slots=SLOTS, log_dir=tmp_path / "logs") as cluster:
        for process in cluster.node_processes:
            wait_until(lambda pid=process.pid: len(workers_of(pid)) >= SLOTS)  # type: ignore[misc]
        yield cluster


def arguments(gate: Path, tmp_path: Path, payload: bytes = b"") -> list[tuple[Path, Path, bytes]]:
    """Of four tasks, of which the first is held on its first start."""
    ended = tmp_path / "ended"
    ended.touch()
    return [(gate, tmp_path / "held", payload), *[(gate, ended, payload)] * 3]


def check_replaced(cluster: LocalCluster, held: Path) -> None:
    """The held worker was ended, and another took its place."""
    pid = int(held.read_text())
    wait_until(lambda: gone(pid), "the loser's worker to end")
    for process in cluster.node_processes:
        wait_until(lambda pid=process.pid: len(workers_of(pid)) >= SLOTS, "another worker")  # type: ignore[misc]


def nothing_left(cluster: LocalCluster) -> bool:
    return not get_json(cluster.addresses[0], "/v1/jobs")["jobs"]


def count_outcomes(job: Job) -> Counter[int]:
    """How often each task's end was told, from now on."""
    told: Counter[int] = Counter()
    for future in job.futures:
        future.add_done_callback(lambda future: told.update([future.task]))  # type: ignore[attr-defined]
    return told


def test_the_copy_of_a_task_that_hangs_brings_its_result(doomed: LocalCluster, tmp_path: Path, gate: Path) -> None:
    with Client(doomed, options=OPTIONS) as client:
        job = client.submit_calls(hold_first_start, arguments(gate, tmp_path))
        told = count_outcomes(job)
        assert job.results(TIMEOUT_S) == [0] * 4
        report = job.report()
        assert [task.status for task in report.tasks] == [TaskStatus.FINISHED] * 4
        check_replaced(doomed, tmp_path / "held")
        wait_until(lambda: nothing_left(doomed), "original and copy to end")
        wait_until(lambda: told == Counter(range(4)), "each outcome, once")
        assert not gate.exists()
        # The slots are whole: as many tasks run at once as before.
        marks = [f"slot{number}" for number in range(2 * SLOTS)]
        futures = [client.with_options(speculate=None).submit(tasks.hold, gate, mark) for mark in marks]
        wait_until(lambda: tasks.started(gate, *marks), "every slot to run a task")
        gate.touch()
        assert client.gather(futures) == marks


@pytest.mark.parametrize("size", [0, INLINE_BYTES_MAX + 1], ids=["small", "large"])
def test_the_copies_of_tasks_of_two_stages_bring_their_results(
    doomed: LocalCluster, tmp_path: Path, gate: Path, size: int
) -> None:
    """The first stage's results, large ones at their nodes, go to the second one's tasks and their copies."""
    ended = tmp_path / "ended"
    ended.touch()
    marks = [tmp_path / "held0", *[ended] * 3], [tmp_path / "held1", *[ended] * 3]
    stages = [
        CallStage("first", hold_and_return, [(gate, mark, size) for mark in marks[0]]),
        CallStage("second", hold_and_count, [(gate, mark, ResultOf("first")) for mark in marks[1]]),
    ]
    with Client(doomed, options=OPTIONS) as client:
        job = client.submit_stages(stages)
        told = count_outcomes(job)
        assert [future.result(TIMEOUT_S) for future in job.stage("second")] == [4 * size] * 4
        assert [future.report.status for future in job.stage("first")] == [TaskStatus.FINISHED] * 4
        for mark in ("held0", "held1"):
            check_replaced(doomed, tmp_path / mark)
        wait_until(lambda: nothing_left(doomed), "original and copies to end")
        wait_until(lambda: told == Counter(range(8)), "each outcome, once")
        assert not gate.exists()


@pytest.mark.rest
async def test_with_asyncio(doomed: LocalCluster, tmp_path: Path, gate: Path) -> None:
    async with AsyncClient(doomed, options=OPTIONS) as client:
        job = client.submit_calls(hold_first_start, arguments(gate, tmp_path))
        assert await job.results() == [0] * 4
        report = await job.report()
        assert [task.task for task in report.tasks] == [0, 1, 2, 3]
        values = [arguments(gate, tmp_path)[1]] * 6
        assert [value async for value in client.map(hold_first_start, *zip(*values, strict=True))] == [0] * 6
        assert await client.submit(hold_first_start, *values[0]) == 0


def test_submit_and_map(doomed: LocalCluster, tmp_path: Path, gate: Path) -> None:
    """Calls of one function that are submitted in a row are one job; so are those of a `map`."""
    with Client(doomed, options=OPTIONS) as client:
        futures = [client.submit(hold_first_start, *call) for call in arguments(gate, tmp_path)]
        assert [future.result(TIMEOUT_S) for future in futures] == [0] * 4
        check_replaced(doomed, tmp_path / "held")
        (tmp_path / "held").unlink()
        calls = zip(*arguments(gate, tmp_path), strict=True)
        assert list(client.map(hold_first_start, *calls, timeout_s=TIMEOUT_S)) == [0] * 4
        check_replaced(doomed, tmp_path / "held")


@pytest.mark.rest
def test_large_inputs_are_not_uploaded_again(
    doomed: LocalCluster, tmp_path: Path, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = bytes(INLINE_BYTES_MAX + 1)
    uploaded: list[BlobRef] = []
    upload = blobs.upload

    async def counted(*how: Any) -> BlobRef:
        uploaded.append(await upload(*how))
        return uploaded[-1]

    monkeypatch.setattr(blobs, "upload", counted)
    with Client(doomed, options=OPTIONS) as client:
        first, *others = arguments(gate, tmp_path)
        job = client.submit_calls(hold_first_start, [(*first[:2], payload), *others])
        assert job.results(TIMEOUT_S) == [len(payload), 0, 0, 0]
        check_replaced(doomed, tmp_path / "held")
        wait_until(lambda: nothing_left(doomed), "original and copy to end")
        assert len(uploaded) == 1
        wait_until(lambda: not client._session.core.jobs, "the jobs to end, and their inputs with them")


@pytest.mark.rest
def test_cancellation_stops_the_original_and_its_copy(doomed: LocalCluster, tmp_path: Path, gate: Path) -> None:
    held, ended, open_gate = tmp_path / "held", tmp_path / "ended", tmp_path / "open"
    held.mkdir()
    ended.mkdir()
    open_gate.touch()
    with Client(doomed, options=OPTIONS) as client:
        job = client.submit_calls(hold_every_start, [(gate, held), *[(open_gate, ended)] * 3])
        told = count_outcomes(job)
        wait_until(lambda: len(list(held.iterdir())) == 2, "the copy to run beside the original")
        job.cancel(running=True)
        wait_until(job.futures[0].cancelled, "the task to be cancelled")
        wait_until(lambda: nothing_left(doomed), "original and copy to end")
        wait_until(lambda: all(gone(int(mark.name)) for mark in held.iterdir()), "both workers to end")
        wait_until(lambda: told == Counter(range(4)), "each outcome, once")
        assert not gate.exists()
        assert job.report().count(TaskStatus.FINISHED) == 3


def test_what_cannot_be_speculated_is_an_error_of_the_caller(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="speculate") as raised:
        client.submit_job(JobSpec([b""]), speculate=True)  # type: ignore[arg-type]
    assert raised.value.field == "speculate"
    with pytest.raises(InvalidRequest, match="prefetch"):
        client.with_options(speculate=EAGER, prefetch=8).submit(tasks.square, 3).result(TIMEOUT_S)
    stages = [CallStage("one", tasks.square, [(1,)]), CallStage("two", tasks.square, [(2,)], after=["one"])]
    assert client.with_options(speculate=EAGER).submit_stages(stages).results(TIMEOUT_S) == [1, 4]
    assert client.with_options(speculate=EAGER).submit_calls(tasks.square, []).results(TIMEOUT_S) == []
