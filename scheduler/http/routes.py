"""The scheduler's HTTP: jobs are submitted, followed and cancelled; what it knows of jobs and nodes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar
from urllib.parse import quote

from aiohttp import web

from scheduler.http import views
from scheduler.http.http_jobs import BUSY_RETRY_S, HttpJob
from scheduler.http.job_requests import USER_DEFAULT, client_job
from scheduler.http.openapi import LISTED_MAX, scheduler_document
from sparrow_py.access.principals import own_user
from sparrow_py.daemon.http_app import holder_of, principal_of
from sparrow_py.errors import AccessDenied, shown
from sparrow_py.http import http_guard
from sparrow_py.http.http_api import (
    NDJSON_TYPE,
    ApiError,
    api_middleware,
    flag,
    read_json_body,
    struct_response,
    whole,
)
from sparrow_py.http.openapi import add_document
from sparrow_py.job import check_name
from sparrow_py.wire.messages import READY

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.daemon import SchedulerDaemon
    from sparrow_py.job import JobSpec
    from sparrow_py.session.client_job import ClientJob


class _OfUser(Protocol):
    @property
    def user(self) -> str: ...


Owned = TypeVar("Owned", bound=_OfUser)
INLINE_BODY_BYTES_MAX = 64 << 10
"""Larger bodies are decoded in a thread, so that the event loop runs on."""
JOB = "{job:[^/]+}"
"""In a path: any id, those with braces in them, too."""
READER_CHECK_S = 5.0
"""A reader that waits for results is looked after so often: it may have gone."""


def add_routes(app: web.Application, scheduler: SchedulerDaemon) -> None:
    """Add the routes under /v1/ and the document of all routes."""
    api = _Api(scheduler)
    app.middlewares.append(api_middleware)
    add_document(app, scheduler_document())
    app.add_routes(
        [
            web.get("/v1/nodes", api.nodes, allow_head=False),
            web.get("/v1/jobs", api.jobs, allow_head=False),
            web.post("/v1/jobs", api.submit),
            web.get(f"/v1/jobs/{JOB}", api.job, allow_head=False),
            web.delete(f"/v1/jobs/{JOB}", api.cancel),
            web.get(f"/v1/jobs/{JOB}/results", api.results, allow_head=False),
        ]
    )


class _Api:
    """The handlers."""

    def __init__(self, scheduler: SchedulerDaemon) -> None:
        self._scheduler = scheduler
        self._http_jobs = scheduler.http_jobs
        self._decoding = asyncio.Lock()
        """One large body at a time is decoded: that takes many times its bytes."""

    # ---- nodes -------------------------------------------------------------------------------

    async def nodes(self, request: web.Request) -> web.Response:
        """`GET /v1/nodes`."""
        core = self._scheduler.core
        listed = core.nodes.all()
        sample = whole(request, "sample", 1, LISTED_MAX)
        if sample is not None:
            ready = [node for node in listed if node.state == READY]
            listed = random.sample(ready, min(len(ready), sample))
        return struct_response(views.NodeList([views.node(node, core) for node in listed[:LISTED_MAX]]))

    # ---- jobs --------------------------------------------------------------------------------

    async def jobs(self, request: web.Request) -> web.Response:
        """`GET /v1/jobs`."""
        listed: list[JobState | HttpJob] = [*self._scheduler.core.jobs.values()]
        if flag(request, "ended"):
            listed += self._http_jobs.ended()
        principal = principal_of(request)
        listed = [job for job in listed if principal.may_act_for(job.user)]
        return struct_response(views.JobList([views.summary(job) for job in listed[:LISTED_MAX]]))

    async def job(self, request: web.Request) -> web.Response:
        """`GET /v1/jobs/{job}`."""
        job_id = request.match_info["job"]
        job: JobState | HttpJob | None = self._own(request, self._scheduler.core.jobs.get(job_id))
        job = job or self._own(request, self._http_jobs.get(job_id))
        if job is None:
            raise self._absent(request, job_id, "runs here or is kept")
        return struct_response(views.detail(job))

    async def cancel(self, request: web.Request) -> web.Response:
        """`DELETE /v1/jobs/{job}`."""
        job_id, running = request.match_info["job"], flag(request, "running")
        runs = self._own(request, self._scheduler.core.jobs.get(job_id)) is not None
        if not (runs and self._scheduler.cancel_job(job_id, running=running)):
            if self._own(request, self._http_jobs.get(job_id)) is not None:
                raise ApiError(409, f"job {shown(job_id)} has ended")
            raise self._absent(request, job_id, "is running or queued here")
        return struct_response(views.JobCancelled(job_id), 202)

    def _own(self, request: web.Request, job: Owned | None) -> Owned | None:
        """The job, if it is one of who asks. Another's is as one that does not exist."""
        return job if job is not None and principal_of(request).may_act_for(job.user) else None

    def _absent(self, request: web.Request, job_id: str, what: str) -> ApiError:
        taken_over = self._own(request, self._scheduler.core.register.taken_over.get(job_id))
        where = "" if taken_over is None else f": another scheduler has taken it over, with epoch {taken_over.epoch}"
        return ApiError(404, f"no job {shown(job_id)} {what}{where}")

    # ---- submission --------------------------------------------------------------------------

    async def submit(self, request: web.Request) -> web.Response:
        """`POST /v1/jobs`."""
        options = self._scheduler.options
        async with self._http_jobs.submissions.taken(holder_of(request), BUSY_RETRY_S):
            body = await read_json_body(request, options.http_body_bytes_max, "http_body_bytes_max")
            stated, spec, job = await self._decode(body)
            user = self._user_of(request, stated)
            before = self._http_jobs.find_same(user, job.id)
            if before is not None:
                return self._submitted(before, 200)
            return self._submitted(await self._send(user, spec, job), 202)

    def _user_of(self, request: web.Request, stated: str) -> str:
        """Whose the job is that says it is this user's, or nothing. `ApiError` 403 if who asks may not say so."""
        try:
            user = own_user(principal_of(request), stated)
        except AccessDenied as error:
            raise ApiError(403, str(error), field="user") from None
        if user:
            return user
        user = request.query.get("default_user", USER_DEFAULT)
        check_name("default_user", user, empty=False)
        return user

    async def _decode(self, body: bytes) -> tuple[str, JobSpec, ClientJob]:
        bytes_max = self._scheduler.options.payload_bytes_max
        if len(body) <= INLINE_BODY_BYTES_MAX:
            return client_job(body, bytes_max)
        async with self._decoding:
            return await asyncio.to_thread(client_job, body, bytes_max)

    async def _send(self, user: str, spec: JobSpec, job: ClientJob) -> HttpJob:
        """Submit the job and its tasks, with turns of the loop for others in between."""
        http_job = self._http_jobs.begin(user, spec, job)
        for message in job.messages(self._scheduler.options.payload_bytes_max):
            self._http_jobs.add(http_job, message)
            self._scheduler.update_timers()
            await asyncio.sleep(0)
        self._scheduler.update_timers()
        return http_job

    def _submitted(self, http_job: HttpJob, status: Literal[200, 202]) -> web.Response:
        job = self._scheduler.core.jobs.get(http_job.id)
        return struct_response(
            views.detail(job or http_job), status, {"Location": f"/v1/jobs/{quote(http_job.id, safe='')}"}
        )

    # ---- results -----------------------------------------------------------------------------

    async def results(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/jobs/{job}/results`."""
        job_id = request.match_info["job"]
        job = self._own(request, self._http_jobs.get(job_id))
        if job is None:
            if self._own(request, self._scheduler.core.jobs.get(job_id)) is not None:
                raise ApiError(404, f"job {shown(job_id)} was not submitted over HTTP: its client has the results")
            raise self._absent(request, job_id, "runs here or is kept")
        holder = holder_of(request, job.user)
        self._http_jobs.cut_unread(holder)
        async with self._http_jobs.readers.taken(holder, BUSY_RETRY_S):
            with http_guard.seated(request):
                return await self._answer(request, job, holder)

    async def _answer(self, request: web.Request, job: HttpJob, holder: str) -> web.StreamResponse:
        principal, credentials = principal_of(request), self._scheduler.credentials

        async def write(batch: bytes) -> None:
            if request.transport is not None:
                with self._http_jobs.unread(holder, request.transport):
                    await response.write(batch)

        response = web.StreamResponse(headers={"Content-Type": NDJSON_TYPE, "Cache-Control": "no-store"})
        await response.prepare(request)
        changed = asyncio.Event()
        with _watched(job, changed.set), _watched(job, lambda: _abort_if_gone(request, job)):
            await _stream(request, response, write, job, changed, lambda: credentials.tokens.stands(principal))
        return response


@contextmanager
def _watched(job: HttpJob, watcher: Callable[[], Any]) -> Iterator[None]:
    job.watchers.add(watcher)
    try:
        yield
    finally:
        job.watchers.discard(watcher)


def _abort_if_gone(request: web.Request, job: HttpJob) -> None:
    """Cut the connection, also if its reader does not read: an end without its proper form says that lines lack."""
    if job.gone and request.transport is not None:
        request.transport.abort()


async def _stream(
    request: web.Request,
    response: web.StreamResponse,
    write: Callable[[bytes], Awaitable[None]],
    job: HttpJob,
    changed: asyncio.Event,
    stands: Callable[[], bool],
) -> None:
    """Write the job's lines as they come, until it has ended, or the reader has gone or its token was withdrawn."""
    position = 0
    try:
        while not job.gone and request.transport is not None:
            if not stands():
                request.transport.abort()
                return
            changed.clear()
            batch, position = job.lines_from(position)
            if batch:
                await write(batch)
            elif job.ended_at_s is not None:
                await response.write_eof()
                return
            else:
                await _wait(changed)
    except ConnectionError:
        pass  # The reader has gone.


async def _wait(changed: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(READER_CHECK_S):
            await changed.wait()
    except TimeoutError:
        pass
