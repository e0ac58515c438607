"""The conformance test: it passes our own executors, and says what is wrong with others.

It runs in the process of the tests, and has our own executors forked (`forked_starts`); others are executed.
"""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from frontends.command.tasks import CommandTask, encode_task
from node_monitor import conformance
from sparrow_py import calls
from tests.support import forked_starts, tasks
from tests.support.suites import rest_after

pytestmark = pytest.mark.processes

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "executor_stdlib.py"
BROKEN = Path(__file__).with_name("broken_executor.py")
TIMEOUT_S = "20"
PATH = os.pathsep.join(entry for entry in sys.path if entry)
"""Where executors look for modules."""


@pytest.fixture(scope="module", autouse=True)
def forked_executors() -> Iterator[None]:
    """Our own are forked."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(conformance, "Popen", forked_starts.Popen)
        yield


def judged(*arguments: str, timeout_s: str = TIMEOUT_S) -> tuple[int, list[str]]:
    """Exit code and lines of the conformance test with these arguments."""
    ended = CliRunner(env={"PYTHONPATH": PATH}).invoke(conformance.main, ["--timeout-s", timeout_s, *arguments])
    return ended.exit_code, ended.stdout.splitlines()


def failures(lines: list[str]) -> dict[str, str]:
    """What failed, and why."""
    return {
        line.split(":")[0].removeprefix("FAIL  "): reason.strip()
        for line, reason in itertools.pairwise(lines)
        if line.startswith("FAIL")
    }


def marks(lines: list[str]) -> dict[str, int]:
    """How many lines begin with which word."""
    words = [line.split()[0] for line in lines]
    return {word: words.count(word) for word in sorted(set(words))}


def test_the_example_conforms() -> None:
    """By the command, as its user starts it."""
    options = ["--timeout-s", TIMEOUT_S, "--payload", "a b a", "--app", "words"]
    command = [sys.executable, "-m", "node_monitor.conformance", *options, "--", sys.executable, str(EXAMPLE)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, cwd=ROOT)
    assert (ended.returncode, marks(ended.stdout.splitlines())) == (0, {"ok": 8, "skip": 2})


def test_the_python_executor_conforms(tmp_path: Path) -> None:
    (tmp_path / "common").write_bytes(calls.encode_function(tasks.square))
    (tmp_path / "payload").write_bytes(calls.encode_arguments((3,), {}))
    code, lines = judged(
        "--common-file", str(tmp_path / "common"), "--payload-file", str(tmp_path / "payload"), "--app", "python",
        "--", sys.executable, "-m", "frontends.python.executor",
    )  # fmt: skip
    assert (code, marks(lines)) == (0, {"ok": 9, "skip": 1})


@pytest.mark.parametrize("payload", rest_after(1, b'{"argv": ["true"]}', encode_task(CommandTask(["true"]))))
def test_the_command_executor_conforms(tmp_path: Path, payload: bytes) -> None:
    (tmp_path / "payload").write_bytes(payload)
    code, lines = judged(
        "--payload-file", str(tmp_path / "payload"), "--places", "3", "--app", "command",
        "--", sys.executable, "-m", "frontends.command.executor",
    )  # fmt: skip
    assert (code, marks(lines)) == (0, {"ok": 10})


@pytest.mark.parametrize(
    ("fault", "failed", "reason"),
    rest_after(
        2,
        ["speaks before hello", {"hello"}, "the first message is not a hello but Returned(runs=[])"],
        ["no files", {"file"}, "it closed its connection; the Done of run 1 was expected"],
        ["another id", {"hello"}, "id 'somebody'; allowed: what SPARROW_EXECUTOR_ID says, 'conformance-1'"],
        ["no JSON", {"run", "runs", "revoke", "common", "file", "inputs"}, "malformed executor frame (JSON): "],
        ["answers twice", {"run", "runs", "revoke"}, "run 1 was answered or returned already"],
        ["out of order", {"runs"}, "with one place, runs are to be answered in the order in which they came"],
        ["returns what it ran", {"revoke"}, "run 2 was returned, but it was answered or returned already"],
        ["result elsewhere", {"run", "runs", "revoke", "common", "file", "inputs"}, "the result's file '"],
        ["wrong hash", {"run", "runs", "revoke", "common", "file", "inputs"}, "the SHA-256 of "],
        ["monotonic clock", {"run", "runs", "revoke", "common", "file", "inputs"}, "started_at_s "],
        ["negative time", {"run", "runs", "revoke", "common", "file", "inputs"}, "service_s -1.0 of run 1"],
        ["lives on", {"end"}, "it has not ended 2 s after its socket closed"],
    ),
)
def test_what_is_broken_is_named(fault: str, failed: set[str], reason: str) -> None:
    code, lines = judged("--payload", "a", "--", sys.executable, str(BROKEN), fault)
    found = failures(lines)
    assert code == 1
    assert found.keys() >= failed
    assert {name for name, why in found.items() if why.startswith(reason)} == failed, found


@pytest.mark.rest
def test_what_does_not_come_is_named() -> None:
    code, lines = judged("--payload", "a", "--", sys.executable, str(BROKEN), "deaf to revokes", timeout_s="3")
    assert code == 1
    assert failures(lines)["revoke"] == "the answer to a Revoke did not come within 3 s"


@pytest.mark.rest
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["no-such-command"], "the command cannot be started: [Errno 2]"),
        (["false"], "it ended with exit code 1 before it had connected"),
        ([sys.executable, str(EXAMPLE)], "run 1 is failed: 'utf-8' codec can't decode"),
    ],
)
def test_what_does_not_work_at_all_is_named(tmp_path: Path, arguments: list[str], reason: str) -> None:
    (tmp_path / "payload").write_bytes(b"\xff")
    code, lines = judged("--payload-file", str(tmp_path / "payload"), "--", *arguments)
    assert code == 1
    assert next(iter(failures(lines).values())).startswith(reason)


def test_another_app_than_the_one_that_was_to_be() -> None:
    code, lines = judged("--app", "letters", "--", sys.executable, str(EXAMPLE))
    assert (code, failures(lines)) == (1, {"hello": "app 'words'; allowed: 'letters'"})
