"""`sparrow dataflow run`: what it says of Dataflows, what a file that it runs sees, and bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from frontends.cli.__main__ import main
from frontends.dataflow import Dataflow, SettingsConflict
from frontends.dataflow.run_settings import PLANES, RunSettings, in_force, put_in_force
from sparrow_py import LocalCluster
from tests.frontends.dataflow.test_timeline import Page

SAYS = """\
import sys
from frontends.dataflow import Dataflow
df = Dataflow({arguments})
print(df.plane, df.workers, df.partitions, sys.argv[1:])
"""
ADDS = """\
import sys
import numpy as np
from beside import ADDED
from frontends.dataflow import Dataflow

def added(x):
    x += ADDED

if __name__ == "__main__":
    with Dataflow(partitions=4) as df:
        X = df.partition(np.arange(8.0), name="X")
        total, count = df.single(np.zeros(1)), df.single(np.zeros(1))
        add = df.stage(writes=[X])(added)
        @df.stage(writes=[count])
        def tick(count):
            count += 1
        @df.signal(on=count)
        def again(count):
            return count[0] < 5
        def program():
            while True:
                add()
                tick()
                if not again():
                    return X
        print(df.plane, df.run(program).tolist())
"""


def sparrow(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dataflow", "run", *arguments])


@pytest.fixture
def says(tmp_path: Path) -> Any:
    """A file that makes a Dataflow with these arguments and says what became of them."""

    def make(arguments: str = "") -> str:
        path = tmp_path / "says.py"
        path.write_text(SAYS.format(arguments=arguments))
        return str(path)

    return make


def refused(result: Result, *words: str) -> None:
    """One line on stderr with these words, and the exit code of a mistake in what was asked."""
    assert result.exit_code == 2 and result.stdout == "", result.output
    (line,) = result.stderr.splitlines()
    assert line.startswith("sparrow: ")
    for word in words:
        assert word in line, line


def test_what_the_file_leaves_open_is_as_the_command_says(says: Any) -> None:
    result = sparrow("--workers", "3", "--no-progress", says(), "a", "--partitions", "7", "--", "--check", "-x")
    assert (result.stdout, result.exit_code) == ("inline 3 7 ['a', '--check', '-x']\n", 0)
    result = sparrow(says("partitions_per_worker=2"), "--workers", "3")
    assert result.stdout == "inline 3 6 []\n" and "6 partitions (3 × 2 a worker)" in result.stderr
    assert sparrow(says(), "--no-progress").stdout == "inline 1 4 []\n"


def test_what_the_file_states_holds_if_the_command_says_nothing_or_the_same(says: Any) -> None:
    arguments = 'plane="inline", workers=2, partitions=5, progress=False'
    assert sparrow(says(arguments)).stdout == "inline 2 5 []\n"
    same = ("--plane", "inline", "--workers", "2", "--partitions", "5", "--no-progress")
    assert sparrow(says(arguments), *same).stdout == "inline 2 5 []\n"


@pytest.mark.parametrize(
    ("stated", "asked", "words"),
    [
        ("workers=2", ("--workers", "3"), ("workers: the program states 2, and the command --workers 3",)),
        ("partitions=2", ("--partitions", "3"), ("partitions", "2", "--partitions 3")),
        ('plane="inline"', ("--plane", "local"), ("plane", "'inline'", "--plane local")),
        ('snapshot_dir="a"', ("--snapshot-dir", "b"), ("snapshot_dir", "'a'", "--snapshot-dir b")),
        ("progress=True", ("--no-progress",), ("progress", "True")),
        (
            '"127.0.0.1:1", plane="local"',
            ("-s", "127.0.0.1:2", "--no-progress"),
            ("cluster", "--scheduler 127.0.0.1:2"),
        ),
    ],
)
def test_what_both_state_otherwise_is_refused_with_the_line(
    says: Any, stated: str, asked: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(sparrow(says(stated), *asked), "says.py, line 3", *words)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--plane", "nowhere"), ("--plane", "'nowhere'", *PLANES)),
        (("--workers", "0"), ("--workers", "0", "1<=x<=10000")),
        (("--partitions", "-1"), ("--partitions", "-1")),
        (("--timeline", "/"), ("--timeline", "'/'", "Is a directory")),
        (("--timeline", "/no/such/place.html"), ("--timeline", "No such file or directory")),
        (("--check",), ("--check", "options of FILE itself go after --")),
        (("--plane", "inline", "-s", "127.0.0.1:1"), ("--scheduler", "inline")),
    ],
)
def test_bad_options_are_refused_before_the_file_runs(
    says: Any, arguments: tuple[str, ...], words: tuple[str, ...]
) -> None:
    refused(sparrow(says("no_such_parameter=1"), *arguments), *words)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, ("does not exist",)),
        (b"x = 1\ndf = Dataflow(\n", ("no Python", "line 2")),
        (b"\x7fELF\x00\x01", ("no Python",)),
        (b"x = '\xff'\n", ("no Python",)),
        (b"x = 1\n", ("made no Dataflow",)),
    ],
)
def test_files_that_are_no_programs_are_refused(tmp_path: Path, content: bytes | None, words: tuple[str, ...]) -> None:
    path = tmp_path / "bad.py"
    if content is not None:
        path.write_bytes(content)
    refused(sparrow(str(path)), "bad.py", *words)
    refused(sparrow(str(tmp_path)), "FILE", "is a directory")


def test_an_exception_is_shown_as_python_shows_it_and_an_exit_is_the_files(tmp_path: Path) -> None:
    path = tmp_path / "raises.py"
    path.write_text("def deep():\n    raise KeyError('mine')\ndeep()\n")
    result = sparrow(str(path), "--timeline", str(tmp_path / "out.html"))
    assert result.exit_code == 1
    shown = [line for line in result.stderr.splitlines() if line.strip(" ^~")]
    assert shown[0] == "Traceback (most recent call last):" and f'File "{path}", line 3, in <module>' in shown[1]
    assert "KeyError: 'mine'" in result.stderr and "frontends/cli" not in result.stderr
    assert Page((tmp_path / "out.html").read_text()).data["tasks_run"] == 0
    path.write_text("raise SystemExit(7)\n")
    assert sparrow(str(path)).exit_code == 7


def test_the_file_is_the_main_module_and_nothing_of_that_stays(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("ADDED = 2.0\n")
    path = tmp_path / "adds.py"
    path.write_text(ADDS)
    before = sys.modules["__main__"], list(sys.argv), list(sys.path)
    result = sparrow(str(path), "--timeline", str(tmp_path / "out.html"), "--no-progress")
    assert result.stdout == f"inline {[10.0 + number for number in range(8)]}\n", result.output
    assert (sys.modules["__main__"], sys.argv, sys.path) == before
    sys.modules.pop("beside")
    data = Page((tmp_path / "out.html").read_text()).data
    assert {stage["name"]: stage["tasks"] for stage in data["stages"]} == {"added": 20, "tick": 5, "again": 5}
    assert "timeline of 30 tasks" in result.stderr


def test_settings_are_in_force_only_meanwhile() -> None:
    with put_in_force(RunSettings(workers=5, progress=False)):
        assert Dataflow().workers == 5
        with pytest.raises(SettingsConflict, match="workers: the program states 2"):
            Dataflow(workers=2)
    assert Dataflow(progress=False).workers == 1 and in_force().workers is None


@pytest.mark.processes
def test_workers_of_the_commands_cluster_run_the_file_and_record(tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("ADDED = 2.0\n")
    path, page = tmp_path / "adds.py", tmp_path / "out.html"
    path.write_text(ADDS)
    with LocalCluster(slots=2) as cluster:
        result = sparrow(
            str(path), "-s", cluster.addresses[0], "--plane", "local", "--workers", "2", "--no-progress",
            "--timeline", str(page),
        )  # fmt: skip
    sys.modules.pop("beside", None)
    assert result.stdout == f"local {[10.0 + number for number in range(8)]}\n", result.output
    data = Page(page.read_text()).data
    tasks = {stage["name"]: stage["tasks"] for stage in data["stages"]}
    assert (tasks["added"], tasks["tick"], tasks["again"]) == (20, 5, 5)
    assert {row["label"] for row in data["rows"] if row["group"] == 0} >= {f"X {index}" for index in range(4)}
    kinds = [one["kind"] for one in data["happenings"]]
    assert kinds[0] == "begin" and kinds.count("join") >= 1 and "over" in kinds
    assert json.dumps(data).count("half second is missing") == 1
