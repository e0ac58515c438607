"""The node monitor's HTTP: what it has queued and runs, and the operator's command to cordon or drain it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from node_monitor.http.openapi import node_monitor_document
from node_monitor.http.views import STATE_BODY_BYTES_MAX, NodeList, StateRequest, status
from sparrow_py.access.principals import CLUSTER
from sparrow_py.daemon.http_app import principal_of
from sparrow_py.errors import shown
from sparrow_py.http.http_api import ApiError, api_middleware, read_json_body, struct_response
from sparrow_py.http.json_shapes import BodyDecoder
from sparrow_py.http.openapi import add_document

if TYPE_CHECKING:
    from node_monitor.daemon import NodeMonitorDaemon

_decode_state = BodyDecoder(StateRequest)


def add_routes(app: web.Application, daemon: NodeMonitorDaemon) -> None:
    """Add the routes under /v1/, but those of blobs, and the document of all routes."""

    async def nodes(request: web.Request) -> web.Response:
        principal = principal_of(request)
        return struct_response(NodeList([status(node, principal) for node in daemon.nodes]))

    async def change_state(request: web.Request) -> web.Response:
        principal = principal_of(request)
        if principal.role != CLUSTER:
            raise ApiError(
                403, f"to change a node's state takes a token or certificate of role cluster; this is of {principal}"
            )
        asked = _decode_state(await read_json_body(request, STATE_BODY_BYTES_MAX, "STATE_BODY_BYTES_MAX"))
        meant = [node for node in daemon.nodes if asked.node in (None, node.id)]
        if not meant:
            raise ApiError(404, f"node: {shown(asked.node)} is not here", field="node")
        for node in meant:
            node.change_state(asked.state)
        return struct_response(NodeList([status(node, principal) for node in meant]))

    app.middlewares.append(api_middleware)
    add_document(app, node_monitor_document())
    app.add_routes(
        [web.get("/v1/nodes", nodes, allow_head=False), web.post("/v1/nodes/state", change_state)],
    )
