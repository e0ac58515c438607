"""The tasks of a block at one worker, and the loop that runs those that are ready.

A worker derives the tasks from the calls and from what it holds. The rule of touches: tasks that touch the same
partition of the same dataset run in the order of the program, reads too. A copy of a replicated dataset is read by
tasks in any order, and written after the reads before it; where its writer does not run, a task that receives its
value takes the writer's place.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from frontends.dataflow.calls import chunk_sources
from frontends.dataflow.errors import StageReturned
from frontends.dataflow.stages import Definition, StageKind

GRAPHS_CACHED_MAX = 64
STOP = -1
"""What a poll answers in place of its next time, for the loop to end."""

Key = TypeVar("Key")
Value = TypeVar("Value")

Slot = tuple[int, int]
"""A partition of a group: (group, index). What moves moves as one."""


class Task(NamedTuple):
    call: int
    """Position of its call in the block."""
    partition: int
    """Its index; of a task that receives a copy, `RECEIVES`; of one that sends or receives by command, `TRANSFERS`."""
    slot: int
    """Number, in the graph, of the group's partition that it works on; of one that receives, -1."""
    copy: int = -1
    """The replicated dataset whose value it receives; the number of the transfer."""


RECEIVES = -1
TRANSFERS = -2


@dataclass(slots=True)
class Graph:
    """Tasks in the order of the program; for each, how many things it waits for and which tasks wait for it."""

    stages: tuple[int, ...]
    slots: tuple[Slot, ...]
    sources: dict[int, int]
    tasks: list[Task] = field(default_factory=list)
    needs: list[int] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    at: dict[tuple[int, int], int] = field(default_factory=dict)
    """The task by (call, partition)."""
    receives: dict[tuple[int, int], int] = field(default_factory=dict)
    """The task that receives, by (call, replicated dataset)."""

    def ready(self) -> list[int]:
        """Tasks that wait for nothing."""
        return [task for task, need in enumerate(self.needs) if not need]

    def check_invariants(self) -> None:
        """Counters are those of the edges, edges go forwards."""
        counted = [0] * len(self.tasks)
        for task, after in enumerate(self.after):
            for follower in after:
                assert follower > task, (task, follower)
                counted[follower] += 1
        for number, made in enumerate(self.tasks):
            extra = self.needs[number] - counted[number]
            assert 0 <= extra <= 2, (number, made, extra)  # What arrives: chunks or a copy, and the partition.
        assert len(set(self.tasks)) == len(self.tasks)


Done = Callable[[int, int, int], bool]
"""Whether the task of a call (its position) of a stage on a partition was done before, maybe elsewhere."""


class _Touches:
    """Who touched what last, while the tasks of a block are gone through in order."""

    def __init__(self) -> None:
        self.partitions: dict[tuple[int, int], int] = {}
        self.writer: dict[int, int] = {}
        self.readers: dict[int, list[int]] = {}

    def before(self, task: int, index: int, touches: Sequence[int], reads: Sequence[int]) -> set[int]:
        """The tasks that a task waits for, which touches and reads these."""
        partitions = self.partitions
        waits = set()
        for dataset in touches:
            key = (dataset, index)
            if key in partitions:
                waits.add(partitions[key])
            partitions[key] = task
        for copy in reads:
            if copy in self.writer:
                waits.add(self.writer[copy])
            self.readers.setdefault(copy, []).append(task)
        return waits

    def write(self, task: int, copy: int) -> set[int]:
        """The tasks that a task waits for, which writes the copy."""
        waits = set(self.readers.pop(copy, ()))
        if copy in self.writer:
            waits.add(self.writer[copy])
        self.writer[copy] = task
        waits.discard(task)
        return waits


def derive(
    definition: Definition,
    stages: tuple[int, ...],
    slots: Sequence[Slot],
    *,
    awaited: Collection[Slot] = (),
    done: Done | None = None,
    copied: Callable[[int, int], bool] | None = None,
) -> Graph:
    """The tasks of these calls at a worker that holds `slots`.

    Of the slots, those `awaited` have not arrived: their tasks wait for that, too. Tasks that are `done` are left out,
    and values that the worker's copies have had (`copied`, by call and dataset) are not received again. A gather waits
    for one thing more: chunks.
    """
    graph = Graph(stages, tuple(slots), chunk_sources(definition, stages))
    by_group: dict[int, list[tuple[int, int, int]]] = {}
    for number, (group, index) in enumerate(slots):
        by_group.setdefault(group, []).append((index, number, (group, index) in awaited))
    for held in by_group.values():
        held.sort()
    touches = _Touches()
    waits_of: list[set[int]] = []
    for call, stage_id in enumerate(stages):
        stage = definition.stages[stage_id]
        extra = stage.kind is StageKind.GATHER
        runs = False
        for index, slot, missing in by_group.get(definition.groups[stage.group_dataset], ()):
            if index >= stage.partitions or (done is not None and done(call, stage_id, index)):
                continue
            runs = True
            task = len(graph.tasks)
            waits = touches.before(task, index, stage.touches, stage.copies_read)
            for copy in stage.copies_written:
                waits |= touches.write(task, copy)
            graph.at[call, index] = task
            graph.tasks.append(Task(call, index, slot))
            graph.needs.append(len(waits) + extra + missing)
            waits_of.append(waits)
        if runs:
            continue
        for copy in stage.copies_written:
            if copied is not None and copied(call, copy):
                continue
            task = len(graph.tasks)
            waits = touches.write(task, copy)
            graph.receives[call, copy] = task
            graph.tasks.append(Task(call, RECEIVES, -1, copy))
            graph.needs.append(len(waits) + 1)
            waits_of.append(waits)
    followers: list[list[int]] = [[] for _ in graph.tasks]
    for follower, waits in enumerate(waits_of):
        for before in waits:
            followers[before].append(follower)
    graph.after = [tuple(tasks) for tasks in followers]
    return graph


class Cache(Generic[Key, Value]):
    """The values last used, `GRAPHS_CACHED_MAX` at most."""

    def __init__(self, most: int = GRAPHS_CACHED_MAX) -> None:
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._most = most
        self.misses = 0

    def get(self, key: Key) -> Value | None:
        value = self._values.get(key)
        if value is None:
            self.misses += 1
        else:
            self._values.move_to_end(key)
        return value

    def put(self, key: Key, value: Value) -> None:
        self._values[key] = value
        if len(self._values) > self._most:
            self._values.popitem(last=False)

    def clear(self) -> None:
        self._values.clear()

    def __len__(self) -> int:
        return len(self._values)


BoundTask = tuple[Callable[..., Any], tuple[Any, ...], int, tuple[int, ...]]
"""What is called with which arrays, on which slot, and the tasks that wait for it."""


class Chain(Protocol):
    """Tasks of compiled stages on one slot that are called as one, in place of the first of them.

    A call returns None when all have run; anything else says that it gives way, and goes on when it is called again.
    """

    def left(self) -> Sequence[int]:
        """Its tasks that have not run, if not all have: the one that runs next, or failed, first."""
        ...


@dataclass(slots=True)
class Run:
    """One execution of a block: its tasks with their arrays, and how far it is."""

    tasks: list[BoundTask]
    needs: list[int]
    queue: deque[int]
    held_back: list[int] = field(default_factory=list)
    """Tasks that were ready while their partition was flagged."""
    chains: Mapping[int, Chain] = field(default_factory=dict)
    """By the first of their tasks. The others are never queued, and wait for nothing."""
    failed: int = -1

    def release(self, task: int) -> None:
        """One of the things that the task waits for is there."""
        self.needs[task] -= 1
        if not self.needs[task]:
            self.queue.append(task)

    def undone(self) -> set[int]:
        """Tasks that have not run."""
        undone = {task for task, need in enumerate(self.needs) if need}.union(self.queue, self.held_back)
        for task in undone.intersection(self.chains):
            undone.remove(task)
            undone.update(self.chains[task].left())
        return undone

    def is_done(self) -> bool:
        return not self.queue and not self.held_back and not any(self.needs)


def run_ready(
    run: Run,
    flagged: Collection[int],
    used_ns: list[int],
    clock: Callable[[], int],
    poll: Callable[[int], int],
    deadline: int,
) -> int:
    """Run tasks until none is ready; the time at which to poll next, or `STOP` if a poll said so.

    This is what scheduling a task costs, so names are local and nothing is called but the task and the clock. Time
    counts for the slot of the task that it passed in (`used_ns`). Tasks of flagged slots are kept back. A chain that
    gives way goes to the queue's end, so that flags and polls are looked at as after a task.
    """
    tasks, needs, queue = run.tasks, run.needs, run.queue
    pop, push = queue.popleft, queue.append
    task = -1
    then = clock()
    try:
        while queue:
            task = pop()
            function, arguments, slot, after = tasks[task]
            if flagged and slot in flagged:
                run.held_back.append(task)
                continue
            returned = function(*arguments)
            if returned is not None:
                if task not in run.chains:
                    raise StageReturned(type(returned).__name__)
                push(task)
                after = ()
            now = clock()
            used_ns[slot] += now - then
            then = now
            for follower in after:
                need = needs[follower] = needs[follower] - 1
                if not need:
                    push(follower)
            if now > deadline:
                deadline = poll(now)
                if deadline == STOP:
                    break
                then = clock()
    except BaseException:
        chain = run.chains.get(task)
        run.failed = task if chain is None else chain.left()[0]
        raise
    return deadline
