"""The oracle of the fault matrix notices what it is there for, and the document says what the matrix is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults import oracle, table
from tests.faults.client_process import Submission, Told
from tests.faults.matrix import Fault, Moment, Row, Target, all_rows, pairwise, why_not
from tests.faults.play import Observation
from tests.faults.work import write_down


def submission(log: Path, **changes: int) -> Submission:
    fields: dict[str, int] = {"tasks": 2, "max_attempts": 2, **changes}
    return Submission(job="j", app="python", log=str(log), gate="gate", bomb="", **fields)


def told(*tasks: int, events: tuple[str, ...] = ("ended",)) -> list[Told]:
    outcomes = [Told(job="j", event="outcome", at_s=0.0, task=task, status=oracle.FINISHED) for task in tasks]
    return [*outcomes, *(Told(job="j", event=event, at_s=0.0) for event in events)]


@pytest.mark.parametrize(
    ("lines", "heard", "fault"),
    [
        (told(0, 1, 1), True, "told more than once"),
        (told(0, 1, 1, events=()), False, "told more than once"),
        (told(0), True, "not told of"),
        (told(0, 1, 2), True, "not told of"),
        (told(0, 1, events=()), True, "outcome"),
        (told(0, 1, events=("ended", "ended")), True, "ended"),
        (told(0, events=("refused",)), True, "refused, and told of"),
    ],
)
def test_it_notices_outcomes_that_are_missing_or_come_twice(
    tmp_path: Path, lines: list[Told], heard: bool, fault: str
) -> None:
    with pytest.raises(AssertionError, match=fault):
        oracle.check_told(submission(tmp_path / "log"), lines, heard=heard)


def test_it_takes_what_is_right(tmp_path: Path) -> None:
    job = submission(tmp_path / "log")
    oracle.check_told(job, told(1, 0), heard=True)
    oracle.check_told(job, told(events=("refused",)), heard=True)
    oracle.check_told(job, told(1, events=()), heard=False)  # The client died.


def test_it_notices_starts_beyond_what_is_allowed_and_ends_that_never_were(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        write_down(str(log), "start", 0)
    write_down(str(log), "end", 0)
    oracle.check_starts(submission(log), told(0))
    with pytest.raises(AssertionError, match="started 2 times"):
        oracle.check_starts(submission(log, max_attempts=1), told(0))
    with pytest.raises(AssertionError, match="finished without an end"):
        oracle.check_starts(submission(log), told(0, 1))


def test_only_jobs_that_may_be_lost_are(tmp_path: Path) -> None:
    row = Row(Target.NODE_MONITOR, Fault.SIGKILL, Moment.RUNNING)
    assert oracle.allowed(row, submission(tmp_path)) == {"finished"}
    assert oracle.allowed(row, submission(tmp_path, max_attempts=1)) == {"finished", "lost"}


def test_the_subset_has_every_pair_that_any_row_has() -> None:
    rows = all_rows()
    subset = pairwise(rows)
    assert set().union(*(row.pairs for row in subset)) == set().union(*(row.pairs for row in rows))
    assert len(subset) < len(rows) / 4
    assert all(not why_not(row.target, row.fault, row.moment) for row in subset)


def test_the_document_has_every_row() -> None:
    sections = table.DOCUMENT.read_text().split("\n### ")
    by_target = {section.split("`")[1]: section for section in sections[1:]}
    missing = [row.id for row in all_rows() if f"| `{row.fault}` | `{row.moment}` |" not in by_target[row.target]]
    assert missing == [], "make faults writes them"


def test_the_tables_go_between_their_marks_and_keep_no_names_of_a_run(tmp_path: Path) -> None:
    document = tmp_path / "document.md"
    document.write_text(f"before\n{table.BEGIN}\nwhat was there\n{table.END}\nafter\n")
    row = Observation(
        target="client", fault="sigkill", moment="idle", lasted_s=0.1, accounted_s=None, whole_s=2.0,
        outcomes={"lost": 2}, restarted=1, errors=["scheduler scheduler-0123456789ab at 10.0.0.1:5 went | away"],
    )  # fmt: skip
    table.write([row], document)
    text = document.read_text()
    assert text.startswith(f"before\n{table.BEGIN}\n") and text.endswith(f"{table.END}\nafter\n")
    assert "what was there" not in text
    assert "| `sigkill` | `idle` | nobody to tell | 2.00 | 2 lost | 1 | scheduler … at … went \\| away |" in text
