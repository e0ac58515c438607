"""A client lets go of jobs, which go on without it (`messages.Detach`). Pure.

All that the client knows of the job is given back in the same breath. What the scheduler says of the job until it
answers is held, and void once the job is let go of: the scheduler keeps it for whoever attaches. If the scheduler
refuses, or is lost, it is heard as if it had come just then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from sparrow_py.errors import InvalidRequest, NoScheduler, Refused, SparrowError
from sparrow_py.session.client_job import ENTRY_OVERHEAD_BYTES, ClientJob, bytes_of
from sparrow_py.session.letting_go import LettingGo
from sparrow_py.wire import messages as m

OUTCOME_OVERHEAD_BYTES = 500
"""What an outcome takes in a message beside its result and texts, at most."""
NOT_SAID_AGAIN = (m.AskResults, m.BlobLost)
"""Of what was held these are for the scheduler that said them; another asks again."""


class Detaching:
    """The jobs of a client that it lets go of."""

    def __init__(
        self,
        send: Callable[[str, m.Message], None],
        bytes_max: Mapping[str, int],
        versions: Mapping[str, int],
        receive: Callable[[str, Any, float], None],
        gone: Callable[[ClientJob], object],
    ) -> None:
        """send: sends to a scheduler. bytes_max: of a payload, by connected scheduler. versions: of those that are
        older. receive: takes what was held. gone: forgets a job."""
        self._send = send
        self._bytes_max = bytes_max
        self._versions = versions
        self._receive = receive
        self._gone = gone

    def begin(self, job: ClientJob, letting_go: LettingGo) -> None:
        """Let go of the job as soon as its scheduler has all of it."""
        job.letting_go = letting_go
        self.go_on(job)

    def go_on(self, job: ClientJob) -> None:
        """The job's scheduler may have all of it now."""
        letting_go, scheduler = job.letting_go, job.scheduler
        if letting_go is None or letting_go.is_sent or not job.taken or job.streaming or scheduler is None:
            return
        if self._versions.get(scheduler, m.PROTOCOL_VERSION) < m.SINCE[m.Detach]:
            self._refused(job, letting_go, Refused(f"scheduler {scheduler} is of a version that keeps no jobs"))
            return
        letting_go.is_sent = True
        for message in _given_back(job.id, letting_go.given_back(), self._bytes_max[scheduler]):
            self._send(scheduler, message)
        stages = [msgspec.structs.replace(stage, common=b"") for stage in job.submission.stages]
        submission = msgspec.structs.replace(job.submission, stages=stages)
        self._send(scheduler, m.Detach(submission, letting_go.retention_s))

    def hears(self, job: ClientJob, scheduler: str, message: Any, now_s: float) -> bool:
        """The scheduler of a job that is let go of says this of it; whether nothing else is to be done with that."""
        letting_go = job.letting_go
        assert letting_go is not None, f"job {job.id} is not let go of"
        kind = type(message)
        if not letting_go.is_sent or kind is m.HandedOver:
            return False
        if kind is m.Detached:
            job.letting_go = None
            self._gone(job)
            letting_go.told(None)
        elif kind is m.NotDetached:
            why = InvalidRequest.told(message.field, message.reason) if message.field else Refused(message.reason)
            self._refused(job, letting_go, why)
            for one in letting_go.held:
                self._receive(scheduler, one, now_s)
        else:
            letting_go.held.append(message)
        return True

    def _refused(self, job: ClientJob, letting_go: LettingGo, error: SparrowError) -> None:
        job.letting_go = None
        if letting_go.is_over:
            self._gone(job)
        letting_go.told(error)

    def scheduler_lost(self, job: ClientJob, now_s: float) -> None:
        """Nobody knows whether the job's scheduler has heard of it: the next one is told again."""
        letting_go, scheduler = job.letting_go, job.scheduler
        if letting_go is None or not letting_go.is_sent:
            return
        if letting_go.is_over:
            self._refused(job, letting_go, NoScheduler(f"scheduler {scheduler} was lost before it kept job {job.id}"))
            return
        letting_go.is_sent = False
        job.used = None  # It may have gone on alone, and have been started where this client was not told.
        held, letting_go.held = letting_go.held, []
        assert scheduler is not None, "a scheduler has been told"
        for one in held:
            if type(one) not in NOT_SAID_AGAIN:
                self._receive(scheduler, one, now_s)

    @staticmethod
    def ended(job: ClientJob, error: SparrowError | None = None) -> None:
        """The job is here no more, for this reason if it has not just ended."""
        letting_go, job.letting_go = job.letting_go, None
        if letting_go is not None:
            letting_go.told(error or Refused(f"job {job.id} has ended meanwhile, and its results are here"))


def _given_back(job_id: str, outcomes: Iterable[m.Outcome], bytes_max: int) -> Iterator[m.GiveBack]:
    """The outcomes in messages that each fit a frame."""
    some: list[m.Outcome] = []
    size = 0
    # Some may have come from copies of tasks (`speculate`), which are other jobs.
    named = (one if one.job == job_id else msgspec.structs.replace(one, job=job_id) for one in outcomes)
    for outcome in named:
        taken = _bytes_of_outcome(outcome)
        if some and (size + taken > bytes_max or len(some) == m.TASKS_PER_MESSAGE_MAX):
            yield m.GiveBack(job_id, some)
            some, size = [], 0
        some.append(outcome)
        size += taken
    if some:
        yield m.GiveBack(job_id, some)


def _bytes_of_outcome(outcome: m.Outcome) -> int:
    texts = (outcome.error, outcome.stdout, outcome.stderr, outcome.node, *outcome.earlier_errors)
    size = bytes_of(outcome.result) + OUTCOME_OVERHEAD_BYTES + len(outcome.job.encode())
    return size + sum([len(text.encode()) + ENTRY_OVERHEAD_BYTES for text in texts])
