"""`sparrow doctor`: what is wrong, and what to do, a line each."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator

import click

from frontends.cli.connection import DEFAULT_SCHEDULER, connection_as_given
from frontends.cli.ranges import NumberRange
from frontends.doctor import cluster_gathering, machine_gathering
from frontends.doctor.cluster_checks import of_cluster
from frontends.doctor.findings import Finding, Level, wrong
from frontends.doctor.machine_checks import TOKEN_DAYS_MAX, of_certificate, of_machine, of_secret
from sparrow_py.access.credentials import Access
from sparrow_py.access.secret_files import read_tokens, tls_of
from sparrow_py.auth import TLS
from sparrow_py.counted import agreeing, counted
from sparrow_py.errors import InvalidOption

NODES_MAX = 200


@click.command(short_help="Say what is wrong with this machine or a cluster, and what to do.")
@connection_as_given
@click.option("--blob-dir", "directories", metavar="DIR", multiple=True, help="Where large data lies on this machine.")
@click.option(
    "--token-days-max", type=NumberRange(min=0), default=TOKEN_DAYS_MAX, show_default=True,
    help="A token file that was written longer ago is to be replaced.",
)  # fmt: skip
@click.option(
    "--nodes-max", type=click.IntRange(min=0), default=NODES_MAX, show_default=True,
    help="Look at so many nodes at most, by chance; each is sent a few bytes, which go after ten minutes.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help='Print {"well": …, "findings": […]} instead of lines.')
def doctor(
    schedulers: list[str],
    token_file: str | None,
    tls_cert: str | None,
    tls_key: str | None,
    tls_ca: str | None,
    directories: tuple[str, ...],
    token_days_max: float,
    nodes_max: int,
    as_json: bool,
) -> int:
    """Look at this machine, and at the cluster of the schedulers that are named or at the usual address.

    Versions, open files, memory, disks, the token and its age, certificates and their dates; of each daemon whether it
    answers and is ready, its version and its clock; of each node whether it takes work and runs its apps, and whether
    large data comes there and back. Each line begins with OK, NOTE (it may be meant) or WRONG, and says what to do.
    Run it on the machine of a daemon, as that daemon's user, to look at that machine.

    Exits with 0 if nothing is wrong, with 1 if something is, with 2 after a mistake on the command line.

    \b
    Examples:
      sparrow doctor
      sparrow doctor -s 10.0.0.1:20503,10.0.0.2:20503 --token-file token
      sparrow doctor --json | jq -r '.findings[] | select(.level == "wrong") | .subject'
    """
    tls = tls_of(tls_cert, tls_key, tls_ca)
    found = list(examine(schedulers, token_file, tls, directories, token_days_max, nodes_max))
    count = sum(finding.level is Level.WRONG for finding in found)
    if as_json:
        findings = [dataclasses.asdict(finding) for finding in found]
        click.echo(json.dumps({"well": not count, "findings": findings}, indent=2))
    else:
        for finding in found:
            click.echo(finding.line())
        click.echo(
            f"{count:,} of {counted(len(found), 'line')} {agreeing(count, 'say')} that something is wrong"
            if count
            else "nothing is wrong"
        )
    return int(count > 0)


def examine(
    schedulers: list[str],
    token_file: str | None,
    tls: TLS | None,
    directories: tuple[str, ...],
    token_days_max: float = TOKEN_DAYS_MAX,
    nodes_max: int = NODES_MAX,
) -> Iterator[Finding]:
    """All that is found."""
    now_s = time.time()
    machine = machine_gathering.machine(directories)
    secret = machine_gathering.secret(token_file, dict(os.environ), now_s)
    yield from of_machine(machine)
    yield of_secret(secret, token_days_max)
    for certificate in [] if tls is None else machine_gathering.certificates(tls):
        yield of_certificate(certificate, now_s)
    try:
        access = Access.of("" if secret.why_not else read_tokens(token_file).shown, tls)
    except InvalidOption as error:
        yield wrong("cluster", f"it cannot be dialled: {error}", "mend that first")
        return
    cluster = cluster_gathering.cluster(schedulers, DEFAULT_SCHEDULER, access, nodes_max)
    yield from of_cluster(cluster, machine, now_s)
