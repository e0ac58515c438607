"""From the body of a submission to a job: its specification, checked, and the messages that submit it.

This is the one place of HTTP where a job is checked; errors name the field in the body. The core checks the messages of
every client for itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from scheduler.http import requests
from scheduler.http.requests import JobRequest, RetryRequest, StageRequest, TaskRequest
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import (
    FLOW_FROM_S,
    INPUTS_MAX,
    BlobRef,
    JobSpec,
    RetryPolicy,
    StageSpec,
    TaskSpec,
    check_name,
    check_retry,
)
from sparrow_py.session.client_job import ClientJob
from sparrow_py.wire.messages import FLOW, SPARROW

USER_DEFAULT = "http"
"""The user of jobs that name no user and whose submitter is not known."""
AUTO = "auto"
"""The policy that is decided by how long tasks are expected to take."""
_OF_BOTH = ("name", "priority")
"""Fields that a job and each of its stages have for themselves."""
_OF_STAGES = tuple(name for name in StageRequest.__struct_fields__ if name not in (*_OF_BOTH, "tasks"))
"""Fields that a job of one stage has itself; the stages of a job of several have them."""
_AS_THEY_ARE = tuple(name for name in _OF_STAGES if name not in ("common", "common_base64", "retry"))
_OF_JOBS = (
    "job_id", "max_attempts", "retry_failed", "queue_timeout_s", "wait_for_nodes_s", "avoid", "on_client_lost",
    "report_placed", "priority", "avoid_by", "policy", "preemptible",
)  # fmt: skip
_DEFAULTS = {field.name: field.default for field in msgspec.structs.fields(JobRequest)}


@dataclass(slots=True, frozen=True)
class Submission:
    """A job that is to be submitted. `user` is empty if the body names none."""

    user: str
    spec: JobSpec
    job: ClientJob


class _Nobody:
    """The sink of a job that no client's core follows: `HttpJobs` is told what becomes of the job."""

    def _not_called(self, *_: Any, **__: Any) -> None: ...

    accepted = refused = placed = outcome = not_cancelled = ended = _not_called


def read_submission(body: bytes, payload_bytes_max: int, plane: str = SPARROW) -> Submission:
    """The job of a body that was posted to a scheduler of this plane; `InvalidRequest` for the first thing that is
    wrong with it."""
    user, spec = read_job(body, payload_bytes_max)
    if spec.policy not in ("", AUTO, plane):
        raise InvalidRequest(
            "policy", spec.policy, f"{plane}, or empty: the policy of the scheduler that it is posted to"
        )
    job = ClientJob(spec, _Nobody(), 0.0)
    if spec.policy == AUTO:
        _check_auto(job, plane)
    job.decide(plane)
    return Submission(user, spec, job)


def _check_auto(job: ClientJob, plane: str) -> None:
    """Raise `InvalidRequest` if schedulers of another plane are for the job: nobody takes it there from here."""
    long = f"tasks of all its stages are expected to take {FLOW_FROM_S:g} s or more"
    wanted, why = (FLOW, long) if job.is_long else (SPARROW, f"it does not say that {long}")
    if wanted != plane:
        said = f"this scheduler has policy {plane}; auto means {wanted} for this job, as {why}"
        raise InvalidRequest.told("policy", f"policy: {said}: post it to a scheduler with policy {wanted}")


def read_job(body: bytes, payload_bytes_max: int) -> tuple[str, JobSpec]:
    """The user and the specification alone."""
    request = requests.decode(body)
    user = "" if request.user is UNSET else request.user
    check_name("user", user, empty=request.user is UNSET)
    spec = _job_spec(request)
    spec.validate()
    _check_sizes(spec, payload_bytes_max)
    _check_inputs(spec)
    return user, spec


# ---- from the body to the specification ------------------------------------------------------


def _job_spec(request: JobRequest) -> JobSpec:
    of_job = {name: getattr(request, name) for name in _OF_JOBS}
    if request.stages:
        _check_no_stage_fields(request)
        stages = [_stage_spec(f"stages[{index}].", stage) for index, stage in enumerate(request.stages)]
        return JobSpec(_tasks("", request.tasks), name=request.name, stages=stages, app="-", **of_job)
    if not request.app:
        raise InvalidRequest("app", request.app, "the name of the app whose executors run the tasks")
    return JobSpec(
        _tasks("", request.tasks), name=request.name, common=_data("common", request.common, request.common_base64),
        retry=_retry("", request.retry), **{name: getattr(request, name) for name in _AS_THEY_ARE}, **of_job,
    )  # fmt: skip


def _check_no_stage_fields(request: JobRequest) -> None:
    for name in _OF_STAGES:
        value = getattr(request, name)
        if value != _DEFAULTS[name]:
            given = bytes(value) if isinstance(value, Raw) else value
            raise InvalidRequest(name, given, "no such field beside stages, which have their own")


def _stage_spec(where: str, request: StageRequest) -> StageSpec:
    return StageSpec(
        _tasks(where, request.tasks),
        name=request.name,
        common=_data(where + "common", request.common, request.common_base64),
        priority=request.priority,
        retry=_retry(where, request.retry),
        **{name: getattr(request, name) for name in _AS_THEY_ARE},
    )


def _retry(where: str, request: RetryRequest | None) -> RetryPolicy | None:
    if request is None:
        return None
    check_retry(where + "retry.", request)
    return RetryPolicy(**msgspec.structs.asdict(request))


def _tasks(where: str, requests: tuple[TaskRequest, ...]) -> list[bytes | BlobRef | TaskSpec]:
    return [_task(f"{where}tasks[{index}]", request) for index, request in enumerate(requests)]


def _task(where: str, request: TaskRequest) -> bytes | TaskSpec:
    payload = _data(f"{where}.payload", request.payload, request.payload_base64)
    if not (request.id or request.preferred or request.inputs or request.data or request.data_bytes is not None):
        return payload
    return TaskSpec(
        payload,
        request.id,
        preferred=request.preferred,
        inputs=request.inputs,
        data=request.data or None,
        data_bytes=request.data_bytes,
    )


def _data(field: str, value: Raw | UnsetType, encoded: bytes | UnsetType) -> bytes:
    """The bytes of data that may be given as a JSON value or in base64."""
    if value is UNSET:
        return b"" if encoded is UNSET else encoded
    if encoded is not UNSET:
        raise InvalidRequest(field + "_base64", encoded, f"no such field beside {field.rpartition('.')[2]}")
    return bytes(value)


# ---- limits of this scheduler ----------------------------------------------------------------


def _stages(spec: JobSpec) -> Iterator[tuple[str, StageSpec]]:
    """The stages, each with the prefix that names of its fields have in errors."""
    if not spec.stages:
        yield "", spec
    for index, stage in enumerate(spec.stages):
        yield f"stages[{index}].", stage


def _check_sizes(spec: JobSpec, bytes_max: int) -> None:
    """Raise `InvalidRequest` if data does not fit the frame that takes it to a node."""
    for where, stage in _stages(spec):
        if isinstance(stage.common, bytes) and len(stage.common) > bytes_max:
            raise _too_large(where + "common", stage.common, bytes_max)
        for index, task in enumerate(stage.tasks):
            payload = task.payload if isinstance(task, TaskSpec) else task
            if isinstance(payload, bytes) and len(payload) > bytes_max:
                raise _too_large(f"{where}tasks[{index}].payload", payload, bytes_max)


def _too_large(field: str, data: bytes, bytes_max: int) -> InvalidRequest:
    return InvalidRequest(field, f"{len(data)} bytes", f"at most {bytes_max} bytes")


def _check_inputs(spec: JobSpec) -> None:
    """Raise `InvalidRequest` if a task asks for too many results: the specification counts those of a stage as one."""
    sizes = {stage.name: len(stage.tasks) for stage in spec.as_stages()}
    for where, stage in _stages(spec):
        if not stage.after:
            continue  # Its tasks have no inputs.
        for index, task in enumerate(stage.tasks):
            inputs = task.inputs if isinstance(task, TaskSpec) else ()
            count = sum(sizes[name] if isinstance(name, str) else 1 for name in inputs)
            if count > INPUTS_MAX:
                raise InvalidRequest(f"{where}tasks[{index}].inputs", f"{count} results", f"at most {INPUTS_MAX}")
