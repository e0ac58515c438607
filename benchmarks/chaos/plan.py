"""What a round is: drawn from a seed and the round's number before it begins, so that it can be played again.

The shape of the cluster, the jobs of each user, and the faults, each with its time since the round's beginning. Whom a
fault meets is named; of workers, which have no names, a number from 0 to 1 chooses.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import Any

import msgspec

from benchmarks.laboratory.faults import DEAD_AFTER, Fault, Kind
from benchmarks.laboratory.jobs import Cancel, Job, Stage, Task, Way
from benchmarks.laboratory.kinds import KINDS, ZONES, Draw
from benchmarks.laboratory.names import node, number_of, scheduler

GENERATOR = 6
"""To be raised with each change of what is drawn: a seed means something for one generator only."""
PLACEMENTS = ("sparrow", "batch", "per-task", "random")
CENTRAL = "central"
"""One more, which is played where it is asked for."""
QUEUES = ("fair", "priority", "fifo")
USERS = ("ada", "grace", "alan")
HEARTBEAT_S = 0.5
DEAD_AFTER_S = DEAD_AFTER * HEARTBEAT_S
"""A process that stands still for so long has been given up by its peers."""
CALM_HEARTBEAT_S = 10.0
"""Where nobody is to be given up, however busy the machine is."""
FAULTS_UNTIL_S = 2.5
SPAN_S = 1.2
"""Jobs are submitted in the first so many seconds."""


class Scene(StrEnum):
    """Kinds of rounds."""

    FAULTS = "faults"
    CALM = "calm"
    SHARES = "shares"
    NEWCOMER = "newcomer"


STORM = (
    *(Kind.KILL_ALL, Kind.KILL_PAIR, Kind.KILL_SCHEDULER, Kind.KILL_NODE, Kind.KILL_WORKER),
    *(Kind.STOP_SCHEDULER, Kind.STOP_NODE),
)
STORMS = 0.3
"""This share of the rounds with faults has a storm: only deaths and standstills, one soon after the other, of what is
back at once, and tasks that are long enough to meet several of them."""
STORM_GAP_S = 0.25
STORM_UNTIL_S = 3.5
DECK = {
    Kind.KILL_SCHEDULER: 4,
    Kind.KILL_NODE: 4,
    Kind.KILL_WORKER: 4,
    Kind.KILL_CLIENT: 2,
    Kind.KILL_PAIR: 2,
    Kind.KILL_ALL: 1,
    Kind.STOP_SCHEDULER: 3,
    Kind.STOP_NODE: 3,
    Kind.STOP_MACHINE: 2,
    Kind.STOP_WORKER: 2,
    Kind.STOP_CLIENT: 1,
    Kind.DRAIN_SCHEDULER: 2,
    Kind.DRAIN_NODE: 2,
    Kind.CLOCK: 3,
}
"""How often each kind is drawn."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A round. slots: of each node. users: their weights. first: the user whom `--queue priority` serves first.
    returning: users whose program is started again if it dies while it submits a job."""

    seed: int
    number: int
    scene: Scene
    placement: str
    queue: str
    schedulers: int
    slots: tuple[int, ...]
    users: dict[str, float]
    jobs: tuple[Job, ...]
    faults: tuple[Fault, ...]
    first: str = ""
    returning: tuple[str, ...] = ()

    @property
    def heartbeat_s(self) -> float:
        """Of all daemons and programs."""
        return HEARTBEAT_S if self.scene is Scene.FAULTS else CALM_HEARTBEAT_S


SCENES = (*[Scene.FAULTS] * 3, Scene.CALM, *[Scene.FAULTS] * 2, Scene.SHARES, *[Scene.FAULTS] * 2, Scene.NEWCOMER)
"""Of ten rounds."""


def zone_of(name: str) -> str:
    """The zone of a node."""
    return ZONES[number_of(name) % len(ZONES)]


def summary(round_: Plan) -> dict[str, Any]:
    """What is told of a plan where the whole of it would be too long."""
    said: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(round_))
    for job in said["jobs"]:
        job["tasks"] = [len(stage["tasks"]) for stage in job.pop("stages")]
    return said


def placement_of(number: int) -> str:
    """The placement of a round where all take turns, in every scene."""
    return PLACEMENTS[(number + number // len(SCENES)) % len(PLACEMENTS)]


def draw(seed: int, number: int, placement: str = "all") -> Plan:
    """The plan of a round."""
    rng = random.Random(f"chaos {seed} {number}")
    chosen = placement_of(number) if placement == "all" else placement
    scene = SCENES[number % len(SCENES)]
    if scene is Scene.SHARES:
        return _draw_shares(rng, seed, number, chosen)
    if scene is Scene.NEWCOMER:
        return _draw_newcomer(rng, seed, number, chosen)
    schedulers, nodes = rng.randint(1, 3), rng.randint(2, 5)
    slots = tuple(min(rng.randint(1, 4), 3 if nodes > 3 else 4) for _ in range(nodes))
    users = {name: rng.choice((1.0, 1.0, 2.0, 0.5)) for name in USERS[: rng.randint(1, 3)]}
    storm = scene is Scene.FAULTS and rng.random() < STORMS
    kinds = CALM_KINDS if scene is Scene.CALM else (list(KINDS)[number % len(KINDS)],)
    jobs = tuple(Draw(rng, sum(slots), storm=storm).batch(kinds, list(users), SPAN_S))
    drawn = _draw_faults(rng, schedulers, nodes, list(users), storm=storm)
    faults = tuple(drawn) if scene is Scene.FAULTS else ()
    returning = tuple(user for user in users if rng.random() < 0.5)
    return Plan(seed=seed, number=number, scene=scene, placement=chosen, queue=rng.choice(QUEUES),
                schedulers=schedulers, slots=slots, users=users, jobs=jobs, faults=faults,
                returning=returning)  # fmt: skip


CALM_KINDS = ("timed", "innocent")
"""Of the first jobs of rounds without faults: only where nothing else dies does it show that what is killed for one
task takes another with it."""


# ---- faults ----------------------------------------------------------------------------------


def _draw_faults(rng: random.Random, schedulers: int, nodes: int, users: list[str], *, storm: bool) -> Iterator[Fault]:
    """At random moments, more often together than chance alone would have it. What is out of order has no other fault.

    The first scheduler and the first two nodes, one of each zone, always come back.
    """
    out_until_s: dict[str, float] = {}
    until_s = STORM_UNTIL_S if storm else FAULTS_UNTIL_S
    count = round(until_s / STORM_GAP_S) if storm else rng.randint(2, 8)
    moments = [rng.uniform(0.05, until_s) for _ in range(count)]
    close = [second if rng.random() < 0.7 else first + 0.01 for first, second in pairwise(moments)]
    for at_s in sorted([moments[0], *close]):
        kind = rng.choice(STORM) if storm else rng.choices(list(DECK), list(DECK.values()))[0]
        targets = _targets(rng, kind, schedulers, nodes, users)
        lasts_s = _lasts_s(rng, kind) * (0.5 if storm and kind.startswith("kill-") else 1.0)
        if any(out_until_s.get(target, 0) > at_s for target in targets):
            continue
        back = rng.random() < 0.8 or any(target in (scheduler(0), node(0), node(1)) for target in targets)
        back = back or kind in (Kind.DRAIN_SCHEDULER, Kind.DRAIN_NODE)
        for target in targets:
            out_until_s[target] = at_s + lasts_s if back else float("inf")
        yield Fault(at_s=round(at_s, 3), kind=kind, targets=targets, lasts_s=round(lasts_s, 3), back=back,
                    pick=rng.random(), by_s=rng.choice((-86400.0, -3600.0, -1.0, 1.0, 3600.0, 86400.0)))  # fmt: skip


def _targets(rng: random.Random, kind: Kind, schedulers: int, nodes: int, users: list[str]) -> tuple[str, ...]:
    a_scheduler, a_node = scheduler(rng.randrange(schedulers)), node(rng.randrange(nodes))
    what = kind.rpartition("-")[2]
    if what == "pair":
        return a_scheduler, a_node
    if what == "all":
        return (*map(scheduler, range(schedulers)), *map(node, range(nodes)))
    if what == "client":
        return (rng.choice(users),)
    if kind is Kind.CLOCK:
        return (rng.choice((a_scheduler, a_node, rng.choice(users))),)
    return (a_scheduler,) if what == "scheduler" else (a_node,)


def _lasts_s(rng: random.Random, kind: Kind) -> float:
    """Short or long against the patience of its peers, where it stands still; else until it is started again."""
    if kind in (Kind.STOP_WORKER, Kind.STOP_CLIENT):
        return rng.uniform(0.05, 0.6)
    if kind.startswith("stop-"):
        return rng.choice((rng.uniform(0.05, 0.3), DEAD_AFTER_S * rng.uniform(1.1, 1.8)))
    return rng.choice((0.0, rng.uniform(0.0, 0.8)))


# ---- shares ----------------------------------------------------------------------------------

STREAM_TASK_S = 0.02
STREAM_S = 2.4
"""How long the users of a round of shares stream, if the machine is quick."""
STREAM_JOBS = 6
"""Of each user, so that all are at all schedulers."""
HOG_TASK_S = 0.04
HOG_S = 4.0
"""How long the user beside whom another comes would go on."""
NEWCOMER_AT_S = 0.8
NEWCOMER_WAITS_S = 1.6
"""Then what is left of the other's tasks is cancelled."""


def _stream(name: str, user: str, tasks: int, duration_s: float, **how: object) -> Job:
    stage = Stage(tasks=tuple([Task(duration_s=duration_s)] * tasks))
    return Job(name=name, user=user, way=Way.CALLS, at_s=0.0, stages=(stage,), **how)  # type: ignore[arg-type]


def _draw_shares(rng: random.Random, seed: int, number: int, placement: str) -> Plan:
    """Users who stream equal tasks over several schedulers, with and without prefetch. Of central ones there is one, as
    several promise no shares."""
    schedulers, slots = rng.randint(2, 3), tuple([2] * rng.randint(1, 3))
    if placement == CENTRAL:
        schedulers = 1
    weights = rng.choice(((1.0, 1.0), (2.0, 1.0), (1.0, 3.0), (1.0, 2.0, 1.0)))
    users = dict(zip(USERS, weights, strict=False))
    total = STREAM_S / STREAM_TASK_S * sum(slots) / sum(weights)
    jobs = []
    for user, weight in users.items():
        prefetch = rng.choice((0, 8, 64))
        for count in range(STREAM_JOBS):
            tasks = round(total * weight / STREAM_JOBS)
            jobs.append(_stream(f"stream-{user}-{count}", user, tasks, STREAM_TASK_S, prefetch=prefetch))
    return Plan(seed=seed, number=number, scene=Scene.SHARES, placement=placement, queue="fair",
                schedulers=schedulers, slots=slots, users=users, jobs=tuple(jobs), faults=())  # fmt: skip


def _draw_newcomer(rng: random.Random, seed: int, number: int, placement: str) -> Plan:
    """One user streams, and states or prefetches what it likes; another comes with one task."""
    queue = rng.choice(("fair", "fair", "priority"))
    slots = (rng.randint(1, 3),)
    prefetch, stated_s = rng.choice(((64, None), (256, None), (0, 1e5), (64, 1e5), (0, 0.0)))
    over = Cancel(after_s=NEWCOMER_AT_S + NEWCOMER_WAITS_S, running=False)
    hog = _stream("hog", USERS[0], round(HOG_S / HOG_TASK_S * slots[0]), HOG_TASK_S, prefetch=prefetch,
                  expected_duration_s=stated_s, cancel=over)  # fmt: skip
    newcomer = msgspec.structs.replace(
        _stream("newcomer", USERS[1], 1, HOG_TASK_S, prefetch=rng.choice((0, 8))), at_s=NEWCOMER_AT_S
    )
    return Plan(seed=seed, number=number, scene=Scene.NEWCOMER, placement=placement, queue=queue, schedulers=1,
                slots=slots, users={USERS[0]: 1.0, USERS[1]: 1.0}, jobs=(hog, newcomer), faults=(),
                first=USERS[1])  # fmt: skip
