"""Jobs that have tasks at this node, or something that is kept for their tasks: common bytes, inputs, durations."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m


class CommonBytes:
    """What a stage's tasks have in common. `number` names its bytes to executors."""

    __slots__ = ("data", "large", "lease_s", "number", "task_timeout_s")

    def __init__(self, number: int, data: m.Data, task_timeout_s: float | None) -> None:
        self.number = number
        self.data = data
        self.large = isinstance(data, BlobRef)
        self.task_timeout_s = task_timeout_s
        self.lease_s: float | None = None


class LocalJob:
    """A job of a scheduler's, as far as it is at this node."""

    __slots__ = (
        "attempts", "commons", "duration_s", "forgotten", "id", "inputs", "instance", "number", "numbers", "once",
        "owner", "scheduler",
    )  # fmt: skip

    def __init__(self, scheduler: str, job_id: str, number: int) -> None:
        self.scheduler = scheduler
        self.id = job_id
        self.number = number
        """Owns what the job has in the blob store."""
        self.instance = 0
        self.owner: tuple[str, int] = ("", 0)
        """Its user and its instance, as soon as a task of it is here."""
        self.once = False
        """Whether its tasks may start once at most: then it is remembered which have."""
        self.commons: dict[int, CommonBytes] = {}
        """By stage."""
        self.numbers: list[int] = []
        """All that its common bytes were ever called."""
        self.inputs: dict[int, m.Data] = {}
        """Results of the job's tasks that others ask for, by task."""
        self.duration_s: float | None = None
        """Moving average of its tasks' service times here."""
        self.attempts = 0
        """Those that are here."""
        self.forgotten = False
        """Whether its scheduler has forgotten it: it goes with its last attempt."""

    def inputs_of(self, wanted: Iterable[tuple[int, int]]) -> list[m.Data]:
        """The results that a task asks for, in order."""
        inputs = self.inputs
        return [inputs[task] for first, count in wanted for task in range(first, first + count)]


class Jobs:
    """The jobs by (scheduler, job id).

    unpin: tells the blob store that a job is gone. forget_commons: tells executors that these numbers mean nothing.
    """

    __slots__ = ("_forget_commons", "_next_number", "_unpin", "by_key")

    def __init__(self, unpin: Callable[[int], None], forget_commons: Callable[[list[int]], None]) -> None:
        self._unpin = unpin
        self._forget_commons = forget_commons
        self.by_key: dict[tuple[str, str], LocalJob] = {}
        self._next_number = 1

    def job(self, scheduler: str, job_id: str) -> LocalJob:
        """The job, which may be new here."""
        key = (scheduler, job_id)
        job = self.by_key.get(key)
        if job is None:
            job = self.by_key[key] = LocalJob(scheduler, job_id, self._number())
        return job

    def _number(self) -> int:
        self._next_number += 1
        return self._next_number

    def common(self, scheduler: str, message: m.Common, now_s: float) -> None:
        """A scheduler says what the tasks of a stage have in common."""
        job = self.job(scheduler, message.job)
        job.forgotten = False
        job.instance, job.once = message.instance, message.once
        known = job.commons.get(message.stage)
        if known is None or known.data != message.data:  # Another scheduler may send the same again.
            number = self._number()
            job.numbers.append(number)
            known = job.commons[message.stage] = CommonBytes(number, message.data, message.task_timeout_s)
        known.task_timeout_s, known.lease_s = message.task_timeout_s, message.lease_s

    def input(self, scheduler: str, message: m.Input, now_s: float) -> None:
        """A scheduler says what a task's result is, for tasks that ask for it."""
        job = self.job(scheduler, message.job)
        job.forgotten = False
        job.inputs[message.task] = message.data

    def forget(self, job: LocalJob) -> None:
        """The job goes, with its last attempt if some are here."""
        job.forgotten = True
        if job.attempts:
            return
        del self.by_key[(job.scheduler, job.id)]
        self._unpin(job.number)
        self._forget_commons(job.numbers)

    def scheduler_down(self, scheduler: str) -> None:
        """The scheduler is gone, and so are its jobs."""
        for job in [job for job in self.by_key.values() if job.scheduler == scheduler]:
            self.forget(job)

    def hand_over(self, job: LocalJob, scheduler: str) -> LocalJob:
        """What of the job is here is the other scheduler's from now on; returns the job of that one's."""
        before = self.by_key.pop((job.scheduler, job.id))
        if not before.forgotten:
            # The earlier scheduler may go on to launch: until it forgets the job, its fence must be found.
            fenced = self.job(job.scheduler, job.id)
            fenced.instance, fenced.owner = job.instance, job.owner
        there = self.by_key.get((scheduler, job.id))
        if there is None:
            job.scheduler, job.forgotten = scheduler, False
            self.by_key[scheduler, job.id] = there = job
        else:
            there.attempts += job.attempts
            there.numbers += job.numbers
            self._unpin(job.number)
        return there
