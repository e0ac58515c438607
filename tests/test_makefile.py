"""The Makefile's targets leave alone what they did not make."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MAKE = shutil.which("make") or ""
PYTHON = """#!/bin/sh
# Stands in for an interpreter: its venv is a directory with an interpreter in it, or is interrupted.
case "$*" in
    "-m venv "*) mkdir -p "$3/bin" && touch "$3/bin/python"; [ -z "$INTERRUPTED" ] ;;
esac
"""

pytestmark = pytest.mark.skipif(not MAKE, reason="there is no make")


@pytest.fixture
def python(tmp_path: Path) -> Path:
    path = tmp_path / "python"
    path.write_text(PYTHON)
    path.chmod(0o755)
    return path


def make(target: str, venv: Path, python: Path, cwd: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Run a target of a copy of the Makefile, in which nothing of ours can be harmed."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, cwd / name)
    command = [MAKE, target, f"VENV={venv}", f"PYTHON={python}"]
    return subprocess.run(
        command, cwd=cwd, env={"PATH": "/usr/bin:/bin", **environment}, capture_output=True, text=True, check=False
    )


def test_an_environment_that_is_there_is_neither_cleared_nor_used(tmp_path: Path, python: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "pyvenv.cfg").touch()
    for target in ("demo", "test", "lint"):
        done = make(target, mine, python, tmp_path)
        assert done.returncode != 0
        assert f"error: {mine} is there, was not made here, and is left alone" in done.stderr
    done = make("clean", mine, python, tmp_path)
    assert (done.returncode, done.stdout) == (0, f"{mine} stays: it was not made here\n")
    assert [path.name for path in mine.iterdir()] == ["pyvenv.cfg"]


@pytest.mark.parametrize("empty", [False, True])
def test_one_that_is_not_there_is_made_and_removed(tmp_path: Path, python: Path, empty: bool) -> None:
    venv = tmp_path / "venv"
    if empty:
        venv.mkdir()
    assert make(f"{venv}/.created", venv, python, tmp_path).returncode == 0
    assert (venv / "bin/python").exists()
    assert make("clean", venv, python, tmp_path).returncode == 0
    assert not venv.exists()


def test_one_that_was_half_made_is_made_anew(tmp_path: Path, python: Path) -> None:
    venv = tmp_path / "venv"
    assert make(f"{venv}/.created", venv, python, tmp_path, INTERRUPTED="1").returncode != 0
    (venv / "left").touch()
    assert make(f"{venv}/.created", venv, python, tmp_path).returncode == 0
    assert not (venv / "left").exists()
    assert (venv / "bin/python").exists()


def test_one_of_before_there_was_a_mark_is_used_and_removed(tmp_path: Path, python: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    (venv / ".created").touch()
    assert make(f"{venv}/.created", venv, python, tmp_path).returncode == 0
    assert make("clean", venv, python, tmp_path).returncode == 0
    assert not venv.exists()
