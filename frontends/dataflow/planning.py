"""Where the tasks of a block run, what each waits for, and which copies go from worker to worker.

A `Planner` goes through the tasks in the order of the program, while they are submitted or from a template. A task
waits for tasks of its own worker alone (the rule of touches, as in `blocks`): a value that another worker wrote is sent
by a task there and received by a task here (paper 001, figure 5b).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from frontends.dataflow.objects import Owners
from frontends.dataflow.stages import Definition, StageSpec

TRANSFERS_FROM = 1 << 60
_CALL_BITS, _DATASET_BITS, _WORKER_BITS = 14, 15, 30
Half = dict[int, tuple[int, ...]]
"""The tasks of a worker, in the order of the program: for each those of the same half that it waits for."""


def transfer_id(call: int, dataset: int, worker: int) -> int:
    """The number of the task that sends a copy to the worker before a call there; the next one is that of receiving."""
    return TRANSFERS_FROM | (((call << _DATASET_BITS | dataset) << _WORKER_BITS | worker) << 1)


class Transfer(NamedTuple):
    call: int
    dataset: int
    worker: int
    """Who receives it."""
    receives: bool
    tag: int
    """Equal for both ends."""


def transfer_of(number: int) -> Transfer:
    worker = (number >> 1) & ((1 << _WORKER_BITS) - 1)
    dataset = (number >> (1 + _WORKER_BITS)) & ((1 << _DATASET_BITS) - 1)
    call = (number >> (1 + _WORKER_BITS + _DATASET_BITS)) & ((1 << _CALL_BITS) - 1)
    return Transfer(call, dataset, worker, bool(number & 1), number & ~1)


class Node(NamedTuple):
    """A task of a block at a worker."""

    number: int
    worker: int
    before: tuple[int, ...]


@dataclass(slots=True)
class _AtWorker:
    """Who touched a worker's copy."""

    last: int = -1
    """The task that wrote or received it last, -1 if none of this block did."""
    readers: list[int] = field(default_factory=list)
    """Those that read it since."""

    def replaced(self, number: int) -> list[int]:
        """A task gives the copy a new value: what it waits for."""
        waits = [*self.readers, self.last] if self.last >= 0 else self.readers
        self.last, self.readers = number, []
        return waits


@dataclass(slots=True)
class Written:
    """A replicated dataset that the block writes."""

    worker: int
    fresh: set[int]
    """Workers that have the value."""


class Planner:
    """The plan of one block. `source` says who has the latest value of a stale copy, -1 if the copy is the latest."""

    def __init__(
        self,
        definition: Definition,
        owners: Owners,
        source: Callable[[int, int], int] = lambda dataset, worker: -1,
    ) -> None:
        self.definition = definition
        self._owners, self._source = owners, source
        self.stages: list[int] = []
        self.starts: list[int] = []
        """The number of each call's first task."""
        self.before: list[tuple[int, ...]] = []
        """For each task those on the same partition that it waits for, wherever it is."""
        self.halves: dict[int, Half] = {}
        self.needed: dict[tuple[int, int], None] = {}
        """Copies (dataset, worker) that have to be the latest when the block begins."""
        self.written: dict[int, Written] = {}
        self._entering: set[int] = set()
        """Transfers of copies that were not: no part of a template."""
        self._last: dict[int, list[int]] = {}
        self._lasts: list[list[int]] = []
        self._at: dict[tuple[int, int], _AtWorker] = {}
        self._stage: StageSpec | None = None
        self._workers: Sequence[int] = ()
        self._has_copies = False

    # ---- tasks in order ---------------------------------------------------------------------------

    def call(self, stage_id: int) -> StageSpec:
        """The tasks that come next are those of a call of the stage, first partition first."""
        stage = self._stage = self.definition.stages[stage_id]
        self.stages.append(stage_id)
        self.starts.append(len(self.before))
        self._workers = self._owners[self.definition.groups[stage.group_dataset]]
        self._lasts = []
        for dataset in stage.touches:
            if dataset not in self._last:
                self._last[dataset] = [-1] * self.definition.datasets[dataset].partitions
            self._lasts.append(self._last[dataset])
        self._has_copies = bool(stage.copies_read or stage.copies_written)
        return stage

    def task(self, index: int) -> tuple[Node, ...]:
        """The call's task on a partition, after the transfers that it needs."""
        number = len(self.before)
        before: tuple[int, ...] = ()
        for last in self._lasts:
            touched = last[index]
            if touched >= 0 and touched not in before:
                before += (touched,)
            last[index] = number
        self.before.append(before)
        worker = self._workers[index]
        if self._has_copies:
            nodes, before = self._with_copies(number, worker, before)
        else:
            nodes = []
        half = self.halves.get(worker)
        if half is None:
            half = self.halves[worker] = {}
        half[number] = self._lasting(before) if self._entering else before
        return (*nodes, Node(number, worker, before))

    def replay(self, stages: Sequence[int], before: Sequence[tuple[int, ...]]) -> None:
        """Plan all tasks of a template, whose `before` is known."""
        for stage_id in stages:
            stage, start = self.call(stage_id), len(self.before)
            stop = start + stage.partitions
            self.before.extend(before[start:stop])
            if self._has_copies:
                for number in range(start, stop):
                    worker = self._workers[number - start]
                    _, waits = self._with_copies(number, worker, before[number])
                    self.halves.setdefault(worker, {})[number] = waits
            else:
                for number, worker in zip(range(start, stop), self._workers, strict=False):
                    self.halves.setdefault(worker, {})[number] = before[number]

    def close(self) -> list[Node]:
        """Copies that the block needed and then wrote are made the latest: it can be executed again at once."""
        nodes: list[Node] = []
        for dataset, worker in self.needed:
            written = self.written.get(dataset)
            if written is not None and worker not in written.fresh:
                self._bring(dataset, worker, len(self.stages), nodes)
        return nodes

    # ---- copies -----------------------------------------------------------------------------------

    def _with_copies(self, number: int, worker: int, before: tuple[int, ...]) -> tuple[list[Node], tuple[int, ...]]:
        """Transfers in front of a task that reads or writes copies, and all that the task waits for."""
        stage = self._stage
        assert stage is not None
        nodes: list[Node] = []
        waits = dict.fromkeys(before)
        for dataset in stage.copies_read:
            at = self._ensure(dataset, worker, nodes)
            if at.last >= 0:
                waits[at.last] = None
            at.readers.append(number)
        for dataset in stage.copies_written:  # They may be read, too.
            at = self._ensure(dataset, worker, nodes)
            waits.update(dict.fromkeys(at.replaced(number)))
            self.written[dataset] = Written(worker, {worker})
        waits.pop(number, None)
        return nodes, tuple(waits)

    def _ensure(self, dataset: int, worker: int, nodes: list[Node]) -> _AtWorker:
        """The worker's copy is the latest, if need be by a transfer."""
        at = self._at.get((dataset, worker))
        if at is None:
            at = self._at[dataset, worker] = _AtWorker()
        written = self.written.get(dataset)
        if written is not None:
            if worker not in written.fresh:
                self._bring(dataset, worker, len(self.stages) - 1, nodes)
        elif (dataset, worker) not in self.needed:
            self.needed[dataset, worker] = None
            source = self._source(dataset, worker)
            if source >= 0:
                self._enter(dataset, source, worker, nodes)
        return at

    def _bring(self, dataset: int, worker: int, call: int, nodes: list[Node]) -> None:
        """A value of this block goes to a worker."""
        written = self.written[dataset]
        made = self._transfer(dataset, written.worker, worker, call)
        for node in made:
            self.halves.setdefault(node.worker, {})[node.number] = self._lasting(node.before)
        nodes += made
        written.fresh.add(worker)

    def _enter(self, dataset: int, source: int, worker: int, nodes: list[Node]) -> None:
        """A value of a block before goes to a worker."""
        made = self._transfer(dataset, source, worker, len(self.stages) - 1)
        self._entering.update(node.number for node in made)
        nodes += made

    def _transfer(self, dataset: int, source: int, worker: int, call: int) -> list[Node]:
        number = transfer_id(call, dataset, worker)
        there = self._at.setdefault((dataset, source), _AtWorker())
        send = Node(number, source, (there.last,) if there.last >= 0 else ())
        there.readers.append(number)
        here = self._at.setdefault((dataset, worker), _AtWorker())
        return [send, Node(number + 1, worker, tuple(here.replaced(number + 1)))]

    def _lasting(self, before: tuple[int, ...]) -> tuple[int, ...]:
        """What of this a template has."""
        if not self._entering:
            return before
        return tuple(number for number in before if number not in self._entering)

    def check_invariants(self) -> None:
        """All tasks are in one half each; what they wait for is in the same half, before them."""
        tasks = 0
        for half in self.halves.values():
            seen: set[int] = set()
            for number, before in half.items():
                assert seen.issuperset(before), (number, before)
                seen.add(number)
                tasks += number < TRANSFERS_FROM
        assert tasks == len(self.before)
        for dataset, written in self.written.items():
            assert written.worker in written.fresh, dataset
