"""Jobs whose slow tasks are submitted again, in whole clusters under virtual time, with faults and cancellations:
each outcome is told once, and nothing is left anywhere."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simulator.soak.world import JobLog, World
from sparrow_py.speculation import Speculation
from tests.support.speculating import SpeculatingClient, slow_down

JOB = st.fixed_dictionaries(
    {
        "durations_s": st.lists(st.sampled_from([0.001, 0.003, 0.003, 0.01, 0.2]), min_size=1, max_size=12),
        "app": st.sampled_from(["many", "pool"]),
        "probe_ratio": st.sampled_from([1.0, 2.0]),
        "max_attempts": st.sampled_from([2, 3]),
        "queue_timeout_s": st.sampled_from([None, None, 0.02]),
        "report_placed": st.booleans(),
    }
)
STAGED = st.fixed_dictionaries(
    {
        "sizes": st.lists(st.integers(1, 6), min_size=2, max_size=3),
        "durations_s": st.lists(st.sampled_from([0.001, 0.003, 0.003, 0.01, 0.2]), min_size=18, max_size=18),
        "chain": st.booleans(),
        "ask": st.booleans(),
        "large": st.booleans(),
        "max_attempts": st.sampled_from([2, 3]),
    }
)
SPECULATE = st.builds(
    Speculation,
    quantile=st.sampled_from([0.0, 0.5, 0.75]),
    slowdown=st.sampled_from([1.0, 1.5]),
    copies_max=st.sampled_from([0.1, 0.5, 1.0]),
    running_s_min=st.sampled_from([0.0, 0.005]),
)
KINDS = ("cancel", "cancel running", "cancel tasks", "drop link", "crash node", "kill executor", "crash scheduler")
ACTION = st.tuples(
    st.sampled_from([0.0, 0.001, 0.004, 0.02, 0.1]), st.sampled_from(KINDS), st.integers(0, 1000), JOB, SPECULATE
)


WHOLE_CLUSTERS = settings(
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@WHOLE_CLUSTERS
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(JOB, SPECULATE), min_size=1, max_size=3),
    st.lists(ACTION, max_size=10),
    st.booleans(),
)
def test_guarantees_hold_with_copies_whatever_happens(
    seed: int, first: list[tuple[dict[str, Any], Speculation]], actions: list[Any], split: bool
) -> None:
    world = World(seed, nodes=[2, 1, 2], schedulers=2, latency=(0.0002, 0.002), split=split)
    slow_down(world.nodes[0], 8.0)
    client = SpeculatingClient(world)
    logs = [client.submit(speculate=speculate, **job) for job, speculate in first]
    for after_s, kind, pick, job, speculate in actions:
        world.run_for(after_s)
        if pick % 3 == 0:
            logs.append(client.submit(speculate=speculate, **job))
        act(world, client, kind, pick, logs)
    world.run()
    client.check_end()


@WHOLE_CLUSTERS
@given(
    st.integers(0, 1000),
    st.lists(st.tuples(STAGED, SPECULATE), min_size=1, max_size=2),
    st.lists(ACTION, max_size=8),
    st.booleans(),
)
def test_guarantees_hold_with_copies_of_tasks_of_several_stages(
    seed: int, jobs: list[tuple[dict[str, Any], Speculation]], actions: list[Any], split: bool
) -> None:
    world = World(seed, nodes=[2, 1, 2], schedulers=2, latency=(0.0002, 0.002), split=split)
    slow_down(world.nodes[0], 8.0)
    client = SpeculatingClient(world)
    logs = [submit_staged(client, speculate, **job) for job, speculate in jobs]
    for after_s, kind, pick, _, _ in actions:
        world.run_for(after_s)
        act(world, client, kind, pick, logs)
    world.run()
    client.check_end()


def submit_staged(
    client: SpeculatingClient,
    speculate: Speculation,
    sizes: list[int],
    durations_s: list[float],
    chain: bool,
    **fields: Any,
) -> JobLog:
    """A job of stages of these sizes: one after the other, or the last after all others."""
    stages = []
    for number, size in enumerate(sizes):
        last = number == len(sizes) - 1
        after = [f"s{number - 1}"] if chain and number else [f"s{other}" for other in range(number)] if last else []
        stages.append((f"s{number}", after, durations_s[6 * number : 6 * number + size]))
    return client.submit_stages(*stages, speculate=speculate, **fields)


def act(world: World, client: SpeculatingClient, kind: str, pick: int, logs: list[JobLog]) -> None:
    """A fault or a cancellation, if there is what it needs."""
    log, links = logs[pick % len(logs)], world.links()
    if kind in ("cancel", "cancel running"):
        client.cancel(log, running=kind == "cancel running")
    elif kind == "cancel tasks":
        client.cancel(log, [pick % len(log.payloads)], running=bool(pick % 2))
    elif kind == "drop link" and links:
        world.drop_link(links[pick % len(links)])
    elif kind == "crash node" and world.nodes:
        world.crash_node(world.nodes[pick % len(world.nodes)])
    elif kind == "crash scheduler" and world.schedulers:
        world.crash_scheduler(world.schedulers[pick % len(world.schedulers)])
    elif kind == "kill executor":
        executors = [executor for node in world.nodes for executor in node.executors.values()]
        if executors:
            world.kill_executor(executors[pick % len(executors)])
