"""The outcome of a task as a line of JSON, and the lines that a reader of a job's results gets next."""

from __future__ import annotations

import msgspec
import orjson
from msgspec import UNSET, Raw, UnsetType

from scheduler.http.job import BareFailure, BareLine, HttpJob, beginning_of
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m

BATCH_BYTES = 256 << 10
"""Written to a reader at a time; at most one line more."""
BARE_LINES_MAX = 200
"""In that: each is made for each reader anew, which takes a millisecond or two."""
NO_ROOM = "http_results_bytes_max: there was room for the status, the attempts and some errors alone"


class Blob(msgspec.Struct):
    """A large result, which is fetched from a node monitor."""

    hash: str
    size: int
    urls: list[str]


class ResultLine(msgspec.Struct, kw_only=True):
    """What became of a task. Its result is one of `result`, if it is JSON, `result_base64`, `blob` and `dropped`."""

    task: int
    """Its number in the job, from 0, through all stages."""
    stage: str
    id: str | UnsetType = UNSET
    status: TaskStatus
    result: Raw | UnsetType = UNSET
    result_base64: bytes | UnsetType = UNSET
    blob: Blob | UnsetType = UNSET
    dropped: str | UnsetType = UNSET
    """Why the result, the output and most of a long error are not here."""
    error: str
    attempts: int
    node: str
    started_at_s: float | None
    service_s: float | None
    stdout: str
    stderr: str
    earlier_errors: tuple[str, ...] | UnsetType = UNSET
    """The beginnings of the errors of its last failures that were retried, if there were any."""


def encode_line(job: HttpJob, outcome: m.Outcome, *, scheme: str = "http", dropped: str = "") -> bytes:
    """The outcome as a line. `scheme`: how node monitors are asked for large results. `dropped`: why the line has
    neither the result nor the output, and only the beginning of its error."""
    line = ResultLine(
        task=outcome.task,
        stage=job.stage_of(outcome.task).name,
        id=job.ids.get(outcome.task, UNSET),
        status=outcome.status,
        error=beginning_of(outcome.error) if dropped else outcome.error,
        attempts=outcome.attempts,
        node=outcome.node,
        started_at_s=outcome.started_at_s,
        service_s=outcome.service_s,
        stdout="" if dropped else outcome.stdout,
        stderr="" if dropped else outcome.stderr,
    )
    if dropped:
        line.dropped = dropped
    else:
        line.earlier_errors = outcome.earlier_errors or UNSET
        _put_result(line, outcome.result, scheme)
    return msgspec.json.encode(line) + b"\n"


def lines_from(job: HttpJob, position: int) -> tuple[bytes, int]:
    """About `BATCH_BYTES` of the job's lines from a reader's position, and its next position."""
    batch: list[bytes] = []
    size = bare_lines = 0
    while position < len(job.lines) and size < BATCH_BYTES and bare_lines < BARE_LINES_MAX:
        line = job.lines[position]
        if isinstance(line, BareLine):
            line = _encode_bare(job, line)
            bare_lines += 1
        batch.append(line)
        size += len(line)
        position += 1
    return b"".join(batch), position


def _encode_bare(job: HttpJob, bare: BareLine) -> bytes:
    error = "" if bare.status is TaskStatus.FINISHED else NO_ROOM
    if isinstance(bare, BareFailure):
        error = bare.error
    outcome = m.Outcome(job.id, bare.task, bare.status, b"", error, bare.attempts, "", None, None, None)
    return encode_line(job, outcome, dropped=NO_ROOM)


def _put_result(line: ResultLine, result: m.Data, scheme: str) -> None:
    if isinstance(result, BlobRef):
        urls = [f"{scheme}://{address}/v1/blobs/{result.hash}" for address in result.at]
        line.blob = Blob(result.hash, result.size, urls)
    elif (value := json_value(result)) is not None:
        line.result = Raw(value)
    else:
        line.result_base64 = result


def json_value(data: bytes) -> bytes | None:
    """The JSON value that the bytes are, on one line, or None. No bytes at all are null."""
    if not data:
        return b"null"
    try:
        orjson.loads(data)  # Stricter than msgspec: it looks into text, and at numbers.
        return msgspec.json.format(data, indent=-1)
    except (ValueError, msgspec.MsgspecError, RecursionError):
        return None
