"""`sparrow`, `python -m frontends.cli`: finds the subcommand and turns errors into one line and an exit code.

Exit codes: 2 for a mistake in what was asked, 1 for what went wrong with it, 130 after Ctrl-C;
`sparrow run` has its own for tasks that failed.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from sparrow_py.errors import InvalidRequest, SparrowError

USAGE_EXIT = 2
ERROR_EXIT = 1
INTERRUPTED_EXIT = 128 + 2
BROKEN_PIPE_EXIT = 128 + 13
COMMANDS = ("cluster", "run", "submit", "results", "jobs", "cancel", "nodes", "cordon", "uncordon", "drain")
"""Each a module of this package that has a click command of the same name."""


class SparrowGroup(click.Group):
    """Imports a subcommand when it is asked for, and shows errors on one line, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The subcommands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of this name."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = getattr(importlib.import_module(f"frontends.cli.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run the subcommand; where its output is no longer read, as in `sparrow … | head`, end quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            # Nothing may be flushed at exit either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return BROKEN_PIPE_EXIT

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a subcommand, and exit with what it returns or with what its error means."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            code = super().main(args, prog_name or "sparrow", complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = USAGE_EXIT
        except (click.Abort, click.ClickException, SparrowError) as error:
            click.echo(f"sparrow: {one_line(error)}", err=True)
            code = exit_code(error)
        sys.exit(code or 0)


def one_line(error: Exception) -> str:
    """What the error says, on one line; for a mistake on the command line with where to read more."""
    if isinstance(error, click.Abort):
        return "interrupted"
    if not isinstance(error, click.ClickException):
        return " ".join(str(error).split())
    message = " ".join(error.format_message().split()).rstrip(".")
    if isinstance(error, click.UsageError) and error.ctx is not None:
        message += f" (see {error.ctx.command_path} --help)"
    return message


def exit_code(error: Exception) -> int:
    """The process's exit code after this error."""
    if isinstance(error, click.Abort):
        return INTERRUPTED_EXIT
    if isinstance(error, click.ClickException):
        return error.exit_code
    return USAGE_EXIT if isinstance(error, InvalidRequest) else ERROR_EXIT


@click.group(
    "sparrow", cls=SparrowGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
def main() -> None:
    """Run many small tasks on a Sparrow cluster, or on this machine.

    \b
    Examples:
      seq 100 | sparrow run -- factor {}       run `factor` for each line, on this machine's cores
      sparrow cluster --enable-command         start a cluster here, until Ctrl-C
      sparrow nodes -s 10.0.0.1:20503          what a scheduler's nodes do

    The schedulers to use are given with --scheduler or in SPARROW_SCHEDULER (separated by commas).
    """


if __name__ == "__main__":
    main()
