"""Figures of the altruistic scheduler, from small runs to the tables and the document."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.altruistic import aims
from benchmarks.altruistic.catalogue import (
    FIGURES,
    FULL,
    MIDDLE,
    OFFLINE,
    QUICK,
    SCALES,
    Case,
    offline,
    online,
    runs_of,
)
from benchmarks.altruistic.document import written
from benchmarks.altruistic.measuring import have_all
from benchmarks.altruistic.setups import Run
from benchmarks.altruistic.tables import factors, rows_of, targets_of
from benchmarks.paper.results import Result, writer


def _small(case: Case, schedulers: Sequence[str] = ("drf", "altruistic"), seeds: int = 1) -> Case:
    run = replace(case.run, jobs=2, machines=2)
    return replace(case, run=run, schedulers=tuple(schedulers), seeds=seeds)


def _result(run: Run, took_s: Sequence[float], **figures: float) -> Result:
    samples = {"completion_s": list(took_s), "rank": [float(place) for place in range(len(took_s))]}
    return Result(run.settings, {"jain": 0.5, "makespan_s": 1.0} | figures, "c", "d", 1, 1, 1.0, samples=samples)


def test_a_figure_has_a_row_a_scheduler_and_is_not_measured_twice(tmp_path: Path) -> None:
    case = _small(offline(scale=QUICK))
    results = tmp_path / "results.jsonl"
    first = list(have_all(case.runs(), results, 1))
    assert list(have_all(case.runs(), results, 1)) == first
    rows = rows_of(FIGURES["1"], [case], first)
    assert [(row["scheduler"], row["seeds"]) for row in rows] == [("drf", 1), ("altruistic", 1)]
    assert rows[0]["factor_of_means"] == "1.00" and float(rows[1]["mean_s"]) > 0
    targets = targets_of(FIGURES["1"], [case], first)
    assert len(targets) == 4 and {target.verdict for target in targets} <= {"met", "missed"}


@pytest.mark.rest
def test_online_runs_say_what_jobs_could_yield_and_follow_one_job() -> None:
    ours = _small(online(scale=QUICK)).of("altruistic", 0).measure()
    assert 0 <= ours.figures["leftover"] <= ours.figures["could_wait"] <= 1
    assert len(ours.samples["running"]) == len(ours.samples["lent"]) > 1 and max(ours.samples["running"]) > 0
    assert all(lent <= running for lent, running in zip(ours.samples["lent"], ours.samples["running"], strict=True))
    assert "leftover" not in _small(offline(scale=QUICK)).of("altruistic", 0).measure().figures


def test_factors_are_of_single_jobs_and_the_small_ones_are_told_by_their_work() -> None:
    base_s, took_s = np.array([10.0, 10.0, 10.0, 10.0]), np.array([5.0, 10.0, 20.0, 25.0])
    found = factors(base_s, took_s, np.array([0.0, 1.0, 3.0, 2.0]))
    assert found["factor"] == pytest.approx((2 + 1 + 0.5 + 0.4) / 4) and found["factor_of_means"] == pytest.approx(
        40 / 60
    )
    assert (found["slower"], found["below_0.8"], found["worst"]) == (0.5, 0.5, 0.4)
    assert found["small_below_0.8"] == 0.0
    assert factors(base_s, took_s, np.array([3.0, 2.0, 1.0, 0.0]))["small_below_0.8"] == 1.0
    assert "small_below_0.8" not in factors(base_s, base_s, np.arange(4.0))


def test_a_table_over_two_schedulers_has_rows_over_each() -> None:
    case = replace(_small(online(scale=QUICK), ("drf", "tetris", "altruistic")), over=("drf", "tetris"))
    times = {"drf": 4.0, "tetris": 3.0, "altruistic": 2.0}
    results = [_result(run, [times[run.scheduler]] * 2) for run in case.runs()]
    rows = {row["scheduler"]: row["factor"] for row in rows_of(FIGURES["table3"], [case], results)}
    assert rows == {"drf": "1.00", "tetris": "1.33", "altruistic": "2.00", "altruistic over tetris": "1.50"}


def test_targets_are_judged_over_the_seeds_that_all_schedulers_have() -> None:
    """Of the second seed there is none of DRF: our times there, which are as bad as can be, do not count."""
    case = _small(offline(scale=QUICK), seeds=2)
    results = [
        _result(case.of("drf", 0), [4.0, 4.0]),
        _result(case.of("altruistic", 0), [2.0, 2.0]),
        _result(case.of("altruistic", 1), [99.0, 99.0], jain=0.0),
    ]
    targets = targets_of(FIGURES["1"], [case], results)
    assert [target.verdict for target in targets] == ["met"] * 4
    assert not targets_of(FIGURES["1"], [case], results[2:])


def test_a_target_that_is_missed_says_by_how_much() -> None:
    ours = {"factor": 1.2, "factor_of_means": 1.2, "makespan_s": 11.0, "below_0.8": 0.1, "jain": 0.7}
    drf = {"makespan_s": 10.0, "jain": 0.73}
    targets = aims.of_offline({"tpcds/altruistic": ours, "tpcds/drf": drf})
    assert [(target.ours, target.met) for target in targets] == [
        ("1.200 (0.150 off)", False),
        ("1.100 (0.100 off)", False),
        ("0.100 (0.060 off)", False),
        ("0.030", True),
    ]


def test_the_frontier_names_the_best_setting_that_is_fair() -> None:
    found = {
        "tpcds/drf": {"jain": 0.8, "factor_of_means": 1.0},
        "tpcds/altruistic": {"jain": 0.6, "factor_of_means": 1.5},
        "tpcds/altruistic/altruism=0.5": {"jain": 0.76, "factor_of_means": 1.3},
        "tpcds/altruistic/altruism=0.25": {"jain": 0.79, "factor_of_means": 1.1},
    }
    (target,) = aims.of_frontier(found)
    assert target.ours == "1.300 (0.050 off) with `altruistic/altruism=0.5`" and target.met is False
    (target,) = aims.of_frontier({name: each for name, each in found.items() if "altruism=" not in name})
    assert target.ours == "no setting is so fair; `altruistic` is 0.200 below"


def test_each_figure_has_cases_at_all_scales_whose_runs_differ() -> None:
    for figure in FIGURES.values():
        for scale in SCALES.values():
            for case in figure.cases(scale):
                runs = [str(run.settings) for run in case.runs()]
                assert runs and len(set(runs)) == len(runs)
                assert "srtf" in case.schedulers or figure in (FIGURES["2.2"], FIGURES["8"])


def test_recording_plays_each_run_once_and_the_first_seeds_first() -> None:
    runs = runs_of(["1", "4", "5", "table3", "9"], FULL, 2)
    assert len(set(runs)) == len(runs) and [run.seed for run in runs] == sorted(run.seed for run in runs)
    assert len(runs) == 2 * (len(OFFLINE) + 4 * 5 + 3 * 3)


def test_a_figure_of_few_jobs_even_in_full_is_called_small_and_has_no_verdict(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    (case,) = FIGURES["lending"].cases(FULL)
    with writer(path) as file:
        for run in case.runs():
            file.add(_result(run, [4.0 if run.scheduler == "drf" else 3.5] * 2))
    text = written(path)
    section = text[text.index("## lending: ") :]
    assert section.splitlines()[0].endswith("(small)") and "missed (small: no verdict)" in section


def test_the_document_shows_the_largest_scale_with_a_whole_first_seed_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "results.jsonl"
    assert "## All targets" not in written(path) and "## Not measured yet" in written(path)
    for scale, runs, shown, mark in (
        (QUICK, 5, "quick", "missed (quick: no verdict)"),
        (FULL, 4, "quick", "missed (quick: no verdict)"),
        (MIDDLE, 5, "middle", "missed (middle)"),
        (FULL, 5, "full", "missed"),
    ):
        with writer(path) as file:
            for run in FIGURES["1"].cases(scale)[0].runs()[:runs]:
                file.add(_result(run, [4.0 if run.scheduler == "drf" else 3.5] * 2))
        text = written(path)
        section = text[text.index("## 1: ") : text.index("## 4: ")]
        assert section.splitlines()[0].endswith(f"({shown})") and f"1.143 (0.207 off), {mark}\n" in section
        assert written(path) == text
    assert "95 of 100 runs are not recorded yet" in section
    assert "at full scale 8 are recorded; of the" in text, "those of figure 1, and small ones of `lending`"
