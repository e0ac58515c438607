"""Tasks of actors that run in threads of this process, in place of a cluster's: what a session is to actors."""

from __future__ import annotations

import asyncio
import pickle
import threading
from collections.abc import Callable
from typing import Any

import msgspec

from sparrow_py.actors.owned import OwnedActor
from sparrow_py.actors.owner import Actors, definition_of
from sparrow_py.call_jobs import CallOptions
from sparrow_py.calls import PythonCommon
from sparrow_py.job import FINISHED, JobSpec, TaskStatus
from sparrow_py.session.job_sink import JobSink
from sparrow_py.wire.local_address import LOOPBACK
from sparrow_py.wire.messages import Outcome
from tests.support.waiting import TIMEOUT_S


class ThreadedJobs:
    """Runs each job's one call in a thread, as soon as it is let."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.held: list[Callable[[], None]] | None = None
        """Starts that wait for a slot, while there is none."""
        self.specs: list[JobSpec] = []
        self.sinks: list[JobSink] = []
        self.cancelled: list[str] = []
        self.threads: list[threading.Thread] = []

    def submit(self, spec: JobSpec, sink: JobSink) -> None:
        sink.begin(spec, lambda *_: None)
        self.specs.append(spec)
        self.sinks.append(sink)
        thread = threading.Thread(target=self._run, args=(spec, sink), daemon=True)
        self.threads.append(thread)
        if self.held is None:
            thread.start()
        else:
            self.held.append(thread.start)

    def cancel_job(self, job_id: str, *, running: bool = False) -> None:
        assert running
        self.cancelled.append(job_id)

    def let_start(self) -> None:
        """There are slots."""
        held, self.held = self.held or [], None
        for start in held:
            start()

    def _run(self, spec: JobSpec, sink: JobSink) -> None:
        common = msgspec.msgpack.decode(spec.common, type=PythonCommon)
        (payload,) = spec.tasks
        assert isinstance(payload, bytes)
        args, kwargs = pickle.loads(payload)
        status, error = FINISHED, ""
        try:
            pickle.loads(common.function)(*args, **kwargs)
        except Exception as raised:
            status, error = TaskStatus.FAILED, f"{type(raised).__name__}: {raised}"
        self.loop.call_soon_threadsafe(self.tell, sink, status, error)

    def tell(self, sink: JobSink, status: TaskStatus, error: str, node: str = "node-7") -> None:
        """The cluster says how the task has ended."""
        sink.outcome(Outcome(sink._spec.job_id, 0, status, b"", error, 1, node, None, None, None))
        sink.ended()

    async def all_ended(self) -> None:
        """No actor's task runs any more."""
        for thread in self.threads:
            await asyncio.to_thread(thread.join, TIMEOUT_S)
            assert not thread.is_alive()


def actors_of(jobs: ThreadedJobs) -> Actors:
    """A client's actors."""
    return Actors(jobs, None, lambda: LOOPBACK)


def make(
    actors: Actors,
    cls: type,
    *args: Any,
    max_restarts: int = 0,
    call_retries: int = 0,
    waiting_calls_max: int = 10,
    advertise: str | None = None,
    **kwargs: Any,
) -> OwnedActor:
    """An actor of these."""
    definition = definition_of(
        CallOptions(), (), cls, args, kwargs,
        max_restarts=max_restarts, call_retries=call_retries, waiting_calls_max=waiting_calls_max,
    )  # fmt: skip
    return actors.make(definition, advertise)
