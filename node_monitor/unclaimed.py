"""Attempts whose scheduler is gone, of jobs that tasks have submitted: if nobody claims them, they are stopped.

It is the scheduler that cancels such a job when the task ends that has submitted it. If the scheduler dies at that
moment nobody else knows of the job, and nobody will ever ask for its results. A task that lives takes its jobs to
another scheduler, which claims them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import GIVEN_AHEAD, Attempt
from node_monitor.executors.executor_state import ExecutorState
from node_monitor.stopping import Stopping
from sparrow_py.job import LOST
from sparrow_py.timing.timers import Timers

UNCLAIMED_S = 60.0
"""After so long they are stopped. The task that has submitted them waits as long for a scheduler (`SUBMIT_TIMEOUT_S` of
its client) and then takes them for lost."""
REASON = "its scheduler died, and no other has claimed it: the task that submitted it has ended, or cannot reach one"


class Unclaimed:
    """Attempts of jobs that tasks have submitted, while no scheduler has them."""

    __slots__ = ("_book", "_executors", "_stopping", "_timers", "_until_s")

    def __init__(
        self,
        executors: Mapping[str, ExecutorState],
        book: AttemptBook,
        stopping: Stopping,
        timers: Timers,
    ) -> None:
        self._executors = executors
        self._book = book
        self._stopping = stopping
        self._timers = timers
        self._until_s: dict[Attempt, float] = {}
        """When each of them is stopped. Some may have ended since."""

    def scheduler_down(self, scheduler: str, now_s: float) -> None:
        """A scheduler is gone: what it had here of such jobs has so long to be claimed."""
        found = self._book.by_key.values()
        lost = [one for one in found if one.job.scheduler == scheduler and one.charge.ticket.depth > 0]
        if lost:
            self._stop_at(now_s + UNCLAIMED_S, lost)

    def claimed(self, attempts: Iterable[Attempt]) -> None:
        """A scheduler has these now."""
        if self._until_s:
            for attempt in attempts:
                self._until_s.pop(attempt, None)

    def _stop_at(self, at_s: float, attempts: list[Attempt]) -> None:
        self._until_s.update(dict.fromkeys(attempts, at_s))
        self._timers.at(at_s, self._stop_due)

    def _stop_due(self, now_s: float) -> None:
        due = [one for one, until_s in self._until_s.items() if until_s <= now_s]
        for attempt in due:
            del self._until_s[attempt]
        here = [one for one in due if self._book.by_key.get(one.key) is one]
        behind = [one for one in here if one.ahead is not None]
        for attempt in here:
            if attempt.ahead is None:
                self._stopping.stop(attempt, LOST, REASON, now_s)
            elif attempt.state is GIVEN_AHEAD:
                self._stopping.ask_back(self._executors[attempt.executor_id], attempt)
        if behind:  # Those that are not returned run by then.
            self._stop_at(now_s + UNCLAIMED_S, behind)
