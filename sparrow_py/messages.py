"""The messages that schedulers, node monitors and clients exchange.

A frame is a msgpack array of messages: everything queued for that peer in one turn of the
loop. A message is a msgpack array whose first element is its tag. Decoding validates types
and shapes in the same step; ranges are checked by the core that receives the message.

Identifiers
-----------
job      minted by the client, so that submitting twice is one job.
task     a task's position in its job, from 0.
ticket   minted by a scheduler: one group of reservations. At a node monitor a ticket is one
         entry of a queue with a count; at its scheduler it belongs to one stage at a time, and
         passes to another without a message (probe sharing).
ask      minted by a node monitor: one getTask, for one or several slots.
attempt  minted by a scheduler, one per start of a task: `epoch << 40 | counter`, so that it is
         unique among all schedulers that ever held the job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus

PROTOCOL_VERSION = 1
FRAME_BYTES_MAX = 1 << 20
"""A frame's size limit unless the daemon says otherwise."""
MESSAGE_OVERHEAD_BYTES = 4096
"""Room that a message needs beside its payload; payloads may fill the rest of a frame."""
TASKS_PER_MESSAGE_MAX = 10_000
EPOCH_SHIFT = 40


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of all messages."""


# ---- both ways -------------------------------------------------------------------------------


class NodeInfo(msgspec.Struct, array_like=True, frozen=True):
    """What a node monitor says of its node.

    `apps` maps each app to the runtime its executors state ("3.11" for python, else "").
    """

    slots: int
    resources: dict[str, float]
    attributes: dict[str, str]
    apps: dict[str, str]


class Hello(Message, tag=1):
    """First message of whoever dialled. `role` is "client" or "node"; `name` a node's id."""

    version: int
    role: str
    name: str
    user: str
    token: str
    node: NodeInfo | None = None


class Welcome(Message, tag=2):
    """First message of the daemon that was dialled."""

    version: int
    name: str
    frame_bytes_max: int


class Goodbye(Message, tag=3):
    """Last message before a link is closed on purpose."""

    reason: str


# ---- client to scheduler ---------------------------------------------------------------------


class Stage(msgspec.Struct, array_like=True, frozen=True):
    """One stage of a job, without its tasks. `demand` is per task."""

    app: str
    task_count: int
    common: bytes
    runtime: str
    probe_ratio: float
    prefetch: int
    expected_duration_s: float | None
    demand: dict[str, float] | None = None


class SubmitJob(Message, tag=10):
    """A job. Its tasks follow in `AddTasks`, in order, as many messages as they need."""

    job: str
    epoch: int
    name: str
    stages: list[Stage]
    max_attempts: int
    retry_failed: bool
    queue_timeout_s: float | None
    report_placed: bool


class AddTasks(Message, tag=11):
    """Payloads of the tasks `first`, `first` + 1, …; at most `TASKS_PER_MESSAGE_MAX`."""

    job: str
    first: int
    payloads: list[bytes]


class CancelJob(Message, tag=12):
    """Cancel what of the job has not started."""

    job: str


class CancelTasks(Message, tag=13):
    """Cancel these tasks if they have not started: each is answered by Outcome or NotCancelled."""

    job: str
    tasks: list[int]


# ---- scheduler to client ---------------------------------------------------------------------


class JobAccepted(Message, tag=20):
    """From here on every task of the job gets exactly one `Outcome`."""

    job: str


class JobRefused(Message, tag=21):
    """Nothing of the job will run. `field` names what is wrong with it, empty if the cluster is full."""

    job: str
    reason: str
    field: str = ""
    retry_after_s: float | None = None


class Placed(Message, tag=22):
    """The task left the queue (only for jobs that ask for it)."""

    job: str
    task: int


class Outcome(Message, tag=23):
    """How a task ended. Times as in `job.TaskReport`."""

    job: str
    task: int
    status: TaskStatus
    result: bytes
    error: str
    attempts: int
    node: str
    reserved_at_s: float | None
    started_at_s: float | None
    service_s: float | None
    stdout: str = ""
    stderr: str = ""


class NotCancelled(Message, tag=24):
    """Answer to `CancelTasks`: the task runs already, its outcome will come."""

    job: str
    task: int


class JobEnded(Message, tag=25):
    """Every outcome of the job has been sent."""

    job: str


# ---- scheduler to node monitor ---------------------------------------------------------------


class Reserve(Message, tag=30):
    """Queue `count` reservations (probes, §3.2); added to the ticket's where it is queued already."""

    ticket: int
    job: str
    epoch: int
    user: str
    weight: float
    priority: int
    app: str
    count: int
    prefetch: int
    expected_duration_s: float | None
    demand: dict[str, float] | None = None


class CancelReservations(Message, tag=31):
    """Remove all that is queued of this ticket (§8, Cancellation)."""

    ticket: int


class Common(Message, tag=32):
    """The job's common bytes: once per job and node, before the job's first Launch there."""

    job: str
    data: bytes


class Launch(Message, tag=33):
    """One task: the answer to (part of) an ask. 0, a task that is pushed, is kept for direct placement."""

    ask: int
    job: str
    task: int
    attempt: int
    payload: bytes


class NoTask(Message, tag=34):
    """No-op answer: there is no task left for `count` of the ask's slots."""

    ask: int
    count: int


class CancelAttempt(Message, tag=35):
    """Cancel this attempt if it has not started: answered by Report or AttemptRuns."""

    job: str
    attempt: int


class ForgetJob(Message, tag=36):
    """The job has ended: its common bytes may go."""

    job: str


# ---- node monitor to scheduler ---------------------------------------------------------------


class ReservationsRefused(Message, tag=40):
    """`count` of the reservations last sent for this ticket were not queued."""

    ticket: int
    count: int
    reason: str


class GetTasks(Message, tag=41):
    """`count` slots are free and it is this ticket's turn (§3.2 getTask). `free` is kept for resources left."""

    ask: int
    ticket: int
    count: int
    free: dict[str, float] | None = None


class Report(Message, tag=42):
    """An attempt ended. Status "lost": its executor died; the task may have run."""

    job: str
    attempt: int
    status: TaskStatus
    result: bytes
    error: str
    started_at_s: float | None
    service_s: float | None
    stdout: str = ""
    stderr: str = ""


class HandBack(Message, tag=43):
    """The attempt was not started here and will not be."""

    job: str
    attempt: int
    reason: str


class AttemptRuns(Message, tag=44):
    """Answer to CancelAttempt: too late."""

    job: str
    attempt: int


class NodeChanged(Message, tag=45):
    """The node's slots, resources, attributes or apps changed. (No node monitor has reason to say so yet.)"""

    node: NodeInfo


class NodeDraining(Message, tag=46):
    """The node takes nothing more: all its reservations are gone."""

    reason: str


UNHURRIED = frozenset({JobAccepted, ForgetJob})
"""Messages that nobody waits for: they may travel with the next one that somebody does."""

FromClient = SubmitJob | AddTasks | CancelJob | CancelTasks | Goodbye
ToClient = JobAccepted | JobRefused | Placed | Outcome | NotCancelled | JobEnded | Goodbye
ToNode = Reserve | CancelReservations | Common | Launch | NoTask | CancelAttempt | ForgetJob | Goodbye
FromNode = ReservationsRefused | GetTasks | Report | HandBack | AttemptRuns | NodeChanged | NodeDraining | Goodbye

_encoder = msgspec.msgpack.Encoder()
encode_into = _encoder.encode_into


class FrameDecoder:
    """Decodes frames whose messages must be of the given union of message types."""

    def __init__(self, messages: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(list[messages]).decode

    def __call__(self, frame: bytes) -> list[Any]:
        """The frame's messages; `LinkError` if it is not a frame of such messages."""
        try:
            return self._decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise LinkError(f"malformed frame of {len(frame)} bytes: {error}") from None
