"""Several schedulers and nodes that lose links, messages' order in time, and processes: one leads in the end.

The pure parts of both sides, `scheduler.leading` and `node_monitor.leading`, under virtual time. Links keep their
messages in order, and lose what is under way when they break. Whoever leads places tasks all the time, so that it
shows whether a node starts one of a lower epoch than it has accepted.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from node_monitor.history import History
from node_monitor.leading import Leading as NodeLeading
from scheduler.leading import Leading, State
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m
from tests.support.suites import rest_after

SETTLING_S, TAKEOVER_S = 0.5, 1.0
DELAY_S = 0.05
"""A message's time on the way, at most."""
REDIAL_S = 0.3
RESTART_S = 0.4
FAULTS_S = 20.0
QUIET_S = 2 * (SETTLING_S + TAKEOVER_S) + REDIAL_S + RESTART_S + 40 * DELAY_S
"""After the last fault one leads within so long: what is wrong is found out, and another claims twice at most."""


class Link:
    """Between a scheduler's and a node's process. It is down once either is gone."""

    def __init__(self, world: World, scheduler: Scheduler, node: Node) -> None:
        self.world, self.scheduler, self.node, self.up = world, scheduler, node, True
        self._free_at_s = {"node": 0.0, "scheduler": 0.0}

    def send(self, to: str, deliver: Callable[[], None]) -> None:
        world = self.world
        at_s = max(self._free_at_s[to], world.now_s + world.rng.uniform(0, DELAY_S))
        self._free_at_s[to] = at_s
        world.at(at_s, lambda: deliver() if self.up else None)


class Scheduler:
    """A scheduler's process."""

    def __init__(self, world: World, address: str, standby_of: str) -> None:
        self.world, self.address, self.alive = world, address, True
        self.name = f"{world.rng.randrange(100):02}-{address}-{next(world.numbers)}"
        self.links: dict[str, Link] = {}
        self.timers = Timers()
        self.leading = Leading(
            m.FLOW, self.name, self.send, self.timers,
            standby_of=standby_of, takeover_s=TAKEOVER_S, settling_s=SETTLING_S, nodes_expected=world.expected(),
        )  # fmt: skip
        self.leading.changed = self.changed
        self.leading.refused = lambda: world.at(world.now_s, lambda: world.end_scheduler(self, RESTART_S))

    def send(self, node: str, message: Any) -> None:
        link = self.links[node]
        link.send("node", lambda: link.node.heard(self, message))

    def changed(self, leads: bool, now_s: float) -> None:
        if leads:
            self.world.leads(self)

    def place(self) -> None:
        """A task for each node."""
        epoch = self.leading.epoch
        for link in list(self.links.values()):
            link.send("node", lambda link=link: link.node.starts(self, epoch))


class Node:
    """A node monitor's process."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.alive = world, name, True
        self.links: dict[str, Link] = {}
        """By the schedulers' names."""
        book: Any = SimpleNamespace(by_key={})
        self.leading = NodeLeading(book, History(0), self.send)
        self.started_epoch = 0
        self.leader_of: dict[int, str] = {}
        """Who had each epoch here."""

    def send(self, scheduler: str, message: Any) -> None:
        link = self.links[scheduler]
        link.send("scheduler", lambda: self.world.tell(link.scheduler, self.name, message))

    def heard(self, scheduler: Scheduler, message: Any) -> None:
        before = self.epoch
        self.leading.lead(scheduler.name, message, self.world.now_s)
        assert self.epoch >= before
        if self.leading.accepts(scheduler.name, message.epoch):
            assert self.leader_of.setdefault(message.epoch, scheduler.name) == scheduler.name

    @property
    def epoch(self) -> int:
        leader = self.leading._leaders.get(m.FLOW)
        return 0 if leader is None else leader.epoch

    def starts(self, scheduler: Scheduler, epoch: int) -> None:
        if self.leading.accepts(scheduler.name, epoch):
            assert epoch >= self.started_epoch and epoch == self.epoch
            assert self.leader_of[epoch] == scheduler.name
            self.started_epoch = epoch


class World:
    """Schedulers by address, nodes by name. standbys: the addresses whose schedulers stand by for any."""

    def __init__(self, seed: int, schedulers: int, nodes: int, standbys: int) -> None:
        self.rng, self.now_s, self.numbers = random.Random(seed), 0.0, itertools.count()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self.schedulers: dict[str, Scheduler] = {}
        self.nodes: dict[str, Node] = {}
        self.standby = {f"s{number}": "any" if number >= schedulers - standbys else "" for number in range(schedulers)}
        self.led: list[tuple[int, str]] = []
        """(epoch, scheduler) of each that came to lead."""
        self.parted: set[tuple[str, str]] = set()
        """(address, node) of those that cannot reach each other."""
        for number in range(nodes):
            self.start_node(f"n{number}")
        for address in self.standby:
            self.at(self.rng.uniform(0, 0.2), lambda address=address: self.start_scheduler(address))

    def expected(self) -> int:
        """How many nodes some schedulers are told to expect."""
        return self.rng.choice([0, len(self.nodes)])

    # ---- time

    def at(self, at_s: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (at_s, next(self.numbers), action))

    def run(self, until_s: float) -> None:
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, action = heapq.heappop(self._events)
            action()
        self.now_s = until_s

    def arm(self, scheduler: Scheduler) -> None:
        """Have the scheduler's timers run."""
        deadline_s = scheduler.timers.next_deadline_s()
        if deadline_s is not None:
            self.at(max(deadline_s, self.now_s), lambda: self.tick(scheduler))

    def tick(self, scheduler: Scheduler) -> None:
        if scheduler.alive and (scheduler.timers.next_deadline_s() or 1e9) <= self.now_s:
            scheduler.timers.run_due(self.now_s)
            self.arm(scheduler)

    # ---- processes and links

    def start_scheduler(self, address: str) -> None:
        scheduler = self.schedulers[address] = Scheduler(self, address, self.standby[address])
        for node in list(self.nodes.values()):
            self.at(self.now_s + self.rng.uniform(0, REDIAL_S), lambda node=node: self.dial(address, node.name))
        self.place(scheduler)

    def place(self, scheduler: Scheduler) -> None:
        if scheduler.alive:
            if scheduler.leading.leads:
                scheduler.place()
            self.at(self.now_s + 0.1, lambda: self.place(scheduler))

    def start_node(self, name: str) -> None:
        self.nodes[name] = Node(self, name)
        for address in list(self.schedulers):
            self.at(self.now_s + self.rng.uniform(0, REDIAL_S), lambda address=address: self.dial(address, name))

    def dial(self, address: str, name: str) -> None:
        scheduler, node = self.schedulers.get(address), self.nodes.get(name)
        if scheduler is None or node is None or scheduler.name in node.links:
            return
        if (address, name) in self.parted:
            self.at(self.now_s + REDIAL_S, lambda: self.dial(address, name))
            return
        link = scheduler.links[name] = node.links[scheduler.name] = Link(self, scheduler, node)
        scheduler.leading.node_up(name, self.now_s)
        link.send("node", lambda: None)
        node.leading.up(scheduler.name, address)
        self.arm(scheduler)

    def cut(self, link: Link) -> None:
        if not link.up:
            return
        link.up = False
        scheduler, node = link.scheduler, link.node
        del scheduler.links[node.name], node.links[scheduler.name]
        if scheduler.alive:
            scheduler.leading.node_down(node.name, self.now_s)
            self.arm(scheduler)
        if node.alive:
            node.leading.down(scheduler.name)
        self.at(self.now_s + self.rng.uniform(0, REDIAL_S), lambda: self.dial(scheduler.address, node.name))

    def end_scheduler(self, scheduler: Scheduler, back_after_s: float) -> None:
        if scheduler.alive:
            scheduler.alive = False
            del self.schedulers[scheduler.address]
            for link in list(scheduler.links.values()):
                self.cut(link)
            self.at(self.now_s + back_after_s, lambda: self.start_scheduler(scheduler.address))

    def end_node(self, node: Node) -> None:
        node.alive = False
        del self.nodes[node.name]
        for link in list(node.links.values()):
            self.cut(link)
        self.at(self.now_s + RESTART_S, lambda: self.start_node(node.name))

    def tell(self, scheduler: Scheduler, node: str, message: Any) -> None:
        if isinstance(message, m.Leading):
            scheduler.leading.heard(node, message, self.now_s)
            self.arm(scheduler)

    def leads(self, scheduler: Scheduler) -> None:
        self.led.append((scheduler.leading.epoch, scheduler.name))

    # ---- faults

    def fault(self) -> None:
        """One of all that may go wrong."""
        rng = self.rng
        scheduler = rng.choice(list(self.schedulers.values())) if self.schedulers else None
        match rng.randrange(6):
            case 0 if scheduler is not None:
                self.end_scheduler(scheduler, rng.uniform(0, 2 * TAKEOVER_S))
            case 1 if self.nodes:
                self.end_node(rng.choice(list(self.nodes.values())))
            case 2 if scheduler is not None:
                for link in list(scheduler.links.values()):
                    if rng.random() < 0.6:
                        self.cut(link)
            case 3 if scheduler is not None:
                parted = {(scheduler.address, name) for name in list(self.nodes) if rng.random() < 0.6}
                self.parted |= parted
                for link in list(scheduler.links.values()):
                    if (link.scheduler.address, link.node.name) in parted:
                        self.cut(link)
                self.at(self.now_s + rng.uniform(0, 3 * TAKEOVER_S), lambda: self.parted.difference_update(parted))
            case 4 if scheduler is not None:
                scheduler.leading.force(self.now_s)
                self.arm(scheduler)
            case _:
                pass

    def assert_one_leads(self) -> None:
        """And all nodes take its tasks, and no other's."""
        leaders = [one for one in self.schedulers.values() if one.leading.leads]
        assert len(leaders) == 1, [(one.name, one.leading.state) for one in self.schedulers.values()]
        (leader,) = leaders
        assert len(leader.links) == len(self.nodes) == leader.leading.accepted
        for node in self.nodes.values():
            assert node.leading.accepts(leader.name, leader.leading.epoch)
            others = [one.name for one in self.schedulers.values() if one is not leader]
            assert not any(node.leading.accepts(other, leader.leading.epoch) for other in others)


@pytest.mark.parametrize("standbys", [0, 1, 2, 3])
@pytest.mark.parametrize("seed", rest_after(8, *range(25)))
def test_whatever_fails_one_leads_once_that_is_over(seed: int, standbys: int) -> None:
    world = World(seed, schedulers=3, nodes=1 + seed % 6, standbys=standbys)
    faults_at_s = sorted(world.rng.uniform(0, FAULTS_S) for _ in range(world.rng.randrange(30)))
    for at_s in faults_at_s:
        world.at(at_s, world.fault)
    world.run(FAULTS_S)
    world.run(FAULTS_S + 3 * TAKEOVER_S)  # The last partition is over.
    world.run(world.now_s + QUIET_S)
    world.assert_one_leads()


@pytest.mark.parametrize("seed", range(40))
def test_where_links_hold_no_two_lead_with_the_same_epoch_whoever_starts_and_dies_when(seed: int) -> None:
    world = World(seed, schedulers=4, nodes=5, standbys=seed % 5)
    for _ in range(10):
        world.run(world.now_s + world.rng.uniform(0, 3.0))
        if world.schedulers and world.rng.random() < 0.7:
            world.end_scheduler(world.rng.choice(list(world.schedulers.values())), world.rng.uniform(0, 2.0))
    world.run(world.now_s + QUIET_S)
    world.assert_one_leads()
    epochs = [epoch for epoch, _ in world.led]
    assert len(epochs) == len(set(epochs)), world.led


def test_of_those_that_start_at_once_and_stand_by_for_nobody_one_leads_and_none_claims_for_ever() -> None:
    for seed in range(30):
        world = World(seed, schedulers=3, nodes=5, standbys=0)
        world.run(QUIET_S)
        world.assert_one_leads()
        states = [one.leading.state for one in world.schedulers.values()]
        assert State.STANDING_BY not in states and State.CLAIMING not in states
