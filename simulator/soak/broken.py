"""What an oracle raises."""

from __future__ import annotations


class Broken(AssertionError):
    """Something that must hold does not. `job`: id of the job concerned, or empty."""

    def __init__(self, problem: str, job: str = "") -> None:
        super().__init__(f"{job}: {problem}" if job else problem)
        self.job = job
