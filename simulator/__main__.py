"""`python -m simulator`: finds the command. Exit codes are those of `CommandGroup`; `soak` has its own for seeds that
failed."""

from __future__ import annotations

from typing import ClassVar

import click

from sparrow_py.daemon.command_group import CommandGroup


class SimulatorGroup(CommandGroup):
    """The commands of the simulator."""

    commands_at: ClassVar = {
        "run": "simulator.commands.run:run_command",
        "figure": "simulator.commands.figure:figure_command",
        "queries": "simulator.commands.queries:queries_command",
        "dags": "simulator.commands.dags:dags_command",
        "soak": "simulator.soak.command:soak_command",
    }


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
      python -m simulator queries --load 0.5,0.65 --placement sparrow,random --report queries
    """


if __name__ == "__main__":
    main()
