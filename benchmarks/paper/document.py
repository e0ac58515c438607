"""docs/paper.md, of the claims and the results: the same bytes for the same results, and nothing is run for it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.paper.claims import CLAIMS, Claim
from benchmarks.paper.quantities import SIZES, OfTests, Size
from benchmarks.paper.results import Result, Results, key
from benchmarks.paper.rules import INVALID, NOT_HERE, NOT_RUN
from benchmarks.paper.runs import LivePoint
from simulator.figures.intervals import Interval
from sparrow_py.profiles import DEFAULT, PAPER

PROFILES = (PAPER, DEFAULT)
COLUMNS = (
    "row", "the paper says", "paper's value", "ours, `paper`", "ours, `default`", "at", "verdict", "rule", "command",
    "time",
)  # fmt: skip
SUMMARY_COLUMNS = ("row", "paper's value", "ours, paper", "ours, default", "scale", "verdict")
CHAPTERS = {
    "1": "Introduction", "2": "Target Workload", "3": "Probe-Based Scheduling", "4": "Analysis",
    "5": "Simulation Results", "6": "Implementation", "7": "Experimental Evaluation",
    "8": "Limitations and Future Work", "9": "Related Work",
}  # fmt: skip
"""Of the paper, which have rows."""

UNCERTAIN = "uncertain"
"""Beside a verdict that more seeds may change."""

HEAD = (Path(__file__).parent / "head.md").read_text("utf-8")
"""What stands before the tables."""


@dataclass(frozen=True)
class Cell:
    """A number of ours. text: as it stands in the table; why_invalid: why it is no measurement."""

    value: Interval
    text: str
    why_invalid: str


def document(results: Results, claims: Iterable[Claim] = CLAIMS) -> str:
    """The whole page."""
    claims = tuple(claims)
    parts = [HEAD, _summary(claims, results), *_sections(claims, results), _measured(results)]
    return "\n".join(parts)


def _summary(claims: tuple[Claim, ...], results: Results) -> str:
    judged = [judgement(claim, results) for claim in claims]
    verdicts = Counter(said for said, _ in judged)
    uncertain = Counter(said for said, is_uncertain in judged if is_uncertain)
    counted = ", ".join(
        f"{count} {name}" + f" ({uncertain[name]} of them {UNCERTAIN})" * bool(uncertain[name])
        for name, count in verdicts.most_common()
    )
    return f"{len(claims)} rows: {counted}.\n"


def _sections(claims: tuple[Claim, ...], results: Results) -> Iterator[str]:
    for chapter, title in CHAPTERS.items():
        yield f"## §{chapter} {title}\n"
        yield "| " + " | ".join(COLUMNS) + " |"
        yield "|" + "---|" * len(COLUMNS)
        for claim in claims:
            if _chapter(claim) == chapter:
                yield "| " + " | ".join(row(claim, results)) + " |"
        yield ""


def _chapter(claim: Claim) -> str:
    """7 for "§7.2, figure 10"."""
    return claim.section[1]


def row(claim: Claim, results: Results) -> list[str]:
    """The cells of a claim."""
    size = shown_at(claim, results)
    cells = {profile: cell(claim, size, profile, results) for profile in PROFILES}
    says = f"{claim.section}: {claim.says}"
    if claim.also:
        says += f" (Also {claim.also}.)"
    if claim.note:
        says += f" *{claim.note}*"
    texts = [_text(found) for found in cells.values()]
    rule = "" if claim.rule is None else f"{claim.rule} {claim.unit}".strip()
    if claim.rule is not None and claim.judged != PAPER:
        rule += f" (of `{claim.judged}`)"
    if _is_test(claim):
        texts, rule = [_passed(cells[PAPER]), "–"], "the tests pass"
    return [
        f"`{claim.name}`", says, claim.paper, *texts, _where(claim, size, results), _verdict_text(claim, results), rule,
        _command(claim, size), _time(claim, size, results),
    ]  # fmt: skip


def summary(claim: Claim, results: Results) -> list[str]:
    """The cells of a claim for a terminal, as `SUMMARY_COLUMNS` names them: no Markdown."""
    size = shown_at(claim, results)
    cells = [cell(claim, size, profile, results) for profile in PROFILES]
    texts = [_passed(found) if _is_test(claim) and found else _text(found) for found in cells]
    scale = size.name if any(cells) and claim.ours is not None and claim.ours.of else "–"
    return [claim.name, claim.paper, *texts, scale, _verdict_text(claim, results).replace("**", "")]


def _is_test(claim: Claim) -> bool:
    return claim.ours is not None and any(isinstance(measure.spec, OfTests) for measure in claim.ours.of)


def _text(found: Cell | None) -> str:
    if found is None:
        return "–"
    return f"({found.text})" if found.why_invalid else found.text


def _passed(found: Cell | None) -> str:
    return "–" if found is None else "passes" if found.value.mean == 1 else "fails"


def shown_at(claim: Claim, results: Results) -> Size:
    """The largest scale at which there is the number that is judged; the smallest if there is none. What is no
    measurement counts less than any."""
    found = [(size, cell(claim, size, claim.judged, results)) for size in SIZES.values()]
    measured = [size for size, here in found if here is not None and not here.why_invalid]
    return (measured or [size for size, here in found if here is not None] or [SIZES["quick"]])[-1]


def cell(claim: Claim, size: Size, profile: str, results: Results) -> Cell | None:
    """Our number under a profile; None if there is none."""
    if claim.ours is None or (not claim.ours.of and profile != claim.judged):
        return None
    if claim.ours.of and not list(claim.ours.runs(size, profile)):
        return None
    found = claim.ours.value(size, profile, results)
    if found is None:
        return None
    text = f"{number(found.mean)} {claim.unit}".strip()
    if found.high > found.mean:
        text = f"{number(found.mean)} ± {number(found.high - found.mean)} {claim.unit}".strip()
    seeds, wanted = claim.ours.seeds(size, profile, results)
    if seeds < wanted:
        text += f" ({seeds} of {wanted} seeds)"
    return Cell(found, text, claim.ours.why_invalid(size, profile, results))


def number(found: float) -> str:
    """To three digits."""
    return f"{found:,.0f}" if abs(found) >= 100 else f"{found:.3g}"


def verdict(claim: Claim, results: Results) -> str:
    """By the claim's rule."""
    return judgement(claim, results)[0]


def judgement(claim: Claim, results: Results) -> tuple[str, bool]:
    """The verdict, and whether it is uncertain: the interval of the number that is judged reaches from one verdict's
    band into another's."""
    if claim.ours is None:
        return NOT_HERE, False
    found = cell(claim, shown_at(claim, results), claim.judged, results)
    if found is None:
        return NOT_RUN, False
    if found.why_invalid:
        return INVALID, False
    assert claim.rule is not None
    at_ends = {claim.rule.verdict(end) for end in (found.value.low, found.value.high)}
    said = claim.rule.verdict(found.value.mean)
    return said, at_ends != {said}


def _verdict_text(claim: Claim, results: Results) -> str:
    said, is_uncertain = judgement(claim, results)
    if said == NOT_HERE:
        return f"**{said}**: {claim.why_not}"
    if said == INVALID:
        found = cell(claim, shown_at(claim, results), claim.judged, results)
        assert found is not None
        return f"**{said}**: {found.why_invalid}"
    return f"**{said}**, {UNCERTAIN}" if is_uncertain else f"**{said}**"


def _where(claim: Claim, size: Size, results: Results) -> str:
    if claim.ours is None or not claim.ours.of:
        return "–"
    wheres = ", ".join(dict.fromkeys(measure.spec.where(size) for measure in claim.ours.of)) + _machine(
        claim, size, results
    )
    return f"`{size.name}`: {wheres}" if _is_scaled(claim) else wheres


def _machine(claim: Claim, size: Size, results: Results) -> str:
    """Of what runs daemons: the cores that all of them had, and whether the load generator was in time."""
    assert claim.ours is not None
    live = [run for run in claim.ours.runs(size, claim.judged) if run.live and key(run.settings) in results]
    if not live:
        return ""
    found = [results[key(run.settings)] for run in live]
    said = f" on {' and '.join(sorted({str(result.cores) for result in found}))} cores"
    if any(isinstance(run, LivePoint) for run in live):
        said += ", generator late" if any(result.why_invalid for result in found) else ", generator in time"
    return said


def _is_scaled(claim: Claim) -> bool:
    """Whether what it needs is another at another scale."""
    assert claim.ours is not None
    first, *_, last = (list(claim.ours.runs(size, claim.judged)) for size in SIZES.values())
    return first != last


def _command(claim: Claim, size: Size) -> str:
    if claim.ours is None or not claim.ours.of:
        return "–"
    commands = [measure.spec.command(size, claim.judged) for measure in claim.ours.of]
    if "" in commands:
        return f"`--only {claim.name}`"
    return ", ".join(f"`{command}`" for command in dict.fromkeys(commands))


def _time(claim: Claim, size: Size, results: Results) -> str:
    if claim.ours is None:
        return "–"
    runs = {key(run.settings) for profile in PROFILES for run in claim.ours.runs(size, profile)}
    # Rounded, as a sum in the order of a set may be another in another process in its last bit.
    took_s = round(math.fsum(results[run].took_s for run in runs if run in results), 1)
    return "–" if not runs or not took_s else duration(took_s)


def duration(seconds: float) -> str:
    """For people."""
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _measured(results: Results) -> str:
    """When, of which commits and on which machines."""
    kinds: Counter[tuple[str, str, int, int]] = Counter(
        (result.date, result.commit, result.cores, result.memory_gb) for result in results.values()
    )
    lines = ["## Measured", "", "| date | commit | machine | runs | no measurement |", "|---|---|---|---|---|"]
    for kind, count in sorted(kinds.items()):
        date, commit, cores, memory_gb = kind
        late = sum(_kind(result) == kind and bool(result.why_invalid) for result in results.values())
        lines.append(f"| {date} | `{commit}` | {cores} cores, {memory_gb} GB | {count} | {late} |")
    return "\n".join([*lines, ""])


def _kind(result: Result) -> tuple[str, str, int, int]:
    return result.date, result.commit, result.cores, result.memory_gb
