"""The scheduler's OpenAPI document."""

from __future__ import annotations

from typing import Any

from scheduler.http.requests import JobRequest
from scheduler.http.result_lines import ResultLine
from scheduler.http.submissions import USER_DEFAULT
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
from sparrow_py.http.http_api import NDJSON_TYPE
from sparrow_py.http.openapi import answer, content, document, errors, operation, path_parameter, query_parameter, ref
from sparrow_py.job import NAME_BYTES_MAX

LISTED_MAX = 10_000
"""Jobs or nodes in one answer."""

_JOB = path_parameter("job", "The job's id.", maxLength=NAME_BYTES_MAX)
_BOOLEAN = {"type": "boolean", "default": False}
_WRONG_QUERY = errors({400: "The query is wrong: the error names the parameter."})
_LOCATION = {"Location": {"description": "The job's path.", "schema": {"type": "string"}}}


def scheduler_document() -> dict[str, Any]:
    """All paths, and the structs of their bodies and answers."""
    paths = {
        "/v1/jobs": {"get": _list_jobs(), "post": _submit()},
        "/v1/jobs/{job}": {"get": _job(), "delete": _cancel()},
        "/v1/jobs/{job}/results": {"get": _results()},
        "/v1/jobs/{job}/explain": {"get": _explain()},
        "/v1/flow/problem": {"get": _flow_problem()},
        "/v1/nodes": {"get": _nodes()},
        "/v1/scheduler": {"get": _scheduler()},
        "/v1/demand": {"get": _demand()},
        "/v1/lead": {"post": _lead()},
    }
    of_jobs = (JobRequest, JobDetail, JobList, JobCancelled, JobExplanation, ResultLine)
    structs = (*of_jobs, NodeList, SchedulerDetail, Demand, Lead)
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
            )
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
                    413: "The body is larger than http_body_bytes_max.",
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
        "Why tasks of a job wait",
        {
            "200": answer("Its stages with such tasks.", JobExplanation),
            **errors({404: "No such job runs here.", 503: "A job of the user's is being explained already."}),
        },
        parameters=[_JOB],
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
