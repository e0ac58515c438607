"""The laboratory's own parts: faults as they come, what is written down, processes and clocks."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.laboratory import evidence, faults, network, told, work
from benchmarks.laboratory.cluster import Cluster, Shape
from benchmarks.laboratory.experiment import Experiment
from benchmarks.laboratory.faults import WAYS, Fault, Faults, Kind, NobodyMet
from benchmarks.laboratory.network import Network
from benchmarks.laboratory.tap import Tap
from benchmarks.laboratory.told import Event
from sparrow_py.errors import TaskLost
from sparrow_py.job import JobSpec
from tests.support.daemons import clean_environment

ROOT = Path(__file__).parents[2]


# ---- faults as they come ---------------------------------------------------------------------


class FakeCluster:
    """Two schedulers, three nodes, a client. `done` is what was done; who is in `away` does not run."""

    def __init__(self) -> None:
        self.schedulers = ["scheduler-0", "scheduler-1"]
        self.nodes = ["node-0", "node-1", "node-2"]
        self.programs = ["client-0"]
        self.processes = {name: SimpleNamespace(code=0) for name in (*self.schedulers, *self.nodes, *self.programs)}
        self.began_ns = 0
        self.away: set[str] = set()
        self.starting: set[str] = set()
        self.done: list[str] = []

    def runs(self, name: str) -> bool:
        return name not in self.away

    def ready(self, name: str) -> bool:
        return self.runs(name) and name not in self.starting

    def launch(self, name: str) -> None:
        self.away.discard(name)
        self.done.append(f"launch {name}")


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, clock: SimpleNamespace) -> FakeCluster:
    cluster = FakeCluster()

    def way(_: Any, fault: Fault, target: str) -> tuple[faults.Undo, str]:
        cluster.done.append(f"{fault.kind} {target}")
        return lambda: cluster.done.append(f"undo {fault.kind} {target}"), ""

    for kind in WAYS:
        if WAYS[kind] is not faults._drain:
            monkeypatch.setitem(WAYS, kind, way)
    monkeypatch.setattr(faults, "_drain", WAYS[Kind.UPGRADE])
    for process in cluster.processes.values():
        process.signal = lambda _: None
    return cluster


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[SimpleNamespace]:
    clock = SimpleNamespace(now_s=1.0)
    monkeypatch.setattr(time, "monotonic_ns", lambda: int(clock.now_s * 1e9))
    yield clock


def fault(kind: Kind, *targets: str, at_s: float = 0.0, lasts_s: float = 1.0) -> Fault:
    return Fault(at_s=at_s, kind=kind, targets=targets, lasts_s=lasts_s)


def playing(cluster: FakeCluster, *planned: Fault, **how: Any) -> Faults:
    played = Faults(cluster, planned, **how)  # type: ignore[arg-type]
    played.step()
    return played


def test_a_fault_comes_lasts_and_is_undone(cluster: FakeCluster, clock: SimpleNamespace) -> None:
    played = playing(cluster, fault(Kind.STOP_NODE, "node-0"), fault(Kind.KILL_NODE, "node-1", at_s=1.5))
    assert cluster.done == ["stop-node node-0"] and not played.over
    clock.now_s = 2.0
    played.step()
    assert cluster.done[1:] == ["kill-node node-1", "undo stop-node node-0"]
    clock.now_s = 3.0
    played.step()
    assert played.over and played.counts == {"stop-node": 1, "kill-node": 1}
    assert [one.mended for one in played.happened] == [False, False, True, True]


def test_who_is_killed_for_good_does_not_come_back_and_who_is_stopped_goes_on() -> None:
    cluster: Any = SimpleNamespace(kill=lambda _: None, launch=print, stop=lambda _: None, go_on=print)
    for kind, undone in ((Kind.KILL_NODE, False), (Kind.STOP_NODE, True)):
        undo, _ = WAYS[kind](cluster, Fault(at_s=0.0, kind=kind, targets=("node-0",), back=False), "node-0")
        assert (undo is not None) == undone


def test_who_is_not_there_is_not_met(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(*_: Any) -> Any:
        raise NobodyMet

    monkeypatch.setitem(WAYS, Kind.KILL_WORKER, nobody)
    cluster.away.add("node-0")
    played = playing(cluster, fault(Kind.STOP_NODE, "node-0"), fault(Kind.KILL_WORKER, "node-1"))
    assert played.over and played.skipped == 2 and not cluster.done and not played.happened


def test_only_one_scheduler_at_a_time_is_out_of_order(cluster: FakeCluster, clock: SimpleNamespace) -> None:
    planned = [fault(Kind.STOP_SCHEDULER, "scheduler-0"), fault(Kind.KILL_SCHEDULER, "scheduler-1")]
    played = playing(cluster, *planned, alone=True)
    assert cluster.done == ["stop-scheduler scheduler-0"]
    clock.now_s = 2.0
    played.step()
    cluster.starting = {"scheduler-0"}
    clock.now_s = 2.1
    played.step()
    assert len(cluster.done) == 2, "not before the other works again"
    cluster.starting.clear()
    clock.now_s = 2.2
    played.step()
    assert cluster.done[1:] == ["undo stop-scheduler scheduler-0", "kill-scheduler scheduler-1"]
    playing(other := FakeCluster(), *planned)
    assert not other.done, "the ways write down what they do to the fixture's cluster"
    assert cluster.done[3:] == ["stop-scheduler scheduler-0", "kill-scheduler scheduler-1"], "both, if it is not said"


def test_a_rolling_upgrade_and_veterans(cluster: FakeCluster, clock: SimpleNamespace) -> None:
    everybody = (*cluster.schedulers, *cluster.nodes)
    played = playing(cluster, fault(Kind.UPGRADE, *everybody), veterans={"node-0", "client-0"})
    assert set(played._draining) == {"scheduler-0", "node-0", "node-1"}, "one scheduler and two nodes at a time"
    while not played.over:
        cluster.away |= set(played._draining)
        cluster.processes["node-1"].code = 3
        clock.now_s += 0.1
        played.step()
    assert sorted(cluster.done) == sorted(f"launch {name}" for name in everybody)
    assert played.troubles == ["node-1 ended with code 3 when it was drained"]
    for planned in (fault(Kind.KILL_NODE, "node-0"), fault(Kind.KILL_CLIENT, "client-0")):
        played._inflict(planned)
    assert played.skipped == 2, "veterans are spared"
    played._inflict(fault(Kind.STOP_NODE, "node-0"))
    assert cluster.done[-1] == "stop-node node-0", "but not from what they live through"


@pytest.mark.rest
def test_a_scheduler_that_moves_at_last_is_found_by_the_node_monitors(tmp_path: Path) -> None:
    """The load is over at once, before the scheduler works at its new place; it stands beside other processes. These
    are executed: who forks them must have one thread, and a process that runs tests has several."""
    cluster = Cluster(Shape(schedulers=1, slots=(1,), heartbeat_s=0.5), tmp_path, Network())
    moves = [fault(Kind.MOVE_SCHEDULER, "scheduler-0", lasts_s=0.0)]
    experiment = Experiment(cluster, partial(Faults, cluster, moves), all_quiet=True)
    found = experiment.run()
    assert experiment.faults.counts == {Kind.MOVE_SCHEDULER: 1}
    assert found.troubles == []


def test_what_a_session_tells_twice_is_written_down() -> None:
    written: list[tuple[Event, str, str]] = []
    told = SimpleNamespace(write=lambda event, job, error: written.append((event, job, error)))
    sink = SimpleNamespace(**dict.fromkeys(("accepted", "settle", "finish"), lambda *_: None))
    tap = Tap("j", sink, told)  # type: ignore[arg-type]
    tap.begin(JobSpec([b""] * 5), lambda *_: None)
    outcome: Any = SimpleNamespace(task=3, result=b"")
    for tell in (tap.accepted, lambda: tap.outcome(outcome), tap.ended):
        tell()
    assert not written
    tap.outcome(outcome)
    tap.outcome(SimpleNamespace(task=4, result=b""))  # type: ignore[arg-type]
    tap.ended()
    assert [error for _, _, error in written] == [
        "outcome of task 3, twice", "outcome of task 4, after the end", "the end or a refusal, twice"
    ]  # fmt: skip


# ---- what tasks and programs write down ------------------------------------------------------


def test_what_a_task_writes_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, host = tmp_path / "runs" / "j", tmp_path / "node-1+0"
    directory.mkdir(parents=True)
    host.mkdir()
    monkeypatch.chdir(host)
    order = (str(directory), 4, 0.0, 1, 0, "", 0)
    with pytest.raises(work.PlannedFailure):
        work.task(order, b"", ())
    assert work.task(order, b"", (["x"],)) == work.value("j", 4, [["x"]], 0)
    work.begin(str(directory), 4)  # And is killed.
    first, second, third = sorted(evidence.read_runs(tmp_path / "runs"), key=lambda one: one.start_ns)
    assert (first.task, first.pid, first.host, first.node) == (4, os.getpid(), "node-1+0", "node-1")
    assert first.end_ns is not None and second.end_ns is not None and third.end_ns is None
    assert first.start_ns < first.end_ns < second.start_ns < second.end_ns < third.start_ns
    name = next(path.name for path in directory.iterdir())
    with pytest.raises(FileExistsError):
        work.create(str(directory), name)


def test_when_a_task_waited_for_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory, host = tmp_path / "runs" / "j", tmp_path / "node-1+0"
    directory.mkdir(parents=True)
    host.mkdir()
    monkeypatch.chdir(host)
    monkeypatch.setattr("sparrow_py.Client", SimpleNamespace(current=lambda: SimpleNamespace(submit=lost_child)))
    work.task((str(directory), 4, 0.0, 0, 0, "", 2), b"", ())
    (run,) = evidence.read_runs(tmp_path / "runs")
    assert run.waited_ns is not None and run.end_ns is not None
    assert run.start_ns < run.waited_ns[0] < run.waited_ns[1] < run.end_ns
    assert work.starts_of(str(directory), 4) == 1


def lost_child(function: object, duration_s: float) -> Any:
    def result() -> None:
        raise TaskLost("its node died")

    return SimpleNamespace(result=result)


def test_what_a_program_that_is_killed_leaves(tmp_path: Path) -> None:
    path = tmp_path / "ada.1"
    told.Writer(path).write(Event.OUTCOME, "j", task=3, status="finished", mark=["x"])
    with path.open("ab") as file:
        file.write(b'{"event":"outc')
    (program,) = evidence.read_programs(tmp_path)
    assert (program.name, program.life, program.over) == ("ada", 1, False)
    assert [(one.event, one.job, one.task, one.mark) for one in program.lines] == [(Event.OUTCOME, "j", 3, ["x"])]


# ---- processes and clocks --------------------------------------------------------------------


FORKS = """
import os, signal, sys, time
from pathlib import Path
from benchmarks.laboratory import clocks
from benchmarks.laboratory.processes import Process

def announce():
    print(f'{{"now_s": {time.time()}, "cwd": "{Path.cwd()}", "variables": {len(os.environ)}}}', flush=True)
    signal.pause()

directory = Path(sys.argv[1])
clock = directory / "clock"
clocks.new(clock)
clocks.jump(clock, 3600.0)
clocks.jump(clock, 60.0)
process = Process(announce, log=directory / "log", cwd=directory, environment={clocks.VARIABLE: str(clock)})
said = process.announcement()
assert 3600 < said["now_s"] - time.time() < 3720, said
assert said["cwd"] == str(directory) and said["variables"] == 1, said
assert process.runs
process.kill()
assert not process.runs and process.code == -signal.SIGKILL
failing = Process(lambda: 1 / 0, log=directory / "log", cwd=directory, environment={})
try:
    failing.announcement()
except RuntimeError as error:
    assert "ZeroDivisionError" in str(error)
    while failing.runs:
        time.sleep(0.001)
    print(failing.code)
"""
"""Who forks has one thread, as this process may not."""


def test_processes_that_are_forked(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORKS, str(tmp_path)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout == "1\n"


def test_there_is_one_wall_clock() -> None:
    """`clocks.py` moves `time.time`: whatever else the product read would not move with it."""
    other = re.compile(r"datetime|\btime_ns|CLOCK_REALTIME|from time import|localtime\(\)|gmtime\(\)|perf_counter_ns")
    rooms = ("sparrow_py", "scheduler", "node_monitor", "frontends/python", "frontends/command", "frontends/synthetic")
    found = [
        f"{path.relative_to(ROOT)}: {text}"
        for room in rooms
        for path in sorted((ROOT / room).rglob("*.py"))
        for text in path.read_text().splitlines()
        if other.search(text)
    ]
    assert found == []


def test_namespaces_of_processes_that_died_are_removed_by_whoever_comes_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    for pid in (dead.pid, os.getpid()):
        (tmp_path / f"{network.PREFIX}{pid}-hub").touch()
    tried = []

    def already_removed(*arguments: str) -> None:
        tried.append(arguments)
        raise subprocess.CalledProcessError(1, "ip", stderr="No such file or directory")

    monkeypatch.setattr(network, "NAMESPACES", tmp_path)
    monkeypatch.setattr(network, "_ip", already_removed)
    network._remove_stale()
    assert tried == [("netns", "del", f"{network.PREFIX}{dead.pid}-hub")]
