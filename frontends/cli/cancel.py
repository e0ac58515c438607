"""`sparrow cancel`: cancel jobs."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import quote

import click

from frontends.cli.connection import ask_all, connection_options
from sparrow_py.access.credentials import Access
from sparrow_py.job import check_name

GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT})
"""Statuses that schedulers answer if the job is not known, or has ended."""


@click.command(short_help="Cancel jobs.")
@connection_options
@click.option("--running", is_flag=True, help="Stop the tasks that run, too.")
@click.argument("job_ids", metavar="JOB_ID...", nargs=-1, required=True)
def cancel(schedulers: list[str], access: Access, job_ids: tuple[str, ...], running: bool) -> int:
    """Cancel the tasks of these jobs that have not started; tasks that run finish, unless --running stops them.

    The ids are those that `sparrow jobs` shows. Exits with 1 if one is not known.

    \b
    Examples:
      sparrow cancel 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8
      sparrow cancel --running 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8
    """
    for job_id in job_ids:
        check_name("job id", job_id, empty=False)
    # A list, not a generator: one unknown id must not keep the others from being cancelled.
    return int(not all([_cancel(schedulers, access, job_id, running) for job_id in job_ids]))


def _cancel(schedulers: list[str], access: Access, job_id: str, running: bool) -> bool:
    """Cancel this job at all schedulers, and tell the user; returns whether any scheduler had it."""
    path = f"/v1/jobs/{quote(job_id, safe='')}{'?running=true' if running else ''}"
    known = any(answer.status not in GONE for answer in ask_all(schedulers, access, "DELETE", path, GONE))
    if known:
        click.echo(f"cancelled {job_id}")
    else:
        click.echo(f"sparrow: no job {job_id!r} is queued or running", err=True)
    return known
