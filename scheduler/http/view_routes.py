"""The routes of what people look at: the last hour, a job's tasks in time, and the cluster live."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec
from aiohttp import web

from scheduler.book.jobs import JobState
from scheduler.core import SchedulerCore
from scheduler.http.cluster_state import SEARCH_CHARS_MAX, StateFeed
from scheduler.http.jobs import BUSY_RETRY_S
from scheduler.http.neighbours import Neighbours
from scheduler.http.remembered import timeline_of
from scheduler.http.viewers import Viewers
from scheduler.options import SchedulerOptions
from scheduler.recent.gone_jobs import GoneJob
from scheduler.recent.hour import SPAN_S, Span, span_for
from scheduler.recent.recent import Recent
from sparrow_py.access.credentials import Credentials
from sparrow_py.access.principals import Principal
from sparrow_py.daemon.http_app import holder_of, principal_of
from sparrow_py.errors import InvalidRequest, shown
from sparrow_py.http.http_api import JSON_TYPE, ApiError, struct_response
from sparrow_py.limits.seats import Seats
from sparrow_py.timing.clock import Clock
from sparrow_py.wire.messages import SPARROW

TIMELINES_MAX = 4
"""Timelines that are made at a time, one for each user."""


class History(msgspec.Struct):
    """The last hour of this scheduler, in spans of about so many seconds, the oldest first. Slots of other users than
    one's own are in `other_users`."""

    span_s: float
    spans: list[Span]


class Viewed(Protocol):
    """What these routes need of the daemon."""

    name: str
    address: str
    options: SchedulerOptions
    credentials: Credentials
    core: SchedulerCore
    recent: Recent
    clock: Clock

    def why_not_ready(self) -> str:
        """Why jobs should not be sent here; empty if they may."""


class ViewRoutes:
    """See the module's docstring. `viewers_max`: as open files allow."""

    def __init__(self, scheduler: Viewed, viewers_max: int) -> None:
        self._scheduler = scheduler
        self._feed = StateFeed(scheduler.core, scheduler.recent, self._about)
        self.viewers = Viewers(self._feed, scheduler.clock, viewers_max)
        self._neighbours = Neighbours(scheduler.name, scheduler.credentials, scheduler.core.nodes.all, scheduler.clock)
        self._timelines = Seats("TIMELINES_MAX", TIMELINES_MAX, "timelines are made")

    def add_to(self, app: web.Application) -> None:
        """Serve them."""
        app.add_routes(
            [
                web.get("/v1/history", self.history, allow_head=False),
                web.get("/v1/state", self.state, allow_head=False),
                web.get("/v1/schedulers", self.schedulers, allow_head=False),
                web.get("/v1/events", self.events, allow_head=False),
                web.get("/v1/jobs/{job:[^/]+}/timeline", self.timeline, allow_head=False),
            ]
        )

    def _about(self) -> dict[str, object]:
        daemon = self._scheduler
        why_not, policy = daemon.why_not_ready(), daemon.options.policy
        return {
            "name": daemon.name,
            "address": daemon.address,
            "policy": policy,
            "placement": daemon.options.placement if policy == SPARROW else "",
            "takes_jobs": not why_not,
            "why_not": why_not,
        }

    async def history(self, request: web.Request) -> web.Response:
        """`GET /v1/history`."""
        principal = principal_of(request)
        spans = [span_for(span, principal.may_act_for) for span in self._scheduler.recent.hour.spans]
        return struct_response(History(SPAN_S, spans))

    async def schedulers(self, _: web.Request) -> web.Response:
        """`GET /v1/schedulers`."""
        return struct_response(await self._neighbours.known())

    async def timeline(self, request: web.Request) -> web.Response:
        """`GET /v1/jobs/{job}/timeline`."""
        job_id, principal = request.match_info["job"], principal_of(request)
        async with self._timelines.taken(holder_of(request), BUSY_RETRY_S):
            scheduler = self._scheduler
            made = await timeline_of(scheduler.recent, lambda: self._found(job_id, principal), scheduler.clock)
            body = await asyncio.to_thread(msgspec.json.encode, made)
        return web.Response(body=body, content_type=JSON_TYPE)

    def _found(self, job_id: str, principal: Principal) -> JobState | GoneJob:
        """The job that is here, or else is remembered; `ApiError` 404 if there is none that the principal may see."""
        for job in (self._scheduler.core.jobs.get(job_id), self._scheduler.recent.gone.get(job_id)):
            if job is not None and principal.may_act_for(job.user):
                return job
        raise ApiError(404, f"no job {shown(job_id)} runs here or is remembered")

    async def state(self, request: web.Request) -> web.Response:
        """`GET /v1/state`."""
        state = self._feed.of(principal_of(request), _search(request), self.viewers.now_s())
        return web.Response(body=state, content_type=JSON_TYPE)

    async def events(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/events`."""
        principal, credentials = principal_of(request), self._scheduler.credentials
        return await self.viewers.serve(
            request, principal, _search(request), holder_of(request), lambda: credentials.tokens.stands(principal)
        )


def _search(request: web.Request) -> str:
    search = request.query.get("search", "")
    if len(search) > SEARCH_CHARS_MAX:
        raise InvalidRequest("search", f"{len(search)} characters", f"at most {SEARCH_CHARS_MAX} characters")
    return search
