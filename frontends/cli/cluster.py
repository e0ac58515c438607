"""`sparrow cluster`: an embedded cluster until Ctrl-C."""

from __future__ import annotations

import os
import queue
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from frontends.cli.starting import told_if_slow
from frontends.cli.stopping import exit_on_signals
from sparrow_py import profiles
from sparrow_py.access.secret_files import TOKEN_VARIABLE
from sparrow_py.counted import counted
from sparrow_py.daemon.options import given
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
@click.option(
    "--ssh",
    "hosts",
    metavar="FILE",
    help="Start node monitors on the hosts of this file by ssh: HOST or USER@HOST a line, and slots=N if they are to "
    "have another number than cores.",
)
@click.option("--slurm", is_flag=True, help="Start node monitors on all machines of this Slurm allocation by srun.")
@click.option("--address", help="With --ssh or --slurm: this machine's address, as the others reach it.")
@click.option("--remote-python", metavar="PYTHON", help="With them: the interpreter there. Default: this one's path.")
def cluster(
    schedulers: int,
    node_monitors: int,
    slots: int | None,
    enable_command: bool,
    policies: tuple[str, ...],
    profile: str,
    hosts: str | None,
    slurm: bool,
    address: str | None,
    remote_python: str | None,
) -> None:
    """Run a cluster on this machine, listening on loopback only, until Ctrl-C or SIGTERM.

    With --ssh or --slurm: the scheduler here, a node monitor on each of those machines, which ends with this command.
    In a job of PBS --ssh "$PBS_NODEFILE" does it.

    \b
    Examples:
      sparrow cluster --enable-command
      sparrow cluster --schedulers 2 --node-monitors 4 --slots 2
      sparrow cluster --policy sparrow --policy flow --enable-command
      sparrow cluster --ssh hosts.txt
      sbatch -N 8 --wrap 'sparrow cluster --slurm --enable-command'
    """
    if hosts is not None or slurm:
        run_remote(_remote_options(click.get_current_context()), hosts, slurm, enable_command)
        return
    for name in ("address", "remote_python"):
        if click.get_current_context().params[name] is not None:
            raise click.UsageError(f"--{name.replace('_', '-')} is for --ssh and --slurm")
    from sparrow_py import ClusterError, LocalCluster

    broken: queue.SimpleQueue[ClusterError] = queue.SimpleQueue()
    exit_on_signals()
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


FOR_REMOTE = ("hosts", "slurm", "address", "remote_python", "enable_command", "slots", "profile")
"""Options that clusters of other machines have."""


def _remote_options(context: click.Context) -> dict[str, Any]:
    """What a cluster of other machines is made with; `click.UsageError` if something is stated that it has not."""
    stated = given(context, context.params)
    for name in stated:
        if name not in FOR_REMOTE:
            raise click.UsageError(f"--{name.replace('_', '-')} is not for --ssh and --slurm")
    of_all = ["--profile", context.params["profile"]] if "profile" in stated else []
    slots = ["--slots", str(context.params["slots"])] if "slots" in stated else []
    return {
        "address": context.params["address"],
        "python": context.params["remote_python"],
        "enable_command": context.params["enable_command"],
        "scheduler_options": of_all,
        "node_options": [*of_all, *slots],
    }


def run_remote(options: dict[str, Any], hosts: str | None, slurm: bool, enable_command: bool) -> None:
    """Run a cluster of other machines until it is broken, Ctrl-C or SIGTERM."""
    from sparrow_py import SlurmCluster, SSHCluster

    if hosts is not None and slurm:
        raise click.UsageError("--ssh and --slurm do not go together")
    exit_on_signals()
    try:
        started = SSHCluster(hosts, **options) if hosts is not None else SlurmCluster(**options)
        with started as running, tempfile.TemporaryDirectory(prefix="sparrow-token-") as directory:
            token = Path(directory) / "token"
            token.touch(0o600)
            token.write_text(running.token)
            text = introduction(running.addresses, len(running.nodes()), enable_command, token_file=str(token))
            click.echo(text)
            running.wait()
    except (KeyboardInterrupt, SystemExit):
        click.echo("stopped", err=True)


def introduction(
    addresses: list[str],
    node_monitors: int,
    enable_command: bool,
    policies: Collection[str] = (SPARROW,),
    token_file: str = "",
) -> str:
    """The text that tells a user how to use the cluster."""
    lines = [
        f"{counted(len(addresses), 'scheduler')}, {counted(node_monitors, 'node monitor')}; Ctrl-C stops them",
        "",
        "In another shell:",
        f"  export {SCHEDULERS_VARIABLE}={','.join(addresses)}",
        *([f"  export {TOKEN_VARIABLE}=$(cat {token_file})"] if token_file else []),
        "  sparrow nodes",
        *(["  sparrow schedulers"] if not set(LED).isdisjoint(policies) else []),
    ]
    if enable_command:
        lines += ["  seq 10 | sparrow run -- factor {}"]
    lines += [
        "",
        "In Python:",
        "  from sparrow_py import Client",
        f"  with Client({addresses!r}) as client:" + ("  # its token is in that variable" if token_file else ""),
        "      print(list(client.map(abs, range(-5, 5))))",
    ]
    return "\n".join(lines)
