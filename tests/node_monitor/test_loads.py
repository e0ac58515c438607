"""What a node tells schedulers of its load: on change, at most twice a second, and again and again."""

from __future__ import annotations

from typing import Any

import pytest

from node_monitor.host.measured import Measured
from node_monitor.loads import LOAD_PAUSE_S
from scheduler.book.validation import check_load
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve


class Rig(NodeCore):
    """A node of 10 slots, 10 cpu and 100 memory; s and t sample, f leads the plane "flow"."""

    def __init__(self, *, watched: bool = True) -> None:
        super().__init__(10, [MANY], schedulers="st", resources={"cpu": 10.0, "memory_bytes": 100.0}, report_idle=False)
        self.core.scheduler_up("f", plane=m.FLOW)
        self.number = 0
        if watched:
            self.receive(m.Lead(m.FLOW, 1), scheduler="f")

    def place(self, count: int = 1, now_s: float | None = None, **demand: float) -> None:
        for _ in range(count):
            self.number += 1
            launch = m.LaunchPlaced(
                "p", 0, self.number, self.number, b"p", 1, "anna", 1.0, 0, "many", None, demand or None
            )
            self.receive(launch, scheduler="f", now_s=now_s)

    def loads(self) -> list[m.NodeLoad]:
        return [load for to, load in self.outbox.take(m.NodeLoad) if to == "f"]

    def occupied(self) -> list[tuple[str, int]]:
        return [(to, said.slots) for to, said in self.outbox.take(m.Occupied)]


def load(lane_free: int = 8, short: int = 0, queued: int = 0, cpu: float = 10.0, memory: float = 100.0) -> m.NodeLoad:
    return m.NodeLoad(lane_free, 8, short, queued, {"cpu": cpu, "memory_bytes": memory})


def test_who_sends_a_lead_is_told_at_once() -> None:
    rig = Rig()
    assert rig.loads() == [load()]
    rig.core.scheduler_up("g", plane=m.FLOW)
    rig.receive(m.Lead(m.FLOW, 0), scheduler="g")
    assert [to for to, _ in rig.outbox.take(m.NodeLoad)] == ["g"]


def test_nobody_else_is_told_loads() -> None:
    rig = Rig(watched=False)
    rig.tick(100.0)
    assert not rig.outbox.take(m.NodeLoad) and rig.core.next_deadline_s() is None and not rig.core.is_watched


def test_a_change_is_told_at_once_and_the_next_ones_together_half_a_second_later() -> None:
    rig = Rig()
    rig.loads()
    rig.place(cpu=2.0, memory_bytes=1.0)
    assert rig.loads() == [load(7, cpu=8.0, memory=99.0)]
    rig.place(2)
    rig.receive(reserve(1, 1))
    assert not rig.loads()
    rig.tick(LOAD_PAUSE_S)
    assert rig.loads() == [load(5, short=1, cpu=8.0, memory=99.0)]
    rig.tick(10.0)
    assert not rig.loads()


def test_what_waits_in_the_lane_counts_as_taken() -> None:
    rig = Rig()
    rig.loads()
    rig.place(cpu=6.0)
    rig.place(cpu=6.0)
    rig.place(7, cpu=1.0)
    rig.tick(LOAD_PAUSE_S)
    last = rig.loads()[-1]
    assert (last.lane_free, last.queued, last.free["cpu"]) == (0, 8, 0.0)


def test_small_changes_of_a_resource_are_told_once_they_add_up() -> None:
    rig = Rig()
    rig.receive(reserve(1, 9, demand={"cpu": 0.3}))
    (ask,) = rig.take(m.GetTasks)
    rig.tick(0.2)
    (told,) = rig.loads()[-1:]
    assert told.free["cpu"] == pytest.approx(10.0 - 9 * 0.3)
    rig.receive(m.NoTask(ask.ask, 3))
    rig.tick(0.9)
    assert not rig.loads(), "0.9 of 10 cpu are free again"
    rig.receive(reserve(2, 1, demand={"cpu": 0.3}))
    rig.core.scheduler_down("s", 0.9)
    rig.settle()
    rig.tick(3.0)
    (told,) = rig.loads()
    assert told.free["cpu"] == 10.0


def test_an_unchanged_load_is_told_again() -> None:
    rig = Rig()
    rig.place()
    rig.loads()
    for time_s in (m.LOAD_REFRESH_S, 2 * m.LOAD_REFRESH_S, 3 * m.LOAD_REFRESH_S):
        rig.tick(time_s - 0.1)
        assert not rig.loads()
        rig.tick(time_s)
        assert len(rig.loads()) == 1
    rig.core.scheduler_down("f", 91.0)
    rig.settle()
    rig.tick(1000.0)
    assert rig.core.next_deadline_s() is None


def test_what_is_measured_is_told_if_it_has_changed_by_a_tenth() -> None:
    rig = Rig()
    rig.loads()

    def measure(at_s: float, *measured: Any) -> list[tuple[Any, ...]]:
        rig.now_s = at_s
        rig.core.measured(Measured(*measured), at_s)
        return [(one.cpu, one.memory_bytes, one.net_in_bytes_per_s, one.net_out_bytes_per_s) for one in rig.loads()]

    assert rig.core.is_watched
    assert measure(1.0, 2.0, 50, 0.0, 0.0) == [(2.0, 50, 0.0, 0.0)]
    assert measure(2.0, 2.9, 59, 0.9e6, 0.9e6) == []
    assert measure(3.0, 3.0, 50, 0.0, 0.0) == [(3.0, 50, 0.0, 0.0)]
    assert measure(4.0, 3.0, 60, 0.0, 0.0) == [(3.0, 60, 0.0, 0.0)]
    assert measure(5.0, 3.0, 60, 1e8, 0.0) == [(3.0, 60, 1e8, 0.0)]
    assert measure(6.0, 3.0, 60, 1.09e8, 0.0) == []
    assert measure(7.0, 3.0, 60, 1.2e8, 0.0) == [(3.0, 60, 1.2e8, 0.0)]
    assert measure(8.0) == [(None, None, None, None)]


def test_several_nodes_of_a_machine_have_equal_parts_of_what_is_measured() -> None:
    assert Measured(4.0, 101, 8.0, None).divided(4) == Measured(1.0, 25, 2.0, None)
    assert Measured().divided(4) == Measured()


def test_schedulers_that_sample_are_told_how_many_slots_placed_tasks_hold() -> None:
    rig = Rig(watched=False)
    rig.core.receive("f", m.Lead(m.FLOW, 1), 0.0)
    rig.place()
    assert rig.occupied() == [("s", 1), ("t", 1)]
    rig.place(3)
    assert not rig.occupied()
    rig.tick(LOAD_PAUSE_S)
    assert rig.occupied() == [("s", 4), ("t", 4)]
    rig.core.scheduler_up("u")
    rig.core.scheduler_up("g", plane=m.FLOW)
    assert rig.occupied() == [("u", 4)]
    rig.core.scheduler_down("f", 1.0)
    for run in (1, 2, 3, 4):
        rig.done("p0", run, now_s=2.0)
    rig.tick(3.0)
    assert rig.occupied() == [("s", 3), ("t", 3), ("u", 3), ("s", 0), ("t", 0), ("u", 0)]


def test_a_lane_that_has_other_slots_is_told() -> None:
    rig = Rig()
    rig.loads()
    for scheduler in "st":
        rig.core.scheduler_down(scheduler, 1.0)
    rig.settle(1.0)
    assert [(one.lane_free, one.lane_slots) for one in rig.loads()] == [(10, 10)]


def test_schedulers_believe_whatever_a_node_says() -> None:
    """What is free of a resource is a sum of fractions, and no more than there is, nor less than nothing."""
    rig = Rig()
    for _ in range(10):
        rig.place(cpu=0.1, memory_bytes=33.3)
    for run in (3, 1, 2, 5, 4):
        rig.done("p0", run) if run in rig.core.executors["p0"].running else None
    for time_s in range(1, 200):
        rig.tick(time_s)
    for one in rig.loads():
        check_load("n", 10, {"cpu": 10.0, "memory_bytes": 100.0}, one)


def test_what_takes_no_more_than_a_slot_moves_nothing() -> None:
    """So nothing is looked at for sampled tasks without a demand: it would cost at each of them."""
    rig = Rig(watched=False)
    rig.settle()
    core, slots = rig.core, rig.core._slots
    slots.moved = False
    core.receive("s", reserve(1, 2), 0.0)
    core.pump(0.0)
    (ask,) = rig.take(m.GetTasks)
    core.receive("s", m.Launch(ask.ask, "j1", 0, 1, 1, b"p"), 0.0)
    core.receive("s", m.NoTask(ask.ask, 1), 0.0)
    rig.core.done("p0", x.Done(1, TaskStatus.FINISHED, b"", "", 0.0, 0.0), 0.0)
    assert not slots.moved
