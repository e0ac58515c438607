"""`sparrow uncordon`: nodes that were cordoned or drained take part again."""

from __future__ import annotations

import click

from frontends.cli.connection import connection_options
from frontends.cli.node_states import READY, change_states


@click.command(short_help="Let nodes take part again.")
@connection_options
@click.argument("node_ids", metavar="NODE...", nargs=-1, required=True)
def uncordon(schedulers: list[str], token: str, node_ids: tuple[str, ...]) -> int:
    """Let nodes that were cordoned or drained take part again.

    The names are those that `sparrow nodes` shows. Exits with 1 if one is not connected.

    \b
    Examples:
      sparrow uncordon ant:20504
      sparrow uncordon -s 10.0.0.1:20503 ant:20504 bee:20504
    """
    return change_states(schedulers, token, node_ids, READY)
