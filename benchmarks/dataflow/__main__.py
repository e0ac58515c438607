"""The commands of `python -m benchmarks.dataflow`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from benchmarks.dataflow import document
from benchmarks.dataflow.catalogue import Figure
from benchmarks.dataflow.figures import CANARY, FIGURES, OTHERS, TEMPLATES
from benchmarks.dataflow.results import DOCUMENT, RESULTS, measured
from benchmarks.dataflow.showing import show
from benchmarks.flow.results import add, read
from sparrow_py.errors import SparrowError

CONTEXT = {"help_option_names": ["-h", "--help"], "show_default": True}


@click.group(context_settings=CONTEXT)
def main() -> None:
    """Programs over partitioned arrays, beside the figures of the papers that they are built after."""


def _options(command: Callable[..., None]) -> Callable[..., None]:
    """What all commands have."""
    for option in (
        click.option("--results", type=click.Path(path_type=Path), help="Append what was measured to this file."),
        click.option("--json", "as_json", is_flag=True, help="One line of JSON a row."),
        click.option("--quick", is_flag=True, help="Smaller and fewer: less than a minute on two cores."),
        click.option("--repeat", type=click.IntRange(1), help="Runs of each row; without it as many as it needs."),
    ):
        command = option(command)
    return command


def _run(
    group: str, figures: Mapping[str, Figure], names: Sequence[str], quick: bool, as_json: bool, results: Path | None,
    **given: int | None,
) -> None:  # fmt: skip
    """Measure figures of a group. Arguments that were given go to those that take them."""
    arguments = {name: value for name, value in given.items() if value is not None}
    for name in names:
        figure = figures[name]
        taken = {key: value for key, value in arguments.items() if figure.takes(key)}
        if len(names) == 1 and len(taken) < len(arguments):
            untaken = ", ".join(f"--{key}" for key in arguments if key not in taken)
            raise click.UsageError(f"{name} does not take {untaken}")
        result = measured(f"{group} {name}" if group else name, figure, quick=quick, arguments=taken)
        if results is not None:
            add(results, result)
        show(figure, result, as_json=as_json)


def _group(group: str, known: Mapping[str, Figure], help: str) -> click.Command:
    """The command of a paper's figures."""

    @click.argument("figures", nargs=-1, type=click.Choice(list(known)))
    @click.option("--tasks", type=click.IntRange(1), help="Tasks of a run or of an iteration, where a figure has them.")
    @_options
    def command(figures: tuple[str, ...], **options: Any) -> None:
        _run(group, known, figures or list(known), **options)

    return click.command(group, help=help)(command)


main.add_command(_group("canary", CANARY, "Figures of Canary: workers that spawn their tasks themselves."))
main.add_command(_group("templates", TEMPLATES, "Figures of execution templates: tasks that a controller commands."))


@main.command("compiled")
@click.option("--tasks", type=click.IntRange(1), help="Tasks of a run.")
@_options
def compiled_stages(**options: Any) -> None:
    """Tasks of compiled stages beside plain ones."""
    _run("", OTHERS, ["compiled"], **options)


@main.command("fig12")
@click.option("--size", type=click.IntRange(8), help="Cells in a row and in a column of the grid.")
@click.option("--frames", type=click.IntRange(1), help="Frames of the simulation.")
@_options
def water(**options: Any) -> None:
    """Figure 12 of execution templates: the example water beside the same by hand for MPI (the extra peers)."""
    _run("", OTHERS, ["fig12"], **options)


@main.command("links")
@_options
def links_command(**options: Any) -> None:
    """Round trips between two processes, with arrays of some sizes, beside a process pool's."""
    _run("", OTHERS, ["links"], **options)


@main.command("live")
@click.option("--workers", type=click.IntRange(1), help="Workers of each program.")
@_options
def live_command(**options: Any) -> None:
    """What a task and a round cost on workers of a cluster, by plane."""
    _run("", OTHERS, ["live"], **options)


@main.command("balance")
@_options
def balance_command(**options: Any) -> None:
    """A dear partition, even load, and a slow worker and a skew as Canary's figures 7 and 8 have them."""
    _run("", OTHERS, ["balance"], **options)


@main.command("moves")
@_options
def moves_command(**options: Any) -> None:
    """Iterations of two workers over TCP, with and without a partition of 128 MB that moves."""
    _run("", OTHERS, ["moves"], **options)


@main.command("shares")
@_options
def shares_command(**options: Any) -> None:
    """Slots of a program and of another user's backlog, by weight; `--repeat` is for windows of 10 s."""
    _run("", OTHERS, ["shares"], **options)


@main.command("peers")
@click.option("--iterations", type=click.IntRange(2), help="Of a turn.")
@_options
def peers_command(**options: Any) -> None:
    """A loop over partitions, here and in Ray, Dask, joblib, MPI, a process pool (the extra peers)."""
    _run("", OTHERS, ["peers"], **options)


@main.command("document")
@click.option("--results", type=click.Path(path_type=Path), default=RESULTS, help="What was measured.")
@click.option("--out", type=click.Path(path_type=Path), default=DOCUMENT, help="The document.")
def write_document(results: Path, out: Path) -> None:
    """Write docs/dataflow-figures.md from what was measured."""
    try:
        out.write_text(document.text(FIGURES, read(results)))
    except SparrowError as error:
        raise click.ClickException(str(error)) from None


if __name__ == "__main__":
    main()
