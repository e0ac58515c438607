"""Stages as machine code, by numba: called with addresses of arrays, one after the other without Python in between.

`run_chain` is the loop. It calls *entries*: a generated function for a stage and the types of its arrays and
parameters, which makes arrays of a row of addresses and shapes, and calls the stage's function. An entry is compiled
once per machine (`source_cache`), and its source names all that it was made of.
"""

from __future__ import annotations

import functools
import hashlib
import linecache
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple, NoReturn, cast

import numba
import numba.extending
import numpy as np
from numba import from_dtype, njit
from numba.core import cgutils
from numba.core.errors import NumbaError, TypingError
from numba.np.numpy_support import carray

from frontends.dataflow.blocks import Cache
from frontends.dataflow.compilable import OPTIONS, compilable, fingerprint
from frontends.dataflow.errors import InvalidProgram, StageReturned
from frontends.dataflow.source_cache import keep, one_at_a_time
from frontends.dataflow.stages import StageSpec

types: Any = numba.types  # Most of what numba has for those who extend it has no types of Python.
intrinsic: Callable[[Callable[..., Any]], Any] = numba.extending.intrinsic
if_unlikely: Any = cgutils.if_unlikely
ENTRIES_MAX = 1_000
"""Entries that a process keeps beyond their use."""
PARAMETER_BYTES = 16
"""Of each parameter in the memory of a call's parameters."""
POSITION, TASKS, OPS, RUN_NS, CLOCK, STATE_WORDS = 0, 1, 2, 3, 4, 8
"""Words of a chain's state; `CLOCK` has two."""
LOOK_TASKS = 8
"""How many tasks run between two looks at the clock, if they are short."""
LOOK_NS = 10_000
"""They are short if so many took no longer than this."""
_CLOCK_MONOTONIC = 1 if sys.platform == "linux" else 6


class ArrayKind(NamedTuple):
    """What of an array is part of its type. Arrays are contiguous, rows first."""

    dtype: np.dtype[Any]
    dimensions: int
    is_read_only: bool


ParameterKinds = tuple[tuple[str, "np.dtype[Any]"], ...]
"""Names and types of a call's parameters."""


# ---- what generated code is made of ------------------------------------------------------------------


def _pointer_to(dtype: Any) -> Any:
    """A function that makes a pointer of an address."""

    @intrinsic
    def pointer(typing_context: Any, address: Any) -> Any:
        signature = types.CPointer(dtype)(types.int64)

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.inttoptr(arguments[0], context.get_value_type(signature.return_type))

        return signature, generate

    return pointer


_words_at = _pointer_to(types.int64)


@intrinsic
def _read_only(typing_context: Any, array: Any) -> Any:
    """The array as one that functions that write it are not compiled for."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return arguments[0]

    return array.copy(readonly=True)(array), generate


@intrinsic
def _nothing(typing_context: Any, returned: Any) -> Any:
    """Takes what a stage returned: nothing."""
    if not isinstance(returned, types.NoneType):
        raise TypingError(f"the stage returns {returned}")

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return context.get_dummy_value()

    return types.none(returned), generate


@intrinsic
def _call(typing_context: Any, entry: Any, row: Any, parameters: Any) -> Any:
    """Calls an entry by its address. What it raises is raised here."""
    taken = (types.int64, types.int64)

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        convention = context.call_conv
        pointer = convention.get_function_type(types.none, taken).as_pointer()
        function = builder.inttoptr(arguments[0], pointer)
        status, _ = convention.call_function(builder, function, types.none, taken, arguments[1:])
        with if_unlikely(builder, status.is_error):
            convention.return_status_propagate(builder, status)
        return context.get_dummy_value()

    return types.none(types.int64, *taken), generate


_clock_gettime = types.ExternalFunction("clock_gettime", types.int32(types.int32, types.CPointer(types.int64)))


def _run_chain(address: int) -> int | None:
    """Run the tasks of a chain from its position on: None when all have run, 1 when its time was up before.

    At the address are its state's words. The time is looked at after `LOOK_TASKS` tasks, and after each that follows
    longer ones, so at most that many tasks run when time is up.
    """
    state = carray(_words_at(address), STATE_WORDS)
    position, tasks, run_ns = state[POSITION], state[TASKS], state[RUN_NS]
    ops = carray(_words_at(state[OPS]), (tasks, 3))
    clock = _words_at(address + 8 * CLOCK)
    _clock_gettime(_CLOCK_MONOTONIC, clock)
    began = looked = state[CLOCK] * 1_000_000_000 + state[CLOCK + 1]
    look = position + 1
    while position < tasks:
        state[POSITION] = position  # The one that failed, if it does.
        _call(ops[position, 0], ops[position, 1], ops[position, 2])
        position += 1
        if position >= look:
            _clock_gettime(_CLOCK_MONOTONIC, clock)
            now = state[CLOCK] * 1_000_000_000 + state[CLOCK + 1]
            if now - began >= run_ns:
                break
            look = position + (LOOK_TASKS if now - looked < LOOK_NS else 1)
            looked = now
    if position < tasks:
        state[POSITION] = position
        return 1
    state[POSITION] = 0
    return None


def _kept_if_possible(function: FunctionType) -> Any:
    """The function, compiled when it is called first, or read from where numba kept it."""
    try:
        return njit(cache=True, **OPTIONS)(function)
    except RuntimeError:  # There is no directory that numba may write to.
        return njit(**OPTIONS)(function)


run_chain: Callable[[int], int | None] = _kept_if_possible(cast(FunctionType, _run_chain))


# ---- entries -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Entry:
    """Machine code that calls a stage with a row of arrays and the memory of a call's parameters."""

    address: int
    compiled: Any
    """Whose memory the code is in."""


_entries: Cache[str, Entry] = Cache(ENTRIES_MAX)


def entry(stage: StageSpec, arrays: Sequence[ArrayKind], parameters: ParameterKinds) -> Entry:
    """The entry of a stage for these types, compiled if it is not known."""
    function = stage.function
    assert isinstance(function, FunctionType)
    source = entry_source(stage.name, fingerprint(function), arrays, parameters)
    made = _entries.get(source)
    if made is None:
        names = {f"pointer_{number}": _pointer_to(_numba_type(stage, kind.dtype)) for number, kind in enumerate(arrays)}
        names |= {f"pointer_to_{name}": _pointer_to(_numba_type(stage, dtype)) for name, dtype in parameters}
        dispatcher, path = _generated(source, function, names)
        taken = (types.int64, types.int64)
        with one_at_a_time(path):
            _compiling(stage, lambda: dispatcher.compile(taken))
        result = dispatcher.overloads[taken]
        made = Entry(result.library.get_pointer_to_function(result.fndesc.llvm_func_name), dispatcher)
        _entries.put(source, made)
    return made


def entry_source(name: str, mark: str, arrays: Sequence[ArrayKind], parameters: ParameterKinds) -> str:
    """The source of an entry; `mark` is the fingerprint of the stage's function.

    A row has the address of each array, and then its sizes.
    """
    arguments, word = [], 0
    for number, (_, dimensions, is_read_only) in enumerate(arrays):
        sizes = "".join(f"words[{word + 1 + axis}], " for axis in range(dimensions))
        array = f"carray(pointer_{number}(words[{word}]), ({sizes.rstrip()}))"
        arguments.append(f"read_only({array})" if is_read_only else array)
        word += 1 + dimensions
    for number, (parameter, _) in enumerate(parameters):
        place = f"parameters + {number * PARAMETER_BYTES}"
        arguments.append(f"{parameter}=carray(pointer_to_{parameter}({place}), 1)[0]")
    kinds = [*(f"{kind.dtype}, {kind.dimensions} dimensions" for kind in arrays), *(f"{n}: {t}" for n, t in parameters)]
    body = [f"    words = carray(words_at(row), {word})"] if arrays else []
    body.append(f"    nothing(stage({', '.join(arguments)}))")
    return _source([f"# Stage {name!a} of {mark}", *(f"# {kind}" for kind in kinds)], "row, parameters", body)


def _source(comments: Sequence[str], arguments: str, body: Sequence[str]) -> str:
    """The source of a function, which has a name of its own, as machine code is told apart by names."""
    digest = hashlib.sha256("\n".join([*comments, arguments, *body]).encode()).hexdigest()
    return "\n".join([*comments, f"def call_{digest[:32]}({arguments}):", *body, ""])


def row_words(arrays: Sequence[np.ndarray[Any, Any]]) -> list[int]:
    """Addresses and sizes of arrays as entries read them."""
    return [word for array in arrays for word in (array.ctypes.data, *array.shape)]


def _generated(source: str, function: FunctionType, names: Mapping[str, Any]) -> tuple[Any, Path]:
    """The function that the source defines, which numba keeps beside the source's file."""
    path = keep(source)
    scope: dict[str, Any] = {
        "__name__": __name__,  # A module that can be imported: numba looks it up.
        "carray": carray, "words_at": _words_at, "read_only": _read_only, "nothing": _nothing,
        "stage": compilable(function), **names,
    }  # fmt: skip
    defined = set(scope)
    exec(compile(source, str(path), "exec"), scope)
    (made,) = (value for name, value in scope.items() if name not in defined and isinstance(value, FunctionType))
    return _kept_if_possible(made), path


def _numba_type(stage: StageSpec, dtype: np.dtype[Any]) -> Any:
    try:
        made = from_dtype(dtype)
        if made is types.float16:  # numba has the type, and no arrays of it.
            raise NotImplementedError
        return made
    except (NotImplementedError, NumbaError):
        raise InvalidProgram(
            "dtype", str(dtype), "", f"stage {stage.name} cannot be compiled: numba has no arrays of dtype {dtype}"
        ) from None


class Called:
    """A stage's function, compiled for whatever it is called with: for tasks that are no part of a chain."""

    def __init__(self, stage: StageSpec) -> None:
        function = stage.function
        assert isinstance(function, FunctionType)
        code = function.__code__
        self._stage, self._function = stage, function
        self._arrays = code.co_argcount
        self._parameters = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
        self._defaults = function.__kwdefaults__ or {}

    @functools.cached_property
    def _dispatcher(self) -> Any:
        """Made when it is called first: most stages' tasks are all in chains."""
        arrays = [f"array_{number}" for number in range(self._arrays)]
        given = [f"parameter_{number}" for number in range(len(self._parameters))]
        stated = [*arrays, *(f"{name}={value}" for name, value in zip(self._parameters, given, strict=True))]
        source = _source(
            [f"# Stage {self._stage.name!a} of {fingerprint(self._function)}"],
            ", ".join([*arrays, *given]),
            [f"    nothing(stage({', '.join(stated)}))"],
        )
        return _generated(source, self._function, {})[0]

    def __call__(self, *arrays: Any, **parameters: Any) -> None:
        given = {**self._defaults, **parameters}
        values = [given[name] for name in self._parameters]
        _compiling(self._stage, lambda: self._dispatcher(*arrays, *values))


# ---- what numba refuses ------------------------------------------------------------------------------


def _compiling(stage: StageSpec, do: Callable[[], Any]) -> None:
    """Compile, or raise what says why the stage cannot be compiled."""
    try:
        do()
    except NumbaError as error:
        _refuse(stage, error)


def _refuse(stage: StageSpec, error: NumbaError) -> NoReturn:
    """Raise numba's refusal, with the stage and the line that it is about."""
    text = str(error)
    if returned := re.search(r"the stage returns (.+)", text):
        raise StageReturned(returned[1]) from error
    function = stage.function
    assert isinstance(function, FunctionType)
    lines = [line.strip() for line in text.splitlines()]
    reasons = [line for line in lines if re.match(r"\w*Error: ", line)]  # The reason within numba's reasons.
    reasons += [line for line in lines if line and not line.startswith("Failed in nopython mode")]
    place = ""
    if found := re.search(r'File "([^"]+)", line (\d+):', text):
        code = function.__code__.co_filename
        if Path(found[1]).name == Path(code).name:
            line = linecache.getline(code, int(found[2])).strip()
            place = f" in line {found[2]} of {Path(code).name}, {line!r}"
    raise InvalidProgram(
        "stage", stage.name, "", f"stage {stage.name} cannot be compiled; numba{place}: {reasons[0][:500]}"
    ) from error
