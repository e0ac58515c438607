"""The matrix: what its rows allow, its pairs, and its document. Its oracle is the laboratory's, and is tested there
(tests/benchmarks/test_oracle.py)."""

from __future__ import annotations

from pathlib import Path

from benchmarks.laboratory.faults import Kind
from benchmarks.laboratory.jobs import Job, Way
from tests.faults import oracle, table
from tests.faults.matrix import Fault, Moment, Row, Target, all_rows, pairwise, why_not
from tests.faults.moments import kind_of
from tests.faults.play import Observation


def job(max_attempts: int) -> Job:
    return Job(name="j", user="faults", way=Way.CALLS, at_s=0.0, stages=(), max_attempts=max_attempts)


def test_only_jobs_that_may_be_lost_are() -> None:
    row = Row(Target.NODE_MONITOR, Fault.SIGKILL, Moment.RUNNING)
    assert oracle.allowed(row, job(3)) == {"finished"}
    assert oracle.allowed(row, job(1)) == {"finished", "lost"}


def test_what_a_row_does_has_a_name_in_the_laboratory() -> None:
    assert kind_of("kill", "scheduler-1") is Kind.KILL_SCHEDULER
    assert kind_of("isolate", "node-0") is Kind.ISOLATE_NODE
    assert kind_of("stop", "guest-0") is Kind.STOP_WORKER
    assert kind_of("stop", "client") is Kind.ISOLATE_CLIENT, "it may be given up"


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
