"""Runs every benchmark in turn, each in an interpreter of its own; with `--json` one object per line."""

from __future__ import annotations

import subprocess
import sys

import click

NAMES = (
    "cpu_per_task",
    "latency",
    "actor_calls",
    "hosted",
    "throughput",
    "startup",
    "turns",
    "submit_path",
    "memory",
    "dag",
    "failover",
    "blobs",
    "demo_overhead",
    "simulator",
    "full_machines",
    "sql_engine",
)


@click.command(help="Run every benchmark in turn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line instead of tables.")
@click.option("--repeat", type=click.IntRange(1), help="Repetitions of each.  [default: each benchmark's own]")
def main(as_json: bool, repeat: int | None) -> None:
    """Exit with 1 if any failed."""
    flags = [*(["--json"] if as_json else []), *(["--repeat", str(repeat)] if repeat else [])]
    failed = []
    for name in NAMES:
        if not as_json:
            click.echo(f"== {name}")
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *flags], check=False).returncode:
            failed.append(name)
    if failed:
        click.echo(f"error: failed: {', '.join(failed)}", err=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
