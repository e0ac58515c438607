"""`sparrow nodes`: the nodes of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import click

from frontends.cli.connection import ask_all, connection_options
from frontends.cli.tables import pairs, print_table
from frontends.cli.watching import watch_option
from frontends.daemon_http import listed
from sparrow_py.access.credentials import Access
from sparrow_py.logs.printable import printable

COLUMNS = ("NODE", "STATE", "SLOTS", "BUSY", "RESERVATIONS", "APPS", "RESOURCES", "ATTRIBUTES")


@click.command(short_help="List the nodes that are connected.")
@connection_options
@click.option("--json", "as_json", is_flag=True, help='Print {"nodes": […]} instead of a table.')
@watch_option
def nodes(schedulers: list[str], access: Access, as_json: bool) -> None:
    """List the nodes that are connected to the schedulers.

    BUSY and RESERVATIONS count what the schedulers asked have there, all together. BUSY may be more than SLOTS: tasks
    that wait for tasks of their own are among them, and have no slot meanwhile, and so are tasks that nodes hold ahead
    of a free slot. Schedulers answer at different moments, and each counts what is on its way to a node
    and back. Below the table stands which apps nodes do not offer since their executors do not start, and why.

    \b
    Examples:
      sparrow nodes
      sparrow nodes -s 10.0.0.1:20503 -s 10.0.0.2:20503
      sparrow nodes --json | jq '[.nodes[].slots] | add'
    """
    found = merged(entry for _, entry in listed(ask_all(schedulers, access, "GET", "/v1/nodes"), "nodes"))
    if as_json:
        click.echo(json.dumps({"nodes": found}, indent=2))
    elif found:
        print_table(COLUMNS, map(_row, found))
        for line in withdrawn(found):
            click.echo(line)
    else:
        click.echo("no nodes are connected", err=True)


def merged(entries: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each node once, by id. A scheduler counts only its own tasks and reservations, so the counts are added."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        known = found.setdefault(entry["id"], entry)
        if known is not entry:
            known["busy"] += entry["busy"]
            known["reservations"] += entry["reservations"]
    return [found[name] for name in sorted(found)]


def withdrawn(nodes: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Lines on the apps whose executors do not start: where, and why."""
    for node in nodes:
        for app, reason in node.get("withdrawn", {}).items():  # A scheduler of an older version sends no such field.
            first, *more = map(printable, reason.splitlines() or [""])
            yield f"{printable(node['id'])}: executors of {printable(app)} do not start: {first}"
            yield from (f"  {line}" for line in more)


def _row(node: dict[str, Any]) -> list[str | int]:
    counts = [node["slots"], node["busy"], node["reservations"]]
    return [node["id"], node["state"], *counts, *(pairs(node[key]) for key in ("apps", "resources", "attributes"))]
