"""Probing: which stages have reservations where, and what becomes of those left over.

Batch sampling (§3.1): ceil(d·m) reservations on random nodes for m unplaced tasks; task-level
constraints (§3.3) sample among each task's preferred nodes. When a stage's last task is placed,
its surplus reservations pass to another job of the user or are cancelled (§8).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler.book.jobs import ShareKey, StageState, Ticket
from scheduler.book.nodes import Node
from scheduler.sampling.locality import FREE
from scheduler.sampling.order import ShortestFirst, work_s
from scheduler.sampling.sampling import reservations_wanted, spread, spread_beside
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.core import SchedulerCore

PROBE_BACKOFF_S = 0.05
"""First wait of a stage that every node refused; doubles up to the maximum."""
PROBE_BACKOFF_MAX_S = 2.0
WITHDRAWN_WAIT_S = 30.0
"""Tasks that no connected node may run wait no longer than this, unless their job says how long, if nodes should run
them and their executors do not start: that has been tried for some time, and is seldom mended by waiting."""
SHARED_PER_TASK_MAX = 8
"""Probe sharing stops once the heir has this many reservations per unplaced task."""


class Probing:
    """Tickets and reservations of all stages of a scheduler."""

    def __init__(self, core: SchedulerCore) -> None:
        self.tickets: dict[int, Ticket] = {}
        self.heirs: dict[ShareKey, dict[StageState, None]] = {}
        """Stages with unplaced tasks by share key, oldest first."""
        self.by_work: dict[ShareKey, ShortestFirst[StageState]] | None = (
            {} if core.options.order == "shortest" else None
        )
        """The same stages, least work first, where that is their order."""
        self.local: dict[StageState, None] = {}
        """Stages with unplaced tasks that share with none."""
        self._core = core
        self._nodes = core.nodes
        self._rng = core.rng
        self._next_ticket = 1

    # ---- making reservations -----------------------------------------------------------------

    def ensure(self, stage: StageState, now_s: float) -> None:
        """Top the stage's live reservations up to ceil(d · unplaced)."""
        if not stage.unplaced or not stage.open:
            return
        self._add_heir(stage)
        if self._core.direct is not None:
            self._core.direct.ensure(stage, now_s)
            return
        if stage.locality is not None:
            self._ensure_local(stage, now_s)
            return
        adaptive = self._core.adaptive
        if adaptive is not None and stage.reserved_at_s is None:
            stage.probe_ratio = adaptive.ratio(stage.spec.probe_ratio)
        missing = reservations_wanted(stage.probe_ratio, stage.unplaced) - stage.live
        if missing <= 0:
            return
        nodes = self.candidates(stage)
        if nodes:
            stage.no_node_since_s = None
            self._probe(stage, self._choose(stage, nodes, missing, now_s), now_s)
        elif stage.live < stage.unplaced:
            self._wait(stage, now_s, self._may_come(stage))

    def _choose(self, stage: StageState, nodes: list[str], count: int, now_s: float) -> list[tuple[str, int]]:
        """Nodes that said they are idle, no more than there are tasks, then random ones besides (§3.1): most of these
        are busy when many are, and cost no ask in vain if the idle ones take all."""
        idle = self._core.idle.take(stage, min(count, stage.unplaced), now_s)
        if not idle:
            return spread(nodes, count, self._rng)
        return spread_beside(idle, nodes, count - sum(idle.values()), self._rng)

    def reserve(self, stage: StageState, per_node: dict[str, int], now_s: float) -> None:
        """Queue reservations at these nodes, which the stage may probe."""
        self._probe(stage, list(per_node.items()), now_s)

    def reserve_again(self, stage: StageState, node_id: str, count: int, now_s: float) -> None:
        """The node may have tasks of the stage now, and has asked for so many in vain: it gets back what it has lost by
        that. What was reserved elsewhere in the meantime may wait behind tasks of any length."""
        direct = self._core.direct is not None
        if direct or not stage.unplaced or not stage.open or not self.may_probe(stage)(node_id):
            return
        count = min(count, stage.unplaced)
        if stage.locality is not None:
            count = stage.locality.reserve_at(node_id, count)
        if count:
            self._probe(stage, [(node_id, count)], now_s)

    def may_probe(self, stage: StageState) -> Callable[[str], bool]:
        """Whether the stage may probe a node now, by its id."""
        eligible, job = self._nodes.eligible_set(stage.kind), stage.job
        if not stage.refused_by and not job.avoids and not stage.barred_by:
            return eligible.__contains__
        return lambda node_id: (
            node_id in eligible
            and node_id not in stage.refused_by
            and node_id not in stage.barred_by
            and not (job.avoids and self.avoided_at(stage, node_id))
        )

    def _ensure_local(self, stage: StageState, now_s: float) -> None:
        locality = stage.locality
        assert locality is not None
        nodes = self.candidates(stage)
        allowed = frozenset(nodes)

        def spread_free(count: int) -> list[tuple[str, int]]:
            return spread(nodes, count, self._rng) if nodes else []

        chosen = locality.choose(stage.spec.probe_ratio, allowed.__contains__, spread_free, self._rng)
        if chosen:
            self._probe(stage, chosen, now_s)
        self._wait_local(stage, now_s)

    def _wait_local(self, stage: StageState, now_s: float) -> None:
        """As `_wait`, for each task that got no reservation: one may wait for nodes that another does not want."""
        locality = stage.locality
        assert locality is not None
        before, locality.hopeless = locality.hopeless, {}
        if not locality.lacking:
            return
        may_come = frozenset(self._may_come(stage))
        hopeless = [task for task in locality.uncovered if may_come.isdisjoint(locality.preferred[task])]
        hopeful = len(hopeless) < len(locality.uncovered)
        if locality.free > locality.free_live:
            hopeful = hopeful or bool(may_come)
            hopeless += [] if may_come else [FREE]
        if hopeful and stage.probe_at_s is None:
            self._back_off(stage, now_s)
        locality.hopeless = {task: before.get(task, now_s) for task in hopeless}
        limit_s = self._wait_limit_s(stage)
        if limit_s is not None and any(task not in before for task in hopeless):
            self._core.at_stage(now_s + limit_s, stage, lambda one, at_s: self._no_node_came_for(one, limit_s, at_s))

    def _no_node_came_for(self, stage: StageState, limit_s: float, now_s: float) -> None:
        locality = stage.locality
        assert locality is not None
        if self._core.jobs.get(stage.job.id) is not stage.job or not stage.open:
            return
        late = [task for task, since_s in locality.hopeless.items() if since_s + limit_s <= now_s]
        if FREE in late:
            late.remove(FREE)
            del locality.hopeless[FREE]
            late = sorted([*late, *locality.free_tasks()])
        self._lost(stage, late, limit_s, now_s)

    def candidates(self, stage: StageState) -> list[str]:
        """Nodes to probe now: eligible, have not refused lately, run no job that is to be avoided (§8)."""
        nodes = self._may_come(stage)
        if stage.refused_by:
            nodes = [node for node in nodes if node not in stage.refused_by]
        if stage.job.avoids:
            nodes = [node for node in nodes if not self.avoided_at(stage, node)]
        return nodes

    def _may_come(self, stage: StageState) -> list[str]:
        """Nodes that take tasks of the stage, now or later. The list may be shared: don't change it."""
        nodes = self._nodes.eligible(stage.kind)
        return [node for node in nodes if node not in stage.barred_by] if stage.barred_by else nodes

    def avoided_at(self, stage: StageState, node_id: str) -> bool:
        """Whether a job that this one avoids, or that avoids this one, runs on the node."""
        others = (self._core.jobs[job_id] for job_id in stage.job.avoids)
        return any(other.running_at and other.running_at.get(node_id) for other in others)

    def wait(self, stage: StageState, now_s: float) -> None:
        """There is no node for some of the stage's tasks now."""
        if stage.locality is not None:
            self._wait_local(stage, now_s)
        else:
            self._wait(stage, now_s, self._may_come(stage))

    def _wait(self, stage: StageState, now_s: float, may_come: list[str]) -> None:
        """There is nobody to probe: try those that may come round again later, or wait for nodes, but not for ever."""
        if may_come:
            stage.no_node_since_s = None
            if stage.probe_at_s is None:
                self._back_off(stage, now_s)
        elif stage.no_node_since_s is None:
            stage.no_node_since_s = now_s
            limit_s = self._wait_limit_s(stage)
            if limit_s is not None:
                self._core.at_stage(now_s + limit_s, stage, lambda one, at_s: self._no_node_came(one, limit_s, at_s))

    def _wait_limit_s(self, stage: StageState) -> float | None:
        """How long to wait for a node that takes the stage's tasks; None: for ever. Not at all if nodes were found that
        could run them and do not want them, and none took any: a job that no connected node could run is refused, too.
        """
        if stage.barred_by and not stage.settled and not stage.attempts:
            return 0.0
        limit_s = self._core.wait_for_nodes_s(stage.job)
        if limit_s is None or stage.job.wait_for_nodes_s is not None or not self._nodes.why_withdrawn(stage.kind):
            return limit_s
        return min(limit_s, WITHDRAWN_WAIT_S)

    def _no_node_came(self, stage: StageState, limit_s: float, now_s: float) -> None:
        since_s = stage.no_node_since_s
        if self._core.jobs.get(stage.job.id) is not stage.job or since_s is None or not stage.open:
            return
        if now_s < since_s + limit_s:  # Nodes came and went meanwhile.
            self._core.at_stage(since_s + limit_s, stage, lambda one, at_s: self._no_node_came(one, limit_s, at_s))
            return
        stage.no_node_since_s = None
        self._lost(stage, stage.unplaced_tasks(), limit_s, now_s)

    def _lost(self, stage: StageState, tasks: list[int], limit_s: float, now_s: float) -> None:
        reason = f"no node that may run it was connected for {limit_s:g} s"
        if stage.barred_by:
            node_id, why = next(reversed(stage.barred_by.items()))
            waited = f" has taken it for {limit_s:g} s" if limit_s else " takes it"
            reason = f"no connected node{waited}; node {node_id}: {why}"
        elif withdrawn := self._nodes.why_withdrawn(stage.kind):
            reason = f"{reason}: {withdrawn}"
        self._core.progress.settle_unplaced(stage, tasks, TaskStatus.LOST, reason, now_s)

    def _probe(self, stage: StageState, per_node: list[tuple[str, int]], now_s: float) -> None:
        job, core = stage.job, self._core
        ticket = stage.own_ticket
        if ticket is None or ticket.id not in stage.tickets:
            ticket = stage.own_ticket = Ticket(self.new_ticket_id(), stage)
            self.tickets[ticket.id] = stage.tickets[ticket.id] = ticket
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        if job.using is not None:
            core.telling.use(job, [node_id for node_id, _ in per_node])
        reserves: dict[int, m.Reserve] = {}
        nodes, live, to_node, ticket_id = self._nodes.by_id, ticket.live, core.to_node, ticket.id
        total = 0
        for node_id, count in per_node:
            reserve = reserves.get(count)
            if reserve is None:
                reserve = reserves[count] = self.reserve_message(stage, ticket_id, count)
            live[node_id] = live.get(node_id, 0) + count
            nodes[node_id].tickets.add(ticket_id)
            total += count
            to_node(node_id, reserve)
        stage.live += total
        core.counters.reservations += total
        core.note(now_s, job.id, "ticket %d reserved %s", ticket_id, per_node)

    def new_ticket_id(self) -> int:
        """An id that no ticket of this scheduler had."""
        self._next_ticket += 1
        return self._next_ticket - 1

    def reserve_message(self, stage: StageState, ticket_id: int, count: int, prefetch: int | None = None) -> m.Reserve:
        """What a node is told of reservations of the stage."""
        job, spec, options = stage.job, stage.spec, self._core.options
        return m.Reserve(
            ticket_id, job.id, job.epoch, job.user, options.weight(job.user), options.priority(job.user), spec.app,
            count, spec.prefetch if prefetch is None else prefetch, spec.expected_duration_s, spec.demand,
        )  # fmt: skip

    # ---- nodes come --------------------------------------------------------------------------

    def node_came(self, node_id: str, now_s: float) -> None:
        """A node has come, or offers more: those who wait for nodes probe, and it gets its share of what waits."""
        waiting = [*(stage for heirs in self.heirs.values() for stage in heirs), *self.local]
        for stage in waiting:
            stage.barred_by.pop(node_id, None)  # Its operator may have changed that.
            locality = stage.locality
            lacking = locality.lacking if locality is not None else stage.live < stage.unplaced
            if lacking and stage.probe_at_s is None:
                self.ensure(stage, now_s)
            if locality is None and self._core.direct is None:
                self._probe_newcomer(stage, node_id, now_s)

    def _probe_newcomer(self, stage: StageState, node_id: str, now_s: float) -> None:
        """Of what waits elsewhere the node gets the share it would have if it had been there."""
        nodes = self.candidates(stage)
        if node_id not in nodes or any(node_id in ticket.live for ticket in stage.tickets.values()):
            return
        wanted = reservations_wanted(stage.probe_ratio, stage.unplaced)
        share, rest = divmod(wanted, len(nodes))
        share += self._rng.randrange(len(nodes)) < rest
        if share:
            self._probe(stage, [(node_id, share)], now_s)

    # ---- reservations refused, spent, gone ---------------------------------------------------

    def refused(self, node: Node, message: m.ReservationsRefused, now_s: float) -> None:
        """A node's queue is full for this user, say: sample others, or back off."""
        ticket = self.tickets.get(message.ticket)
        if ticket is None or ticket.id in node.dropped:
            return
        stage, reason = ticket.stage, m.cut_reason(message.reason)
        self._core.counters.reservations_refused += message.count
        gone = self.spend(ticket, node, message.count)
        if stage.locality is not None:
            stage.locality.drop(node.id, gone)
        if message.lasting:
            stage.barred_by[node.id] = reason
        else:
            self.shun(stage, node, now_s)
        self._core.note(now_s, stage.job.id, "node %s refused %d: %s", node.id, message.count, reason)
        self.ensure(stage, now_s)

    def shun(self, stage: StageState, node: Node, now_s: float) -> None:
        """Do not probe the node for a while; not for ever: a job may be long."""
        if node.id not in stage.refused_by:
            stage.refused_by.add(node.id)
            node_id = node.id
            self._core.at_stage(now_s + PROBE_BACKOFF_MAX_S, stage, lambda one, _: one.refused_by.discard(node_id))

    def _back_off(self, stage: StageState, now_s: float) -> None:
        """Every node refused: try them all again after a while."""
        stage.backoff_s = min(stage.backoff_s * 2 or PROBE_BACKOFF_S, PROBE_BACKOFF_MAX_S)
        stage.probe_at_s = now_s + stage.backoff_s * self._rng.uniform(0.5, 1.0)
        self._core.at_stage(stage.probe_at_s, stage, self._probe_again)

    def _probe_again(self, stage: StageState, now_s: float) -> None:
        stage.probe_at_s = None
        stage.refused_by.clear()
        if self._core.jobs.get(stage.job.id) is stage.job:
            self.ensure(stage, now_s)

    def spend(self, ticket: Ticket, node: Node, count: int) -> int:
        """Of the ticket's reservations at the node, `count` are queued no more; returns how many were known."""
        if count < 1:
            raise LinkError(f"node {node.id} takes {count} reservations of ticket {ticket.id}")
        held = ticket.live.get(node.id, 0)
        gone = min(held, count)
        stage = ticket.stage
        stage.live -= gone
        if stage.promised:
            stage.promised = max(0, stage.promised - gone)
        if held > gone:
            ticket.live[node.id] = held - gone
        elif held:
            del ticket.live[node.id]
            node.tickets.discard(ticket.id)
        return gone

    def drop_node(self, node: Node) -> dict[StageState, None]:
        """All reservations at the node are gone; returns the stages concerned."""
        stages: dict[StageState, None] = {}
        for ticket_id in sorted(node.tickets):
            ticket = self.tickets[ticket_id]
            ticket.stage.forget_reservations(node.id, ticket.live.pop(node.id))
            stages[ticket.stage] = None
        node.tickets.clear()
        return stages

    def drained(self, node: Node) -> dict[StageState, None]:
        """The node has dropped what it had queued; it may be ready again by now, and have taken what was on its way.

        Their tickets are used for it no more: what it says of them crossed this.
        """
        for ticket_id in sorted(node.tickets):
            stage = self.tickets[ticket_id].stage
            if stage.own_ticket is self.tickets[ticket_id]:
                stage.own_ticket = None
            node.dropped.add(ticket_id)
            self._core.to_node(node.id, m.CancelReservations(ticket_id))
        return self.drop_node(node)

    # ---- surplus -----------------------------------------------------------------------------

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        """The stage has no unplaced task (any more, or for now if some have not arrived)."""
        self._remove_heir(stage)
        stage.no_node_since_s = None
        if stage.complete:
            self._release_surplus(stage, now_s)

    def _release_surplus(self, stage: StageState, now_s: float) -> None:
        """No task is left to place: pass the stage's reservations on, and cancel the rest (§8)."""
        if not stage.tickets:
            return
        core = self._core
        heir = self.oldest_heir(stage) if core.options.probe_sharing and stage.live else None
        room = heir.unplaced * SHARED_PER_TASK_MAX - heir.live if heir else 0
        nodes = self._nodes.by_id
        for ticket in stage.tickets.values():
            for node_id, count in list(ticket.live.items()):
                if heir and count <= room:
                    room -= count
                    heir.live += count
                    core.counters.reservations_shared += count
                    continue
                del ticket.live[node_id]
                nodes[node_id].tickets.discard(ticket.id)
                if core.options.cancellation:  # Else its node asks for it one day, and the ticket is known no more.
                    core.counters.reservations_cancelled += count
                    core.to_node(node_id, m.CancelReservations(ticket.id))
            if heir and ticket.live:
                ticket.stage = heir
                heir.tickets[ticket.id] = ticket
                heir.reserved_at_s = heir.reserved_at_s or now_s
            else:
                del self.tickets[ticket.id]
        stage.tickets.clear()
        stage.own_ticket = None
        stage.live = 0
        if stage.locality is not None:
            stage.locality.clear()

    def abandon(self, stage: StageState, now_s: float) -> None:
        """The stage is not this scheduler's any more: as if all its tasks were placed."""
        self._remove_heir(stage)
        self._release_surplus(stage, now_s)

    def _add_heir(self, stage: StageState) -> None:
        if stage.share_key is None:
            self.local[stage] = None
            return
        self._add_by_work(stage, stage.share_key)
        heirs = self.heirs.setdefault(stage.share_key, {})
        if stage in heirs:
            return
        heirs[stage] = None
        if stage.fresh:  # It was there before and comes back: oldest first must hold again.
            self.heirs[stage.share_key] = dict.fromkeys(
                sorted(heirs, key=lambda heir: (heir.job.submitted_at_s, heir.job.id, heir.index))
            )

    def _remove_heir(self, stage: StageState) -> None:
        self.local.pop(stage, None)
        heirs = self.heirs.get(stage.share_key) if stage.share_key is not None else None
        if heirs is not None:
            assert stage.share_key is not None
            heirs.pop(stage, None)
            if self.by_work is not None:
                self.by_work[stage.share_key].remove(stage)
            if not heirs:
                del self.heirs[stage.share_key]
                if self.by_work is not None:
                    del self.by_work[stage.share_key]

    def oldest_heir(self, stage: StageState) -> StageState | None:
        """The oldest stage with unplaced tasks whose reservations may pass to and from this one, or the stage."""
        return next(iter(self.heirs.get(stage.share_key, {})), None) if stage.share_key is not None else None

    def first_heir(self, stage: StageState) -> StageState | None:
        """As `oldest_heir`, the one that is to be served first."""
        if self.by_work is None:
            return self.oldest_heir(stage)
        waiting = self.by_work.get(stage.share_key) if stage.share_key is not None else None
        return waiting.first() if waiting is not None else None

    def served(self, stage: StageState, count: int) -> None:
        """So many tasks of the stage were placed."""
        waiting = self._waiting_by_work(stage)
        if waiting is not None:
            waiting.served(stage, count, self._work_s(stage))

    def withdrawn(self, stage: StageState) -> None:
        """Some of the stage's unplaced tasks need no place any more, and some still do."""
        waiting = self._waiting_by_work(stage)
        if waiting is not None:
            waiting.put(stage, self._work_s(stage))

    def _waiting_by_work(self, stage: StageState) -> ShortestFirst[StageState] | None:
        """Those with which it waits, if it does, and if they are served by their work."""
        waiting = self.by_work.get(stage.share_key) if self.by_work and stage.share_key is not None else None
        return waiting if waiting is not None and stage in waiting else None

    def _add_by_work(self, stage: StageState, key: ShareKey) -> None:
        if self.by_work is not None:
            if key not in self.by_work:
                self.by_work[key] = ShortestFirst(self._core.options.overtaken_max)
            self.by_work[key].put(stage, self._work_s(stage))

    def _work_s(self, stage: StageState) -> float:
        return work_s(stage.unplaced, stage.spec.expected_duration_s)
