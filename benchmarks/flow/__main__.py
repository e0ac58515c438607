"""The commands of `python -m benchmarks.flow`."""

from __future__ import annotations

import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click
import msgspec
from rich.console import Console

from benchmarks.flow import contention_live, document, events, mixed, nodes
from benchmarks.flow.calibrate import COSTS, calibrated, write_costs
from benchmarks.flow.catalogue import FIGURES
from benchmarks.flow.outcome import Figure, Outcome, Row, Scale
from benchmarks.flow.plots import draw
from benchmarks.flow.results import DOCUMENT, RESULTS, FigureResult, add, measured, read
from benchmarks.flow.rounds import Settings, measure
from benchmarks.report import table
from sparrow_py.errors import InvalidOption, SparrowError

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}
RESULTS_OPTION = click.Option(
    ["--results"], type=click.Path(path_type=Path), default=RESULTS, show_default=False,
    help="Where results are kept.  [default: benchmarks/flow/results.jsonl]",
)  # fmt: skip


def _console() -> Console:
    """The terminal, or wide enough for a row a line."""
    console = Console(highlight=False, markup=False)
    return console if console.is_terminal else Console(highlight=False, markup=False, width=200)


def _show(title: str, rows: list[Row]) -> None:
    console = _console()
    console.print(title, style="bold")
    if rows:
        console.print(table(rows))


def show(figure: Figure, result: FigureResult) -> None:
    """Tables for people."""
    _show(f"{figure.name}: {figure.title} (paper: {figure.paper})", result.rows)
    _show("", [{"target": target.text, "ours": target.ours, "verdict": target.verdict} for target in result.targets])
    notes = list(result.notes)
    if figure.wall:
        notes.append(f"Wall times count only on quiet cores: the load was {result.load:g} on {result.cores}.")
    notes.append(f"{result.scale}, {result.took_s:g} s, {result.cpu_s:g} s of CPU, commit {result.commit}")
    for note in notes:
        _console().print(note, style="dim")


def _figure(names: tuple[str, ...], scale: str, as_json: bool, results: Path | None, out_dir: Path | None) -> None:
    failed = []
    for name in names or tuple(FIGURES):
        if name not in FIGURES:
            raise click.ClickException(f"{name} is no figure; there are {', '.join(FIGURES)}")
    for name in names or tuple(FIGURES):
        figure = FIGURES[name]
        try:
            result, outcome = measured(figure, Scale(scale))
            if results is not None:
                add(results, result)
            if out_dir is not None:
                _draw(figure, outcome, out_dir)
        except SparrowError as error:
            failed.append(f"{name}: {' '.join(str(error).split())}")
            continue
        if as_json:
            click.echo(msgspec.json.encode(result))
        else:
            show(figure, result)
    if failed:
        raise click.ClickException("; ".join(failed))


def _draw(figure: Figure, outcome: Outcome, directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for path in draw(figure.name, figure.title, outcome, directory):
            click.echo(f"wrote {path}", err=True)
    except OSError as error:
        raise InvalidOption("out-dir", str(directory), f"a directory that can be written ({error.strerror})") from None


def _workload(scale: str) -> None:
    _show("A workload like Google's of 2011", events.workload(Scale(scale)).rows)
    windows = FIGURES["5.9"]
    show(windows, measured(windows, Scale(scale))[0])


def _rounds(as_json: bool, **values: Any) -> None:
    """A figure with settings of one's own is no result to be kept."""
    figure = replace(FIGURES["rounds"], measure=lambda _: measure(Settings(**values)))
    result, _ = measured(figure, Scale.FULL)
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        show(figure, result)


def _nodes(as_json: bool, scale: str, results: Path | None, **values: Any) -> None:
    """As large as the scale says, or as wanted."""
    if not any(value is not None for value in values.values()):
        _figure((nodes.FIGURE.name,), scale, as_json, results, None)
        return
    if results is not None:
        raise click.UsageError("--results is for the figure as it is, without --nodes, --slots, --span or --busy")
    given = {name: value for name, value in values.items() if value is not None}
    settings = replace(nodes.settings(Scale(scale)), **given)
    figure = replace(nodes.FIGURE, measure=lambda _: nodes.measure(settings))
    result, _ = measured(figure, Scale(scale))
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        show(figure, result)


def _mixed(as_json: bool, scale: str, results: Path | None) -> None:
    _figure((mixed.FIGURE.name,), scale, as_json, results, None)


def _calibrate(scale: str, out: Path | None) -> None:
    costs, rows = calibrated(Scale(scale))
    _show("How well the formula foretells CPU times that its constants were not fitted to", rows)
    _show("", [{"constant": name, "value": value} for name, value in asdict(costs).items()])
    if out is None and scale != Scale.FULL.value:
        click.echo("nothing is written: these are constants of small clusters; --full or --out", err=True)
        return
    out = COSTS if out is None else out
    try:
        write_costs(costs, out)
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written ({error.strerror})") from None
    click.echo(f"wrote {out}", err=True)


def _contention_live(scale: str, as_json: bool) -> None:
    """A run on this machine's own network is no result to be kept."""
    live = Figure(
        "6.7 live", "Response times where links are contended, between network namespaces",
        "p99 6.2 × (Sparrow) that of Firmament", contention_live.compared, wall=True,
    )  # fmt: skip
    try:
        result, _ = measured(live, Scale(scale))
    except contention_live.NotHere as reason:
        click.echo(f"skipped: {reason}", err=True)
        return
    except SparrowError as error:
        raise click.ClickException(str(error)) from None
    if as_json:
        click.echo(msgspec.json.encode(result))
    else:
        show(live, result)


def _document(results: Path, out: Path) -> None:
    try:
        out.write_text(document.text(read(results)), encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{out} cannot be written ({error.strerror})") from None
    except SparrowError as error:
        raise click.ClickException(str(error)) from None
    click.echo(f"wrote {out}", err=True)


SCALE_OPTIONS: list[click.Parameter] = [
    click.Option(["--quick", "scale"], flag_value=Scale.QUICK.value, default=True, show_default=False,
                 help="A minute at most for a figure, on quiet cores.  [default]"),
    click.Option(["--full", "scale"], flag_value=Scale.FULL.value, help="At the paper's scale, half an hour at most."),
    click.Option(["--tiny", "scale"], flag_value=Scale.TINY.value, help="Seconds, to see that all works."),
]  # fmt: skip

main = click.Group(
    "flow",
    help="The figures of paper 004 about min-cost-flow solvers, and about the plane that uses them.",
    context_settings=CONTEXT,
    commands=[
        click.Command(
            "figure", callback=_figure, context_settings=CONTEXT,
            help=f"Measure figures, all by default: {', '.join(FIGURES)}.",
            params=[
                click.Argument(["names"], nargs=-1, metavar="[NAME]…"),
                *SCALE_OPTIONS,
                click.Option(["--json", "as_json"], is_flag=True, help="A JSON object a line in place of tables."),
                click.Option(["--results"], type=click.Path(path_type=Path), default=None,
                             help="Append results to this file, as JSON lines."),
                click.Option(["--out-dir"], type=click.Path(path_type=Path), default=None, help="Draw there, too."),
            ],
        ),
        click.Command(
            "workload", callback=_workload, context_settings=CONTEXT, params=SCALE_OPTIONS,
            help="Statistics of the made-up workload beside those that are published.",
        ),
        click.Command(
            "rounds", callback=_rounds, context_settings=CONTEXT,
            help="The figure of this name with other settings.",
            params=[
                click.Option(["--json", "as_json"], is_flag=True, help="A JSON object in place of tables."),
                click.Option(["--machines"], type=click.IntRange(2), default=12_500),
                click.Option(["--events"], type=click.IntRange(1), default=100, help="Arrivals, and completions."),
                click.Option(["--rounds"], type=click.IntRange(1), default=20),
                click.Option(["--skew"], type=click.FloatRange(0, 0.99), default=0.0,
                             help="How unequally machines are liked."),
                click.Option(["--prioritised/--not-prioritised"], default=True, help="Arc prioritisation."),
                click.Option(["--drains/--keeps"], default=True, help="Efficient task removal."),
            ],
        ),
        click.Command(
            "nodes", callback=_nodes, context_settings=CONTEXT,
            help="CPU time and memory of a scheduler of policy flow with many node monitors, idle and busy.",
            params=[
                *SCALE_OPTIONS,
                click.Option(["--json", "as_json"], is_flag=True, help="A JSON object in place of tables."),
                click.Option(["--results"], type=click.Path(path_type=Path), default=None,
                             help="Append the result to this file, as a JSON line."),
                click.Option(["--nodes"], type=click.IntRange(1, 100_000), default=None,
                             help="Node monitors.  [default: 200; with --full 2,000]"),
                click.Option(["--slots"], type=click.IntRange(1, 65_536), default=None,
                             help="Of each.  [default: 2]"),
                click.Option(["--span", "span_s"], type=click.FloatRange(0.1), default=None,
                             help="Seconds for each rate.  [default: 6; with --full 30]"),
                click.Option(["--busy"], type=click.FloatRange(0, 0.99), default=None,
                             help="Part of the slots that tasks hold which do not end.  [default: 0]"),
            ],
        ),
        click.Command(
            "mixed", callback=_mixed, context_settings=CONTEXT,
            help="Whether long tasks that policy flow placed are in the way of short ones that are sampled.",
            params=[
                *SCALE_OPTIONS,
                click.Option(["--json", "as_json"], is_flag=True, help="A JSON object in place of tables."),
                click.Option(["--results"], type=click.Path(path_type=Path), default=None,
                             help="Append the result to this file, as a JSON line."),
            ],
        ),
        click.Command(
            "contention-live", callback=_contention_live, context_settings=CONTEXT,
            help="Figure 6.7 with daemons in network namespaces whose links are narrow, two minutes; needs root.",
            params=[
                *SCALE_OPTIONS,
                click.Option(["--json", "as_json"], is_flag=True, help="A JSON object in place of tables."),
            ],
        ),
        click.Command(
            "calibrate", callback=_calibrate, context_settings=CONTEXT,
            help="Measure what rounds cost, for the figures in virtual time (6.2 to 6.5).",
            params=[
                *SCALE_OPTIONS,
                click.Option(["--out"], type=click.Path(path_type=Path), default=None, show_default=False,
                             help="Where the constants go.  [default: with --full benchmarks/flow/costs.json; else "
                             "they are only shown]"),
            ],
        ),
        click.Command(
            "document", callback=_document, context_settings=CONTEXT,
            help="Write docs/flow-figures.md from results.",
            params=[RESULTS_OPTION, click.Option(["--out"], type=click.Path(path_type=Path), default=DOCUMENT)],
        ),
    ],
)  # fmt: skip

if __name__ == "__main__":
    sys.exit(main())
