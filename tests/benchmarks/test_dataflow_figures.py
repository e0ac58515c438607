"""`python -m benchmarks.dataflow` measures what it says; how much, is for people to judge."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.dataflow import compiled, fig12
from benchmarks.dataflow.__main__ import main
from benchmarks.dataflow.fig4 import measured, spinning


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
