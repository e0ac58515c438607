"""What a stage's function takes along from outside: scalars by value; nothing large; no dataset and no stage.

A function runs at workers, where what it captured is a copy. An array there would be a second, unpartitioned home for
data, so arrays, lists and the like above `CAPTURED_BYTES_MAX` are refused by name.
"""

from __future__ import annotations

import copy
import dis
import pickle
import sys
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from frontends.dataflow.errors import InvalidProgram

CAPTURED_BYTES_MAX = 1024
_CONTAINERS = (list, tuple, dict, set, frozenset, bytes, bytearray)
_SMALL_ITEMS_MAX = CAPTURED_BYTES_MAX
"""A container of more items is above the limit whatever they are."""


@runtime_checkable
class BelongsToProgram(Protocol):
    """A dataset, a stage or a Dataflow: the program has these, functions of stages have not."""

    def refusal(self) -> str:
        """Why a stage's function may not capture it, and what to do."""
        ...


def _global_names(code: CodeType) -> Iterator[str]:
    """Names that the code, and functions within it, may look up as globals."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def captured(function: FunctionType) -> dict[str, Any]:
    """Values of closure and globals that the function refers to, and those of its defaults, by name."""
    values: dict[str, Any] = {}
    for name in _global_names(function.__code__):
        if name in function.__globals__:
            values[name] = function.__globals__[name]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            values[name] = cell.cell_contents
        except ValueError:  # Not bound yet: the function refers to what comes later.
            continue
    values.update(function.__kwdefaults__ or {})
    for number, default in enumerate(function.__defaults__ or ()):
        values[f"default {number}"] = default
    return values


def _bytes_of(value: Any) -> int:
    """Roughly what the container is as bytes; cheap for large ones."""
    if len(value) > _SMALL_ITEMS_MAX:
        return sys.getsizeof(value)
    return len(pickle.dumps(value))


def _check(stage: str, name: str, value: Any, seen: set[int]) -> None:
    if isinstance(value, BelongsToProgram) and not isinstance(value, type):
        raise InvalidProgram(name, value, "", f"stage {stage} captures {name}: {value.refusal()}")
    if isinstance(value, np.ndarray):
        if value.nbytes > CAPTURED_BYTES_MAX:
            raise InvalidProgram(
                name,
                None,
                "",
                f"stage {stage} captures {name}, an array of {value.nbytes} bytes; at most {CAPTURED_BYTES_MAX} bytes "
                "travel with a function: make it a dataset (partition, replicate) and name that in reads",
            )
    elif isinstance(value, _CONTAINERS):
        try:
            size = _bytes_of(value)
        except Exception as error:
            raise InvalidProgram(
                name, None, "", f"stage {stage} captures {name}, which cannot be pickled: {error}"
            ) from error
        if size > CAPTURED_BYTES_MAX:
            raise InvalidProgram(
                name,
                None,
                "",
                f"stage {stage} captures {name}, a {type(value).__name__} of {len(value)} items and {size} bytes; at "
                f"most {CAPTURED_BYTES_MAX} bytes travel with a function: make it a dataset and name that in reads",
            )
    elif isinstance(value, FunctionType):
        check_captured(stage, value, seen)


def check_captured(stage: str, function: Any, seen: set[int] | None = None) -> None:
    """Refuse what the function, or functions of the same module that it refers to, may not take along."""
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    for name, value in captured(function).items():
        if isinstance(value, FunctionType) and value.__module__ != function.__module__:
            continue  # A library's: it travels by name.
        _check(stage, name, value, seen)


def frozen(function: Any) -> Any:
    """The function with what it captures as it is now, as it will be at workers."""
    if not isinstance(function, FunctionType):
        return function
    values = captured(function)
    names = set(_global_names(function.__code__))
    scope: dict[str, Any] = {name: function.__globals__[name] for name in names if name in function.__globals__}
    scope = {name: _by_value(value) for name, value in scope.items()}
    for name in ("__builtins__", "__name__", "__file__"):
        if name in function.__globals__:
            scope[name] = function.__globals__[name]
    cells = []
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        cells.append(type(cell)(_by_value(values[name])) if name in values else cell)
    made = FunctionType(function.__code__, scope, function.__name__, function.__defaults__, tuple(cells) or None)
    made.__kwdefaults__ = function.__kwdefaults__
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return made


def _by_value(value: Any) -> Any:
    """A copy of an array or a container; all else is itself."""
    return copy.deepcopy(value) if isinstance(value, (np.ndarray, *_CONTAINERS)) else value
