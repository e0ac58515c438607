"""Which variables have a program's datasets and stages, so that a cell of a notebook that makes one anew is noticed.

Names that users state say which dataset or stage takes the place of another. Most state none, and mean the variable:
`w = df.single(0)`, run again, is another `w`, while a stage that was declared before has the dataset of before. So
variables of top-level code are looked at when such code declares something for the first time, and before each run.
What was made within one execution of top-level code, as a script is or one cell, takes no place: loops may use a
variable again and again.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from inspect import CO_OPTIMIZED
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from frontends.dataflow.handles import Dataset, StageHandle

Handle = Dataset | StageHandle
ITEMS_MAX = 1000
"""Lists, tuples, dicts and objects with more are not looked into."""
SCOPES_MAX = 100
"""Namespaces of top-level code that are looked at: those that were met last."""
_OUTPUTS = ("In", "Out")
"""Where notebooks keep what cells returned, beside variables that begin with an underscore."""


def running_cell() -> tuple[CodeType | None, dict[str, Any] | None]:
    """The top-level code that runs in this thread, and its variables."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        is_function = frame.f_code.co_flags & CO_OPTIMIZED
        if not is_function and frame.f_locals is frame.f_globals:  # A class's body has variables of its own.
            return frame.f_code, frame.f_globals
        frame = frame.f_back
    return None, None


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """What is in a list, a tuple, a dict or an object, by the expression that means it. No code of the user's runs."""
    kind = type(value)
    if issubclass(kind, list | tuple):
        if len(value) <= ITEMS_MAX:
            yield from ((f"{name}[{index}]", part) for index, part in enumerate(tuple(value)))
    elif issubclass(kind, dict):
        if len(value) <= ITEMS_MAX:
            yield from ((f"{name}[{key!r}]", part) for key, part in tuple(value.items()) if type(key) in (str, int))
    elif not issubclass(kind, ModuleType | type | FunctionType):
        try:
            attributes = object.__getattribute__(value, "__dict__")
        except AttributeError:
            return
        if type(attributes) is dict and len(attributes) <= ITEMS_MAX:
            yield from ((f"{name}.{attribute}", part) for attribute, part in tuple(attributes.items()))


@dataclass(slots=True, eq=False)
class _Known:
    handle: Handle
    number: int
    """Later ones have higher ones."""
    is_named: bool
    """Whether the user stated its name, or its function has one."""
    cell: CodeType | None
    """The top-level code that made it."""
    names: Mapping[str, Any] | None = None
    """The variables among which it was found first."""
    variables: set[str] = field(default_factory=set)
    """Those that had it then."""


class Variables:
    """Of what one Dataflow made."""

    def __init__(self) -> None:
        self._known: dict[int, _Known] = {}
        """By the object's id, which none else has while it is kept here."""
        self._made = 0
        self._first: CodeType | None = None
        """The first code that was seen to run."""
        self._has_several = False
        """Whether there was other code since."""
        self._looked: CodeType | None = None
        """The code for which variables were looked at last."""
        self._scopes: deque[dict[str, Any]] = deque(maxlen=SCOPES_MAX)
        """Variables of top-level code that made something: a run may be called from elsewhere, such as a thread."""

    def add(self, handle: Handle, *, is_named: bool) -> None:
        """The code that runs has made this."""
        code, names = running_cell()
        self._made += 1
        self._known[id(handle)] = _Known(handle, self._made, is_named, code)
        if names is not None and not any(names is scope for scope in self._scopes):
            self._scopes.append(names)

    def forget(self, handle: Handle) -> None:
        """It was replaced."""
        self._known.pop(id(handle), None)

    def replaced(self, *, before_run: bool = False) -> list[tuple[Handle, str]]:
        """What has lost its variable to another that was made later, by other code; and the variable."""
        code, _ = running_cell()
        self._first = self._first or code
        self._has_several = self._has_several or code is not self._first
        if not self._has_several or (code is self._looked and not before_run):
            return []
        self._looked = code
        return [lost for names in self._scopes for lost in self._look(names)]

    def _look(self, names: dict[str, Any]) -> list[tuple[Handle, str]]:
        held = self._held(names)
        by_handle: dict[int, set[str]] = {}
        for variable, known in held.items():
            by_handle.setdefault(id(known.handle), set()).add(variable)
        lost: list[tuple[Handle, str]] = []
        for number, known in list(self._known.items()):
            here = by_handle.get(number, set())
            if known.names is None and here:
                known.names, known.variables = names, here
            elif known.names is names and not here & known.variables:
                taken = [name for name in sorted(known.variables) if _takes_place(held.get(name), known)]
                if taken:
                    lost.append((known.handle, taken[0]))
                    del self._known[number]
        return lost

    def _held(self, names: dict[str, Any]) -> dict[str, _Known]:
        """What is known, by the variable that has it."""
        held: dict[str, _Known] = {}
        for name, value in tuple(names.items()):
            if name.startswith("_") or name in _OUTPUTS:
                continue
            if id(value) in self._known:
                held[name] = self._known[id(value)]
                continue
            for variable, part in _parts(name, value):
                if id(part) in self._known:
                    held[variable] = self._known[id(part)]
        return held


def _takes_place(other: _Known | None, known: _Known) -> bool:
    """Whether the one that a variable has now was made in place of the one that it had."""
    if other is None or isinstance(other.handle, Dataset) is not isinstance(known.handle, Dataset):
        return False
    is_later = other.number > known.number and other.cell is not known.cell
    return is_later and not (other.is_named and known.is_named)
