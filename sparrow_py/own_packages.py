"""Where our packages are, for processes in which a program of the user's may have a module of the same name.

All of them lie beside this one, in a wheel as in a checkout. In a process of ours `take_names` has them found there and
nowhere else. A worker gives the names back (`give_names_back`) before it runs a task: a task that imports `scheduler`
means what its client finds by that name. A process of the user's keeps what it finds; `require_here` says what is in
the way of ours.
"""

# ruff: noqa: PTH100, PTH118, PTH120 - pathlib takes time to import, which every worker's fork server would spend
from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from sparrow_py.errors import ClusterError

HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The directory of our packages."""
LENT = ("scheduler", "node_monitor", "frontends", "loadgen", "simulator")
"""Names that we have while our own code is imported, and that tasks may mean something else by."""
PACKAGES = ("sparrow_py", *LENT)


class OwnPackages:
    """Finds our packages, and leaves all others to the finders after it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """As `importlib.abc.MetaPathFinder` has it."""
        return PathFinder.find_spec(name, [HOME]) if name in PACKAGES else None


def take_names() -> None:
    """From now on this process imports our packages from where this one is."""
    if OwnPackages not in sys.meta_path:
        sys.meta_path.insert(0, OwnPackages)


def give_names_back() -> None:
    """From now on the path says what our packages' names mean, but for `sparrow_py`.

    Our modules that are loaded work on, if they import no more of these packages.
    """
    if OwnPackages in sys.meta_path:
        sys.meta_path.remove(OwnPackages)
    for module in list(sys.modules):
        if module.partition(".")[0] in LENT:
            del sys.modules[module]


def require_here(who: str, packages: Sequence[str], instead: str) -> None:
    """`ClusterError` unless these names mean our packages in this process, which is the user's.

    It says who needs them, what is in their place, and what to do `instead`.
    """
    for package in packages:
        if place := _intruder(package):
            raise ClusterError(
                f"{who} needs sparrow-py's package {package!r}, and in this process that name means {place}: "
                f"rename that, or {instead}"
            )


def _intruder(package: str) -> str:
    """What this process has, or would find, in place of our package; empty if nothing is in its way."""
    if package in sys.modules:
        module = sys.modules[package]
        place = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), "")
    else:
        spec = importlib.util.find_spec(package)
        if spec is None:
            return ""
        place = spec.origin or next(iter(spec.submodule_search_locations or ()), "")
    ours = os.path.realpath(os.path.join(HOME, package, "__init__.py"))
    if place and os.path.realpath(place) == ours:
        return ""
    return place or f"a module that was made without a file ({package!r} in sys.modules)"
