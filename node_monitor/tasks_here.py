"""What the node monitor's core knows of jobs and tasks that are at this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.messages import Data

if TYPE_CHECKING:
    from node_monitor.executor_state import AppState, ExecutorState
    from node_monitor.queues import Charge


NOTHING: frozenset[str] = frozenset()


class CommonHere:
    """What a stage's tasks have in common. `number` names its bytes to executors."""

    __slots__ = ("data", "large", "number", "task_timeout_s")

    def __init__(self, number: int, data: Data, task_timeout_s: float | None) -> None:
        self.number = number
        self.data = data
        self.large = isinstance(data, BlobRef)
        self.task_timeout_s = task_timeout_s


class JobHere:
    """A job that has tasks at this node, or something to be kept for its tasks."""

    __slots__ = (
        "commons", "duration_s", "forgotten", "held", "id", "inputs", "instance", "number", "numbers", "once",
        "owner", "scheduler",
    )  # fmt: skip

    def __init__(self, scheduler: str, job_id: str, number: int) -> None:
        self.scheduler = scheduler
        self.id = job_id
        self.number = number
        """Owns what the job has in the blob store."""
        self.instance = 0
        self.owner: tuple[str, int] = ("", 0)
        """Its user and its instance, as soon as a task of it is here."""
        self.once = False
        """Whether its tasks may start once at most: then it is remembered which have."""
        self.commons: dict[int, CommonHere] = {}
        """By stage."""
        self.numbers: list[int] = []
        """All that its common bytes were ever called."""
        self.inputs: dict[int, Data] = {}
        """Results of the job's tasks that others ask for, by task."""
        self.duration_s: float | None = None
        """Moving average of its tasks' service times here."""
        self.held = 0
        """Attempts here whose end was not reported."""
        self.forgotten = False


class Held:
    """An attempt that is at this node: ready, waiting for its inputs, or given to an executor."""

    __slots__ = (
        "app", "attempt", "charge", "common", "executor", "given_at_s", "inputs", "job", "kill_if_runs", "missing",
        "payload", "prefetch", "run", "stop", "task",
    )  # fmt: skip

    def __init__(
        self,
        job: JobHere,
        app: AppState,
        task: int,
        attempt: int,
        payload: Data,
        common: CommonHere | None,
        inputs: tuple[tuple[int, int], ...],
        charge: Charge,
    ) -> None:
        self.job = job
        self.app = app
        self.task = task
        self.attempt = attempt
        self.payload = payload
        self.common = common
        self.inputs = inputs
        self.charge = charge
        self.prefetch = charge.ticket.prefetch
        self.executor: ExecutorState | None = None
        self.run = 0
        self.given_at_s = 0.0
        self.missing: frozenset[str] = NOTHING
        """Hashes of inputs that are being fetched; it has a place, and does not run yet."""
        self.kill_if_runs = False
        """It was asked back; if it runs already it is to be stopped."""
        self.stop: tuple[TaskStatus, str] | None = None
        """It was stopped: how it ends, and why."""

    @property
    def key(self) -> tuple[str, str, int]:
        """(scheduler, job, attempt): the attempt id is unique in its job."""
        return self.job.scheduler, self.job.id, self.attempt

    @property
    def task_timeout_s(self) -> float | None:
        """How long it may run."""
        return None if self.common is None else self.common.task_timeout_s


class Ask:
    """A getTask that has not been answered wholly."""

    __slots__ = ("app", "charges", "deadline_s", "id", "prefetched", "scheduler")

    def __init__(self, ask_id: int, app: AppState, scheduler: str, deadline_s: float, prefetched: bool) -> None:
        self.id = ask_id
        self.app = app
        self.scheduler = scheduler
        self.deadline_s = deadline_s
        self.prefetched = prefetched
        """Whether it asks ahead of free slots, and so holds none."""
        self.charges: list[Charge] = []
