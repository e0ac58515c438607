"""The journal: a line of JSON for each round that was played, so that an interrupted run can be gone on with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchmarks.chaos.plan import GENERATOR
from benchmarks.chaos.player import Played

Key = tuple[int, int, str]
"""Seed, number and placement of a round."""


class Journal:
    """Of rounds that were played; without a file nothing is kept."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self.played: dict[Key, Played] = {key(line): line for line in _read(path)} if path is not None else {}

    def add(self, played: Played) -> None:
        """One more."""
        self.played[key(played)] = played
        if self._path is not None:
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(played) + b"\n")


def key(played: Played) -> Key:
    """What a round is known by."""
    return played.seed, played.number, played.placement


def _read(path: Path) -> Iterator[Played]:
    """Its lines, without one that was not finished, and those of plans that are drawn in another way by now."""
    if not path.exists():
        return
    text = path.read_bytes()
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        path.write_bytes(whole)
    for line in whole.splitlines():
        played = msgspec.json.decode(line, type=Played)
        if played.generator == GENERATOR:
            yield played
