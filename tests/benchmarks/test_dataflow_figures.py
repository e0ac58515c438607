"""`python -m benchmarks.dataflow` measures what it says; how much, is for people to judge."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.dataflow import balance, compiled, fig12, messages, moves, scaling, shares, table3
from benchmarks.dataflow.__main__ import TEMPLATES, main
from benchmarks.dataflow.fig4 import measured, spinning
from benchmarks.dataflow.pump import Cluster, Pump
from benchmarks.dataflow.regression import Timed, no_ops, regression
from frontends.dataflow.commanding_core import Event


def test_fig_4_has_a_row_for_each_number_of_partitions_and_kind_of_task() -> None:
    done = CliRunner().invoke(main, ["canary", "fig4", "--json", "--repeat", "1", "--tasks", "200"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert [(row["partitions"], row["task"]) for row in rows] == [
        (count, task) for count in (1, 4, 10, 40) for task in ("no-op", "6.6 µs")
    ]
    assert [row["aim_ns"] for row in rows] == [None, None, 735, 735, 735, 735, None, None]


def test_each_task_and_signal_of_a_run_is_counted() -> None:
    _, alone, tasks = measured(3, spinning(1000), rounds=4)
    assert tasks == 4 * 3 * 4 + 5 and alone > 0


def test_compiled_tasks_are_measured_beside_plain_ones_in_short_chains_and_long_ones() -> None:
    rows = compiled.rows(repeat=1, tasks=100, partitions=(40,))
    assert [(row["task"], row["tasks_a_chain"]) for row in rows] == [
        (task, chain) for task in ("no-op", "4 elements") for chain in (4, 244)
    ]
    for row in rows:
        assert float(str(row["plain_ns"])) > 0 and float(str(row["compiled_ns"])) > 0


def test_tasks_of_a_program_are_counted_though_many_run_as_one() -> None:
    _, tasks = compiled.Program(5, "no-op", 3, is_compiled=True).run(2)
    assert tasks == 2 * 3 * 4 * 5 + 3


def test_water_by_hand_for_mpi_has_the_surface_of_ours() -> None:
    pytest.importorskip("mpi4py")
    theirs, mine = fig12.by_hand(40, 1, 2), fig12.ours(40, 1, 4, "inline")
    assert np.abs(theirs.surface - mine.surface).max() < fig12.DIFFERENCE_MAX_M
    assert theirs.steps == mine.steps


def test_figures_of_templates_have_their_rows() -> None:
    done = CliRunner().invoke(
        main, ["templates", "table3", "table4", "validation", "--json", "--repeat", "1", "--tasks", "400"]
    )
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.output.splitlines()]
    assert [row["plane"] for row in rows if row["figure"] == "table4"] == list(messages.PLANES)
    assert {row["cost"] for row in rows if row["figure"] == "table3"} >= set(table3.PAPER_US)
    assert all(row["objects"] == 400 for row in rows if row["figure"] == "validation")
    assert {row["figure"] for row in rows} < TEMPLATES.keys()


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


def test_figures_in_virtual_time_have_a_row_for_each_number_of_nodes_and_plane() -> None:
    rows = scaling.fig_7(nodes=(1, 2))
    assert [(row["nodes"], row["plane"]) for row in rows] == [(n, plane) for n in (1, 2) for plane in scaling.PLANES]
    phases = scaling.fig_9(nodes=1)
    assert [row["halves_installed_in_phase"] for row in phases[::3]] == [8, 4, 0, 0]
