"""The audit log (Sparrow §6): a line of JSON for each event that the scheduler sees or causes.

It is tapped where messages go in and out: `AuditedCore` stands between the driver and the core, as the core's outbox
and as what the driver feeds. A scheduler without an audit log has none of this, and pays nothing for it.

Lines are encoded into a buffer at once (about a microsecond each); a thread writes the buffer to the file every
`FLUSH_S`. docs/audit-log.md says what each line has.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from sparrow_py.errors import InvalidOption
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.core import Outbox, SchedulerCore
    from scheduler.plane import Problem

log = logging.getLogger("sparrow.scheduler.audit")
FLUSH_S = 0.5
BUFFER_BYTES_MAX = 64 << 20
"""What may wait for a slow disk; beyond it lines are dropped, and a line says how many."""
PORT_MARK = "{port}"


class _Line(msgspec.Struct, tag_field="event", omit_defaults=True, gc=False):
    """at_s: seconds since the epoch, by the scheduler's clock."""

    at_s: float


class Started(_Line, tag="started"):
    """The scheduler has begun to work."""

    scheduler: str
    address: str


class Dropped(_Line, tag="dropped"):
    """So many lines are missing here: the disk was too slow."""

    lines: int


DROPPED_BEGINS = b'{"event":"dropped"'


class NodeUp(_Line, tag="node_up"):
    """A node monitor has connected."""

    node: str
    slots: int


class NodeDown(_Line, tag="node_down"):
    """The link to a node monitor broke: what was queued there is gone."""

    node: str


class JobArrived(_Line, tag="job_arrived"):
    """A client submitted a job. `tasks`: of each stage. An epoch above 0: it was at another scheduler before."""

    job: str
    user: str
    name: str
    tasks: list[int]
    epoch: int = 0


class JobAccepted(_Line, tag="job_accepted"):
    """It will run."""

    job: str


class JobRefused(_Line, tag="job_refused"):
    """Nothing of it will run here."""

    job: str
    reason: str


class CancelAsked(_Line, tag="cancel_asked"):
    """The client, or with no `tasks` perhaps the operator, asked to cancel the job, or these of its tasks."""

    job: str
    tasks: list[int] | None = None


class Reserved(_Line, tag="reserved"):
    """`count` reservations were sent to a node, under a ticket of one user, made for this job."""

    job: str
    user: str
    node: str
    ticket: int
    count: int


class ReservationsRefused(_Line, tag="reservations_refused"):
    """The node did not queue `count` of them."""

    node: str
    ticket: int
    count: int
    reason: str


class ReservationsCancelled(_Line, tag="reservations_cancelled"):
    """What the node still has queued of the ticket is cancelled."""

    node: str
    ticket: int


class GetTask(_Line, tag="get_task"):
    """The node has `count` free slots for the ticket."""

    node: str
    ask: int
    ticket: int
    count: int


class NoOp(_Line, tag="no_op"):
    """The ask got no task for `count` of its slots."""

    node: str
    ask: int
    count: int


class LengthAsked(_Line, tag="length_asked"):
    """The node was asked how long its queue is: the probe of placements without late binding."""

    node: str
    probe: int


class LengthTold(_Line, tag="length_told"):
    """Its answer: tasks that run, wait or are on their way there."""

    node: str
    probe: int
    length: int


class Launched(_Line, tag="launched"):
    """A task was sent to a node: the answer to this ask, or pushed to it (ask 0)."""

    job: str
    stage: int
    task: int
    attempt: int
    node: str
    ask: int


class AttemptCancelled(_Line, tag="attempt_cancelled"):
    """The node was told to give up a start of a task."""

    job: str
    attempt: int
    node: str


class HandedBack(_Line, tag="handed_back"):
    """The node did not start it, and will not."""

    job: str
    attempt: int
    node: str
    reason: str


class Finished(_Line, tag="finished"):
    """A start of a task ended at its node. `started_at_s` is by the node's clock."""

    job: str
    task: int
    attempt: int
    node: str
    status: TaskStatus
    started_at_s: float | None
    service_s: float | None
    error: str = ""


class TaskEnded(_Line, tag="task_ended"):
    """The client was told the task's outcome."""

    job: str
    task: int
    status: TaskStatus
    attempts: int
    error: str = ""


class JobEnded(_Line, tag="job_ended"):
    """Every task of the job has its outcome."""

    job: str


class JobTakenOver(_Line, tag="job_taken_over"):
    """A node said that another scheduler has claimed the job, with this epoch: it is over here."""

    job: str
    node: str
    epoch: int


class JobHandedOver(_Line, tag="job_handed_over"):
    """The scheduler ends and the job has not: its client is to take it to another. `unstarted`: tasks that waited."""

    job: str
    unstarted: int


class AuditFile:
    """Lines on their way to a file, which is renamed to PATH.1 once it has `bytes_max` bytes, over the one before it:
    the two have the last `bytes_max` bytes at least. All methods but `_write` are for the loop's thread."""

    def __init__(self, path: str, bytes_max: int, flush_s: float = FLUSH_S) -> None:
        self.path = Path(path)
        self._bytes_max = bytes_max
        self._flush_s = flush_s
        self._buffer = bytearray()
        self._dropped = 0
        self._last_s = 0.0
        self._failed = ""
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Future[int] | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="audit-log")
        self._encode_into = msgspec.json.Encoder().encode_into
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
            self._size = os.fstat(self._file).st_size
        except OSError as error:
            raise InvalidOption("audit_log", path, f"a file that can be written ({error.strerror})") from None

    def add(self, line: _Line) -> None:
        """Queue a line."""
        buffer = self._buffer
        if len(buffer) >= BUFFER_BYTES_MAX:
            self._dropped += 1
            return
        if self._dropped:
            self._say_dropped()
        self._last_s = line.at_s
        self._encode_into(line, buffer, -1)
        buffer += b"\n"
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)

    def _say_dropped(self) -> None:
        self._encode_into(Dropped(self._last_s, self._dropped), self._buffer, -1)
        self._buffer += b"\n"
        self._dropped = 0

    def _flush(self) -> None:
        self._timer = None
        if self._writing is not None and not self._writing.done():  # The disk is slow: look again later.
            self._timer = asyncio.get_running_loop().call_later(self._flush_s, self._flush)
            return
        self._count_lost()
        lines, self._buffer = self._buffer, bytearray()
        self._writing = asyncio.get_running_loop().run_in_executor(self._thread, self._write, lines)

    def _count_lost(self) -> None:
        """What the last write, which is over, could not write is missing."""
        if self._writing is not None:
            self._dropped += self._writing.result()
            self._writing = None

    def _write(self, lines: bytearray) -> int:
        """On the thread; returns how many lines were lost as they could not be written. The log says so, once."""
        written = 0
        try:
            while written < len(lines):
                written += os.write(self._file, memoryview(lines)[written:])
            self._size += written
            self._failed = ""
            if self._size >= self._bytes_max:
                self.path.rename(f"{self.path}.1")
                os.close(self._file)
                self._file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o640)
                self._size = 0
        except OSError as error:
            if self._failed != str(error):
                log.warning("the audit log misses lines: %s", error)
            self._failed = str(error)
            if written < len(lines):
                return self._keep_whole_lines(lines, written)
        return 0

    def _keep_whole_lines(self, lines: bytearray, written: int) -> int:
        """Only so many bytes of these lines were written: let the file end with a line. Returns how many are lost."""
        whole = lines.rfind(b"\n", 0, written) + 1
        with contextlib.suppress(OSError):
            os.ftruncate(self._file, os.fstat(self._file).st_size - (written - whole))
        self._size += whole
        return sum(map(_lines_in, lines[whole:].splitlines()))

    async def close(self) -> None:
        """Write what is queued."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing
        self._count_lost()
        if self._dropped:
            self._say_dropped()
        lines, self._buffer = self._buffer, bytearray()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._write, lines)
        self._thread.shutdown()
        with contextlib.suppress(OSError):
            os.close(self._file)


def _lines_in(line: bytearray) -> int:
    """How many lines are missing if this one is: it may itself say that some are."""
    if not line.startswith(DROPPED_BEGINS):
        return 1
    return msgspec.json.decode(line, type=Dropped).lines


class AuditedCore:
    """A core's events and effects, written down on their way. The same methods as the core and its outbox have."""

    def __init__(self, outbox: Outbox, clock: Callable[[], float]) -> None:
        self._outbox = outbox
        self._clock = clock
        self._core: SchedulerCore
        self._add: Callable[[_Line], None] = _nowhere
        self._file: AuditFile | None = None
        self._told: dict[type, Callable[[str, Any, float], _Line]] = {
            m.Reserve: _reserve, m.CancelReservations: _cancel_reservations, m.Launch: _launch, m.NoTask: _no_task,
            m.CancelAttempt: _cancel_attempt, m.GetTasks: _get_tasks, m.Report: _report, m.HandBack: _hand_back,
            m.ReservationsRefused: _refused_reservations, m.JobAccepted: _accepted, m.JobRefused: _refused,
            m.Outcome: _outcome, m.JobEnded: _ended, m.Fenced: _fenced, m.HandedOver: _handed_over,
            m.CancelJob: _cancel_job, m.CancelTasks: _cancel_tasks, m.AskLength: _ask_length,
            m.QueueLength: _queue_length,
        }  # fmt: skip

    def of(self, core: SchedulerCore) -> None:
        """The core that events go to: it is made after this, its outbox."""
        self._core = core

    def open(self, path: str, bytes_max: int, scheduler: str, address: str) -> None:
        """Begin to write; `{port}` in the path becomes the port of the address."""
        self._file = AuditFile(path.replace(PORT_MARK, address.rpartition(":")[2]), bytes_max)
        self._add = self._file.add
        self._add(Started(self._clock(), scheduler, address))

    async def close(self) -> None:
        """Write what is queued, and no more."""
        self._add = _nowhere
        if self._file is not None:
            await self._file.close()
            self._file = None

    # ---- events, on their way to the core ----------------------------------------------------

    def node_up(self, node_id: str, info: m.NodeInfo, now_s: float) -> None:
        """As the core's."""
        self._add(NodeUp(now_s, node_id, info.slots))
        self._core.node_up(node_id, info, now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """As the core's."""
        self._add(NodeDown(now_s, node_id))
        self._core.node_down(node_id, now_s)

    def receive_from_node(self, node_id: str, message: m.Message, now_s: float) -> None:
        """As the core's."""
        line = self._told.get(type(message))
        if line is not None:
            self._add(line(node_id, message, now_s))
        self._core.receive_from_node(node_id, message, now_s)

    def receive_from_client(self, client: str, user: str, message: Any, now_s: float) -> None:
        """As the core's."""
        if type(message) is m.SubmitJob:
            tasks = [stage.task_count for stage in message.stages]
            self._add(JobArrived(now_s, message.job, user, message.name, tasks, message.epoch))
        else:
            line = self._told.get(type(message))
            if line is not None:
                self._add(line(client, message, now_s))
        self._core.receive_from_client(client, user, message, now_s)

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> bool:
        """As the core's."""
        self._add(CancelAsked(now_s, job_id))
        return self._core.cancel_job(job_id, now_s, running=running)

    # ---- effects, on their way out -----------------------------------------------------------

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Effect of the core."""
        line = self._told.get(type(message))
        if line is not None:
            self._add(line(node_id, message, self._clock()))
        self._outbox.to_node(node_id, message)

    def to_client(self, client: str, message: m.Message) -> None:
        """Effect of the core."""
        line = self._told.get(type(message))
        if line is not None:
            self._add(line(client, message, self._clock()))
        self._outbox.to_client(client, message)

    def solve(self, number: int, problem: Problem) -> None:
        """Effect of the core."""
        self._outbox.solve(number, problem)


def _nowhere(line: _Line) -> None:
    """Before the log is opened, and after it is closed."""


def _reserve(node: str, message: m.Reserve, at_s: float) -> _Line:
    return Reserved(at_s, message.job, message.user, node, message.ticket, message.count)


def _cancel_reservations(node: str, message: m.CancelReservations, at_s: float) -> _Line:
    return ReservationsCancelled(at_s, node, message.ticket)


def _refused_reservations(node: str, message: m.ReservationsRefused, at_s: float) -> _Line:
    return ReservationsRefused(at_s, node, message.ticket, message.count, m.cut_reason(message.reason))


def _launch(node: str, message: m.Launch, at_s: float) -> _Line:
    return Launched(at_s, message.job, message.stage, message.task, message.attempt, node, message.ask)


def _no_task(node: str, message: m.NoTask, at_s: float) -> _Line:
    return NoOp(at_s, node, message.ask, message.count)


def _ask_length(node: str, message: m.AskLength, at_s: float) -> _Line:
    return LengthAsked(at_s, node, message.probe)


def _queue_length(node: str, message: m.QueueLength, at_s: float) -> _Line:
    return LengthTold(at_s, node, message.probe, message.length)


def _cancel_attempt(node: str, message: m.CancelAttempt, at_s: float) -> _Line:
    return AttemptCancelled(at_s, message.job, message.attempt, node)


def _get_tasks(node: str, message: m.GetTasks, at_s: float) -> _Line:
    return GetTask(at_s, node, message.ask, message.ticket, message.count)


def _report(node: str, message: m.Report, at_s: float) -> _Line:
    return Finished(
        at_s, message.job, message.task, message.attempt, node, message.status, message.started_at_s,
        message.service_s, message.error,
    )  # fmt: skip


def _hand_back(node: str, message: m.HandBack, at_s: float) -> _Line:
    return HandedBack(at_s, message.job, message.attempt, node, m.cut_reason(message.reason))


def _accepted(_: str, message: m.JobAccepted, at_s: float) -> _Line:
    return JobAccepted(at_s, message.job)


def _refused(_: str, message: m.JobRefused, at_s: float) -> _Line:
    return JobRefused(at_s, message.job, message.reason)


def _outcome(_: str, message: m.Outcome, at_s: float) -> _Line:
    return TaskEnded(at_s, message.job, message.task, message.status, message.attempts, message.error)


def _ended(_: str, message: m.JobEnded, at_s: float) -> _Line:
    return JobEnded(at_s, message.job)


def _fenced(node: str, message: m.Fenced, at_s: float) -> _Line:
    return JobTakenOver(at_s, message.job, node, message.epoch)


def _handed_over(_: str, message: m.HandedOver, at_s: float) -> _Line:
    return JobHandedOver(at_s, message.job, sum(count for _, count in message.unstarted))


def _cancel_job(_: str, message: m.CancelJob, at_s: float) -> _Line:
    return CancelAsked(at_s, message.job)


def _cancel_tasks(_: str, message: m.CancelTasks, at_s: float) -> _Line:
    return CancelAsked(at_s, message.job, message.tasks)
