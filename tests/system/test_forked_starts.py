"""Daemons that tests fork, in place of executing them: nobody can tell, and nothing of it is left."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparrow_py import start
from tests.support import forked_starts, probe
from tests.support.daemons import clean_environment, gone
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

PROBE = "tests.support.probe"
ROOT = Path(__file__).parents[2]
COMMANDS = {
    "-m": [sys.executable, "-m", PROBE],
    "-P -m": [sys.executable, "-P", "-m", PROBE],
    "start.py": start.command(PROBE, path=[str(ROOT), "/nowhere"]),
}


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """The probe may be forked; the process ids of those that were."""
    monkeypatch.setattr(forked_starts, "MODULES", {*forked_starts.MODULES, PROBE})
    forked: set[int] = set()

    def remembered(*arguments: Any) -> int | None:
        pid = fork(*arguments)
        forked.update({pid} - {None})
        return pid

    fork = forked_starts._forked
    monkeypatch.setattr(forked_starts, "_forked", remembered)
    yield forked


def both(command: list[str], **options: Any) -> list[subprocess.CompletedProcess[bytes]]:
    """What came of this command when it was executed, and forked."""
    ended = []
    for popen in (subprocess.Popen, forked_starts.Popen):
        with popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
            output, errors = process.communicate(timeout=TIMEOUT_S)
        ended.append(subprocess.CompletedProcess(process.pid, process.returncode, output, errors))
    return ended


@pytest.mark.parametrize("how", COMMANDS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"start_new_session": True, "umask": 0o077, "cwd": "tests", "stdin": subprocess.DEVNULL},
        {"process_group": 0, "env": os.environ | {"TZ": "Asia/Kolkata", "PYTHONPATH": f"{ROOT}:tests:{ROOT}"}},
    ],
    ids=["nothing", "a session", "a group"],
)  # fmt: skip
def test_a_process_cannot_tell_that_it_was_forked(how: str, options: dict[str, Any], forks: set[int]) -> None:
    given = {"env": clean_environment(), "stdin": subprocess.PIPE} | options
    reader, writer = os.pipe()
    command = [*COMMANDS[how], "look"]
    try:
        executed, forked = (json.loads(done.stdout) for done in both(command, pass_fds=[writer, reader], **given))
    finally:
        os.close(reader)
        os.close(writer)
    assert forked["pid"] in forks and executed["pid"] not in forks
    assert forked["random"] != executed["random"]
    assert set(forked["descriptors"]) == {"0", "1", "2", str(reader), str(writer)}
    assert {name: forked["environ"].get(name) for name in given["env"]} == given["env"]
    for observed in (executed, forked):
        for name in probe.DIFFERENT:
            del observed[name]
        for number in ("0", "1", "2"):  # Pipes of their own.
            observed["descriptors"][number][0] = observed["descriptors"][number][0].partition(":")[0]
    assert forked == executed


@pytest.mark.parametrize(
    "how", rest_after(4, "3", "error", "killed", "at exit", "0", "words", "interrupt", "thread", "at once")
)
def test_a_forked_process_ends_as_an_executed_one(how: str, forks: set[int]) -> None:
    executed, forked = both([*COMMANDS["start.py"], how])
    assert forked.args in forks
    assert (forked.returncode, forked.stdout) == (executed.returncode, executed.stdout)
    assert forked.stderr.splitlines()[-1:] == executed.stderr.splitlines()[-1:]


def test_forks_of_one_server_have_generators_of_their_own() -> None:
    drawn = [json.loads(both([*COMMANDS["-m"], "look"])[1].stdout)["random"] for _ in range(3)]
    assert len(set(drawn)) == 3


@pytest.mark.parametrize(
    "special",
    [
        {"command": [sys.executable, "-I", "-c", "pass"]},
        {"command": [sys.executable, "-X", "dev", "-m", PROBE, "0"]},
        {"command": ["/usr/bin/env", sys.executable, "-m", PROBE, "0"]},
        {"command": [sys.executable, "-m", "tests.support.tasks"]},
        {"env": clean_environment(PYTHONHASHSEED="1")},
        {"env": clean_environment(SSL_CERT_FILE="/nowhere")},
        {"preexec_fn": os.getpid},
        {"user": os.geteuid()},
        {"close_fds": False},
        {"executable": sys.executable},
    ],
)
def test_what_a_fork_would_not_do_for_is_executed(special: dict[str, Any], forks: set[int]) -> None:
    options = {"command": [*COMMANDS["-m"], "0"], "env": clean_environment()} | special
    with forked_starts.Popen(options.pop("command"), **options) as process:
        assert process.wait(TIMEOUT_S) == 0
    assert not forks


@pytest.mark.real_starts
def test_a_marked_test_executes_all(forks: set[int]) -> None:
    with forked_starts.Popen([*COMMANDS["-m"], "0"], env=clean_environment()) as process:
        assert process.wait(TIMEOUT_S) == 0
    assert not forks


def test_a_directory_that_is_not_there_is_named() -> None:
    with pytest.raises(FileNotFoundError, match="/nowhere"):
        forked_starts.Popen([*COMMANDS["-m"], "0"], env=clean_environment(), cwd="/nowhere")


@pytest.mark.rest
def test_a_server_that_was_killed_is_replaced(forks: set[int]) -> None:
    command = [*COMMANDS["-m"], "0"]
    both(command, env=clean_environment())
    server = forked_starts._server
    assert server is not None
    server.process.kill()
    server.process.wait()
    both(command, env=clean_environment())
    assert len(forks) == 2 and forked_starts._server is not server


def test_processes_with_and_without_p_come_from_one_server(forks: set[int]) -> None:
    both([*COMMANDS["-m"], "0"], env=clean_environment())
    server = forked_starts._server
    both([*COMMANDS["-P -m"], "0"], env=clean_environment())
    assert len(forks) == 2 and forked_starts._server is server


def test_a_fork_of_the_tests_own_process_starts_nothing_by_the_server(forks: set[int]) -> None:
    both([*COMMANDS["-m"], "0"], env=clean_environment())
    server = forked_starts._server
    assert server is not None
    pid = os.fork()
    if pid == 0:
        closed = server.connection.fileno() < 0
        os._exit(0 if closed and not forked_starts.chosen else 1)
    assert os.waitpid(pid, 0) == (pid, 0)


STARTER = """
import signal, sys
from pathlib import Path
import psutil
from tests.support import forked_starts
from tests.support.daemons import Daemon

forked_starts.chosen = True
with Daemon("scheduler", log=Path(sys.argv[1])) as daemon:
    print(daemon.process.pid, *(child.pid for child in psutil.Process().children()), flush=True)
    sys.stdin.read()
forked_starts.end_server()
assert not psutil.Process().children()
"""


@pytest.mark.parametrize("number", rest_after(3, None, signal.SIGINT, signal.SIGKILL, signal.SIGTERM))
@pytest.mark.rest
def test_neither_server_nor_daemon_outlives_who_started_them(tmp_path: Path, number: signal.Signals | None) -> None:
    """Whether the tests end by themselves, or are interrupted in a terminal, or killed."""
    with subprocess.Popen(
        [sys.executable, "-c", STARTER, str(tmp_path / "log")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=clean_environment(), start_new_session=True,
    ) as starter:  # fmt: skip
        assert starter.stdin is not None and starter.stdout is not None
        daemon, *children = map(int, starter.stdout.readline().split())
        assert daemon in children and len(children) == 2, "the daemon, and the server that has forked it"
        assert {psutil.Process(pid).ppid() for pid in children} == {starter.pid}
        if number is None:
            starter.stdin.close()
        elif number == signal.SIGINT:
            os.killpg(starter.pid, number)
        else:
            starter.send_signal(number)
        code = starter.wait(TIMEOUT_S)
        assert code == (0 if number is None else -number)
        for pid in children:
            wait_until(lambda pid=pid: gone(pid))
