"""Probing: which stages have reservations where.

Batch sampling (§3.1): ceil(d·m) reservations on random nodes for m unplaced tasks; with task-level
constraints (§3.3) on each task's preferred nodes, ceil(d·m) in all. Nodes refuse some, spend some, and
go with others.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from scheduler.book.reserve_message import reserve_message
from scheduler.book.waiting import BACKOFF_MAX_S
from scheduler.sampling.plan import StagePlan, Ticket
from scheduler.spreading import reservations_wanted, spread, spread_beside, spread_by_room
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane
    from scheduler.sampling.adaptive import AdaptiveRatio
    from scheduler.sampling.idle import IdleNodes
    from scheduler.sampling.locality import Locality
    from scheduler.sampling.near_data import NearData
    from scheduler.sampling.turns import Turns


class Probing:
    """Tickets and reservations of all stages of a scheduler."""

    def __init__(
        self, book: BookForPlane, turns: Turns, idle: IdleNodes, adaptive: AdaptiveRatio | None, near_data: NearData
    ) -> None:
        self.tickets: dict[int, Ticket] = {}
        self.tickets_at: defaultdict[str, set[int]] = defaultdict(set)
        """Node id to the tickets with live reservations there."""
        self.dropped: set[tuple[str, int]] = set()
        """(node id, ticket) that nodes had dropped when they began to drain, of tickets that are here still."""
        self._book = book
        self._turns = turns
        self._idle = idle
        self._adaptive = adaptive
        self._near_data = near_data
        self._rng = book.rng
        self._occupied = book.nodes.occupied
        self._to_node = book.to_node
        self._counters = book.counters
        self._next_ticket = 1

    # ---- making reservations -----------------------------------------------------------------

    def ensure(self, stage: StageState, now_s: float) -> None:
        """Top the stage's live reservations up to ceil(d · unplaced)."""
        if not stage.unplaced or not stage.open:
            return
        plan: StagePlan = stage.plan
        self._turns.add(stage, plan.group)
        if plan.locality is not None:
            self._ensure_local(stage, plan.locality, now_s)
            return
        if self._adaptive is not None and stage.reserved_at_s is None:
            plan.probe_ratio = self._adaptive.ratio(stage.spec.probe_ratio)
        missing = reservations_wanted(plan.probe_ratio, stage.unplaced) - plan.live
        if missing <= 0:
            return
        nodes = self._book.nodes_now(stage)
        if nodes:
            if stage.search.no_node_since_s is not None:
                self._book.wait_no_more(stage, now_s)
            choose = self._choose_near if stage.job.has_large and stage.details else self._choose
            self.probe(stage, choose(stage, nodes, missing, now_s), now_s)
        elif plan.live < stage.unplaced:
            self._book.wait(stage, now_s)

    def _choose_near(self, stage: StageState, nodes: list[str], count: int, now_s: float) -> list[tuple[str, int]]:
        """As `_choose`, of a stage some of whose tasks may ask for large data: nodes that have these come first. A task
        for which one of them is idle needs no other."""
        near = self._near_data.nodes(stage, count, self._book.test_node(stage))
        idle = self._idle.take_these(stage, near, now_s)
        near.subtract(idle)
        chosen = +near
        chosen.update(idle)
        alone = sum(idle.values())
        beside = -(-count * (stage.unplaced - alone) // stage.unplaced) - (chosen.total() - alone)
        if beside > 0 and alone < stage.unplaced:
            chosen.update(dict(self._choose(stage, nodes, beside, now_s)))
        return list(chosen.items())

    def _choose(self, stage: StageState, nodes: list[str], count: int, now_s: float) -> list[tuple[str, int]]:
        """Nodes that said they are idle, no more than there are tasks, then random ones besides (§3.1): most of these
        are busy when many are, and cost no ask in vain if the idle ones take all."""
        idle = self._idle.take(stage, min(count, stage.unplaced), now_s)
        if self._occupied:
            count -= sum(idle.values())
            others = spread_by_room(nodes, count, self._rng, self._room_beside(idle)) if count else []
            return list((idle | {node: number + idle.get(node, 0) for node, number in others}).items())
        if not idle:
            return spread(nodes, count, self._rng)
        return spread_beside(idle, nodes, count - sum(idle.values()), self._rng)

    def _room_beside(self, idle: Mapping[str, int]) -> Callable[[str], float]:
        """Which share of a node's slots placed tasks have left, for nodes that are not among these."""
        occupied = self._occupied
        return lambda node: 0.0 if node in idle else 1.0 - occupied.get(node, 0.0)

    def _ensure_local(self, stage: StageState, locality: Locality, now_s: float) -> None:
        chosen = locality.choose(stage.spec.probe_ratio, self._book.nodes_now(stage), self._rng, self._occupied)
        if chosen:
            self.probe(stage, chosen, now_s)
        self._book.wait_for_preferred(stage, locality.uncovered, locality.free > locality.free_live, now_s)

    def probe(self, stage: StageState, per_node: list[tuple[str, int]], now_s: float) -> None:
        """Queue so many reservations at these nodes, which may be given tasks of the stage."""
        job, plan, book = stage.job, stage.plan, self._book
        ticket = plan.own_ticket
        if ticket is None or ticket.id not in plan.tickets:
            ticket = plan.own_ticket = Ticket(self._next_ticket, stage)
            self._next_ticket += 1
            self.tickets[ticket.id] = plan.tickets[ticket.id] = ticket
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        if job.using is not None:
            book.announce_nodes(job, [node_id for node_id, _ in per_node])
        reserves: dict[int, m.Reserve] = {}
        tickets_at, live, to_node, ticket_id = self.tickets_at, ticket.live, self._to_node, ticket.id
        total = 0
        for node_id, count in per_node:
            reserve = reserves.get(count)
            if reserve is None:
                reserve = reserves[count] = reserve_message(stage, ticket_id, count, book.options)
            live[node_id] = live.get(node_id, 0) + count
            tickets_at[node_id].add(ticket_id)
            total += count
            to_node(node_id, reserve)
        plan.live += total
        self._counters.reservations += total
        if book.keeps_history:
            book.note(now_s, job.id, "ticket %d reserved %s", ticket_id, per_node)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        """The stage may have tasks started at these nodes now: those that have asked meanwhile are asked again."""
        asked_too_soon, nodes = stage.plan.asked_too_soon, self._book.nodes
        known = [one for one in asked_too_soon if (node := nodes.get(one)) and node.memory in memories]
        for node_id in known:
            stage.search.refused_by.discard(node_id)
            self._reserve_again(stage, node_id, asked_too_soon.pop(node_id), now_s)
        if known:
            self.ensure(stage, now_s)

    def _reserve_again(self, stage: StageState, node_id: str, count: int, now_s: float) -> None:
        """The node may have tasks of the stage now. Its asks used up so many reservations in vain: they are made again.
        Those made elsewhere in the meantime may be far back in their queues."""
        if not stage.unplaced or not stage.open or not self._book.test_node(stage)(node_id):
            return
        count = min(count, stage.unplaced)
        locality = stage.plan.locality
        if locality is not None:
            count = locality.reserve_at(node_id, count)
        if count:
            self.probe(stage, [(node_id, count)], now_s)

    # ---- nodes come --------------------------------------------------------------------------

    def node_came(self, node_id: str, now_s: float) -> None:
        """A node has come, or offers more: stages that wait for nodes probe, and it gets its share of what waits."""
        for stage in self._turns.all():
            stage.search.barred_by.pop(node_id, None)  # Its operator may have changed that.
            plan = stage.plan
            locality = plan.locality
            lacking = locality.lacking if locality is not None else plan.live < stage.unplaced
            if lacking and stage.search.retry_at_s is None:
                self.ensure(stage, now_s)
            if locality is None:
                self._probe_newcomer(stage, node_id, now_s)

    def _probe_newcomer(self, stage: StageState, node_id: str, now_s: float) -> None:
        """Of what waits elsewhere the node gets the share it would have if it had been there."""
        nodes = self._book.nodes_now(stage)
        if node_id in nodes:
            self._give_share(stage, node_id, len(nodes), now_s)

    def _give_share(self, stage: StageState, node_id: str, nodes: int, now_s: float) -> None:
        """Of what waits elsewhere, at so many nodes in all, unless something of the stage is queued there."""
        plan = stage.plan
        if any(node_id in ticket.live for ticket in plan.tickets.values()):
            return
        share, rest = divmod(reservations_wanted(plan.probe_ratio, stage.unplaced), nodes)
        share += self._rng.randrange(nodes) < rest
        if share:
            self.probe(stage, [(node_id, share)], now_s)

    # ---- reservations refused, spent, gone ---------------------------------------------------

    def refused(self, node: Node, message: m.ReservationsRefused, now_s: float) -> None:
        """A node's queue is full for this user, say: sample others, or back off."""
        ticket = self.tickets.get(message.ticket)
        if ticket is None or (node.id, ticket.id) in self.dropped:
            return
        stage, reason = ticket.stage, m.cut_reason(message.reason)
        self._counters.reservations_refused += message.count
        gone = self.spend(ticket, node, message.count)
        locality = stage.plan.locality
        if locality is not None:
            locality.drop(node.id, gone)
        if message.lasting:
            stage.search.barred_by[node.id] = reason
        else:
            self.leave_alone(stage, node.id, now_s)
        self._book.note(now_s, stage.job.id, "node %s refused %d: %s", node.id, message.count, reason)
        self.ensure(stage, now_s)

    def leave_alone(self, stage: StageState, node_id: str, now_s: float) -> None:
        """The stage's reservations are made elsewhere for a while. The nodes there may be busy for long, and this one
        idle soon: it gets its share of them when it has been forgiven."""
        is_new = node_id not in stage.search.refused_by
        self._book.leave_alone(stage, node_id, now_s)
        if is_new:
            # After the node has been forgiven, as timers of equal times go in the order in which they were set.
            self._book.at_stage(now_s + BACKOFF_MAX_S, stage, partial(self._forgiven, node_id))

    def _forgiven(self, node_id: str, stage: StageState, now_s: float) -> None:
        if not (stage.unplaced and stage.open and self._book.test_node(stage)(node_id)):
            return
        if stage.plan.locality is None:
            self._give_share(stage, node_id, len(self._book.nodes.eligible(stage.kind)), now_s)
        else:
            self.ensure(stage, now_s)

    def spend(self, ticket: Ticket, node: Node, count: int) -> int:
        """Of the ticket's reservations at the node, `count` are queued no more; returns how many were known."""
        if count < 1:
            raise LinkError(f"node {node.id} takes {count} reservations of ticket {ticket.id}")
        held = ticket.live.get(node.id, 0)
        gone = min(held, count)
        plan = ticket.stage.plan
        plan.live -= gone
        if plan.unasked:
            plan.promised = max(0, plan.promised - gone)
            plan.unasked = max(0, plan.unasked - gone)
        if held > gone:
            ticket.live[node.id] = held - gone
        elif held:
            del ticket.live[node.id]
            self.tickets_at[node.id].discard(ticket.id)
        return gone

    def node_lost(self, node: Node) -> dict[StageState, None]:
        """The node is gone, and all reservations there; returns the stages concerned."""
        stages = self._drop_all(node)
        self.tickets_at.pop(node.id, None)
        self.dropped.difference_update([one for one in self.dropped if one[0] == node.id])
        return stages

    def _drop_all(self, node: Node) -> dict[StageState, None]:
        """All reservations at the node are gone without having been spent."""
        stages: dict[StageState, None] = {}
        tickets_here = self.tickets_at[node.id]
        for ticket_id in sorted(tickets_here):
            ticket = self.tickets[ticket_id]
            count, plan = ticket.live.pop(node.id), ticket.stage.plan
            plan.live -= count
            plan.unasked = max(0, plan.unasked - count)
            if plan.locality is not None:
                plan.locality.drop(node.id, count)
            stages[ticket.stage] = None
        tickets_here.clear()
        return stages

    def drained(self, node: Node) -> dict[StageState, None]:
        """The node has dropped what it had queued; it may be ready again by now, and have taken what was on its way.

        Their tickets are used for it no more: what it says of them crossed this. Returns the stages concerned.
        """
        for ticket_id in sorted(self.tickets_at[node.id]):
            plan = self.tickets[ticket_id].stage.plan
            if plan.own_ticket is self.tickets[ticket_id]:
                plan.own_ticket = None
            self.dropped.add((node.id, ticket_id))
            self._to_node(node.id, m.CancelReservations(ticket_id))
        stages = self._drop_all(node)
        self._forget_spent(stages)
        return stages

    def _forget_spent(self, stages: Iterable[StageState]) -> None:
        """Forget tickets without reservations: no message of them can come but of what was dropped. So there are no
        more tickets than reservations, however often nodes drain while a stage waits."""
        for stage in stages:
            plan: StagePlan = stage.plan
            for ticket in [one for one in plan.tickets.values() if not one.live and one is not plan.own_ticket]:
                del plan.tickets[ticket.id], self.tickets[ticket.id]
        self.dropped.difference_update([one for one in self.dropped if one[1] not in self.tickets])

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, stage: StageState) -> str | None:
        """What is wrong with the stage's reservations, or None."""
        plan: StagePlan = stage.plan
        by_node: dict[str, int] = {}
        for ticket in plan.tickets.values():
            if ticket.stage is not stage or self.tickets.get(ticket.id) is not ticket:
                return f"ticket {ticket.id} is not this stage's"
            for node_id, count in ticket.live.items():
                if count < 1 or node_id not in self._book.nodes or ticket.id not in self.tickets_at[node_id]:
                    return f"ticket {ticket.id} has {count} reservations at node {node_id}, which does not"
                by_node[node_id] = by_node.get(node_id, 0) + count
        if (live := sum(by_node.values())) != plan.live:
            return f"{live} live reservations, counted as {plan.live}"
        if stage.waits_for and plan.live:
            return "it is not open, but has reservations"
        if not stage.unplaced and stage.complete and plan.tickets:
            return "nothing is unplaced, but reservations are left"
        lacking = stage.unplaced > plan.live
        if plan.locality is not None:
            problem = plan.locality.problem_of(by_node, set(stage.unplaced_tasks()))
            if problem:
                return problem
            lacking = plan.locality.lacking
        if lacking and stage.open and not self._book.is_waiting(stage):
            return f"{stage.unplaced} unplaced tasks, {plan.live} live reservations, and it does not wait for nodes"
        return None
