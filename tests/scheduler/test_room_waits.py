"""Tasks for whose inputs nodes have no room: they are tried again after growing pauses, and lost after a named time."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book.jobs import HELD
from scheduler.book.lost_inputs import INPUT_LOSSES_MAX
from scheduler.book.room_waits import PAUSE_MAX_S, PAUSE_S, ROOM_WAIT_MAX_S
from scheduler.explaining import waiting_stages
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import StagedRig, ref

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST
REASON = "no room: the blob is 9 bytes; at most blob_bytes_max = 10 bytes are kept at a node; 8 are in use"


class Rig(StagedRig):
    """A job whose one task has a large payload."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(settling_s=0.0)
        self.submit(("a", [], 1), payloads=[ref("f")], **fields)
        (self.launched,) = self.run()
        self.stage = self.core.jobs["j"].stages[0]

    def no_room(self, now_s: float, kind: str = m.NO_ROOM_NOW) -> float | None:
        """The node hands the task back; for how long it waits, None if it does not."""
        back = m.HandBack("j", self.launched.attempt, REASON, ("f" * 64,), no_room=kind)
        self.node("n", back, now_s=now_s)
        return self.stage.held[0] - now_s if self.core.jobs else None

    def start(self, now_s: float) -> None:
        """Time has come, and the node asks for the task again."""
        self.tick(now_s)
        for _, reserve in self.outbox.take(m.Reserve):
            self.node("n", m.GetTasks(9, reserve.ticket, reserve.count), now_s=now_s)
        (self.launched,) = self.take(m.Launch)

    def wait_out(self, now_s: float) -> tuple[float, list[float]]:
        """There is never room: when the task is given up, and its pauses until then."""
        pauses_s: list[float] = []
        while (pause_s := self.no_room(now_s)) is not None:
            pauses_s.append(pause_s)
            now_s += pause_s
            self.start(now_s)
        return now_s, pauses_s


def test_a_task_whose_inputs_have_no_room_is_held_and_tried_again_without_counting_as_a_loss_or_a_start() -> None:
    rig, now_s = Rig(), 0.0
    for _ in range(3 * INPUT_LOSSES_MAX):
        pause_s = rig.no_room(now_s)
        assert pause_s is not None and rig.stage.states[0] == HELD and not rig.take(m.BlobLost)
        rig.tick(now_s + pause_s / 2)
        assert not rig.take(m.Reserve)
        now_s += pause_s
        rig.start(now_s)
    rig.node("n", m.Report("j", 0, rig.launched.attempt, FINISHED, b"r", "", 0.0, 0.1), now_s=now_s)
    assert rig.outcomes() == [(0, FINISHED, 1)]
    rig.core.check_invariants()


def test_pauses_grow_up_to_a_maximum_and_the_task_is_lost_after_a_named_time_with_node_and_reason() -> None:
    rig = Rig()
    ended_s, pauses_s = rig.wait_out(0.0)
    assert PAUSE_S / 2 <= pauses_s[0] <= PAUSE_S and PAUSE_MAX_S / 2 <= pauses_s[-1] <= max(pauses_s) <= PAUSE_MAX_S
    assert ROOM_WAIT_MAX_S <= ended_s <= ROOM_WAIT_MAX_S + PAUSE_MAX_S
    (outcome,) = rig.take(m.Outcome)
    assert outcome.status is LOST and outcome.attempts == 0 and not rig.core.jobs
    assert outcome.error == f"nodes had no room for its inputs for {ended_s:.0f} s: node n: {REASON}"


@pytest.mark.parametrize("ended", ["failed", "its node was lost", "preempted"])
def test_a_task_that_has_started_waits_as_long_the_next_time(ended: str) -> None:
    rig = Rig(retry_failed=True)
    pause_s = rig.no_room(0.0)
    assert pause_s is not None
    rig.start(pause_s)
    late_s = 2 * ROOM_WAIT_MAX_S
    if ended == "failed":
        rig.node("n", m.Report("j", 0, rig.launched.attempt, FAILED, b"", "oh", 0.0, 0.1), now_s=late_s)
    elif ended == "preempted":
        rig.core.jobs["j"].attempts[rig.launched.attempt].preempting = True
        rig.node("n", m.Preempted("j", rig.launched.attempt, 0.1), now_s=late_s)
    else:
        rig.core.node_down("n", late_s)
        rig.node_up("n", now_s=late_s)
    rig.start(late_s)
    assert rig.no_room(late_s) is not None


def test_inputs_that_nodes_can_never_keep_are_tried_elsewhere_some_times_and_no_more() -> None:
    rig, now_s, tries = Rig(), 0.0, 1
    while (pause_s := rig.no_room(now_s, m.NO_ROOM_EVER)) is not None:
        now_s += pause_s
        tries += 1
        rig.start(now_s)
    (outcome,) = rig.take(m.Outcome)
    assert tries == INPUT_LOSSES_MAX and now_s < ROOM_WAIT_MAX_S
    assert outcome.status is LOST and outcome.error == f"its inputs could not be had: node n: {REASON}"


@pytest.mark.parametrize("when", ["before", "held"])
def test_a_task_that_is_cancelled_waits_for_no_room(when: str) -> None:
    rig = Rig()
    if when == "held":
        rig.no_room(0.0)
    rig.client(m.CancelJob("j"))
    if when == "before":
        assert rig.no_room(0.0) is None
    assert rig.settled() == [(0, CANCELLED)] and not rig.core.jobs and not rig.core.admission.unplaced


def test_it_is_said_why_such_a_task_waits() -> None:
    rig = Rig()
    rig.no_room(0.0)
    ((stage,), _) = waiting_stages(rig.core, rig.core.jobs["j"], 0.0)
    assert any("1 of its tasks waits until nodes have room for inputs" in reason for reason in stage.reasons)
