"""The Python executor, as its node monitor sees it: a real process at the other end of a Unix socket."""

import os
import pickle
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import calls
from sparrow_py.executor_protocol import EXECUTOR_PROTOCOL_VERSION, Common, Done, ForgetCommon, Returned, Revoke, Run
from sparrow_py.job import TaskStatus
from tests.frontends.executor_harness import TIMEOUT_S, Monitor
from tests.support import tasks
from tests.support.waiting import wait_until


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with Monitor("frontends.python.executor", tmp_path, PYTHONPATH=path) as monitor:
        yield monitor


def run(number: int, common: int, *args: Any) -> Run:
    return Run(number, common, calls.encode_arguments(args, {}))


def test_hello(monitor: Monitor) -> None:
    hello = monitor.hello
    assert (hello.version, hello.id, hello.app) == (EXECUTOR_PROTOCOL_VERSION, "e1", "python")
    assert (hello.places, hello.runtime, hello.pid) == (1, calls.RUNTIME, monitor.process.pid)


def test_calls_run_in_order(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.square)), *(run(number, 1, number) for number in range(1, 101)))
    for number in range(1, 101):
        done = monitor.receive(Done)
        assert (done.run, done.status, pickle.loads(done.result)) == (number, TaskStatus.FINISHED, number * number)
        assert done.service_s >= 0
        assert done.started_at_s > 0


def test_several_functions(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.square)), Common(2, calls.encode_function(tasks.divide)))
    monitor.send(run(1, 2, 1, 2), run(2, 1, 3))
    assert [pickle.loads(monitor.receive(Done).result) for _ in range(2)] == [0.5, 9]


def test_a_function_is_unpickled_once_and_can_be_forgotten(monitor: Monitor) -> None:
    class Counting:
        unpickled = 0

        def __setstate__(self, state: object) -> None:
            type(self).unpickled += 1

        def __getstate__(self) -> object:
            return 1

        def __call__(self) -> int:
            return self.unpickled

    monitor.send(Common(1, calls.encode_function(Counting())), run(1, 1), run(2, 1))
    assert [pickle.loads(monitor.receive(Done).result) for _ in range(2)] == [1, 1]
    monitor.send(ForgetCommon(1), ForgetCommon(99), Common(2, calls.encode_function(tasks.square)), run(3, 2, 3))
    assert pickle.loads(monitor.receive(Done).result) == 9


def test_revoked_runs_are_returned_and_do_not_run(monitor: Monitor, gate: Path) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.hold)), *(run(n, 1, gate, f"m{n}") for n in (1, 2, 3, 4)))
    wait_until(lambda: tasks.started(gate, "m1"))
    monitor.send(Revoke([2, 4, 99]))
    gate.touch()
    assert monitor.receive(Done).run == 1
    rest: list[Any] = [monitor.receive(object) for _ in range(2)]
    (returned,) = (message for message in rest if isinstance(message, Returned))
    (done,) = (message for message in rest if isinstance(message, Done))
    assert returned.runs == [2, 4]
    assert done.run == 3
    assert not tasks.started(gate, "m2")
    assert not tasks.started(gate, "m4")


@pytest.mark.parametrize(
    ("function", "status", "error"),
    [
        (tasks.fail_unshowably, TaskStatus.FAILED, "Unshowable: <Unshowable, which cannot be shown>"),
        (tasks.fail_with_surrogate, TaskStatus.FAILED, "ValueError: a file name: \\udcff"),
        (tasks.fail_one_way, TaskStatus.FAILED, "OneWay: 1 and 2"),
        (tasks.make_grumpy, TaskStatus.FAILED, "TypeError: the result <Grumpy, which cannot be shown> of type Grumpy "
         "cannot be pickled: I stay where I am"),
    ],
)  # fmt: skip
def test_awkward_ends_leave_it_alive(monitor: Monitor, function: Any, status: TaskStatus, error: str) -> None:
    monitor.send(Common(1, calls.encode_function(function)), run(1, 1))
    done = monitor.receive(Done)
    assert (done.status, done.error) == (status, error)
    monitor.send(Common(2, calls.encode_function(tasks.square)), run(2, 2, 3))
    assert pickle.loads(monitor.receive(Done).result) == 9


def test_error_and_output_are_cut(monitor: Monitor) -> None:
    def shout() -> None:
        print("é" * 200_000)
        raise ValueError("x" * 200_000)

    monitor.send(Common(1, calls.encode_function(shout, capture_output=True)), run(1, 1))
    done = monitor.receive(Done)
    assert done.error == "ValueError: " + "x" * 488
    assert done.stdout == "é" * 65536


def test_the_traceback_starts_in_the_tasks_own_code(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.fail)), run(1, 1, "why"))
    exception, text = pickle.loads(monitor.receive(Done).result)
    assert repr(exception) == "ValueError('why')"
    assert text.count("  File ") == 1
    assert text.endswith("ValueError: why\n")


def test_common_bytes_that_are_no_function(monitor: Monitor) -> None:
    monitor.send(Common(1, b"garbage"), Run(1, 1, b""), Run(2, 0, b""))
    for number in (1, 2):
        done = monitor.receive(Done)
        assert (done.run, done.status) == (number, TaskStatus.FAILED)
        assert "common bytes" in done.error


def test_it_ends_when_the_node_monitor_hangs_up(monitor: Monitor) -> None:
    monitor.hang_up()
    assert monitor.process.wait(TIMEOUT_S) == 0


def test_ctrl_c_is_the_node_monitors_business(monitor: Monitor) -> None:
    monitor.process.send_signal(signal.SIGINT)
    monitor.send(Common(1, calls.encode_function(tasks.square)), run(1, 1, 2))
    assert pickle.loads(monitor.receive(Done).result) == 4
