"""What happens to a program beside its tasks, for a timeline: seen in what its controller says and hears."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from frontends.dataflow.blocks import Slot
from frontends.dataflow.control_messages import (
    Dismiss,
    Enter,
    GivenUp,
    Happening,
    Leaving,
    Over,
)
from frontends.dataflow.controller_effects import Complete, Effect, Send, Tell
from frontends.dataflow.messages import Arrived, Move

KINDS = ("begin", "rollback", "join", "leave", "lost", "yield", "move", "snapshot", "over", "failed")
TEXT_CHARS_MAX = 300


class Witness:
    """Of one controller. `now_ns`: nanoseconds since 1970."""

    def __init__(self, now_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._happenings: list[Happening] = []
        self._epoch = -1
        self._rollbacks = 0
        self._members: set[int] = set()
        self._moving: dict[Slot, tuple[int, int, int, int]] = {}
        """Version, since when, from where, to where."""

    def take(self) -> list[Happening]:
        happenings, self._happenings = self._happenings, []
        return happenings

    def effect(self, effect: Effect, rollbacks: int) -> None:
        """The core wants something done. `rollbacks`: how many it has counted."""
        match effect:
            case Send(worker, Enter() as enter):
                self._enter(worker, enter, rollbacks)
            case Send(worker, Move() as move):
                slot = (move.group, move.index)
                self._moving[slot] = (move.version, self._now_ns(), move.source, worker)
            case Send(worker, Dismiss(why)):
                self._members.discard(worker)
                self._add("leave", worker, text=why)
            case Complete(key, _):
                self._add("snapshot", text=f"of run {key[0]}" + (f", block {key[1]}" if key[1] < 1 << 62 else ""))
            case Tell(Over() as over):
                self._add("over", text=f"run {over.run}")
            case Tell(GivenUp() as given_up):
                self._add("failed", text=f"run {given_up.run}: {given_up.why or 'an exception'}")

    def message(self, peer: int, message: Any) -> None:
        """The controller has heard something."""
        match message:
            case Arrived():
                slot = (message.group, message.index)
                if self._moving.get(slot, (-1,))[0] == message.version:
                    self._moved(slot, "")
            case Leaving():
                self._add("yield", peer, text=f"its slot is another user's turn within {message.within_s:g} s")

    def lost(self, worker: int, why: str) -> None:
        """A worker's link has ended."""
        self._members.discard(worker)
        self._add("lost", worker, text=why)

    def _enter(self, worker: int, enter: Enter, rollbacks: int) -> None:
        if enter.epoch != self._epoch:
            self._epoch = enter.epoch
            for slot in list(self._moving):
                self._moved(slot, "it did not arrive")
            if rollbacks > self._rollbacks:
                self._add("rollback", text=f"to block {enter.until} of run {enter.shipped.run}")
            else:
                self._add("begin", text=f"run {enter.shipped.run}, workers: {len(enter.members)}")
            self._rollbacks = rollbacks
        if worker not in self._members:
            self._members.add(worker)
            self._add("join", worker, text=f"from block {enter.until} on")

    def _moved(self, slot: Slot, text: str) -> None:
        _, since_ns, source, worker = self._moving.pop(slot)
        self._happenings.append(Happening("move", since_ns, self._now_ns(), worker, source, *slot, text))

    def _add(self, kind: str, worker: int = -1, text: str = "") -> None:
        now_ns = self._now_ns()
        self._happenings.append(Happening(kind, now_ns, now_ns, worker, text=text[:TEXT_CHARS_MAX]))
