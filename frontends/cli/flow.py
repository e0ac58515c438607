"""`sparrow flow`: what a scheduler with policy flow solves."""

from __future__ import annotations

from typing import BinaryIO

import click

from frontends.cli.connection import addresses_of, connection_options
from frontends.daemon_http import following
from sparrow_py.access.credentials import Access


@click.group(short_help="See what a scheduler with policy flow solves.")
def flow() -> None:
    """See what a scheduler with policy flow solves.

    \b
    Examples:
      sparrow flow dump round.min
    """


@flow.command(short_help="Write the flow network of the last round to a file.")
@connection_options
@click.argument("file", type=click.File("wb"), default="-")
def dump(schedulers: list[str], access: Access, file: BinaryIO) -> int:
    """Write the flow network that the scheduler has solved last to FILE, or to standard output, as DIMACS writes it.

    Exits with 1 if no scheduler has solved one.

    \b
    Examples:
      sparrow flow dump round.min
      sparrow flow dump | python -m scheduler.flow solve -
    """
    for address in addresses_of(schedulers):
        with following(address, access, "/v1/flow/problem") as lines:
            if lines is not None:
                file.writelines(lines)
                return 0
    click.echo("sparrow: no scheduler has solved a flow network", err=True)
    return 1
