"""A worker that runs what a controller sends it: templates, one message a block (plane `templates`), or single tasks
(plane `central`).

Events come from a driver, as for `local_core`: a message arrives (`receive`), there is time for tasks (`step`).
Messages go to an `Outbox`. Tasks are bound by `binding` and run by `blocks.run_ready`. Blocks come one after the other:
the controller begins none before all workers have finished the last. What faster workers send for a block that has not
begun here is kept.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from frontends.dataflow.binding import Bound, Outputs, bind, noted
from frontends.dataflow.blocks import BoundTask, Graph, Run, Slot, Task, run_ready
from frontends.dataflow.commands import (
    NONE,
    SENDS,
    Command,
    Commanded,
    Completed,
    Copies,
    Copy,
    Discard,
    Dispatch,
    Finished,
    Install,
    Instantiate,
    Placed,
    StorePlaces,
)
from frontends.dataflow.errors import ProtocolError
from frontends.dataflow.inboxes import Inboxes
from frontends.dataflow.messages import Chunk, Marker, Message, Stored
from frontends.dataflow.partition_map import PartitionMap
from frontends.dataflow.planning import Transfer
from frontends.dataflow.recording import Recorder
from frontends.dataflow.stages import DatasetKind, Definition
from frontends.dataflow.store import Place, Store
from frontends.dataflow.templates import PATCHES_MAX, PLACEMENTS_MAX, WorkerHalf
from frontends.dataflow.values import copied

ARRIVED_MAX = 1_000_000
"""Values of others that are here before their turn."""
SINGLES_MAX = 100_000
"""Single tasks that stay bound."""


class Outbox(Protocol):
    def send(self, worker: int, message: Commanded | Message) -> None: ...

    def report(self, message: Commanded | Message) -> None:
        """To the controller."""
        ...


@dataclass(slots=True)
class _Installed:
    """A half with what is bound of it."""

    half: WorkerHalf
    bound: Bound | None = None
    layout: int = -1
    """Of the store, when it was bound."""
    transfers: list[Transfer] = field(default_factory=list)
    receives: dict[int, int] = field(default_factory=dict)
    """Tasks that receive, by tag."""
    sends: dict[int, list[Transfer]] = field(default_factory=dict)
    """What is sent when the task of a call has written it, by the call's position."""
    gathers: dict[tuple[int, int], int] = field(default_factory=dict)
    """Tasks of gathers by position of the scatter and partition."""
    scatters: dict[int, int] = field(default_factory=dict)
    """How many tasks of each scatter run here, by position."""


class _Single:
    """A single task, bound once; what it makes belongs to the call that it is sent for."""

    __slots__ = ("bound", "call", "core", "layout", "source", "task")

    def __init__(self, core: CommandedCore) -> None:
        self.core = core
        self.call = self.source = self.layout = -1
        self.bound: Bound | None = None
        self.task: BoundTask = (self.chunks, (), -1, ())

    def scattered(self, call: int, index: int, outputs: Outputs) -> None:
        assert self.bound is not None
        stage = self.bound.graph.stages[0]
        self.core.send_chunks(self.call, stage, index, outputs)
        self.core.tell_nothing(self.call, stage)

    def chunks(self, call: int, index: int) -> list[Any]:
        return self.core.take_chunks(self.source, index)

    def gathered(self, call: int, index: int) -> None:
        """The chunks are gone with the inbox."""

    def signalled(self, call: int, value: bool) -> None:
        self.core.signalled(self.call, value)

    def wrote(self, call: int, copies: Sequence[int]) -> None:
        """The controller orders who is sent them."""

    def receive_copy(self, call: int, copy: int) -> None:
        raise AssertionError("a controller orders transfers")


def _unpolled(now: int) -> int:
    return 1 << 62


def _no_clock() -> int:
    return 0


class CommandedCore:
    """One worker. `placed` says where partitions are at first; `Placed` messages keep that up to date.

    Its driver gives it a value of each replicated dataset (`put_copy`), of any version: tasks are bound to the arrays,
    and the controller has those brought up to date that tasks need.
    """

    def __init__(
        self,
        definition: Definition,
        me: int,
        placed: PartitionMap,
        outbox: Outbox,
        *,
        epoch: int = 0,
        clock: Callable[[], int] = _no_clock,
        poll: Callable[[int], int] = _unpolled,
    ) -> None:
        self.definition, self.me, self.outbox, self.epoch = definition, me, outbox, epoch
        self.owners: dict[Slot, int] = {slot: entry.worker for slot, entry in placed.items()}
        self.store = Store()
        self.held: set[Place] = set()
        """Partitions that are here."""
        self.block = -1
        """The one that began last here."""
        self.first_call = 0
        self.tasks_run = 0
        self.used_ns: Counter[Slot] = Counter()
        """Time of tasks by partition."""
        self.early: list[tuple[int, Commanded | Message]] = []
        """Messages of epochs that have not begun here: for the core of the next one."""
        self.recorder: Recorder | None = None
        """Of blocks that are templates; single tasks are not recorded."""
        self._clock, self._poll = clock, poll
        self._deadline = 0
        self._layout = 0
        """Rises whenever a value here is another object, so that what is bound to it is bound anew."""
        self._installed: OrderedDict[int, _Installed] = OrderedDict()
        self._patches: OrderedDict[int, Copies] = OrderedDict()
        self._inboxes = Inboxes()
        self._arrived: dict[tuple[int, int, int, int], Any] = {}
        """Values of others that are not in their place yet: by block, tag, dataset and index."""
        self._awaited: set[Place] = set()
        """What the patch of this block is still to bring."""
        self._nothing: dict[int, dict[int, list[int]]] = {}
        """By position of a scatter's call and destination: sources here that had nothing for it."""
        self._value: bool | None = None
        self._run = Run([], [], deque())
        self._slots: Sequence[Slot] = ()
        self._used = [0]
        self._receives: dict[int, int] = {}
        self._gathers: dict[tuple[int, int], int] = {}
        self._instance: Instantiate | None = None
        """The order that is being carried out, until it is finished."""
        self._scatters_left: dict[int, int] = {}
        self._bound: Bound | None = None
        self._transfers: list[Transfer] = []
        self._sent: set[int] = set()
        """Tags of transfers that were made before their turn."""
        self._singles: dict[tuple[int, int], _Single] = {}
        self._singles_of = -1
        """The definition's version that they are of."""
        self._single_slots: list[Slot] = []
        self._single_slot: dict[Slot, int] = {}
        self._numbers: list[int] = []
        """Single tasks of this block by their place in the run."""
        self._commanded: list[_Single] = []
        self._pushed: list[int] = []
        """Single tasks that became ready and were not reported as done."""
        self._expected: dict[int, int] = {}
        """Single tasks that receive, by tag: the value is to come."""
        self._transferred: list[int] = []
        """Single tasks that sent or received, and were not reported as done."""

    @property
    def block_number(self) -> int:
        """Of the block that began last here; -1 before the first one."""
        return self.block

    # ---- what is here -----------------------------------------------------------------------------

    def hold(self, slot: Slot, values: Mapping[int, Any]) -> None:
        """The partition is here, with its values by dataset, since before the first block."""
        for dataset, value in values.items():
            self._put((dataset, slot[1]), value)

    def put_copy(self, dataset: int, value: Any) -> None:
        self._put((dataset, 0), value)

    def _is_copy(self, dataset: int) -> bool:
        return self.definition.datasets[dataset].kind is DatasetKind.REPLICATED

    def _put(self, place: Place, value: Any) -> None:
        """A value is here; copies stay where they are, as tasks are bound to them."""
        if not self._is_copy(place[0]):
            self.held.add(place)
        elif place in self.store:
            self.store.overwrite(place, value)
            return
        self.store.put(place, value)
        self._layout += 1

    def _take(self, place: Place) -> Any:
        """A value for another worker: a partition is no longer here then."""
        if self._is_copy(place[0]):
            return copied(self.store.value(place))
        self.held.remove(place)
        self._layout += 1
        return self.store.take(place)

    def take_used_ns(self) -> dict[Slot, int]:
        """The time of tasks by partition since the last look."""
        self._count_used()
        used = {slot: time for slot, time in self.used_ns.items() if time}
        self.used_ns.clear()
        return used

    def _count_used(self) -> None:
        if self.recorder is not None:
            self.recorder.pause()
        for slot, used in zip(self._slots, self._used, strict=False):
            self.used_ns[slot] += used
        self._used[:] = [0] * len(self._used)

    # ---- messages ---------------------------------------------------------------------------------

    def receive(self, sender: int, message: Commanded | Message) -> None:
        """A message of the controller (a sender below 0), or of a worker."""
        if message.epoch != self.epoch:
            if message.epoch > self.epoch:
                self.early.append((sender, message))
            return
        match message:
            case Instantiate():
                self._instantiated(message)
            case Dispatch():
                self._dispatched(message)
            case Copy():
                self._copy_came(message)
            case Chunk():
                inboxes = self._inboxes
                covered = inboxes.add(message.call, message.stage, message.index, message.source, message.chunks)
                self._covered(message, covered)
            case Marker():
                covered = self._inboxes.cover(message.call, message.stage, message.index, message.sources)
                self._covered(message, covered)
            case Install():
                self._installed[message.template] = _Installed(WorkerHalf.installed(message))
                if len(self._installed) > PLACEMENTS_MAX:
                    raise ProtocolError(f"worker {self.me} was sent more than {PLACEMENTS_MAX} templates")
            case Discard():
                self._installed.pop(message.template, None)
            case Placed():
                for group, index, worker in message.moved:
                    self.owners[group, index] = worker
            case StorePlaces():
                places = [*sorted(self.held), *((copy, 0) for copy in message.copies)]
                values = {place: copied(self.store.value(place)) for place in places}
                self.outbox.report(Stored(self.epoch, message.block, values))
            case _:
                raise ProtocolError(f"worker {self.me} got a {type(message).__name__} from {sender}")

    def _covered(self, message: Chunk | Marker, covered: int) -> None:
        """More sources of a scatter are accounted for; with all of them the gather has what it waits for."""
        if message.block == self.block and covered == self.definition.stages[message.stage].partitions:
            task = self._gathers.get((message.call - self.first_call, message.index))
            if task is not None:
                self._release(task)

    def _copy_came(self, message: Copy) -> None:
        place = (message.dataset, message.index)
        if message.tag == NONE and message.block == self.block and place in self._awaited:
            self._put(place, message.value)
            self._awaited.remove(place)
            self._start()
            return
        self._arrived[message.block, message.tag, *place] = message.value
        if len(self._arrived) > ARRIVED_MAX:
            raise ProtocolError(f"more than {ARRIVED_MAX} values wait at worker {self.me} for tasks that do not come")
        if message.block != self.block:
            return
        if message.tag in self._receives:
            self._release(self._receives[message.tag])
        elif message.tag in self._expected:
            self._put_arrived(message.dataset, message.tag)
            self._transferred.append(self._expected.pop(message.tag))

    def _release(self, task: int) -> None:
        run = self._run
        run.needs[task] -= 1
        if not run.needs[task]:
            run.queue.append(task)
            if self._numbers:
                self._pushed.append(task)

    # ---- templates --------------------------------------------------------------------------------

    def _instantiated(self, message: Instantiate) -> None:
        """Carry out an order: the patch, then the template."""
        if self._instance is not None:
            raise ProtocolError(f"worker {self.me}: block {message.block} is to begin before {self.block} is over")
        self._begin(message.block, message.first_call)
        self._instance = message
        if message.template != NONE:
            self._revise(message)
        if message.copies is not None:
            self._patches[message.patch] = message.copies
            if len(self._patches) > PATCHES_MAX:
                self._patches.popitem(last=False)
        if message.patch != NONE:
            self._apply(message.patch)
        self._start()

    def _revise(self, message: Instantiate) -> None:
        """The half of the order's revision."""
        installed = self._installed.get(message.template)
        if installed is None:
            raise ProtocolError(f"worker {self.me} has no template {message.template}")
        if message.edits is not None:
            installed.half.edit(message.edits)
            installed.bound = None
        if installed.half.revision != message.revision:
            raise ProtocolError(
                f"worker {self.me} has revision {installed.half.revision} of template {message.template}, and is to "
                f"execute revision {message.revision}"
            )

    def _apply(self, number: int) -> None:
        """Send what the patch says, and await what it brings."""
        copies = self._patches.get(number)
        if copies is None:
            raise ProtocolError(f"worker {self.me} has no patch {number}")
        self._patches.move_to_end(number)
        for dataset, index, worker in copies.sends:
            value = self._take((dataset, index))
            self.outbox.send(worker, Copy(self.epoch, self.block, NONE, dataset, index, value))
        for place in copies.gets:
            key = (self.block, NONE, *place)
            if key in self._arrived:
                self._put(place, self._arrived.pop(key))
            else:
                self._awaited.add(place)

    def _begin(self, block: int, first_call: int) -> None:
        """Nothing is left here of the block before."""
        self.block, self.first_call = block, first_call
        self._value = None
        self._run = Run([], [], deque())
        self._receives, self._gathers, self._expected = {}, {}, {}
        self._numbers, self._commanded, self._pushed = [], [], []

    def _start(self) -> None:
        """Run the template's tasks from now on, if what the patch brings is here."""
        message = self._instance
        if self._awaited or message is None or message.template == NONE:
            return
        installed = self._installed[message.template]
        if installed.bound is None or installed.layout != self._layout:
            self._bind(installed)
        assert installed.bound is not None
        self._use(installed.bound.graph.slots)
        self._bound, self._transfers = installed.bound, installed.transfers
        self._run = run = self._bound.run(
            [(call, values) for call, values in message.parameters if call in self._bound.slots]
        )
        self._receives, self._gathers = installed.receives, installed.gathers
        self._scatters_left = dict(installed.scatters)
        for (scatter, index), task in self._gathers.items():
            covered = self._inboxes.covered(self.first_call + scatter, index)
            if covered and covered == self.definition.stages[installed.half.stages[scatter]].partitions:
                run.release(task)
        if self._arrived:
            for tag, task in self._receives.items():
                if (self.block, tag, self._transfers[self._bound.graph.tasks[task].copy].dataset, 0) in self._arrived:
                    run.release(task)

    def _bind(self, installed: _Installed) -> None:
        graph, transfers = installed.half.graph(self.definition)
        installed.bound = bind(self.definition, graph, self.store, self, transfer=self._transfer, in_chains=True)
        installed.transfers, installed.layout = transfers, self._layout
        installed.receives, installed.sends, installed.gathers, installed.scatters = {}, {}, {}, {}
        taken = set(graph.sources.values())
        for position, task in enumerate(graph.tasks):
            for follower in graph.after[position] if task.slot >= 0 else ():
                sent = graph.tasks[follower]
                if sent.slot < 0 and not transfers[sent.copy].receives:
                    installed.sends.setdefault(task.call, []).append(transfers[sent.copy])
            if task.slot < 0:
                if transfers[task.copy].receives:
                    installed.receives[transfers[task.copy].tag] = position
            elif task.call in graph.sources:
                installed.gathers[graph.sources[task.call], task.partition] = position
            elif task.call in taken:
                installed.scatters[task.call] = installed.scatters.get(task.call, 0) + 1

    def _use(self, slots: Sequence[Slot]) -> None:
        """The run's tasks count their time for these."""
        if slots is not self._slots:
            self._count_used()
            self._slots, self._used = slots, [0] * (len(slots) + 1)

    # ---- single tasks -----------------------------------------------------------------------------

    def _dispatched(self, message: Dispatch) -> None:
        """Take in tasks whose turn the controller says it is."""
        if message.block != self.block:
            if self._instance is not None or self._pushed:
                raise ProtocolError(f"worker {self.me}: block {message.block} is to begin before {self.block} is over")
            self._begin(message.block, message.first_call)
        is_full = len(self._singles) > SINGLES_MAX and not self._numbers
        if self._singles_of != self.definition.version or is_full:
            self._count_used()
            self._singles.clear()
            self._single_slots, self._single_slot, self._singles_of = [], {}, self.definition.version
        self._use(self._single_slots)
        parameters = dict(message.parameters)
        for command in message.commands:
            if command[1] >= 0:
                self._command(command, parameters)
            else:
                self._command_transfer(command)

    def _command(self, command: Command, parameters: Mapping[int, Mapping[str, Any]]) -> None:
        number, call, stage, index, source = command
        single = self._singles.get((stage, index))
        if single is None or single.layout != self._layout:
            single = self._bind_single(stage, index)
        assert single.bound is not None
        single.call, single.source = call, source
        if single.bound.slots:
            given = single.bound.slots[0]
            given.clear()
            given.update(parameters.get(call, {}))
        need = 0
        if source >= 0:
            scatter = self.definition.stages[stage].scatter
            assert scatter is not None
            covered = self._inboxes.covered(self.first_call + source, index)
            need = int(covered < self.definition.stages[scatter].partitions)
            self._gathers[source, index] = len(self._numbers)
        self._take_in(number, single, need)

    def _command_transfer(self, command: Command) -> None:
        """Send or receive a copy: not in the queue, where others would wait for it behind long tasks."""
        number, kind, dataset, worker, tag = command
        if kind == SENDS:
            self._send_copy(dataset, worker, tag)
        elif (self.block, tag, dataset, 0) in self._arrived:
            self._put_arrived(dataset, tag)
        else:
            self._expected[tag] = number
            return
        self._transferred.append(number)

    def _take_in(self, number: int, single: _Single, need: int) -> None:
        run, position = self._run, len(self._numbers)
        self._numbers.append(number)
        self._commanded.append(single)
        run.tasks.append(single.task)
        run.needs.append(need)
        if not need:
            run.queue.append(position)
            self._pushed.append(position)

    def _bind_single(self, stage: int, index: int) -> _Single:
        """A graph of one task, bound."""
        spec = self.definition.stages[stage]
        slot = (self.definition.groups[spec.group_dataset], index)
        at = self._single_slot.setdefault(slot, len(self._single_slots))
        if at == len(self._single_slots):
            self._single_slots.append(slot)
            self._used.insert(at, 0)  # In place: the loop that runs tasks has it.
        single = self._singles[stage, index] = _Single(self)
        graph = Graph((stage,), (slot,), {}, [Task(0, index, 0)], [0], [()])
        bound = bind(self.definition, graph, self.store, single)
        function, arguments, _, _ = bound.tasks[0]
        single.bound, single.layout = bound, self._layout
        single.task = (function, arguments, at, ())
        return single

    def _report_completed(self) -> None:
        """Tell the controller which single tasks are done: those that were ready and are no longer queued."""
        pushed = self._pushed
        done = pushed[: len(pushed) - len(self._run.queue)]
        if not done and not self._transferred:
            return
        del pushed[: len(done)]
        numbers, self._transferred = self._transferred, []
        for task in done:
            bound = self._commanded[task].bound
            assert bound is not None
            bound.check_unchanged(self.definition, self.store)
            numbers.append(self._numbers[task])
        self.tasks_run += len(numbers)
        self.outbox.report(Completed(self.epoch, self.block, numbers, self._value))
        self._value = None

    # ---- tasks ------------------------------------------------------------------------------------

    def run_no_more(self) -> None:
        """No task is ready from now on, nor is anything reported: this is a copy of a worker, in a process that a task
        forked."""
        self._instance = None
        self._run.queue.clear()
        self._run.needs[:] = [len(self._run.needs) + 1] * len(self._run.needs)
        for done in (self._numbers, self._pushed, self._transferred, self._commanded):
            done.clear()

    @property
    def has_work(self) -> bool:
        """Whether tasks are ready."""
        return bool(self._run.queue)

    def step(self) -> None:
        """Run tasks until none is ready, or the driver's poll says stop; say what is done."""
        run = self._run
        if run.queue:
            try:
                deadline = max(self._deadline, 0)
                if self.recorder is None or self._bound is None or self._numbers:
                    self._deadline = run_ready(run, (), self._used, self._clock, self._polled, deadline)
                else:
                    self._deadline = self.recorder.run_ready(
                        self.block, self._bound.graph, run, (), self._used, self._clock, self._polled, deadline
                    )
            except BaseException as error:
                self._note(error, run.failed)
                raise
        if self._numbers or self._transferred:
            self._report_completed()
        elif self._instance is not None and not self._awaited and run.is_done():
            self._finish()

    def _polled(self, now: int) -> int:
        deadline = self._poll(now)
        if self._numbers or self._transferred:
            self._report_completed()
        return deadline

    def _note(self, error: BaseException, task: int) -> None:
        """Say of an exception which stage raised it."""
        if not self._commanded:
            if self._bound is not None:
                noted(error, self.definition, self._bound, task, self.first_call)
            return
        single = self._commanded[task]
        assert single.bound is not None
        noted(error, self.definition, single.bound, 0, self.first_call + single.call)

    def _finish(self) -> None:
        """The order is carried out."""
        message, self._instance = self._instance, None
        assert message is not None
        if message.template != NONE:
            assert self._bound is not None
            self.tasks_run += len(self._bound.graph.tasks)
            self._bound.check_unchanged(self.definition, self.store)
        self.outbox.report(Finished(self.epoch, self.block, self._value))

    # ---- what tasks made --------------------------------------------------------------------------

    def scattered(self, call: int, index: int, outputs: Outputs) -> None:
        assert self._bound is not None
        self.send_chunks(call, self._bound.graph.stages[call], index, outputs)
        self._scatters_left[call] -= 1
        if not self._scatters_left[call]:
            self.tell_nothing(call, self._bound.graph.stages[call])

    def send_chunks(self, call: int, stage_id: int, index: int, outputs: Outputs) -> None:
        """Chunks go to whoever has their destinations."""
        stage, number = self.definition.stages[stage_id], self.first_call + call
        assert stage.to is not None
        group = self.definition.groups[stage.to]
        nothing = self._nothing.setdefault(call, {})
        for destination in range(self.definition.datasets[stage.to].partitions):
            chunks = outputs.get(destination)
            if chunks is None:
                nothing.setdefault(destination, []).append(index)
            else:
                self._route(Chunk(self.epoch, self.block, 0, number, stage_id, index, group, destination, 0, 0, chunks))

    def tell_nothing(self, call: int, stage_id: int) -> None:
        """Send the markers of a scatter's call: sources that had nothing for a destination."""
        stage, number = self.definition.stages[stage_id], self.first_call + call
        assert stage.to is not None
        group = self.definition.groups[stage.to]
        for destination, sources in self._nothing.pop(call, {}).items():
            self._route(Marker(self.epoch, self.block, 0, number, stage_id, tuple(sources), group, destination, 0, 0))

    def _route(self, message: Chunk | Marker) -> None:
        worker = self.owners[message.group, message.index]
        if worker == self.me:
            self.receive(self.me, message)
        else:
            self.outbox.send(worker, message)

    def take_chunks(self, source: int, index: int) -> list[Any]:
        return self._inboxes.take(self.first_call + source, index)

    def chunks(self, call: int, index: int) -> list[Any]:
        assert self._bound is not None
        return self.take_chunks(self._bound.graph.sources[call], index)

    def gathered(self, call: int, index: int) -> None:
        """The chunks are gone with the inbox."""

    def signalled(self, call: int, value: bool) -> None:
        self._value = value

    def wrote(self, call: int, copies: Sequence[int]) -> None:
        """Send the copies to those that the template names: not when the tasks that send them have their turn, as
        others would wait for these behind long tasks."""
        assert self._instance is not None
        for transfer in self._installed[self._instance.template].sends.get(call, ()):
            self._send_copy(transfer.dataset, transfer.worker, transfer.tag)
            self._sent.add(transfer.tag)

    def receive_copy(self, call: int, copy: int) -> None:
        raise AssertionError("a controller orders transfers")

    def _transfer(self, number: int) -> None:
        """A task of the template that sends or receives."""
        transfer = self._transfers[number]
        if transfer.receives:
            self._put_arrived(transfer.dataset, transfer.tag)
        elif transfer.tag in self._sent:
            self._sent.remove(transfer.tag)
        else:
            self._send_copy(transfer.dataset, transfer.worker, transfer.tag)

    def _send_copy(self, dataset: int, worker: int, tag: int) -> None:
        """Send a copy as it is now."""
        value = copied(self.store.value((dataset, 0)))
        self.outbox.send(worker, Copy(self.epoch, self.block, tag, dataset, 0, value))

    def _put_arrived(self, dataset: int, tag: int) -> None:
        """Put a value that has come into its place."""
        self._put((dataset, 0), self._arrived.pop((self.block, tag, dataset, 0)))

    # ---- invariants -------------------------------------------------------------------------------

    def check_invariants(self) -> None:
        assert all(place in self.store for place in self.held)
        assert self.held.isdisjoint(self._awaited)
        assert all(need >= 0 for need in self._run.needs)
        assert len(self._numbers) == len(self._commanded) <= len(self._run.tasks)
        assert len(self._pushed) >= len(self._run.queue) * bool(self._numbers)
        assert not self._awaited or self._instance is not None
        assert all(block >= self.block for block, _, _, _ in self._arrived), "a value came that nobody takes"
        assert len(self._used) == len(self._slots) + 1
        assert not self._sent or self._instance is not None
