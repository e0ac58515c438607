"""In a worker: while a task of a traced job runs, OpenTelemetry's current span is that of its run, so that the spans
that the task makes are within it. Where OpenTelemetry is not installed nothing happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from sparrow_py.tracing.trace_context import TraceContext, run_span_id

T = TypeVar("T")
_is_traced = False


def is_traced() -> bool:
    """Whether a task of a traced job runs in this process."""
    return _is_traced


def in_trace(trace: TraceContext, task: int, call: Callable[[], T]) -> T:
    """What `call` returns, made where the current span is that of this task's run. task: its number in the job."""
    global _is_traced  # noqa: PLW0603
    leave = _enter(trace, task)
    _is_traced = True
    try:
        return call()
    finally:
        _is_traced = False
        leave()


def _enter(trace: TraceContext, task: int) -> Callable[[], None]:
    """Make it the current span; returns what takes that back."""
    try:
        from opentelemetry import context as contexts
        from opentelemetry.trace import NonRecordingSpan, SpanContext, get_current_span, set_span_in_context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
    except Exception:  # It is not there, or is broken: the task runs all the same.
        return _nothing
    headers = {"traceparent": trace.traceparent, "tracestate": trace.tracestate}
    context = TraceContextTextMapPropagator().extract(headers, contexts.Context())
    job = get_current_span(context).get_span_context()
    if job.is_valid and task < trace.task_spans:
        span_id = run_span_id(job.span_id, task)
        run = SpanContext(
            job.trace_id, span_id, is_remote=True, trace_flags=job.trace_flags, trace_state=job.trace_state
        )
        context = set_span_in_context(NonRecordingSpan(run), context)
    token = contexts.attach(context)
    return lambda: contexts.detach(token)


def _nothing() -> None:
    """There is nothing to take back."""
