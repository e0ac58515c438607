"""Resources of several dimensions: nothing is admitted beyond them, and all that fits is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.fitting import admit, copies
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.network_aware import NetworkAware
from scheduler.flow.policies.policy import Group, Machine, Policy, Task
from tests.support.flow_networks import NEVER_S, Play

amounts = st.sampled_from([0.0, 0.1, 0.5, 1.0, 2.0, 3.0])
vectors = st.fixed_dictionaries({"cpu": amounts, "memory": amounts})


def test_fractions_that_add_up_fit() -> None:
    assert copies({"cpu": 0.3}, {"cpu": 0.1}) == 3
    assert copies({"cpu": 1.0}, {}) is None
    assert copies({}, {"gpu": 1.0}) == 0
    assert admit({"cpu": 0.3}, [(name, {"cpu": 0.1}) for name in "abcd"])[1] == ["d"]


@given(free=vectors, requests=st.lists(vectors, max_size=8))
def test_who_is_admitted_fits_and_who_is_turned_away_does_not(
    free: dict[str, float], requests: list[dict[str, float]]
) -> None:
    admitted, refused, left = admit(free, list(enumerate(requests)))
    assert sorted([*admitted, *refused]) == list(range(len(requests)))
    for name, amount in free.items():
        assert sum(requests[number][name] for number in admitted) <= amount + 1e-6
    assert all(copies(left, requests[number]) == 0 for number in refused)


@pytest.mark.parametrize("policy", [LoadSpreading, lambda: NetworkAware(resource="cpu", unit=0.1)])
@settings(max_examples=25, deadline=None)
@given(
    machines=st.lists(st.tuples(st.integers(0, 4), vectors), min_size=1, max_size=4),
    arrivals=st.lists(st.lists(st.tuples(vectors, st.integers(0, 3)), max_size=6), min_size=1, max_size=4),
    ends=st.integers(1, 3),
)
def test_no_round_places_beyond_slots_resources_or_limits(
    policy: Callable[[], Policy],
    machines: list[tuple[int, dict[str, float]]],
    arrivals: list[list[tuple[dict[str, float], int]]],
    ends: int,
) -> None:
    play = Play(ClusterNetwork(policy(), second_after_s=NEVER_S))
    known = [Machine(f"m{n}", f"r{n % 2}", slots, free=free) for n, (slots, free) in enumerate(machines)]
    groups = {"g1": Group(max_per_machine=1), "g2": Group(max_per_rack=2), "g3": Group(gang=2)}
    play.round(ClusterChanges(machines=known, groups=groups))
    made = 0
    for batch in arrivals:
        tasks = []
        for demand, group in batch:
            made += 1
            tasks.append(Task(f"t{made}", "j", demand=demand, group=f"g{group}" if group else ""))
        for arriving in (tasks, []):
            told = {name: replace(group, running=places(play, name)) for name, group in groups.items()}
            placed = play.round(ClusterChanges(tasks=arriving, groups=told))
            assert sum(play.running[name][0].group == "g3" for name, _ in placed.placed) != 1 or told["g3"].running
            assert all(count <= 1 for count in places(play, "g1").values())
            racks = Counter[str]()
            for machine, count in places(play, "g2").items():
                racks[play.machines[machine].rack] += count
            assert all(count <= 2 for count in racks.values())
            for name in list(play.running)[::ends]:
                play.end(name)


def places(play: Play, group: str) -> Counter[str]:
    """By machine: how many tasks of a group run."""
    return Counter(machine for task, machine in play.running.values() if task.group == group)
