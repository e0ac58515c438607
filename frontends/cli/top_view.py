"""What `sparrow top` shows of schedulers' states, as lines of text and tables. Pure.

A state is what `/v1/state` answers; nodes are what `/v1/nodes` lists. Everything fits 80 columns: names are cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from frontends.cli.tables import age
from sparrow_py.counted import counted
from sparrow_py.logs.printable import printable

Row = dict[str, Any]
JOBS, USERS, NODES = "jobs", "users", "nodes"
VIEWS = (JOBS, USERS, NODES)
KEYS = "q: end  j u n: jobs, users, nodes  s: sort by the next column  r: reverse"


@dataclass(frozen=True)
class Column:
    """A column: its head, the row's field, how a cell is written, and how wide a text may be (0: a number)."""

    head: str
    key: str
    text: Callable[[Any], str] = str
    width: int = 0


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


COLUMNS: dict[str, tuple[Column, ...]] = {
    JOBS: (
        Column("JOB", "label", width=20),
        Column("USER", "user", width=8),
        Column("STATE", "state", width=7),
        Column("TASKS", "tasks", _number),
        Column("WAIT", "unplaced", _number),
        Column("RUN", "running", _number),
        Column("DONE", "finished", _number),
        Column("BAD", "bad", _number),
        Column("CANC", "cancelled", _number),
        Column("TIME", "lasted_s", age),
    ),
    USERS: (
        Column("USER", "user", width=30),
        Column("SLOTS", "busy", _number),
        Column("DUE", "due", _number),
        Column("WAITING", "waiting", _number),
        Column("WEIGHT", "weight", lambda weight: "" if weight is None else f"{weight:g}"),
    ),
    NODES: (
        Column("NODE", "id", width=32),
        Column("STATE", "state", width=9),
        Column("SLOTS", "slots", _number),
        Column("BUSY", "busy", _number),
        Column("RESERVATIONS", "reservations", _number),
    ),
}
DEFAULT_SORT = {JOBS: "", USERS: "busy", NODES: "busy"}
"""Jobs come as schedulers list them: those that run first, the latest first."""


@dataclass(frozen=True)
class Choice:
    """Which view is shown, and in which order."""

    view: str = JOBS
    sort: dict[str, str] = field(default_factory=lambda: dict(DEFAULT_SORT))
    reverse: bool = False

    def pressed(self, key: str) -> Choice:
        """The choice after this key."""
        for view in VIEWS:
            if key == view[0]:
                return replace(self, view=view, reverse=False)
        if key == "r":
            return replace(self, reverse=not self.reverse)
        if key == "s":
            keys = ["", *(column.key for column in COLUMNS[self.view])]
            following = keys[(keys.index(self.sort[self.view]) + 1) % len(keys)]
            return replace(self, sort={**self.sort, self.view: following}, reverse=False)
        return self


def sort_keys(view: str) -> dict[str, str]:
    """The columns of a view by their heads in small letters, as `--sort` names them."""
    return {column.head.lower(): column.key for column in COLUMNS[view]}


def screen(states: Sequence[Row], nodes: Sequence[Row], choice: Choice, rows_max: int | None = None) -> Group:
    """All of it. rows_max: rows of the table, as many as there is room for; None: all."""
    rows = _ordered(_rows(states, nodes, choice.view), choice)
    shown = rows if rows_max is None else rows[: max(0, rows_max)]
    parts: list[Any] = [Text(line, no_wrap=True, overflow="ellipsis") for line in summary(states)]
    parts.append(_table(shown, choice))
    if len(shown) < len(rows):
        parts.append(Text(f"{len(rows) - len(shown):,} more", style="dim"))
    return Group(*parts)


def summary(states: Sequence[Row]) -> list[str]:
    """The lines above the table."""
    rates = {name: sum(state["rates"].get(name, 0.0) for state in states) for name in ("launched", "noops", "retries")}
    asked = rates["launched"] + rates["noops"]
    # A node is linked to each of the schedulers, as a rule: the most that one has are the cluster's.
    nodes, slots = (max(state[name] for state in states) for name in ("nodes", "slots"))
    busy, waiting, jobs = (sum(state[name] for state in states) for name in ("busy", "unplaced", "jobs_here"))
    names = ", ".join(printable(state["address"]) for state in states)
    at = time.strftime("%H:%M:%S", time.localtime(max(state["now_s"] for state in states)))
    noops = f"{100 * rates['noops'] / asked:.0f} %" if asked else "-"
    lines = [
        f"{at}  {counted(len(states), 'scheduler')}: {names}",
        f"{counted(nodes, 'node')}, slots {busy:,} of {slots:,}, {counted(waiting, 'task', 'wait')}, "
        f"{counted(jobs, 'job')}",
        f"{rates['launched']:,.1f} starts/s, no-ops {noops}, {rates['retries']:,.1f} retries/s",
    ]
    spans = [state["span"] for state in states if state["span"] is not None]
    for name, what in (("job_s", "jobs"), ("wait_s", "waits"), ("service_s", "runs")):
        found = [span[name] for span in spans if span[name] is not None]
        if found:  # Of several schedulers the worst: percentiles cannot be added up.
            p50, p90, p99 = (max(one[part] for one in found) for part in ("p50", "p90", "p99"))
            lines.append(f"{what + ':':6} p50 {seconds(p50)}, p90 {seconds(p90)}, p99 {seconds(p99)}")
    lines += [
        f"{printable(one['address'])} takes no jobs: {printable(one['why_not'])}" for one in states if one["why_not"]
    ]
    return lines


def seconds(value: float) -> str:
    """A time of any length for people."""
    if value < 1:
        return f"{1000 * value:.3g} ms"
    return f"{value:.3g} s" if value < 100 else age(value)


def _rows(states: Iterable[Row], nodes: Sequence[Row], view: str) -> list[Row]:
    if view == NODES:
        return list(nodes)
    if view == USERS:
        return _users(states)
    rows = []
    for state in states:
        for job in state["found"]["jobs"]:
            ended_at_s = job["ended_at_s"] if job["ended_at_s"] is not None else state["now_s"]
            more = {"label": job["name"] or job["id"], "bad": job["failed"] + job["lost"]}
            rows.append(job | more | {"lasted_s": ended_at_s - job["submitted_at_s"]})
    return sorted(rows, key=lambda job: (job["ended_at_s"] is not None, -(job["ended_at_s"] or job["submitted_at_s"])))


def _users(states: Iterable[Row]) -> list[Row]:
    """Each user once. What is due to it is the most that a scheduler says: each reckons with all slots."""
    found: dict[str, Row] = {}
    for state in states:
        for row in state["users"]:
            known = found.setdefault(
                row["user"], row | {"user": row["user"] or "(all others)", "busy": 0, "waiting": 0}
            )
            known["busy"] += row["busy"]
            known["waiting"] += row["waiting"]
            known["due"] = max(known["due"], row["due"])
    return list(found.values())


def _ordered(rows: list[Row], choice: Choice) -> list[Row]:
    key = choice.sort[choice.view]
    if key:
        number = next(column.width == 0 for column in COLUMNS[choice.view] if column.key == key)
        rows = sorted(rows, key=lambda row: (row[key] is None, row[key]), reverse=number != choice.reverse)
    elif choice.reverse:
        rows = rows[::-1]
    return rows


def _table(rows: Iterable[Row], choice: Choice) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 1, 0, 0))
    for column in COLUMNS[choice.view]:
        mark = "*" if column.key == choice.sort[choice.view] else ""
        table.add_column(Text(column.head + mark), justify="left" if column.width else "right", no_wrap=True)
    for row in rows:
        cells = []
        for column in COLUMNS[choice.view]:
            text = printable(column.text(row[column.key]))
            cells.append(
                Text(text if not column.width or len(text) <= column.width else text[: column.width - 1] + "…")
            )
        table.add_row(*cells)
    return table
