"""`simulate`: the same arguments give the same result, policies are paired, and what is measured is what is said."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from loadgen.durations import Durations
from loadgen.jobs import WorkloadJob
from loadgen.synthetic import Synthetic
from loadgen.traces import Trace, parse_lines
from simulator.cluster import Cluster
from simulator.network import Delay
from simulator.policies import Settings
from simulator.simulate import Result, simulate
from sparrow_py.errors import InvalidOption
from tests.support.hash_seeds import outputs
from tests.support.suites import rest_after

POLICIES = ("sparrow", "batch", "per-task", "random", "central-daemon", "central")
CLUSTER = Cluster(nodes=15, slots=2, schedulers=2, delay=Delay("exponential"), weights={"bob": 3.0})
WORKLOAD = Synthetic(tasks=4, load=0.8, jobs=60, users=("ann", "bob"), durations=Durations("pareto"))
PRINT_ALL = """
from tests.simulator.test_simulate import *
for policy in POLICIES:
    result = simulate(CLUSTER, WORKLOAD, policy, seed=5)
    print(policy, result.figures(), result.settings)
    for record in result.records: print(record.job, list(record.started_s), list(record.nodes))
"""


def seen(result: Result) -> list[tuple[float, list[float]]]:
    """What a run's policy met: arrivals and service times."""
    return [(record.job.arrival_s, list(record.job.durations_s)) for record in result.records]


def test_the_same_seed_gives_the_same_bytes_whatever_the_hash_seed() -> None:
    (output,) = outputs(PRINT_ALL)
    assert output.count(b"WorkloadJob") == len(POLICIES) * WORKLOAD.jobs


@pytest.mark.parametrize("policy", rest_after(2, *POLICIES))
def test_a_run_leaves_nothing_behind_for_the_next(policy: str) -> None:
    first, _, again = (simulate(CLUSTER, WORKLOAD, policy, seed=seed) for seed in (5, 6, 5))
    assert first.figures() == again.figures()
    assert [list(one.started_s) for one in first.records] == [list(one.started_s) for one in again.records]


@dataclass(frozen=True)
class Watched(Synthetic):
    """Notes how many objects the garbage collector finds when the last job has arrived."""

    garbage: list[int] = field(default_factory=list)

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        gc.collect()
        yield from super().generate(seed, nodes, slots)
        self.garbage.append(gc.collect())


@pytest.mark.usefixtures("garbage_before")
@pytest.mark.parametrize("policy", rest_after(2, *POLICIES))
def test_what_a_run_uses_up_goes_without_the_garbage_collector(policy: str) -> None:
    """In the daemons its pauses would be every job's; here it is off."""
    workload = Watched(tasks=4, load=0.8, jobs=120)
    simulate(CLUSTER, workload, policy)
    assert workload.garbage == [0]


def test_policies_and_settings_meet_the_same_arrivals_and_service_times() -> None:
    runs = [simulate(CLUSTER, WORKLOAD, policy, seed=3) for policy in POLICIES]
    runs.append(simulate(CLUSTER, WORKLOAD, "sparrow", Settings(probe_ratio=3.0, cancellation=False), seed=3))
    runs.append(simulate(Cluster(nodes=30, schedulers=5), WORKLOAD, "sparrow", seed=3))
    assert all(seen(run) == seen(runs[0]) for run in runs)
    assert seen(simulate(CLUSTER, WORKLOAD, "sparrow", seed=4)) != seen(runs[0])


def test_the_first_tenth_and_the_last_twentieth_are_not_measured() -> None:
    result = simulate(CLUSTER, WORKLOAD, "central")
    measured = result.records[6:57]
    assert len(result.response_ms) == result.figures()["jobs_measured"] == 51
    assert len(result.wait_ms) == 51 * 4
    for record, response_ms, ideal_ms in zip(measured, result.response_ms, result.ideal_ms, strict=True):
        ends = [at_s + seconds for at_s, seconds in zip(record.started_s, record.job.durations_s, strict=True)]
        assert response_ms == pytest.approx(1000 * (max(ends) - record.job.arrival_s))
        assert ideal_ms == pytest.approx(1000 * max(record.job.durations_s))


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_is_faster_than_its_longest_task(policy: str) -> None:
    result = simulate(CLUSTER, WORKLOAD, policy)
    assert np.all(result.response_ms >= result.ideal_ms - 1e-6)
    assert np.all(result.wait_ms >= 0)


def test_a_trace_runs_with_each_of_its_users() -> None:
    lines = ('{"arrival_s": 0, "durations_s": [0.1], "user": "ann"}', "1 2 0.1 0.1 0.2")
    trace = Trace("t", tuple(parse_lines("t", lines)))
    result = simulate(Cluster(nodes=2), trace)
    assert [record.job.user for record in result.records] == ["ann", "user0"]
    assert (result.settings["trace"], result.settings["stretch"], result.settings["jobs"]) == ("t", 1.0, 2)


def test_settings_say_what_was_simulated() -> None:
    found = simulate(CLUSTER, WORKLOAD, "per-task", Settings(probe_ratio=3.0), seed=9).settings
    wanted = {"policy": "per-task", "seed": 9, "nodes": 15, "slots": 2, "tasks": 4, "load": 0.8, "probe_ratio": 3.0}
    assert found | wanted == found


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(InvalidOption, match="magic"):
        simulate(CLUSTER, WORKLOAD, "magic")


def test_a_probe_ratio_below_1_is_named() -> None:
    with pytest.raises(Exception, match="probe_ratio"):
        Settings(probe_ratio=0.5)


STAGED = (
    '{"arrival_s": 0, "stages": [{"name": "scan", "durations_s": [0.1, 0.3], "preferred": [[1, 2], [3]]},'
    ' {"name": "sum", "after": ["scan"], "durations_s": [0.2, 0.1]},'
    ' {"name": "sort", "after": ["scan"], "durations_s": [0.05]},'
    ' {"name": "count", "after": ["sum", "sort"], "durations_s": [0.4]}]}',
    '{"arrival_s": 0.2, "durations_s": [0.1]}',
)


@pytest.mark.parametrize("policy", [policy for policy in POLICIES if policy != "central"])
def test_a_stage_starts_when_those_before_it_have_ended(policy: str) -> None:
    trace = Trace("t", tuple(parse_lines("t", STAGED)))
    result = simulate(Cluster(nodes=4, slots=2, schedulers=2), trace, policy)
    staged = result.records[0]
    ends = [at_s + seconds for at_s, seconds in zip(staged.started_s, staged.job.durations_s, strict=True)]
    began = {stage.name: min(staged.started_s[task] for task in own) for stage, own in staged.job.ranges()}
    ended = {stage.name: max(ends[task] for task in own) for stage, own in staged.job.ranges()}
    assert ended["scan"] < min(began["sum"], began["sort"])
    assert max(ended["sum"], ended["sort"]) < began["count"]
    assert staged.nodes[0] in (1, 2)
    assert staged.nodes[1] == 3
    assert staged.ideal_s() == pytest.approx(0.3 + 0.2 + 0.4)
    assert result.response_ms[0] == pytest.approx(1000 * ended["count"])
    assert result.ideal_ms[0] == pytest.approx(900)
    assert result.response_ms[0] > 900
    waits_ms = result.wait_ms[:6]
    assert waits_ms[2] == pytest.approx(1000 * (staged.started_s[2] - ended["scan"]))
    # A message is half a millisecond on its way: the outcome, and what then places a task.
    assert np.all((waits_ms > 0.999) & (waits_ms < 100))


def test_the_omniscient_scheduler_takes_no_stages() -> None:
    trace = Trace("t", tuple(parse_lines("t", STAGED)))
    with pytest.raises(InvalidOption, match=r"policy.*several stages"):
        simulate(Cluster(nodes=4), trace, "central")
