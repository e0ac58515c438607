"""The node monitor's routes: its nodes are listed and change their states."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from node_monitor.http.routes import add_routes
from sparrow_py.access.principals import ANYBODY, CLIENT, Principal
from sparrow_py.daemon.http_app import PRINCIPAL
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

Client = TestClient[web.Request, web.Application]
ANN = Principal(CLIENT, "ann")


class Node:
    """A node whose changes of state are noted."""

    def __init__(self, id: str) -> None:
        self.id = id
        self.slots = 2
        self.core = NodeCore(2, executors=0, schedulers=()).core
        self.asked: list[str] = []
        self.scheduler_addresses = ["10.0.0.1:20503"]

    def change_state(self, state: str) -> None:
        self.asked.append(state)


@pytest.fixture
def nodes() -> list[Node]:
    return [Node("a"), Node("b")]


@pytest.fixture
def asking() -> SimpleNamespace:
    """Who asks, and why the process does not leave."""
    return SimpleNamespace(principal=ANYBODY, why_not="")


@pytest.fixture
async def client(nodes: list[Node], asking: SimpleNamespace) -> AsyncIterator[Client]:
    @web.middleware
    async def authenticate(request: web.Request, handler: Any) -> web.StreamResponse:
        request[PRINCIPAL] = asking.principal
        response: web.StreamResponse = await handler(request)
        return response

    app = web.Application(middlewares=[authenticate])
    add_routes(app, nodes, lambda: asking.why_not)
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_nodes_are_listed(client: Client) -> None:
    listed = (await (await client.get("/v1/nodes")).json())["nodes"]
    assert [(node["id"], node["slots"], node["free_slots"], node["state"]) for node in listed] == [
        ("a", 2, 2, m.READY), ("b", 2, 2, m.READY),
    ]  # fmt: skip
    assert listed[0]["scheduler_addresses"] == ["10.0.0.1:20503"]


async def test_a_user_is_told_of_its_own_queue_only(client: Client, nodes: list[Node], asking: SimpleNamespace) -> None:
    core = nodes[0].core
    core.scheduler_up("s")
    for ticket, user in enumerate(("ann", "bob")):
        core.receive("s", reserve(ticket, 3, app="pool", user=user), 0.0)
    for asking.principal, queued in ((ANYBODY, {"ann": 3, "bob": 3}), (ANN, {"ann": 3})):
        listed = (await (await client.get("/v1/nodes")).json())["nodes"]
        assert listed[0]["queued_by_user"] == queued


async def test_all_nodes_or_the_one_that_is_named_change_their_state(client: Client, nodes: list[Node]) -> None:
    for body in ({"state": m.CORDONED}, {"state": m.DRAINING, "node": "b"}):
        async with client.post("/v1/nodes/state", json=body) as response:
            assert response.status == 200
    assert [node.asked for node in nodes] == [[m.CORDONED], [m.CORDONED, m.DRAINING]]


@pytest.mark.parametrize(
    ("body", "status", "field", "part"),
    [
        ({"state": m.READY, "node": "c"}, 404, "node", "node: 'c' is not here"),
        ({"state": "asleep"}, 400, "state", "cordoned, draining, ready"),
        ({}, 400, "state", "missing"),
    ],
)
async def test_what_cannot_be_done_is_said(
    client: Client, nodes: list[Node], body: dict[str, str], status: int, field: str, part: str
) -> None:
    async with client.post("/v1/nodes/state", json=body) as response:
        error = (await response.json())["error"]
        assert (response.status, error["field"]) == (status, field)
        assert part in error["message"]
    assert not any(node.asked for node in nodes)


async def test_a_user_may_not_change_a_nodes_state(client: Client, nodes: list[Node], asking: SimpleNamespace) -> None:
    asking.principal = ANN
    async with client.post("/v1/nodes/state", json={"state": m.CORDONED}) as response:
        assert response.status == 403
        assert "of role cluster" in (await response.json())["error"]["message"]
    assert not any(node.asked for node in nodes)


async def test_a_node_that_is_alone_and_idles_leaves(
    client: Client, nodes: list[Node], asking: SimpleNamespace
) -> None:
    async def leaves(node: str, status: int) -> str:
        async with client.post("/v1/nodes/leave", json={"node": node}) as response:
            assert response.status == status
            return await response.text()

    assert "its process has 2 nodes" in await leaves("a", 409)
    del nodes[1]
    assert "'b' is not here" in await leaves("b", 404)
    assert '"id":"a"' in await leaves("a", 202)
    asking.why_not = "it has something to do"
    assert "it has something to do" in await leaves("a", 409)
    asking.principal = ANN
    assert "of role cluster" in await leaves("a", 403)
