"""`sparrow drain`: nodes hand back what has not started, and finish what runs."""

from __future__ import annotations

import click

from frontends.cli.connection import connection_options
from frontends.cli.node_states import DRAINING, change_states


@click.command(short_help="Have nodes hand back what has not started.")
@connection_options
@click.argument("node_ids", metavar="NODE...", nargs=-1, required=True)
def drain(schedulers: list[str], token: str, node_ids: tuple[str, ...]) -> int:
    """Have these nodes hand back what has not started, and take nothing new; what runs there finishes.

    Their node monitors run on, until they are ended or uncordoned.

    The names are those that `sparrow nodes` shows. Exits with 1 if one is not connected.

    \b
    Examples:
      sparrow drain ant:20504
      sparrow drain -s 10.0.0.1:20503 ant:20504 bee:20504
    """
    return change_states(schedulers, token, node_ids, DRAINING)
