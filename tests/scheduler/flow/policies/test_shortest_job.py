"""Of too many tasks the shortest are placed; those that have waited for long overtake them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.policies.policy import Cluster, Machine, Task
from scheduler.flow.policies.shortest_job import LONGEST_S, SHORTEST_S, ShortestJob
from scheduler.flow.problem import ProblemError
from tests.support.flow_policies import MACHINES, placed

ONE_SLOT = [Machine("m", "r", 1)]
durations = st.none() | st.floats(0.001, 1e6)


def test_the_shortest_task_is_placed_first_and_those_of_unknown_duration_last() -> None:
    waiting = {"long": 600.0, "short": 2.0, "middling": 60.0, "unknown": None}
    for first in ("short", "middling", "long", "unknown"):
        tasks = [Task(name, "j", duration_s=duration_s) for name, duration_s in waiting.items()]
        found = placed(ShortestJob(), tasks, ONE_SLOT)
        assert [name for name, machine in found.items() if machine] == [first]
        del waiting[first]


@pytest.mark.parametrize(("waited_s", "first"), [(99, "young"), (101, "old")])
def test_a_task_that_has_waited_counts_as_a_shorter_one(waited_s: float, first: str) -> None:
    """100 for half the duration, 1 a second: 100 s."""
    tasks = [Task("young", "j", duration_s=10), Task("old", "j", duration_s=20, waited_s=waited_s)]
    assert placed(ShortestJob(), tasks, ONE_SLOT)[first] == "m"


def test_one_of_unknown_duration_does_not_wait_for_ever() -> None:
    octaves = ShortestJob().price(SHORTEST_S) / 100
    tasks = [Task("unknown", "j", waited_s=100 * octaves + 1), Task("young", "j", duration_s=SHORTEST_S)]
    assert placed(ShortestJob(), tasks, ONE_SLOT)["unknown"] == "m"


@given(durations, durations)
def test_a_shorter_task_never_has_the_lower_price(one: float | None, other: float | None) -> None:
    policy = ShortestJob()
    prices = [policy.price(duration_s) for duration_s in (one, other)]
    assert min(prices) >= 0
    if one is not None and (other is None or one <= other):
        assert prices[0] >= prices[1]
    assert policy.price(float("nan")) == policy.price(2 * LONGEST_S) == policy.price(None) == 0


def test_tasks_are_spread_and_the_price_of_waiting_ages_as_the_policy_says() -> None:
    found = list(placed(ShortestJob(), [Task(f"t{number}", "j", duration_s=number) for number in range(4)]).values())
    assert sorted(found) == [machine.name for machine in MACHINES]
    policy = ShortestJob()
    policy.see(Cluster.of(MACHINES, []))
    costs = [policy.task(Task("a", "j", duration_s=5, waited_s=waited_s)) for waited_s in (0.0, 7.25)]
    assert costs[1].waiting - costs[0].waiting == int(7.25 * (costs[0].waiting_per_s or 0)) == 7


@pytest.mark.parametrize("octave_cost", [-1, 1_000_001])
def test_settings_that_cannot_be_are_refused(octave_cost: int) -> None:
    with pytest.raises(ProblemError, match=f"octave_cost is {octave_cost}; allowed are 0 to waiting_cost, 1000000"):
        ShortestJob(octave_cost=octave_cost)
    with pytest.raises(ProblemError, match="task_cost is -1"):
        ShortestJob(task_cost=-1)
