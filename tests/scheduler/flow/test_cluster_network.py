"""The network of a cluster, from round to round: known answers, and what must hold of each round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from scheduler.flow import task_classes
from scheduler.flow.cluster_changes import GONE
from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Share
from scheduler.flow.convex import stepped
from scheduler.flow.policies.policy import ArcTo, Group, Machine, Task
from scheduler.flow.problem import ProblemError
from tests.support.flow_networks import NEVER_S, Play, Table, machines_of
from tests.support.flow_problems import oracle_cost
from tests.support.suites import rest_after

FIVE = {"a": {"M0": 2, "M1": 3}, "b": {"M1": 6}, "c": {"M1": 1, "M3": 2}, "d": {"M2": 4}, "e": {"M3": 2}}


def five(abc: int = 5, de: int = 7) -> tuple[Table, list[Task]]:
    """The five tasks of issue 18."""
    waiting = {"a": abc, "b": abc, "c": abc, "d": de, "e": de}
    return Table(FIVE, waiting), [Task(name, "job") for name in FIVE]


def network(table: Table, **options: bool) -> ClusterNetwork:
    return ClusterNetwork(table, second_after_s=NEVER_S, **options)


def test_five_tasks_are_placed_at_the_least_cost_and_b_waits() -> None:
    table, tasks = five()
    made = network(table)
    placed = made.round(ClusterChanges(machines=machines_of(M0=1, M1=1, M2=1, M3=1), tasks=tasks))
    assert (placed.cost, placed.waiting) == (14, 1)
    assert dict(placed.placed) == {"a": "M0", "c": "M1", "d": "M2", "e": "M3"}
    gone = made.round(ClusterChanges(machines_gone=["M3"]))
    assert (gone.cost, gone.waiting) == (19, 2)
    back = made.round(ClusterChanges(machines=machines_of(M3=1)))
    assert back.cost == 14


@pytest.mark.parametrize(
    ("abc", "de", "slots", "cost", "waiting"),
    [(9, 7, {}, 18, 1), (9, 7, {"M3": 2}, 16, 0), (4, 3, {}, 12, 2)],
)
def test_five_tasks_at_other_prices_of_waiting(
    abc: int, de: int, slots: Mapping[str, int], cost: int, waiting: int
) -> None:
    table, tasks = five(abc, de)
    machines = machines_of(**({"M0": 1, "M1": 1, "M2": 1, "M3": 1} | dict(slots)))
    placed = network(table).round(ClusterChanges(machines=machines, tasks=tasks))
    assert (placed.cost, placed.waiting) == (cost, waiting)


def test_what_nobody_said_has_run_is_placed_again_and_a_task_that_is_gone_is_not() -> None:
    table, tasks = five()
    made = network(table)
    first = made.round(ClusterChanges(machines=machines_of(M0=1, M1=1, M2=1, M3=1), tasks=tasks))
    again = made.round(ClusterChanges())
    assert (again.placed, again.cost, again.solver) == (first.placed, first.cost, "")
    last = made.round(ClusterChanges(tasks_gone=["a", "nobody"]))
    assert dict(last.placed) == {"c": "M1", "d": "M2", "e": "M3"}


GANG = Table({"a": {"M0": 4, "M1": 9}, "b": {"M0": 4, "M1": 9}}, {"a": 5, "b": 5})


def test_a_gang_is_placed_as_a_whole_if_that_costs_less_than_that_all_wait() -> None:
    tasks = [Task(name, "job", group="gang") for name in "ab"]
    told = ClusterChanges(machines=machines_of(M0=1, M1=1), tasks=tasks, groups={"gang": Group(gang=2)})
    closed = network(GANG).round(told)
    assert (closed.placed, closed.waiting) == ([], 2)
    dear = Table(GANG.arcs, {"a": 7, "b": 7})
    opened = network(dear).round(told)
    assert opened.cost == 13
    assert {machine for _, machine in opened.placed} == {"M0", "M1"}
    alone = network(GANG).round(ClusterChanges(machines=machines_of(M0=1, M1=1), tasks=tasks))
    assert alone.cost == 9


def test_a_gang_that_no_machine_could_hold_is_refused_with_the_reason_and_others_go_on() -> None:
    table = Table(dict(GANG.arcs) | {"c": {"M0": 1}}, {"a": 50, "b": 50, "c": 5})
    tasks = [*(Task(name, "job", group="gang") for name in "ab"), Task("c", "other")]
    placed = network(table).round(
        ClusterChanges(machines=machines_of(M0=1), tasks=tasks, groups={"gang": Group(gang=2)})
    )
    assert placed.placed == [("c", "M0")]
    assert placed.unplaceable == {"gang": "the gang needs 2 places at once; its machines have 1"}


def test_of_a_group_a_machine_and_a_rack_have_no_more_than_they_may() -> None:
    names = "abcd"
    table = Table(
        {}, dict.fromkeys(names, 10), {"all": [ArcTo(f"m{n}", n, 4) for n in range(4)]}, dict.fromkeys(names, "all")
    )
    machines = [Machine(f"m{number}", f"r{number // 2}", 4) for number in range(4)]
    tasks = [Task(name, "job", group="g") for name in names]
    one_each = network(table).round(
        ClusterChanges(machines=machines, tasks=tasks, groups={"g": Group(max_per_machine=1)})
    )
    assert sorted(machine for _, machine in one_each.placed) == ["m0", "m1", "m2", "m3"]
    assert one_each.cost == 0 + 1 + 2 + 3
    one_a_rack = network(table).round(
        ClusterChanges(machines=machines, tasks=tasks, groups={"g": Group(max_per_rack=1)})
    )
    assert sorted(machine[1] in "01" for _, machine in one_a_rack.placed) == [False, True]
    runs = Group(max_per_machine=1, running={"m0": 1, "m1": 1})
    beside = network(table).round(ClusterChanges(machines=machines, tasks=tasks, groups={"g": runs}))
    assert sorted(machine for _, machine in beside.placed) == ["m2", "m3"]


def test_tasks_that_belong_together_go_to_one_machine_and_to_the_one_where_the_others_are() -> None:
    names = "abc"
    table = Table(
        {},
        dict.fromkeys(names, 10),
        {"all": [ArcTo("m0", 1, 9), ArcTo("m1", 2, 9), ArcTo("m2", 5, 9)]},
        dict.fromkeys(names, "all"),
    )
    tasks = [Task(name, "job", group="g") for name in names]
    machines = machines_of(m0=2, m1=3, m2=4)
    own = network(table).round(ClusterChanges(machines=machines, tasks=tasks, groups={"g": Group(together_with="g")}))
    assert sorted(own.placed) == [("a", "m1"), ("b", "m1"), ("c", "m1")]
    assert own.cost == 6
    others = {"g": Group(together_with="h"), "h": Group(running={"m2": 1})}
    beside = network(table).round(ClusterChanges(machines=machines, tasks=tasks, groups=others))
    assert sorted(beside.placed) == [("a", "m2"), ("b", "m2"), ("c", "m2")]
    small = network(table).round(
        ClusterChanges(machines=machines_of(m0=2, m1=2), tasks=tasks, groups={"g": Group(together_with="g")})
    )
    assert small.placed == []
    assert small.unplaceable == {"g": "3 tasks go to one machine; the largest has room for 2"}


def entries(made: ClusterNetwork) -> dict[str, int]:
    cluster = made.cluster
    return {
        f"{type(part).__name__}.{name}": len(value)
        for part in (cluster, cluster.kinds, cluster.groups, cluster.classes, made._room)
        for name, value in vars(part).items()
        if isinstance(value, dict | set)
    }


@pytest.mark.parametrize("kinds", rest_after(1, 200, 500))
def test_kinds_and_groups_that_came_and_went_leave_nothing(kinds: int) -> None:
    names = [f"t{number}" for number in range(kinds + 1)]
    arcs = [ArcTo("m0", 1, 9), ArcTo("m1", 2, 9)]
    made = network(Table({}, dict.fromkeys(names, 9), {"all": arcs}, dict.fromkeys(names, "all")))
    machines = [Machine("m0", "r", 1), Machine("m1", "r", 1)]
    task = Task(names[-1], "j", kind="k", group="g", demand={})
    limits = {"g": Group(max_per_machine=1)}
    made.round(ClusterChanges(machines=machines, tasks=[task], kinds={"k": ["m0"]}, groups=limits))
    before, nodes, arcs_before = entries(made), made.graph.nodes, made.graph.arcs
    gone: list[str] = []
    for number, name in enumerate(names[:-1]):
        kind, group = f"k{number}", f"g{number}"
        known = {kind: ["m1"] if number % 3 else []}
        tasks = [Task(name, "j", kind=kind, group=group)]
        told = ClusterChanges(
            tasks_gone=gone, tasks=tasks, kinds=known, groups={group: Group(gang=number % 2, max_per_machine=1)}
        )
        assert ((name, "m1") in made.round(told).placed) == bool(number % 3)
        made.round(ClusterChanges(tasks_gone=[name], kinds={kind: GONE}, groups={group: None}))
    assert entries(made) == before
    made.round(ClusterChanges())
    assert (made.graph.nodes, made.graph.arcs) == (nodes, arcs_before)


def test_a_kind_that_is_gone_stays_as_it_is_for_the_tasks_that_it_has() -> None:
    table = Table({}, {"a": 9, "b": 9}, {"all": [ArcTo("m0", 1, 9), ArcTo("m1", 2, 9)]}, {"a": "all", "b": "all"})
    made = network(table)
    told = ClusterChanges(machines=machines_of(m0=1, m1=0), tasks=[Task("a", "j", kind="k")], kinds={"k": ["m1"]})
    assert made.round(told).placed == []
    assert made.round(ClusterChanges(kinds={"k": GONE})).placed == []
    assert made.round(ClusterChanges(machines=machines_of(m1=1))).placed == [("a", "m1")]
    made.round(ClusterChanges(tasks_gone=["a"]))
    assert made.round(ClusterChanges(tasks=[Task("b", "j", kind="k")])).placed == [("b", "m0")]


def test_tasks_of_a_kind_without_machines_wait_outside_and_come_in_with_its_machines() -> None:
    table, tasks = crowd(ann=3)
    made = network(table)
    kind = [Task(task.name, task.job, user=task.user, kind="k") for task in tasks]
    placed = made.round(ClusterChanges(machines=machines_of(m0=2), tasks=kind, kinds={"k": []}))
    nodes = made.graph.nodes
    assert (placed.placed, placed.waiting, placed.cost) == ([], 3, 0)
    assert made.explain("ann0").outside and not made.explain("ann0").ways
    made.round(ClusterChanges(tasks_gone=["ann1"]))
    assert made.graph.nodes == nodes
    opened = made.round(ClusterChanges(kinds={"k": ["m0"]}, machines=machines_of(m1=5)))
    assert sorted(opened.placed) == [("ann0", "m0"), ("ann2", "m0")]
    closed = made.round(ClusterChanges(kinds={"k": []}))
    assert (closed.placed, closed.waiting) == ([], 2)


def test_a_task_that_runs_stays_where_it_is_when_its_kind_leaves_the_network() -> None:
    table = Table({"a": {"m0": 3, "m1": 1}, "b": {"m0": 1}}, {"a": 5, "b": 50})
    made = network(table, keeps_running=True)
    told = ClusterChanges(machines=machines_of(m0=1), tasks=[Task("a", "j", kind="k")], kinds={"k": ["m0"]})
    assert made.round(told).placed == [("a", "m0")]
    assert made.round(ClusterChanges(kinds={"k": []}, tasks_run=[("a", "m0")])).waiting == 0
    better = made.round(ClusterChanges(machines=machines_of(m1=1)))
    assert (better.placed, better.stopped) == ([], [])
    stopped = made.round(ClusterChanges(tasks=[Task("b", "j")]))
    assert (stopped.placed, stopped.stopped) == ([("b", "m0")], ["a"])
    again = made.round(ClusterChanges(tasks=[Task("a", "j", kind="k")], tasks_run=[("b", "m0")]))
    assert (again.placed, again.waiting) == ([], 1)
    assert made.round(ClusterChanges(kinds={"k": None})).placed == [("a", "m1")]


# ---- resources -----------------------------------------------------------------------------------------------------

USED = {"M0": 850, "M1": 850, "M2": 650, "M3": 1050}
REQUESTS = {"t400a": 400, "t400b": 400, "t150a": 150, "t150b": 150, "t150c": 150}


def links() -> tuple[Table, list[Machine], list[Task]]:
    """Figure 5.21: requests of bandwidth, and links of 1,250 MB/s, some of which is in use."""
    aggregators = {
        f"RA{size}": [
            ArcTo(name, stepped([used + size * (unit + 1) for unit in range(4)]), (1250 - used) // size)
            for name, used in USED.items()
        ]
        for size in (400, 150)
    }
    table = Table(
        {}, dict.fromkeys(REQUESTS, 2500), aggregators, {name: f"RA{size}" for name, size in REQUESTS.items()}
    )
    machines = [Machine(name, "rack", 10, free={"network": 1250 - used}) for name, used in USED.items()]
    tasks = [Task(name, "job", demand={"network": size}) for name, size in REQUESTS.items()]
    return table, machines, tasks


@pytest.mark.parametrize(("largest_first", "cost", "waiting"), [(True, 5250, []), (False, 6500, [400])])
def test_what_is_admitted_fits_and_largest_requests_first_end_at_the_best(
    largest_first: bool, cost: int, waiting: list[int]
) -> None:
    table, machines, tasks = links()
    play = Play(network(table, largest_first=largest_first))
    placed = play.round(ClusterChanges(machines=machines, tasks=tasks))
    assert placed.cost == cost
    assert [REQUESTS[name] for name in play.tasks] == waiting


def test_tasks_of_a_kind_go_only_to_its_machines_as_these_change() -> None:
    table = Table(
        {"a": {"m0": 1}}, {"a": 9, "b": 9}, {"all": [ArcTo("m0", 1), ArcTo("m1", 2)]}, {"a": "all", "b": "all"}
    )
    made = network(table)
    tasks = [Task("a", "job", kind="k"), Task("b", "job")]
    told = made.round(ClusterChanges(machines=machines_of(m0=1, m1=1), tasks=tasks, kinds={"k": ["m1"]}))
    assert dict(told.placed) == {"a": "m1", "b": "m0"}
    changed = made.round(ClusterChanges(kinds={"k": ["m0"]}))
    assert dict(changed.placed) == {"a": "m0", "b": "m1"}
    nowhere = made.round(ClusterChanges(kinds={"k": []}))
    assert [name for name, _ in nowhere.placed] == ["b"]
    anywhere = made.round(ClusterChanges(kinds={"k": None}))
    assert anywhere.waiting == 0


# ---- users ---------------------------------------------------------------------------------------------------------


def crowd(**counts: int) -> tuple[Table, list[Task]]:
    names = {f"{user}{number}": user for user, count in counts.items() for number in range(count)}
    arcs = [ArcTo("m0", 1, 100), ArcTo("m1", 2, 100)]
    table = Table({}, dict.fromkeys(names, 10), {"all": arcs}, dict.fromkeys(names, "all"))
    return table, [Task(name, user, user=user) for name, user in names.items()]


def test_users_share_slots_by_weight_and_what_they_hold_counts() -> None:
    table, tasks = crowd(ann=10, bob=10)
    told = ClusterChanges(machines=machines_of(m0=6, m1=6), tasks=tasks, shares={"bob": Share(2.0)})
    placed = network(table).round(told)
    users = [name[:3] for name, _ in placed.placed]
    assert (users.count("ann"), users.count("bob")) == (4, 8)
    held = ClusterChanges(
        machines=machines_of(m0=3, m1=3), tasks=tasks, shares={"ann": Share(1.0, 4), "bob": Share(1.0, 2)}
    )
    users = [name[:3] for name, _ in network(table).round(held).placed]
    assert (users.count("ann"), users.count("bob")) == (2, 4)


def test_slots_that_a_user_cannot_use_go_to_others() -> None:
    table, tasks = crowd(ann=10, bob=10)
    limited = [Task(task.name, task.job, user=task.user, kind="k" if task.user == "bob" else "") for task in tasks]
    told = ClusterChanges(machines=machines_of(m0=6, m1=6), tasks=limited, kinds={"k": []})
    users = [name[:3] for name, _ in network(table).round(told).placed]
    assert (users.count("ann"), users.count("bob")) == (10, 0)


def test_shares_are_forgotten_with_their_users_last_tasks() -> None:
    table, tasks = crowd(ann=10, **{f"u{number}": 1 for number in range(50)}, bob=10)
    made = network(table)
    of_user = {task.user: task for task in tasks}
    gone: list[str] = []
    for number in range(50):
        user = f"u{number}"
        told = [of_user[user]]
        made.round(ClusterChanges(tasks_gone=gone, tasks=told, shares={user: Share(3.0), f"no{user}": Share(2.0)}))
        assert user in made._shares and len(made._shares) <= 2
        gone = [told[0].name]
    outside = [replace(task, kind="k") for task in tasks if task.user == "bob"]
    closed = ClusterChanges(tasks_gone=gone, tasks=outside, kinds={"k": []}, shares={"bob": Share(2.0)})
    for changes in (closed, ClusterChanges(), ClusterChanges()):
        made.round(changes)
    assert list(made._shares) == ["bob"], "tasks of bob wait outside"
    ann = [task for task in tasks if task.user == "ann"]
    opened = ClusterChanges(machines=machines_of(m0=6, m1=6), tasks=ann, kinds={"k": ["m0", "m1"]})
    users = [name[:3] for name, _ in made.round(opened).placed]
    assert (users.count("ann"), users.count("bob")) == (4, 8)
    made.round(ClusterChanges(tasks_gone=[task.name for task in tasks]))
    made.round(ClusterChanges())
    assert not made._shares and not made.cluster.users and not made.cluster.kinds._outside_of


# ---- prices --------------------------------------------------------------------------------------------------------


def test_a_higher_priority_goes_first_and_a_low_one_is_placed_where_there_is_room() -> None:
    names = "abc"
    table = Table({name: {"m0": 5} for name in names}, {"a": 10, "b": 9, "c": 10})
    tasks = [Task("a", "job", priority=-3), Task("b", "job", priority=2), Task("c", "job", priority=1)]
    made = network(table)
    assert made.round(ClusterChanges(machines=machines_of(m0=1), tasks=tasks)).placed == [("b", "m0")]
    assert dict(made.round(ClusterChanges(machines=machines_of(m0=3))).placed) == dict.fromkeys(names, "m0")


def test_a_preferred_machine_is_better_than_what_the_policy_says() -> None:
    table = Table({"a": {"m0": 1}}, {"a": 50})
    placed = network(table).round(
        ClusterChanges(machines=machines_of(m0=1, m1=1), tasks=[Task("a", "job", preferred=("m1", "gone"))])
    )
    assert placed.placed == [("a", "m1")]


# ---- what is refused -----------------------------------------------------------------------------------------------


def test_wrong_changes_are_named() -> None:
    table, _ = five()
    made = network(table)
    with pytest.raises(ProblemError, match="slots of M0 are -1; allowed are numbers from 0"):
        made.round(ClusterChanges(machines=machines_of(M0=-1)))
    with pytest.raises(ProblemError, match="runs_on of task a is M0; this network keeps none"):
        network(table).round(ClusterChanges(machines=machines_of(M0=1), tasks=[Task("a", "j", runs_on="M0")]))
    with pytest.raises(ProblemError, match=r"now_s is 1\.0; allowed are numbers from 2\.0"):
        made = network(table)
        made.round(ClusterChanges(now_s=2.0))
        made.round(ClusterChanges(now_s=1.0))
    with pytest.raises(ProblemError, match="the share of ann is"):
        network(table).round(ClusterChanges(shares={"ann": Share(0.0)}))
    lost = Table({}, {"a": 1}, {}, {"a": "all"})
    lost.aggregator_arcs = lambda aggregator: [ArcTo("lost", 1)]  # type: ignore[method-assign]
    with pytest.raises(ProblemError, match="an arc of the aggregator all leads to the machine lost"):
        network(lost).round(ClusterChanges(tasks=[Task("a", "j")]))


# ---- people --------------------------------------------------------------------------------------------------------


def test_why_a_task_waits_is_told_way_by_way() -> None:
    table, tasks = five()
    made = network(table)
    made.round(ClusterChanges(machines=machines_of(M0=1, M1=1, M2=1, M3=1), tasks=tasks))
    told = made.explain("b")
    assert (told.machine, told.waiting) == (None, 5)
    assert [(way.to, way.cost, way.limit, way.taken) for way in told.ways] == [
        ("", 5, "", True),
        ("M1", 6, "M1 has no free slot", False),
    ]
    assert made.explain("c").machine == "M1"
    assert [(way.to, way.taken) for way in made.explain("c").ways] == [("M1", True), ("M3", False), ("", False)]
    with pytest.raises(KeyError):
        made.explain("nobody")


def test_a_share_that_is_used_up_and_resources_that_do_not_suffice_are_told() -> None:
    table, tasks = crowd(ann=4, bob=4)
    made = network(table)
    placed = made.round(ClusterChanges(machines=machines_of(m0=2, m1=2), tasks=tasks))
    waits = next(task.name for task in tasks if task.name not in dict(placed.placed))
    assert {way.limit for way in made.explain(waits).ways} >= {"m0 has no free slot"}
    table, machines, tasks = links()
    made = network(table)
    made.round(ClusterChanges(machines=machines, tasks=tasks))
    ways = made.explain("t400a").ways
    assert ways[0].to.startswith("RA400 → M")
    assert made.explain("t150a").ways[0].to.startswith("RA150 → M")


def test_what_is_dumped_is_the_problem_that_was_solved() -> None:
    table, tasks = five()
    made = network(table)
    placed = made.round(ClusterChanges(machines=machines_of(M0=1, M1=1, M2=1, M3=1), tasks=tasks))
    made.round(ClusterChanges(tasks_gone=["a"]))
    back = made.round(ClusterChanges(tasks=[tasks[0]]))
    assert oracle_cost(made.dump()) == placed.cost == back.cost


# ---- tasks that run ------------------------------------------------------------------------------------------------


def test_a_task_that_runs_is_stopped_for_one_that_is_dearer_to_keep_waiting() -> None:
    table = Table({"a": {"m0": 3}, "b": {"m0": 1}}, {"a": 5, "b": 50})
    made = network(table, keeps_running=True)
    assert made.round(ClusterChanges(machines=machines_of(m0=1), tasks=[Task("a", "j")])).placed == [("a", "m0")]
    stays = made.round(ClusterChanges(tasks_run=[("a", "m0")]))
    assert (stays.placed, stays.stopped, stays.cost) == ([], [], -1)
    better = made.round(ClusterChanges(tasks=[Task("b", "j")]))
    assert (better.placed, better.stopped, better.cost) == ([("b", "m0")], ["a"], 6)
    assert made.explain("a").machine == "m0"
    after = made.round(ClusterChanges(tasks=[Task("a", "j")], tasks_run=[("b", "m0")]))
    assert (after.placed, after.stopped, after.waiting) == ([], [], 1)
    gone = made.round(ClusterChanges(machines_gone=["m0"]))
    assert (gone.placed, gone.stopped, gone.waiting) == ([], [], 2)


def test_a_placement_that_nobody_confirms_is_told_again_and_one_elsewhere_is_followed() -> None:
    table = Table({"a": {"m0": 1, "m1": 2}}, {"a": 9})
    made = network(table, keeps_running=True)
    first = made.round(ClusterChanges(machines=machines_of(m0=1, m1=1), tasks=[Task("a", "j")]))
    assert made.round(ClusterChanges()).placed == first.placed == [("a", "m0")]
    elsewhere = made.round(ClusterChanges(tasks_run=[("a", "m1")]))
    assert (elsewhere.placed, elsewhere.cost) == ([], -1)


def test_resources_of_tasks_that_run_are_taken() -> None:
    table = Table({}, {"a": 9, "b": 9}, {"all": [ArcTo("m0", 1, 9)]}, {"a": "all", "b": "all"})
    made = network(table, keeps_running=True)
    machine = Machine("m0", "rack", 4, free={"cpu": 3.0})
    made.round(ClusterChanges(machines=[machine], tasks=[Task("a", "j", demand={"cpu": 2.0})]))
    told = made.round(ClusterChanges(tasks_run=[("a", "m0")], tasks=[Task("b", "j", demand={"cpu": 2.0})]))
    assert (told.placed, told.waiting) == ([], 1)
    assert made.explain("b").ways[0].limit
    ended = made.round(ClusterChanges(tasks_gone=["a"]))
    assert ended.placed == [("b", "m0")]


def test_beyond_so_many_classes_tasks_are_turned_away_where_they_do_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_classes, "CLASSES_MAX", 1)
    names = "abcd"
    table = Table({}, dict.fromkeys(names, 9), {"all": [ArcTo("m0", 1, 9)]}, dict.fromkeys(names, "all"))
    play = Play(network(table))
    tasks = [Task(name, "j", demand={"cpu": 1.0 + place}) for place, name in enumerate(names)]
    placed = play.round(ClusterChanges(machines=[Machine("m0", "rack", 4, free={"cpu": 4.0})], tasks=tasks))
    assert placed.placed
    assert placed.waiting == 4 - len(placed.placed)
