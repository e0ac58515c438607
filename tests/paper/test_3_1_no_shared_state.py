"""Paper §3.1: "distributed schedulers that maintain no shared state", so that "multiple schedulers can operate
independently". Under the profile `paper`, and under `default`.

Two schedulers run in one simulated cluster. What one of them is told, draws and says is recorded. Then a new core is
told the same again, by itself and beside others: whatever these do, what the first draws and says must be the same to
the byte. And what the modules of `scheduler` hold must be the same after a run as before. That both tests see what is
shared is tested with things smuggled in.
"""

from __future__ import annotations

import copy
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import pytest

from loadgen.synthetic import Synthetic
from scheduler.core import SchedulerCore
from scheduler.sampling import probing
from scheduler.spreading import spread
from simulator import hosts
from simulator.cluster import Cluster
from simulator.figures.catalogue import paper
from simulator.policies import Settings
from simulator.simulate import simulate
from tests.support.module_state import described

EVENTS = ("node_up", "receive_from_node", "receive_from_client", "tick", "pump", "solved")
"""What a simulated scheduler's core is told."""

ROOMS_OF_PLANES = ("scheduler.altruistic", "scheduler.flow")
"""Of planes that are not the paper's; numba keeps what it compiled of them."""
SETTINGS = {"paper": paper(), "default": Settings()}


class Draws(random.Random):
    """A generator that tells what it gave."""

    def __init__(self, state: Any, tell: Callable[[str], None]) -> None:
        super().__init__()
        self.setstate(state)
        self._tell = tell

    def random(self) -> float:
        found = super().random()
        self._tell(f"drew {found!r}")
        return found

    def getrandbits(self, bits: int, /) -> int:
        found = super().getrandbits(bits)
        self._tell(f"drew {found} of {bits} bits")
        return found


class Watched:
    """A scheduler's core; `said` has what it drew and said, in order, and `told` the events, with their arguments as
    they were. Messages go on to `outbox`."""

    def __init__(self, options: Any, state: Any, outbox: Any = None, now_s: float = 0.0) -> None:
        self.beginning = (options, state, now_s)
        self.said: list[str] = []
        self.told: list[tuple[str, tuple[Any, ...]]] = []
        self._outbox = outbox
        self.core = SchedulerCore(options, Draws(state, self.said.append), self, now_s=now_s)

    def tell(self, name: str, arguments: tuple[Any, ...]) -> None:
        """An event."""
        self.told.append((name, copy.deepcopy(arguments)))
        getattr(self.core, name)(*arguments)

    def to_node(self, to: str, message: Any) -> None:
        """An effect."""
        self.said.append(f"to {to}: {message!r}")
        if self._outbox is not None:
            self._outbox.to_node(to, message)

    to_client = to_node

    def solve(self, number: int, problem: Any) -> None:
        """An effect."""
        self.said.append(f"solve {number}")
        if self._outbox is not None:
            self._outbox.solve(number, problem)

    def __getattr__(self, name: str) -> Any:
        if name in EVENTS:
            return lambda *arguments: self.tell(name, arguments)
        return getattr(self.core, name)


Order = list[int]
"""Which scheduler each event was of, in the order of all."""


def run(settings: Settings) -> tuple[list[Watched], Order]:
    """Two schedulers with jobs of two users on 24 nodes, some of which run on given nodes only."""
    watched: list[Watched] = []
    order: Order = []

    def make(options: Any, rng: random.Random, outbox: Any, *, now_s: float) -> Watched:
        made = Watched(options, rng.getstate(), outbox, now_s)
        number = len(watched)
        tell = made.tell
        made.tell = lambda *event: (order.append(number), tell(*event))[1]  # type: ignore[method-assign]
        watched.append(made)
        return made

    workload = Synthetic(tasks=3, load=0.8, jobs=40, users=("anna", "bert"), constrained=0.3)
    with mock.patch.object(hosts, "SchedulerCore", make):
        simulate(Cluster(nodes=24, schedulers=2), workload, "sparrow", settings)
    return watched, order


def again(watched: Watched) -> Iterator[list[str]]:
    """A new core is told the same, an event at each step; what it said so far."""
    fresh = Watched(*watched.beginning[:2], now_s=watched.beginning[2])
    for name, arguments in watched.told:
        fresh.tell(name, copy.deepcopy(arguments))
        yield fresh.said


def alone(one: Watched, _: Watched, __: Order) -> list[str]:
    """The other is not there at all."""
    return [*again(one)][-1]


def after(one: Watched, other: Watched, __: Order) -> list[str]:
    """The other has had all its jobs before."""
    list(again(other))
    return [*again(one)][-1]


def beside_an_idle_one(one: Watched, other: Watched, __: Order) -> list[str]:
    """The other has nodes and no jobs."""
    idle = Watched(*other.beginning[:2], now_s=other.beginning[2])
    for name, arguments in other.told:
        if name == "node_up":
            idle.tell(name, copy.deepcopy(arguments))
    return [*again(one)][-1]


def by_turns(one: Watched, other: Watched, order: Order) -> list[str]:
    """Each event of either comes when it came."""
    first, second = again(one), again(other)
    said: list[str] = []
    for number in order:
        if number == 0:
            said = next(first)
        else:
            next(second)
    return said


def beside_one_with_more(one: Watched, other: Watched, __: Order) -> list[str]:
    """The other hears of a job before each event of the first, three times as often."""
    busy = itertools.chain(again(other), again(other), again(other))
    said: list[str] = []
    for said in again(one):  # noqa: B007 (the last is wanted)
        next(busy, None)
        next(busy, None)
        next(busy, None)
    return said


WAYS = (alone, after, beside_an_idle_one, by_turns, beside_one_with_more)


def same_whatever_the_other_does(settings: Settings, clear: Callable[[], None] = lambda: None) -> bool:
    """Whether the first scheduler drew and said the same in the run and in all ways. `clear` comes before each."""
    clear()
    (one, other), order = run(settings)
    assert len(one.said) > 300 and len(other.said) > 300
    assert any("Launch" in line for line in one.said)
    expected = "\n".join(one.said).encode()
    for way in WAYS:
        clear()
        if "\n".join(way(one, other, order)).encode() != expected:
            return False
    return True


@pytest.mark.parametrize("profile", SETTINGS)
def test_what_a_scheduler_draws_and_says_depends_on_what_it_is_told_and_on_no_other_scheduler(profile: str) -> None:
    assert same_whatever_the_other_does(SETTINGS[profile])


# ---- the test sees what is shared ------------------------------------------------------------


class SharedSet:
    """Nodes that any scheduler has probed: others avoid them."""

    def __init__(self) -> None:
        self.probed: set[str] = set()

    def clear(self) -> None:
        """As in a new process."""
        self.probed.clear()

    def spread(self, nodes: Sequence[str], count: int, rng: random.Random) -> list[tuple[str, int]]:
        """As the scheduler's own, but among the nodes that nobody has probed while there are enough."""
        fresh = [node for node in nodes if node not in self.probed]
        if len(fresh) < count:
            self.probed.clear()
            fresh = list(nodes)
        found = spread(fresh, count, rng)
        self.probed.update(node for node, _ in found)
        return found


class SharedGenerator:
    """One generator for all schedulers."""

    def __init__(self) -> None:
        self.rng = random.Random(1)

    def clear(self) -> None:
        """As in a new process."""
        self.rng.seed(1)

    def spread(self, nodes: Sequence[str], count: int, _: random.Random) -> list[tuple[str, int]]:
        """As the scheduler's own, drawn from the one generator."""
        return spread(nodes, count, self.rng)


@pytest.mark.parametrize("kind", [SharedSet, SharedGenerator])
def test_it_fails_if_schedulers_share_what_they_choose_nodes_by(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    smuggled = kind()
    monkeypatch.setattr(probing, "spread", smuggled.spread)
    assert not same_whatever_the_other_does(paper(), smuggled.clear)


def test_it_fails_if_schedulers_number_their_tickets_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """One counter for the whole process."""
    next_tickets = [1]

    def set_next(_: Any, ticket: int) -> None:
        next_tickets.append(max(ticket, next_tickets.pop()))  # A new scheduler does not begin anew.

    def clear() -> None:
        next_tickets[:] = [1]

    shared = property(lambda _: next_tickets[0], set_next)
    monkeypatch.setattr(probing.Probing, "_next_ticket", shared, raising=False)
    assert not same_whatever_the_other_does(paper(), clear)


# ---- nor do modules hold anything ------------------------------------------------------------


def changed_by_running() -> set[str]:
    """What the modules of the scheduler hold that is another after a run of each profile."""
    before = described("scheduler", without=ROOMS_OF_PLANES)
    for settings in SETTINGS.values():
        run(settings)
    now = described("scheduler", without=ROOMS_OF_PLANES)
    return {path for path in before.keys() | now.keys() if before.get(path) != now.get(path)}


def test_running_changes_nothing_that_modules_of_the_scheduler_hold() -> None:
    assert len(described("scheduler", without=ROOMS_OF_PLANES)) > 1000
    assert not changed_by_running()


def in_a_name(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A set that a module names."""
    monkeypatch.setattr(probing, "smuggled", set(), raising=False)
    return probing.smuggled.add  # type: ignore[attr-defined]


def in_a_class(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A list of a class."""
    monkeypatch.setattr(SchedulerCore, "smuggled", [], raising=False)
    return SchedulerCore.smuggled.append  # type: ignore[attr-defined]


def in_a_default(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A dictionary that is the default of an argument."""

    def remember(name: str, seen: dict[str, int] = {}) -> None:  # noqa: B006 (that is what is smuggled)
        seen[name] = seen.get(name, 0) + 1

    remember.__module__ = probing.__name__
    monkeypatch.setattr(probing, "smuggled", remember, raising=False)
    return remember


def in_a_closure(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """A list that a function encloses."""
    seen: list[str] = []

    def remember(name: str) -> None:
        seen.append(name)

    remember.__module__ = probing.__name__
    monkeypatch.setattr(probing, "smuggled", remember, raising=False)
    return remember


def in_a_cache(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], object]:
    """What a function gave before."""
    remember = functools.cache(str.upper)
    monkeypatch.setattr(probing, "smuggled", remember, raising=False)
    return remember


@pytest.mark.parametrize("smuggle", [in_a_name, in_a_class, in_a_default, in_a_closure, in_a_cache])
def test_it_fails_if_a_module_remembers_anything(smuggle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    remember = smuggle(monkeypatch)

    def spread_and_remember(nodes: Sequence[str], count: int, rng: random.Random) -> list[tuple[str, int]]:
        found = spread(nodes, count, rng)
        for node, _ in found:
            remember(node)
        return found

    monkeypatch.setattr(probing, "spread", spread_and_remember)
    assert any("smuggled" in path for path in changed_by_running())
