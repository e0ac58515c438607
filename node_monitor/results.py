"""What executors say of their runs: results, and which runs they return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from node_monitor.attempt_book import AttemptBook
from node_monitor.attempts import STOPPED, Attempt
from node_monitor.counters import Counters
from node_monitor.executors.executor_state import ExecutorState
from node_monitor.inputs import Blobs
from node_monitor.pipelining import Pipelining
from node_monitor.queueing.backlog import Backlog
from node_monitor.queueing.tickets import MAX_DURATION_S
from node_monitor.schedulers import Schedulers
from node_monitor.stopping import Stopping
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import FAILED, FINISHED
from sparrow_py.wire import messages as m

DURATION_WEIGHT = 0.2
"""Weight of the newest duration in a job's moving average."""
SERVICE_MAX_S = MAX_DURATION_S
"""Longest service time believed of an executor."""
ERROR_CHARS_MAX = 4000
"""Characters of an executor's error that are passed on."""
CPU_S_MAX = SERVICE_MAX_S * 1e6
MEMORY_BYTES_MAX = 1 << 62
"""Used at most, as believed of an executor."""
SHORTEST_S = 0.01
"""Of what takes less time nobody says how much a second it used: clocks of CPU time tick so often."""
SMALL_RESULT_BYTES = 8192
"""Results up to this size fit any frame: no need to measure them exactly."""


class Results:
    """Reports of runs that ended, and the answers to `Revoke`."""

    __slots__ = (
        "_blobs", "_book", "_counters", "_executors", "_pipelining", "_ready", "_schedulers", "_stopping",
    )  # fmt: skip

    def __init__(
        self,
        executors: Mapping[str, ExecutorState],
        book: AttemptBook,
        backlog: Backlog,
        schedulers: Schedulers,
        stopping: Stopping,
        pipelining: Pipelining,
        blobs: Blobs,
        counters: Counters,
    ) -> None:
        self._executors = executors
        self._book = book
        self._ready = backlog.ready
        self._schedulers = schedulers
        self._stopping = stopping
        self._pipelining = pipelining
        self._blobs = blobs
        self._counters = counters

    def done_together(self, executor_id: str, messages: Sequence[x.Done], now_s: float) -> None:
        """An executor ended runs of which one frame told: what they took together is divided as it says."""
        executor = self._executors[executor_id]
        if executor.places > 1:
            for message in messages:
                self.done(executor_id, message, now_s)
            return
        whole_s = executor.worked_s(now_s)
        if len(messages) == 1:
            self.done(executor_id, messages[0], now_s, whole_s)
            return
        said_s = [message.service_s - _without_slot_s(executor, message.run) for message in messages]
        for message, service_s in zip(messages, _shares(whole_s, said_s), strict=True):
            self.done(executor_id, message, now_s, service_s)

    def done(self, executor_id: str, message: x.Done, now_s: float, service_s: float | None = None) -> None:
        """An executor ended a run; `LinkError` if it did not have it.

        service_s: how long it had its place by the node monitor's clock, if that is not since it began: that is what
        counts here, whatever the executor says.
        """
        executor = self._executors[executor_id]
        attempt = executor.running.get(message.run)
        if attempt is None:
            raise LinkError(f"executor {executor_id} reported run {message.run}, which it does not have")
        if message.status is not FINISHED and message.status is not FAILED:
            raise LinkError(f"executor {executor_id} reported {message.status.value}, neither finished nor failed")
        if not 0 <= message.service_s <= SERVICE_MAX_S:
            raise LinkError(f"executor {executor_id} reported a service time of {message.service_s} s")
        if executor.waiting is not None:
            raise LinkError(f"executor {executor_id} ended run {message.run}, which waits and has no slot")
        if service_s is None:
            service_s = 0.0 if attempt.began_at_s is None else now_s - attempt.began_at_s
        given_s = now_s - attempt.given_at_s
        if message.service_s > given_s:  # noqa: PLR1730 - at every task, where min() costs three times that
            message.service_s = given_s
        executor.did_tasks = True
        app = executor.app
        if app.offer.failures:
            app.offer.worked()
        if app.suspicion.jobs:
            app.suspicion.cleared()
        job = attempt.job
        if job.duration_s is None:
            job.duration_s = service_s
        else:
            job.duration_s += DURATION_WEIGHT * (service_s - job.duration_s)
        self._counters.ended += 1
        self._schedulers.ended_for = job.scheduler
        last = self._report_of(attempt, message)
        if attempt.charge.ticket.placed and type(last) is m.Report:
            last.used = used_by(attempt, message, service_s, now_s)
        self._book.leave(attempt, executor, now_s, last, service_s)
        if executor.running and self._ready and executor.places == 1 and not executor.leaving:
            self._pipelining.top_up(executor, now_s)

    def _report_of(self, attempt: Attempt, message: x.Done) -> m.Report | m.Preempted:
        job, said, stdout, stderr = attempt.job, message.result, message.stdout, message.stderr
        status, error = message.status, message.error[:ERROR_CHARS_MAX]
        if isinstance(said, x.File):
            result: m.Data = self._blobs.adopt(said, job.number)
            inline = 0
        else:
            result, inline = said, len(said)
        if status is FAILED and attempt.state is STOPPED:
            if attempt.stopped_as is None:
                self._counters.preempted += 1
                return m.Preempted(job.id, attempt.number, message.service_s)
            status, error = attempt.stopped_as
        report = m.Report(
            job.id, attempt.task, attempt.number, status, result, error,
            message.started_at_s, message.service_s, stdout, stderr,
        )  # fmt: skip
        if message.retry and message.status is FAILED and attempt.state is not STOPPED:
            report.retry = True
        if (stdout or stderr or error or inline > SMALL_RESULT_BYTES) and (
            inline + 4 * (len(stdout) + len(stderr) + len(error)) > SMALL_RESULT_BYTES
        ):
            bytes_max = self._schedulers.bytes_max.get(job.scheduler, m.FRAME_BYTES_MAX - m.MESSAGE_OVERHEAD_BYTES)
            size = inline + sum(len(text.encode()) for text in (stdout, stderr, error))
            if size > bytes_max:
                error = f"the task's result is {size} bytes; at most {bytes_max} can be returned"
                return m.Report(
                    job.id, attempt.task, attempt.number, FAILED, b"", error, message.started_at_s, message.service_s,
                    retry=report.retry,
                )  # fmt: skip
        return report

    def returned(self, executor_id: str, message: x.Returned, now_s: float) -> None:
        """An executor gave runs back that it had not started: they were revoked, as they were cancelled."""
        executor = self._executors[executor_id]
        if not executor.revoked:
            raise LinkError(f"executor {executor_id} returned runs that nobody revoked")
        run = executor.revoked.pop(0)  # Of a few, and most executors never have any: a deque takes 700 bytes.
        attempt = executor.running.get(run)
        if attempt is None:
            return  # It ended meanwhile.
        if run not in message.runs:
            self._stopping.not_returned(attempt, now_s)
            return
        self._stopping.returned(executor, attempt, now_s)
        if executor.running and self._ready and executor.places == 1 and not executor.leaving:
            self._pipelining.top_up(executor, now_s)


def used_by(attempt: Attempt, message: x.Done, service_s: float, now_s: float) -> m.Used:
    """What a placed attempt has used, as its executor says and as large data were fetched for it. `LinkError` if it
    cannot have."""
    said = message.used or x.Used()
    cpu_s, memory_bytes = said.cpu_s, said.memory_bytes
    if cpu_s is not None and not 0 <= cpu_s <= CPU_S_MAX:
        raise LinkError(f"an executor reported {cpu_s} s of CPU time; allowed are 0 to {CPU_S_MAX:g}")
    if memory_bytes is not None and not 0 <= memory_bytes <= MEMORY_BYTES_MAX:
        raise LinkError(f"an executor reported {memory_bytes} bytes of memory; allowed are 0 to {MEMORY_BYTES_MAX}")
    cpu = cpu_s / service_s if cpu_s is not None and service_s >= SHORTEST_S else None
    size, since_s = getattr(attempt, "fetches", (0, now_s))  # There if it has waited.
    rate = size / (now_s - since_s) if size and now_s - since_s >= SHORTEST_S else None
    return m.Used(cpu, memory_bytes, rate)


def _without_slot_s(executor: ExecutorState, run: int) -> float:
    """How long the run has waited for tasks of its own, without a slot."""
    attempt = executor.running.get(run)
    return 0.0 if attempt is None or attempt.pauses is None else attempt.pauses.without_slot_s


def _shares(whole_s: float, said_s: Sequence[float]) -> list[float]:
    """Divide the time that one executor took for some runs as it says how long each had its slot."""
    said_s = [one_s if 0 < one_s <= SERVICE_MAX_S else 0.0 for one_s in said_s]
    total_s = sum(said_s)
    return [whole_s * one_s / total_s if total_s else whole_s / len(said_s) for one_s in said_s]
