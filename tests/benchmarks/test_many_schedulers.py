"""`benchmarks.many_schedulers`: the sums of its rows, results that are kept, and one small run of each kind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.many_schedulers import live
from benchmarks.many_schedulers.__main__ import main
from benchmarks.many_schedulers.costs import COSTS
from benchmarks.many_schedulers.simulated import TASKS, Plan, needed, row
from simulator.costs import Cost

PLAN = Plan(nodes=100, slots=4, load=0.5, tasks_per_slot=5, counts=(1, 2), profiles=("default",))
SMALL = ("--nodes", "10", "--slots", "2", "--tasks-per-slot", "10", "--schedulers", "1", "--schedulers", "3")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def figures(**changes: Any) -> dict[str, Any]:
    """Of a run in which schedulers spent 50 µs on each task, and node monitors 40."""
    tasks = PLAN.jobs * TASKS
    return {
        "scheduler_busy_us": 50 * tasks,
        "node_monitor_busy_us": 40 * tasks,
        "scheduler_messages": 8 * tasks,
        "scheduler_frames": 4 * tasks,
        "over_ideal_p50_ms": 1.5,
        "over_ideal_p95_ms": 2.5,
        "wait_p50_ms": 1.25,
        **changes,
    }


def test_a_row_says_what_a_task_costs_and_how_busy_that_makes_a_process() -> None:
    """2,000 tasks arrive in a second: of it two schedulers work 100 ms, and each of a hundred node monitors 0.8 ms. Of
    the 50 µs that a task costs 4 frames and 8 messages are 40; for the rest schedulers wake."""
    assert COSTS.scheduler == Cost(wake_us=10, frame_us=5, message_us=2.5)
    assert PLAN.jobs == 200
    assert PLAN.tasks_per_s == pytest.approx(2000)
    assert row(PLAN, 2, figures()) == {
        "schedulers": 2,
        "messages per task": 8,
        "messages per frame": 2,
        "schedulers' µs per task": 50,
        "node monitors' µs per task": 40,
        "busy": "5.0 %",
        "node monitor busy": "0.08 %",
        "most tasks/s": 50_000,
        "over ideal ms p50": 1.5,
        "over ideal ms p95": 2.5,
        "wait ms p50": 1.25,
    }


def test_schedulers_for_a_million_decisions_work_most_of_the_time() -> None:
    said = needed("default", [row(PLAN, 2, figures())])
    assert "1,000,000 tasks/s need 58 schedulers that work 70% of the time, on 29 machines of 2 cores" in said
    assert "a node monitor could take 25,000/s" in said


def test_points_differ_by_profile_and_schedulers_and_all_cost() -> None:
    points = [PLAN.point(profile, count) for profile in ("paper", "default") for count in (1, 2)]
    assert len({point.key for point in points}) == 4
    assert all(point.cluster.costs is COSTS for point in points)
    assert [point.settings.profile for point in points] == ["paper", "paper", "default", "default"]


def test_a_small_run_prints_a_table_for_each_profile_and_is_not_repeated(tmp_path: Path) -> None:
    kept = tmp_path / "results.jsonl"
    first = run(*SMALL, "--results", str(kept), "--json")
    lines = kept.read_bytes()
    assert first.exit_code == 0, first.output
    report = json.loads(first.stdout)
    (paper, default) = report["details"]["tables"].values()
    assert [found["schedulers"] for found in paper] == [found["schedulers"] for found in default] == [1, 3]
    assert all(found["schedulers' µs per task"] > 0 for found in (*paper, *default))
    assert paper[0]["messages per task"] > default[0]["messages per task"]
    assert report["value"] == default[0]["most tasks/s"] > 10_000
    assert (
        json.loads(run(*SMALL, "--results", str(kept), "--json").stdout)["details"]["tables"]
        == (report["details"]["tables"])
    )
    assert kept.read_bytes() == lines


@pytest.mark.parametrize(
    ("arguments", "named"),
    [(("--nodes", "0"), "--nodes"), (("--load", "1"), "--load"), (("--profile", "fast"), "--profile")],
)
def test_what_cannot_be_is_named(arguments: tuple[str, ...], named: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, named in result.output) == (2, True)


def test_a_results_file_that_is_none_is_one_line(tmp_path: Path) -> None:
    result = run(*SMALL, "--results", str(tmp_path))
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ") and result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--live", "--nodes", "100000"), "nodes: 100000 is not valid; allowed: only without --live"),
        (("--live", "--load", "0.7"), "load: 0.7 is not valid; allowed: only without --live"),
        (("--repeat", "3"), "repeat: 3 is not valid; allowed: only with --live"),
    ],
)
def test_an_option_of_the_other_kind_of_runs_is_refused_rather_than_ignored(
    arguments: tuple[str, ...], said: str
) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.stderr == f"error: {said}\n"


@pytest.mark.rest
def test_a_live_row_has_what_real_daemons_spent() -> None:
    found = live.measured_row(live.Live(2, "default", nodes=4, slots=2, tasks=4, tasks_per_s=100.0), span_s=1.0)
    assert found["schedulers"] == 2
    assert found["schedulers' µs per task"] > 0
    assert found["node monitors' µs per task"] > 0
    assert found["over ideal ms p50"] > 0
