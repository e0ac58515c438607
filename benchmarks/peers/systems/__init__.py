"""A file for each system. All classes there that are complete are compared; the order is that of tables."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from benchmarks.peers.peer import Peer

FIRST = ("sparrow", "sparrow_run")
"""Modules whose peers come first: ours."""


def peers() -> dict[str, Peer]:
    """All of them by name, whether they can run here or not. No system's package is imported."""
    names = sorted((found.name for found in pkgutil.iter_modules(__path__)), key=lambda name: (name not in FIRST, name))
    found: dict[str, Peer] = {}
    for name in names:
        module = importlib.import_module(f"{__name__}.{name}")
        for value in vars(module).values():
            of_module = inspect.isclass(value) and value.__module__ == module.__name__
            if of_module and issubclass(value, Peer) and not inspect.isabstract(value):
                found[value.name] = value()
    return found
