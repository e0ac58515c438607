"""`sparrow flow`: what a scheduler with policy flow solves."""

from __future__ import annotations

from contextlib import ExitStack
from typing import BinaryIO

import click

from frontends.cli.connection import addresses_of, connection_options, no_answer
from frontends.daemon_http import following
from sparrow_py.access.credentials import Access
from sparrow_py.errors import SparrowError

PATH = "/v1/flow/problem"


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
    errors = []
    for address in addresses_of(schedulers):
        with ExitStack() as stack:
            try:
                lines = stack.enter_context(following(address, access, PATH, allowed=()))
            except SparrowError as error:
                errors.append(error)
                continue
            file.writelines(lines or ())
            return 0
    raise no_answer(schedulers, errors)
