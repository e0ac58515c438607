"""Policies on examples small enough for pencil and paper, and what each must keep to: slots, constraints, shares."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from loadgen.traces import Trace, parse_lines
from simulator.cluster import Cluster
from simulator.figures.catalogue import paper
from simulator.figures.intervals import interval
from simulator.hosts import SimulationError
from simulator.policies import POLICIES, Settings
from simulator.simulate import Result, simulate
from sparrow_py.errors import InvalidOption
from tests.support.suites import rest_after

NAMES = ("sparrow", "batch", "per-task", "random", "central-daemon", "central")
WITH_ZONES = ("sparrow", "batch", "per-task", "random", "central-daemon")
WITH_PREFERRED = WITH_ZONES
ONE_WAY_S = 0.0005
STEPS = {"sparrow": 4, "batch": 4, "per-task": 4, "random": 2, "central-daemon": 2, "central": 0}
"""Ways over the network before a task starts on an idle slot: submission, reservation, getTask and launch; submission,
probe, answer and task; submission and task; the same; nothing."""


def trace(*lines: str | dict[str, Any]) -> Trace:
    return Trace("t", tuple(parse_lines("t", [line if isinstance(line, str) else json.dumps(line) for line in lines])))


def starts_s(result: Result) -> list[list[float]]:
    """Of each job: when its tasks started, the first first."""
    return [sorted(round(at_s, 9) for at_s in record.started_s) for record in result.records]


def run(policy: str, cluster: Cluster, *lines: str | dict[str, Any], seed: int = 1) -> Result:
    """The paper's Sparrow, or another policy, on a trace."""
    return simulate(cluster, trace(*lines), policy, paper(), seed=seed)


# ---- by hand ---------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", NAMES)
def test_a_task_on_an_idle_node_starts_after_the_policy_s_messages(policy: str) -> None:
    assert starts_s(run(policy, Cluster(nodes=1), "0 1 0.1 0.1")) == [[round(STEPS[policy] * ONE_WAY_S, 9)]]


@pytest.mark.parametrize("policy", NAMES)
def test_tasks_of_one_node_run_one_after_the_other(policy: str) -> None:
    """Sparrow's node asks for the second when the first has ended, which takes a round trip, as does the report that
    tells the central daemon of a free slot; others hold it already."""
    first_s = STEPS[policy] * ONE_WAY_S
    second_s = first_s + 0.1 + (2 * ONE_WAY_S if policy in ("sparrow", "central-daemon") else 0)
    found = starts_s(run(policy, Cluster(nodes=1), "0 2 0.1 0.1 0.1"))
    assert found == [[pytest.approx(first_s), pytest.approx(second_s)]]


@pytest.mark.parametrize("policy", ["sparrow", "batch", "per-task", "central-daemon", "central"])
def test_a_second_job_goes_where_nothing_runs(policy: str) -> None:
    """d = 2 of two nodes sees both."""
    found = starts_s(run(policy, Cluster(nodes=2), "0 1 1 1", "0.1 1 0.1 0.1"))
    assert found[1] == [pytest.approx(0.1 + STEPS[policy] * ONE_WAY_S)]


LONG_AND_SHORT = ("0 1 1 1", "0.01 1 0.1 0.1", "0.05 1 0.1 0.1")
"""A task of 1 s and one of 0.1 s, which runs on the other of two nodes, and one that finds both nodes busy."""


@pytest.mark.parametrize("seed", range(5))
def test_late_binding_waits_for_whichever_node_is_free_first(seed: int) -> None:
    """The short task starts at 12 ms; when it ends its node asks."""
    found = starts_s(run("sparrow", Cluster(nodes=2), *LONG_AND_SHORT, seed=seed))
    assert found[2] == [pytest.approx(0.012 + 0.1 + 2 * ONE_WAY_S)]


@pytest.mark.parametrize("policy", ["batch", "per-task"])
def test_without_late_binding_a_task_may_wait_behind_the_longer_one(policy: str) -> None:
    """Queues are as long, so with some seeds it waits for the short one's end, with others for the long one's."""
    runs = [run(policy, Cluster(nodes=2), *LONG_AND_SHORT, seed=seed) for seed in range(12)]
    found = sorted({starts_s(result)[2][0] for result in runs})
    assert found == [pytest.approx(0.012 + 0.1), pytest.approx(0.002 + 1)]


def test_a_surplus_reservation_is_asked_for_in_vain_before_the_next_job_s() -> None:
    """Without cancellation: of four reservations two are left, one on each node, that cost a round trip each."""
    lines = ("0 2 0.1 0.1 0.1", "0.05 1 0.1 0.1")
    found = starts_s(run("sparrow", Cluster(nodes=2), *lines))
    assert found[1] == [pytest.approx(0.002 + 0.1 + 2 * 2 * ONE_WAY_S)]


def test_batch_sampling_spreads_a_job_of_more_tasks_than_nodes() -> None:
    """Three tasks on two empty queues: one each, and the third behind either."""
    found = starts_s(run("batch", Cluster(nodes=2), "0 3 0.1 0.1 0.1 0.1"))
    assert found == [[pytest.approx(at_s) for at_s in (0.002, 0.002, 0.102)]]


def test_the_central_daemon_sends_tasks_to_the_least_loaded_node_and_keeps_the_rest() -> None:
    """Six slots, eight tasks: two of each node begin at once, and the two that are left when slots are free."""
    (record,) = run("central-daemon", Cluster(nodes=3, slots=2, schedulers=4), "0 8 0.1 " + "0.1 " * 8).records
    at_once = sorted(zip(record.started_s, record.nodes, strict=True))
    assert sorted(node for _, node in at_once[:6]) == [0, 0, 1, 1, 2, 2]
    assert [at_s for at_s, _ in at_once[6:]] == [pytest.approx(0.102)] * 2


@pytest.mark.parametrize("seed", range(3))
def test_tasks_wait_less_with_the_central_daemon_than_with_sampling_and_no_less_than_with_central(seed: int) -> None:
    """It is the bound of what sampling can reach, but for the network (§7.4)."""
    workload, cluster = Synthetic(tasks=5, load=0.9, jobs=150), Cluster(nodes=20, slots=2)
    bound, daemon, sampling = (
        simulate(cluster, workload, policy, paper(), seed=seed).wait_ms.mean()
        for policy in ("central", "central-daemon", "sparrow")
    )
    assert bound < daemon < sampling


def test_central_takes_tasks_in_order_of_arrival() -> None:
    found = starts_s(run("central", Cluster(nodes=1, slots=2), "0 3 0.2 0.2 0.3 0.1", "0.05 1 0.1 0.1"))
    assert found == [[0.0, 0.0, pytest.approx(0.2)], [pytest.approx(0.3)]]


# ---- slots -----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", NAMES)
def test_a_job_of_more_tasks_than_slots_runs_and_no_slot_runs_two_tasks(policy: str) -> None:
    cluster = Cluster(nodes=3, slots=2)
    (record,) = run(policy, cluster, "0 20 0.1 " + " ".join(["0.1"] * 20)).records
    assert not record.unended
    ends = [(node, at_s, 0.1) for node, at_s in zip(record.nodes, record.started_s, strict=True)]
    for node, at_s, _ in ends:
        at_once = sum(other == node and began - 1e-9 <= at_s < began + 0.1 - 1e-9 for other, began, _ in ends)
        assert at_once <= (cluster.nodes * cluster.slots if policy == "central" else cluster.slots)


# ---- constraints -----------------------------------------------------------------------------


@pytest.mark.parametrize("policy", WITH_ZONES)
def test_jobs_run_in_their_zones(policy: str) -> None:
    workload = Synthetic(tasks=3, load=0.7, jobs=60, zones=4)
    result = simulate(Cluster(nodes=20, zones=4), workload, policy)
    for record in result.records:
        assert {f"zone == z{node % 4}" for node in record.nodes} == set(record.job.where)


@pytest.mark.parametrize("policy", WITH_PREFERRED)
def test_tasks_run_on_the_nodes_that_they_name(policy: str) -> None:
    workload = Synthetic(tasks=3, load=0.7, jobs=60, constrained=0.5, replicas=2)
    result = simulate(Cluster(nodes=20), workload, policy)
    constrained = [record for record in result.records if record.job.preferred]
    assert 15 < len(constrained) < 45
    for record in constrained:
        assert all(node in nodes for node, nodes in zip(record.nodes, record.job.preferred, strict=True))


@pytest.mark.parametrize("policy", WITH_PREFERRED)
def test_both_kinds_of_constraint_hold_at_once(policy: str) -> None:
    job = {"arrival_s": 0, "durations_s": [0.1, 0.1], "where": ["zone == z1"], "preferred": [[0, 1, 2], [2, 3]]}
    (record,) = run(policy, Cluster(nodes=4, zones=2), job).records
    assert list(record.nodes) == [1, 3]


@pytest.mark.parametrize("asked", [{"zones": 1}, {"constrained": 1}])
def test_central_cannot_keep_a_constraint_and_says_so(asked: dict[str, Any]) -> None:
    workload = Synthetic(tasks=2, jobs=5, **asked)
    with pytest.raises(InvalidOption, match="central"):
        simulate(Cluster(nodes=4, zones=1), workload, "central")


@pytest.mark.parametrize("policy", WITH_ZONES)
def test_a_constraint_that_no_node_satisfies_is_named(policy: str) -> None:
    with pytest.raises(SimulationError, match="zone == z9"):
        run(policy, Cluster(nodes=4, zones=2), {"arrival_s": 0, "durations_s": [1], "where": ["zone == z9"]})


# ---- profiles -------------------------------------------------------------------------------


@pytest.mark.parametrize("schedulers", rest_after(1, 10, 1))
def test_the_probe_ratio_matters_to_the_paper_s_sparrow_and_hardly_to_today_s(schedulers: int) -> None:
    """10-task jobs of 100 ms at 70 % load (§7.1): without oversampling half of them wait for a task of another job;
    where idle nodes say so, few do. So what the probe ratio does is to be seen in the paper's profile alone."""
    workload = Synthetic(tasks=10, load=0.7, jobs=200, durations=Durations("constant"))
    cluster = Cluster(nodes=20, slots=4, schedulers=schedulers)

    def median_ms(profile: str, probe_ratio: float) -> float:
        return simulate(cluster, workload, "sparrow", Settings.of(profile, probe_ratio=probe_ratio)).percentile(50)

    once, twice, today = median_ms("paper", 1.0), median_ms("paper", 2.0), median_ms("default", 1.0)
    assert once > 1.3 * twice
    assert once > 1.2 * today
    assert twice < 105


# ---- users -----------------------------------------------------------------------------------

PHASE_S = (1.0, 8.0)
"""While both users have work waiting: the one with three shares has enough for 10 s."""


@pytest.mark.parametrize("settings", [paper(), Settings()], ids=["the paper's", "today's defaults"])
def test_slot_seconds_of_backlogged_users_are_as_their_weights(settings: Settings) -> None:
    """1 : 3, in an overloaded phase, over seeds."""
    cluster = Cluster(nodes=5, weights={"ann": 1.0, "bob": 3.0})
    lines = [
        {"arrival_s": number / 1000, "durations_s": [0.1] * 20, "user": user}
        for number in range(20)
        for user in ("ann", "bob")
    ]
    ratios = []
    for seed in range(1, 5):
        found = slot_seconds(simulate(cluster, trace(*lines), "sparrow", settings, seed=seed))
        ratios.append(found["bob"] / found["ann"])
    mean = interval(ratios)
    assert mean.low <= 3.1 and mean.high >= 2.9
    assert 2.7 < mean.mean < 3.3


def slot_seconds(result: Result) -> dict[str, float]:
    """Of each user, within the phase."""
    found = {"ann": 0.0, "bob": 0.0}
    for record in result.records:
        for at_s, seconds in zip(record.started_s, record.job.durations_s, strict=True):
            found[record.job.user] += max(0.0, min(at_s + seconds, PHASE_S[1]) - max(at_s, PHASE_S[0]))
    return found


# ---- all of them -----------------------------------------------------------------------------


def test_the_named_policies_are_there() -> None:
    assert set(NAMES) <= set(POLICIES)


@pytest.mark.parametrize("policy", NAMES)
def test_every_task_of_every_job_runs_once_and_not_before_its_job_is_there(policy: str) -> None:
    workload = Synthetic(tasks=4, load=0.9, jobs=100, durations=Durations("pareto"), users=("ann", "bob"))
    result = simulate(Cluster(nodes=10, slots=2, schedulers=3), workload, policy)
    assert len(result.records) == 100
    for record in result.records:
        assert not record.unended
        assert all(math.isfinite(at_s) and at_s >= record.job.arrival_s for at_s in record.started_s)
