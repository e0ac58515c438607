"""What of a call cannot be pickled: where in its function or its arguments that is, and what to do instead.

Only asked once pickling has failed. Pickling again, it is noted which value was the last; then that value is looked for
from the argument that it is in, along what pickle follows.
"""

from __future__ import annotations

import functools
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from types import CodeType, FunctionType, MemberDescriptorType, MethodType
from typing import Any, NoReturn

import cloudpickle

from sparrow_py.errors import shown
from sparrow_py.exception_pickling import text_of
from sparrow_py.processes.process_bound import StaysHere

LOOKED_AT_MAX = 100_000
"""Values among which the one is looked for that cannot be pickled."""
_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
"""Classes of values that have nothing in them, and can be pickled."""
STEPS_SHOWN_MAX = 12
"""Of the way to it."""
_INSTEAD = (
    "which works in this process alone. Where a task needs results of other tasks, give it, among its arguments, the "
    "futures that this client's submit returned, or make both stages of one job (submit_stages), with ResultOf(stage) "
    "in the result's place"
)


def raise_explained(
    error: Exception, parts: Iterable[tuple[str, Any]], *, replaced: type | tuple[type, ...] = ()
) -> NoReturn:
    """Raise the error that pickling has raised, with a note of what could not be pickled, and where that is.

    `TypeError` if it is a future, a client or another that works in this process alone. parts: what was to be pickled,
    by names. replaced: values of these classes are not pickled, but what stands for them. Stored values and futures
    are pickled here as they were there: while the same call is encoded, if they stand for values in it.
    """
    for name, value in parts:
        last = _last_before_failure(value, replaced)
        if last is None:
            continue
        way = _way(value, last[0])
        for steps, (_, passed) in enumerate(way, 1):
            if what := _what_works_here_alone(passed):
                raise TypeError(f"{_place(name, way[:steps])} is {what}, {_INSTEAD}") from error
        described = f"{text_of(shown, last[0])} of type {_kind(last[0])}"
        place = f"{_place(name, way)} is" if way else f"{name} has in it"
        error.add_note(f"what cannot be pickled: {place} {described}")
        break
    raise error


def _what_works_here_alone(value: object) -> str:
    """What the value is, if it works in this process alone; else nothing."""
    asyncio = sys.modules.get("asyncio")
    if isinstance(value, Future) or (asyncio is not None and isinstance(value, asyncio.Future)):
        return "a future"
    name = type(value).__name__
    return f"{'an' if name[0] in 'AEIOU' else 'a'} {name}" if isinstance(value, StaysHere) else ""


def _kind(value: object) -> str:
    kind = type(value)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# ---- which value it is -----------------------------------------------------------------------


class _Nowhere:
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)


class _Noting(cloudpickle.Pickler):  # type: ignore[misc]  # it publishes no types
    """Notes the value that it is at."""

    def __init__(self, replaced: type | tuple[type, ...]) -> None:
        super().__init__(_Nowhere(), protocol=5)
        self._replaced = replaced
        self.last: Any = None

    def persistent_id(self, value: Any) -> int | None:
        """For pickle, which asks of each value first."""
        if isinstance(value, self._replaced):
            return 0
        self.last = value
        return None


def _last_before_failure(value: object, replaced: type | tuple[type, ...]) -> tuple[Any] | None:
    """The value in this one that cannot be pickled; None if all can be."""
    pickler = _Noting(replaced)
    try:
        pickler.dump(value)
    except Exception:
        return (pickler.last,)
    return None


# ---- where it is -----------------------------------------------------------------------------

_Way = list[tuple[str, Any]]
"""From a value to one in it: how each follows from the one before, and it itself."""


def _way(value: object, sought: object) -> _Way:
    """The shortest; it begins with the value itself. Empty if there is none."""
    found: list[tuple[str, Any, int]] = [("", value, -1)]
    seen = {id(value)}
    for index, (_, one, _) in enumerate(found):
        if one is sought:
            return _back(found, index)
        for step, inner in _inner(one):
            if len(found) == LOOKED_AT_MAX:
                break
            if type(inner) not in _PLAIN and id(inner) not in seen:
                seen.add(id(inner))
                found.append((step, inner, index))
    return []


def _back(found: list[tuple[str, Any, int]], index: int) -> _Way:
    way: _Way = []
    while index >= 0:
        step, value, index = found[index]
        way.append((step, value))
    return way[::-1]


def _place(name: str, way: _Way) -> str:
    steps = [step for step, _ in way]
    if len(steps) > STEPS_SHOWN_MAX:
        steps[STEPS_SHOWN_MAX // 2 : -STEPS_SHOWN_MAX // 2] = [" … "]
    return name + "".join(steps)


def _inner(value: Any) -> Iterator[tuple[str, Any]]:
    """What pickle follows from a value, as far as that can be told without running its code."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield f"[{text_of(shown, key)}]", item
            yield f", its key {text_of(shown, key)}", key
    elif isinstance(value, list | tuple | deque):
        yield from ((f"[{index}]", item) for index, item in enumerate(value))
    elif isinstance(value, set | frozenset):
        yield from ((", an element of it", item) for item in value)
    elif isinstance(value, functools.partial):
        yield from ((f".{name}", getattr(value, name)) for name in ("func", "args", "keywords"))
    elif isinstance(value, MethodType):
        yield from ((f".{name}", getattr(value, name)) for name in ("__self__", "__func__"))
    elif isinstance(value, FunctionType):
        yield from _of_function(value)
    elif isinstance(value, type):
        yield from () if _by_name(value) else ((f".{name}", item) for name, item in vars(value).items())
    yield from _attributes(value)


def _of_function(function: FunctionType) -> Iterator[tuple[str, Any]]:
    if _by_name(function):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield f", its variable {name!r}", cell.cell_contents
        except ValueError:  # It has none yet.
            continue
    for name in _names(function.__code__):
        if name in function.__globals__:
            yield f", its global variable {name!r}", function.__globals__[name]
    yield from ((f", its default {value!r}", value) for value in function.__defaults__ or ())
    yield from ((f", its default of {name!r}", value) for name, value in (function.__kwdefaults__ or {}).items())


def _names(code: CodeType) -> list[str]:
    """What the code, and functions in it, refer to: its globals, and attributes."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return list(dict.fromkeys([*code.co_names, *inner]))


def _by_name(value: Any) -> bool:
    """Whether a function or class is imported where it arrives, so that nothing in it is pickled."""
    module = getattr(value, "__module__", None)
    if module is None or module == "__main__" or cloudpickle.list_registry_pickle_by_value():
        return False
    found: Any = sys.modules.get(module)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _attributes(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, type | FunctionType | MethodType):
        return
    attributes = getattr(value, "__dict__", None)
    if isinstance(attributes, dict):
        yield from ((f".{name}", item) for name, item in attributes.items())
    for one in type(value).__mro__:
        for name, member in vars(one).items():
            if isinstance(member, MemberDescriptorType) and one.__module__ != "builtins":
                try:
                    yield f".{name}", object.__getattribute__(value, name)
                except AttributeError:  # It was never set.
                    continue
