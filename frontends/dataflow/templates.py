"""Execution templates: blocks whose tasks are planned once and then executed by a message a worker (paper 001, §3, §4).

A controller template is what a block is wherever its tasks run. Worker templates are its plan for one placement: the
controller's half has the tasks of all workers and what has to be the latest where before they run, each worker's half
its own tasks. A patch is the copies that make latest what is not. Edits make of worker templates those of another
placement that differs little; both halves count these in their revision.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field

from frontends.dataflow.blocks import TRANSFERS, Graph, Slot, Task
from frontends.dataflow.calls import chunk_sources
from frontends.dataflow.commands import Copies, Edits, Install
from frontends.dataflow.dispatching import Dispatcher
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.objects import Needed, Objects, Owners, Stale
from frontends.dataflow.planning import TRANSFERS_FROM, Half, Node, Planner, Transfer, Written, transfer_of
from frontends.dataflow.stages import Definition, StageKind

TEMPLATES_MAX = 256
"""Controller templates that are kept."""
PLACEMENTS_MAX = 512
"""Worker templates that are kept, of all templates and placements."""
PATCHES_MAX = 512
EDITED_SHARE_MAX = 0.5
"""The share of a template's tasks up to which another placement is had by edits, in place of new worker templates."""


# ---- the controller's ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class ControllerTemplate:
    """A block's calls and tasks. Parameters are filled in call by call."""

    number: int
    definition_version: int
    stages: tuple[int, ...]
    starts: tuple[int, ...]
    """The number of each call's first task."""
    before: list[tuple[int, ...]]
    """For each task those on the same partition that it waits for."""
    sources: dict[int, int]
    """The position of the scatter by that of its gather."""

    @classmethod
    def captured(cls, number: int, definition: Definition, planner: Planner) -> ControllerTemplate:
        stages = tuple(planner.stages)
        sources = chunk_sources(definition, stages)
        return cls(number, definition.version, stages, tuple(planner.starts), planner.before, sources)

    def datasets(self, definition: Definition) -> set[int]:
        """Those whose partitions the tasks touch: what is read has to be the latest, and what is written, too."""
        return {dataset for stage in set(self.stages) for dataset in definition.stages[stage].touches}

    def planned(self, definition: Definition, owners: Owners, *, closes: bool) -> Planner:
        """The plan for a placement."""
        planner = Planner(definition, owners)
        planner.replay(self.stages, self.before)
        if closes:
            planner.close()
        return planner

    def check_invariants(self) -> None:
        assert len(self.starts) == len(self.stages) and list(self.starts) == sorted(self.starts)
        for task, before in enumerate(self.before):
            assert all(number < task for number in before), task


@dataclass(slots=True)
class WorkerTemplates:
    """A template's plan for one placement: the controller's half."""

    number: int
    template: ControllerTemplate
    placement: bytes
    halves: dict[int, Half]
    needed: Needed
    """What has to be the latest when it is executed."""
    written: dict[int, Written]
    """Replicated datasets that are written, and who has the values when it is over."""
    revisions: dict[int, int] = field(default_factory=dict)
    """Of the half of each worker that has it."""
    edits: dict[int, Edits] = field(default_factory=dict)
    """By worker, those that ride on the next instantiation."""
    _dispatcher: Dispatcher | None = None

    @classmethod
    def of_plan(
        cls, number: int, template: ControllerTemplate, placement: bytes, planner: Planner, objects: Objects
    ) -> WorkerTemplates:
        made = cls(number, template, placement, {}, objects.needed((), ()), {})
        made.take(planner, objects)
        return made

    def take(self, planner: Planner, objects: Objects) -> None:
        """Make the plan this one."""
        self.halves, self.written, self._dispatcher = planner.halves, planner.written, None
        self.needed = objects.needed(self.template.datasets(planner.definition), planner.needed)

    def edit(self, placement: bytes, planner: Planner, objects: Objects) -> bool:
        """Become the worker templates of another placement by edits; False, and as before, if these were too many."""
        assert not self.edits, "edits are sent before there are others"
        edits = {}
        for worker in self.halves.keys() | planner.halves.keys():
            made = edits_between(self.halves.get(worker, {}), planner.halves.get(worker, {}))
            if made is not None:
                edits[worker] = made
        count = sum(len(made.drop) + len(made.add) + len(made.replace) for made in edits.values())
        if count > EDITED_SHARE_MAX * len(self.template.before):
            return False
        self.take(planner, objects)
        self.placement = placement
        self.edits = {worker: made for worker, made in edits.items() if worker in self.revisions}
        for worker in self.edits:
            self.revisions[worker] += 1
        return True

    def install(self, epoch: int, worker: int) -> Install:
        """A worker's half, for one that does not have it."""
        template = self.template
        self.revisions[worker] = 0
        half = list(self.halves[worker].items())
        return Install(epoch, self.number, 0, template.stages, template.starts, half)

    def dispatcher(self, definition: Definition) -> Dispatcher:
        """The same as single tasks, to be sent once more."""
        if self._dispatcher is None:
            self._dispatcher = made = Dispatcher()
            template = self.template
            nodes = [Node(number, at, before) for at, half in self.halves.items() for number, before in half.items()]
            nodes.sort(key=lambda node: order(node.number, template.starts))
            for node in nodes:
                if node.number >= TRANSFERS_FROM:
                    made.add_transfer(node)
                else:
                    call = bisect_right(template.starts, node.number) - 1
                    stage = definition.stages[template.stages[call]]
                    scatters = stage.partitions if stage.kind is StageKind.SCATTER else 0
                    index = node.number - template.starts[call]
                    made.add(node, call, stage.id, index, template.sources.get(call, -1), scatters)
        self._dispatcher.again()
        return self._dispatcher

    def check_invariants(self) -> None:
        tasks = [number for half in self.halves.values() for number in half if number < TRANSFERS_FROM]
        assert self.edits.keys() <= self.revisions.keys()
        assert sorted(tasks) == list(range(len(self.template.before))), "a task is in no half, or in two"
        sends: set[int] = set()
        receives: set[int] = set()
        for worker, half in self.halves.items():
            for number in half:
                if number >= TRANSFERS_FROM:
                    transfer = transfer_of(number)
                    (receives if transfer.receives else sends).add(transfer.tag)
                    assert not transfer.receives or transfer.worker == worker
        assert sends == receives, "a copy is sent and not received, or received and not sent"


def order(number: int, starts: Sequence[int]) -> tuple[int, int, int]:
    """The place of a task in the program: transfers come in front of the call that needs them."""
    if number >= TRANSFERS_FROM:
        return transfer_of(number).call, 0, number
    return bisect_right(starts, number) - 1, 1, number


def edits_between(before: Half, after: Half) -> Edits | None:
    """What makes the second half of the first; None if they are equal."""
    if before == after:
        return None
    drop = [number for number in before if number not in after]
    add = [(number, waits) for number, waits in after.items() if number not in before]
    replace = [(number, waits) for number, waits in after.items() if number in before and before[number] != waits]
    return Edits(drop, add, replace)


# ---- patches ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Patch:
    """Copies that make latest what is not; it fits wherever the same is stale, at the same sources."""

    number: int
    stale: Stale
    sources: tuple[int, ...]
    copies: dict[int, Copies]
    """By worker."""

    @classmethod
    def of(cls, number: int, objects: Objects, owners: Owners, stale: Stale) -> Patch:
        """The copies, of each partition from where it is to where it is to be."""
        definition = objects.definition
        copies: dict[int, Copies] = {}

        def bring(dataset: int, index: int, source: int, worker: int) -> None:
            copies.setdefault(source, Copies([], [])).sends.append((dataset, index, worker))
            copies.setdefault(worker, Copies([], [])).gets.append((dataset, index))

        for object_number in stale.partitions.tolist():
            dataset, index = objects.place(object_number)
            worker = owners[definition.groups[dataset]][index]
            bring(dataset, index, int(objects.where[object_number]), worker)
        datasets = {row: dataset for dataset, row in objects.row.items()}
        worker_of = objects.worker_of()
        for row, column in zip(stale.rows.tolist(), stale.columns.tolist(), strict=True):
            bring(datasets[row], 0, objects.source[row], worker_of[column])
        return cls(number, stale, sources_of(objects, stale), copies)

    def fits(self, objects: Objects, stale: Stale) -> bool:
        return self.stale.equals(stale) and self.sources == sources_of(objects, stale)

    def applied(self, objects: Objects, owners: Owners) -> None:
        """What was stale is the latest from now on."""
        for object_number in self.stale.partitions.tolist():
            dataset, index = objects.place(object_number)
            objects.brought(object_number, owners[objects.definition.groups[dataset]][index])
        rows, columns = self.stale.rows, self.stale.columns
        objects.copies_have[rows, columns] = objects.copies_latest[rows]


def sources_of(objects: Objects, stale: Stale) -> tuple[int, ...]:
    """Who has the values."""
    return (*objects.where[stale.partitions].tolist(), *(objects.source[row] for row in stale.rows.tolist()))


# ---- the workers' -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class WorkerHalf:
    """A worker's half of worker templates."""

    number: int
    revision: int
    stages: tuple[int, ...]
    starts: tuple[int, ...]
    tasks: Half

    @classmethod
    def installed(cls, message: Install) -> WorkerHalf:
        return cls(message.template, message.revision, message.stages, message.starts, dict(message.tasks))

    def edit(self, edits: Edits) -> None:
        """Become the next revision."""
        tasks = self.tasks
        for number in edits.drop:
            if tasks.pop(number, None) is None:
                raise ProtocolError(f"template {self.number}: task {number} is to be dropped and is not there")
        for number, before in edits.add:
            if number in tasks:
                raise ProtocolError(f"template {self.number}: task {number} is to be added and is there")
            tasks[number] = before
        for number, before in edits.replace:
            if number not in tasks:
                raise ProtocolError(f"template {self.number}: task {number} is to be replaced and is not there")
            tasks[number] = before
        if edits.add:
            starts = self.starts
            self.tasks = {number: tasks[number] for number in sorted(tasks, key=lambda one: order(one, starts))}
        self.revision += 1

    def graph(self, definition: Definition) -> tuple[Graph, list[Transfer]]:
        """The tasks as `blocks.run_ready` runs them, and the transfers among them."""
        groups = [definition.groups[definition.stages[stage].group_dataset] for stage in self.stages]
        sources = chunk_sources(definition, self.stages)
        slots: dict[Slot, int] = {}
        transfers: list[Transfer] = []
        graph = Graph(self.stages, (), sources)
        at: dict[int, int] = {}
        after: list[list[int]] = []
        call, stop = -1, 0
        for position, (number, before) in enumerate(self.tasks.items()):
            if number >= TRANSFERS_FROM:
                transfer = transfer_of(number)
                graph.tasks.append(Task(transfer.call, TRANSFERS, -1, len(transfers)))
                transfers.append(transfer)
                extra = int(transfer.receives)  # The value has to arrive.
            else:
                if number >= stop or call < 0:
                    call = bisect_right(self.starts, number) - 1
                    start = self.starts[call]
                    stop = start + definition.stages[self.stages[call]].partitions
                    group, is_gather = groups[call], call in sources
                index = number - start
                slot = slots.setdefault((group, index), len(slots))
                graph.tasks.append(Task(call, index, slot))
                graph.at[call, index] = position
                extra = int(is_gather)  # Chunks have to.
            at[number] = position
            for waited in before:
                after[at[waited]].append(position)
            after.append([])
            graph.needs.append(len(before) + extra)
        graph.slots = tuple(slots)
        graph.after = [tuple(followers) for followers in after]
        return graph, transfers
