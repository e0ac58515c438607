"""What is remembered of jobs, for people who look for a bug."""

from __future__ import annotations

from collections import deque


class History:
    """The latest events, and the jobs that they concern."""

    __slots__ = ("_notes", "keeps", "touched")

    def __init__(self, len_max: int) -> None:
        self.keeps = len_max > 0
        """Whether anything is remembered."""
        self.touched: set[str] = set()
        """Jobs with an event since their invariants were checked."""
        self._notes: deque[tuple[float, str, str]] = deque(maxlen=len_max)

    def note(self, now_s: float, job_id: str, text: str, *values: object) -> None:
        """Remember an event; formatted only if it is remembered."""
        if self.keeps:
            self._notes.append((now_s, job_id, text % values))
            self.touched.add(job_id)

    def story(self, job_id: str) -> list[str]:
        """What is remembered of the job, and of all of them."""
        return [f"{at_s:.6f} {text}" for at_s, job, text in self._notes if job in (job_id, "")]
