"""A world of workers that a controller commands, by templates or task by task: links that delay and reorder."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from frontends.dataflow import Dataflow
from frontends.dataflow.blocks import STOP
from frontends.dataflow.calls import Block, Calls
from frontends.dataflow.commanded_core import CommandedCore
from frontends.dataflow.commanding_core import ALL_ON, CommandingCore, Switches
from frontends.dataflow.commands import (
    Answer,
    Discard,
    Dispatch,
    Placed,
    Unknown,
)
from frontends.dataflow.control_messages import CONTROLLER, DRIVER
from frontends.dataflow.messages import Stored
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.placement import Balancer, initial
from frontends.dataflow.stages import DatasetKind
from frontends.dataflow.store import first_value
from frontends.dataflow.submissions import Submissions

STEPS_MAX = 100_000


class Stuck(AssertionError):
    """Nothing is on its way and no core can go on, and the block is not over."""


class _Links:
    """A core's outbox in the world."""

    def __init__(self, world: CommandedWorld, me: int) -> None:
        self.world, self.me = world, me

    def send(self, peer: int, message: Any) -> None:
        self.world.send(self.me, peer, message)

    def report(self, message: Any) -> None:
        self.world.send(self.me, CONTROLLER, message)


class CommandedWorld:
    """Runs a Dataflow's programs on `workers` cores; `chance` decides the order of all that happens.

    With `chance` None all happens in turn, one message after the other.
    """

    def __init__(
        self,
        df: Dataflow,
        workers: int,
        chance: Random | None = None,
        *,
        placed: dict[tuple[int, int], int] | None = None,
        switches: Switches = ALL_ON,
    ) -> None:
        df._freeze()
        self.df, self.chance = df, chance
        self.definition = df._definition
        self.links: dict[tuple[int, int], deque[Any]] = {}
        self.sent: Counter[str] = Counter()
        """Messages by kind; single tasks of a frame each count."""
        self.log: list[tuple[int, int, Any]] | None = None
        """Sender, receiver and message of all that was sent, if it is to be kept."""
        self.stored: dict[int, dict[tuple[int, int], Any]] = {}
        self.answers: dict[int, bool] = {}
        self.balancer = Balancer()
        self.joins = self.leaves = self.moves = self.swaps = 0
        """How many of these are still to happen."""
        at = initial(self.definition.group_partitions(), range(workers))
        at.update(placed or {})
        others = {slot: worker if chance is None else chance.randrange(workers) for slot, worker in at.items()}
        self.placements = [at, others]
        """Two, from one of which to the other all may move (`swaps`)."""
        self.controller = CommandingCore(
            self.definition, range(workers), PartitionMap(at), _Links(self, CONTROLLER), switches=switches
        )
        self.submissions = Submissions(
            self.definition, lambda message: self.send(DRIVER, CONTROLLER, message),
            is_templated=switches.controller_templates,
        )  # fmt: skip
        self.cores: dict[int, CommandedCore] = {}
        for worker in range(workers):
            self._enter(worker)
            for slot in self.controller.placed.held_by(worker):
                values = {dataset: self._first(dataset, slot[1]) for dataset in self.definition.members(slot[0])}
                self.cores[worker].hold(slot, values)

    def _first(self, dataset: int, index: int) -> Any:
        return first_value(self.definition.datasets[dataset], index)

    def _enter(self, worker: int) -> None:
        placed = self.controller.placed.copy()
        core = CommandedCore(self.definition, worker, placed, _Links(self, worker), poll=lambda now: STOP)
        core._clock = lambda: 1
        self.cores[worker] = core
        for copy in self.definition.copies():  # Also of workers that join: their tasks are bound to them.
            core.put_copy(copy, self._first(copy, 0))

    # ---- what happens -----------------------------------------------------------------------------

    def send(self, sender: int, peer: int, message: Any) -> None:
        self.sent[type(message).__name__] += len(message.commands) if isinstance(message, Dispatch) else 1
        if self.log is not None:
            self.log.append((sender, peer, message))
        self.links.setdefault((sender, peer), deque()).append(message)

    def deliver(self, link: tuple[int, int]) -> None:
        sender, peer = link
        message = self.links[link].popleft()
        if isinstance(message, Stored):
            self.stored.setdefault(message.block, {}).update(message.values)
        elif peer == CONTROLLER:
            self.controller.receive(sender, message)
        elif peer == DRIVER:
            self.controller.check_invariants()
            assert isinstance(message, Answer | Unknown)
            answer = self.submissions.receive(message)
            if answer is not None:
                self.answers[answer.block] = answer.value
        elif peer in self.cores:
            self.cores[peer].receive(sender, message)
            self.cores[peer].check_invariants()
        else:
            assert isinstance(message, Placed | Discard), "a worker that left is sent what it is to do"
        for worker in self.controller.left:
            assert not self.cores[worker].held
            del self.cores[worker]
        self.controller.left.clear()

    def run_block(self, block: Block) -> bool:
        """Run a block of the program; what its signal said."""
        self.submissions.begin(block)
        number = self.submissions.blocks - 1
        for _ in range(STEPS_MAX):
            if number in self.answers:
                return self.answers[number]
            self._happen()
            links = [link for link, queue in self.links.items() if queue]
            if links and (self.chance is None or self.chance.random() < 0.7):
                self.deliver(links[0] if self.chance is None else self.chance.choice(links))
                continue
            before = sum(self.sent.values())
            self.controller.step()
            workers = sorted(self.cores)
            if self.chance is not None:
                self.chance.shuffle(workers)
            was_busy = False
            for worker in workers:
                was_busy = was_busy or bool(self.cores[worker]._run.queue)
                self.cores[worker].step()
                self.cores[worker].check_invariants()
            if not links and not was_busy and sum(self.sent.values()) == before:
                raise Stuck(f"block {number} waits for ever")
        raise Stuck("too many steps")

    def _happen(self) -> None:
        """Moves, workers that come and go."""
        chance, controller = self.chance, self.controller
        if chance is None:
            return
        staying = [worker for worker in controller.workers if worker not in controller.leaving]
        if self.moves and chance.random() < 0.02:
            self.moves -= 1
            controller.move(chance.choice(sorted(set(controller.placed))), chance.choice(staying))
        if self.swaps and chance.random() < 0.01:
            self.swaps -= 1
            self.placements.reverse()
            for slot, worker in self.placements[0].items():
                if worker in staying:
                    controller.move(slot, worker)
        if self.joins and chance.random() < 0.01:
            self.joins -= 1
            worker = max(self.cores) + 1
            self._enter(worker)
            controller.join(worker)
        if self.leaves and len(staying) > 1 and chance.random() < 0.01:
            self.leaves -= 1
            controller.leave(chance.choice(staying))

    def balance(self, used: dict[tuple[int, int], float]) -> None:
        """The load since the last look; a partition moves if it is uneven, as `ControllerCore` has it."""
        controller = self.controller
        staying = [worker for worker in controller.workers if worker not in controller.leaving]
        move = self.balancer.observe(used, controller.destinations(), staying)
        if move is not None:
            controller.move(move.slot, move.destination)

    def run(
        self,
        program: Callable[[], Any],
        *,
        moves: int = 0,
        swaps: int = 0,
        joins: int = 0,
        leaves: int = 0,
        times: int = 1,
    ) -> None:
        """Run the program, as often as that, each time from where the last left the data."""
        self.moves, self.swaps, self.joins, self.leaves = moves, swaps, joins, leaves
        for _ in range(times):
            self.df._called(program, Calls(self.run_block))
        self.program, self.times = program, times

    # ---- what came of it --------------------------------------------------------------------------

    def value(self, dataset: int, index: int) -> Any:
        """The latest value, at the worker that the controller says has it."""
        return self.cores[self.controller.holder(dataset, index)].store.value((dataset, index))

    def check_equal_to_inline(self) -> None:
        """Every partition is at one worker, and the latest values are bitwise those that `inline` makes."""
        for _ in range(self.times):
            self.df.run(self.program)
        for spec in self.definition.datasets:
            expected = self.df._runner.value(spec.id)
            for index, value in enumerate(expected):
                mine = self.value(spec.id, index)
                assert np.array_equal(mine, value), (spec, index, mine, value)
                if spec.kind is not DatasetKind.REPLICATED:
                    assert [core.me for core in self.cores.values() if (spec.id, index) in core.held] == [
                        self.controller.holder(spec.id, index)
                    ]
