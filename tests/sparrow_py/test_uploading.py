"""Where a client's large inputs go while nodes and schedulers come and go: real HTTP, and servers that play both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from types import SimpleNamespace

import aiohttp
import pytest
from aiohttp import web

from sparrow_py.access.credentials import OPEN
from sparrow_py.errors import AccessDenied, LinkError, NoScheduler, Refused
from sparrow_py.job import BlobRef, JobSpec
from sparrow_py.session.client_job import ClientJob
from sparrow_py.session.session import Session
from sparrow_py.session.uploading import Uploading
from sparrow_py.timing.standstill import Standstill
from sparrow_py.wire import blobs
from sparrow_py.wire import messages as m
from tests.support.waiting import TIMEOUT_S
from tests.support.web_servers import web_servers

DATA = b"large"
HASH = blobs.sha256_hex(DATA)
TRIES = 8
"""More than a scheduler names nodes at a time."""
Listen = Callable[["Cluster"], Awaitable[str]]


class Cluster:
    """A scheduler and its nodes at one address: each answers what its list says next, and its last answer for ever.

    why: what nodes say that refuse."""

    def __init__(self, names: list[list[str]], answers: list[int], why: str = "") -> None:
        self.names = names
        self.answers = answers
        self.why = why
        self.asked = 0
        self.offered = 0

    async def nodes(self, request: web.Request) -> web.Response:
        names = self.names[min(self.asked, len(self.names) - 1)]
        self.asked += 1
        return web.json_response({"nodes": [{"address": name or request.host} for name in names]})

    async def put(self, request: web.Request) -> web.Response:
        assert await request.read() == DATA
        self.offered += 1
        status = self.answers[min(self.offered, len(self.answers)) - 1]
        return web.json_response({"error": {"message": self.why}}, status=status)


HERE = ""
"""The cluster's own address."""
DEAD = "127.0.0.1:1"


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """Starts a cluster; returns its address."""
    async with web_servers() as serve:

        async def start(cluster: Cluster) -> str:
            app = web.Application()
            app.router.add_get("/v1/nodes", cluster.nodes)
            app.router.add_put("/v1/blobs/{hash}", cluster.put)
            return await serve(app)

        yield start


@pytest.fixture
async def http(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[aiohttp.ClientSession]:
    monkeypatch.setattr("sparrow_py.session.uploading.RETRY_MAX_S", 0.01)
    async with aiohttp.ClientSession() as session:
        yield session


def never() -> bool:
    return False


def at_try(number: int) -> Callable[[], bool]:
    """Late from this question on."""
    left = iter(range(number - 1))
    return lambda: next(left, None) is None


@pytest.mark.parametrize("away", [[DEAD], [DEAD, DEAD], []])
async def test_nodes_that_are_away_are_waited_for(listen: Listen, http: aiohttp.ClientSession, away: list[str]) -> None:
    cluster = Cluster([away] * TRIES + [[*away, HERE]], [201])
    address = await listen(cluster)
    ref = await Uploading(http, lambda: [address], lambda: OPEN).upload(DATA, HASH, never)
    assert ref.at == (address,)
    assert (cluster.asked, cluster.offered) == (TRIES + 1, 1)


async def test_schedulers_that_are_away_are_waited_for(listen: Listen, http: aiohttp.ClientSession) -> None:
    """No link at first, then one whose scheduler is gone already, then one that answers."""
    address = await listen(Cluster([[HERE]], [201]))
    known = iter([[]] * TRIES + [[DEAD]] * TRIES + [[DEAD, address]])
    ref = await Uploading(http, lambda: next(known), lambda: OPEN).upload(DATA, HASH, never)
    assert ref.at == (address,)
    assert next(known, None) is None


@pytest.mark.parametrize("status", [400, 408, 500, 503, 507])
async def test_what_may_pass_is_tried_again(listen: Listen, http: aiohttp.ClientSession, status: int) -> None:
    cluster = Cluster([[HERE]], [status] * TRIES + [201])
    address = await listen(cluster)
    await Uploading(http, lambda: [address], lambda: OPEN).upload(DATA, HASH, never)
    assert cluster.offered == TRIES + 1


@pytest.mark.parametrize(("status", "kind"), [(413, Refused), (401, AccessDenied), (403, AccessDenied)])
async def test_what_cannot_be_helped_is_said_at_once(
    listen: Listen, http: aiohttp.ClientSession, status: int, kind: type[Exception]
) -> None:
    cluster = Cluster([[HERE]], [status])
    address = await listen(cluster)
    with pytest.raises(kind, match=f"^{address}: "):
        await Uploading(http, lambda: [address], lambda: OPEN).upload(DATA, HASH, never)
    assert cluster.offered == 1


async def test_one_node_is_too_small_and_the_other_away(listen: Listen, http: aiohttp.ClientSession) -> None:
    """The other may be larger."""
    cluster = Cluster([[HERE, DEAD]], [413] * TRIES + [201])
    address = await listen(cluster)
    await Uploading(http, lambda: [address], lambda: OPEN).upload(DATA, HASH, never)
    assert cluster.offered == TRIES + 1


@pytest.mark.parametrize(
    ("nodes", "status", "kind"), [([DEAD] * 3, 201, LinkError), ([], 201, NoScheduler), ([HERE], 507, Refused)]
)
async def test_it_is_given_up_when_it_is_late(
    listen: Listen, http: aiohttp.ClientSession, nodes: list[str], status: int, kind: type[Exception]
) -> None:
    address = await listen(Cluster([nodes], [status]))
    with pytest.raises(kind):
        await Uploading(http, lambda: [address], lambda: OPEN).upload(DATA, HASH, at_try(2 * TRIES))


async def test_no_further_node_is_tried_once_it_is_late(listen: Listen, http: aiohttp.ClientSession) -> None:
    cluster = Cluster([[HERE, HERE, HERE]], [500])
    address = await listen(cluster)
    with pytest.raises(LinkError):
        await Uploading(http, lambda: [address], lambda: OPEN).upload(DATA, HASH, lambda: True)
    assert cluster.offered == 1


@pytest.mark.parametrize("stood_still", [False, True])
async def test_a_client_is_late_after_submit_timeout_s_but_not_just_after_a_standstill(
    listen: Listen, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, stood_still: bool
) -> None:
    now = [1000.0]
    session = Session("127.0.0.1:1", submit_timeout_s=60.0)
    monkeypatch.setattr(session, "_clock", lambda: now[0])
    patience_s = 15.0 if stood_still else 100.0
    monkeypatch.setattr(session, "_standstill", Standstill(patience_s, session._stood_still, lambda: now[0]))
    monkeypatch.setattr(session, "_session", http)
    monkeypatch.setattr(session, "_uploading", Uploading(http, session._addresses, lambda: OPEN))

    class Slow(Cluster):
        async def put(self, request: web.Request) -> web.Response:
            now[0] += 60.0
            return await super().put(request)

    cluster = Slow([[HERE]], [500, 201])
    address = await listen(cluster)
    monkeypatch.setattr(session, "_links", {"scheduler": SimpleNamespace(peer=address)})
    if stood_still:
        await session.upload(DATA)
    else:
        with pytest.raises(LinkError):
            await session.upload(DATA)
    assert cluster.offered == 1 + stood_still


async def test_nothing_is_uploaded_after_the_client_is_closed(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session("127.0.0.1:1", submit_timeout_s=1e6)
    asked = asyncio.Event()

    def schedulers() -> list[str]:
        asked.set()
        return []

    monkeypatch.setattr(session, "_session", http)
    monkeypatch.setattr(session, "_uploading", Uploading(http, schedulers, lambda: OPEN))
    uploading = asyncio.ensure_future(session.upload(DATA))
    await asked.wait()
    await session.stop()
    with pytest.raises(NoScheduler):
        await asyncio.wait_for(uploading, TIMEOUT_S)


# ---- inputs that a scheduler asks for again ------------------------------------------------------


class Asked:
    """A client with a job whose scheduler asks for its one large input again, and what the client has answered."""

    def __init__(
        self, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, address: str, submit_timeout_s: float = 60.0
    ):
        self.session = Session("127.0.0.1:1", submit_timeout_s=submit_timeout_s)
        self.answers: list[m.BlobAt] = []
        link = SimpleNamespace(peer=address, send=self.send)
        monkeypatch.setattr(self.session, "_session", http)
        monkeypatch.setattr(self.session, "_uploading", Uploading(http, self.session._addresses, lambda: OPEN))
        monkeypatch.setattr(self.session, "_links", {"s": link})
        self.job = ClientJob(JobSpec([BlobRef(HASH, len(DATA), ("gone:1",))], job_id="j"), SimpleNamespace(), 0.0)
        self.job.scheduler, self.job.uploads = "s", {HASH: DATA}
        self.session.core.jobs["j"] = self.job

    def send(self, message: m.Message) -> None:
        assert isinstance(message, m.BlobAt)
        self.answers.append(message)

    async def ask(self, hash_: str = HASH) -> None:
        await asyncio.wait_for(self.session._upload_again(self.job, hash_), TIMEOUT_S)


async def test_an_input_is_uploaded_again_once_a_full_node_has_room(
    listen: Listen, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = await listen(cluster := Cluster([[HERE]], [507] * TRIES + [201]))
    asked = Asked(http, monkeypatch, address)
    await asked.ask()
    assert asked.answers == [m.BlobAt("j", BlobRef(HASH, len(DATA), (address,)))]
    assert asked.job.payloads == [asked.answers[0].blob] and cluster.offered == TRIES + 1


@pytest.mark.parametrize(("status", "submit_timeout_s"), [(507, 0.0), (413, 60.0)])
async def test_the_scheduler_hears_why_an_input_could_not_be_uploaded_again(
    listen: Listen,
    http: aiohttp.ClientSession,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    submit_timeout_s: float,
) -> None:
    """Nodes are full for too long, or keep no input as large as this one."""
    address = await listen(Cluster([[HERE]], [status], why := "the blob is 5 bytes; 3 are in use"))
    asked = Asked(http, monkeypatch, address, submit_timeout_s)
    await asked.ask()
    assert asked.answers == [m.BlobAt("j", BlobRef(HASH, 0, ()), f"{address}: {why}")]
    assert asked.job.payloads == [BlobRef(HASH, len(DATA), ("gone:1",))]


async def test_an_input_that_the_client_does_not_have_is_answered_without_a_reason(
    http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked(http, monkeypatch, DEAD)
    await asked.ask("ab" * 32)
    assert asked.answers == [m.BlobAt("j", BlobRef("ab" * 32, 0, ()))]


async def test_nothing_is_uploaded_again_for_a_job_that_has_ended(
    listen: Listen, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Ends(Cluster):
        async def put(self, request: web.Request) -> web.Response:
            if self.offered == 2:
                del asked.session.core.jobs["j"]
            return await super().put(request)

    address = await listen(cluster := Ends([[HERE]], [507]))
    asked = Asked(http, monkeypatch, address, submit_timeout_s=1e6)
    await asked.ask()
    assert not asked.answers and cluster.offered == 3
