"""The command: measures what is missing, row by row, and writes docs/paper.md."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.paper.claims import Claim, named
from benchmarks.paper.document import PROFILES, SUMMARY_COLUMNS, document, duration, summary, verdict
from benchmarks.paper.measuring import DOCUMENT, RESULTS, tried
from benchmarks.paper.quantities import SIZES, Size
from benchmarks.paper.results import Result, Results, Writer, key, read, writer
from benchmarks.paper.rules import NOT_HERE
from benchmarks.paper.runs import Run
from benchmarks.report import file_option, progress
from simulator.processes import side_by_side
from sparrow_py.errors import InvalidOption, SparrowError


@click.command(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
    help="Hold every figure, table and quantified sentence of the paper beside this implementation, and write the "
    "table. Results are kept as they come: stopped and started again, the command goes on. What is kept is not run "
    "again; to measure again, name files that are not there yet: --results NEW --out NEW.",
)
@click.option("--quick", is_flag=True, help="Short for --scale quick: 10 minutes at most on two quiet cores.")
@click.option("--scale", type=click.Choice(list(SIZES)), help="How large everything is run.  [default: full]")
@click.option("--only", multiple=True, metavar="NAME", help="Only this row, and print it; may be repeated.")
@click.option("--list", "listed", is_flag=True, help="List the rows with the time that they are expected to take.")
@click.option("--document", "document_only", is_flag=True, help="Run nothing: write the table from the results.")
@file_option("results", RESULTS, "Where results are kept.")
@file_option("out", DOCUMENT, "The document.")
@click.option("--processes", type=click.IntRange(1, 1024), default=os.cpu_count() or 1, show_default=False,
              help="Simulations at a time; live runs are one at a time.  [default: one per core]")  # fmt: skip
def main(
    quick: bool,
    scale: str | None,
    only: tuple[str, ...],
    listed: bool,
    document_only: bool,
    results: Path,
    out: Path,
    processes: int,
) -> None:
    """See the help."""
    if quick and scale not in (None, "quick"):
        raise click.ClickException(f"--quick is --scale quick, and --scale is {scale}")
    if listed and document_only:
        raise click.ClickException("--list and --document exclude each other")
    size = SIZES["quick" if quick else scale or "full"]
    try:
        claims, failed = named(only), 0
        if listed:
            _list(claims, size, read(results))
            return
        if not document_only:
            with writer(results) as file:
                failed = _measure(claims, size, read(results), file, processes)
        known = read(results)
        _write(out, document(known))
        if only:
            _print_rows(claims, known)
    except (InvalidOption, SparrowError) as error:
        raise click.ClickException(" ".join(str(error).split())) from None
    if failed:
        raise click.ClickException(f"{failed} runs failed; what they would have given is not in the document")


def runs_of(claims: Iterable[Claim], size: Size) -> dict[str, Run]:
    """All runs that these rows need at a scale, each once, by their keys."""
    return {
        key(run.settings): run
        for claim in claims
        if claim.ours is not None
        for profile in PROFILES
        for run in claim.ours.runs(size, profile)
    }


def missing(claims: Iterable[Claim], size: Size, known: Results) -> list[Run]:
    """Those that have no result, or one that is no measurement. First seeds come first, so that a command that is
    stopped has as many rows as it can."""
    found = [run for name, run in runs_of(claims, size).items() if name not in known or known[name].why_invalid]
    return sorted(found, key=lambda run: run.settings.get("seed", 0))


def _measure(claims: tuple[Claim, ...], size: Size, known: Results, file: Writer, processes: int) -> int:
    """Run what is missing; how many of them failed."""
    todo = missing(claims, size, known)
    expected_s = sum(run.expected_s for run in todo)
    progress(f"{len(todo)} runs are missing, about {duration(expected_s)} on one quiet core")
    failed = 0
    for done, (run, result) in enumerate(_results(todo, processes), 1):
        before = f"{done} of {len(todo)}, {key(run.settings)}"
        if isinstance(result, str):
            failed += 1
            progress(f"{before}: failed: {result}")
            continue
        file.add(result)
        late = f", no measurement: {result.why_invalid}" if result.why_invalid else ""
        progress(f"{before}: {result.took_s:.0f} s{late}")
    return failed


def _results(todo: list[Run], processes: int) -> Iterator[tuple[Run, Result | str]]:
    """Of the simulations, as they are ready; then of the live runs, one by one."""
    simulations = [run for run in todo if not run.live]
    yield from side_by_side(tried, simulations, min(processes, len(simulations)))
    for run in todo:
        if run.live:
            yield run, tried(run)


def _write(out: Path, text: str) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidOption("out", str(out), f"a file that can be written ({error.strerror})") from None
    click.echo(f"wrote {out}", err=True)


def _print_rows(claims: tuple[Claim, ...], known: Results) -> None:
    """What the document says of them, without the paper's sentences."""
    table = _table(SUMMARY_COLUMNS)
    for claim in claims:
        table.add_row(*summary(claim, known))
    _console().print(table)


def _table(columns: Iterable[str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for name in columns:
        table.add_column(name)
    return table


def _console() -> Console:
    """The terminal, or wide enough for a row a line."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=160)


def _list(claims: tuple[Claim, ...], size: Size, known: Results) -> None:
    """A row has the time of its own runs, of which rows may share some; the sum counts each once."""
    table = _table(("row", "section", "verdict so far", f"time at {size.name}", "of it missing"))
    for claim in claims:
        all_s = sum(run.expected_s for run in runs_of([claim], size).values())
        left_s = sum(run.expected_s for run in missing([claim], size, known))
        said = verdict(claim, known)
        nothing = said == NOT_HERE or not all_s
        times = ("–", "–") if nothing else (duration(all_s), duration(left_s) if left_s else "–")
        table.add_row(claim.name, claim.section, said, *times)
    console = _console()
    console.print(table)
    whole_s = sum(run.expected_s for run in runs_of(claims, size).values())
    console.print(f"in all {duration(whole_s)} on one quiet core at scale {size.name}")


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # On the way out, daemons are ended.
    main()
