"""HTTP of both daemons: requests made up from their documents, and ones of which some bytes are wrong."""

import itertools
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import Case, GenerationMode
from schemathesis.specs.openapi import checks

from sparrow_py.wire.blobs import sha256_hex
from tests.fuzz.conftest import Fuzzing
from tests.fuzz.test_parsers import almost
from tests.support.daemons import Daemon, get_json, node_of
from tests.support.guarded import ADA, usual_tokens
from tests.support.raw import connected, request
from tests.support.waiting import TIMEOUT_S
from tests.system.test_http_schema import CHECKS, operations

EXAMPLES = 4
"""A round, for each operation and mode."""
MANGLED_EXAMPLES = 60
"""Of mangled requests, a round."""
HEADERS_EXAMPLES = 150
"""Of requests with any headers, a round."""
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
PATHS = (
    "/", "/livez", "/metrics", "/openapi.json", "/link", "/v1/scheduler", "/v1/schedulers", "/v1/demand", "/v1/nodes",
    "/v1/history", "/v1/state", "/v1/session", "/v1/jobs", "/v1/jobs/j", "/v1/jobs/j/results", "/v1/jobs/j/timeline",
    "/v1/jobs/j/explain", f"/v1/blobs/{sha256_hex(BLOB)}", "/v1/nowhere",
)  # fmt: skip
"""Of both daemons, but for streams without an end."""
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
NAMES = (
    "Host", "Authorization", "Cookie", "Origin", "Sec-Fetch-Site", "Sec-Fetch-Mode", "Content-Type", "Content-Length",
    "Content-Encoding", "Transfer-Encoding", "Expect", "Range", "If-Range", "If-Modified-Since", "If-None-Match",
    "Accept", "Accept-Encoding", "Connection", "Upgrade", "Sec-WebSocket-Version", "Sec-WebSocket-Key", "Traceparent",
)  # fmt: skip
VALUES = (
    "", "*", "0", "-1", "99999", "localhost", "localhost:99999", "[::1", "x:1:2", "%zz:1", "Bearer", f"Bearer {ADA}",
    "sparrow_view_=x; sparrow_view_1=y", "same-origin", "application/json; charset=nonsense", "gzip", "chunked",
    "100-continue", "bytes=5-1", "bytes=-", "Sun, 99 Foo 2026 99:99:99 GMT", '"x", W/"y"', "Upgrade, close",
    "websocket", "13", "AAAAAAAAAAAAAAAAAAAAAA==", "00-0-0-0",
)  # fmt: skip
header_values = st.one_of(
    st.sampled_from(VALUES).map(str.encode),
    st.binary(max_size=20).map(lambda value: value.translate(None, b"\r\n\0")),
)
"""What a header may be, as far as the parser of HTTP lets it through."""
headers = st.lists(st.tuples(st.sampled_from(NAMES).map(str.encode), header_values), max_size=4)
UPGRADE = [(b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), (b"Sec-WebSocket-Version", b"13")]


@pytest.fixture(scope="module")
def scheduler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon("scheduler", log=tmp_path_factory.mktemp("scheduler") / "log") as daemon:
        yield daemon


@pytest.fixture(scope="module")
def node(scheduler: Daemon, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    flags = ("--warm", "noop", "--blob-bytes-max", "1000000")
    with node_of(scheduler.address, tmp_path_factory.mktemp("node") / "log", *flags) as daemon:
        yield daemon


@pytest.fixture(scope="module", params=["scheduler", "node_monitor"])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Each of the two, asking for a token."""
    directory = tmp_path_factory.mktemp("guarded")
    own = ("--scheduler", "127.0.0.1:1", "--warm", "noop") if request.param == "node_monitor" else ()
    flags = ("--token-file", str(usual_tokens(directory / "tokens")), *own)
    with Daemon(request.param, *flags, log=directory / "log") as daemon:
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


def check_answer(answer: bytes) -> None:
    """It is one of HTTP, if it is one at all, and says nothing of an error of the daemon's own."""
    assert not answer or answer.startswith((b"HTTP/1.1 ", b"HTTP/1.0 ")), answer[:100]
    assert not answer[9:].startswith(b"500"), answer[:1000]


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
        check_answer(answer)

    def play(number: int) -> None:
        seed(number)(examples(MANGLED_EXAMPLES)(given(almost(REQUESTS))(ask)))()
        check(daemon)

    fuzzing.each(play)


def test_any_headers(fuzzing: Fuzzing, guarded: Daemon) -> None:
    @example("GET", "/v1/state", [(b"Host", b"x:99999")])
    @example("GET", "/v1/state", [(b"Host", b"\xff:1")])
    @example("GET", "/v1/session", [(b"Host", b"x:-1"), (b"Authorization", f"Bearer {ADA}".encode())])
    @example("GET", "/link", [*UPGRADE, (b"Sec-WebSocket-Key", b"\xe4")])
    def ask(method: str, path: str, given: list[tuple[bytes, bytes]]) -> None:
        lines = [f"{method} {path} HTTP/1.1".encode(), *(b"%b: %b" % pair for pair in given), b"", b""]
        with connected(guarded.address) as raw:
            raw.send(b"\r\n".join(lines))
            raw.end()
            check_answer(raw.rest())

    def play(number: int) -> None:
        run = given(st.sampled_from(METHODS), st.sampled_from(PATHS), headers)(ask)
        seed(number)(examples(HEADERS_EXAMPLES)(run))()
        assert guarded.process.poll() is None
        assert "Traceback" not in guarded.log.read_text(), guarded.log.read_text()[-5000:]

    fuzzing.each(play)
