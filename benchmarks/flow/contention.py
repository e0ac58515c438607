"""Figure 6.7, modelled: what contention for machines' links makes of short tasks that read much.

40 machines, each with a link of 10 Gbit/s in and one out; inside the network there is room for all. Tasks of jobs read
4 to 8 GB each over the network, from machines that hold parts of their input, and do nothing else. Fourteen clients
send 4 Gbit/s each to seven servers, for ever, in a higher service class: they take their part of a link first. What is
left of the links the tasks' transfers share max-min fairly (`simulator.fluid`).

Tasks are placed by the flow network under the network-aware policy, in a round at each arrival and completion; by
sampling, as Sparrow does: two machines are probed for each task, and the first with a free slot has it; and by load
spreading: to a machine with the fewest tasks, each client and server counting as one, as do ten quiet services on
other machines. Where inputs lie and when tasks come is the same for all. `python -m benchmarks.flow.contention` prints
response times.
"""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

import click
import numpy as np

from benchmarks.flow.outcome import Figure, Outcome, Scale, at_least
from benchmarks.report import Report, Row, command, progress
from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork
from scheduler.flow.policies.network_aware import NetworkAware
from scheduler.flow.policies.policy import Machine, Task
from scheduler.flow.profiles import NET, Profiles
from simulator.fluid import Fluid, Link

GIGABIT = 125_000_000
GIGABYTE = 1_000_000_000
STAGE = "user", "app", "reads"
ALONE, FLOW, SAMPLING, SPREADING = "alone", "network-aware flow", "sampling", "load spreading"


@dataclass(frozen=True, slots=True)
class Setting:
    """What is simulated."""

    machines: int = 40
    slots: int = 12
    """More than are ever used, but for machines whose links are full."""
    link: float = 10.0 * GIGABIT
    input_min: float = 4.0 * GIGABYTE
    input_max: float = 8.0 * GIGABYTE
    request: float = 4.0 * GIGABIT
    """What tasks demand of a link; they take what they can get, which the knowledge base learns as they end."""
    sources: int = 8
    """Machines that a task reads from at once, equal parts."""
    replicas: int = 3
    """Of each part; the reader takes the one on the link that has least to do."""
    clients: int = 14
    servers: int = 7
    client_rate: float = 4.0 * GIGABIT
    quiet_services: int = 10
    """Three web servers and seven clients of theirs: tasks that machines have, and hardly any traffic."""
    utilisation: float = 0.6
    """Of all links into machines together, by tasks and background."""
    tasks: int = 2_000
    told_every_s: float = 0.5
    """How often machines tell what they measure."""

    @property
    def rate(self) -> float:
        """Tasks a second that come."""
        wanted = self.utilisation * self.machines * self.link - self.clients * self.client_rate
        return wanted / ((self.input_min + self.input_max) / 2)

    def background(self) -> list[tuple[float, Sequence[Link]]]:
        """What clients send to servers: the first machines are servers, the next ones clients."""
        if not self.clients:
            return []
        pairs = [(self.servers + client, client % self.servers) for client in range(self.clients)]
        return [(self.client_rate, (("out", client), ("in", server))) for client, server in pairs]

    def services(self, machine: int) -> int:
        """Tasks of the background that a machine has."""
        return int(bool(self.clients) and machine < self.servers + self.clients + self.quiet_services)


@dataclass(frozen=True, slots=True)
class Reader:
    """A task."""

    number: int
    arrives_s: float
    size: float
    replicas: Sequence[Sequence[int]]
    """By part: machines that hold it."""


def readers(setting: Setting, seed: int) -> list[Reader]:
    """The tasks, in order of arrival."""
    chance, found, now_s = random.Random(f"{seed} contention"), [], 0.0
    for number in range(setting.tasks):
        now_s += chance.expovariate(setting.rate)
        size = chance.uniform(setting.input_min, setting.input_max)
        holders = [chance.sample(range(setting.machines), setting.replicas) for _ in range(setting.sources)]
        found.append(Reader(number, now_s, size, holders))
    return found


@dataclass
class State:
    """The cluster as placements see it."""

    setting: Setting
    fluid: Fluid
    chance: random.Random
    running: list[int]
    """By machine: tasks that read there."""
    place: dict[int, int] = field(default_factory=dict)
    """By task."""

    def free(self, machine: int) -> bool:
        """Whether a slot is."""
        return self.running[machine] < self.setting.slots


class Placement:
    """A way to place tasks: told what comes and ends, it says what starts where."""

    def __init__(self, state: State) -> None:
        self.state = state

    def come(self, reader: Reader) -> None:
        """It waits now."""
        raise NotImplementedError

    def end(self, reader: Reader, machine: int) -> None:
        """It has ended; the state knows already."""

    def starts(self) -> list[tuple[Reader, int]]:
        """Those that start now."""
        raise NotImplementedError


class Sampling(Placement):
    """Two probes for each task; late binding: the first machine of both with a free slot."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.queues: list[deque[Reader]] = [deque() for _ in state.running]

    def come(self, reader: Reader) -> None:
        """Reservations at two machines."""
        for machine in self.state.chance.sample(range(len(self.queues)), 2):
            self.queues[machine].append(reader)

    def starts(self) -> list[tuple[Reader, int]]:
        """Each machine with a free slot takes the first of its queue that has not started elsewhere."""
        found: list[tuple[Reader, int]] = []
        taken = set(self.state.place)
        room = [self.state.setting.slots - count for count in self.state.running]
        order = self.state.chance.sample(range(len(room)), len(room))
        for machine in order:
            queue = self.queues[machine]
            while queue and (queue[0].number in taken or room[machine] > 0):
                reader = queue.popleft()
                if reader.number not in taken:
                    taken.add(reader.number)
                    room[machine] -= 1
                    found.append((reader, machine))
        return found


class Spreading(Placement):
    """To a machine that has the fewest tasks, those of the background included."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.queue: deque[Reader] = deque()

    def come(self, reader: Reader) -> None:
        """In order of arrival."""
        self.queue.append(reader)

    def starts(self) -> list[tuple[Reader, int]]:
        """One after the other."""
        state, found = self.state, []
        counts = [count + state.setting.services(machine) for machine, count in enumerate(state.running)]
        room = [state.setting.slots - count for count in state.running]
        while self.queue and any(left > 0 for left in room):
            fewest = min(count for count, left in zip(counts, room, strict=True) if left > 0)
            best = [number for number, count in enumerate(counts) if count == fewest and room[number] > 0]
            machine = state.chance.choice(best)
            found.append((self.queue.popleft(), machine))
            counts[machine] += 1
            room[machine] -= 1
        return found


class NetworkAwareFlow(Placement):
    """The flow network with the network-aware policy, as the plane drives it: placed tasks leave it."""

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.network = ClusterNetwork(NetworkAware(), second_after_s=float("inf"))
        self.waiting: dict[str, Reader] = {}
        self.told: dict[int, Machine] = {}
        self.told_s = float("-inf")
        self.load: list[dict[str, float]] = []
        self.new: list[Task] = []
        self.gone: list[str] = []
        self.profiles = Profiles()
        self.began_s: dict[int, float] = {}

    def come(self, reader: Reader) -> None:
        """It is told of in the next round."""
        name, demand = str(reader.number), {NET: self.state.setting.request}
        self.waiting[name] = reader
        self.new.append(Task(name, "job", demand=demand, since_s=reader.arrives_s, expected=self.expected()))

    def end(self, reader: Reader, machine: int) -> None:
        """What it read, and how fast, is known."""
        took_s = self.state.fluid.now_s - self.began_s.pop(reader.number)
        if took_s > 0:
            read = sum(machine not in holders for holders in reader.replicas) * reader.size / len(reader.replicas)
            self.profiles.used(*STAGE, {NET: read / took_s})

    def expected(self) -> dict[str, float]:
        """What a task is expected to use."""
        return self.profiles.expected(*STAGE, {NET: self.state.setting.request})

    def starts(self) -> list[tuple[Reader, int]]:
        """A round."""
        if not self.waiting:
            return []
        changed = [machine for number in range(len(self.state.running)) if (machine := self._machine(number))]
        changes = ClusterChanges(machines=changed, tasks=self.new, tasks_gone=self.gone, now_s=self.state.fluid.now_s)
        placed = self.network.round(changes).placed
        self.new, self.gone = [], [name for name, _ in placed]
        self.began_s.update((int(name), self.state.fluid.now_s) for name in self.gone)
        return [(self.waiting.pop(name), int(machine)) for name, machine in placed]

    def _machine(self, number: int) -> Machine | None:
        """What is to be told of a machine; None if nothing is new."""
        state, setting = self.state, self.state.setting
        if state.fluid.now_s >= self.told_s + setting.told_every_s:
            self.told_s = state.fluid.now_s
            self.load = [
                {f"net_{way}_bytes_per_s": state.fluid.used[way, other] for way in ("in", "out")}
                for other in range(setting.machines)
            ]
        count = state.running[number]
        machine = Machine(
            str(number), "rack", setting.slots - count, {NET: max(0.0, setting.link - count * setting.request)},
            count, {NET: str(setting.link)}, self.load[number], {NET: count * self.expected()[NET]} if count else {},
        )  # fmt: skip
        if self.told.get(number) == machine:
            return None
        self.told[number] = machine
        return machine


PLACEMENTS: dict[str, Callable[[State], Placement]] = {
    FLOW: NetworkAwareFlow, SAMPLING: Sampling, SPREADING: Spreading,
}  # fmt: skip


def responses_s(setting: Setting, placement: str, seed: int) -> list[float]:
    """Response times of all tasks but the first tenth, in order of arrival."""
    todo = deque(readers(setting, seed))
    by_number = list(todo)
    fluid = Fluid(
        {(way, machine): setting.link for machine in range(setting.machines) for way in ("in", "out")},
        background=setting.background(),
    )
    state = State(setting, fluid, random.Random(f"{seed} {placement}"), [0] * setting.machines)
    places = PLACEMENTS[placement](state)
    parts: dict[int, int] = {}
    ended_s: dict[int, float] = {}
    local: list[tuple[float, int]] = []
    while len(ended_s) < setting.tasks:
        times = [time_s for time_s in (fluid.next_end_s(), todo[0].arrives_s if todo else None) if time_s is not None]
        if local:
            times.append(local[0][0])
        finished = {number for number, _ in map(_part, fluid.advance(min(times))) if _was_last(parts, number)}
        while local and local[0][0] <= fluid.now_s:
            finished.add(heapq.heappop(local)[1])
        for number in sorted(finished):
            ended_s[number] = fluid.now_s
            machine = state.place[number]
            state.running[machine] -= 1
            places.end(by_number[number], machine)
        while todo and todo[0].arrives_s <= fluid.now_s:
            places.come(todo.popleft())
        for reader, machine in places.starts():
            assert state.free(machine)
            state.running[machine] += 1
            state.place[reader.number] = machine
            transfers = _transfers(state, reader, machine)
            parts[reader.number] = len(transfers)
            fluid.add(transfers)
            if not transfers:
                heapq.heappush(local, (fluid.now_s, reader.number))
    return [ended_s[reader.number] - reader.arrives_s for reader in by_number[setting.tasks // 10 :]]


def _part(transfer: Hashable) -> tuple[int, int]:
    """The numbers of the task and of its part."""
    assert isinstance(transfer, tuple)
    number, part = transfer
    return number, part


def _was_last(parts: dict[int, int], number: int) -> bool:
    """Whether a task has no part left, now that one has ended."""
    parts[number] -= 1
    return parts[number] == 0


def _transfers(state: State, reader: Reader, machine: int) -> dict[Hashable, tuple[float, Sequence[Link]]]:
    """What a task reads over the network: parts that its machine holds it reads there, at once."""
    size, used = reader.size / len(reader.replicas), state.fluid.used
    found: dict[Hashable, tuple[float, Sequence[Link]]] = {}
    for part, holders in enumerate(reader.replicas):
        if machine not in holders:
            source = min(holders, key=lambda holder: (used["out", holder], holder))
            found[reader.number, part] = size, (("out", source), ("in", machine))
    return found


def alone_s(setting: Setting, seed: int) -> list[float]:
    """What the same tasks take one by one on an idle network: the time that a link needs for what is read over it."""
    found = []
    for reader in readers(setting, seed)[setting.tasks // 10 :]:
        size = reader.size / setting.sources
        state = State(setting, Fluid({("in", 0): setting.link}), random.Random(0), [])
        state.fluid.used = {("out", holder): 0.0 for holder in range(setting.machines)}
        machine = reader.number % setting.machines
        found.append(len(_transfers(state, reader, machine)) * size / setting.link)
    return found


@dataclass(frozen=True, slots=True)
class Found:
    """Of one setting."""

    rows: list[Row]
    ratios: dict[str, float]
    """99th percentile of a way of placing over that of the network-aware flow."""


def compared(setting: Setting, seeds: Sequence[int]) -> Found:
    """Response times by way of placing, of all seeds together."""
    times = {ALONE: [time_s for seed in seeds for time_s in alone_s(setting, seed)]}
    for name in PLACEMENTS:
        progress(f"{name}, {setting.utilisation:.0%} of the network in use")
        times[name] = [time_s for seed in seeds for time_s in responses_s(setting, name, seed)]
    rows: list[Row] = []
    for name, values in times.items():
        p50, p80, p95, p99 = (float(value) for value in np.percentile(values, (50, 80, 95, 99)))
        rows.append({
            "placed by": name, "background": "yes" if setting.clients else "no", "network in use": setting.utilisation,
            "p50 s": p50, "p80 s": p80, "p95 s": p95, "p99 s": p99,
        })  # fmt: skip
    last = {row["placed by"]: row["p99 s"] for row in rows}
    return Found(rows, {name: last[name] / last[FLOW] for name in (SAMPLING, SPREADING)})


UTILISATIONS = {Scale.TINY: (0.6,), Scale.QUICK: (0.6, 0.8), Scale.FULL: (0.6, 0.7, 0.8)}
TASKS = {Scale.TINY: 60, Scale.QUICK: 600, Scale.FULL: 2_000}
SEEDS = {Scale.TINY: 1, Scale.QUICK: 1, Scale.FULL: 3}
WITHOUT_BACKGROUND = 0.46
"""Of the network: what the tasks of the first utilisation use by themselves."""
BETTER_MIN = 3.0


def by_placement(scale: Scale) -> Outcome:
    """The figure: without a background, and with it."""
    seeds = range(1, SEEDS[scale] + 1)
    rows = list(compared(Setting(clients=0, utilisation=WITHOUT_BACKGROUND, tasks=TASKS[scale]), seeds).rows)
    targets = []
    for utilisation in UTILISATIONS[scale]:
        found = compared(Setting(utilisation=utilisation, tasks=TASKS[scale]), seeds)
        rows += found.rows
        for name, ratio in found.ratios.items():
            text = f"p99 of {name} at {utilisation:.0%} at least {BETTER_MIN:g} × that of the flow"
            targets.append(at_least(text, ratio, BETTER_MIN, " ×", tells=scale is not Scale.TINY))
    return Outcome(rows, targets, NOTES)


NOTES = [
    "A model: links are shared max-min fairly, solves and messages take no time. Equal seeds give equal figures.",
    "In use: what tasks and background bring of what all links into machines could, if each task were placed well.",
]

FIGURE = Figure(
    "6.7", "Response times where links are contended, by placement (modelled)",
    "p99 3.4 × (SwarmKit, Kubernetes) and 6.2 × (Sparrow) that of Firmament", by_placement,
)  # fmt: skip


def measure(repeat: int) -> Report:
    """As `figure 6.7 --quick`; `repeat` seeds."""
    seeds = range(1, repeat + 1)
    tasks = TASKS[Scale.QUICK]
    tables = {"short tasks alone": compared(Setting(clients=0, utilisation=WITHOUT_BACKGROUND, tasks=tasks), seeds)}
    for utilisation in UTILISATIONS[Scale.QUICK]:
        title = f"with background traffic, {utilisation:.0%} of the network in use"
        tables[title] = compared(Setting(utilisation=utilisation, tasks=tasks), seeds)
    ratios = [found.ratios for found in tables.values()]
    return Report(
        "p99 of load spreading over that of the network-aware flow, 60 % in use", ratios[1][SPREADING], "times",
        {title: found.rows for title, found in tables.items()}, ratios, NOTES,
    )  # fmt: skip


main: click.Command = command("contention", measure, repeat=1, help=(__doc__ or "").split("\n\n", maxsplit=1)[0])

if __name__ == "__main__":
    main()
