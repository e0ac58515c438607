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
ENDED_COUNTS = ("tasks", "finished")
EXCEPTIONS = ("failed", "cancelled", "lost")
"""Statuses of tasks that have a column only if some job has such tasks."""


@click.command(short_help="List the jobs that are queued or running.")
@connection_options
@click.option("--json", "as_json", is_flag=True, help='Print {"jobs": […]} instead of a table.')
@click.option("--ended", is_flag=True, help="Instead those that have ended in the last hour, the latest first.")
@watch_option
def jobs(schedulers: list[str], access: Access, as_json: bool, ended: bool) -> None:
    """List the jobs that the schedulers hold, the oldest first.

    UNPLACED tasks wait for a slot, RUNNING ones have one; the others have ended as the column says. PRIORITY is there
    if some job's is not 0. With --ended, STATE says what became of a job, TIME how long it took and AGO how long ago it
    ended; schedulers remember some thousands of jobs for an hour.

    \b
    Examples:
      sparrow jobs
      sparrow jobs --ended
      sparrow jobs --json | jq -r '.jobs[] | select(.user == "ada") | .id' | xargs sparrow cancel
    """
    entries = listed(ask_all(schedulers, access, "GET", "/v1/jobs?recent=true" if ended else "/v1/jobs"), "jobs")
    found = [entry | {"scheduler": address} for address, entry in entries]
    if ended:  # Schedulers of a version before list those that run all the same.
        found = [job for job in found if job["ended_at_s"] is not None]
        found.sort(key=lambda job: job["ended_at_s"], reverse=True)
    else:
        found.sort(key=lambda job: job["submitted_at_s"])
    if as_json:
        click.echo(json.dumps({"jobs": found}, indent=2))
    elif found:
        _print(found, ended=ended)
    else:
        click.echo(f"no jobs {'have ended in the last hour' if ended else 'are queued or running'}", err=True)


def _print(found: list[dict[str, Any]], *, ended: bool) -> None:
    now_s = time.time()
    counts = [*(ENDED_COUNTS if ended else COUNTS), *(one for one in EXCEPTIONS if any(job.get(one) for job in found))]
    numbers = ["priority", *counts] if any(job.get("priority") for job in found) else counts
    columns = ["JOB", "NAME", "USER", "APP", "POLICY", *map(str.upper, numbers)]
    columns += ["STATE", "TIME", "AGO"] if ended else ["AGE"]
    rows = [[*_row(job, numbers), *(_end(job, now_s) if ended else [_age(job, now_s)])] for job in found]
    if len({job["scheduler"] for job in found}) > 1:
        columns.append("SCHEDULER")
        rows = [[*row, job["scheduler"]] for row, job in zip(rows, found, strict=True)]
    print_table(columns, rows)


def _row(job: dict[str, Any], numbers: list[str]) -> list[str | int]:
    # A status that no task has ended in may be left out of the answer, and older schedulers say no priority, no policy.
    names = [job["id"], job["name"], job["user"], job["app"], job.get("policy", "")]
    return [*names, *(job.get(number, 0) for number in numbers)]


def _age(job: dict[str, Any], now_s: float) -> str:
    return age(now_s - job["submitted_at_s"])


def _end(job: dict[str, Any], now_s: float) -> list[str]:
    ended_at_s = job["ended_at_s"]
    return [job["state"], age(ended_at_s - job["submitted_at_s"]), age(now_s - ended_at_s)]
