"""Late binding (§3.2): a node that has a free slot asks for a task, and only then one is bound to it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane
    from scheduler.sampling.adaptive import AdaptiveRatio
    from scheduler.sampling.locality import Locality
    from scheduler.sampling.near_data import NearData
    from scheduler.sampling.probing import Probing
    from scheduler.sampling.surplus import Surplus
    from scheduler.sampling.turns import Turns

FITTING_MAX = 1 << 30
ROUNDING = 1e-6
"""What is free is a sum of many fractions: so much of a task's demand may seem to be missing and is not."""


class Binding:
    """Answers the asks of nodes."""

    def __init__(
        self,
        book: BookForPlane,
        turns: Turns,
        probing: Probing,
        surplus: Surplus,
        adaptive: AdaptiveRatio | None,
        near_data: NearData,
    ) -> None:
        self._book = book
        self._turns = turns
        self._tickets = probing.tickets
        self._dropped = probing.dropped
        self._probing = probing
        self._surplus = surplus
        self._adaptive = adaptive
        self._near_data = near_data
        self._counters = book.counters
        self._to_node = book.to_node
        self._launch = book.launch
        self._count_placed = book.count_placed
        self._keeps_history = book.keeps_history
        self._reorders = book.options.order != "reserved"

    def get_tasks(self, node: Node, message: m.GetTasks, now_s: float) -> None:
        """A node has free slots: bind the stage's first unplaced tasks to it."""
        self._counters.asks += 1
        left = message.count
        ticket = self._tickets.get(message.ticket)
        if ticket is not None and not (self._dropped and (node.id, ticket.id) in self._dropped):
            stage = ticket.stage
            plan = stage.plan
            known = self._probing.spend(ticket, node, left)
            if plan.locality is not None:  # Each of its reservations is one task's: one too many would be another's.
                left -= known - self._serve_local(stage, plan.locality, node, message, known, now_s)
            elif self._reorders:
                left = self._serve_in_order(stage, node, message, now_s)
            elif stage.unplaced:
                left = self._serve(stage, node, message, left, now_s)
        if left > 0:
            self._counters.noops += left
            self._to_node(node.id, m.NoTask(message.ask, left))

    def _serve_local(
        self, stage: StageState, locality: Locality, node: Node, message: m.GetTasks, count: int, now_s: float
    ) -> int:
        """As `_serve`, for a stage with task-level constraints."""
        if count and stage.unplaced:
            return self._serve(stage, node, message, count, now_s)
        locality.waste(node.id, count)
        return count

    def _serve_in_order(self, reserved: StageState, node: Node, message: m.GetTasks, now_s: float) -> int:
        """As `_serve`, with the user's stages of the kind in order: whose reservation it is does not matter to the
        node (see `order`)."""
        left, plan, declined_by = message.count, reserved.plan, None
        while left:
            stage = self._turns.first(plan.group)
            if stage is None or stage.job.avoids:
                break
            if stage.job.has_large:
                stage = self._near_data.stage(stage, self._turns.in_order(stage.plan.group), node)
            before, left = left, self._serve(stage, node, message, left, now_s)
            if left == before:
                declined_by = stage
                break
        # The first may have to keep away from the node, which this one need not.
        if left and reserved.unplaced and declined_by is not reserved:
            left = self._serve(reserved, node, message, left, now_s)
        if plan.live < reserved.unplaced:  # It lent its reservation, and gets it back as the others' surplus.
            self._probing.ensure(reserved, now_s)
        return left

    def _serve(self, stage: StageState, node: Node, message: m.GetTasks, count: int, now_s: float) -> int:
        """Answer `count` of the ask's slots with tasks of the stage; returns for how many of them there is none."""
        job, plan = stage.job, stage.plan
        declined = 0
        if job.avoids and self._book.avoided_at(stage, node.id):
            declined = count
        elif message.free is not None and stage.kind.demand:
            declined = max(0, message.count - fitting(stage.kind.demand, message.free))  # Of the whole ask.
        if job.using is not None and not self._book.may_start_at(job, node):
            declined = count
            plan.asked_too_soon[node.id] = plan.asked_too_soon.get(node.id, 0) + count
        left, locality = count, plan.locality
        reads_large = job.has_large and bool(stage.details)
        launch, count_placed = self._launch, self._count_placed  # Bound methods are faster to call as local names.
        while left > declined and stage.unplaced:
            if locality is None:
                task = self._near_data.take(stage, node) if reads_large else stage.take_next()
            else:
                wanted = locality.take(node.id)
                if wanted is None:
                    break
                task = wanted
                stage.unplaced -= 1
            left -= 1
            launch(stage, task, node, message.ask)
        launched = count - left
        if launched:
            count_placed(stage, launched)
            if self._turns.by_work:
                self._turns.served(stage, launched)
            if self._adaptive is not None and stage.reserved_at_s is not None:
                self._adaptive.waited(now_s - stage.reserved_at_s, launched)
        if locality is not None:  # What is left of the ask has used up reservations, too.
            locality.waste(node.id, left)
        if self._keeps_history:
            self._book.note(now_s, job.id, "node %s took %d", node.id, launched)
        if not stage.unplaced:
            self._surplus.none_unplaced(stage, now_s)
        elif left:
            if declined:
                self._probing.leave_alone(stage, node.id, now_s)
            self._probing.ensure(stage, now_s)
        return left


def fitting(demand: Iterable[tuple[str, float]], free: dict[str, float]) -> int:
    """How many tasks of this demand fit what is free."""
    shares = (free.get(name, 0.0) / amount + ROUNDING for name, amount in demand if amount > 0)
    # A node may say anything: what is not a number fits nothing.
    return min((int(min(share, FITTING_MAX)) if share >= 0 else 0 for share in shares), default=FITTING_MAX)
