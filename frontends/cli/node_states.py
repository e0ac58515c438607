"""The common part of `sparrow cordon`, `uncordon` and `drain`: finds nodes, and has them enter a state."""

from __future__ import annotations

import json

import click

from frontends.cli.connection import ask_all, connection_options
from frontends.daemon_http import ask, listed
from sparrow_py.access.credentials import Access
from sparrow_py.errors import InvalidRequest, LinkError, NoScheduler, SparrowError
from sparrow_py.job import check_name
from sparrow_py.logs.printable import printable
from sparrow_py.wire.addresses import check_address

PATH = "/v1/nodes/state"
HELP = """{text}

The names are those that `sparrow nodes` shows. Exits with 1 if one is not connected.

\b
Examples:
  sparrow {name} ant:20504
  sparrow {name} -s 10.0.0.1:20503 ant:20504 bee:20504
"""


def state_command(name: str, state: str, short_help: str, text: str) -> click.Command:
    """The command that has nodes enter this state; `text` says what that means."""

    @click.command(name, short_help=short_help, help=HELP.format(name=name, text=text))
    @connection_options
    @click.argument("node_ids", metavar="NODE...", nargs=-1, required=True)
    def command(schedulers: list[str], access: Access, node_ids: tuple[str, ...]) -> int:
        return change_states(schedulers, access, node_ids, state)

    return command


def change_states(schedulers: list[str], access: Access, node_ids: tuple[str, ...], state: str) -> int:
    """Have these nodes enter the state, and tell the user; returns the exit code, 1 if one of them did not."""
    for node_id in node_ids:
        check_name("node", node_id, empty=False)
    found = {entry["id"]: entry for _, entry in listed(ask_all(schedulers, access, "GET", "/v1/nodes"), "nodes")}
    failed = False
    for node_id in node_ids:
        try:
            click.echo(f"{node_id} is {printable(_change_state(found.get(node_id), access, node_id, state))}")
        except SparrowError as error:  # The other nodes are to change all the same.
            click.echo(f"sparrow: {node_id}: {printable(str(error))}", err=True)
            failed = True
    return int(failed)


def _change_state(entry: dict[str, object] | None, access: Access, node_id: str, state: str) -> str:
    """Have the node of this entry enter the state; returns the state that the node is in then."""
    if entry is None:
        raise NoScheduler("no such node is connected")
    try:
        address = check_address(str(entry.get("address", "")))
    except InvalidRequest:
        raise LinkError("the scheduler does not know the HTTP address of this node") from None
    body = json.dumps({"state": state, "node": node_id}).encode()
    answer = ask(address, access, "POST", PATH, body, daemon="node monitor")
    states = [node["state"] for _, node in listed([answer], "nodes", "node monitor") if node["id"] == node_id]
    if not states:
        raise LinkError(f"the node is not at {address} any more")
    return str(states[0])
