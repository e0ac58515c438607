"""`python -m scheduler.flow`: finds the command. Exit codes are those of `CommandGroup`."""

from __future__ import annotations

import importlib.util
from typing import ClassVar

import click

from sparrow_py.daemon.command_group import CommandGroup
from sparrow_py.distribution import install_command

EXTRA = "flow"
EXTRA_PACKAGES = ("numpy", "numba")


class FlowGroup(CommandGroup):
    """The commands of the flow room. All need its extra, if only once they have begun."""

    commands_at: ClassVar = {"solve": "scheduler.flow.solve_command:solve"}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name. An error that says what to install, if the extra is not there."""
        for package in EXTRA_PACKAGES:
            if importlib.util.find_spec(package) is None:
                raise click.ClickException(
                    f"the package {package} is not installed; it comes with {install_command(EXTRA)}"
                )
        return super().get_command(ctx, cmd_name)


@click.group("flow", cls=FlowGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
def main() -> None:
    """Flow networks, as schedulers of whole clusters solve them.

    \b
    Examples:
      python -m scheduler.flow solve cluster.min
    """


if __name__ == "__main__":
    main()
