"""`python -m simulator`: finds the command and turns errors into one line and an exit code.

Exit codes: 2 for a mistake in what was asked, 1 for what went wrong with it, 130 after Ctrl-C; `soak` has its own for
seeds that failed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from sparrow_py.errors import InvalidRequest, SparrowError

USAGE_EXIT = 2
ERROR_EXIT = 1
INTERRUPTED_EXIT = 128 + 2
COMMANDS = {
    "run": "simulator.run_command:run_command",
    "figure": "simulator.figure_command:figure_command",
    "soak": "simulator.soak:soak_command",
}


class SimulatorGroup(click.Group):
    """Imports a command when it is asked for, and shows errors on one line, without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name."""
        if cmd_name not in COMMANDS:
            return None
        module, name = COMMANDS[cmd_name].split(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and exit with what it returns or with what its error means."""
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, False, **extra)
        try:
            code = super().main(args, prog_name or "simulator", complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = USAGE_EXIT
        except (click.Abort, click.ClickException, SparrowError) as error:
            click.echo(f"simulator: {one_line(error)}", err=True)
            code = exit_code(error)
        sys.exit(code if isinstance(code, int) else 0)


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
    "simulator",
    cls=SimulatorGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
def main() -> None:
    """What would this policy do on my cluster? The daemons' own cores, under virtual time.

    \b
    Examples:
      python -m simulator run --nodes 200 --slots 4 --load 0.8 --policy sparrow,central
      python -m simulator run --nodes 200 --trace jobs.jsonl --probe-ratio 3 --json
      python -m simulator figure 5 --quick --out-dir figures
    """


if __name__ == "__main__":
    main()
