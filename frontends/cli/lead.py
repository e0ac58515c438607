"""`sparrow lead`: a scheduler leads its plane, whichever other does."""

from __future__ import annotations

import click

from frontends.cli.connection import ask_all, connection_options
from sparrow_py.access.credentials import Access
from sparrow_py.errors import LinkError
from sparrow_py.logs.printable import printable

PATH = "/v1/lead"


@click.command(short_help="Have a scheduler lead its plane.")
@connection_options
@click.option("--force", is_flag=True, help="Take the lead from whichever scheduler has it; needed.")
def lead(schedulers: list[str], access: Access, force: bool) -> None:
    """Have the scheduler lead its plane, in place of the one that does.

    That one gives its jobs back to their clients, who bring them here. It is for planes of which one scheduler at a
    time takes jobs, and for when the one that leads is to make way, or does not go on and is not seen to be gone.

    One that hangs gives nothing back: its clients bring their jobs here once its link has been silent for one and a
    half of their heartbeats, 15 s by default.

    \b
    Examples:
      sparrow lead --force -s 10.0.0.2:20503
    """
    if len(schedulers) > 1:
        raise click.UsageError("--scheduler: name the one that is to lead")
    if not force:
        raise click.UsageError("--force is needed, as the scheduler that leads now loses its jobs")
    for answer in ask_all(schedulers, access, "POST", PATH):
        plane, epoch = answer.body.get("plane"), answer.body.get("epoch")
        if not isinstance(plane, str) or not isinstance(epoch, int):
            raise LinkError(f"the scheduler at {answer.address} does not know how to lead")
        leads = "leads" if answer.body.get("leads") else "will lead"
        click.echo(f"the scheduler at {answer.address} {leads} plane {printable(plane)}, epoch {epoch}")
