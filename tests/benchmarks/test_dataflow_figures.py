"""`python -m benchmarks.dataflow` measures what it says; how much, is for people to judge."""

from __future__ import annotations

import json

from click.testing import CliRunner

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
