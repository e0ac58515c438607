"""Daemons that take time: a single server's queue, as the closed form has it; nothing is lost; what is free changes
nothing."""

from __future__ import annotations

import random
import statistics
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.costs import COST_US_MAX, Cost, CostlyNetwork, Costs, Process
from simulator.engine import Engine
from simulator.network import Delay, Pipe
from simulator.policies import POLICIES, Settings
from simulator.simulate import simulate
from sparrow_py.errors import SparrowError
from tests.support.suites import rest_after

ARRIVALS = 30_000
WORKLOAD = Synthetic(tasks=5, load=0.7, jobs=80)
CLUSTER = {"nodes": 20, "slots": 2, "schedulers": 3}
DEAR = Costs(scheduler=Cost(frame_us=200, message_us=50), node_monitor=Cost(frame_us=300, message_us=100))


def process(cost: Cost, delay_ms: float = 0.0) -> tuple[Engine, CostlyNetwork, Process]:
    engine = Engine()
    network = CostlyNetwork(engine, Delay("fixed", delay_ms), random.Random(1))
    return engine, network, Process(cost, engine, network)


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_wait_for_a_process_is_that_of_a_single_server_with_constant_service(load: float) -> None:
    """M/D/1: the mean wait is load / (2 (1 - load)) times the service."""
    service_s = 1e-3
    engine, _, server = process(Cost(frame_us=600, message_us=200))
    rng, waits_s = random.Random(7), []

    def served(came_s: float, frame: list[Any]) -> None:
        waits_s.append(engine.now_s - service_s - came_s)

    reads, at_s = server.reads(served), 0.0
    for _ in range(ARRIVALS):
        at_s += rng.expovariate(load / service_s)
        engine.at(at_s, lambda came_s: reads(came_s, ["a", "b"]), at_s)
    engine.run()
    wanted_s = service_s * load / (2 * (1 - load))
    assert len(waits_s) == ARRIVALS
    assert min(waits_s) > -1e-9
    assert statistics.fmean(waits_s) == pytest.approx(wanted_s, rel=0.08)
    assert server.busy_s == pytest.approx(ARRIVALS * service_s)
    assert (server.frames, server.messages) == (ARRIVALS, 2 * ARRIVALS)


def test_frames_leave_one_after_the_other_as_they_are_written_and_occupy_the_process() -> None:
    """Read in 3 ms; then frames of 3 ms and 4 ms are written, which are under way for 5 ms; then the next is read."""
    engine, network, server = process(Cost(frame_us=2000, message_us=1000), delay_ms=5.0)
    arrived: list[tuple[str, float]] = []
    pipes = [Pipe(lambda name, _: arrived.append((name, engine.now_s)), name) for name in ("first", "second")]

    def answer(_: Any, frame: list[Any]) -> None:
        if frame == ["question"]:
            network.send(pipes[0], "a")
            network.send(pipes[1], "b")
            network.send(pipes[1], "c")
        else:
            arrived.append(("read", engine.now_s))

    reads = server.reads(answer)
    engine.at(0.0, lambda _: reads("peer", ["question"]))
    engine.at(0.001, lambda _: reads("peer", ["word"]))
    engine.run()
    assert [name for name, _ in arrived] == ["first", "read", "second"]
    assert [at_s for _, at_s in arrived] == pytest.approx([0.011, 0.013, 0.015])
    assert server.busy_s == pytest.approx(0.013)


def test_only_what_comes_while_a_process_does_nothing_wakes_it() -> None:
    engine, _, server = process(Cost(wake_us=5000, frame_us=1000))
    handled_s: list[float] = []
    reads = server.reads(lambda _, __: handled_s.append(engine.now_s))
    for at_s in (0.0, 0.002, 0.1):
        engine.at(at_s, lambda _: reads("peer", ["word"]))
    engine.run()
    assert handled_s == pytest.approx([0.006, 0.007, 0.106])
    assert server.busy_s == pytest.approx(0.013)


@given(st.lists(st.tuples(st.floats(0, 0.01), st.integers(1, 5)), max_size=30), st.floats(0, 2000), st.floats(0, 500))
def test_each_frame_is_handled_once_in_order_and_never_two_at_a_time(
    frames: list[tuple[float, int]], frame_us: float, message_us: float
) -> None:
    cost = Cost(frame_us=frame_us, message_us=message_us)
    engine, _, server = process(cost)
    handled: list[tuple[float, int, int]] = []
    reads = server.reads(lambda number, frame: handled.append((engine.now_s, number, len(frame))))
    came = sorted(frames)
    for number, (at_s, count) in enumerate(came):
        engine.at(at_s, lambda what: reads(what[0], [None] * what[1]), (number, count))
    engine.run()
    free_s, wanted = 0.0, []
    for number, (at_s, count) in enumerate(came):
        free_s = max(free_s, at_s) + cost.of_s(count)
        wanted.append((free_s, number, count))
    assert [one[1:] for one in handled] == [one[1:] for one in wanted]
    assert [one[0] for one in handled] == pytest.approx([one[0] for one in wanted])


def started(policy: str, costs: Costs | None, settings: Settings, delay: Delay) -> Any:
    cluster = Cluster(**CLUSTER, delay=delay, costs=costs)
    result = simulate(cluster, WORKLOAD, policy, settings)
    return result, [(list(record.started_s), list(record.nodes)) for record in result.records]


@pytest.mark.parametrize(
    "delay", rest_after(1, Delay("uniform", 2.0), Delay("exponential", 1.0)), ids=["uniform", "exponential"]
)
@pytest.mark.parametrize("policy", [name for name in POLICIES if name != "central"])
def test_what_costs_nothing_changes_nothing(policy: str, delay: Delay) -> None:
    """Under delays that are drawn, as frames of one moment are then seldom."""
    free, at = started(policy, Costs(), Settings(), delay)
    without, at_without = started(policy, None, Settings(), delay)
    assert at == at_without
    assert free.events > without.events
    assert {name: free.counts[name] for name in without.counts} == without.counts
    assert free.counts["scheduler_busy_us"] == free.counts["node_monitor_busiest_us"] == 0


@pytest.mark.parametrize("profile", ["paper", "default"])
def test_every_task_runs_once_however_slow_the_daemons_are(profile: str) -> None:
    """`simulate` fails if a task is lost. Nothing starts before its job's submission can have been read."""
    result, _ = started("sparrow", DEAR, Settings.of(profile), Delay())
    dear_ms = 1000 * DEAR.scheduler.of_s(1)
    assert all(not record.unended for record in result.records)
    assert result.wait_ms.min() > dear_ms + 1.0
    counts = result.counts
    assert counts["scheduler_busiest_us"] * CLUSTER["schedulers"] >= counts["scheduler_busy_us"] > 0
    assert counts["scheduler_frames"] <= counts["scheduler_messages"]
    cost_us = 200 * counts["scheduler_frames"] + 50 * counts["scheduler_messages"]
    assert counts["scheduler_busy_us"] == pytest.approx(cost_us, abs=1)


def test_a_scheduler_that_is_the_limit_is_relieved_by_another() -> None:
    """Each decision takes 2.5 ms, so that one scheduler cannot keep up; four can."""
    costs = Costs(scheduler=Cost(frame_us=800))
    medians = [
        float(np.median(simulate(Cluster(nodes=40, schedulers=count, costs=costs), WORKLOAD).response_ms))
        for count in (1, 4)
    ]
    assert medians[1] < medians[0] / 2


@pytest.mark.parametrize("field", ["wake_us", "frame_us", "message_us"])
@pytest.mark.parametrize("value", [-1, COST_US_MAX + 1, float("nan")])
def test_a_cost_that_cannot_be_is_named(field: str, value: float) -> None:
    with pytest.raises(SparrowError, match=field):
        Cost(**{field: value})
