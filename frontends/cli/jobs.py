"""`sparrow jobs`: the jobs that schedulers hold."""

from __future__ import annotations

import json
import time
from typing import Any

import click

from frontends.cli.connection import ask_all, connection_options
from frontends.cli.tables import age, print_table
from frontends.cli.watching import watch_option
from frontends.daemon_http import listed
from sparrow_py.access.credentials import Access

COUNTS = ("tasks", "unplaced", "running", "finished")
EXCEPTIONS = ("failed", "cancelled", "lost")
"""Statuses of tasks that have a column only if some job has such tasks."""


@click.command(short_help="List the jobs that are queued or running.")
@connection_options
@click.option("--json", "as_json", is_flag=True, help='Print {"jobs": […]} instead of a table.')
@watch_option
def jobs(schedulers: list[str], access: Access, as_json: bool) -> None:
    """List the jobs that the schedulers hold, the oldest first.

    UNPLACED tasks wait for a slot, RUNNING ones have one; the others have ended as the column says. PRIORITY is there
    if some job's is not 0.

    \b
    Examples:
      sparrow jobs
      sparrow jobs --json | jq -r '.jobs[] | select(.user == "ada") | .id' | xargs sparrow cancel
    """
    entries = listed(ask_all(schedulers, access, "GET", "/v1/jobs"), "jobs")
    found = [entry | {"scheduler": address} for address, entry in entries]
    found.sort(key=lambda job: job["submitted_at_s"])
    if as_json:
        click.echo(json.dumps({"jobs": found}, indent=2))
    elif found:
        _print(found)
    else:
        click.echo("no jobs are queued or running", err=True)


def _print(found: list[dict[str, Any]]) -> None:
    now_s = time.time()
    counts = [*COUNTS, *(count for count in EXCEPTIONS if any(job.get(count) for job in found))]
    numbers = ["priority", *counts] if any(job.get("priority") for job in found) else counts
    columns = ["JOB", "NAME", "USER", "APP", "POLICY", *map(str.upper, numbers), "AGE"]
    rows = [_row(job, numbers, now_s) for job in found]
    if len({job["scheduler"] for job in found}) > 1:
        columns.append("SCHEDULER")
        rows = [[*row, job["scheduler"]] for row, job in zip(rows, found, strict=True)]
    print_table(columns, rows)


def _row(job: dict[str, Any], numbers: list[str], now_s: float) -> list[str | int]:
    # A status that no task has ended in may be left out of the answer, and older schedulers say no priority, no policy.
    names = [job["id"], job["name"], job["user"], job["app"], job.get("policy", "")]
    return [*names, *(job.get(number, 0) for number in numbers), age(now_s - job["submitted_at_s"])]
