"""Which machines tasks may go to, as the network is told: what changes, and of so many kinds of each user at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from scheduler.flow import kind_turns, reachable
from scheduler.flow.cluster_changes import GONE
from sparrow_py.constraints import Constraint
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FlowRig
from tests.support.recorder import submission
from tests.support.scheduler_rig import node_info


def zone(name: str, slots: int = 1) -> m.NodeInfo:
    return node_info(slots, attributes={"zone": name})


def where(*zones: str) -> tuple[Constraint, ...]:
    return (Constraint("zone", "in", zones),)


def inside(rig: FlowRig) -> list[str]:
    """Kinds that may go to some machine, by the network's last word."""
    kinds = rig.networks[-1].kinds
    return [name for name, told in kinds.items() if told is None or (told is not GONE and len(told) > 0)]


def test_of_one_users_kinds_so_many_are_in_the_network_and_others_come_in_as_they_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 3)
    nodes = {f"n{number}": node_info(1) for number in range(8)}
    rig = FlowRig(nodes)
    details = {task: m.TaskDetail((f"n{task}",)) for task in range(8)}
    rig.submit_job(8, local=True, details=details, delay_s=1000.0)
    assert sorted(rig.placed()) == [0, 1, 2]
    assert len(inside(rig)) == 3
    stage = next(iter(rig.core.jobs.values())).stages[0]
    assert "5 of the 8 sets of constraints" in rig.plane._reachable.why_outside(stage)
    for now_s in range(1, 6):
        rig.tick(float(now_s))
    assert rig.placed() == {task: f"n{task}" for task in range(8)}
    assert rig.end_all(6.0) == 8
    assert not rig.plane.left_over()


def test_a_kind_that_finds_no_place_makes_room_for_others_of_its_user_after_some_rounds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 1)
    monkeypatch.setattr(kind_turns, "TURN_ROUNDS", 2)
    rig = FlowRig({"n1": zone("a"), "n2": zone("b")})
    rig.submit_job(2, job="a", where=where("a"))
    rig.submit_job(1, job="b", where=where("b"))
    assert rig.placed("a") == {0: "n1"} and rig.placed("b") == {}
    for now_s in range(1, 5):
        rig.tick(float(now_s))
    assert rig.placed("b") == {0: "n2"}
    rig.end_all(9.0)
    for now_s in range(10, 20):
        rig.tick(float(now_s))
    rig.end_all(20.0)
    assert not rig.core.jobs


def test_another_user_does_not_wait_behind_one_with_many_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 2)
    rig = FlowRig({f"n{number}": node_info(1) for number in range(6)})
    details = {task: m.TaskDetail((f"n{task % 3}",)) for task in range(6)}
    rig.submit_job(6, job="many", local=True, details=details, delay_s=1000.0)
    rig.core.client_up("other", "bob")
    rig.client(submission("one", 1, where=(Constraint("node", "==", ("n5",)),)), client="other", user="bob")
    rig.client(m.AddTasks("one", 0, [b"p"]), client="other", user="bob")
    assert list(rig.placed("one").values()) == ["n5"]


def test_what_kinds_have_is_worked_out_once_and_then_for_machines_that_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rig = FlowRig({f"n{number}": zone("ab"[number % 2]) for number in range(6)})
    rig.submit_job(9, job="a", where=where("a"))
    rig.submit_job(9, job="b", where=where("b"))
    asked: list[str] = []
    may_go = reachable.Reachable._may_go
    monkeypatch.setattr(
        reachable.Reachable, "_may_go", lambda self, kind, node: asked.append(node) or may_go(self, kind, node)
    )
    worked_out: list[Any] = []
    monkeypatch.setattr(reachable.Reachable, "_machines_of", lambda self, known: worked_out.append(known))
    rounds = len(rig.networks[-1].rounds)
    rig.node_up("n6", zone("a"))
    assert asked == ["n6", "n6"] and not worked_out
    told = [changes.kinds for changes in rig.networks[-1].rounds[rounds:]]
    assert [len(kinds) for kinds in told if kinds] == [1]
    asked.clear()
    rig.end("n1", next(iter(rig.running["n1"])))
    assert not asked and not worked_out


def test_after_jobs_came_and_went_nothing_of_their_kinds_is_kept() -> None:
    rig = FlowRig({"n1": zone("a", 2), "n2": zone("b", 2)})
    before = {name: len(value) for name, value in vars(rig.plane._reachable).items() if hasattr(value, "__len__")}
    for number in range(40):
        rig.submit_job(3, job=f"j{number}", where=where("a", f"z{number}"))
        rig.submit_job(2, job=f"k{number}", avoid=(f"j{number}",))
        rig.end_all()
        rig.tick(float(number))
        rig.end_all(float(number))
    rig.submit_job(1)
    rig.end_all(50.0)
    assert not rig.core.jobs
    kept = rig.plane._reachable
    assert {name: len(value) for name, value in vars(kept).items() if hasattr(value, "__len__")} == before | {
        "_gone": len(kept._gone)
    }
    assert len(kept._gone) == 1
    known = [told for told in rig.networks[-1].kinds.values() if told is not GONE]
    assert len(known) == 1


class Kinds(RuleBasedStateMachine):
    """Whatever happens, what the network was told of kinds inside is what the book says of them now."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(kind_turns, "KINDS_PER_USER_MAX", 3)
        self.patch.setattr(kind_turns, "TURN_ROUNDS", 2)
        self.rig = FlowRig(wait_for_nodes_s=1000.0)
        self.now_s = 0.0
        self.jobs = 0
        self.plane = self.rig.plane
        self.told: dict[str, Any] = {}
        changes = self.plane._reachable.changes

        def checked() -> dict[str, Any]:
            news: dict[str, Any] = changes()
            self.told.update(news)
            self._check()
            return news

        self.plane._reachable.changes = checked
        self.rig.node_up("n0", zone("a", 1))

    def _check(self) -> None:
        kept, machines, book = self.plane._reachable, self.plane._view.machines, self.plane._book
        assert sum(kept._turns.inside(user) for user in ("tester", "ann")) <= 6
        for name, known in kept._inside.items():
            left_alone = kept._left_alone.get(known.kind, {})
            nodes = book.nodes_now(known.owner) if known.owner is not None else book.nodes.eligible(known.kind)
            if known.owner is not None and not (known.owner.plan and known.owner.plan.since_s):
                continue
            expected = {one for one in nodes if one in machines and one not in left_alone}
            if known.wanted:
                expected &= set(known.wanted)
            told = self.told[name]
            assert (set(machines) if told is None else told) == expected
        for name in kept._by_name.keys() - kept._inside.keys():
            assert self.told[name] == frozenset()

    @rule(node=st.integers(0, 4), name=st.sampled_from("abc"), slots=st.integers(1, 2))
    def node_up(self, node: int, name: str, slots: int) -> None:
        """A node comes, or says that it offers other things."""
        if f"n{node}" not in self.rig.core.nodes:
            self.rig.node_up(f"n{node}", zone(name, slots), self.now_s)
        elif len(self.rig.running[f"n{node}"]) <= slots:
            self.rig.node(f"n{node}", m.NodeChanged(zone(name, slots)), now_s=self.now_s)

    @rule(node=st.integers(1, 4))
    def node_down(self, node: int) -> None:
        """A node goes."""
        if f"n{node}" in self.rig.core.nodes:
            self.rig.node_down(f"n{node}", self.now_s)

    @rule(node=st.integers(0, 4), state=st.sampled_from([m.READY, m.CORDONED]))
    def node_state(self, node: int, state: str) -> None:
        """A node is cordoned, or ready again."""
        if f"n{node}" in self.rig.core.nodes:
            self.rig.node(f"n{node}", m.NodeState(state, "an operator"), now_s=self.now_s)

    @rule(tasks=st.integers(1, 4), zones=st.sets(st.sampled_from("abc"), min_size=1), fields=st.sampled_from("plw-"))
    def submit(self, tasks: int, zones: set[str], fields: str) -> None:
        """A job comes."""
        job, self.jobs = f"j{self.jobs}", self.jobs + 1
        details: dict[int, m.TaskDetail] | None = None
        more: dict[str, Any] = {"where": where(*sorted(zones))}
        if fields == "l":
            details = {task: m.TaskDetail((f"n{task + 1}", "n0")) for task in range(tasks)}
            more = {"local": True, "delay_s": 5.0}
        elif fields == "p" and self.jobs > 1:
            more = {"avoid": (f"j{self.jobs - 2}",)}
        elif fields == "-":
            more = {}
        self.rig.client(submission(job, tasks, **more), now_s=self.now_s)
        if not self.rig.take(m.JobRefused):
            self.rig.client(m.AddTasks(job, 0, [b"p"] * tasks, details), now_s=self.now_s)

    @rule(which=st.integers(0, 100), lasting=st.booleans(), ends=st.booleans())
    def end_or_hand_back(self, which: int, lasting: bool, ends: bool) -> None:
        """A task ends, or its node does not start it."""
        running = [(node, attempt) for node, launches in self.rig.running.items() for attempt in launches]
        if running and ends:
            self.rig.end(*running[which % len(running)], now_s=self.now_s)
        elif running:
            self.rig.hand_back(*running[which % len(running)], now_s=self.now_s, lasting=lasting)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0]))
    def time_passes(self, seconds: float) -> None:
        """Timers run."""
        self.now_s += seconds
        self.rig.tick(self.now_s)

    @invariant()
    def nothing_runs_twice(self) -> None:
        """Nor in more slots than there are."""
        self.rig.note_launches()
        self.rig.take(m.Outcome)

    def teardown(self) -> None:
        """No bound stays."""
        self.patch.undo()


TestKinds = Kinds.TestCase
TestKinds.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
