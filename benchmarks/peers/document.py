"""The tables of docs/peers.md, from results. They stand between markers, and the rest of the page is written by hand."""

# ruff: noqa: E501  (a paragraph of a document is one line)

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from benchmarks.flow.document import markdown_table
from benchmarks.habits.turns import OURS
from benchmarks.peers.cases import COMMANDS, NAMES, SCHEDULER, START, WORKER
from benchmarks.peers.outcome import POOL_TIMES_MAX, CaseResult, PeerResult, Run, against, best, number, ours_in, ratios
from benchmarks.peers.systems import peers

BEGIN, END = "<!-- made by `python -m benchmarks.peers --document`: from here -->", "<!-- to here -->"
CALLS = ("sequential", "at-once", "jobs-10", "jobs-100", "graph", "array", START, "memory")
FAULTS = (WORKER, SCHEDULER)
"""Seconds after a fault: of each peer by itself, so that peers may be measured one after the other, and no ratios."""
LOAD = ("load-25", "load-60", "load-80", "load-90", *FAULTS)
GROUPS = {
    "Calls, start and memory": CALLS,
    "Load, and faults": LOAD,
    "1,000 commands": (COMMANDS,),
}
assert sorted(name for group in GROUPS.values() for name in group) == sorted(NAMES)
REASON_CHARS_MAX = 90


def latest(runs: Iterable[Run]) -> dict[str, tuple[Run, CaseResult]]:
    """By case the last run that has it; those with `--quick` only where there is no other. Faults have peers of several
    runs."""
    found: dict[str, tuple[Run, CaseResult]] = {}
    for run in sorted(runs, key=lambda run: not run.quick):
        for name, case in run.cases.items():
            before = found.get(name)
            joins = name in FAULTS and before is not None and before[0].quick == run.quick
            found[name] = (run, _joined(before[1], case) if joins and before else case)
    return {name: found[name] for name in NAMES if name in found}


def _joined(before: CaseResult, after: CaseResult) -> CaseResult:
    """Peers of both; of one that is in both, as it was afterwards."""
    took_s = before.took_s + after.took_s
    return msgspec.structs.replace(after, peers=before.peers | after.peers, took_s=took_s, idle_cores=None)


def tables(runs: Sequence[Run]) -> str:
    """What stands between the markers."""
    found = latest(runs)
    if not found:
        return "Not measured yet.\n"
    aims = _aims({name: case for name, (_, case) in found.items()})
    parts = [_facts(found), "### What is aimed at, and what came of it", aims]
    for title, group in GROUPS.items():
        cases = {name: found[name][1] for name in group if name in found}
        if cases:
            parts += [f"### {title}", *_of_group(cases)]
    if lacking := [name for name in NAMES if name not in found]:
        parts.append(f"Not measured yet: {', '.join(lacking)}.")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def inserted(page: str, made: str) -> str:
    """The page with this between its markers. `ValueError` without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN!r} and {END!r}")
    return f"{before}{begin}\n\n{made}\n{end}{after}"


def _of_group(cases: Mapping[str, CaseResult]) -> list[str]:
    names = list(dict.fromkeys(name for case in cases.values() for name in case.peers))

    def of(cell: Callable[[CaseResult, str], str], last: Sequence[str] = ()) -> str:
        shown_in = {name: case for name, case in cases.items() if last or name not in FAULTS}
        headings = [case.title + (f", {case.unit}" if last else "") for case in shown_in.values()]
        rows = [[name, *(cell(case, name) for case in shown_in.values())] for name in names]
        shown = [row for row in rows if any(row[1:])]
        return markdown_table(["", *headings], [*shown, list(last)] if last else shown)

    turns = ["*turns; whole column took*", *(f"{_turns(case)}; {case.took_s:.0f} s" for case in cases.values())]
    parts = [of(_value, turns)]
    base = "sparrow run" if COMMANDS in cases else OURS
    parts += [f"`{base}` over each, turn by turn: median (least–most); below 1 ours is quicker or smaller.", of(_ratio)]
    if any(result.cpu_ms for case in cases.values() for result in case.peers.values()):
        parts += ["CPU time of all processes, ms a task (*start*: of the whole program; *array*: of all).", of(_cpu)]
    reasons = _reasons(cases)
    return [*parts, *([reasons] if reasons else [])]


def _aims(cases: Mapping[str, CaseResult]) -> str:
    """Case by case, whether ours is the best row but for pools, and within twice the time of the best of these."""
    known = peers()
    ours = {name for name, peer in known.items() if peer.ours}
    pools = {name for name, peer in known.items() if peer.pool}
    others = {name for name, peer in known.items() if not (peer.ours or peer.pool or peer.shown_only)}
    rows = []
    for case in cases.values():
        row = [f"{case.title}, {case.unit}"]
        for rivals, limit in ((others, 1.0), (pools, POOL_TIMES_MAX)):
            found = against(case, rivals, ours)
            if found is None:
                row.append("")
            else:
                verdict = "met" if found[2] <= limit else "**missed**"
                row.append(f"{verdict}: {found[1]} {number(found[2])} × {found[0]}")
        rows.append(row)
    return markdown_table(["", "better than all others", f"within {POOL_TIMES_MAX:g} × the best pool"], rows)


def _turns(case: CaseResult) -> int:
    return max((len(result.values) for result in case.peers.values()), default=0)


def _value(case: CaseResult, name: str) -> str:
    result = case.peers.get(name, PeerResult())
    if not result.values:
        return "–" if result.why else ""
    text = number(statistics.median(result.values))
    if result.p95:
        text += f" ({number(statistics.median(result.p95))})"
    return f"**{text}**" if best(case.peers) == name else text


def _ratio(case: CaseResult, name: str) -> str:
    found = None if name == ours_in(case) else ratios(case, name)
    return "" if found is None else found.text()


def _cpu(case: CaseResult, name: str) -> str:
    cpu_ms = case.peers.get(name, PeerResult()).cpu_ms
    return number(statistics.median(cpu_ms)) if cpu_ms else ""


def _reasons(cases: Mapping[str, CaseResult]) -> str:
    """Why cells are empty, and what must be known of others."""
    said: dict[tuple[str, str], list[str]] = {}
    for case in cases.values():
        for name, result in case.peers.items():
            if text := result.why or result.note:
                said.setdefault((case.title, _cut(text)), []).append(name)
    return "\n".join(f"- {title}, {', '.join(names)}: {text}." for (title, text), names in said.items())


def _cut(text: str) -> str:
    line = " ".join(text.split()).replace("|", "¦").replace("<", "‹").replace(">", "›").replace("*", "×")
    return line if len(line) <= REASON_CHARS_MAX else line[: REASON_CHARS_MAX - 1] + "…"


def _facts(found: Mapping[str, tuple[Run, CaseResult]]) -> str:
    runs: dict[str, list[str]] = {}
    for name, (run, _) in found.items():
        trips = [case.round_trip_ms for case in run.cases.values()]
        quick = " (`--quick`)" if run.quick else ""
        runs.setdefault(
            f"{run.date}, commit {run.commit}{quick}: {run.cores} cores, {run.memory_gb} GB, Python {run.python}, load {run.load:g}; a process pool's round trip took {number(min(trips))} to {number(max(trips))} ms before its cases",
            [],
        ).append(name)
    lines = [f"- {facts} ({', '.join(names)})." for facts, names in runs.items()]
    last = [run for run, _ in found.values()]
    versions = {name: version for run in last for name, version in run.versions.items() if version}
    lines.append("- " + ", ".join(f"{name} {version}" for name, version in versions.items()) + ".")
    lines += [
        f"- Left out: {name}: {why}." for name, why in {n: w for run in last for n, w in run.left_out.items()}.items()
    ]
    idle = [f"{case.idle_cores:g} ({name})" for name, (_, case) in found.items() if case.idle_cores is not None]
    if idle:
        lines.append(
            f"- Systems that wait for their turns take so many cores together, in everybody's times: {', '.join(idle)}."
        )
    return "\n".join(lines)
