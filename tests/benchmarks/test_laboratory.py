"""The laboratory's own parts: faults as they come, on a cluster that only writes down what is done to it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.laboratory import faults
from benchmarks.laboratory.faults import WAYS, Fault, Faults, Kind, NobodyMet
from benchmarks.laboratory.tap import Tap
from benchmarks.laboratory.told import Event


class FakeCluster:
    """Two schedulers, two nodes, a client. `done` is what was done; who is in `away` does not run."""

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
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
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


@pytest.fixture(autouse=True)
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


def test_what_a_session_tells_twice_is_written_down() -> None:
    written: list[tuple[Event, str, str]] = []
    told = SimpleNamespace(write=lambda event, job, error: written.append((event, job, error)))
    sink = SimpleNamespace(placed=None, not_cancelled=None)
    for name in ("accepted", "outcome", "ended"):
        setattr(sink, name, lambda *_: None)
    tap = Tap("j", sink, told)  # type: ignore[arg-type]
    outcome: Any = SimpleNamespace(task=3)
    for tell in (tap.accepted, lambda: tap.outcome(outcome), tap.ended):
        tell()
    assert not written
    tap.outcome(outcome)
    tap.outcome(SimpleNamespace(task=4))  # type: ignore[arg-type]
    tap.ended()
    assert [error for _, _, error in written] == [
        "outcome of task 3, twice", "outcome of task 4, after the end", "the end or a refusal, twice"
    ]  # fmt: skip
