"""When tasks of a job that take too long are submitted again (Sparrow §3.4): what the user says of it."""

from __future__ import annotations

from dataclasses import dataclass

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import JobSpec, check_number

SLOWDOWN_MAX = 1e6
RUNNING_S_MIN_MAX = 1e9


@dataclass(frozen=True)
class Speculation:
    """When tasks of a job are submitted again because they take too long.

    Only for tasks that may run twice, even at the same time. `InvalidRequest` if a field cannot be.

    Parameters
    ----------
    quantile: the share of a stage's tasks that must have finished before any is taken to be slow, from 0 to 1;
        in any case one. Tasks that end in another way do not count.
    slowdown: a task is slow when it has been running for more than this many times the median service time of
        those of its stage that have finished. From 1.
    copies_max: at most this share of a stage's tasks, rounded up, is submitted again. A share, so that one setting
        fits all jobs of a client; what it adds to the cluster's load is no more than this share. From 0 to 1.
    running_s_min: a task that has been running for less than so many seconds is never slow: a copy has to be
        placed, too.
    """

    quantile: float = 0.75
    slowdown: float = 1.5
    copies_max: float = 0.1
    running_s_min: float = 0.1

    def __post_init__(self) -> None:
        check_number("quantile", self.quantile, 0, 1)
        check_number("slowdown", self.slowdown, 1, SLOWDOWN_MAX)
        check_number("copies_max", self.copies_max, 0, 1)
        check_number("running_s_min", self.running_s_min, 0, RUNNING_S_MIN_MAX)


def check_speculation(speculate: object, spec: JobSpec) -> None:
    """Raise `InvalidRequest` if tasks of this valid job cannot be submitted again."""
    if not isinstance(speculate, Speculation):
        raise InvalidRequest("speculate", speculate, "a Speculation, or None")
    if spec.max_attempts == 1:
        raise InvalidRequest("max_attempts", 1, "2 or more with speculate, which may start a task twice")
    for index, stage in enumerate(spec.as_stages()):
        if stage.prefetch:  # A task that was placed may only wait at its node; it looks as if it ran.
            where = f"stages[{index}]." if len(spec.stages) > 1 else ""
            allowed = "0 with speculate, which has to know when tasks start"
            raise InvalidRequest(f"{where}prefetch", stage.prefetch, allowed)
        if stage.retry is not None:  # A task that waits for its next try was placed once, and looks as if it ran.
            where = f"stages[{index}]." if len(spec.stages) > 1 else ""
            raise InvalidRequest(f"{where}retry", stage.retry, "None with speculate, which has to know what runs")


def check_job(spec: JobSpec, speculate: Speculation | None) -> None:
    """Raise `InvalidRequest` unless the job can be submitted, with this speculation.

    This is where a client checks a job, once; the scheduler does so on its own.
    """
    spec.validate()
    if speculate is not None:
        check_speculation(speculate, spec)
