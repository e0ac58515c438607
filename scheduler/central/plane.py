"""The central plane: a scheduler that takes all slots of its nodes for its own, and keeps tasks until one is free.

It is what the paper compares Sparrow with (§7.4), live: it knows each node's slots and which of them it has filled, and
sends a task at once to the node with the least tasks per slot, of equal ones to any. There is no sampling, no
reservation waits at a node, and nobody is asked: tasks beyond the free slots wait here, at most `unplaced_tasks_max` of
a user. So with one scheduler no task waits while a slot that may run it is free, but for the network: what no sampling
can do better.

Users take turns by weighted fair queueing (`shares`), jobs of one user go in order of arrival; where a stage finds no
slot that may run its tasks, those behind it do not wait for that.

Several central schedulers on the same nodes do not know of each other: each fills all slots, and what is too much waits
at the nodes, in their queues. So an operator starts one, and no scheduler of another placement beside it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from scheduler.book.validation import ignore_idle
from scheduler.book.waiting import BACKOFF_MAX_S
from scheduler.central.free_nodes import FreeNodes, fits
from scheduler.central.shares import Charge, Shares
from scheduler.central.user_queue import Line, UserQueue
from scheduler.plane import WhyWaiting
from scheduler.waiting_for_nodes import look_for_nodes, nodes_changed
from sparrow_py.counted import agreeing, counted
from sparrow_py.job import CANCELLED
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import Attempt, StageState
    from scheduler.book.nodes import Node
    from scheduler.plane import BookForPlane, Handler


class _StagePlan:
    """What is kept of a stage."""

    __slots__ = ("number", "waits")

    def __init__(self, number: int) -> None:
        self.number = number
        """By when its job came."""
        self.waits = False
        """Whether it is in its user's queue."""


class CentralPlane:
    """See `scheduler.plane.Plane`, and the module's docstring."""

    name = m.SPARROW
    has_leader = False
    counts_slots = True
    hears_reports = True

    def __init__(self, book: BookForPlane) -> None:
        self._book = book
        self._numbers = itertools.count(1)
        self._queues: dict[str, UserQueue] = {}
        """Of users that have stages that wait."""
        self._shares = Shares()
        self._free = FreeNodes(book.rng)
        self._charges: dict[str, dict[Attempt, Charge]] = {}
        """Node to what was started there."""
        self._changed: set[str] = set()
        """Nodes that have more room than before, or offer other things."""
        self._news = False
        """Whether something happened since the last round by which a task may find a slot."""
        self.messages: dict[type, Handler] = {m.Idle: ignore_idle}

    # ---- what the book tells -----------------------------------------------------------------

    def stage_came(self, stage: StageState) -> None:
        stage.plan = _StagePlan(next(self._numbers))

    def tasks_unplaced(self, stage: StageState, now_s: float) -> None:
        """They are placed once all that came together has been handled (`pump`)."""
        if not stage.unplaced or not stage.open:
            return
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        if not stage.plan.waits:
            stage.plan.waits = True
            self._queue(stage)
        look_for_nodes(self._book, stage, now_s)
        self._news = True

    def tasks_withdrawn(self, stage: StageState) -> None:
        """The others wait on."""

    def none_unplaced(self, stage: StageState, now_s: float) -> None:
        stage.search.no_node_since_s = None
        self._leave_queue(stage)

    def stage_left(self, stage: StageState, now_s: float) -> None:
        self._leave_queue(stage)
        for attempt_id in stage.attempts.values():  # They may still run, and be of no concern to us.
            attempt = stage.job.attempts[attempt_id]
            self._ended(attempt, None)

    def memories_known(self, stage: StageState, memories: Collection[str], now_s: float) -> None:
        self._news = True

    def adopted(self, attempt: Attempt) -> None:
        """Its node says of itself what runs there: the book knows."""

    def attempt_reported(self, attempt: Attempt, report: m.Report) -> None:
        if report.status is CANCELLED and report.started_at_s is None:
            self._not_started(attempt)
        else:
            self._ended(attempt, report.service_s)

    def handed_back(self, attempt: Attempt, node: Node, now_s: float) -> None:
        stage = attempt.stage
        self._not_started(attempt)
        self._changed.add(node.id)
        self._book.leave_alone(stage, node.id, now_s)
        # After the node has been forgiven, as timers of equal times go in the order in which they were set.
        self._book.at_stage(now_s + BACKOFF_MAX_S, stage, self._forgiven)

    def preempted(self, attempt: Attempt, node: Node, service_s: float, now_s: float) -> None:
        """An attempt that was adopted: nothing of ours is preempted."""
        self._ended(attempt, service_s)

    def _forgiven(self, stage: StageState, now_s: float) -> None:
        self._news = True

    # ---- what nodes do -----------------------------------------------------------------------

    def node_up(self, node: Node, now_s: float) -> None:
        self._changed.add(node.id)
        self._nodes_changed(now_s)

    def node_state(self, node: Node, now_s: float) -> None:
        self._changed.add(node.id)
        self._nodes_changed(now_s)

    def node_load(self, node: Node, now_s: float) -> None:
        """What runs there is known here."""

    def node_lost(self, node: Node) -> tuple[StageState, ...]:
        self._free.drop(node.id)
        self._changed.discard(node.id)
        for charge in self._charges.pop(node.id, {}).values():
            self._shares.settle(charge, None)
        return ()

    def node_down(self, node: Node, now_s: float) -> None:
        self._nodes_changed(now_s)

    def lead_changed(self, leads: bool, now_s: float) -> None:
        """There is no leader."""

    rounds = None
    lending = None

    def oldest_wait_s(self, now_s: float) -> float:
        """There are no rounds."""
        return 0.0

    def explain(self, stages: Sequence[StageState], now_s: float) -> list[Callable[[], WhyWaiting]]:
        """Whether slots are free at nodes that may run it."""
        return [self._explain(stage) for stage in stages]

    def _explain(self, stage: StageState) -> Callable[[], WhyWaiting]:
        book = self._book
        allowed = book.nodes_now(stage)
        free = sum(book.nodes[one].info.slots > len(book.nodes[one].attempts) for one in allowed)
        turn = "other stages are before it" if free else "no slot is free"
        eligible = f"{counted(len(allowed), 'node')} that may run it {agreeing(len(allowed), 'have')}"
        return lambda: WhyWaiting([f"{turn}: {free:,} of {eligible} a free slot"])

    def live_reservations(self, node_id: str) -> int:
        return 0

    # ---- which stages wait -------------------------------------------------------------------

    def _queue(self, stage: StageState) -> None:
        user = stage.job.user
        queue = self._queues.get(user)
        if queue is None:
            queue = self._queues[user] = UserQueue()
            self._shares.waits(user, self._book.options.weight(user))
        queue.add(stage, stage.plan.number)

    def _leave_queue(self, stage: StageState) -> None:
        if not stage.plan.waits:
            return
        stage.plan.waits = False
        user = stage.job.user
        queue = self._queues[user]
        queue.remove(stage, stage.plan.number)
        if not queue:
            del self._queues[user]
            self._shares.waits_no_more(user)

    def _nodes_changed(self, now_s: float) -> None:
        """Stages may have nodes that had none, or none any more."""
        self._news = True
        stages = (stage for queue in self._queues.values() for stage in queue.stages())
        nodes_changed(self._book, stages, now_s)

    # ---- which node gets what ----------------------------------------------------------------

    def pump(self, now_s: float) -> None:
        if not self._news:
            return
        self._news = False
        for node_id in sorted(self._changed):
            self._free.file(self._book.nodes[node_id])
        self._changed.clear()
        shares, free = self._shares, self._free
        while free and (user := shares.first()) is not None:
            if not self._serve(user, now_s):
                shares.pass_over(user)
        shares.end_round()

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        """Nothing is given away to be solved."""

    def _serve(self, user: str, now_s: float) -> bool:
        """Start the user's first task for which there is a slot."""
        return any(self._serve_line(line, now_s) for line in self._queues[user].in_order())

    def _serve_line(self, line: Line, now_s: float) -> bool:
        for stage in line.values():
            if self._serve_stage(stage, now_s):
                return True
            if _takes_any_node(stage):
                break  # The others of its kind find none either.
        return False

    def _serve_stage(self, stage: StageState, now_s: float) -> bool:
        book, free, preferences = self._book, self._free, stage.preferences
        eligible = book.nodes.eligible(stage.kind)
        if not eligible:
            return False
        may_take = self._test(stage)
        if preferences is None:
            node = free.least_loaded(may_take, eligible)
            if node is not None:
                self._start(stage, stage.first_unplaced(), node, now_s)
            return node is not None
        wanting = preferences.wanting
        node = free.least_loaded(lambda one: one.id in wanting and may_take(one), wanting)
        if node is not None:
            self._start(stage, next(iter(wanting[node.id])), node, now_s)
            return True
        node = free.least_loaded(may_take, eligible) if preferences.free else None
        if node is not None:
            task = preferences.next_free()
            assert task is not None
            self._start(stage, task, node, now_s)
        return node is not None

    def _test(self, stage: StageState) -> Callable[[Node], bool]:
        """Whether a node with a free slot may be sent a task of the stage now."""
        allowed, demand, job = self._book.test_node(stage), stage.kind.demand, stage.job
        may_start_at = self._book.may_start_at
        if not demand and job.using is None:
            return lambda node: allowed(node.id)
        return lambda node: allowed(node.id) and fits(node, demand) and may_start_at(job, node)

    def _start(self, stage: StageState, task: int, node: Node, now_s: float) -> None:
        job = stage.job
        self._book.push(stage, [task], node)
        self._book.count_placed(stage, 1)
        charge = self._shares.charge(job.user, stage.spec.expected_duration_s)
        self._charges.setdefault(node.id, {})[job.attempts[stage.attempts[task]]] = charge
        self._free.file(node)
        if not stage.unplaced:
            self.none_unplaced(stage, now_s)

    # ---- what was started ends ---------------------------------------------------------------

    def _ended(self, attempt: Attempt, service_s: float | None) -> None:
        charge = self._take_charge(attempt)
        if charge is not None:
            self._shares.settle(charge, service_s)

    def _not_started(self, attempt: Attempt) -> None:
        charge = self._take_charge(attempt)
        if charge is not None:
            self._shares.refund(charge)

    def _take_charge(self, attempt: Attempt) -> Charge | None:
        """What the attempt, which is at its node no more, was charged; None if another scheduler started it. Its slot
        is free for the next round."""
        node_id = attempt.node_id
        self._news = True
        if node_id in self._book.nodes:
            self._changed.add(node_id)
        started = self._charges.get(node_id)
        charge = started.pop(attempt, None) if started is not None else None
        if charge is not None and not started:
            del self._charges[node_id]
        return charge

    # ---- invariants --------------------------------------------------------------------------

    def problem(self, stage: StageState) -> str | None:
        wanted = stage.unplaced > 0 and stage.open
        if stage.plan.waits != wanted:
            return f"{stage.unplaced} unplaced tasks, and it waits for slots: {stage.plan.waits}"
        nodes = self._book.nodes.eligible(stage.kind)
        if wanted and not nodes and not self._book.is_waiting(stage):
            return f"no node may run its {stage.unplaced} unplaced tasks, and it does not wait for one"
        return None

    def problem_of_all(self) -> str | None:
        book = self._book
        for node_id, started in self._charges.items():
            strangers = [attempt for attempt in started if attempt not in book.nodes[node_id].attempts]
            if strangers or not started:
                return f"node {node_id} is charged for attempts {[one.id for one in strangers]}, which it does not have"
        return self._free.problem(book.nodes.all(), self._changed) or self._shares.problem(set(self._queues))

    def left_over(self) -> str:
        kept = [name for name, books in (("queues", self._queues), ("charges", self._charges)) if books]
        return f"{' and '.join(kept)} are kept" if kept else ""


def _takes_any_node(stage: StageState) -> bool:
    """Whether all nodes are alike to its tasks that may run stages of its kind."""
    job, search = stage.job, stage.search
    return not (job.avoids or search.refused_by or search.barred_by) and job.using is None
