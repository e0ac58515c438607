"""The controller of a program whose workers spawn their tasks themselves: who is in it, who holds what, what is saved.

Events come from a driver: a worker is here or lost, a message of a worker or of the program's own process, time passes.
Effects go out: messages, files to keep. Tasks are no business of the controller's; all it hears of a run that goes well
is what signals said and how long partitions took.

A run of the program takes one epoch, or several: each begins with `Enter`. It starts from what the workers have, if the
run before has just ended (`live`); else from the last whole snapshot; else from the program's start, and then runs that
came before are run again, one after the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from frontends.dataflow.blocks import Slot
from frontends.dataflow.control_messages import (
    Ask,
    Beat,
    Dismiss,
    Enter,
    GiveBack,
    GivenUp,
    Gone,
    Halt,
    Hello,
    Layout,
    Leaving,
    Left,
    Outcome,
    Over,
    Peer,
    PeerLost,
    PlaceOf,
    Progress,
    Ready,
    Received,
    RunFailed,
    RunOver,
    Runs,
    Settings,
    Shipped,
    StoreAll,
    Trim,
    Unreachable,
    Used,
    Where,
    Withdraw,
)
from frontends.dataflow.controller_effects import Complete, Drop, Effect, Keep, Key, Send, SendStored, Tell
from frontends.dataflow.messages import Arrived, Flag, MapUpdate, Move, Stored, Told
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import Balancer, initial, newcomers_share
from frontends.dataflow.value_sources import ValueSources, groups_of, places_of
from sparrow_py.counted import counted

BALANCE_EVERY_S = 0.5
PROGRESS_EVERY_S = 0.5
DEAD_AFTER_S = 30.0
"""A worker of which nothing has been heard for so long is lost."""
START_PATIENCE_S = 2.0
"""How long the first workers wait for those that are on their way."""
CUT_OFF_PATIENCE_S = 1.0
"""How long it is waited for, when a worker does not reach another one, whether that one is lost."""
FRUITLESS_MAX = 10
"""How often in a row a run is rolled back without having come further, before it is given up."""
START_FAILURES_MAX = 3
"""How many workers in a row may fail to start."""
RUNS_KEPT_MAX = 1000
"""Runs that would be run again; with more, a snapshot is made between runs."""
RUNS_KEPT_BYTES_MAX = 256 << 20
"""Of their definitions and programs; with more, the same."""
END = 1 << 62
"""The block of a snapshot that was made after a run's last one."""


class State(StrEnum):
    IDLE = "idle"
    """No run is wanted."""
    GATHERING = "waiting for workers"
    LOADING = "loading"
    ROLLING_BACK = "rolling back"
    """Loading, after a failure."""
    RUNNING = "running"
    RETURNING = "returning"
    """The driver gets what the program returned."""
    STALLED = "waiting for any worker"
    """All workers have yielded their slots, and the last of them made a snapshot."""
    CLOSED = "ended"


_LOADED = {State.LOADING, State.ROLLING_BACK}
NEXT: dict[State, set[State]] = {
    State.IDLE: {State.GATHERING, *_LOADED, State.CLOSED},
    State.GATHERING: {*_LOADED, State.IDLE, State.CLOSED},
    State.LOADING: {State.RUNNING, State.ROLLING_BACK, State.GATHERING, State.IDLE, State.CLOSED},
    State.ROLLING_BACK: {State.RUNNING, State.ROLLING_BACK, State.GATHERING, State.IDLE, State.CLOSED},
    State.RUNNING: {State.RETURNING, State.STALLED, State.GATHERING, State.IDLE, State.CLOSED, *_LOADED},
    State.RETURNING: {State.IDLE, State.GATHERING, State.ROLLING_BACK, State.CLOSED},
    State.STALLED: {State.ROLLING_BACK, State.IDLE, State.CLOSED},
    State.CLOSED: set(),
}
"""Which state may follow which."""
IN_EPOCH = frozenset({State.LOADING, State.ROLLING_BACK, State.RUNNING, State.RETURNING})


class WorkerState(StrEnum):
    ASKED = "asked for"
    HERE = "here"
    """Linked, and in no epoch, or in one that is over."""
    JOINING = "joining"
    """It is in the epoch from a signal on, as a flag says that is on its way."""
    MEMBER = "member"
    LEAVING = "leaving"
    """A member whose partitions move away."""
    PARTING = "parting"
    """It holds nothing, and passes on what still comes."""


MEMBERS = frozenset({WorkerState.MEMBER, WorkerState.LEAVING})


class Chance(Protocol):
    def uniform(self, a: float, b: float, /) -> float: ...


# ---- what the controller knows -------------------------------------------------------------------------


@dataclass(slots=True)
class Worker:
    state: WorkerState
    where: Where = ("", "", "", 0)
    heard_s: float = 0.0
    ready: bool = False
    """Its partitions of the epoch are there."""
    over: bool = False
    """Its copy of the program has returned."""


@dataclass(slots=True)
class Snapshot:
    places: set[PlaceOf] = field(default_factory=set)
    signals: dict[int, bool] | None = None
    """What was said before it; None until it is whole."""


class ControllerCore:
    """One program. Time is an argument, in seconds of any clock that does not go back."""

    def __init__(self, settings: Settings, chance: Chance, whole: Mapping[Key, Snapshot] | None = None) -> None:
        """`whole`: snapshots that an earlier controller left."""
        self.settings = settings
        self.state = State.IDLE
        self.epoch = settings.first_epoch - 1
        self.workers = {number: Worker(WorkerState.ASKED) for number in settings.known}
        self.effects: list[Effect] = []
        self.runs: dict[int, Shipped] = {}
        self.wanted = False
        """Whether the last of the runs is to be run."""
        self.position = 0
        """The run of this epoch, or of the last one."""
        self.live = False
        """Whether the run of `position` is over, and the members have all values as they are then."""
        self.placed = PartitionMap({})
        self.moving: dict[Slot, tuple[int, int]] = {}
        """Partitions on their way: from whom, to whom."""
        self.recorded: dict[int, bool] = {}
        """What signals of this run said, by block."""
        self.snapshots: dict[Key, Snapshot] = dict(whole or {})
        self.moves = self.rollbacks = self.tasks = 0
        self._chance = chance
        self._now_s = 0.0
        self._next_worker = settings.first_worker
        self._layout = Layout((), ())
        self._balancer = Balancer()
        self._used: dict[int, dict[Slot, float]] = {}
        """Times of tasks since the last look, by the worker that reported them."""
        self._reported_s: dict[int, float] = {}
        """When each worker's last report came."""
        self._counted_s: dict[int, float] = {}
        """For how long the times in `_used` are, by worker."""
        self._balance_s = self._progress_s = self._snapshot_s = 0.0
        self._gather_until_s: float | None = None
        """When workers that are too few give their slots back."""
        self._patient_until_s: float | None = None
        self._ask_from_s = 0.0
        self._unreachable = ""
        """Why no scheduler, which would start workers, can be reached; empty while one can be."""
        self._flags = 0
        self._storing: Key | None = None
        """The snapshot that is being made; with block 0 of a negative run, before its block is known."""
        self._result: RunOver | None = None
        self._fruitless = 0
        self._furthest: Key = (-1, -1)
        self._block = self._signalled = -1
        """The block that the run has come to; that of the last signal of which all before are recorded."""
        self._told_early: dict[int, Told] = {}
        """By the block of the signal before, of which is not known yet what it said."""
        self._start_failures = 0
        self._cut_off: dict[tuple[int, int], tuple[int, float, str]] = {}
        """Workers that do not reach others: in which epoch, until when that is waited for, and why."""

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    def _send(self, worker: int, message: Any) -> None:
        self.effects.append(Send(worker, message))

    def _tell(self, message: Any) -> None:
        self.effects.append(Tell(message))

    def _to(self, state: State) -> None:
        assert state in NEXT[self.state] or state is self.state is State.ROLLING_BACK, (self.state, state)
        self.state = state

    def _in(self, *states: WorkerState) -> list[int]:
        return sorted(number for number, worker in self.workers.items() if worker.state in states)

    def members(self) -> list[int]:
        """The workers of the epoch, those that leave included."""
        return self._in(*MEMBERS)

    # ---- workers come and go ----------------------------------------------------------------------

    def hello(self, number: int, message: Hello, now_s: float) -> None:
        """A worker is here."""
        self._now_s = now_s
        worker = self.workers.get(number)
        if worker is None or worker.state is not WorkerState.ASKED or self.state is State.CLOSED:
            self._send(number, Dismiss("the program does not wait for it"))
            return
        self.workers[number] = Worker(WorkerState.HERE, message.where, now_s)
        self._start_failures = 0
        for other, theirs in self.workers.items():
            if other != number and theirs.state is not WorkerState.ASKED:
                self._send(other, Peer(number, message.where))
                self._send(number, Peer(other, theirs.where))
        if self.state is State.RUNNING:
            self._invite(number)
        self._gather()

    def _invite(self, number: int) -> None:
        """Have a worker join at the next signal."""
        self.workers[number].state = WorkerState.JOINING
        self._flag(joins=number)

    def _flag(self, joins: int = -1, *, snapshot: bool = False) -> None:
        self._flags += 1
        for member in self.members():
            self._send(member, Flag(self.epoch, self._flags, snapshot, joins))

    def lost(self, number: int, why: str, now_s: float) -> None:
        """A worker's link has ended, or nothing was heard of it for too long."""
        self._now_s = now_s
        worker = self.workers.pop(number, None)
        if worker is None:
            return
        if worker.state is WorkerState.JOINING:
            self._tell_gone(number, ())
        elif worker.state in MEMBERS or worker.state is WorkerState.PARTING:
            self.live = False
            if self.state in IN_EPOCH:
                self._roll_back(f"worker {number} was lost: {why}")
            else:
                self._dismiss_leaving("another worker was lost")
                self.moving.clear()
                self._see_over()
        self._top_up()

    def outcome(self, message: Outcome, now_s: float) -> None:
        """A worker's task has ended."""
        self._now_s = now_s
        worker = self.workers.get(message.worker)
        if worker is None:
            return
        if worker.state is not WorkerState.ASKED:
            why = message.error or "its task has ended"
            self._send(message.worker, Dismiss(why))
            if self._unreachable and self.wanted:  # It may compute, but the client has given it up.
                self._give_up(why=f"the task of worker {message.worker} is lost: {why}; {self._unreachable}")
            self.lost(message.worker, why, now_s)
            return
        del self.workers[message.worker]
        if message.worker >= self.settings.first_worker:  # Those before may have begun, with an earlier controller.
            self._start_failures += 1
        if self._start_failures >= START_FAILURES_MAX and self.wanted:
            self._give_up(why=f"{self._start_failures} workers in a row did not start: {message.error}")
        else:
            self._top_up()

    def unreachable(self, message: Unreachable, now_s: float) -> None:
        """No scheduler can be reached: a run goes on for as long as its workers do. Or one can be reached again."""
        self._now_s = now_s
        self._unreachable = message.why
        self._gather()

    def _top_up(self) -> None:
        """Ask for as many workers as are missing."""
        if not self.wanted or self.state is State.CLOSED or self._now_s < self._ask_from_s:
            return
        staying = self._in(WorkerState.ASKED, WorkerState.HERE, WorkerState.JOINING, WorkerState.MEMBER)
        missing = self.settings.workers - len(staying)
        if missing > 0:
            numbers = tuple(range(self._next_worker, self._next_worker + missing))
            self._next_worker += missing
            self.workers.update((number, Worker(WorkerState.ASKED)) for number in numbers)
            self._tell(Ask(numbers))

    def _gather(self) -> None:
        """Begin an epoch if there are enough workers."""
        if self.state not in (State.GATHERING, State.STALLED):
            return
        here = len(self._in(WorkerState.HERE))
        needed = 1 if self.state is State.STALLED else self.settings.min_workers
        if here < needed and self._unreachable:
            self._give_up(why=f"the run needs {needed} and has {counted(here, 'worker')}, and {self._unreachable}")
            return
        if self.state is State.STALLED:
            if here:
                self._open()
            return
        if here < needed:
            self._patient_until_s = None
            if self._gather_until_s is None:
                self._gather_until_s = self._now_s + self.settings.start_timeout_s
            elif self._now_s >= self._gather_until_s and here:
                self._disband()
            return
        if self._patient_until_s is None:
            self._patient_until_s = self._now_s + START_PATIENCE_S
        expected = min(self.settings.workers, max(self.settings.slots, self.settings.min_workers))
        if here >= expected or self._now_s >= self._patient_until_s:
            self._open()

    def _disband(self) -> None:
        """Too few have come: all give their slots back, so that others get theirs, and are asked for again."""
        for number in self._in(WorkerState.HERE):
            self._dismiss(number, "too few workers have come")
        asked = self._in(WorkerState.ASKED)
        for number in asked:
            del self.workers[number]
        if asked:
            self._tell(Withdraw(tuple(asked)))
        self._gather_until_s = None
        timeout_s = self.settings.start_timeout_s
        self._ask_from_s = self._now_s + self._chance.uniform(0.5 * timeout_s, 1.5 * timeout_s)

    def _dismiss(self, number: int, why: str) -> None:
        self.workers.pop(number)
        self._send(number, Dismiss(why))

    def _dismiss_leaving(self, why: str = "its slot is another user's turn") -> None:
        for number in self._in(WorkerState.LEAVING, WorkerState.PARTING):
            self._dismiss(number, why)

    # ---- runs -------------------------------------------------------------------------------------

    def run(self, message: Runs, now_s: float) -> None:
        """The driver wants a run; after a controller's death it tells of those before, too."""
        self._now_s = now_s
        for shipped in message.runs:
            self.runs[shipped.run] = shipped
        self.wanted = message.wanted
        if not self.wanted or self.state is not State.IDLE:
            return
        self._forget_unknown()
        self._fruitless, self._furthest, self._start_failures = 0, (-1, -1), 0
        self._top_up()
        self._start()

    def _start(self) -> None:
        """Begin the run that is wanted, if workers are still, or wait for them."""
        if self.live and (self.moving or self._in(WorkerState.LEAVING, WorkerState.PARTING)):
            return  # They are about to hold nothing, or to be stored.
        ready = self._in(WorkerState.HERE, WorkerState.MEMBER)
        if self.live and len(ready) >= self.settings.min_workers:
            self._open()
            return
        for number in ready:
            self.workers[number].state = WorkerState.HERE
        self.live = False
        self._wait_for_workers()

    def _wait_for_workers(self) -> None:
        self._to(State.GATHERING)
        self._gather_until_s = self._patient_until_s = None
        self._gather()

    def _open(self) -> None:
        """Begin an epoch with the workers that are here."""
        self._dismiss_leaving()
        before = set(self._in(WorkerState.MEMBER)) if self.live else set()
        members = self._in(WorkerState.HERE, WorkerState.JOINING, WorkerState.MEMBER)
        assert members
        self.epoch += 1
        stored = None if self.live else self._last_whole()
        if self.live:
            self.position = self._run_after(self.position)
        elif stored is None:
            self.position = min(self.runs)
        else:
            self.position = self._run_after(stored[0]) if stored[1] == END else stored[0]
        until, self.recorded = 0, {}
        if stored is not None and stored[1] != END:
            until, self.recorded = stored[1] + 1, dict(self.snapshots[stored].signals or {})
        shipped = self.runs[self.position]
        placed = self._placed_anew(shipped.layout, members, before)
        sources = ValueSources(members, shipped.layout, placed)
        if self.live:
            sources.from_workers(len(self._layout.partitions), before, self._holder)
        elif stored is not None:
            sources.from_snapshot(self.snapshots[stored].places)
        else:
            sources.from_start()
        self._forget_unfinished()
        self.placed, self._layout = PartitionMap(placed), shipped.layout
        entries = [(*slot, *entry) for slot, entry in self.placed.items()]
        for number in members:
            self.workers[number].state = WorkerState.MEMBER
            self.workers[number].ready = self.workers[number].over = False
            made, kept, awaited, given = sources.of(number)
            self._send(
                number,
                Enter(
                    self.epoch,
                    shipped,
                    until,
                    self.recorded,
                    entries,
                    tuple(members),
                    made,
                    kept,
                    awaited,
                    given,
                    joins=False,
                ),
            )
            if stored is not None and awaited:
                self.effects.append(SendStored(number, self.epoch, stored, awaited))
        self.live = False
        self.moving.clear()
        self._flags, self._block, self._result = 0, until - 1, None
        self._signalled, self._told_early = until - 1, {}
        self._balancer, self._used, self._reported_s, self._counted_s = Balancer(), {}, {}, {}
        self._snapshot_s = self._now_s
        redoes = stored is not None or self._fruitless
        self._to(State.ROLLING_BACK if redoes else State.LOADING)

    def _placed_anew(self, layout: Layout, members: list[int], before: set[int]) -> dict[Slot, int]:
        """Who holds what in the epoch that begins: where values are with workers, those that have them."""
        placed = initial(groups_of(layout), members)
        if not self.live:
            return placed
        for group, index in placed:
            if group < len(self._layout.partitions):
                placed[group, index] = self.placed[self._layout.groups[group], index].worker
        for number in sorted(set(members) - before):
            for slot in newcomers_share(placed, number, members):
                placed[slot] = number
        return placed

    def _run_after(self, run: int) -> int:
        """Numbers of runs that failed are left out."""
        return min(later for later in self.runs if later > run)

    def _last_whole(self) -> Key | None:
        return max((key for key, snapshot in self.snapshots.items() if snapshot.signals is not None), default=None)

    def _forget_unknown(self) -> None:
        """Snapshots that an earlier controller left in the midst of a run which the driver has given up since."""
        for key in [key for key in self.snapshots if key[1] != END and key[0] not in self.runs]:
            del self.snapshots[key]
            self.effects.append(Drop(key))

    def _forget_unfinished(self) -> None:
        """Snapshots that were being made when the epoch ended are never whole."""
        self._storing = None
        for key in [key for key, snapshot in self.snapshots.items() if snapshot.signals is None]:
            del self.snapshots[key]
            self.effects.append(Drop(key))

    def _roll_back(self, why: str) -> None:
        """All go back to the last snapshot, or to the start."""
        furthest = (self.position, self._block)
        self._fruitless = 1 if furthest > self._furthest else self._fruitless + 1
        self._furthest = max(furthest, self._furthest)
        self.rollbacks += 1
        self.live = False
        if self._fruitless > FRUITLESS_MAX:
            self._give_up(why=f"the run was rolled back {FRUITLESS_MAX} times and came no further; the last time {why}")
            return
        self._dismiss_leaving()
        for number in self._in(WorkerState.MEMBER, WorkerState.JOINING):
            self.workers[number].state = WorkerState.HERE
        here = self._in(WorkerState.HERE)
        self.moving.clear()
        if here and len(here) >= self.settings.min_workers:
            self._open()
            return
        self._halt(here)
        self._wait_for_workers()
        self._top_up()

    def _halt(self, numbers: Iterable[int]) -> None:
        """Have these workers give the epoch up; the next one is another."""
        self.epoch += 1
        for number in numbers:
            self._send(number, Halt(self.epoch))

    def _give_up(self, error: bytes = b"", why: str = "") -> None:
        """The run has failed: no epoch, and the next run starts from a snapshot, or from the runs before."""
        run = max(self.runs)
        self._tell(GivenUp(run, error, why))
        self._forget_run(run)
        self.wanted = self.live = False
        self._dismiss_leaving("the run was given up")
        there = self._in(WorkerState.MEMBER, WorkerState.JOINING, WorkerState.HERE)
        for number in there:
            self.workers[number].state = WorkerState.HERE
        self.moving.clear()
        self._halt(there)
        self._to(State.IDLE)

    def _forget_run(self, run: int) -> None:
        self._forget_unfinished()
        self.runs.pop(run, None)
        for key in [key for key in self.snapshots if key[0] >= run]:
            del self.snapshots[key]
            self.effects.append(Drop(key))

    def received(self, message: Received, now_s: float) -> None:
        """The driver has all that a run returned."""
        self._now_s = now_s
        if self.state is not State.RETURNING or message.run != self.position:
            return
        self._tell(self.progress())
        self.wanted = False
        self._to(State.IDLE)
        self._trim()
        self._see_leaving()
        kept_bytes = sum(len(run.definition) + len(run.program) for run in self.runs.values())
        if len(self.runs) > RUNS_KEPT_MAX or kept_bytes > RUNS_KEPT_BYTES_MAX:
            self._store_end()

    def _trim(self) -> None:
        """Forget snapshots and runs that are not needed if something fails from now on."""
        whole = self._last_whole()
        if whole is None:
            return
        for key in [key for key in self.snapshots if key < whole]:
            del self.snapshots[key]
            self.effects.append(Drop(key))
        needed = whole[0] + (whole[1] == END)
        for run in [run for run in self.runs if run < needed]:
            del self.runs[run]
        self._tell(Trim(needed))

    def close(self) -> None:
        """The program is over: all workers end."""
        for number in sorted(self.workers):
            self._dismiss(number, "the program is over")
        self._to(State.CLOSED)

    def fail(self, why: str, now_s: float) -> None:
        """The driver of this core cannot do what it was told: the run is given up."""
        self._now_s = now_s
        if self.state in IN_EPOCH:
            self._give_up(why=why)

    # ---- messages of workers ----------------------------------------------------------------------

    def receive(self, number: int, message: Any, now_s: float) -> None:
        """A message of a worker."""
        self._now_s = now_s
        worker = self.workers.get(number)
        if worker is None:
            return
        worker.heard_s = now_s
        match message:
            case Beat():
                return
            case Leaving():
                self._leaving(number)
                return
        if message.epoch != self.epoch:
            return
        match message:
            case Ready():
                self._ready(number)
            case Told():
                self._hear_told(message)
            case Arrived():
                self.moving.pop((message.group, message.index), None)
                self._see_leaving()
                self._see_over()
            case Stored():
                self._stored(message)
            case Used():
                self._count(number, message)
            case RunOver():
                self._run_over(number, message)
            case RunFailed() if worker.state is not WorkerState.PARTING:
                if self.state in IN_EPOCH:
                    self._give_up(message.error)
            case Left() if worker.state is WorkerState.PARTING:
                self._dismiss(number, "its slot is another user's turn")
                self._see_over()
            case PeerLost():
                self._peer_lost(number, message)
            case _:
                self._receive_more(number, message)

    def _receive_more(self, number: int, message: Any) -> None:
        """A message of a member, of this epoch, that is none of the above."""

    def _takers(self) -> list[int]:
        """Workers that partitions may move to. Not those that have joined at a signal, but still wait for their
        `Welcome`: others are not through with the block before, and what they sent there would not be passed on."""
        return [number for number in self._in(WorkerState.MEMBER) if self.workers[number].ready]

    def _ready(self, number: int) -> None:
        self.workers[number].ready = True
        if self.state is State.RUNNING:
            self._give_share(number)
            self._see_leaving()
            return
        if self.state not in _LOADED or not all(self.workers[member].ready for member in self.members()):
            return
        self._to(State.RUNNING)
        self._begun()
        for newcomer in self._in(WorkerState.HERE):
            self._invite(newcomer)
        self._see_leaving()
        self._see_over()

    def _begun(self) -> None:
        """All members have what they hold in this epoch: they call the program now."""

    def _hear_told(self, message: Told) -> None:
        """What a signal said. Different workers run signals, so news of a later one may come first."""
        self._told_early[message.previous] = message
        while (told := self._told_early.pop(self._signalled, None)) is not None:
            self._signalled = told.block
            self._told(told)

    def _told(self, message: Told) -> None:
        self.recorded[message.block] = message.value
        self._block = max(self._block, message.block)
        if message.flags:
            joined = [flag.joins for flag in message.flags if flag.joins in self.workers]
            joined = [number for number in joined if self.workers[number].state is WorkerState.JOINING]
            if joined:
                self._join(joined, message.block)
        self._see_whole((self.position, message.block))
        self._see_leaving()

    def _join(self, joined: list[int], block: int) -> None:
        """Workers are members from the end of a block on."""
        for number in joined:
            self.workers[number].state = WorkerState.MEMBER
            self.workers[number].ready = self.workers[number].over = False
        members = tuple(self.members())
        said = {earlier: value for earlier, value in self.recorded.items() if earlier <= block}
        entries = [(*slot, *entry) for slot, entry in self.placed.items()]
        shipped = self.runs[self.position]
        for number in joined:
            self._send(
                number, Enter(self.epoch, shipped, block + 1, said, entries, members, [], [], [], [], joins=True)
            )

    def _give_share(self, number: int) -> None:
        """A worker that has joined takes partitions over."""
        if self.workers[number].state is not WorkerState.MEMBER:
            return
        placed = {slot: entry.worker for slot, entry in self.placed.items()}
        for slot in newcomers_share(placed, number, self._takers()):
            if slot not in self.moving:
                self.order_move(slot, number)

    def _count(self, number: int, message: Used) -> None:
        before_s = self._reported_s.get(number)
        self._reported_s[number] = self._now_s
        if before_s is not None:
            here = self._used.setdefault(number, {})
            for group, index, used in message.used:
                here[group, index] = here.get((group, index), 0.0) + used
            self._counted_s[number] = self._counted_s.get(number, 0.0) + self._now_s - before_s
        self.tasks += message.tasks
        self._block = max(self._block, message.block)

    def _run_over(self, number: int, message: RunOver) -> None:
        self.workers[number].over = True
        first = self._result
        if first is not None and (first.blocks, first.hash) != (message.blocks, message.hash):
            self._give_up(
                why="the program diverged: it ended at different places at two workers; a program may branch on "
                "signals alone, not on time, chance or the machine"
            )
            return
        if first is None or number == min(self.members()):
            self._result = message
        self._see_over()

    def _see_over(self) -> None:
        """Go on to the next run, or return what the program returned, once it is over everywhere."""
        if self.state is State.IDLE and self.wanted:
            self._start()
        if self.state is not State.RUNNING or self.moving or self._in(WorkerState.PARTING):
            return
        if not all(self.workers[member].over for member in self.members()):
            return
        result = self._result
        assert result is not None
        for number in self._in(WorkerState.JOINING):
            self.workers[number].state = WorkerState.HERE
        self.live, self._storing = True, None
        if self.position < max(self.runs):
            if self._in(WorkerState.LEAVING):
                self._see_leaving()
            else:
                self._open()
            return
        self._to(State.RETURNING)
        partitions = self._layout.partitions
        places = [(dataset, index) for dataset in result.datasets for index in range(partitions[dataset])]
        members = self.members()
        self._tell(Over(self.position, self.epoch, result.returned, tuple(members)))
        by_holder: dict[int, list[PlaceOf]] = {member: [] for member in members}
        for place in places:
            holder = self._holder(*place)
            by_holder[members[0] if holder is None else holder].append(place)
        for holder, held in by_holder.items():
            self._send(holder, GiveBack(self.epoch, self.position, held))

    def _holder(self, dataset: int, index: int) -> int | None:
        """The member that has the latest value after a run; None if all have."""
        group = self._layout.groups[dataset]
        return None if group < 0 else self.placed[group, index].worker

    def _peer_lost(self, number: int, message: PeerLost) -> None:
        """Two workers do not reach each other. If one of them is lost, that will be known soon."""
        self._cut_off[number, message.worker] = (self.epoch, self._now_s + CUT_OFF_PATIENCE_S, message.why)

    def _see_cut_off(self) -> None:
        for (number, other), (epoch, until_s, why) in list(self._cut_off.items()):
            is_over = epoch != self.epoch or self.state not in IN_EPOCH
            if is_over or not {number, other} <= self.workers.keys():  # One that was dismissed ends its links.
                del self._cut_off[number, other]
            elif self._now_s >= until_s:
                self._cut_off.clear()
                self._roll_back(f"worker {number} does not reach worker {other}: {why}")
                return

    # ---- partitions move --------------------------------------------------------------------------

    def order_move(self, slot: Slot, number: int) -> None:
        """Have a partition move to a worker. News of that reach the others at some time.

        To one that is ready, so not to a newcomer before the signal's worker has welcomed it: that worker may still
        need, for the signal's block, chunks that are sent to the newcomer as the partition's next holder, and which
        the newcomer returns only once it has begun.
        """
        source = self.placed[slot].worker
        assert slot not in self.moving and source != number and self.workers[number].ready
        entry = self.placed.move(slot, number).entry
        self.moving[slot] = (source, number)
        self.moves += 1
        self._send(number, Move(self.epoch, *slot, entry.version, source))
        for member in self.members():
            self._send(member, MapUpdate(self.epoch, *slot, number, entry.version))

    def _leaving(self, number: int) -> None:
        """A worker's slot is another user's turn."""
        worker = self.workers[number]
        if worker.state is WorkerState.HERE:
            self._dismiss(number, "its slot is another user's turn")
        elif worker.state is WorkerState.JOINING:
            self._tell_gone(number, ())
            self._dismiss(number, "its slot is another user's turn")
        elif worker.state is WorkerState.MEMBER:
            worker.state = WorkerState.LEAVING
            if self.state not in IN_EPOCH and not self.live:
                self._dismiss(number, "its slot is another user's turn")
            else:
                self._see_leaving()
        self._top_up()

    def _see_leaving(self) -> None:
        """Move partitions of workers that leave; those that hold nothing any more part."""
        leaving = self._in(WorkerState.LEAVING)
        if not leaving or not (self.state is State.RUNNING or (self.state is State.IDLE and self.live)):
            return
        staying = self._takers()
        if not staying and self._in(WorkerState.MEMBER):
            return  # They are on their way.
        if not staying:
            if self.live:
                self._store_end()
            elif self._storing is None:
                self.make_snapshot()
            return
        for number in leaving:
            for slot in self.placed.held_by(number):
                if slot not in self.moving:
                    counts = {member: len(self.placed.held_by(member)) for member in staying}
                    self.order_move(slot, min(staying, key=lambda member: (counts[member], member)))
            ways = self.moving.values()
            if not self.placed.held_by(number) and not any(number in way for way in ways):
                self._part(number)
        if self.state is State.IDLE:
            self._see_over()

    def _part(self, number: int) -> None:
        self.workers[number].state = WorkerState.PARTING
        others = tuple(self.members())
        self._tell_gone(number, others)
        self._send(number, Gone(self.epoch, number, others))

    def _tell_gone(self, number: int, others: tuple[int, ...]) -> None:
        """Members learn that a worker is none, or will be none."""
        for member in self.members():
            self._send(member, Gone(self.epoch, number, others))

    # ---- snapshots --------------------------------------------------------------------------------

    def make_snapshot(self) -> None:
        """Have all store their partitions at the next signal."""
        self._storing = (-1, 0)
        self._snapshot_s = self._now_s
        self._flag(snapshot=True)

    def _store_end(self) -> None:
        """Store what there is after the last run."""
        if self._storing is not None or not self.live:
            return
        self._storing = (self.position, END)
        self._have_end_stored()

    def _have_end_stored(self) -> None:
        first = min(self.members())
        for member in self.members():
            self._send(member, StoreAll(self.epoch, END, copies=member == first))

    def _stored(self, message: Stored) -> None:
        key = (self.position, message.block)
        whole = self._last_whole()
        if whole is not None and key < whole:
            return  # The run went on without it, and another one is whole since.
        snapshot = self.snapshots.setdefault(key, Snapshot())
        if snapshot.signals is not None:
            return
        self.effects.append(Keep(key, message.values))
        snapshot.places.update(message.values)
        self._see_whole(key)

    def _see_whole(self, key: Key) -> None:
        """Whether all values of a snapshot are there, and what all signals before it said."""
        snapshot = self.snapshots.get(key)
        if snapshot is None or snapshot.signals is not None or not places_of(self._layout) <= snapshot.places:
            return
        if key[1] > self._signalled and key[1] != END:
            return
        snapshot.signals = {block: said for block, said in self.recorded.items() if block <= key[1]}
        self._storing = None
        self.effects.append(Complete(key, snapshot.signals))
        for older in [other for other in self.snapshots if other < key and other[0] == key[0]]:
            del self.snapshots[older]
            self.effects.append(Drop(older))
        self._see_stored()

    def _see_stored(self) -> None:
        """If all workers leave, they may now."""
        if self._in(WorkerState.MEMBER) or not self._in(WorkerState.LEAVING):
            if self.state is State.IDLE:
                self._trim()
            return
        self._dismiss_leaving()
        for number in self._in(WorkerState.JOINING):
            self.workers[number].state = WorkerState.HERE
        self.live = False
        self.moving.clear()
        if self.state is State.IDLE:
            self._trim()
            self._see_over()
        else:
            self._to(State.STALLED)
            self._top_up()
            self._gather()

    # ---- time -------------------------------------------------------------------------------------

    def tick(self, now_s: float) -> None:
        """Time has passed."""
        self._now_s = now_s
        for number, worker in list(self.workers.items()):
            if worker.state is not WorkerState.ASKED and now_s > worker.heard_s + DEAD_AFTER_S:
                self._send(number, Dismiss("nothing was heard of it"))
                self.lost(number, f"nothing was heard of it for {DEAD_AFTER_S:g} s", now_s)
        self._see_cut_off()
        self._top_up()
        self._gather()
        if self.state is State.RUNNING:
            every_s = self.settings.snapshot_every_s
            if every_s is not None and self._storing is None and now_s >= self._snapshot_s + every_s:
                self.make_snapshot()
            if now_s >= self._balance_s + BALANCE_EVERY_S:
                self._balance_s = now_s
                self._balance()
        if now_s >= self._progress_s + PROGRESS_EVERY_S and self.wanted:
            self._progress_s = now_s
            self._tell(self.progress())

    def _balance(self) -> None:
        members = self._takers()
        if len(members) < 2 or not all(self._counted_s.get(member) for member in members):
            return
        placed = {slot: entry.worker for slot, entry in self.placed.items() if entry.worker in members}
        move = self._balancer.observe(self._busy(members), placed, members, self.moving)
        self._used, self._counted_s = {}, {}
        if move is not None and move.slot not in self.moving:
            self.order_move(move.slot, move.destination)

    def _busy(self, members: Iterable[int]) -> dict[Slot, float]:
        """How much of a second tasks of each partition ran in a second.

        Reports of one look are for different times: of a worker there may be two, of another one, and they come
        between blocks, so that one is for a block more.
        """
        busy: dict[Slot, float] = {}
        for member in members:
            for slot, used in self._used.get(member, {}).items():
                busy[slot] = busy.get(slot, 0.0) + used / self._counted_s[member] / 1e9
        return busy

    def progress(self) -> Progress:
        return Progress(
            self.state.value, self.position, self._block + 1, self.tasks, len(self.members()), self.moves,
            self.rollbacks,
        )  # fmt: skip

    # ---- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        members = self.members()
        if self.state in IN_EPOCH:
            assert members, self.state
            self.placed.check_invariants(members)
            assert set(self.placed) == {
                (group, index) for group, count in groups_of(self._layout).items() for index in range(count)
            }
        if self.state in (State.GATHERING, State.STALLED):
            assert not members, (self.state, members)
            assert self.wanted
        if self.state is State.CLOSED:
            assert not self.workers
        for slot, (source, destination) in self.moving.items():
            assert self.placed[slot].worker == destination != source
            assert source in self.workers and destination in self.workers, (slot, source, destination)
        for number in self._in(WorkerState.PARTING):
            assert not self.placed.held_by(number)
        assert not self._in(WorkerState.JOINING) or self.state in (State.RUNNING,)
        assert all(key[0] in self.runs or key[1] == END for key in self.snapshots)
        if self.wanted:
            assert self.runs and self.position <= max(self.runs)
        self._balancer.check_invariants()
