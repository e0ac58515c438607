"""Functions that a worker keeps from job to job, so as not to unpickle them for each.

Only those that were pickled by their names alone: what such a function remembers is in its module, which the worker
keeps anyway. Any other (a closure, a lambda, what `__main__` defines) carries values of its job's, and is unpickled for
each job. A function is kept for the user whose task it was. It is used again while its module has that very object
under its name: so whoever reloads the module, or replaces the function there, finds what unpickling would find.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType
from typing import Any, Generic, Protocol, TypeVar

FUNCTIONS_MAX = 64
"""Functions that a worker keeps; beyond that the one that came first goes."""
COMMON_BYTES_MAX = 1024
"""Common bytes that a kept function may have: two names are shorter."""
_PICKLED_BY_NAME = (FunctionType, BuiltinFunctionType, type)
"""Types whose objects pickle itself encodes as a module and a name, without asking the object."""


def is_its_modules(function: Callable[..., Any]) -> bool:
    """Whether the function's module has this object under the function's name."""
    try:
        module = sys.modules.get(function.__module__)
        return module is not None and vars(module).get(function.__qualname__) is function
    except (AttributeError, TypeError):  # It has no name, or something else under `__module__`.
        return False


def pickled_by_name(function: Callable[..., Any], pickled: bytes) -> bool:
    """Whether these bytes, which gave the function, are its module and its name and nothing else."""
    if type(function) not in _PICKLED_BY_NAME or not is_its_modules(function):
        return False
    try:
        return pickle.dumps(function, 5) == pickled
    except Exception:  # A builtin function that has no way back to its name.
        return False


class Loaded(Protocol):
    """A job's function that has been unpickled, with what else its common bytes say."""

    def stands(self) -> bool:
        """Whether unpickling it again would give the same object."""


F = TypeVar("F", bound=Loaded)


class KeptFunctions(Generic[F]):
    """By user and common bytes."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, bytes], F] = {}

    def get(self, user: str, common: bytes) -> F | None:
        """The function that another job of the user had, if it is what these bytes mean today."""
        function = self._functions.get((user, common))
        if function is None or function.stands():
            return function
        del self._functions[user, common]
        return None

    def keep(self, user: str, common: bytes, function: F) -> None:
        """Keep a function that `stands`."""
        if len(common) > COMMON_BYTES_MAX:
            return
        if len(self._functions) >= FUNCTIONS_MAX:
            del self._functions[next(iter(self._functions))]
        self._functions[user, common] = function

    def __len__(self) -> int:
        return len(self._functions)
