"""A stage's function as numba takes it, with functions of its module that it calls, and a hash of all of these."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterator
from types import CellType, CodeType, FunctionType, ModuleType
from typing import Any

from numba import njit
from numba.core.dispatcher import Dispatcher

from frontends.dataflow.captured import captured

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Division by zero gives infinity or NaN, as it does for elements of numpy's arrays."""


def _is_of_the_program(value: Any, function: FunctionType) -> bool:
    return isinstance(value, FunctionType) and value.__module__ == function.__module__


def compilable(function: FunctionType, made: dict[int, Any] | None = None) -> Any:
    """The function for numba, and with it functions of its module that it calls."""
    made = {} if made is None else made
    if id(function) in made:
        return made[id(function)]
    scope = dict(function.__globals__)
    cells = tuple(CellType() for _ in function.__closure__ or ())
    code, defaults = _without_keyword_only(function)
    copy = FunctionType(code, scope, function.__name__, defaults, cells or None)
    copy.__module__ = function.__module__
    # numba names machine code by this and a number that each process counts anew: what is read from disk may have the
    # number of what is compiled here, and of two of one name the first would be called.
    copy.__qualname__ = f"{function.__qualname__}_{fingerprint(function)}"
    made[id(function)] = dispatcher = njit(**OPTIONS)(copy)
    for name, value in scope.items():
        if _is_of_the_program(value, function):
            scope[name] = compilable(value, made)
    for mine, cell in zip(cells, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # Not bound yet.
            continue
        mine.cell_contents = compilable(value, made) if _is_of_the_program(value, function) else value
    return dispatcher


def _without_keyword_only(function: FunctionType) -> tuple[CodeType, tuple[Any, ...]]:
    """The function's code and defaults, arguments after * as further ones before it: numba knows no others."""
    code = function.__code__
    last = code.co_argcount + code.co_kwonlyargcount
    defaults = list(function.__defaults__ or ())
    for name in code.co_varnames[code.co_argcount : last]:
        if name in (function.__kwdefaults__ or {}):
            defaults.append((function.__kwdefaults__ or {})[name])
        else:
            defaults.clear()  # Who follows an argument with a default needs one, too.
    return code.replace(co_argcount=last, co_kwonlyargcount=0), tuple(defaults)


def _described(value: Any, seen: set[int]) -> Iterator[bytes]:
    """What an answer depends on of a value that a function refers to."""
    if isinstance(value, Dispatcher):
        value = value.py_func
    if isinstance(value, FunctionType):
        if id(value) not in seen:
            seen.add(id(value))
            yield from _code(value.__code__)
            for name, held in sorted(captured(value).items()):
                yield name.encode()
                yield from _described(held, seen)
    elif isinstance(value, ModuleType):
        yield f"{value.__name__} {getattr(value, '__version__', '')}".encode()
    else:
        try:
            yield pickle.dumps(value)
        except Exception:  # numba then refuses it, most likely.
            yield repr(value).encode()


def _code(code: CodeType) -> Iterator[bytes]:
    """The code without its place in a file."""
    yield code.co_code
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)).encode()
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _code(constant)
        else:
            yield f"{type(constant).__name__} {constant!r}".encode()


def fingerprint(function: FunctionType) -> str:
    """A hash of the function's code and of all that it refers to."""
    digest = hashlib.sha256()
    for part in _described(function, set()):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()
