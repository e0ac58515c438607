"""Faults: what goes wrong when, drawn at random from a seed or given.

A fault names its kind, its time, and by `pick` the one of those there are then that it befalls. All that a fault does
ends by itself: partitions heal, hosts come back, stalls are over. So whatever schedule is played, a cluster comes to
rest with everything connected.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from simulator.soak.fallible_hosts import NodeHost
from simulator.soak.links import Link
from simulator.soak.world import World
from sparrow_py.errors import InvalidOption
from sparrow_py.wire import messages as m

CLOCK_RATES = (0.98, 1.02)
"""Of clocks that differ: far worse than those of real machines, so that it shows in short runs."""
CLOCK_OFFSET_MAX_S = 5000.0
DUPLICATES_MAX = 8
"""Frames of a link that are delivered twice by one fault, at most."""
SLOWNESS_MAX = 20


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. at_s: seconds after the schedule begins. pick: chooses what it befalls. lasts_s: until it is over, or
    until what died comes back. how: chooses between variants of the kind."""

    at_s: float
    kind: str
    pick: int
    lasts_s: float
    how: int = 0


def draw(rng: random.Random, kinds: Sequence[str], count: int, horizon_s: float) -> list[Fault]:
    """So many faults of these kinds within the horizon, in order of time."""
    if not kinds:
        return []
    faults = [
        Fault(
            rng.uniform(0.0, horizon_s), rng.choice(list(kinds)), rng.randrange(1 << 16),
            rng.choice([0.01, 0.05, 0.3, 1.0, 3.0]) * rng.uniform(0.5, 1.5), rng.randrange(1 << 16),
        )
        for _ in range(count)
    ]  # fmt: skip
    return sorted(faults, key=lambda fault: fault.at_s)


def parse_kinds(texts: Iterable[str]) -> tuple[str, ...]:
    """Kinds of faults, by name, with commas or without; `InvalidOption` for one that there is not."""
    names = [name for text in texts for name in text.split(",") if name]
    for name in names:
        if name not in KINDS and name != "none":
            raise InvalidOption("faults", name, f"none, {', '.join(KINDS)}")
    return tuple(kind for kind in KINDS if kind in names)


def inject(world: World, fault: Fault) -> str:
    """Let it happen now; returns what it befell, empty if there is nothing that it could befall."""
    befell = KINDS[fault.kind](world, fault)
    if befell:
        world.counts[fault.kind] += 1
        world.faults.append((world.now, fault.kind, befell, fault.lasts_s))
    return befell


# ---- the kinds: each returns what it befell --------------------------------------------------


def _pick(things: Sequence[Any], fault: Fault) -> Any:
    return things[fault.pick % len(things)] if things else None


def _link(world: World, fault: Fault) -> Link | None:
    link = _pick(world.links(), fault)
    return link if isinstance(link, Link) else None


def _cut(world: World, fault: Fault) -> str:
    """A connection is reset: what is under way is lost, and both sides see it."""
    link = _link(world, fault)
    if link is None:
        return ""
    world.drop_link(link, min(fault.lasts_s, 0.5))
    return link.name


def _loss(world: World, fault: Fault) -> str:
    """A frame is lost, and so all after it: one way or both; each side finds that out by its heartbeat."""
    link = _link(world, fault)
    if link is None:
        return ""
    forwards, backwards = fault.how % 3 != 0, fault.how % 3 != 1
    world.lose_frames(link, forwards=forwards, backwards=backwards)
    return f"{link.name}{', to the scheduler' if forwards else ''}{', from it' if backwards else ''}"


def _duplication(world: World, fault: Fault) -> str:
    """The next frames of a link are delivered twice."""
    link = _link(world, fault)
    if link is None:
        return ""
    link.pipes[fault.how % 2].duplicates += 1 + fault.how // 2 % DUPLICATES_MAX
    return f"{link.name}, {('to', 'from')[fault.how % 2]} the scheduler"


def _delay(world: World, fault: Fault) -> str:
    """What is sent over a link arrives late, but before a heartbeat ends it."""
    link = _link(world, fault)
    if link is None:
        return ""
    world.stall(link, min(fault.lasts_s, 0.5 * world.heartbeat_s))
    return link.name


def _partition(world: World, fault: Fault) -> str:
    """Some hosts and the others cannot reach each other."""
    names = sorted({host.name for host in world.hosts()})
    group = random.Random(fault.pick).sample(names, 1 + fault.how % max(1, len(names) // 2))
    world.part(group, fault.lasts_s, vanishing=fault.how // 64 % 2 == 1)
    return " ".join(group)


def _death(fault: Fault) -> dict[str, Any]:
    """How a process dies: what it has sent may arrive, and its peers may only learn of it by their heartbeats."""
    return {"back_after_s": fault.lasts_s, "flushed": fault.how % 2 == 1, "silent": fault.how // 2 % 4 == 0}


def _node_crash(world: World, fault: Fault) -> str:
    node = _pick(world.nodes, fault)
    if node is None:
        return ""
    world.crash_node(node, **_death(fault))
    return str(node.name)


def _scheduler_crash(world: World, fault: Fault) -> str:
    scheduler = _pick(world.schedulers, fault)
    if scheduler is None:
        return ""
    world.crash_scheduler(scheduler, **_death(fault))
    return str(scheduler.name)


def _scheduler_stop(world: World, fault: Fault) -> str:
    """It drains, hands over what it still has after that, and ends."""
    scheduler = _pick([scheduler for scheduler in world.schedulers if not scheduler.core.draining], fault)
    if scheduler is None:
        return ""
    world.stop_scheduler(scheduler, fault.lasts_s * (fault.how % 5) / 4, fault.lasts_s)
    return str(scheduler.name)


def _client_crash(world: World, fault: Fault) -> str:
    client = _pick([client for client in world.clients if client.alive], fault)
    if client is None:
        return ""
    world.kill_client(client, **_death(fault))
    return str(client.name)


def _executor_crash(world: World, fault: Fault) -> str:
    executors = [executor for node in world.nodes for executor in node.executors.values() if executor.alive]
    executor = _pick(executors, fault)
    if executor is None:
        return ""
    world.kill_executor(executor, min(fault.lasts_s, 0.5))
    return f"{executor.id} of {executor.node.name}"


def _slow_node(world: World, fault: Fault) -> str:
    """Tasks that start on a node take several times longer for a while."""
    node = _pick(world.nodes, fault)
    if node is None:
        return ""
    node.slowness = 2.0 + fault.how % (SLOWNESS_MAX - 1)
    world.at(world.now + fault.lasts_s, partial(setattr, node, "slowness", 1.0))
    return str(node.name)


def _stall(world: World, fault: Fault) -> str:
    """A process does nothing for a while, and then everything."""
    host = _pick(world.hosts(), fault)
    if host is None:
        return ""
    world.stall_host(host, fault.lasts_s)
    return str(host.name)


def _clock(world: World, fault: Fault) -> str:
    """A host's clock leaps ahead, as that of a virtual machine that was suspended, and then runs at another rate."""
    host = _pick(world.hosts(), fault)
    if host is None:
        return ""
    low, high = CLOCK_RATES
    world.clock_leaps(host, fault.lasts_s, low + (high - low) * (fault.how % 101) / 100)
    return str(host.name)


def _state(world: World, fault: Fault, state: str) -> str:
    node = _pick([node for node in world.nodes if not node.leaving], fault)
    if node is None:
        return ""
    world.set_state(node, state)
    world.at(world.now + fault.lasts_s, partial(_ready, world, node))
    return str(node.name)


def _ready(world: World, node: NodeHost) -> None:
    if node.alive and not node.leaving:
        world.set_state(node, m.READY)


def _cordon(world: World, fault: Fault) -> str:
    return _state(world, fault, m.CORDONED)


def _drain(world: World, fault: Fault) -> str:
    """A node is drained, and takes part again later; or its process ends when it is idle, and another comes."""
    if fault.how % 2:
        return _state(world, fault, m.DRAINING)
    node = _pick([node for node in world.nodes if not node.leaving], fault)
    if node is None:
        return ""
    world.drain_node(node, fault.lasts_s)
    return f"{node.name}, whose process ends"


KINDS: dict[str, Callable[[World, Fault], str]] = {
    "cut": _cut,
    "loss": _loss,
    "duplication": _duplication,
    "delay": _delay,
    "partition": _partition,
    "node-crash": _node_crash,
    "executor-crash": _executor_crash,
    "scheduler-crash": _scheduler_crash,
    "client-crash": _client_crash,
    "slow-node": _slow_node,
    "stall": _stall,
    "clock": _clock,
    "cordon": _cordon,
    "drain": _drain,
    "scheduler-stop": _scheduler_stop,
}
