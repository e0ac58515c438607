"""Tasks under virtual time that submit tasks of their own, and wait for them without a slot (nested tasks).

What such a task does is drawn when it begins: a job or two, one after the other, for each of which it waits, or asks
now and then and keeps its slot meanwhile, or does not wait at all. It may lose patience, and may cancel its job then.
A wait that is refused, and a client that is, fail the task. Tasks of its jobs may do the same, to some depth.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Protocol

from simulator.soak.broken import Broken
from simulator.soak.job_log import JobLog, Start
from simulator.soak.task_client import NodeMonitor, TaskClientHost
from sparrow_py.errors import SparrowError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import JobSpec

DEPTH_MAX = 3
"""Tasks of jobs that are so deep submit nothing."""
CHILDREN_MAX = 60
"""Jobs that tasks submit in one world, about: enough that their kinds meet all faults."""
CHILD_DURATIONS_S = (0.0, 0.0004, 0.003, 0.01, 0.05, 0.4, 3.0)
"""The longest outlives what ends a parent, unless it is stopped for that."""
SUBMIT_TIMEOUTS_S = (0.5, 3.0, 60.0)
"""How long jobs of such clients wait for a scheduler."""
PATIENCE_S = 2.0
"""A task that loses patience does so within so long."""
ASKS_EVERY_S = 0.02
"""A task that keeps its slot asks so often."""
ASKS_MAX = 50


COUNTED = (
    "nested tasks", "nested jobs", "waits refused", "nested: told to come again", "nested: cut off",
    "nested: moved", "nested: denied",
)  # fmt: skip
"""What a world counts of such tasks and their clients."""


class Way(Enum):
    """What a task does while its job runs."""

    WAITS = "waits"
    ASKS = "asks"
    GOES_ON = "goes on"


class Executor(Protocol):
    """The executor process that runs the task."""

    id: str
    app: str

    @property
    def node(self) -> NodeMonitor:
        """Its node monitor."""

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do it then, if the process is there."""

    def wait(self, run: int) -> None:
        """The task is about to wait."""

    def want_slot(self, run: int) -> None:
        """The task is about to go on."""

    def go_on(self, run: int) -> None:
        """What is left of the task comes now, and then its end."""

    def fail(self, run: x.Run) -> None:
        """The task ends with an error."""


class NestedTask:
    """A task that has a client. gone_at_s: when its client was gone, with it or before; None until then."""

    def __init__(self, executor: Executor, run: x.Run, start: Start) -> None:
        world = executor.node.world
        self.gone_at_s: float | None = None
        self.start = start
        self._executor = executor
        self._run = run
        self._world = world
        self._rng = world.nested_rng
        self._jobs_left = self._rng.choice([1, 1, 2])
        self._way = Way.GOES_ON
        self._log: ChildLog | None = None
        """Of the job that it has submitted last."""
        self._waits = False
        """Whether it waits without a slot, and wants none yet."""
        self._failed = False
        self._asked = 0
        timeout_s = self._rng.choice(SUBMIT_TIMEOUTS_S)
        self.client = TaskClientHost(executor.node, executor.id, run.run, start.log.user, timeout_s, self._denied)
        world.counts["nested tasks"] += 1

    def begin(self) -> None:
        """Its client connects, and it submits its first job."""
        self.client.connect()
        self._go_on()

    def _go_on(self) -> None:
        """It has a slot: submit the next job, or end."""
        if self.gone_at_s is not None:
            return  # It was killed.
        if self._failed:
            self._executor.fail(self._run)
            return
        if not self._jobs_left:
            self._executor.go_on(self._run.run)
            return
        self._jobs_left -= 1
        self._submit()
        self._way = self._rng.choice([*[Way.WAITS] * 6, Way.ASKS, Way.GOES_ON])
        if self._way is Way.WAITS:
            self._executor.wait(self._run.run)
        elif self._way is Way.ASKS:
            self._ask()
        else:
            self._go_on()

    def _submit(self) -> None:
        pick, world, client = self._rng.choice, self._world, self.client
        job_id = f"j{world.number()}"
        durations_s = [pick(CHILD_DURATIONS_S) for _ in range(pick([1, 2, 2, 6]))]
        failures = pick([0, 0, 0, 0, 1])
        spec = JobSpec(
            [f"{job_id} {task} {seconds:.6f} {failures}".encode() for task, seconds in enumerate(durations_s)],
            app=pick(["many", "pool", "pool"]), job_id=job_id, common=job_id.encode(),
            max_attempts=pick([1, 2, 3]), retry_failed=pick([True, False]), prefetch=pick([0, 0, 8]),
        )  # fmt: skip
        log = self._log = ChildLog(self, spec)
        world.logs[job_id] = log
        world.counts["nested jobs"] += 1

        def submit() -> None:
            client.core.submit(spec, log, client.now_s)

        client.event(submit)

    # ---- it waits without a slot -------------------------------------------------------------

    def may_wait(self, why_not: str) -> None:
        """Its node monitor has answered, and has its slot back unless there is a reason why not."""
        if self.gone_at_s is not None:
            return  # It was killed.
        if why_not:
            self._world.counts["waits refused"] += 1
            self._executor.fail(self._run)
            return
        self._waits = True
        if self._failed or self._is_over:
            self._want_slot()
        elif self._rng.random() < 0.3:
            self._executor.later(self._rng.uniform(0.0, PATIENCE_S), self._lose_patience)

    @property
    def _is_over(self) -> bool:
        log = self._log
        return log is not None and (log.ended_count > 0 or log.error is not None)

    def _want_slot(self) -> None:
        if self._waits:
            self._waits = False
            self._executor.want_slot(self._run.run)

    def _lose_patience(self) -> None:
        log = self._log
        if not self._waits or log is None:
            return
        if self._rng.random() < 0.5:
            self._world.cancel(log, running=self._rng.random() < 0.5)
        self._want_slot()

    def has_slot(self) -> None:
        """It goes on."""
        self._go_on()

    def child_over(self) -> None:
        """Of its job all is known."""
        self._executor.later(0.0, self._want_slot)

    # ---- it keeps its slot -------------------------------------------------------------------

    def _ask(self) -> None:
        if self.gone_at_s is not None:
            return  # It was killed.
        self._asked += 1
        if self._failed or self._is_over or self._asked > ASKS_MAX:
            self._go_on()
        else:
            self._executor.later(ASKS_EVERY_S, self._ask)

    # ---- how it ends -------------------------------------------------------------------------

    def _denied(self) -> None:
        """There is no client for it: whoever asks for one gets the error."""
        if self.gone_at_s is None:
            self._world.counts["nested: denied"] += 1
            self._failed = True
            self._executor.later(0.0, self._want_slot)

    def over(self, *, died: bool) -> None:
        """The task has ended, or its process has died. A process that goes on may leave it to its node monitor to close
        the client."""
        if self.gone_at_s is not None:
            return
        self.gone_at_s = self._world.now
        if not self.client.alive:
            return
        if died:
            self.client.die()
        elif self._rng.random() < 0.5:
            self.client.close()


class ChildLog(JobLog):
    """Of a job that a task has submitted."""

    def __init__(self, parent: NestedTask, spec: JobSpec) -> None:
        super().__init__(parent.start.log.engine, spec, parent.client)
        self.parent = parent
        self.depth = parent.start.log.depth + 1
        if self.depth > DEPTH_MAX:
            raise Broken(f"it is {self.depth} deep", self.id)

    def refused(self, error: SparrowError) -> None:
        super().refused(error)
        self.parent.child_over()

    def ended(self) -> None:
        super().ended()
        self.parent.child_over()


def is_nested(executor: Executor, start: Start) -> bool:
    """Whether the task, which begins, is to submit tasks of its own."""
    world: Any = executor.node.world
    if executor.app != "pool" or start.log.depth >= DEPTH_MAX or world.counts["nested jobs"] >= CHILDREN_MAX:
        return False
    if start.log.stage(start.task).lease_s is not None and world.nested_rng.random() < 0.5:
        return False
    return bool(world.nested_rng.random() < world.nested_share)
