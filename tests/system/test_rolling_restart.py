"""Every daemon of a cluster under load is restarted in turn, as an operator would to upgrade it: nothing is lost.

What may start twice by design: a task that still runs when its node monitor's time to drain is up, and one that waited
for a worker at a node (prefetch) when its scheduler ended. Neither is so here, so each task starts once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparrow_py import Client, Job, TaskStatus
from tests.support import tasks
from tests.support.daemons import Daemon, get_json, http, nodes_of
from tests.support.waiting import TIMEOUT_S, wait_until

NODES = ("a", "b")
SCHEDULERS = 2
LONG_TASKS, LONG_TASK_S = 4_000, 0.05
"""More than can be run while the test lasts, 100 s of both clients': what has not started at its end is cancelled."""
SMALL_TASKS = 5


class Cluster:
    """Two schedulers, named by a file, and two node monitors of two slots."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._directory = directory
        self._stack = stack
        self.file = directory / "schedulers"
        with ThreadPoolExecutor() as threads:
            self.schedulers = list(threads.map(self._scheduler, range(SCHEDULERS)))
            self._write()
            self.node_monitors = dict(zip(NODES, threads.map(self._node_monitor, NODES), strict=True))
        self.wait_until_whole()

    def _scheduler(self, number: int, port: int = 0) -> Daemon:
        log = self._directory / f"scheduler-{number}.log"
        return self._stack.enter_context(Daemon("scheduler", "--drain-timeout-s", "0.5", log=log, port=port))

    def _node_monitor(self, name: str, port: int = 0) -> Daemon:
        flags = ["--scheduler", f"file:{self.file}", "--node-id", name, "--slots", "2"]
        return self._stack.enter_context(Daemon("node_monitor", *flags, log=self._directory / f"{name}.log", port=port))

    def _write(self) -> None:
        """In one step: a file that is half written names fewer schedulers."""
        new = self.file.with_suffix(".new")
        new.write_text("".join(f"{scheduler.address}\n" for scheduler in self.schedulers))
        new.rename(self.file)

    def restart_scheduler(self, number: int, *, moves: bool) -> None:
        """Restart it, where it was or at another address."""
        before = self.schedulers[number]
        before.signal()
        assert before.wait() == 0
        self.schedulers[number] = self._scheduler(number, 0 if moves else before.port)
        self._write()
        self.wait_until_whole()

    def restart_node_monitor(self, name: str) -> None:
        before = self.node_monitors[name]
        before.signal()
        assert before.wait() == 0
        self.node_monitors[name] = self._node_monitor(name, before.port)
        self.wait_until_whole()

    def wait_until_whole(self) -> None:
        """What an operator looks at before going on: all are ready, and all schedulers have all nodes."""
        for daemon in [*self.schedulers, *self.node_monitors.values()]:
            wait_until(lambda at=daemon.address: http(at, "/readyz") == (200, "ok\n"), f"{daemon.address} to be ready")  # type: ignore[misc]
        for scheduler in self.schedulers:
            wait_until(lambda at=scheduler.address: set(nodes_of(at)) == set(NODES))  # type: ignore[misc]


class Load:
    """A client with a long job, whose tasks may start once only, and another user's with one small job after another.

    They are two users since a user's jobs may wait for each other: those of one at a node go by arrival.
    """

    def __init__(self, cluster: Cluster, number: int, starts: Path) -> None:
        self._stack = ExitStack()
        self._long_client, self._small_client = (
            self._stack.enter_context(Client(f"file:{cluster.file}", user=f"{kind}-{number}"))
            for kind in ("long", "small")
        )
        self._starts = starts
        self._first = number * 1_000_000
        self._over = threading.Event()
        self.long = self._submit(self._long_client, LONG_TASKS, LONG_TASK_S, max_attempts=1)
        self.small: list[Job] = []
        self._thread = threading.Thread(target=self._submit_small_ones)
        self._thread.start()

    def _submit(self, client: Client, count: int, duration_s: float, max_attempts: int) -> Job:
        calls = [(self._starts, self._first + task, duration_s) for task in range(count)]
        self._first += count
        return client.with_options(max_attempts=max_attempts).submit_calls(tasks.record_start, calls)

    def _submit_small_ones(self) -> None:
        while not self._over.is_set():
            job = self._submit(self._small_client, SMALL_TASKS, 0.001, max_attempts=3)
            self.small.append(job)
            job.report(TIMEOUT_S)

    def finish(self) -> set[int]:
        """Cancel what waits, wait for what runs; returns which tasks have finished, with one start each."""
        assert not all(future.done() for future in self.long.futures), "it was to last all the while"
        self._over.set()
        self.long.cancel()
        self._thread.join(TIMEOUT_S)
        finished = set()
        with self._stack:
            for job in [*self.small, self.long]:
                for future, report in zip(job.futures, job.report(TIMEOUT_S).tasks, strict=True):
                    if job is self.long and report.status is TaskStatus.CANCELLED:
                        assert report.attempts == 0
                        continue
                    assert (report.status, report.attempts, report.error) == (TaskStatus.FINISHED, 1, ""), report
                    finished.add(future.result())
        return finished


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, stack)


@pytest.mark.rest
def test_each_daemon_is_restarted_in_turn_under_load_and_nothing_is_lost(cluster: Cluster, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    loads = [Load(cluster, number, starts) for number in range(2)]
    for name in NODES:
        cluster.restart_node_monitor(name)
    for number in range(SCHEDULERS):
        cluster.restart_scheduler(number, moves=number == 1)
    finished = set().union(*(load.finish() for load in loads))
    assert Counter(task for task, _ in tasks.read_starts(starts)) == Counter(finished), "each was started once"
    logs = "".join(log.read_text() for log in tmp_path.glob("scheduler-*.log"))
    assert logs.count("clients are to take theirs to other schedulers") >= 1, "a job outlasted a scheduler's drain"
    assert all(get_json(scheduler.address, "/v1/jobs")["jobs"] == [] for scheduler in cluster.schedulers)
