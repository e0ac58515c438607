"""Tasks of a block with the arrays that they work on.

A task is a function and its arguments, so that the loop that runs it knows nothing else. Those of scatters, gathers and
signals, and those that write or receive copies, hand what they made to a `Sink`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from frontends.dataflow.blocks import TRANSFERS, BoundTask, Graph, Run
from frontends.dataflow.captured import Watched, check_captured_unchanged
from frontends.dataflow.chains import chained
from frontends.dataflow.compiled import Tables, called, has_address
from frontends.dataflow.errors import InvalidProgram
from frontends.dataflow.stages import DatasetKind, Definition, StageKind, StageSpec
from frontends.dataflow.store import Guard, Place, Store
from frontends.dataflow.values import copied, is_empty, is_rebuilt, read_only

Outputs = dict[int, list[Any]]
"""What a scatter's task made, by destination, without what is empty."""


class Sink(Protocol):
    """What becomes of what tasks make. Calls are positions in the block."""

    def scattered(self, call: int, index: int, outputs: Outputs) -> None: ...

    def chunks(self, call: int, index: int) -> list[Any]: ...

    def gathered(self, call: int, index: int) -> None: ...

    def signalled(self, call: int, value: bool) -> None: ...

    def wrote(self, call: int, copies: Sequence[int]) -> None: ...

    def receive_copy(self, call: int, copy: int) -> None: ...


@dataclass(slots=True)
class Bound:
    """A graph's tasks, bound once, run many times."""

    graph: Graph
    tasks: list[BoundTask]
    needs: list[int]
    ready: list[int]
    slots: dict[int, dict[str, Any]]
    """The parameters of each call, filled at each run: a dict that the call's tasks share."""
    guards: tuple[Guard, ...]
    """Arrays that tasks write, whose shapes are looked at after a run."""
    watched: tuple[Watched, ...] = ()
    """What stages captured, which is looked at after a run."""
    tables: Tables | None = None
    """Chains of tasks of compiled stages, if there are some."""

    def run(self, parameters: Sequence[tuple[int, Mapping[str, Any]]]) -> Run:
        """A run with these parameters; there is one at a time."""
        for slot in self.slots.values():
            slot.clear()  # A call may leave parameters out, which then have their defaults.
        for call, values in parameters:
            self.slots[call].update(values)
        run = Run(self.tasks, self.needs[:], deque(self.ready))
        if self.tables is not None:
            self.tables.start(parameters)
            run.chains = self.tables.chains
        return run

    def check_unchanged(self, definition: Definition, store: Store) -> None:
        """Refuse changes that stages may not make: of shapes and dtypes, and of what they captured."""
        store.check_unchanged(self.guards, definition)
        if self.watched:
            check_captured_unchanged(self.watched)


def scatter_outputs(stage: StageSpec, destinations: int, produced: Any) -> Outputs:
    """What a scatter's function yielded, by destination."""
    outputs: Outputs = {}
    try:
        pairs = iter(produced)
    except TypeError:
        raise InvalidProgram(
            "scatter", produced, "", f"scatter {stage.name} has to yield pairs (destination, chunk)"
        ) from None
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise InvalidProgram(
                "scatter", pair, "", f"scatter {stage.name} has to yield pairs (destination, chunk), not {pair!r:.80}"
            )
        destination, chunk = pair
        if isinstance(destination, bool) or not hasattr(destination, "__index__"):
            raise InvalidProgram(
                "destination", destination, "", f"scatter {stage.name} yields the destination {destination!r:.80}; "
                "allowed: the index of a partition"
            )  # fmt: skip
        destination = destination.__index__()
        if not 0 <= destination < destinations:
            raise InvalidProgram(
                "destination", destination, "", f"scatter {stage.name} yields the destination {destination}; allowed: "
                f"0 to {destinations - 1}"
            )  # fmt: skip
        if not is_empty(chunk):
            outputs.setdefault(destination, []).append(copied(chunk))
    return outputs


def _function(
    definition: Definition, stage: StageSpec, call: int, index: int, function: Callable[..., Any] | None, sink: Sink
) -> Callable[..., Any]:
    """What the loop calls for a task of the stage."""
    if stage.kind is StageKind.BARRIER:
        return lambda: sink.signalled(call, True)
    assert function is not None
    made: Callable[..., Any] = function
    if stage.kind is StageKind.SCATTER:
        assert stage.to is not None
        destinations = definition.datasets[stage.to].partitions

        def scatter(*arrays: Any) -> None:
            sink.scattered(call, index, scatter_outputs(stage, destinations, made(*arrays)))

        return scatter
    if stage.kind is StageKind.SIGNAL:

        def signal(*arrays: Any) -> None:
            said = made(*arrays)
            if said is None:
                raise InvalidProgram(
                    "signal", None, "", f"signal {stage.name} returned None; it has to return yes or no: True or False"
                )
            sink.signalled(call, bool(said))

        return signal
    if stage.kind is StageKind.GATHER:

        def gather(*arrays: Any) -> Any:
            returned = made(sink.chunks(call, index), *arrays)
            if returned is None:
                sink.gathered(call, index)
            return returned

        function = gather
    if stage.copies_written:
        writing = function

        def write(*arrays: Any) -> Any:
            returned = writing(*arrays)
            if returned is None:
                sink.wrote(call, stage.copies_written)
            return returned

        return write
    return function


def bind(
    definition: Definition,
    graph: Graph,
    store: Store,
    sink: Sink,
    *,
    transfer: Callable[[int], None] | None = None,
    in_chains: bool = False,
) -> Bound:
    """The graph's tasks with the arrays of the store. Those of partitions that are not there have none.

    `transfer` is what the tasks are that a controller ordered to send or receive a copy. Tasks of compiled stages are
    called one by one, or `in_chains`, for whoever runs what `Bound.run` returns.
    """
    slots: dict[int, dict[str, Any]] = {}
    functions: list[Callable[..., Any] | None] = []
    for call, stage_id in enumerate(graph.stages):
        stage = definition.stages[stage_id]
        function = called(stage) if stage.is_compiled else stage.function
        if stage.parameters and function is not None:
            # A partial of a partial would be one, with keywords of both, which are cleared before each run.
            function = partial(function.__call__ if isinstance(function, partial) else function)
            slots[call] = function.keywords
        functions.append(function)
    tasks: list[BoundTask] = []
    written: dict[Place, None] = {}
    chain_arguments: dict[int, tuple[Any, ...]] = {}
    fitting: dict[tuple[int, int], tuple[Any, ...]] = {}
    """What tasks of compiled stages are handed that fit chains, by stage and partition."""
    for number, task in enumerate(graph.tasks):
        if task.partition == TRANSFERS:
            assert transfer is not None
            tasks.append((partial(transfer, task.copy), (), -1, graph.after[number]))
            continue
        if task.copy >= 0:
            receive = partial(sink.receive_copy, task.call, task.copy)
            tasks.append((receive, (), -1, graph.after[number]))
            continue
        stage = definition.stages[graph.stages[task.call]]
        if (stage.id, task.partition) in fitting:
            chain_arguments[number] = fitting[stage.id, task.partition]
            tasks.append((_in_a_chain, (), task.slot, ()))
            continue
        arguments, places, rebuilt = _arguments(definition, stage, task.partition, store)
        if in_chains and stage.is_compiled and not stage.copies_written and _fits_chain(stage, arguments):
            chain_arguments[number] = fitting[stage.id, task.partition] = arguments
            tasks.append((_in_a_chain, (), task.slot, ()))
            continue
        written.update(dict.fromkeys(places))
        function = functions[task.call]
        if rebuilt and function is not None:
            function = _reading(function, rebuilt, is_gather=stage.kind is StageKind.GATHER)
        function = _function(definition, stage, task.call, task.partition, function, sink)
        tasks.append((function, arguments, task.slot, graph.after[number]))
    guards = tuple(guard for guard in map(store.guard, written) if guard is not None)
    called_stages = map(definition.stages.__getitem__, dict.fromkeys(graph.stages))
    watched = tuple(value for stage in called_stages for value in stage.watched)
    bound = Bound(graph, tasks, graph.needs, graph.ready(), slots, guards, watched)
    if chain_arguments:
        with_chains = chained(graph, chain_arguments)
        bound.needs, bound.ready = with_chains.needs, with_chains.ready
        bound.tables = Tables(definition, graph, with_chains, chain_arguments)
        bound.tables.replace(tasks, with_chains)
    return bound


def _in_a_chain() -> None:
    raise AssertionError("a task of a chain was called by itself")


def _reading(function: Callable[..., Any], rebuilt: Sequence[int], *, is_gather: bool) -> Callable[..., Any]:
    """The function, handed lists and dicts that it reads as they are when it is called: a view that was made when the
    task was bound would not see what other tasks have written since."""
    positions = [position + is_gather for position in rebuilt]  # A gather's chunks come first.

    def read(*arguments: Any, **parameters: Any) -> Any:
        seen = list(arguments)
        for position in positions:
            seen[position] = read_only(seen[position])
        return function(*seen, **parameters)

    return read


def _arguments(
    definition: Definition, stage: StageSpec, partition: int, store: Store
) -> tuple[tuple[Any, ...], list[Place], list[int]]:
    """What a stage's task is handed, where of it is what it writes, and which of it is rebuilt for each call. What is
    awaited is left out: when it is there the task is bound again."""
    arguments: list[Any] = []
    written: list[Place] = []
    rebuilt: list[int] = []
    for dataset in (*stage.reads, *stage.writes):
        is_copy = definition.datasets[dataset].kind is DatasetKind.REPLICATED
        place = (dataset, 0 if is_copy else partition)
        if place not in store:
            continue
        if dataset in stage.writes:
            written.append(place)
            arguments.append(store.writable(place))
        else:
            if is_rebuilt(store.value(place)):
                rebuilt.append(len(arguments))
            arguments.append(store.readable(place))
    return tuple(arguments), written, rebuilt


def _fits_chain(stage: StageSpec, arguments: Sequence[Any]) -> bool:
    """Whether a task of a compiled stage may be part of a chain: all that it is handed is there, and has an address."""
    return len(arguments) == len(stage.reads) + len(stage.writes) and all(map(has_address, arguments))


def noted(error: BaseException, definition: Definition, bound: Bound, task: int, first_call: int) -> None:
    """Say in a note of the exception which stage raised it, on which partition."""
    if task < 0:
        return
    at = bound.graph.tasks[task]
    stage = definition.stages[bound.graph.stages[at.call]]
    error.add_note(
        f"in {stage.kind} {stage.name}, partition {at.partition}, call {first_call + at.call} of the program"
    )
    if isinstance(error, ValueError) and "read-only" in str(error) and stage.reads:
        names = ", ".join(definition.datasets[dataset].name for dataset in stage.reads)
        error.add_note(f"what is in reads ({names}) is read-only; a dataset that the stage changes stands in writes")
