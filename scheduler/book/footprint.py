"""What a job makes a scheduler hold, in bytes, so that whatever a user submits counts to its `held_bytes_max`.

Payloads and results count as they are, while they are held. All else counts from when it comes until the job ends, by
these constants: what CPython takes, measured and rounded up, so that neither a million empty stages nor long lists of
names are memory that nobody counts.

A task that is cancelled or lost without a report has no outcome in memory before its client may be told soon: until
then the task is a byte of its stage (`Leave`), which `TASK_BYTES` cover.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from sparrow_py.job import BlobRef

if TYPE_CHECKING:
    from sparrow_py.wire.messages import Data, KnownOutcome, Outcome, Stage, SubmitJob, TaskDetail

JOB_BYTES = 2000
STAGE_BYTES = 2208
TASK_BYTES = 50
"""Of every task that is announced."""
DETAIL_BYTES = 500
"""Of a task that has preferred nodes or inputs."""
TEXT_BYTES = 110
"""Of a name or text, besides its characters."""
RANGE_BYTES = 130
"""Of a range of inputs."""
REF_BYTES = 300
"""Of a reference to large data, besides its addresses."""
AWAITED_BYTES = 1000
"""Of a result of another job's task that is awaited, besides the job's id: both jobs know of it."""
ASKED_BYTES = 150
"""Of a result of another job's task that a task is to wait for: each knows of the other."""
RETRY_BYTES = 1000
"""Of a stage's retry policy, and what there is of it before a task has failed."""
RETRIED_BYTES = 1500
"""Of a task that has failed and is to run again: its count, its delay and what its failures said."""
OUTCOME_BYTES = 600
"""Of an outcome, besides its result and texts."""
AVOIDED_BYTES = 700
"""Of a job that another is to avoid: both know of each other."""
UTF8_BYTES_MAX = 4
"""Of a character."""


def job_bytes(job: SubmitJob) -> int:
    """Of a job with its stages and the tasks that are to come, without what is common to them."""
    size = JOB_BYTES + AVOIDED_BYTES * len(job.avoid)
    for stage in job.stages:
        size += TASK_BYTES * stage.task_count + stage_bytes(stage)
    return size


def stage_bytes(stage: Stage) -> int:
    """Of a stage without its tasks and what is common to them."""
    size = STAGE_BYTES + TEXT_BYTES + len(stage.name)
    if stage.retry is not None:
        size += RETRY_BYTES
    if stage.after or stage.demand:
        size += _texts((*stage.after, *(stage.demand or ())))
    for constraint in stage.where:
        size += _texts((constraint.attribute, *constraint.values))
    if isinstance(stage.common, BlobRef):
        size += ref_bytes(stage.common)
    return size


def tasks_bytes(payloads: Iterable[Data], details: dict[int, TaskDetail], given: Iterable[BlobRef] = ()) -> int:
    """Of tasks that have come, besides their payloads: references to large data, and what few tasks have."""
    size = sum([ref_bytes(payload) for payload in payloads if type(payload) is BlobRef])
    size += sum([ref_bytes(ref) for ref in given])
    for detail in details.values():
        size += DETAIL_BYTES + _texts(detail.preferred) + RANGE_BYTES * len(detail.inputs)
        if detail.data:
            size += _texts(node for node, _ in detail.data) + RANGE_BYTES * len(detail.data)
    return size


def awaited_bytes(awaited: Iterable[tuple[str, int]]) -> int:
    """Of results of other jobs' tasks, before they are here."""
    return sum([AWAITED_BYTES + len(job_id) for job_id, _ in awaited])


def failure_bytes(result: Data, error: str) -> int:
    """Of how a task ended whose result is awaited, if it did not finish."""
    return (ref_bytes(result) if isinstance(result, BlobRef) else len(result)) + TEXT_BYTES + _characters(error)


def known_bytes(known: KnownOutcome) -> int:
    """Of the result of a task that is to come, and has ended elsewhere."""
    return ref_bytes(known.result) if isinstance(known.result, BlobRef) else len(known.result)


def outcome_bytes(outcome: Outcome) -> int:
    """Of an outcome that its client may not have."""
    result = outcome.result
    size = OUTCOME_BYTES + (ref_bytes(result) if isinstance(result, BlobRef) else len(result))
    for text in (outcome.error, outcome.stdout, outcome.stderr):
        if text:
            size += _characters(text)
    for text in outcome.earlier_errors:
        size += TEXT_BYTES + _characters(text)
    return size


def unrun_bytes(reason: str) -> int:
    """Of an outcome that has nothing but its reason."""
    return OUTCOME_BYTES + _characters(reason)


def ref_bytes(ref: BlobRef) -> int:
    """Of a reference to large data."""
    return REF_BYTES + _texts(ref.at)


def _characters(text: str) -> int:
    return len(text) if text.isascii() else UTF8_BYTES_MAX * len(text)


def _texts(texts: Iterable[str]) -> int:
    return sum([TEXT_BYTES + len(text) for text in texts])
