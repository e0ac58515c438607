"""A world of workers that spawn their tasks themselves: links that delay and reorder, and a controller."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.inline import InlineRunner
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.messages import Arrived, Flag, MapUpdate, Message, Move, Stored, Told, Welcome
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import initial
from frontends.dataflow.routing import RULES, Action, Case
from frontends.dataflow.stages import DatasetKind
from frontends.dataflow.store import first_value
from frontends.dataflow.values import copied

CONTROLLER = -1
STEPS_MAX = 100_000


class Stuck(AssertionError):
    """Nothing is on its way and no core can go on, and the program is not over."""


class _Paused(Exception):
    def __init__(self, block: Block) -> None:
        self.block = block


def _never(block: Block) -> bool:
    raise _Paused(block)


class _Links:
    """A core's outbox in the world."""

    def __init__(self, world: World, me: int) -> None:
        self.world, self.me = world, me

    def send(self, worker: int, message: Message) -> None:
        assert worker != self.me
        self.world.sent[type(message).__name__] += 1
        self.world.links.setdefault((self.me, worker), deque()).append(message)

    def report(self, message: Message) -> None:
        self.world.reported(message)


class World:
    """Runs a program of a Dataflow on `workers` cores; `chance` decides the order of all that happens."""

    def __init__(
        self,
        df: Dataflow,
        program: Callable[[], Any],
        workers: int,
        chance: Random,
        *,
        rules: Mapping[Case, Action] = RULES,
        programs: Mapping[int, Callable[[], Any]] | None = None,
    ) -> None:
        df._freeze()
        self.df, self.program, self.chance, self.rules = df, program, chance, rules
        self.programs = programs or {}
        """Programs of workers that do not run the common one."""
        self.definition = df._definition
        self.links: dict[tuple[int, int], deque[Message]] = {}
        self.sent: Counter[str] = Counter()
        self.epoch = 0
        self.placed = PartitionMap(initial(self.definition.group_partitions(), range(workers)))
        self.moving: set[tuple[int, int]] = set()
        self.moves = self.joins = self.dropped = 0
        self.recorded: dict[int, bool] = {}
        """What signals said, by block: all that a controller keeps of a run."""
        self.flags = 0
        self.joining: set[int] = set()
        self.snapshots: dict[int, dict[tuple[int, int], Any]] = {}
        self.cores: dict[int, LocalCore] = {}
        self.restarts: dict[int, LocalCore] = {}
        """Cores of the next epoch, for workers that have not heard of that."""
        self.blocks: dict[int, int] = {}
        self.said: dict[int, dict[int, bool]] = {}
        self.ended: set[int] = set()
        self.counts: Counter[Action] = Counter()
        for worker in range(workers):
            core = self._core(worker, range(workers), self.placed.copy())
            for slot in self.placed.held_by(worker):
                core.hold(slot, {d: self._first(d, slot[1]) for d in core.members(slot)})
            for copy in self.definition.copies():
                core.put_copy(copy, self._first(copy, 0))
            self._enter(worker, core, 0, {})

    def _first(self, dataset: int, index: int) -> Any:
        return first_value(self.definition.datasets[dataset], index)

    def _core(self, worker: int, workers: Any, placed: PartitionMap, block: int = 0, cut: Any = None) -> LocalCore:
        return LocalCore(
            self.definition, worker, workers, placed, _Links(self, worker), epoch=self.epoch,
            first_block=block, cut=cut, clock=lambda: 1, poll=lambda now: STOP, rules=self.rules,
        )  # fmt: skip

    def _enter(self, worker: int, core: LocalCore, block: int, said: dict[int, bool]) -> None:
        before = self.cores.get(worker)
        self.cores[worker], self.blocks[worker], self.said[worker] = core, block, dict(said)
        self.ended.discard(worker)
        if before is not None:
            self.counts += before.counts
            for sender, message in before.early:
                core.receive(sender, message)

    # ---- what happens -----------------------------------------------------------------------------

    def next_block(self, worker: int) -> None:
        """Call the program as far as the worker is, for its next block."""
        calls = Calls(_never, until=self.blocks[worker], signals=self.said[worker])
        try:
            self.df._called(self.programs.get(worker, self.program), calls)
        except _Paused as paused:
            self.cores[worker].begin(paused.block)
        else:
            self.ended.add(worker)

    def work(self, worker: int) -> bool:
        """Let a worker go on by one task, or to its next block; whether there was anything to do."""
        core = self.cores[worker]
        if core.is_done():
            assert core.block is not None
            number = core.block.number
            self.said[worker][number] = core.finish()
            self.blocks[worker] = number + 1
            return True
        if core.finished and worker not in self.ended:
            self.next_block(worker)
            return True
        queued = bool(core._run.queue) or core._unsettled
        if queued or core.giving:
            core.step()
        core.check_invariants()
        return queued

    def deliver(self, link: tuple[int, int]) -> None:
        sender, worker = link
        message = self.links[link].popleft()
        if worker in self.cores:
            if message.epoch < self.cores[worker].epoch:
                self.dropped += 1
            self.cores[worker].receive(sender, message)
            self.cores[worker].check_invariants()
        elif isinstance(message, Welcome) and message.epoch == self.epoch:
            self._join(worker, message)

    def _deliverable(self) -> list[tuple[int, int]]:
        return [
            link for link, queue in self.links.items()
            if queue and (link[1] in self.cores or isinstance(queue[0], Welcome) or queue[0].epoch < self.epoch)
        ]  # fmt: skip

    def run(self, moves: int = 0, joins: int = 0, snapshots: int = 0, crashes: int = 0) -> None:
        """Until the program has ended everywhere and nothing is on its way."""
        chance = self.chance
        for _ in range(STEPS_MAX):
            if crashes and self.snapshots and chance.random() < 0.01:
                crashes -= 1
                self.crash()
            if self.restarts and chance.random() < 0.1:
                self.restart(chance.choice(sorted(self.restarts)))
            if not self._over() and not self.restarts:
                if moves and chance.random() < 0.15:
                    moves -= self.move()
                if joins and chance.random() < 0.05:
                    joins -= 1
                    self.joins += 1
                    self.flag(joins=max([*self.cores, *self.joining]) + 1)
                if snapshots and chance.random() < 0.05:
                    snapshots -= 1
                    self.flag(snapshot=True)
            links = self._deliverable()
            if links and chance.random() < 0.5:
                self.deliver(chance.choice(links))
                continue
            workers = sorted(self.cores)
            chance.shuffle(workers)
            if any(self.work(worker) for worker in workers):
                continue
            links = self._deliverable()  # A core may have sent what it had promised.
            if links:
                self.deliver(chance.choice(links))
            elif self.restarts:
                self.restart(min(self.restarts))
            elif self._over():
                self.counts += sum((core.counts for core in self.cores.values()), Counter())
                return
            else:
                raise Stuck(f"workers {sorted(self.cores.keys() - self.ended)} wait for ever")
        raise Stuck("too many steps")

    def _over(self) -> bool:
        return self.ended == self.cores.keys()

    # ---- the controller ---------------------------------------------------------------------------

    def _tell(self, worker: int, message: Message) -> None:
        self.links.setdefault((CONTROLLER, worker), deque()).append(message)

    def reported(self, message: Message) -> None:
        if message.epoch != self.epoch:
            return
        match message:
            case Told():
                assert self.recorded.setdefault(message.block, message.value) == message.value
            case Arrived():
                self.moving.discard((message.group, message.index))
            case Stored():
                self.snapshots.setdefault(message.block, {}).update(message.values)

    def move(self, slot: tuple[int, int] | None = None, worker: int | None = None) -> bool:
        """Order a partition to another worker; news of that reach the others at some time."""
        if slot is None:
            free = sorted(set(self.placed) - self.moving)
            if not free or len(self.cores) < 2:
                return False
            slot = self.chance.choice(free)
        source = self.placed[slot].worker
        if worker is None:
            worker = self.chance.choice([other for other in sorted(self.cores) if other != source])
        entry = self.placed.move(slot, worker).entry
        self.moving.add(slot)
        self.moves += 1
        self._tell(worker, Move(self.epoch, *slot, entry.version, source))
        for other in self.cores:
            self._tell(other, MapUpdate(self.epoch, *slot, worker, entry.version))
        return True

    def flag(self, joins: int = -1, snapshot: bool = False) -> None:
        self.flags += 1
        if joins >= 0:
            self.joining.add(joins)
        for worker in self.cores:
            self._tell(worker, Flag(self.epoch, self.flags, snapshot, joins))

    def _join(self, worker: int, message: Welcome) -> None:
        """A worker replays the program to where it joins."""
        self.joining.discard(worker)
        cut = None if message.stored_before < 0 else (message.block, message.stored_before)
        core = self._core(worker, [*message.workers, worker], self.placed.copy(), message.block + 1, cut)
        for copy, value in message.copies.items():
            core.put_copy(copy, value)
        said = {block: value for block, value in self.recorded.items() if block <= message.block}
        self._enter(worker, core, message.block + 1, said)

    def is_whole(self, block: int) -> bool:
        """Whether the snapshot of a block has all that is needed."""
        stored = self.snapshots[block]
        places = {(spec.id, i) for spec in self.definition.datasets for i in range(spec.partitions)}
        return places <= stored.keys()

    def check_cut(self, block: int) -> None:
        """A snapshot is what one worker alone would have after the block."""
        runner = InlineRunner(self.definition)
        runner.load()

        def run_block(made: Block) -> bool:
            if made.number > block:
                raise _Paused(made)
            return runner.run_block(made)

        with contextlib.suppress(_Paused):
            self.df._called(self.program, Calls(run_block))
        for (dataset, index), value in self.snapshots[block].items():
            expected = runner.value(dataset)[index]
            assert np.array_equal(expected, value), (block, dataset, index, expected, value)

    def crash(self) -> None:
        """Some worker is lost: all go back to the last whole snapshot, in a new epoch."""
        whole = [block for block in self.snapshots if self.is_whole(block)]
        if not whole:
            return
        block = max(whole)
        self.epoch += 1
        self.flags = 0
        self.moving.clear()
        self.joining.clear()
        self.recorded = {number: said for number, said in self.recorded.items() if number <= block}
        workers = sorted({*self.cores, *self.restarts})
        if len(workers) > 1:
            lost = self.chance.choice(workers)
            workers.remove(lost)
            self.cores.pop(lost, None)
            self.ended.discard(lost)
        self.check_cut(block)
        stored = self.snapshots[block]
        self.snapshots = {block: stored}
        self.placed = PartitionMap(initial(self.definition.group_partitions(), workers))
        self.restarts = {}
        for worker in workers:
            core = self._core(worker, workers, self.placed.copy(), block + 1)
            for slot in self.placed.held_by(worker):
                core.hold(slot, {d: copied(stored[d, slot[1]]) for d in core.members(slot)})
            for copy in self.definition.copies():
                core.put_copy(copy, copied(stored[copy, 0]))
            self.restarts[worker] = core
        self.back_to = block

    def restart(self, worker: int) -> None:
        core = self.restarts.pop(worker)
        self._enter(worker, core, self.back_to + 1, self.recorded_until(self.back_to))

    def recorded_until(self, block: int) -> dict[int, bool]:
        return {number: said for number, said in self.recorded.items() if number <= block}

    # ---- what came of it --------------------------------------------------------------------------

    def check_equal_to_inline(self) -> None:
        """Every partition is at one worker, and is bitwise what `inline` made; so is every copy."""
        self.df.run(self.program)
        for spec in self.definition.datasets:
            expected = self.df._runner.value(spec.id)
            if spec.kind is DatasetKind.REPLICATED:
                for core in self.cores.values():
                    assert np.array_equal(core.store.value((spec.id, 0)), expected[0]), (spec, core.me)
                continue
            for index in range(spec.partitions):
                holders = [core for core in self.cores.values() if (spec.id, index) in core.store]
                assert [core.me for core in holders] == [self.placed[self.definition.groups[spec.id], index].worker]
                mine = holders[0].store.value((spec.id, index))
                assert np.array_equal(mine, expected[index]), (spec, index, mine, expected[index])
