"""The scheduler's OpenAPI document."""

from __future__ import annotations

from typing import Any

from scheduler.http.cluster_state import SEARCH_CHARS_MAX, ClusterState, Roster
from scheduler.http.neighbours import NeighbourList
from scheduler.http.requests import JobRequest
from scheduler.http.result_lines import ResultLine
from scheduler.http.submissions import USER_DEFAULT
from scheduler.http.view_routes import History
from scheduler.http.viewers import EVENTS_TYPE
from scheduler.http.views import (
    Demand,
    JobCancelled,
    JobDetail,
    JobExplanation,
    JobList,
    Lead,
    NodeList,
    SchedulerDetail,
)
from scheduler.recent.timeline import JobTimeline
from sparrow_py.http.http_api import NDJSON_TYPE
from sparrow_py.http.openapi import answer, content, document, errors, operation, path_parameter, query_parameter, ref
from sparrow_py.job import NAME_BYTES_MAX

LISTED_MAX = 10_000
"""Jobs or nodes in one answer."""

_JOB = path_parameter("job", "The job's id.", maxLength=NAME_BYTES_MAX)
_BOOLEAN = {"type": "boolean", "default": False}
_SEARCH = query_parameter(
    "search",
    "Only jobs whose id, name, user or app has this text.",
    {"type": "string", "maxLength": SEARCH_CHARS_MAX, "default": ""},
)
_WRONG_QUERY = errors({400: "The query is wrong: the error names the parameter."})
_LOCATION = {"Location": {"description": "The job's path.", "schema": {"type": "string"}}}


def scheduler_document() -> dict[str, Any]:
    """All paths, and the structs of their bodies and answers."""
    paths = {
        "/v1/jobs": {"get": _list_jobs(), "post": _submit()},
        "/v1/jobs/{job}": {"get": _job(), "delete": _cancel()},
        "/v1/jobs/{job}/results": {"get": _results()},
        "/v1/jobs/{job}/explain": {"get": _explain()},
        "/v1/jobs/{job}/timeline": {"get": _timeline()},
        "/v1/history": {"get": _history()},
        "/v1/state": {"get": _state()},
        "/v1/events": {"get": _events()},
        "/v1/schedulers": {"get": _schedulers()},
        "/v1/session": {"get": _session()},
        "/v1/flow/problem": {"get": _flow_problem()},
        "/v1/nodes": {"get": _nodes()},
        "/v1/scheduler": {"get": _scheduler()},
        "/v1/demand": {"get": _demand()},
        "/v1/lead": {"post": _lead()},
    }
    of_jobs = (JobRequest, JobDetail, JobList, JobCancelled, JobExplanation, ResultLine)
    of_views = (JobTimeline, History, ClusterState, Roster, NeighbourList)
    structs = (*of_jobs, *of_views, NodeList, SchedulerDetail, Demand, Lead)
    return document("Sparrow scheduler", "Jobs: submitted, followed and cancelled.", paths, structs)


def _list_jobs() -> dict[str, Any]:
    return operation(
        "listJobs",
        "The jobs that are queued or running",
        {
            "200": answer(f"At most {LISTED_MAX}.", JobList),
            **_WRONG_QUERY,
        },
        parameters=[
            query_parameter(
                "ended", "Also jobs that came over HTTP and have ended, while their results are kept.", _BOOLEAN
            ),
            query_parameter(
                "recent",
                "Instead the jobs that have gone in the last hour, as far as they are remembered, the latest first.",
                _BOOLEAN,
            ),
        ],
    )


def _submit() -> dict[str, Any]:
    return operation(
        "submitJob",
        "Submit a job",
        {
            "202": answer("The job is accepted: it will end.", JobDetail, headers=_LOCATION),
            "200": answer("A job of this id was accepted before: this is its state.", JobDetail, headers=_LOCATION),
            **errors(
                {
                    400: "A field is wrong: the error names it.",
                    408: "The body did not come in time.",
                    409: "The id is that of another client's job.",
                    413: "The body is larger than http_body_bytes_max, or the job than the room for a user's.",
                    415: "The body is not said to be JSON, or is compressed.",
                    429: "The user has as much here as it may.",
                    503: "The scheduler is shutting down, has too much to hold, or does not lead its plane.",
                }
            ),
        },
        description="Posting the same job_id again is no second job, as long as the first is kept.",
        body={"required": True, "content": content(JobRequest)},
        parameters=[
            query_parameter(
                "default_user",
                "The job's user, if neither the job nor the token or certificate names one.",
                {"type": "string", "minLength": 1, "maxLength": NAME_BYTES_MAX, "default": USER_DEFAULT},
            )
        ],
    )


def _job() -> dict[str, Any]:
    return operation(
        "getJob",
        "How far a job is",
        {"200": answer("The job.", JobDetail), **errors({404: "No such job runs here or is kept."})},
        parameters=[_JOB],
    )


def _results() -> dict[str, Any]:
    stream = {
        "description": "A line of JSON for each task, as they end; the response ends when the job has ended. "
        "A response that breaks off is not complete.",
        "content": {NDJSON_TYPE: {"schema": {"type": "string"}, "itemSchema": ref(ResultLine)}},
    }
    return operation(
        "getResults",
        "Follow a job's results",
        {
            "200": stream,
            **errors(
                {404: "No such job, submitted over HTTP, runs here or is kept.", 503: "Too many read results already."}
            ),
        },
        description="Lines that were there before come first. Any number of readers gets all lines.",
        parameters=[_JOB],
    )


def _explain() -> dict[str, Any]:
    return operation(
        "explainJob",
        "Why tasks of a job wait, and what held it up",
        {
            "200": answer("Its stages with tasks that wait, and what is known of those that have run.", JobExplanation),
            **errors(
                {
                    404: "No such job runs here or is remembered.",
                    503: "A job of the user's is being explained already.",
                }
            ),
        },
        parameters=[_JOB],
    )


def _timeline() -> dict[str, Any]:
    return operation(
        "getTimeline",
        "A job's tasks in time",
        {
            "200": answer("When and where they ran, as far as that is remembered.", JobTimeline),
            **errors({404: "No such job runs here or is remembered.", 503: "Too many timelines are being made."}),
        },
        description="Jobs that have ended are remembered for an hour, and their tasks until those of newer jobs need "
        "the room, whether they came over HTTP or not.",
        parameters=[_JOB],
    )


def _history() -> dict[str, Any]:
    return operation(
        "getHistory",
        "The last hour of this scheduler",
        {"200": answer("Counts, percentiles and slots by user.", History)},
    )


def _state() -> dict[str, Any]:
    return operation(
        "getState",
        "The cluster now, as `/v1/events` has it",
        {"200": answer("Nodes, users, jobs, rates and what the plane does.", ClusterState), **_WRONG_QUERY},
        parameters=[_SEARCH],
    )


def _events() -> dict[str, Any]:
    stream = {
        "description": "Events `roster` (a Roster; first, and whenever nodes come or go) and `state` (a ClusterState), "
        "one state a second; `ends` or `withdrawn` before the scheduler ends the stream.",
        "content": {
            EVENTS_TYPE: {"schema": {"type": "string"}, "itemSchema": {"anyOf": [ref(Roster), ref(ClusterState)]}}
        },
    }
    return operation(
        "watch",
        "The cluster live, as server-sent events",
        {"200": stream, **_WRONG_QUERY, **errors({503: "Too many look already."})},
        parameters=[_SEARCH],
    )


def _schedulers() -> dict[str, Any]:
    return operation(
        "listSchedulers",
        "The other schedulers that nodes know",
        {"200": answer("As far as nodes and schedulers answer this one over HTTP.", NeighbourList)},
    )


def _session() -> dict[str, Any]:
    return operation(
        "session",
        "A cookie in place of the token, for browsers that look",
        {
            "204": answer("The cookie is set if a token was shown; it opens what is looked at and nothing else."),
            **_WRONG_QUERY,
        },
        parameters=[query_parameter("end", "End the session instead.", _BOOLEAN)],
    )


def _flow_problem() -> dict[str, Any]:
    text = {"description": "The problem of the last round, as DIMACS writes it.", "content": {"text/plain": {}}}
    return operation(
        "dumpFlowProblem",
        "What the flow plane has solved last",
        {
            "200": text,
            **errors({403: "It is for operators.", 404: "No flow network has been solved here."}),
        },
    )


def _cancel() -> dict[str, Any]:
    return operation(
        "cancelJob",
        "Cancel a job",
        {
            "202": answer("Tasks that wait are cancelled; tasks that run are stopped, if asked for.", JobCancelled),
            **_WRONG_QUERY,
            **errors({404: "There is no such job.", 409: "The job has ended."}),
        },
        parameters=[_JOB, query_parameter("running", "Whether to stop tasks that run, too.", _BOOLEAN)],
    )


def _scheduler() -> dict[str, Any]:
    return operation(
        "getScheduler",
        "The scheduler: its policy, whether it takes jobs, who leads",
        {"200": answer("This scheduler.", SchedulerDetail)},
    )


def _demand() -> dict[str, Any]:
    return operation(
        "getDemand",
        "How many slots the scheduler's jobs could use now, for autoscalers",
        {"200": answer("The slots.", Demand)},
    )


def _lead() -> dict[str, Any]:
    return operation(
        "lead",
        "Have the scheduler lead its plane, whoever does",
        {
            "202": answer("It leads as soon as more than half of its nodes have accepted it.", Lead),
            "200": answer("It leads already.", Lead),
            **errors({409: "The plane has no leader: each of its schedulers takes jobs."}),
        },
    )


def _nodes() -> dict[str, Any]:
    whole = {"type": "integer", "minimum": 1, "maximum": LISTED_MAX}
    return operation(
        "listNodes",
        "The nodes that are connected",
        {
            "200": answer(f"At most {LISTED_MAX}.", NodeList),
            **_WRONG_QUERY,
        },
        parameters=[query_parameter("sample", "So many nodes, drawn at random from those that are ready.", whole)],
    )
