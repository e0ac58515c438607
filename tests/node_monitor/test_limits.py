"""What ends or holds up a task at a node: demands, time-outs, cancellation, inputs to be fetched, cordon and drain."""

from __future__ import annotations

from typing import Any

import pytest

from node_monitor.stopping import KILL_GRACE_S
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore
from tests.support.recorder import reserve

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


def ref(name: str, *at: str) -> BlobRef:
    return BlobRef(name * 64, 1 << 20, at or ("far:1",))


class Rig(NodeCore):
    """A node with one-place executors p0, … of the app "pool", or one executor of all places of the app "many"."""

    def __init__(self, slots: int = 1, app: str = "pool", **resources: float) -> None:
        super().__init__(slots, [MANY if app == "many" else POOL], resources=resources)
        self.app = app

    def reserve(self, ticket: int, count: int = 1, **fields: Any) -> list[m.GetTasks]:
        """What is asked for once this is reserved."""
        self.receive(reserve(ticket, count, app=self.app, job="j", **fields))
        return self.take(m.GetTasks)

    def launch(self, attempt: int, ask: int, payload: m.Data = b"p", inputs: tuple[tuple[int, int], ...] = ()) -> None:
        self.receive(m.Launch(ask, "j", 0, attempt, attempt, payload, inputs))

    def start(self, *attempts: int, timeout_s: float | None = None, **fields: Any) -> None:
        """These attempts are at the node."""
        self.receive(m.Common("j", 0, b"", timeout_s))
        for attempt in attempts:
            (ask,) = self.reserve(attempt, **fields)
            self.launch(attempt, ask.ask)

    def fetched(self, name: str, reason: str = "") -> None:
        if not reason:
            self.blobs.add(ref(name))
        self.core.fetched(name * 64, reason, 0.0)
        self.settle()

    def reports(self) -> list[tuple[int, TaskStatus, str]]:
        return [(report.attempt, report.status, report.error) for report in self.take(m.Report)]


# ---- demands -------------------------------------------------------------------------------------


def test_tasks_with_a_demand_are_asked_for_as_far_as_they_fit() -> None:
    rig = Rig(4, cpu=2.0)
    (ask,) = rig.reserve(1, 3, demand={"cpu": 0.8})
    assert ask.count == 2 and ask.free == {"cpu": pytest.approx(2.0)}
    (other,) = rig.reserve(2, 5)  # Slots are left, for those that take nothing.
    assert other.count == 2 and other.free is None


def test_what_is_taken_comes_back_when_the_task_ends_is_not_there_or_is_handed_back() -> None:
    rig = Rig(2, cpu=1.0)
    (ask,) = rig.reserve(1, 3, demand={"cpu": 1.0})
    rig.receive(m.NoTask(ask.ask, 1))
    (ask,) = rig.take(m.GetTasks)
    rig.launch(1, ask.ask)
    assert rig.core.free == {"cpu": 0.0} and not rig.take(m.GetTasks)
    rig.done("p1", 1)
    assert len(rig.take(m.GetTasks)) == 1
    rig.tick(1.0)  # The ask is not answered.
    assert rig.core.free == {"cpu": 1.0}


def test_fractions_do_not_add_up_to_too_little() -> None:
    """0.3 - 0.1 - 0.1 is less than 0.1 in binary floating point."""
    rig = Rig(8, cpu=0.3)
    (ask,) = rig.reserve(1, 3, demand={"cpu": 0.1})
    assert ask.count == 3
    rig.receive(m.NoTask(ask.ask, 3))
    (ask,) = rig.reserve(2, 1, demand={"cpu": 0.3})
    assert ask.count == 1


def test_a_resource_that_the_node_does_not_have_is_never_free() -> None:
    rig = Rig(2, cpu=2.0)
    assert not rig.reserve(1, demand={"gpu": 1.0})
    assert rig.reserve(2, demand={"gpu": 0.0})


@pytest.mark.parametrize("amount", [-1.0, float("nan"), float("inf")])
def test_a_bad_demand_breaks_the_link(amount: float) -> None:
    with pytest.raises(LinkError, match="bad reservation"):
        Rig(cpu=1.0).reserve(1, demand={"cpu": amount})


# ---- time-outs -----------------------------------------------------------------------------------


def test_a_task_that_runs_too_long_is_stopped_with_its_executor_and_has_failed() -> None:
    rig = Rig()
    rig.start(1, timeout_s=2.0)
    rig.tick(1.9)
    assert not rig.outbox.killed
    rig.tick(2.0)
    assert rig.outbox.killed == ["p0"] and not rig.reports()
    rig.died("p0")
    assert rig.reports() == [(1, FAILED, "it ran for longer than task_timeout_s = 2 s")]
    assert rig.core.free_slots == 1


def test_in_an_executor_of_many_places_only_the_run_is_stopped() -> None:
    rig = Rig(2, "many")
    rig.start(1, 2, timeout_s=2.0)
    rig.tick(2.0)
    assert rig.take(x.Kill) == [x.Kill([1]), x.Kill([2])] and not rig.outbox.killed
    rig.done("p0", 1, FAILED)
    assert rig.reports() == [(1, FAILED, "it ran for longer than task_timeout_s = 2 s")]
    rig.done("p0", 2)  # It ended by itself before it was told.
    assert [status for _, status, _ in rig.reports()] == [FINISHED]
    rig.tick(2.0 + KILL_GRACE_S)
    assert not rig.outbox.killed


def test_an_executor_that_does_not_end_the_run_is_ended_itself() -> None:
    rig = Rig(2, "many")
    rig.start(1, timeout_s=2.0)
    rig.start(2)
    rig.tick(2.0)
    rig.tick(2.0 + KILL_GRACE_S)
    assert rig.outbox.killed == ["p0"]
    rig.died("p0")
    assert [(attempt, status) for attempt, status, _ in rig.reports()] == [(1, FAILED), (2, LOST)]


def test_a_task_that_ended_in_time_is_not_stopped() -> None:
    rig = Rig()
    rig.start(1, timeout_s=2.0)
    rig.done("p0", 1)
    rig.start(2)
    rig.tick(2.0)
    assert not rig.outbox.killed


def test_the_time_begins_when_the_inputs_are_there() -> None:
    rig = Rig()
    rig.receive(m.Common("j", 0, b"", 2.0))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, ref("f"))
    rig.tick(50.0)
    rig.blobs.add(ref("f"))
    rig.core.fetched("f" * 64, "", 50.0)
    rig.tick(51.9)
    assert not rig.outbox.killed
    rig.tick(52.0)
    assert rig.outbox.killed == ["p0"]


# ---- cancellation of what runs -------------------------------------------------------------------


def test_a_running_task_is_cancelled_only_if_that_is_said() -> None:
    rig = Rig()
    rig.start(1)
    rig.receive(m.CancelAttempt("j", 1))
    assert rig.take(m.AttemptRuns) == [m.AttemptRuns("j", 1)] and not rig.outbox.killed
    rig.receive(m.CancelAttempt("j", 1, True))
    assert rig.outbox.killed == ["p0"]
    rig.receive(m.CancelAttempt("j", 1, True))
    assert rig.outbox.killed == ["p0"]
    rig.died("p0")
    assert rig.reports() == [(1, CANCELLED, "it was cancelled while it ran")]


def test_in_an_executor_of_many_places_by_a_message() -> None:
    rig = Rig(2, "many")
    rig.start(1)
    rig.receive(m.CancelAttempt("j", 1, True))
    assert rig.take(x.Kill) == [x.Kill([1])]
    rig.done("p0", 1, FAILED)
    assert rig.reports() == [(1, CANCELLED, "it was cancelled while it ran")]


def test_a_run_that_was_given_ahead_of_time_is_revoked_and_stopped_if_it_runs_by_then() -> None:
    rig = Rig()
    rig.reserve(1, 9, prefetch=8)
    rig.launch(1, 1)
    rig.launch(2, 2)
    rig.launch(3, 2)
    rig.done("p0", 1, service_s=0.0001)  # Both others are given.
    rig.receive(m.CancelAttempt("j", 3), m.CancelAttempt("j", 3, True))
    assert rig.take(x.Revoke) == [x.Revoke([3])]
    rig.done("p0", 2, service_s=0.0001)
    rig.core.returned("p0", x.Returned([]), 0.0)
    rig.settle()
    assert rig.outbox.killed == ["p0"] and not rig.take(m.AttemptRuns)
    rig.take(m.Report)
    rig.died("p0")
    assert rig.reports() == [(3, CANCELLED, "it was cancelled while it ran")]


# ---- inputs to be fetched ------------------------------------------------------------------------


def test_a_task_holds_its_place_until_all_its_large_inputs_are_here() -> None:
    rig = Rig()
    rig.receive(m.Common("j", 0, ref("c")), m.Input("j", 7, ref("a")), m.Input("j", 8, b"small"))
    (ask,) = rig.reserve(1, 2)
    rig.launch(1, ask.ask, ref("f"), ((7, 2),))
    assert {one.hash[0] for one in rig.outbox.fetches} == {"c", "f", "a"} and rig.core.free_slots == 0
    for name in "cf":
        rig.fetched(name)
        assert not rig.take(x.Run)
    rig.fetched("a")
    (run,) = rig.take(x.Run)
    assert isinstance(run.payload, x.File) and run.inputs == [rig.blobs.file("a" * 64), b"small"]
    assert rig.blobs.pins
    rig.receive(m.ForgetJob("j"))
    rig.done("p0", 1)
    assert not rig.blobs.pins


@pytest.mark.parametrize("inputs", [((7, 1),), ((7, 2),), ((0, 1 << 62),), ((0, 1 << 62), (0, -(1 << 62)))])
def test_a_task_whose_inputs_have_not_come_is_handed_back_and_leaves_its_slot(
    inputs: tuple[tuple[int, int], ...],
) -> None:
    rig = Rig()
    if inputs != ((7, 1),):
        rig.receive(m.Input("j", 7, b"one"))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, b"", inputs)
    (back,) = rig.take(m.HandBack)
    assert (back.attempt, back.reason) == (1, "its inputs were not sent before it")
    assert (rig.core.free_slots, rig.take(x.Run)) == (1, [])
    rig.receive(
        reserve(2, app=rig.app, job="j"), m.Launch(0, "j", 0, 2, 2, b"", inputs, ticket=3), reserve(3, app=rig.app)
    )
    assert len(rig.take(m.GetTasks)) == 1


def test_two_tasks_wait_for_one_fetch_and_a_third_finds_it_here() -> None:
    rig = Rig(3)
    for attempt in (1, 2):
        (ask,) = rig.reserve(attempt)
        rig.launch(attempt, ask.ask, ref("f"))
    assert len(rig.outbox.fetches) == 1
    rig.fetched("f")
    assert len(rig.take(x.Run)) == 2
    (ask,) = rig.reserve(3)
    rig.launch(3, ask.ask, ref("f"))
    assert len(rig.take(x.Run)) == 1 and len(rig.outbox.fetches) == 1


def test_what_cannot_be_had_is_handed_back_by_name_and_this_was_no_start() -> None:
    rig = Rig(2)
    for attempt in (1, 2):
        (ask,) = rig.reserve(attempt)
        rig.launch(attempt, ask.ask, ref("f"))
    rig.fetched("f", "far:1: 404")
    backs = rig.take(m.HandBack)
    assert [(back.attempt, back.missing, back.reason) for back in backs] == [
        (1, ("f" * 64,), "far:1: 404"), (2, ("f" * 64,), "far:1: 404"),
    ]  # fmt: skip
    assert rig.core.free_slots == 2 and rig.core.counters.started == 0


def test_it_is_sought_where_it_is_said_to_be_by_now() -> None:
    """The result was produced again meanwhile, and the node told; then it was not there either."""
    rig = Rig(2)
    rig.receive(m.Input("j", 7, ref("f", "far:1")))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, b"", ((7, 1),))
    rig.receive(m.Input("j", 7, ref("f", "near:1")))
    rig.fetched("f", "far:1: 404")
    assert [one.at for one in rig.outbox.fetches] == [("far:1",), ("near:1",)] and not rig.take(m.HandBack)
    rig.fetched("f", "near:1: 404")
    assert len(rig.take(m.HandBack)) == 1


def test_a_task_that_waits_is_cancelled_at_once() -> None:
    rig = Rig()
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, ref("f"))
    rig.receive(m.CancelAttempt("j", 1))
    assert rig.reports() == [(1, CANCELLED, "it was cancelled")] and rig.core.free_slots == 1
    rig.fetched("f")
    assert not rig.take(x.Run)


@pytest.mark.parametrize("leaving", [False, True])
def test_a_task_that_waits_when_its_executor_dies_is_handed_back_and_this_was_no_start(leaving: bool) -> None:
    rig = Rig()
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask, ref("f"))
    if leaving:
        rig.core.executor_leaving("p0", 0.0)
        rig.fetched("f")
    rig.died("p0")
    assert [back.missing for back in rig.take(m.HandBack)] == [()] and not rig.reports()
    rig.fetched("f")
    assert not rig.take(x.Run) and rig.core.free_slots == 1


# ---- cordon and drain ----------------------------------------------------------------------------


def test_a_cordoned_node_serves_what_is_queued_and_says_so() -> None:
    rig = Rig()
    rig.reserve(1, 2)
    rig.core.cordon(0.0)
    assert [state.state for state in rig.take(m.NodeState)] == [m.CORDONED]
    rig.launch(1, 1)
    rig.done("p0", 1)
    assert len(rig.take(m.GetTasks)) == 1
    rig.core.uncordon(0.0)
    assert [state.state for state in rig.take(m.NodeState)] == [m.READY]


def test_a_draining_node_hands_back_what_has_not_started_and_what_runs_goes_on() -> None:
    rig = Rig(2)
    rig.reserve(1, 3)
    rig.launch(1, 1)
    rig.launch(2, 1, ref("f"))
    rig.core.drain(0.0)
    rig.settle()
    assert [back.attempt for back in rig.take(m.HandBack)] == [2] and len(rig.core.queue) == 0
    rig.core.cordon(0.0)  # It goes on draining.
    assert [state.state for state in rig.take(m.NodeState)] == [m.DRAINING]
    rig.done("p1", 1)
    assert rig.core.idle and not rig.take(m.GetTasks)


def test_a_node_has_drained_once_all_its_schedulers_know() -> None:
    """Until then tasks may be on their way: if the node had ended by the time that they came, they would count as
    started."""
    rig = Rig(2)
    for scheduler in "tu":
        rig.core.scheduler_up(scheduler)
    rig.core.scheduler_up("old", version=m.PROTOCOL_VERSION_OLDEST)  # It answers nothing, and is not waited for.
    rig.reserve(1, 2)
    rig.core.drain(0.0)
    rig.launch(1, 1)
    assert [back.attempt for back in rig.take(m.HandBack)] == [1]
    rig.receive(m.DrainingKnown())
    rig.core.receive("t", m.DrainingKnown(), 0.0)
    assert rig.core.idle and not rig.core.drained
    rig.core.scheduler_down("u", 0.0)
    assert rig.core.drained
    rig.core.scheduler_up("late")
    assert not rig.core.drained
    rig.core.receive("late", m.DrainingKnown(), 0.0)
    assert rig.core.drained


def test_answers_to_an_earlier_drain_do_not_count_for_a_later_one() -> None:
    rig = Rig()
    rig.core.drain(0.0)
    rig.core.uncordon(0.0)
    rig.core.drain(0.0)
    rig.receive(m.DrainingKnown())
    assert not rig.core.drained
    rig.receive(m.DrainingKnown())
    assert rig.core.drained


def test_a_node_that_takes_part_again_has_not_drained() -> None:
    rig = Rig()
    rig.core.drain(0.0)
    rig.receive(m.DrainingKnown())
    rig.core.uncordon(0.0)
    assert rig.core.idle and not rig.core.drained


def test_executors_that_ended_while_it_was_draining_start_when_it_takes_part_again() -> None:
    rig = Rig()
    rig.start(1)
    rig.core.drain(0.0)
    before = len(rig.outbox.started)
    rig.died("p0")
    assert len(rig.outbox.started) == before
    rig.core.uncordon(0.0)
    assert len(rig.outbox.started) == before + 1
