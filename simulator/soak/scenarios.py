"""Scenarios of the soak: a cluster, its options, what users do, and what goes wrong, all drawn from a seed.

What a seed means is a matter of this file: it may mean something else in another version of it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from node_monitor.options import QUEUE_POLICIES
from scheduler.options import ORDERS
from simulator.soak import faults
from simulator.soak.clocks import HostClock
from simulator.soak.faults import Fault
from simulator.soak.world import World
from sparrow_py.job import LEASE_S_MIN, RetryPolicy, TaskResult

HORIZON_S = 3.0
"""Users act, and faults begin, within so long."""
JOBS_MAX = 14
DIRECT = ("batch", "per-task", "random")
"""Placements of which some scenarios have one; that others have, is said when they begin."""
FAULTS_MAX = 10
DURATIONS_S = (0.0, 0.0004, 0.003, 0.01, 0.05, 0.4)
MANY_LEASES_S = 1.5
RETRIES = (
    RetryPolicy(2, 0.02, 1.0, 0.02, 0.0),
    RetryPolicy(4, 0.05, 3.0, 0.2, 0.5),
    RetryPolicy(3, 0.0, 1.0, 0.0, 1.0),
)
USERS = (("anna",), ("anna", "bert"), ("anna", "bert", "anna"))
NOTHING_SAID: dict[str, Any] = {}
PREFERRED = [(("n0",),), (("n0", "n1"), ()), (("n2",), ("n0", "n1", "n3"), (), ("n1",)), (("n9",), ("n0", "n2"))]
"""Of a job's tasks in turn; there is never a node n9."""
PLACES: list[dict[str, Any]] = [
    *[NOTHING_SAID] * 8,
    {"preferred": PREFERRED[0], "probe_ratio": 1.0},
    {"preferred": PREFERRED[1]},
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
]
"""Where a stage's tasks may run."""
LIMITS: list[dict[str, Any]] = [
    *[NOTHING_SAID] * 6,
    {"task_timeout_s": 0.02},
    {"task_timeout_s": 0.001, "retry_failed": True},
    {"wait_for_nodes_s": 0.0},
    {"wait_for_nodes_s": 0.3, "on_client_lost": "finish"},
    {"on_client_lost": "finish"},
]
AVOID_BY = ["", "parity", "parity", "node"]
"""By which attribute a job avoids others, if it does."""
"""What else a job may say."""
RETENTIONS_S = (0.0, 0.5, 20.0, 20.0)
"""For which jobs are kept that clients let go of."""
CANCELS = ("cancel-job", "cancel-job running", "cancel-tasks", "cancel-tasks running", "operator")


@dataclass(frozen=True)
class Action:
    """What a user does, `at_s` after the scenario begins. `pick` chooses among what there is then."""

    at_s: float
    kind: str
    pick: int
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scenario:
    """setup: arguments of `World`. clocks: whether hosts' clocks differ from the start."""

    seed: int
    setup: dict[str, Any]
    actions: Sequence[Action]
    faults: Sequence[Fault]
    clocks: bool

    def play(self, **more: Any) -> World:
        """The world after all of it, at rest. `more`: further arguments of `World`."""
        world = self.begin(**more)
        world.run()
        return world

    def begin(self, **more: Any) -> World:
        """The world, to which all that is yet to happen."""
        rng = random.Random(f"{self.seed} clocks")
        low, high = faults.CLOCK_RATES

        def clock() -> HostClock:
            return HostClock(rng.uniform(0, faults.CLOCK_OFFSET_MAX_S), rng.uniform(low, high))

        setup: dict[str, Any] = {"clock": clock} if self.clocks else {}
        for name, value in self.setup.items():
            setup[name] = {**value, **more.pop(name, {})} if isinstance(value, dict) else more.pop(name, value)
        world = World(self.seed, **setup, **more)
        begin_s = world.now
        for action in self.actions:
            world.at(begin_s + action.at_s, partial(act, world, action))
        for fault in self.faults:
            world.at(begin_s + fault.at_s, partial(_inject, world, fault))
        return world


def _inject(world: World, fault: Fault) -> None:
    faults.inject(world, fault)


def draw(
    seed: int,
    kinds: Sequence[str] = tuple(faults.KINDS),
    *,
    leases: bool = True,
    retries: bool = True,
    futures: bool = True,
    waiting: bool = True,
    detached: bool = True,
    nested: bool = False,
) -> Scenario:
    """The seed's scenario, with faults of these kinds. leases: whether some jobs' tasks may have leases. retries:
    whether failures of some jobs' tasks may pass. futures: whether some ask for results of other jobs. waiting:
    whether some tasks may wait in the middle, and give their slots back. detached: whether clients may let go of jobs,
    and others attach to these. nested: whether tasks submit tasks of their own, through their nodes' relays; then no
    frame comes twice, as what is relayed is a stream of bytes."""
    rng = random.Random(f"{seed} scenario")
    setup = _setup(rng)
    # From a generator of its own: what a seed meant before there was a choice, it means still in half of all cases.
    setup["scheduler"]["placement"] = random.Random(f"{seed} placement").choice([*["sparrow"] * 3, *DIRECT])
    setup["scheduler"]["push_to_idle"] = random.Random(f"{seed} pushing").choice([True, True, False])
    actions = [_job(rng) for _ in range(rng.randint(1, JOBS_MAX))]
    actions += [
        Action(rng.uniform(0, HORIZON_S), rng.choice(CANCELS), rng.randrange(1000)) for _ in range(rng.randint(0, 5))
    ]
    if leases:
        actions = _with_leases(random.Random(f"{seed} leases"), setup, actions)
    if retries:
        actions = _with_retries(random.Random(f"{seed} retries"), actions)
    if futures:
        actions = _with_futures(random.Random(f"{seed} futures"), actions)
    if waiting:
        _with_waiting(random.Random(f"{seed} waiting"), setup)
    if detached:
        actions = _with_detached_jobs(random.Random(f"{seed} detached"), setup, actions)
    if nested:
        _with_nested_jobs(random.Random(f"{seed} nested"), setup)
        kinds = [kind for kind in kinds if kind != "duplication"]
    actions.sort(key=lambda action: action.at_s)
    rng = random.Random(f"{seed} faults")
    drawn = faults.draw(rng, kinds, rng.randint(1, FAULTS_MAX), HORIZON_S)
    return Scenario(seed, setup, actions, drawn, "clock" in kinds and rng.random() < 0.5)


def _with_leases(rng: random.Random, setup: dict[str, Any], actions: list[Action]) -> list[Action]:
    """In half of all scenarios tasks of some jobs have leases. From a generator of its own, as above."""
    if rng.random() < 0.5:
        return actions
    setup["node"]["yield_within_s"] = rng.choice([0.01, 0.1, 5.0])
    return [_with_lease(action) if action.fields and rng.random() < 0.5 else action for action in actions]


def _with_lease(action: Action) -> Action:
    """The job, whose longest tasks last for many leases."""
    fields = {**action.fields, "limits": {**action.fields["limits"], "lease_s": LEASE_S_MIN}}
    if action.kind == "job":
        longest_s = DURATIONS_S[-1]
        fields["durations_s"] = [MANY_LEASES_S if one_s == longest_s else one_s for one_s in fields["durations_s"]]
    return replace(action, fields=fields)


def _with_retries(rng: random.Random, actions: list[Action]) -> list[Action]:
    """In half of all scenarios jobs whose tasks fail have retry policies. From a generator of its own, as above."""
    if rng.random() < 0.5:
        return actions
    return [_with_retry(action, rng.choice(RETRIES)) if action.fields else action for action in actions]


def _with_retry(action: Action, retry: RetryPolicy) -> Action:
    """The job, if it may have one."""
    fields = dict(action.fields)
    if fields["max_attempts"] == 1 or fields["retry_failed"] or fields["limits"].get("retry_failed"):
        return action
    if action.kind == "job":
        fields["limits"] = {**fields["limits"], "retry": retry}
    else:
        fields["stages"] = [{**stage, "retry": retry} for stage in fields["stages"]]
    return replace(action, fields=fields)


def _with_futures(rng: random.Random, actions: list[Action]) -> list[Action]:
    """In half of all scenarios tasks of some jobs ask for results of tasks of jobs of the same client, and of the
    job's own. From a generator of its own, as above."""
    if rng.random() < 0.5:
        return actions
    return [
        replace(action, fields={**action.fields, "awaits": [rng.randrange(1000) for _ in range(rng.randint(1, 4))]})
        if action.kind == "job" and rng.random() < 0.7
        else action
        for action in actions
    ]


def _with_waiting(rng: random.Random, setup: dict[str, Any]) -> None:
    """In half of all scenarios some tasks wait in the middle. From a generator of its own, as above."""
    if rng.random() < 0.5:
        return
    setup["waiting_share"] = rng.choice([0.1, 0.5, 1.0])
    setup["node"]["waiting_tasks_max"] = rng.choice([0, 1, 4, 256])


def _with_nested_jobs(rng: random.Random, setup: dict[str, Any]) -> None:
    """Some tasks submit tasks of their own. From a generator of its own, as above."""
    setup["nested_share"] = rng.choice([0.1, 0.3, 0.3, 0.8])
    setup["receipts"] = True  # As all clients say what they have received by now.
    setup["node"]["waiting_tasks_max"] = rng.choice([0, 1, 4, 256, 256, 256])
    setup["scheduler"]["nested_depth_max"] = rng.choice([1, 2, 64, 64])


def _with_detached_jobs(rng: random.Random, setup: dict[str, Any], actions: list[Action]) -> list[Action]:
    """In half of all scenarios clients let go of some jobs, and attach to some. From a generator of its own, as
    above."""
    if rng.random() < 0.5:
        return actions
    setup["receipts"] = True  # Else nothing is kept.
    setup["scheduler"]["detached_jobs_max"] = rng.choice([1, 100, 100])
    kinds = ["detach", "detach", "attach", "attach", "attach"]
    more = [
        Action(rng.uniform(0, HORIZON_S), rng.choice(kinds), rng.randrange(1000)) for _ in range(rng.randint(2, 20))
    ]
    late = [Action(HORIZON_S + rng.uniform(0.0, 5.0), "attach", rng.randrange(1000)) for _ in range(rng.randint(0, 8))]
    return [*actions, *more, *late]


def _setup(rng: random.Random) -> dict[str, Any]:
    pick = rng.choice
    latency = pick([(0.0005, 0.0005), (0.0001, 0.01), (0.001, 0.08)])
    return {
        "nodes": [rng.randint(1, 4) for _ in range(rng.randint(1, 5))],
        "schedulers": pick([1, 1, 2, 3]),
        "users": pick(USERS),
        "latency": latency,
        "split": pick([True, False]),
        "results_differ": pick([True, False]),
        "executor_start_s": pick([0.0, 0.02]),
        "executor_start_fails": pick([0.0, 0.0, 0.3]),
        "warm": pick([(), ("many", "pool")]),
        "frame_bytes_max": pick([1 << 20, 4096 + 60]),
        "heartbeat_s": pick([0.3, 2.0, 10.0]),
        "scheduler": {
            "probe_sharing": pick([True, False]),
            "cancellation": pick([True, True, False]),
            "order": pick(ORDERS),
            "overtaken_max": pick([0, 5, 10_000]),
            "probe_ratio_max": pick([0.0, 0.0, 6.0]),
            "unplaced_tasks_max": pick([20, 60, 1_000_000]),
            "held_bytes_max": pick([10_000, *[1 << 30] * 9]),
            "settling_s": pick([0.0, 0.0, 2.0]),
            "client_grace_s": pick([0.1, 10.0]),
            "claim_timeout_s": 1.0 if latency[1] > 0.01 else pick([0.2, 1.0]),
            "wait_for_nodes_s": pick([0.5, 300.0, 300.0]),
            "user_weight": pick([(), ("bert=2.5",)]),
            "user_priority": pick([(), ("anna=1",)]),
        },
        "node": {
            "reservations_per_user_max": pick([1, 5, 1_000_000]),
            "get_task_timeout_s": pick([1.0, 0.2]),  # The longest round trip is 0.16 s.
            "queue": pick(["fair", *QUEUE_POLICIES]),
            "report_idle": pick([True, True, False]),
        },
    }


def _job(rng: random.Random) -> Action:
    pick = rng.choice
    at_s = pick([0.0, rng.uniform(0.0, 0.1), rng.uniform(0.0, HORIZON_S)])
    if rng.random() < 0.4:
        return Action(at_s, "dag", rng.randrange(1000), _dag(rng))
    fields = {
        "durations_s": [pick(DURATIONS_S) for _ in range(pick([1, 2, 5, 12, 20]))],
        "app": pick(["many", "pool"]),
        "probe_ratio": pick([1.0, 1.1, 1.5, 2.0, 3.7]),
        "prefetch": pick([0, 0, 1, 8]),
        "max_attempts": pick([1, 2, 3]),
        "queue_timeout_s": pick([*[None] * 6, 0.02, 0.5]),
        "failures": pick([0, 0, 0, 1, 5]),
        "retry_failed": pick([True, False]),
        "report_placed": pick([True, False]),
        "avoid": pick([False, False, False, True]),
        "place": pick(PLACES),
        "limits": pick(LIMITS),
    }
    return Action(at_s, "job", rng.randrange(1000), fields)


def _dag(rng: random.Random) -> dict[str, Any]:
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
        "max_attempts": pick([1, 2, 3, 3]),
        "retry_failed": pick([True, False]),
        "avoid": pick([False, False, True]),
        "limits": pick(LIMITS),
    }


# ---- what users do ---------------------------------------------------------------------------


def act(world: World, action: Action) -> None:
    """The user does it, if there is anything to do it to."""
    if action.kind in ("job", "dag"):
        _submit(world, action)
        return
    logs = list(world.logs.values())
    if not logs:
        return
    log = logs[action.pick % len(logs)]
    what, _, running = action.kind.partition(" ")
    if what == "cancel-job":
        world.cancel(log, running=bool(running))
    elif what == "cancel-tasks":
        tasks = range(action.pick % 3, len(log.payloads), 1 + action.pick % 4)
        world.cancel_tasks(log, list(tasks), running=bool(running))
    elif what == "detach":
        world.detach(log, RETENTIONS_S[action.pick % len(RETENTIONS_S)])
    elif what == "attach":
        let_go = [one for one in logs if one.is_let_go]
        if let_go:
            world.attach(let_go[action.pick % len(let_go)], action.pick // 7 % len(world.clients))
    elif world.schedulers:
        scheduler = world.schedulers[action.pick % len(world.schedulers)]
        log.cancelled_at_s = world.now
        scheduler.event(partial(_operator_cancels, scheduler, log.id))


def _operator_cancels(scheduler: Any, job_id: str) -> None:
    scheduler.core.cancel_job(job_id, scheduler.now_s)


def _submit(world: World, action: Action) -> None:
    fields = dict(action.fields)
    place, limits, avoids = fields.pop("place", {}), dict(fields.pop("limits")), fields.pop("avoid")
    client = action.pick % len(world.clients)
    if not world.clients[client].alive:
        return
    before = [job_id for job_id, log in world.logs.items() if log.client is world.clients[client]]
    fields["avoid"] = [before[-1 - action.pick % len(before)]] if avoids and before else []
    fields["avoid_by"] = AVOID_BY[action.pick // 3 % len(AVOID_BY)] if fields["avoid"] else ""
    if action.kind == "job":
        picks = fields.pop("awaits", ())
        tasks = [TaskResult(job_id, task) for job_id in before for task in range(len(world.logs[job_id].payloads))]
        fields["awaits"] = list(dict.fromkeys(tasks[pick % len(tasks)] for pick in picks)) if tasks else []
        fields.update({**place, **limits})
        if fields.get("demand"):
            fields["prefetch"] = 0
        world.submit(client=client, **fields)
        return
    stages = []
    own = {name: limits.pop(name) for name in ("task_timeout_s", "lease_s") if name in limits}
    for number, stage in enumerate(fields.pop("stages")):
        after = [f"s{other}" for other in range(number) if stage["after"] >> other & 1]
        kept = {name: stage[name] for name in ("large", "ask", "app", "failures", "retry") if name in stage}
        stages.append((f"s{number}", after, stage["durations_s"], {**own, **kept, **stage["place"]}))
    if action.pick % 3 == 0:
        stages.reverse()  # They may come in any order.
    world.submit_stages(*stages, client=client, **{**fields, **limits})
