"""What a figure has measured: rows, and how they compare with what was aimed at."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

Row = dict[str, Any]
Value = TypeVar("Value")


class Scale(StrEnum):
    """How large everything is: `quick` takes a minute at most on quiet cores, `full` half an hour; `tiny` is for
    tests."""

    TINY = "tiny"
    QUICK = "quick"
    FULL = "full"

    def of(self, values: Mapping[Scale, Value]) -> Value:
        """What a figure has for this scale."""
        return values[self]


SOLVE_MAX_S = {Scale.TINY: 5.0, Scale.QUICK: 10.0, Scale.FULL: 120.0}
"""CPU time after which a solve is stopped and marked."""
BEYOND, NOT_TRIED = "beyond", "not tried"
"""In place of a time: stopped at the limit; not begun, as the next smaller one was."""

MET, MISSED, NOT_AT_THIS_SCALE = "met", "missed", "not at this scale"


@dataclass(frozen=True, slots=True)
class Target:
    """What was aimed at, and what came out. met: None if this scale cannot tell."""

    text: str
    ours: str
    met: bool | None

    @property
    def verdict(self) -> str:
        """In words."""
        return NOT_AT_THIS_SCALE if self.met is None else MET if self.met else MISSED


def at_most(text: str, value: float | None, limit: float, unit: str = "", *, tells: bool = True) -> Target:
    """A value that should not be above a limit; None: there is no value, so it is missed."""
    if value is None:
        return Target(text, "none", False if tells else None)
    return Target(text, f"{value:.4g}{unit}", value <= limit if tells else None)


def at_least(text: str, value: float | None, limit: float, unit: str = "", *, tells: bool = True) -> Target:
    """A value that should not be below a limit."""
    if value is None:
        return Target(text, "none", False if tells else None)
    return Target(text, f"{value:.4g}{unit}", value >= limit if tells else None)


@dataclass(frozen=True, slots=True)
class Plot:
    """Which columns a drawing shows."""

    x: str
    ys: Sequence[str]
    x_label: str
    y_label: str
    log_x: bool = False
    log_y: bool = False
    by: str = ""
    """A column: rows of each of its values have lines of their own."""


@dataclass(slots=True)
class Outcome:
    """Of one figure."""

    rows: list[Row]
    targets: list[Target] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    plot: Plot | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """One that can be measured. wall: whether wall times count, which need quiet cores."""

    name: str
    title: str
    paper: str
    """What the paper says."""
    measure: Callable[[Scale], Outcome]
    wall: bool = False
    live: bool = False
    """Whether it starts a cluster."""
