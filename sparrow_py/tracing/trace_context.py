"""A job's place in a trace, as its tasks are told of it: in the W3C form, beside the function that they call. Pure.

Schedulers and node monitors do not read what calls have in common, so a trace costs them nothing, and a job that is not
traced does not have a byte more.
"""

from __future__ import annotations

import msgspec

from sparrow_py.calls import PythonCommon

TASK_SPANS_MAX = 1_000
"""Tasks of a job that have spans of their own, the first ones; what the others do belongs to the job's."""


class TraceContext(msgspec.Struct, array_like=True, frozen=True):
    """The job's span: the values of the W3C headers of these names. `task_spans`: so many of its first tasks have spans
    of their own that tasks' own spans are within; the ids of these are `run_span_id`."""

    traceparent: str
    tracestate: str = ""
    task_spans: int = 0


class TracedCommon(PythonCommon, array_like=True, frozen=True):
    """As `PythonCommon`, of a job that may be traced."""

    trace: TraceContext | None = None


def with_trace(common: bytes, trace: TraceContext) -> bytes:
    """The common bytes of calls, with the job's place in a trace; those that were given, if they are not of calls."""
    try:
        plain = msgspec.msgpack.decode(common, type=PythonCommon)
    except msgspec.MsgspecError:
        return common
    return msgspec.msgpack.encode(TracedCommon(**msgspec.structs.asdict(plain), trace=trace))


def run_span_id(job_span_id: int, task: int) -> int:
    """The id of the span of a task's run. Worker and client both know of what it is made, so that no message has to
    carry an id for each task. task: its number in the job."""
    import hashlib  # Which workers that run no traced job do without.

    words = job_span_id.to_bytes(8) + task.to_bytes(8)
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest()) or 1
