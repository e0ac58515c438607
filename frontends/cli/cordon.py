"""`sparrow cordon`: nodes get no new reservations, and serve those that they have."""

from __future__ import annotations

import click

from frontends.cli.connection import connection_options
from frontends.cli.node_states import CORDONED, change_states


@click.command(short_help="Give nodes nothing new.")
@connection_options
@click.argument("node_ids", metavar="NODE...", nargs=-1, required=True)
def cordon(schedulers: list[str], token: str, node_ids: tuple[str, ...]) -> int:
    """Keep new work from these nodes; what is queued there and what runs goes on.

    The names are those that `sparrow nodes` shows. Exits with 1 if one is not connected.

    \b
    Examples:
      sparrow cordon ant:20504
      sparrow cordon -s 10.0.0.1:20503 ant:20504 bee:20504
    """
    return change_states(schedulers, token, node_ids, CORDONED)
