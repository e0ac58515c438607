"""Spans of a client's jobs and of their tasks, for OpenTelemetry: made from what clients are told in any case.

A job's span begins with its submission, in the context of whoever submits it, and ends with its last task. An outcome
says when nodes were sought for its task, when that began and how long it ran; so the client makes the spans of what
scheduler, node and executor did, and none of them has to export anything. Times are those of the machine where
something happened, so they differ by what clocks do.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sparrow_py import calls
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption, ResultLost, SparrowError
from sparrow_py.job import FINISHED, JobSpec, StageSpec
from sparrow_py.session.job_sink import JobSink
from sparrow_py.tracing.trace_context import TASK_SPANS_MAX, TraceContext, run_span_id, with_trace

if TYPE_CHECKING:
    from opentelemetry.trace import Span, SpanContext, Tracer, TracerProvider

    from sparrow_py.session.letting_go import Told
    from sparrow_py.wire import messages as m

SCOPE = "sparrow_py"
"""The instrumentation scope of all spans. Its tracer is ours alone."""
_tracer_lock = threading.Lock()
"""Held while the tracer is given its generator of ids: several clients may have one tracer."""


def job_spans(tracing: bool | TracerProvider) -> JobSpans | None:
    """What `Client(tracing=…)` asks for: None without, else with the global tracer provider or the one that is given.

    `ModuleNotFoundError` if OpenTelemetry is not installed, `InvalidOption` for anything else.
    """
    if tracing is False:
        return None
    if tracing is not True and not callable(getattr(tracing, "get_tracer", None)):
        raise InvalidOption("tracing", tracing, "True, False or a tracer provider of OpenTelemetry")
    try:
        import opentelemetry.trace  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"tracing needs OpenTelemetry: {install_command('otel')}", name=error.name) from None
    return JobSpans(None if tracing is True else tracing)


class _GivenIds:
    """An id generator that gives the next span of a thread the id that was asked for, and others what the provider's
    own gives."""

    def __init__(self, own: Any) -> None:
        self._own = own
        self._next = threading.local()

    def give(self, span_id: int) -> None:
        """The next span that this thread begins has this id; 0: whichever is next."""
        self._next.span_id = span_id

    def generate_span_id(self) -> int:
        """See OpenTelemetry's `IdGenerator`."""
        given: int = getattr(self._next, "span_id", 0)
        self._next.span_id = 0
        return given or self._own.generate_span_id()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


class JobSpans:
    """Makes the spans of a session's jobs."""

    def __init__(self, provider: TracerProvider | None = None) -> None:
        self._provider = provider
        self._open: dict[str, TracedSink] = {}
        """Those of jobs that have not ended, by their ids."""

    def parent(self) -> SpanContext:
        """The span that is current for the caller; an invalid one if none is."""
        from opentelemetry.trace import get_current_span

        return get_current_span().get_span_context()

    def begin(
        self, spec: JobSpec, sink: JobSink, parent: SpanContext, now_s: float, *, twice: bool
    ) -> tuple[JobSpec, JobSink]:
        """The job is submitted: returns what is to be submitted in its place, and who is to be told of it.

        twice: whether its slow tasks are submitted again, in jobs of their own: then tasks' own spans are within the
        job's, as nobody knows which run of a task they are of.
        """
        from opentelemetry import trace as api

        tracer, ids = self._tracer()
        tasks = sum(len(stage.tasks) for stage in spec.as_stages())
        context = api.set_span_in_context(api.NonRecordingSpan(parent), _empty_context())
        attributes = {"sparrow.job_id": spec.job_id, "sparrow.app": _apps(spec), "sparrow.tasks": tasks}
        name = spec.name or spec.app
        span = tracer.start_span(
            f"job {name}", context, api.SpanKind.PRODUCER, attributes, start_time=_nanoseconds(now_s)
        )
        recorded = span.is_recording()
        trace = _trace_context(span, 0 if twice or ids is None or not recorded else TASK_SPANS_MAX)
        if trace is not None:
            spec = _with_trace(spec, trace)
        if not recorded:
            return spec, sink
        traced = TracedSink(sink, span, tracer, ids if trace is not None and trace.task_spans else None, tasks, now_s)
        traced.over = lambda: self._open.pop(spec.job_id, None)
        self._open[spec.job_id] = traced
        return spec, traced

    def _tracer(self) -> tuple[Tracer, _GivenIds | None]:
        """Our tracer, and how to give its spans ids; None if it is none of the SDK's."""
        from opentelemetry.trace import get_tracer_provider

        tracer: Any = (self._provider or get_tracer_provider()).get_tracer(SCOPE)
        with _tracer_lock:
            ids = getattr(tracer, "id_generator", None)
            if ids is not None and not isinstance(ids, _GivenIds):
                ids = tracer.id_generator = _GivenIds(ids)
        return tracer, ids

    def told_of_detaching(self, job_id: str, told: Told) -> Told:
        """In the place of `told`: the job's span ends if its client lets go of it."""

        def tell(error: SparrowError | None) -> None:
            if error is None:
                self.end(job_id, "")
            told(error)

        return tell

    def end(self, job_id: str, error: str) -> None:
        """Nothing more is told of the job, if it has not ended. error: why; empty if that is as it should be."""
        traced = self._open.get(job_id)
        if traced is not None:
            traced.end(error)

    def close(self) -> None:
        """The client is closed."""
        for job_id in list(self._open):
            self.end(job_id, "the client was closed")


class TracedSink(JobSink):
    """Makes spans of what is told, and passes it on."""

    __slots__ = ("_ids", "_inner", "_left", "_span", "_submitted_s", "_tracer", "over")

    over: Callable[[], object]
    """Called when the job's span has ended."""

    def __init__(
        self, inner: JobSink, span: Span, tracer: Tracer, ids: _GivenIds | None, tasks: int, submitted_s: float
    ) -> None:
        self._inner = inner
        self._span = span
        self._tracer = tracer
        self._ids = ids
        self._left = tasks
        """Tasks that have not ended."""
        self._submitted_s = submitted_s

    def end(self, error: str = "") -> None:
        """The job's span ends, if it has not ended."""
        if self._span.is_recording():
            if error:
                self._span.set_status(_failed(error))
            self._span.end()
            self.over()

    # ---- what is told --------------------------------------------------------------------------

    def accepted(self) -> None:
        self._span.add_event("accepted")
        self._inner.accepted()

    def refuse(self, error: SparrowError) -> None:
        self.end(str(error))
        self._inner.refuse(error)

    def placed(self, task: int) -> None:
        self._inner.placed(task)

    def not_cancelled(self, task: int) -> None:
        self._inner.not_cancelled(task)

    def fetching(self, outcome: m.Outcome) -> None:
        self._inner.fetching(outcome)

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        if outcome.task < TASK_SPANS_MAX:
            self._show(outcome, lost)
        self._left -= 1
        if not self._left:  # Before its caller hears of it, who may look at the trace then.
            self.end()
        self._inner.settle(outcome, lost)

    def finish(self) -> None:
        self.end()
        self._inner.finish()

    # ---- a task --------------------------------------------------------------------------------

    def _show(self, outcome: m.Outcome, lost: ResultLost | None) -> None:
        """The spans of a task that has ended, and of what was done for it."""
        from opentelemetry import trace as api

        submitted_s, reserved_s, started_s = self._submitted_s, outcome.reserved_at_s, outcome.started_at_s
        ended_s = None if started_s is None or outcome.service_s is None else started_s + outcome.service_s
        error = str(lost) if lost is not None else "" if outcome.status is FINISHED else outcome.error
        attributes: dict[str, Any] = {
            "sparrow.task": outcome.task,
            "sparrow.status": outcome.status.value,
            "sparrow.attempts": outcome.attempts,
        }
        if outcome.node:
            attributes["sparrow.node"] = outcome.node
        job = api.set_span_in_context(self._span, _empty_context())
        times_s = [at for at in (submitted_s, reserved_s, started_s, ended_s) if at is not None and math.isfinite(at)]
        task = self._tracer.start_span("task", job, attributes=attributes, start_time=_nanoseconds(submitted_s))
        if error:
            task.set_status(_failed(error))
        within = api.set_span_in_context(task, _empty_context())
        for name, begun_s, over_s in (
            ("reserve", submitted_s, reserved_s),
            ("wait", reserved_s, started_s),
            ("run", started_s, ended_s),
        ):
            if begun_s is None or over_s is None or not math.isfinite(begun_s + over_s):
                continue
            if name == "run" and self._ids is not None:
                self._ids.give(run_span_id(self._span.get_span_context().span_id, outcome.task))
            step = self._tracer.start_span(name, within, attributes=attributes, start_time=_nanoseconds(begun_s))
            if self._ids is not None:
                self._ids.give(0)
            if name == "run" and error:
                step.set_status(_failed(error))
            step.end(_nanoseconds(max(begun_s, over_s)))
        task.end(_nanoseconds(max(times_s)))


def _empty_context() -> Any:
    from opentelemetry.context import Context

    return Context()


def _failed(error: str) -> Any:
    from opentelemetry.trace import Status, StatusCode

    return Status(StatusCode.ERROR, error)


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)


def _apps(spec: JobSpec) -> str:
    return ",".join(dict.fromkeys(stage.app for stage in spec.as_stages()))


def _trace_context(span: Span, task_spans: int) -> TraceContext | None:
    """What the job's tasks are told; None if there is no trace."""
    from opentelemetry import trace as api
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    headers: dict[str, str] = {}
    TraceContextTextMapPropagator().inject(headers, api.set_span_in_context(span, _empty_context()))
    if "traceparent" not in headers:
        return None
    return TraceContext(headers["traceparent"], headers.get("tracestate", ""), task_spans)


def _with_trace(spec: JobSpec, trace: TraceContext) -> JobSpec:
    """The job, the calls among whose tasks are told of their trace."""
    if not spec.stages:
        return replace(spec, common=_common(spec, trace))
    stages: Sequence[StageSpec] = [replace(stage, common=_common(stage, trace)) for stage in spec.stages]
    return replace(spec, stages=stages)


def _common(stage: StageSpec, trace: TraceContext) -> Any:
    common = stage.common
    return with_trace(common, trace) if stage.app == calls.APP and isinstance(common, bytes) and common else common
