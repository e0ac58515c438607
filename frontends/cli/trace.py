"""`sparrow trace`: a job's tasks in time, as a file that Perfetto opens."""

from __future__ import annotations

import json
from typing import TextIO

import click

from frontends.cli.chrome_trace import chrome_trace
from frontends.cli.connection import ask_of_job, connection_options
from sparrow_py.access.credentials import Access
from sparrow_py.counted import counted


@click.command(short_help="Write when and where a job's tasks ran, for Perfetto.")
@connection_options
@click.option("--out", type=click.File("w", "utf-8", lazy=True), required=True, help="The file; - is standard output.")
@click.argument("job_id", metavar="JOB_ID")
def trace(schedulers: list[str], access: Access, out: TextIO, job_id: str) -> int:
    """Write when and where a job's tasks ran, in Chrome's trace format: ui.perfetto.dev and chrome://tracing open it.

    The job may run, or have ended within the last hour; of the tasks a scheduler remembers the latest. Exits with 1 if
    no scheduler remembers the job.

    \b
    Examples:
      sparrow trace 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8 --out job.json
    """
    found = ask_of_job(schedulers, access, job_id, "timeline")
    if not found:
        click.echo(f"sparrow: no job {job_id!r} runs or is remembered", err=True)
        return 1
    latest = max(found, key=lambda timeline: timeline["submitted_at_s"])  # Others had it before, or one of its id.
    json.dump(chrome_trace(latest), out)
    if latest["more_runs"]:
        click.echo(
            f"sparrow: {counted(latest['more_runs'], 'more task', 'have')} ended whose runs are not remembered",
            err=True,
        )
    return 0
