"""The spin executor, as its node monitor sees it, and the jobs of synthetic tasks."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from frontends.synthetic.spin_executor import SLICE_S, SpinExecutor, spin
from frontends.synthetic.tasks import decode_duration, encode_duration, noop_job, sleep_job, spin_job
from sparrow_py.errors import InvalidRequest
from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_protocol import Done, Returned, Revoke, Run
from sparrow_py.job import TaskStatus
from tests.frontends.executor_harness import TIMEOUT_S, Monitor

MODULE = "frontends.synthetic.spin_executor"
FOR_EVER_S = 1e6


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    with Monitor(MODULE, tmp_path) as monitor:
        yield monitor


def run(number: int, duration_s: float) -> Run:
    return Run(number, 0, encode_duration(duration_s))


def cpu_s(pid: int) -> float:
    """User and system seconds that this process has used, in hundredths."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class ScriptedConnection(ExecutorConnection):
    """Returns one batch of messages at each call, then nothing; raises EOFError where it would have to wait."""

    def __init__(self, *batches: list[Any]) -> None:
        self._batches = list(batches)
        self.sent: list[Any] = []

    def receive(self, *, wait: bool = True) -> list[Any]:
        if wait and not self._batches:
            raise EOFError
        return self._batches.pop(0) if self._batches else []

    def send(self, messages: Iterable[Any]) -> None:
        self.sent += messages


class TestSpin:
    @pytest.mark.parametrize("duration_s", [0.0, 0.001, 0.02])
    def test_uses_the_cpu_time_asked_for(self, duration_s: float) -> None:
        started_s = time.thread_time()
        spin(started_s + duration_s)
        assert duration_s <= time.thread_time() - started_s < duration_s + 0.01


class TestExecutor:
    def test_hello(self, monitor: Monitor) -> None:
        assert (monitor.hello.app, monitor.hello.places, monitor.hello.id) == ("spin", 1, "e1")

    def test_spins(self, monitor: Monitor) -> None:
        duration_s = 4 * SLICE_S
        before_s, before_cpu_s = time.time(), cpu_s(monitor.process.pid)
        monitor.send(run(1, duration_s))
        answer = monitor.receive(Done)
        assert (answer.run, answer.status, answer.result, answer.error) == (1, TaskStatus.FINISHED, b"", "")
        assert answer.service_s >= duration_s
        assert answer.started_at_s >= before_s
        assert cpu_s(monitor.process.pid) - before_cpu_s >= duration_s - 0.02

    def test_in_order(self, monitor: Monitor) -> None:
        monitor.send(*(run(number, 0.0) for number in range(50)))
        assert [monitor.receive(Done).run for _ in range(50)] == list(range(50))

    def test_revoked_runs_are_returned_unless_they_run(self) -> None:
        connection = ScriptedConnection([run(1, SLICE_S / 4), run(2, FOR_EVER_S), run(3, 0.0)], [Revoke([1, 2, 9])])
        with pytest.raises(EOFError):
            SpinExecutor(connection).serve()
        returned, *finished = connection.sent
        assert returned == Returned([2])
        assert [(answer.run, answer.status) for answer in finished] == [(1, "finished"), (3, "finished")]

    @pytest.mark.parametrize("payload", [b"", b"\xc1", b"\xa1x", encode_duration(-1), encode_duration(math.nan)])
    def test_a_payload_that_is_not_a_duration_fails_the_task(self, monitor: Monitor, payload: bytes) -> None:
        monitor.send(Run(1, 0, payload), run(2, 0.0))
        answer = monitor.receive(Done)
        assert answer.status is TaskStatus.FAILED
        assert answer.error.startswith("payload: ")
        assert monitor.receive(Done).status is TaskStatus.FINISHED

    def test_ends_with_its_node_monitor_even_while_spinning(self, monitor: Monitor) -> None:
        monitor.send(run(1, FOR_EVER_S), run(2, 0.0))
        monitor.send(Revoke([2]))
        monitor.receive(Returned)
        monitor.process.send_signal(signal.SIGINT)  # which is not for it
        monitor.hang_up()
        assert monitor.process.wait(TIMEOUT_S) == 0

    def test_without_a_node_monitor(self) -> None:
        ended = subprocess.run([sys.executable, "-m", MODULE], stderr=subprocess.PIPE, check=False)
        assert (ended.returncode, ended.stderr.count(b"\n")) == (1, 1)


class TestJobs:
    def test_durations_are_decoded_as_they_were_encoded(self) -> None:
        for make, app in ((sleep_job, "sleep"), (spin_job, "spin")):
            spec = make([0, 0.25, 3], name="n")
            assert (spec.app, spec.name) == (app, "n")
            assert [decode_duration(payload) for payload in spec.tasks if isinstance(payload, bytes)] == [
                0.0,
                0.25,
                3.0,
            ]
            spec.validate()

    def test_noops(self) -> None:
        spec = noop_job(3, probe_ratio=1.5)
        assert (spec.app, spec.probe_ratio, spec.tasks) == ("noop", 1.5, [b"", b"", b""])
        assert noop_job(0).tasks == []

    @pytest.mark.parametrize("duration_s", [-0.001, math.nan, math.inf, "1", None, True])
    def test_invalid_durations_are_refused(self, duration_s: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            sleep_job([1.0, duration_s])
        assert caught.value.field == "durations_s[1]"

    @pytest.mark.parametrize("count", [-1, 1.5, "2", True])
    def test_invalid_counts_are_refused(self, count: Any) -> None:
        with pytest.raises(InvalidRequest) as caught:
            noop_job(count)
        assert caught.value.field == "n"
