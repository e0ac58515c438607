"""`python -m benchmarks.habits TOOL`: the same work with another tool and with Sparrow."""

from __future__ import annotations

from typing import ClassVar

import click

from sparrow_py.daemon.command_group import CommandGroup


class Habits(CommandGroup):
    """A command for each tool."""

    commands_at: ClassVar = {
        "dask": "benchmarks.habits.dask_schedulers:main",
        "joblib": "benchmarks.habits.joblib_backends:main",
        "parallel": "benchmarks.habits.gnu_parallel:main",
    }


@click.group("benchmarks.habits", cls=Habits, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """The same work with another tool and with Sparrow, in turn: wall time, CPU time, ratios."""


if __name__ == "__main__":
    main()
