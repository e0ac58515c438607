"""`sparrow`, `python -m frontends.cli`: finds the subcommand. Exit codes are those of `CommandGroup`; `sparrow run` has
its own for tasks that failed."""

from __future__ import annotations

from typing import ClassVar

import click

from sparrow_py.daemon.command_group import CommandGroup

COMMANDS = (
    "cluster", "run", "attach", "submit", "results", "top", "jobs", "explain", "trace", "cancel", "schedulers", "nodes",
    "cordon", "uncordon", "drain", "lead", "doctor", "flow", "sql", "dataflow", "workflow",
)  # fmt: skip
"""Each a module of this package that has a click command of the same name."""


class SparrowGroup(CommandGroup):
    """The subcommands of `sparrow`."""

    commands_at: ClassVar = {name: f"frontends.cli.{name}:{name}" for name in COMMANDS}


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
