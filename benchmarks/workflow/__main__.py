"""The commands of `python -m benchmarks.workflow`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from benchmarks.dataflow import document as documents
from benchmarks.dataflow.results import measured
from benchmarks.dataflow.showing import show
from benchmarks.flow.results import add, read
from benchmarks.workflow import differences
from benchmarks.workflow.catalogue import FIGURES, MAPPING
from benchmarks.workflow.document import BEGINNING
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.results import DOCUMENT, RESULTS, Others
from benchmarks.workflow.workloads import work_directory
from sparrow_py.errors import SparrowError

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}
TPCH = "tpch"


@click.group(context_settings=CONTEXT)
def main() -> None:
    """Workflows on many engines, beside the figures of the thesis that they are built after."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What all commands that measure have."""
    for option in (
        click.option("--results", type=click.Path(path_type=Path), help="Append what was measured to this file."),
        click.option("--json", "as_json", is_flag=True, help="One line of JSON a row."),
        click.option("--quick", is_flag=True, help="Smaller and fewer: a minute or two."),
        click.option("--resume", is_flag=True, help="Measure what an interrupted run of the figure has left."),
        click.option("--repeat", type=click.IntRange(1), help="Runs of each way; without it as many as it needs."),
    ):
        command = option(command)
    return command


def _measure(
    names: Sequence[str], quick: bool, as_json: bool, results: Path | None, resume: bool, **given: Any
) -> None:  # fmt: skip
    """Measure figures. Arguments that were given go to those that take them."""
    try:
        kept: dict[str, Parts] = {}
        """By what measures them: figures of the same measurements share those."""
        for name in names:
            figure = FIGURES[name]
            file = f"{figure.measure.__module__}.{figure.measure.__name__}.{'quick' if quick else 'full'}.jsonl"
            if file not in kept:
                kept[file] = Parts(work_directory() / file, resume=resume)
            arguments = {key: value for key, value in given.items() if value is not None} | {"parts": kept[file]}
            taken = {key: value for key, value in arguments.items() if figure.takes(key)}
            others = Others()
            result = measured(name, figure, quick=quick, arguments=taken, written=(RESULTS, DOCUMENT))
            result = msgspec.structs.replace(result, load=round(others.load(), 1))
            if results is not None:
                add(results, result)
            show(figure, result, as_json=as_json)
        for parts in kept.values():
            parts.over()
    except SparrowError as error:
        raise click.ClickException(str(error)) from None


@main.command("figure")
@click.argument("figures", nargs=-1, type=click.Choice([name for name in FIGURES if name != TPCH]))
@click.option("--size", "sizes", type=click.IntRange(1), multiple=True, help="Sizes in the place of the figure's.")
@click.option("--scale", "scales", type=click.FloatRange(0.01), multiple=True, help="TPC-H's, of figure 4.6.")
@_options
def figure_command(figures: tuple[str, ...], sizes: tuple[int, ...], scales: tuple[float, ...], **options: Any) -> None:
    """Measure figures of chapter 4, without names all of them."""
    names = figures or [name for name in FIGURES if name != TPCH]
    _check_taken(names, sizes=sizes, scales=scales)
    _measure(names, sizes=sizes or None, scales=scales or None, **options)


@main.command("mapping")
@_options
def mapping_command(**options: Any) -> None:
    """Figures 4.10 and 4.11: how good the engines are to which costs send workflows."""
    _measure(MAPPING, **options)


@main.command("tpch")
@click.option("--scale", type=click.FloatRange(0.01), help="TPC-H's scale factor.")
@_options
def tpch_command(**options: Any) -> None:
    """All 22 queries of TPC-H in HiveQL on every engine that takes them."""
    _measure([TPCH], **options)


main.add_command(differences.main)


def _check_taken(names: Sequence[str], **given: object) -> None:
    """A usage error for an argument that a figure, named alone, does not take."""
    for key, value in given.items():
        if value and len(names) == 1 and not FIGURES[names[0]].takes(key):
            raise click.UsageError(f"{names[0]} does not take --{key.removesuffix('s')}")


@main.command("document")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="What was measured.")
@click.option("--out", type=click.Path(path_type=Path), default=DOCUMENT, help="The document.")
def write_document(results: Path, out: Path) -> None:
    """Write docs/workflow-figures.md from what was measured."""
    try:
        out.write_text(documents.text(FIGURES, read(results), BEGINNING))
    except SparrowError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
