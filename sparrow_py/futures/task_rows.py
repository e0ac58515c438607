"""The tasks of a job that are worth a look, as rows of a table: those that did not finish, then those that took
longest."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparrow_py.errors import shown
from sparrow_py.html_tables import ROWS_MAX, Cell
from sparrow_py.job import FINISHED

if TYPE_CHECKING:
    from sparrow_py.futures.task_future import TaskFuture
    from sparrow_py.wire.messages import Outcome

COLUMNS = ("task", "status", "node", "attempts", "waited s", "ran s", "error")


def task_rows(futures: Sequence[TaskFuture]) -> list[tuple[Cell, ...]]:
    """`ROWS_MAX` tasks at most, of those that have ended; times that are not known are empty."""
    ended = [future.outcome for future in futures if future.outcome is not None]
    return [_row(outcome) for outcome in heapq.nsmallest(ROWS_MAX, ended, key=_order)]


def _order(outcome: Outcome) -> tuple[bool, float, int]:
    return outcome.status is FINISHED, -(outcome.service_s or 0.0), outcome.task


def _row(outcome: Outcome) -> tuple[Cell, ...]:
    reserved_at_s, started_at_s, service_s = outcome.reserved_at_s, outcome.started_at_s, outcome.service_s
    waited: Cell = "" if reserved_at_s is None or started_at_s is None else max(0.0, started_at_s - reserved_at_s)
    ran: Cell = "" if service_s is None else service_s
    error = shown(outcome.error) if outcome.error else ""
    return outcome.task, str(outcome.status), outcome.node, outcome.attempts, waited, ran, error
