"""`benchmarks.instructions`: what is counted of two checkouts becomes instructions of a task, and a ratio."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from benchmarks import instructions
from benchmarks.report import ROOT

STAND_IN = """#!{python}
import os, sys
value = lambda name: float(sys.argv[sys.argv.index(name) + 1])
tasks = value("--jobs") * value("--tasks")
each = 220_000 if os.getcwd().endswith("before") else 231_000
print(f"==7== I refs:        {{int(900_000_000 + tasks * each):,}}", file=sys.stderr)
"""
"""For valgrind: an interpreter takes 900 million instructions to start, and a task 5 % more than before."""


def run(monkeypatch: pytest.MonkeyPatch, directory: Path, valgrind: str | None, *arguments: str) -> Result:
    """The command, where this is valgrind."""
    if valgrind is not None:
        (directory / "valgrind").write_text(valgrind)
        (directory / "valgrind").chmod(0o755)
    monkeypatch.setenv("PATH", str(directory))
    return CliRunner().invoke(instructions.main, list(arguments))


def test_the_start_of_the_interpreter_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = run(monkeypatch, tmp_path, STAND_IN.format(python=sys.executable), "--json")
    told = json.loads(done.stdout)
    ((_, rows),) = told["details"]["tables"].items()
    assert [(row["tasks per job"], row["load"]) for row in rows] == [(10, 0.3), (10, 0.8), (100, 0.3), (100, 0.8)]
    assert {row["1000 per task"] for row in rows} == {231.0} and told["value"] == 231.0


def test_another_checkout_stands_beside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = tmp_path / "before"
    before.mkdir()
    done = run(monkeypatch, tmp_path, STAND_IN.format(python=sys.executable), "--json", "--before", str(before))
    told = json.loads(done.stdout)
    ((_, rows),) = told["details"]["tables"].items()
    assert {(row["before, 1000 per task"], row["1000 per task"]) for row in rows} == {(220.0, 231.0)}
    assert told["value"] == pytest.approx(1.05) and "geometric mean" in told["unit"]


def test_what_cannot_be_counted_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    done = run(monkeypatch, tmp_path, "#!/bin/sh\necho 'no such program' >&2\nexit 1\n")
    assert done.exit_code == 1 and f"{ROOT}: valgrind has counted nothing: no such program" in done.output
    (tmp_path / "valgrind").unlink()
    done = run(monkeypatch, tmp_path, None)
    assert done.exit_code == 1 and "valgrind is not installed" in done.output
