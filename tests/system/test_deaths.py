"""SIGKILL, at any moment: no outcome missing, none twice, no start beyond what guarantee 3 allows."""

import os
import signal
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from sparrow_py import Client, Job, LocalCluster, TaskStatus
from tests.support import tasks
from tests.support.daemons import Daemon, get_json, gone, node_of, wait_for_nodes, workers_of
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

TASKS = 200
SLOTS_PER_NODE = 2


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster of its own for a test that kills."""
    with LocalCluster(node_monitors=2, slots=SLOTS_PER_NODE, log_dir=tmp_path / "logs") as cluster:
        for process in cluster.node_processes:
            wait_until(lambda pid=process.pid: len(workers_of(pid)) >= SLOTS_PER_NODE)  # type: ignore[misc]
        yield cluster


class Outcomes:
    """Counts how often each task's end was told."""

    def __init__(self, job: Job) -> None:
        self.told: Counter[int] = Counter()
        for future in job.futures:
            future.add_done_callback(lambda future: self.told.update([future.task]))  # type: ignore[attr-defined]

    def each_once(self) -> bool:
        return self.told == Counter(range(TASKS))


def check(
    job: Job, outcomes: Outcomes, starts: Path, dead: set[int], *, orphans: Collection[int] = (), logs: Path
) -> None:
    """200 outcomes, each once; started again is only what had been started by a process that died.

    orphans: those of the dead that outlived their node monitor for a moment. They may have begun what
    they had been given after it had been started again elsewhere.
    """
    report = job.report(TIMEOUT_S)
    assert [task.task for task in report.tasks] == list(range(TASKS))
    assert report.count(TaskStatus.FINISHED) == TASKS
    assert job.results() == list(range(TASKS))
    wait_until(outcomes.each_once)
    pids: dict[int, list[int]] = {}
    for task, pid in tasks.read_starts(starts):
        pids.setdefault(task, []).append(pid)
    assert set(pids) == set(range(TASKS))
    logged = "".join(f"\n---- {log.name}\n{log.read_text()}" for log in sorted(logs.iterdir()))
    for task, started_by in pids.items():
        told = f"task {task} was started by {started_by}; dead are {dead}; {report.tasks[task]}{logged}"
        assert len(started_by) <= report.tasks[task].attempts <= 3, told
        started_by.sort(key=lambda pid: pid not in orphans)
        assert all(pid in dead for pid in started_by[:-1]), f"started again without need: {told}"


def every_slot_works(client: Client, gate: Path, slots: int) -> None:
    marks = [f"slot{number}" for number in range(slots)]
    futures = [client.submit(tasks.hold, gate, mark) for mark in marks]
    wait_until(lambda: tasks.started(gate, *marks), "every slot to run a task")
    gate.touch()
    assert client.gather(futures) == marks


@pytest.mark.parametrize("prefetch", rest_after(1, 0, 8))
def test_a_busy_node_monitor_dies(doomed: LocalCluster, tmp_path: Path, gate: Path, prefetch: int) -> None:
    starts, address = tmp_path / "starts", doomed.addresses[0]
    with Client(doomed) as client:
        arguments = [(starts, task, 0.005) for task in range(TASKS)]
        job = client.with_options(prefetch=prefetch).submit_calls(tasks.record_start, arguments)
        outcomes = Outcomes(job)
        victim = doomed.node_processes[0]
        dead = workers_of(victim.pid)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 40)
        victim.kill()
        check(job, outcomes, starts, dead, orphans=dead, logs=tmp_path / "logs")
        wait_until(lambda: all(gone(pid) for pid in dead), "the workers to die with their node monitor")
        doomed.add_node_monitor("node-0")
        wait_for_nodes(address, "node-0", "node-1")
        every_slot_works(client, gate, 2 * SLOTS_PER_NODE)


@pytest.mark.parametrize("prefetch", rest_after(1, 8, 0))
def test_a_busy_executor_dies(doomed: LocalCluster, tmp_path: Path, gate: Path, prefetch: int) -> None:
    starts = tmp_path / "starts"
    with Client(doomed) as client:
        arguments = [(starts, task, 0.005) for task in range(TASKS)]
        job = client.with_options(prefetch=prefetch).submit_calls(tasks.record_start, arguments)
        outcomes = Outcomes(job)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 40)
        victim = min(workers_of(doomed.node_processes[0].pid) & {pid for _, pid in tasks.read_starts(starts)})
        os.kill(victim, signal.SIGKILL)
        check(job, outcomes, starts, {victim}, logs=tmp_path / "logs")
        wait_until(lambda: len(workers_of(doomed.node_processes[0].pid)) >= SLOTS_PER_NODE)
        every_slot_works(client, gate, 2 * SLOTS_PER_NODE)


@pytest.mark.parametrize("victim", ["node monitor", "executor"])
def test_an_idle_one_dies(doomed: LocalCluster, tmp_path: Path, gate: Path, victim: str) -> None:
    """In the middle of a job: one task is held elsewhere, the others have ended."""
    starts = tmp_path / "starts"
    with Client(doomed) as client:
        arguments = [(starts, 0, 0.0, gate), *((starts, task) for task in range(1, TASKS))]
        job = client.submit_calls(tasks.record_start, arguments)
        outcomes = Outcomes(job)
        wait_until(lambda: sum(future.done() for future in job.futures) == TASKS - 1)
        busy = next(pid for task, pid in tasks.read_starts(starts) if task == 0)
        idle = next(process for process in doomed.node_processes if busy not in workers_of(process.pid))
        if victim == "node monitor":
            idle.kill()
            wait_until(lambda: len(doomed.nodes()) == 1)
        else:
            dead = min(workers_of(idle.pid))
            os.kill(dead, signal.SIGKILL)
            wait_until(lambda: dead not in workers_of(idle.pid) and len(workers_of(idle.pid)) >= SLOTS_PER_NODE)
        gate.touch()
        check(job, outcomes, starts, set(), logs=tmp_path / "logs")
        assert len(tasks.read_starts(starts)) == TASKS


def test_an_executor_that_is_about_to_die_gets_nothing_and_its_neighbours_go_on(tmp_path: Path, gate: Path) -> None:
    """Its socket closes before its process ends, and for longer on a busy machine: its place was given a task then.

    To write to a closed socket raises, which broke the node monitor's link: all that ran there started again.
    """
    with LocalCluster(slots=2, log_dir=tmp_path / "logs") as cluster, Client(cluster) as client:
        neighbour = client.submit_calls(tasks.hold, [(gate, "neighbour")])
        wait_until(lambda: tasks.started(gate, "neighbour"))
        client.submit(tasks.hang_up_afterwards).result(TIMEOUT_S)
        assert client.gather([client.submit(tasks.square, x) for x in range(10)]) == [x * x for x in range(10)]
        gate.touch()
        assert neighbour.results(TIMEOUT_S) == ["neighbour"]
        assert [task.attempts for task in neighbour.report().tasks] == [1]


def test_at_most_once(doomed: LocalCluster, tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    with Client(doomed) as client:
        arguments = [(starts, task, 0.005) for task in range(TASKS)]
        job = client.with_options(max_attempts=1).submit_calls(tasks.record_start, arguments)
        outcomes = Outcomes(job)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 40)
        doomed.node_processes[0].kill()
        report = job.report(TIMEOUT_S)
        wait_until(outcomes.each_once)
    started = Counter(task for task, _ in tasks.read_starts(starts))
    assert max(started.values()) == 1
    lost = [task for task in report.tasks if task.status is TaskStatus.LOST]
    assert len(lost) <= SLOTS_PER_NODE
    assert all("node node-0 was lost" in task.error and task.attempts == 1 for task in lost)
    assert report.count(TaskStatus.FINISHED) == TASKS - len(lost)


@pytest.mark.parametrize("max_attempts", rest_after(1, 3, 1))
def test_a_busy_scheduler_dies(tmp_path: Path, max_attempts: int) -> None:
    """In the middle of a 200-task job: nothing is lost, and nothing runs twice of which a node monitor knows."""
    starts = tmp_path / "starts"
    cluster = LocalCluster(schedulers=2, node_monitors=2, slots=2, log_dir=tmp_path / "logs")
    with cluster, Client(cluster) as client:
        arguments = [(starts, task, 0.005) for task in range(TASKS)]
        job = client.with_options(max_attempts=max_attempts).submit_calls(tasks.record_start, arguments)
        outcomes = Outcomes(job)
        wait_until(lambda: len(tasks.read_starts(starts)) >= 40)
        (victim,) = (p for p in cluster.scheduler_processes if get_json(p.address, "/v1/jobs")["jobs"])
        victim.kill()
        report = job.report(TIMEOUT_S)
        wait_until(outcomes.each_once)
    started = Counter(task for task, _ in tasks.read_starts(starts))
    # The node monitors live: they hold every outcome and every running attempt.
    assert max(started.values()) == 1
    if max_attempts > 1:
        assert report.count(TaskStatus.FINISHED) == TASKS
    else:  # At most once: what nobody accounts for may have been started.
        lost = [task for task in report.tasks if task.status is TaskStatus.LOST]
        assert report.count(TaskStatus.FINISHED) == TASKS - len(lost)
        assert all(started[task.task] == 0 and "may have been started" in task.error for task in lost)


@pytest.mark.rest
def test_a_lone_scheduler_dies_and_another_takes_its_place(tmp_path: Path, gate: Path) -> None:
    """Job, running tasks and outcomes wait for it: there is no state that the new one would lack."""
    starts = tmp_path / "starts"
    with Daemon("scheduler", log=tmp_path / "scheduler.log") as first:
        address, port = first.address, first.port
        with node_of(address, tmp_path / "node.log"), Client(address) as client:
            arguments = [(starts, task, 0.0, gate) for task in range(6)]
            job = client.submit_calls(tasks.record_start, arguments)
            wait_until(lambda: len(tasks.read_starts(starts)) == 2)
            first.kill()
            with Daemon("scheduler", log=tmp_path / "second.log", port=port):
                wait_until(lambda: get_json(address, "/v1/jobs")["jobs"] != [], "the job to come")
                gate.touch()
                assert job.results(TIMEOUT_S) == list(range(6))
    assert Counter(task for task, _ in tasks.read_starts(starts)) == Counter(range(6))


def test_a_client_dies_and_its_queued_tasks_go(doomed: LocalCluster, tmp_path: Path, gate: Path) -> None:
    address = doomed.addresses[0]
    client = Client(doomed)
    job = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(20)])
    wait_until(lambda: tasks.started(gate, "m0", "m1", "m2", "m3"))
    client.close()
    wait_until(lambda: sum(node["busy"] for node in get_json(address, "/v1/nodes")["nodes"]) == 4)
    wait_until(lambda: all(j["unplaced"] == 0 for j in get_json(address, "/v1/jobs")["jobs"]))
    gate.touch()
    wait_until(lambda: get_json(address, "/v1/jobs")["jobs"] == [])
    assert not tasks.started(gate, "m4")
    assert all(future.done() for future in job.futures)
