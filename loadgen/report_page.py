"""The page of a report: its parts in order, put into the template."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from loadgen import report_content as content
from loadgen import report_figures as figures
from loadgen import report_plots
from loadgen.recorded import Run
from loadgen.report_content import Group
from loadgen.report_figures import Plot

TEMPLATE_FILE = "report.html.jinja"

DETAILED_GROUPS_MAX = 12
"""Groups of points whose plots are drawn; the tables have all."""


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
        columns=[name for name in content.varying(points) if name not in content.WAYS],
        written=content.written,
        cpu_us=content.cpu_us_per_task,
        setting_names=content.SETTING_NAMES,
        sweeps=figures.sweeps(points, run.header.simulated),
        counts=list(dict.fromkeys(name for shown in points for name in shown.point.counts)),
        cpu_kinds=list(dict.fromkeys(kind for shown in points for kind in shown.point.cpu_s)),
        details=[(group, sections(group)) for group in detailed],
    )


def sections(group: Group) -> list[tuple[str, str, list[Plot]]]:
    """Headings, words and plots of a group's sections; those without plots are left out."""
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
