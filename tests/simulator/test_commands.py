"""`python -m simulator`: what it imports, and its exit codes."""

import subprocess
import sys

import click
import pytest

from simulator.__main__ import SimulatorGroup, main
from simulator.hosts import SimulationError
from sparrow_py.daemon.command_group import exit_code, one_line
from sparrow_py.errors import InvalidOption


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (InvalidOption("load", 2, "below 1"), 2, "load: 2 is not valid; allowed: below 1"),
        (SimulationError("job 1 was refused"), 1, "job 1 was refused"),
        (click.Abort(), 130, "interrupted"),
        (click.UsageError("No such command 'x'."), 2, "No such command 'x'"),
    ],
)
def test_errors_are_one_line_and_an_exit_code(error: Exception, code: int, line: str) -> None:
    assert (exit_code(error), one_line(error)) == (code, line)


def test_a_command_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["walk"])
    assert caught.value.code == 2
    assert "walk" in capsys.readouterr().err


def test_the_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(f"  {command} " in out for command in SimulatorGroup.commands_at)


def test_a_command_is_imported_when_it_is_asked_for_and_matplotlib_when_something_is_drawn() -> None:
    program = (
        "import sys; from simulator.__main__ import main; heavy = {'matplotlib', 'pyarrow'};"
        "assert 'simulator.commands.run' not in sys.modules;"
        "main(['run', '--nodes', '5', '--tasks', '2', '--jobs', '20'], standalone_mode=False);"
        "main(['figure', '--help'], standalone_mode=False);"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
