"""What a scheduler holds of a job: its stage, the tasks not placed yet, the attempts that run."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator

from sparrow_py.job import TaskStatus
from sparrow_py.messages import EPOCH_SHIFT, Stage, SubmitJob

UNPLACED, PLACED, SETTLED = 0, 1, 2

ShareKey = tuple[str, str, str, int, str]
"""(user, app, runtime, prefetch, demand): stages with the same key may pass reservations on."""


class Attempt:
    """One start of a task whose outcome is not known."""

    __slots__ = ("cancelled", "id", "node_id", "stage", "task")

    def __init__(self, attempt_id: int, stage: StageState, task: int, node_id: str) -> None:
        self.id = attempt_id
        self.stage = stage
        self.task = task
        self.node_id = node_id
        self.cancelled = False
        """Its task is not to start again: its node was asked to cancel it, and has not said that it runs."""


class Ticket:
    """A group of reservations, owned by one stage at a time."""

    __slots__ = ("id", "live", "stage")

    def __init__(self, ticket_id: int, stage: StageState) -> None:
        self.id = ticket_id
        self.stage = stage
        self.live: dict[str, int] = {}
        """Node id to reservations queued there, as far as this scheduler knows."""


class StageState:
    """One stage: the unit of scheduling.

    A task is unplaced, placed (an attempt of it runs or waits at a node) or settled. Unplaced
    tasks are `returned` ones and all from `fresh` on; both go out lowest number first, so tasks
    go out in submission order.
    """

    __slots__ = (
        "attempts", "backoff_s", "fresh", "job", "live", "own_ticket", "payloads", "place_by_s", "probe_at_s",
        "refused_by", "reserved_at_s", "returned", "settled", "share_key", "spec", "starts", "states",
        "tickets", "unplaced",
    )  # fmt: skip

    def __init__(self, job: JobState, spec: Stage) -> None:
        self.job = job
        self.spec = spec
        self.share_key: ShareKey = (
            job.user, spec.app, spec.runtime, spec.prefetch, repr(sorted((spec.demand or {}).items()))
        )  # fmt: skip
        self.payloads: list[bytes | None] = []
        self.states = bytearray()
        self.fresh = 0
        self.returned: list[int] = []
        self.unplaced = 0
        self.settled = 0
        self.starts: dict[int, int] = {}
        """Earlier starts of tasks that were started before and are to be started again, or were."""
        self.attempts: dict[int, int] = {}
        """Placed task to its attempt."""
        self.tickets: dict[int, Ticket] = {}
        self.own_ticket: Ticket | None = None
        self.live = 0
        """Live reservations over all tickets."""
        self.place_by_s: dict[int, float] = {}
        """Unplaced task to the end of its queue timeout, for jobs that have one."""
        self.reserved_at_s: float | None = None
        self.refused_by: set[str] = set()
        self.backoff_s = 0.0
        self.probe_at_s: float | None = None
        """When a pending re-probe is due."""

    def add_tasks(self, payloads: list[bytes]) -> None:
        """Further tasks have arrived."""
        self.payloads += payloads
        self.states += bytes(len(payloads))
        self.unplaced += len(payloads)

    @property
    def complete(self) -> bool:
        """Whether all tasks that the submission announced have arrived."""
        return len(self.states) == self.spec.task_count

    def next_unplaced(self) -> int:
        """Take the first unplaced task; there must be one. The caller places or settles it."""
        self.unplaced -= 1
        while self.returned:
            task = heapq.heappop(self.returned)
            if self.states[task] == UNPLACED:
                return task
        while self.states[self.fresh] != UNPLACED:
            self.fresh += 1
        self.fresh += 1
        return self.fresh - 1

    def give_back(self, task: int) -> None:
        """A placed task is unplaced again."""
        self.states[task] = UNPLACED
        del self.attempts[task]
        heapq.heappush(self.returned, task)
        self.unplaced += 1

    def unplaced_tasks(self) -> Iterator[int]:
        """All unplaced tasks, in order."""
        return (task for task, state in enumerate(self.states) if state == UNPLACED)


class JobState:
    """One job. It has one stage today; `stages` becomes a DAG without the cores' messages changing."""

    __slots__ = (
        "__weakref__",
        "cancelled",
        "client",
        "commons_at",
        "counts",
        "epoch",
        "id",
        "max_attempts",
        "name",
        "queue_timeout_s",
        "report_placed",
        "retry_failed",
        "stage",
        "submitted_at_s",
        "user",
    )  # fmt: skip

    def __init__(self, message: SubmitJob, client: str, user: str, now_s: float) -> None:
        self.id = message.job
        self.epoch = message.epoch
        self.name = message.name
        self.client = client
        self.user = user
        self.max_attempts = message.max_attempts
        self.retry_failed = message.retry_failed
        timeout_s = message.queue_timeout_s
        self.queue_timeout_s = None if timeout_s == math.inf else timeout_s
        self.report_placed = message.report_placed
        self.submitted_at_s = now_s
        self.cancelled = False
        self.counts = dict.fromkeys(TaskStatus, 0)
        self.commons_at: set[str] = set()
        """Nodes that hold the job's common bytes."""
        self.stage = StageState(self, message.stages[0])

    def attempt_id(self, counter: int) -> int:
        """The attempt id for the scheduler's next attempt number."""
        return self.epoch << EPOCH_SHIFT | counter
