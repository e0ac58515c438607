"""`python -m benchmarks.dataflow` measures what it says; how much, is for people to judge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.dataflow import (
    balance,
    canary_fig9,
    canary_scaling,
    canary_table1,
    compiled,
    document,
    fig10,
    fig12,
    live,
    live_scaling,
    messages,
    moves,
    peers,
    scaling,
    shares,
    table3,
    table4,
    targets,
)
from benchmarks.dataflow.__main__ import main
from benchmarks.dataflow.examples_taken import program_of
from benchmarks.dataflow.fig4 import measured, spinning
from benchmarks.dataflow.figures import CANARY, FIGURES, TEMPLATES
from benchmarks.dataflow.local_pump import LocalInTime, LocalPump
from benchmarks.dataflow.peers_others import Pool
from benchmarks.dataflow.pump import Cluster, Pump
from benchmarks.dataflow.regression import Timed, no_ops, regression
from benchmarks.flow.outcome import MET, MISSED, Row, Target
from benchmarks.flow.results import FigureResult, read
from examples.dataflow import pagerank
from frontends.dataflow.commanding_core import Event
from tests.support.dataflow_programs import logistic_data


def test_fig_4_has_a_row_for_each_number_of_partitions_and_kind_of_task() -> None:
    done = CliRunner().invoke(main, ["canary", "fig4", "--json", "--repeat", "1", "--tasks", "200"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert [(row["partitions"], row["task"]) for row in rows] == [
        (count, task) for count in (1, 4, 10, 40) for task in ("no-op", "6.6 µs")
    ]
    assert [row["aim_ns"] for row in rows] == [None, None, 735, 735, 735, 735, None, None]
    assert all((row["share_of_1_ms_%"] is not None) == (row["task"] == "no-op") for row in rows)


def test_each_task_and_signal_of_a_run_is_counted() -> None:
    _, alone, tasks = measured(3, spinning(1000), rounds=4)
    assert tasks == 4 * 3 * 4 + 5 and alone > 0, "and not those of the run that derives the graph"


@pytest.mark.rest
def test_compiled_tasks_are_measured_beside_plain_ones_in_short_chains_and_long_ones() -> None:
    rows = compiled.rows(repeat=1, tasks=100, partitions=(40,))
    assert [(row["task"], row["tasks_a_chain"]) for row in rows] == [
        (task, chain) for task in ("no-op", "4 elements") for chain in (4, 244)
    ]
    for row in rows:
        assert float(str(row["plain_ns"])) > 0 and float(str(row["compiled_ns"])) > 0


@pytest.mark.rest
def test_tasks_of_a_program_are_counted_though_many_run_as_one() -> None:
    _, tasks = compiled.Program(5, "no-op", 3, is_compiled=True).run(2)
    assert tasks == 2 * 3 * 4 * 5 + 3


def test_water_by_hand_for_mpi_has_the_surface_of_ours() -> None:
    pytest.importorskip("mpi4py")
    theirs, mine = fig12.by_hand(40, 1, 2), fig12.ours(40, 1, 4, "inline")
    assert np.abs(theirs.surface - mine.surface).max() < fig12.DIFFERENCE_MAX_M
    assert theirs.steps == mine.steps


@pytest.mark.rest
@pytest.mark.processes
def test_loops_on_workers_have_a_row_for_each_plane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "PARTITIONS", {"no-ops": 6, "waits": 2})
    rows = live.rows(repeat=1, share=0.01)
    assert [(row["loop"], row["plane"]) for row in rows] == [
        (kind, plane) for kind in live.CALLS for plane in live.PLANES
    ]
    assert all(float(str(row["us a round"])) > 0 for row in rows)


@pytest.mark.rest
def test_figures_of_templates_have_their_rows() -> None:
    done = CliRunner().invoke(
        main, ["templates", "table3", "table4", "validation", "--json", "--repeat", "1", "--tasks", "400"]
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert [row["plane"] for row in rows if row["figure"] == "templates table4"] == list(table4.PLANES)
    assert {row["cost"] for row in rows if row["figure"] == "templates table3"} >= set(table3.PAPER_US)
    assert all(row["objects"] == 400 for row in rows if row["figure"] == "templates validation")
    assert {row["figure"] for row in rows} < {f"templates {name}" for name in TEMPLATES}


def test_one_partition_that_costs_four_times_is_within_15_percent_of_the_best_after_5_s() -> None:
    rows = balance.dear_rows(repeat=1)
    assert len(rows) == 9
    for row in rows:
        assert row["worst run"] <= balance.BESIDE_BEST_MAX and row["moves"] >= 1, row  # type: ignore[operator]
        assert row["before (ms)"] > row["after 5 s (ms)"], row  # type: ignore[operator]


def test_even_load_moves_nothing_in_10_s_though_tasks_differ() -> None:
    assert [row["moves"] for row in balance.even_rows(repeat=1)] == [0] * 9


def test_more_partitions_a_worker_make_up_for_a_slow_worker() -> None:
    """Figure 8 of Canary: 4 or 8 partitions a core take a quarter less time than one."""
    single, four, eight = balance.paper_rows(repeat=1, many=(1, 4, 8), loads=[balance.SLOW_WORKER])
    assert single["moves"] == 0
    for row in (four, eight):
        assert row["beside 1 a worker"] <= 0.75 and row["worst run"] <= balance.BESIDE_BEST_MAX, row  # type: ignore[operator]


def test_the_best_placement_is_found_of_equal_partitions_at_workers_of_two_speeds() -> None:
    assert balance.best_s([1.0] * 8, [1.0, 2.0]) == 6.0
    assert balance.best_s([4.0, 1.0, 1.0, 1.0], [1.0, 1.0]) == 4.0


@pytest.mark.rest
@pytest.mark.processes
def test_a_partition_moves_while_two_processes_iterate() -> None:
    ((run, arrived_at),) = (moved := moves.measured(1, moves.Plan(1 << 20, 6, 2, 1)))[0]
    assert len(run) == len(moved[1][0]) == 6 and arrived_at >= 2
    assert all(wall_s > 0 for wall_s, _ in run)


def test_shares_are_of_the_slots_time_within_the_window() -> None:
    program, other = [(0.0, 4.0), (5.0, 12.0)], [(4.0, 5.0), (12.0, 13.0)]
    assert shares.overlap_s(program, 2.0, 12.5) == 2.0 + 7.0
    share, taken = shares._window(program, other, since_s=2.0, slots=1)
    assert share == 0.9 and taken == 1.0


def test_messages_of_an_iteration_are_those_of_the_formula() -> None:
    rows = messages.rows(repeat=1, workers=(1, 3))
    assert len(rows) == 6 and all(row["messages"] == row["formula"] for row in rows)


def test_a_pump_runs_all_iterations_and_says_what_each_part_spent_on_them() -> None:
    df, program = no_ops(partitions=3, iterations=4)
    pump = Pump(df, 2)
    pump.run(program)
    assert len(pump.by_block) == 4 and sum(core.tasks_run for core in pump.cores) == 4 * (4 * 3 + 1)
    assert all(block["driver"] > 0 and block["controller"] > 0 and block["workers"] > 0 for block in pump.by_block)
    assert pump.frames["Submit"] == 1 and pump.messages["Submit"] == 13 and pump.frames["Invoke"] == 3


def test_in_virtual_time_an_iteration_takes_at_least_as_long_as_its_tasks() -> None:
    timed = Timed(0.5)
    df, program = regression(partitions=6, iterations=3, timed=timed)
    cluster = Cluster(df, 2)
    timed.spend = cluster.spend
    cluster.run(program)
    assert len(cluster.block_s) == 3 and all(1.5 <= seconds < 2.5 for seconds in cluster.block_s)
    cluster.run(program)
    assert cluster.controller.counts[Event.INSTANTIATED] == 5, "the first block alone was dispatched singly"


@pytest.mark.rest
def test_figures_in_virtual_time_have_a_row_for_each_number_of_nodes_and_plane() -> None:
    wanted = [(app, 1, plane) for app in scaling.SHAPES for plane in scaling.PLANES]
    assert [(row["application"], row["nodes"], row["plane"]) for row in scaling.fig_7(nodes=(1,))] == wanted
    rates = scaling.fig_8(nodes=(1,))
    assert [(row["application"], row["nodes"], row["plane"]) for row in rates] == wanted[:2]
    assert all(row["tasks"] == 8 * 10 * 2 * row["nodes"] + 3 for row in rates)
    phases = scaling.fig_9(nodes=1)
    assert [row["halves_installed_in_phase"] for row in phases[::3]] == [0, 8, 4, 0, 0]


@pytest.mark.rest
def test_table_1_of_templates_has_a_row_for_each_length_of_tasks_and_plane() -> None:
    rows = scaling.table_1(scale=100)
    assert [(row["code"], row["plane"]) for row in rows] == [
        (code, plane) for code in ("Scala", "C++", "C++") for plane in scaling.PLANES
    ]
    assert all(row["spark_s"] is None and row["iteration_s"] > row["ideal_s"] for row in rows)


# ---- workers that spawn their tasks themselves ----------------------------------------------------


def test_cores_of_many_workers_in_one_process_answer_as_one() -> None:
    parts = pagerank.cut(pagerank.made_up(200, 900), 200, 2)
    answers = []
    for workers in (1, 3):
        df, program = program_of(
            pagerank,
            lambda workers=workers: pagerank.pagerank(parts, 200, 2, "inline", 3, workers=workers),  # type: ignore[misc]
        )
        pump = LocalPump(df, workers)
        pump.run(program)
        rank = next(data for data in df._definition.datasets if data.partitions == 2)
        answers.append(np.concatenate(pump.value(rank.id)))
        assert (pump.frames.total() > 0) == (workers > 1) and (pump.cpu_ns > 0).all()
    assert np.array_equal(answers[0], answers[1]) and answers[0].sum() == pytest.approx(1.0, abs=0.2)


def test_two_played_workers_send_and_run_what_they_do_among_all() -> None:
    counted = []
    for played in (None, {0, 1}):
        df, program = no_ops(6, 5)
        pump = LocalPump(df, 3, played=played)
        pump.run(program, uncounted_blocks=2)
        counted.append((pump.frames["Told"], pump.reports["Told"], pump.cores[0].tasks_run, pump.cores[1].tasks_run))
    assert counted[0] == counted[1] and counted[0][:2] == (2 * 3, 3)


def test_workers_in_virtual_time_take_as_long_as_their_tasks_and_no_longer_for_being_more() -> None:
    for workers, seconds in ((1, 3.0), (3, 1.0)):
        timed = Timed(0.5)
        df, program = regression(6, 3, timed)
        in_time = LocalInTime(df, workers)
        timed.spend = in_time.spend
        in_time.run(program)
        ends = np.diff([0.0, *in_time.over_s])
        assert len(ends) == 3 and ((ends >= seconds) & (ends < seconds + 0.4)).all()


def test_fig_5_counts_a_message_to_each_worker_and_one_report_a_signal() -> None:
    rows = canary_scaling.fig_5(repeat=1, iterations=1, workers=(1, 5, 40))
    assert [row["messages_a_signal"] for row in rows] == [0, 4, 39]
    assert [row["tasks_a_signal"] for row in rows] == [600, 3000, 24_000]
    assert [row["tasks_a_block"] for row in rows] == [600, 600, 200], "blocks are cut by the tasks of all workers"
    assert {row["reports_a_signal"] for row in rows} == {1} and all(row["ns_a_task"] > 0 for row in rows)


def test_fig_6_has_a_row_for_each_application_number_of_cores_and_plane() -> None:
    rows = canary_scaling.fig_6(cores=(3, 6))
    wanted = [(a, n, plane) for a in canary_scaling.CORE_S for n in (3, 6) for plane in ("local", "central")]
    assert [(row["application"], row["cores"], row["plane"]) for row in rows] == wanted
    assert all(row["iteration_s"] >= row["ideal_s"] for row in rows)


@pytest.mark.rest
def test_table_1_of_canary_has_styles_with_the_same_gradient() -> None:
    rows = canary_table1.measure(repeat=1, rows=2_000)
    assert [row["style"] for row in rows] == [
        "functions over rows", "a loop over rows", "numpy by hand", "stages", "compiled stages"
    ]  # fmt: skip
    by_style = {row["style"]: row for row in rows}
    assert by_style["stages"]["to_stages"] == 1.0
    assert by_style["functions over rows"]["core_ns_a_row"] > by_style["numpy by hand"]["core_ns_a_row"]
    assert by_style["stages"]["paper_core_ns_a_row"] == pytest.approx(67.7, abs=0.1)


def test_gradients_of_single_rows_are_those_of_numpy() -> None:
    features, labels = logistic_data(50, canary_table1.COLUMNS)
    w = np.linspace(-1, 1, canary_table1.COLUMNS)
    whole = canary_table1.by_numpy([(features, labels)], w)
    by_loops = np.zeros(canary_table1.COLUMNS)
    canary_table1._gradient_by_loops(features, labels, w, by_loops)
    for style in (canary_table1.by_functions, canary_table1.by_loop):
        assert np.allclose(style(features.tolist(), labels.tolist(), w.tolist()), whole, rtol=1e-9)
    assert np.allclose(by_loops, whole, rtol=1e-9)


def test_fig_9_of_canary_counts_mirrors_and_what_four_workers_exchange() -> None:
    rows = canary_fig9.measure(repeat=1, vertices=300, edges=2_000, sides=(1, 2, 4))
    assert [row["partitions"] for row in rows] == [1, 4, 16]
    assert all(row["mirrors_of_a_vertex"] <= row["mirrors_at_most"] for row in rows)
    counts = [row["messages_of_4_workers"] for row in rows]
    assert counts == sorted(counts) and rows[0]["to_one_partition"] == 1.0


def test_fig_10_has_all_tasks_of_the_simulation_and_a_row_a_stage() -> None:
    rows = fig10.measure(size=30)
    stages = [row for row in rows if row["of"].startswith("stage ")]
    assert sum(row["tasks"] for row in stages) == rows[0]["tasks"] > 500 and len(stages) > 20
    assert [row["of"] for row in rows[:5]] == list(fig10.PERCENTILES)
    assert rows[0]["ms"] <= rows[2]["ms"] <= rows[4]["ms"] == max(row["ms"] for row in rows)
    fields = next(row for row in rows if row["of"] == fig10.WRITING)
    assert 100 < fields["tasks"] < rows[0]["tasks"] / 2


@pytest.mark.rest
@pytest.mark.processes
def test_fig_5_by_processes_has_a_row_for_each_number_of_workers() -> None:
    rows = live_scaling.measure(repeat=1, signals=2, workers=(1, 2))
    assert [(row["workers"], row["tasks"]) for row in rows] == [(1, 1_200), (2, 2_400)]
    assert all(row["cpu_ns_a_task"] > row["function_alone_ns"] / 2 > 0 for row in rows)


# ---- peers ----------------------------------------------------------------------------------------


class Absent(Pool):
    name, packages = "absent", ("no-such-distribution",)


class Refusing(Pool):
    name = "refusing"

    def started(self, below: peers.Below):  # type: ignore[no-untyped-def]
        raise ValueError("not today")


@pytest.mark.rest
@pytest.mark.processes
def test_peers_that_are_not_there_are_left_out_with_the_reason() -> None:
    rows = peers.rows(repeat=1, iterations=2, peers=[Pool(), Absent(), Refusing()])
    assert [(row["what"], row["who"]) for row in rows] == [
        (peers.NO_OPS, "process pool"), (peers.ROUND_TRIP, "process pool"), (peers.IDLE, "process pool"),
        ("left out", "absent"), ("left out", "refusing"),
    ]  # fmt: skip
    assert rows[0]["wall_us"] > 0 and rows[0]["cpu_us"] >= 0
    assert "no-such-distribution not installed: pip install" in rows[3]["why"]
    assert rows[4]["why"] == "ValueError: not today"


@pytest.mark.rest
@pytest.mark.processes
def test_plane_local_is_beside_the_process_pool() -> None:
    done = CliRunner().invoke(main, ["peers", "--json", "--repeat", "1", "--iterations", "10"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    ours = {row["what"]: row for row in rows if row["who"] == "sparrow local"}
    assert ours.keys() == {
        peers.NO_OPS, peers.ALLREDUCE, peers.SIGNAL, peers.SLOWER, peers.QUICKER, peers.IDLE,
    }  # fmt: skip
    assert ours[peers.NO_OPS]["to_ours"] == 1.0
    assert any(row["who"] == "process pool" and row["to_ours"] for row in rows)


# ---- what is told ---------------------------------------------------------------------------------


def test_options_that_a_figure_does_not_take_are_refused() -> None:
    done = CliRunner().invoke(main, ["canary", "fig6", "--tasks", "3"])
    assert done.exit_code == 2 and "fig6 does not take --tasks" in done.output


def test_quick_takes_arguments_that_each_figure_has() -> None:
    assert set(CANARY) >= {"table1", "fig4", "fig5", "fig6", "fig9"}
    assert set(TEMPLATES) >= {"table1", "table3", "table4", "fig7", "fig8", "fig9", "fig10"}
    for name, figure in FIGURES.items():
        assert figure.quick and all(figure.takes(argument) for argument in figure.quick), name


def test_results_are_kept_and_become_a_document(tmp_path: Path) -> None:
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    done = CliRunner().invoke(main, ["templates", "validation", "--tasks", "400", "--results", str(results)])
    assert done.exit_code == 0 and "(met)" in done.output, done.output
    assert [result.figure for result in read(results)] == ["templates validation"]
    assert CliRunner().invoke(main, ["document", "--results", str(results), "--out", str(page)]).exit_code == 0
    text = page.read_text()
    assert "| templates validation | validated in the order of the objects: 1 ms |" in text
    assert "## Not measured yet\n\ncanary table1, canary fig4" in text


def test_times_of_a_busy_machine_are_marked() -> None:
    def result(figure: str, load: float) -> FigureResult:
        rows: list[Row] = [{"a": None, "b": 2_000.0}]
        return FigureResult(figure, "full", rows, [], [], "abc", "2026-01-01", 2, 8, load, 1.0, 1.0)

    busy, quiet = (document.text(FIGURES, [result("canary fig6", load)]) for load in (5.0, 0.5))
    assert "**busy cores**" in busy and "**busy cores**: other" not in quiet
    assert "**busy cores**: other" not in document.text(FIGURES, [result("canary table1", 5.0)]), "CPU time alone"
    assert "|  | 2,000 |" in busy


def test_a_target_is_missed_where_its_row_is_not_there() -> None:
    assert {target.verdict for target in targets.fig_12([])} == {MISSED}
    met = targets.fig_12([{"who": "inline", "blocks": 1, "cpu to mpi": 1.1}])
    assert met[:1] == [Target("CPU to that of one rank by hand for MPI: 1.15", "1.1 ×", True)] and met[0].verdict == MET
