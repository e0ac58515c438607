"""Writes what rows showed into docs/reliability.md: `python -m tests.faults.table REPORT`, as `make faults` does."""

from __future__ import annotations

import itertools
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from tests.faults.matrix import MEANING, Fault, Moment, Target, all_rows, why_not
from tests.faults.play import Observation

DOCUMENT = Path(__file__).parents[2] / "docs/reliability.md"
BEGIN, END = "<!-- fault matrix: begin -->", "<!-- fault matrix: end -->"


def read(report: Path) -> list[Observation]:
    """The rows of a report; of a row that was played several times, the last."""
    rows = [msgspec.json.decode(line, type=Observation) for line in report.read_bytes().splitlines()]
    return list({(row.target, row.fault, row.moment): row for row in rows}.values())


def write(rows: list[Observation], document: Path) -> None:
    """Put the tables between the two marks of the document."""
    text = document.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n\n{''.join(line + chr(10) for line in lines(rows))}\n{END}{after}")


def lines(rows: list[Observation]) -> Iterator[str]:
    """What is hit, what happens and when, in words; medians; then every row."""
    for kind, heading in ((Target, "what is hit"), (Fault, "what happens to it"), (Moment, "when")):
        yield from table(heading, ["meaning"], ([f"`{value}`", MEANING[value]] for value in kind))
        yield ""
    yield "Seconds until the client had been told of every task, the median over the moments:"
    yield ""
    targets = [f"`{target}`" for target in Target]
    yield from table("", targets, ([f"`{fault}`", *_medians(rows, fault)] for fault in Fault))
    yield ""
    yield "Left out:"
    yield ""
    yield from (f"- {reason}" for reason in left_out())
    for target in Target:
        yield ""
        yield f"### `{target}`: {MEANING[target]}"
        yield ""
        columns = ["when", "told after, s", "whole after, s", "outcomes", "again", "reasons told"]
        found = {(row.fault, row.moment): row for row in rows if row.target == target}
        order = [(fault, moment) for fault in Fault for moment in Moment if (fault, moment) in found]
        yield from table("what happens", columns, (_cells(found[key]) for key in order))


def table(first: str, others: list[str], rows: Iterable[list[str]]) -> Iterator[str]:
    """A table in Markdown."""
    yield f"| {' | '.join([first, *others])} |"
    yield f"|{'---|' * (1 + len(others))}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def left_out() -> list[str]:
    """Combinations that are left out, by their reasons."""
    moments: dict[tuple[Target, Fault, str], list[str]] = {}
    for target, fault, moment in itertools.product(Target, Fault, Moment):
        reason = why_not(target, fault, moment)
        if reason:
            moments.setdefault((target, fault, reason), []).append(f"`{moment}`")
    said = []
    for (target, fault, reason), when in moments.items():
        only = "" if len(when) == len(Moment) else f", {', '.join(when)}"
        said.append(f"`{target}`, `{fault}`{only}: {reason}")
    return said


def _medians(rows: list[Observation], fault: Fault) -> list[str]:
    cells = []
    for target in Target:
        seconds = [row.accounted_s for row in rows if row.target == target and row.fault == fault]
        known = [one for one in seconds if one is not None]
        cells.append(f"{statistics.median(known):.2f}" if known else "")
    return cells


def _cells(row: Observation) -> list[str]:
    told = "nobody to tell" if row.accounted_s is None else f"{row.accounted_s:.2f}"
    outcomes = ", ".join(f"{count} {status}" for status, count in sorted(row.outcomes.items()))
    reasons = "; ".join(sorted({plain(error) for error in row.errors}))
    again = str(row.restarted or "")
    return [f"`{row.fault}`", f"`{row.moment}`", told, f"{row.whole_s:.2f}", outcomes, again, reasons]


def plain(error: str) -> str:
    """An error without what differs from run to run."""
    text = re.sub(r"(job|scheduler) \S*-(many|once|others)-\d+(~\d+)?", r"\1 …", error)
    text = re.sub(r"scheduler-[0-9a-f]{12}", "…", text)
    text = re.sub(r"\d+\.\d+\.\d+\.\d+:\d+", "…", text)
    text = re.sub(r"/\S*/", "…/", text)
    return text.strip(": ").replace("|", "\\|")


def main() -> None:
    """Write the document, if the report has all rows."""
    rows = read(Path(sys.argv[1]))
    known = {(row.target, row.fault, row.moment) for row in rows}
    missing = [row.id for row in all_rows() if (row.target, row.fault, row.moment) not in known]
    if missing:
        sys.exit(f"{DOCUMENT} stays as it is: {len(missing)} rows were not played, {missing[0]} the first of them")
    write(rows, DOCUMENT)


if __name__ == "__main__":
    main()
