"""What users share at a daemon: one takes all that it can get of it, and another is answered all the same."""

import asyncio
import logging
import resource
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import msgspec
import pytest

from node_monitor.blobs import blob_store
from node_monitor.daemon import NodeMonitorDaemon
from node_monitor.executors.confinement import LAUNCHER
from node_monitor.options import NodeMonitorOptions
from scheduler.daemon import SchedulerDaemon
from scheduler.http import jobs, kept_jobs, readers, routes
from scheduler.options import SchedulerOptions
from sparrow_py.access.credentials import Access
from sparrow_py.daemon.process import until
from sparrow_py.errors import LinkError
from sparrow_py.http import http_guard
from sparrow_py.job import BlobRef
from sparrow_py.limits import open_files
from sparrow_py.limits.shares import SHARE
from sparrow_py.logs.sparing_log import SparingLog
from sparrow_py.wire import accepting, blobs
from sparrow_py.wire import messages as m
from tests.support.guarded import ADA, BOB, CLUSTER, usual_tokens
from tests.support.raw import BINARY, batch, connected, ws_frame
from tests.support.raw_links import RawLinks, hello
from tests.support.waiting import TIMEOUT_S

LIMIT = 8
SHARE_OF_IT = LIMIT // SHARE
JOB = {"app": "noop", "tasks": [{}], "wait_for_nodes_s": 1000}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is shared is little."""
    monkeypatch.setattr(kept_jobs, "JOBS_MAX", LIMIT)
    monkeypatch.setattr(readers, "READERS_MAX", LIMIT)
    monkeypatch.setattr(jobs, "SUBMISSIONS_MAX", LIMIT)
    for name in ("FETCHES_AT_ONCE_MAX", "UPLOADS_AT_ONCE_MAX"):
        monkeypatch.setattr(blob_store, name, LIMIT)


@pytest.fixture(autouse=True)
def fresh_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has not had its lines of this minute."""
    monkeypatch.setattr(accepting, "refusals", SparingLog(logging.getLogger("sparrow.credentials")))


@asynccontextmanager
async def daemon_at(daemon: SchedulerDaemon | NodeMonitorDaemon) -> AsyncIterator[str]:
    await daemon.start()
    try:
        async with asyncio.timeout(TIMEOUT_S):
            yield daemon.address
    finally:
        await daemon.stop()


@pytest.fixture
def scheduler(small: None, tmp_path: Path) -> SchedulerDaemon:
    """With tokens of ada and bob; not started."""
    return SchedulerDaemon(
        SchedulerOptions(port=0, token_file=str(usual_tokens(tmp_path / "tokens")), clients_max=LIMIT)
    )


@pytest.fixture
def node(small: None, tmp_path: Path) -> NodeMonitorDaemon:
    options = NodeMonitorOptions(
        port=0, scheduler=("127.0.0.1:1",), token_file=str(usual_tokens(tmp_path / "tokens")), warm=(), slots=1,
        blob_bytes_max=1_000_000,
    )  # fmt: skip
    return NodeMonitorDaemon(options)


@asynccontextmanager
async def user(address: str, secret: str) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {secret}"}
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://{address}", headers=headers, connector=connector) as session:
        yield session


async def half_request(address: str, head: str, body: bytes = b"") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A request of bob's whose body does not come, or only the beginning of it."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    lines = (head, "Host: localhost", f"Authorization: Bearer {BOB}", "Content-Length: 1000")
    writer.write("\r\n".join((*lines, "Content-Type: application/json", "", "")).encode() + body)
    await writer.drain()
    return reader, writer


async def why_refused(raw_links: RawLinks, said: m.Hello, access: Access) -> str:
    with pytest.raises(LinkError) as caught:
        await raw_links.dial(said, access)
    return str(caught.value)


async def message_of(response: aiohttp.ClientResponse) -> str:
    return str((await response.json())["error"]["message"])


# ---- seats at a scheduler ------------------------------------------------------------------------


async def test_half_submissions(scheduler: SchedulerDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "BUSY_RETRY_S", 0.05)
    async with daemon_at(scheduler) as address, user(address, ADA) as ada, user(address, BOB) as bob:
        half = [await half_request(address, "POST /v1/jobs HTTP/1.1", b'{"app"') for _ in range(2 * LIMIT)]
        await until(lambda: scheduler.http_jobs.submissions.of("bob") == SHARE_OF_IT)
        async with ada.post("/v1/jobs", json=JOB) as response:
            assert response.status == 202
        async with bob.post("/v1/jobs", json=JOB) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert await message_of(response) == (
                "at most 2 of SUBMISSIONS_MAX = 8 jobs are submitted at a time for one user; here bob"
            )
        for _, writer in half:
            writer.close()


async def test_readers_of_results(scheduler: SchedulerDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "BUSY_RETRY_S", 0.05)
    async with daemon_at(scheduler) as address, AsyncExitStack() as stack:
        ada, bob = [await stack.enter_async_context(user(address, secret)) for secret in (ADA, BOB)]
        for session, job in ((ada, "a"), (bob, "b")):
            async with session.post("/v1/jobs", json=JOB | {"job_id": job}) as response:
                assert response.status == 202
        get = [await stack.enter_async_context(bob.get("/v1/jobs/b/results")) for _ in range(LIMIT)]
        assert [response.status for response in get] == [200] * SHARE_OF_IT + [503] * (LIMIT - SHARE_OF_IT)
        assert (await stack.enter_async_context(ada.get("/v1/jobs/a/results"))).status == 200


async def test_readers_who_do_not_read_give_way_to_one_who_does(scheduler: SchedulerDaemon) -> None:
    """Of the same user: the one that has not read for longest."""
    async with daemon_at(scheduler) as address, AsyncExitStack() as stack:
        bob = await stack.enter_async_context(user(address, BOB))
        async with bob.post("/v1/jobs", json=JOB | {"job_id": "b"}) as response:
            assert response.status == 202
        job = scheduler.http_jobs.kept.get("b")
        assert job is not None
        job.lines += [b"x" * (1 << 20)] * 16  # More than sockets buffer.
        mute = []
        for number in range(SHARE_OF_IT):
            mute.append(await half_request(address, "GET /v1/jobs/b/results HTTP/1.1", bytes(1000)))
            await until(lambda number=number: len(scheduler.readers._unread.get("bob", ())) == number + 1)
        async with bob.get("/v1/jobs/b/results") as response:
            assert response.status == 200 and await response.content.readexactly(16 << 20)
            assert len(scheduler.readers._unread["bob"]) == SHARE_OF_IT - 1
        read = 0
        with suppress(ConnectionError):
            while chunk := await mute[0][0].read(1 << 20):
                read += len(chunk)
        assert read < 16 << 20  # It was cut.
        for _, writer in mute:
            writer.close()


async def test_jobs_without_tasks_do_not_push_anothers_results_away(scheduler: SchedulerDaemon) -> None:
    empty = {"app": "noop", "wait_for_nodes_s": 9}
    async with daemon_at(scheduler) as address, user(address, ADA) as ada, user(address, BOB) as bob:
        async with ada.post("/v1/jobs", json=empty | {"job_id": "a"}) as response:
            assert response.status == 202
        for number in range(LIMIT + 1):
            async with bob.post("/v1/jobs", json=empty | {"job_id": f"b{number}"}) as response:
                assert response.status == 202
        async with ada.get("/v1/jobs/a/results") as response:
            assert response.status == 200
        statuses = []
        for number in range(LIMIT + 1):
            async with bob.get(f"/v1/jobs/b{number}") as response:
                statuses.append(response.status)
        assert statuses == [404] * (LIMIT + 1 - SHARE_OF_IT) + [200] * SHARE_OF_IT  # Its own oldest have gone.


async def test_links_of_clients(scheduler: SchedulerDaemon, caplog: pytest.LogCaptureFixture) -> None:
    async with daemon_at(scheduler) as address, RawLinks(address) as raw_links:
        for _ in range(SHARE_OF_IT):
            await raw_links.dial(hello("client", "bob"), Access.of(BOB))
        for _ in range(3):
            why = await why_refused(raw_links, hello("client", "bob"), Access.of(BOB))
            assert "at most 2 of clients_max = 8 clients are connected for one user; here bob" in why
        await raw_links.dial(hello("client", "ada"), Access.of(ADA))
        assert scheduler._client_seats.total == SHARE_OF_IT + 1
    assert scheduler._client_seats.total == 0
    assert "clients are connected for one user; here bob" in caplog.text


# ---- descriptors ---------------------------------------------------------------------------------


def test_the_budget_leaves_files_for_nodes_and_for_ourselves() -> None:
    for files in (64, 256, 1024, 4096, 20_000, 1 << 20):
        budget = open_files.budget(files)
        if files >= 256:
            spent = budget.connections + budget.readers + budget.links + open_files.OWN_FILES
            assert spent <= files and budget.clients <= files // 2
            assert budget.links - budget.clients >= files // 20  # Of 256 files these are 16 nodes, of 1024 256.
        assert min(budget.connections, budget.readers, budget.clients, budget.links) >= 1


async def test_one_users_links_leave_files_for_nodes_and_operators(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """As with few descriptors."""
    budget = open_files.Budget(files=24, connections=LIMIT, readers=2, clients=LIMIT, links=LIMIT + 2)
    monkeypatch.setattr(open_files, "budget", lambda: budget)
    tokens = usual_tokens(tmp_path / "tokens")
    scheduler = SchedulerDaemon(SchedulerOptions(port=0, token_file=str(tokens)))
    assert "24 files may be open: 8 clients may be connected, not clients_max = 10000" in caplog.text
    async with daemon_at(scheduler) as address, RawLinks(address) as raw_links, user(address, ADA) as ada:
        for _ in range(SHARE_OF_IT):
            await raw_links.dial(hello("client", "bob"), Access.of(BOB))
        why = await why_refused(raw_links, hello("client", "bob"), Access.of(BOB))
        assert "at most 2 of clients_max for 24 open files = 8 clients are connected for one user" in why
        for number in range(LIMIT):
            await raw_links.dial(hello("node", name=f"n{number}"), Access.of(CLUSTER))
        for _ in range(2):
            why = await why_refused(raw_links, hello("node", name="one-too-many"), Access.of(CLUSTER))
            assert "8 node monitors are connected, and 24 files may be open" in why
        async with ada.get("/readyz") as response:
            assert response.status == 200
    assert "8 node monitors are connected, and 24 files may be open" in caplog.text


async def test_requests_in_hand(
    scheduler: SchedulerDaemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Bodies that do not come hold connections, whatever else refuses them."""
    budget = open_files.Budget(files=999, connections=4 * LIMIT, readers=9, clients=9, links=99)
    monkeypatch.setattr(open_files, "budget", lambda: budget)
    monkeypatch.setattr(routes, "BUSY_RETRY_S", TIMEOUT_S)  # They wait for their seats.
    async with daemon_at(scheduler) as address, user(address, ADA) as ada, user(address, CLUSTER) as operator:
        half = [await half_request(address, "POST /v1/jobs HTTP/1.1") for _ in range(5 * LIMIT)]
        refused = [reader for reader, _ in half[6:]]  # A quarter of three quarters of 32 is in hand.
        assert [(await reader.readline())[:12] for reader in refused] == [b"HTTP/1.1 503"] * len(refused)
        assert b"CONNECTIONS_MAX = 24 HTTP requests" in (await refused[0].read())
        async with ada.post("/v1/jobs", json=JOB) as response:
            assert response.status == 202
        for path in ("/readyz", "/v1/nodes"):
            async with operator.get(path) as response:
                assert response.status == (503 if path == "/readyz" else 200)  # It has no node monitor.
        for _, writer in half:
            writer.close()
    assert len([record for record in caplog.records if record.name == "sparrow.seats"]) == 1


def test_a_daemon_raises_its_limit_and_its_executors_have_the_old_one(tmp_path: Path) -> None:
    """In processes of their own, as the limits are theirs."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    show = "import resource; print(*resource.getrlimit(resource.RLIMIT_NOFILE))"
    code = (
        "import os, resource, subprocess, sys\n"
        "from node_monitor.executors.confinement import Confinement\n"
        "from sparrow_py.limits import open_files\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (300, 600))\n"
        "open_files.raise_limit()\n"
        f"{show}\n"
        f"subprocess.run(Confinement().command((sys.executable, '-c', {show!r}), None, limited=True), check=True)\n"
        f"command = Confinement().command((sys.executable, '-c', {show!r}), None, limited=True)\n"
        "command.insert(command.index('--'), '--limit=nofile=100')\n"
        "subprocess.run(command, check=True)\n"
    )
    done = subprocess.run([sys.executable, "-uc", code], capture_output=True, text=True, check=True, timeout=TIMEOUT_S)
    assert done.stdout.splitlines() == ["600 600", "300 600", "100 100"], done.stderr
    assert hard >= 600 and Path(LAUNCHER).exists()


# ---- before a token ------------------------------------------------------------------------------


async def test_half_frames_before_a_hello_take_no_memory(scheduler: SchedulerDaemon) -> None:
    async with daemon_at(scheduler) as address:
        with connected(address) as raw:
            assert (await asyncio.to_thread(raw.upgrade)).status == 101
            half = ws_frame(BINARY, bytes(http_guard.HELLO_BYTES_MAX + 1), length=1 << 20)
            await asyncio.to_thread(raw.send, half)
            ended = await asyncio.to_thread(raw.said)
        assert ended.goodbye == "more than HELLO_BYTES_MAX = 65536 bytes came before a Hello was accepted"
        with connected(address) as raw:
            assert (await asyncio.to_thread(raw.upgrade)).status == 101
            await asyncio.to_thread(raw.send, ws_frame(BINARY, bytes(4 << 20), length=1 << 40))
            await asyncio.to_thread(raw.said)


async def test_a_link_that_stands_takes_frames_as_large_as_before(scheduler: SchedulerDaemon) -> None:
    async with daemon_at(scheduler) as address, RawLinks(address) as raw_links:
        link = await raw_links.dial(hello("client", "ada"), Access.of(ADA))
        stage = m.Stage("noop", 1, b"", "", 1.0, 0, None)
        link.send(m.SubmitJob("j", 0, "", [stage], 1, False, None, False, wait_for_nodes_s=1000.0))
        link.send(m.AddTasks("j", 0, [bytes(m.FRAME_BYTES_MAX - m.MESSAGE_OVERHEAD_BYTES)]))
        await until(lambda: "j" in scheduler.core.jobs and scheduler.core.jobs["j"].received == 1)


async def test_handshakes_in_masses_close_their_own(
    scheduler: SchedulerDaemon, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_guard, "HANDSHAKES_MAX", 3)
    async with daemon_at(scheduler) as address, RawLinks(address) as raw_links, AsyncExitStack() as stack:
        begun = []
        for _ in range(9):
            begun.append(stack.enter_context(connected(address)))
            assert (await asyncio.to_thread(begun[-1].upgrade)).status == 101
        await raw_links.dial(hello("client", "ada"), Access.of(ADA))
        for raw in begun[:6]:
            assert (await asyncio.to_thread(raw.said)).messages == []
        begun[-1].send(ws_frame(BINARY, batch(msgspec.structs.replace(hello("client", "bob"), token=BOB))))
        await until(lambda: scheduler._client_seats.total == 2)
    assert len([record for record in caplog.records if "links without a Hello" in record.message]) == 1


# ---- seats at a node -----------------------------------------------------------------------------


async def test_slow_uploads(node: NodeMonitorDaemon) -> None:
    data = b"of ada"
    async with daemon_at(node) as address, aiohttp.ClientSession() as session:
        half = [
            await half_request(address, f"PUT /v1/blobs/{number:064x} HTTP/1.1", b"x") for number in range(2 * LIMIT)
        ]
        store = node._store
        assert store is not None
        await until(lambda: store.upload_seats.of("bob") == SHARE_OF_IT)
        ref = await blobs.upload(session, address, Access.of(ADA), data, blobs.sha256_hex(data))
        assert ref.size == len(data)
        for _, writer in half:
            writer.close()
        await until(lambda: store.upload_seats.total == 0)


async def test_fetches_from_where_nothing_comes(node: NodeMonitorDaemon) -> None:
    """A job may name any address for its inputs."""
    writers: list[asyncio.StreamWriter] = []
    mute = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
    nowhere = f"127.0.0.1:{mute.sockets[0].getsockname()[1]}"
    told: dict[str, str] = {}
    async with daemon_at(node) as address:
        store = node._store
        assert store is not None
        for number in range(2 * LIMIT):
            store.fetch(BlobRef(f"{number:064x}", 10, (nowhere,)), told.__setitem__, "bob")
        await until(lambda: store._fetch_seats.of("bob") == SHARE_OF_IT)
        store.fetch(BlobRef("a" * 64, 10, (address,)), told.__setitem__, "ada")
        await until(lambda: "a" * 64 in told)
        assert list(told) == ["a" * 64]
    for writer in writers:
        writer.close()
    mute.close()


async def test_large_data_of_one_user_leaves_room_for_anothers(node: NodeMonitorDaemon) -> None:
    async with daemon_at(node) as address, user(address, ADA) as ada, user(address, BOB) as bob:
        statuses = []
        for number in range(10):
            data = bytes([number]) * 100_000
            async with bob.put(f"/v1/blobs/{blobs.sha256_hex(data)}", data=data) as response:
                statuses.append(response.status)
        assert statuses == [201] * 7 + [507] * 3
        data = b"a" * 250_000
        async with ada.put(f"/v1/blobs/{blobs.sha256_hex(data)}", data=data) as response:
            assert response.status == 201
