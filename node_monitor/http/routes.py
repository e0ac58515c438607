"""The node monitor's routes: its nodes are shown, and the operator cordons or drains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aiohttp import web

from node_monitor.http.openapi import node_monitor_document
from node_monitor.http.views import STATE_BODY_BYTES_MAX, LeaveRequest, Node, NodeList, StateRequest, status
from sparrow_py.access.principals import CLUSTER, Principal
from sparrow_py.daemon.http_app import principal_of
from sparrow_py.errors import shown
from sparrow_py.http.http_api import ApiError, api_middleware, read_json_body, struct_response
from sparrow_py.http.json_shapes import BodyDecoder
from sparrow_py.http.openapi import add_document

_decode_state, _decode_leave = BodyDecoder(StateRequest), BodyDecoder(LeaveRequest)


def add_routes(app: web.Application, all_nodes: Sequence[Node], leave: Callable[[], str]) -> None:
    """Add the routes under /v1/, but for those of blobs, and the document of all routes. Nodes may be added later.

    leave: has the process drain and end; why not, if it does not.
    """

    async def nodes(request: web.Request) -> web.Response:
        principal = principal_of(request)
        return struct_response(NodeList([status(node, principal) for node in all_nodes]))

    def meant_by(node_id: str | None) -> list[Node]:
        meant = [node for node in all_nodes if node_id in (None, node.id)]
        if not meant:
            raise ApiError(404, f"node: {shown(node_id)} is not here", field="node")
        return meant

    async def change_state(request: web.Request) -> web.Response:
        principal = _operator(request)
        asked = _decode_state(await read_json_body(request, STATE_BODY_BYTES_MAX, "STATE_BODY_BYTES_MAX"))
        meant = meant_by(asked.node)
        for node in meant:
            node.change_state(asked.state)
        return struct_response(NodeList([status(node, principal) for node in meant]))

    async def go(request: web.Request) -> web.Response:
        principal = _operator(request)
        asked = _decode_leave(await read_json_body(request, STATE_BODY_BYTES_MAX, "STATE_BODY_BYTES_MAX"))
        meant = meant_by(asked.node)
        why_not = leave() if len(all_nodes) == 1 else f"its process has {len(all_nodes)} nodes"
        if why_not:
            raise ApiError(409, f"node {shown(asked.node)} does not leave: {why_not}")
        return struct_response(NodeList([status(node, principal) for node in meant]), 202)

    app.middlewares.append(api_middleware)
    add_document(app, node_monitor_document())
    app.add_routes(
        [
            web.get("/v1/nodes", nodes, allow_head=False),
            web.post("/v1/nodes/state", change_state),
            web.post("/v1/nodes/leave", go),
        ],
    )


def _operator(request: web.Request) -> Principal:
    """Who asks for what an operator may; `ApiError` if that is not one."""
    principal = principal_of(request)
    if principal.role != CLUSTER:
        raise ApiError(
            403, f"to change a node's state takes a token or certificate of role cluster; this is of {principal}"
        )
    return principal
