"""A job as HTTP has it: `sparrow_py.job`'s JobSpec, StageSpec and TaskSpec in JSON, by the same names.

A payload is any JSON value, whose text goes to the executor as it stands, or bytes in base64; the
same holds for what a stage's tasks have in common.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from sparrow_py.errors import InvalidRequest, SparrowError
from sparrow_py.http.json_shapes import BodyDecoder
from sparrow_py.job import (
    INPUTS_MAX,
    MAX_ATTEMPTS_DEFAULT,
    MAX_ATTEMPTS_MAX,
    NAME_BYTES_MAX,
    ON_CLIENT_LOST,
    PREFETCH_MAX,
    PROBE_RATIO_DEFAULT,
    PROBE_RATIO_MAX,
    BlobRef,
    JobSpec,
    StageSpec,
    TaskSpec,
    check_name,
)
from sparrow_py.session.client_job import ClientJob
from sparrow_py.wire.messages import Outcome

USER_DEFAULT = "http"
"""Whose the jobs are that do not say, and of whose submitter nothing is known."""


def _schema(description: str, **limits: Any) -> Meta:
    """For the OpenAPI document. Limits are only shown: `JobSpec.validate` checks them."""
    return Meta(description=description, extra_json_schema=limits or None)


Name = Annotated[str, _schema(f"At most {NAME_BYTES_MAX} bytes of printable text.", maxLength=NAME_BYTES_MAX)]
User = Annotated[
    str,
    _schema(
        "Whose share the job counts to; default: the token's or certificate's user, or default_user.",
        minLength=1,
        maxLength=NAME_BYTES_MAX,
    ),
]
ProbeRatio = Annotated[float, _schema("Reservations per task.", minimum=1, maximum=PROBE_RATIO_MAX)]
Seconds = Annotated[float, _schema("Seconds.", minimum=0)]
AnyJson = Annotated[Raw, _schema("Any JSON value: the executor gets its text.")] | UnsetType
Base64 = Annotated[bytes, _schema("Bytes in base64.")] | UnsetType


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """One task. Its payload is given as `payload` or as `payload_base64`, or is empty."""

    payload: AnyJson = UNSET
    payload_base64: Base64 = UNSET
    id: Annotated[str, _schema("For its submitter's use; comes back with the result.")] = ""
    preferred: Annotated[tuple[str, ...], _schema("Ids of the nodes that have its input.")] = ()
    inputs: Annotated[
        tuple[str | tuple[str, int], ...],
        _schema("Results of earlier stages: all of a stage, or [stage, position] for that of one task."),
    ] = ()


class StageRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Tasks that may run in parallel, once all tasks of the stages named in `after` have finished."""

    app: Annotated[str, _schema("Whose executors run the tasks.", minLength=1, maxLength=NAME_BYTES_MAX)]
    tasks: tuple[TaskRequest, ...] = ()
    name: Name = ""
    after: Annotated[tuple[str, ...], _schema("Names of the stages that this one needs.")] = ()
    common: AnyJson = UNSET
    common_base64: Base64 = UNSET
    probe_ratio: ProbeRatio = PROBE_RATIO_DEFAULT
    prefetch: Annotated[
        int, _schema("Tasks that a node may hold per slot ahead of a free slot.", minimum=0, maximum=PREFETCH_MAX)
    ] = 0
    expected_duration_s: Seconds | None = None
    runtime: Name = ""
    demand: Annotated[dict[str, float], _schema("What each task takes of its node.")] | None = None
    where: Annotated[tuple[str, ...], _schema("Predicates over nodes' attributes, such as `zone == eu`.")] = ()
    delay_s: Seconds | None = None
    task_timeout_s: Seconds | None = None


class JobRequest(StageRequest, forbid_unknown_fields=True, kw_only=True):
    """A job: the fields of its one stage, or several `stages`."""

    job_id: Annotated[
        str, _schema("Posting a job of the same id again is no second job; minted if empty.", maxLength=NAME_BYTES_MAX)
    ] = ""
    name: Name = ""
    user: User | UnsetType = UNSET
    stages: Annotated[tuple[StageRequest, ...], _schema("The stages, in any order; then the job has no tasks.")] = ()
    max_attempts: Annotated[
        int, _schema("How often a task may be started in all.", minimum=1, maximum=MAX_ATTEMPTS_MAX)
    ] = MAX_ATTEMPTS_DEFAULT
    retry_failed: bool = False
    queue_timeout_s: Seconds | None = None
    wait_for_nodes_s: Seconds | None = None
    avoid: Annotated[tuple[str, ...], _schema("Ids of jobs that no node runs at the same time.")] = ()
    on_client_lost: Annotated[
        str, _schema("Without meaning over HTTP, where nobody has to stay.", enum=list(ON_CLIENT_LOST))
    ] = "cancel"
    report_placed: Annotated[bool, _schema("Without meaning over HTTP.")] = False

    app: Annotated[str, _schema("Whose executors run the tasks; not beside stages.", maxLength=NAME_BYTES_MAX)] = ""


OF_STAGES = tuple(name for name in StageRequest.__struct_fields__ if name not in ("name", "tasks"))
"""Fields of a job of one stage, which a job of several has in its stages."""
_AS_THEY_ARE = tuple(name for name in OF_STAGES if name not in ("common", "common_base64"))
_OF_JOBS = (
    "job_id", "max_attempts", "retry_failed", "queue_timeout_s", "wait_for_nodes_s", "avoid", "on_client_lost",
    "report_placed",
)  # fmt: skip

decode = BodyDecoder(JobRequest)


def job_of(body: bytes, payload_bytes_max: int) -> tuple[str, JobSpec]:
    """The user (empty if it does not say) and the job of a body, checked; `InvalidRequest` for the first thing that is
    wrong with it."""
    request = decode(body)
    user = "" if request.user is UNSET else request.user
    check_name("user", user, empty=request.user is UNSET)
    spec = _job_spec(request)
    spec.validate()
    _check_sizes(spec, payload_bytes_max)
    return user, spec


class _Nobody:
    """The sink of a job that no client's core follows: what becomes of it goes another way."""

    def accepted(self) -> None:
        """Not called."""

    def refused(self, error: SparrowError) -> None:
        """Not called."""

    def placed(self, task: int) -> None:
        """Not called."""

    def outcome(self, outcome: Outcome) -> None:
        """Not called."""

    def not_cancelled(self, task: int) -> None:
        """Not called."""

    def ended(self) -> None:
        """Not called."""


def client_job(body: bytes, payload_bytes_max: int) -> tuple[str, JobSpec, ClientJob]:
    """The user, the job and the messages that submit it; `InvalidRequest` as `job_of`."""
    user, spec = job_of(body, payload_bytes_max)
    job = ClientJob(spec, _Nobody(), 0.0)
    _check_inputs(spec, job)
    return user, spec, job


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
        **{name: getattr(request, name) for name in _AS_THEY_ARE}, **of_job,
    )  # fmt: skip


def _check_no_stage_fields(request: JobRequest) -> None:
    for name in OF_STAGES:
        value = getattr(request, name)
        default = next(field.default for field in msgspec.structs.fields(JobRequest) if field.name == name)
        if value != default:
            given = bytes(value) if isinstance(value, Raw) else value
            raise InvalidRequest(name, given, "no such field beside stages, which have their own")


def _stage_spec(where: str, request: StageRequest) -> StageSpec:
    return StageSpec(
        _tasks(where, request.tasks),
        name=request.name,
        common=_data(where + "common", request.common, request.common_base64),
        **{name: getattr(request, name) for name in _AS_THEY_ARE},
    )


def _tasks(where: str, requests: tuple[TaskRequest, ...]) -> list[bytes | BlobRef | TaskSpec]:
    return [_task(f"{where}tasks[{index}]", request) for index, request in enumerate(requests)]


def _task(where: str, request: TaskRequest) -> bytes | TaskSpec:
    payload = _data(f"{where}.payload", request.payload, request.payload_base64)
    if not (request.id or request.preferred or request.inputs):
        return payload
    return TaskSpec(payload, request.id, preferred=request.preferred, inputs=request.inputs)


def _data(field: str, value: Raw | UnsetType, encoded: bytes | UnsetType) -> bytes:
    """The bytes of what may be given as a JSON value or in base64."""
    if value is UNSET:
        return b"" if encoded is UNSET else encoded
    if encoded is not UNSET:
        raise InvalidRequest(field + "_base64", encoded, f"no such field beside {field.rpartition('.')[2]}")
    return bytes(value)


def _check_sizes(spec: JobSpec, bytes_max: int) -> None:
    """Raise `InvalidRequest` if data does not fit the frame that takes it to a node."""
    for number, stage in enumerate(spec.as_stages()):
        where = f"stages[{number}]." if spec.stages else ""
        if isinstance(stage.common, bytes):
            _check_size(where + "common", stage.common, bytes_max)
        for index, task in enumerate(stage.tasks):
            payload = task.payload if isinstance(task, TaskSpec) else task
            if isinstance(payload, bytes) and len(payload) > bytes_max:
                _check_size(f"{where}tasks[{index}].payload", payload, bytes_max)


def _check_size(field: str, data: bytes, bytes_max: int) -> None:
    if len(data) > bytes_max:
        raise InvalidRequest(field, f"{len(data)} bytes", f"at most {bytes_max} bytes")


def _check_inputs(spec: JobSpec, job: ClientJob) -> None:
    """Raise `InvalidRequest` if a task asks for more results than it may: the spec counts a stage as one."""
    for task, detail in job.details.items():
        count = sum(size for _, size in detail.inputs)
        if count > INPUTS_MAX:
            raise InvalidRequest(f"{_place(spec, task)}.inputs", f"{count} results", f"at most {INPUTS_MAX}")


def _place(spec: JobSpec, task: int) -> str:
    """Where the job's task stands in the body."""
    for number, stage in enumerate(spec.as_stages()):
        if task < len(stage.tasks):
            return f"stages[{number}].tasks[{task}]" if spec.stages else f"tasks[{task}]"
        task -= len(stage.tasks)
    raise IndexError(task)
