"""Results that jobs of a client await of tasks of its jobs: what is known of them, and who is to be told. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sparrow_py.job import Ended, TaskResult
from sparrow_py.session.client_job import ClientJob


class Awaiting:
    """Which of the client's jobs await which results."""

    def __init__(self, tell: Callable[[ClientJob, Mapping[int, Ended]], None]) -> None:
        """tell: tells the scheduler of a job, which has one, how tasks ended whose results have these numbers."""
        self._tell = tell
        self.results: dict[str, dict[int, dict[tuple[str, int], ClientJob]]] = {}
        """Those that are awaited, by id of a job and task there: by id and number the jobs that await the result."""

    def begin(self, job: ClientJob, ended: Mapping[TaskResult, Ended]) -> None:
        """The job is submitted. `ended`: of the results that it awaits those whose tasks have ended."""
        for result, number in job.awaited.items():
            if result in ended:
                job.ended[number] = ended[result]
            else:
                self.results.setdefault(result.job_id, {}).setdefault(result.task, {})[job.id, number] = job

    def end(self, job: ClientJob) -> None:
        """The job is over, and awaits nothing any more."""
        for result, number in job.awaited.items():
            tasks = self.results.get(result.job_id)
            if tasks is None or (job.id, number) not in tasks.get(result.task, ()):
                continue
            del tasks[result.task][job.id, number]
            if not tasks[result.task]:
                del tasks[result.task]
            if not tasks:
                del self.results[result.job_id]

    def task_ended(self, job_id: str, task: int, ended: Ended) -> None:
        """A task of a job has ended."""
        tasks = self.results.get(job_id)
        if tasks is None:
            return
        told = tasks.pop(task, {})
        if not tasks:
            del self.results[job_id]
        for (_, number), job in told.items():
            job.ended[number] = ended
            if number in job.asked_results and job.scheduler is not None:
                self._tell(job, {number: ended})

    def job_failed(self, job_id: str, ended: Ended) -> None:
        """Of the job nothing more will be heard: its tasks that have not ended count as ended so."""
        for task in list(self.results.get(job_id, ())):
            self.task_ended(job_id, task, ended)

    def asked(self, job: ClientJob, numbers: list[int]) -> None:
        """The job's scheduler wants to be told of these."""
        job.asked_results.update(numbers)
        if known := {number: job.ended[number] for number in numbers if number in job.ended}:
            self._tell(job, known)
