"""What a soak is: the shape of its cluster, the load, and what fails when, drawn from a seed before it begins.

Of the node monitors every `EVERY`th has Python workers, and every `EVERY`th can run commands; the others have the
built-in apps alone, so that fifty of them fit one machine. Kinds of faults come as cards of a shuffled deck, so that
each comes up about as often as it is in the deck even in a short run. *Veterans* are spared from dying once they have
been upgraded, so that their memory can be judged.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from benchmarks.laboratory.cluster import Shape
from benchmarks.laboratory.faults import DEAD_AFTER, Fault, Kind
from benchmarks.laboratory.names import node, scheduler
from benchmarks.laboratory.program import Order

DECK = {
    Kind.KILL_NODE: 4,
    Kind.KILL_WORKER: 3,
    Kind.KILL_CLIENT: 1,
    Kind.KILL_SCHEDULER: 1,
    Kind.MOVE_SCHEDULER: 1,
    Kind.STOP_MACHINE: 3,
    Kind.STOP_WORKER: 2,
    Kind.STOP_SCHEDULER: 2,
    Kind.STALL_WIRE: 3,
    Kind.DROP_WIRE: 2,
    Kind.ISOLATE_NODE: 1,
    Kind.ISOLATE_SCHEDULER: 1,
    Kind.ISOLATE_CLIENT: 1,
    Kind.CORDON_NODE: 1,
}
"""Kinds of faults, and how many of each are in the deck."""
BRIEFLY = (Kind.STOP_MACHINE, Kind.STOP_SCHEDULER, Kind.STALL_WIRE)
"""They last for less than the heartbeat's patience as often as for more."""
FIRST_UPGRADE = 0.05
SECOND_UPGRADE = 0.6
"""Shares of the time after which rolling upgrades begin: the first of all, the second without veterans."""
JOBS = {
    **{"built-in": 30, "no-op": 12, "flat": 12, "innocent": 8, "commands": 8, "large-results": 6, "slow": 5},
    **{"cancelled": 5, "dag": 4, "flaky": 4, "medium-results": 4, "large-inputs": 3, "large-stages": 3, "single": 3},
    **{"mapped": 3, "captured": 3, "timed": 2, "failing": 1},
}
"""Kinds of jobs, and how many of all."""
JOBS_AT_ONCE = 3
"""Of a client."""
JOB_SLOTS = 2
"""Jobs are as large as if the cluster had so many: there are many of them at a time."""
SLOTS = 2
EVERY = 6
USERS = ("ada", "grace", "alan")
WEIGHTS = ("--user-weight", "ada=2", "--user-weight", "grace=0.5")
"""The third user has the weight 1."""
VETERAN_NODES = (0, 1, 2, 3)
"""Two with Python workers or commands, two with the built-in apps."""


@dataclass(frozen=True)
class Size:
    """How many of what. retention_s: of large data that nobody needs. veterans: whether there are any."""

    schedulers: int
    nodes: int
    clients: int
    heartbeat_s: float
    retention_s: float
    veterans: bool


def zone(number: int) -> str:
    """What the node monitor of this number runs besides the built-in apps."""
    return {0: "python", EVERY // 2: "command"}.get(number % EVERY, "builtin")


def client(number: int) -> str:
    """The name of a client."""
    return f"client-{number}"


def veterans(size: Size) -> set[str]:
    """Their names: a scheduler, some node monitors, a client."""
    return {scheduler(0), client(0), *map(node, VETERAN_NODES)} if size.veterans else set()


def shape(size: Size, seed: int) -> Shape:
    """The cluster."""
    blobs = ("--blob-retention-s", str(size.retention_s), "--blob-lease-s", "5")
    drain = ("--drain-timeout-s", "20")
    flags = {node(number): _node_flags(number) for number in range(size.nodes)}
    programs = {
        client(number): Order(
            user=USERS[number % len(USERS)], lanes=JOBS_AT_ONCE, weights=JOBS, seed=f"{seed} {number}",
            slots=JOB_SLOTS, zoned=True, submit_timeout_s=120.0,
        )
        for number in range(size.clients)
    }  # fmt: skip
    return Shape(
        schedulers=size.schedulers, slots=(SLOTS,) * size.nodes, heartbeat_s=size.heartbeat_s, programs=programs,
        scheduler_flags=(*drain, *WEIGHTS), node_flags=(*drain, *blobs), flags=flags,
    )  # fmt: skip


def _node_flags(number: int) -> tuple[str, ...]:
    warm = "python" if zone(number) == "python" else "noop"
    flags = ("--attr", f"zone={zone(number)}", "--attr", f"name={node(number)}", "--warm", warm)
    return (*flags, "--enable-command") if zone(number) == "command" else flags


# ---- faults ----------------------------------------------------------------------------------


def draw(seed: int, seconds: float, gap_s: float, size: Size) -> list[Fault]:
    """The faults of so many seconds, one each `gap_s` on average, and the upgrades."""
    return [*_drawn(random.Random(f"soak {seed}"), seconds, gap_s, size), *_upgrades(seconds, size)]


def _drawn(rng: random.Random, seconds: float, gap_s: float, size: Size) -> Iterator[Fault]:
    out_until_s: dict[str, float] = {}
    deck: list[Kind] = []
    at_s = gap_s * rng.random()
    while at_s < seconds:
        if not deck:
            deck = [kind for kind, count in DECK.items() for _ in range(count)]
            rng.shuffle(deck)
        kind = deck.pop()
        lasts_s = _lasts_s(rng, kind, size.heartbeat_s)
        free = [name for name in _targets(kind, size) if out_until_s.get(name, 0.0) < at_s]
        if free:
            target = rng.choice(free)
            out_until_s[target] = at_s + lasts_s
            yield Fault(at_s=at_s, kind=kind, targets=(target,), lasts_s=lasts_s, pick=rng.random())
        at_s += gap_s * (0.5 + rng.random())


def _targets(kind: Kind, size: Size) -> list[str]:
    if kind.endswith("scheduler"):
        return [scheduler(number) for number in range(size.schedulers)]
    if kind.endswith("client"):
        return [client(number) for number in range(size.clients)]
    with_workers = kind in (Kind.KILL_WORKER, Kind.STOP_WORKER)
    return [node(number) for number in range(size.nodes) if not with_workers or zone(number) != "builtin"]


def _lasts_s(rng: random.Random, kind: Kind, heartbeat_s: float) -> float:
    if kind in BRIEFLY and rng.random() < 0.6:
        return heartbeat_s * rng.uniform(0.1, 0.5)
    if kind.startswith(("stop-", "stall-", "isolate-")):
        return DEAD_AFTER * heartbeat_s * rng.uniform(1.2, 2.0)
    return rng.uniform(0.0, heartbeat_s)


def _upgrades(seconds: float, size: Size) -> Iterator[Fault]:
    daemons = [*map(scheduler, range(size.schedulers)), *map(node, range(size.nodes))]
    spared = veterans(size)
    everybody = (*sorted(spared & set(daemons)), *(name for name in daemons if name not in spared))
    yield Fault(at_s=FIRST_UPGRADE * seconds, kind=Kind.UPGRADE, targets=everybody)
    if spared:
        others = tuple(name for name in daemons if name not in spared)
        yield Fault(at_s=SECOND_UPGRADE * seconds, kind=Kind.UPGRADE, targets=others)
