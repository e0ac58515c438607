"""The book of a scheduler's jobs, put together: each part knows those above it here, and no others.

An outcome can open stages, doom others, and cancel a job, which all settle tasks again: so `Outcomes` is told at the
end who does that. Nodes for tasks are found by a plane, of which the book knows what `placing` says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.book.advance_notice import AdvanceNotice
from scheduler.book.attempts import Attempts
from scheduler.book.awaited_results import AwaitedResults
from scheduler.book.cancellation import Cancellation
from scheduler.book.claims import Claims
from scheduler.book.client_loss import ClientLoss
from scheduler.book.deliveries import Deliveries
from scheduler.book.detachment import Detachment
from scheduler.book.endings import Endings
from scheduler.book.inventories import Inventories
from scheduler.book.ledger import Ledger, Messenger
from scheduler.book.lost_inputs import LostInputs
from scheduler.book.outcomes import Outcomes
from scheduler.book.overtaking import Overtaking
from scheduler.book.reach import Reach
from scheduler.book.register import Register
from scheduler.book.restarts import Restarts
from scheduler.book.room_waits import RoomWaits
from scheduler.book.stages import Stages
from scheduler.book.submission import Submission
from scheduler.book.waiting import Waiting

if TYPE_CHECKING:
    import random

    from scheduler.options import SchedulerOptions


class Book:
    """Its parts, lowest first. `ledger.placing` is set by whoever made the plane."""

    def __init__(self, options: SchedulerOptions, rng: random.Random, messenger: Messenger, now_s: float) -> None:
        self.ledger = ledger = Ledger(options, messenger)
        self.deliveries = Deliveries(ledger)
        ledger.to_client = self.deliveries.tell
        self.reach = Reach(ledger)
        self.notice = AdvanceNotice(ledger)
        self.attempts = Attempts(ledger)
        self.inventories = Inventories()
        self.register = Register(ledger, self.attempts, self.deliveries, self.inventories)
        self.outcomes = Outcomes(ledger, self.deliveries)
        self.overtaking = Overtaking(ledger, self.attempts, self.outcomes)
        self.waiting = Waiting(ledger, rng, self.reach, self.outcomes)
        self.restarts = Restarts(ledger, self.outcomes, self.waiting, self.notice, rng)
        self.stages = Stages(ledger, self.register, self.outcomes, self.waiting)
        self.lost_inputs = LostInputs(ledger, self.outcomes, self.restarts)
        self.room_waits = RoomWaits(ledger, self.outcomes, self.restarts, rng)
        self.cancellation = Cancellation(ledger, self.attempts, self.register, self.outcomes)
        self.awaited_results = AwaitedResults(ledger, self.outcomes, self.restarts, self.cancellation)
        self.claims = Claims(
            ledger, self.attempts, self.register, self.outcomes, self.notice, self.restarts, self.stages,
            self.cancellation, self.overtaking, self.inventories, now_s,
        )  # fmt: skip
        self.endings = Endings(
            ledger, self.attempts, self.outcomes, self.restarts, self.lost_inputs, self.room_waits, self.claims
        )
        self.submission = Submission(
            ledger, self.deliveries, self.register, self.outcomes, self.waiting, self.stages, self.cancellation,
            self.claims, self.restarts, self.awaited_results,
        )  # fmt: skip
        self.client_loss = ClientLoss(
            ledger, self.deliveries, self.register, self.restarts, self.lost_inputs, self.awaited_results,
            self.cancellation,
        )  # fmt: skip
        self.detachment = Detachment(
            ledger, self.deliveries, self.register, self.notice, self.restarts, self.lost_inputs
        )
        self.deliveries.has_room = self.outcomes.go_on_leaving
        self.outcomes.stage_over = self.stages.over
        self.outcomes.doom = self.stages.doom
        self.outcomes.produced_again = self.lost_inputs.produced_again
        self.outcomes.cancel = self.cancellation.cancel
        self.outcomes.watched_ended = self.awaited_results.watched_ended
        self.register.watched_left = self.awaited_results.watched_left
        self.inventories.completed = self.claims.inventories_complete
