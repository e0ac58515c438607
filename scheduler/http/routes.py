"""The scheduler's routes: jobs are submitted, followed and cancelled, and jobs and nodes are listed."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Literal, Protocol, TypeVar
from urllib.parse import quote

from aiohttp import web

from scheduler.book.jobs import JobState
from scheduler.core import SchedulerCore
from scheduler.explaining import StageWaits, slots_held, waiting_stages
from scheduler.http import views
from scheduler.http.job import HttpJob
from scheduler.http.jobs import BUSY_RETRY_S, HttpJobs
from scheduler.http.openapi import LISTED_MAX, scheduler_document
from scheduler.http.readers import Readers
from scheduler.http.remembered import so_far
from scheduler.http.requests import task_count
from scheduler.http.submissions import USER_DEFAULT, Submission, read_submission
from scheduler.options import SchedulerOptions
from scheduler.plane import WhyWaiting
from scheduler.recent.gone_jobs import GoneJob
from scheduler.recent.recent import Recent
from scheduler.solving import Solving
from scheduler.twins import Twins
from sparrow_py.access.credentials import Credentials
from sparrow_py.access.principals import CLUSTER, own_user
from sparrow_py.daemon.http_app import holder_of, principal_of
from sparrow_py.errors import AccessDenied, shown
from sparrow_py.http.http_api import ApiError, api_middleware, flag, read_json_body, struct_response, whole
from sparrow_py.http.openapi import add_document
from sparrow_py.job import check_name
from sparrow_py.limits.seats import Seats
from sparrow_py.timing.clock import Clock
from sparrow_py.wire.messages import READY

DECODED_AT_ONCE_MAX = 1
INLINE_BODY_BYTES_MAX = 64 << 10
"""Larger bodies are decoded in a thread, so that the event loop runs on."""
EXPLAINED_MAX = 4
"""Jobs that are explained at a time, one of each user: it takes the event loop's time, and that of rounds."""
JOB = "{job:[^/]+}"
"""In a path: any id, those with braces in them, too."""


class Scheduler(Protocol):
    """What the routes need of the daemon."""

    name: str
    address: str
    options: SchedulerOptions
    credentials: Credentials
    core: SchedulerCore
    http_jobs: HttpJobs
    readers: Readers
    solving: Solving
    recent: Recent
    twins: Twins
    clock: Clock

    def cancel_job(self, job_id: str, *, running: bool = False) -> bool:
        """Cancel a job; False if there is no such job."""

    def why_not_ready(self) -> str:
        """Why jobs should not be sent here; empty if they may."""

    def lead(self) -> bool:
        """Have it lead its plane, which has a leader; False if it does already."""

    def update_timers(self) -> None:
        """To be called after events that did not come over a link."""


class _OfUser(Protocol):
    @property
    def user(self) -> str: ...


Owned = TypeVar("Owned", bound=_OfUser)


def add_routes(app: web.Application, scheduler: Scheduler) -> None:
    """Add the routes under /v1/ and the document of all routes."""
    api = _Api(scheduler)
    app.middlewares.append(api_middleware)
    add_document(app, scheduler_document())
    app.add_routes(
        [
            web.get("/v1/nodes", api.nodes, allow_head=False),
            web.get("/v1/scheduler", api.scheduler, allow_head=False),
            web.get("/v1/demand", api.demand, allow_head=False),
            web.post("/v1/lead", api.lead),
            web.get("/v1/jobs", api.jobs, allow_head=False),
            web.post("/v1/jobs", api.submit),
            web.get(f"/v1/jobs/{JOB}", api.job, allow_head=False),
            web.delete(f"/v1/jobs/{JOB}", api.cancel),
            web.get(f"/v1/jobs/{JOB}/results", api.results, allow_head=False),
            web.get(f"/v1/jobs/{JOB}/explain", api.explain, allow_head=False),
            web.get("/v1/flow/problem", api.flow_problem, allow_head=False),
        ]
    )


class _Api:
    """The handlers of requests."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._core = scheduler.core
        self._http_jobs = scheduler.http_jobs
        self._policy = scheduler.options.policy
        self._decoding = Seats("DECODED_AT_ONCE_MAX", DECODED_AT_ONCE_MAX, "large bodies are decoded at a time")
        """Decoding takes many times a body's bytes of memory. Users take turns."""
        self._explaining = Seats("EXPLAINED_MAX", EXPLAINED_MAX, "jobs are explained")

    # ---- nodes -------------------------------------------------------------------------------

    async def nodes(self, request: web.Request) -> web.Response:
        """`GET /v1/nodes`."""
        listed = self._core.nodes.all()
        sample = whole(request, "sample", 1, LISTED_MAX)
        if sample is not None:
            ready = [node for node in listed if node.state == READY]
            listed = random.sample(ready, min(len(ready), sample))
        twins, now_s = self._scheduler.twins, self._scheduler.clock()
        summaries = [
            views.node(node, self._core.live_reservations(node.id), twins.other(node.id, now_s))
            for node in listed[:LISTED_MAX]
        ]
        return struct_response(views.NodeList(summaries))

    # ---- who leads ---------------------------------------------------------------------------

    async def scheduler(self, _: web.Request) -> web.Response:
        """`GET /v1/scheduler`."""
        daemon = self._scheduler
        return struct_response(
            views.scheduler(self._core, daemon.options, daemon.name, daemon.address, daemon.why_not_ready())
        )

    async def demand(self, _: web.Request) -> web.Response:
        """`GET /v1/demand`."""
        return struct_response(views.demand(self._core))

    async def lead(self, request: web.Request) -> web.Response:
        """`POST /v1/lead`."""
        principal = principal_of(request)
        if principal.role != CLUSTER:
            raise ApiError(
                403, f"to have a scheduler lead takes a token or certificate of role cluster; this is of {principal}"
            )
        leading = self._core.leading
        if leading is None:
            raise ApiError(409, f"plane {self._core.plane.name} has no leader: each of its schedulers takes jobs")
        changes = self._scheduler.lead()
        return struct_response(views.Lead(leading.plane, leading.epoch, leading.leads), 202 if changes else 200)

    # ---- jobs --------------------------------------------------------------------------------

    async def jobs(self, request: web.Request) -> web.Response:
        """`GET /v1/jobs`."""
        listed: list[JobState | HttpJob | GoneJob] = [*self._core.jobs.values()]
        if flag(request, "recent"):
            listed = [job for job in self._scheduler.recent.gone.latest_first() if job.id not in self._core.jobs]
        elif flag(request, "ended"):
            listed += self._http_jobs.kept.ended()
        principal = principal_of(request)
        listed = [job for job in listed if principal.may_act_for(job.user)]
        return struct_response(views.JobList([views.summary(job, self._policy) for job in listed[:LISTED_MAX]]))

    async def job(self, request: web.Request) -> web.Response:
        """`GET /v1/jobs/{job}`."""
        job_id = request.match_info["job"]
        job: JobState | HttpJob | None = self._own(request, self._core.jobs.get(job_id))
        job = job or self._own(request, self._http_jobs.kept.get(job_id))
        if job is None:
            raise self._absent(request, job_id, "runs here or is kept")
        return struct_response(views.detail(job, self._policy))

    async def explain(self, request: web.Request) -> web.Response:
        """`GET /v1/jobs/{job}/explain`."""
        job_id, scheduler = request.match_info["job"], self._scheduler
        may_see = principal_of(request).may_act_for

        def find() -> JobState | GoneJob:
            for job in (self._core.jobs.get(job_id), scheduler.recent.gone.get(job_id)):
                if job is not None and may_see(job.user):
                    return job
            raise self._absent(request, job_id, "runs here or is remembered")

        async with self._explaining.taken(holder_of(request, find().user), BUSY_RETRY_S):
            told = await so_far(scheduler.recent, find, scheduler.clock, may_see)
            job, explained, more = find(), [], 0
            if isinstance(job, JobState):
                stages, more = waiting_stages(self._core, job, scheduler.clock())
                explained = [await self._explained(stage, may_see) for stage in stages]
        return struct_response(views.JobExplanation(job_id, scheduler.options.policy, explained, more, told))

    async def _explained(self, stage: StageWaits, may_see: Callable[[str], bool]) -> views.StageExplanation:
        why = WhyWaiting([])
        if stage.ask is not None:
            solving = self._scheduler.solving
            solved = self._core.plane.rounds is not None and not solving.holds
            why = await solving.compute(stage.ask) if solved else stage.ask()
        places = [views.Place(*place) for place in why.places]
        reasons = [*stage.reasons, *why.reasons, *slots_held(self._core, why.queued_at, may_see)]
        return views.StageExplanation(stage.name, stage.waiting, reasons, why.task, why.waiting_cost, places)

    async def flow_problem(self, request: web.Request) -> web.Response:
        """`GET /v1/flow/problem`. It tells of all users' jobs, so it is for operators."""
        if principal_of(request).role != CLUSTER:
            raise ApiError(403, "the problem of all users' tasks is for operators, with the cluster's secret")
        dump: Any = getattr(self._core.plane, "dump", None)
        if dump is None:
            raise ApiError(404, f"policy {self._scheduler.options.policy} solves no flow network")
        solving = self._scheduler.solving
        text = "" if solving.holds else await solving.compute(dump())
        if not text:
            raise ApiError(404, "no round has been solved yet")
        return web.Response(text=text, content_type="text/plain")

    async def cancel(self, request: web.Request) -> web.Response:
        """`DELETE /v1/jobs/{job}`."""
        job_id, running = request.match_info["job"], flag(request, "running")
        runs = self._own(request, self._core.jobs.get(job_id)) is not None
        if not (runs and self._scheduler.cancel_job(job_id, running=running)):
            if self._own(request, self._http_jobs.kept.get(job_id)) is not None:
                raise ApiError(409, f"job {shown(job_id)} has ended")
            raise self._absent(request, job_id, "is running or queued here")
        return struct_response(views.JobCancelled(job_id), 202)

    def _own(self, request: web.Request, job: Owned | None) -> Owned | None:
        """The job, if whoever asks may act for its user. Another user's job is treated as one that does not exist."""
        return job if job is not None and principal_of(request).may_act_for(job.user) else None

    def _absent(self, request: web.Request, job_id: str, wanted: str) -> ApiError:
        taken_over = self._own(request, self._core.register.taken_over.get(job_id))
        where = "" if taken_over is None else f": another scheduler has taken it over, with epoch {taken_over.epoch}"
        return ApiError(404, f"no job {shown(job_id)} {wanted}{where}")

    # ---- submission --------------------------------------------------------------------------

    async def submit(self, request: web.Request) -> web.Response:
        """`POST /v1/jobs`."""
        options = self._scheduler.options
        async with self._http_jobs.submissions.taken(holder_of(request), BUSY_RETRY_S):
            body = await read_json_body(request, options.http_body_bytes_max, "http_body_bytes_max")
            submission = await self._decode(body, holder_of(request))
            user = self._user_of(request, submission.user)
            before = self._http_jobs.find_same(user, submission.job.id)
            if before is not None:
                return self._submitted(before, 200)
            return self._submitted(await self._send(user, submission), 202)

    def _user_of(self, request: web.Request, stated: str) -> str:
        """The user of a job that states this one, or none. `ApiError` 403 if whoever asks may not act for it."""
        try:
            user = own_user(principal_of(request), stated)
        except AccessDenied as error:
            raise ApiError(403, str(error), field="user") from None
        if user:
            return user
        user = request.query.get("default_user", USER_DEFAULT)
        check_name("default_user", user, empty=False)
        return user

    async def _decode(self, body: bytes, holder: str) -> Submission:
        bytes_max, plane = self._scheduler.options.payload_bytes_max, self._scheduler.options.policy
        if len(body) <= INLINE_BODY_BYTES_MAX:
            return read_submission(body, bytes_max, plane)
        async with self._decoding.taken(holder):
            count, most = await asyncio.to_thread(task_count, body), self._http_jobs.kept.tasks_max
            if count > most:  # Before they take their memory, and the interpreter's time.
                raise ApiError(413, f"tasks: {count} tasks; at most {most} of a user have room", field="tasks")
            return await asyncio.to_thread(read_submission, body, bytes_max, plane)

    async def _send(self, user: str, submission: Submission) -> HttpJob:
        """Submit the job and its tasks, with turns of the loop for others in between."""
        http_job = self._http_jobs.begin(user, submission)
        for message in submission.job.messages(self._scheduler.options.payload_bytes_max):
            self._http_jobs.add(http_job, message)
            self._scheduler.update_timers()
            await asyncio.sleep(0)
        self._scheduler.update_timers()
        return http_job

    def _submitted(self, http_job: HttpJob, status: Literal[200, 202]) -> web.Response:
        job = self._core.jobs.get(http_job.id)
        return struct_response(
            views.detail(job or http_job, self._policy), status, {"Location": f"/v1/jobs/{quote(http_job.id, safe='')}"}
        )

    # ---- results -----------------------------------------------------------------------------

    async def results(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/jobs/{job}/results`."""
        job_id = request.match_info["job"]
        job = self._own(request, self._http_jobs.kept.get(job_id))
        if job is None:
            if self._own(request, self._core.jobs.get(job_id)) is not None:
                raise ApiError(404, f"job {shown(job_id)} was not submitted over HTTP: its client has the results")
            raise self._absent(request, job_id, "runs here or is kept")
        principal, credentials = principal_of(request), self._scheduler.credentials
        return await self._scheduler.readers.serve(
            request, job, holder_of(request, job.user), lambda: credentials.tokens.stands(principal)
        )
