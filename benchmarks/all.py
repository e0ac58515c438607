"""Runs every benchmark in turn, each in an interpreter of its own; with `--json` one object per line.

With `--results FILE` each object is also appended there, with commit and date: docs/performance.md is written of it.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import click
import msgspec

from benchmarks.performance.catalogue import BENCHMARKS
from benchmarks.performance.results import add, printed, recorded
from sparrow_py.errors import SparrowError


@click.command(help="Run every benchmark in turn.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line instead of tables.")
@click.option("--repeat", type=click.IntRange(1), help="Repetitions of each.  [default: each benchmark's own]")
@click.option(
    "--only",
    multiple=True,
    type=click.Choice(list(BENCHMARKS)),
    metavar="NAME",
    help=f"Only this one; may be repeated. One of: {', '.join(BENCHMARKS)}.",
)
@click.option(
    "--results", type=click.Path(path_type=Path, dir_okay=False),
    help="Append a line of JSON for each that ran, and print its value instead of tables.",
)  # fmt: skip
def main(as_json: bool, repeat: int | None, only: tuple[str, ...], results: Path | None) -> None:
    """Exit with 1 if any failed."""
    failed = []
    for name in [name for name in BENCHMARKS if not only or name in only]:
        if not as_json:
            click.echo(f"== {name}")
        flags = [*(["--json"] if as_json or results else []), *(["--repeat", str(repeat)] if repeat else [])]
        command = [sys.executable, "-m", BENCHMARKS[name].module, *BENCHMARKS[name].arguments, *flags]
        try:
            ran_well = _ran(command) if results is None else _kept(name, command, results, as_json)
        except SparrowError as error:
            raise click.ClickException(" ".join(str(error).split())) from None
        if not ran_well:
            failed.append(name)
    if failed:
        click.echo(f"error: failed: {', '.join(failed)}", err=True)
        sys.exit(1)


def _ran(command: list[str]) -> bool:
    return not subprocess.run(command, check=False).returncode


def _kept(name: str, command: list[str], results: Path, as_json: bool) -> bool:
    """Whether it ran, and its object is in the file."""
    started_s = time.monotonic()
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    try:
        found = printed(done.stdout)
    except msgspec.MsgspecError:
        return False
    if done.returncode:
        return False
    took_s = time.monotonic() - started_s
    add(results, recorded(name, found, took_s))
    shown = done.stdout.decode().rstrip("\n") if as_json else f"{found.value:.4g} {found.unit}, took {took_s:.0f} s"
    click.echo(shown)
    return True


if __name__ == "__main__":
    main()
