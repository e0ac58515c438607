"""Slow nodes, for the whole of a job: one that stands still, one that is ten times slower, one that has no CPU.

With `speculate` the first outcome wins, and the other is suppressed and cancelled. No test says how long anything
takes: a node that stands still goes on only when the job is over, so what arrives before came from copies; on the
others the slow start is known by its process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from sparrow_py import CallOptions, Client, Job, LocalCluster, Speculation, TaskStatus
from sparrow_py.embedded.daemon_process import DaemonProcess
from tests.support import tasks
from tests.support.daemons import get_json, workers_of
from tests.support.straggling import sleep_here, work_here
from tests.support.waiting import TIMEOUT_S, wait_until

NODES = 3
SLOTS = 2
TASKS = 12
SLICE_S = 0.005
SHARE = 0.02
"""Of a core, for workers that are starved, in slices of so many seconds."""
OPTIONS = CallOptions(speculate=Speculation(quantile=0.5, slowdown=2.0, copies_max=1.0, running_s_min=0.05))


@pytest.fixture
def starts(tmp_path: Path) -> Path:
    """A directory with a file for each start of a task."""
    path = tmp_path / "starts"
    path.mkdir()
    return path


@pytest.fixture
def at_first() -> set[int]:
    """The workers of the first node monitor that have done a task when a test begins: those it started with."""
    return set()


@pytest.fixture
def cluster(tmp_path: Path, gate: Path, at_first: set[int]) -> Iterator[LocalCluster]:
    """Three node monitors, the first of which the tests make slow: not before it has a worker at work for each slot."""
    marks = [str(slot) for slot in range(NODES * SLOTS)]
    with LocalCluster(node_monitors=NODES, slots=SLOTS, log_dir=tmp_path / "logs") as cluster:
        first = cluster.node_processes[0].pid
        wait_until(lambda: len(workers_of(first)) == SLOTS)
        at_first |= workers_of(first)
        with Client(cluster) as client:
            job = client.submit_calls(tasks.hold, [(gate, mark) for mark in marks])
            wait_until(lambda: tasks.started(gate, *marks), "every worker to work")
            gate.touch()
            assert job.results(TIMEOUT_S) == marks
        yield cluster


def signal_all(pids: set[int], number: int) -> None:
    """Send a signal to those that are there."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


@contextlib.contextmanager
def stopped(process: DaemonProcess) -> Iterator[None]:
    """A machine that stands still: its node monitor and its workers."""
    pids = {process.pid, *workers_of(process.pid)}
    signal_all(pids, signal.SIGSTOP)
    try:
        yield
    finally:
        signal_all(pids, signal.SIGCONT)


def started_by(starts: Path) -> dict[int, set[int]]:
    """Task to the processes that started it."""
    found: dict[int, set[int]] = {}
    for mark in starts.iterdir():
        task, pid = map(int, mark.name.split("."))
        found.setdefault(task, set()).add(pid)
    return found


def used(node: DaemonProcess, starts: Path) -> set[int]:
    """The node's workers that have started a task."""
    return workers_of(node.pid) & set().union(*started_by(starts).values())


def count_outcomes(job: Job) -> Counter[int]:
    """How often each task's end is told."""
    told: Counter[int] = Counter()
    for future in job.futures:
        future.add_done_callback(lambda future: told.update([future.task]))  # type: ignore[attr-defined]
    return told


def check_each_told_once(job: Job, told: Counter[int]) -> None:
    report = job.report(TIMEOUT_S)
    assert report.count(TaskStatus.FINISHED) == TASKS
    assert job.results() == list(range(TASKS))
    wait_until(lambda: told == Counter(range(TASKS)), "each outcome, once")


def check_nothing_left(cluster: LocalCluster) -> None:
    """Losers are cancelled: no job is there any more, and every slot is free."""
    address = cluster.addresses[0]
    wait_until(lambda: not get_json(address, "/v1/jobs")["jobs"], "originals and copies to end")
    for process in cluster.node_processes:
        wait_until(lambda at=process.address: _free(at), f"the slots of {process.address}")  # type: ignore[misc]


def _free(address: str) -> bool:
    nodes = get_json(address, "/v1/nodes")["nodes"]
    return all(node["free_slots"] == node["slots"] and not node["queued_by_user"] for node in nodes)


@pytest.mark.rest
def test_a_machine_that_stands_still_for_less_than_the_heartbeats_patience(cluster: LocalCluster, starts: Path) -> None:
    """Its tasks are not lost, as nobody takes it for dead; their copies end the job while it stands still.

    It has tasks for certain: as many are started as there are slots, before it is stopped.
    """
    slow = cluster.node_processes[0]
    with Client(cluster, options=OPTIONS) as client:
        job = client.submit_calls(sleep_here, [(starts, task, 0.3, 1.0) for task in range(TASKS)])
        told = count_outcomes(job)
        wait_until(lambda: len(used(slow, starts)) == SLOTS, "tasks on the node")
        victims = used(slow, starts)
        with stopped(slow):
            check_each_told_once(job, told)
            assert len(cluster.nodes()) == NODES, "it was not taken for dead"
        check_nothing_left(cluster)
        assert told == Counter(range(TASKS)), "what the node says when it goes on is told to nobody"
    by = started_by(starts)
    again = [task for task, pids in by.items() if len(pids) > 1]
    assert again and all(by[task] & victims for task in again)
    assert all(len(pids) <= 2 for pids in by.values()), "a task gets one copy at most"


@pytest.mark.rest
def test_a_node_whose_tasks_take_ten_times_as_long(cluster: LocalCluster, starts: Path, at_first: set[int]) -> None:
    """Whether a task was too slow depends on the machine; whichever outcome came first, it is told once."""
    slow = at_first
    for pid in slow:
        psutil.Process(pid).nice(10)
    with Client(cluster, options=OPTIONS) as client:
        job = client.submit_calls(sleep_here, [(starts, task, 0.1, 100.0) for task in range(TASKS)])
        told = count_outcomes(job)
        check_each_told_once(job, told)
        assert all(task.service_s is not None and task.service_s < 10.0 for task in job.report().tasks), "copies won"
        check_nothing_left(cluster)
    by = started_by(starts)
    beaten = [task for task, pids in by.items() if pids & slow]
    assert beaten and all(len(by[task]) == 2 for task in beaten)
    ended = {pid for task in beaten for pid in by[task] & slow}
    assert not ended & workers_of(cluster.node_processes[0].pid), "the losers' workers were ended"


@contextlib.contextmanager
def starved(pids: set[int]) -> Iterator[None]:
    """Processes that get no more than `SHARE` of a core, as beside many competitors, on however many cores.

    To pin them to a core with competitors starves them by as much as there are cores, and that may be little.
    """
    fed = threading.Event()

    def ration() -> None:
        while not fed.wait(SLICE_S):
            signal_all(pids, signal.SIGSTOP)
            fed.wait(SLICE_S / SHARE)
            signal_all(pids, signal.SIGCONT)

    thread = threading.Thread(target=ration)
    thread.start()
    try:
        yield
    finally:
        fed.set()
        thread.join()
        signal_all(pids, signal.SIGCONT)


@pytest.mark.rest
def test_a_node_that_is_starved_of_cpu(cluster: LocalCluster, starts: Path, at_first: set[int]) -> None:
    slow = at_first
    with starved(slow), Client(cluster, options=OPTIONS) as client:
        job = client.submit_calls(work_here, [(starts, task, 0.05) for task in range(TASKS)])
        told = count_outcomes(job)
        check_each_told_once(job, told)
        check_nothing_left(cluster)
        assert slow - workers_of(cluster.node_processes[0].pid), "a loser's worker was ended"
    by = started_by(starts)
    assert set(by) == set(range(TASKS)) and all(len(pids) <= 2 for pids in by.values())
