"""What a program calls, in order, cut into blocks.

A block is the calls between two signals. One with more than `BLOCK_TASKS_MAX` tasks ends where all its scatters have
been gathered. Workers cut alike, since they count the tasks of all partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from frontends.dataflow.errors import InvalidProgram
from frontends.dataflow.stages import Definition, StageKind, StageSpec

BLOCK_TASKS_MAX = 10_000
BLOCK_CALLS_MAX = 10_000
"""Where a block ends although a scatter has not been gathered, which is then an error."""
SIGNALS_MAX = 2_000_000
"""Signals and barriers of a run with workers: what they said is recorded, and travels in one message."""
SCALARS = (bool, int, float, complex, str, bytes, type(None))
SCALAR_BYTES_MAX = 1024
_PLAIN = frozenset({bool, int, float, type(None)})
_HASH_BITS = (1 << 61) - 1


class Block(NamedTuple):
    """Calls that a program made since the last signal, that signal's call included if there is one."""

    number: int
    first_call: int
    """The number of its first call since the program's start."""
    stages: tuple[int, ...]
    parameters: tuple[tuple[int, dict[str, Any]], ...]
    """Position in the block, and parameters, of each call that has some."""
    hash_before: int
    """A rolling hash of the stages of all blocks before."""
    tasks: int


def rolled(before: int, stages: tuple[int, ...]) -> int:
    """The hash after a block of these stages. Python hashes tuples of integers alike in all processes."""
    return hash((before, stages)) & _HASH_BITS


def is_scalar(value: object) -> bool:
    """Whether a call may state the value: it travels by value with each call."""
    if type(value) in _PLAIN:
        return True
    if isinstance(value, tuple):
        return all(map(is_scalar, value))
    if isinstance(value, str | bytes):
        return len(value) <= SCALAR_BYTES_MAX
    return isinstance(value, SCALARS) or (hasattr(value, "dtype") and getattr(value, "shape", None) == ())


def check_parameters(stage: StageSpec, parameters: Mapping[str, Any]) -> None:
    """Refuse parameters that the stage does not know, misses, or that are no scalars."""
    for name, value in parameters.items():
        if name not in stage.parameters:
            known = ", ".join(sorted(stage.parameters)) or "none"
            raise InvalidProgram(name, value, "", f"stage {stage.name} has no parameter {name}; it has: {known}")
        if not is_scalar(value):
            raise InvalidProgram(
                name,
                None,
                "",
                f"parameter {name} of stage {stage.name} is a {type(value).__name__}; allowed: numbers, strings and "
                f"bytes up to {SCALAR_BYTES_MAX}, None, and tuples of these; what is larger is a dataset",
            )
    if not stage.required <= parameters.keys():
        missing = stage.required - parameters.keys()
        raise InvalidProgram(
            min(missing), None, "", f"stage {stage.name} is called without its parameter {min(missing)}"
        )


def too_many_signals(stage: StageSpec, most: int) -> InvalidProgram:
    """Why a run goes no further."""
    return InvalidProgram(
        "signals",
        None,
        "",
        f"signals: {stage.kind} {stage.name} is called after {most:,} others; a run with workers may call that many "
        "signals and barriers, as they are recorded: make several runs, which go on with the data",
    )


def chunk_sources(definition: Definition, stages: Sequence[int]) -> dict[int, int]:
    """For the position of each gather in the block, that of the scatter whose chunks it takes.

    Each call of a scatter is taken by one call of a gather, within the block: nothing is on its way at a signal.
    """
    open_scatters: dict[int, int] = {}
    sources: dict[int, int] = {}
    for position, number in enumerate(stages):
        stage = definition.stages[number]
        if stage.kind is StageKind.SCATTER:
            if number in open_scatters:
                raise InvalidProgram(
                    "program", None, "", f"scatter {stage.name} is called again before a gather took its chunks"
                )
            open_scatters[number] = position
        elif stage.kind is StageKind.GATHER:
            assert stage.scatter is not None
            if stage.scatter not in open_scatters:
                raise InvalidProgram(
                    "program",
                    None,
                    "",
                    f"gather {stage.name} is called, and scatter {definition.stages[stage.scatter].name} was not "
                    "called before it since the last gather or signal",
                )
            sources[position] = open_scatters.pop(stage.scatter)
    if open_scatters:
        name = definition.stages[min(open_scatters)].name
        raise InvalidProgram(
            "program", None, "", f"scatter {name} is called, and no gather takes its chunks before the next signal"
        )
    return sources


class Calls:
    """Records a program's calls, makes blocks of them, and answers its signals.

    A function cannot be entered in the middle. So a worker that joins, or goes back to a snapshot, calls the program
    from its start: blocks before `until` are skipped, and their signals say what was recorded of them.

    An exception of a block ends the run, whatever the program does with it: no later call is run, and the program's end
    raises it once more. Workers would diverge if a program could go on behind a block that not all have finished.
    """

    __slots__ = (
        "_ended_by", "_first_call", "_hash", "_number", "_open", "_parameters", "_run_block", "_signals",
        "_signals_called", "_signals_max", "_stages", "_tasks", "_until",
    )  # fmt: skip

    def __init__(
        self,
        run_block: Callable[[Block], bool],
        until: int = 0,
        signals: Mapping[int, bool] | None = None,
        signals_max: int | None = None,
    ) -> None:
        """`signals_max`: how many signals and barriers may be called, where they are recorded."""
        self._run_block, self._until = run_block, until
        self._signals_max, self._signals_called = -1 if signals_max is None else signals_max, 0
        self._signals = signals or {}
        self._number = self._first_call = self._hash = 0
        self._tasks = self._open = 0
        self._stages: list[int] = []
        self._parameters: list[tuple[int, dict[str, Any]]] = []
        self._ended_by: BaseException | None = None
        """What a block raised."""

    def call(self, stage: StageSpec, parameters: dict[str, Any]) -> bool | None:
        """Record a call; of a signal its answer."""
        if parameters or stage.required:
            check_parameters(stage, parameters)
            self._parameters.append((len(self._stages), parameters))
        self._stages.append(stage.id)
        self._tasks += stage.partitions
        self._open += stage.opens
        if stage.ends_block:
            if self._signals_called == self._signals_max:
                raise too_many_signals(stage, self._signals_max)
            self._signals_called += 1
            return self._block()
        if self._tasks >= BLOCK_TASKS_MAX and (self._open <= 0 or len(self._stages) >= BLOCK_CALLS_MAX):
            self._block()
        return None

    @property
    def blocks(self) -> int:
        """How many there were."""
        return self._number

    @property
    def hash(self) -> int:
        """Of all blocks."""
        return self._hash

    def play(self, program: Callable[[], Any]) -> Any:
        """Call a program whose stages call this; what it returns, once its last block has run."""
        try:
            returned = program()
            if hasattr(returned, "send") or hasattr(returned, "__await__"):
                raise InvalidProgram(
                    "program", None, "", "the program is a generator or a coroutine; allowed: a plain function"
                )
            self.end()
        finally:
            self._see_ended()
        return returned

    def end(self) -> None:
        """The program returned: run what it called last."""
        if self._stages:
            self._block()

    def _see_ended(self) -> None:
        if self._ended_by is not None:
            raise self._ended_by

    def _block(self) -> bool:
        self._see_ended()
        stages = tuple(self._stages)
        block = Block(self._number, self._first_call, stages, tuple(self._parameters), self._hash, self._tasks)
        self._number += 1
        self._first_call += len(stages)
        self._hash = rolled(self._hash, stages)
        self._stages.clear()
        self._parameters.clear()
        self._tasks = self._open = 0
        if block.number < self._until:
            return self._signals.get(block.number, False)
        try:
            return self._run_block(block)
        except BaseException as error:
            self._ended_by = error
            raise
