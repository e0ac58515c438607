"""A user's program whose directory has a module of each of our packages' names (but for `sparrow_py`).

Daemons and workers run ours, tasks get theirs, however the program is run; where only one of both can be, an error says
what is in the way.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sparrow_py import Client
from sparrow_py.own_packages import LENT
from tests.support.waiting import TIMEOUT_S

pytestmark = pytest.mark.real_starts
"""The command lines, import paths and modules of processes are what is looked at."""

THEIRS = 'OWNER = "the user"\n'
WORK = f"""
import importlib

def owners():
    return [importlib.import_module(name).OWNER for name in {LENT!r}]
"""
MAIN = """
from sparrow_py import Client, LocalCluster
import frontends.plots, scheduler, work

with LocalCluster(slots=1) as cluster, Client(cluster) as client:
    print(client.submit(work.owners).result(), client.submit(lambda: (scheduler.OWNER, frontends.plots.OWNER)).result())

"""
IN_THE_WAY = """
from sparrow_py import Client, ClusterError, LocalCluster, SchedulerHere

for kind in (lambda: LocalCluster(in_process=True), lambda: Client(SchedulerHere())):
    try:
        kind()
    except ClusterError as error:
        print(error)
"""
IPYTHON = [
    str(Path(sys.executable).with_name("ipython")),
    "--ipython-dir={project}/ipython",
    "--HistoryManager.enabled=False",
]
"""Not the tester's own settings and history."""
PYTEST = ["-m", "pytest", "-q", "-s", "-p", "no:cacheprovider"]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of such a program."""
    directory = tmp_path_factory.mktemp("a project")
    for name in LENT:
        if name in ("frontends", "node_monitor"):
            (directory / name).mkdir()
            (directory / name / "__init__.py").write_text(THEIRS)
        else:
            (directory / f"{name}.py").write_text(THEIRS)
    (directory / "frontends/plots.py").write_text(THEIRS)
    (directory / "ipython").mkdir()
    (directory / "secrets.py").write_text("1 / 0  # Our daemons mean the standard library's.\n")
    (directory / "work.py").write_text(WORK)
    (directory / "main.py").write_text(MAIN)
    (directory / "in_the_way.py").write_text(IN_THE_WAY)
    (directory / "test_main.py").write_text("def test_main():\n    import main\n")
    return directory


def python(*arguments: str | Path, cwd: Path, stdin: str = "") -> str:
    """What the interpreter prints, as a user starts it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SPARROW_", "PYTEST_"))}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=cwd, input=stdin, capture_output=True, text=True, timeout=TIMEOUT_S,
        env={**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("inside", "arguments"),
    [
        (False, ["{project}/main.py"]),
        pytest.param(True, ["-m", "main"], marks=pytest.mark.rest),
        pytest.param(True, ["-i", "-q"], marks=pytest.mark.rest),
        pytest.param(True, [*IPYTHON, "--no-banner"], marks=pytest.mark.rest),
        pytest.param(False, [*IPYTHON, "{project}/main.py"], marks=pytest.mark.rest),
        pytest.param(False, [*PYTEST, "--import-mode=prepend", "{project}/test_main.py"], marks=pytest.mark.rest),
        pytest.param(
            True,
            [*PYTEST, "--import-mode=importlib", "--override-ini=pythonpath=.", "test_main.py"],
            marks=pytest.mark.rest,
        ),
    ],
    ids=["script", "module", "interactive", "ipython", "ipython-script", "pytest", "pytest-importlib"],
)
def test_a_cluster_runs_our_code_and_tasks_find_what_their_program_finds(
    project: Path, tmp_path: Path, inside: bool, arguments: list[str]
) -> None:
    (tmp_path / "work.py").write_text("1 / 0  # The program does not look where it was started.\n")
    said = python(
        *(argument.format(project=project) for argument in arguments),
        cwd=project if inside else tmp_path,
        stdin=MAIN if "-i" in arguments or "--no-banner" in arguments else "",
    )
    assert f"{['the user'] * len(LENT)} ('the user', 'the user')" in said


def test_what_needs_our_packages_in_the_users_process_says_what_is_in_the_way(project: Path) -> None:
    in_process, here = python("in_the_way.py", cwd=project).splitlines()
    place = str(project / "scheduler.py")
    for said, who in ((in_process, "LocalCluster(in_process=True)"), (here, "SchedulerHere")):
        assert said.startswith(
            f"{who} needs sparrow-py's package 'scheduler', and in this process that name means {place}"
        )
        assert "rename that, or " in said


# ---- daemons and commands of one's own -----------------------------------------------------------


@contextmanager
def console_script(folder: Path, name: str, *flags: str, cwd: Path) -> Iterator[Iterator[str]]:
    """The lines that this function of `sparrow_py.start` prints, as the command that an installation makes of it."""
    script = folder / name
    script.write_text(f"from sparrow_py.start import {name}; {name}()")
    with subprocess.Popen([sys.executable, script, *flags], cwd=cwd, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield iter(process.stdout.readline, "")
        finally:
            process.terminate()


def assert_tasks_find_the_users(address: str) -> None:
    def owners() -> list[str]:
        import work  # The project's.

        found: list[str] = work.owners()
        return found

    with Client(address) as client:
        assert client.submit(owners).result(TIMEOUT_S) == ["the user"] * len(LENT)


def test_daemons_that_are_started_there_run_our_code_and_tasks_find_the_users(project: Path, tmp_path: Path) -> None:
    with console_script(tmp_path, "scheduler", "--port", "0", cwd=project) as said:
        address = json.loads(next(said))["address"]
        flags = ("--port", "0", "--scheduler", address, "--slots", "1")
        with console_script(tmp_path, "node_monitor", *flags, cwd=project):
            assert_tasks_find_the_users(address)


@pytest.mark.rest
def test_so_does_a_cluster_of_the_command_line(project: Path, tmp_path: Path) -> None:
    with console_script(tmp_path, "sparrow", "cluster", "--slots", "1", cwd=project) as said:
        address = next(line.strip().partition("=")[2] for line in said if "export SPARROW_SCHEDULER=" in line)
        assert_tasks_find_the_users(address)


def test_the_command_is_ours_with_the_directory_in_its_path(project: Path) -> None:
    said = python("-c", "from sparrow_py.start import sparrow; sparrow()", "nodes", "--help", cwd=project)
    assert said.startswith("Usage: sparrow nodes")
