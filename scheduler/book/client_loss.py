"""A client's link broke: its jobs go on, or what of them has not started is cancelled, as each job says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from scheduler.book.jobs import OPEN

if TYPE_CHECKING:
    from scheduler.book.awaited_results import AwaitedResults
    from scheduler.book.cancellation import Cancellation
    from scheduler.book.deliveries import Deliveries
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.lost_inputs import LostInputs
    from scheduler.book.register import Register
    from scheduler.book.restarts import Restarts

VANISHED = "its client vanished"
SAID_GOODBYE = "its client went away"
PARENT_ENDED = "the task that had submitted it has ended, or has closed its client"


@dataclass(eq=False, slots=True)
class ClientLoss:
    """What becomes of the jobs of clients that are gone."""

    _ledger: Ledger
    _deliveries: Deliveries
    _register: Register
    _restarts: Restarts
    _lost_inputs: LostInputs
    _awaited_results: AwaitedResults
    _cancellation: Cancellation

    def client_down(self, client: str, now_s: float, *, said_goodbye: bool) -> None:
        """At once if the client said goodbye, after a grace time if it vanished and may yet move its jobs. Those of a
        client within a task are cancelled, with what runs: nobody will ever ask for them. Detached jobs go on."""
        if self._register.nested.pop(client, 0):
            self._parent_ended(client, now_s)
            return
        jobs = list(self._register.by_client.pop(client, {}).values())
        self._deliveries.client_down(client, jobs, now_s, may_return=not said_goodbye)
        over_s = now_s + self._ledger.options.client_grace_s
        for job in jobs:
            job.client = ""
            if job.is_detached:  # It goes on as before.
                self._lost_inputs.client_gone(job, now_s)
                continue
            reason = SAID_GOODBYE if said_goodbye else VANISHED
            if job.on_client_lost == "finish" and job.received == job.task_count:
                self._lost_inputs.client_gone(job, now_s)
                go_on: Callable[[JobState, float], None] = self._go_on
            else:
                go_on = partial(self._cancel, reason=reason)
            if said_goodbye:
                go_on(job, now_s)
            else:
                self._ledger.at_stage(over_s, job.stages[0], partial(_with_job, go_on))
        wait = [job for job in jobs if job.expected]
        if wait and said_goodbye:
            self._awaited_results.clients_gone(wait, now_s)
        elif wait:
            ids = [job.id for job in wait]
            self._ledger.timers.at(over_s, partial(self._grace_over, ids))

    def _parent_ended(self, client: str, now_s: float) -> None:
        jobs = list(self._register.by_client.pop(client, {}).values())
        self._deliveries.client_down(client, jobs, now_s, may_return=False)
        for job in jobs:
            job.client = ""
            if job.is_detached:  # No task has submitted it: the client has only attached to it.
                self._lost_inputs.client_gone(job, now_s)
            elif self._ledger.is_here(job):
                self._cancel(job, now_s, reason=PARENT_ENDED, running=True)
        waiting = [job for job in jobs if job.expected and self._ledger.is_here(job)]
        if waiting:
            self._awaited_results.clients_gone(waiting, now_s)

    def _go_on(self, job: JobState, now_s: float) -> None:
        self._restarts.client_gone(job, now_s)
        self._awaited_results.client_gone(job, now_s)

    def _grace_over(self, ids: list[str], now_s: float) -> None:
        """The client of these jobs, as far as they are here and nobody has come for them, stays away."""
        jobs = [job for id_ in ids if (job := self._ledger.jobs.get(id_)) is not None and not job.client]
        self._awaited_results.clients_gone(jobs, now_s)

    def _cancel(self, job: JobState, now_s: float, *, reason: str, running: bool = False) -> None:
        for_loss = not job.cancelled and not running
        self._cancellation.cancel(job, reason, now_s, running=running)
        job.cancelled_for_loss = for_loss
        # What is still to come never will, and was not claimed.
        if job.phase is not OPEN and job.received < job.task_count:
            self._register.abandon(job, now_s)


def _with_job(action: Callable[[JobState, float], None], stage: StageState, now_s: float) -> None:
    action(stage.job, now_s)
