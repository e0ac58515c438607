"""Which gangs a round tries: in turns of users; those that cannot fit when there is more room than there was."""

from __future__ import annotations

import pytest

from scheduler.flow import cluster_network, gang_trials
from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.gang_trials import TRIALS_MAX, GangTurns, RoomOfMachines
from scheduler.flow.limits import PRODUCT_MAX
from scheduler.flow.policies.policy import ArcTo, Group, Machine, Task
from tests.support.flow_networks import NEVER_S, Table, machines_of
from tests.support.flow_problems import oracle_cost


def test_users_have_turns_and_of_each_the_highest_priority_then_the_oldest_goes_first() -> None:
    gangs = {
        "a1": ("ann", 0, 1.0),
        "a2": ("ann", 0, 2.0),
        "a3": ("ann", -5, 9.0),
        "b1": ("bob", 0, 5.0),
        "c1": ("cid", 0, 4.0),
    }
    turns = GangTurns()
    assert turns.take(gangs, 1) == ["a3", "c1", "b1", "a1", "a2"]
    assert turns.take(gangs | {"d1": ("dan", 0, 8.0)}, 2) == ["d1", "a3", "c1", "b1", "a1", "a2"]


def test_a_user_with_more_gangs_than_are_tried_keeps_nobody_from_a_turn_and_all_of_them_have_one() -> None:
    gangs = {f"a{number}": ("ann", -9, float(number)) for number in range(3 * TRIALS_MAX)} | {"b": ("bob", 0, 99.0)}
    turns = GangTurns()
    tried = [turns.take(gangs, now) for now in range(1, 5)]
    assert all(len(names) == TRIALS_MAX and "b" in names[:2] for names in tried)
    assert {name for names in tried for name in names} == set(gangs)


def test_more_users_than_trials_have_turns_one_after_the_other() -> None:
    gangs = {f"g{number}": (f"u{number}", 0, float(number)) for number in range(TRIALS_MAX + 5)}
    turns = GangTurns()
    first, second = turns.take(gangs, 1), turns.take(gangs, 2)
    assert second[:5] == [f"g{TRIALS_MAX + number}" for number in range(5)]
    assert {*first, *second} == set(gangs)


@pytest.mark.parametrize("keeps_running", [False, True])
def test_a_machine_has_the_room_that_it_had_when_nothing_ran_there(keeps_running: bool) -> None:
    room = RoomOfMachines(keeps_running=keeps_running)
    room.machine_told(Machine("m", "r", 4, free={"gpu": 2.0}))
    used = Machine("m", "r", 4, {"gpu": 2.0}, 3) if keeps_running else Machine("m", "r", 1, {"gpu": 0.5}, 3)
    room.machine_told(used)
    assert room.places(["m"], {"gpu": 1.0}, None) == [("r", 2)]
    assert room.places(["m"], {}, None) == [("r", 4)]
    assert room.places(["m"], {}, {"other"}) == []


def test_a_gang_that_does_not_fit_is_looked_at_again_only_when_there_is_more_room() -> None:
    room = RoomOfMachines(keeps_running=False)
    asked = 5, Group(gang=5), (("gpu", 1.0),), None
    looked = 0

    def find(reason: str = "too large") -> str:
        nonlocal looked
        looked += 1
        return reason

    for number, (machine, expected) in enumerate(
        [
            (Machine("m", "r", 4, {"gpu": 2.0}), 1),
            (Machine("m", "r", 1, {"gpu": 0.0}, 3), 1),
            (Machine("m", "r", 4, {"gpu": 2.0}), 1),
            (Machine("m", "r", 4, {"gpu": 3.0}), 2),
            (Machine("m", "r", 3, {"gpu": 3.0}, 1), 2),
            (Machine("m", "r", 3, {"gpu": 3.0}), 2),
            (Machine("m", "r", 4, {"gpu": 3.0}), 3),
            (Machine("new", "r", 1), 4),
        ]
    ):
        room.machine_told(machine)
        assert room.why_never("g", asked, find) == "too large"
        assert looked == expected, f"step {number}"
    room.machine_gone("new")
    assert room.why_never("g", asked, find) and looked == 4
    assert room.why_never("g", (4, *asked[1:]), lambda: find("")) == "" and looked == 5
    room.why_never("h", asked, find)
    room.forget({"other"})
    room.why_never("h", asked, find)
    assert looked == 7


def gangs(count: int, size: int, user: str, waiting: dict[str, int], price: int) -> tuple[list[Task], dict[str, Group]]:
    names = [f"{user}{number}" for number in range(count)]
    tasks = [Task(f"{name}.{place}", name, user=user, group=name) for name in names for place in range(size)]
    waiting |= dict.fromkeys((task.name for task in tasks), price)
    return tasks, dict.fromkeys(names, Group(gang=size))


def test_gangs_that_never_fit_keep_no_other_from_being_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    why_never = gang_trials.why_never
    monkeypatch.setattr(
        cluster_network, "why_never", lambda needed, *rest: looked.append(needed) or why_never(needed, *rest)
    )
    waiting: dict[str, int] = {}
    large, limits = gangs(TRIALS_MAX + 4, 5, "ann", waiting, 50)
    small, more = gangs(1, 2, "bob", waiting, 50)
    table = Table({}, waiting, {"all": [ArcTo("m0", 1, 9), ArcTo("m1", 1, 9)]}, dict.fromkeys(waiting, "all"))
    network = ClusterNetwork(table, second_after_s=NEVER_S)
    told = ClusterChanges(machines=machines_of(m0=3), tasks=[*large, *small], groups=limits | more)
    placed = network.round(told)
    assert sorted(name for name, _ in placed.placed) == ["bob0.0", "bob0.1"]
    assert len(placed.unplaceable) == TRIALS_MAX + 4
    assert len(looked) == TRIALS_MAX + 5
    again = network.round(ClusterChanges(tasks_gone=["bob0.0", "bob0.1"]))
    assert len(again.unplaceable) == TRIALS_MAX + 4 and len(looked) == TRIALS_MAX + 5
    larger = network.round(ClusterChanges(machines=machines_of(m1=3)))
    assert not larger.unplaceable and len(larger.placed) == 5


def test_a_gang_tried_at_the_highest_price_leaves_the_network_room_to_grow() -> None:
    waiting: dict[str, int] = {}
    price = PRODUCT_MAX // 10**7
    tasks, limits = gangs(1, 300, "ann", waiting, price)
    plain = [Task(f"p{number}", "plain", user="bob") for number in range(900)]
    waiting |= dict.fromkeys((task.name for task in plain), 5)
    table = Table({}, waiting, {"all": [ArcTo("m0", 1, 900)]}, dict.fromkeys(waiting, "all"))
    network = ClusterNetwork(table, second_after_s=NEVER_S)
    network.round(ClusterChanges(machines=machines_of(m0=300), tasks=tasks, groups=limits))
    dear = network.graph.cost_max
    assert dear > price  # The trial's price is bound by what 4 times as many nodes allow.
    assert dear * (4 * network.graph.nodes) ** 2 <= PRODUCT_MAX
    network.round(ClusterChanges(tasks_gone=[task.name for task in tasks], groups={"ann0": None}))
    assert network.graph.cost_max <= price
    placed = network.round(ClusterChanges(tasks=plain))
    assert placed.cost == oracle_cost(network.dump())
    assert len(placed.placed) == 300
