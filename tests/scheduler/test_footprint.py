"""What a job makes a scheduler hold, in bytes: each thing that a user may send counts, and counts for what it takes."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from scheduler.book.footprint import (
    DETAIL_BYTES,
    JOB_BYTES,
    RANGE_BYTES,
    REF_BYTES,
    STAGE_BYTES,
    TASK_BYTES,
    TEXT_BYTES,
    job_bytes,
    known_bytes,
    ref_bytes,
    stage_bytes,
    tasks_bytes,
)
from scheduler.book.jobs import JobState
from sparrow_py.constraints import Constraint
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission

REF = BlobRef("f" * 64, 1 << 30, ("a:1", "host.example:65535"))
REF_SIZE = REF_BYTES + 2 * TEXT_BYTES + len("a:1") + len("host.example:65535")
STAGE = m.Stage("many", 1, b"", "", 2.0, 0, None)
BARE = STAGE_BYTES + TEXT_BYTES


@pytest.mark.parametrize(
    ("fields", "more"),
    [
        ({}, 0),
        ({"name": "wash"}, 4),
        ({"after": ("a", "bc")}, 2 * TEXT_BYTES + 3),
        ({"demand": {"gpu": 1.0}}, TEXT_BYTES + 3),
        ({"where": (Constraint("zone", "in", ("eu", "us")),)}, 3 * TEXT_BYTES + 8),
        ({"common": REF}, REF_SIZE),
        ({"common": b"x" * 1000}, 0),  # Bytes that are common to tasks count as they are, while they are held.
    ],
    ids=["nothing", "name", "after", "demand", "where", "large common bytes", "common bytes"],
)
def test_a_stage_counts_for_its_texts(fields: dict[str, Any], more: int) -> None:
    assert stage_bytes(msgspec.structs.replace(STAGE, **fields)) == BARE + more


@pytest.mark.parametrize("tasks", [0, 1, 1_000_000])
def test_tasks_count_when_they_are_announced(tasks: int) -> None:
    assert job_bytes(submission(tasks=tasks)) == JOB_BYTES + BARE + TASK_BYTES * tasks


def test_a_job_counts_for_all_its_stages() -> None:
    stages = [msgspec.structs.replace(STAGE, name=name, task_count=2) for name in ("a", "bb")]
    assert (
        job_bytes(m.SubmitJob("j", 0, "", stages, 3, False, None, False)) == JOB_BYTES + 2 * (BARE + 2 * TASK_BYTES) + 3
    )


def test_payloads_do_not_count_twice_and_references_do() -> None:
    assert tasks_bytes([b"x" * 1000, b""], {}) == 0
    assert tasks_bytes([REF, b"", REF], {}) == 2 * REF_SIZE == 2 * ref_bytes(REF)


def test_preferred_nodes_and_inputs_of_tasks_count() -> None:
    details = {0: m.TaskDetail(("n1", "n22")), 1: m.TaskDetail((), ((0, 1), (5, 1_000_000)))}
    assert tasks_bytes([b""] * 2, details) == 2 * DETAIL_BYTES + 2 * TEXT_BYTES + 5 + 2 * RANGE_BYTES
    data = {0: m.TaskDetail(data=(("n1", 5), ("n22", 1 << 40)))}
    assert tasks_bytes([b""], data) == DETAIL_BYTES + 2 * TEXT_BYTES + 5 + 2 * RANGE_BYTES


@pytest.mark.parametrize(("result", "size"), [(b"x" * 70, 70), (b"", 0), (REF, REF_SIZE)], ids=["bytes", "none", "ref"])
def test_a_known_result_counts_as_it_is_held(result: m.Data, size: int) -> None:
    assert known_bytes(m.KnownOutcome(0, TaskStatus.FINISHED, result)) == size


def with_many_stages() -> m.SubmitJob:
    names = [f"stage {number}" for number in range(300)]
    stages = [
        msgspec.structs.replace(STAGE, name=name, after=tuple(names[max(0, number - 3) : number]))
        for number, name in enumerate(names)
    ]
    return m.SubmitJob("j", 0, "", stages, 3, False, None, False)


def with_many_tasks() -> m.SubmitJob:
    return submission(tasks=20_000)


@pytest.mark.parametrize("make", [with_many_stages, with_many_tasks])
def test_the_constants_are_no_less_than_what_a_job_takes(make: Callable[[], m.SubmitJob]) -> None:
    """As Python's allocator counts, from the frame on, which decodes the texts anew."""
    frame = msgspec.msgpack.encode(make())
    tracemalloc.start()
    try:
        job = JobState(msgspec.msgpack.decode(frame, type=m.SubmitJob), "c", "anna", 0.0)
        for stage in job.stages:
            stage.add_tasks([b""] * stage.spec.task_count, {})
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken <= job.fixed_bytes == job_bytes(make())
