"""What a round is: drawn from a seed and the round's number before it begins, so that it can be played again.

The shape of the cluster, the jobs of each user, and the faults, each with its time since the round's beginning. Whom a
fault meets is named; of workers, which have no names, a number from 0 to 1 chooses.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import pairwise
from typing import Any

import msgspec

GENERATOR = 5
"""To be raised with each change of what is drawn: a seed means something for one generator only."""
PLACEMENTS = ("sparrow", "batch", "per-task", "random")
QUEUES = ("fair", "priority", "fifo")
ZONES = ("a", "b")
USERS = ("ada", "grace", "alan")
GPUS = 1
"""Of each node: what tasks with a demand take one of."""
HEARTBEAT_S = 0.5
DEAD_AFTER_S = 1.5 * HEARTBEAT_S
"""A process that stands still for so long has been given up by its peers."""
CALM_HEARTBEAT_S = 10.0
"""Where nobody is to be given up, however busy the machine is."""
LARGE_BYTES = 150_000
"""Of a result that goes by reference."""
INPUT_BYTES = 1_100_000
"""Of an input that is uploaded first."""
PAD_BYTES = 120_000
PADDED_TASKS = 32
"""Of a job that travels in several messages, so that its client can die between two of them."""
HANGS_S = 60.0
"""A task that has to be stopped."""
TASK_TIMEOUT_S = 0.4
BUSY_S = 1.0
"""So long a job of many tasks has all slots busy, at most."""
MANY = 200
FAULTS_UNTIL_S = 2.5
SPAN_S = 1.2
"""Jobs are submitted in the first so many seconds."""


class Scene(StrEnum):
    """Kinds of rounds."""

    FAULTS = "faults"
    CALM = "calm"
    SHARES = "shares"
    NEWCOMER = "newcomer"


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task. fails: how many of its first starts fail. inputs: (stage, task), or (stage, -1) for all of a stage."""

    duration_s: float
    fails: int = 0
    result_bytes: int = 0
    inputs: tuple[tuple[str, int], ...] = ()
    preferred: tuple[str, ...] = ()


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """Tasks that may run in parallel, once the stages that are named have ended."""

    tasks: tuple[Task, ...]
    name: str = ""
    after: tuple[str, ...] = ()


class Cancel(msgspec.Struct, frozen=True, kw_only=True):
    """A cancellation. after_s: since the submission. tasks: none for the whole job."""

    after_s: float
    running: bool
    tasks: tuple[int, ...] = ()


class Way(StrEnum):
    """How a job is submitted."""

    CALLS = "calls"
    SUBMIT = "submit"
    MAP = "map"
    STAGES = "stages"
    COMMAND = "command"
    HTTP = "http"
    BUILT_IN = "built-in"


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. name: of its kind and unique in the round. The others are as in `CallOptions`.

    input_bytes: of each task's arguments. dies_after: its client dies when it has sent so many messages with tasks.
    """

    name: str
    user: str
    way: Way
    at_s: float
    stages: tuple[Stage, ...]
    max_attempts: int = 3
    prefetch: int = 0
    retry_failed: bool = False
    task_timeout_s: float | None = None
    expected_duration_s: float | None = None
    speculate: bool = False
    zone: str = ""
    gpu: bool = False
    delay_s: float | None = None
    capture_output: bool = False
    on_client_lost: str = "cancel"
    input_bytes: int = 0
    cancel: Cancel | None = None
    dies_after: int | None = None

    @property
    def tasks(self) -> list[Task]:
        """Of all stages, in their order."""
        return [task for stage in self.stages for task in stage.tasks]


class Kind(StrEnum):
    """Kinds of faults. `machine`: a node monitor with all its executors. `pair`: a scheduler and a node monitor.
    `all`: every scheduler and node monitor."""

    KILL_SCHEDULER = "kill-scheduler"
    KILL_NODE = "kill-node"
    KILL_WORKER = "kill-worker"
    KILL_CLIENT = "kill-client"
    KILL_PAIR = "kill-pair"
    KILL_ALL = "kill-all"
    STOP_SCHEDULER = "stop-scheduler"
    STOP_NODE = "stop-node"
    STOP_MACHINE = "stop-machine"
    STOP_WORKER = "stop-worker"
    STOP_CLIENT = "stop-client"
    DRAIN_SCHEDULER = "drain-scheduler"
    DRAIN_NODE = "drain-node"
    CLOCK = "clock"


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


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that fails. lasts_s: until it is mended. back: whether what was killed is started again.

    pick: which worker, from 0 to 1. by_s: of a clock, how far it jumps.
    """

    at_s: float
    kind: Kind
    targets: tuple[str, ...]
    lasts_s: float = 0.0
    back: bool = True
    pick: float = 0.0
    by_s: float = 0.0


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


def scheduler(number: int) -> str:
    """The name of a scheduler."""
    return f"scheduler-{number}"


def node(number: int) -> str:
    """The name of a node."""
    return f"node-{number}"


def zone_of(name: str) -> str:
    """The zone of a node."""
    return ZONES[int(name.rpartition("-")[2]) % len(ZONES)]


SCENES = (*[Scene.FAULTS] * 3, Scene.CALM, *[Scene.FAULTS] * 2, Scene.SHARES, *[Scene.FAULTS] * 2, Scene.NEWCOMER)
"""Of ten rounds."""


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
    jobs = tuple(_Draw(rng, users, sum(slots), storm=storm).jobs(kinds))
    drawn = _draw_faults(rng, schedulers, nodes, list(users), storm=storm)
    faults = tuple(drawn) if scene is Scene.FAULTS else ()
    returning = tuple(user for user in users if rng.random() < 0.5)
    return Plan(seed=seed, number=number, scene=scene, placement=chosen, queue=rng.choice(QUEUES),
                schedulers=schedulers, slots=slots, users=users, jobs=jobs, faults=faults,
                returning=returning)  # fmt: skip


# ---- jobs ------------------------------------------------------------------------------------


class _Draw:
    """Draws the jobs of a round."""

    def __init__(self, rng: random.Random, users: dict[str, float], slots: int, *, storm: bool) -> None:
        self._rng = rng
        self._storm = storm
        self._users = list(users)
        self._slots = slots

    def jobs(self, kinds: Sequence[str]) -> Iterator[Job]:
        """The first of these kinds, the others of any."""
        for count in range(self._rng.randint(2, 5)):
            kind = kinds[count] if count < len(kinds) else self._rng.choice(list(KINDS))
            job = KINDS[kind](self)
            yield msgspec.structs.replace(
                job,
                name=f"{kind}-{count}",
                user=self._rng.choice(self._users),
                at_s=round(self._rng.uniform(0, SPAN_S), 3),
            )

    def _job(self, stages: tuple[Stage, ...], way: Way = Way.CALLS, **how: object) -> Job:
        rng = self._rng
        options: dict[str, object] = {
            "max_attempts": rng.choice((1, 2, 2, 3)),
            "prefetch": rng.choice((0, 0, 8, 64)),
            "on_client_lost": rng.choice(("cancel", "finish")),
        }
        return Job(name="", user="", way=way, at_s=0.0, stages=stages, **(options | how))  # type: ignore[arg-type]

    def _many(self, **how: object) -> tuple[Task, ...]:
        """As many as keep all slots busy for a while, so that faults meet tasks that run and tasks that wait."""
        longest_s = self._rng.choice((0.2, 0.6) if self._storm else (0.01, 0.05, 0.2))
        count = round(self._slots * self._rng.uniform(0.2, BUSY_S) / (longest_s / 2))
        return self._tasks(min(count, MANY), min(count, MANY), longest_s, **how)

    def _tasks(self, least: int, most: int, longest_s: float = 0.1, **how: object) -> tuple[Task, ...]:
        count = self._rng.randint(least, most)
        return tuple(self._task(self._rng.uniform(0, longest_s), **how) for _ in range(count))

    @staticmethod
    def _task(duration_s: float, **how: object) -> Task:
        return Task(duration_s=round(duration_s, 4), **how)  # type: ignore[arg-type]

    def flat(self) -> Job:
        """A batch."""
        return self._job((Stage(tasks=self._many()),))

    def captured(self) -> Job:
        """What tasks print comes back."""
        return self._job((Stage(tasks=self._tasks(5, 30)),), capture_output=True)

    def single(self) -> Job:
        """Calls one by one."""
        return self._job((Stage(tasks=self._tasks(5, 60)),), Way.SUBMIT)

    def mapped(self) -> Job:
        """`map`."""
        return self._job((Stage(tasks=self._many()),), Way.MAP)

    def dag(self) -> Job:
        """Stages that come after random others, and take some of their results."""
        rng = self._rng
        sizes: dict[str, int] = {}
        stages = []
        for number in range(rng.randint(2, 5)):
            before = rng.sample(sorted(sizes), rng.randint(1, min(2, len(sizes)))) if sizes and number else []
            tasks = []
            for _ in range(rng.randint(1, 8)):
                inputs = tuple((name, rng.choice((-1, rng.randrange(sizes[name])))) for name in before)
                large = LARGE_BYTES if rng.random() < 0.15 else 0
                inputs = inputs if rng.random() < 0.8 else ()
                tasks.append(
                    self._task(rng.uniform(0, 0.3 if self._storm else 0.05), inputs=inputs, result_bytes=large)
                )
            name = f"s{number}"
            stages.append(Stage(name=name, after=tuple(before), tasks=tuple(tasks)))
            sizes[name] = len(tasks)
        return self._job(tuple(stages), Way.STAGES)

    def large_results(self) -> Job:
        """Results by reference."""
        return self._job((Stage(tasks=self._tasks(3, 10, result_bytes=LARGE_BYTES)),))

    def large_stages(self) -> Job:
        """Results by reference that a later stage needs."""
        first = Stage(name="make", tasks=self._tasks(3, 6, result_bytes=LARGE_BYTES))
        inputs = [("make", task) for task in range(len(first.tasks))]
        second = Stage(name="use", after=("make",), tasks=tuple(self._task(0.03, inputs=(one,)) for one in inputs))
        third = Stage(name="all", after=("use",), tasks=(self._task(0.01, inputs=(("use", -1), ("make", -1))),))
        if self._rng.random() < 0.5:
            return self._job((first, second), Way.STAGES)
        return self._job((first, second, msgspec.structs.replace(third, after=("use", "make"))), Way.STAGES)

    def large_inputs(self) -> Job:
        """Arguments that are uploaded first."""
        return self._job((Stage(tasks=self._tasks(2, 5)),), input_bytes=INPUT_BYTES)

    def flaky(self) -> Job:
        """Tasks that fail, and are started again."""
        attempts = self._rng.choice((2, 3))
        counts = [self._rng.choice((0, 0, 1, 2, 3)) for _ in range(self._rng.randint(4, 20))]
        tasks = tuple(self._task(0.01, fails=fails) for fails in counts)
        return self._job((Stage(tasks=tasks),), retry_failed=True, max_attempts=attempts)

    def failing(self) -> Job:
        """Tasks that fail, and are not started again."""
        tasks = tuple(self._task(0.01, fails=self._rng.choice((0, 0, 1))) for _ in range(self._rng.randint(4, 20)))
        return self._job((Stage(tasks=tasks),))

    def timed(self) -> Job:
        """Some tasks have to be stopped."""
        durations_s = [HANGS_S if self._rng.random() < 0.3 else 0.02 for _ in range(self._rng.randint(3, 8))]
        tasks = tuple(self._task(duration_s) for duration_s in durations_s)
        return self._job((Stage(tasks=tasks),), task_timeout_s=TASK_TIMEOUT_S, max_attempts=self._rng.choice((1, 2)))

    def innocent(self) -> Job:
        """Short tasks that must not be started twice: they meet whatever else is being killed."""
        return self._job((Stage(tasks=self._many()),), max_attempts=1, prefetch=self._rng.choice((0, 64)))

    def slow(self) -> Job:
        """The slowest are submitted again."""
        tasks = (*[self._task(0.03)] * 8, self._task(1.0))
        attempts = self._rng.choice((2, 3))
        return self._job((Stage(tasks=tasks),), speculate=True, prefetch=0, max_attempts=attempts)

    def cancelled(self) -> Job:
        """Cancelled in the middle, as a whole or in part."""
        count = self._rng.randint(20, 60)
        chosen = tuple(sorted(self._rng.sample(range(count), count // 2))) if self._rng.random() < 0.5 else ()
        cancel = Cancel(after_s=round(self._rng.uniform(0, 0.6), 3), running=self._rng.random() < 0.5, tasks=chosen)
        return self._job((Stage(tasks=tuple([self._task(0.1)] * count)),), cancel=cancel)

    def preferring(self) -> Job:
        """Tasks that prefer nodes, for ever or for a while."""
        tasks = tuple(
            self._task(0.02, preferred=(node(self._rng.randrange(2)),) if self._rng.random() < 0.6 else ())
            for _ in range(self._rng.randint(4, 20))
        )
        delay_s = self._rng.choice((None, 0.3))
        return self._job((Stage(name="near", tasks=tasks),), Way.STAGES, delay_s=delay_s)

    def zoned(self) -> Job:
        """Tasks that run on nodes with an attribute."""
        return self._job((Stage(tasks=self._many()),), zone=self._rng.choice(ZONES))

    def demanding(self) -> Job:
        """Tasks that take a resource of their node."""
        return self._job((Stage(tasks=self._tasks(5, 15)),), gpu=True, prefetch=0)

    def commands(self) -> Job:
        """Commands."""
        return self._job((Stage(tasks=self._tasks(5, 40, 0.2)),), Way.COMMAND)

    def over_http(self) -> Job:
        """Commands, as curl would submit them."""
        return self._job((Stage(tasks=self._tasks(3, 15)),), Way.HTTP)

    def built_in(self) -> Job:
        """Sleeps that a node monitor does by itself; nobody writes down their starts."""
        return self._job((Stage(tasks=self._many()),), Way.BUILT_IN)

    def interrupted(self) -> Job:
        """Its client dies in the middle of the submission."""
        tasks = tuple([self._task(0.01)] * PADDED_TASKS)
        return self._job((Stage(tasks=tasks),), input_bytes=PAD_BYTES, dies_after=self._rng.choice((0, 1, 2)))


KINDS = {
    "flat": _Draw.flat,
    "timed": _Draw.timed,
    "dag": _Draw.dag,
    "cancelled": _Draw.cancelled,
    "innocent": _Draw.innocent,
    "commands": _Draw.commands,
    "large-stages": _Draw.large_stages,
    "interrupted": _Draw.interrupted,
    "flaky": _Draw.flaky,
    "slow": _Draw.slow,
    "over-http": _Draw.over_http,
    "mapped": _Draw.mapped,
    "large-results": _Draw.large_results,
    "preferring": _Draw.preferring,
    "large-inputs": _Draw.large_inputs,
    "captured": _Draw.captured,
    "demanding": _Draw.demanding,
    "failing": _Draw.failing,
    "single": _Draw.single,
    "zoned": _Draw.zoned,
    "built-in": _Draw.built_in,
}
"""Kinds of jobs. That of a round's first job takes turns, so that a short run meets most of them."""
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
    """Users who stream equal tasks over several schedulers, with and without prefetch."""
    schedulers, slots = rng.randint(2, 3), tuple([2] * rng.randint(1, 3))
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
