"""When and where attempts ran that have ended: the latest of all jobs in one log, of which each job has a chain.

A record has the place of the record before it of the same job, so that nothing is kept by task or by job besides the
log itself, and a job's tasks are found without a look at those of others. What a record takes of a scheduler's time is
a part of what each task takes: it is packed in place, and nothing is allocated for it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from sparrow_py.job import FINISHED, TaskStatus
from sparrow_py.wire.messages import Report

_RECORD = struct.Struct("<QddIIB")
"""Place of the record before, started_at_s, service_s, task, number of the node, status."""
RECORD_BYTES = _RECORD.size
CHUNK_TASKS = 8_192
CHUNK_BYTES = CHUNK_TASKS * RECORD_BYTES
CHUNKS_MAX = 24
"""Chunks of records; one more takes the place of the oldest."""
TASKS_MAX = CHUNKS_MAX * CHUNK_TASKS
"""Ended attempts that are remembered, of all jobs together: 196,608, in `BYTES_MAX` bytes."""
BYTES_MAX = CHUNKS_MAX * CHUNK_BYTES
RATE_MAX = 1_000
"""Records a second that are made for long. A record costs one to two microseconds where a task costs thirty to a
hundred, so of more tasks than this not every one is remembered."""
BURST_MAX = 12_000
"""Records that are made at once, if there were few before."""
NODES_MAX = 20_000
"""Nodes whose names are remembered; when there are more, all records are forgotten."""
NONE = 2**64 - 1
"""The place before a job's first record."""
_STATUSES = tuple(TaskStatus)  # FINISHED first.
_CODES = {status: code for code, status in enumerate(_STATUSES)}
_pack_into = _RECORD.pack_into


class Ran(NamedTuple):
    """An attempt that has ended: its task, by the job's count; times by its node's clock."""

    task: int
    node: str
    started_at_s: float
    service_s: float
    status: TaskStatus


class TaskLog:
    """See the module's docstring. `is_here`: whether a job of this id is, as only their tasks are remembered."""

    def __init__(self, is_here: Callable[[str], bool]) -> None:
        self._is_here = is_here
        self._number = -1
        """Of the chunk that is written. It only grows: places that others keep are of no other record later."""
        self.left = BURST_MAX
        """Records that may be made until there is time for more; `add` is not to be called when none is left."""
        self.look_at = 0
        """From this place on the next report is to be looked at closely."""
        self._forget()

    def _forget(self) -> None:
        self._chunks: dict[int, bytearray] = {}
        """By their number, the oldest first."""
        self._next_chunk()
        self._latest: dict[str, int] = {}
        """Job to the place of its latest record."""
        self._nodes: dict[str, int] = {}
        self._names: list[str] = []

    def _next_chunk(self) -> None:
        """The last chunk is full."""
        self._number += 1
        full = len(self._chunks) == CHUNKS_MAX
        self._chunk = self._chunks.pop(self._number - CHUNKS_MAX) if full else bytearray(CHUNK_BYTES)
        self._chunks[self._number] = self._chunk
        self._base = self._number * CHUNK_BYTES
        """The place of its first record."""
        self._at = 0

    @property
    def place(self) -> int:
        """Where the next record will be. Places only grow."""
        return self._base + self._at

    @property
    def bytes(self) -> int:
        """What the records take now."""
        return len(self._chunks) * CHUNK_BYTES

    # ---- writing -----------------------------------------------------------------------------

    def add(self, node_id: str, report: Report) -> bool:
        """Remember this report of a node's; whether it is to be looked at closely (`look_at`). The core is not to have
        heard it yet, as a job leaves with its last."""
        node = self._nodes.get(node_id)
        if node is None:
            node = self._name(node_id)
        job, status, latest, at = report.job, report.status, self._latest, self._at
        before = latest.get(job)
        if before is None:
            if not self._is_here(job):
                return False
            before = NONE
        try:
            _pack_into(
                self._chunk, at, before, report.started_at_s, report.service_s, report.task, node,
                0 if status is FINISHED else _CODES[status],
            )  # fmt: skip
        except struct.error:  # It did not run, or a node states what no core takes.
            return False
        place = latest[job] = self._base + at
        self.left -= 1
        self._at = at = at + RECORD_BYTES
        if at == CHUNK_BYTES:
            self._next_chunk()
        return place >= self.look_at

    def _name(self, node_id: str) -> int:
        """A node of which nothing is remembered has a number from now on."""
        if len(self._names) == NODES_MAX:
            self._forget()
        number = self._nodes[node_id] = len(self._names)
        self._names.append(node_id)
        return number

    def time_passed(self, seconds: float) -> None:
        """So much time has passed since this was said last: more records may be made."""
        self.left = min(BURST_MAX, self.left + round(RATE_MAX * seconds))

    # ---- reading -----------------------------------------------------------------------------

    def latest(self, job_id: str) -> int:
        """The place of the job's latest record; `NONE` if it has none."""
        return self._latest.get(job_id, NONE)

    def let_go(self, job_id: str) -> int:
        """The job leaves: as `latest`, which has to be kept to find its records from now on."""
        return self._latest.pop(job_id, NONE)

    def walk(self, place: int) -> Iterator[Ran]:
        """The records of a job from this one, its latest, back to the first that is not forgotten."""
        while (chunk := self._chunks.get(place // CHUNK_BYTES)) is not None and place < self.place:
            place, started_at_s, service_s, task, node, code = _RECORD.unpack_from(chunk, place % CHUNK_BYTES)
            yield Ran(task, self._names[node], started_at_s, service_s, _STATUSES[code])
