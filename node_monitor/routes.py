"""The node monitor's HTTP: what it has queued and runs, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aiohttp import web

from sparrow_py.daemon import json_response

if TYPE_CHECKING:
    from node_monitor.daemon import NodeMonitorDaemon


def add_routes(app: web.Application, daemon: NodeMonitorDaemon) -> None:
    """Add the routes under /v1/."""

    async def nodes(_: web.Request) -> web.Response:
        listed = [
            {
                "id": node.id,
                "slots": node.slots,
                "free_slots": node.core.free_slots,
                "queued_by_user": node.core.queue.users(),
                "schedulers": sorted(node.core.schedulers),
                "state": "draining" if node.core.draining else "ready",
            }
            for node in daemon.nodes
        ]
        return json_response({"nodes": listed})

    app.add_routes([web.get("/v1/nodes", nodes)])
