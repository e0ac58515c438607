"""Groups of commands: each command is imported when it is asked for, and an error is one line and an exit code.

Exit codes: 2 for a mistake in what was asked, 1 for what went wrong with it, 130 after Ctrl-C. A command that has codes
of its own returns them.
"""

from __future__ import annotations

import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import click

from sparrow_py.daemon.version import version_option
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.logs.printable import printable

USAGE_EXIT = 2
ERROR_EXIT = 1
INTERRUPTED_EXIT = 128 + 2
BROKEN_PIPE_EXIT = 128 + 13


class CommandGroup(click.Group):
    """See the module's docstring. `commands_at`: each command's name and where it is, as "module:name".

    `extra`: the distribution's extra that the commands need, and `extra_packages` what they import of it.
    """

    commands_at: ClassVar[Mapping[str, str]] = {}
    extra: ClassVar[str] = ""
    extra_packages: ClassVar[frozenset[str]] = frozenset()

    def __init__(self, name: str | None = None, *args: Any, **settings: Any) -> None:
        super().__init__(name, *args, **settings)
        self.params.append(version_option(name or ""))

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands, in the order of the help."""
        return list(self.commands_at)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name. An error that says what to install, if the extra that it needs is not there."""
        if cmd_name not in self.commands_at:
            return None
        module, name = self.commands_at[cmd_name].split(":")
        try:
            command: click.Command = getattr(importlib.import_module(module), name)
        except ModuleNotFoundError as error:
            package = (error.name or "").partition(".")[0]
            if package not in self.extra_packages:
                raise
            raise click.ClickException(
                f"the package {package} is not installed; it comes with {install_command(self.extra)}"
            ) from None
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, which suggests none of the commands that are not imported yet."""
        try:
            return super().resolve_command(ctx, args)
        except click.NoSuchCommand as error:
            raise click.NoSuchCommand(error.command_name, possibilities=self.commands_at, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; where its output is no longer read, as in `sparrow … | head`, end quietly."""
        try:
            return super().invoke(ctx)
        except BrokenPipeError:
            write_no_more()
            return BROKEN_PIPE_EXIT
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise
            write_no_more()
            raise click.ClickException(f"what this command writes is not whole: {error.strerror}") from None

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
            code = super().main(args, prog_name or self.name, complete_var, False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:
            error.show()
            code = USAGE_EXIT
        except (click.Abort, click.ClickException, SparrowError) as error:
            click.echo(f"{self.name}: {one_line(error)}", err=True)
            code = exit_code(error)
        sys.exit(code if isinstance(code, int) else 0)


def one_line(error: Exception) -> str:
    """What the error says, on one line; for a mistake on the command line with where to read more."""
    if isinstance(error, click.Abort):
        return "interrupted"
    if not isinstance(error, click.ClickException):
        return printable(" ".join(str(error).split()))
    message = printable(" ".join(error.format_message().split())).rstrip(".")
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


def write_no_more() -> None:
    """What is left for the standard output cannot be written: nothing may be flushed at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
