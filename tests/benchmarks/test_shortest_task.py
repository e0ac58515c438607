"""`benchmarks.shortest_task`: what counts as broken down, open-loop replay, and one small run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.shortest_task.__main__ import main, until_it_breaks
from benchmarks.shortest_task.client import replay
from benchmarks.shortest_task.load import BROKEN, TASKS, Load, Measured, measured, shortest

LOAD = Load(nodes=5, slots=4, load=0.8, duration_ms=100.0, seconds=2.0)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def point(duration_ms: float, over_ideal: float | None, unended: int = 0) -> Measured:
    return Measured(duration_ms, over_ideal, over_ideal, 10, unended)


def test_jobs_bring_the_load() -> None:
    """Ten tasks of 0.1 s every 62.5 ms are 16 slots of 20."""
    assert LOAD.interval_s == pytest.approx(0.0625)
    assert LOAD.jobs == 32
    assert LOAD.jobs * TASKS * 0.1 / LOAD.seconds == pytest.approx(16)


def test_the_first_and_last_jobs_are_not_measured() -> None:
    found = measured(LOAD, [9.0, 9.0, *[0.11] * 17, 9.0])
    assert (found.jobs, found.unended, found.broken) == (17, 0, False)
    assert found.over_ideal == pytest.approx(1.1) and found.p95_over_ideal == pytest.approx(1.1)


@pytest.mark.parametrize("responses_s", [[0.1 * BROKEN] * 20, [*[0.1] * 10, None, *[0.1] * 9], [None] * 20])
def test_long_responses_and_jobs_that_do_not_end_are_a_break_down(responses_s: list[float | None]) -> None:
    assert measured(LOAD, responses_s).broken


def test_the_shortest_task_is_before_the_first_break_down() -> None:
    assert shortest({ms: point(ms, ratio) for ms, ratio in ((100, 1.0), (50, 1.2), (20, 3.0), (10, 1.1))}) == 50
    assert shortest({100: point(100, 1.0, unended=1)}) is None
    assert shortest({100: point(100, None)}) is None


def test_shorter_tasks_than_one_that_broke_down_are_not_tried() -> None:
    loads = [Load(5, 4, 0.8, ms, 2.0) for ms in (200.0, 100.0, 50.0)]
    found = until_it_breaks("system", loads, lambda load: point(load.duration_ms, 200 / load.duration_ms), 1e12)
    assert list(found) == [200.0, 100.0]
    assert until_it_breaks("system", loads, lambda load: point(load.duration_ms, 1.0), 0.0) == {}


def test_jobs_are_submitted_whether_or_not_earlier_ones_have_ended() -> None:
    """The system ends nothing before the last job has come."""
    load = Load(nodes=100, slots=100, load=1.0, duration_ms=10.0, seconds=0.01)
    waiting: list[Callable[[], None]] = []

    def submit(duration_s: float, tasks: int, done: Callable[[], None]) -> None:
        assert (duration_s, tasks) == (0.01, TASKS)
        waiting.extend([done] * tasks)
        if len(waiting) == load.jobs * TASKS:
            threading.Thread(target=lambda: [one() for one in waiting]).start()

    found = replay(submit, load, wait_max_s=100.0)  # A machine that is busy with other things may be late.
    assert len(found) == load.jobs and all(response_s is not None and response_s > 0 for response_s in found)


def test_a_cluster_with_fewer_slots_than_a_job_has_tasks_is_refused() -> None:
    result = run("--nodes", "2", "--slots", "4")
    assert result.exit_code == 2 and "fewer slots than the 10 tasks of a job" in result.output


@pytest.mark.rest
def test_ours_run_and_are_drawn(tmp_path: Path) -> None:
    plot = tmp_path / "shortest.svg"
    flags = ["--only", "central", "--only", "sampling", "--nodes", "4", "--duration", "100", "--seconds", "1", "--json"]
    result = run(*flags, "--plot", str(plot))
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.output.splitlines()[-1])
    points = found["details"]["points"]
    assert set(points) == set(found["value"]) == {"sampling", "central"}
    for (one,) in points.values():
        assert one["duration_ms"] == 100 and one["jobs"] >= 8 and one["over_ideal"] >= 1
    assert "central" in plot.read_text()
