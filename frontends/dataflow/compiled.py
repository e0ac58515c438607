"""Compiled stages: tables of addresses, along which machine code runs the tasks of a chain.

Each task of a chain is a line of three addresses: of the entry that calls its stage (`machine_code`), of its row, which
has the addresses and sizes of its arrays, and of the parameters of its call. A chain runs until all its tasks have, or
for `RUN_NS`; then it gives way, so that flags and polls are looked at, and goes on when it is called again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from frontends.dataflow.blocks import BoundTask, Graph
from frontends.dataflow.chains import Chained
from frontends.dataflow.errors import ExtraMissing, InvalidProgram
from frontends.dataflow.stages import Definition, StageSpec

if TYPE_CHECKING:
    from frontends.dataflow.machine_code import ArrayKind, Called, Entry, ParameterKinds

PACKAGE = "numba"
RUN_NS = 100_000
"""How long a chain runs before it gives way; by up to `machine_code.LOOK_TASKS` tasks longer."""
_NUMBERS = frozenset(np.dtype(name) for name in "?bhilqBHILQfdFD")
Array = np.ndarray[Any, Any]


def check_extra() -> None:
    """`ExtraMissing` if numba is not installed, which takes half a second to import."""
    if find_spec(PACKAGE) is None:
        raise ExtraMissing(PACKAGE)


@contextlib.contextmanager
def _needs_extra() -> Iterator[None]:
    """For imports of `machine_code`."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != PACKAGE:
            raise
        raise ExtraMissing(PACKAGE) from None


def called(stage: StageSpec) -> Called:
    """The stage's function, compiled, for tasks that are no part of a chain."""
    with _needs_extra():
        from frontends.dataflow.machine_code import Called
    return Called(stage)


def has_address(value: Any) -> bool:
    """Whether entries can make the value of its address and sizes: an array that is contiguous, rows first."""
    return type(value) is np.ndarray and value.flags.c_contiguous and value.flags.aligned


class _Parameter:
    """A parameter of one call, in the call's memory."""

    __slots__ = ("_cell", "_memory", "_stage", "dtype", "name", "type")

    def __init__(self, stage: str, name: str, memory: Array) -> None:
        self._stage, self.name, self._memory = stage, name, memory
        self.type: type | None = None
        self.dtype = self._cell = None  # type: Any

    def put(self, value: Any) -> bool:
        """Write the value; whether it is of another type than the one before."""
        if type(value) is self.type:
            try:
                self._cell[0] = value
            except OverflowError:
                self._refuse(value)
            return False
        dtype = np.asarray(value).dtype
        if np.ndim(value) or dtype not in _NUMBERS:
            self._refuse(value)
        self.type, self.dtype = type(value), dtype
        self._cell = self._memory[: dtype.itemsize].view(dtype)
        self._cell[0] = value
        return True

    def _refuse(self, value: Any) -> None:
        raise InvalidProgram(
            self.name,
            None,
            "",
            f"parameter {self.name} of stage {self._stage} is {value!r:.80}, a {type(value).__name__}; compiled stages "
            "take numbers of up to 64 bits, complex numbers and booleans",
        )


class _CompiledChain:
    """One chain; `state` is what machine code knows of it."""

    __slots__ = ("_state", "_tasks")

    def __init__(self, tasks: Sequence[int], state: Array) -> None:
        self._tasks, self._state = tasks, state

    def left(self) -> Sequence[int]:
        return self._tasks[int(self._state[0]) :]


class Tables:
    """The chains of a bound block."""

    def __init__(
        self, definition: Definition, graph: Graph, chained: Chained, arrays: Mapping[int, Sequence[Array]]
    ) -> None:
        """`arrays` are those of each task of a chain, reads first."""
        with _needs_extra():
            from frontends.dataflow import machine_code
        self._machine_code = machine_code
        self._definition, self._graph = definition, graph
        self._arrays = arrays  # Whose memory has to stay.
        self._ops = np.zeros((len(arrays), 3), dtype=np.int64)
        self._states = np.zeros((len(chained.chains), machine_code.STATE_WORDS), dtype=np.int64)
        self._lines: dict[int, list[tuple[int, tuple[ArrayKind, ...]]]] = {}
        """Of each call, the lines of its tasks in `_ops`, and what arrays they work on."""
        self._parameters: dict[int, list[_Parameter]] = {}
        self._defaults: dict[int, Mapping[str, Any]] = {}
        self._entries: dict[tuple[int, tuple[ArrayKind, ...], ParameterKinds], Entry] = {}
        """By stage and types."""
        self._entered = False
        self.chains: dict[int, _CompiledChain] = {}
        self._rows = self._fill(chained)

    def _fill(self, chained: Chained) -> list[Array]:
        """Write the tables, but for addresses of entries. Returns what they point to."""
        rows: dict[tuple[int, int], Array] = {}
        memories: dict[int, Array] = {}
        line = 0
        for state, (first, tasks) in zip(self._states, chained.chains.items(), strict=True):
            code = self._machine_code
            state[code.TASKS], state[code.OPS], state[code.RUN_NS] = len(tasks), self._ops[line:].ctypes.data, RUN_NS
            self.chains[first] = _CompiledChain(tasks, state)
            for number in tasks:
                task = self._graph.tasks[number]
                stage = self._definition.stages[self._graph.stages[task.call]]
                if task.call not in self._lines:
                    memories[task.call] = self._memory(task.call, stage)
                    self._lines[task.call] = []
                place = (stage.id, task.partition)
                if place not in rows:
                    rows[place] = np.array(code.row_words(self._arrays[number]), dtype=np.int64)
                self._ops[line, 1:] = rows[place].ctypes.data, memories[task.call].ctypes.data
                self._lines[task.call].append((line, self._kinds(stage, self._arrays[number])))
                line += 1
        return [*rows.values(), *memories.values()]

    def _memory(self, call: int, stage: StageSpec) -> Array:
        """The memory of a call's parameters."""
        each = self._machine_code.PARAMETER_BYTES
        memory = np.zeros(each * len(stage.parameters), dtype=np.uint8)
        if stage.parameters:
            self._defaults[call] = getattr(stage.function, "__kwdefaults__", None) or {}
            self._parameters[call] = [
                _Parameter(stage.name, name, memory[number * each : (number + 1) * each])
                for number, name in enumerate(sorted(stage.parameters))
            ]
        return memory

    def _kinds(self, stage: StageSpec, arrays: Sequence[Array]) -> tuple[ArrayKind, ...]:
        kind = self._machine_code.ArrayKind
        return tuple(kind(array.dtype, array.ndim, number < len(stage.reads)) for number, array in enumerate(arrays))

    def replace(self, tasks: list[BoundTask], chained: Chained) -> None:
        """Put chains in place of their first tasks."""
        for state, first in zip(self._states, self.chains, strict=True):
            slot = self._graph.tasks[first].slot
            tasks[first] = (self._machine_code.run_chain, (state.ctypes.data,), slot, chained.after[first])

    def start(self, parameters: Sequence[tuple[int, Mapping[str, Any]]]) -> None:
        """A run begins with these parameters. What is not compiled for their types is compiled."""
        self._states[:, self._machine_code.POSITION] = 0  # An error may have ended the run before within a chain.
        stated = dict(parameters) if self._parameters else {}
        for call, each in self._parameters.items():
            values = stated.get(call) or self._defaults[call]
            changed = False
            for parameter in each:
                name = parameter.name
                changed |= parameter.put(values[name] if name in values else self._defaults[call][name])
            if changed and self._entered:
                self._enter(call)
        if not self._entered:
            for call in self._lines:
                self._enter(call)
            self._entered = True

    def _enter(self, call: int) -> None:
        """Write the addresses of the entries of a call's tasks."""
        stage = self._definition.stages[self._graph.stages[call]]
        types: ParameterKinds = tuple((each.name, each.dtype) for each in self._parameters.get(call, ()))
        for line, kinds in self._lines[call]:
            entry = self._entries.get((stage.id, kinds, types))
            if entry is None:
                entry = self._entries[stage.id, kinds, types] = self._machine_code.entry(stage, kinds, types)
            self._ops[line, 0] = entry.address
