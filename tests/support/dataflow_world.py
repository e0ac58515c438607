"""A world of workers that spawn their tasks themselves, and their controller: links that delay and reorder."""

from __future__ import annotations

import contextlib
from collections import Counter, deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP, Slot
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.control_messages import (
    CONTROLLER,
    DRIVER,
    Ask,
    Beat,
    Dismiss,
    GivenUp,
    Hello,
    Leaving,
    Over,
    Peer,
    Received,
    Returned,
    Runs,
    Settings,
    Shipped,
    Values,
)
from frontends.dataflow.controller_core import END, ControllerCore, State
from frontends.dataflow.controller_effects import Complete, Drop, Keep, Key, Send, SendStored, Tell
from frontends.dataflow.inline import InlineRunner
from frontends.dataflow.local_core import LocalCore
from frontends.dataflow.messages import Partition
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.recording import Recorder
from frontends.dataflow.routing import RULES, Action, Case
from frontends.dataflow.stages import DatasetKind, Definition
from frontends.dataflow.values import copied
from frontends.dataflow.worker_core import WorkerCore, layout_of

STEPS_MAX = 100_000
QUIET_TICKS_MAX = 40
TICK_S = 0.5
SPARE = 20
"""Workers that are wanted beside those that a world begins with."""


class Stuck(AssertionError):
    """Nothing is on its way and no core can go on, and the program is not over."""


class _Paused(Exception):
    def __init__(self, block: Block) -> None:
        self.block = block


def _never(block: Block) -> bool:
    raise _Paused(block)


class _Links:
    """A worker's outbox in the world."""

    def __init__(self, world: World, me: int) -> None:
        self.world, self.me = world, me

    def send(self, peer: int, message: Any) -> None:
        assert peer != self.me
        if peer >= 0:
            self.world.sent[type(message).__name__] += 1
            if peer not in self.world.workers:
                return  # It is gone.
        self.world.links.setdefault((self.me, peer), deque()).append(message)

    def flush(self) -> None:
        """Links of the world delay what they like."""


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
        recorder: Callable[[int], Recorder] | None = None,
        clock: Callable[[], int] = lambda: 1,
    ) -> None:
        """`recorder` makes that of a worker."""
        self.df, self.chance, self.rules = df, chance, rules
        self.recorder, self.clock = recorder, clock
        self.programs = programs or {}
        """Programs of workers that do not run the common one."""
        self.called: list[Callable[[], Any]] = []
        """The program of each run, and its definition."""
        self.definitions: list[Definition] = []
        self._declared: list[tuple[Any, Any]] = []
        """The stages that the Dataflow had at each run."""
        self.links: dict[tuple[int, int], deque[Any]] = {}
        self.sent: Counter[str] = Counter()
        self.joins = self.dropped = self.losses = self.yields = 0
        self.overtaken = 0
        """Messages that came before others which were sent earlier."""
        self.now_s = 0.0
        self.files: dict[Key, dict[tuple[int, int], Any]] = {}
        self.whole: set[Key] = set()
        self.completed = 0
        self.returned: dict[tuple[int, int], Any] = {}
        self.runs_over = 0
        self.workers: dict[int, WorkerCore] = {}
        self.epochs: dict[int, int] = {}
        self.blocks: dict[int, int] = {}
        self.said: dict[int, dict[int, bool]] = {}
        self.ended: set[int] = set()
        self.counts: Counter[Action] = Counter()
        self.asked: list[int] = []
        self.first_workers = workers
        self.controller = self._new_controller(workers)
        self.call(program)
        for _ in range(workers):
            self.come()
        self._settle()

    def _new_controller(self, workers: int) -> ControllerCore:
        return ControllerCore(Settings(workers + SPARE, workers, workers, 10.0, None, "", 0, 0, []), self.chance)

    def _new_worker(self, number: int) -> WorkerCore:
        return WorkerCore(
            number, _Links(self, number), lambda data: self.definitions[int(data)], clock=self.clock,
            poll=lambda now: STOP, rules=self.rules, recorder=self.recorder and self.recorder(number),
        )  # fmt: skip

    # ---- what others look at ----------------------------------------------------------------------

    @property
    def definition(self) -> Definition:
        return self.definitions[-1]

    @property
    def program(self) -> Callable[[], Any]:
        return self.called[-1]

    @property
    def placed(self) -> PartitionMap:
        return self.controller.placed

    @property
    def epoch(self) -> int:
        return self.controller.epoch

    @property
    def moves(self) -> int:
        return self.controller.moves

    @property
    def cores(self) -> dict[int, Any]:
        """Those of the epoch's workers that have begun."""
        return {
            number: core.core
            for number, core in self.workers.items()
            if core.core is not None and core.epoch == self.epoch
        }

    # ---- the driver -------------------------------------------------------------------------------

    def call(self, program: Callable[[], Any]) -> None:
        """Have another run."""
        df = self.df
        df._declare_barrier()
        df._freeze()
        mine = df._definition
        run = len(self.called)
        self.called.append(program)
        self.definitions.append(mine.as_it_is())
        self._declared.append((dict(df._declared), dict(df._frozen)))
        shipped = Shipped(run, layout_of(mine), str(run).encode(), b"", str(run).encode())
        self._do(lambda: self.controller.run(Runs([shipped], True), self.now_s))

    def call_program(self, run: int, calls: Calls, program: Callable[[], Any] | None = None) -> None:
        """Call the program of a run with the stages and datasets that there were then."""
        df = self.df
        now = df._declared, df._frozen, df._definition
        (df._declared, df._frozen), df._definition = self._declared[run], self.definitions[run]
        try:
            df._called(program or self.called[run], calls)
        finally:
            df._declared, df._frozen, df._definition = now

    def come(self) -> bool:
        """A worker that was asked for is here; whether there is one."""
        if not self.asked:
            return False
        number = self.asked.pop(0)
        self.workers[number] = self._new_worker(number)
        self._do(lambda: self.controller.hello(number, Hello(number, ("", "", "", 0), ""), self.now_s))
        return True

    def lose(self, number: int) -> None:
        """A worker is lost. What it has sent may still come, or not."""
        self.counts += self._counts_of(number)
        del self.workers[number]
        self.losses += 1
        for link in list(self.links):
            if link[1] == number or (link[0] == number and self.chance.random() < 0.5):
                del self.links[link]
        self.ended.discard(number)
        self._do(lambda: self.controller.lost(number, "the world took it", self.now_s))

    def _counts_of(self, number: int) -> Counter[Action]:
        core = self.workers[number].core
        return core.counts if isinstance(core, LocalCore) else Counter()

    def tick(self) -> None:
        """Time passes, and all workers are heard of."""
        self.now_s += TICK_S
        for number in self.workers:
            self.controller.receive(number, Beat(number), self.now_s)
        self._do(lambda: self.controller.tick(self.now_s))

    def _do(self, event: Callable[[], None]) -> None:
        event()
        self.controller.check_invariants()
        for effect in self.controller.take_effects():
            match effect:
                case Send(worker, message):
                    self._tell(worker, message)
                case SendStored(worker, epoch, key, places):
                    assert key in self.whole
                    values = {place: copied(self.files[key][place]) for place in places}
                    self._tell(worker, Values(epoch, values))
                case Tell(message):
                    self._told(message)
                case Keep(key, values):
                    self.files.setdefault(key, {}).update(values)
                case Complete(key, _):
                    self.whole.add(key)
                    self.completed += 1
                    self.check_cut(key)
                case Drop(key):
                    self.files.pop(key, None)
                    self.whole.discard(key)

    def _tell(self, worker: int, message: Any) -> None:
        if worker in self.workers:
            self.links.setdefault((CONTROLLER, worker), deque()).append(message)

    def _told(self, message: Any) -> None:
        match message:
            case Ask(numbers):
                self.asked += numbers
            case Over(run=run):
                self.runs_over += 1
                self._do(lambda: self.controller.received(Received(run), self.now_s))
            case GivenUp(why=why):
                raise AssertionError(why)

    # ---- what happens -----------------------------------------------------------------------------

    def _see_epoch(self, number: int) -> None:
        """A worker that has entered another epoch calls the program anew."""
        core = self.workers[number]
        if core.epoch == self.epochs.get(number):
            return
        self.epochs[number] = core.epoch
        self.ended.discard(number)
        if core.entered is not None:
            self.blocks[number], self.said[number] = core.entered.until, dict(core.entered.signals)
        else:
            self.ended.add(number)

    def next_block(self, worker: int) -> None:
        """Call the program as far as the worker is, for its next block."""
        entered, core = self.workers[worker].entered, self.workers[worker].core
        assert entered is not None and isinstance(core, LocalCore)
        calls = Calls(_never, until=self.blocks[worker], signals=self.said[worker])
        try:
            self.call_program(entered.shipped.run, calls, self.programs.get(worker))
        except _Paused as paused:
            core.begin(paused.block)
        else:
            self.ended.add(worker)
            self.workers[worker].run_over(self.blocks[worker], calls.hash, b"", ())

    def work(self, worker: int) -> bool:
        """Let a worker go on by one task, or to its next block; whether there was anything to do."""
        worker_core = self.workers[worker]
        if worker_core.wants_load:
            worker_core.load()
            return True
        core = worker_core.core
        if core is None:
            return False
        assert isinstance(core, LocalCore)
        if core.is_done():
            assert core.block is not None
            number = core.block.number
            self.said[worker][number] = core.finish()
            self.blocks[worker] = number + 1
            return True
        if core.finished and worker not in self.ended:
            self.next_block(worker)
            return True
        queued = core.has_work
        if queued or core.giving:
            core.step()
        worker_core.check_invariants()
        return queued

    def _next_of(self, link: tuple[int, int]) -> Any:
        """The first message of a link, or a partition that overtakes others or is overtaken by them."""
        queue, chance = self.links[link], self.chance
        moving = [at for at, message in enumerate(queue) if isinstance(message, Partition)]
        at = 0
        if moving and chance.random() < 0.5:
            others = [at for at in range(len(queue)) if at not in moving]
            at = chance.choice(moving + others[:1])
            self.overtaken += at > 0
        message = queue[at]
        del queue[at]
        return message

    def deliver(self, link: tuple[int, int]) -> None:
        sender, peer = link
        message = self._next_of(link)
        if peer == CONTROLLER:
            self._do(lambda: self.controller.receive(sender, message, self.now_s))
        elif peer == DRIVER:
            if isinstance(message, Returned):
                self.returned.update(message.values)
        elif isinstance(message, Dismiss):
            self.counts += self._counts_of(peer)
            del self.workers[peer]
            self.ended.discard(peer)
            for gone in [other for other in self.links if other[1] == peer]:
                del self.links[gone]
        elif peer in self.workers and not isinstance(message, Peer):
            core = self.workers[peer]
            if message.epoch < core.epoch:
                self.dropped += 1
            before, counts = core.core, self._counts_of(peer)
            core.receive(sender, message)
            if before is not None and core.core is not before:
                self.counts += counts
            core.check_invariants()
            self._see_epoch(peer)

    def _deliverable(self) -> list[tuple[int, int]]:
        return [link for link, queue in self.links.items() if queue]

    def _settle(self) -> None:
        """Until the first epoch has begun everywhere; nothing else happens meanwhile."""
        while any(worker.core is None for worker in self.workers.values()):
            if self.controller.state is State.GATHERING:
                self.tick()
            for link in self._deliverable():
                self.deliver(link)
            for number, worker in self.workers.items():
                if worker.wants_load:
                    self.work(number)
        while links := self._deliverable():
            for link in links:
                self.deliver(link)
        self.links.clear()

    def run(self, moves: int = 0, joins: int = 0, snapshots: int = 0, crashes: int = 0, yields: int = 0) -> None:
        """Until the program has ended everywhere and nothing is on its way."""
        chance, quiet = self.chance, 0
        for _ in range(STEPS_MAX):
            if self.controller.state is State.RUNNING and not self._over():
                if moves and chance.random() < 0.15:
                    moves -= self.move()
                if snapshots and chance.random() < 0.05:
                    snapshots -= 1
                    self.snapshot()
            if joins and chance.random() < 0.05 and self.come():
                joins -= 1
                self.joins += 1
            runs = self.controller.state is not State.IDLE
            if crashes and runs and self.workers and chance.random() < 0.005:
                crashes -= 1
                self.lose(chance.choice(sorted(self.workers)))
            if yields and self.workers and chance.random() < 0.02:
                yields -= 1
                self.leave()
            links = self._deliverable()
            if links and chance.random() < 0.5:
                self.deliver(chance.choice(links))
                continue
            workers = sorted(self.workers)
            chance.shuffle(workers)
            if any(self.work(worker) for worker in workers):
                quiet = 0
                continue
            links = self._deliverable()  # A core may have sent what it had promised.
            if links:
                quiet = 0
                self.deliver(chance.choice(links))
            elif self.controller.state is State.IDLE and self.runs_over == len(self.called):
                self.counts += sum(map(self._counts_of, self.cores), Counter())
                return
            else:
                self.tick()
                if len(self.workers) < self.first_workers:
                    self.come()
                quiet += 1
                if quiet > QUIET_TICKS_MAX:
                    raise Stuck(f"workers {sorted(self.workers.keys() - self.ended)} wait for ever")
        raise Stuck("too many steps")

    def _over(self) -> bool:
        return self.ended >= self.cores.keys()

    # ---- what the controller is made to do --------------------------------------------------------

    def move(self, slot: Slot | None = None, worker: int | None = None) -> bool:
        """Order a partition to another worker; news of that reach the others at some time."""
        controller = self.controller
        members = controller._takers()
        if slot is None:
            free = sorted(set(self.placed) - controller.moving.keys())
            free = [one for one in free if any(other != self.placed[one].worker for other in members)]
            if not free:
                return False
            slot = self.chance.choice(free)
        if worker is None:
            source = self.placed[slot].worker
            worker = self.chance.choice([other for other in members if other != source])
        ordered, to = slot, worker
        self._do(lambda: controller.order_move(ordered, to))
        return True

    def snapshot(self) -> None:
        self._do(self.controller.make_snapshot)

    def leave(self, number: int | None = None) -> None:
        """A worker's slot is another user's turn."""
        self.yields += 1
        number = self.chance.choice(sorted(self.workers)) if number is None else number
        self.links.setdefault((number, CONTROLLER), deque()).append(Leaving(number, 5.0))

    def check_cut(self, key: Key) -> None:
        """A snapshot is what one worker alone would have after the block."""
        run, block = key
        runner = InlineRunner(self.definitions[run])

        def run_block(made: Block) -> bool:
            if made.number > last:
                raise _Paused(made)
            return runner.run_block(made)

        with contextlib.suppress(_Paused):
            for number in range(run + 1):
                runner.definition = self.definitions[number]
                runner.load()
                last = END if number < run else block
                self.call_program(number, Calls(run_block))
        for (dataset, index), value in self.files[key].items():
            expected = runner.value(dataset)[index]
            assert np.array_equal(expected, value), (key, dataset, index, expected, value)

    # ---- what came of it --------------------------------------------------------------------------

    def with_copy(self, dataset: int) -> list[Any]:
        """The cores that have the latest value of a replicated dataset."""
        return list(self.cores.values())

    def holder(self, dataset: int, index: int) -> int:
        """The worker that has a partition's value."""
        return self.placed[self.definition.groups[dataset], index].worker

    def check_equal_to_inline(self) -> None:
        """Every partition is at one worker, and is bitwise what `inline` makes; so is every copy. The Dataflow has that
        then. Nobody has anything of a dataset in whose place another was made."""
        runner = self.df._runner = InlineRunner(self.definition)
        for number in range(len(self.called)):
            runner.definition = self.definitions[number]
            runner.load()
            self.call_program(number, Calls(runner.run_block))
        if not self.controller.live:  # All have left.
            for (dataset, index), value in self.files[len(self.called) - 1, END].items():
                assert np.array_equal(value, runner.value(dataset)[index]), (dataset, index)
            return
        cores = self.cores
        for spec in self.definition.datasets:
            if spec.id in self.definition.replaced:
                places = [(spec.id, index) for index in range(spec.partitions)]
                stores = [runner.store, *(core.store for core in cores.values())]
                assert not any(place in store for place in places for store in stores)
                continue
            expected = runner.value(spec.id)
            if spec.kind is DatasetKind.REPLICATED:
                for core in self.with_copy(spec.id):
                    assert np.array_equal(core.store.value((spec.id, 0)), expected[0]), (spec, core.me)
                continue
            for index in range(spec.partitions):
                holders = [core for core in cores.values() if (spec.id, index) in core.store]
                assert [core.me for core in holders] == [self.holder(spec.id, index)]
                mine = holders[0].store.value((spec.id, index))
                assert np.array_equal(mine, expected[index]), (spec, index, mine, expected[index])


def run_three_times(world: World, program: Callable[[], Any], chance: Random) -> None:
    """Three runs, each after the other, in which all sorts of things happen; between them workers are lost, too."""
    happens = {"moves": 8, "joins": 1, "snapshots": 2, "crashes": 1, "yields": 2}
    world.run(**happens)
    for _ in range(2):
        if world.workers and chance.random() < 0.5:
            world.lose(min(world.workers))
        if world.workers and chance.random() < 0.5:
            world.leave()
        world.call(program)
        world.run(**happens)
    world.check_equal_to_inline()
