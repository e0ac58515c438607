"""HTTP of both daemons: requests made up from their documents, and ones of which some bytes are wrong."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks

from sparrow_py.wire.blobs import sha256_hex
from tests.fuzz.conftest import Fuzzing
from tests.fuzz.test_parsers import almost
from tests.support.daemons import Daemon, get_json, node_of
from tests.support.raw import connected, request
from tests.support.waiting import TIMEOUT_S
from tests.system.test_http_schema import CHECKS, operations

EXAMPLES = 4
"""A round, for each operation and mode."""
MANGLED_EXAMPLES = 60
"""Of mangled requests, a round."""
BLOB = b"blob"
JOB = b'{"app": "noop", "tasks": [{"payload": 1}]}'
JSON = ("Content-Type: application/json", "Connection: close")
REQUESTS = [
    request("GET", "/v1/nodes?sample=1", "Connection: close"),
    request("GET", "/v1/jobs?ended=true", "Connection: close"),
    request("GET", "/v1/jobs/j/results", "Connection: close"),
    request("DELETE", "/v1/jobs/j?running=true", "Connection: close"),
    request("POST", "/v1/jobs", f"Content-Length: {len(JOB)}", *JSON, body=JOB),
    request("POST", "/v1/jobs", "Transfer-Encoding: chunked", *JSON, body=b"%x\r\n%s\r\n0\r\n\r\n" % (len(JOB), JOB)),
    request("POST", "/v1/nodes/state", "Content-Length: 18", *JSON, body=b'{"state": "ready"}'),
    request("PUT", f"/v1/blobs/{sha256_hex(BLOB)}", f"Content-Length: {len(BLOB)}", "Connection: close", body=BLOB),
    request("GET", f"/v1/blobs/{sha256_hex(BLOB)}", "Range: bytes=1-2", "Connection: close"),
    request("GET", "/link", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"),
]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon("scheduler", log=tmp_path_factory.mktemp("scheduler") / "log") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def node(scheduler: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    flags = ("--warm", "noop", "--blob-bytes-max", "1000000")
    with node_of(scheduler.address, tmp_path_factory.mktemp("node") / "log", *flags) as daemon:
        yield daemon


@pytest.fixture(params=["scheduler", "node"])
def daemon(request: pytest.FixtureRequest, scheduler: Daemon, node: Daemon) -> Daemon:
    """Each of the two in turn."""
    chosen: Daemon = request.getfixturevalue(request.param)
    return chosen


def check(daemon: Daemon) -> None:
    """It lives, and nothing of its own went wrong."""
    assert daemon.process.poll() is None
    get_json(daemon.address, "/v1/nodes")
    assert "Traceback" not in daemon.log.read_text(), daemon.log.read_text()[-5000:]


def examples(count: int) -> settings:
    """So many, as a round's seed has them."""
    return settings(max_examples=count, database=None, deadline=None, suppress_health_check=list(HealthCheck))


def ask_made_up(operation: Any, mode: GenerationMode, number: int) -> None:
    wrong = [checks.negative_data_rejection] if mode is GenerationMode.NEGATIVE else []

    @examples(EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode))
    def run(case: Case) -> None:
        case.call_and_validate(checks=CHECKS + wrong, timeout=TIMEOUT_S)

    seed(number)(run)()


@pytest.mark.rest
def test_requests_made_up_from_the_document(fuzzing: Fuzzing, daemon: Daemon) -> None:
    found = operations(daemon)

    def play(number: int) -> None:
        for operation, mode in itertools.product(found, GenerationMode):
            with suppress(Unsatisfiable):  # Where nothing is asked for, nothing can be wrong.
                ask_made_up(operation, mode, number)
        check(daemon)

    fuzzing.each(play)


def test_mangled_requests(fuzzing: Fuzzing, daemon: Daemon) -> None:
    def ask(sent: bytes) -> None:
        with connected(daemon.address) as raw:
            raw.send(sent)
            # What lacks an end is not waited for: it has got one.
            raw.send(b"\r\n\r\n" * 2)
            raw.end()
            answer = raw.rest()
        assert not answer or answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), answer[:100]
        assert not answer[9:].startswith(b"500"), answer[:1000]

    def play(number: int) -> None:
        seed(number)(examples(MANGLED_EXAMPLES)(given(almost(REQUESTS))(ask)))()
        check(daemon)

    fuzzing.each(play)
