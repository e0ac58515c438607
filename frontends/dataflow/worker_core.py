"""A worker's life among epochs: what it takes along from one to the next, and what it waits for before it goes on.

A driver hands it messages (`receive`), lets it make first values (`load`), which may call the user's functions, and
lets tasks run once `core` is there: this epoch's `LocalCore`, for which the driver calls the program, or, if a
controller commands the worker, its `CommandedCore`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commands import Commanded
from frontends.dataflow.control_messages import (
    CONTROLLER,
    DRIVER,
    Enter,
    Farewell,
    GiveBack,
    Gone,
    Halt,
    Layout,
    Left,
    PlaceOf,
    Ready,
    Returned,
    RunOver,
    StoreAll,
    Used,
    Values,
    Want,
)
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.local_core import HELD_MESSAGES_MAX, LocalCore
from frontends.dataflow.messages import Message, Stored, Welcome
from frontends.dataflow.partition_map import Entry, PartitionMap
from frontends.dataflow.recording import Recorder
from frontends.dataflow.routing import RULES, Action, Case
from frontends.dataflow.stages import Definition, Given
from frontends.dataflow.store import Store, first_value
from frontends.dataflow.values import copied


class Outbox(Protocol):
    def send(self, peer: int, message: Any) -> None:
        """To a worker, `CONTROLLER` or `DRIVER`."""
        ...

    def flush(self) -> None:
        """What was sent may not wait any longer."""
        ...


class _ToPeers:
    """The outbox of a core."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox

    def send(self, worker: int, message: Message | Commanded) -> None:
        self._outbox.send(worker, message)

    def report(self, message: Message | Commanded) -> None:
        self._outbox.send(CONTROLLER, message)

    def flush(self) -> None:
        self._outbox.flush()


def _as_it_is(value: Any) -> Any:
    return value


def _unpolled(now: int) -> int:
    return 1 << 62


def _no_clock() -> int:
    return 0


class WorkerCore:
    """One worker."""

    def __init__(
        self,
        me: int,
        outbox: Outbox,
        definition_of: Callable[[bytes], Definition],
        *,
        clock: Callable[[], int] = _no_clock,
        poll: Callable[[int], int] = _unpolled,
        rules: Mapping[Case, Action] = RULES,
        settle: Callable[[Any], Any] = _as_it_is,
        is_commanded: bool = False,
        recorder: Recorder | None = None,
    ) -> None:
        """`settle`: puts a value where partitions are kept, and returns it as it is there. `recorder`: for a timeline,
        over all epochs."""
        self.me = me
        self.epoch = -1
        self.entered: Enter | None = None
        """The epoch that it is in."""
        self.core: LocalCore | CommandedCore | None = None
        """There once all that it holds is there."""
        self._outbox = outbox
        self._definition_of = definition_of
        self._clock, self._poll, self._rules, self._settle = clock, poll, rules, settle
        self._is_commanded = is_commanded
        self._recorder = recorder
        self._definition = Definition()
        self._store = Store()
        self._missing: set[PlaceOf] = set()
        self._is_load_begun = self._is_loaded = False
        self._welcome: Welcome | None = None
        self._early: list[tuple[int, Any]] = []
        """Messages of epochs, or for a core, that are not there yet."""
        self._farewells: set[int] = set()
        self._parts_from: set[int] | None = None
        """Those whose farewells are awaited, of a worker that leaves."""
        self._tasks_told = 0

    # ---- epochs -----------------------------------------------------------------------------------

    def receive(self, sender: int, message: Any) -> None:
        """A message of a peer."""
        if isinstance(message, Enter | Halt):
            if message.epoch > self.epoch:
                self._change(message)
            return
        if message.epoch < self.epoch:
            return
        if message.epoch > self.epoch or self.entered is None:
            self._keep_for_later(sender, message)
        elif isinstance(message, Values):
            self._take(message)
        elif isinstance(message, Welcome):
            self._welcome = message
            self._begin_if_complete()
        elif self.core is None:
            self._keep_for_later(sender, message)
        else:
            self._handle(self.core, sender, message)

    def _keep_for_later(self, sender: int, message: Any) -> None:
        if len(self._early) >= HELD_MESSAGES_MAX:
            raise ProtocolError(f"more than {HELD_MESSAGES_MAX} messages wait for an epoch that does not begin")
        self._early.append((sender, message))

    def _change(self, message: Enter | Halt) -> None:
        """Another epoch, or none: give away what others are to have, and keep what is to be kept."""
        before = self._store if self.core is None else self.core.store
        self.epoch, self.core = message.epoch, None
        self.entered = message if isinstance(message, Enter) else None
        self._store, self._welcome = Store(), None
        self._is_load_begun = self._is_loaded = False
        self._farewells, self._parts_from, self._tasks_told = set(), None, 0
        if isinstance(message, Enter):
            given: dict[int, dict[PlaceOf, Any]] = {}
            for place, worker in message.given:
                given.setdefault(worker, {})[place] = copied(before.value(place))
            for worker, values in given.items():
                self._outbox.send(worker, Values(message.epoch, values))
            for place in message.kept:
                self._store.put(place, before.value(place))
            self._missing = set(message.awaited)
        early, self._early = self._early, []
        for sender, kept in early:
            self.receive(sender, kept)

    def load(self) -> None:
        """Make the values that are as at the program's start, or ask for them: once an epoch. The user's code may raise
        anything."""
        entered = self.entered
        assert entered is not None and not self._is_load_begun
        self._is_load_begun = True
        self._definition = self._definition_of(entered.shipped.definition)
        wanted = []
        for dataset, index in entered.made:
            spec = self._definition.datasets[dataset]
            if isinstance(spec.source, Given) and not spec.source.values:
                wanted.append((dataset, index))
            else:
                self._store.put((dataset, index), self._settle(first_value(spec, index)))
        self._missing.update(wanted)
        if wanted:
            self._outbox.send(DRIVER, Want(self.epoch, wanted))
        self._is_loaded = True
        self._begin_if_complete()

    @property
    def wants_load(self) -> bool:
        return self.entered is not None and not self._is_load_begun

    def _take(self, message: Values) -> None:
        for place, value in message.values.items():
            if place not in self._missing:
                raise ProtocolError(f"worker {self.me} got a value of {place}, which it does not wait for")
            self._missing.remove(place)
            self._store.put(place, self._settle(value))
        self._begin_if_complete()

    def _begin_if_complete(self) -> None:
        entered = self.entered
        assert entered is not None
        if self._missing or not self._is_loaded:
            return
        if entered.joins and self._welcome is None and not self._is_commanded:
            return
        placed = PartitionMap.of_entries(
            {(group, index): Entry(worker, version) for group, index, worker, version in entered.placed}
        )
        core = self.core = self._commanded(placed) if self._is_commanded else self._local(entered, placed)
        core.recorder = self._recorder
        for copy in self._definition.copies():
            core.put_copy(copy, self._store.value((copy, 0)))
        for slot in [] if entered.joins else placed.held_by(self.me):
            members = self._definition.members(slot[0])
            core.hold(slot, {dataset: self._store.value((dataset, slot[1])) for dataset in members})
        self._outbox.send(CONTROLLER, Ready(self.epoch))
        early, self._early = self._early, []
        for sender, message in early:
            self.receive(sender, message)

    def _commanded(self, placed: PartitionMap) -> CommandedCore:
        return CommandedCore(
            self._definition, self.me, placed, _ToPeers(self._outbox), epoch=self.epoch, clock=self._clock,
            poll=self._poll,
        )  # fmt: skip

    def _local(self, entered: Enter, placed: PartitionMap) -> LocalCore:
        cut, members = None, set(entered.members)
        if self._welcome is not None:
            for copy, value in self._welcome.copies.items():
                self._store.put((copy, 0), self._settle(value))
            members |= set(self._welcome.workers)  # Those of whom the controller has not heard yet.
            if self._welcome.stored_before >= 0:
                cut = (self._welcome.block, self._welcome.stored_before)
        return LocalCore(
            self._definition, self.me, members, placed, _ToPeers(self._outbox), epoch=self.epoch,
            first_block=entered.until, cut=cut, clock=self._clock, poll=self._poll, rules=self._rules,
        )  # fmt: skip

    # ---- within one -------------------------------------------------------------------------------

    def _handle(self, core: LocalCore | CommandedCore, sender: int, message: Any) -> None:
        if isinstance(message, GiveBack):
            for place in message.places:
                self._outbox.send(
                    DRIVER, Returned(message.run, self.epoch, {place: core.store.value(place)}, last=False)
                )
            if self._recorder is not None:
                self._recorder.flush()
            self._outbox.send(DRIVER, Returned(message.run, self.epoch, {}, last=True))
        elif isinstance(core, LocalCore):
            self._handle_local(core, sender, message)
        else:
            core.receive(sender, message)

    def _handle_local(self, core: LocalCore, sender: int, message: Any) -> None:
        match message:
            case Gone():
                self._see_gone(core, message)
            case Farewell():
                self._farewells.add(sender)
                self._see_farewells()
            case StoreAll():
                self._store_all(core, message)
            case _:
                core.receive(sender, message)

    def _see_gone(self, core: LocalCore, message: Gone) -> None:
        if message.worker != self.me:
            core.workers.discard(message.worker)
            if self.me in message.members:
                self._outbox.send(message.worker, Farewell(self.epoch))
            return
        self._parts_from = set(message.members)
        self._see_farewells()

    def _see_farewells(self) -> None:
        if self._parts_from is not None and self._parts_from <= self._farewells:
            self._parts_from = None
            self._outbox.send(CONTROLLER, Left(self.epoch))

    def _store_all(self, core: LocalCore, message: StoreAll) -> None:
        places = [(dataset, slot[1]) for slot in sorted(core.held) for dataset in core.members(slot)]
        places += [(copy, 0) for copy in core.definition.copies()] if message.copies else []
        for place in places:
            self._outbox.send(CONTROLLER, Stored(self.epoch, message.block, {place: copied(core.store.value(place))}))

    def run_over(self, blocks: int, hash_after: int, returned: bytes, datasets: tuple[int, ...]) -> None:
        """The program has returned here."""
        self._outbox.send(CONTROLLER, RunOver(self.epoch, blocks, hash_after, returned, datasets))

    def report_used(self) -> None:
        """Tell the controller how long partitions took, and how many tasks were run."""
        core = self.core
        if core is not None:
            used = [(*slot, used) for slot, used in core.take_used_ns().items() if used]
            told = Used(self.epoch, used, core.tasks_run - self._tasks_told, core.block_number)
            self._outbox.send(CONTROLLER, told)
            self._tasks_told = core.tasks_run

    def check_invariants(self) -> None:
        assert self.core is None or (not self._missing and self.core.epoch == self.epoch)
        if self.core is not None:
            self.core.check_invariants()


def layout_of(definition: Definition) -> Layout:
    """What the controller has to know of a definition."""
    partitions = (0 if spec.id in definition.replaced else spec.partitions for spec in definition.datasets)
    return Layout(tuple(partitions), tuple(definition.groups))
