"""What a submission must be like, whoever sent it. Raises `InvalidRequest` naming the field."""

from __future__ import annotations

import math

from sparrow_py.errors import InvalidRequest
from sparrow_py.job import (
    MAX_ATTEMPTS_MAX,
    PREFETCH_MAX,
    PROBE_RATIO_MAX,
    check_name,
    check_number,
    check_whole,
)
from sparrow_py.messages import FRAME_BYTES_MAX, MESSAGE_OVERHEAD_BYTES, NodeInfo, Stage, SubmitJob

STAGES_MAX = 1
"""Jobs of several stages are not scheduled yet."""
EPOCH_MAX = (1 << 22) - 1
SLOTS_MAX = 1 << 16
TASKS_PER_JOB_MAX = 1 << 31


def check_submission(job: SubmitJob, bytes_max: int = FRAME_BYTES_MAX - MESSAGE_OVERHEAD_BYTES) -> None:
    """Check every field of a `SubmitJob`; its common bytes may be `bytes_max`."""
    check_name("job_id", job.job, empty=False)
    check_name("name", job.name)
    check_whole("epoch", job.epoch, 0, EPOCH_MAX)
    check_whole("max_attempts", job.max_attempts, 1, MAX_ATTEMPTS_MAX)
    if job.queue_timeout_s is not None:
        check_number("queue_timeout_s", job.queue_timeout_s, 0, math.inf)
    if not 1 <= len(job.stages) <= STAGES_MAX:
        raise InvalidRequest("stages", len(job.stages), f"exactly {STAGES_MAX} stage per job in this version")
    for stage in job.stages:
        _check_stage(stage)
        if len(stage.common) > bytes_max:
            raise InvalidRequest("common", f"{len(stage.common)} bytes", f"at most {bytes_max} bytes")


def check_node(node: NodeInfo) -> None:
    """Check what a node monitor says of its node."""
    check_whole("slots", node.slots, 0, SLOTS_MAX)


def _check_stage(stage: Stage) -> None:
    check_name("app", stage.app, empty=False)
    check_name("runtime", stage.runtime)
    check_whole("task_count", stage.task_count, 0, TASKS_PER_JOB_MAX)
    check_number("probe_ratio", stage.probe_ratio, 1, PROBE_RATIO_MAX)
    check_whole("prefetch", stage.prefetch, 0, PREFETCH_MAX)
    if stage.expected_duration_s is not None:
        check_number("expected_duration_s", stage.expected_duration_s, 0, 1e9)
    if stage.demand is not None:
        raise InvalidRequest("demand", stage.demand, "no demand in this version")
