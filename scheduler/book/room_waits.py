"""Tasks for whose inputs a node had no room: they were not started, and wait in no slot until they are tried again, as
what is kept at nodes goes when it is needed no more. The pauses grow; a task that waits for too long is lost."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import Attempt, RoomWait
from scheduler.book.lost_inputs import INPUT_LOSSES_MAX
from scheduler.book.setbacks import Cause
from sparrow_py.job import LOST
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    import random

    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.restarts import Restarts

ROOM_WAIT_MAX_S = 300.0
"""A task for whose inputs nodes had no room for so long is lost: some times the 60 s for which nodes lease data."""
PAUSE_S = 0.1
"""The first pause; the next ones are twice as long each."""
PAUSE_MAX_S = 5.0


@dataclass(eq=False, slots=True)
class RoomWaits:
    """The waits for room of all jobs of a scheduler."""

    _ledger: Ledger
    _outcomes: Outcomes
    _restarts: Restarts
    _rng: random.Random

    def wait(self, attempt: Attempt, no_room: str, reason: str, now_s: float) -> None:
        """The node that handed the attempt back has no room for its inputs, `m.NO_ROOM_NOW` or `m.NO_ROOM_EVER`: its
        task, which is wanted, is placed again after a pause, or lost if it has waited for too long."""
        stage, task = attempt.stage, attempt.task
        if stage.room_waits is None:
            stage.room_waits = {}
        waits = stage.room_waits.setdefault(task, RoomWait(now_s))
        if why := self._why_given_up(attempt, waits, no_room, now_s):
            del stage.attempts[task]
            del stage.room_waits[task]
            self._outcomes.settle_unrun(stage, task, LOST, f"{why}: node {attempt.node_id}: {reason}", now_s)
            return
        pause_s = min(PAUSE_S * 2.0**waits.count, PAUSE_MAX_S) * self._rng.uniform(0.5, 1.0)
        waits.count += 1
        self._ledger.admission.returned(stage.job.user)
        self._ledger.setbacks.note(stage, task, Cause.ROOM, now_s, now_s + pause_s)
        self._restarts.hold(stage, task, now_s + pause_s, untold=False)

    @staticmethod
    def _why_given_up(attempt: Attempt, waits: RoomWait, no_room: str, now_s: float) -> str:
        """Why the task is lost; empty if it may be tried again. Other nodes may keep more than one that never can."""
        stage, task = attempt.stage, attempt.task
        if no_room == m.NO_ROOM_EVER:
            losses = stage.input_losses[task] = stage.input_losses.get(task, 0) + 1
            if losses >= INPUT_LOSSES_MAX:
                return "its inputs could not be had"
        waited_s = now_s - waits.since_s
        return f"nodes had no room for its inputs for {waited_s:.0f} s" if waited_s >= ROOM_WAIT_MAX_S else ""

    @staticmethod
    def started(attempt: Attempt) -> None:
        """The attempt had its inputs, or may have had: a wait that follows is another one."""
        if attempt.stage.room_waits:
            attempt.stage.room_waits.pop(attempt.task, None)
