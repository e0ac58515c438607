"""Why tasks could not start, or started in vain, though it was no want of a slot: the latest of all jobs, for people.

A task that starts at once and runs to its end makes no record: what is written here costs something only where a task
comes back, or has waited for something else.
"""

from __future__ import annotations

import enum
import math
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState

RECORDS_MAX = 4_000
"""Setbacks that are remembered, of all jobs together; those that began first go."""
REASON_CHARS_MAX = 100
"""Characters of a reason that are kept. A record takes some 400 bytes at most, so that all take 1.6 MB."""


class Cause(enum.Enum):
    """What kept a task from starting; or that it ran, and is to run again."""

    IN_VAIN = "in vain"
    """It was started in vain, as the reason says."""
    RAN = "ran"
    """It ran for so long before, with an end that was not its last."""
    PAUSE = "pause"
    """The pause before a retry."""
    RESULTS = "results"
    """Results of other jobs that it asks for were not there."""
    ROOM = "room"
    """Nodes had no room for its inputs."""
    INPUTS = "inputs"
    """Inputs of it had got lost, and had to be produced or uploaded again."""
    NODES = "nodes"
    """No node that may run it was ready."""


class Setback(NamedTuple):
    """One of a task's setbacks: what it was, from when to when at the latest, and why, if somebody has said so."""

    cause: Cause
    from_s: float
    until_s: float
    reason: str = ""


class Setbacks:
    """Those of all jobs of a scheduler."""

    __slots__ = ("_records", "whole_since_s")

    def __init__(self) -> None:
        self._records: deque[tuple[str, range, Setback]] = deque(maxlen=RECORDS_MAX)
        """Of a job's tasks with these numbers."""
        self.whole_since_s = 0.0
        """What was over before then may be forgotten."""

    def note(self, stage: StageState, task: int, cause: Cause, from_s: float, until_s: float, reason: str = "") -> None:
        """The task of the stage has had this one. What it waited for ends, at the latest, as its next one begins."""
        number = stage.first + task
        self._note(stage, range(number, number + 1), Setback(cause, from_s, until_s, reason[:REASON_CHARS_MAX]))

    def no_nodes(self, stage: StageState, from_s: float) -> None:
        """There is no node for the stage's tasks."""
        numbers = range(stage.first, stage.first + stage.spec.task_count)
        self._note(stage, numbers, Setback(Cause.NODES, from_s, math.inf))

    def nodes_found(self, stage: StageState, at_s: float) -> None:
        """Nodes are found for the stage's tasks."""
        numbers = range(stage.first, stage.first + stage.spec.task_count)
        self._note(stage, numbers, Setback(Cause.NODES, at_s, at_s))

    def _note(self, stage: StageState, numbers: range, setback: Setback) -> None:
        if len(self._records) == RECORDS_MAX:
            self.whole_since_s = max(self.whole_since_s, self._records[0][2].from_s)
        self._records.append((stage.job.id, numbers, setback))

    def of(self, job_id: str, task: int, since_s: float) -> list[Setback]:
        """Those of a job's task that began at this time or later, as far as they are remembered, in order."""
        found = [
            one for job, numbers, one in self._records if job == job_id and task in numbers and one.from_s >= since_s
        ]
        return sorted(found, key=lambda one: one.from_s)
