"""`benchmarks.faults_peers`: what it makes of what a user wrote, what it leaves behind, and one fault at Sparrow."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from benchmarks.faults_peers.__main__ import main
from benchmarks.faults_peers.faults import Fault
from benchmarks.faults_peers.observation import observe
from benchmarks.faults_peers.processes import Processes, kill, running
from benchmarks.faults_peers.systems import SYSTEMS
from tests.support.waiting import wait_until

FAULT_S = 100.0


def told(task: int, at_s: float, error: str | None = None) -> dict[str, Any]:
    """What the user's program writes of an outcome."""
    return {"event": "outcome", "task": task, "at_s": at_s, "error": error}


def test_results_errors_of_a_kind_and_second_starts_are_counted() -> None:
    events = [
        {"event": "submitted", "at_s": 98.0},
        told(0, 99.0),
        told(1, 101.5, "Lost: task-1 went with worker 10.0.0.1:17"),
        told(2, 102.0, "Lost: task-2 went with worker 10.0.0.2:18"),
        told(3, 103.0, "ValueError: no"),
        {"event": "ended", "at_s": 104.0},
    ]
    seen = observe(60, events, ["0 17", "1 17", "2 18", "3 18", "1 18"], FAULT_S, 104.1, "")
    assert (seen.results, seen.starts, seen.started_again, seen.ending) == (1, 5, 1, "ended")
    assert seen.errors == {"Lost: task-1 went with worker 10.0.0.1:17": 2, "ValueError: no": 1}
    assert (seen.first_error_s, seen.last_s) == (1.5, 4.0)
    assert "1 of 60 results; 2 × Lost: task-1" in seen.sentence()


@pytest.mark.parametrize(
    ("last_event", "last_words", "ending", "sentence"),
    [
        ({"event": "raised", "at_s": 107.0, "error": "Gone: no broker"}, "…", "raised", "raised after 7.0 s"),
        (told(1, 101.0), None, "waits", "still waits after 60 s"),
        (told(1, 101.0), "Connected\nAborted\n", "died", "program: Aborted; the user's program ended after 60.0 s"),
    ],
)
def test_a_wait_that_does_not_end_well_is_told_apart(
    last_event: dict[str, Any], last_words: str | None, ending: str, sentence: str
) -> None:
    seen = observe(60, [{"event": "submitted", "at_s": 98.0}, last_event], [], FAULT_S, 160.0, last_words)
    assert seen.ending == ending
    assert sentence in seen.sentence()
    assert bool(seen.last_words) == (ending == "died")


def test_no_process_is_left_not_even_one_that_left_its_parent(tmp_path: Path) -> None:
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        with Processes(tmp_path, {}) as processes:
            parent = processes.start("parent", ["sh", "-c", "setsid sleep 600 & echo $!; sleep 600"])
            wait_until(lambda: processes.said("parent").endswith("\n"))
            orphan = psutil.Process(int(processes.said("parent")))
            parent.kill()
            wait_until(lambda: not running(parent))
            child = processes.start("child", ["sleep", "600"])
            assert running(orphan) and running(child)
        assert not running(orphan) and not running(child)
        assert running(psutil.Process(bystander.pid))
    finally:
        bystander.kill()
        bystander.wait()


def test_a_killed_process_takes_all_below_it_along(tmp_path: Path) -> None:
    with Processes(tmp_path, {}) as processes:
        parent = processes.start("parent", ["sh", "-c", "sleep 600 & echo $!; wait"])
        wait_until(lambda: processes.said("parent").endswith("\n"))
        below = psutil.Process(int(processes.said("parent")))
        kill(parent)
        wait_until(lambda: not running(below))
        assert not running(parent)


def test_a_system_that_is_not_installed_is_left_out_with_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SYSTEMS["dask"], "packages", ("no-such-distribution",))
    result = CliRunner().invoke(main, ["--only", "dask", "--json"])
    assert result.exit_code == 0
    assert json.loads(result.stdout)["rows"] == []
    assert "no-such-distribution not installed: pip install 'sparrow-py[peers]'" in result.stderr


@pytest.mark.rest
def test_an_unpicklable_result_at_sparrow() -> None:
    command = ["--only", "sparrow", "--fault", Fault.UNPICKLABLE_RESULT, "--tasks", "32", "--timeout-s", "60", "--json"]
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks.faults_peers", *command], capture_output=True, text=True, check=True
    )
    (row,) = json.loads(run.stdout)["rows"]
    assert (row["results"], row["started_again"], row["ending"]) == (31, 0, "ended")
    assert list(row["errors"].values()) == [1]
    assert "cannot be pickled: cannot pickle '_thread.lock' object" in next(iter(row["errors"]))
