"""The parts of a job that has more tasks than a scheduler takes of a user (`in_parts`). Pure."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from sparrow_py.job import NAME_BYTES_MAX, JobSpec, new_job_id

PARTS_IN_ROOM = 4
"""So many parts fit a scheduler that has nothing else of the user: it has tasks to place while one waits for room."""


class Parts:
    """The parts of one job."""

    __slots__ = ("_left", "_numbered", "_size", "_spec", "is_offered", "taken", "tasks_of")

    def __init__(self, spec: JobSpec, room: int) -> None:
        """room: how many tasks a scheduler takes of the user."""
        self._spec = spec
        self._size = max(1, room // PARTS_IN_ROOM)
        self._left = list(range(sum(len(stage.tasks) for stage in spec.as_stages())))
        """The tasks that are in no part yet, in reverse order."""
        self._left.reverse()
        self._numbered = 0
        self.is_offered = False
        """Whether a part has been submitted that no scheduler has accepted."""
        self.taken = 0
        """Parts that a scheduler has accepted."""
        self.tasks_of: dict[str, list[int]] = {}
        """By the id of a part that has not ended the numbers that its tasks have in the job; all in order."""

    def next(self, job_id: str, is_settled: Callable[[int], object]) -> JobSpec | None:
        """The next part; None if there is none. is_settled: whether a task has ended, and is not to be in it."""
        tasks: list[int] = []
        while self._left and len(tasks) < self._size:
            task = self._left.pop()
            if not is_settled(task):
                tasks.append(task)
        if not tasks:
            return None
        self._numbered += 1
        part_id = f"{job_id}.{self._numbered}"
        if len(part_id.encode()) > NAME_BYTES_MAX:
            part_id = new_job_id()
        self.tasks_of[part_id] = tasks
        self.is_offered = True
        return self._with_tasks(part_id, tasks)

    def _with_tasks(self, part_id: str, tasks: Sequence[int]) -> JobSpec:
        (stage,) = self._spec.as_stages()
        own = [stage.tasks[task] for task in tasks]
        if self._spec.stages:
            return replace(self._spec, job_id=part_id, stages=[replace(stage, tasks=own)])
        return replace(self._spec, job_id=part_id, tasks=own)

    def take_left(self) -> list[int]:
        """The tasks that are in no part, and will be in none."""
        left, self._left = self._left[::-1], []
        return left

    def by_part(self, tasks: Iterable[int]) -> dict[str, list[int]]:
        """By the ids of parts that have not ended which of their tasks these are, by their numbers there."""
        parts = list(self.tasks_of.items())
        firsts = [own[0] for _, own in parts]
        found: dict[str, list[int]] = {}
        for task in tasks:
            index = bisect_right(firsts, task) - 1
            if index < 0:
                continue
            part_id, own = parts[index]
            number = bisect_left(own, task)
            if number < len(own) and own[number] == task:
                found.setdefault(part_id, []).append(number)
        return found
