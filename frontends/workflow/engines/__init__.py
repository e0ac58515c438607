"""The engines: a module each, found by name. `base.py` says what one has to have."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from types import MappingProxyType

from frontends.workflow.engines.base import Engine
from frontends.workflow.errors import UnknownEngine


@functools.cache
def engines() -> MappingProxyType[str, Engine]:
    """All engines, installed or not, by name, in the order of their names."""
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(__path__):
        one = getattr(importlib.import_module(f"{__name__}.{module.name}"), "ENGINE", None)
        if isinstance(one, Engine):
            if one.name != module.name:
                raise AssertionError(f"the engine {one.name} is in the module {module.name}")
            found[one.name] = one
    return MappingProxyType(dict(sorted(found.items())))


def engine(name: str) -> Engine:
    """The engine of this name; `UnknownEngine` offers the nearest."""
    if name not in engines():
        raise UnknownEngine(name, engines())
    return engines()[name]


def installed() -> tuple[Engine, ...]:
    """The engines whose packages are installed."""
    return tuple(one for one in engines().values() if one.version() is not None)
