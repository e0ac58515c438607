"""The figures by name: what measures each, what its paper says, what was aimed at.

`quick` has the arguments with which all figures of a command take less than a minute together on two cores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

from benchmarks.flow.outcome import Row, Target


def _no_targets(rows: Sequence[Row]) -> list[Target]:
    return []


@dataclass(frozen=True)
class Figure:
    measure: Callable[..., list[Row]]
    title: str
    paper: str = ""
    """What the paper says."""
    quick: dict[str, Any] = field(default_factory=dict)
    targets: Callable[[Sequence[Row]], list[Target]] = _no_targets
    notes: tuple[str, ...] = ()
    is_timed: bool = False
    """Whether rows have wall or virtual times, or differences of CPU times, which need quiet cores."""

    def takes(self, name: str) -> bool:
        """Whether an argument of this name changes what is measured."""
        return name in signature(self.measure).parameters
