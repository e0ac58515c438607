"""Figures of the altruistic scheduler, from a small run to the table and the document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.altruistic.catalogue import FIGURES, offline
from benchmarks.altruistic.document import written
from benchmarks.altruistic.measuring import have_all
from benchmarks.altruistic.tables import rows_of, targets_of


def test_a_figure_has_a_row_a_scheduler_and_is_not_measured_twice(tmp_path: Path) -> None:
    case = offline("tpcds", quick=True, schedulers=("drf", "altruistic"))
    case = replace(case, run=replace(case.run, jobs=2, machines=2))
    results = tmp_path / "results.jsonl"
    (first,) = have_all(case.runs(), results, 1)
    assert list(have_all(case.runs(), results, 1)) == [first]
    rows = rows_of(FIGURES["1"], [case], [first])
    assert [(row["scheduler"], row["seeds"]) for row in rows] == [("drf", 1), ("altruistic", 1)]
    assert rows[0]["factor_of_means"] == "1.00" and float(rows[1]["mean_s"]) > 0
    targets = targets_of(FIGURES["1"], [case], [first])
    assert len(targets) == 4 and {target.verdict for target in targets} <= {"met", "missed"}


def test_the_document_leaves_out_figures_of_which_nothing_was_measured(tmp_path: Path) -> None:
    assert "## " not in written(tmp_path / "none.jsonl")


def test_each_figure_has_cases_in_both_sizes_whose_runs_differ() -> None:
    for figure in FIGURES.values():
        for quick in (False, True):
            runs = [str(run.settings) for case in figure.cases(quick) for run in case.runs()]
            assert runs and len(set(runs)) == len(runs)
