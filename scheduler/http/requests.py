"""The body of a submission: `sparrow_py.job`'s JobSpec, StageSpec and TaskSpec in JSON, by the same names.

A payload is any JSON value, whose text goes to the executor as it stands, or bytes in base64. The same holds for what
a stage's tasks have in common. `submissions` makes a job of the body.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from sparrow_py.http.json_shapes import BodyDecoder
from sparrow_py.job import (
    DATA_NODES_MAX,
    GROUP_MAX,
    LEASE_S_MAX,
    LEASE_S_MIN,
    MAX_ATTEMPTS_DEFAULT,
    MAX_ATTEMPTS_MAX,
    NAME_BYTES_MAX,
    ON_CLIENT_LOST,
    PREFETCH_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PROBE_RATIO_DEFAULT,
    PROBE_RATIO_MAX,
    RETRY_ATTEMPTS_MAX,
    RETRY_DELAY_S_MAX,
    RETRY_FACTOR_MAX,
    RetryPolicy,
)


def _schema(description: str, **limits: Any) -> Meta:
    """For the OpenAPI document, which shows the limits; `JobSpec.validate` checks them."""
    return Meta(description=description, extra_json_schema=limits or None)


Name = Annotated[str, _schema(f"At most {NAME_BYTES_MAX} bytes of printable text.", maxLength=NAME_BYTES_MAX)]
User = Annotated[
    str,
    _schema(
        "The user whose share the job counts to; default: the token's or certificate's user, or default_user.",
        minLength=1,
        maxLength=NAME_BYTES_MAX,
    ),
]
ProbeRatio = Annotated[float, _schema("Reservations per task.", minimum=1, maximum=PROBE_RATIO_MAX)]
Seconds = Annotated[float, _schema("Seconds.", minimum=0)]
PerGroup = Annotated[int, _schema("So many of its tasks at a time. Needs policy flow.", minimum=1, maximum=GROUP_MAX)]
RetryDelay = Annotated[float, _schema("Seconds.", minimum=0, maximum=RETRY_DELAY_S_MAX)]
PRIORITIES = {"minimum": PRIORITY_MIN, "maximum": PRIORITY_MAX}
AnyJson = Annotated[Raw, _schema("Any JSON value: the executor gets its text.")] | UnsetType
Base64 = Annotated[bytes, _schema("Bytes in base64.")] | UnsetType


class TaskRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, gc=False):
    """One task. Its payload is given as `payload` or as `payload_base64`, or is empty."""

    payload: AnyJson = UNSET
    payload_base64: Base64 = UNSET
    id: Annotated[str, _schema("For the submitter's use; comes back with the result.")] = ""
    preferred: Annotated[tuple[str, ...], _schema("Ids of the nodes that have its input.")] = ()
    inputs: Annotated[
        tuple[str | tuple[str, int], ...],
        _schema("Results of earlier stages: all of a stage, or [stage, position] for that of one task."),
    ] = ()
    data: Annotated[
        dict[str, int],
        _schema("Ids of nodes, and how many bytes of what the task reads lie there.", maxProperties=DATA_NODES_MAX),
    ] = {}
    data_bytes: Annotated[
        int | None, _schema("What `data` is parts of, if bytes have replicas; null: its sum.", minimum=0)
    ] = None


class RetryRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How often, and after which delays, tasks run again whose executor says that their failure may pass."""

    attempts: Annotated[
        int,
        _schema("So many such failures are a task's; the last is its outcome.", minimum=1, maximum=RETRY_ATTEMPTS_MAX),
    ] = RetryPolicy.attempts
    first_delay_s: RetryDelay = RetryPolicy.first_delay_s
    factor: Annotated[
        float, _schema("What each further delay is times the one before.", minimum=1, maximum=RETRY_FACTOR_MAX)
    ] = RetryPolicy.factor
    longest_delay_s: RetryDelay = RetryPolicy.longest_delay_s
    jitter: Annotated[float, _schema("The part of a delay that chance may take off.", minimum=0, maximum=1)] = (
        RetryPolicy.jitter
    )


class StageRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Tasks that may run in parallel, once all tasks of the stages named in `after` have finished."""

    app: Annotated[str, _schema("The app whose executors run the tasks.", minLength=1, maxLength=NAME_BYTES_MAX)]
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
    gang: Annotated[bool, _schema("Its tasks are placed all at once, or wait all. Needs policy flow.")] = False
    max_per_node: PerGroup | None = None
    max_per_rack: PerGroup | None = None
    together_with: Annotated[
        str,
        _schema(
            "Name of another stage: its tasks go to nodes where tasks of that one run. Needs policy flow.",
            maxLength=NAME_BYTES_MAX,
        ),
    ] = ""
    priority: Annotated[
        int | None,
        _schema("Higher goes first; null: the job's, which is the highest allowed.", **PRIORITIES),
    ] = None
    lease_s: Annotated[
        float | None,
        _schema(
            "Its tasks may last long: nodes charge them so many seconds at a time, and then may ask them to end.",
            minimum=LEASE_S_MIN,
            maximum=LEASE_S_MAX,
        ),
    ] = None
    retry: RetryRequest | None = None


class JobRequest(StageRequest, forbid_unknown_fields=True, kw_only=True):
    """A job: the fields of its one stage, or several `stages`."""

    job_id: Annotated[
        str,
        _schema("Posting a job of the same id again makes no second job; minted if empty.", maxLength=NAME_BYTES_MAX),
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
    priority: Annotated[
        int | None,
        _schema("Higher goes first; null: the user's own, which is the highest allowed.", **PRIORITIES),
    ] = None
    avoid_by: Annotated[
        str,
        _schema(
            "Attribute of nodes, such as their rack: `avoid` is of all nodes of one value; empty: of each node.",
            maxLength=NAME_BYTES_MAX,
        ),
    ] = ""

    policy: Annotated[
        str,
        _schema(
            "The scheduler's own, or empty: a job stays where it is posted; auto: the scheduler refuses the job if "
            "the other policy is for it, by how long its tasks are expected to take.",
            enum=["", "sparrow", "flow", "altruistic", "auto"],
        ),
    ] = ""
    preemptible: Annotated[
        bool, _schema("Its tasks may be stopped for others, and start again. Needs policy flow.")
    ] = False

    app: Annotated[
        str, _schema("The app whose executors run the tasks; not beside stages.", maxLength=NAME_BYTES_MAX)
    ] = ""


class _Task(msgspec.Struct, gc=False):
    """Whatever it says."""


class _Tasks(msgspec.Struct):
    tasks: list[_Task] = []


class _Counted(_Tasks):
    """What of a body is read to count its tasks."""

    stages: list[_Tasks] = []


_counted = msgspec.json.Decoder(_Counted)


def task_count(body: bytes) -> int:
    """How many tasks a body has, in a tenth of the time and memory that it takes to decode them; 0 if it is malformed,
    which `decode` says better."""
    try:
        found = _counted.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    return len(found.tasks) + sum(len(stage.tasks) for stage in found.stages)


decode = BodyDecoder(JobRequest)
