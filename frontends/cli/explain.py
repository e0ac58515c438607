"""`sparrow explain`: why tasks of a job wait, and what held it up."""

from __future__ import annotations

import json
from typing import Any

import click

from frontends.cli.connection import ask_of_job, connection_options
from frontends.cli.tables import print_table
from sparrow_py.access.credentials import Access
from sparrow_py.counted import counted
from sparrow_py.logs.printable import printable


@click.command(short_help="Say why tasks of a job wait, and what held it up.")
@connection_options
@click.option("--json", "as_json", is_flag=True, help="Print what the scheduler answers.")
@click.argument("job_id", metavar="JOB_ID")
def explain(schedulers: list[str], access: Access, job_id: str, as_json: bool) -> int:
    """Say what held a job up, and why tasks of it have not started, stage by stage.

    Of its tasks that have run: what the job could have taken (its ideal), what it waited for, the task that ended last,
    and whose tasks its node ran meanwhile. Jobs that have ended are remembered for an hour.

    Of a job at a scheduler with policy flow the cheapest places of a task are listed, with what is in the way there,
    and what it costs to have the task wait: it goes to the cheapest place where nothing is in the way, if that costs
    less. Exits with 1 if no scheduler has the job.

    \b
    Examples:
      sparrow explain 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8
    """
    found = ask_of_job(schedulers, access, job_id, "explain")
    if not found:
        click.echo(f"sparrow: no job {job_id!r} is queued or running, or remembered", err=True)
        return 1
    for explanation in found:
        if as_json:
            click.echo(json.dumps(explanation, indent=2))
        else:
            _print(explanation)
    return 0


def _print(explanation: dict[str, Any]) -> None:
    for line in explanation.get("so_far", ()):  # A scheduler of the version before says nothing of this.
        click.echo(printable(line))
    if not explanation["stages"]:
        click.echo("no task of it waits")
    for stage in explanation["stages"]:
        name = f"stage {printable(stage['name'])}: " if stage["name"] else ""
        count = stage["waiting"]
        click.echo(f"{name}{counted(count, 'task', 'wait')}")
        for reason in stage["reasons"]:
            click.echo(f"  {printable(reason)}")
        if stage.get("waiting_cost") is not None:
            click.echo(f"  task {stage['task']}: to have it wait costs {stage['waiting_cost']}; to place it costs:")
            rows = [[place["to"], place["cost"], place["limit"]] for place in stage["places"]]
            print_table(["PLACE", "COST", "IN THE WAY"], rows)
    if more := explanation.get("more_stages"):
        click.echo(f"{counted(more, 'more stage', 'have')} tasks that wait")
