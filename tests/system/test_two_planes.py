"""A cluster with a scheduler that samples and one that places: each job goes to the one that it is for."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import CallOptions, CallStage, Client, InvalidRequest, LocalCluster, NoScheduler
from sparrow_py.job import FLOW_FROM_S
from sparrow_py.wire.http_get import http_get_text
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.processes
FLOW = CallOptions(policy="flow")
NEVER_SETTLED = ["--settling-s", "600"]
"""So it leads as soon as all nodes of the cluster are there, or not at all in time."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(
        node_monitors=2, slots=3, policies=("sparrow", "flow"), scheduler_options=NEVER_SETTLED, forward_output=False
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster: LocalCluster) -> Iterator[Client]:
    with Client(cluster) as connected:
        yield connected


def accepted(cluster: LocalCluster, scheduler: int) -> int:
    """Jobs that this scheduler has accepted so far."""
    text = http_get_text(cluster.addresses[scheduler], "/metrics")
    (count,) = re.findall(r"^sparrow_scheduler_jobs_accepted_total ([0-9.e+]+)$", text, re.M)
    return int(float(count))


def meet(directory: Path, own: str, others: list[str]) -> None:
    """A task that ends once these others have started."""
    (directory / own).touch()
    while not all((directory / other).exists() for other in others):
        time.sleep(0.01)


@pytest.mark.real_starts
def test_only_the_scheduler_of_policy_flow_has_numba_in_it(cluster: LocalCluster) -> None:
    loaded = [Path(f"/proc/{process.pid}/maps").read_text() for process in cluster.scheduler_processes]
    assert ["llvmlite" in text for text in loaded] == [False, True]
    assert ["numpy" in text for text in loaded] == [False, True]


@pytest.mark.parametrize(
    ("options", "scheduler"),
    [
        ({}, 0),
        ({"policy": "sparrow"}, 0),
        ({"policy": "flow"}, 1),
        ({"policy": "auto", "expected_duration_s": FLOW_FROM_S}, 1),
        ({"policy": "auto", "expected_duration_s": 0.1}, 0),
        ({"policy": "auto"}, 0),
    ],
    ids=str,
)
def test_a_job_is_run_by_the_scheduler_that_it_is_for(
    cluster: LocalCluster, client: Client, options: dict[str, Any], scheduler: int
) -> None:
    before = [accepted(cluster, number) for number in (0, 1)]
    assert list(client.with_options(**options).map(tasks.square, range(20))) == [x * x for x in range(20)]
    grown = [accepted(cluster, number) - count for number, count in enumerate(before)]
    assert (grown[scheduler] > 0, grown[1 - scheduler]) == (True, 0)


def test_a_new_client_knows_both_schedulers_when_it_decides(cluster: LocalCluster) -> None:
    before = accepted(cluster, 0)
    for _ in range(3):
        with Client(cluster) as fresh:
            auto = fresh.with_options(policy="auto", expected_duration_s=FLOW_FROM_S)
            assert auto.submit(abs, -1).result(TIMEOUT_S) == 1
    assert accepted(cluster, 0) == before


def test_tasks_of_a_gang_run_at_the_same_time(client: Client, tmp_path: Path) -> None:
    names = ["a", "b", "c"]
    calls = [(tmp_path, name, names) for name in names]
    assert len(client.submit_calls(meet, calls, options=CallOptions(policy="flow", gang=True)).results(TIMEOUT_S)) == 3


def test_no_more_tasks_than_so_many_are_at_a_node(client: Client, tmp_path: Path) -> None:
    calls = [(tmp_path, "a", ["a", "b"]), (tmp_path, "b", ["a", "b"])]
    job = client.submit_calls(meet, calls, options=CallOptions(policy="flow", max_per_node=1))
    assert {task.node for task in job.report(TIMEOUT_S).tasks} == {"node-0", "node-1"}


def test_a_stage_goes_where_another_runs(client: Client, tmp_path: Path) -> None:
    stages = [
        CallStage("first", meet, [(tmp_path, "first", ["near"])]),
        CallStage("near", meet, [(tmp_path, "near", ["first"])], options=CallOptions(together_with="first")),
    ]
    report = client.submit_stages(stages, options=FLOW).report(TIMEOUT_S)
    assert len({task.node for task in report.tasks}) == 1


def test_stages_of_calls_have_limits_of_their_own(client: Client) -> None:
    stages = [
        CallStage("a", tasks.square, [(2,), (3,)], options=CallOptions(max_per_node=1)),
        CallStage("b", tasks.square, [(4,)], after=["a"], data={0: {"node-0": 1 << 20}}, priority=-1),
    ]
    assert client.submit_stages(stages, options=FLOW).results(TIMEOUT_S) == [4, 9, 16]


def test_what_sampling_does_not_know_is_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match='gang: True is not valid; allowed: nothing but with policy="flow"'):
        client.with_options(gang=True).submit(abs, -1).result(TIMEOUT_S)


def test_a_job_that_no_connected_scheduler_takes_is_refused_with_that_reason(cluster: LocalCluster) -> None:
    with Client([cluster.addresses[0]], submit_timeout_s=0.2) as sampled:
        future = sampled.with_options(policy="flow").submit(abs, -1)
        with pytest.raises(NoScheduler, match="it is for policy flow; connected are schedulers of policy sparrow"):
            future.result(TIMEOUT_S)
