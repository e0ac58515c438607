"""Inputs of a job that are too large for a message: uploaded, and replaced by references, before it is submitted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import cast

from sparrow_py.errors import SparrowError
from sparrow_py.job import BlobRef, JobSpec, StageSpec, TaskSpec, TaskStatus
from sparrow_py.session.core import unrun
from sparrow_py.session.job_sink import JobSink
from sparrow_py.speculation import Speculation
from sparrow_py.wire import blobs

INLINE_BYTES_MAX = 900 << 10
"""Inputs above this size, a little less than a frame has room for, are uploaded."""


def has_large(spec: JobSpec) -> bool:
    """Whether something of the job is to be uploaded."""
    return any([_has_large_tasks(stage) for stage in spec.as_stages()]) or _commons_are_large(spec)


def _has_large_tasks(stage: StageSpec) -> bool:
    return any(map(is_large, stage.tasks))


def is_large(task: bytes | BlobRef | TaskSpec) -> bool:
    """Whether the task's payload is to be uploaded."""
    payload = task.payload if isinstance(task, TaskSpec) else task
    return isinstance(payload, bytes) and len(payload) > INLINE_BYTES_MAX


def _commons_are_large(spec: JobSpec) -> bool:
    """Whether the stages' common bytes, which travel in one message, are too large together."""
    return sum([len(stage.common) for stage in spec.as_stages() if isinstance(stage.common, bytes)]) > INLINE_BYTES_MAX


async def with_references(
    spec: JobSpec, upload: Callable[[bytes, str], Awaitable[BlobRef]]
) -> tuple[JobSpec, dict[str, bytes]]:
    """The job with references in place of what is large, and what was uploaded, by its hash.

    `upload` is given data and hash; raises what it raises.
    """
    uploads: dict[str, bytes] = {}
    known: dict[str, BlobRef] = {}

    async def reference(data: bytes | BlobRef, bytes_max: int = INLINE_BYTES_MAX) -> bytes | BlobRef:
        if not isinstance(data, bytes) or len(data) <= bytes_max:
            return data
        hash_ = await blobs.sha256_hex_aside(data)
        if hash_ not in known:  # What many tasks are given is uploaded once.
            known[hash_] = await upload(data, hash_)
            uploads[hash_] = data
        return known[hash_]

    common_bytes_max = 0 if _commons_are_large(spec) else INLINE_BYTES_MAX
    stages = []
    for stage in spec.as_stages():
        common = await reference(stage.common, common_bytes_max)
        tasks = [
            replace(task, payload=await reference(task.payload))
            if isinstance(task, TaskSpec)
            else await reference(task)
            for task in stage.tasks
        ]
        stages.append(replace(stage, common=common, tasks=tasks))
    return replace(spec, stages=stages) if spec.stages else cast("JobSpec", stages[0]), uploads


class Preparing:
    """A job whose large inputs are being uploaded."""

    def __init__(self, spec: JobSpec, sink: JobSink, speculate: Speculation | None) -> None:
        self.spec = spec
        self.sink = sink
        self.speculate = speculate
        self.task_count = sum(len(stage.tasks) for stage in spec.as_stages())
        self.cancelling: dict[int, bool] = {}
        """Tasks that were cancelled meanwhile, and whether even if they run."""
        self.work: asyncio.Task[None] | None = None

    def refuse(self, error: SparrowError) -> None:
        """No scheduler will have the job."""
        self._give_up()
        self.sink.refused(error)

    def withdraw(self) -> None:
        """The job is cancelled before a scheduler has it."""
        self._give_up()
        for task in range(self.task_count):
            reason = "it was cancelled before its inputs were uploaded"
            self.sink.outcome(unrun(self.spec.job_id, task, TaskStatus.CANCELLED, reason))
        self.sink.ended()

    def _give_up(self) -> None:
        if self.work is not None:
            self.work.cancel()
