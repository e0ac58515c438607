"""When a cluster grows and shrinks: the decisions, and that they are carried out as they should be."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.access.credentials import Access
from sparrow_py.adaptive import scaling
from sparrow_py.adaptive.deciding import Adaptation, Bounds, Decision, PeakOf, Seen, SeenNode
from sparrow_py.adaptive.scaling import Adaptive
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.embedded.breaking import Breaking
from sparrow_py.errors import ClusterError, InvalidRequest
from sparrow_py.remote.machines import RETRY_S, Ended, Machines
from tests.support.waiting import wait_until

QUIET_S = 10.0


@dataclass
class World:
    """A cluster that starts nodes some looks after it is told, and whose nodes leave as late."""

    slots: int
    delay: int
    nodes: dict[str, int] = field(default_factory=dict)
    """Busy slots by node."""
    starting: list[int] = field(default_factory=list)
    leaving: dict[str, int] = field(default_factory=dict)
    made: int = 0
    done: Counter[str] = field(default_factory=Counter)

    @property
    def present(self) -> int:
        return len(self.nodes) + len(self.starting)

    def passes(self, wanted: int) -> None:
        """A look later the nodes have what of this they can, those that came first as much as they can."""
        ready = sum(left <= 0 for left in self.starting)
        self.starting = [left - 1 for left in self.starting if left > 0]
        for _ in range(ready):
            self.nodes[f"n{self.made:04}"] = 0
            self.made += 1
        for name in [name for name, left in self.leaving.items() if left <= 0]:
            del self.leaving[name], self.nodes[name]
        self.leaving = {name: left - 1 for name, left in self.leaving.items()}
        for name in self.nodes:
            self.nodes[name] = 0 if name in self.leaving else min(self.slots, wanted)
            wanted -= self.nodes[name]

    def seen(self, wanted: int) -> Seen:
        nodes = [SeenNode(name, self.slots, not busy) for name, busy in self.nodes.items()]
        return Seen(wanted, nodes, len(self.starting), frozenset(self.leaving))

    def does(self, decision: Decision) -> None:
        self.starting += [self.delay] * decision.start
        self.leaving |= dict.fromkeys(decision.leave, self.delay)
        self.done["start"] += decision.start
        self.done["leave"] += len(decision.leave)


bounds = st.tuples(st.integers(0, 5), st.integers(1, 12)).map(
    lambda pair: Bounds(min(pair), max(pair[1], *pair), QUIET_S)
)
worlds = st.builds(World, st.integers(1, 4), st.integers(0, 5))
demands = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 30)), max_size=12)
"""Slots that are wanted, and for how many looks of a second."""


@given(bounds, worlds, demands)
def test_it_stays_within_its_bounds_and_only_what_idles_leaves(
    bounds: Bounds, world: World, demands: list[tuple[int, int]]
) -> None:
    core, now_s = Adaptation(bounds), 0.0
    idle_since_s: dict[str, float] = {}
    wanted_before = list[tuple[float, int]]()
    for wanted, looks in demands:
        for _ in range(looks):
            now_s += 1
            world.passes(wanted)
            idle_since_s = {name: idle_since_s.get(name, now_s) for name, busy in world.nodes.items() if not busy}
            wanted_before.append((now_s, wanted))
            peak = max(number for at_s, number in wanted_before if at_s >= now_s - QUIET_S)
            decision = core.look(world.seen(wanted), now_s)
            staying = world.present - len(world.leaving)
            assert not (decision.start and decision.leave)
            if decision.start:
                assert world.present + decision.start <= bounds.maximum
                supply = world.slots * (staying + decision.start - 1)  # The last one of them is needed, too.
                assert supply < wanted or staying + decision.start <= bounds.minimum
            for name in decision.leave:
                assert name not in world.leaving
                assert now_s - idle_since_s[name] >= QUIET_S
            if decision.leave:
                assert staying - len(decision.leave) >= bounds.minimum
                assert world.slots * (staying - len(decision.leave)) >= peak
            world.does(decision)


@given(bounds, worlds, demands, st.integers(0, 60))
def test_under_a_steady_load_it_settles_on_as_few_nodes_as_that_takes(
    bounds: Bounds, world: World, demands: list[tuple[int, int]], steady: int
) -> None:
    core, now_s = Adaptation(bounds), 0.0
    settled_s = 4 * QUIET_S + 8 * (world.delay + 2)
    for wanted, looks in [*demands, (steady, int(settled_s)), (steady, int(QUIET_S))]:
        before = dict(world.done)
        for _ in range(looks):
            now_s += 1
            world.passes(wanted)
            world.does(core.look(world.seen(wanted), now_s))
    assert dict(world.done) == before, "it goes on though nothing changes"
    assert not world.leaving and not world.starting
    assert len(world.nodes) == min(max(-(-steady // world.slots), bounds.minimum), bounds.maximum)


@given(st.integers(1, 4), st.integers(1, 10), st.floats(1.0, QUIET_S - 1))
def test_a_load_that_comes_and_goes_within_the_quiet_time_costs_no_further_start(
    slots: int, nodes: int, pause_s: float
) -> None:
    core, world, now_s = Adaptation(Bounds(0, nodes, QUIET_S)), World(slots, 0), 0.0
    for burst in range(8):
        for wanted in [slots * nodes] * 4 + [0] * int(pause_s):
            now_s += 1
            world.passes(wanted)
            world.does(core.look(world.seen(wanted), now_s))
        assert world.done == Counter(start=nodes, leave=0), burst


def test_a_node_to_which_tasks_came_and_went_between_looks_has_had_something_to_do() -> None:
    core = Adaptation(Bounds(0, 1, QUIET_S))
    for now_s in range(5 * int(QUIET_S)):
        busy_until_s = 3 * QUIET_S
        launched = int(min(now_s, busy_until_s)) // 3  # A task every three looks, which ends before the next look.
        decision = core.look(Seen(0, [SeenNode("n", 1, idle=True, launched=launched)]), float(now_s))
        assert decision == Decision(leave=("n",) if now_s >= busy_until_s + QUIET_S else ())
        if decision.leave:
            return
    raise AssertionError("it never leaves")


def test_until_a_node_has_said_how_many_slots_it_has_one_is_started() -> None:
    core = Adaptation(Bounds(0, 100, QUIET_S))
    assert core.look(Seen(80, []), 0.0) == Decision(start=1)
    assert core.look(Seen(80, [], starting=1), 1.0) == Decision()
    assert core.look(Seen(80, [SeenNode("a", 8, idle=False)]), 2.0) == Decision(start=9)


def test_machines_that_cannot_be_started_now_and_nodes_of_others_are_minded() -> None:
    core = Adaptation(Bounds(2, 10, QUIET_S))
    assert core.look(Seen(0, [], room=1), 0.0) == Decision(start=1)
    others = [SeenNode("theirs", 8, idle=True, own=False)]
    own = [SeenNode(name, 1, idle=True) for name in "ab"]
    for now_s in (1.0, 2 * QUIET_S):
        assert core.look(Seen(8, [*others, *own]), now_s) == Decision()
    core = Adaptation(Bounds(0, 10, QUIET_S))
    for now_s, leave in ((1.0, ()), (2 * QUIET_S, ("a", "b"))):
        assert core.look(Seen(8, [*others, *own]), now_s) == Decision(leave=leave)


def test_a_cordoned_node_offers_nothing_and_one_that_stays_is_not_asked_again_at_once() -> None:
    core = Adaptation(Bounds(0, 10, QUIET_S))
    cordoned = SeenNode("a", 4, idle=True, takes_tasks=False)
    assert core.look(Seen(4, [cordoned]), 0.0) == Decision(start=1)
    assert core.look(Seen(0, [cordoned]), QUIET_S) == Decision(leave=("a",))
    core.stays("a")
    assert core.look(Seen(0, [cordoned]), QUIET_S + 1) == Decision()
    assert core.look(Seen(0, [cordoned]), 2 * QUIET_S + 1) == Decision(leave=("a",))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), min_size=1, max_size=60), st.integers(1, 20))
def test_a_peak_is_the_largest_of_the_last_seconds(steps: list[tuple[int, int]], window_s: int) -> None:
    peak, now_s = PeakOf(window_s), 0
    seen = list[tuple[int, int]]()
    for number, pause_s in steps:
        now_s += pause_s
        seen.append((now_s, number))
        assert peak.of(number, now_s) == max(one for at_s, one in seen if at_s >= now_s - window_s)


@pytest.mark.parametrize(
    ("minimum", "maximum", "quiet_s", "said"),
    [(-1, 2, 1.0, "minimum"), (3, 2, 1.0, "at most maximum=2"), (0, 0, 1.0, "maximum"), (0, 1, 0.0, "quiet_s")],
)
def test_bounds_that_cannot_be(minimum: int, maximum: int, quiet_s: float, said: str) -> None:
    with pytest.raises(InvalidRequest, match=said):
        Bounds(minimum, maximum, quiet_s)


def all_ended(machines: Machines, count: int) -> list[Ended]:
    """So many, once they have ended."""
    found = list[Ended]()

    def have_ended() -> bool:
        found.extend(machines.take_ended())
        return len(found) >= count

    wait_until(have_ended, "commands to end")
    return found


@pytest.mark.processes
def test_machines_that_end_in_order_may_start_again_at_once_and_lost_ones_after_a_while() -> None:
    now_s = [0.0]
    machines = Machines("t" * 32, os.environ, lambda _: None, lambda: now_s[0])
    machines.add({"left": ["sh", "-c", "exit 0"], "lost": ["sh", "-c", "exit 3"], "told": ["sh", "-c", "exit 143"]})
    machines.expect_end("told", expected=True)
    assert machines.startable() == ["left", "lost", "told"]
    machines.start_nodes(5)
    assert machines.room() == 0
    ended = all_ended(machines, 3)
    assert {one.machine: one.expected for one in ended} == {"left": True, "lost": False, "told": True}
    assert machines.own_nodes() == set()
    assert machines.startable() == ["left", "told"]
    now_s[0] = RETRY_S
    assert machines.startable() == ["left", "told", "lost"]
    machines.start_nodes(1)
    machines.give_up("left")
    assert [one.expected for one in all_ended(machines, 1)] == [False]
    assert machines.startable() == ["told", "lost"]
    machines.end()
    machines.start_nodes(1)
    assert machines.own_nodes() == set()


class Pretended:
    """A cluster with a node that idles, another that does not come, and machines that do not start."""

    access, addresses = Access(), ["127.0.0.1:1"]

    def __init__(self) -> None:
        self.told = list[tuple[str, object]]()
        self.breaking = Breaking()
        self.tell_if_broken = self.breaking.tell

    def nodes(self) -> list[NodeStatus]:
        return [NodeStatus("idle", 1, address="127.0.0.1:2")]

    def own_nodes(self) -> set[str]:
        return {"idle"} if ("late", "given up") in self.told else {"idle", "late"}

    def room(self) -> int:
        return 5

    def start_nodes(self, count: int) -> None:
        self.told.append(("start", count))
        raise ClusterError("there are no processes left")

    def expect_end(self, node_id: str, *, expected: bool) -> None:
        self.told.append((node_id, expected))

    def give_up(self, node_id: str) -> None:
        self.told.append((node_id, "given up"))


def test_what_is_decided_is_carried_out_and_what_fails_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A node that does not come is given up; one that is needed after all stays; a start is not tried at once again."""
    wanted, answers = [0], iter([(409, b"needed"), (202, b"")])
    monkeypatch.setattr(scaling, "ARRIVAL_TIMEOUT_S", -1.0)
    monkeypatch.setattr(scaling, "http_get_json", lambda *_, **__: {"slots_wanted": wanted[0]})
    monkeypatch.setattr(scaling, "http_answer", lambda *_, **__: next(answers))
    cluster = Pretended()
    with Adaptive(cluster, cluster, 0, 3, quiet_s=0.1, interval_s=0.05) as adaptive:
        wait_until(lambda: len(cluster.told) == 4, "the node to be told to leave twice")
        assert cluster.told == [("late", "given up"), ("idle", True), ("idle", False), ("idle", True)]
        wanted[0] = 9
        wait_until(lambda: "no processes left" in caplog.text, "a start")
    assert cluster.told[4:] == [("start", 2)]
    assert repr(adaptive) == "<Adaptive 0 to 3 node monitors, stopped>"


@pytest.mark.parametrize("wrong", [{"maximum": -1}, {"quiet_s": -1.0}, {"interval_s": 0.0}])
def test_one_that_cannot_be_leaves_the_one_before_as_it_is(
    wrong: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "http_get_json", lambda *_, **__: {"slots_wanted": 0})
    cluster = Pretended()
    bounds: dict[str, Any] = {"minimum": 0, "maximum": 3, "interval_s": 3600.0}
    first = Adaptive(cluster, cluster, **bounds)
    with pytest.raises(InvalidRequest):
        Adaptive(cluster, cluster, **{**bounds, **wrong}, before=first)
    assert not first.is_stopped
    with Adaptive(cluster, cluster, **bounds, before=first):
        assert first.is_stopped


def test_it_ends_with_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scaling, "http_get_json", lambda *_, **__: {"slots_wanted": 0})
    cluster = Pretended()
    adaptive = Adaptive(cluster, cluster, 0, 3, interval_s=3600.0)
    cluster.breaking.broken(ClusterError("no scheduler any more"))
    assert adaptive.is_stopped
    with pytest.raises(ClusterError, match="no scheduler any more"):
        Adaptive(cluster, cluster, 0, 3)
