"""What a submission must be like, whoever sent it. Raises `InvalidRequest` naming the field."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from sparrow_py import constraints
from sparrow_py.errors import InvalidRequest, LinkError, shown
from sparrow_py.job import (
    AWAITED_PAIRS_MAX,
    DATA_BYTES_MAX,
    DATA_NODES_MAX,
    GIVEN_MAX,
    HASH_CHARS,
    INPUTS_MAX,
    MAX_ATTEMPTS_MAX,
    NAME_BYTES_MAX,
    ON_CLIENT_LOST,
    PREFERRED_MAX,
    PREFETCH_MAX,
    PRIORITY_MAX,
    PRIORITY_MIN,
    PROBE_RATIO_MAX,
    RESOURCE_MAX,
    STAGES_MAX,
    BlobRef,
    check_demand,
    check_lease,
    check_limits,
    check_name,
    check_number,
    check_order,
    check_preemptible,
    check_retries,
    check_retry,
    check_stage_priority,
    check_stops_alone,
    check_together,
    check_whole,
    first_flow_only,
    needs_flow,
)
from sparrow_py.wire.messages import (
    ALTRUISTIC,
    DETAIL_BYTES_FREE,
    FLOW,
    FRAME_BYTES_MAX,
    MEMORY_CHARS_MAX,
    MESSAGE_OVERHEAD_BYTES,
    SPARROW,
    WITHDRAWN_CHARS_MAX,
    AddTasks,
    GiveBack,
    Idle,
    NodeInfo,
    NodeLoad,
    Stage,
    SubmitJob,
    TaskDetail,
)

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.book.nodes import Node

EPOCH_MAX = (1 << 22) - 1
SLOTS_MAX = 1 << 16
TASKS_PER_JOB_MAX = 1 << 31
ALTRUISTIC_TASKS_MAX = 100_000
"""Of a job that policy altruistic plans (`scheduler.altruistic.dags.TASKS_MAX`, which needs numpy)."""
AVOID_MAX = 100
ADDRESSES_MAX = 64
ADDRESS_CHARS_MAX = 256
QUEUED_MAX = 1 << 40
"""Reservations and tasks that a node may say wait there."""
INPUT_RANGE_BYTES = 12
"""What a range of inputs takes in a Launch, at most."""


def check_submission(
    job: SubmitJob, bytes_max: int = FRAME_BYTES_MAX - MESSAGE_OVERHEAD_BYTES, plane: str = SPARROW
) -> None:
    """Check every field of a `SubmitJob` for a scheduler of this plane; its common bytes may be `bytes_max`."""
    check_name("job_id", job.job, empty=False)
    check_name("name", job.name)
    check_whole("epoch", job.epoch, 0, EPOCH_MAX)
    check_whole("max_attempts", job.max_attempts, 1, MAX_ATTEMPTS_MAX)
    check_number("age_s", job.age_s, 0, math.inf)
    if job.queue_timeout_s is not None:
        check_number("queue_timeout_s", job.queue_timeout_s, 0, math.inf)
    if job.wait_for_nodes_s is not None:
        check_number("wait_for_nodes_s", job.wait_for_nodes_s, 0, math.inf)
    if job.on_client_lost not in ON_CLIENT_LOST:
        raise InvalidRequest("on_client_lost", job.on_client_lost, " or ".join(ON_CLIENT_LOST))
    if job.priority is not None:
        check_whole("priority", job.priority, PRIORITY_MIN, PRIORITY_MAX)
    if len(job.avoid) > AVOID_MAX:
        raise InvalidRequest("avoid", f"{len(job.avoid)} jobs", f"at most {AVOID_MAX}")
    check_name("avoid_by", job.avoid_by)
    _check_policy(job, plane)
    if not 1 <= len(job.stages) <= STAGES_MAX:
        raise InvalidRequest("stages", f"{len(job.stages)} stages", f"from 1 to {STAGES_MAX}")
    if plane == ALTRUISTIC:
        check_whole("task_count", sum(stage.task_count for stage in job.stages), 0, ALTRUISTIC_TASKS_MAX)
    check_order([(stage.name, stage.after) for stage in job.stages])
    check_together([(stage.name, stage.after, stage.together_with) for stage in job.stages])
    if len(job.stages) == 1:
        _check_stage("", job.stages[0], bytes_max)
        _check_groups("", job.stages[0], plane, preemptible=job.preemptible)
        _check_retry("", job.stages[0], job)
        return
    for index, stage in enumerate(job.stages):
        _check_stage(f"stages[{index}].", stage, bytes_max)
        _check_groups(f"stages[{index}].", stage, plane, preemptible=job.preemptible)
        _check_retry(f"stages[{index}].", stage, job)
    check_whole("task_count", sum(stage.task_count for stage in job.stages), 0, TASKS_PER_JOB_MAX)


def _check_policy(job: SubmitJob, plane: str) -> None:
    if (job.policy or SPARROW) != plane:
        allowed = f"{plane}, which this scheduler's policy is; the client is to send the job to another"
        raise InvalidRequest("policy", job.policy, allowed)
    check_preemptible(preemptible=job.preemptible, policy=job.policy, max_attempts=job.max_attempts)


def _check_groups(where: str, stage: Stage, plane: str, *, preemptible: bool) -> None:
    check_limits(where, stage)
    if plane != FLOW and (name := first_flow_only(stage)):
        raise needs_flow(where + name, getattr(stage, name), plane)
    check_stops_alone(where, stage, preemptible=preemptible)


def _check_retry(where: str, stage: Stage, job: SubmitJob) -> None:
    if stage.retry is not None:
        check_retry(where + "retry.", stage.retry)
        check_retries(where, max_attempts=job.max_attempts, retry_failed=job.retry_failed)


def check_priority(user: str, job: SubmitJob, highest: int) -> None:
    """Check what a job of the user states, whose own priority this is: it may be lower, and no higher; its stages
    neither."""
    priority = job.priority
    if priority is not None and priority > highest:
        lowest = min(highest, PRIORITY_MIN)
        allowed = f"a whole number from {lowest} to {highest}, the user's own (user_priority of {shown(user)})"
        raise InvalidRequest("priority", priority, allowed)
    for index, stage in enumerate(job.stages):
        if stage.priority is not None:
            where = f"stages[{index}]." if len(job.stages) > 1 else ""
            check_stage_priority(where, stage.priority, highest if priority is None else priority)


def check_idle(node_id: str, free: int) -> None:
    """`LinkError` if a node says that it is idle without a free slot."""
    if free < 1:
        raise LinkError(f"node {node_id} says that it is idle with {free} free slots")


def check_node(node: NodeInfo) -> None:
    """Check what a node monitor says of its node."""
    check_whole("slots", node.slots, 0, SLOTS_MAX)
    if len(node.memory) > MEMORY_CHARS_MAX:
        raise LinkError(f"memory is {len(node.memory)} characters; at most {MEMORY_CHARS_MAX}")
    for app, reason in node.withdrawn.items():
        if len(reason) > WITHDRAWN_CHARS_MAX:
            raise LinkError(f"withdrawn[{shown(app)}] is {len(reason)} characters; at most {WITHDRAWN_CHARS_MAX}")
    for name, amount in node.resources.items():
        if not 0 <= amount <= RESOURCE_MAX:
            raise LinkError(f"resources[{shown(name)}] is {amount}; it is a number from 0 to {RESOURCE_MAX:g}")


def check_load(node_id: str, slots: int, resources: Mapping[str, float], load: NodeLoad) -> None:
    """`LinkError` if a node with these slots and resources cannot have such a load."""
    for field, value, most in (
        ("lane_slots", load.lane_slots, slots),
        ("lane_free", load.lane_free, load.lane_slots),
        ("short", load.short, slots),
        ("queued", load.queued, QUEUED_MAX),
    ):
        if not 0 <= value <= most:
            raise LinkError(f"node {node_id} says that {field} is {value}; it is a whole number from 0 to {most}")
    for name, amount in load.free.items():
        if name not in resources:
            raise LinkError(f"node {node_id} says what is free of {shown(name)}, which it does not have")
        if not 0 <= amount <= resources[name]:
            raise LinkError(f"node {node_id} says that {amount} {name} is free, of {resources[name]}")
    for field in ("cpu", "memory_bytes", "net_in_bytes_per_s", "net_out_bytes_per_s"):
        measured = getattr(load, field)
        if measured is not None and not 0 <= measured < math.inf:
            raise LinkError(f"node {node_id} says that {field} is {measured}; it is a number from 0")


def check_occupied(node_id: str, slots: int, occupied: int) -> None:
    """`LinkError` if placed tasks cannot hold so many of the node's slots."""
    if not 0 <= occupied <= slots:
        raise LinkError(f"node {node_id} says that {occupied} of its {slots} slots are occupied")


def check_seconds(node_id: str, field: str, seconds: float) -> None:
    """`LinkError` if a node says a time that cannot be."""
    if not 0 <= seconds < math.inf:
        raise LinkError(f"node {node_id} says that {field} is {seconds}; it is a number of seconds from 0")


def check_blob(blob: BlobRef) -> None:
    """Check a reference to large data that a client gives."""
    addresses = len(blob.at) <= ADDRESSES_MAX and all(len(address) <= ADDRESS_CHARS_MAX for address in blob.at)
    if len(blob.hash) != HASH_CHARS or blob.size < 0 or not addresses:
        raise LinkError(f"{shown(blob)} is no reference to a blob")


def check_given_back(message: GiveBack) -> None:
    """Check outcomes that a client gives back of a job; `LinkError` if they cannot be.

    Names are short, as everywhere: `footprint` does not count them.
    """
    job_id = message.job
    if not 0 < len(job_id.encode()) <= NAME_BYTES_MAX:
        raise LinkError(f"outcomes of job {shown(job_id)} are given back: there can be none")
    for outcome in message.outcomes:
        if outcome.job != job_id:
            raise LinkError(f"job {shown(job_id)}: an outcome of another job is given back")
        if len(outcome.node.encode()) > NAME_BYTES_MAX:
            raise LinkError(f"job {shown(job_id)}: an outcome of node {shown(outcome.node)} is given back")
        if isinstance(outcome.result, BlobRef):
            check_blob(outcome.result)


def check_given(job: JobState, given: tuple[BlobRef, ...]) -> None:
    """Check further data that the job is given; `LinkError` if they cannot be."""
    if job.given_count + len(given) > GIVEN_MAX:
        raise LinkError(f"job {job.id} is given {job.given_count + len(given)} pieces of data; at most {GIVEN_MAX}")
    for blob in given:
        check_blob(blob)


def check_awaited(job: JobState, awaited: Collection[tuple[str, int]]) -> None:
    """Check results of other jobs' tasks that a job awaits; `LinkError` if they cannot be."""
    if job.given_count + len(awaited) > GIVEN_MAX:
        raise LinkError(f"job {job.id} awaits {job.given_count + len(awaited)} results; at most {GIVEN_MAX}")
    for job_id, task in awaited:
        if not 0 < len(job_id.encode()) <= NAME_BYTES_MAX or not 0 <= task < TASKS_PER_JOB_MAX:
            raise LinkError(f"job {job.id} awaits task {shown(task)} of job {shown(job_id)}: there can be none")


def check_tasks(job: JobState, message: AddTasks, bytes_max: int) -> None:
    """Check tasks that have arrived; `LinkError` if they cannot be. With its inputs each must fit a frame to a node."""
    details = message.details
    if details:
        _check_details(job, message.first, len(message.payloads), details)
    for task, payload in enumerate(message.payloads, message.first):
        if isinstance(payload, BlobRef):
            check_blob(payload)
            continue
        size = len(payload)
        if details and task in details:
            size += max(0, INPUT_RANGE_BYTES * len(details[task].inputs) - DETAIL_BYTES_FREE)
        if size > bytes_max:
            raise LinkError(f"job {job.id}: a payload of {size} bytes, with its inputs; at most {bytes_max}")


def check_pairs(job: JobState, details: dict[int, TaskDetail]) -> int:
    """How many pairs there are of one of these tasks and a result that it awaits; `LinkError` if they are too many."""
    expected = job.expected
    pairs = sum([first in expected for detail in details.values() for first, _ in detail.inputs])
    if job.awaited_pairs + pairs > AWAITED_PAIRS_MAX:
        raise LinkError(
            f"job {job.id}: its tasks await {job.awaited_pairs + pairs} results, counted for each task; at most "
            f"{AWAITED_PAIRS_MAX}"
        )
    return pairs


def _check_details(job: JobState, first: int, count: int, details: dict[int, TaskDetail]) -> None:
    before: dict[int, set[int]] = {}
    """Stage whose tasks ask for results to the stages before it."""
    awaited = sorted(job.expected)
    for task, detail in details.items():
        if not first <= task < first + count:
            raise LinkError(f"job {job.id}: details of task {task} come with tasks {first} to {first + count - 1}")
        stage = job.stage_of(task)
        if detail.preferred and not stage.spec.local:
            raise LinkError(f"job {job.id}: task {task} has preferred nodes, its stage says that it is not local")
        if len(detail.preferred) > PREFERRED_MAX or len(set(detail.preferred)) < len(detail.preferred):
            raise LinkError(f"job {job.id}: task {task} prefers more than {PREFERRED_MAX} nodes, or one twice")
        if detail.inputs and stage.index not in before:
            before[stage.index] = {predecessor.index for predecessor in stage.predecessors}
        if len(detail.data) > DATA_NODES_MAX or any(not 0 <= size <= DATA_BYTES_MAX for _, size in detail.data):
            raise LinkError(
                f"job {job.id}: the data of task {task} is at more than {DATA_NODES_MAX} nodes, or its bytes are not "
                f"from 0 to {DATA_BYTES_MAX}"
            )
        if detail.data_bytes is not None:
            least, most = max((size for _, size in detail.data), default=0), DATA_NODES_MAX * DATA_BYTES_MAX
            if not least <= detail.data_bytes <= most:
                raise LinkError(
                    f"job {job.id}: data_bytes of task {task} are {detail.data_bytes}; allowed are {least} to {most}"
                )
        if len({node for node, _ in detail.data}) < len(detail.data):
            raise LinkError(f"job {job.id}: the data of task {task} names a node twice")
        for node, _ in detail.data:
            check_name(f"data of task {task}", node, empty=False)
        if sum(size for _, size in detail.inputs) > INPUTS_MAX:
            raise LinkError(f"job {job.id}: task {task} asks for more than {INPUTS_MAX} results")
        for start, size in detail.inputs:
            if job.is_given(start, size):
                if stage.spec.gang and start in job.expected:
                    raise LinkError(f"job {job.id}: task {task} awaits a result, and its stage is a gang")
                if size > 1 and bisect_left(awaited, start) < bisect_left(awaited, start + size):
                    raise LinkError(
                        f"job {job.id}: task {task} asks for {start} to {start + size - 1} at once, of which it awaits "
                        f"some: it has to name each of these"
                    )
                continue
            source = job.stage_of(start) if 0 <= start < job.task_count else None
            if (
                source is None
                or source.index not in before[stage.index]
                or not 0 < size <= source.first + source.spec.task_count - start
            ):
                raise LinkError(
                    f"job {job.id}: task {task} asks for tasks {start} to {start + size - 1}, which are "
                    f"not of one stage before its own, nor data that the job was given"
                )


def _check_seconds(field: str, seconds: float | None) -> None:
    if seconds is not None:
        check_number(field, seconds, 0, 1e9)


def _check_stage(where: str, stage: Stage, bytes_max: int) -> None:
    check_name(where + "name", stage.name)
    check_name(where + "app", stage.app, empty=False)
    check_name(where + "runtime", stage.runtime)
    check_whole(where + "task_count", stage.task_count, 0, TASKS_PER_JOB_MAX)
    check_number(where + "probe_ratio", stage.probe_ratio, 1, PROBE_RATIO_MAX)
    check_whole(where + "prefetch", stage.prefetch, 0, PREFETCH_MAX)
    _check_seconds(where + "expected_duration_s", stage.expected_duration_s)
    _check_seconds(where + "delay_s", stage.delay_s)
    _check_seconds(where + "task_timeout_s", stage.task_timeout_s)
    check_lease(where + "lease_s", stage.lease_s)
    if stage.demand is not None:
        check_demand(where + "demand", stage.demand)
        if stage.demand and stage.prefetch:
            raise InvalidRequest(where + "prefetch", stage.prefetch, "0 for tasks with a demand")
    if len(stage.where) > constraints.CONSTRAINTS_MAX:
        raise InvalidRequest(where + "where", f"{len(stage.where)} of them", f"at most {constraints.CONSTRAINTS_MAX}")
    for index, constraint in enumerate(stage.where):
        constraints.check(f"{where}where[{index}]", constraint)
    if isinstance(stage.common, BlobRef):
        check_blob(stage.common)
    elif len(stage.common) > bytes_max:
        raise InvalidRequest(where + "common", f"{len(stage.common)} bytes", f"at most {bytes_max} bytes")


def ignore_idle(node: Node, message: Idle, now_s: float) -> None:
    """A node says that it is idle, which matters to no plane but sampling."""
    check_idle(node.id, message.free)
