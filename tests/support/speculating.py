"""Speculation: a speculator alone, event by event, and a client of `world.World` that submits slow tasks again
(`speculated_job.SpeculatedJob` under virtual time)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from simulator.soak.world import ClientHost, JobLog, NodeHost, World
from sparrow_py.job import BlobRef, JobSpec, TaskStatus
from sparrow_py.session.sink import Sink
from sparrow_py.session.speculated_job import SpeculatedJob
from sparrow_py.session.speculator import Speculator
from sparrow_py.speculation import Speculation
from sparrow_py.wire import messages as m
from tests.support.client_core import Told

AT_ONCE = Speculation(quantile=0.5, slowdown=2.0, copies_max=1.0, running_s_min=0.0)
ORIGINAL, COPY = "original", "copy"
"""Nodes, in outcomes: whose outcome it is."""


class ToldWhose(Told):
    """A sink that remembers of an outcome whose it is, besides its status."""

    def kept(self, outcome: m.Outcome) -> Any:
        return outcome.node, outcome.status


class SpeculatorRig:
    """A speculator of a job with so many tasks, and all that comes out of it."""

    def __init__(self, tasks: int, speculate: Speculation = AT_ONCE, **how: Any) -> None:
        self.told = ToldWhose()
        self.submitted: list[list[int]] = []
        self.cancelled: list[tuple[str, int]] = []
        self.core = Speculator([tasks], speculate, self.told, self, **how)

    def submit_copies(self, tasks: list[int]) -> None:
        self.submitted.append(tasks)

    def end_original(self, outcome: m.Outcome) -> None:
        self.cancelled.append((ORIGINAL, outcome.task))

    def cancel_copy(self, task: int) -> None:
        self.cancelled.append((COPY, task))

    def place(self, *tasks: int, now_s: float = 0.0) -> None:
        for task in tasks:
            self.core.placed(task, now_s)

    def ends(self, *tasks: int, status: TaskStatus = TaskStatus.FINISHED, service_s: float | None = 1.0) -> None:
        for task in tasks:
            self.core.outcome(_outcome(task, status, service_s, ORIGINAL))
            self.core.check_invariants()

    def copy_ends(self, task: int, status: TaskStatus = TaskStatus.FINISHED) -> None:
        self.core.copy_outcome(_outcome(task, status, 1.0, COPY))
        self.core.check_invariants()

    def tick(self, now_s: float) -> list[list[int]]:
        """What is submitted now."""
        self.submitted.clear()
        self.core.tick(now_s)
        self.core.check_invariants()
        return list(self.submitted)


def _outcome(task: int, status: TaskStatus, service_s: float | None, of: str) -> m.Outcome:
    return m.Outcome("j", task, status, b"", "", 1, of, 0.0, 0.0, service_s)


class VirtualTimer:
    """As `clock.DeadlineTimer`, in the world's time."""

    def __init__(
        self, world: World, client: ClientHost, deadline_s: Callable[[], float | None], tick: Callable[[], None]
    ) -> None:
        self._world = world
        self._client = client
        self._next_deadline_s = deadline_s
        self._tick = tick
        self._due_s: float | None = None
        self._cancelled = False

    def update(self) -> None:
        due_s = self._next_deadline_s()
        if due_s is None or (self._due_s is not None and self._due_s <= due_s):
            return
        self._due_s = due_s
        self._world.at(due_s, lambda: self._fire(due_s))

    def _fire(self, due_s: float) -> None:
        if self._due_s != due_s or self._cancelled or not self._client.alive:
            return
        self._due_s = None
        self._tick()
        self.update()

    def cancel(self) -> None:
        self._cancelled = True


class SpeculatingClient:
    """The `speculated_job.Host` of a client of the world."""

    def __init__(self, world: World, client: int = 0) -> None:
        self.world = world
        self.client = world.clients[client]
        self.core = self.client.core
        self.jobs: dict[str, SpeculatedJob] = {}
        self.copies: dict[str, list[JobSpec]] = {}
        """Job id to the copies that were submitted of it."""

    def submit(self, durations_s: Sequence[float], speculate: Speculation, **fields: Any) -> JobLog:
        """Submit a job whose tasks last so long."""
        job_id = f"j{self.world.number()}"
        tasks = [f"{job_id} {task} {seconds:.6f} 0".encode() for task, seconds in enumerate(durations_s)]
        fields = {"app": "many", "common": job_id.encode(), **fields}
        return self._submit(JobSpec(tasks, job_id=job_id, **fields), speculate)

    def submit_stages(self, *stages: tuple[Any, ...], speculate: Speculation, **fields: Any) -> JobLog:
        """Submit a job of stages, as `World.submit_stages` does."""
        return self._submit(self.world.stages_job(*stages, **fields), speculate)

    def _submit(self, spec: JobSpec, speculate: Speculation) -> JobLog:
        job_id = spec.job_id
        log = self.world.logs[job_id] = JobLog(self.world.engine, spec, self.client)
        job = self.jobs[job_id] = SpeculatedJob(spec, speculate, log, self)
        self.copies[job_id] = []
        self.core.submit(replace(spec, report_placed=True), job, self.world.now)
        return log

    def cancel(self, log: JobLog, tasks: Sequence[int] | None = None, *, running: bool = False) -> None:
        """As `Session.cancel_job` and `Session.cancel_tasks`."""
        job_id, now_s = log.spec.job_id, self.world.now
        job = self.jobs.get(job_id)
        if tasks is None:
            if job is not None:
                job.cancel_job()
            self.core.cancel_job(job_id, now_s, running=running)
        else:
            if job is not None:
                job.cancel_tasks(list(tasks))
            self.core.cancel_tasks(job_id, list(tasks), now_s, running=running)

    def check_end(self) -> None:
        """What must hold when nothing more happens; the world's own check knows nothing of copies."""
        for job_id, copies in self.copies.items():
            self._check_job(self.world.logs.pop(job_id))
            for copy in copies:
                del self.world.logs[copy.job_id]
        assert not self.jobs, "a job is over, and its driver was not told"
        self.world.check_end()

    def _check_job(self, log: JobLog) -> None:
        tasks = list(range(len(log.payloads)))
        if log.error is not None:
            assert not log.outcomes and not log.ended_count, "refused, and yet there are outcomes"
            return
        assert log.accepted_count <= 1 and log.ended_count == 1  # Cancelled before anyone took it, it is not accepted.
        assert sorted(outcome.task for outcome in log.outcomes) == tasks
        assert all(outcome.job == log.spec.job_id for outcome in log.outcomes)
        for outcome in log.outcomes:
            assert not outcome.result or _bytes(outcome.result) == log.payloads[outcome.task], "another task's result"

    # ---- the driver's host

    def now_s(self) -> float:
        return self.world.now

    def timer(self, next_deadline_s: Callable[[], float | None], tick: Callable[[], None]) -> VirtualTimer:
        return VirtualTimer(self.world, self.client, next_deadline_s, tick)

    def submit_copy(self, original: str, spec: JobSpec, sink: Sink, given: Mapping[int, m.Data]) -> None:
        self.copies[original].append(spec)
        self.world.logs[spec.job_id] = JobLog(self.world.engine, spec, self.client)  # Its moves are noted there.
        self.core.submit(spec, sink, self.world.now, given)

    def speculated(self, job_id: str) -> None:
        del self.jobs[job_id]


def _bytes(result: m.Data) -> bytes:
    """A result, or what the hash of a large one says that it is (`simulator.soak.blobs`)."""
    return bytes.fromhex(result.hash[: 2 * result.size]) if isinstance(result, BlobRef) else result


def slow_down(node: NodeHost, factor: float) -> None:
    """What starts on this node from now on lasts so many times longer."""
    node.slowness = factor
