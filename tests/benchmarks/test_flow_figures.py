"""`benchmarks.flow`: each figure in a tiny form, what is written of it, and solves that take too long."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from benchmarks.flow.__main__ import main
from benchmarks.flow.by_size import COLD
from benchmarks.flow.catalogue import FIGURES
from benchmarks.flow.clusters import QuincyCluster, SpreadCluster, before_arrival
from benchmarks.flow.early import misplaced
from benchmarks.flow.outcome import BEYOND, MET, MISSED, NOT_AT_THIS_SCALE, Outcome, Plot, Scale, at_least, at_most
from benchmarks.flow.plots import draw, groups
from benchmarks.flow.results import FigureResult, add, measured, read
from benchmarks.flow.timed import within
from benchmarks.quincy_graphs import quincy_graph
from scheduler.flow.check import fault_of_solution
from scheduler.flow.problem import StoppedError
from scheduler.flow.solvers import cost_scaling
from sparrow_py.errors import InvalidOption
from tests.support.flow_problems import oracle_cost, oracle_flow


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


LIVE = [pytest.mark.rest, pytest.mark.processes]
DEAR = "2.19"
"""A figure that takes seconds in its tiny form, too."""


def marks_of(name: str) -> list[pytest.MarkDecorator]:
    return LIVE if FIGURES[name].live else [pytest.mark.rest] if name == DEAR else []


@pytest.mark.timeout(360)  # Solvers that only figures need are compiled here on a fresh machine.
@pytest.mark.parametrize("name", [pytest.param(name, marks=marks_of(name)) for name in FIGURES])
def test_each_figure_in_a_tiny_form(name: str) -> None:
    """Whatever comes out is told, and what is exact is right."""
    result, outcome = measured(FIGURES[name], Scale.TINY)
    assert result.rows and all(row.keys() == result.rows[0].keys() for row in result.rows)
    assert result.commit and result.date and result.cores >= 1
    exact = [target for target in result.targets if "the same cost" in target.text]
    assert all(target.verdict == MET for target in exact)
    if outcome.plot is not None:
        assert {outcome.plot.x, *outcome.plot.ys} <= result.rows[0].keys()


@pytest.mark.rest
def test_the_command_prints_tables_keeps_results_and_draws(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    assert run("figure", "5.10", "--tiny", "--results", str(results)).exit_code == 0
    done = run("figure", "5.9", "--tiny", "--results", str(results), "--out-dir", str(tmp_path))
    assert done.exit_code == 0, done.output
    assert "under 10 events" in done.output
    assert [result.figure for result in read(results)] == ["5.10", "5.9"]
    assert {path.name for path in tmp_path.glob("*.svg")} == {"flow-figure-5.9.svg"}
    page = tmp_path / "page.md"
    assert run("document", "--results", str(results), "--out", str(page)).exit_code == 0
    assert "| 5.9 | tiny | half a second: under 10 events" in page.read_text()


def test_rows_of_different_solvers_have_lines_of_their_own(tmp_path: Path) -> None:
    rows = [{"who": who, "x": x, "y": x * 1.0} for who in ("a", "b") for x in (1, 2)]
    assert {name: len(found) for name, found in groups(rows, "who").items()} == {"a": 2, "b": 2}
    assert groups(rows, "") == {"": rows}
    (_, svg) = draw("n", "title", Outcome(rows, plot=Plot("x", ("y",), "x", "y", by="who")), tmp_path)
    assert svg.read_text().count('id="line2d_') > 0 and {path.suffix for path in tmp_path.iterdir()} == {".png", ".svg"}


def test_json_is_one_object_a_figure() -> None:
    done = run("figure", "5.9", "--tiny", "--json")
    row = json.loads(done.stdout)
    assert row["figure"] == "5.9" and row["scale"] == "tiny" and len(row["rows"]) == 4


def test_the_workload_beside_what_is_published() -> None:
    done = run("workload", "--tiny")
    assert done.exit_code == 0 and "135,000" in done.output and "1,800" in done.output


def test_rounds_with_other_settings() -> None:
    done = run("rounds", "--machines", "20", "--events", "2", "--rounds", "2", "--not-prioritised", "--keeps")
    assert done.exit_code == 0 and "extraction" in done.output


def test_settings_of_ones_own_are_no_figures_results(tmp_path: Path) -> None:
    done = run("nodes", "--nodes", "3", "--results", str(tmp_path / "r"))
    assert (
        done.exit_code == 2 and "--results is for the figure as it is" in done.output and not (tmp_path / "r").exists()
    )


def test_unknown_figures_are_named() -> None:
    done = run("figure", "9.9", "--tiny")
    assert done.exit_code == 1 and "9.9 is no figure; there are 2.19, 5.5" in done.output


def test_files_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("{}\n")
    with pytest.raises(InvalidOption, match=r"r:1.*a result"):
        read(tmp_path / "r")
    done = run("figure", "5.9", "--tiny", "--out-dir", str(tmp_path / "r"))
    assert done.exit_code == 1 and "a directory that can be written" in done.output
    assert read(tmp_path / "none") == []


def test_results_are_appended(tmp_path: Path) -> None:
    one = FigureResult("5.9", "tiny", [], [], [], "abc", "2026-01-01", 2, 8, 0.5, 1.0, 1.0)
    add(tmp_path / "r", one)
    add(tmp_path / "r", one)
    assert read(tmp_path / "r") == [one, one]


def test_a_solve_that_takes_too_long_is_stopped_and_marked() -> None:
    def endless(stop: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
        while stop[0] == 0:
            pass
        raise StoppedError("told to stop")

    done = within(0.05, endless)
    assert done.result is None and done.cell == BEYOND and done.cpu_s > 0
    assert within(60.0, lambda stop: 1).cell < 60.0  # type: ignore[operator]


def test_verdicts() -> None:
    assert (at_most("", 1.0, 2.0).verdict, at_most("", 3.0, 2.0).verdict) == (MET, MISSED)
    assert (at_least("", 1.0, 2.0).verdict, at_least("", None, 2.0).verdict) == (MISSED, MISSED)
    assert at_most("", None, 2.0, tells=False).verdict == NOT_AT_THIS_SCALE


@pytest.mark.parametrize("name", COLD)
def test_cold_solvers_of_figure_5_5_agree(name: str) -> None:
    problem = quincy_graph(15).problem
    assert COLD[name](problem, np.zeros(1, np.int64)) == oracle_cost(problem)


def test_rounds_of_a_cluster_stay_of_least_cost() -> None:
    cluster = QuincyCluster(quincy_graph(20))
    for _ in range(3):
        cluster.solver.solve()
        assert cluster.graph.solution().cost == oracle_cost(cluster.graph.problem())
        cluster.place()
        cluster.age()
        cluster.happen(4)


def test_load_spreading_fills_the_emptiest_machines_first() -> None:
    cluster = SpreadCluster(6, 8, slots=4, utilisation=0.5)
    cluster.running[:] = [0, 1, 2, 3, 4, 4]
    problem = cluster.problem(5)
    solution = cost_scaling.solve(problem)
    assert fault_of_solution(problem, solution) == ""
    cluster.place(solution)
    assert sorted(cluster.running.tolist()) == [2, 3, 3, 3, 4, 4]
    cluster.end(3)
    assert cluster.running.sum() == 16


def test_no_machine_begins_with_more_than_its_slots() -> None:
    cluster = SpreadCluster(40, 1, slots=3, utilisation=0.95)
    assert cluster.running.max() <= 3 and cluster.running.sum() == int(0.95 * 120)


def test_what_is_misplaced() -> None:
    """Nothing in the optimum; every new task before it has arrived."""
    quincy = quincy_graph(10, arriving=0.1)
    best, before = oracle_flow(quincy.problem), oracle_flow(before_arrival(quincy))
    assert misplaced(quincy, best, best) == 0
    assert misplaced(quincy, before, best) >= int((quincy.running_on < 0).sum())
