"""The `sparrow` command: its input, its output, its exit codes, and that a mistake is one line."""

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

import sparrow_py
from frontends.cli import output, starting
from frontends.cli.__main__ import COMMANDS
from frontends.cli.cluster import introduction
from frontends.cli.tables import age
from frontends.command.tasks import CommandTask
from sparrow_py.errors import NoScheduler
from tests.support.run_fakes import FakeClient, FakeCluster, assert_one_line, sparrow, tasks_of
from tests.support.suites import rest_after
from tests.support.waiting import wait_until

NODE = {
    "id": "n1",
    "slots": 4,
    "busy": 1,
    "reservations": 5,
    "apps": {"python": "3.11", "noop": ""},
    "attributes": {"rack": "[red]r1"},
    "resources": {"cpu": 4.0, "memory_bytes": 8e9},
    "state": "ready",
}
JOB_ID = "0f7a6c1e9b5d4a55a1f0c6f2f1c3b7d8"
JOB = {
    "id": JOB_ID,
    "name": "count",
    "user": "ada",
    "app": "command",
    "policy": "flow",
    "tasks": 100,
    "unplaced": 60,
    "running": 4,
    "finished": 30,
    "failed": 3,
    "cancelled": 2,
    "lost": 1,
    "submitted_at_s": 1e9,
}
SCHEDULER = {
    "name": "s1",
    "policy": "sparrow",
    "takes_jobs": True,
    "leads": False,
    "lead_state": "",
    "epoch": 0,
    "nodes": 1,
    "slots": 4,
    "jobs": 1,
    "why_not": "",
}
LISTS = [("nodes", "/v1/nodes"), ("jobs", "/v1/jobs"), ("schedulers", "/v1/scheduler")]
"""Commands that list what all schedulers answer, and what they ask these."""
TOKEN = "t" * 32


# ---- schedulers' HTTP ------------------------------------------------------------------------


SUBMIT = "/v1/jobs?default_user=a%20b"


class FakeScheduler(ThreadingHTTPServer):
    """Answers like a scheduler, from `answers`, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answers: dict[tuple[str, str], Any] = {
            ("GET", "/v1/nodes"): (200, {"nodes": [NODE]}),
            ("GET", "/v1/jobs"): (200, {"jobs": [JOB]}),
            ("GET", "/v1/scheduler"): (200, SCHEDULER),
            ("DELETE", f"/v1/jobs/{JOB_ID}"): (202, {}),
        }
        self.asked: list[tuple[str, str, str | None]] = []
        self.bodies: list[Any] = []
        self.lacking = 0
        """The number of bytes that are missing at the end of answers."""
        self.chunked = False
        """Whether answers are streamed, and break off."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeScheduler

    def _answer(self) -> None:
        self.server.asked.append((self.command, self.path, self.headers["Authorization"]))
        if self.command == "POST" and self.headers["Content-Length"] != "0":
            assert self.headers["Content-Type"] == "application/json"
            self.server.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        missing = (404, {"error": {"message": "no such thing"}})
        given = self.server.answers.get((self.command, self.path), missing)
        status, body = given.pop(0) if isinstance(given, list) else given
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        if self.server.chunked:
            self.send_header("Transfer-Encoding", "chunked")
            data = f"{len(data):x}\r\n".encode() + data + b"\r\n"
        else:
            self.send_header("Content-Length", str(len(data) + self.server.lacking))
        if status == 429:
            self.send_header("Retry-After", "7")
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_DELETE = do_POST = _answer

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def schedulers() -> Iterator[Callable[[], FakeScheduler]]:
    """Starts fake schedulers."""
    started: list[tuple[FakeScheduler, threading.Thread]] = []

    def start() -> FakeScheduler:
        server = FakeScheduler()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def scheduler(schedulers: Callable[[], FakeScheduler]) -> FakeScheduler:
    return schedulers()


@pytest.fixture
def nobody(schedulers: Callable[[], FakeScheduler]) -> str:
    """An address where no process listens."""
    server = FakeScheduler()
    server.server_close()
    return server.address


class TestHelp:
    @pytest.mark.parametrize("command", COMMANDS)
    def test_every_command_has_help_with_examples(self, command: str) -> None:
        result = sparrow(command, "--help")
        assert result.exit_code == 0
        assert "Examples:\n    " in result.output
        assert f"sparrow {command}" in result.output

    def test_lists_the_commands(self) -> None:
        result = sparrow("-h")
        assert result.exit_code == 0
        assert all(f"\n  {command} " in result.output for command in COMMANDS)

    def test_the_help_imports_no_numpy(self) -> None:
        program = (
            "import sys; from frontends.cli.__main__ import main; main(['--help'], standalone_mode=False);"
            "from frontends.cli import dataflow; assert 'numpy' not in sys.modules"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def test_without_a_command_the_help_is_shown(self) -> None:
        result = sparrow()
        assert result.exit_code == 2
        assert "Commands:" in result.output


class TestMistakes:
    @pytest.mark.parametrize(
        ("arguments", "parts"),
        [
            (["nodse"], ["nodse", "sparrow --help"]),
            (["nodes", "--josn"], ["--josn", "sparrow nodes --help"]),
            (["nodes", "-s", "nowhere"], ["scheduler: 'nowhere'"]),
            (["nodes", "-s", "host:99999"], ["scheduler: 'host:99999'", "a port from 1 to 65535"]),
            (["nodes", "--token-file", "/no/such/file"], ["token_file", "/no/such/file"]),
            (["cancel"], ["JOB_ID"]),
            (["cancel", "a\nb"], ["job id"]),
            (["results"], ["JOB_ID"]),
            (["results", ""], ["job id"]),
            (["submit"], ["FILE"]),
            (["submit", "/no/such/file"], ["/no/such/file"]),
            (["submit", "-"], ["job", "JSON"]),
            (["cordon"], ["NODE"]),
            (["drain", "a\tb"], ["node", "printable"]),
            (["run"], ["COMMAND", "sparrow run --help"]),
            (["run", "--array", "-1", "true"], ["--array"]),
            (["run", "--array", "x", "true"], ["--array"]),
            (["run", "--array", "1", "--probe-ratio", "nan", "true"], ["probe_ratio"]),
            (["run", "--array", "1", "--probe-ratio", "-1", "true"], ["probe_ratio"]),
            (["run", "--array", "1", "--max-attempts", "0", "true"], ["max_attempts"]),
            (["run", "--array", "1", "--prefetch", "-1", "true"], ["prefetch"]),
            (["run", "--array", "1", "--priority", "-1001", "true"], ["priority", "-1000 to"]),
            (["run", "--array", "1", "--policy", "best", "true"], ["--policy", "'auto'"]),
            (["run", "--array", "1", "--gang", "true"], ["gang", 'policy="flow"']),
            (["run", "--array", "1", "--policy", "flow", "--max-per-node", "0", "true"], ["max_per_node", "from 1"]),
            (["run", "--array", "1", "--where", "zone is eu", "true"], ["where", "'zone is eu'", "NAME == VALUE"]),
            (["run", "--array", "1", "--demand", "cpu", "true"], ["demand", "'cpu'", "NAME=AMOUNT"]),
            (["run", "--array", "1", "--demand", "cpu=-1", "true"], ["demand", "cpu", "-1"]),
            (["run", "--array", "1", "--task-timeout", "-1", "true"], ["task_timeout_s"]),
            (["run", "--array", "1", "-e", "NO_SUCH_VARIABLE_HERE", "true"], ["env", "NO_SUCH_VARIABLE_HERE"]),
            (["run", "--array", "1", "-e", "=x", "true"], ["env"]),
            (["run", "-j", "2", "-s", "127.0.0.1:1", "true"], ["--slots"]),
            (["cluster", "--slots", "0"], ["--slots"]),
            (["cluster", "--policy", "central"], ["--policy", "'sparrow', 'flow'"]),
            (["cluster", "--policy", "flow", "--schedulers", "2"], ["schedulers", "1 with policies"]),
            (["cluster", "--profile", "papier"], ["--profile", "'papier'", "'default', 'paper'"]),
        ],
    )
    def test_cost_one_line(self, arguments: list[str], parts: list[str]) -> None:
        assert_one_line(sparrow(*arguments), 2, *parts)

    def test_input_that_is_not_text(self) -> None:
        assert_one_line(sparrow("run", "echo", stdin=b"fine\n\xff\n"), 2, "line 2 of the input")

    def test_input_with_a_nul(self) -> None:
        assert_one_line(sparrow("run", "echo", stdin=b"a\0b\n"), 2, "tasks[0].argv[1]")

    def test_as_a_process(self) -> None:
        arguments = [sys.executable, "-m", "frontends.cli", "nodes", "-s", "?"]
        ended = subprocess.run(arguments, capture_output=True, check=False)
        assert (ended.returncode, ended.stdout, ended.stderr.count(b"\n")) == (2, b"", 1)


class TestNodes:
    def test_table(self, scheduler: FakeScheduler) -> None:
        result = sparrow("nodes", "-s", scheduler.address)
        header, row = result.stdout.splitlines()
        assert header.split() == ["NODE", "STATE", "SLOTS", "BUSY", "RESERVATIONS", "APPS", "RESOURCES", "ATTRIBUTES"]
        expected = ["n1", "ready", "4", "1", "5", "python=3.11", "noop", "cpu=4", "memory=7.5GiB", "rack=[red]r1"]
        assert row.split() == expected
        assert result.exit_code == 0

    def test_json(self, scheduler: FakeScheduler) -> None:
        assert json.loads(sparrow("nodes", "--json", "-s", scheduler.address).stdout) == {"nodes": [NODE]}

    def test_its_help_says_why_more_may_be_busy_than_there_are_slots(self) -> None:
        said = " ".join(sparrow("nodes", "--help").output.split())
        for reason in ("wait for tasks of their own", "ahead of a free slot", "on its way to a node and back"):
            assert reason in said.partition("BUSY may be more than SLOTS")[2]

    def test_nodes_of_several_schedulers_are_listed_once(self, schedulers: Callable[[], FakeScheduler]) -> None:
        first, second = schedulers(), schedulers()
        second.answers["GET", "/v1/nodes"] = (200, {"nodes": [NODE, NODE | {"id": "n0"}]})
        result = sparrow("nodes", "--json", "-s", f"{first.address}, {second.address}")
        listed = json.loads(result.stdout)["nodes"]
        assert [(node["id"], node["busy"], node["reservations"]) for node in listed] == [("n0", 1, 5), ("n1", 2, 10)]

    def test_apps_that_do_not_start_are_named_with_the_reason(self, scheduler: FakeScheduler) -> None:
        reason = "exited with code 1; it said:\nno \x1b[31msparrow_py"
        scheduler.answers["GET", "/v1/nodes"] = (200, {"nodes": [NODE | {"withdrawn": {"python": reason}}]})
        lines = sparrow("nodes", "-s", scheduler.address).stdout.splitlines()
        assert lines[2:] == [
            f"{NODE['id']}: executors of python do not start: exited with code 1; it said:",
            "  no \\x1b[31msparrow_py",
        ]

    def test_no_nodes(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", "/v1/nodes"] = (200, {"nodes": []})
        result = sparrow("nodes", "-s", scheduler.address)
        assert (result.exit_code, result.stdout, result.stderr) == (0, "", "no nodes are connected\n")


class TestExplain:
    ENDED: ClassVar[dict[str, Any]] = {"job": JOB_ID, "policy": "sparrow", "stages": []}

    def test_what_held_a_job_up_comes_before_what_waits(self, scheduler: FakeScheduler) -> None:
        stage = {"name": "", "waiting": 1, "reasons": ["no slot\x1b[1m"]}
        answer = self.ENDED | {"so_far": ["ideal: 1 s", "evil\x1b[2J"], "stages": [stage]}
        scheduler.answers["GET", f"/v1/jobs/{JOB_ID}/explain"] = (200, answer)
        lines = sparrow("explain", "-s", scheduler.address, JOB_ID).stdout.splitlines()
        assert (lines[0], lines[2], len(lines)) == ("ideal: 1 s", "1 task waits", 4)
        assert not any("\x1b" in line for line in lines)

    def test_a_scheduler_of_the_version_before_says_only_what_waits(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", f"/v1/jobs/{JOB_ID}/explain"] = (200, self.ENDED)
        assert sparrow("explain", "-s", scheduler.address, JOB_ID).stdout == "no task of it waits\n"

    def test_a_job_that_nobody_remembers(self, scheduler: FakeScheduler) -> None:
        said = f"sparrow: no job {JOB_ID!r} is queued or running, or remembered\n"
        result = sparrow("explain", "-s", scheduler.address, JOB_ID)
        assert (result.exit_code, result.stderr) == (1, said)


class TestJobs:
    def test_table(self, scheduler: FakeScheduler) -> None:
        result = sparrow("jobs", "-s", scheduler.address)
        header, row = (line.split() for line in result.stdout.splitlines())
        assert header[3:6] == ["APP", "POLICY", "TASKS"]
        assert header[6:] == ["UNPLACED", "RUNNING", "FINISHED", "FAILED", "CANCELLED", "LOST", "AGE"]
        assert row[:12] == [JOB_ID, "count", "ada", "command", "flow", "100", "60", "4", "30", "3", "2", "1"]

    def test_the_table_leaves_out_columns_that_are_zero_for_all_jobs(
        self, schedulers: Callable[[], FakeScheduler]
    ) -> None:
        first, second = schedulers(), schedulers()
        for scheduler in (first, second):
            scheduler.answers["GET", "/v1/jobs"] = (200, {"jobs": [JOB | {"failed": 0, "cancelled": 0, "lost": 0}]})
        header, *rows = sparrow("jobs", "-s", f"{first.address},{second.address}").stdout.splitlines()
        assert header.split()[5:] == ["TASKS", "UNPLACED", "RUNNING", "FINISHED", "AGE", "SCHEDULER"]
        assert [row.split()[-1] for row in rows] == [first.address, second.address]

    def test_those_that_have_ended_the_latest_first(self, scheduler: FakeScheduler) -> None:
        ended = JOB | {"state": "ended", "running": 0, "failed": 0, "lost": 0, "ended_at_s": 1e9 + 300}
        entries = [ended | {"id": "before", "ended_at_s": 1e9 + 2}, ended, JOB | {"ended_at_s": None}]
        scheduler.answers["GET", "/v1/jobs?recent=true"] = (200, {"jobs": entries})
        header, *rows = (
            line.split() for line in sparrow("jobs", "--ended", "-s", scheduler.address).stdout.splitlines()
        )
        assert header[5:] == ["TASKS", "FINISHED", "CANCELLED", "STATE", "TIME", "AGO"]
        assert [row[0] for row in rows] == [JOB_ID, "before"]
        assert rows[0][5:11] == ["100", "30", "2", "ended", "5", "min"]
        scheduler.answers["GET", "/v1/jobs?recent=true"] = (200, {"jobs": []})
        assert sparrow("jobs", "--ended", "-s", scheduler.address).stderr == "no jobs have ended in the last hour\n"

    def test_priorities_are_shown_if_some_job_has_one(self, scheduler: FakeScheduler) -> None:
        entries = [JOB | {"id": "old", "submitted_at_s": 1.0}, JOB | {"priority": -3}]
        scheduler.answers["GET", "/v1/jobs"] = (200, {"jobs": entries})
        header, *rows = (line.split() for line in sparrow("jobs", "-s", scheduler.address).stdout.splitlines())
        assert header[4:7] == ["POLICY", "PRIORITY", "TASKS"]
        assert [row[5] for row in rows] == ["0", "-3"]
        scheduler.answers["GET", "/v1/jobs"] = (200, {"jobs": [JOB | {"priority": 0}]})
        assert "PRIORITY" not in sparrow("jobs", "-s", scheduler.address).stdout

    def test_a_scheduler_of_a_version_without_policies_says_none(self, scheduler: FakeScheduler) -> None:
        older = {key: value for key, value in JOB.items() if key != "policy"}
        scheduler.answers["GET", "/v1/jobs"] = (200, {"jobs": [older]})
        _, row = (line.split() for line in sparrow("jobs", "-s", scheduler.address).stdout.splitlines())
        assert row[:5] == [JOB_ID, "count", "ada", "command", "100"]

    def test_oldest_first(self, schedulers: Callable[[], FakeScheduler]) -> None:
        first, second = schedulers(), schedulers()
        second.answers["GET", "/v1/jobs"] = (200, {"jobs": [JOB | {"id": "older", "submitted_at_s": 1.0}]})
        result = sparrow("jobs", "--json", "-s", first.address, "-s", second.address)
        jobs = json.loads(result.stdout)["jobs"]
        assert [(job["id"], job["scheduler"]) for job in jobs] == [
            ("older", second.address),
            (JOB_ID, first.address),
        ]

    @pytest.mark.parametrize(
        ("seconds", "text"), [(-1, "0 s"), (99, "99 s"), (100, "2 min"), (7200, "2 h"), (200_000, "2 d")]
    )
    def test_age(self, seconds: float, text: str) -> None:
        assert age(seconds) == text


class TestFlowDump:
    PATH = "/v1/flow/problem"

    def test_the_first_that_has_solved_one_is_asked_for_it(self, scheduler: FakeScheduler, nobody: str) -> None:
        scheduler.answers["GET", self.PATH] = (200, b"p min 0 0\n")
        result = sparrow("flow", "dump", "-s", f"{nobody},{scheduler.address}")
        assert (result.exit_code, result.stdout) == (0, "p min 0 0\n")

    @pytest.mark.parametrize("nobody_first", [False, True])
    def test_each_scheduler_says_why_there_is_none(
        self, scheduler: FakeScheduler, nobody: str, nobody_first: bool
    ) -> None:
        scheduler.answers["GET", self.PATH] = (404, {"error": {"message": "no round has been solved yet"}})
        addresses = [nobody, scheduler.address] if nobody_first else [scheduler.address, nobody]
        reasons = f"no scheduler answers at {nobody}: ", f"{scheduler.address} refused: no round has been solved yet"
        assert_one_line(sparrow("flow", "dump", "-s", ",".join(addresses)), 1, *reasons)


class TestCancel:
    def test_cancels(self, scheduler: FakeScheduler) -> None:
        result = sparrow("cancel", "-s", scheduler.address, JOB_ID)
        assert (result.exit_code, result.stdout) == (0, f"cancelled {JOB_ID}\n")
        assert scheduler.asked == [("DELETE", f"/v1/jobs/{JOB_ID}", None)]

    def test_every_scheduler_is_asked_for_the_job(self, schedulers: Callable[[], FakeScheduler]) -> None:
        first, second = schedulers(), schedulers()
        first.answers.clear()
        assert sparrow("cancel", "-s", first.address, "-s", second.address, JOB_ID).exit_code == 0

    def test_an_unknown_job_does_not_keep_others_from_being_cancelled(self, scheduler: FakeScheduler) -> None:
        result = sparrow("cancel", "-s", scheduler.address, "a/../b c", JOB_ID)
        assert_one_line(result, 1, "no job 'a/../b c'")
        assert result.stdout == f"cancelled {JOB_ID}\n"
        assert scheduler.asked[0][1] == "/v1/jobs/a%2F..%2Fb%20c"

    def test_running_tasks_too(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["DELETE", f"/v1/jobs/{JOB_ID}?running=true"] = (202, {})
        assert sparrow("cancel", "--running", "-s", scheduler.address, JOB_ID).stdout == f"cancelled {JOB_ID}\n"

    def test_a_job_that_has_ended(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["DELETE", f"/v1/jobs/{JOB_ID}"] = (409, {"error": {"message": "it has ended"}})
        assert_one_line(sparrow("cancel", "-s", scheduler.address, JOB_ID), 1, f"no job '{JOB_ID}'")


RESULTS = f"/v1/jobs/{JOB_ID}/results"
LINES = [
    json.dumps({"task": task, "status": status, "error": error}).encode() + b"\n"
    for task, status, error in ((1, "finished", ""), (0, "finished", ""))
]
LOST = json.dumps({"task": 2, "status": "lost", "error": "its node\nwent away"}).encode() + b"\n"


class TestResults:
    def test_lines(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", RESULTS] = (200, b"".join(LINES))
        result = sparrow("results", "-s", scheduler.address, JOB_ID)
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"".join(LINES), "")

    def test_tasks_that_did_not_finish(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", RESULTS] = (200, b"".join([*LINES, LOST]))
        result = sparrow("results", "-s", scheduler.address, JOB_ID)
        assert_one_line(result, 1, "1 of 3 tasks did not finish (first: task 2 lost: its node went away)")

    def test_every_scheduler_is_asked_for_the_results(
        self, schedulers: Callable[[], FakeScheduler], nobody: str
    ) -> None:
        first, second = schedulers(), schedulers()
        second.answers["GET", RESULTS] = (200, b"".join(LINES))
        result = sparrow("results", "-s", f"{nobody},{first.address},{second.address}", JOB_ID)
        assert (result.exit_code, result.stdout_bytes) == (0, b"".join(LINES))

    def test_no_scheduler_has_results_of_the_job(self, scheduler: FakeScheduler) -> None:
        assert_one_line(sparrow("results", "-s", scheduler.address, JOB_ID), 1, f"no results of a job '{JOB_ID}'")

    def test_no_scheduler_answers(self, nobody: str) -> None:
        assert_one_line(sparrow("results", "-s", nobody, JOB_ID), 1, f"no scheduler answers at {nobody}")

    def test_the_scheduler_refuses(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", RESULTS] = (503, {"error": {"message": "too many readers"}})
        assert_one_line(sparrow("results", "-s", scheduler.address, JOB_ID), 1, "too many readers")

    @pytest.mark.parametrize(("chunked", "lacking"), [(True, 0), (False, 5)])
    def test_results_that_break_off_are_an_error(self, scheduler: FakeScheduler, chunked: bool, lacking: int) -> None:
        scheduler.answers["GET", RESULTS] = (200, b"".join(LINES))
        scheduler.chunked, scheduler.lacking = chunked, lacking
        result = sparrow("results", "-s", scheduler.address, JOB_ID)
        assert_one_line(result, 1, "the results broke off")
        assert result.stdout_bytes == b"".join(LINES)

    def test_a_line_that_is_not_a_result_is_an_error(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", RESULTS] = (200, b"<html>\n")
        assert_one_line(sparrow("results", "-s", scheduler.address, JOB_ID), 1, "a line of the answer is not")


class TestSubmit:
    @pytest.fixture
    def accepting(self, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch) -> FakeScheduler:
        monkeypatch.setattr("frontends.cli.submit.getpass", SimpleNamespace(getuser=lambda: "a b"))
        scheduler.answers["POST", SUBMIT] = (202, {"id": JOB_ID})
        scheduler.answers["GET", RESULTS] = (200, b"".join(LINES))
        return scheduler

    def test_submit_prints_the_results_as_they_come(self, accepting: FakeScheduler, tmp_path: Path) -> None:
        job = {"job_id": JOB_ID, "user": "ada", "app": "noop", "tasks": [{"payload": "ü"}]}
        (tmp_path / "job.json").write_text(json.dumps(job), "utf-8")
        result = sparrow("submit", "-s", accepting.address, str(tmp_path / "job.json"))
        assert (result.exit_code, result.stdout_bytes, result.stderr) == (0, b"".join(LINES), "")
        assert accepting.bodies == [job]

    def test_mints_an_id_and_leaves_the_user_to_the_token(self, accepting: FakeScheduler) -> None:
        result = sparrow("submit", "--detach", "-s", accepting.address, "-", stdin='{"app": "noop"}')
        (job,) = accepting.bodies
        assert (result.exit_code, result.stdout) == (0, job["job_id"] + "\n")
        assert (len(job["job_id"]), job["app"], "user" in job) == (32, "noop", False)

    @pytest.mark.parametrize("text", ["", "[]", "1", "{", "\udcff"])
    def test_a_file_that_is_not_a_job_is_refused(self, accepting: FakeScheduler, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        assert_one_line(sparrow("submit", "-s", accepting.address, "-", stdin=data), 2, "job: ")
        assert not accepting.bodies

    @pytest.mark.parametrize("status", [400, 409, 413])
    def test_a_job_that_the_scheduler_finds_invalid_is_an_error(self, accepting: FakeScheduler, status: int) -> None:
        error = {"message": "tasks[0].bogus: there is no such field", "field": "tasks[0].bogus"}
        accepting.answers["POST", SUBMIT] = (status, {"error": error})
        result = sparrow("submit", "-s", accepting.address, "-", stdin="{}")
        assert_one_line(result, 2, accepting.address, "tasks[0].bogus: there is no such field")

    def test_another_scheduler_is_tried_if_one_has_another_policy(
        self, accepting: FakeScheduler, schedulers: Callable[[], FakeScheduler]
    ) -> None:
        sampling = schedulers()
        error = {"message": "policy: 'flow' is not valid", "field": "policy"}
        sampling.answers["POST", SUBMIT] = (400, {"error": error})
        both = f"{sampling.address},{accepting.address}"
        for _ in range(8):  # The first is chosen at random.
            assert sparrow("submit", "--detach", "-s", both, "-", stdin="{}").exit_code == 0
        assert len(accepting.bodies) == 8
        result = sparrow("submit", "-s", sampling.address, "-", stdin="{}")
        assert_one_line(result, 2, f"scheduler {sampling.address}: policy: 'flow' is not valid")

    def test_another_scheduler_is_tried_if_one_cannot_be_reached(self, accepting: FakeScheduler, nobody: str) -> None:
        for _ in range(8):  # The first is chosen at random.
            assert sparrow("submit", "--detach", "-s", f"{nobody},{accepting.address}", "-", stdin="{}").exit_code == 0
        assert len(accepting.bodies) == 8

    def test_no_scheduler_can_be_reached(self, nobody: str) -> None:
        assert_one_line(sparrow("submit", "-s", nobody, "-", stdin="{}"), 1, f"no scheduler answers at {nobody}")

    def test_no_other_scheduler_is_tried_if_one_may_have_taken_the_job(self, accepting: FakeScheduler) -> None:
        accepting.lacking = 1
        result = sparrow("submit", "-s", f"{accepting.address},{accepting.address}", "-", stdin="{}")
        assert_one_line(result, 1, f"it may have taken job {accepting.bodies[0]['job_id']}")
        assert len(accepting.bodies) == 1

    def test_a_job_is_sent_again_when_a_scheduler_has_no_room_yet(
        self, accepting: FakeScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        waits: list[float] = []
        monkeypatch.setattr("time.sleep", waits.append)
        full = (429, {"error": {"message": "ada has as much as she may"}})
        accepting.answers["POST", SUBMIT] = [full, full, (202, {})]
        assert sparrow("submit", "--detach", "-s", accepting.address, "-", stdin="{}").exit_code == 0
        assert waits == [7, 7]
        assert len({job["job_id"] for job in accepting.bodies}) == 1

    def test_a_job_for_which_no_scheduler_has_room_in_time_is_refused(
        self, accepting: FakeScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("frontends.cli.submit.SUBMIT_TIMEOUT_S", 5.0)
        accepting.answers["POST", SUBMIT] = (429, {"error": {"message": "ada has as much as she may"}})
        result = sparrow("submit", "-s", accepting.address, "-", stdin="{}")
        assert_one_line(result, 1, "ada has as much as she may (try again in 7.0 s)")


class TestNodeStates:
    @pytest.fixture
    def node(self, schedulers: Callable[[], FakeScheduler], scheduler: FakeScheduler) -> FakeScheduler:
        """A node monitor with the node n1, which the scheduler knows."""
        monitor = schedulers()
        scheduler.answers["GET", "/v1/nodes"] = (200, {"nodes": [NODE | {"address": monitor.address}]})
        return monitor

    @pytest.mark.parametrize(
        ("command", "state"), [("cordon", "cordoned"), ("uncordon", "ready"), ("drain", "draining")]
    )
    def test_tells_the_node(self, scheduler: FakeScheduler, node: FakeScheduler, command: str, state: str) -> None:
        node.answers["POST", "/v1/nodes/state"] = (200, {"nodes": [NODE | {"state": state}]})
        result = sparrow(command, "-s", scheduler.address, "n1")
        assert (result.exit_code, result.stdout, result.stderr) == (0, f"n1 is {state}\n", "")
        assert node.bodies == [{"state": state, "node": "n1"}]

    def test_a_node_that_is_not_connected_does_not_keep_others_from_changing(
        self, scheduler: FakeScheduler, node: FakeScheduler
    ) -> None:
        node.answers["POST", "/v1/nodes/state"] = (200, {"nodes": [NODE | {"state": "cordoned"}]})
        result = sparrow("cordon", "-s", scheduler.address, "n/2", "n1")
        assert_one_line(result, 1, "n/2: no such node is connected")
        assert result.stdout == "n1 is cordoned\n"

    def test_a_node_whose_address_is_not_known_is_an_error(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", "/v1/nodes"] = (200, {"nodes": [NODE | {"address": ""}]})
        assert_one_line(sparrow("drain", "-s", scheduler.address, "n1"), 1, "n1: the scheduler does not know")

    def test_a_node_that_does_not_answer_is_an_error(self, scheduler: FakeScheduler, nobody: str) -> None:
        scheduler.answers["GET", "/v1/nodes"] = (200, {"nodes": [NODE | {"address": nobody}]})
        result = sparrow("drain", "-s", scheduler.address, "n1")
        assert_one_line(result, 1, f"n1: no node monitor answers at {nobody}")

    def test_a_node_whose_address_another_node_monitor_has_now_is_an_error(
        self, scheduler: FakeScheduler, node: FakeScheduler
    ) -> None:
        assert_one_line(sparrow("drain", "-s", scheduler.address, "n1"), 1, "n1: what answers at", "has no nodes")


SCHEDULER = {
    "name": "scheduler-a", "address": "0.0.0.0:1", "policy": "flow", "placement": "", "takes_jobs": True, "why_not": "",
    "leads": True, "lead_state": "leading", "epoch": 3, "leader": None, "nodes": 12, "slots": 48, "jobs": 7,
}  # fmt: skip
STANDBY = SCHEDULER | {
    "takes_jobs": False, "why_not": "another \x1b[31mleads", "leads": False, "epoch": 0,
    "lead_state": "standing_by", "leader": {"name": "scheduler-a", "address": "10.0.0.1:1", "epoch": 3},
}  # fmt: skip
STARTING = STANDBY | {"lead_state": "asking", "leader": None, "why_not": "no node monitor is connected"}
DEPOSED = STANDBY | {"lead_state": "deposed", "leader": None}
SAMPLING = SCHEDULER | {"policy": "sparrow", "placement": "sparrow", "leads": None, "lead_state": None, "epoch": 0}
NOT_READY = SCHEDULER | {"takes_jobs": False, "why_not": "draining"}


class TestSchedulers:
    def test_table(self, schedulers: Callable[[], FakeScheduler]) -> None:
        asked = [(schedulers(), state) for state in (SCHEDULER, STANDBY, STARTING, SAMPLING, NOT_READY, DEPOSED)]
        for scheduler, state in asked:
            scheduler.answers["GET", "/v1/scheduler"] = (200, state)
        addresses = [scheduler.address for scheduler, _ in asked]
        result = sparrow("schedulers", "-s", ",".join(addresses))
        assert (result.exit_code, result.stderr) == (0, "")
        lines = [re.split(r"  +", line.strip()) for line in result.stdout.splitlines()]
        assert lines[0] == ["SCHEDULER", "POLICY", "STATE", "EPOCH", "NODES", "SLOTS", "JOBS", "NAME"]
        assert [line[:3] for line in lines[1:7]] == [
            [addresses[0], "flow", "leads"], [addresses[1], "flow", "stands by"], [addresses[2], "flow", "not ready"],
            [addresses[3], "sparrow", "takes jobs"], [addresses[4], "flow", "leads, not ready"],
            [addresses[5], "flow", "stands by"],
        ]  # fmt: skip
        assert lines[1][3:] == ["3", "12", "48", "7", "scheduler-a"] and lines[4][3:6] == ["12", "48", "7"]
        reasons = ["another \\x1b[31mleads", "no node monitor is connected", "draining", "another \\x1b[31mleads"]
        of = [addresses[1], addresses[2], addresses[4], addresses[5]]
        assert lines[7:] == [[f"{address}: {reason}"] for address, reason in zip(of, reasons, strict=True)]

    def test_json(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", "/v1/scheduler"] = (200, STANDBY)
        result = sparrow("schedulers", "--json", "-s", scheduler.address)
        assert json.loads(result.stdout) == {"schedulers": [{"scheduler": scheduler.address, **STANDBY}]}

    @pytest.mark.parametrize(
        ("answer", "said"),
        [
            ((404, {"error": {"message": "no such path"}}), "is of a version that does not tell of itself"),
            ((200, {"name": "x"}), "is not a scheduler: its answer has no takes_jobs"),
        ],
    )
    def test_what_does_not_tell_of_itself_is_an_error(self, scheduler: FakeScheduler, answer: Any, said: str) -> None:
        scheduler.answers["GET", "/v1/scheduler"] = answer
        assert_one_line(sparrow("schedulers", "-s", scheduler.address), 1, scheduler.address, said)


class TestLead:
    @pytest.mark.parametrize(("leads", "said"), [(False, "will lead"), (True, "leads")])
    def test_tells_the_scheduler(self, scheduler: FakeScheduler, leads: bool, said: str) -> None:
        scheduler.answers["POST", "/v1/lead"] = (202, {"plane": "flow", "epoch": 7, "leads": leads})
        result = sparrow("lead", "--force", "-s", scheduler.address)
        line = f"the scheduler at {scheduler.address} {said} plane flow, epoch 7\n"
        assert (result.exit_code, result.stdout, result.stderr) == (0, line, "")

    def test_a_scheduler_whose_plane_has_no_leader_is_an_error(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["POST", "/v1/lead"] = (409, {"error": {"message": "plane sparrow has no leader"}})
        assert_one_line(sparrow("lead", "--force", "-s", scheduler.address), 1, "plane sparrow has no leader")

    @pytest.mark.parametrize(("arguments", "said"), [([], "--force"), (["--force", "-s", "b:1"], "--scheduler")])
    def test_what_is_not_said_clearly_is_an_error(self, nobody: str, arguments: list[str], said: str) -> None:
        assert_one_line(sparrow("lead", "-s", nobody, *arguments), 2, said)


class TestAsking:
    def test_schedulers_and_token_from_the_environment(
        self, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPARROW_SCHEDULER", f" {scheduler.address},")
        monkeypatch.setenv("SPARROW_TOKEN", TOKEN)
        assert sparrow("nodes").exit_code == 0
        assert scheduler.asked == [("GET", "/v1/nodes", f"Bearer {TOKEN}")]

    @pytest.mark.parametrize("nothing", ["", " ", ","])
    def test_an_option_that_names_none_is_not_the_environment(
        self, nothing: str, scheduler: FakeScheduler, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("SPARROW_SCHEDULER", scheduler.address)
        assert_one_line(sparrow("nodes", "-s", nothing), 2, f"scheduler: {nothing!r}")
        assert not scheduler.asked

    def test_schedulers_and_token_from_files(self, scheduler: FakeScheduler, tmp_path: Path) -> None:
        (tmp_path / "token").write_text(f"{TOKEN}\n")
        (tmp_path / "token").chmod(0o600)
        (tmp_path / "schedulers").write_text(f"# ours\n{scheduler.address}\n")
        arguments = ["--token-file", str(tmp_path / "token"), "-s", f"file:{tmp_path / 'schedulers'}"]
        assert sparrow("nodes", *arguments).exit_code == 0
        assert scheduler.asked == [("GET", "/v1/nodes", f"Bearer {TOKEN}")]

    def test_no_scheduler_answers(self, nobody: str) -> None:
        assert_one_line(sparrow("nodes", "-s", nobody), 1, f"no scheduler answers at {nobody}: Connection refused")

    def test_only_some_schedulers_answer(self, scheduler: FakeScheduler, nobody: str) -> None:
        result = sparrow("nodes", "-s", nobody, "-s", scheduler.address)
        assert_one_line(result, 0, nobody)
        assert "n1" in result.stdout

    @pytest.mark.parametrize("body", [b"<html>", b"[]", {"jobs": {}}, {}, b""])
    def test_an_answer_of_another_program_is_an_error(self, scheduler: FakeScheduler, body: Any) -> None:
        scheduler.answers["GET", "/v1/jobs"] = (200, body)
        assert_one_line(sparrow("jobs", "-s", scheduler.address), 1, "is not a scheduler")

    @pytest.mark.parametrize(("command", "path"), LISTS)
    def test_one_that_refuses_does_not_hide_the_others(
        self, command: str, path: str, schedulers: Callable[[], FakeScheduler]
    ) -> None:
        first, second = schedulers(), schedulers()
        second.answers["GET", path] = (401, {"error": {"message": "token missing"}})
        result = sparrow(command, "-s", f"{second.address},{first.address}")
        alone = sparrow(command, "-s", first.address)
        assert (result.exit_code, result.stdout) == (0, alone.stdout)
        assert result.stderr == f"sparrow: scheduler {second.address} refused: token missing\n"
        assert len(alone.stdout.splitlines()) == 2

    def test_if_all_refuse_or_are_silent_one_line_says_of_each_why(self, scheduler: FakeScheduler, nobody: str) -> None:
        scheduler.answers["GET", "/v1/jobs"] = (401, {"error": {"message": "token missing"}})
        silent, refused = f"no scheduler answers at {nobody}: ", f"scheduler {scheduler.address} refused: token missing"
        assert_one_line(sparrow("jobs", "-s", f"{nobody},{scheduler.address}"), 1, silent, refused)

    def test_the_scheduler_refuses(self, scheduler: FakeScheduler) -> None:
        scheduler.answers["GET", "/v1/jobs"] = (401, {"error": {"message": "wrong\ntoken"}})
        assert_one_line(sparrow("jobs", "-s", scheduler.address), 1, "refused: wrong token")


# ---- sparrow run -----------------------------------------------------------------------------


class TestRunMakesTasks:
    def test_line_for_the_placeholder(self, clients: list[FakeClient]) -> None:
        sparrow("run", "--", "echo", "<{}>", "{}{}", "x", stdin="a b\n$c\n")
        assert [task.argv for task in tasks_of(clients[0])] == [
            ["echo", "<a b>", "a ba b", "x"],
            ["echo", "<$c>", "$c$c", "x"],
        ]

    def test_line_appended_without_a_placeholder(self, clients: list[FakeClient]) -> None:
        sparrow("run", "echo", "-n", stdin="a\n\nb")
        assert [task.argv[2:] for task in tasks_of(clients[0])] == [["a"], [""], ["b"]]

    def test_array(self, clients: list[FakeClient]) -> None:
        sparrow("run", "--array", "2", "echo", "n{}")
        assert [(task.argv, task.env) for task in tasks_of(clients[0])] == [
            (["echo", "n0"], {"SPARROW_ARRAY_INDEX": "0"}),
            (["echo", "n1"], {"SPARROW_ARRAY_INDEX": "1"}),
        ]

    def test_array_without_a_placeholder_appends_nothing(self, clients: list[FakeClient]) -> None:
        sparrow("run", "--array", "1", "echo")
        assert tasks_of(clients[0])[0].argv == ["echo"]

    def test_working_directory_and_environment(
        self, clients: list[FakeClient], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HERE", "there")
        sparrow("run", "--array", "1", "-e", "A=b=c", "-e", "HERE", "--workdir", "/", "true")
        assert tasks_of(clients[0])[0] == CommandTask(
            ["true"], env={"A": "b=c", "HERE": "there", "SPARROW_ARRAY_INDEX": "0"}, cwd="/"
        )
        sparrow("run", "--array", "1", "true")
        assert tasks_of(clients[1])[0].cwd == str(Path.cwd())

    def test_options_of_the_job(self, clients: list[FakeClient]) -> None:
        numbers = ["--prefetch=3", "--probe-ratio=1.5", "--max-attempts=1", "--priority=-2"]
        sparrow("run", "--array=1", *numbers, "/bin/echo", "--name", "x")
        spec = clients[0].jobs[0].spec
        assert spec.priority == -2
        assert (spec.app, spec.name) == ("command", "echo")
        assert (spec.prefetch, spec.probe_ratio, spec.max_attempts) == (3, 1.5, 1)

    def test_a_job_of_policy_flow(self, clients: list[FakeClient]) -> None:
        given = ["--policy=flow", "--gang", "--max-per-node=2", "--max-per-rack=3"]
        sparrow("run", "--array=1", *given, "--expected-duration=60", "true")
        spec = clients[0].jobs[0].spec
        assert (spec.policy, spec.preemptible, spec.gang, spec.expected_duration_s) == ("flow", False, True, 60.0)
        assert (spec.max_per_node, spec.max_per_rack) == (2, 3)
        sparrow("run", "--array=1", "--policy=flow", "--preemptible", "true")
        assert clients[1].jobs[0].spec.preemptible
        sparrow("run", "--array=1", "true")
        assert clients[2].jobs[0].spec.policy == ""

    def test_no_lines_are_no_tasks(self, clients: list[FakeClient]) -> None:
        assert [sparrow("run", "false").exit_code, sparrow("run", "--array", "0", "false").exit_code] == [0, 0]
        assert clients == []


class TestRunConnects:
    def test_without_schedulers_it_starts_a_cluster(self, clients: list[FakeClient]) -> None:
        sparrow("run", "-j", "3", "--array", "1", "true")
        assert isinstance(clients[0].where, FakeCluster)
        assert (clients[0].where.slots, clients[0].where.policies) == (3, ("sparrow",))
        sparrow("run", "--policy", "flow", "--array", "1", "true")
        assert isinstance(clients[1].where, FakeCluster) and clients[1].where.policies == ("flow",)

    def test_to_schedulers(self, clients: list[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SPARROW_TOKEN", TOKEN)
        sparrow("run", "-s", "a:1", "-s", "b:2,dns:c:3", "--array", "1", "true")
        assert (clients[0].where, clients[0].token) == (["a:1", "b:2", "dns:c:3"], TOKEN)

    def test_a_cluster_that_cannot_be_reached_is_exit_code_255(
        self, clients: list[FakeClient], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def refuse(*_: Any) -> None:
            raise NoScheduler("no scheduler answered")

        monkeypatch.setattr(FakeClient, "submit_job", refuse)
        assert_one_line(sparrow("run", "--array", "1", "true"), 255, "no scheduler answered")


class TestRunReports:
    def test_output_is_in_the_order_of_the_input(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "echo", stdin="a\nb\nc\n")
        assert (result.exit_code, result.stdout, result.stderr) == (0, "a\nb\nc\n", "")

    def test_unordered_output_comes_as_tasks_end(self, clients: list[FakeClient]) -> None:
        assert sparrow("run", "--unordered", "echo", stdin="a\nb\nc\n").stdout == "c\nb\na\n"

    def test_stderr(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "sh", "-c", "echo {} >&2", stdin="a\nb\n")
        assert (result.stdout, result.stderr) == ("", "a\nb\n")

    def test_exit_code_is_the_number_of_failed_tasks(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "--", "sh", "-c", "echo {}; exit {}", stdin="0\n3\n0\n4\n")
        assert (result.exit_code, result.stdout) == (2, "0\n3\n0\n4\n")
        assert result.stderr == "sparrow: 2 of 4 tasks failed (first: task 1 (3): exit code 3)\n"

    def test_more_than_a_hundred_failed(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "--array", "102", "--", "lose")
        assert result.exit_code == 101
        assert result.stderr.count("\n") == output.NOTES_MAX + 1
        assert "102 of 102 tasks failed" in result.stderr

    @pytest.mark.parametrize(
        ("argv", "note"),
        [
            (["lose"], "task 0 (0): its node went away 3 times"),
            (["no-such-command"], "task 0 (0): [Errno 2]"),
            (["sh", "-c", "kill -9 $$"], "task 0 (0): killed by signal 9 (SIGKILL)"),
        ],
    )
    def test_a_command_that_was_killed_or_not_started_is_noted(
        self, clients: list[FakeClient], argv: list[str], note: str
    ) -> None:
        result = sparrow("run", "--array", "1", "--", *argv)
        assert result.exit_code == 1
        assert result.stderr.startswith(f"sparrow: {note}")

    def test_truncated_output(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "--array", "1", "echo", "flood")
        assert result.exit_code == 0
        assert "task 0 (0): the output was cut: of stdout and stderr the first 256 KiB" in result.stderr

    def test_stop_on_failure(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "-j1", "--stop-on-failure", "sh", "-c", "exit {}", stdin="0\n0\n1\n0\n")
        assert result.exit_code == 1
        assert (
            result.stderr == "sparrow: 1 of 4 tasks failed, 1 cancelled or not run (first: task 2 (1): exit code 1)\n"
        )

    def test_ctrl_c_cancels(self, clients: list[FakeClient]) -> None:
        result = sparrow("run", "{}", stdin="interrupt\ntrue\n")
        assert result.exit_code == 130
        assert result.stderr.strip() == "sparrow: interrupted"
        assert clients[0].jobs[0].cancelled

    def test_progress(self, clients: list[FakeClient], monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(output, "PROGRESS_INTERVAL_S", 0.0)
        result = sparrow("run", "--progress", "false", stdin="a\nb\n")
        assert "[###############               ] 1/2, 1 failed, 0 s" in result.stderr
        summary = "sparrow: 2 of 2 tasks failed (first: task 0 (a): exit code 1)\n"
        assert result.stderr.endswith(output.CLEAR_LINE + summary)

    def test_no_progress_without_a_terminal(self, clients: list[FakeClient]) -> None:
        assert sparrow("run", "true", stdin="a\n").stderr == ""


class TestCluster:
    def test_introduction(self) -> None:
        text = introduction(["127.0.0.1:1", "127.0.0.1:2"], 1, enable_command=True)
        assert text.startswith("2 schedulers, 1 node monitor; Ctrl-C stops them\n")
        assert "  export SPARROW_SCHEDULER=127.0.0.1:1,127.0.0.1:2\n" in text
        assert "sparrow run" in text
        assert "sparrow run" not in introduction(["127.0.0.1:1"], 1, enable_command=False)
        assert "sparrow schedulers" not in text
        assert "sparrow schedulers" in introduction(["127.0.0.1:1"], 1, enable_command=False, policies=["flow"])

    def test_a_start_that_takes_long_says_why(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said: list[tuple[str, bool]] = []
        monkeypatch.setattr(starting.click, "echo", lambda text, err: said.append((text, err)))
        with starting.told_if_slow(["flow"]):
            pass
        assert not said, "it was fast"
        monkeypatch.setattr(starting, "SLOW_AFTER_S", 0.0)
        with starting.told_if_slow(["sparrow", "flow"]):
            wait_until(lambda: said)
        with starting.told_if_slow(["sparrow"]):
            pass
        assert said == [(starting.COMPILES, True)] and "compiles what it decides with" in starting.COMPILES


# ---- on real clusters ------------------------------------------------------------------------

SPARROW = (sys.executable, "-m", "frontends.cli")


def real(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """The `sparrow` command as a process."""
    return subprocess.run([*SPARROW, *arguments], input=stdin, capture_output=True, text=True, check=False)


def listing(what: str, *arguments: str) -> list[dict[str, Any]]:
    """The entries that `sparrow nodes` or `sparrow jobs` lists; without a process, as tests ask until it is so."""
    ended = sparrow(what, "--json", *arguments)
    assert (ended.exit_code, ended.stderr) == (0, "")
    listed: list[dict[str, Any]] = json.loads(ended.stdout)[what]
    return listed


@pytest.mark.parametrize(("flags", "profile"), [([], "default"), (["--profile", "paper"], "paper")])
def test_a_cluster_has_the_profile_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, flags: list[str], profile: str
) -> None:
    made: list[Any] = []

    def cluster(*_: Any, **options: Any) -> None:
        made.append(options["profile"])
        raise KeyboardInterrupt

    monkeypatch.setattr(sparrow_py, "LocalCluster", cluster, raising=False)
    assert sparrow("cluster", *flags).stderr == "stopped\n"
    assert made == [profile]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[str, str]]:
    """The introduction of a `sparrow cluster` and its scheduler's address, while it runs; it must exit as it should."""
    arguments = [*SPARROW, "cluster", "--node-monitors", "2", "--slots", "2", "--enable-command"]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        lines: list[str] = []
        while not lines or "client.map" not in lines[-1]:
            lines.append(process.stdout.readline())
            assert lines[-1], process.stderr.read()
        (export,) = (line for line in lines if "export SPARROW_SCHEDULER=" in line)
        yield "".join(lines), export.strip().partition("=")[2]
        process.terminate()
        assert (process.stderr.read(), process.wait(30)) == ("stopped\n", 0)


class TestOnACluster:
    def test_nodes(self, running: tuple[str, str]) -> None:
        nodes = listing("nodes", "-s", running[1])
        assert [(node["id"], node["slots"]) for node in nodes] == [("node-0", 2), ("node-1", 2)]

    def test_run(self, running: tuple[str, str]) -> None:
        ended = real("run", "-s", running[1], "--", "sh", "-c", "echo {}; exit {}", stdin="0\n7\n0\n")
        assert (ended.returncode, ended.stdout) == (1, "0\n7\n0\n")
        assert ended.stderr == "sparrow: 1 of 3 tasks failed (first: task 1 (7): exit code 7)\n"

    def test_what_nodes_have_and_tasks_need_is_heeded(self, running: tuple[str, str]) -> None:
        arguments = ["run", "-s", running[1], "--array", "2", "--where", "node == node-1", "--demand", "cpu=0.5"]
        ended = real(*arguments, "--task-timeout", "0.2", "--", "sh", "-c", "sleep {}00")
        assert ended.returncode == 1
        assert "task 1 (1): " in ended.stderr
        assert "task_timeout_s" in ended.stderr

    def test_run_as_gnu_parallel_does(self, running: tuple[str, str], tmp_path: Path) -> None:
        """The first attempt and the others leave a mark each; a halt stops the one that would go on."""
        log, tries = tmp_path / "log", tmp_path / "tries"
        options = ["--halt", "now,fail=1", "--retries", "2", "--joblog", str(log)]
        script = f"[ $1 = wait ] && exec sleep 1000; echo $1$2 >>{tries}; exit 7"
        words = ["sh", "-c", script, "sh", "{}", "{#}", ":::", "wait", "fail"]
        ended = real("run", "-s", running[1], *options, *words)
        assert (ended.returncode, tries.read_text()) == (7, "fail2\nfail2\n")
        (line,) = log.read_text().splitlines()[1:]
        assert line.split("\t")[0] == "2" and line.split("\t")[1] in ("node-0", "node-1")

    def test_a_command_that_does_not_exist(self, running: tuple[str, str]) -> None:
        ended = real("run", "-s", running[1], "--array", "1", "no-such-command")
        assert ended.returncode == 1
        assert ended.stderr.startswith("sparrow: task 0 (0): command not found: 'no-such-command'\n")

    def test_cancel(self, running: tuple[str, str], tmp_path: Path) -> None:
        held = tmp_path / "held"
        held.touch()
        script = f"while [ -e {held} ]; do sleep 0.02; done"
        arguments = ["run", "-s", running[1], "--name", "long", "--array", "10", "--", "sh", "-c", script]
        with subprocess.Popen([*SPARROW, *arguments], stderr=subprocess.PIPE, text=True) as process:
            wait_until(lambda: [job["running"] for job in listing("jobs", "-s", running[1])] == [4])
            jobs = listing("jobs", "-s", running[1])
            assert (jobs[0]["name"], jobs[0]["tasks"], jobs[0]["app"]) == ("long", 10, "command")
            assert real("cancel", "-s", running[1], jobs[0]["id"]).stdout == f"cancelled {jobs[0]['id']}\n"
            held.unlink()
            assert process.stderr is not None
            assert process.stderr.read() == "sparrow: 0 of 10 tasks failed, 6 cancelled or not run\n"
        assert process.returncode == 1

    def test_the_example_for_python_runs(self, running: tuple[str, str]) -> None:
        example = textwrap.dedent(running[0].partition("In Python:\n")[2])
        ended = subprocess.run([sys.executable, "-c", example], capture_output=True, text=True, check=False)
        assert ended.stdout == "[5, 4, 3, 2, 1, 0, 1, 2, 3, 4]\n", ended.stderr

    def test_submit(self, running: tuple[str, str]) -> None:
        tasks = [{"payload": {"argv": ["sh", "-c", f"echo {number}; exit {number}"]}} for number in range(2)]
        ended = real("submit", "-s", running[1], "-", stdin=json.dumps({"app": "command", "tasks": tasks}))
        lines = sorted(map(json.loads, ended.stdout.splitlines()), key=lambda line: line["task"])
        assert [line["result"]["stdout"] for line in lines] == ["0\n", "1\n"]
        assert ended.stderr == "sparrow: 1 of 2 tasks did not finish (first: task 1 failed: exit code 1)\n"
        assert ended.returncode == 1

    def test_what_cannot_be_written_is_an_error_of_a_line(self, running: tuple[str, str]) -> None:
        """The id of a job that runs all the same is in it."""

        def onto_a_full_disk(*arguments: str) -> str:
            with Path("/dev/full").open("w") as full:
                ended = subprocess.run(
                    [*SPARROW, *arguments], stdout=full, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
                    check=False,
                )  # fmt: skip
            assert ended.returncode == 1
            return ended.stderr

        said = onto_a_full_disk("run", "-s", running[1], "--detach", "echo", ":::", "a")
        found = re.fullmatch(r"sparrow: the job runs, but its id (\S+) could not be written: No space .*\n", said)
        assert found is not None, said
        assert real("attach", "-s", running[1], found[1]).stdout == "a\n"
        said = onto_a_full_disk("nodes", "-s", running[1])
        assert said == "sparrow: what this command writes is not whole: No space left on device\n"

    def test_submit_detached_results_and_cancel(self, running: tuple[str, str], tmp_path: Path) -> None:
        (tmp_path / "job.json").write_text('{"app": "command", "tasks": [{"payload": {"argv": ["sleep", "100"]}}]}')
        job_id = real("submit", "-s", running[1], "--detach", str(tmp_path / "job.json")).stdout.strip()
        arguments = [*SPARROW, "results", "-s", running[1], job_id]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert real("cancel", "-s", running[1], "--running", job_id).stdout == f"cancelled {job_id}\n"
            output, errors = process.communicate()
        assert json.loads(output)["status"] == "cancelled"
        assert errors.startswith("sparrow: 1 of 1 task did not finish")
        assert process.returncode == 1

    def test_ctrl_c_leaves_a_submitted_job_alone(self, running: tuple[str, str], gate: Path) -> None:
        script = f"echo; while [ ! -e {gate} ]; do sleep 0.02; done"
        tasks = [{"payload": {"argv": ["true"]}}, {"payload": {"argv": ["sh", "-c", script]}}]
        (gate.with_name("job.json")).write_text(json.dumps({"job_id": str(gate), "app": "command", "tasks": tasks}))
        arguments = [*SPARROW, "submit", "-s", running[1], str(gate.with_name("job.json"))]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["task"] == 0
            process.send_signal(signal.SIGINT)
            errors = process.communicate()[1]
        assert f"job {gate} goes on" in errors
        assert process.returncode == 130
        gate.touch()
        ended = real("results", "-s", running[1], str(gate))
        assert (ended.returncode, ended.stdout.count("\n"), ended.stderr) == (0, 2, "")

    def test_cordon_and_uncordon(self, running: tuple[str, str]) -> None:
        for command, state in (("cordon", "cordoned"), ("drain", "draining"), ("uncordon", "ready")):
            assert real(command, "-s", running[1], "node-1").stdout == f"node-1 is {state}\n"
            wait_until(lambda state=state: listing("nodes", "-s", running[1])[1]["state"] == state)


class TestOnAClusterOfItsOwn:
    def test_run(self) -> None:
        ended = real("run", "-j", "2", "echo", stdin="".join(f"{i}\n" for i in range(50)))
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.split() == [str(i) for i in range(50)]

    @pytest.mark.rest
    def test_a_closed_pipe_ends_the_run(self) -> None:
        arguments = [*SPARROW, "run", "-j", "1", "--array", "100", "echo", "{}"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 141

    @pytest.mark.parametrize(
        ("number", "code"),
        rest_after(0, [signal.SIGINT, 130], [signal.SIGTERM, 143], [signal.SIGHUP, 129], [signal.SIGKILL, -9]),
    )
    def test_leaves_nothing_running(self, tmp_path: Path, number: signal.Signals, code: int) -> None:
        fifo = tmp_path / "fifo"
        os.mkfifo(fifo)
        command = [*SPARROW, "run", "-j", "1", "--array", "3", "--", "sh", "-c", f"exec 3>{fifo}; sleep 1000; true"]
        arguments = ["env", "--default-signal=HUP", *command]  # Tests that nohup runs ignore it.
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, text=True) as process:
            with fifo.open("rb") as held:
                process.send_signal(number)
                assert held.read() == b""
            assert process.stderr is not None
            assert process.stderr.read().strip() == ("sparrow: interrupted" if number == signal.SIGINT else "")
        assert process.returncode == code
