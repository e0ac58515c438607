"""Whole clusters under virtual time, with random jobs, cancellations and faults: the guarantees hold.

The guarantees are in docs/reliability.md, and ARCHITECTURE.md ("Failover", "Attempts, and guarantee 3") says how they
are kept. `World.check` runs after every event, `World.check_end` once nothing more happens. A failure shrinks to few
actions, and its world is a function of what Hypothesis prints.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.options import ORDERS
from simulator.soak.scenarios import RETENTIONS_S
from simulator.soak.world import ClientHost, NodeHost, World
from sparrow_py.job import LEASE_S_MIN, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.suites import rest_after

PROPERTY = settings(
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
NOTHING_SAID: dict[str, Any] = {}
PREFERRED = [(("n0",),), (("n0", "n1"), ()), (("n2",), ("n0", "n1", "n3"), (), ("n1",)), (("n9",), ("n0", "n2"))]
"""Of a job's tasks in turn; there is never a node n9."""
PLACES = [
    *[NOTHING_SAID] * 4,
    *[{"preferred": nodes, "probe_ratio": 1.0} for nodes in PREFERRED],
    {"preferred": PREFERRED[2], "probe_ratio": 3.0},
    {"preferred": PREFERRED[3], "delay_s": 0.0},
    {"preferred": PREFERRED[2], "delay_s": 0.03},
    {"preferred": PREFERRED[2], "where": ["parity == even"]},
    {"where": ["parity == even"]},
    {"where": ["node in n0, n2", "number <= 1"]},
    {"where": ["gpu exists"]},
    {"demand": {"cpu": 0.7}},
    {"demand": {"cpu": 0.1}, "where": ["number >= 1"]},
    {"demand": {"cpu": 2.0}, "preferred": PREFERRED[1]},
    {"demand": {"cpu": 9.0}},
]
"""Where a stage's tasks may run."""
LIMITS = [
    *[NOTHING_SAID] * 6,
    {"task_timeout_s": 0.02},
    {"task_timeout_s": 0.001, "retry_failed": True},
    {"lease_s": LEASE_S_MIN},
    {"lease_s": LEASE_S_MIN, "task_timeout_s": 0.2},
    {"wait_for_nodes_s": 0.0},
    {"wait_for_nodes_s": 0.3, "on_client_lost": "finish"},
    {"on_client_lost": "finish"},
]
"""What else a job may say."""
AVOID_BY = ["", "parity", "node"]
"""By which attribute it avoids others, if it does."""
DURATIONS_S = [0.0, 0.0004, 0.003, 0.01, 0.05, 0.4]
DURATION_S = st.sampled_from(DURATIONS_S)
STAGE = st.fixed_dictionaries(
    {
        "durations_s": st.lists(DURATION_S, max_size=4),
        "after": st.integers(0, 15),
        "large": st.booleans(),
        "ask": st.booleans(),
        "app": st.sampled_from(["many", "pool"]),
        "failures": st.sampled_from([0, 0, 0, 0, 1]),
        "place": st.sampled_from(PLACES),
    }
)
DAG = st.fixed_dictionaries(
    {
        "stages": st.lists(STAGE, min_size=2, max_size=4),
        "max_attempts": st.sampled_from([1, 3, 3, 10]),
        "retry_failed": st.booleans(),
        "avoid": st.sampled_from([0, 0, 1]),
        "avoid_by": st.sampled_from(AVOID_BY),
        "limits": st.sampled_from(LIMITS),
    }
)
JOB = st.fixed_dictionaries(
    {
        "durations_s": st.lists(DURATION_S, max_size=20),
        "app": st.sampled_from(["many", "pool"]),
        "probe_ratio": st.sampled_from([1.0, 1.1, 1.5, 2.0, 3.7]),
        "prefetch": st.sampled_from([0, 0, 1, 8]),
        "max_attempts": st.sampled_from([1, 2, 3]),
        "queue_timeout_s": st.sampled_from([None, None, 0.0, 0.02, 0.2]),
        "failures": st.sampled_from([0, 0, 0, 1, 5]),
        "retry_failed": st.booleans(),
        "report_placed": st.booleans(),
        "avoid": st.sampled_from([0, 0, 0, 2]),
        "avoid_by": st.sampled_from(AVOID_BY),
        "place": st.sampled_from(PLACES),
        "limits": st.sampled_from(LIMITS),
    }
)
NO_FAULTS = (
    "cancel_job", "cancel_tasks", "cancel_operator", "cancel_job_running", "cancel_tasks_running", "cordon", "uncordon",
    "drain",
)  # fmt: skip
FAULTS = ("drop_link", "stall", "crash_node", "drain_node", "kill_executor", "kill_client")


def actions(kinds: tuple[str, ...]) -> st.SearchStrategy[list[Action]]:
    """Lists of actions, about half of them jobs."""
    job = st.builds(Action, AFTER_S, st.just("job"), PICK, JOB)
    dag = st.builds(Action, AFTER_S, st.just("dag"), PICK, DAG)
    other = st.builds(Action, AFTER_S, st.sampled_from(kinds), PICK)
    return st.lists(st.one_of(job, dag, other, other), min_size=1, max_size=16)


WORLD = st.fixed_dictionaries(
    {
        "seed": st.integers(0, 2**16),
        "nodes": st.lists(st.integers(1, 4), min_size=1, max_size=4),
        "schedulers": st.integers(1, 2),
        "users": st.sampled_from([("anna",), ("anna", "bert"), ("anna", "bert", "anna")]),
        "latency": st.sampled_from([(0.001, 0.001), (0.0001, 0.01), (0.001, 0.08)]),
        "split": st.booleans(),
        "results_differ": st.booleans(),
        "executor_start_s": st.sampled_from([0.0, 0.02]),
        "executor_start_fails": st.sampled_from([0.0, 0.0, 0.3]),
        "warm": st.sampled_from([(), ("many", "pool")]),
        "frame_bytes_max": st.sampled_from([1 << 20, 4096 + 60]),
        "scheduler": st.fixed_dictionaries(
            {
                "probe_sharing": st.booleans(),
                "order": st.sampled_from(ORDERS),
                "overtaken_max": st.sampled_from([0, 3, 10_000]),
                "probe_ratio_max": st.sampled_from([0.0, 6.0]),
                "push_to_idle": st.booleans(),
                "unplaced_tasks_max": st.sampled_from([12, 20, 1_000_000]),
                "held_bytes_max": st.sampled_from([10_000, 1 << 30, 1 << 30]),
                "settling_s": st.sampled_from([0.0, 2.0]),
                "user_weight": st.sampled_from([(), ("bert=2.5",)]),
            }
        ),
        "node": st.fixed_dictionaries(
            {
                "reservations_per_user_max": st.sampled_from([1, 5, 1_000_000]),
                "get_task_timeout_s": st.sampled_from([1.0, 0.2]),  # The longest round trip is 0.16 s.
                "queue": st.sampled_from(["fair", "fair", "fifo", "priority"]),
                "yield_within_s": st.sampled_from([0.01, 0.1, 5.0]),
            }
        ),
    }
)


STATES = {"cordon": m.CORDONED, "uncordon": m.READY, "drain": m.DRAINING}


def take_part(world: World, node: NodeHost) -> None:
    """What was drained or cordoned is ready again."""
    if node.alive and not node.leaving:
        world.set_state(node, m.READY)


def submit(world: World, action: Action) -> None:
    """Submit the job or DAG that the action's fields describe."""
    fields = dict(action.fields)
    place, limits, avoided = fields.pop("place", {}), dict(fields.pop("limits", {})), fields.pop("avoid", 0)
    client = action.pick % len(world.clients)
    before = [job_id for job_id, log in world.logs.items() if log.client is world.clients[client]]
    fields["avoid"] = [before[-1 - action.pick % len(before)]] if avoided and before else []
    if action.kind == "job":
        fields.update({**place, **limits})
        if fields.get("demand"):
            fields["prefetch"] = 0
        world.submit(client=client, **fields)
        return
    stages = []
    own = {name: limits.pop(name) for name in ("task_timeout_s", "lease_s") if name in limits}
    for number, stage in enumerate(fields.pop("stages")):
        after = [f"s{other}" for other in range(number) if stage["after"] >> other & 1]
        kept = {name: stage[name] for name in ("large", "ask", "app", "failures")}
        stages.append((f"s{number}", after, stage["durations_s"], {**own, **kept, **stage["place"]}))
    if action.pick % 3 == 0:
        stages.reverse()  # They may come in any order.
    world.submit_stages(*stages, client=client, **{**fields, **limits})


def act(world: World, action: Action) -> None:
    """Perform the action on whatever `pick` comes to, if there is any of it."""

    def pick(things: list[Any]) -> Any:
        return things[action.pick % len(things)] if things else None

    kind = action.kind
    if kind in ("job", "dag"):
        submit(world, action)
        return
    log = pick(list(world.logs.values()))
    if kind.startswith("cancel"):
        running = kind.endswith("running")
        if log is None:
            return
        if kind.startswith("cancel_job"):
            world.cancel(log, running=running)
        elif kind.startswith("cancel_tasks"):
            tasks = range(action.pick % 3, len(log.payloads), 1 + action.pick % 4)
            world.cancel_tasks(log, list(tasks), running=running)
        elif world.schedulers:
            log.cancelled_at_s = world.now
            pick(world.schedulers).core.cancel_job(log.spec.job_id, world.now)
        return
    if kind in ("detach", "attach"):
        let_go = pick([one for one in world.logs.values() if one.is_let_go])
        if kind == "attach" and let_go is not None:
            world.attach(let_go, action.pick % len(world.clients))
        elif log is not None:
            world.detach(log, RETENTIONS_S[action.pick % len(RETENTIONS_S)])
        return
    if kind in STATES:
        node = pick(world.nodes)
        if node is not None and not node.leaving:
            world.set_state(node, STATES[kind])
            if kind == "drain":
                world.at(world.now + 0.3, lambda: take_part(world, node))
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
    for node in list(world.nodes):
        take_part(world, node)
    world.run()
    world.check_end()
    return world


@settings(PROPERTY, max_examples=150)
@given(setup=WORLD, script=actions(NO_FAULTS))
def test_jobs_end_as_promised(setup: dict[str, Any], script: list[Action]) -> None:
    """Random jobs and cancellations, nothing dies: besides the guarantees, nothing is started twice but to retry."""
    world = play({**setup, "executor_start_fails": 0.0}, script)
    for start in world.starts:
        assert start.link is not None and start.link.alive
        assert not start.executor_died or start.killed
    for log in world.logs.values():
        for outcome in log.outcomes:
            known = any(reason in outcome.error for reason in ("queue_timeout_s", "no node that may run it", "killed"))
            assert outcome.status is not TaskStatus.LOST or known, outcome
    assert not any(client.core.duplicates for client in world.clients)


@settings(PROPERTY, max_examples=250)
@given(setup=WORLD, script=actions((*NO_FAULTS, *FAULTS)))
def test_jobs_end_as_promised_whatever_dies(setup: dict[str, Any], script: list[Action]) -> None:
    """The same while links, node monitors, executors and clients die, drain and come back (guarantee 4)."""
    play(setup, script)


@settings(PROPERTY, max_examples=150)
@given(setup=WORLD, script=actions((*NO_FAULTS, *FAULTS, "crash_scheduler")))
def test_a_lost_scheduler_leaves_every_task_with_an_outcome(setup: dict[str, Any], script: list[Action]) -> None:
    """Schedulers die too: their jobs go to others, which start again only what no node accounts for."""
    play(setup, script)


@settings(PROPERTY, max_examples=100)
@given(setup=WORLD, script=actions(("detach", "detach", "attach", "attach", "attach", *FAULTS, "crash_scheduler")))
def test_jobs_that_clients_let_go_of_are_told_once_to_whoever_attaches(
    setup: dict[str, Any], script: list[Action]
) -> None:
    """Clients let go of jobs and attach to others', while anything dies: each outcome is told to one client, and
    nothing is left once its time is over."""
    play({**setup, "receipts": True}, script)


def random_dag(rng: random.Random) -> dict[str, Any]:
    """As `DAG` draws it."""
    pick = rng.choice
    stages = [
        {
            "durations_s": [pick(DURATIONS_S) for _ in range(rng.randrange(5))],
            "after": rng.randrange(16),
            "large": pick([True, False]),
            "ask": pick([True, True, False]),
            "app": pick(["many", "pool"]),
            "failures": pick([0, 0, 0, 0, 0, 1]),
            "place": pick([NOTHING_SAID, NOTHING_SAID, pick(PLACES)]),
        }
        for _ in range(rng.randint(2, 4))
    ]
    return {
        "stages": stages,
        "max_attempts": pick([1, 3, 3, 10]),
        "retry_failed": pick([True, False]),
        "avoid": pick([0, 0, 1]),
        "avoid_by": pick(AVOID_BY),
        "limits": pick(LIMITS),
    }


@pytest.mark.parametrize(
    "faults", rest_after(1, (*FAULTS, "crash_scheduler"), FAULTS, ()), ids=["schedulers", "faults", "none"]
)
@pytest.mark.parametrize("seeds", rest_after(1, range(10), range(10, 40)), ids=["few", "many"])
def test_many_jobs_at_a_time_end_as_promised(faults: tuple[str, ...], seeds: range) -> None:
    """Denser scripts than Hypothesis likes to draw: full queues, refusals and retries, several faults in one job."""
    for seed in seeds:
        rng = random.Random(seed)
        pick = rng.choice
        setup = {
            "seed": seed,
            "nodes": [rng.randint(1, 4) for _ in range(rng.randint(1, 4))],
            "schedulers": pick([1, 1, 2]),
            "users": pick([("anna",), ("anna", "bert"), ("anna", "bert", "anna")]),
            "latency": pick([(0.001, 0.001), (0.0001, 0.01), (0.001, 0.08)]),
            "split": pick([True, False]),
            "results_differ": pick([True, False]),
            "frame_bytes_max": pick([1 << 20, 4096 + 60]),
            "scheduler": {
                "unplaced_tasks_max": pick([20, 1_000_000]),
                "probe_sharing": pick([True, False]),
                "order": pick(ORDERS),
                "overtaken_max": pick([0, 3, 10_000]),
                "probe_ratio_max": pick([0.0, 6.0]),
                "push_to_idle": pick([True, False]),
                "settling_s": pick([0.0, 0.0, 2.0]),
            },
            "node": {"reservations_per_user_max": pick([1, 5, 1_000_000])},
        }
        script = []
        for _ in range(rng.randint(5, 30)):
            after_s = pick([0.0, 0.0, 0.0, 0.001, 0.004, 0.02, 0.1])
            if rng.random() < 0.5:
                job = {
                    "durations_s": [pick(DURATIONS_S) for _ in range(pick([1, 2, 5, 12, 20]))],
                    "app": pick(["many", "pool"]),
                    "probe_ratio": pick([1.0, 1.1, 1.5, 2.0, 3.7]),
                    "prefetch": pick([0, 0, 1, 8]),
                    "max_attempts": pick([1, 2, 3]),
                    "queue_timeout_s": pick([None, None, None, 0.02, 0.2]),
                    "failures": pick([0, 0, 0, 1, 5]),
                    "retry_failed": pick([True, False]),
                    "avoid": pick([0, 0, 0, 1]),
                    "avoid_by": pick(AVOID_BY),
                    "place": pick(PLACES),
                    "limits": pick(LIMITS),
                }
                script.append(Action(after_s, "job", rng.randrange(1000), job))
            elif rng.random() < 0.4:
                script.append(Action(after_s, "dag", rng.randrange(1000), random_dag(rng)))
            else:
                script.append(Action(after_s, pick([*NO_FAULTS, *faults]), rng.randrange(1000)))
        play(setup, script)
