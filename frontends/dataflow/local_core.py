"""A worker that spawns its tasks itself, from the calls of its own copy of the program and the partitions it holds.

Events come from a driver: a block begins (`begin`), a message arrives (`receive`), there is time for tasks (`step`),
the block is done (`finish`). Messages go to an `Outbox`. The controller only says where partitions are.

A partition moves in four messages. The controller orders its next holder to fetch it (`Move`); that one says to the
holder from which block on it has room for it in its graph (`Give`): the next one. The holder flags the partition once
it has come as far, runs no further task on it, and sends it with the last call on each array and with the chunks that
came for it (`Partition`). In the next holder's graph the partition's tasks wait meanwhile, so that no copy of a
replicated dataset is overwritten that they have still to read. Others learn of the new holder at any time
(`MapUpdate`); until then `routing.RULES` mend what they send.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from frontends.dataflow.binding import Bound, Outputs, bind, noted
from frontends.dataflow.blocks import STOP, Cache, Graph, Run, Slot, derive, run_ready
from frontends.dataflow.calls import Block, rolled
from frontends.dataflow.errors import ProgramDiverged, ProtocolError
from frontends.dataflow.inboxes import Inboxes
from frontends.dataflow.messages import (
    Arrived,
    Chunk,
    Flag,
    Give,
    MapUpdate,
    Marker,
    Message,
    Move,
    Partition,
    Replica,
    Routed,
    Stored,
    Told,
    Welcome,
)
from frontends.dataflow.partition_map import Entry, PartitionMap
from frontends.dataflow.recording import Recorder
from frontends.dataflow.routing import HOPS_MAX, RULES, Action, Case, Presence, newer
from frontends.dataflow.stages import Definition
from frontends.dataflow.store import Store
from frontends.dataflow.values import copied as copy_of

BEHIND_MAX = 1_000_000
"""Signals of blocks that have not begun here. Workers that need nothing of each other need not be as far."""
HELD_MESSAGES_MAX = 1_000_000
"""Messages for partitions that are not here yet."""


class Outbox(Protocol):
    def send(self, worker: int, message: Message) -> None: ...

    def flush(self) -> None:
        """Nothing more is sent for now: what was sent may not wait any longer."""
        ...

    def report(self, message: Message) -> None:
        """To the controller."""
        ...


@dataclass(slots=True)
class _Awaited:
    """A partition that is to come here."""

    version: int
    block: int
    """The first block whose graph here has its tasks."""
    source: int
    """Who has it now."""


@dataclass(slots=True)
class _Prepared:
    """A bound graph and what of it waits for messages."""

    bound: Bound
    gathers: list[tuple[int, int, int]]
    """Tasks of gathers here: task, position of the scatter, partition."""
    gather_of: dict[int, int]
    """Position of the gather by that of its scatter."""
    scatters: dict[int, int]
    """How many tasks of each scatter run here, by position; not those of awaited partitions."""


def _unpolled(now: int) -> int:
    return 1 << 62


def _no_clock() -> int:
    return 0


class LocalCore:
    """One worker. `held` is what is here; `placed`, what it knows of where all is."""

    def __init__(
        self,
        definition: Definition,
        me: int,
        workers: Iterable[int],
        placed: PartitionMap,
        outbox: Outbox,
        *,
        epoch: int = 0,
        first_block: int = 0,
        cut: tuple[int, int] | None = None,
        clock: Callable[[], int] = _no_clock,
        poll: Callable[[int], int] = _unpolled,
        rules: Mapping[Case, Action] = RULES,
    ) -> None:
        self.definition = definition
        self.me = me
        self.workers = set(workers)
        self.placed = placed
        self.outbox = outbox
        self.epoch = epoch
        self.first_block = first_block
        """Of a worker that joins, or goes back to a snapshot, not 0."""
        self.store = Store()
        self.held: set[Slot] = set()
        self.awaited: dict[Slot, _Awaited] = {}
        self.giving: dict[Slot, Give] = {}
        self.block: Block | None = None
        self.finished = True
        """Whether the block that began last is over."""
        self.tasks_run = 0
        self.counts: Counter[Action] = Counter()
        self.used_ns: Counter[Slot] = Counter()
        """Time of tasks by partition."""
        self.recorder: Recorder | None = None
        """For a timeline."""
        self._clock, self._poll, self._rules = clock, poll, rules
        self._deadline = 0
        self._cache: Cache[tuple[int, tuple[int, ...]], _Prepared] = Cache()
        self._graph = Graph((), (), {})
        self._prepared = _Prepared(Bound(self._graph, [], [], [], {}, ()), [], {}, {})
        self._run = Run([], [], deque())
        self._used = [0]
        self._unsettled = False
        self._flagged: set[int] = set()
        self._positions: dict[Slot, dict[int, int]] = {}
        """For partitions that are not just at the block's start: the last call on each dataset."""
        self._copied: dict[int, int] = {}
        """The last call whose value each copy has."""
        self._inboxes = Inboxes()
        self._held_messages: dict[Slot, list[Routed]] = {}
        self._held_count = 0
        self._replicas: dict[tuple[int, int], Any] = {}
        self._nothing: dict[int, dict[int, list[int]]] = {}
        """By the call of a scatter and destination: sources here that had nothing for it, and were not told yet."""
        self._scatters_left: dict[int, int] = {}
        self._told: dict[int, Told] = {}
        self._flags: list[Flag] = []
        self._flags_done = 0
        self._last_signal = first_block - 1
        """The block of it: workers begin with the first block, or after a signal."""
        self._cut = cut
        """Block of the last snapshot, and the first call after it."""

    # ---- what is here -----------------------------------------------------------------------------

    def hold(self, slot: Slot, values: Mapping[int, Any]) -> None:
        """The partition is here, with its values by dataset, since before the first block."""
        for dataset, value in values.items():
            self.store.put((dataset, slot[1]), value)
        self.held.add(slot)

    def put_copy(self, dataset: int, value: Any) -> None:
        self.store.put((dataset, 0), value)

    def members(self, slot: Slot) -> tuple[int, ...]:
        return self.definition.members(slot[0])

    @property
    def block_number(self) -> int:
        """Of the block that began last; -1 before the first one."""
        return -1 if self.block is None else self.block.number

    # ---- blocks -----------------------------------------------------------------------------------

    def begin(self, block: Block) -> None:
        """The program has called a block."""
        assert self.finished, "the block before is not over"
        if self._unsettled or self.giving:
            self._settle()
        self.block, self.finished = block, False
        first = block.first_call
        if self._positions:
            self._positions = {
                slot: {dataset: max(call, first - 1) for dataset, call in last.items()}
                for slot, last in self._positions.items()
                if max(last.values()) >= first
            }
        if self._told and block.number in self._told:
            self._check_told(self._told[block.number])
        if self._positions or self.awaited:
            self._start(self._derive())
        else:
            key = (self.definition.version, block.stages)
            prepared = self._cache.get(key)
            if prepared is None:
                prepared = self._derive()
                self._cache.put(key, prepared)
            self._start(prepared)
        if self.giving:
            for slot in self.giving:
                self._flag(slot)

    def _derive(self) -> _Prepared:
        """The tasks of the block that are left for what is here or comes."""
        block = self.block
        assert block is not None
        first = block.first_call
        awaited = [slot for slot, awaited in self.awaited.items() if awaited.block <= block.number]
        positions = self._positions
        groups, stages = self.definition.groups, self.definition.stages

        def done(call: int, stage: int, index: int) -> bool:
            dataset = stages[stage].group_dataset
            last = positions.get((groups[dataset], index))
            return last is not None and last[dataset] >= first + call

        def had(call: int, dataset: int) -> bool:
            return self._copied.get(dataset, -1) >= first + call

        graph = derive(
            self.definition, block.stages, sorted([*self.held, *awaited]), awaited=awaited, done=done, copied=had
        )
        return self._prepare(graph, set(awaited))

    def _prepare(self, graph: Graph, awaited: set[Slot]) -> _Prepared:
        gathers: list[tuple[int, int, int]] = []
        scatters: dict[int, int] = {}
        gather_of = {scatter: gather for gather, scatter in graph.sources.items()}
        for scatter in gather_of:
            scatters[scatter] = 0
        for number, task in enumerate(graph.tasks):
            if task.call in graph.sources:
                gathers.append((number, graph.sources[task.call], task.partition))
            elif task.call in scatters and graph.slots[task.slot] not in awaited:
                scatters[task.call] += 1
        return _Prepared(bind(self.definition, graph, self.store, self, in_chains=True), gathers, gather_of, scatters)

    def _start(self, prepared: _Prepared) -> None:
        """Run these tasks from now on; of what they wait for, some may be here already."""
        block = self.block
        assert block is not None
        first = block.first_call
        graph = prepared.bound.graph
        if graph is not self._graph and graph.slots != self._graph.slots:
            self._count_used()
            self._used = [0] * (len(graph.slots) + 1)
        self._prepared, self._graph = prepared, graph
        self._run = run = prepared.bound.run(block.parameters)
        self._flagged.clear()
        for task, scatter, index in prepared.gathers:
            covered = self._inboxes.covered(first + scatter, index)
            if covered and covered == self.definition.stages[block.stages[scatter]].partitions:
                run.release(task)
        if self._replicas:
            for (call, copy), task in graph.receives.items():
                if (first + call, copy) in self._replicas:
                    run.release(task)
        if prepared.scatters:
            self._scatters_left = dict(prepared.scatters)
            for scatter, left in prepared.scatters.items():
                if not left:
                    self._tell_nothing(first + scatter, block.stages[scatter])

    def _count_used(self) -> None:
        for slot, used in zip(self._graph.slots, self._used, strict=False):
            self.used_ns[slot] += used

    def take_used_ns(self) -> dict[Slot, int]:
        """The time of tasks by partition since the last look."""
        if self.recorder is not None:
            self.recorder.pause()
        self._count_used()
        self._used[:] = [0] * len(self._used)
        used = dict(self.used_ns)
        self.used_ns.clear()
        return used

    def step(self) -> None:
        """Run tasks until none is ready, or the driver's poll says stop; send partitions that may leave."""
        while True:
            if self._unsettled or self.giving:
                self._settle()
            run = self._run
            if not run.queue:
                return
            try:
                deadline = max(self._deadline, 0)
                if self.recorder is None:
                    self._deadline = run_ready(run, self._flagged, self._used, self._clock, self._polled, deadline)
                else:
                    self._deadline = self.recorder.run_ready(
                        -1 if self.block is None else self.block.number, self._graph, run, self._flagged, self._used,
                        self._clock, self._polled, deadline,
                    )  # fmt: skip
            except BaseException as error:
                first = 0 if self.block is None else self.block.first_call
                noted(error, self.definition, self._prepared.bound, run.failed, first)
                raise
            if self._deadline == STOP and not self._unsettled:
                return

    def _polled(self, now: int) -> int:
        deadline = self._poll(now)
        return STOP if self._unsettled else deadline

    def run_no_more(self) -> None:
        """No task is ready from now on, nor will be: this is a copy of a worker, in a process that a task forked."""
        self.giving.clear()
        self._unsettled = False
        self._run.queue.clear()
        self._run.needs[:] = [len(self._run.needs) + 1] * len(self._run.needs)

    @property
    def has_work(self) -> bool:
        """Whether a step would run tasks or send partitions."""
        return bool(self._run.queue) or self._unsettled

    def is_done(self) -> bool:
        """Whether all tasks of the block here have run, and its signal, if it has one, is known."""
        block = self.block
        if block is None or self.finished or not self._run.is_done():
            return False
        return block.number in self._told or not self.definition.stages[block.stages[-1]].ends_block

    def finish(self) -> bool:
        """The block is over; what its signal said."""
        assert self.is_done()
        block = self.block
        assert block is not None
        self.finished = True
        self.tasks_run += len(self._graph.tasks)
        self._prepared.bound.check_unchanged(self.definition, self.store)
        told = self._told.pop(block.number, None)
        if told is None:
            return False
        self._last_signal = block.number
        if told.worker != self.me:
            self._check_told(told)
        if not told.flags:
            return told.value
        self.workers.update(flag.joins for flag in told.flags if flag.joins >= 0)
        for flag in told.flags:
            self._carry_out(flag, told)
        self._flags = [flag for flag in self._flags if flag.number > self._flags_done]
        return told.value

    def _carry_out(self, flag: Flag, told: Told) -> None:
        """What was to happen at this signal."""
        block = self.block
        assert block is not None
        if flag.number <= self._flags_done:
            return
        self._flags_done = flag.number
        copies = {copy: copy_of(self.store.value((copy, 0))) for copy in self.definition.copies()}
        if flag.joins >= 0 and told.worker == self.me:
            stored = any(flag.snapshot for flag in told.flags)
            after = block.first_call + len(block.stages) if stored else -1
            welcome = Welcome(self.epoch, block.number, copies, tuple(sorted(self.workers)), after)
            self.outbox.send(flag.joins, welcome)
        if flag.snapshot:
            after = block.first_call + len(block.stages)
            self._cut = (block.number, after)
            self._note_positions()
            for slot in sorted(self.held):
                if max(self._positions[slot].values()) < after:
                    self._store_snapshot(block.number, slot)
            if told.worker == self.me:
                values = {(copy, 0): value for copy, value in copies.items()}
                self.outbox.report(Stored(self.epoch, block.number, values))

    def _store_snapshot(self, block: int, slot: Slot) -> None:
        values = {(dataset, slot[1]): copy_of(self.store.value((dataset, slot[1]))) for dataset in self.members(slot)}
        self.outbox.report(Stored(self.epoch, block, values))

    # ---- what tasks made --------------------------------------------------------------------------

    def _number(self, call: int) -> int:
        assert self.block is not None
        return self.block.first_call + call

    def scattered(self, call: int, index: int, outputs: Outputs) -> None:
        block = self.block
        assert block is not None
        number, stage = self._number(call), self.definition.stages[block.stages[call]]
        assert stage.to is not None
        group = self.definition.groups[stage.to]
        nothing = self._nothing.setdefault(number, {})
        for destination in range(self.definition.datasets[stage.to].partitions):
            chunks = outputs.get(destination)
            if chunks is None:
                nothing.setdefault(destination, []).append(index)
            else:
                self._route_out(
                    Chunk(
                        self.epoch, block.number, block.hash_before, number, stage.id, index, group, destination,
                        0, 0, chunks,
                    )
                )  # fmt: skip
        self._scatters_left[call] -= 1
        if not self._scatters_left[call]:
            self._tell_nothing(number, stage.id)
        self.outbox.flush()

    def _tell_nothing(self, number: int, stage_id: int) -> None:
        """Send the markers of a scatter's call: its tasks here have run."""
        stage, block = self.definition.stages[stage_id], self.block
        assert stage.to is not None and block is not None
        group = self.definition.groups[stage.to]
        for destination, sources in self._nothing.pop(number, {}).items():
            self._route_out(
                Marker(
                    self.epoch, block.number, block.hash_before, number, stage_id, tuple(sources), group, destination,
                    0, 0,
                )
            )  # fmt: skip

    def chunks(self, call: int, index: int) -> list[Any]:
        return self._inboxes.take(self._number(self._graph.sources[call]), index)

    def gathered(self, call: int, index: int) -> None:
        """The chunks are gone with the inbox."""

    def signalled(self, call: int, value: bool) -> None:
        block = self.block
        assert block is not None
        flags = tuple(flag for flag in self._flags if flag.number > self._flags_done) if self._flags else ()
        hash_after = rolled(block.hash_before, block.stages)
        told = Told(
            self.epoch, block.number, hash_after, self._number(call), block.stages[call], value, self.me, flags,
            self._last_signal,
        )  # fmt: skip
        self._told[block.number] = told
        for worker in self._others():
            self.outbox.send(worker, told)
        self.outbox.report(told)
        self.outbox.flush()

    def _others(self) -> list[int]:
        return sorted(self.workers - {self.me}) if len(self.workers) > 1 else []

    def wrote(self, call: int, copies: Sequence[int]) -> None:
        block = self.block
        assert block is not None
        for copy in copies:
            self._copied[copy] = self._number(call)
            for worker in self._others():
                value = copy_of(self.store.value((copy, 0)))
                self.outbox.send(
                    worker,
                    Replica(
                        self.epoch, block.number, block.hash_before, self._number(call), block.stages[call], copy, value
                    ),
                )
        self.outbox.flush()

    def receive_copy(self, call: int, copy: int) -> None:
        number = self._number(call)
        self.store.overwrite((copy, 0), self._replicas.pop((number, copy)))
        self._copied[copy] = number

    # ---- messages ---------------------------------------------------------------------------------

    def receive(self, sender: int, message: Message) -> None:
        """A message of a worker, or of the controller (a sender below 0); those of other epochs are dropped."""
        if message.epoch != self.epoch:
            return
        match message:
            case Chunk() | Marker():
                self._check_stage(sender, message)
                self._route_in(message)
            case Replica():
                self._check_stage(sender, message)
                self._take_replica(message)
            case Told():
                if len(self._told) >= BEHIND_MAX:
                    raise ProtocolError(f"worker {self.me} is more than {BEHIND_MAX} signals behind others")
                self._told[message.block] = message
                if self.block is not None and not self.finished and message.block == self.block.number:
                    self._check_told(message)
            case Flag():
                if message.number > self._flags_done:
                    self._flags.append(message)
            case MapUpdate(group=group, index=index):
                if self.placed.apply((group, index), Entry(message.worker, message.version)):
                    self._route_held((group, index))
            case Move():
                self._fetch(message)
            case Give():
                self._promise(message)
            case Partition():
                self._arrive(message)
            case _:
                raise ProtocolError(f"worker {self.me} got a {type(message).__name__} from {sender}")

    def _check_stage(self, sender: int, message: Chunk | Marker | Replica) -> None:
        """The sender has called the same stages, as far as can be seen now."""
        block = self.block
        if block is None or self.finished or message.block != block.number:
            return
        position = message.call - block.first_call
        here = block.stages[position] if 0 <= position < len(block.stages) else block.stages[-1]
        if message.hash != block.hash_before or here != message.stage:
            names = self.definition.stages
            raise ProgramDiverged(message.call, names[here].name, sender, names[message.stage].name)

    def _check_told(self, told: Told) -> None:
        """Who ran the signal has called the same stages in this block and before."""
        block = self.block
        assert block is not None
        if told.hash_after != rolled(block.hash_before, block.stages):
            names = self.definition.stages
            raise ProgramDiverged(told.call, names[block.stages[-1]].name, told.worker, names[told.stage].name)

    def _take_replica(self, message: Replica) -> None:
        self._replicas[message.call, message.copy] = message.value
        if self.block is not None and not self.finished:
            task = self._graph.receives.get((message.call - self.block.first_call, message.copy))
            if task is not None:
                self._run.release(task)

    # ---- messages for whoever holds a partition ---------------------------------------------------

    def _route_out(self, message: Routed) -> None:
        """Send what a task here made to the holder, as far as is known."""
        slot = (message.group, message.index)
        entry = self.placed[slot]
        message = msgspec.structs.replace(message, version=entry.version)
        if slot in self.held or entry.worker == self.me:
            self._route_in(message)
        else:
            self.outbox.send(entry.worker, message)

    def _route_in(self, message: Routed) -> None:
        """What has come for a partition: `routing.RULES` say what becomes of it."""
        slot = (message.group, message.index)
        entry = self.placed[slot]
        action = self._rules[self._presence(slot, message.block), newer(message.version, entry.version)]
        self.counts[action] += 1
        if action is Action.ACCEPT:
            self._accept(message)
        elif action is Action.HOLD:
            self._held_count += 1
            if self._held_count > HELD_MESSAGES_MAX:
                raise ProtocolError(f"more than {HELD_MESSAGES_MAX} messages wait for partitions that do not come")
            self._held_messages.setdefault(slot, []).append(message)
        elif action is Action.FORWARD:
            self._pass_on(message, entry.worker, entry.version)
        elif action is Action.RETURN:
            self._pass_on(message, self.awaited[slot].source, message.version)
        else:
            raise ProtocolError(
                f"{type(message).__name__} for partition {slot}, version {message.version}, came to worker {self.me}, "
                f"whose map of version {entry.version} names worker {entry.worker}"
            )

    def _presence(self, slot: Slot, block: int) -> Presence:
        if slot in self.held:
            return Presence.HERE
        awaited = self.awaited.get(slot)
        if awaited is not None:
            return Presence.COMING if block >= awaited.block else Presence.LATER
        return Presence.NAMED if self.placed[slot].worker == self.me else Presence.AWAY

    def _pass_on(self, message: Routed, worker: int, version: int) -> None:
        if message.hops >= HOPS_MAX:
            slot = (message.group, message.index)
            raise ProtocolError(f"{type(message).__name__} for partition {slot} was passed on {message.hops} times")
        passed = msgspec.structs.replace(message, version=version, hops=message.hops + 1)
        self.outbox.send(worker, passed)

    def _route_held(self, slot: Slot) -> None:
        """Look again at what was held for a partition, whose entry or place has changed."""
        messages = self._held_messages.pop(slot, [])
        self._held_count -= len(messages)
        for message in messages:
            self._route_in(message)

    def _accept(self, message: Routed) -> None:
        if isinstance(message, Chunk):
            covered = self._inboxes.add(message.call, message.stage, message.index, message.source, message.chunks)
        else:
            covered = self._inboxes.cover(message.call, message.stage, message.index, message.sources)
        block = self.block
        if block is None or self.finished or covered < self.definition.stages[message.stage].partitions:
            return
        gather = self._prepared.gather_of.get(message.call - block.first_call)
        if gather is not None:
            task = self._graph.at.get((gather, message.index))
            if task is not None:
                self._run.release(task)

    # ---- partitions that move ---------------------------------------------------------------------

    def _begun(self) -> int:
        """The number of the block that began last."""
        return self.first_block - 1 if self.block is None else self.block.number

    def _fetch(self, message: Move) -> None:
        """Ask for a partition that is to be here."""
        slot = (message.group, message.index)
        if slot in self.held or slot in self.awaited:
            raise ProtocolError(f"worker {self.me} is to fetch {slot}, which it has or awaits")
        self.placed.apply(slot, Entry(self.me, message.version))
        self.awaited[slot] = _Awaited(message.version, self._begun() + 1, message.source)
        give = Give(self.epoch, message.group, message.index, message.version, self.me, self._begun() + 1)
        self.outbox.send(message.source, give)
        self._route_held(slot)

    def _promise(self, message: Give) -> None:
        """Another worker awaits a partition of here."""
        slot = (message.group, message.index)
        if slot not in self.held and slot not in self.awaited:
            raise ProtocolError(f"worker {message.worker} asks worker {self.me} for {slot}, which is not here")
        self.giving[slot] = message
        self._unsettled = True
        self._flag(slot)

    def _flag(self, slot: Slot) -> None:
        """Keep tasks of a partition back that is to leave, if its next holder has come as far as this block."""
        if slot in self._graph.slots and self._begun() >= self.giving[slot].block:
            self._flagged.add(self._graph.slots.index(slot))

    def _settle(self) -> None:
        """Send partitions that may leave; make the tasks those of what is here then."""
        changed, self._unsettled = self._unsettled, False
        for slot, give in list(self.giving.items()):
            if slot in self.held and self._may_leave(slot, give):
                self._send(slot, give)
                changed = True
        if changed:
            self._cache.clear()
            self._note_positions()
            if self.block is not None and not self.finished:
                self.tasks_run += len(self._graph.tasks) - len(self._run.undone())
                self._start(self._derive())
                for slot in self.giving:
                    self._flag(slot)

    def _may_leave(self, slot: Slot, give: Give) -> bool:
        """Whether no task is left on the partition of blocks before the one from which on it is awaited."""
        if self._begun() >= give.block:
            return True
        if self._begun() + 1 < give.block:
            return False
        if self.finished:
            return True
        undone = self._run.undone()
        return not any(
            self._graph.slots[task.slot] == slot and number in undone
            for number, task in enumerate(self._graph.tasks)
            if task.slot >= 0
        )

    def _note_positions(self) -> None:
        """Write down the last call on each dataset of the partitions here."""
        block, graph = self.block, self._graph
        before = -1 if block is None else block.first_call - 1
        for slot in self.held:
            if slot not in self._positions:
                self._positions[slot] = dict.fromkeys(self.members(slot), before)
        if block is None:
            return
        undone = self._run.undone()
        for number, task in enumerate(graph.tasks):
            if task.slot < 0 or number in undone or graph.slots[task.slot] not in self.held:
                continue
            last = self._positions[graph.slots[task.slot]]
            for dataset in self.definition.stages[graph.stages[task.call]].touches:
                last[dataset] = max(last[dataset], block.first_call + task.call)

    def _send(self, slot: Slot, give: Give) -> None:
        """Give a partition away: from now on it is not here."""
        group, index = slot
        self._note_positions()
        stages = self.definition.stages
        scatters = frozenset(
            stage.id for stage in stages if stage.to is not None and self.definition.groups[stage.to] == group
        )
        values = {dataset: self.store.take((dataset, index)) for dataset in self.members(slot)}
        last = self._positions.pop(slot)
        self.held.remove(slot)
        del self.giving[slot]
        self.placed.apply(slot, Entry(give.worker, give.version))
        arrived = self._inboxes.leave(index, scatters)
        self.outbox.send(give.worker, Partition(self.epoch, group, index, give.version, values, last, arrived))

    def _arrive(self, message: Partition) -> None:
        """An awaited partition is here."""
        slot = (message.group, message.index)
        awaited = self.awaited.get(slot)
        if awaited is None or awaited.version != message.version:
            raise ProtocolError(f"partition {slot}, version {message.version}, came and was not awaited")
        del self.awaited[slot]
        self.hold(slot, message.values)
        self._positions[slot] = dict(message.last)
        for call, stage, chunks, nothing in message.arrived:
            for source, parts in chunks.items():
                self._inboxes.add(call, stage, slot[1], source, parts)
            self._inboxes.cover(call, stage, slot[1], tuple(nothing))
        self._unsettled = True
        self._route_held(slot)
        if self._cut is not None and max(message.last.values()) < self._cut[1]:
            self._store_snapshot(self._cut[0], slot)  # It was on its way while others stored theirs.
        self.outbox.report(Arrived(self.epoch, message.group, message.index, message.version))

    # ---- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        assert self.held.isdisjoint(self.awaited), (self.held, self.awaited)
        for slot in self.held:
            for dataset in self.members(slot):
                assert (dataset, slot[1]) in self.store, (slot, dataset)
        for slot, awaited in self.awaited.items():
            assert self.placed[slot].version >= awaited.version
        assert self.giving.keys() <= self.held | self.awaited.keys()
        assert self._held_count == sum(map(len, self._held_messages.values()))
        assert self.held.isdisjoint(self._held_messages.keys())
        assert all(need >= 0 for need in self._run.needs)
        if not self._unsettled and self.block is not None and not self.finished:
            here = {slot for slot, awaited in self.awaited.items() if awaited.block <= self.block.number} | self.held
            assert set(self._graph.slots) == here, (self._graph.slots, here)
            self._graph.check_invariants()
