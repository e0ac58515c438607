"""Generator processes: each replays its share of a workload, all from the same moment on."""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.connection import Connection
from typing import Any

from loadgen.job_records import JobRecord
from loadgen.jobs import WorkloadJob
from loadgen.query_jobs import warm_up
from loadgen.replay import Plan, Progress, Replay
from sparrow_py.daemon.process import GC_THRESHOLDS, until
from sparrow_py.errors import ClusterError, SparrowError
from sparrow_py.session.event_loop import new_event_loop
from sparrow_py.session.session import Session
from sparrow_py.timing.clock import Clock

PROGRESS_S = 0.5
HEAD_START_S = 0.5
"""Time between the last generator's message that it is ready and the first arrival."""
LINK_TIMEOUT_S = 20.0
READY_TIMEOUT_S = 60.0
SUBMIT_TIMEOUT_S = 10.0
"""How long a job is tried again that every scheduler refuses."""
SILENCE_MAX_S = 60.0
"""A generator that sends no message for this long has hung."""


@dataclass(frozen=True)
class Share:
    """The part of a replay that one generator is to do."""

    addresses: tuple[str, ...]
    users: tuple[str, ...]
    plan: Plan
    jobs: list[WorkloadJob]


@dataclass(frozen=True)
class Replayed:
    """The outcome of a replay. start_s: when it began, in seconds since the epoch. records: of all jobs, in their
    order. cpu_s: user and system time of all generators from the beginning to the end of their last job."""

    start_s: float
    records: list[JobRecord]
    cpu_s: float


def replay_in_processes(
    addresses: Sequence[str],
    jobs: Sequence[WorkloadJob],
    plan: Plan,
    generators: int,
    begun: Callable[[], None],
    show: Callable[[list[Progress]], None],
) -> Replayed:
    """Replay the jobs from several processes, each of which takes every n-th job.

    `begun` is called when all processes are ready, `show` now and then with the progress of each. `ClusterError` if a
    process dies or cannot reach the schedulers.
    """
    spawn = multiprocessing.get_context("spawn")  # Not forked: the parent has threads.
    processes, pipes = [], []
    try:
        for number in range(generators):
            own = list(jobs[number::generators])
            users = tuple(sorted({job.user for job in own}))
            ours, theirs = spawn.Pipe()
            share = Share(tuple(addresses), users, plan, own)
            process = spawn.Process(target=_generate, args=(theirs, share), name=f"generator-{number}", daemon=True)
            process.start()
            theirs.close()
            processes.append(process)
            pipes.append(ours)
        for pipe in pipes:
            _first_message(pipe, "ready")
        begun()
        start_s = Clock()() + HEAD_START_S
        for pipe in pipes:
            pipe.send(start_s)
        return _collect(pipes, start_s, show)
    finally:
        for process in processes:
            process.terminate()
            process.join()


def _first_message(pipe: Connection, kind: str) -> Any:
    if not pipe.poll(READY_TIMEOUT_S):
        raise ClusterError(f"a load generator did not start in {READY_TIMEOUT_S:g} s")
    return _next_message(pipe, kind)[1]


def _next_message(pipe: Connection, *kinds: str) -> tuple[str, Any]:
    """A generator's next message; `ClusterError` if it reports an error."""
    try:
        kind, value = pipe.recv()
    except EOFError:
        raise ClusterError("a load generator died") from None
    if kind not in kinds:
        raise ClusterError(f"a load generator failed: {value}")
    return kind, value


def _collect(pipes: list[Connection], start_s: float, show: Callable[[list[Progress]], None]) -> Replayed:
    progress: dict[Connection, Progress] = {}
    records: list[JobRecord] = []
    cpu_s = 0.0
    working = list(pipes)
    while working:
        ready = connection.wait(working, SILENCE_MAX_S)
        if not ready:
            raise ClusterError(f"the load generators sent no message for {SILENCE_MAX_S:g} s")
        for pipe in ready:
            assert isinstance(pipe, Connection)
            kind, value = _next_message(pipe, "progress", "done")
            if kind == "progress":
                progress[pipe] = value
            else:
                own, own_cpu_s, progress[pipe] = value
                records += own
                cpu_s += own_cpu_s
                working.remove(pipe)
        show(list(progress.values()))
    records.sort(key=lambda record: record.number)
    return Replayed(start_s, records, cpu_s)


# ---- in the process --------------------------------------------------------------------------


def _generate(pipe: Connection, share: Share) -> None:
    """The main function of a generator process."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent ends this one.
    with suppress(BrokenPipeError), asyncio.Runner(loop_factory=new_event_loop) as runner:
        try:
            runner.run(_replay(pipe, share))
        except (SparrowError, OSError) as error:
            pipe.send(("failed", str(error)))


async def _replay(pipe: Connection, share: Share) -> None:
    async with AsyncExitStack() as stack:
        sessions: dict[str, Session] = {}
        for user in share.users:
            session = sessions[user] = Session(share.addresses, user=user, submit_timeout_s=SUBMIT_TIMEOUT_S)
            await session.start()
            stack.push_async_callback(session.stop)
        await _until_linked(sessions, share.addresses)
        if share.plan.queries is not None:
            warm_up()
        replay = Replay(share.jobs, sessions, share.plan, Clock())
        gc.collect()
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)  # As in the daemons: almost all is freed by reference counts.
        pipe.send(("ready", None))
        start_s = await asyncio.to_thread(pipe.recv)
        before_s = time.process_time()
        telling = asyncio.ensure_future(_send_progress(pipe, replay))
        try:
            await replay.run(start_s)
        finally:
            telling.cancel()
            with suppress(asyncio.CancelledError):
                await telling
        pipe.send(("done", (replay.records, time.process_time() - before_s, replay.progress())))


async def _until_linked(sessions: dict[str, Session], addresses: Sequence[str]) -> None:
    """Wait until every session is linked to every scheduler."""
    linked = [session.core.schedulers for session in sessions.values()]
    try:
        async with asyncio.timeout(LINK_TIMEOUT_S):
            await until(lambda: all(len(schedulers) >= len(addresses) for schedulers in linked))
    except TimeoutError:
        raise ClusterError(f"not all of the schedulers answered within {LINK_TIMEOUT_S:g} s") from None


async def _send_progress(pipe: Connection, replay: Replay) -> None:
    while True:
        await asyncio.sleep(PROGRESS_S)
        pipe.send(("progress", replay.progress()))
