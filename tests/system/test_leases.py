"""Tasks that last long beside another user's backlog, in real processes: their shares, and their ends."""

from __future__ import annotations

import sys
import threading
import time
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from frontends.command.tasks import CommandTask, command_job, decode_result
from sparrow_py import Client, JobSpec, LocalCluster, TaskFailed, TaskLost, TaskStatus
from sparrow_py.futures.task_future import TaskFuture
from tests.support import tasks
from tests.support.daemons import gone
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

EXAMPLE = Path(__file__).parents[2] / "examples" / "executor_stdlib.py"


class Program:
    """A program that wants a worker on each slot: when one has yielded it submits another."""

    def __init__(self, client: Client, gate: Path, workers: int, lease_s: float) -> None:
        self._client = client.with_options(lease_s=lease_s, max_attempts=1)
        self._gate = gate
        self._lock = threading.Lock()
        self._over = False
        self.futures: list[TaskFuture] = []
        for _ in range(workers):
            self._submit()

    def _submit(self) -> None:
        with self._lock:
            if self._over:
                return
            mark = f"worker{len(self.futures)}"
            future = self._client.submit(tasks.work_until_asked, self._gate, mark)
            self.futures.append(future)
        future.add_done_callback(self._yielded)

    def _yielded(self, future: Future[Any]) -> None:
        self._submit()

    def stop(self) -> None:
        """Submit no more, and have those that run end."""
        with self._lock:
            self._over = True
        self._gate.touch()


def intervals(futures: list[TaskFuture]) -> list[tuple[float, float]]:
    """When each of these tasks ran."""
    wait(futures, TIMEOUT_S)
    reports = [future.report for future in futures]
    return [
        (report.started_at_s, report.started_at_s + report.service_s)
        for report in reports
        if report is not None and report.started_at_s is not None and report.service_s is not None
    ]


def within(found: list[tuple[float, float]], since_s: float, until_s: float) -> float:
    """How much of that lies in a window."""
    return sum(max(0.0, min(end_s, until_s) - max(start_s, since_s)) for start_s, end_s in found)


@pytest.mark.parametrize(
    ("slots", "weight", "lease_s", "window_s"),
    rest_after(1, [2, 1.0, 0.2, 3.0], [2, 3.0, 0.5, 6.0], [4, 1.0, 0.5, 6.0]),
)
def test_a_backlog_has_its_share_beside_a_program_on_all_slots(
    gate: Path, slots: int, weight: float, lease_s: float, window_s: float
) -> None:
    """Shares of the slot time that both had, from the backlog's first task on, within 10 % of the weights."""
    options = ["--user-weight", f"anna={weight}"]
    with (
        LocalCluster(slots=slots, scheduler_options=options) as cluster,
        Client(cluster, user="anna") as anna,
        Client(cluster, user="bert") as bert,
    ):
        program = Program(anna, gate, slots, lease_s)
        wait_until(lambda: tasks.started(gate, *(f"worker{number}" for number in range(slots))))
        backlog = bert.submit_calls(time.sleep, [(0.05,)] * int(40 * slots * (window_s + 10 * lease_s)))
        first = next(iter(backlog.futures))
        first.result(TIMEOUT_S)
        assert first.report is not None and first.report.started_at_s is not None
        since_s = first.report.started_at_s
        until_s = since_s + window_s
        wait_until(lambda: time.time() >= until_s + lease_s)
        program.stop()
        workers = intervals(program.futures)
        backlog.cancel()
        naps = intervals(backlog.futures)
        assert all(future.result(TIMEOUT_S) > 0 for future in program.futures), "each has yielded when asked"
        anna_s, bert_s = within(workers, since_s, until_s), within(naps, since_s, until_s)
        assert anna_s / (anna_s + bert_s) == pytest.approx(weight / (1 + weight), abs=0.1)
        assert anna_s + bert_s >= 0.5 * slots * window_s


def test_a_task_that_does_not_yield_is_killed_and_its_slot_comes_back(gate: Path) -> None:
    with (
        LocalCluster(slots=1, node_options=["--yield-within-s", "0.3"]) as cluster,
        Client(cluster, user="anna") as anna,
        Client(cluster, user="bert") as bert,
    ):
        held = anna.with_options(lease_s=0.1, max_attempts=1).submit(tasks.hold_with_its_pid, gate, "deaf")
        wait_until(lambda: tasks.started(gate, "deaf"))
        worker = int((gate.with_name(f"{gate.name}.deaf")).read_text())
        assert bert.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        with pytest.raises(TaskLost, match=r"did not end within yield_within_s = 0.3 s"):
            held.result(TIMEOUT_S)
        wait_until(lambda: gone(worker))
        assert anna.submit(tasks.square, 4).result(TIMEOUT_S) == 16


def test_a_task_that_is_alone_goes_on_over_many_leases(gate: Path) -> None:
    with LocalCluster(slots=1) as cluster, Client(cluster) as client:
        held = client.with_options(lease_s=0.1).submit(tasks.hold, gate, "alone")
        own = client.submit(tasks.square, 3)
        wait_until(lambda: tasks.started(gate, "alone"))
        began_s = time.time()
        wait_until(lambda: time.time() >= began_s + 0.5)
        assert not own.done()
        gate.touch()
        assert (held.result(TIMEOUT_S), own.result(TIMEOUT_S)) == ("alone", 9)


def test_a_command_is_sent_a_signal_and_ends_as_it_likes(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    script = f"trap 'echo saved; exit 0' TERM; touch {mark}; while :; do sleep 0.01; done"
    with (
        LocalCluster(slots=1, enable_command=True) as cluster,
        Client(cluster, user="anna") as anna,
        Client(cluster, user="bert") as bert,
    ):
        job = anna.submit_job(command_job([CommandTask(["sh", "-c", script])], lease_s=0.1))
        wait_until(mark.exists)
        other = bert.submit_job(command_job([CommandTask(["true"])]))
        assert other.report(TIMEOUT_S).count(TaskStatus.FINISHED) == 1
        (result,) = job.results(TIMEOUT_S)
        assert decode_result(result).stdout == b"saved\n"


@pytest.mark.rest
def test_an_executor_of_version_1_works_and_is_given_no_task_with_a_lease() -> None:
    command = f"words={sys.executable} {EXAMPLE}"
    with LocalCluster(slots=1, node_options=["--executor", command]) as cluster, Client(cluster) as client:
        plain = client.submit_job(JobSpec([b"a b a"], app="words"))
        assert plain.report(TIMEOUT_S).count(TaskStatus.FINISHED) == 1
        leased = client.submit_job(JobSpec([b"a b a"], app="words", lease_s=1.0))
        (task,) = leased.report(TIMEOUT_S).tasks
        assert task.status is TaskStatus.LOST and "lease_s needs version 2" in task.error
        assert task.attempts == 0
        with pytest.raises((TaskLost, TaskFailed), match="executor protocol"):
            leased.results(TIMEOUT_S)
