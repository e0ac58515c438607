"""Reads the schedulers' audit logs (docs/audit-log.md): launches of tasks, no-ops and cancelled reservations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from sparrow_py.errors import ClusterError


@dataclass(slots=True)
class Launch:
    """The start of a task whose outcome counted. Times are seconds since the epoch, None where unknown."""

    scheduler: str
    launched_s: float
    asked_s: float | None


@dataclass
class Audit:
    """What audit logs say.

    arrived_s: by job, when it arrived at its last scheduler. launches: by (job, task), the last. events: (at_s, kind,
    count, user), of the kinds "noop" and "cancelled". dropped: how many lines are missing in the logs.
    """

    arrived_s: dict[str, float] = field(default_factory=dict)
    launches: dict[tuple[str, int], Launch] = field(default_factory=dict)
    events: list[tuple[float, str, int, str]] = field(default_factory=list)
    dropped: int = 0


def read_audit_logs(paths: Mapping[str, Path]) -> Audit:
    """Read the log of each scheduler, by its address; `ClusterError` if one cannot be read."""
    audit = Audit()
    for scheduler, path in paths.items():
        _Reader(scheduler, audit).read(_lines(path))
    audit.events.sort()
    return audit


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise ClusterError(f"{path}:{number}:{error.colno}: no line of an audit log: {error.msg}") from None
    except OSError as error:
        raise ClusterError(f"{path}: the scheduler's audit log cannot be read: {error.strerror}") from None


class _Reader:
    """Reads one scheduler's log, line by line, and remembers what later lines need of earlier ones."""

    def __init__(self, scheduler: str, audit: Audit) -> None:
        self._scheduler = scheduler
        self._audit = audit
        self._users: dict[int, str] = {}
        """By ticket."""
        self._queued: dict[tuple[str, int], int] = {}
        """Reservations that are queued, by node and ticket."""
        self._asks: dict[tuple[str, int], tuple[float, int]] = {}
        """By node and ask: when the ask came, and its ticket."""
        self._on: dict[str, Callable[[dict[str, Any]], None]] = {
            "job_arrived": self._job_arrived,
            "reserved": self._reserved,
            "reservations_refused": self._unqueued,
            "reservations_cancelled": self._cancelled,
            "get_task": self._get_task,
            "launched": self._launched,
            "pushed": self._launched,
            "placed": self._launched,
            "no_op": self._no_op,
            "node_down": self._node_down,
            "dropped": self._dropped,
        }

    def read(self, lines: Iterator[dict[str, Any]]) -> None:
        for line in lines:
            on = self._on.get(line["event"])
            if on is not None:
                on(line)

    def _job_arrived(self, line: dict[str, Any]) -> None:
        at_s = line["at_s"]
        self._audit.arrived_s[line["job"]] = max(at_s, self._audit.arrived_s.get(line["job"], at_s))

    def _reserved(self, line: dict[str, Any]) -> None:
        self._users[line["ticket"]] = line["user"]
        key = line["node"], line["ticket"]
        self._queued[key] = self._queued.get(key, 0) + line["count"]

    def _unqueued(self, line: dict[str, Any]) -> None:
        key = line["node"], line["ticket"]
        left = self._queued.get(key, 0) - line["count"]
        if left > 0:
            self._queued[key] = left
        else:
            self._queued.pop(key, None)

    def _cancelled(self, line: dict[str, Any]) -> None:
        count = self._queued.pop((line["node"], line["ticket"]), 0)
        if count:
            self._event(line["at_s"], "cancelled", count, line["ticket"])

    def _get_task(self, line: dict[str, Any]) -> None:
        self._asks[line["node"], line["ask"]] = line["at_s"], line["ticket"]
        self._unqueued(line)

    def _launched(self, line: dict[str, Any]) -> None:
        asked = self._asks.get((line["node"], line.get("ask", 0)))  # None for what was pushed.
        key = line["job"], line["task"]
        before = self._audit.launches.get(key)
        if before is None or before.launched_s <= line["at_s"]:
            launch = Launch(self._scheduler, line["at_s"], None if asked is None else asked[0])
            self._audit.launches[key] = launch

    def _no_op(self, line: dict[str, Any]) -> None:
        asked = self._asks.get((line["node"], line["ask"]))
        self._event(line["at_s"], "noop", line["count"], -1 if asked is None else asked[1])

    def _event(self, at_s: float, kind: str, count: int, ticket: int) -> None:
        self._audit.events.append((at_s, kind, count, self._users.get(ticket, "")))

    def _node_down(self, line: dict[str, Any]) -> None:
        node = line["node"]
        for of_node in (self._queued, self._asks):
            for key in [key for key in of_node if key[0] == node]:
                del of_node[key]

    def _dropped(self, line: dict[str, Any]) -> None:
        self._audit.dropped += line["lines"]
