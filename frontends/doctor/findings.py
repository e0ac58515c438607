"""What the doctor finds: each a line."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from sparrow_py.logs.printable import printable

LEVEL_WIDTH = 5


class Level(StrEnum):
    """How bad it is."""

    OK = "ok"
    NOTE = "note"
    """It may be meant."""
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was found of a subject, and what to do about it (empty if nothing is to be done)."""

    level: Level
    subject: str
    said: str
    advice: str = ""

    def line(self) -> str:
        """As it is printed: on one line, whatever a peer has said."""
        advice = f"; {self.advice}" if self.advice else ""
        return printable(f"{self.level.upper():<{LEVEL_WIDTH}}  {self.subject}: {self.said}{advice}")


def ok(subject: str, said: str) -> Finding:
    """All is well."""
    return Finding(Level.OK, subject, said)


def note(subject: str, said: str, advice: str = "") -> Finding:
    """It may be meant."""
    return Finding(Level.NOTE, subject, said, advice)


def wrong(subject: str, said: str, advice: str) -> Finding:
    """Somebody has to do this."""
    return Finding(Level.WRONG, subject, said, advice)
