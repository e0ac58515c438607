"""Requests made up from the daemons' OpenAPI documents, right and wrong ones: every answer is as the document says,
none is a server's error, and work that goes on beside them is not harmed."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks

from sparrow_py import CallOptions, Client
from sparrow_py.wire.blobs import sha256_hex
from tests.support import tasks
from tests.support.daemons import Daemon, get_json, http, wait_for_nodes
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S, wait_until

EXAMPLES, EXAMPLES_OF_REST = 8, 12
"""For each operation, of right requests and of wrong ones: in `make test`, and in `make test-rest`. `derandomize`: the
same in every run."""
CHECKS: list[Any] = [
    schemathesis.checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
]
"""Not `positive_data_acceptance`: what an app's name may be is for the nodes that are there to say."""


ENDLESS = {"GET /v1/events"}
"""What they say is in `tests/scheduler/http/test_view_routes.py`."""


@pytest.fixture(scope="module")
def node(scheduler: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The one that is asked: it may well be told to drain."""
    directory = tmp_path_factory.mktemp("asked")
    flags = ("--slots", "2", "--node-id", "asked", "--warm", "noop", "--blob-bytes-max", "1000000")
    with Daemon("node_monitor", "--scheduler", scheduler.address, *flags, log=directory / "log") as daemon:
        yield daemon


@pytest.fixture(scope="module", autouse=True)
def other_work(scheduler: Daemon, node: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tasks on another node start before and end after all requests, the first time that they were started."""
    directory = tmp_path_factory.mktemp("other")
    flags = ("--slots", "2", "--node-id", "other")
    gate, marks = directory / "gate", ["one", "two"]
    with Daemon("node_monitor", "--scheduler", scheduler.address, *flags, log=directory / "log") as other:
        wait_for_nodes(scheduler.address, "asked", "other")
        with Client(scheduler.address, user="bystander") as client:
            options = CallOptions(where=["node == other"], max_attempts=1)
            job = client.submit_calls(tasks.hold, [(gate, mark) for mark in marks], options=options)
            wait_until(lambda: tasks.started(gate, *marks), "the other work to run")
            yield
            gate.touch()
            assert job.results(TIMEOUT_S) == marks
        assert http(other.address, "/livez")[0] == 200


def operations(daemon: Daemon) -> list[Any]:
    """All but those whose answer has no end."""
    schema = schemathesis.openapi.from_url(f"http://{daemon.address}/openapi.json")
    found = [operation.ok() for operation in schema.get_all_operations()]
    return [operation for operation in found if operation.label not in ENDLESS]


def ask(
    operation: Any, mode: GenerationMode, change: Callable[[Case], None] | None = None, examples: int = EXAMPLES
) -> None:
    """Make requests up and look at the answers."""

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        if change is not None:
            change(case)
        wrong = [checks.negative_data_rejection] if mode is GenerationMode.NEGATIVE else []
        case.call_and_validate(checks=CHECKS + wrong, timeout=TIMEOUT_S)

    run()


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
@pytest.mark.parametrize("daemon_of", ["scheduler", "node"])
@pytest.mark.parametrize("examples", rest_after(1, EXAMPLES, EXAMPLES_OF_REST))
def test_answers_are_as_the_document_says(
    daemon_of: str, mode: GenerationMode, examples: int, request: pytest.FixtureRequest
) -> None:
    daemon: Daemon = request.getfixturevalue(daemon_of)
    found = operations(daemon)
    assert len(found) >= 8
    for operation in found:
        with suppress(Unsatisfiable):  # Where nothing is asked for, nothing can be wrong.
            ask(operation, mode, examples=examples)
    assert daemon.process.poll() is None
    assert "Traceback" not in daemon.log.read_text()


def test_jobs_that_a_node_runs(scheduler: Daemon, node: Daemon) -> None:
    """With an app that there is and no other demands jobs are accepted, and end."""
    requests.post(f"http://{node.address}/v1/nodes/state", json={"state": "ready"}, timeout=TIMEOUT_S)
    (submit,) = (operation for operation in operations(scheduler) if operation.label == "POST /v1/jobs")

    def make_runnable(case: Case) -> None:
        given: Any = case.body
        some = [{"payload": task.get("payload")} for task in given.get("tasks", [])]
        case.body = {"app": "noop", "tasks": [*some, {}], "user": "schema"}

    ask(submit, GenerationMode.POSITIVE, make_runnable)
    wait_until(
        lambda: {job["user"] for job in get_json(scheduler.address, "/v1/jobs")["jobs"]} == {"bystander"},
        "all jobs but the bystander's to end",
    )
    ended = [job for job in get_json(scheduler.address, "/v1/jobs?ended=true")["jobs"] if job["user"] == "schema"]
    assert ended
    assert all(job["finished"] == job["tasks"] > 0 for job in ended)


def test_answers_about_what_is_there(scheduler: Daemon, node: Daemon) -> None:
    by_label = {operation.label: operation for daemon in (scheduler, node) for operation in operations(daemon)}

    def answer(label: str, **parts: Any) -> int:
        response = by_label[label].Case(**parts).call_and_validate(checks=CHECKS, timeout=TIMEOUT_S)
        return int(response.status_code)

    job = {"job": "of the schema test"}
    posted = {"body": {"job_id": job["job"], "app": "noop"}, "media_type": "application/json"}
    assert [answer("POST /v1/jobs", **posted) for _ in range(2)] == [202, 200]
    assert answer("GET /v1/jobs/{job}", path_parameters=job) == 200
    assert answer("GET /v1/jobs/{job}/results", path_parameters=job) == 200
    assert answer("DELETE /v1/jobs/{job}", path_parameters=job) == 409
    data = b"bytes"
    blob = {"hash": sha256_hex(data)}
    sent = {"path_parameters": blob, "body": data, "media_type": "application/octet-stream"}
    assert [answer("PUT /v1/blobs/{hash}", **sent) for _ in range(2)] == [201, 200]
    assert answer("HEAD /v1/blobs/{hash}", path_parameters=blob) == 200
    assert answer("GET /v1/blobs/{hash}", path_parameters=blob) == 200
    for header, status in (("bytes=1-2", 206), ("bytes=99-", 416)):
        assert answer("GET /v1/blobs/{hash}", path_parameters=blob, headers={"Range": header}) == status
