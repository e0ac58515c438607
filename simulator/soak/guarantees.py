"""The rules of the guarantees (docs/reliability.md) that need nothing but what was submitted, started and reported.

Whoever observes a cluster judges by them: the simulator's oracles under virtual time, the laboratory's oracle
(`benchmarks/laboratory/oracle.py`) with real processes. Each returns what is wrong, and an empty text if nothing is.
What they allow for, faults and whom these hit, differs, and is the observers' own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

SHOWN_MAX = 10


def no_outcome(tasks: int, told: Iterable[int]) -> str:
    """Guarantee 1: every task is reported. told: the tasks of the outcomes that the client was told."""
    known, heard = set(range(tasks)), set(told)
    if heard - known:
        return f"outcomes of tasks that are not there: {_shown(sorted(heard - known))}"
    return f"of {tasks} tasks these have no outcome: {_shown(sorted(known - heard))}" if known - heard else ""


def told_twice(told: Iterable[int]) -> str:
    """Guarantee 2: each outcome is told once."""
    again = sorted(task for task, times in Counter(told).items() if times > 1)
    return f"of these tasks an outcome was told again: {_shown(again)}" if again else ""


def too_many_starts(task: int, starts: int, starts_max: int) -> str:
    """Guarantee 3: a task is started `max_attempts` times at most, failures that its retry policy allows aside."""
    return f"{starts} starts of task {task}; at most {starts_max}" if starts > starts_max else ""


def untrue_attempts(task: int, attempts: int, starts_max: int, starts: int) -> str:
    """What `attempts` means: no less than the starts before the outcome was told, and never above those allowed."""
    if attempts > starts_max:
        return f"{attempts} attempts of task {task}; at most {starts_max}"
    return f"{attempts} attempts of task {task}, which was started {starts} times" if attempts < starts else ""


def lost_early(task: int, attempts: int, max_attempts: int, error: str) -> str:
    """Guarantee 4: a task is lost only when all its attempts are used up."""
    return f"task {task} was lost while attempts remained: {error!r}" if attempts < max_attempts else ""


def untimely_push(idle: bool, started: int, queued: int) -> str:
    """A task that is pushed starts where a slot is free and nothing waits, or not at all: it overtakes nobody.

    idle: whether that was so. started: attempts that have begun by it. queued: what waits after it.
    """
    if started and not idle:
        return "a pushed task started where no slot was free, or something waited"
    return f"after a push to an idle node {queued} reservations wait" if idle and queued else ""


def _shown(tasks: list[int]) -> str:
    more = f" and {len(tasks) - SHOWN_MAX} more" if len(tasks) > SHOWN_MAX else ""
    return f"{tasks[:SHOWN_MAX]}{more}"
