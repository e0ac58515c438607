"""Modules that a job's calls were given (`CallOptions.modules`): a worker imports them from memory.

A task finds the modules of its own job, and no other job's. What a worker has imported of a module is kept by the hash
of its files while tasks of other jobs run, so that a module is executed once in a worker however many jobs ship it, and
its state and its classes are what they were.
"""

from __future__ import annotations

import os
import sys
from collections import OrderedDict
from collections.abc import Sequence
from importlib.abc import SourceLoader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from sparrow_py.local_modules import PackedModule, installed_at

KEPT_MAX = 32
"""Modules that a worker has imported and that its present task does not have: beyond that those go that were not used
for longest."""
NONE: tuple[PackedModule, ...] = ()
Imported = dict[str, ModuleType]
"""Entries of `sys.modules`: a module or package, and what is below it."""


class ShippedModules:
    """Those of one worker."""

    def __init__(self) -> None:
        self.used = NONE
        """Those that tasks find now."""
        self._by_name: dict[str, _Loader] = {}
        self._kept: OrderedDict[str, Imported] = OrderedDict()
        """What was imported of modules that are not found now, by their hash."""
        self._hidden: dict[str, Imported] = {}
        """What was imported of the worker's own modules in whose places shipped ones are, by name."""

    def use(self, modules: tuple[PackedModule, ...]) -> None:
        """From now on tasks find these, and no others. `ImportError` if one would shadow an installed module; then they
        find none."""
        if _said_of(modules) == _said_of(self.used):
            self.used = modules
            return
        for one in self.used:
            self._leave(one)
        self.used = NONE
        for one in modules:
            if not one.replaces_installed and (place := installed_at(one.name)):
                raise ImportError(
                    f"the job ships a module {one.name!r}, and the worker has one that is installed ({place}): rename "
                    "yours, leave it out, or ship it as LocalModule(…, replaces_installed=True)",
                    name=one.name,
                )
        if modules and self not in sys.meta_path:
            sys.meta_path.insert(0, self)
        for one in modules:
            self._enter(one)
        self.used = modules
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def _enter(self, module: PackedModule) -> None:
        self._hidden[module.name] = _taken_out(module.name)
        self._by_name[module.name] = _Loader(module)
        sys.modules.update(self._kept.pop(module.hash, {}))

    def _leave(self, module: PackedModule) -> None:
        del self._by_name[module.name]
        self._kept[module.hash] = _taken_out(module.name)
        sys.modules.update(self._hidden.pop(module.name))

    def find_spec(self, name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` has it."""
        loader = self._by_name.get(name.partition(".")[0])
        return None if loader is None else loader.spec(name)


def _said_of(modules: tuple[PackedModule, ...]) -> list[tuple[str, bool]]:
    return [(one.hash, one.replaces_installed) for one in modules]


def _taken_out(name: str) -> Imported:
    """What `sys.modules` had of the module or package, and has no more."""
    found = [one for one in sys.modules if one == name or one.startswith(f"{name}.")]
    return {one: sys.modules.pop(one) for one in found}


class _Loader(SourceLoader):
    """Loads a shipped module, and what is below it. Its files have paths that no file has."""

    def __init__(self, module: PackedModule) -> None:
        self._files = module.files
        self._root = f"<shipped {module.hash[:8]}>"

    def spec(self, name: str) -> ModuleSpec | None:
        """Of the module of this full name; None if there is none."""
        place = name.replace(".", "/")
        for below, is_package in ((f"{place}/__init__.py", True), (f"{place}.py", False)):
            if below in self._files:
                spec = ModuleSpec(name, self, origin=f"{self._root}/{below}", is_package=is_package)
                spec.has_location = True
                if is_package:
                    spec.submodule_search_locations = [f"{self._root}/{place}"]
                return spec
        return None

    def get_filename(self, fullname: str) -> str:
        """The path of the module of this name; `ImportError` if there is none."""
        spec = self.spec(fullname)
        if spec is None or spec.origin is None:
            raise ImportError(f"there is no module {fullname}", name=fullname)
        return spec.origin

    def get_data(self, path: str | bytes) -> bytes:
        """What is in the file of this path, for `pkgutil.get_data` as well; `OSError` if there is none."""
        below = os.fsdecode(path).removeprefix(f"{self._root}/")
        try:
            return self._files[below]
        except KeyError:
            raise FileNotFoundError(f"no such file was shipped: {below}") from None
