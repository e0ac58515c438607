"""The controller of the planes `templates` and `central`: commands workers what to run, block by block.

Events come from a driver: a message of the program's process or of a worker arrives (`receive`), what gathered is to be
sent (`step`), partitions are to be elsewhere (`move`), workers come and go (`join`, `leave`). A block whose
tasks are submitted is dispatched task by task, and captured; from the second time on it is executed by templates:
validated, patched, edited, instantiated (paper 001, §4). `Switches` turn each of these off.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import numpy as np

from frontends.dataflow.blocks import Slot
from frontends.dataflow.commands import (
    NONE,
    Answer,
    Command,
    Commanded,
    Completed,
    Discard,
    Dispatch,
    Finished,
    Instantiate,
    Invoke,
    Parameters,
    Placed,
    StorePlaces,
    Submit,
    Unknown,
)
from frontends.dataflow.control_messages import DRIVER
from frontends.dataflow.dispatching import Dispatcher
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.objects import FRESH, Objects, Stale
from frontends.dataflow.partition_map import Entry, PartitionMap
from frontends.dataflow.placement import initial
from frontends.dataflow.planning import TRANSFERS_FROM, Planner
from frontends.dataflow.stages import Definition, StageKind
from frontends.dataflow.templates import (
    PATCHES_MAX,
    PLACEMENTS_MAX,
    TEMPLATES_MAX,
    ControllerTemplate,
    Patch,
    WorkerTemplates,
)

FRAME_COMMANDS_MAX = 1_000


class Outbox(Protocol):
    def send(self, peer: int, message: Commanded) -> None:
        """To a worker, or to the driver."""
        ...


class Phase(StrEnum):
    IDLE = "no block runs"
    PATCHING = "values go where the block needs them"
    DISPATCHING = "single tasks run"
    EXECUTING = "templates run"


class Event(StrEnum):
    """What the mechanisms did; counted."""

    CAPTURED = "templates captured"
    INSTALLED = "halves installed"
    INSTANTIATED = "templates executed"
    VALIDATED = "preconditions looked at"
    STALE = "preconditions that did not hold"
    BACK_TO_BACK = "preconditions not looked at, as the block came after itself"
    PATCHED = "patches made"
    PATCH_CACHED = "patches used again"
    EDITED = "worker templates edited"
    DROPPED = "tasks dropped by edits"
    ADDED = "tasks added by edits"
    REPLACED = "tasks replaced by edits"
    PLACEMENT_CACHED = "worker templates of another placement used again"


@dataclass(frozen=True, slots=True)
class Switches:
    """Mechanisms; without one of the last four, answers are wrong or workers refuse."""

    controller_templates: bool = True
    """Blocks are captured; else each is dispatched task by task, as on the plane `central`."""
    worker_templates: bool = True
    """Workers have templates; else tasks of the controller's template are dispatched singly."""
    closing: bool = True
    """Blocks leave what they need the latest, so that it is not looked at when they come after themselves."""
    caching: bool = True
    """Worker templates of other placements, and patches, are kept."""
    validation: bool = True
    """Preconditions are looked at."""
    patching: bool = True
    """What is stale is brought; else refused."""
    editing: bool = True
    """Edits ride on instantiations."""


ALL_ON = Switches()
CENTRAL = Switches(controller_templates=False)
"""The plane `central`."""


@dataclass(slots=True)
class _Block:
    """The block that runs."""

    number: int
    first_call: int
    parameters: dict[int, dict[str, Any]]
    is_submitted: bool = False
    """Whether all its tasks are."""
    is_dispatched: bool = False
    """Whether its tasks are sent singly."""
    value: bool = False
    template: ControllerTemplate | None = None


class CommandingCore:
    """The controller. `placed` says where partitions are to be, and are when the program starts."""

    def __init__(
        self,
        definition: Definition,
        workers: Iterable[int],
        placed: PartitionMap,
        outbox: Outbox,
        *,
        epoch: int = 0,
        switches: Switches = ALL_ON,
    ) -> None:
        self.definition, self.placed, self.outbox = definition, placed, outbox
        self.epoch, self.switches = epoch, switches
        self.workers = sorted(workers)
        self.leaving: set[int] = set()
        self.left: list[int] = []
        """Workers that have nothing any more, for the driver to dismiss."""
        self.counts: Counter[Event] = Counter()
        self.moves = 0
        self.phase = Phase.IDLE
        self._owners: dict[int, list[int]] = {}
        self._version = -1
        """Of the definition that all this is about."""
        self._placement = b""
        """What tells placements apart."""
        self._evacuating: set[int] = set()
        self._wanted: dict[Slot, int] = {}
        """Moves that are made when the next block begins."""
        self._redefine()
        self.objects = Objects(definition, self.workers, self._owners)
        self._block: _Block | None = None
        self._planner: Planner | None = None
        self._dispatcher = Dispatcher()
        self._waiting: set[int] = set()
        """Workers that have not finished what they were ordered."""
        self._templates: OrderedDict[int, ControllerTemplate] = OrderedDict()
        self._plans: OrderedDict[tuple[int, bytes], WorkerTemplates] = OrderedDict()
        self._last_plan: dict[int, WorkerTemplates] = {}
        """The plan by which each template was executed last."""
        self._previous: WorkerTemplates | None = None
        """The plan of the block before, if nothing else happened since."""
        self._patches: OrderedDict[int, Patch] = OrderedDict()
        """By number, the one used last at the end."""
        self._patch_numbers: dict[tuple[int, int], int] = {}
        """The patch between two plans, by their numbers."""
        self._numbers = 0
        """Templates, plans and patches that there were: none is numbered as one before."""
        self._opens: dict[int, int] = {}
        """Scatters of the submitted block whose chunks are to be gathered: position by stage."""

    # ---- workers and placement --------------------------------------------------------------------

    def _redefine(self) -> dict[Slot, int]:
        """Take in stages and datasets that were declared since; the places of partitions that are new."""
        self._version = self.definition.version
        groups = self.definition.group_partitions()
        known = set(self.placed)
        new = initial({group: count for group, count in groups.items() if (group, 0) not in known}, self.workers)
        if new:
            entries = {slot: Entry(worker, 1) for slot, worker in new.items()}
            self.placed = PartitionMap.of_entries({**dict(self.placed.items()), **entries})
        self._owners = {
            group: [self.placed[group, index].worker for index in range(count)] for group, count in groups.items()
        }
        self._placement = np.concatenate(list(map(np.array, self._owners.values()))).astype(np.int32).tobytes()
        return new

    def move(self, slot: Slot, worker: int) -> None:
        """A partition is to be at another worker when the next block begins."""
        if worker not in self.workers or worker in self.leaving:
            raise ProtocolError(f"partition {slot} is to move to worker {worker}, which is none, or leaves")
        self._wanted[slot] = worker

    def destinations(self) -> dict[Slot, int]:
        """Where partitions are when the next block begins."""
        return {slot: self._wanted.get(slot, entry.worker) for slot, entry in self.placed.items()}

    def join(self, worker: int) -> None:
        """A worker is here that has nothing; partitions move to it by `move` or as load demands."""
        if worker in self.workers:
            raise ProtocolError(f"worker {worker} joins, and is one")
        self.workers = sorted([*self.workers, worker])
        self.objects.join(worker)

    def leave(self, worker: int) -> None:
        """All that the worker has goes to others before the next block; then it is in `left`."""
        self.leaving.add(worker)
        staying = [other for other in self.workers if other not in self.leaving]
        if not staying:
            raise ProtocolError(f"worker {worker} is to leave, and is the last one")
        placed = self.destinations()
        held = Counter(placed.values())
        for slot, at in sorted(placed.items()):
            if at == worker:
                least = min(staying, key=lambda other: (held[other], other))
                held[least] += 1
                self._wanted[slot] = least

    def _change_placement(self) -> None:
        """Make the moves that are wanted, and take in what was declared since the last block."""
        moved = [(slot, worker) for slot, worker in self._wanted.items() if self.placed[slot].worker != worker]
        is_defined_anew = self.definition.version != self._version
        self._wanted.clear()
        if not moved and not is_defined_anew:
            return
        for slot, worker in moved:
            self.placed.move(slot, worker)
        self.moves += len(moved)
        moved += self._redefine().items()
        if is_defined_anew:
            self.objects.extend(self._owners)
        self.objects.settle_on(self._owners)
        self._previous = None
        if moved:
            placed = Placed(self.epoch, [(*slot, worker) for slot, worker in moved])
            for other in self.workers:
                self.outbox.send(other, placed)

    def holder(self, dataset: int, index: int) -> int:
        """The worker that has the latest value."""
        if dataset in self.objects.row:
            return self.objects.source[self.objects.row[dataset]]
        return int(self.objects.where[self.objects.starts[dataset] + index])

    def store(self, block: int) -> None:
        """Have all values stored as they are after a block (`messages.Stored`), for a snapshot: between blocks."""
        assert self.phase is Phase.IDLE, "a block runs"
        for worker in self.workers:
            copies = tuple(dataset for dataset in self.objects.row if self.holder(dataset, 0) == worker)
            self.outbox.send(worker, StorePlaces(self.epoch, block, copies))

    # ---- events -----------------------------------------------------------------------------------

    def receive(self, sender: int, message: Commanded) -> None:
        """A message of a worker, or of the driver."""
        if message.epoch != self.epoch:
            return
        match message:
            case Finished():
                self._finished(sender, message)
            case Completed():
                self._completed(message)
            case Submit():
                self._submitted(message)
            case Invoke():
                self._invoked(message)
            case _:
                raise ProtocolError(f"the controller got a {type(message).__name__} from {sender}")

    def step(self) -> None:
        """Send single tasks that are ready, as few frames as may be."""
        block = self._block
        if block is None:
            return
        for worker, commands in self._dispatcher.take().items():
            for start in range(0, len(commands), FRAME_COMMANDS_MAX):
                self._dispatch(block, worker, commands[start : start + FRAME_COMMANDS_MAX])

    def _dispatch(self, block: _Block, worker: int, commands: list[Command]) -> None:
        parameters: Parameters = ()
        if block.parameters:
            calls = dict.fromkeys(command[1] for command in commands)
            parameters = tuple((call, block.parameters[call]) for call in calls if call in block.parameters)
        self.outbox.send(worker, Dispatch(self.epoch, block.number, block.first_call, commands, parameters))

    # ---- submitted tasks --------------------------------------------------------------------------

    def _submitted(self, message: Submit) -> None:
        """Tasks of a block without a template: plan them, send those that are ready."""
        if self._block is None:
            self._open(message)
        block, planner, dispatcher = self._block, self._planner, self._dispatcher
        assert block is not None
        if planner is None or message.block != block.number or block.is_submitted:
            raise ProtocolError(f"block {message.block} is submitted while block {block.number} runs")
        block.parameters.update(message.parameters)
        stage, source, scatters = None, -1, 0
        for call, stage_id, index in message.tasks:
            if stage is None or index == 0:
                stage = planner.call(stage_id) if index == 0 else self.definition.stages[stage_id]
                source, scatters = self._exchange(call, stage_id)
            for node in planner.task(index):
                if node.number < TRANSFERS_FROM:
                    dispatcher.add(node, call, stage_id, index, source, scatters)
                else:
                    dispatcher.add_transfer(node)
        if message.ends:
            block.is_submitted = True
            if self.switches.controller_templates and self.switches.closing:
                for node in planner.close():
                    dispatcher.add_transfer(node)
            self._look_done()

    def _open(self, message: Submit) -> None:
        self._block = _Block(message.block, message.first_call, {}, is_dispatched=True)
        self._dispatcher = Dispatcher()
        self._dispatcher.hold()
        self._opens.clear()
        self._prepare(self._block)
        self._planner = Planner(self.definition, self._owners, self._source_of)

    def _exchange(self, call: int, stage_id: int) -> tuple[int, int]:
        """Of a gather the position of its scatter, else -1; of a scatter how many tasks it has, else 0."""
        stage = self.definition.stages[stage_id]
        if stage.kind is StageKind.SCATTER:
            self._opens[stage_id] = call
            return -1, stage.partitions
        if stage.kind is StageKind.GATHER:
            assert stage.scatter is not None
            return self._opens[stage.scatter], 0
        return -1, 0

    def _source_of(self, dataset: int, worker: int) -> int:
        """Who is to send the worker its copy; -1 if that is the latest."""
        return -1 if self.objects.is_latest(dataset, worker) else self.objects.source[self.objects.row[dataset]]

    def _completed(self, message: Completed) -> None:
        block = self._block
        if block is None or message.block != block.number or self.phase is not Phase.DISPATCHING:
            raise ProtocolError(f"tasks of block {message.block} are done, which was not dispatched")
        if message.value is not None:
            block.value = message.value
        self._dispatcher.completed(message.numbers)
        self._look_done()

    def _look_done(self) -> None:
        """The block is over when all its tasks are done."""
        block = self._block
        assert block is not None
        if not block.is_submitted or self._dispatcher.undone or self.phase is not Phase.DISPATCHING:
            return
        planner, self._planner = self._planner, None
        if planner is None:
            assert block.template is not None
            self._over(self._last_plan[block.template.number])
            return
        for dataset, worker in planner.needed:
            self.objects.got(dataset, worker)
        plan = self._capture(planner)
        self._over(plan, planner)

    def _capture(self, planner: Planner) -> WorkerTemplates | None:
        """Keep what was planned: the controller's template, and the controller's half of worker templates."""
        if not self.switches.controller_templates:
            return None
        template = ControllerTemplate.captured(self._number(), self.definition, planner)
        self._templates[template.number] = template
        self.counts[Event.CAPTURED] += 1
        if len(self._templates) > TEMPLATES_MAX:
            self._forget_template(next(iter(self._templates)))
        plan = WorkerTemplates.of_plan(self._number(), template, self._placement, planner, self.objects)
        self._keep(plan)
        return plan

    def _over(self, plan: WorkerTemplates | None, planner: Planner | None = None) -> None:
        """All workers are done with the block."""
        block, self._block = self._block, None
        assert block is not None
        written = planner.written if planner is not None else {} if plan is None else plan.written
        for dataset, value in written.items():
            self.objects.wrote(dataset, value.fresh, value.worker)
        self.phase, self._previous = Phase.IDLE, plan
        template = NONE if plan is None else plan.template.number
        self.outbox.send(DRIVER, Answer(self.epoch, block.number, block.value, template))

    # ---- templates --------------------------------------------------------------------------------

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _invoked(self, message: Invoke) -> None:
        """Execute a block by its template."""
        if self._block is not None:
            raise ProtocolError(f"block {message.block} is invoked while block {self._block.number} runs")
        template = self._templates.get(message.template)
        if template is None or template.definition_version != self.definition.version:
            self.outbox.send(DRIVER, Unknown(self.epoch, message.block, message.template))
            return
        self._templates.move_to_end(template.number)
        self._block = block = _Block(message.block, message.first_call, dict(message.parameters), True)
        block.template = template
        self._prepare(block)

    def _execute(self, block: _Block) -> None:
        """All workers have what was to be moved: validate, patch, edit, instantiate."""
        assert block.template is not None
        plan = self._plan_of(block.template)
        stale = self._validated(plan)
        if self.switches.worker_templates:
            self._instantiate(block, plan, stale)
            return
        block.is_dispatched = True
        self._dispatcher = plan.dispatcher(self.definition)
        self._dispatcher.hold()
        self._order(block, self._patch_of(plan, stale)[0] if stale else None)

    def _plan_of(self, template: ControllerTemplate) -> WorkerTemplates:
        """The template's plan for this placement: as it was, edited, or new."""
        placement, last = self._placement, self._last_plan.get(template.number)
        plan = self._plans.get((template.number, placement))
        if plan is None or (plan is not last and not self.switches.caching):
            planner = template.planned(self.definition, self._owners, closes=self.switches.closing)
            plan = self._edited(last, placement, planner)
            if plan is None:
                plan = WorkerTemplates.of_plan(self._number(), template, placement, planner, self.objects)
            self._keep(plan)
        elif plan is not last:
            self.counts[Event.PLACEMENT_CACHED] += 1
        self._plans.move_to_end((template.number, placement))
        self._last_plan[template.number] = plan
        return plan

    def _edited(self, plan: WorkerTemplates | None, placement: bytes, planner: Planner) -> WorkerTemplates | None:
        """The plan by which the template was executed last, as it is with this placement; None if that is far."""
        if plan is None:
            return None
        before = plan.placement
        if not plan.edit(placement, planner, self.objects):
            return None
        del self._plans[plan.template.number, before]
        if plan.edits:
            self.counts[Event.EDITED] += 1
        for edits in plan.edits.values():
            self.counts[Event.DROPPED] += len(edits.drop)
            self.counts[Event.ADDED] += len(edits.add)
            self.counts[Event.REPLACED] += len(edits.replace)
        return plan

    def _keep(self, plan: WorkerTemplates) -> None:
        """Keep a plan in place of others, if there are too many."""
        key = (plan.template.number, plan.placement)
        replaced = self._plans.get(key)
        if replaced is not None and replaced is not plan:
            self._forget(replaced)
        self._plans[key] = plan
        self._last_plan[plan.template.number] = plan
        if len(self._plans) > PLACEMENTS_MAX:
            _, oldest = self._plans.popitem(last=False)
            self._forget(oldest)

    def _forget(self, plan: WorkerTemplates) -> None:
        for worker in plan.revisions:
            if worker in self.workers:
                self.outbox.send(worker, Discard(self.epoch, plan.number))
        if self._last_plan.get(plan.template.number) is plan:
            del self._last_plan[plan.template.number]

    def _forget_template(self, number: int) -> None:
        del self._templates[number]
        for key in [key for key in self._plans if key[0] == number]:
            self._forget(self._plans.pop(key))

    def _validated(self, plan: WorkerTemplates) -> Stale:
        """What the template needs the latest and is not."""
        if not self.switches.validation:
            return FRESH
        if self._previous is plan and self.switches.closing:
            self.counts[Event.BACK_TO_BACK] += 1
            return FRESH
        self.counts[Event.VALIDATED] += 1
        stale = self.objects.stale(plan.needed)
        if stale:
            self.counts[Event.STALE] += 1
            if not self.switches.patching:
                raise ProtocolError(
                    f"template {plan.template.number} is not valid: {len(stale.partitions)} partitions and "
                    f"{len(stale.rows)} copies are not the latest where it needs them, and patches are switched off"
                )
        return stale

    def _patch_of(self, plan: WorkerTemplates, stale: Stale) -> tuple[Patch, bool]:
        """The patch for what is stale, and whether workers have it."""
        key = (NONE if self._previous is None else self._previous.number, plan.number)
        number = self._patch_numbers.get(key)
        patch = None if number is None else self._patches[number]
        is_cached = patch is not None and self.switches.caching and patch.fits(self.objects, self._owners, stale)
        if patch is None or not is_cached:
            patch = self._new_patch(stale)
            self._patch_numbers[key] = patch.number
        self._patches.move_to_end(patch.number)
        self.counts[Event.PATCH_CACHED if is_cached else Event.PATCHED] += 1
        patch.applied(self.objects, self._owners)
        return patch, is_cached

    def _new_patch(self, stale: Stale) -> Patch:
        """A patch in place of the one that was used longest ago. Workers do alike, and use fewer: they have all that
        are kept here. So those that are used but once are kept here, too."""
        patch = Patch.of(self._number(), self.objects, self._owners, stale)
        self._patches[patch.number] = patch
        if len(self._patches) > PATCHES_MAX:
            oldest, _ = self._patches.popitem(last=False)
            self._patch_numbers = {key: number for key, number in self._patch_numbers.items() if number != oldest}
        return patch

    def _instantiate(self, block: _Block, plan: WorkerTemplates, stale: Stale) -> None:
        """One message a worker."""
        patch, is_cached = self._patch_of(plan, stale) if stale else (None, True)
        for worker in plan.halves.keys() - plan.revisions.keys():
            plan.edits.pop(worker, None)
            self.outbox.send(worker, plan.install(self.epoch, worker))
            self.counts[Event.INSTALLED] += 1
        self.phase = Phase.EXECUTING
        edits, plan.edits = plan.edits if self.switches.editing else {}, {}
        self._waiting = {*plan.halves, *edits}
        if patch is not None:
            self._waiting.update(patch.copies)
        self.counts[Event.INSTANTIATED] += 1
        parameters = tuple(block.parameters.items())
        alike: dict[int, Instantiate] = {}
        for worker in self._waiting:
            revision = plan.revisions.get(worker, NONE)
            message = alike.get(revision)
            if message is None:
                message = alike[revision] = Instantiate(
                    self.epoch, block.number, block.first_call, NONE if revision == NONE else plan.number, revision,
                    NONE, parameters, None, None,
                )  # fmt: skip
            copies = None if patch is None else patch.copies.get(worker)
            if copies is not None or worker in edits:
                assert copies is None or patch is not None
                message = msgspec.structs.replace(
                    message,
                    patch=NONE if copies is None or patch is None else patch.number,
                    edits=edits.get(worker),
                    copies=None if is_cached else copies,
                )
            self.outbox.send(worker, message)

    # ---- patches by themselves --------------------------------------------------------------------

    def _prepare(self, block: _Block) -> None:
        """What comes before a block: moves, and all that leaving workers have goes to others."""
        self._change_placement()
        if block.template is not None and not self.leaving:
            self._execute(block)  # What it needs is patched with it.
            return
        self._evacuating = set(self.leaving)
        rows, columns, heirs = self._inherited()
        partitions = self.objects.stale(self.objects.everywhere()).partitions
        stale = Stale(partitions, np.array(rows, np.int64), np.array(columns, np.int64))
        patch = None
        if stale:
            patch = self._new_patch(stale)
            patch.applied(self.objects, self._owners)
            self._previous = None
        for row, worker in heirs.items():
            self.objects.source[row] = worker
        self._order(block, patch)

    def _inherited(self) -> tuple[list[int], list[int], dict[int, int]]:
        """Who is to have the copies of which a leaving worker has the latest: rows and columns that it is to be sent,
        and the heir by row."""
        rows, columns, heirs = [], [], {}
        staying = [worker for worker in self.workers if worker not in self.leaving]
        for dataset, row in self.objects.row.items():
            if self.objects.source[row] not in self.leaving:
                continue
            fresh = [worker for worker in staying if self.objects.is_latest(dataset, worker)]
            heirs[row] = (fresh or staying)[0]
            if not fresh:
                rows.append(row)
                columns.append(self.objects.column[heirs[row]])
        return rows, columns, heirs

    def _order(self, block: _Block, patch: Patch | None) -> None:
        """Have the patch applied, if there is one; the block goes on when that is done."""
        self.phase = Phase.PATCHING
        if patch is None:
            self._carried_out(block)
            return
        self._waiting = set(patch.copies)
        for worker, copies in patch.copies.items():
            message = Instantiate(
                self.epoch, block.number, block.first_call, NONE, NONE, patch.number, (), None, copies
            )  # fmt: skip
            self.outbox.send(worker, message)

    def _finished(self, sender: int, message: Finished) -> None:
        block = self._block
        if block is None or message.block != block.number or sender not in self._waiting:
            raise ProtocolError(f"worker {sender} finished block {message.block}, which it was not ordered")
        self._waiting.remove(sender)
        if message.value is not None:
            block.value = message.value
        if not self._waiting:
            self._carried_out(block)

    def _carried_out(self, block: _Block) -> None:
        """All workers have done what they were ordered."""
        if self.phase is Phase.EXECUTING:
            assert block.template is not None
            self._over(self._last_plan[block.template.number])
            return
        self._dismiss()
        if not block.is_dispatched:
            self._execute(block)
            return
        self.phase = Phase.DISPATCHING
        self._dispatcher.release()
        self._look_done()

    def _dismiss(self) -> None:
        """Workers that were to leave have nothing any more."""
        for worker in sorted(self._evacuating):
            self.workers.remove(worker)
            self.leaving.remove(worker)
            self.objects.leave(worker)
            self.left.append(worker)
            for plan in self._plans.values():
                plan.revisions.pop(worker, None)
        self._evacuating = set()

    # ---- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        self.objects.check_invariants()
        assert (self._block is None) == (self.phase is Phase.IDLE), self.phase
        assert self.phase is not Phase.EXECUTING or self._waiting
        assert self.leaving <= set(self.workers)
        assert len(self._templates) <= TEMPLATES_MAX and len(self._plans) <= PLACEMENTS_MAX
        assert len(self._patches) <= PATCHES_MAX
        assert set(self._patch_numbers.values()) <= self._patches.keys()
        for (number, placement), plan in self._plans.items():
            assert plan.template.number == number and plan.placement == placement
            assert number in self._templates, "a plan of a template that is gone"
        for plan in self._last_plan.values():
            plan.check_invariants()
        if self.phase is Phase.DISPATCHING:
            self._dispatcher.check_invariants()
