"""Who is told what becomes of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sparrow_py.errors import SparrowError
    from sparrow_py.wire import messages as m


class Sink(Protocol):
    """Who is told what becomes of a job."""

    def accepted(self) -> None:
        """The job will run."""

    def refused(self, error: SparrowError) -> None:
        """Nothing of the job will run, and nothing more will be told."""

    def placed(self, task: int) -> None:
        """The task has left the queue; told again if it left it again."""

    def outcome(self, outcome: m.Outcome) -> None:
        """A task's outcome; called exactly once per task of an accepted job."""

    def not_cancelled(self, task: int) -> None:
        """The task runs and was not cancelled."""

    def ended(self) -> None:
        """All outcomes have been told."""
