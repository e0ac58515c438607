"""The stages of one user that wait for slots: highest priority first, then in order of arrival."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.kinds import Kind

Line = OrderedDict[int, "StageState"]
"""Stages by their numbers, first come first."""


class UserQueue:
    """Stages of one kind and priority stand in one line: where the first finds no slot, those behind it need not be
    asked. A stage whose tasks want nodes of their own stands alone."""

    __slots__ = ("lines",)

    def __init__(self) -> None:
        self.lines: dict[tuple[Kind, int] | StageState, Line] = {}

    def __bool__(self) -> bool:
        return bool(self.lines)

    def add(self, stage: StageState, number: int) -> None:
        """The stage waits, which came with this number."""
        key = _line_of(stage)
        line = self.lines.get(key)
        if line is None:
            line = self.lines[key] = OrderedDict()
        if number in line:
            return
        last, first = (next(reversed(line)), next(iter(line))) if line else (-1, -1)
        line[number] = stage
        if number < first:
            line.move_to_end(number, last=False)
        elif number < last:  # It was placed before, comes back, and is neither the first nor the last.
            self.lines[key] = OrderedDict(sorted(line.items()))

    def remove(self, stage: StageState, number: int) -> None:
        """The stage waits no more, if it did."""
        key = _line_of(stage)
        line = self.lines.get(key)
        if line is not None and line.pop(number, None) is not None and not line:
            del self.lines[key]

    def in_order(self) -> Iterator[Line]:
        """The highest priority first, and of one priority the line with the oldest first stage."""
        if len(self.lines) < 2:
            yield from list(self.lines.values())
        else:
            yield from sorted(self.lines.values(), key=_place)

    def stages(self) -> Iterator[StageState]:
        """All of them."""
        for line in self.lines.values():
            yield from line.values()


def _line_of(stage: StageState) -> tuple[Kind, int] | StageState:
    return stage if stage.spec.local else (stage.kind, stage.priority)


def _place(line: Line) -> tuple[int, int]:
    number, stage = next(iter(line.items()))
    return -stage.priority, number
