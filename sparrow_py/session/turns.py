"""Jobs that are not offered to schedulers before those whose results they await: schedulers have room for so many tasks
of a user, and calls that wait for others must not take it up while these others wait for room. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from sparrow_py.session.client_job import ClientJob


class Turns:
    """Which of the client's jobs wait until which other is taken."""

    def __init__(self) -> None:
        self._behind: dict[str, dict[str, ClientJob]] = {}
        """By id of a job those that wait for it, by id."""

    def wait(self, job: ClientJob, jobs: Mapping[str, ClientJob]) -> bool:
        """Whether the job, which no scheduler has, must wait: a job that was submitted before it, among `jobs`, is not
        taken, and is to produce a result for it. It then waits for the last of these; `next` says when that is over."""
        self.end(job)
        before = [
            other
            for result, number in job.awaited.items()
            if number not in job.ended
            and (other := jobs.get(result.job_id)) is not None
            and not other.taken
            and other.id != job.whole  # What a part awaits of its own job is in it, or in one that went before.
            and other.position < job.position  # So no two wait for each other.
        ]
        if not before:
            return False
        last = max(before, key=lambda other: other.position)
        job.behind = last.id
        self._behind.setdefault(last.id, {})[job.id] = job
        return True

    def end(self, job: ClientJob) -> None:
        """It waits no more, if it did."""
        if job.behind is None:
            return
        waiting = self._behind[job.behind]
        del waiting[job.id]
        if not waiting:
            del self._behind[job.behind]
        job.behind = None

    def next(self, job_id: str) -> list[ClientJob]:
        """The job is taken, or over: those that waited for it, and are to be offered or to wait for another."""
        waited = self._behind.pop(job_id, None)
        if waited is None:
            return []
        for job in waited.values():
            job.behind = None
        return list(waited.values())

    def clear(self) -> None:
        """Nobody waits any more."""
        for job_id in list(self._behind):
            self.next(job_id)
