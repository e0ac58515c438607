"""What a stage's function takes along from outside, by value: nothing large, no dataset, no stage, and no state.

A function runs at workers, where what it captured is a copy. An array there would be a second, unpartitioned home for
data, so arrays, lists and the like above `CAPTURED_BYTES_MAX` are refused by name. A function that changed what it
captured would answer by where its tasks ran, so that is refused, too.
"""

from __future__ import annotations

import copy
import dis
import pickle
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from types import CellType, CodeType, FunctionType
from typing import Any, Protocol, runtime_checkable

import numpy as np

from frontends.dataflow.errors import InvalidProgram

CAPTURED_BYTES_MAX = 1024
CODES_KEPT_MAX = 10_000
"""Functions of which it is kept which names they look up."""
_CONTAINERS = (list, tuple, dict, set, frozenset, bytes, bytearray, deque)
_COPIED = (np.ndarray, np.random.Generator, np.random.RandomState, *_CONTAINERS)
_REMEDIES = {
    "stage": "make it a dataset (partition, replicate) and name that in reads",
    "load": "make of the index, within the function, what it needs, or give the values to Dataflow.partition or "
    "Dataflow.objects",
}
"""What to do with what is too large, by who captured it."""
_PLAIN = frozenset({bool, int, float, complex, str, bytes})
_SMALL_ITEMS_MAX = CAPTURED_BYTES_MAX
"""A container of more items is above the limit whatever they are."""


@runtime_checkable
class BelongsToProgram(Protocol):
    """A dataset, a stage or a Dataflow: the program has these, functions of stages have not."""

    def refusal(self) -> str:
        """Why a stage's function may not capture it, and what to do."""
        ...


@lru_cache(CODES_KEPT_MAX)
def _global_names(code: CodeType) -> tuple[str, ...]:
    """Names that the code, and functions within it, may look up as globals. Each run asks for those of all stages."""
    names = [
        instruction.argval
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")
    ]
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names += _global_names(constant)
    return tuple(names)


def _stored_names(code: CodeType, outer: frozenset[str]) -> Iterator[tuple[str, str]]:
    """Names outside the function that the code, and functions within it, bind: (global or nonlocal, name).

    `outer` are the free names of the code that functions within the stage do not bind themselves.
    """
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            yield "global", instruction.argval
        elif instruction.opname in ("STORE_DEREF", "DELETE_DEREF") and instruction.argval in outer:
            yield "nonlocal", instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _stored_names(constant, outer.intersection(constant.co_freevars))


def _check_stores(stage: str, function: FunctionType, kind: str) -> None:
    for word, name in _stored_names(function.__code__, frozenset(function.__code__.co_freevars)):
        place = "" if function.__name__ == stage else f" in {function.__name__}"
        raise InvalidProgram(
            name,
            None,
            "",
            f"{kind} {stage} sets `{word} {name}`{place}: each worker has a {name} of its own, so the answer would "
            "depend on where tasks run; make it a dataset and name that in writes",
        )


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


def _check(stage: str, name: str, value: Any, seen: set[int], kind: str) -> None:
    if isinstance(value, BelongsToProgram) and not isinstance(value, type):
        raise InvalidProgram(name, value, "", f"{kind} {stage} captures {name}: {value.refusal()}")
    if isinstance(value, np.ndarray):
        if value.nbytes > CAPTURED_BYTES_MAX:
            raise InvalidProgram(
                name,
                None,
                "",
                f"{kind} {stage} captures {name}, an array of {value.nbytes} bytes; at most {CAPTURED_BYTES_MAX} bytes "
                f"travel with a function: {_REMEDIES[kind]}",
            )
        if value.dtype.hasobject:
            raise InvalidProgram(
                name,
                None,
                "",
                f"{kind} {stage} captures {name}, an array of Python objects; allowed: arrays of numbers, booleans or "
                "fixed-size strings, and lists",
            )
    elif isinstance(value, _CONTAINERS):
        try:
            size = _bytes_of(value)
        except Exception as error:
            raise InvalidProgram(
                name, None, "", f"{kind} {stage} captures {name}, which cannot be pickled: {error}"
            ) from error
        if size > CAPTURED_BYTES_MAX:
            raise InvalidProgram(
                name,
                None,
                "",
                f"{kind} {stage} captures {name}, a {type(value).__name__} of {len(value)} items and {size} bytes; at "
                f"most {CAPTURED_BYTES_MAX} bytes travel with a function: {_REMEDIES[kind]}",
            )
    elif isinstance(value, FunctionType):
        check_captured(stage, value, seen, kind)


def check_captured(stage: str, function: Any, seen: set[int] | None = None, kind: str = "stage") -> None:
    """Refuse what the function, or functions of the same module that it refers to, may not take along.

    `kind` is "load" of a function that makes partitions.
    """
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or id(function) in seen:
        return
    seen.add(id(function))
    _check_stores(stage, function, kind)
    for name, value in captured(function).items():
        if isinstance(value, FunctionType) and value.__module__ != function.__module__:
            continue  # A library's: it travels by name.
        _check(stage, name, value, seen, kind)


def frozen(
    function: Any, copies: dict[int, FunctionType] | None = None, take: Callable[[Any], Any] = copy.deepcopy
) -> Any:
    """The function, and functions of its module that it refers to, with what they capture as it is now.

    That is how it will be at workers. `copies` are those made so far, by the id of the function; `take` copies values.
    """
    copies = {} if copies is None else copies
    if not isinstance(function, FunctionType):
        return function
    if id(function) in copies:
        return copies[id(function)]
    names = set(_global_names(function.__code__))
    scope: dict[str, Any] = {
        name: function.__globals__[name]
        for name in ("__builtins__", "__name__", "__file__")
        if name in function.__globals__
    }
    cells = tuple(CellType() for _ in function.__closure__ or ())
    made = FunctionType(function.__code__, scope, function.__name__, None, cells or None)
    copies[id(function)] = made  # First, as functions may refer to themselves.
    for name in names & function.__globals__.keys() - scope.keys():
        scope[name] = _by_value(function, function.__globals__[name], copies, take)
    for mine, cell in zip(cells, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # Not bound yet.
            continue
        mine.cell_contents = _by_value(function, value, copies, take)
    if function.__defaults__ is not None:
        made.__defaults__ = tuple(_by_value(function, value, copies, take) for value in function.__defaults__)
    if function.__kwdefaults__ is not None:
        made.__kwdefaults__ = {
            name: _by_value(function, value, copies, take) for name, value in function.__kwdefaults__.items()
        }
    made.__dict__.update(function.__dict__)
    made.__qualname__, made.__module__, made.__doc__ = function.__qualname__, function.__module__, function.__doc__
    return made


def _by_value(function: FunctionType, value: Any, copies: dict[int, FunctionType], take: Callable[[Any], Any]) -> Any:
    """A copy of an array, a container, a generator of random numbers or a function of the module; or the value."""
    if isinstance(value, FunctionType) and value.__module__ == function.__module__:
        return frozen(value, copies, take)
    return take(value) if isinstance(value, _COPIED) else value


# ---- whether a function would be frozen otherwise now -------------------------------------------------


def captured_state(function: Any, seen: set[int] | None = None) -> tuple[Any, ...]:
    """What the function, and functions of its module that it refers to, capture now: what is copied as its bytes, other
    values themselves."""
    seen = set() if seen is None else seen
    if not isinstance(function, FunctionType) or id(function) in seen:
        return ()
    seen.add(id(function))
    state: list[Any] = [function]
    for name, value in captured(function).items():
        state.append(name)
        if isinstance(value, FunctionType) and value.__module__ == function.__module__:
            state += captured_state(value, seen)
        elif isinstance(value, _COPIED):
            state.append(_bytes_or_value(value))
        else:
            state.append(value)
    return tuple(state)


def _bytes_or_value(value: Any) -> Any:
    try:
        return pickle.dumps(value)
    except Exception:  # `check_captured` refuses it.
        return value


def is_same_state(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    """Whether two such states are the same, as far as can be seen without calling the values' own comparisons."""
    return len(one) == len(other) and all(map(_is_same, one, other))


def _is_same(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in _PLAIN and one == other)


# ---- captured values stay as they are ----------------------------------------------------------------


class Watched:
    """A captured value that a stage's function could change, and its bytes when it was captured."""

    __slots__ = ("_before", "name", "stage", "value")

    def __init__(self, stage: str, name: str, value: Any) -> None:
        self.stage, self.name, self.value = stage, name, value
        self._before = pickle.dumps(value)

    def __reduce__(self) -> tuple[type, tuple[str, str, Any]]:
        return type(self), (self.stage, self.name, self.value)  # Equal sets have other bytes in other processes.

    def has_changed(self) -> bool:
        try:
            return pickle.dumps(self.value) != self._before
        except Exception:  # It could be pickled before.
            return True


def _can_change(value: Any) -> bool:
    if isinstance(value, (tuple, frozenset)):
        try:
            hash(value)
        except TypeError:
            return True
        return False
    return isinstance(value, _COPIED) and not isinstance(value, bytes)


def watched(stage: str, function: Any, seen: set[int] | None = None) -> tuple[Watched, ...]:
    """What a frozen function, and functions of its module that it refers to, captured and could change."""
    seen = set() if seen is None else seen
    found: list[Watched] = []
    if not isinstance(function, FunctionType) or id(function) in seen:
        return ()
    seen.add(id(function))
    for name, value in captured(function).items():
        if isinstance(value, FunctionType):
            if value.__module__ == function.__module__:
                found += watched(stage, value, seen)
        elif id(value) not in seen and _can_change(value):
            seen.add(id(value))
            found.append(Watched(stage, name, value))
    return tuple(found)


def check_captured_unchanged(values: Iterable[Watched]) -> None:
    """Refuse stages that changed what they captured: who sees the change depends on where tasks run."""
    for value in values:
        if value.has_changed():
            raise InvalidProgram(
                value.name,
                None,
                "",
                f"stage {value.stage} changed {value.name}, which it captured: each worker has a copy of its own, so "
                "the answer would depend on where tasks run; make it a dataset and name that in writes, or a copy of "
                "it within the function (a generator of random numbers is made there, seeded by parameters)",
            )
