"""The tasks of a `sparrow run` that may stop before its end: none is submitted before earlier results are looked at.

A job's tasks are with schedulers and nodes all at once, and one that waits there starts as soon as another ends, before
anybody has seen how that one ended. So that nothing starts after the last word, no more tasks are submitted here than
may run at a time, each as a job of its own. That costs a round trip a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from queue import SimpleQueue
from typing import TYPE_CHECKING

from sparrow_py.job import JobSpec

if TYPE_CHECKING:
    from sparrow_py import Client
    from sparrow_py.client import Job
    from sparrow_py.futures.task_future import TaskFuture


class Steps:
    """Has a client run the tasks of `spec`, at most `at_once` at a time.

    Iteration yields the number of each task that was submitted, and its future once that is done. No task is submitted
    between the end of another and the return of the caller, who may `cancel`.
    """

    def __init__(self, client: Client, spec: JobSpec, at_once: int) -> None:
        self._client = client
        self._spec = spec
        self._at_once = at_once
        self._jobs: dict[int, Job] = {}
        """Of tasks that have been submitted, and whose ends were not looked at."""
        self._ended: SimpleQueue[tuple[int, TaskFuture]] = SimpleQueue()
        self._next = 0
        self._cancelled = False

    def __iter__(self) -> Iterator[tuple[int, TaskFuture]]:
        self._submit()
        while self._jobs:
            try:
                task, future = self._ended.get()
            except KeyboardInterrupt:
                self.cancel(running=True)
                raise
            del self._jobs[task]
            yield task, future
            if self._ended.empty():  # Else there is a result that says, perhaps, that none is to start.
                self._submit()

    def _submit(self) -> None:
        while not self._cancelled and len(self._jobs) < self._at_once and self._next < len(self._spec.tasks):
            task = self._next
            self._next += 1
            job = self._jobs[task] = self._client.submit_job(replace(self._spec, tasks=[self._spec.tasks[task]]))
            job.futures[0].add_done_callback(lambda future, task=task: self._ended.put((task, future)))  # type: ignore[misc]

    def cancel(self, *, running: bool = False) -> None:
        """Submit no more. What runs goes on, and its outcome comes; with `running` it is stopped."""
        self._cancelled = True
        for job in self._jobs.values():
            job.cancel(running=running)

    def unsubmitted(self) -> range:
        """The numbers of the tasks that have not been submitted."""
        return range(self._next, len(self._spec.tasks))
