"""The sink of a job that a user has submitted: large results are fetched before their outcomes are settled."""

from __future__ import annotations

from collections.abc import Callable

from sparrow_py.errors import ResultLost, SparrowError
from sparrow_py.job import FINISHED, BlobRef, JobSpec, stage_of
from sparrow_py.wire import messages as m


class JobSink:
    """A `Sink` for a `Session`. A subclass says what is done with what is told: `settle` and `finish`, and, where it
    matters, `accepted`, `refuse`, `placed` and `not_cancelled`.

    Results of stages that others come after are not fetched: their outcome has the reference.
    """

    __slots__ = ("_ended", "_fetch", "_fetching", "_refused", "_spec")

    _spec: JobSpec
    _fetch: Callable[[JobSink, m.Outcome, BlobRef], None]
    _fetching: int
    """Results that are on their way."""
    _ended: bool
    _refused: bool

    def begin(self, spec: JobSpec, fetch: Callable[[JobSink, m.Outcome, BlobRef], None]) -> None:
        """The job is submitted; `fetch` calls `fetched` once."""
        self._spec = spec
        self._fetch = fetch
        self._fetching = 0
        self._ended = False
        self._refused = False

    # ---- for subclasses ------------------------------------------------------------------------

    def accepted(self) -> None:
        """The job will run."""

    def refuse(self, error: SparrowError) -> None:
        """Nothing of the job will run, and nothing more will be told."""

    def placed(self, task: int) -> None:
        """The task has left the queue; told again if it left it again."""

    def not_cancelled(self, task: int) -> None:
        """The task runs and was not cancelled."""

    def fetching(self, outcome: m.Outcome) -> None:
        """A task has ended, and its large result is being fetched."""

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        """A task has ended; `lost` if it finished, and its large result could not be fetched."""
        raise NotImplementedError

    def finish(self) -> None:
        """All outcomes have been settled."""
        raise NotImplementedError

    # ---- for the session -----------------------------------------------------------------------

    def refused(self, error: SparrowError) -> None:
        """Nothing of the job will run; results that are on their way are not waited for."""
        self._refused = True
        self.refuse(error)

    def outcome(self, outcome: m.Outcome) -> None:
        """A task's outcome, of which the result may be a reference."""
        result = outcome.result
        if type(result) is BlobRef and (outcome.status is not FINISHED or not self._is_followed(outcome.task)):
            self._fetching += 1
            self.fetching(outcome)
            self._fetch(self, outcome, result)
        else:
            self.settle(outcome)

    def _is_followed(self, task: int) -> bool:
        """Whether stages come after that of the task: they may need the result, and fetch it themselves."""
        name = stage_of(self._spec, task).name
        return any(name in stage.after for stage in self._spec.as_stages())

    def fetched(self, outcome: m.Outcome, lost: ResultLost | None) -> None:
        """The result of this outcome has come, or is `lost`."""
        if self._refused:
            return
        self.settle(outcome, lost)
        self._fetching -= 1
        if self._ended and not self._fetching:
            self.finish()

    def ended(self) -> None:
        """All outcomes have been told."""
        self._ended = True
        if not self._fetching:
            self.finish()
