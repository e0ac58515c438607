"""The seam between book and planes holds for planes that the scheduler does not have."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from loadgen.synthetic import Synthetic
from node_monitor.leading import Leading
from scheduler.daemon import SchedulerDaemon
from scheduler.options import PLACEMENTS, SchedulerOptions
from scheduler.planes import PLANES
from simulator.cluster import Cluster
from simulator.policies import Settings
from simulator.simulate import simulate
from simulator.soak import faults, scenarios
from simulator.soak.world import World
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.most_free_slots import InLanes, MostFreeSlots, Preempting, SolvedPlacement
from tests.support.suites import rest_after

SMALL_PLANES = [MostFreeSlots, SolvedPlacement]


@pytest.fixture(params=SMALL_PLANES)
def small_plane(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What a scheduler runs now if its placement is "random"."""
    monkeypatch.setitem(PLANES, "random", request.param)
    return request.param


def test_every_placement_has_a_plane() -> None:
    assert tuple(PLANES) == PLACEMENTS


def test_a_small_plane_runs_all_jobs_of_a_simulation(small_plane: type[MostFreeSlots]) -> None:
    workload = Synthetic(tasks=20, load=0.7, jobs=100)
    result = simulate(Cluster(nodes=50, schedulers=2), workload, "random", Settings())
    assert result.counts["reservations"] == 2000  # Each task is pushed once, and none asks.
    assert result.counts["asks"] == 0


@pytest.mark.parametrize("seed", rest_after(6, *range(20)))
def test_a_small_plane_keeps_the_guarantees_whatever_fails(small_plane: type[MostFreeSlots], seed: int) -> None:
    """Jobs with stages, constraints, cancellations, large results, and losses of all kinds; the invariants are checked
    after each event, the guarantees at the end."""
    scenario = scenarios.draw(seed, tuple(faults.KINDS))
    world = scenario.begin(scheduler={"placement": "random"}, events_max=200_000)
    world.run()
    world.check_end()
    assert all(type(host.core.plane) is small_plane for host in world.schedulers)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("plane", [InLanes, Preempting])
def test_placed_tasks_keep_the_guarantees_whatever_fails(
    plane: type[InLanes], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As above. Several schedulers place tasks in the nodes' lanes and know nothing of each other, as if all led: so
    many tasks wait there, and are handed back. One of the planes preempts some."""
    monkeypatch.setitem(PLANES, "random", plane)
    monkeypatch.setattr(Leading, "accepts", lambda leading, scheduler, lead: True)
    scenario = scenarios.draw(seed, tuple(faults.KINDS))
    world = scenario.begin(scheduler={"placement": "random"}, node={"lane_timeout_s": 0.5}, events_max=200_000)
    world.run()
    world.check_end()
    assert any(isinstance(message, m.LaunchPlaced) for _, _, message in world.sent)


def test_preempted_tasks_start_again_and_have_one_attempt_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANES, "random", Preempting)
    monkeypatch.setattr(Leading, "accepts", lambda leading, scheduler, lead: True)
    world = World(1, nodes=[2, 2], scheduler={"placement": "random"}, warm=("many",))
    log = world.submit([0.2] * 100)
    world.run()
    world.check_end()
    assert {(outcome.status, outcome.attempts) for outcome in log.outcomes} == {(TaskStatus.FINISHED, 1)}
    preempted = sum(start.preempted for start in log.starts)
    assert preempted >= 5 and len(log.starts) == 100 + preempted
    (host,) = world.schedulers
    assert host.core.counters.preempted == preempted


def test_a_stage_waits_until_slots_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANES, "random", MostFreeSlots)
    world = World(1, nodes=[2, 1], scheduler={"placement": "random"}, warm=("many",))
    log = world.submit([1.0] * 6)
    world.run_for(0.5)
    assert len(log.starts) == 3
    world.run()
    world.check_end()
    assert len(log.starts) == 6


def test_answers_come_as_events(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANES, "random", SolvedPlacement)
    world = World(1, nodes=[2, 2], scheduler={"placement": "random"})
    world.submit_stages(("map", (), [0.1] * 6), ("reduce", ("map",), [0.1] * 2))
    world.run()
    world.check_end()
    (host,) = world.schedulers
    plane: Any = host.core.plane
    assert plane.solutions >= 3 and plane.problem_out is None


class Asker(MostFreeSlots):
    """Remembers answers."""

    def __init__(self, book: Any) -> None:
        super().__init__(book)
        self.answers: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        self.answers.put_nowait((number, answer))


async def test_a_daemon_computes_off_its_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLANES, "random", Asker)
    plane: Any = SchedulerDaemon(SchedulerOptions(port=0, placement="random")).core.plane
    number = plane.book.solve(threading.get_ident)
    answered, thread = await plane.answers.get()
    assert answered == number and thread != threading.get_ident()


async def test_a_problem_that_raises_is_logged_and_has_no_answer(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(PLANES, "random", Asker)
    plane: Any = SchedulerDaemon(SchedulerOptions(port=0, placement="random")).core.plane
    number = plane.book.solve(lambda: 1 // 0)
    assert await plane.answers.get() == (number, None)
    assert "was not solved" in caplog.text
