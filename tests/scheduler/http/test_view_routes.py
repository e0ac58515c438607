"""What people look at, over HTTP: who sees what, and how many may look."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from scheduler.http import cluster_state, neighbours, viewers
from scheduler.http.neighbours import Neighbour, Neighbours
from scheduler.http.pages import FILES
from scheduler.recent.hour import Hour
from sparrow_py.access.credentials import Credentials
from sparrow_py.limits.seats import Seats
from sparrow_py.wire import messages as m
from tests.support.guarded import ADA, BOB, CLUSTER, usual_tokens
from tests.support.http_jobs import refusal
from tests.support.pretended_cluster import PretendedCluster
from tests.support.scheduler_rig import node_info
from tests.support.waiting import TIMEOUT_S

Event = tuple[str, dict[str, Any]]


@asynccontextmanager
async def served(cluster: PretendedCluster) -> AsyncIterator[aiohttp.ClientSession]:
    """The cluster works, and its scheduler is asked."""
    await cluster.start()
    timeout, jar = aiohttp.ClientTimeout(total=TIMEOUT_S), aiohttp.CookieJar(unsafe=True)  # Of addresses, too.
    try:
        async with aiohttp.ClientSession(f"http://{cluster.address}", timeout=timeout, cookie_jar=jar) as http:
            yield http
    finally:
        await cluster.stop()


@pytest.fixture
async def cluster() -> AsyncIterator[tuple[PretendedCluster, aiohttp.ClientSession]]:
    made = PretendedCluster()
    async with served(made) as http:
        yield made, http


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[PretendedCluster, aiohttp.ClientSession]]:
    """Ada's job has ended, and Bob's too."""
    made = PretendedCluster(token_file=str(usual_tokens(tmp_path / "tokens")))
    async with served(made) as http:
        for user in ("ada", "bob"):
            made.submit(2, job=f"{user}-1", user=user, name="<b>bold</b>")
        await made.until(lambda: not made.core.jobs)
        yield made, http


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[Event]:
    """Of a stream of events."""
    name = ""
    async for line in response.content:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, json.loads(value)


async def first_state(http: aiohttp.ClientSession, token: str = "", search: str = "") -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    async with http.get("/v1/events", params={"search": search}, headers=headers) as response:
        assert response.status == 200
        return await anext(state async for name, state in events(response) if name == "state")


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


async def test_a_job_that_has_ended_is_seen_in_time(cluster: tuple[PretendedCluster, aiohttp.ClientSession]) -> None:
    daemon, http = cluster
    daemon.submit(5, job="j/1", fails=True, max_attempts=1)
    await daemon.until(lambda: not daemon.core.jobs)
    async with http.get("/v1/jobs/j%2F1/timeline") as response:
        shown = await response.json()
    assert (shown["how"], shown["tasks"], len(shown["stages"]), shown["here"]) == ("ended", 5, 1, [])
    assert sorted((task, status) for task, _, _, _, status in shown["runs"]) == [
        (0, "finished"), (1, "finished"), (2, "failed"), (3, "finished"), (4, "finished"),
    ]  # fmt: skip
    assert set(shown["nodes"]) <= set(daemon.core.nodes.by_id)
    async with http.get("/v1/jobs/other/timeline") as response:
        assert (response.status, await refusal(response)) == (404, "no job 'other' runs here or is remembered")


async def test_a_job_that_has_ended_is_explained(
    cluster: tuple[PretendedCluster, aiohttp.ClientSession],
) -> None:
    daemon, http = cluster
    daemon.submit(5, job="j/1")
    await daemon.until(lambda: not daemon.core.jobs)
    async with http.get("/v1/jobs/j%2F1/explain") as response:
        ended = await response.json()
    assert ended["stages"] == [] and [line.partition(":")[0] for line in ended["so_far"][:3]] == [
        "ideal", "waits", "held up by",
    ]  # fmt: skip
    assert "half of its 5 runs began" in ended["so_far"][1]
    async with http.get("/v1/jobs/other/explain") as response:
        assert (response.status, await refusal(response)) == (404, "no job 'other' runs here or is remembered")


async def test_the_state_of_the_cluster(cluster: tuple[PretendedCluster, aiohttp.ClientSession]) -> None:
    daemon, http = cluster
    daemon.core.receive_from_node("node-0001:20504", m.NodeState(m.CORDONED, ""), daemon.clock())
    daemon.submit(3, job="found", name="Some Sweep")
    daemon.submit(3, job="other", app="absent", wait_for_nodes_s=1000.0)
    async with http.get("/v1/events", params={"search": "sweep"}) as response:
        stream = events(response)
        (first, roster), (second, state) = await anext(stream), await anext(stream)
    assert (first, second, response.content_type) == ("roster", "state", "text/event-stream")
    assert roster["ids"] == list(daemon.core.nodes.by_id)
    assert (roster["slots"], roster["more"]) == ([4, 4, 4], 0)
    assert state["figures"]["states"] == {"node-0001:20504": "cordoned"}
    assert (state["address"], state["takes_jobs"], state["slots"]) == (daemon.address, True, 12)
    assert [job["id"] for job in state["found"]["jobs"]] == ["found"]
    assert [(user["user"], user["waiting"]) for user in state["users"]] == [("ada", 3)]
    assert state["rates"]["launched"] == 0


async def test_a_search_that_is_too_long(cluster: tuple[PretendedCluster, aiohttp.ClientSession]) -> None:
    _, http = cluster
    async with http.get("/v1/events", params={"search": "x" * 257}) as response:
        assert (response.status, "search" in await refusal(response)) == (400, True)


async def test_jobs_are_found_up_to_bounds(
    cluster: tuple[PretendedCluster, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_state, "JOBS_SHOWN_MAX", 2)
    daemon, http = cluster
    for number in range(4):
        daemon.submit(1, job=f"j{number}")
    await daemon.until(lambda: not daemon.core.jobs)
    found = (await first_state(http))["found"]
    assert ([job["id"] for job in found["jobs"]], found["more"]) == (["j3", "j2"], True)
    monkeypatch.setattr(cluster_state, "JOBS_SEARCHED_MAX", 3)
    found = (await first_state(http, search="j0"))["found"]
    assert (found["jobs"], found["more"]) == ([], True)


async def test_a_user_finds_its_jobs_however_many_others_have_since(
    guarded: tuple[PretendedCluster, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_state, "JOBS_SEARCHED_MAX", 2)
    daemon, http = guarded
    for number in range(4):
        daemon.submit(1, job=f"bob-{number}", user="bob", app="absent", wait_for_nodes_s=1000.0)
    found = (await first_state(http, ADA, search="ada"))["found"]
    assert [job["id"] for job in found["jobs"]] == ["ada-1"]
    monkeypatch.setattr(cluster_state, "JOBS_SKIPPED_MAX", 4)
    found = (await first_state(http, ADA, search="bold"))["found"]
    assert (found["jobs"], found["more"]) == ([], True)


async def test_a_user_sees_its_own_jobs_and_the_sum_of_others(
    guarded: tuple[PretendedCluster, aiohttp.ClientSession],
) -> None:
    daemon, http = guarded
    daemon.submit(3, job="waits", user="bob", app="absent", wait_for_nodes_s=1000.0)
    daemon._look_timer.cancel()
    daemon.recent.slots.by_user, daemon.recent.hour = {}, Hour(daemon.core.counters, daemon.clock())
    daemon.recent.hour.looked({"ada": 1, "bob": 2})
    daemon.recent.hour.end(daemon.clock(), nodes=3, slots=12, unplaced=0)
    state = await first_state(http, ADA)
    assert [job["id"] for job in state["found"]["jobs"]] == ["ada-1"]
    assert [(row["user"], row["waiting"]) for row in state["users"]] == [("", 3)]
    assert (state["span"]["users"], state["span"]["other_users"]) == ({"ada": 1.0}, 2.0)
    state = await first_state(http, CLUSTER)
    assert [job["id"] for job in state["found"]["jobs"]] == ["waits", "bob-1", "ada-1"]
    assert [(row["user"], row["waiting"]) for row in state["users"]] == [("bob", 3)]
    async with http.get("/v1/history", headers=bearer(ADA)) as response:
        (span,) = (await response.json())["spans"]
        assert (span["users"], span["other_users"]) == ({"ada": 1.0}, 2.0)
    for token, status in ((ADA, 200), (BOB, 404), (CLUSTER, 200)):
        for path in ("timeline", "explain"):
            async with http.get(f"/v1/jobs/ada-1/{path}", headers=bearer(token)) as response:
                assert response.status == status


async def test_a_browser_shows_its_token_once_and_then_looks(
    guarded: tuple[PretendedCluster, aiohttp.ClientSession],
) -> None:
    _, http = guarded
    for path in ("/v1/history", "/v1/events", "/v1/session", "/v1/schedulers"):
        async with http.get(path) as response:
            assert response.status == 401
    async with http.get("/v1/session", headers=bearer("x" * 32)) as response:
        assert (response.status, "Set-Cookie" in response.headers) == (401, False)
    async with http.get("/v1/session", headers=bearer(ADA)) as response:
        assert response.status == 204
        cookie = response.headers["Set-Cookie"]
    assert ADA not in cookie
    assert {"HttpOnly", "SameSite=Strict", "Path=/v1/"} <= set(cookie.split("; "))
    async with http.get("/v1/jobs/ada-1/timeline") as response:
        assert response.status == 200
    async with http.get("/v1/jobs/bob-1/timeline") as response:
        assert response.status == 404
    # It opens nothing but what is looked at.
    for method, path in (
        ("GET", "/metrics"),
        ("GET", "/v1/jobs/ada-1/results"),
        ("DELETE", "/v1/jobs/ada-1"),
        ("POST", "/v1/jobs"),
    ):
        async with http.request(method, path) as response:
            assert response.status == 401, path
    async with http.get("/v1/session", params={"end": "true"}) as response:
        assert response.status == 204
    async with http.get("/v1/history") as response:
        assert response.status == 401


async def test_a_session_begins_no_other(guarded: tuple[PretendedCluster, aiohttp.ClientSession]) -> None:
    """Or whoever has stolen one looks for as long as the token stands."""
    _, http = guarded
    async with http.get("/v1/session", headers=bearer(ADA)) as response:
        assert "Set-Cookie" in response.headers
    for headers in ({}, bearer("x" * 32), {"Authorization": "nonsense"}):
        async with http.get("/v1/session", headers=headers) as response:
            assert (response.status, "Set-Cookie" in response.headers) == (204, False)


async def test_whose_token_is_withdrawn_looks_no_more(
    guarded: tuple[PretendedCluster, aiohttp.ClientSession], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, http = guarded
    monkeypatch.setattr(viewers, "STATE_S", 0.01)
    async with http.get("/v1/session", headers=bearer(ADA)) as response:
        assert response.status == 204
    async with http.get("/v1/events") as response:
        stream = events(response)
        await anext(stream)
        (tmp_path / "tokens").write_text(f"cluster {CLUSTER}\n")
        assert daemon.credentials.reload()
        assert [name async for name, _ in stream][-1] == "withdrawn"
    async with http.get("/v1/history") as response:
        assert response.status == 401


async def test_who_looks_is_told_when_the_scheduler_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(viewers, "STATE_S", 1000.0)
    daemon = PretendedCluster()
    async with served(daemon) as http, http.get("/v1/events") as response:
        stream = events(response)
        await anext(stream)
        await asyncio.gather(daemon.stop(), anext(stream))
        assert [name async for name, _ in stream] == ["ends"]


async def test_so_many_may_look(
    cluster: tuple[PretendedCluster, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, http = cluster
    monkeypatch.setattr(daemon._views.viewers, "seats", Seats("VIEWERS_MAX", 1, "look"))
    monkeypatch.setattr(viewers, "BUSY_RETRY_S", 0.0)
    async with http.get("/v1/events") as first:
        await anext(events(first))
        async with http.get("/v1/events") as second:
            assert (second.status, "VIEWERS_MAX = 1" in await refusal(second)) == (503, True)


async def test_the_page_and_its_files_are_everybodys_and_load_nothing_else(
    guarded: tuple[PretendedCluster, aiohttp.ClientSession],
) -> None:
    _, http = guarded
    for path, (_, kind) in FILES.items():
        async with http.get(path) as response:
            assert (response.status, response.content_type) == (200, kind)
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert "'unsafe" not in response.headers["Content-Security-Policy"]
            text = await response.text()
        if kind == "text/html":
            assert "<style" not in text
            assert " style=" not in text
            assert "://" not in text


@pytest.mark.parametrize(
    ("headers", "path", "status"),
    [
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, "/", 200),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, "/v1/jobs", 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, "/", 403),
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}, "/", 403),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}, "/v1/history", 200),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"}, "/v1/history", 403),
        ({"Origin": "http://127.0.0.1:1"}, "/v1/events", 403),
    ],
)
async def test_other_pages_may_link_to_the_page_and_ask_nothing(
    cluster: tuple[PretendedCluster, aiohttp.ClientSession], headers: dict[str, str], path: str, status: int
) -> None:
    _, http = cluster
    async with http.get(path, headers=headers) as response:
        assert response.status == status


async def test_other_schedulers_are_found_through_nodes(
    cluster: tuple[PretendedCluster, aiohttp.ClientSession], monkeypatch: pytest.MonkeyPatch
) -> None:
    daemon, _ = cluster
    other = PretendedCluster(nodes=1)
    async with served(other):

        async def nodes(_: web.Request) -> web.Response:
            return web.json_response(
                {
                    "large": "x" * (1 << 20),
                    "nodes": [{"scheduler_addresses": [daemon.address, other.address, "127.0.0.1:1", "unix:/s"]}],
                }
            )

        app = web.Application()
        app.router.add_get("/v1/nodes", nodes)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        monitor = f"127.0.0.1:{runner.addresses[0][1]}"
        daemon.core.node_up("real", node_info(address=monitor), 0.0)
        monkeypatch.setattr(neighbours, "NODES_ASKED_MAX", 10)
        asked = Neighbours(daemon.name, Credentials(daemon.options, dials=False), daemon.core.nodes.all, daemon.clock)
        known = (await asked.known()).schedulers
        await runner.cleanup()
        assert (await asked.known()).schedulers is known  # As before, for a while.
    assert known == [
        Neighbour("127.0.0.1:1", "", "", "does not answer", None, None, None),
        Neighbour(other.address, other.name, "sparrow", "takes jobs", 1, 4, 0),
    ] or known == [
        Neighbour(other.address, other.name, "sparrow", "takes jobs", 1, 4, 0),
        Neighbour("127.0.0.1:1", "", "", "does not answer", None, None, None),
    ]


async def test_jobs_that_have_gone_are_listed_by_whoever_may_see_them(
    guarded: tuple[PretendedCluster, aiohttp.ClientSession],
) -> None:
    _, http = guarded
    for token, seen in ((ADA, ["ada-1"]), (BOB, ["bob-1"])):
        async with http.get("/v1/jobs", params={"recent": "true"}, headers=bearer(token)) as response:
            jobs = (await response.json())["jobs"]
        assert [job["id"] for job in jobs] == seen
        assert [(job["state"], job["finished"], job["stages"], job["policy"]) for job in jobs] == [
            ("ended", 2, 1, "sparrow")
        ]
    async with http.get("/v1/jobs", params={"recent": "true"}, headers=bearer(CLUSTER)) as response:
        assert [job["id"] for job in (await response.json())["jobs"]] == ["bob-1", "ada-1"]
