"""Spans of jobs and tasks: what a client makes of what it is told, and what tasks are told of their trace."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

pytest.importorskip("opentelemetry.sdk", reason="the SDK of OpenTelemetry is not installed")

from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from sparrow_py import AsyncClient, CallOptions, CallStage, Client, JobSpec, LocalCluster, ResultOf, Speculation, calls
from sparrow_py.errors import InvalidOption, ResultLost, SparrowError
from sparrow_py.job import TaskStatus
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.job_spans import JobSpans, job_spans
from sparrow_py.tracing.in_task import in_trace, is_traced
from sparrow_py.tracing.trace_context import TASK_SPANS_MAX, TraceContext, TracedCommon, run_span_id
from sparrow_py.wire import messages as m
from tests.support.waiting import TIMEOUT_S

COMMON = calls.encode_function(len)


class Spans:
    """A tracer provider, and what it has exported."""

    def __init__(self, **options: Any) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.tracer = self.provider.get_tracer("test")

    def all(self) -> list[ReadableSpan]:
        """In the order of their ends."""
        return list(self._exporter.get_finished_spans())

    def of(self, name: str) -> ReadableSpan:
        """The one of this name."""
        (found,) = [span for span in self.all() if span.name == name]
        return found


class Inner(JobSink):
    """The sink of a job, which keeps what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def refuse(self, error: SparrowError) -> None:
        self.told.append(error)

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        self.told.append(outcome.task)

    def finish(self) -> None:
        self.told.append("finished")


class Job:
    """A job of calls that was submitted at 100 s."""

    def __init__(self, spans: Spans, tasks: int = 1, parent: api.SpanContext = api.INVALID_SPAN_CONTEXT) -> None:
        self.inner, self.tracing = Inner(), JobSpans(spans.provider)
        spec = JobSpec([b""] * tasks, job_id="j", name="squares", app=calls.APP, common=COMMON)
        self.spec, self.sink = self.tracing.begin(spec, self.inner, parent, 100.0, twice=False)
        self.sink.begin(self.spec, lambda *_: None)

    @property
    def trace(self) -> TraceContext:
        """What its tasks are told."""
        found = trace_of(self.spec)
        assert found is not None
        return found

    def ends(self, task: int = 0, status: TaskStatus = TaskStatus.FINISHED, error: str = "", **more: Any) -> None:
        """A task that was reserved for at 101 s began at 103 s and ran for 0.5 s."""
        times = {"reserved_at_s": 101.0, "started_at_s": 103.0, "service_s": 0.5} | more
        self.sink.outcome(m.Outcome("j", task, status, b"", error, 1, "node", **times))


def trace_of(spec: JobSpec) -> TraceContext | None:
    assert isinstance(spec.common, bytes)
    return msgspec.msgpack.decode(spec.common, type=TracedCommon).trace


def id_of(span: ReadableSpan | api.Span) -> int:
    return span.get_span_context().span_id  # type: ignore[union-attr]


def parent_of(span: ReadableSpan) -> int:
    return 0 if span.parent is None else span.parent.span_id


def seconds(span: ReadableSpan) -> tuple[float, float]:
    assert span.start_time is not None and span.end_time is not None
    return span.start_time / 1e9, span.end_time / 1e9


# ---- what a client makes of outcomes -----------------------------------------------------------


def test_a_task_has_spans_of_what_was_done_for_it() -> None:
    spans = Spans()
    with spans.tracer.start_as_current_span("caller") as caller:
        job = Job(spans, parent=JobSpans(spans.provider).parent())
    job.ends()
    whole, task = spans.of("job squares"), spans.of("task")
    assert whole.kind is SpanKind.PRODUCER
    assert dict(whole.attributes or {}) == {"sparrow.job_id": "j", "sparrow.app": calls.APP, "sparrow.tasks": 1}
    assert parent_of(whole) == id_of(caller) and parent_of(task) == id_of(whole)
    assert seconds(task) == (100.0, 103.5)
    steps = {name: spans.of(name) for name in ("reserve", "wait", "run")}
    assert {name: seconds(step) for name, step in steps.items()} == {
        "reserve": (100.0, 101.0), "wait": (101.0, 103.0), "run": (103.0, 103.5),
    }  # fmt: skip
    assert {parent_of(step) for step in steps.values()} == {id_of(task)}
    attributes = {"sparrow.task": 0, "sparrow.status": "finished", "sparrow.attempts": 1, "sparrow.node": "node"}
    assert dict(steps["run"].attributes or {}) == dict(task.attributes or {}) == attributes
    traces = {span.get_span_context().trace_id for span in spans.all()}  # type: ignore[union-attr]
    assert len(traces) == 1
    assert job.inner.told == [0]


def test_the_span_of_a_run_has_the_id_that_its_worker_knows() -> None:
    spans = Spans()
    job = Job(spans, tasks=2)
    job.ends(1)
    assert id_of(spans.of("run")) == run_span_id(int(job.trace.traceparent.split("-")[2], 16), 1)
    assert len({id_of(span) for span in spans.all()}) == len(spans.all())


def test_what_never_happened_has_no_span() -> None:
    spans = Spans()
    Job(spans).ends(status=TaskStatus.CANCELLED, error="it was cancelled", started_at_s=None, service_s=None)
    assert [span.name for span in spans.all()] == ["reserve", "task", "job squares"]
    status = spans.of("task").status
    assert (status.status_code, status.description) == (StatusCode.ERROR, "it was cancelled")


def test_a_run_that_failed_says_why() -> None:
    spans = Spans()
    Job(spans).ends(status=TaskStatus.FAILED, error="ValueError: no")
    for name in ("task", "run"):
        status = spans.of(name).status
        assert (status.status_code, status.description) == (StatusCode.ERROR, "ValueError: no")
    assert spans.of("wait").status.status_code is StatusCode.UNSET


@pytest.mark.parametrize("times", [{"started_at_s": float("nan")}, {"service_s": float("inf")}])
def test_times_that_are_none_do_no_harm(times: dict[str, float]) -> None:
    spans = Spans()
    job = Job(spans)
    job.ends(**times)
    assert "run" not in {span.name for span in spans.all()} and job.inner.told == [0]


def test_clocks_that_differ_make_no_span_that_ends_before_it_begins() -> None:
    spans = Spans()
    Job(spans).ends(reserved_at_s=90.0, started_at_s=80.0)
    assert all(begun <= ended for begun, ended in map(seconds, spans.all()))


def test_tasks_beyond_so_many_have_no_spans() -> None:
    spans = Spans()
    job = Job(spans, tasks=TASK_SPANS_MAX + 1)
    assert job.trace.task_spans == TASK_SPANS_MAX
    job.ends(TASK_SPANS_MAX)
    assert spans.all() == [] and job.inner.told == [TASK_SPANS_MAX]


def test_a_job_ends_once_however_it_ends() -> None:
    spans = Spans()
    for end in (
        lambda job: job.sink.refused(SparrowError("no")),
        lambda job: job.tracing.close(),
        lambda job: job.tracing.end("j", "no"),
        lambda job: job.tracing.told_of_detaching("j", lambda error: None)(None),
        lambda job: job.ends(),
    ):
        job, before = Job(spans), len([span for span in spans.all() if span.name.startswith("job")])
        end(job)
        job.tracing.close()
        job.sink.ended()
        assert len([span for span in spans.all() if span.name.startswith("job")]) == before + 1


def test_a_job_that_was_not_detached_goes_on() -> None:
    spans = Spans()
    job, told = Job(spans), []
    error = SparrowError("no")
    job.tracing.told_of_detaching("j", told.append)(error)
    assert told == [error] and spans.all() == []


def test_a_trace_that_is_not_sampled_reaches_the_tasks_and_makes_no_span() -> None:
    spans = Spans(sampler=ALWAYS_OFF)
    job = Job(spans)
    job.ends()
    assert job.sink is job.inner and spans.all() == []
    assert job.trace.traceparent.endswith("-00") or job.trace.traceparent.endswith("-02")
    assert job.trace.task_spans == 0


def test_without_a_provider_and_a_current_span_nothing_is_said() -> None:
    tracing = JobSpans(api.NoOpTracerProvider())
    spec = JobSpec([b""], job_id="j", app=calls.APP, common=COMMON)
    inner = Inner()
    assert tracing.begin(spec, inner, api.INVALID_SPAN_CONTEXT, 1.0, twice=False) == (spec, inner)


def test_a_job_that_is_not_traced_has_not_a_byte_more() -> None:
    assert msgspec.msgpack.encode(msgspec.msgpack.decode(COMMON, type=calls.PythonCommon)) == COMMON
    assert trace_of(JobSpec([b""], app=calls.APP, common=COMMON)) is None


def test_commands_and_stages_keep_their_own_bytes() -> None:
    tracing, parent = JobSpans(Spans().provider), api.INVALID_SPAN_CONTEXT
    with_stages = CallOptions().stages_job("two", [CallStage("a", len, [("x",)]), CallStage("b", len, [("y",)])])
    with_stages.job_id = "s"
    traced, _ = tracing.begin(with_stages, Inner(), parent, 1.0, twice=False)
    assert [trace_of(stage) is not None for stage in traced.stages] == [True, True]  # type: ignore[arg-type]
    command = JobSpec([b""], job_id="c", app="command", common=b"any")
    assert tracing.begin(command, Inner(), parent, 1.0, twice=False)[0] == command


@pytest.mark.parametrize("tracing", [1, "yes", None, object()])
def test_what_is_no_provider_is_refused(tracing: Any) -> None:
    with pytest.raises(InvalidOption, match="tracing"):
        Client("127.0.0.1:1", tracing=tracing)


def test_where_opentelemetry_is_missing_the_error_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    with pytest.raises(ModuleNotFoundError, match=r"sparrow-py\[otel\]"):
        job_spans(True)


# ---- what tasks are told -----------------------------------------------------------------------

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def current() -> tuple[int, int, bool]:
    """Trace and id of the current span, and whether a traced task runs."""
    span = api.get_current_span().get_span_context()
    return span.trace_id, span.span_id, is_traced()


@pytest.mark.parametrize(("task", "is_own"), [(0, True), (1, True), (2, False)])
def test_within_a_task_the_span_of_its_run_is_current(task: int, is_own: bool) -> None:
    job = int(TRACEPARENT.split("-")[2], 16)
    seen = in_trace(TraceContext(TRACEPARENT, "a=b", 2), task, current)
    assert seen == (int(TRACEPARENT.split("-")[1], 16), run_span_id(job, task) if is_own else job, True)
    assert current() == (0, 0, False)


def test_a_task_that_fails_leaves_its_trace() -> None:
    with pytest.raises(ZeroDivisionError):
        in_trace(TraceContext(TRACEPARENT), 0, lambda: 1 / 0)
    assert current() == (0, 0, False)


@pytest.mark.parametrize("traceparent", ["", "nonsense", "00-0-0-0"])
def test_what_is_no_trace_is_none(traceparent: str) -> None:
    assert in_trace(TraceContext(traceparent, "", 5), 0, current) == (0, 0, True)


def test_a_worker_without_opentelemetry_runs_the_task_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
    assert in_trace(TraceContext(TRACEPARENT), 0, lambda: 7) == 7


# ---- a cluster ---------------------------------------------------------------------------------


def span_here(*_: Any) -> int:
    """The id of the span that is current in the task."""
    return api.get_current_span().get_span_context().span_id


def parent_of_own_span() -> int:
    """A span that the task makes, with a tracer provider of its own."""
    own = Spans()
    with own.tracer.start_as_current_span("own"):
        pass
    return parent_of(own.of("own"))


def span_of_nested_task() -> int:
    return Client.current().submit(span_here).result(TIMEOUT_S)


@pytest.mark.processes
def test_spans_of_tasks_are_within_those_of_their_runs(cluster: LocalCluster) -> None:
    spans = Spans()
    runs = lambda: {id_of(span) for span in spans.all() if span.name == "run"}  # noqa: E731
    with Client(cluster.addresses, tracing=spans.provider) as client:
        with spans.tracer.start_as_current_span("caller") as caller:
            assert {*client.map(span_here, range(5))} == runs()
            later, own = client.submit(span_here), client.submit(parent_of_own_span)
            nested = client.submit(span_of_nested_task)
        with spans.tracer.start_as_current_span("another"):
            third = client.submit(span_here)
        assert {later.result(TIMEOUT_S), own.result(TIMEOUT_S), third.result(TIMEOUT_S)} <= runs()
        # A worker without a tracer provider makes no span of the jobs of its tasks, and passes on its own.
        assert nested.result(TIMEOUT_S) in runs()
        stages = [CallStage("one", span_here, [()]), CallStage("two", span_here, [(ResultOf("one"),)])]
        assert {*client.submit_stages(stages).results(TIMEOUT_S)} <= runs()
        twice = client.submit_calls(span_here, [()], options=CallOptions(speculate=Speculation()))
        assert twice.results(TIMEOUT_S) == [id_of(spans.all()[-1])] and spans.all()[-1].name == "job span_here"
    jobs = [span for span in spans.all() if span.name.startswith("job")]
    assert [parent_of(job) for job in jobs].count(id_of(caller)) == 4


@pytest.mark.processes
async def test_clients_of_asyncio_make_spans_too(cluster: LocalCluster) -> None:
    spans = Spans()
    async with AsyncClient(cluster.addresses, tracing=spans.provider) as client:
        with spans.tracer.start_as_current_span("caller") as caller:
            found = await client.submit(span_here)
    assert found == id_of(spans.of("run")) and parent_of(spans.of("job span_here")) == id_of(caller)


@pytest.mark.processes
def test_who_is_not_traced_does_not_load_opentelemetry(cluster: LocalCluster) -> None:
    with Client(cluster.addresses, user="untraced") as client:  # By value, else the worker would import this module.
        assert client.submit(lambda: "opentelemetry" in sys.modules).result(TIMEOUT_S) is False
