"""What the node monitor's core knows of jobs and tasks that are at this node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire.messages import Data

if TYPE_CHECKING:
    from node_monitor.executors.executor_state import AppState, ExecutorState
    from node_monitor.queueing.tickets import AheadOfTurn, Charge, QueuedTicket


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
    """An attempt that has a place at an executor: it runs, or waits for its inputs or for an earlier run there."""

    __slots__ = (
        "ahead", "attempt", "began_at_s", "cancelled", "charge", "common", "executor", "given_at_s", "inputs", "job",
        "kill_if_runs", "missing", "payload", "run", "stop", "task",
    )  # fmt: skip

    def __init__(
        self,
        job: JobHere,
        task: int,
        attempt: int,
        payload: Data,
        common: CommonHere | None,
        inputs: tuple[tuple[int, int], ...],
        charge: Charge,
    ) -> None:
        self.job = job
        self.task = task
        self.attempt = attempt
        self.payload = payload
        self.common = common
        self.inputs = inputs
        self.charge = charge
        self.executor: ExecutorState | None = None
        self.run = 0
        self.given_at_s = 0.0
        self.began_at_s: float | None = None
        """Since when its executor works for it, as far as is known; None while it waits."""
        self.ahead: AheadOfTurn | None = None
        """The books in which it counts, while it waits for an earlier run of its executor."""
        self.missing: frozenset[str] = NOTHING
        """Hashes of inputs that are being fetched; it has a place, and does not run yet."""
        self.cancelled = False
        """Its scheduler asked it back."""
        self.kill_if_runs = False
        """If it runs already it is to be stopped."""
        self.stop: tuple[TaskStatus, str] | None = None
        """It was stopped: how it ends, and why."""

    @property
    def key(self) -> tuple[str, str, int]:
        """(scheduler, job, attempt): the attempt id is unique in its job."""
        return self.job.scheduler, self.job.id, self.attempt

    def begins(self, now_s: float) -> None:
        """The run before it has ended."""
        self.began_at_s = now_s
        self.is_not_ahead()

    def is_not_ahead(self) -> None:
        """It waits for no other run any more."""
        if self.ahead is not None:
            self.ahead.less()
            self.ahead = None

    @property
    def task_timeout_s(self) -> float | None:
        """How long it may run."""
        return None if self.common is None else self.common.task_timeout_s


class Ask:
    """A getTask that has not been answered wholly.

    slots: those that wait for its answer, each with its charge and the executor that has a place for it. ahead: for so
    many tasks ahead of slots. It is one or the other.
    """

    __slots__ = ("ahead", "app", "deadline_s", "id", "slots", "ticket")

    def __init__(self, ask_id: int, app: AppState, ticket: QueuedTicket, deadline_s: float) -> None:
        self.id = ask_id
        self.app = app
        self.ticket = ticket
        self.deadline_s = deadline_s
        self.slots: list[tuple[Charge, ExecutorState]] = []
        self.ahead = 0

    @property
    def scheduler(self) -> str:
        """Who was asked."""
        return self.ticket.key[0]

    @property
    def left(self) -> int:
        """How many answers are to come."""
        return self.ahead or len(self.slots)
