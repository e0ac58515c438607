"""`python -m loadgen`: finds the command. Exit codes are those of `CommandGroup`."""

from __future__ import annotations

from typing import ClassVar

import click

from sparrow_py.daemon.command_group import CommandGroup
from sparrow_py.own_packages import take_names


class LoadgenGroup(CommandGroup):
    """The commands of the load generator."""

    commands_at: ClassVar = {
        "run": "loadgen.run_command:run_command",
        "trace": "loadgen.trace_command:trace_command",
        "dags": "loadgen.dags_command:dags_command",
    }
    extra = "loadgen"
    extra_packages = frozenset({"jinja2", "matplotlib", "psutil", "pyarrow"})


@click.group(
    "loadgen",
    cls=LoadgenGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
def main() -> None:
    """Replay workloads against live daemons, open loop, with the paper's experiments as presets.

    \b
    Examples:
      python -m loadgen run --preset fig9 --load 0.5,0.7 --probe-ratio 2 --report out/
      python -m loadgen run --preset queries --data /data/tpch --report out/
      python -m loadgen run jobs.jsonl --scheduler 10.0.0.1:20503,10.0.0.2:20503 --json
      python -m loadgen trace tpch --users 10 --load 0.65 --jobs 500 --out queries.jsonl
      python -m loadgen dags generate tpcds --jobs 250 --out tpcds.jsonl
    """


if __name__ == "__main__":
    take_names()
    main()
