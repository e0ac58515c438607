"""A client of the soak, in a process of its own: submits jobs of all kinds, and writes down each that ends.

It keeps a few jobs in flight until its standard input closes; then it waits for those, writes that it is done, and
ends. It looks at what the session tells of each task before a future could hide that something was told twice.
Each line of its record is JSON: a `life` begins, a job is `submitted`, `refused` or `ended`; `outcomes` counts on.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from benchmarks.soak.jobs import Jobs, Offer
from sparrow_py.errors import ResultLost, SparrowError
from sparrow_py.futures.outcomes import outcome_value
from sparrow_py.job import TaskStatus
from sparrow_py.session.event_loop import new_event_loop
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.session import Session
from sparrow_py.wire import messages as m

IN_FLIGHT = 3
"""Jobs of a client at a time."""
PAUSE_S = 0.4
"""Mean time between the end of a job and the next, so that the machine is busy and not full."""
SUBMIT_TIMEOUT_S = 120.0
LOST_SHOWN = 5
"""Tasks that a record names of those that were lost."""


class Record:
    """The file that a client writes."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self.outcomes = 0

    def write(self, event: str, **what: Any) -> None:
        """One line."""
        line = {"at_s": round(time.time(), 3), "event": event, "outcomes": self.outcomes, **what}
        self._file.write(json.dumps(line) + "\n")


class Watched(JobSink):
    """The sink of one job: counts what it is told."""

    def __init__(self, offer: Offer, record: Record) -> None:
        self.over = asyncio.Event()
        self._offer = offer
        self._record = record
        self._tasks = sum(len(stage.tasks) for stage in offer.spec.as_stages())
        self._apps = [stage.app for stage in offer.spec.as_stages() for _ in stage.tasks]
        self._told: Counter[int] = Counter()
        self._accepted = self._ends = 0
        self._statuses: Counter[str] = Counter()
        self._attempts: dict[int, int] = {}
        self._lost: list[tuple[int, int, str]] = []
        self._wrong: list[str] = []
        self._results_lost: list[str] = []
        self._submitted_s = time.time()
        record.write("submitted", job=offer.spec.job_id, kind=offer.kind, tasks=self._tasks,
                     max_attempts=offer.spec.max_attempts)  # fmt: skip

    # ---- the session's sink ------------------------------------------------------------------

    def accepted(self) -> None:
        self._accepted += 1

    def refused(self, error: SparrowError) -> None:
        self._record.write("refused", job=self._offer.spec.job_id, why=f"{type(error).__name__}: {error}")
        self.over.set()

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        self._count(outcome)
        if lost is None:
            self._check(outcome)
        else:
            self._results_lost.append(str(lost))

    def finish(self) -> None:
        self._ends += 1
        if self._ends > 1:
            self._record.write("ended twice", job=self._offer.spec.job_id)
            return
        # What is told of it after its end, if anything, is told now or soon: the line is written a little later.
        asyncio.get_running_loop().call_later(TOLD_LATE_S, self._write)
        self.over.set()

    # ---- judging -----------------------------------------------------------------------------

    def _count(self, outcome: m.Outcome) -> None:
        self._record.outcomes += 1
        self._told[outcome.task] += 1
        self._statuses[outcome.status.value] += 1
        self._attempts[outcome.task] = outcome.attempts
        if outcome.status is TaskStatus.LOST:
            self._lost.append((outcome.task, outcome.attempts, outcome.error))
        if outcome.status is TaskStatus.CANCELLED and self._offer.cancels is None:
            self._wrong.append(f"task {outcome.task} was cancelled: {outcome.error}")

    def _check(self, outcome: m.Outcome) -> None:
        if outcome.status is TaskStatus.FINISHED and self._offer.expected is not None:
            value, error = outcome_value(outcome, self._apps[outcome.task])
            expected = self._offer.expected[outcome.task]
            if error is not None or (expected is not None and value != expected):
                self._wrong.append(f"task {outcome.task} has a wrong result: {error or repr(value)[:80]}")
        if outcome.status is TaskStatus.FAILED and not self._offer.may_fail:
            self._wrong.append(f"task {outcome.task} failed: {outcome.error[-300:]}")

    def _write(self) -> None:
        wrong_counts = {task: times for task, times in self._told.items() if times != 1}
        self._record.write(
            "ended",
            job=self._offer.spec.job_id,
            kind=self._offer.kind,
            lasted_s=round(time.time() - self._submitted_s - TOLD_LATE_S, 3),
            max_attempts=self._offer.spec.max_attempts,
            tasks=self._tasks,
            untold=self._tasks - len(self._told),
            told_again=wrong_counts,
            accepted=self._accepted,
            statuses=self._statuses,
            attempts=[self._attempts.get(task, 0) for task in range(self._tasks)],
            lost=self._lost[:LOST_SHOWN],
            lost_early=sum(attempts < self._offer.spec.max_attempts for _, attempts, _ in self._lost),
            wrong=self._wrong[:LOST_SHOWN],
            results_lost=self._results_lost,
        )


TOLD_LATE_S = 1.0


class SoakClient:
    """Keeps jobs in flight until it is told to stop."""

    def __init__(self, session: Session, jobs: Jobs, record: Record, rng: random.Random) -> None:
        self._session = session
        self._jobs = jobs
        self._record = record
        self._rng = rng
        self.stopping = asyncio.Event()

    async def run(self) -> None:
        """Until it is told to stop, and then until all jobs have ended."""
        await asyncio.gather(*(self._lane() for _ in range(IN_FLIGHT)))
        await asyncio.sleep(2 * TOLD_LATE_S)

    async def _lane(self) -> None:
        while not self.stopping.is_set():
            offer = self._jobs.draw()
            watched = Watched(offer, self._record)
            self._session.submit(offer.spec, watched, offer.speculate)
            if offer.cancels is not None:
                await asyncio.sleep(offer.cancel_after_s)
                self._cancel(offer)
            await watched.over.wait()
            await asyncio.sleep(self._rng.expovariate(1 / PAUSE_S))

    def _cancel(self, offer: Offer) -> None:
        running = self._rng.random() < 0.5
        if offer.cancels:
            self._session.cancel_tasks(offer.spec.job_id, list(offer.cancels), running=running)
        else:
            self._session.cancel_job(offer.spec.job_id, running=running)


async def run(schedulers: str, user: str, records: Path, starts: str, seed: str, life: int, heartbeat_s: float) -> None:
    """The client's life."""
    rng = random.Random(f"{seed} {life}")
    record = Record(records)
    session = Session([schedulers], user=user, heartbeat_s=heartbeat_s, submit_timeout_s=SUBMIT_TIMEOUT_S,
                      connect_timeout_s=SUBMIT_TIMEOUT_S)  # fmt: skip
    await session.start()
    record.write("life", pid=os.getpid())
    print(json.dumps({"client": os.getpid()}), flush=True)
    client = SoakClient(session, Jobs(rng, starts), record, rng)
    loop = asyncio.get_running_loop()
    loop.add_reader(sys.stdin.fileno(), lambda: _stop_at_end(client, loop))
    await client.run()
    await session.stop()
    record.write("done", suppressed=session.core.duplicates)


def _stop_at_end(client: SoakClient, loop: asyncio.AbstractEventLoop) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        loop.remove_reader(sys.stdin.fileno())
        client.stopping.set()


@click.command(help="A client of the soak, which starts it.")
@click.option("--schedulers", required=True)
@click.option("--user", required=True)
@click.option("--records", required=True, type=click.Path(path_type=Path))
@click.option("--starts", required=True)
@click.option("--seed", required=True)
@click.option("--life", required=True, type=int, help="How many processes it has been before.")
@click.option("--heartbeat-s", required=True, type=float)
def main(schedulers: str, user: str, records: Path, starts: str, seed: str, life: int, heartbeat_s: float) -> None:
    """Until standard input closes."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(run(schedulers, user, records, starts, seed, life, heartbeat_s))


if __name__ == "__main__":
    main()
