"""What becomes of the reservations of a stage whose last task is placed: they pass to another job of the user, or are
cancelled (§8)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.plane import BookForPlane
    from scheduler.sampling.plan import StagePlan
    from scheduler.sampling.probing import Probing
    from scheduler.sampling.turns import Turns

SHARED_PER_TASK_MAX = 8
"""Probe sharing stops once the stage that takes reservations over has this many per unplaced task."""


class Surplus:
    """Surplus reservations of all stages of a scheduler."""

    def __init__(self, book: BookForPlane, turns: Turns, probing: Probing) -> None:
        self._turns = turns
        self._tickets = probing.tickets
        self._tickets_at = probing.tickets_at
        self._counters = book.counters
        self._to_node = book.to_node
        self._shares = book.options.probe_sharing
        self._cancels = book.options.cancellation

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        """The stage has no unplaced task (any more, or for now if some have not arrived)."""
        self._turns.remove(stage, stage.plan.group)
        stage.search.no_node_since_s = None
        if stage.complete:
            self._release(stage, now_s)

    def stage_left(self, stage: StageState, now_s: float) -> None:
        """The stage is not this scheduler's any more: as if all its tasks were placed."""
        self._turns.remove(stage, stage.plan.group)
        self._release(stage, now_s)

    def _release(self, stage: StageState, now_s: float) -> None:
        """No task is left to place: pass the stage's reservations on, and cancel the rest."""
        plan: StagePlan = stage.plan
        if not plan.tickets:
            return
        counters, tickets_at = self._counters, self._tickets_at
        taker = self._turns.oldest(plan.group) if self._shares and plan.live else None
        room = taker.unplaced * SHARED_PER_TASK_MAX - taker.plan.live if taker else 0
        for ticket in plan.tickets.values():
            for node_id, count in list(ticket.live.items()):
                if taker and count <= room:
                    room -= count
                    taker.plan.live += count
                    counters.reservations_shared += count
                    continue
                del ticket.live[node_id]
                tickets_at[node_id].discard(ticket.id)
                if self._cancels:  # Else its node asks for it one day, and the ticket is known no more.
                    counters.reservations_cancelled += count
                    self._to_node(node_id, m.CancelReservations(ticket.id))
            if taker and ticket.live:
                ticket.stage = taker
                taker.plan.tickets[ticket.id] = ticket
                taker.reserved_at_s = taker.reserved_at_s or now_s
            else:
                del self._tickets[ticket.id]
        plan.tickets.clear()
        plan.own_ticket = None
        plan.live = 0
        if plan.locality is not None:
            plan.locality.clear()
