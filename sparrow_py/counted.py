"""Numbers of things in messages for people: 1 task waits, 2,000 tasks wait."""

from __future__ import annotations

_SINGULAR = {"are": "is", "have": "has", "do": "does"}


def counted(count: int, noun: str, verb: str = "") -> str:
    """`1 scheduler`, `2,000 schedulers`; with the plural of a verb `1 task waits`, `2 tasks wait`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}" + (f" {agreeing(count, verb)}" if verb else "")


def agreeing(count: int, verb: str) -> str:
    """The verb, of which the plural is given, for so many: `wait` and `are` of 2 are `waits` and `is` of 1."""
    return verb if count != 1 else _SINGULAR.get(verb, f"{verb}s")
