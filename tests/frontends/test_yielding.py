"""Tasks of the Python executor learn that they are to yield, in whatever thread they ask."""

import os
import pickle
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sparrow_py
from frontends.python.yielding import Yields
from sparrow_py import calls
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_protocol import TO_EXECUTOR, Common, Done, FrameSplitter, Run, Yield, encode_frame
from sparrow_py.job import TaskStatus
from tests.frontends.executor_harness import Monitor
from tests.support import tasks
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with Monitor("frontends.python.executor", tmp_path, PYTHONPATH=path) as monitor:
        yield monitor


class Calls:
    """Functions at an executor."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self.runs = 0

    def start(self, function: Any, *args: Any) -> int:
        """Its run."""
        self.runs += 1
        self.monitor.send(
            Common(self.runs, calls.encode_function(function)),
            Run(self.runs, self.runs, calls.encode_arguments(args, {})),
        )
        return self.runs

    def value(self, run: int) -> Any:
        """What the run returned."""
        done = self.monitor.receive(Done)
        assert (done.run, done.status) == (run, TaskStatus.FINISHED), done
        return pickle.loads(done.result)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("function", "returned"),
    [(tasks.until_asked, True), (tasks.work_until_asked, None), (tasks.until_a_thread_is_asked, [True, True, True])],
)
def test_a_task_ends_when_it_is_asked_and_the_next_one_is_not(
    monitor: Monitor, gate: Path, function: Any, returned: Any
) -> None:
    at = Calls(monitor)
    for mark in ("first", "second"):
        run = at.start(function, gate, mark)
        wait_until(lambda mark=mark: tasks.started(gate, mark))  # type: ignore[misc]
        monitor.send(Yield(run, 30.0))
        value = at.value(run)
        if function is tasks.until_a_thread_is_asked:
            assert 0 < value.pop() <= 30.0
        assert value == returned or (function is tasks.work_until_asked and value >= 1)
        monitor.send(Yield(run, 30.0))  # It has ended, and the next one is not meant.
    assert at.value(at.start(tasks.ask_outside_a_lease)) == (False, None)


def test_what_comes_while_a_task_listens_is_not_lost(monitor: Monitor, gate: Path) -> None:
    at = Calls(monitor)
    first = at.start(tasks.until_asked, gate, "first")
    wait_until(lambda: tasks.started(gate, "first"))
    second = at.start(tasks.square, 3)
    monitor.send(Yield(first, 30.0))
    assert at.value(first) is True
    assert at.value(second) == 9


def test_who_listens_after_its_task_has_ended_hears_no_and_takes_nothing_from_the_next(monitor: Monitor) -> None:
    at = Calls(monitor)
    for _ in range(100):
        assert at.value(at.start(tasks.leave_waiting)) is False
    assert at.value(at.start(tasks.told_afterwards, 100)) == [[False]] * 100


def test_a_process_that_a_task_has_forked_takes_nothing_from_it(monitor: Monitor, gate: Path) -> None:
    at = Calls(monitor)
    run = at.start(tasks.ask_in_a_child, gate, "forks")
    wait_until(lambda: tasks.started(gate, "forks"))
    monitor.send(Yield(run, 30.0))
    assert at.value(run) == (4, True)


def test_a_task_whose_node_monitor_is_gone_is_to_end(monitor: Monitor, gate: Path, tmp_path: Path) -> None:
    at = Calls(monitor)
    at.start(tasks.until_asked, gate, "left")
    wait_until(lambda: tasks.started(gate, "left"))
    monitor.hang_up()
    assert monitor.process.wait(30.0) == 0


@pytest.mark.parametrize("is_orphaned", [False, True])
def test_a_task_that_is_to_end_can_tell_another_users_turn_from_the_death_of_its_node_monitor(
    is_orphaned: bool,
) -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        connection = ExecutorConnection.__new__(ExecutorConnection)
        connection._socket, connection._splitter = ours, FrameSplitter(TO_EXECUTOR)
        said: list[Any] = []
        yields = Yields(connection, said.append)
        yields.begin(1)
        if is_orphaned:
            theirs.close()
        else:
            theirs.sendall(encode_frame([Yield(1, 30.0)]))
        assert yields.asked(0) is is_orphaned
        for message in said:
            yields.ask(message)
        assert yields.asked(30.0)
        assert yields.is_orphaned is is_orphaned
    ours.close()


def test_outside_tasks_nobody_is_to_yield() -> None:
    assert sparrow_py.should_yield() is False and sparrow_py.yield_within_s() is None
    heard: list[bool] = []
    thread = threading.Thread(target=lambda: heard.append(sparrow_py.wait_for_yield()))
    thread.start()
    thread.join(30.0)
    assert heard == [False]
