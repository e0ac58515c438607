"""`sparrow schedulers`: which policy each scheduler has, whether it leads, and what it has."""

from __future__ import annotations

import json
from typing import Any

import click

from frontends.cli.connection import ask_all, connection_options
from frontends.cli.tables import print_table
from frontends.daemon_http import Answer
from sparrow_py.access.credentials import Access
from sparrow_py.errors import LinkError
from sparrow_py.logs.printable import printable

PATH = "/v1/scheduler"
COLUMNS = ("SCHEDULER", "POLICY", "STATE", "EPOCH", "NODES", "SLOTS", "JOBS", "NAME")

STANDING_BY = ("standing_by", "deposed")


@click.command(short_help="List schedulers, and which of them leads.")
@connection_options
@click.option("--json", "as_json", is_flag=True, help='Print {"schedulers": […]} instead of a table.')
def schedulers(schedulers: list[str], access: Access, as_json: bool) -> None:
    """List the schedulers that are named, their policies, and whether they take jobs.

    Of a policy with a leader one scheduler "leads", with the EPOCH that nodes have accepted, and others stand by. One
    that samples "takes jobs" beside others. Below the table stands why others take none. NODES and SLOTS are those
    linked to the scheduler, JOBS those that it has. Exits with 1 if none of the schedulers answers.

    \b
    Examples:
      sparrow schedulers -s 10.0.0.1:20503 -s 10.0.0.2:20503
      sparrow schedulers --json | jq -r '.schedulers[] | select(.leads) | .scheduler'
    """
    found = [_entry(answer) for answer in ask_all(schedulers, access, "GET", PATH)]
    if as_json:
        click.echo(json.dumps({"schedulers": found}, indent=2))
        return
    print_table(COLUMNS, map(_row, found))
    for entry in found:
        if entry["why_not"]:
            click.echo(printable(f"{entry['scheduler']}: {entry['why_not']}"))


def _entry(answer: Answer) -> dict[str, Any]:
    if answer.status != 200:
        raise LinkError(f"the scheduler at {answer.address} is of a version that does not tell of itself")
    if not isinstance(answer.body.get("takes_jobs"), bool):
        raise LinkError(f"what answers at {answer.address} is not a scheduler: its answer has no takes_jobs")
    return {"scheduler": answer.address, **answer.body}


def _row(entry: dict[str, Any]) -> list[str | int]:
    epoch = entry["epoch"] or ""
    return [entry["scheduler"], entry["policy"], _state(entry), epoch, *_counts(entry), entry["name"]]


def _counts(entry: dict[str, Any]) -> list[int]:
    return [entry["nodes"], entry["slots"], entry["jobs"]]


def _state(entry: dict[str, Any]) -> str:
    if entry["takes_jobs"]:
        return "leads" if entry["leads"] else "takes jobs"
    if entry["leads"]:
        return "leads, not ready"
    return "stands by" if entry["lead_state"] in STANDING_BY else "not ready"
