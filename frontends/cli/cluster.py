"""`sparrow cluster`: an embedded cluster until Ctrl-C."""

from __future__ import annotations

import os
import queue
from collections.abc import Collection

import click

from frontends.cli.starting import told_if_slow
from frontends.cli.stopping import exit_on_sigterm
from sparrow_py import profiles
from sparrow_py.wire.addresses import SCHEDULERS_VARIABLE
from sparrow_py.wire.messages import LED, SPARROW


@click.command(short_help="Run a cluster on this machine until Ctrl-C.")
@click.option("--schedulers", type=click.IntRange(min=1), default=1, show_default=True, help="Scheduler processes.")
@click.option(
    "--node-monitors", type=click.IntRange(min=1), default=1, show_default=True, help="Node-monitor processes."
)
@click.option("--slots", type=click.IntRange(min=1), help="Slots of each node monitor. Default: the machine's cores.")
@click.option("--enable-command", is_flag=True, help="Let the cluster run any command, as `sparrow run` asks it to.")
@click.option(
    "--policy",
    "policies",
    type=click.Choice([SPARROW, *LED]),
    multiple=True,
    default=("sparrow",),
    show_default=True,
    help="Of the schedulers; given twice, sparrow and another: flow or altruistic, one more scheduler, which leads.",
)
@click.option(
    "--profile",
    type=click.Choice(sorted(profiles.PROFILES)),
    default=profiles.DEFAULT,
    show_default=True,
    help="default, or paper: Sparrow as its paper prints it.",
)
def cluster(
    schedulers: int,
    node_monitors: int,
    slots: int | None,
    enable_command: bool,
    policies: tuple[str, ...],
    profile: str,
) -> None:
    """Run a cluster on this machine, listening on loopback only, until Ctrl-C or SIGTERM.

    \b
    Examples:
      sparrow cluster --enable-command
      sparrow cluster --schedulers 2 --node-monitors 4 --slots 2
      sparrow cluster --policy sparrow --policy flow --enable-command
    """
    from sparrow_py import ClusterError, LocalCluster

    broken: queue.SimpleQueue[ClusterError] = queue.SimpleQueue()
    exit_on_sigterm()
    try:
        # Tasks find the modules of this directory, as they do with a node monitor that is started here.
        here = ["--python-path", os.curdir]
        with told_if_slow(policies):
            started = LocalCluster(
                schedulers,
                node_monitors,
                slots,
                enable_command=enable_command,
                profile=profile,
                node_options=here,
                policies=policies,
            )
        with started as running:
            click.echo(introduction(running.addresses, node_monitors, enable_command, policies))
            running.tell_if_broken(broken.put)
            raise broken.get()
    except (KeyboardInterrupt, SystemExit):
        # The user ends the cluster in this way: that is no error.
        click.echo("stopped", err=True)


def introduction(
    addresses: list[str], node_monitors: int, enable_command: bool, policies: Collection[str] = (SPARROW,)
) -> str:
    """The text that tells a user how to use the cluster."""
    lines = [
        f"{counted(len(addresses), 'scheduler')}, {counted(node_monitors, 'node monitor')}; Ctrl-C stops them",
        "",
        "In another shell:",
        f"  export {SCHEDULERS_VARIABLE}={','.join(addresses)}",
        "  sparrow nodes",
        *(["  sparrow schedulers"] if not set(LED).isdisjoint(policies) else []),
    ]
    if enable_command:
        lines += ["  seq 10 | sparrow run -- factor {}"]
    lines += [
        "",
        "In Python:",
        "  from sparrow_py import Client",
        f"  with Client({addresses!r}) as client:",
        "      print(list(client.map(abs, range(-5, 5))))",
    ]
    return "\n".join(lines)


def counted(count: int, noun: str) -> str:
    """`1 scheduler`, `2 schedulers`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
