"""Whole clusters under virtual time, with random jobs, cancellations and faults: the guarantees of DESIGN.md §5 hold.

`World.check` runs after every event, `World.check_end` once nothing more happens. A failure shrinks to few actions,
and its world is a function of what Hypothesis prints.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.world import ClientHost, NodeHost, World

PROPERTY = settings(
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


@dataclass(frozen=True)
class Action:
    """Something that happens `after_s` the action before. `pick` chooses among what there is then."""

    after_s: float
    kind: str
    pick: int
    fields: dict[str, Any] = field(default_factory=dict)


AFTER_S = st.sampled_from([0.0, 0.0, 0.0, 0.001, 0.004, 0.02, 0.1])
PICK = st.integers(0, 1000)
JOB = st.fixed_dictionaries(
    {
        "durations_s": st.lists(st.sampled_from([0.0, 0.0004, 0.003, 0.01, 0.05]), max_size=20),
        "app": st.sampled_from(["many", "pool"]),
        "probe_ratio": st.sampled_from([1.0, 1.1, 1.5, 2.0, 3.7]),
        "prefetch": st.sampled_from([0, 0, 1, 8]),
        "max_attempts": st.sampled_from([1, 2, 3]),
        "queue_timeout_s": st.sampled_from([None, None, 0.0, 0.02, 0.2]),
        "failures": st.sampled_from([0, 0, 0, 1, 5]),
        "retry_failed": st.booleans(),
        "report_placed": st.booleans(),
    }
)
NO_FAULTS = ("cancel_job", "cancel_tasks", "cancel_operator")
FAULTS = ("drop_link", "stall", "crash_node", "drain_node", "kill_executor", "kill_client")


def actions(kinds: tuple[str, ...]) -> st.SearchStrategy[list[Action]]:
    """Lists of actions, about half of them jobs."""
    job = st.builds(Action, AFTER_S, st.just("job"), PICK, JOB)
    other = st.builds(Action, AFTER_S, st.sampled_from(kinds), PICK)
    return st.lists(st.one_of(job, other), min_size=1, max_size=16)


WORLD = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "nodes": st.lists(st.integers(1, 4), min_size=1, max_size=4),
        "schedulers": st.integers(1, 2),
        "users": st.sampled_from([("anna",), ("anna", "bert"), ("anna", "bert", "anna")]),
        "latency": st.sampled_from([(0.001, 0.001), (0.0001, 0.01), (0.001, 0.08)]),
        "split": st.booleans(),
        "executor_start_s": st.sampled_from([0.0, 0.02]),
        "executor_start_fails": st.sampled_from([0.0, 0.0, 0.3]),
        "warm": st.sampled_from([(), ("many", "pool")]),
        "frame_bytes_max": st.sampled_from([1 << 20, 4096 + 60]),
        "scheduler": st.fixed_dictionaries(
            {
                "probe_sharing": st.booleans(),
                "unplaced_tasks_max": st.sampled_from([12, 20, 1_000_000]),
                "user_weight": st.sampled_from([(), ("bert=2.5",)]),
            }
        ),
        "node": st.fixed_dictionaries(
            {
                "reservations_per_user_max": st.sampled_from([1, 5, 1_000_000]),
                "get_task_timeout_s": st.sampled_from([1.0, 0.2]),  # The longest round trip is 0.16 s.
                "queue": st.sampled_from(["fair", "fair", "fifo", "priority"]),
            }
        ),
    }
)


def act(world: World, action: Action) -> None:
    """Perform the action on whatever `pick` comes to, if there is any of it."""

    def pick(things: list[Any]) -> Any:
        return things[action.pick % len(things)] if things else None

    kind = action.kind
    if kind == "job":
        world.submit(client=action.pick % len(world.clients), **action.fields)
        return
    log = pick(list(world.logs.values()))
    if kind in ("cancel_job", "cancel_tasks", "cancel_operator"):
        if log is None:
            return
        if kind == "cancel_job":
            world.cancel(log)
        elif kind == "cancel_tasks":
            tasks = range(action.pick % 3, len(log.spec.tasks), 1 + action.pick % 4)
            world.cancel_tasks(log, list(tasks))
        elif world.schedulers:
            log.cancelled_at_s = world.now
            pick(world.schedulers).core.cancel_job(log.spec.job_id, world.now)
        return
    if kind in ("drop_link", "stall"):
        link = pick(world.links(NodeHost) + world.links(ClientHost))
        if link is not None and kind == "stall":
            world.stall(link, 0.07)
        elif link is not None:
            world.drop_link(link)
        return
    thing = pick(
        {
            "crash_node": world.nodes,
            "drain_node": [node for node in world.nodes if not node.core.draining],
            "kill_executor": [executor for node in world.nodes for executor in node.executors.values()],
            "kill_client": [client for client in world.clients if client.alive],
            "crash_scheduler": world.schedulers,
        }[kind]
    )
    if thing is not None:
        getattr(world, kind)(thing)


def play(setup: dict[str, Any], script: list[Action]) -> World:
    """Run the script, then until nothing more happens, and check everything."""
    world = World(**setup)
    for action in script:
        world.run_for(action.after_s)
        act(world, action)
    world.run()
    world.check_end()
    return world


@settings(PROPERTY, max_examples=150)
@given(setup=WORLD, script=actions(NO_FAULTS))
def test_jobs_end_as_promised(setup: dict[str, Any], script: list[Action]) -> None:
    """Random jobs and cancellations, nothing dies: besides the guarantees, nothing is started twice but to retry."""
    world = play({**setup, "executor_start_fails": 0.0}, script)
    for start in world.starts:
        assert not start.lost


@settings(PROPERTY, max_examples=250)
@given(setup=WORLD, script=actions((*NO_FAULTS, *FAULTS)))
def test_jobs_end_as_promised_whatever_dies(setup: dict[str, Any], script: list[Action]) -> None:
    """The same while links, node monitors, executors and clients die, drain and come back (guarantee 4)."""
    play(setup, script)


@settings(PROPERTY, max_examples=150)
@given(setup=WORLD, script=actions((*NO_FAULTS, *FAULTS, "crash_scheduler")))
def test_a_lost_scheduler_leaves_every_task_with_an_outcome(setup: dict[str, Any], script: list[Action]) -> None:
    """Schedulers die too: their accepted jobs' tasks end lost at the client, nothing is left on the nodes."""
    play(setup, script)


@pytest.mark.parametrize("faults", [(), FAULTS, (*FAULTS, "crash_scheduler")], ids=["none", "faults", "schedulers"])
def test_many_jobs_at_a_time_end_as_promised(faults: tuple[str, ...]) -> None:
    """Denser scripts than Hypothesis likes to draw: full queues, refusals and retries, several faults in one job."""
    for seed in range(70):
        rng = random.Random(seed)
        pick = rng.choice
        setup = {
            "seed": seed,
            "nodes": [rng.randint(1, 4) for _ in range(rng.randint(1, 4))],
            "schedulers": pick([1, 1, 2]),
            "users": pick([("anna",), ("anna", "bert"), ("anna", "bert", "anna")]),
            "latency": pick([(0.001, 0.001), (0.0001, 0.01), (0.001, 0.08)]),
            "split": pick([True, False]),
            "frame_bytes_max": pick([1 << 20, 4096 + 60]),
            "scheduler": {"unplaced_tasks_max": pick([20, 1_000_000]), "probe_sharing": pick([True, False])},
            "node": {"reservations_per_user_max": pick([1, 5, 1_000_000])},
        }
        script = []
        for _ in range(rng.randint(5, 30)):
            after_s = pick([0.0, 0.0, 0.0, 0.001, 0.004, 0.02, 0.1])
            if rng.random() < 0.5:
                job = {
                    "durations_s": [pick([0.0, 0.0004, 0.003, 0.01, 0.05]) for _ in range(pick([1, 2, 5, 12, 20]))],
                    "app": pick(["many", "pool"]),
                    "probe_ratio": pick([1.0, 1.1, 1.5, 2.0, 3.7]),
                    "prefetch": pick([0, 0, 1, 8]),
                    "max_attempts": pick([1, 2, 3]),
                    "queue_timeout_s": pick([None, None, None, 0.02, 0.2]),
                    "failures": pick([0, 0, 0, 1, 5]),
                    "retry_failed": pick([True, False]),
                }
                script.append(Action(after_s, "job", rng.randrange(1000), job))
            else:
                script.append(Action(after_s, pick([*NO_FAULTS, *faults]), rng.randrange(1000)))
        play(setup, script)
