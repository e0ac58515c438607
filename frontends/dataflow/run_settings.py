"""What `sparrow dataflow run` says about the Dataflows that the file which it runs will make.

The command puts its settings in force while the file runs, and nothing else does. A Dataflow takes from them what its
maker has not stated. What both state has to be the same: neither is quietly left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from frontends.dataflow.errors import SettingsConflict

if TYPE_CHECKING:
    from frontends.dataflow.timeline import Timeline

PLANES = ("inline", "local", "templates", "central")
WORKERS_MAX = 10_000
PARTITIONS_MAX = 100_000
Value = TypeVar("Value")


@dataclass(slots=True, eq=False)
class RunSettings:
    """Settings have the names of parameters of `Dataflow`; None: the command says nothing."""

    plane: str | None = None
    workers: int | None = None
    partitions: int | None = None
    snapshot_dir: str | None = None
    progress: bool | None = None
    cluster: Callable[[int], Any] | None = None
    """Makes what a Dataflow with so many workers takes as its `cluster`, if its maker states none."""
    cluster_stated: str = ""
    """How the user named the cluster, if that may not be passed over."""
    timeline: Timeline | None = None
    dataflows: int = 0
    """How many have been made."""

    def chosen(self, field: str, stated: Value | None, default: Value) -> Value:
        """What a Dataflow is to have. `SettingsConflict` if its maker and the command state different values."""
        mine: Value | None = getattr(self, field)
        if stated is None:
            return default if mine is None else mine
        if mine is not None and mine != stated:
            raise SettingsConflict(field, stated, f"--{field.replace('_', '-')}", mine)
        return stated

    def cluster_for(self, stated: Any, workers: int) -> Any:
        """The cluster of a Dataflow that has workers."""
        if stated is None:
            return None if self.cluster is None else self.cluster(workers)
        if self.cluster_stated:
            raise SettingsConflict("cluster", type(stated).__name__, "--scheduler", self.cluster_stated)
        return stated


_in_force = [RunSettings()]
"""The last ones count. The first say nothing."""


def in_force() -> RunSettings:
    """Those of the command; where none is running, settings that say nothing."""
    return _in_force[-1]


@contextlib.contextmanager
def put_in_force(settings: RunSettings) -> Iterator[None]:
    """Dataflows that are made meanwhile, in any thread of this process, take these."""
    _in_force.append(settings)
    try:
        yield
    finally:
        _in_force.remove(settings)
