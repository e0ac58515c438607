"""The HTTP API of real daemons: jobs submitted, followed and cancelled, nodes cordoned, and what is not taken."""

import json
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse, IncompleteRead
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import Client, JobSpec
from tests.support.daemons import Daemon, clean_environment, get_json, http, node_of
from tests.support.raw import connected
from tests.support.waiting import TIMEOUT_S, wait_until

LIMITS = {"http_body_bytes_max": 4096, "http_results_bytes_max": 28_000, "http_retention_s": 0.0}
NODE = "rack/n"
FLAGS = ("--enable-command", "--warm", "noop")


@pytest.fixture(scope="module")
def node(scheduler: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with node_of(scheduler.address, tmp_path_factory.mktemp("node") / "log", *FLAGS, name=NODE) as daemon:
        yield daemon


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A scheduler with `LIMITS`, and a node."""
    directory = tmp_path_factory.mktemp("limited")
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in LIMITS.items()]
    with (
        Daemon("scheduler", *flags, log=directory / "scheduler.log") as daemon,
        node_of(daemon.address, directory / "node.log", *FLAGS, name=NODE),
    ):
        yield daemon


def ask(
    daemon: Daemon, method: str, path: str, body: bytes | dict[str, Any] | None = None, **headers: str
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """(status, JSON, headers) of an answer."""
    connection = HTTPConnection(daemon.address, timeout=TIMEOUT_S)
    try:
        given = {"Content-Type": "application/json"} if body is not None else {}
        encoded = json.dumps(body).encode() if isinstance(body, dict) else body
        connection.request(method, path, encoded, given | {n.replace("_", "-"): v for n, v in headers.items()})
        response = connection.getresponse()
        return response.status, json.loads(response.read()), dict(response.headers)
    finally:
        connection.close()


def submit(scheduler: Daemon, **job: Any) -> dict[str, Any]:
    status, submitted, headers = ask(scheduler, "POST", "/v1/jobs", job)
    assert status == 202, submitted
    assert headers["Location"].startswith("/v1/jobs/")
    return submitted


@contextmanager
def reading(scheduler: Daemon, job_id: str) -> Iterator[HTTPResponse]:
    """A reader of a job's results."""
    connection = HTTPConnection(scheduler.address, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"/v1/jobs/{job_id}/results")
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["Content-Type"] == "application/x-ndjson"
        yield response
    finally:
        connection.close()


def results(scheduler: Daemon, job_id: str) -> list[dict[str, Any]]:
    """All results of a job, once it has ended."""
    with reading(scheduler, job_id) as response:
        return [json.loads(line) for line in response.read().splitlines()]


def command(*argv: str) -> dict[str, Any]:
    return {"payload": {"argv": list(argv)}}


def held(gate: Path, text: str = "done") -> dict[str, Any]:
    """A task that ends once the gate is there."""
    return command("sh", "-c", 'while [ ! -e "$1" ]; do sleep 0.02; done; echo "$2"', "sh", str(gate), text)


def state_of(scheduler: Daemon, job_id: str) -> dict[str, Any]:
    state: dict[str, Any] = get_json(scheduler.address, f"/v1/jobs/{job_id}")
    return state


class TestJobs:
    def test_commands(self, scheduler: Daemon, node: Daemon) -> None:
        tasks = [command("echo", "hi") | {"id": "greeting"}, command("sh", "-c", "echo no >&2; exit 3")]
        job = submit(scheduler, app="command", tasks=tasks, name="two", user="ann")
        assert (job["name"], job["user"], job["tasks"], job["state"]) == ("two", "ann", 2, "running")
        first, second = sorted(results(scheduler, job["id"]), key=lambda line: line["task"])
        assert (first["status"], first["id"], first["node"]) == ("finished", "greeting", "rack/n")
        assert first["result"] == {"exit_code": 0, "stdout": "hi\n", "stderr": "", "truncated": False}
        assert (second["status"], second["error"]) == ("failed", "exit code 3")
        assert (second["result"]["exit_code"], second["result"]["stderr"]) == (3, "no\n")
        state = state_of(scheduler, job["id"])
        assert (state["state"], state["finished"], state["failed"], state["unplaced"]) == ("ended", 1, 1, 0)

    def test_stages_and_bytes(self, scheduler: Daemon, node: Daemon) -> None:
        stages = [
            {"name": "one", "app": "noop", "tasks": [{"payload_base64": "AAEC"}] * 3, "common_base64": "AAEC"},
            {"name": "two", "app": "noop", "after": ["one"], "tasks": [{"inputs": ["one", ["one", 2]]}]},
        ]
        job = submit(scheduler, stages=stages)
        assert [line["stage"] for line in results(scheduler, job["id"])] == ["one"] * 3 + ["two"]
        assert [stage["settled"] for stage in state_of(scheduler, job["id"])["stages"]] == [3, 1]

    def test_large_result(self, scheduler: Daemon, node: Daemon) -> None:
        job = submit(scheduler, app="command", tasks=[command("head", "-c", "100000", "/dev/zero")])
        (line,) = results(scheduler, job["id"])
        (url,) = line["blob"]["urls"]
        status, blob = http(node.address, url.removeprefix(f"http://{node.address}"))
        assert (status, len(blob)) == (200, line["blob"]["size"])
        assert json.loads(blob)["stdout"] == "\0" * 100_000

    def test_posting_twice_is_one_job(self, scheduler: Daemon, node: Daemon, gate: Path) -> None:
        job_id = f"twice {gate}"  # With a blank and a slash.
        submit(scheduler, job_id=job_id, app="command", tasks=[held(gate)])
        status, again, headers = ask(
            scheduler, "POST", "/v1/jobs", {"job_id": job_id, "app": "command", "tasks": [held(gate)]}
        )
        assert (status, again["id"], again["tasks"], again["state"]) == (200, job_id, 1, "running")
        gate.touch()
        path = headers["Location"]
        assert len(results(scheduler, path.removeprefix("/v1/jobs/"))) == 1
        status, again, _ = ask(scheduler, "POST", "/v1/jobs", {"job_id": job_id, "app": "noop"})
        assert (status, again["state"], again["finished"]) == (200, "ended", 1)

    def test_id_of_another_clients_job(self, scheduler: Daemon, node: Daemon, gate: Path) -> None:
        with Client(scheduler.address) as client:
            job = client.submit_job(JobSpec([json.dumps(held(gate)["payload"]).encode()], app="command"))
            wait_until(lambda: http(scheduler.address, f"/v1/jobs/{job.job_id}")[0] == 200)
            status, error, _ = ask(scheduler, "POST", "/v1/jobs", {"job_id": job.job_id, "app": "noop"})
            assert (status, error["error"]["field"]) == (409, "job_id")
            status, error, _ = ask(scheduler, "GET", f"/v1/jobs/{job.job_id}/results")
            assert status == 404
            assert "was not submitted over HTTP" in error["error"]["message"]
            gate.touch()
            job.results(TIMEOUT_S)

    def test_results_while_it_runs(self, scheduler: Daemon, node: Daemon, tmp_path: Path) -> None:
        gates = [tmp_path / str(number) for number in range(3)]
        tasks = [held(gate, str(number)) for number, gate in enumerate(gates)]
        job = submit(scheduler, app="command", tasks=tasks)
        order = [1, 0, 2]
        with reading(scheduler, job["id"]) as one, reading(scheduler, job["id"]) as two:
            for task in order:
                gates[task].touch()
                assert json.loads(one.readline())["task"] == task
                with reading(scheduler, job["id"]) as late:  # It goes away when it has read what there is.
                    assert [json.loads(late.readline())["task"] for _ in range(order.index(task) + 1)] == order[
                        : order.index(task) + 1
                    ]
            assert one.read() == b""
            assert [json.loads(line)["result"]["stdout"] for line in two.read().splitlines()] == ["1\n", "0\n", "2\n"]

    def test_list(self, scheduler: Daemon, node: Daemon, gate: Path) -> None:
        job = submit(scheduler, app="command", tasks=[held(gate)], name="listed")

        def names(query: str = "") -> list[str]:
            return [listed["name"] for listed in get_json(scheduler.address, f"/v1/jobs{query}")["jobs"]]

        assert names() == ["listed"]
        gate.touch()
        results(scheduler, job["id"])
        wait_until(lambda: names() == [])
        assert names("?ended=false") == []
        assert "listed" in names("?ended=true")

    def test_a_job_of_many_tasks(self, scheduler: Daemon, node: Daemon) -> None:
        """Its body is decoded in a thread, and its tasks do not fit one message."""
        job = submit(scheduler, app="noop", tasks=[{}] * 25_000, prefetch=100)
        lines = results(scheduler, job["id"])
        assert sorted(line["task"] for line in lines) == list(range(25_000))


class TestCancelling:
    def test_what_has_not_started(self, scheduler: Daemon, node: Daemon, gate: Path) -> None:
        job = submit(scheduler, app="command", tasks=[held(gate)] * 5)
        wait_until(lambda: state_of(scheduler, job["id"])["running"] == 2)
        assert ask(scheduler, "DELETE", f"/v1/jobs/{job['id']}")[:2] == (202, {"job": job["id"]})
        wait_until(lambda: state_of(scheduler, job["id"])["cancelled"] == 3)
        gate.touch()
        assert sorted(line["status"] for line in results(scheduler, job["id"])) == ["cancelled"] * 3 + ["finished"] * 2

    def test_what_runs(self, scheduler: Daemon, node: Daemon, gate: Path) -> None:
        job = submit(scheduler, app="command", tasks=[held(gate)] * 5)
        wait_until(lambda: state_of(scheduler, job["id"])["running"] == 2)
        assert ask(scheduler, "DELETE", f"/v1/jobs/{job['id']}?running=true")[0] == 202
        assert {line["status"] for line in results(scheduler, job["id"])} == {"cancelled"}

    def test_what_is_not_there(self, scheduler: Daemon, node: Daemon) -> None:
        for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/results")):
            status, error, _ = ask(scheduler, method, f"/v1/jobs/no-such-job{path}")
            assert status == 404
            assert "no-such-job" in error["error"]["message"]

    def test_what_has_ended(self, scheduler: Daemon, node: Daemon) -> None:
        job = submit(scheduler, app="noop", tasks=[{}])
        results(scheduler, job["id"])
        assert ask(scheduler, "DELETE", f"/v1/jobs/{job['id']}")[0] == 409


class TestReaders:
    def test_one_that_goes_harms_nobody(self, scheduler: Daemon, node: Daemon, gate: Path) -> None:
        job = submit(scheduler, app="command", tasks=[held(gate)] * 4)
        with reading(scheduler, job["id"]) as kept:
            for _ in range(20):
                with reading(scheduler, job["id"]):
                    pass
            gate.touch()
            assert len(kept.read().splitlines()) == 4

    def test_one_that_does_not_read_holds_nobody_up(self, scheduler: Daemon, node: Daemon) -> None:
        text = "x" * 40_000  # 200 of them are more than sockets buffer.
        say = command("sh", "-c", f"head -c {len(text)} /dev/zero | tr '\\0' x")
        job = submit(scheduler, app="command", tasks=[say] * 200)
        with socket.create_connection(scheduler.address.rsplit(":", 1), TIMEOUT_S) as slow:
            slow.sendall(f"GET /v1/jobs/{job['id']}/results HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            assert slow.recv(12) == b"HTTP/1.1 200"
            lines = results(scheduler, job["id"])
            assert len(lines) == 200
            assert {line["result"]["stdout"] for line in lines} == {text}


class TestMistakes:
    @pytest.mark.parametrize(
        ("body", "field"),
        [
            (b"", "body"),
            (b"[]", "body"),
            (b"{", "body"),
            (b'{"app":"\xff"}', "body"),
            (b"{}", "app"),
            (b'{"app":"noop","tasks":[{"payload":1,"bogus":2}]}', "tasks[0].bogus"),
            (b'{"app":"noop","max_attempts":0}', "max_attempts"),
            (b'{"app":"no-such-app","tasks":[{}]}', "app"),
            (b'{"app":"noop","tasks":[{}],"where":["no-such-attribute exists"]}', "where"),
            (b'{"app":"noop","tasks":[{"payload":"' + b"x" * (1 << 20) + b'"}]}', "tasks[0].payload"),
        ],
    )
    def test_bodies(self, scheduler: Daemon, node: Daemon, body: bytes, field: str) -> None:
        status, error, _ = ask(scheduler, "POST", "/v1/jobs", body)
        assert (status, error["error"]["field"]) == (400, field)
        assert field in error["error"]["message"] or field == "where"

    @pytest.mark.parametrize("kind", ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data"])
    def test_bodies_that_a_web_page_could_post(self, scheduler: Daemon, kind: str) -> None:
        status, error, _ = ask(scheduler, "POST", "/v1/jobs", b'{"app":"noop"}', Content_Type=kind)
        assert (status, error["error"]["field"]) == (415, "Content-Type")

    def test_compressed_body(self, scheduler: Daemon) -> None:
        status, error, _ = ask(scheduler, "POST", "/v1/jobs", b"x", Content_Encoding="gzip")
        assert (status, error["error"]["field"]) == (415, "Content-Encoding")

    def test_json_with_a_charset(self, scheduler: Daemon) -> None:
        kind = "application/json; charset=utf-8"
        assert ask(scheduler, "POST", "/v1/jobs", b'{"app":"noop"}', Content_Type=kind)[0] == 202

    @pytest.mark.parametrize(
        ("method", "path"), [("POST", "/v1/jobs"), ("GET", "/v1/jobs"), ("DELETE", "/v1/jobs/j"), ("GET", "/v1/nodes")]
    )
    def test_web_pages(self, scheduler: Daemon, method: str, path: str) -> None:
        body = b'{"app":"noop"}' if method == "POST" else None
        status, error, _ = ask(scheduler, method, path, body, Origin="http://evil.example")
        assert status == 403
        assert "Origin" in error["error"]["message"]

    @pytest.mark.parametrize(
        ("method", "path", "field"),
        [
            ("GET", "/v1/nodes?sample=0", "sample"),
            ("GET", "/v1/nodes?sample=", "sample"),
            ("GET", "/v1/nodes?sample=10001", "sample"),
            ("GET", f"/v1/nodes?sample={'9' * 5000}", "sample"),
            ("GET", "/v1/nodes?sample=%D9%A1", "sample"),
            ("GET", "/v1/jobs?ended=1", "ended"),
            ("DELETE", "/v1/jobs/j?running=yes", "running"),
        ],
    )
    def test_queries(self, scheduler: Daemon, method: str, path: str, field: str) -> None:
        status, error, _ = ask(scheduler, method, path)
        assert (status, error["error"]["field"]) == (400, field)

    @pytest.mark.parametrize("daemon_of", ["scheduler", "node"])
    def test_paths_and_methods(self, daemon_of: str, request: pytest.FixtureRequest) -> None:
        daemon = request.getfixturevalue(daemon_of)
        assert ask(daemon, "GET", "/v1/nonsense")[0] == 404
        status, error, headers = ask(daemon, "DELETE", "/v1/nodes")
        assert (status, headers["Allow"]) == (405, "GET")
        assert "DELETE" in error["error"]["message"]

    def test_body_that_does_not_end(self, scheduler: Daemon) -> None:
        with connected(scheduler.address) as raw:
            raw.send(b"POST /v1/jobs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{")
            raw.end()
        assert http(scheduler.address, "/v1/jobs")[0] == 200


class TestLimits:
    @pytest.mark.parametrize("chunked", [False, True])
    def test_body(self, limited: Daemon, chunked: bool) -> None:
        body = json.dumps({"app": "noop", "name": "x" * 4096}).encode()
        connection = HTTPConnection(limited.address, timeout=TIMEOUT_S)
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/jobs", iter([body]) if chunked else body, headers, encode_chunked=chunked)
        response = connection.getresponse()
        assert response.status == 413
        assert "http_body_bytes_max = 4096" in json.loads(response.read())["error"]["message"]
        connection.close()

    def test_results_are_kept_no_longer_than_asked(self, limited: Daemon) -> None:
        job = submit(limited, app="noop", tasks=[{}])
        wait_until(lambda: http(limited.address, f"/v1/jobs/{job['id']}")[0] == 404)
        assert http(limited.address, f"/v1/jobs/{job['id']}/results")[0] == 404

    def test_results_that_have_no_room(self, limited: Daemon, gate: Path) -> None:
        big = [command("head", "-c", "9000", "/dev/zero")] * 2  # As JSON a NUL is six characters.
        job = submit(limited, app="command", tasks=[*big, held(gate)])
        with reading(limited, job["id"]) as response:
            lines = [json.loads(response.readline()) for _ in range(2)]
            gate.touch()
        assert ["http_results_bytes_max" in line.get("dropped", "") for line in lines] == [True, True]
        assert [line["status"] for line in lines] == ["finished"] * 2


class TestNodes:
    def test_states(self, scheduler: Daemon, node: Daemon) -> None:
        def change(state: str, **more: str) -> list[str]:
            status, answer, _ = ask(node, "POST", "/v1/nodes/state", {"state": state, **more})
            assert status == 200
            return [changed["state"] for changed in answer["nodes"]]

        def seen() -> str:
            (listed,) = get_json(scheduler.address, "/v1/nodes")["nodes"]
            return str(listed["state"])

        for state, more in (("cordoned", {}), ("ready", {"node": "rack/n"}), ("draining", {}), ("ready", {})):
            assert change(state, **more) == [state]
            wait_until(lambda state=state: seen() == state)
            assert get_json(node.address, "/v1/nodes")["nodes"][0]["state"] == state
        assert len(get_json(scheduler.address, "/v1/nodes?sample=5")["nodes"]) == 1

    def test_a_cordoned_node_is_not_among_a_sample(self, scheduler: Daemon, node: Daemon) -> None:
        ask(node, "POST", "/v1/nodes/state", {"state": "cordoned"})
        try:
            wait_until(lambda: get_json(scheduler.address, "/v1/nodes?sample=5")["nodes"] == [])
        finally:
            ask(node, "POST", "/v1/nodes/state", {"state": "ready"})
        wait_until(lambda: len(get_json(scheduler.address, "/v1/nodes?sample=5")["nodes"]) == 1)

    @pytest.mark.parametrize(
        ("body", "status", "field"),
        [
            ({"state": "asleep"}, 400, "state"),
            ({}, 400, "state"),
            ({"state": "ready", "nodes": 1}, 400, "nodes"),
            ({"state": "ready", "node": 1}, 400, "node"),
            ({"state": "ready", "node": "other"}, 404, "node"),
            (b"x" * (1 << 17), 413, None),
        ],
    )
    def test_mistakes(self, node: Daemon, body: Any, status: int, field: str | None) -> None:
        answered, error, _ = ask(node, "POST", "/v1/nodes/state", body)
        assert (answered, error["error"].get("field")) == (status, field)
        assert get_json(node.address, "/v1/nodes")["nodes"][0]["state"] == "ready"

    def test_web_pages(self, node: Daemon) -> None:
        for headers in ({"Origin": "http://evil.example"}, {"Content_Type": "text/plain"}):
            assert ask(node, "POST", "/v1/nodes/state", {"state": "draining"}, **headers)[0] in (403, 415)


@pytest.mark.parametrize("daemon_of", ["scheduler", "node"])
def test_documents(daemon_of: str, request: pytest.FixtureRequest) -> None:
    daemon = request.getfixturevalue(daemon_of)
    document = get_json(daemon.address, "/openapi.json")
    assert document["openapi"].startswith("3.1")
    assert {"/livez", "/readyz", "/metrics", "/openapi.json", "/v1/nodes"} <= set(document["paths"])


def test_a_token_is_needed_for_all_of_it(tmp_path: Path) -> None:
    token = "t" * 32
    (tmp_path / "token").write_text(token)
    (tmp_path / "token").chmod(0o600)
    flags = ("--token-file", str(tmp_path / "token"))
    with Daemon("scheduler", *flags, log=tmp_path / "log") as daemon:
        for method, path in (
            ("GET", "/openapi.json"), ("POST", "/v1/jobs"), ("GET", "/v1/jobs/j/results"), ("DELETE", "/v1/jobs/j"),
        ):  # fmt: skip
            assert ask(daemon, method, path, b"{}" if method == "POST" else None)[0] == 401
        assert ask(daemon, "GET", "/openapi.json", Authorization=f"Bearer {token}")[0] == 200


@contextmanager
def draining_beside_a_reader(directory: Path, gate: Path) -> Iterator[tuple[Daemon, HTTPResponse]]:
    """A scheduler that drains, and the answer to a reader of a job that goes on until the gate is there. At the end the
    scheduler ends, too."""
    with (
        Daemon("scheduler", log=directory / "scheduler.log") as daemon,
        node_of(daemon.address, directory / "node.log", *FLAGS, name=NODE),
    ):
        job = submit(daemon, app="command", tasks=[held(gate)])
        with reading(daemon, job["id"]) as response:
            daemon.signal()
            wait_until(lambda: http(daemon.address, "/readyz")[0] == 503)
            yield daemon, response
        assert daemon.wait() == 0


def test_a_scheduler_that_drains_takes_no_jobs_and_lets_readers_read_on(tmp_path: Path, gate: Path) -> None:
    with draining_beside_a_reader(tmp_path, gate) as (daemon, response):
        status, error, headers = ask(daemon, "POST", "/v1/jobs", {"app": "noop"})
        assert (status, headers["Retry-After"]) == (503, "1")
        assert "shutting down" in error["error"]["message"]
        gate.touch()
        assert json.loads(response.read())["result"]["stdout"] == "done\n"


@pytest.mark.rest
def test_a_reader_of_a_scheduler_that_ends_does_not_take_what_it_has_for_all(tmp_path: Path, gate: Path) -> None:
    with draining_beside_a_reader(tmp_path, gate) as (daemon, response):
        daemon.signal()
        with pytest.raises((IncompleteRead, ConnectionResetError)):
            response.read()


@pytest.mark.rest
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples are for curl")
def test_the_examples_of_the_document_run(tmp_path: Path) -> None:
    document = (Path(__file__).parents[2] / "docs" / "http.md").read_text("utf-8")
    start, *examples = re.findall(r"^```sh\n(.*?)^```", document, re.M | re.S)
    assert "sparrow-scheduler" in start
    assert len(examples) > 5
    sparrow = f'sparrow() {{ "{sys.executable}" -m frontends.cli "$@"; }}\n'
    with (
        Daemon("scheduler", log=tmp_path / "log") as daemon,
        node_of(daemon.address, tmp_path / "node.log", *FLAGS, name=NODE) as node,
    ):
        environment = clean_environment(
            SCHEDULER=f"http://{daemon.address}", NODE=f"http://{node.address}", SPARROW_SCHEDULER=daemon.address
        )
        for example in examples:
            script = f"set -e\n{sparrow}{example}"
            ended = subprocess.run(["sh", "-c", script], env=environment, capture_output=True, text=True, check=False)
            assert (ended.returncode, ended.stderr) == (0, ""), example
            assert ended.stdout
