"""Futures as arguments of calls: each stands for the value of its task."""

from __future__ import annotations

from typing import Any, Protocol

from sparrow_py import stored_values
from sparrow_py.calls import APP
from sparrow_py.errors import InvalidRequest, JobDetached
from sparrow_py.exception_pickling import ended_with
from sparrow_py.job import NAME_BYTES_MAX, Ended, TaskResult, TaskStatus
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.speculation import Speculation
from sparrow_py.wire.messages import Outcome

OR_COPIES = " or copies"


class JobOfFuture(Protocol):
    """The job of a future, as far as the future's use as an argument needs it."""

    job_id: str
    speculate: Speculation | None
    """How slow tasks of the job are submitted again, if they are."""

    @property
    def session(self) -> object:
        """The session of its client."""

    def app_of(self, task: int) -> str:
        """The app of this task's stage."""


def first_of(job_id: str) -> str:
    """What names the job or the copies of its tasks, whichever ends first."""
    return job_id.encode()[: NAME_BYTES_MAX - len(OR_COPIES)].decode(errors="ignore") + OR_COPIES


class StandsForValue(stored_values.StandsForInput, StaysHere):
    """Base of futures, which are arguments for calls of their own client (`stored_values.AwaitedFuture`). Else they
    cannot be pickled."""

    job: Any
    """A `JobOfFuture`."""
    task: int
    outcome: Outcome | None
    """How the task ended, as the scheduler said; a large result of it has been fetched."""
    reference: Outcome | None
    """The same with a reference to the large result, from before it is fetched."""

    def __reduce__(self) -> Any:
        asking = stored_values.asking()
        if asking is None:
            return super().__reduce__()
        if self.job.app_of(self.task) != APP:
            raise InvalidRequest("arguments", self, "futures of calls; the task of this one gives bytes")
        return stored_values.result_value, (asking.place_of(self),)

    @property
    def task_result(self) -> TaskResult:
        """Its task, as calls ask for its result. Of a job whose slow tasks are submitted again the first outcome
        counts, of whichever job: such a result has a name of its own, under which no scheduler has a job, so that it is
        the client that is asked."""
        job_id: str = self.job.job_id
        return TaskResult(job_id if self.job.speculate is None else first_of(job_id), self.task)

    @property
    def session(self) -> object:
        """Its client's session."""
        return self.job.session

    def ended(self) -> Ended | None:
        """As `AwaitedFuture` says; on the client's loop."""
        outcome = self.reference or self.outcome
        if outcome is not None:
            return outcome.status, outcome.result, outcome.error
        future: Any = self
        if not future.done():
            return None
        if future.cancelled():
            return TaskStatus.CANCELLED, b"", "its future was cancelled"
        error = future.exception()
        if isinstance(error, JobDetached):
            return ended_with(error)
        return TaskStatus.LOST, b"", str(error) if error is not None else "its user has set the future's result"

    def content(self) -> bytes | bytearray | None:
        """As `AwaitedFuture` says."""
        result = None if self.outcome is None else self.outcome.result
        return result if isinstance(result, bytes | bytearray) else None

    def add_done_callback(self, fn: Any) -> None:
        """Of the future."""
        raise NotImplementedError
