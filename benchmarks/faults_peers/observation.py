"""What a user saw of a fault: read from what the user's program wrote and from the log of the tasks' starts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

ERROR_CHARS_MAX = 2000
ERRORS_SHOWN_MAX = 2
NAMES = re.compile(r"[\w-]*\d[\w-]*")
"""Words with digits: names and numbers."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass
class Observation:
    """Times are in seconds after the fault; for a fault that a task brings along, after submission."""

    tasks: int
    results: int
    errors: dict[str, int]
    """Exceptions in place of results, by the first text of each kind, with their number."""
    raised: str | None
    """What the call that waits for results raised, which ended the wait."""
    ending: str
    """`ended`: every task's outcome is known. `raised`. `waits`: not all were known when time was up. `died`: the
    user's program ended without a word."""
    first_error_s: float | None
    last_s: float
    """When the user learned something for the last time; if it still waits, when time was up."""
    starts: int
    started_again: int
    """Tasks that were started more than once."""
    last_words: str = ""
    """Of the user's program on standard error, if it died."""

    def sentence(self) -> str:
        """For a table."""
        parts = [f"{self.results} of {self.tasks} results"]
        parts += [f"{count} × {shortened(text)}" for text, count in self.most_frequent()]
        if self.raised is not None:
            parts.append(f"the wait raised {shortened(self.raised)}")
        if self.last_words:
            parts.append(f"last words of the user's program: {shortened(self.last_words.splitlines()[-1])}")
        return "; ".join([*parts, f"{self._end()}; started again: {self.started_again} tasks, {self.starts} starts"])

    def most_frequent(self) -> Sequence[tuple[str, int]]:
        """Errors, the most frequent first."""
        return Counter(self.errors).most_common(ERRORS_SHOWN_MAX)

    def _end(self) -> str:
        if self.ending == "waits":
            return f"still waits after {self.last_s:.0f} s"
        told = {"ended": "all known", "raised": "raised", "died": "the user's program ended"}[self.ending]
        first = "" if self.first_error_s is None else f", first error {self.first_error_s:.1f} s"
        return f"{told} after {self.last_s:.1f} s{first}"


def observe(
    tasks: int,
    events: Sequence[dict[str, Any]],
    starts: Iterable[str],
    fault_s: float,
    until_s: float,
    last_words: str | None,
) -> Observation:
    """`last_words` is None if the user's program still runs."""
    outcomes = [event for event in events if event["event"] == "outcome"]
    failed = [event for event in outcomes if event["error"] is not None]
    raised = next((event for event in events if event["event"] == "raised"), None)
    ended = any(event["event"] == "ended" for event in events)
    ending = "ended" if ended else "raised" if raised else "waits" if last_words is None else "died"
    runs = Counter(line.split()[0] for line in starts)
    first_error = min((event["at_s"] for event in [*failed, *([raised] if raised else [])]), default=None)
    return Observation(
        tasks=tasks,
        results=len(outcomes) - len(failed),
        errors=_counted(event["error"] for event in failed),
        raised=None if raised is None else shortened(raised["error"], ERROR_CHARS_MAX),
        ending=ending,
        first_error_s=None if first_error is None else first_error - fault_s,
        last_s=(until_s if ending in ("waits", "died") else events[-1]["at_s"]) - fault_s,
        starts=runs.total(),
        started_again=sum(count > 1 for count in runs.values()),
        last_words=(last_words or "").strip() if ending == "died" else "",
    )


def shortened(text: str, chars_max: int = 120) -> str:
    """On one line, without colours, and cut."""
    line = " ".join(COLOURS.sub("", text).split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"


def _counted(errors: Iterable[str]) -> dict[str, int]:
    """How many there are of each kind: texts that differ in names and numbers alone are one, shown by its first."""
    first: dict[str, str] = {}
    kinds = Counter(first.setdefault(NAMES.sub("", error), error) for error in errors)
    return {shortened(error, ERROR_CHARS_MAX): count for error, count in kinds.items()}
