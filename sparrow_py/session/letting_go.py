"""One job that its client wants to let go of, until its scheduler has answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from sparrow_py.errors import InvalidRequest, JobDetached
from sparrow_py.job import check_number

if TYPE_CHECKING:
    from sparrow_py.errors import SparrowError
    from sparrow_py.job import JobSpec
    from sparrow_py.wire import messages as m

RETENTION_S = 3600.0
"""How long a job is kept after its end unless its user says otherwise."""
Told = Callable[["SparrowError | None"], None]
"""Called once: with None, or with why not."""


def check_retention(retention_s: float | None, otherwise_s: float) -> float:
    """How long to keep a job. `InvalidRequest` for what no scheduler takes; the job's own says how long it may be."""
    if retention_s is None:
        return otherwise_s
    try:
        check_number("retention_s", retention_s, 0, math.inf)
    except InvalidRequest:
        allowed = (
            "seconds from 0 to the scheduler's detached_retention_s_max, which is a day unless its operator says so"
        )
        raise InvalidRequest("retention_s", retention_s, allowed) from None
    return retention_s


def detached(job_id: str) -> JobDetached:
    """What futures of the job end with that have not ended."""
    return JobDetached(f"job {job_id} was detached: attach to it")


class Attached(Protocol):
    """A job that a client has attached to: `Job` and `AsyncJob`."""

    spec: JobSpec
    submitted_at_s: float
    retention_s: float

    def outcomes(self) -> list[m.Outcome]:
        """All outcomes so far."""

    def on_refused(self, error: SparrowError) -> None:
        """Nobody says any more what becomes of the job."""


Detach = Callable[["JobSpec", float, float, Callable[[], "Iterable[m.Outcome]"], Told], None]
"""`Session.detach`."""


def let_go_again(job: Attached, detach: Detach) -> None:
    """Who has attached to the job has gone meanwhile: another may have it."""

    def told(error: SparrowError | None) -> None:
        if error is None:
            job.on_refused(detached(job.spec.job_id))

    detach(job.spec, job.submitted_at_s, job.retention_s, job.outcomes, told)


class LettingGo:
    """One job that its client wants to let go of."""

    __slots__ = ("given_back", "held", "is_over", "is_sent", "retention_s", "told")

    def __init__(
        self, retention_s: float, given_back: Callable[[], Iterable[m.Outcome]], told: Told, *, is_over: bool
    ) -> None:
        self.retention_s = retention_s
        self.given_back = given_back
        """All outcomes that there are so far."""
        self.told = told
        self.is_over = is_over
        """Whether the job had ended before: then no scheduler has it."""
        self.is_sent = False
        """Whether its scheduler has been told, and has not answered."""
        self.held: list[Any] = []
        """What that has said of the job since."""
