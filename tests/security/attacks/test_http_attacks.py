"""What comes over a daemon's HTTP that should not: it is answered or cut off, and nobody else notices."""

import asyncio
import functools
import json
import zlib
from collections.abc import AsyncIterator
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py.daemon.process import until
from sparrow_py.http import http_guard
from tests.security.attacks.conftest import FILES
from tests.support.daemons import Daemon, get_json
from tests.support.raw import Answer, Raw, ask, ask_json, connected, request
from tests.support.suites import rest_after
from tests.support.waiting import TIMEOUT_S

CONNECTIONS = FILES // 8
TOKEN = "t" * 32
PATHS = ("/", "/livez", "/readyz", "/metrics", "/openapi.json", "/v1/nodes", "/v1/jobs", "/v1/jobs/j/results", "/link")
HASH = "0" * 64
JOB = b'{"app": "noop", "tasks": [{}]}'
STATE = b'{"state": "cordoned"}'


def jobs(scheduler: Daemon) -> int:
    """How many jobs were ever accepted but the bystander's."""
    return len(
        [job for job in get_json(scheduler.address, "/v1/jobs?ended=true")["jobs"] if job["user"] == "anonymous"]
    )


# ---- web pages -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:20503", "localhost.evil.example", "127.0.0.1.nip.io", "[::1].evil", ""]
)
def test_a_name_that_may_be_anybodys_is_no_way_in(daemon: Daemon, host: str) -> None:
    """DNS rebinding: the page's own name leads here, and its requests are of its own origin."""
    for path in PATHS:
        answer = ask(daemon.address, "GET", path, host=host)
        assert (answer.status, answer.error["field"]) == (421, "Host"), path
    before = jobs(daemon) if daemon.announcement["daemon"] == "scheduler" else 0
    assert ask(daemon.address, "POST", "/v1/jobs", "Content-Length: 0", host=host).status == 421
    assert before == (jobs(daemon) if daemon.announcement["daemon"] == "scheduler" else 0)


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost:1", "a.localhost", "localhost.", "127.0.0.1:20503", "[::1]:1", "10.1.2.3"]
)
def test_addresses_and_names_of_loopback_are_nobody_elses(daemon: Daemon, host: str) -> None:
    assert ask(daemon.address, "GET", "/v1/nodes", host=host).status == 200


def test_a_probe_that_knows_no_hosts(daemon: Daemon) -> None:
    """No browser leaves them out."""
    with connected(daemon.address) as raw:
        raw.send(b"GET /livez HTTP/1.0\r\n\r\n")
        assert raw.answer().status == 200


def test_two_hosts_are_none(daemon: Daemon) -> None:
    assert ask(daemon.address, "GET", "/v1/nodes", "Host: evil.example").status in (400, 421)


def test_names_that_the_operator_knows(tmp_path: Path) -> None:
    flags = ("--allowed-host", "queue.example", "--allowed-host", "Q:20503")
    with Daemon("scheduler", *flags, log=tmp_path / "log") as daemon:
        assert ask(daemon.address, "GET", "/v1/nodes", host="Queue.Example:80").status == 200
        assert ask(daemon.address, "GET", "/v1/nodes", host="q").status == 200
        assert ask(daemon.address, "GET", "/v1/nodes", host="x.queue.example").status == 421
    flags = ("--scheduler", "127.0.0.1:1", "--advertise", "box.example:9", "--warm", "noop")
    with Daemon("node_monitor", *flags, log=tmp_path / "log") as daemon:
        assert ask(daemon.address, "GET", "/v1/nodes", host="box.example").status == 200


def test_where_a_secret_is_asked_for_any_name_will_do(tmp_path: Path) -> None:
    """Services and load balancers have names; a page that leads its own here lacks the secret."""
    with Daemon("scheduler", log=tmp_path / "log", SPARROW_TOKEN=TOKEN) as daemon:
        assert ask(daemon.address, "GET", "/v1/nodes", host="queue.example").status == 401
        assert (
            ask(daemon.address, "GET", "/v1/nodes", f"Authorization: Bearer {TOKEN}", host="queue.example").status
            == 200
        )
        assert ask(daemon.address, "GET", "/livez", host="queue.example").status == 200
        page = (f"Authorization: Bearer {TOKEN}", "Origin: http://queue.example")
        assert ask(daemon.address, "GET", "/v1/nodes", *page, host="queue.example").status == 403


PAGES = {
    "another site": ("Origin: https://evil.example", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: cors"),
    "a file or a sandbox": ("Origin: null",),
    "no origin at all": ("Origin: ",),
    "its own origin": ("Origin: http://localhost", "Sec-Fetch-Site: same-origin"),
    "an image": ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors", "Sec-Fetch-Dest: image"),
    "a link": ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate", "Sec-Fetch-User: ?1"),
    "a sister site": ("Sec-Fetch-Site: same-site",),
    "a site of the future": ("Sec-Fetch-Site: whatever",),
}


@pytest.mark.parametrize("page", PAGES)
def test_web_pages_get_nothing(daemon: Daemon, page: str) -> None:
    for path in (*PATHS, f"/v1/blobs/{HASH}", "/v1/nodes/state", "/nonsense"):
        for method in ("GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
            answer = ask(daemon.address, method, path, *PAGES[page], "Content-Length: 0")
            assert answer.status == 403, (method, path)
            assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert ask(daemon.address, "GET", "/v1/nodes").status == 200


@pytest.mark.parametrize("page", PAGES)
def test_what_web_pages_would_do_is_not_done(scheduler: Daemon, node: Daemon, page: str) -> None:
    before = jobs(scheduler)
    assert ask_json(scheduler.address, "/v1/jobs", JOB, *PAGES[page]).status == 403
    assert ask_json(node.address, "/v1/nodes/state", STATE, *PAGES[page]).status == 403
    with connected(scheduler.address) as raw:
        assert raw.upgrade(*PAGES[page]).status == 403
    assert jobs(scheduler) == before
    assert [there["state"] for there in get_json(node.address, "/v1/nodes")["nodes"]] == ["ready"]


def test_a_preflight_is_not_answered_with_leave(daemon: Daemon) -> None:
    asked = ("Access-Control-Request-Method: POST", "Access-Control-Request-Private-Network: true")
    for headers in (("Origin: http://evil.example",), ()):
        answer = ask(daemon.address, "OPTIONS", "/v1/nodes", *asked, *headers)
        assert answer.status in (403, 405)
        assert not [name for name in answer.headers if name.lower().startswith("access-control")]


@pytest.mark.parametrize(
    "kind", ["text/plain", "multipart/form-data; boundary=x", "application/x-www-form-urlencoded", ""]
)
def test_forms_of_old_browsers_that_do_not_say_where_they_are_from(scheduler: Daemon, node: Daemon, kind: str) -> None:
    for daemon, path, body in ((scheduler, "/v1/jobs", JOB), (node, "/v1/nodes/state", STATE)):
        headers = (f"Content-Type: {kind}", f"Content-Length: {len(body)}")
        answer = ask(daemon.address, "POST", path, *headers, body=body)
        assert (answer.status, answer.error["field"]) == (415, "Content-Type")


def test_a_person_may_look(daemon: Daemon) -> None:
    for site in ("none", "same-origin"):
        assert ask(daemon.address, "GET", "/v1/nodes", f"Sec-Fetch-Site: {site}").status == 200


# ---- what answers give away ------------------------------------------------------------------


@pytest.mark.parametrize("path", [*PATHS, "/nonsense", "/v1/blobs/x"])
def test_headers_of_answers(daemon: Daemon, path: str) -> None:
    check_headers(ask(daemon.address, "GET", path))


def check_headers(answer: Answer) -> None:
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Server"] == "sparrow"


# ---- bodies ----------------------------------------------------------------------------------


def test_a_body_that_says_it_is_too_large(scheduler: Daemon, node: Daemon) -> None:
    """It is refused before any of it is sent."""
    for daemon, path in ((scheduler, "/v1/jobs"), (node, "/v1/nodes/state")):
        for size in (1 << 30, 1 << 60):
            answer = ask(daemon.address, "POST", path, "Content-Type: application/json", f"Content-Length: {size}")
            assert answer.status == 413, answer
    assert ask(node.address, "PUT", f"/v1/blobs/{HASH}", f"Content-Length: {1 << 60}").status == 413


def test_a_body_without_end(scheduler: Daemon, node: Daemon) -> None:
    chunk = b"100000\r\n" + b" " * (1 << 20) + b"\r\n"
    for daemon, path in ((scheduler, "/v1/jobs"), (node, "/v1/nodes/state")):
        with connected(daemon.address) as raw:
            raw.send(request("POST", path, "Content-Type: application/json", "Transfer-Encoding: chunked"))
            for _ in range(64):
                raw.send(chunk)
            assert raw.answer().status == 413
    chunked = ask(node.address, "PUT", f"/v1/blobs/{HASH}", "Transfer-Encoding: chunked", body=b"0\r\n\r\n")
    assert chunked.status == 411


@functools.cache
def bomb_of(wbits: int) -> bytes:
    """100 MB in 100 kB."""
    deflate = zlib.compressobj(9, wbits=wbits)
    return b"".join([*(deflate.compress(bytes(1 << 20)) for _ in range(100)), deflate.flush()])


@pytest.mark.parametrize("coding", rest_after(3, "gzip", "br", "gzip, gzip", "deflate", "zstd", "identity", "\x7f"))
def test_a_compressed_bomb_is_not_unpacked(scheduler: Daemon, node: Daemon, coding: str) -> None:
    """It is refused, and not inflated to be thrown away, either."""
    bomb = bomb_of(15 if coding == "deflate" else 31)
    given = (f"Content-Encoding: {coding}", "Content-Type: application/json", f"Content-Length: {len(bomb)}")
    for daemon, method, path in (
        (scheduler, "POST", "/v1/jobs"), (node, "POST", "/v1/nodes/state"), (node, "PUT", f"/v1/blobs/{HASH}"),
        (node, "POST", "/nonsense"), (scheduler, "PUT", "/v1/nodes"), (scheduler, "GET", "/livez"),
    ):  # fmt: skip
        answer = ask(daemon.address, method, path, *given, body=bomb)
        assert answer.status in (400, 404, 405, 415) or (method, answer.status) == ("GET", 200), (path, answer)


def test_bodies_that_two_readers_would_cut_differently(daemon: Daemon) -> None:
    """Request smuggling."""
    smuggled = b"0\r\n\r\nGET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for headers in (
        ("Transfer-Encoding: chunked", f"Content-Length: {len(smuggled)}"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Content-Length: 5_0",),
        ("Content-Length: -1",),
        ("Transfer-Encoding: chunked, identity",),
        ("Transfer-Encoding : chunked",),
        ("Transfer-Encoding: chunked", "Transfer-Encoding: chunked"),
        ("Content-Length: " + "9" * 400,),
    ):
        with connected(daemon.address) as raw:
            given = ("Content-Type: application/json", "Connection: close", *headers)
            raw.send(request("POST", "/v1/nodes/state", *given, body=smuggled))
            answers = raw.rest()
        assert answers.startswith(b"HTTP/1."), headers
        assert answers.split()[1] in (b"400", b"405", b"411", b"413", b"501"), (headers, answers)
        assert b"200 OK" not in answers, (headers, answers)


@pytest.mark.parametrize("chunk", [b"fffffffffffffffff\r\n", b"-1\r\nx\r\n", b"1\r\nxy\r\n0\r\n\r\n"])
def test_chunks_that_are_none(daemon: Daemon, chunk: bytes) -> None:
    with connected(daemon.address) as raw:
        given = ("Content-Type: application/json", "Transfer-Encoding: chunked")
        raw.send(request("POST", "/v1/jobs", *given, body=chunk))
        assert raw.answer().status in (400, 404)


# ---- heads -----------------------------------------------------------------------------------


HEADS = {
    "a path of 1 MB": b"GET /" + b"a" * (1 << 20) + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a header of 1 MB": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * (1 << 20) + b"\r\n\r\n",
    "a header's name of 1 MB": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"a" * (1 << 20) + b": x\r\n\r\n",
    "10,000 headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 10_000 + b"\r\n",
    "a NUL": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n",
    "a folded line": b"GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n\tb\r\n\r\n",
    "a header without a colon": b"GET / HTTP/1.1\r\nHost: localhost\r\nnonsense\r\n\r\n",
    "a version of the future": b"GET / HTTP/9.9\r\nHost: localhost\r\n\r\n",
    "no version": b"GET /v1/nowhere\r\n\r\n",
    "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500) + b"\r\n\r\n",
    "a method of 1 MB": b"A" * (1 << 20) + b" / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "bytes that are no text": b"GET /\xff\xfe HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
}


@pytest.mark.parametrize("head", HEADS)
def test_heads_that_are_none(daemon: Daemon, head: str) -> None:
    with connected(daemon.address) as raw:
        raw.send(HEADS[head])
        raw.end()
        answer = raw.rest()
    assert not answer or answer.split()[1].startswith(b"4"), answer[:200]
    assert b"aiohttp" not in answer
    assert b"Python" not in answer


def test_a_head_without_end_is_cut_off(daemon: Daemon) -> None:
    with connected(daemon.address) as raw:
        raw.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(2000):
            raw.send(b"X-%d: y\r\n" % 1 * 100)
        assert raw.answer().status == 400


# ---- paths -----------------------------------------------------------------------------------


TRICKS = (
    "/v1/blobs/../../../../etc/passwd", "/v1/blobs/..%2f..%2f..%2fetc%2fpasswd", "/v1/blobs/%2e%2e/%2e%2e/etc/passwd",
    "/v1/blobs//etc/passwd", "/v1/blobs/%00", f"/v1/blobs/{HASH}%00", f"/v1/blobs/{HASH}/..", f"/v1/blobs/{'A' * 64}",
    f"/v1/blobs/{HASH}%0a", "/v1/blobs/lock", "/v1/blobs/partial", "/v1/blobs/%ff%fe", "/v1/blobs/" + "a" * 8000,
    "/v1/blobs/\xd9\xa1" + HASH[2:], "//v1/jobs", "/v1//jobs", "/v1/jobs/../nodes/state", "/v1/jobs/%2e%2e",
    "/v1/jobs/..%2fnodes", "/v1/jobs/%0d%0aX:%20y", "/v1/jobs/%0d%0aX:%20y/results", "/v1/jobs/%ed%a0%80",
    "/v1/jobs/%ff/results", "/v1/jobs/" + "%00" * 2000, "/v1/jobs/j/results/", "/v1/jobs/j;x=y", "/V1/JOBS",
    "/v1/jobs/", "/livez/../v1/jobs/x", "/livez%2f..%2fv1%2fjobs", "http://evil.example/v1/jobs/x", "*", "?",
    "/\\..\\..",
)  # fmt: skip


@pytest.mark.parametrize("path", TRICKS)
def test_paths_lead_nowhere_else(daemon: Daemon, path: str) -> None:
    for method in ("GET", "DELETE", "PUT"):
        answer = ask(daemon.address, method, path, "Content-Length: 1", body=b"x")
        assert 400 <= answer.status < 500, (method, answer)
        assert "X" not in answer.headers
        assert b"root:" not in answer.body


def test_paths_do_not_get_round_the_token(tmp_path: Path) -> None:
    public = ("/livez", "/readyz", "/link")
    with Daemon("scheduler", log=tmp_path / "log", SPARROW_TOKEN=TOKEN) as daemon:
        for path in ("/v1/jobs", "/metrics", "/openapi.json", "/v1/nodes", *TRICKS):
            for trick in (path, *(f"{start}/..{path}" for start in public), *(f"{start};{path}" for start in public)):
                assert ask(daemon.address, "GET", trick).status in (400, 401, 404), trick
        for given in (
            "",
            "Bearer",
            "Bearer ",
            f"bearer {TOKEN}",
            f"Bearer {TOKEN[:-1]}",
            f"Bearer {TOKEN}x",
            "Bearer \xff",
        ):
            assert ask(daemon.address, "GET", "/v1/jobs", f"Authorization: {given}").status == 401, given
        assert ask(daemon.address, "GET", f"/v1/jobs?token={TOKEN}").status == 401


# ---- names that come out in headers, metrics and logs ----------------------------------------


@pytest.mark.parametrize(
    "name", ["a\r\nX: y", "a\nb", "\x1b[2J", "a\u202eb", "a\u2028b", '"}\n# HELP x', "\x9b1m", "\0"]
)
def test_names_that_would_begin_lines_are_refused(scheduler: Daemon, name: str) -> None:
    for field in ("job_id", "user", "name"):
        answer = ask_json(scheduler.address, "/v1/jobs", json.dumps({"app": "noop", field: name}).encode())
        assert (answer.status, answer.error["field"]) == (400, field)
        assert answer.body.isascii()
        assert b"\n" not in answer.body


@pytest.mark.parametrize("name", ['"', "a'b\\", "ü ", "%0d%0aX: y", "../..", "{}", 'x"} 1'])
def test_names_that_are_only_odd_are_quoted(scheduler: Daemon, name: str) -> None:
    body = json.dumps({"app": "noop", "job_id": f"odd {name}", "user": name, "name": name}).encode()
    answer = ask_json(scheduler.address, "/v1/jobs", body)
    assert answer.status == 202
    assert "X" not in answer.headers
    again = ask(scheduler.address, "GET", answer.headers["Location"])
    assert json.loads(again.body)["user"] == name
    assert ask(scheduler.address, "GET", "/metrics").status == 200


# ---- JSON ------------------------------------------------------------------------------------


DEEP = b"[" * 100_000 + b"]" * 100_000
BODIES = {
    "depth": DEEP,
    "depth in objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "depth in a field": b'{"app":"noop","tasks":' + DEEP + b"}",
    "depth that does not end": b"[" * 1_000_000,
    "NaN": b'{"app":"noop","tasks":[{}],"probe_ratio":NaN}',
    "infinity": b'{"app":"noop","tasks":[{}],"probe_ratio":Infinity}',
    "a number of 1e999": b'{"app":"noop","tasks":[{}],"probe_ratio":1e999}',
    "a number of a million digits": b'{"app":"noop","max_attempts":' + b"9" * 1_000_000 + b"}",
    "a number beyond 64 bits": b'{"app":"noop","max_attempts":18446744073709551616}',
    "half of a surrogate pair": rb'{"app":"noop","user":"\ud800"}',
    "UTF-8 that is none": b'{"app":"noop","user":"\xed\xa0\x80"}',
    "a mark of byte order": b'\xef\xbb\xbf{"app":"noop"}',
    "UTF-16": '{"app":"noop"}'.encode("utf-16"),
    "a field a million times": b'{"app":"noop",' + b'"user":"u",' * 100_000 + b'"tasks":0}',
    "a tail": b'{"app":"noop"}{"app":"noop"}',
    "a million tasks that are none": b'{"app":"noop","tasks":[' + b"0," * 1_000_000 + b"0]}",
}  # fmt: skip


@pytest.mark.parametrize("body", BODIES)
def test_json_that_is_not_taken(scheduler: Daemon, body: str) -> None:
    before = jobs(scheduler)
    answer = ask_json(scheduler.address, "/v1/jobs", BODIES[body])
    assert answer.status == 400
    assert answer.error["message"]
    assert len(answer.body) < 2000
    assert jobs(scheduler) == before


def test_a_deep_payload_is_the_executors_affair(scheduler: Daemon) -> None:
    """It is not looked into here; or it is refused, if it goes deeper than can be skipped."""
    answer = ask_json(scheduler.address, "/v1/jobs", b'{"app":"noop","tasks":[{"payload":' + DEEP + b"}]}")
    assert answer.status in (202, 400)


def test_of_two_fields_the_last_counts_for_all_checks(scheduler: Daemon) -> None:
    """What is checked is what is done."""
    answer = ask_json(scheduler.address, "/v1/jobs", b'{"app":"noop","tasks":[{}],"max_attempts":1,"max_attempts":0}')
    assert (answer.status, answer.error["field"]) == (400, "max_attempts")


# ---- connections -----------------------------------------------------------------------------


def test_connections_in_masses_close_their_own(daemon: Daemon, scheduler: Daemon) -> None:
    """Silent ones, and ones with half a head. (An honest client is asked for after each test.)"""
    silent = [Raw(daemon.address) for _ in range(CONNECTIONS)]
    half = []
    for _ in range(CONNECTIONS):
        half.append(Raw(daemon.address))
        half[-1].send(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
        if daemon is scheduler:
            assert ask(daemon.address, "GET", "/v1/nodes").status == 200
    if daemon is scheduler:
        assert [raw.rest() for raw in silent] == [b""] * CONNECTIONS
        assert "HTTP connections: 1 that waited were closed" in daemon.log.read_text()
    for raw in silent + half:
        raw.socket.close()


def test_links_without_hello_in_masses_close_their_own(scheduler: Daemon) -> None:
    begun = []
    for _ in range(2 * CONNECTIONS):
        begun.append(Raw(scheduler.address))
        assert begun[-1].upgrade().status == 101
    assert ask(scheduler.address, "GET", "/v1/nodes").status == 200
    assert [raw.said().goodbye for raw in begun[:CONNECTIONS]] == [""] * CONNECTIONS
    for raw in begun:
        raw.socket.close()


def test_pipelined_requests_whose_answers_nobody_reads(daemon: Daemon) -> None:
    asked = request("GET", "/openapi.json") * 1000
    with connected(daemon.address) as raw:
        raw.socket.settimeout(0.5)
        try:
            for _ in range(1000):
                raw.socket.sendall(asked)
        except TimeoutError:
            pass  # What is not answered is not read any more.
        else:
            pytest.fail("a million requests were taken in")
        assert ask(daemon.address, "GET", "/v1/nodes").status == 200


def test_many_requests_on_one_connection_are_all_answered(daemon: Daemon) -> None:
    connection = HTTPConnection(daemon.address, timeout=TIMEOUT_S)
    for _ in range(300):
        connection.request("GET", "/livez")
        response: HTTPResponse = connection.getresponse()
        assert (response.status, response.read()) == (200, b"ok\n")
    connection.close()


@pytest.fixture
async def impatient(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """A scheduler in this process, that waits for nobody."""
    monkeypatch.setattr(http_guard, "IDLE_TIMEOUT_S", 0.2)
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    await daemon.start()
    yield daemon.address
    await daemon.stop()


@pytest.fixture
async def patient() -> AsyncIterator[SchedulerDaemon]:
    """A scheduler in this process, for which no time passes but by `silence`."""
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    await daemon.start()
    yield daemon
    await daemon.stop()


def connections_of(daemon: SchedulerDaemon) -> http_guard.Connections:
    return daemon._listener._runner.app[http_guard._CONNECTIONS]


def silence(daemon: SchedulerDaemon) -> None:
    """Nobody has said anything for longer than connections may be silent."""
    connections = connections_of(daemon)
    connections._idle_timeout_s = 0.0
    connections._drop_idle()


async def closes(reader: asyncio.StreamReader) -> bytes:
    """What comes until the other side closes or resets."""
    data = bytearray()
    async with asyncio.timeout(TIMEOUT_S):
        try:
            while chunk := await reader.read(1 << 16):
                data += chunk
        except ConnectionError:
            pass
    return bytes(data)


@pytest.mark.parametrize("said", [b"", b"GET / HT", b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"])
async def test_who_does_not_come_to_the_point_is_cut_off(impatient: str, said: bytes) -> None:
    reader, writer = await asyncio.open_connection(*impatient.split(":"))
    writer.write(said)
    assert await closes(reader) == b""
    writer.close()


async def test_slowly_is_not_enough(impatient: str) -> None:
    """Slow loris: a head that goes on for ever, a header at a time."""
    reader, writer = await asyncio.open_connection(*impatient.split(":"))
    writer.write(b"GET /livez HTTP/1.1\r\n")

    async def drip() -> None:
        while True:
            writer.write(b"X: y\r\n")
            await asyncio.sleep(0.01)

    dripping = asyncio.create_task(drip())
    assert await closes(reader) == b""
    dripping.cancel()
    writer.close()


async def test_an_idle_connection_is_closed_after_its_answer(patient: SchedulerDaemon) -> None:
    reader, writer = await asyncio.open_connection(*patient.address.split(":"))
    writer.write(request("GET", "/livez"))
    async with asyncio.timeout(TIMEOUT_S):
        assert (await reader.readuntil(b"ok\n")).startswith(b"HTTP/1.1 200")
    silence(patient)
    assert await closes(reader) == b""
    writer.close()


async def test_who_does_not_read_the_answer_is_cut_off(impatient: str) -> None:
    _, writer = await asyncio.open_connection(*impatient.split(":"), limit=1024)
    writer.write(request("GET", "/openapi.json") * 1000)
    await asyncio.sleep(0)
    async with asyncio.timeout(TIMEOUT_S):
        while True:  # The other side's end has come when nothing can be sent any more.
            try:
                writer.write(request("GET", "/livez"))
                await asyncio.wait_for(writer.drain(), 0.05)
            except TimeoutError:
                pass
            except ConnectionError:
                break
    writer.close()


async def test_who_is_served_is_not_cut_off(patient: SchedulerDaemon) -> None:
    """A body may take longer than silence: it has a limit of its own."""
    reader, writer = await asyncio.open_connection(*patient.address.split(":"))
    head = ("Content-Type: application/json", f"Content-Length: {len(JOB)}", "Connection: close")
    writer.write(request("POST", "/v1/jobs", *head, body=JOB[:10]))
    async with asyncio.timeout(TIMEOUT_S):
        await until(lambda: bool(connections_of(patient)._served))
    silence(patient)
    writer.write(JOB[10:])
    assert (await closes(reader)).startswith(b"HTTP/1.1 202")
    writer.close()
