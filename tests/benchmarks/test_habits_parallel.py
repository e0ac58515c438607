"""What comparisons with other tools make of their measurements."""

import subprocess
import sys

import pytest

from benchmarks.habits import gnu_parallel
from benchmarks.habits.gnu_parallel import OURS, PARALLEL, XARGS, Round
from benchmarks.habits.process_times import Times

ROUNDS: list[Round] = [
    {OURS: Times(1.0, 2.0), PARALLEL: Times(2.0, 4.0), XARGS: Times(0.5, 1.0)},
    {OURS: Times(1.2, 2.4), PARALLEL: Times(2.0, 6.0), XARGS: Times(0.6, 1.0)},
    {OURS: Times(1.1, 2.2), PARALLEL: Times(4.0, 4.0), XARGS: Times(0.5, 1.0)},
]


def test_ratios_are_medians_of_those_of_rounds() -> None:
    assert gnu_parallel.row(OURS, ROUNDS, PARALLEL) == {
        "tool": OURS,
        "wall s": 1.1,
        "CPU s": 2.2,
        "CPU ms per command": 2.2,
        "wall / parallel": 0.5,
        "CPU / parallel": 0.5,
    }
    assert "CPU / parallel" not in gnu_parallel.row(OURS, ROUNDS, None)


def test_tools_that_are_not_installed_are_left_out_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda program: None if program == "parallel" else "/bin/" + program)
    there, notes = gnu_parallel.usable(gnu_parallel.PACKAGES)
    assert there == [XARGS]
    assert notes == ["parallel is left out: no parallel is installed (package parallel)."]


def test_tools_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []

    def timed(argv: list[str], stdin: bytes) -> Times:
        ran.append(argv[0])
        return Times(1.0, stdin.count(b"\n"))

    monkeypatch.setattr(gnu_parallel, "timed", timed)
    measured = gnu_parallel.measure_round([PARALLEL, XARGS], 1, 2)
    assert ran == ["xargs", "parallel"]
    assert measured[XARGS].cpu_s == gnu_parallel.COMMANDS


def test_the_time_of_what_loses_its_parent_counts() -> None:
    """In a process of its own, as all its children are waited for."""
    busy = "(while [ ! -s $0 ]; do :; done; echo) & times >$0"
    code = f"""if True:
        import sys, tempfile
        from benchmarks.habits.process_times import timed
        from sparrow_py.errors import SparrowError
        with tempfile.NamedTemporaryFile() as file:
            assert timed(["sh", "-c", {busy!r}, file.name], b"").cpu_s > 0
        try:
            timed(["sh", "-c", "echo why >&2; exit 3"], b"")
        except SparrowError as error:
            print(error)
    """
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (ended.stdout, ended.stderr) == ("sh exited with 3: why\n", "")
