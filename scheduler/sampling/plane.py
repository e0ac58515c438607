"""Sparrow's own plane: batch sampling with late binding (§3.1, §3.2).

What holds after each event: a stage with unplaced tasks that may run has at least as many live reservations as
unplaced tasks (with task-level constraints: one for each), or a pending try, or waits for nodes; a stage without
unplaced tasks, all of whose tasks have arrived, has no reservation.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from scheduler.plane import WhyWaiting
from scheduler.sampling.adaptive import AdaptiveRatio
from scheduler.sampling.binding import Binding
from scheduler.sampling.idle import IdleNodes
from scheduler.sampling.idle_offers import IdleOffers
from scheduler.sampling.near_data import NearData
from scheduler.sampling.plan import StagePlan
from scheduler.sampling.probing import Probing
from scheduler.sampling.pushing import Pushing
from scheduler.sampling.surplus import Surplus
from scheduler.sampling.turns import Turns
from sparrow_py.counted import counted
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane, Handler

NODES_NAMED_MAX = 10
"""Nodes with reservations of a stage that are named where it is explained."""


class SamplingPlane:
    """See `scheduler.plane.Plane`."""

    name = m.SPARROW
    has_leader = False
    counts_slots = False

    def __init__(self, book: BookForPlane) -> None:
        options = book.options
        self._is_here = book.is_here
        self.adaptive = AdaptiveRatio(options.probe_ratio_max) if options.probe_ratio_max else None
        self.turns = Turns(options)
        self.idle = IdleNodes(book)
        near_data = NearData(book.holdings)
        self.probing = Probing(book, self.turns, self.idle, self.adaptive, near_data)
        self.surplus = Surplus(book, self.turns, self.probing)
        self.binding = Binding(book, self.turns, self.probing, self.surplus, self.adaptive, near_data)
        self.pushing = Pushing(book, self.turns, self.idle, self.probing, self.surplus, self.adaptive)
        self.messages: dict[type, Handler] = {
            m.GetTasks: self.binding.get_tasks,
            m.ReservationsRefused: self.probing.refused,
            m.Idle: IdleOffers(book, self.turns, self.idle, self.probing, self.pushing).told,
        }
        self.hears_reports = self.adaptive is not None

    # ---- what the book tells -----------------------------------------------------------------

    def stage_came(self, stage: StageState) -> None:
        stage.plan = StagePlan(stage)
        self.pushing.stage_came(stage)

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        self.pushing.push(stage, now_s)
        self.probing.ensure(stage, now_s)

    def tasks_withdrawn(self, stage: StageState) -> None:
        self.turns.has_less_work(stage)

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        self.surplus.none_unplaced(stage, now_s)

    def stage_left(self, stage: StageState, now_s: float) -> None:
        self.surplus.stage_left(stage, now_s)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        self.probing.memories_known(stage, memories, now_s)

    def adopted(self, attempt: Attempt) -> None:
        """Nothing is kept of what runs."""

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        if self.adaptive is not None and report.service_s is not None and report.service_s >= 0:
            self.adaptive.ran(report.service_s)

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        """Another node gets the task, or the same one if it asks for it again."""

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        """Only tasks that a plane has placed are preempted."""

    # ---- what nodes do -----------------------------------------------------------------------

    def node_up(self, node: Node, now_s: float) -> None:
        self.probing.node_came(node.id, now_s)

    def node_state(self, node: Node, now_s: float) -> None:
        self.idle.forget(node.id)
        if node.state == m.DRAINING:
            for stage in self.probing.drained(node):
                if self._is_here(stage.job):
                    self.probing.ensure(stage, now_s)
        elif node.state == m.READY:
            self.probing.node_came(node.id, now_s)

    def node_load(self, node: Node, now_s: float) -> None:
        """Which node is free, late binding finds."""

    def node_lost(self, node: Node) -> dict[StageState, None]:
        self.idle.forget(node.id)
        return self.probing.node_lost(node)

    def node_down(self, node: Node, now_s: float) -> None:
        """Its reservations are made elsewhere, stage by stage."""

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """There is no leader."""

    rounds = None
    lending = None

    def oldest_wait_s(self, now_s: float) -> float:
        """There are no rounds."""
        return 0.0

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        """Where its reservations are queued."""
        return [self._explain(stage) for stage in stages]

    @staticmethod
    def _explain(stage: StageState) -> Callable[[], WhyWaiting]:
        live: Counter[str] = Counter()
        for ticket in stage.plan.tickets.values():
            live.update(ticket.live)
        reasons, named = [], [node_id for node_id, _ in live.most_common(NODES_NAMED_MAX)]
        if live:
            some = ", ".join(f"{node_id} ({count})" for node_id, count in live.most_common(NODES_NAMED_MAX))
            more = f" and {len(live) - NODES_NAMED_MAX:,} more" if len(live) > NODES_NAMED_MAX else ""
            queued = counted(live.total(), "reservation", "are")
            reasons.append(f"{queued} queued at {counted(len(live), 'node')}: {some}{more}")
        return lambda: WhyWaiting(reasons, queued_at=named)

    def live_reservations(self, node_id: str) -> int:
        return sum(self.probing.tickets[ticket].live[node_id] for ticket in self.probing.tickets_at.get(node_id, ()))

    # ---- together and apart ------------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        """Each event is answered at once."""

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        """Nothing is given away to be solved."""

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, stage: StageState) -> str | None:
        return self.probing.problem(stage)

    def problem_of_all(self) -> str | None:
        return self.turns.problem()

    def left_over(self) -> str:
        probing, turns = self.probing, self.turns
        tickets_at = {node_id: tickets for node_id, tickets in probing.tickets_at.items() if tickets}
        if not (probing.tickets or tickets_at or turns or turns.by_work):
            return ""
        return f"tickets {list(probing.tickets)} at {tickets_at}, {turns.all()} of {turns.groups}, {turns.by_work}"
