"""Programs that fork, close what is not theirs, or raise what cannot travel; orders that are none; ends that are
interrupted: the cluster and the program's process go on, and nothing is left."""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from frontends.dataflow import Dataflow
from frontends.dataflow import driver as driver_module
from frontends.dataflow import worker as worker_module
from frontends.dataflow.control_messages import Order, Orders, Settings, Where
from frontends.dataflow.driver import Driver
from frontends.dataflow.errors import RunLost
from sparrow_py import Client, LocalCluster
from sparrow_py.errors import ClusterError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire.local_address import LOOPBACK
from tests.support.dataflow_peers import open_files
from tests.support.suites import rest_after
from tests.support.waiting import wait_until

Array = np.ndarray[Any, Any]
NOBODY: Where = ("", "", LOOPBACK, 1)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    with LocalCluster(slots=2, log_dir=tmp_path_factory.mktemp("logs")) as cluster:
        yield cluster


def local(cluster: Any, **options: Any) -> Dataflow:
    options = {"workers": 2, "partitions": 4, "plane": "local", "progress": False, **options}
    return Dataflow(cluster, **options)


def driver_of(df: Dataflow) -> Driver:
    assert df._cluster_runner is not None and df._cluster_runner._driver is not None
    return df._cluster_runner._driver


# ---- stages --------------------------------------------------------------------------------------------


def _forks(x: Array) -> None:
    if os.fork():
        x += 1


def _forks_and_exits(x: Array) -> None:
    if os.fork() == 0:
        sys.exit(0)
    x += 1


def _takes_the_output(x: Array) -> None:
    sys.stdout = None
    x += 1


def _nothing(x: Array) -> None:
    pass


@pytest.mark.processes
@pytest.mark.parametrize("plane", rest_after(1, "local", "templates", "central"))
def test_stages_that_fork_or_take_the_output_away_change_no_answer(small: LocalCluster, plane: str) -> None:
    """A child that comes back from its stage is no second worker: it sends nothing, and writes into no partition."""
    with local(small, plane=plane) as df:
        X = df.partition(np.arange(8.0))
        after = df.stage(writes=[X], name="after")(_nothing)
        for added, function in enumerate((_forks, _forks_and_exits, _takes_the_output), 1):
            stage = df.stage(writes=[X], name=function.__name__)(function)

            def program(stage: Any = stage) -> Any:
                stage()
                after()
                return X

            assert np.array_equal(df.run(program), np.arange(8.0) + added), function


def _closes_what_it_waits_with(x: Array) -> None:
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        with contextlib.suppress(OSError):
            if "eventpoll" in os.readlink(f"/proc/self/fd/{name}"):  # noqa: PTH115
                os.close(int(name))


@pytest.mark.rest
@pytest.mark.processes
def test_a_worker_that_cannot_hear_any_more_ends_and_is_replaced(small: LocalCluster) -> None:
    with local(small) as df:
        X = df.partition(np.arange(8.0))
        closing = df.stage(writes=[X], name="closing")(_closes_what_it_waits_with)
        with pytest.raises((OSError, RunLost)):
            df.run(closing)
        assert np.array_equal(df.run(lambda: X), np.arange(8.0))


class Bomb:
    """Ends the interpreter where it is unpickled in this process."""

    def __init__(self, process: int) -> None:
        self.process = process

    def __reduce__(self) -> Any:
        return _made_bomb, (self.process,)


def _made_bomb(process: int) -> Bomb:
    if process == os.getpid():
        raise SystemExit("a bomb")
    return Bomb(process)


@pytest.mark.processes
def test_a_value_that_cannot_be_unpickled_here_ends_the_run_with_its_exception(small: LocalCluster) -> None:
    process = os.getpid()

    def arm(made: dict[str, Any]) -> None:
        made["bomb"] = Bomb(process)

    with local(small, workers=1) as df:
        objects = df.objects([{}, {}])
        stage = df.stage(writes=[objects], name="arm")(arm)
        with pytest.raises(SystemExit, match="a bomb"):
            df.run(lambda: (stage(), objects))


def test_an_exception_that_is_too_large_is_told_by_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_module, "ERROR_BYTES_MAX", 10_000)
    error = ValueError("x" * 20_000)
    error.add_note("in stage bad, partition 1, call 1 of the program")
    told, text = pickle.loads(worker_module._encoded(error, "the traceback"))
    assert isinstance(told, RuntimeError) and text == "the traceback"
    assert str(told).startswith("ValueError: xxx") and "bytes, pickled; at most 10,000 are sent" in str(told)
    assert told.__notes__ == ["in stage bad, partition 1, call 1 of the program"]
    small = worker_module._encoded(ValueError("small"), "")
    assert str(pickle.loads(small)[0]) == "small"


# ---- orders --------------------------------------------------------------------------------------------


class _NoListener:
    def begin(self, run: int) -> None:
        pass


def order(key: bytes = bytes(32), driver: Where = NOBODY, transport: str = "tcp") -> bytes:
    return msgspec.msgpack.encode(Order(0, key, driver, NOBODY, transport, True))


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (order(), "no link to the driver at 127.0.0.1:1: Connection refused"),
        (order(key=b"short"), "key: 5 bytes; a program's key has at least 16"),
        (order(driver=("", "", "a\0b", 1)), "null character"),
        (order(driver=("", "/" + "x" * 300, "", 1), transport="unix"), "no link to the driver"),
        (b"\xc1", "the payload is no order for a worker"),
    ],
    ids=["nobody there", "short key", "bad host", "long path", "no order"],
)
def test_an_order_that_leads_nowhere_fails_and_leaves_nothing(payload: bytes, why: str, tmp_path: Path) -> None:
    """Whoever may submit a task may send such an order: neither the executor ends, nor does it keep anything."""
    gc.collect()
    before, threads = open_files(), threading.active_count()
    status, error = worker_module._run(_NoListener(), x.Run(1, 0, payload), str(tmp_path))  # type: ignore[arg-type]
    assert status is TaskStatus.FAILED and why in error
    assert (open_files(), threading.active_count(), list(tmp_path.iterdir())) == (before, threads, [])


# ---- the program's process -----------------------------------------------------------------------------


@pytest.mark.processes
def test_a_cluster_that_does_not_answer_leaves_nothing_of_a_run(
    small: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_answer(_: Client) -> Any:
        raise ClusterError("the cluster is broken")

    with Client(small) as client, local(client) as df:
        stage = df.stage(writes=[df.partition(np.arange(8.0))], name="stage")(_nothing)
        files, threads = open_files(), threading.active_count()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr(Client, "nodes", no_answer)
        with pytest.raises(ClusterError):
            df.run(stage)
        assert (open_files(), threading.active_count(), list(tmp_path.iterdir())) == (files, threads, [])


@pytest.mark.processes
def test_a_controller_that_cannot_be_started_leaves_nothing(
    small: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_process(*_: Any, **__: Any) -> Any:
        raise OSError("no process")

    with Client(small) as client, local(client) as df:
        stage = df.stage(writes=[df.partition(np.arange(8.0))], name="stage")(_nothing)
        client.nodes()
        files, threads = open_files(), threading.active_count()
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        monkeypatch.setattr("frontends.dataflow.driver.Popen", no_process)
        with pytest.raises(OSError, match="no process"):
            df.run(stage)
        assert (open_files(), threading.active_count(), list(tmp_path.iterdir())) == (files, threads, [])


@pytest.mark.processes
def test_a_controller_whose_parent_ended_before_they_were_linked_removes_its_directories(tmp_path: Path) -> None:
    directories = [tmp_path / name for name in ("sockets", "snapshots")]
    for directory in directories:
        directory.mkdir()
    settings = Settings(1, 1, 1, 1.0, None, str(directories[1]), 0, 0, [])
    orders = Orders(NOBODY, bytes(32), str(directories[0]), LOOPBACK, "tcp", True, settings)
    ended = subprocess.run(
        [sys.executable, "-m", driver_module.CONTROLLER_MODULE], input=msgspec.msgpack.encode(orders),
        capture_output=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1 and b"no link to the driver at 127.0.0.1:1" in ended.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.processes
def test_a_controller_that_takes_a_lost_ones_place_while_the_program_ends_is_ended(
    small: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[Any] = []
    popen = driver_module.Popen

    def start_late(*arguments: Any, **options: Any) -> Any:
        """Begun before the end, over when nothing else is waited for."""
        wait_until(lambda: driver._closing)
        wait_until(waited.is_set)
        started.append(popen(*arguments, **options))
        return started[-1]

    with local(small) as df:
        runner = df._cluster_runner
        assert runner is not None
        runner._driver = driver = runner._started()
        waited, first = threading.Event(), driver._controller
        join = driver._thread.join
        monkeypatch.setattr(driver._thread, "join", lambda: (waited.set(), join()))
        monkeypatch.setattr(driver_module, "Popen", start_late)
        first.kill()
        wait_until(lambda: first.returncode is not None)
    assert [controller.returncode for controller in started] == [-signal.SIGKILL]


@pytest.mark.processes
def test_an_end_that_ctrl_c_interrupts_can_be_repeated(small: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with local(small) as df:
        runner = df._cluster_runner
        assert runner is not None
        runner._driver = driver = runner._started()
        with monkeypatch.context() as patched:
            patched.setattr(driver_module, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                df.close()
    assert driver._controller.poll() is not None and not Path(driver._directory).exists()
    assert not driver._thread.is_alive()


@pytest.mark.processes
def test_what_a_second_ctrl_c_leaves_of_a_run_is_ended_by_the_next_one(
    small: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with local(small) as df:
        X = df.partition(np.arange(8.0))
        runner = df._cluster_runner
        assert runner is not None
        runner._driver = driver = runner._started()
        with monkeypatch.context() as patched:
            patched.setattr(driver, "run", interrupted)
            patched.setattr(driver_module, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                df.run(lambda: X)
        assert not driver._closed
        assert np.array_equal(df.run(lambda: X), np.arange(8.0))
        assert driver._closed and runner._driver is not driver


@pytest.mark.processes
def test_a_child_that_the_programs_process_forks_ends_nothing_of_it(small: LocalCluster) -> None:
    with local(small, workers=1) as df:
        X = df.partition(np.arange(8.0))
        change = df.stage(writes=[X], name="change")(_nothing)
        df.run(change)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                df.run(change)
            except RunLost:
                df.close()
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert Path(driver_of(df)._directory).exists()
        assert np.array_equal(df.run(lambda: X), np.arange(8.0))


@pytest.mark.processes
@pytest.mark.rest
def test_runs_that_are_too_many_for_one_message_are_told_one_by_one(
    small: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A controller that is started anew hears of all runs that would be run again."""
    text = "x" * 40_000
    with local(small, workers=1) as df:
        X = df.partition(np.arange(8.0))
        monkeypatch.setattr("frontends.dataflow.link.MESSAGE_BYTES_MAX", 100_000)
        change = df.stage(writes=[X], name="change")(_add_one)
        large = df.stage(reads=[X], name="large")(lambda x: print(end=text[:0]))
        for _ in range(3):
            df.run(lambda: (change(), large()))
        first = driver_of(df)._controller
        first.kill()
        wait_until(lambda: driver_of(df)._controller is not first)
        assert np.array_equal(df.run(lambda: X), np.arange(8.0) + 3)


def _add_one(x: Array) -> None:
    x += 1
