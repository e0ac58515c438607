"""`python -m benchmarks.performance` writes docs/performance.md of what was recorded; nothing is run."""

from __future__ import annotations

from pathlib import Path

import click

from benchmarks.performance.document import text
from benchmarks.performance.results import DOCUMENT, RESULTS, read
from benchmarks.report import file_option
from sparrow_py.errors import SparrowError


@click.command(help="Write docs/performance.md of what `python -m benchmarks.all --results FILE` recorded.")
@file_option("results", RESULTS, "What was recorded.")
@file_option("out", DOCUMENT, "The page.")
def main(results: Path, out: Path) -> None:
    """A page without a single measurement is not written."""
    try:
        known = read(results)
    except SparrowError as error:
        raise click.ClickException(" ".join(str(error).split())) from None
    if not known:
        raise click.ClickException(f"nothing is recorded in {results}: python -m benchmarks.all --results {results}")
    try:
        out.write_text(text(known), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written ({error.strerror})") from None
    click.echo(f"wrote {out}", err=True)


if __name__ == "__main__":
    main()
