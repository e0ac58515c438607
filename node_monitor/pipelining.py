"""Executors of one place are given several short tasks at a time, so that they need not wait for the node monitor.

With a ready task of a few milliseconds or less, others of its stage are given to the same executor, which runs them in
order: `TURN_S` of them at most, when it is their user's turn, and each is charged when it is given.
"""

from __future__ import annotations

from collections.abc import Mapping

from node_monitor.attempts import GIVEN_AHEAD, WAITS, Attempt
from node_monitor.executors.executor_state import AppState, ExecutorState
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import TURN_S, Charge, Key, QueuedTicket
from node_monitor.slots import Slots
from node_monitor.starting import Starting
from node_monitor.stopping import Stopping
from sparrow_py.timing.timers import Timers

AHEAD_S = 0.05
"""A run that was given to an executor behind others and has not begun after so long is asked back, if another user
waits: those before it last longer than was thought. (Seconds.)"""


class Pipelining:
    """What executors are given ahead of time, and what of that is asked back."""

    __slots__ = (
        "_apps", "_backlog", "_executors", "_looks", "_queue", "_ready", "_slots", "_starting", "_stopping", "_timers",
    )  # fmt: skip

    def __init__(
        self,
        apps: Mapping[str, AppState],
        executors: Mapping[str, ExecutorState],
        slots: Slots,
        backlog: Backlog,
        starting: Starting,
        stopping: Stopping,
        timers: Timers,
    ) -> None:
        self._apps = apps
        self._executors = executors
        self._slots = slots
        self._queue = backlog.queue
        self._ready = backlog.ready
        self._starting = starting
        self._stopping = stopping
        self._timers = timers
        self._looks = False
        """Whether a timer runs that looks for runs given ahead that do not begin."""

    # ---- given ahead -------------------------------------------------------------------------

    def started(self, executor: ExecutorState, attempt: Attempt, ticket: QueuedTicket, now_s: float) -> None:
        """The ticket's attempt has just got the executor's only place: others of the ticket may follow it."""
        if attempt.state is not WAITS:
            share = self._share(executor.app, self._ready.count(ticket.key) + 1)
            self._give_more(executor, attempt, ticket, min(share, self._depth(attempt)), now_s)

    def top_up(self, executor: ExecutorState, now_s: float) -> None:
        """The executor has work. Give it more in time, so that it need not wait for us, if it is that user's turn."""
        first = next(iter(executor.running.values()))
        depth = self._depth(first)
        if len(executor.running) * 2 > depth or first.state is WAITS or executor.waiting is not None:
            return
        user = first.charge.ticket.user
        charge = self._queue.take(
            self._could_run, lambda ticket: ticket.user == user and self._may_follow(ticket.key, first)
        )
        if charge is None:
            return
        ticket = charge.ticket
        share = self._share(executor.app, self._ready.count(ticket.key))
        self._give_ahead(executor, charge, now_s)
        self._give_more(executor, first, ticket, min(depth, len(executor.running) + share - 1), now_s)

    def _share(self, app: AppState, ready: int) -> int:
        """How many of so many ready tasks one executor may have: there are others to run some at the same time."""
        return -(-ready // min(self._slots.count, len(app.executors)))

    def _depth(self, attempt: Attempt) -> int:
        """How many tasks like this one an executor may be given at a time.

        Of those that may start only once it is given one: what is given ahead dies with what is killed before it, and
        for some milliseconds nobody but the executor knows which of them runs.
        """
        job, prefetch = attempt.job, attempt.charge.ticket.prefetch
        duration_s = job.duration_s
        if not prefetch or duration_s is None or job.once or attempt.inputs or attempt.task_timeout_s is not None:
            return 1
        if attempt.lease_s is not None:  # What is behind it would wait for too long.
            return 1
        return max(1, min(prefetch, int(TURN_S / max(duration_s, 1e-9))))

    def _could_run(self, ticket: QueuedTicket) -> bool:
        """Whether a reservation of the ticket could have a slot if one were free."""
        if ticket.count <= ticket.asked or not self._apps[ticket.app].executors:
            return False
        return not ticket.demand or self._slots.fits(ticket.demand)

    def _may_follow(self, key: Key, first: Attempt) -> bool:
        """Whether the ticket's first task may be given ahead of time to the executor that has this attempt: it is of
        the same stage, and so lasts about as long, and needs nothing that is not here."""
        task, job = self._ready.first(key), first.job
        return (
            task is not None
            and (task.job, key[0]) == (job.id, job.scheduler)
            and job.commons.get(task.stage) is first.common
            and not task.inputs
            and type(task.payload) is bytes
        )

    def _give_more(
        self, executor: ExecutorState, first: Attempt, ticket: QueuedTicket, most: int, now_s: float
    ) -> None:
        """Give the executor more of the ticket's tasks behind this one, until it has so many."""
        while len(executor.running) < most and ticket.count and self._may_follow(ticket.key, first):
            self._give_ahead(executor, self._queue.take_of(ticket), now_s)

    def _give_ahead(self, executor: ExecutorState, charge: Charge, now_s: float) -> None:
        """Give the executor the ticket's first task, to run when it has ended those before it."""
        ticket = charge.ticket
        task = self._ready.take(ticket.key)
        assert task is not None
        attempt = self._starting.enter(ticket.key[0], task, charge)
        if attempt is None:
            self._slots.return_resources(charge)
            self._queue.refund(charge)
            return
        attempt.ahead = ticket.ahead
        self._starting.give(executor, attempt, now_s)
        if not self._looks:
            self._looks = True
            self._timers.at(now_s + AHEAD_S, self._ask_back_late)

    # ---- asked back --------------------------------------------------------------------------

    def _ask_back_late(self, now_s: float) -> None:
        """Ask back what was given ahead of time and has not begun by now, if another user waits."""
        self._looks = False
        for executor in self._executors.values():
            for attempt in executor.running.values() if len(executor.running) > executor.places else ():
                self._looks = True
                late = attempt.state is GIVEN_AHEAD and attempt.given_at_s + AHEAD_S <= now_s
                if late and self._queue.others_wait(attempt.charge.ticket.user):
                    self._stopping.ask_back(executor, attempt)
        if self._looks:
            self._timers.at(now_s + AHEAD_S, self._ask_back_late)
