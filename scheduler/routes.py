"""The scheduler's HTTP: what it knows of jobs and nodes, for people and the `sparrow` command."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

from aiohttp import web

from scheduler.jobs import JobState
from scheduler.nodes import Node
from sparrow_py.daemon import json_error, json_response
from sparrow_py.messages import READY

if TYPE_CHECKING:
    from scheduler.daemon import SchedulerDaemon

LISTED_MAX = 10_000
"""Jobs or nodes in one answer."""


def add_routes(app: web.Application, scheduler: SchedulerDaemon) -> None:
    """Add the routes under /v1/."""

    async def nodes(request: web.Request) -> web.Response:
        listed = scheduler.core.nodes.all()
        sample = request.query.get("sample", "")
        if sample:
            if not sample.isdecimal() or not 1 <= int(sample[:9]) <= LISTED_MAX:
                return json_error(400, f"sample: {sample[:80]!r} is not valid; allowed: a whole number from 1 to 10000")
            ready = [node for node in listed if node.state == READY]
            listed = random.sample(ready, min(len(ready), int(sample)))
        listed = listed[:LISTED_MAX]
        return json_response({"nodes": [_node(node, scheduler) for node in listed]})

    async def jobs(_: web.Request) -> web.Response:
        listed = list(scheduler.core.jobs.values())[:LISTED_MAX]
        return json_response({"jobs": [_job(job) for job in listed]})

    async def cancel(request: web.Request) -> web.Response:
        job_id = request.match_info["job"]
        if not scheduler.cancel_job(job_id):
            return json_error(404, f"no job {job_id[:80]!r} is running or queued here")
        return json_response({"job": job_id}, 202)

    app.add_routes([web.get("/v1/nodes", nodes), web.get("/v1/jobs", jobs), web.delete("/v1/jobs/{job}", cancel)])


def _node(node: Node, scheduler: SchedulerDaemon) -> dict[str, Any]:
    return {
        "id": node.id,
        "address": node.info.address,
        "slots": node.info.slots,
        "busy": len(node.attempts),
        "reservations": scheduler.core.live_reservations(node.id),
        "apps": node.info.apps,
        "attributes": node.info.attributes,
        "resources": node.info.resources,
        "state": node.state,
    }


def _job(job: JobState) -> dict[str, Any]:
    return {
        "id": job.id,
        "name": job.name,
        "user": job.user,
        "app": job.stages[0].spec.app,
        "stages": len(job.stages),
        "tasks": job.task_count,
        "unplaced": job.unplaced,
        "running": len(job.attempts),
        **{status.value: count for status, count in job.counts.items()},
        "submitted_at_s": job.submitted_at_s,
    }
