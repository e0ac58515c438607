"""Plans and runs of workflows for people: as text, as DOT, as an HTML page."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence

from frontends.workflow.ir.dag import Dag, Operator
from frontends.workflow.ir.dot import dot
from frontends.workflow.ir.printing import printed_operator
from frontends.workflow.mapping.costs import JobCost
from frontends.workflow.mapping.partition import Plan
from frontends.workflow.mapping.sizes import Bounds, TableSize, relation_sizes
from frontends.workflow.running.driver import JobRun
from frontends.workflow.running.execution import FailedJob

RUNNERS_UP_SHOWN = 3
LINE_CHARS_MAX = 140
MILLION, THOUSAND = 1e6, 1e3


def plan_text(
    plan: Plan,
    tables: Mapping[str, TableSize],
    known: Mapping[str, TableSize],
    unmeasured: Sequence[str] = (),
    singles: Mapping[str, float] | None = None,
    unheeded: Iterable[str] = (),
    read_whole: Mapping[str, str] | None = None,
) -> str:
    """The jobs of a plan, their operators with bounds of rows, costs and runners-up.

    singles: the costs of the cheapest plans on one engine alone. unheeded: what is said of switches without effect.
    read_whole: {join: the relation that each mapper reads whole for it}.
    """
    sizes = relation_sizes(plan.dag, tables, known)
    lines = [
        f"{len(plan.jobs)} job{'s' * (len(plan.jobs) != 1)}, {plan.cost:.2f} s expected ({plan.search.value} search)"
    ]
    if unmeasured:
        lines.append(
            f"not calibrated, so planned with guesses: {', '.join(unmeasured)} (`sparrow workflow calibrate` measures)"
        )
    lines += unheeded
    for number, job in enumerate(plan.jobs, 1):
        lines += ["", f"job {number} on {job.engine}: {_cost_text(job.cost)}"]
        for other in job.alternatives[:RUNNERS_UP_SHOWN]:
            lines.append(f"  else {other.engine}: {_cost_text(other)}")
        for operator in plan.job_dag(job).operators:
            rows = _rows_text(sizes[operator.name].rows) if operator.name in sizes else ""
            lines.append(f"  {_line(operator)}{rows}")
            if read_whole and operator.name in read_whole:
                lines.append(f"    without a shuffle: each mapper reads {read_whole[operator.name]} whole")
    if singles:
        shown = ", ".join(f"{name} {cost:.2f} s" for name, cost in singles.items())
        lines += ["", f"on one engine alone: {shown}"]
    return "\n".join(lines) + "\n"


def run_text(jobs: Iterable[JobRun], failures: Iterable[FailedJob], seconds: float) -> str:
    """What ran, where and for how long."""
    lines = []
    for run in jobs:
        end = run.end
        rows = ", ".join(f"{name} {one.rows:,}" for name, one in end.made.items())
        start = f", {end.start_s:.2f} s of them to start it" if end.cold else ""
        lines.append(
            f"job {run.job.number} on {run.job.engine} at {end.node or '?'}: {end.wall_s:.2f} s{start}, "
            f"{end.cpu_s:.2f} s of CPU; rows: {rows}"
        )
    lines += [f"failed: {one}" for one in failures]
    lines.append(f"in all {seconds:.2f} s")
    return "\n".join(lines) + "\n"


def plan_dot(dag: Dag, jobs: Iterable[tuple[str, Iterable[str]]]) -> str:
    """The workflow as DOT, its operators grouped by jobs. jobs: of each its title and operators."""
    groups = {name: title for title, names in jobs for name in names}
    return dot(dag, groups)


def plan_html(title: str, text: str, dag: Dag, jobs: Sequence[tuple[str, Iterable[str]]]) -> str:
    """A page without scripts: the plan as text, and a table of operators for each job."""
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        f"<title>{html.escape(title)}</title>",
        "<style>body{font:15px/1.4 sans-serif;margin:2em;max-width:75em}"
        "pre{background:#f4f4f4;padding:1em;overflow:auto}"
        "section{border:1px solid #bbb;border-radius:6px;margin:1em 0;padding:0 1em}code{white-space:pre-wrap}</style>",
        f"<h1>{html.escape(title)}</h1><pre>{html.escape(text)}</pre>",
    ]
    for name, operators in jobs:
        chosen = set(operators)
        parts.append(f"<section><h2>{html.escape(name)}</h2><ul>")
        parts += [
            f"<li><code>{html.escape(printed_operator(one))}</code>" for one in dag.operators if one.name in chosen
        ]
        parts.append("</ul></section>")
    return "\n".join(parts) + "\n"


def _line(operator: Operator) -> str:
    text = printed_operator(operator).partition("\n")[0]
    return text if len(text) <= LINE_CHARS_MAX else text[: LINE_CHARS_MAX - 1] + "…"


def _cost_text(cost: JobCost) -> str:
    if cost.from_run:
        return f"{cost.seconds:.2f} s as in an earlier run (start {cost.start_s:.2f})"
    return (
        f"{cost.seconds:.2f} s (start {cost.start_s:.2f}, pull {cost.pull_s:.2f}, load {cost.load_s:.2f}, "
        f"process {cost.process_s:.2f}, push {cost.push_s:.2f})"
    )


def _rows_text(rows: Bounds) -> str:
    if rows.least == rows.most:
        return f"   [{_number(rows.likely)} rows]"
    return f"   [{_number(rows.least)} to {_number(rows.most)} rows, likely {_number(rows.likely)}]"


def _number(value: float) -> str:
    if value == float("inf"):
        return "any number of"
    if value >= MILLION:
        return f"{value / MILLION:.4g} M"
    return f"{value:,.0f}"
