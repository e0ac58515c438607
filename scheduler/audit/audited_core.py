"""A core whose events and effects are written to the audit log on their way in and out.

`AuditedCore` stands between the driver and the core: it is the core's outbox, and the driver feeds it in the core's
place. A scheduler without an audit log has none of this, and pays nothing for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scheduler.audit.file import AuditFile
from scheduler.audit.lines import LINES, Line, NodeDown, Started
from sparrow_py.profiles import DEFAULT
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.core import Outbox, SchedulerCore
    from scheduler.plane import Problem

PORT_MARK = "{port}"


class AuditedCore:
    """Has the methods of the core and of its outbox, as far as the log needs them, and passes all calls on."""

    def __init__(self, outbox: Outbox, clock: Callable[[], float]) -> None:
        self._outbox = outbox
        self._clock = clock
        self._core: SchedulerCore
        self._add: Callable[[Line], None] = _nowhere
        self._file: AuditFile | None = None

    def of(self, core: SchedulerCore) -> None:
        """Name the core that events go to. It is made later than this object, its outbox."""
        self._core = core

    def open(self, path: str, bytes_max: int, scheduler: str, address: str, profile: str = DEFAULT) -> None:
        """Begin to write; `{port}` in the path becomes the port of the address."""
        self._file = AuditFile(path.replace(PORT_MARK, address.rpartition(":")[2]), bytes_max)
        self._add = self._file.add
        self._add(Started(self._clock(), scheduler, address, profile))

    @property
    def lines_lost(self) -> int:
        """How many lines the log misses."""
        return 0 if self._file is None else self._file.lines_lost

    async def close(self) -> None:
        """Write the lines that are queued. Later events leave no lines."""
        self._add = _nowhere
        if self._file is not None:
            await self._file.close()
            self._file = None

    # ---- events, on their way to the core ----------------------------------------------------

    def node_up(self, node_id: str, info: m.NodeInfo, now_s: float, version: int = m.PROTOCOL_VERSION) -> None:
        """As the core's."""
        self._add(LINES[m.NodeInfo](node_id, info, now_s))
        self._core.node_up(node_id, info, now_s, version)

    def node_down(self, node_id: str, now_s: float) -> None:
        """As the core's."""
        self._add(NodeDown(now_s, node_id))
        self._core.node_down(node_id, now_s)

    def receive_from_node(self, node_id: str, message: m.Message, now_s: float) -> None:
        """As the core's."""
        line_of = LINES.get(type(message))
        if line_of is not None:
            self._add(line_of(node_id, message, now_s))
        self._core.receive_from_node(node_id, message, now_s)

    def receive_from_client(self, client: str, user: str, message: Any, now_s: float) -> None:
        """As the core's."""
        line_of = LINES.get(type(message))
        if line_of is not None and (type(message) is m.SubmitJob or self._is_with(client, message.job)):
            self._add(line_of(user, message, now_s))
        self._core.receive_from_client(client, user, message, now_s)

    def _is_with(self, client: str, job_id: str) -> bool:
        """Whether the job is this client's: what others say of it does nothing, and is no event."""
        job = self._core.jobs.get(job_id)
        return job is not None and job.client == client

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> bool:
        """As the core's. The line is that of a client's message."""
        self._add(LINES[m.CancelJob]("", m.CancelJob(job_id, running), now_s))
        return self._core.cancel_job(job_id, now_s, running=running)

    # ---- effects, on their way out -----------------------------------------------------------

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Effect of the core."""
        line_of = LINES.get(type(message))
        if line_of is not None:
            self._add(line_of(node_id, message, self._clock()))
        self._outbox.to_node(node_id, message)

    def to_client(self, client: str, message: m.Message) -> None:
        """Effect of the core."""
        line_of = LINES.get(type(message))
        if line_of is not None:
            self._add(line_of(client, message, self._clock()))
        self._outbox.to_client(client, message)

    def solve(self, number: int, problem: Problem) -> None:
        """Effect of the core. It leaves no line."""
        self._outbox.solve(number, problem)


def _nowhere(line: Line) -> None:
    """Takes lines before the log is opened and after it is closed."""
