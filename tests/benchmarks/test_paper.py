"""docs/paper.md is what its command writes from the kept results; its rows are judged by their rules."""

from __future__ import annotations

import dataclasses
import re
import subprocess
import sys
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.paper import __main__ as command
from benchmarks.paper import measuring
from benchmarks.paper.claims import CLAIMS, Claim, named
from benchmarks.paper.document import document, judgement, summary, verdict
from benchmarks.paper.quantities import (
    SIZES,
    Measure,
    OfFigure,
    OfLive,
    OfSimulatedQueries,
    OfTests,
    Shape,
    excess,
    formula,
    passes,
    ratio,
    value,
)
from benchmarks.paper.results import Result, Results, key, read, writer
from benchmarks.paper.rules import (
    DIRECTION,
    INVALID,
    NOT_HERE,
    NOT_REPRODUCED,
    NOT_RUN,
    PASSES,
    REPRODUCED,
    Band,
    Rule,
    at_least,
    at_most,
    near,
)
from benchmarks.paper.runs import KEPT, Measured, Run, measured_records, numbers, slots_of
from loadgen.jobs import WorkloadJob
from simulator.figures.catalogue import FIGURES
from simulator.figures.sweep import compute
from simulator.records import JobRecord
from simulator.simulate import Result as Simulated
from sparrow_py.errors import ClusterError, InvalidOption
from tests.support.waiting import TIMEOUT_S

QUICK, FULL = SIZES["quick"], SIZES["full"]
POINT = Measure(OfFigure("5", "response", "d = 2", 0.6), "response_p50_ms")
CENTRAL = Measure(OfFigure("5", "response", "central", 0.6), "response_p50_ms")


def claim(**changes: Any) -> Claim:
    """A row of one number."""
    own: dict[str, Any] = {"name": "row", "section": "§5", "says": "It is so.", "paper": "1", "unit": "ms"}
    return Claim(**own | {"ours": value(POINT), "rule": Rule(Band(90, 110), Band(50, 200))} | changes)


def result(run: Run, figures: dict[str, float], **changes: Any) -> Result:
    """Of a run."""
    own = {"commit": "c", "date": "2026-01-01", "cores": 2, "memory_gb": 8, "took_s": 1.0}
    return Result(run=run.settings, figures=figures, **own | changes)


def results(*found: Result) -> Results:
    """By their keys."""
    return {key(one.run): one for one in found}


def measured(numbers_by_seed: dict[int, float], profile: str = "paper", size: Any = QUICK, **changes: Any) -> Results:
    """Results of `POINT`."""
    runs = POINT.spec.runs(size, profile)
    return results(
        *(result(runs[seed - 1], {POINT.name: ms}, **changes) for seed, ms in numbers_by_seed.items())
    )  # fmt: skip


# ---- the document ----------------------------------------------------------------------------


def test_the_document_is_what_the_command_writes_from_the_kept_results() -> None:
    """`python -m benchmarks.paper --document` writes it anew."""
    assert command.DOCUMENT.read_text("utf-8") == document(read(command.RESULTS))


def test_each_kept_result_is_of_a_row() -> None:
    known = {name for size in SIZES.values() for name in command.runs_of(CLAIMS, size)}
    assert not [name for name in read(command.RESULTS) if name not in known]


def test_kept_results_say_where_and_when() -> None:
    for one in read(command.RESULTS).values():
        assert re.fullmatch(r"[0-9a-f]{7,40}", one.commit), one
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", one.date) and one.cores and one.memory_gb


def test_rows_have_names_of_their_own_and_either_a_rule_or_a_reason() -> None:
    assert len({row.name for row in CLAIMS}) == len(CLAIMS)
    for row in CLAIMS:
        assert bool(row.why_not) == (row.ours is None) == (row.rule is None), row.name
        assert re.match(r"§[1-9]", row.section), row.name


def test_every_figure_and_table_of_the_paper_has_a_row() -> None:
    said = " ".join(f"{row.section} {row.also}" for row in CLAIMS)
    for name in [*(f"figure {n}" for n in range(1, 14)), *(f"table {n}" for n in range(1, 5))]:
        assert re.search(rf"{name}\b", said.replace("figures 10 and 11", "figure 10, figure 11")), name
    for chapter in range(1, 10):
        assert f"§{chapter}" in said


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_all_points_of_figures_are_there_at_each_scale(size: Any) -> None:
    for run in command.runs_of(CLAIMS, size).values():
        point = getattr(run, "point", None)
        assert point is None or point.policy
        assert run.expected_s > 0


def test_quick_takes_ten_minutes_at_most_on_one_quiet_core() -> None:
    assert sum(run.expected_s for run in command.runs_of(CLAIMS, QUICK).values()) < 600


def test_tests_that_rows_name_are_there() -> None:
    for run in command.runs_of(CLAIMS, QUICK).values():
        for name in getattr(run, "tests", ()):
            path, _, function = name.partition("::")
            assert Path(path).exists()
            assert not function or f"def {function.split('[')[0]}(" in Path(path).read_text("utf-8"), name


def test_kept_figures_are_what_rows_need() -> None:
    wanted = {
        measure.name.rpartition(".")[2]
        for row in CLAIMS
        if row.ours is not None
        for measure in row.ours.of
    }  # fmt: skip
    assert wanted <= KEPT


# ---- the verdict -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ms", "expected"),
    [(90, REPRODUCED), (110, REPRODUCED), (89.9, DIRECTION), (200, DIRECTION), (201, NOT_REPRODUCED)],
)
def test_the_verdict_is_the_rule_s(ms: float, expected: str) -> None:
    assert verdict(claim(), measured({1: ms})) == expected


def test_the_mean_over_seeds_is_judged() -> None:
    assert verdict(claim(), measured({1: 40, 2: 160})) == REPRODUCED
    assert "100 ± 762 ms" in document(measured({1: 40, 2: 160}), [claim()])


def test_a_number_says_how_many_seeds_it_has_where_some_are_missing() -> None:
    assert "| 100 ms (2 of 4 seeds) |" in document(measured({1: 100, 2: 100}), [claim()])
    assert "| 100 ms |" in document(measured(dict.fromkeys(range(1, 5), 100.0)), [claim()])


@pytest.mark.parametrize(
    ("by_seed", "uncertain"),
    [
        ({1: 100}, False),
        ({1: 99, 2: 101}, True),  # ± 12.7
        ({1: 99, 2: 101, 3: 99, 4: 101}, False),  # ± 1.8
        ({1: 120, 2: 121, 3: 119, 4: 120}, False),  # All of it is within the wider band.
        ({1: 115, 2: 105, 3: 115, 4: 115}, True),  # Some of it is within the narrower one.
    ],
)
def test_a_verdict_that_more_seeds_may_change_is_called_uncertain(by_seed: dict[int, float], uncertain: bool) -> None:
    found, row = measured(by_seed), claim()
    said, is_uncertain = judgement(row, found)
    assert is_uncertain is uncertain
    assert (f"**{said}**, uncertain |" in document(found, [row])) is uncertain
    assert ("(1 of them uncertain)" in document(found, [row])) is uncertain


def test_what_is_no_measurement_is_not_called_uncertain() -> None:
    assert judgement(claim(), measured({1: 40, 2: 160}, why_invalid="it was late")) == (INVALID, False)
    assert judgement(claim(), {}) == (NOT_RUN, False)


def test_without_a_result_it_is_not_run_and_without_a_number_not_here() -> None:
    assert verdict(claim(), {}) == NOT_RUN
    row = claim(ours=None, rule=None, why_not="there is none")
    assert verdict(row, {}) == NOT_HERE
    assert "**not here**: there is none" in document({}, [row])


def test_the_other_profile_s_number_stands_beside_and_is_not_judged() -> None:
    found = measured({1: 100}) | measured({1: 500}, "default")
    assert verdict(claim(), found) == REPRODUCED
    assert "| 100 ms (1 of 4 seeds) | 500 ms (1 of 4 seeds) |" in document(found, [claim()])
    assert verdict(claim(), measured({1: 100}, "default")) == NOT_RUN


def test_the_largest_scale_is_judged() -> None:
    found = measured({1: 500}) | measured({1: 100}, size=FULL)
    assert verdict(claim(), found) == REPRODUCED
    assert "`full`: simulated, 10,000 nodes" in document(found, [claim()])


def test_what_is_no_measurement_is_not_judged_and_says_why() -> None:
    late = measured({1: 100}, size=FULL, why_invalid="it was late")
    assert verdict(claim(), late) == INVALID
    assert "| (100 ms (1 of 3 seeds)) | – |" in document(late, [claim()])
    assert "**no measurement**: it was late" in document(late, [claim()])
    assert verdict(claim(), late | measured({1: 100})) == REPRODUCED  # A smaller scale that was measured counts more.


def test_a_live_row_says_how_many_cores_and_whether_the_generator_was_in_time() -> None:
    live = Measure(OfLive("fig9", 0.7), "p50")
    (point,) = live.spec.runs(QUICK, "paper")
    row = claim(ours=value(live))
    assert "`quick`: live, 25 × 4 slots |" in document({}, [row])
    in_time = results(result(point, {"p50": 100}))
    assert "`quick`: live, 25 × 4 slots on 2 cores, generator in time |" in document(in_time, [row])
    late = results(result(point, {"p50": 100}, why_invalid="it was late"))
    assert "on 2 cores, generator late |" in document(late, [row])


def test_ratios_are_of_the_same_seed() -> None:
    above, below = POINT.spec.runs(QUICK, "paper"), CENTRAL.spec.runs(QUICK, "paper")
    found = results(
        result(above[0], {POINT.name: 30}), result(below[0], {POINT.name: 10}),
        result(above[1], {POINT.name: 10}), result(below[2], {POINT.name: 10}),
    )  # fmt: skip
    assert ratio(POINT, CENTRAL).value(QUICK, "paper", found) == (3, 3, 3)
    assert excess(POINT, CENTRAL).value(QUICK, "paper", found) == (200, 200, 200)
    assert ratio(POINT, CENTRAL).value(FULL, "paper", found) is None


def test_there_is_no_ratio_to_nothing() -> None:
    above, below = POINT.spec.runs(QUICK, "paper"), CENTRAL.spec.runs(QUICK, "paper")
    found = results(result(above[0], {POINT.name: 30}), result(below[0], {POINT.name: 0}))
    assert ratio(POINT, CENTRAL).value(QUICK, "paper", found) is None


def test_central_has_no_profile_and_is_run_once() -> None:
    assert CENTRAL.spec.runs(QUICK, "paper") == CENTRAL.spec.runs(QUICK, "default")
    assert not set(POINT.spec.runs(QUICK, "paper")) & set(POINT.spec.runs(QUICK, "default"))


def test_a_simulation_that_several_figures_have_is_run_once() -> None:
    of_5, of_6, of_7 = (
        OfFigure("5", "response", "d = 2", 0.95),
        OfFigure("6", "exponential", "late binding (the paper's Sparrow)", 0.95),
        OfFigure("7", "response", "1 core a machine", 0.95),
    )
    for profile in ("paper", "default"):
        runs = [spec.runs(QUICK, profile)[0].settings for spec in (of_5, of_6, of_7)]
        assert runs[0] == runs[1] == runs[2]
    with_cancellation = OfFigure("4.3", "idle", "with cancellation", 1.0).runs(QUICK, "paper")[0].settings
    assert with_cancellation["cancellation"] is True


def test_a_row_of_tests_passes_or_fails() -> None:
    row = claim(ours=passes("tests/a.py"), rule=PASSES, unit="")
    (run,) = OfTests(("tests/a.py",)).runs(QUICK, "paper")
    assert "| passes | – |" in document(results(result(run, {"value": 1})), [row])
    assert verdict(row, results(result(run, {"value": 0}))) == NOT_REPRODUCED


def test_a_formula_needs_no_result() -> None:
    assert verdict(claim(ours=formula(lambda: 100.0)), {}) == REPRODUCED


def test_rules_in_words() -> None:
    assert str(near(100, 0.05, Band(50))) == "95 to 105; direction: at least 50"
    assert str(at_most(4, 8)) == "at most 4; direction: at most 8"
    assert str(at_least(2)) == "at least 2"
    assert str(near(166.5, 0.15, Band(high=10_000))) == "141.5 to 191.5; direction: at most 10,000"


def test_numbers_of_groups_have_their_names_before_a_dot() -> None:
    nested = {"p50": 1, "cpu_s": 3, "by_user": {"user0": {"p50": 2.0, "p5": None}}}
    assert numbers(nested) == {"p50": 1.0, "by_user.user0.p50": 2.0}


# ---- runs ------------------------------------------------------------------------------------


def test_profiles_differ_in_the_settings_of_the_same_point() -> None:
    papers, defaults = (POINT.spec.runs(QUICK, profile)[0] for profile in ("paper", "default"))
    one, other = papers.point, defaults.point  # type: ignore[attr-defined]
    alone = dataclasses.replace(QUICK.figures, profiles=("paper",))
    assert one == next(s.points[0] for s in FIGURES["5"](alone).samples if (s.curve, s.x) == ("d = 2", 0.6))
    assert dataclasses.replace(other, settings=one.settings) == one
    assert other.settings.push_to_idle and not one.settings.push_to_idle
    assert other.settings.probe_ratio == one.settings.probe_ratio == 2.0


def test_a_simulated_point_gives_what_the_simulator_gives() -> None:
    run = OfFigure("4.3", "idle", "as in the paper", 1.0).runs(QUICK, "paper")[0]
    assert run.measure().figures["asking_over_service"] == pytest.approx(
        compute(run.point)["asking_over_service"], 1e-4
    )  # type: ignore[attr-defined]


def test_what_a_user_receives_is_its_slot_time_over_what_it_asks_for_while_measured_jobs_arrive() -> None:
    """Jobs of a second that arrive at 0, 1, …, 19 s and start as they come, but one. Those of 2 to 18 s are measured:
    of 16 s ann's ask for 8, and get 7."""
    records = [JobRecord(WorkloadJob(n, float(n), ("ann", "bob")[n % 2], array("d", [1.0]), (), ())) for n in range(20)]
    for n, record in enumerate(records):
        record.ran(0, 30.0 if n == 10 else n, 0)
    found = Simulated({}, np.zeros(17), np.zeros(17), np.zeros(17), {}, 0, records)
    assert [record.job.number for record in measured_records(found)] == list(range(2, 19))
    assert slots_of("ann", found) == {"running": 7 / 16, "received": 7 / 8}
    assert slots_of("bob", found) == {"running": 8 / 16, "received": 1.0}


def test_queries_are_simulated_by_profile_and_random_placement_once() -> None:
    sparrow, random = (OfSimulatedQueries(0.5, 1.0, placement) for placement in ("sparrow", "random"))
    assert random.runs(QUICK, "paper") == random.runs(QUICK, "default")
    small = Shape(nodes=8, slots=4, schedulers=2)
    of = [
        dataclasses.replace(sparrow.runs(QUICK, profile)[0], shape=small, jobs=12)  # type: ignore[type-var]
        for profile in ("paper", "default")
    ]
    papers, defaults = (run.measure().figures for run in of)
    assert papers != defaults
    for figures in (papers, defaults):
        assert figures["value"] > 1 and figures["p95"] > figures["p50"] and figures["jobs_unfinished"] == 0
        assert 0 < figures["wait_p50"] < 100


# ---- the command -----------------------------------------------------------------------------


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The command, with results and document in a directory of their own; runs give 100 of everything."""
    monkeypatch.setattr(measuring, "measured", lambda one: result(one, dict.fromkeys(KEPT, 100.0)))

    def invoke(*words: str) -> Any:
        files = ["--results", str(tmp_path / "r.jsonl"), "--out", str(tmp_path / "d.md"), "--processes", "1"]
        return CliRunner().invoke(command.main, [*files, *words])

    return invoke


def test_it_goes_on_where_it_was_stopped(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def stopped_after_three(one: Run) -> Result:
        if len(done) == 3:
            raise KeyboardInterrupt
        done.append(key(one.settings))
        return result(one, {POINT.name: 100.0})

    monkeypatch.setattr(measuring, "measured", stopped_after_three)
    assert run("--quick", "--only", "within-4-percent").exit_code != 0
    kept = read(tmp_path / "r.jsonl")
    assert sorted(kept) == sorted(done)
    monkeypatch.setattr(
        measuring, "measured", lambda one: done.append(key(one.settings)) or result(one, {POINT.name: 1})
    )
    found = run("--quick", "--only", "within-4-percent")
    assert found.exit_code == 0, found.output
    assert len(done) == len(set(done)) == 12  # Four seeds of each profile, and of central.


def test_first_seeds_come_first() -> None:
    seeds = [run.settings["seed"] for run in command.missing(named(["within-4-percent"]), QUICK, {})]
    assert seeds == sorted(seeds) and set(seeds) == {1, 2, 3, 4}


def test_a_kept_result_is_found_again(tmp_path: Path) -> None:
    """Numbers in settings are the same after they were written and read."""
    path = tmp_path / "r.jsonl"
    wanted = command.runs_of(CLAIMS, QUICK)
    with writer(path) as file:
        for one in wanted.values():
            file.add(result(one, {"value": 1.0}))
    assert not command.missing(CLAIMS, QUICK, read(path))


def test_what_was_no_measurement_is_run_again(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whys = ["it was late"]
    monkeypatch.setattr(
        measuring, "measured", lambda one: result(one, {"value": 0.1}, why_invalid=whys.pop() if whys else "")
    )
    run("--quick", "--only", "recovery")
    assert "(0.1 s beyond ideal)" in (tmp_path / "d.md").read_text("utf-8")
    run("--quick", "--only", "recovery")
    assert "no measurement**: it" not in (tmp_path / "d.md").read_text("utf-8")
    assert len((tmp_path / "r.jsonl").read_bytes().splitlines()) == 1


def test_a_run_that_fails_leaves_the_others(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails_at_seed_2(one: Run) -> Result:
        if one.settings["seed"] == 2:
            raise ClusterError("no\nroom")
        return result(one, {POINT.name: 100.0})

    monkeypatch.setattr(measuring, "measured", fails_at_seed_2)
    found = run("--quick", "--only", "within-4-percent")
    assert found.exit_code == 1
    assert "failed: no room" in found.output and "Error: 3 runs failed" in found.output
    assert len(read(tmp_path / "r.jsonl")) == 9


def test_the_list_has_all_rows_and_runs_nothing(run: Any, tmp_path: Path) -> None:
    found = run("--list", "--quick")
    assert found.exit_code == 0
    assert all(f" {row.name} " in found.output for row in CLAIMS)
    assert not (tmp_path / "r.jsonl").exists() and not (tmp_path / "d.md").exists()


@pytest.mark.rest
def test_simulated_rows_are_run_by_several_processes(tmp_path: Path) -> None:
    """Of the real command: the pool's processes find what they are to do."""
    kept, page = tmp_path / "r.jsonl", tmp_path / "d.md"
    words = ["--quick", "--only", "idle-while-asking", "--processes", "2", "--results", str(kept), "--out", str(page)]
    line = [sys.executable, "-m", "benchmarks.paper", *words]
    done = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr
    wanted = command.runs_of(named(["idle-while-asking"]), QUICK)
    assert len(wanted) > 1 and set(read(kept)) == set(wanted)
    (row,) = [line for line in done.stdout.splitlines() if line.startswith(" idle-while-asking ")]
    assert all(cell in row for cell in summary(*named(["idle-while-asking"]), read(kept)))
    assert "not run" not in row and " quick " in row


def test_only_prints_the_rows_and_nothing_else_does(run: Any) -> None:
    found = run("--quick", "--only", "within-4-percent", "--only", "mesos")
    assert found.exit_code == 0, found.output
    within, mesos = (re.search(rf"^ {name} .*$", found.output, re.MULTILINE) for name in ("within-4-percent", "mesos"))
    assert within and mesos
    assert re.search(r" 4 % +0 % above central +0 % above central +quick +reproduced", within[0]), within[0]
    assert re.search(r" – +– +– +not here: ", mesos[0]), mesos[0]
    assert "**" not in found.output
    assert "within-4-percent" not in run("--document").output
    assert "0 %" in run("--document", "--only", "within-4-percent").output  # Of what is kept.


def test_a_summary_has_the_document_s_numbers_and_verdict() -> None:
    all_seeds = range(1, 5)
    found = measured(dict.fromkeys(all_seeds, 100.0)) | measured(dict.fromkeys(all_seeds, 500.0), "default")
    assert summary(claim(), found) == ["row", "1", "100 ms", "500 ms", "quick", REPRODUCED]
    assert summary(claim(), {})[2:] == ["–", "–", "–", NOT_RUN]
    late = measured({1: 100}, size=FULL, why_invalid="it was late")
    assert summary(claim(), late)[2:] == ["(100 ms (1 of 3 seeds))", "–", "full", f"{INVALID}: it was late"]


def test_the_help_says_how_to_measure_again(run: Any) -> None:
    assert "--results NEW --out NEW" in run("--help").output


def test_the_document_alone_runs_nothing(run: Any, tmp_path: Path) -> None:
    assert run("--document").exit_code == 0
    assert (tmp_path / "d.md").read_text("utf-8") == document({})


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "figure-99"], "only: 'figure-99' is not valid; allowed: a name of --list"),
        (["--quick", "--scale", "full"], "--quick is --scale quick, and --scale is full"),
        (["--list", "--document"], "--list and --document exclude each other"),
        (["--document", "--out", "/proc/none/d.md"], "out: '/proc/none/d.md' is not valid"),
        (["--only", "table-2", "--results", "/proc/none/r.jsonl"], "results: '/proc/none/r.jsonl' is not valid"),
    ],
)
def test_bad_settings_are_one_line(run: Any, words: list[str], said: str) -> None:
    found = run(*words)
    assert found.exit_code == 1
    assert found.output.startswith(f"Error: {said}") and found.output.count("\n") == 1


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"run": 1}\n')
    with pytest.raises(InvalidOption, match=r"r\.jsonl:1"):
        read(tmp_path / "r.jsonl")


def test_a_line_that_was_not_finished_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    one, other = POINT.spec.runs(QUICK, "paper")[:2]
    with writer(path) as file:
        file.add(result(one, {"value": 1}))
    path.write_bytes(path.read_bytes() + b'{"run": {')
    with writer(path) as file:
        file.add(result(other, {"value": 2}))
    assert sorted(found.figures["value"] for found in read(path).values()) == [1, 2]


def test_a_file_that_another_run_writes_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with writer(path), pytest.raises(InvalidOption, match="no other command"), writer(path):
        pass


def test_a_measurement_says_when_of_which_commit_and_where() -> None:
    class Quick:
        settings: ClassVar = {"what": "nothing"}

        def measure(self) -> Measured:
            return Measured({"value": 1.0}, "it was late")

    found = measuring.measured(Quick())  # type: ignore[arg-type]
    assert found.figures == {"value": 1.0} and found.why_invalid == "it was late"
    assert re.fullmatch(r"[0-9a-f]{10}(-dirty)?|unknown", found.commit) and re.fullmatch(r"\d{4}-\d\d-\d\d", found.date)
