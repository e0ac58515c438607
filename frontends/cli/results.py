"""`sparrow results`: follow the results of a job that was submitted with `sparrow submit` or over HTTP."""

from __future__ import annotations

import click

from frontends.cli.connection import addresses_of, connection_options, nobody_answers
from frontends.cli.lines import print_lines, results_path
from frontends.daemon_http import following
from sparrow_py.access.credentials import Access
from sparrow_py.errors import NoScheduler
from sparrow_py.job import check_name
from sparrow_py.logs.printable import printable


@click.command(short_help="Follow the results of a submitted job.")
@connection_options
@click.argument("job_id", metavar="JOB_ID")
def results(schedulers: list[str], access: Access, job_id: str) -> int:
    """Print the results of a job as they come, a line of JSON for each task, until it has ended.

    The job must have been submitted with `sparrow submit` or over HTTP; schedulers keep the results for a
    while after its end. Exits with 1 if a task did not finish.

    \b
    Examples:
      sparrow results 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8
      sparrow results 0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8 | jq -r .result.stdout
    """
    check_name("job id", job_id, empty=False)
    silent = []
    addresses = addresses_of(schedulers)
    for address in addresses:
        try:
            with following(address, access, results_path(job_id)) as lines:
                if lines is not None:
                    return print_lines(lines)
        except NoScheduler as error:
            silent.append(error)
    if len(silent) == len(addresses):
        raise nobody_answers(schedulers, silent)
    for reason in silent:
        click.echo(f"sparrow: {printable(str(reason))}", err=True)
    click.echo(f"sparrow: no results of a job {job_id!r} are kept", err=True)
    return 1
