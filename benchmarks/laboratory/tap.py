"""What a session tells of jobs, heard before a future could hide that something was told twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.laboratory.told import Event, Writer
from sparrow_py.errors import ResultLost, SparrowError
from sparrow_py.job import JobSpec
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.session import Session
from sparrow_py.wire import messages as m

END = "the end or a refusal"


def listen_in(told: Writer) -> Callable[[], int]:
    """Write down what any session of this process tells twice, or of a job after its end. Returns what says how many
    outcomes came again, and were told to nobody."""
    sessions: list[Session] = []
    submit = Session.submit

    def heard(session: Session, spec: JobSpec, sink: JobSink, *more: Any) -> None:
        if session not in sessions:
            sessions.append(session)
        submit(session, spec, Tap(spec.job_id, sink, told), *more)

    Session.submit = heard  # type: ignore[method-assign, assignment]
    return lambda: sum(session.core.duplicates for session in sessions)


class Tap(JobSink):
    """Stands before the sink of a job."""

    def __init__(self, job: str, sink: JobSink, told: Writer) -> None:
        self._job = job
        self._sink = sink
        self._told = told
        self._before: set[str] = set()

    def _once(self, what: str) -> None:
        if what in self._before:
            self._told.write(Event.TWICE, self._job, error=f"{what}, twice")
        elif END in self._before:
            self._told.write(Event.TWICE, self._job, error=f"{what}, after the end")
        self._before.add(what)

    def accepted(self) -> None:
        self._once("accepted")
        self._sink.accepted()

    def refused(self, error: SparrowError) -> None:
        self._once(END)
        self._sink.refused(error)

    def placed(self, task: int) -> None:
        self._sink.placed(task)

    def not_cancelled(self, task: int) -> None:
        self._sink.not_cancelled(task)

    def settle(self, outcome: m.Outcome, lost: ResultLost | None = None) -> None:
        self._once(f"outcome of task {outcome.task}")
        self._sink.settle(outcome, lost)

    def finish(self) -> None:
        self._once(END)
        self._sink.finish()
