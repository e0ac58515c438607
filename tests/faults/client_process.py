"""A client as a process of its own: submits what it is told on standard input, and writes down what it is told.

    python -m tests.faults.client_process SCHEDULERS TOLD_FILE SUBMIT_TIMEOUT_S HEARTBEAT_S

A line of standard input is a `Submission` as JSON. A line of the file is a `Told`: written at once, by a single write,
where the session hands out outcomes. What comes twice is there twice.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import msgspec

from benchmarks.interruption import interrupt
from sparrow_py import calls
from sparrow_py.errors import ResultLost, SparrowError
from sparrow_py.job import JobSpec
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.session import Session
from sparrow_py.wire import messages as m
from tests.faults.work import work

PROBE_RATIO = 4.0
"""So that every task has a reservation at every node: a row whose tasks are held up counts on all places being used.
With the default a job of one task may have both of its reservations at one node, and wait there while others idle."""


class Submission(msgspec.Struct, kw_only=True):
    """A job to submit: `tasks` calls of `work`. Its first task runs out of memory once the file `bomb` is there.

    pad_bytes: how much longer each payload is than it need be.
    stop_after: the client's process stops itself (SIGSTOP) when it has sent so many messages with tasks.
    """

    job: str
    app: str
    tasks: int
    max_attempts: int
    log: str
    gate: str
    bomb: str
    result_bytes: int = 0
    pad_bytes: int = 0
    stop_after: int | None = None


class Told(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What the client was told of a job: accepted, refused, ended, or a task's outcome."""

    job: str
    event: str
    at_s: float
    task: int = -1
    status: str = ""
    error: str = ""
    attempts: int = 0
    node: str = ""


class Sink(JobSink):
    """Writes down what is told of a job."""

    def __init__(self, job: str, descriptor: int) -> None:
        self._job = job
        self._descriptor = descriptor

    def accepted(self) -> None:
        self._write("accepted")

    def refused(self, error: SparrowError) -> None:
        self._write("refused", error=str(error))

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        if lost is None:
            self._write_outcome(outcome, outcome.status.value, outcome.error)
        else:
            self._write_outcome(outcome, "result lost", str(lost))

    def finish(self) -> None:
        self._write("ended")

    def _write_outcome(self, outcome: m.Outcome, status: str, error: str) -> None:
        told: dict[str, Any] = {"attempts": outcome.attempts, "node": outcome.node}
        self._write("outcome", task=outcome.task, status=status, error=error, **told)

    def _write(self, event: str, **more: Any) -> None:
        line = msgspec.json.encode(Told(job=self._job, event=event, at_s=time.time(), **more)) + b"\n"
        os.write(self._descriptor, line)


def spec(submission: Submission) -> JobSpec:
    """The job."""
    pad = bytes(submission.pad_bytes)
    payloads = [
        calls.encode_arguments(
            (submission.log, task, submission.gate, "" if task else submission.bomb, submission.result_bytes, pad), {}
        )
        for task in range(submission.tasks)
    ]
    runtime = calls.RUNTIME if submission.app == calls.APP else ""
    return JobSpec(
        payloads,
        job_id=submission.job,
        app=submission.app,
        runtime=runtime,
        common=calls.encode_function(work),
        probe_ratio=PROBE_RATIO,
        max_attempts=submission.max_attempts,
    )


async def main() -> None:
    """Submit what standard input says, until it closes."""
    schedulers, told, submit_timeout_s, heartbeat_s = sys.argv[1:]
    descriptor = os.open(told, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    session = Session(
        schedulers,
        user="faults",
        submit_timeout_s=float(submit_timeout_s),
        heartbeat_s=float(heartbeat_s),
    )
    await session.start()
    reader = asyncio.StreamReader(limit=1 << 20)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    print("ready", flush=True)
    while line := await reader.readline():
        submission = msgspec.json.decode(line, type=Submission)
        if submission.stop_after is not None:
            interrupt(submission.job, submission.stop_after, signal.SIGSTOP)
        session.submit(spec(submission), Sink(submission.job, descriptor))
    await session.stop()


if __name__ == "__main__":
    asyncio.run(main())
