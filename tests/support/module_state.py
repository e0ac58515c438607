"""What the modules of a package hold between calls: a description of it, to be compared with a later one.

It is everything that is reached from the modules' names: containers, instances, attributes of classes, and of functions
their defaults, the variables that they enclose, and their attributes. What is reached of other packages is described
only as far as its values are containers or instances that a name here holds.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import types
from collections.abc import Collection, Mapping, Set
from typing import Any

PLAIN = (type(None), bool, int, float, str, bytes, type(...), range, types.ModuleType)
FUNCTIONS = (types.FunctionType, types.MethodType, staticmethod, classmethod, property)
NOT_STATE = {"__dict__", "__weakref__", "__doc__", "__module__", "__builtins__", "__cached__", "__loader__", "__spec__"}


def described(package: str, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """Modules of the package, but for some folders: for each thing that they hold, by the path to it, what it is."""
    root = importlib.import_module(package)
    names = [package, *(found.name for found in pkgutil.walk_packages(root.__path__, f"{package}."))]
    description = _Description(package)
    for name in names:
        if not name.endswith("__main__") and not name.startswith(without):
            module = importlib.import_module(name)
            for attribute, value in list(vars(module).items()):
                if attribute not in NOT_STATE:
                    description.add(f"{name}.{attribute}", value)
    return description.found


class _Description:
    def __init__(self, package: str) -> None:
        self.found: dict[str, str] = {}
        self._package = package
        self._seen: dict[int, Any] = {}

    def add(self, path: str, value: Any) -> None:
        """The value, and what it holds; what was met already is named by its type alone."""
        if isinstance(value, PLAIN):
            self.found[path] = repr(value)
            return
        self.found[path] = f"{type(value).__name__}"
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # Kept, so that no other object has its id meanwhile.
        if isinstance(value, Mapping):
            self.found[path] += f" of {len(value)}"
            for key, held in list(value.items()):
                self.add(f"{path}[{key!r}]", held)
        elif isinstance(value, Set):
            self.found[path] += f" of {sorted(map(repr, value))}"
        elif isinstance(value, type):
            self._class(path, value)
        elif isinstance(value, FUNCTIONS):
            self._function(path, value)
        elif hasattr(value, "cache_info"):
            self.found[path] += f" {value.cache_info().currsize} kept"
        elif isinstance(value, functools.partial):
            self._all(path, {"func": value.func, "args": value.args, "keywords": value.keywords})
        elif isinstance(value, Collection) and not isinstance(value, types.GenericAlias):
            self.found[path] += f" of {len(value)}"
            self._all(path, dict(enumerate(value)))
        else:
            self._instance(path, value)

    def _all(self, path: str, parts: Mapping[Any, Any]) -> None:
        for name, part in parts.items():
            self.add(f"{path}.{name}", part)

    def _class(self, path: str, value: type) -> None:
        if value.__module__.partition(".")[0] == self._package:
            self._all(path, {name: held for name, held in vars(value).items() if name not in NOT_STATE})

    def _function(self, path: str, value: Any) -> None:
        if isinstance(value, property):
            self._all(path, {"get": value.fget, "set": value.fset})
            return
        inner = getattr(value, "__func__", value)
        if str(getattr(inner, "__module__", None)).partition(".")[0] != self._package:
            return
        cells = dict(enumerate(cell.cell_contents for cell in inner.__closure__ or () if cell != types.CellType()))
        self._all(path, {"defaults": inner.__defaults__, "kwdefaults": inner.__kwdefaults__})
        self._all(f"{path}.encloses", cells)
        self._all(path, vars(inner))

    def _instance(self, path: str, value: Any) -> None:
        slots = [name for kind in type(value).__mro__ for name in _as_names(kind.__dict__.get("__slots__", ()))]
        held = {name: getattr(value, name) for name in slots if name not in NOT_STATE and hasattr(value, name)}
        held |= getattr(value, "__dict__", {})
        if not held:
            self.found[path] += f" {value!r}"  # A counter of itertools, for instance, says there how far it is.
        self._all(path, held)


def _as_names(slots: Any) -> tuple[str, ...]:
    return (slots,) if isinstance(slots, str) else tuple(slots)
