"""A client's core alone: what is done with it, what it sends, and what it tells of a job."""

from __future__ import annotations

import random
from typing import Any

from sparrow_py.errors import SparrowError
from sparrow_py.job import FINISHED, JobSpec, TaskStatus
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.core import ClientCore
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder


class Told:
    """A sink that remembers: outcomes by `kept`, all else in order."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.outcomes: dict[int, Any] = {}
        self.error: SparrowError | None = None

    def accepted(self) -> None:
        self.calls.append("accepted")

    def refused(self, error: SparrowError) -> None:
        self.calls.append("refused")
        self.error = error

    def placed(self, task: int) -> None:
        self.calls.append(f"placed {task}")

    def outcome(self, outcome: m.Outcome) -> None:
        assert outcome.task not in self.outcomes, "told twice"
        assert "ended" not in self.calls, "an outcome after the end"
        self.outcomes[outcome.task] = self.kept(outcome)

    def kept(self, outcome: m.Outcome) -> Any:
        """What is remembered of an outcome."""
        return outcome.status

    def not_cancelled(self, task: int) -> None:
        self.calls.append(f"not cancelled {task}")

    def ended(self) -> None:
        self.calls.append("ended")


class Rig:
    """A client core with schedulers `up`."""

    def __init__(
        self, *schedulers: str, frame_bytes_max: int = m.FRAME_BYTES_MAX, submit_timeout_s: float = 10.0
    ) -> None:
        self.outbox = Recorder()
        self.core = ClientCore(random.Random(0), self.outbox, submit_timeout_s=submit_timeout_s)
        for scheduler in schedulers:
            self.core.scheduler_up(scheduler, frame_bytes_max, 0.0)

    @staticmethod
    def spec(tasks: int | list[Any] = 1, **fields: Any) -> JobSpec:
        payloads = [b"x"] * tasks if isinstance(tasks, int) else tasks
        return JobSpec(payloads, **{"job_id": "j", **fields})

    def submit(self, tasks: int | list[Any], now_s: float = 0.0, **fields: Any) -> tuple[ClientJob, Told]:
        told = Told()
        job = self.core.submit(self.spec(tasks, **fields), told, now_s)
        self.core.check_invariants()
        return job, told

    def receive(self, *messages: m.Message, scheduler: str = "s", now_s: float = 0.0) -> None:
        for message in messages:
            self.core.receive(scheduler, message, now_s)
            self.core.check_invariants()

    def kinds(self) -> list[Any]:
        """Kinds of what was sent since the last call."""
        kinds = [message if isinstance(message, str) else type(message) for _, message in self.outbox.sent]
        self.outbox.sent.clear()
        return kinds


def outcome(task: int, status: TaskStatus = FINISHED) -> m.Outcome:
    return m.Outcome("j", task, status, b"", "", 1, "n", 0.0, 0.0, 0.1)
