"""The report of a load run: one HTML page that needs nothing else, made from what the run recorded.

    python -m loadgen.report OUT_DIR

writes OUT_DIR/report.html anew. All numbers are computed from the tables, by `measures.figures`.
The page has no script and loads nothing. The same run gives the same bytes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loadgen import report_content as content
from loadgen import report_figures as figures
from loadgen import report_plots
from loadgen.recorded import Run, read_run
from loadgen.report_content import Group
from loadgen.report_figures import Plot
from sparrow_py.command_group import exit_code, one_line
from sparrow_py.errors import InvalidOption, SparrowError

REPORT_FILE = "report.html"
TEMPLATE_FILE = "report.html.jinja"

DETAILED_GROUPS_MAX = 12
"""Groups of points whose plots are drawn; the tables have all."""


def write_report(directory: str | Path) -> Path:
    """Make the report of the run that is recorded in the directory; where it was written.

    `InvalidOption` if the directory holds no run, or if it cannot be written to.
    """
    path = Path(directory) / REPORT_FILE
    page = render(read_run(directory))
    try:
        path.write_text(page, "utf-8")
    except OSError as error:
        raise InvalidOption("directory", str(directory), f"one that can be written to ({error.strerror})") from None
    return path


def render(run: Run) -> str:
    """The page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "ms": content.ms, "number": content.number, "percent": content.percent, "whole": content.whole,
        "name": content.text, "drawing": _Drawings().inline,
    }  # fmt: skip
    points = content.all_shown(run)
    groups = content.grouped(points)
    detailed = groups[:DETAILED_GROUPS_MAX]
    return environment.get_template(TEMPLATE_FILE).render(
        header=run.header,
        points=points,
        groups=groups,
        settings=content.common(points),
        columns=[name for name in content.varying(points) if name != "placement"],
        written=content.written,
        cpu_us=content.cpu_us_per_task,
        setting_names=content.SETTING_NAMES,
        sweeps=figures.sweeps(points, run.header.simulated),
        counts=list(dict.fromkeys(name for shown in points for name in shown.point.counts)),
        cpu_kinds=list(dict.fromkeys(kind for shown in points for kind in shown.point.cpu_s)),
        details=[(group, sections(group)) for group in detailed],
    )


def sections(group: Group) -> list[tuple[str, str, list[Plot]]]:
    """Headings, words and plots of a group, those that have plots."""
    found = [
        ("Response time by query", "How long jobs took from when they were due, beside the offline ideal: no queueing, "
         "no overhead, for the service times that occurred.", figures.response_by_label(group)),
        ("Waits of tasks", "From when a task could have started, its job's arrival or the end of the stages before, "
         "until it did.", figures.waits(group)),
        ("Tasks by user over time", "Darker ground: the time that is measured.", figures.tasks_by_user(group)),
        ("Utilisation over time", "Slots that run tasks.", figures.utilisation(group)),
        ("No-ops and cancellations over time", "GetTasks that got no task, and reservations that schedulers took back.",
         figures.events(group)),
    ]  # fmt: skip
    return [section for section in found if section[2]]


class _Drawings:
    """Puts drawings into a page, each with ids of its own."""

    def __init__(self) -> None:
        self._count = 0

    def inline(self, svg: str) -> Markup:
        self._count += 1
        return Markup(report_plots.with_own_ids(svg, f"p{self._count}-"))  # Drawn here: its text is escaped.


@click.command("loadgen.report", context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("directory", metavar="OUT_DIR")
def report_command(directory: str) -> None:
    """Write OUT_DIR/report.html anew from what a load run recorded in OUT_DIR."""
    click.echo(write_report(directory))


def main() -> None:
    """Run the command; an error is one line and an exit code."""
    try:
        report_command(standalone_mode=False)
    except (click.Abort, click.ClickException, SparrowError) as error:
        click.echo(f"loadgen.report: {one_line(error)}", err=True)
        sys.exit(exit_code(error))


if __name__ == "__main__":
    main()
