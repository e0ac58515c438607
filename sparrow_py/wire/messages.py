"""The messages that schedulers, node monitors and clients exchange.

A frame is a msgpack array of messages: everything queued for that peer in one turn of the
loop. A message is a msgpack array whose first element is its tag. Decoding validates types
and shapes in the same step; ranges are checked by the core that receives the message.

Identifiers
-----------
job      minted by the client, so that submitting twice is one job.
stage    a stage's position in its job, from 0; a stage comes after its predecessors.
task     a task's position in its job, from 0, counted through all stages.
ticket   minted by a scheduler: one group of reservations. At a node monitor a ticket is one
         entry of a queue with a count; at its scheduler it belongs to one stage at a time, and
         passes to another without a message (probe sharing).
ask      minted by a node monitor: one getTask, for one or several slots.
epoch    raised by the client each time it moves the job to another scheduler. Node monitors fence
         what comes with a lower epoch than they have seen claimed.
attempt  minted by a scheduler, one per start of a task: `epoch << 40 | counter`, so that within its
         job it is unique among all schedulers that ever held it. The counter is that of the scheduler's
         process, whichever job it is: so what comes late of an attempt (Report, HandBack, AttemptRuns,
         CancelAttempt) is not taken for one of another job that has the same id, and names no user.
"""

from __future__ import annotations

from typing import Any

import msgspec

from sparrow_py.constraints import Constraint
from sparrow_py.errors import LinkError
from sparrow_py.job import BlobRef, TaskStatus

PROTOCOL_VERSION = 4
"""What is spoken here. Tests hold it against recordings of the versions before."""
PROTOCOL_VERSION_OLDEST = 3
"""The oldest version that is spoken, with peers that speak no newer one."""
FRAME_BYTES_MAX = 1 << 20
"""A frame's size limit unless the daemon says otherwise."""
MESSAGES_PER_FRAME_MAX = 0xFFFF
"""As many as an array with a 16-bit count can have. Decoded, a message takes a multiple of its bytes."""
MESSAGE_OVERHEAD_BYTES = 4096
"""Room that a message needs beside its payload; payloads may fill the rest of a frame."""
DETAIL_BYTES_FREE = MESSAGE_OVERHEAD_BYTES // 2
"""Of that room so much is for a task's preferred nodes and inputs; beyond it they count with its payload."""
TASKS_PER_MESSAGE_MAX = 10_000
UNSTARTED_RANGES_MAX = 10_000
"""Ranges of tasks in a `HandedOver`: what does not fit counts as started."""
NUMBERS_PER_MESSAGE_MAX = 200
"""Numbers of tasks, or names of node monitors' memories, in a message that fits any frame beside its payload."""
MEMORY_CHARS_MAX = 64
"""Of the name of a node monitor's memory."""
WITHDRAWN_CHARS_MAX = 1000
"""Of the reason why a node does not offer an app, refuses reservations, hands a task back or changes its state, or why
a client could not upload an input again."""
REASON_BEGINNING = 200
"""Characters of the beginning of a reason that is too long."""
EPOCH_SHIFT = 40
DEPTH_MAX = (1 << 16) - 1
"""How deep jobs may be nested at most, whatever a scheduler's option says."""
SPARROW, FLOW, ALTRUISTIC = "sparrow", "flow", "altruistic"
"""The planes that schedulers run, as `Welcome` and `Lead` name them."""
LED = (FLOW, ALTRUISTIC)
"""Those that place tasks for the whole cluster, and so have a leader. A cluster has one of them at a time."""
PLANE_CHARS_MAX = 64
"""Of a plane's name."""
LEAD_EPOCH_MAX = 1 << 62
"""Lead epochs are below."""


def cut_reason(reason: str) -> str:
    """What a peer says, as it is told and kept: what is longer than `WITHDRAWN_CHARS_MAX` loses its middle."""
    if len(reason) <= WITHDRAWN_CHARS_MAX:
        return reason
    return f"{reason[:REASON_BEGINNING]}…{reason[REASON_BEGINNING + 1 - WITHDRAWN_CHARS_MAX :]}"


class Message(msgspec.Struct, array_like=True, gc=False):
    """Base of all messages."""


# ---- both ways -------------------------------------------------------------------------------


class NodeInfo(msgspec.Struct, array_like=True, frozen=True):
    """What a node monitor says of its node.

    `apps` maps each app to the runtime its executors state ("3.11" for python, else ""). `address`
    (host:port) is where its HTTP listens, which large data come from. `memory` names what this process remembers of
    tasks that it has started: it is drawn at random when the process starts, and ends with it. `withdrawn` maps each
    app that it should run, and whose executors do not start, to the reason; those are not among `apps`.
    """

    slots: int
    resources: dict[str, float]
    attributes: dict[str, str]
    apps: dict[str, str]
    address: str = ""
    memory: str = ""
    withdrawn: dict[str, str] = {}


Data = bytes | BlobRef
"""A payload, common input or result: itself, or where to fetch it."""


class Hello(Message, tag=1):
    """First message of whoever dialled. `role` is "client" or "node"; `name` a node's id.

    `version` is the oldest protocol version that is spoken there, which is all that a scheduler of that
    version asks; `newest` the newest, 0 if it is the same.
    `user_stated` is false if the user is only the system's name for whoever runs the client: a token's or
    certificate's own goes before it.
    """

    version: int
    role: str
    name: str
    user: str
    token: str
    node: NodeInfo | None = None
    newest: int = 0
    user_stated: bool = True


class Welcome(Message, tag=2):
    """First message of the daemon that was dialled. `version` is the newest that both sides speak: the link's.
    `user`: whose jobs the client's are. `plane`: "sparrow" or "flow"; `leads`: whether it takes jobs for its plane, as
    it does not while another scheduler leads that. Schedulers of a version before `PLANES_SINCE` say neither.
    """

    version: int
    name: str
    frame_bytes_max: int
    user: str = ""
    plane: str = SPARROW
    leads: bool = True


class Renew(Message, tag=4):
    """Whoever dialled shows another token, of the same role and user, which stands for the link from now on: so that
    the one before can be withdrawn while the link is in use. One that is not known there changes nothing. There is no
    answer."""

    token: str


class Goodbye(Message, tag=3):
    """Last message before a link is closed on purpose.

    `is_denied`: whoever dialled did not prove who it is, or may not be what it says, so that the next dial with the
    same token ends alike.
    """

    reason: str
    is_denied: bool = False


# ---- client to scheduler ---------------------------------------------------------------------


class Retry(msgspec.Struct, array_like=True, frozen=True):
    """A stage's `job.RetryPolicy`, with the same fields."""

    attempts: int
    first_delay_s: float
    factor: float
    longest_delay_s: float
    jitter: float


class Stage(msgspec.Struct, array_like=True, frozen=True):
    """One stage of a job, without its tasks; fields as in `job.StageSpec`. `demand` is per task.

    `local`: some of its tasks have preferred nodes, which come with the tasks.
    """

    app: str
    task_count: int
    common: Data
    runtime: str
    probe_ratio: float
    prefetch: int
    expected_duration_s: float | None
    demand: dict[str, float] | None = None
    name: str = ""
    after: tuple[str, ...] = ()
    where: tuple[Constraint, ...] = ()
    delay_s: float | None = None
    task_timeout_s: float | None = None
    local: bool = False
    gang: bool = False
    max_per_node: int | None = None
    max_per_rack: int | None = None
    together_with: str = ""
    priority: int | None = None
    lease_s: float | None = None
    retry: Retry | None = None


class TaskDetail(msgspec.Struct, array_like=True, frozen=True):
    """What few tasks have. `preferred`: nodes (task-level constraint, §3.3). `inputs`: (first task, count) whose
    results the task is given; numbers after the job's last task are those of the job's `given` and `awaited`, of which
    each awaited one is named alone, with a count of 1. `data`: (node id, bytes) of what the task reads that lies on
    nodes, for policies that count what has to move; at most `job.DATA_NODES_MAX` nodes. `data_bytes`: what these are
    parts of; None: their sum.
    """

    preferred: tuple[str, ...] = ()
    inputs: tuple[tuple[int, int], ...] = ()
    data: tuple[tuple[str, int], ...] = ()
    data_bytes: int | None = None


class KnownOutcome(msgspec.Struct, array_like=True, frozen=True):
    """An outcome that the client has. `result` only if another stage may ask for it."""

    task: int
    status: TaskStatus
    result: Data


class SubmitJob(Message, tag=10):
    """A job. Its tasks follow in `AddTasks`, in order, as many messages as they need.

    `instance` tells it from other jobs of the same id, before and after, and stays when it moves.
    With an epoch above 0 it was at another scheduler before: what the client knows of it follows in
    `Known` messages, which come before the tasks that they speak of. `age_s`: how long ago the user submitted it.

    `acknowledges`: the client answers `Counted` and `Using`, and a scheduler that has the job waits for the answers.
    `priority`: None is the user's own.
    `avoid_by`: no node runs its tasks that has the same value of this attribute as one where a job in `avoid` runs;
    empty: no node where one runs.
    `policy`: the plane that it is for; empty is `SPARROW`. `preemptible`: its tasks may be stopped for others, and
    start again, which uses up no attempt. Schedulers of a version before `PLANES_SINCE`, which know neither, sample.
    """

    job: str
    epoch: int
    name: str
    stages: list[Stage]
    max_attempts: int
    retry_failed: bool
    queue_timeout_s: float | None
    report_placed: bool
    wait_for_nodes_s: float | None = None
    avoid: tuple[str, ...] = ()
    on_client_lost: str = "cancel"
    instance: int = 0
    acknowledges: bool = False
    age_s: float = 0.0
    priority: int | None = None
    avoid_by: str = ""
    policy: str = ""
    preemptible: bool = False

    @property
    def accounts(self) -> bool:
        """Whether the client is told where tasks of the job are started (`Using`): one that may start once at most, and
        that does not go on without its client, who could not be told any more."""
        return self.acknowledges and self.max_attempts == 1 and self.on_client_lost == "cancel"


class AddTasks(Message, tag=11):
    """Payloads of the tasks `first`, `first` + 1, …; at most `TASKS_PER_MESSAGE_MAX`.

    `given`: data that were uploaded before, for these tasks and later ones to ask for as if they were results: the
    first that the job is given has the number after that of its last task. `awaited`: results of tasks of the client's
    other jobs, as (job, task), which these tasks wait for, with the numbers after those of all that was given: the
    scheduler takes each from that task, if it has the job, and else asks the client (`AskResults`). Schedulers of a
    version before `PLANES_SINCE` know neither.
    """

    job: str
    first: int
    payloads: list[Data]
    details: dict[int, TaskDetail] | None = None
    given: tuple[BlobRef, ...] = ()
    awaited: tuple[tuple[str, int], ...] = ()


class CancelJob(Message, tag=12):
    """Cancel what of the job has not started; with `running`, what runs is stopped too."""

    job: str
    running: bool = False


class CancelTasks(Message, tag=13):
    """Cancel these tasks if they have not started: each is answered by Outcome or NotCancelled.

    With `running` those that run are stopped, and nothing is answered by NotCancelled.
    """

    job: str
    tasks: list[int]
    running: bool = False


class Known(Message, tag=14):
    """Of a job with an epoch above 0: outcomes that the client has, and earlier starts of tasks: of one without an
    outcome those in vain, of one with an outcome those before the start that it is of. Also of a job with the epoch 0:
    results of tasks that it is given, as another job has run them.

    `failures`: of tasks, those that were retried by their stage's `Retry`, which are not among the starts.
    `unstarted`: (first task, count) of those of which the last scheduler has said that no start is open; none of those
    that have failed starts before the client has answered a `Counted` for it. `used`: names
    of the memories (`NodeInfo.memory`) where a scheduler may have started tasks of the job, some of them in each of
    these messages; None in all of them if that is not known.
    """

    job: str
    outcomes: list[KnownOutcome]
    starts: dict[int, int]
    unstarted: tuple[tuple[int, int], ...] = ()
    used: tuple[str, ...] | None = None
    failures: dict[int, int] = {}


class CountKnown(Message, tag=16):
    """Answer to `Counted`, with the same: if the job moves, the next scheduler is told."""

    job: str
    starts: dict[int, int]
    failures: dict[int, int] = {}


class UsingKnown(Message, tag=17):
    """Answer to `Using`, with its number: if the job moves, the next scheduler is told."""

    job: str
    number: int


class AskPlaced(Message, tag=18):
    """Which of these tasks have left the queue? At most `NUMBERS_PER_MESSAGE_MAX`, answered by `PlacedNow` with the
    number, unless the job has ended."""

    job: str
    number: int
    tasks: list[int]


class FinishedElsewhere(Message, tag=64):
    """The task has finished in another job of the client, a copy, with this result: its attempt is to be stopped, and
    the stages after it go on. There is no `Outcome` of it, unless that was sent already."""

    job: str
    task: int
    result: Data


class Received(Message, tag=19):
    """The client has handled so many messages of this link since it stands, `Welcome` and `Goodbye` not counted.

    Said now and then. The scheduler keeps outcomes until then, and sends no more than a window ahead.
    """

    count: int


class GiveResults(Message, tag=68):
    """What has become of tasks that a job awaits, by their numbers in it: results, or, of those that did not finish,
    status, result (an exception, say) and error. Each is said as soon as the client knows it, if the scheduler has
    asked for it, or if the client knew it when the job came; what the scheduler knows already it ignores.
    """

    job: str
    results: dict[int, Data]
    failures: dict[int, tuple[TaskStatus, Data, str]] = {}


class BlobAt(Message, tag=15):
    """Answer to `BlobLost`: the client has uploaded the input again, or could not (`blob.at` is empty): then `reason`
    says why, and is empty if the client does not have the data."""

    job: str
    blob: BlobRef
    reason: str = ""


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
    """How a task ended. Times and `earlier_errors` as in `job.TaskReport`."""

    job: str
    task: int
    status: TaskStatus
    result: Data
    error: str
    attempts: int
    node: str
    reserved_at_s: float | None
    started_at_s: float | None
    service_s: float | None
    stdout: str = ""
    stderr: str = ""
    earlier_errors: tuple[str, ...] = ()


class NotCancelled(Message, tag=24):
    """Answer to `CancelTasks`: the task runs already, its outcome will come."""

    job: str
    task: int


class JobEnded(Message, tag=25):
    """Every outcome of the job has been sent."""

    job: str


class Retried(Message, tag=26):
    """The task is to start again, having been started `starts` times in vain. A next scheduler is to be told.

    Said to a client that does not acknowledge (`SubmitJob.acknowledges`); to others `Counted` is.
    """

    job: str
    task: int
    starts: int


class Counted(Message, tag=60):
    """Tasks have been started so often, as far as can be known, those starts included that nobody can rule out, and not
    those whose `failures` were retried by their stage's `Retry`.

    The client answers with `CountKnown`. None of these tasks starts again before that: whatever dies then, the next
    scheduler does not count too few. At most `NUMBERS_PER_MESSAGE_MAX` tasks.

    `waiting`: these have no start open, and none starts before the client has answered another `Counted` for it; to
    this one there is no answer. If the job moves meanwhile, they are among `Known.unstarted`, which binds the next
    scheduler in the same way for those of them that have failed.
    """

    job: str
    starts: dict[int, int]
    failures: dict[int, int] = {}
    waiting: bool = False


class Using(Message, tag=61):
    """Tasks of the job, which may start once at most, are to be started by node monitors with these memories.

    The client answers with `UsingKnown`. Nothing starts there before that: whoever has the job next asks them all what
    they have started of it, and so knows what has not started. At most `NUMBERS_PER_MESSAGE_MAX` memories.
    """

    job: str
    number: int
    memories: tuple[str, ...]


class Unused(Message, tag=62):
    """The node monitor with this memory is gone, and the outcome of all that it had of the job has been told."""

    job: str
    memory: str


class PlacedNow(Message, tag=63):
    """Answer to `AskPlaced`: those of its tasks that have left the queue and have no outcome."""

    job: str
    number: int
    tasks: list[int]


class BlobLost(Message, tag=27):
    """No node has this input of the job any more: the client is to upload it again and say `BlobAt`."""

    job: str
    hash: str


class AskResults(Message, tag=69):
    """The scheduler does not have the tasks with whose results the job awaits these numbers: the client is to say what
    becomes of them (`GiveResults`)."""

    job: str
    numbers: list[int]


class Draining(Message, tag=28):
    """The scheduler takes no further jobs, and will end: new ones are for others."""


class Leads(Message, tag=55):
    """Whether the scheduler leads its plane has changed: jobs are for the one that does."""

    leads: bool


class HandedOver(Message, tag=29):
    """The scheduler ends, and has let go of the job: take it to another, with a higher epoch.

    `unstarted`: (first task, count) of tasks of which no start is open, in order; what else has no outcome may run.
    `cancelled`: the job was cancelled here, by its client, an operator or the scheduler, and not all outcomes are told:
    it is to be cancelled there, too; `running`: with what runs.
    """

    job: str
    unstarted: tuple[tuple[int, int], ...]
    cancelled: bool = False
    running: bool = False


class AllHandedOver(Message, tag=53):
    """The scheduler has let go of all jobs that it had of this client. A job that it has neither accepted nor refused
    has not reached it."""


# ---- between client and scheduler: jobs that go on without their client ----------------------


class GiveBack(Message, tag=80):
    """Of a job that the client is about to let go of, outcomes that it has: they are kept with those that it does not
    have, for whoever attaches to the job. `Detach` follows."""

    job: str
    outcomes: list[Outcome]


class Detach(Message, tag=81):
    """The client lets go of the job, all of whose tasks have come: it goes on without it, and its outcomes are kept
    for `retention_s` after its end, or after the link of the last client that was attached, for whoever attaches.
    Answered by `Detached` or, if nothing has changed, `NotDetached`.

    `submission`: the job as it came, without what its stages have in common. If the scheduler does not have the job any
    more, as it has ended, all its outcomes must be there, or among those that the client has given back.
    """

    submission: SubmitJob
    retention_s: float


class Attach(Message, tag=82):
    """The client wants the outcomes of this job of its user, which another client has let go of. Answered by `Attached`
    or `NotAttached`. `by`: drawn at random by the client for this job; with the same, it may attach again before the
    scheduler knows that its last link is gone."""

    job: str
    by: int


class Detached(Message, tag=83):
    """Answer to `Detach`: nothing more of the job is said on this link, and what was said since is void."""

    job: str


class NotDetached(Message, tag=84):
    """Answer to `Detach`: the job stays with its client. `field` names what is wrong with the message, if anything."""

    job: str
    reason: str
    field: str = ""


class Attached(Message, tag=85):
    """Answer to `Attach`: the job as it was detached, with its age, and how long it was to be kept, which a scheduler
    that is older does not say. Its outcomes that nobody has follow, as those of any job of the client, and `JobEnded`.
    """

    submission: SubmitJob
    retention_s: float | None = None


class NotAttached(Message, tag=86):
    """Answer to `Attach`: the scheduler keeps no such job of the user; or, if it `is_kept`, another client is attached
    to it."""

    job: str
    is_kept: bool = False


# ---- scheduler to node monitor ---------------------------------------------------------------


class KeepData(Message, tag=87):
    """Large results with these hashes are kept for whoever attaches to the user's job: their leases begin anew. At most
    `NUMBERS_PER_MESSAGE_MAX`; said again and again while the job is kept."""

    user: str
    hashes: tuple[str, ...]


class Reserve(Message, tag=30):
    """Queue `count` reservations (probes, §3.2); added to the ticket's where it is queued already. `depth`: how deep
    the job is nested: 0 if no task has submitted it, else one more than the job of the task that has."""

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
    depth: int = 0


class CancelReservations(Message, tag=31):
    """Remove all that is queued of this ticket (§8, Cancellation)."""

    ticket: int


class Common(Message, tag=32):
    """What the stage's tasks have in common: once per stage and node, before the stage's first Launch there.

    `once`: its tasks may start once at most, so that it is remembered which have started.
    """

    job: str
    stage: int
    data: Data
    task_timeout_s: float | None = None
    instance: int = 0
    once: bool = False
    lease_s: float | None = None


class Launch(Message, tag=33):
    """One task: the answer to (part of) an ask; or, with `ask` 0, a task that is pushed (direct placement): it takes
    one reservation of the ticket, whose `Reserve` follows, and runs when it is that one's turn."""

    ask: int
    job: str
    stage: int
    task: int
    attempt: int
    payload: Data
    inputs: tuple[tuple[int, int], ...] = ()
    ticket: int = 0


class LaunchNow(Message, tag=54):
    """A task that nobody has asked for, for a slot that the node has said is free (`Idle`).

    The node starts it at once if a slot is free and nothing is queued there, else it answers `HandBack`: the task waits
    there in no case. The stage's `Common` comes before it, as before a `Launch`. `depth` as in `Reserve`.
    """

    job: str
    stage: int
    task: int
    attempt: int
    payload: Data
    user: str
    weight: float
    priority: int
    app: str
    expected_duration_s: float | None
    depth: int = 0


class LaunchPlaced(Message, tag=56):
    """A task that a plane has placed at this node, for the node's lane of placed tasks, in which it waits for nothing
    but a slot of the lane and what it demands. It is handed back if it has not started within the lane's time-out.

    `lead`: the plane's lead epoch at its scheduler; the node hands back what is of a lower one than it has accepted.
    The stage's `Common`, and its inputs, come before it, as before a `Launch`.
    """

    job: str
    stage: int
    task: int
    attempt: int
    payload: Data
    lead: int
    user: str
    weight: float
    priority: int
    app: str
    expected_duration_s: float | None
    demand: dict[str, float] | None = None
    inputs: tuple[tuple[int, int], ...] = ()


class Lead(Message, tag=57):
    """The scheduler leads the plane with this epoch: the node takes the plane's placed tasks from no lower one from now
    on. With epoch 0 it only asks: if it led, it leads no more. Either is answered by `Leading`. `forced`: by order of
    an operator, whoever leads."""

    plane: str
    epoch: int
    forced: bool = False


class NoTask(Message, tag=34):
    """No-op answer: there is no task left for `count` of the ask's slots."""

    ask: int
    count: int


class CancelAttempt(Message, tag=35):
    """Cancel this attempt if it has not started: answered by Report or AttemptRuns. With `running`, stop it. With
    `preempt`, stop it, or hand it back if it has not started, to make room: answered by `Preempted`, `HandBack`, or by
    the `Report` of one that had ended."""

    job: str
    attempt: int
    running: bool = False
    preempt: bool = False


class ForgetJob(Message, tag=36):
    """The job has ended: its common bytes may go."""

    job: str


class Input(Message, tag=37):
    """The result of a task that others need: once per job and node, before their Launch."""

    job: str
    task: int
    data: Data


class AskLength(Message, tag=39):
    """How long is the queue? Answered by `QueueLength` (sampling without late binding, §3.1)."""

    probe: int


class DrainingKnown(Message, tag=52):
    """Answer to `NodeState` "draining": the scheduler launches nothing more there, and what it has launched came
    before this. A node that ended sooner might leave a task behind that counts as started."""


class Claim(Message, tag=38):
    """The job is this scheduler's from `epoch` on: lower epochs launch nothing more.

    The node answers with a `Report` for each outcome that it still holds, then with `Claimed`. `age_s`: if what has
    started is of interest, how long ago the user submitted the job, at least; then `StartedHere` comes before
    `Claimed`.
    """

    job: str
    user: str
    epoch: int
    instance: int = 0
    age_s: float | None = None


# ---- node monitor to scheduler ---------------------------------------------------------------


class ReservationsRefused(Message, tag=40):
    """`count` of the reservations last sent for this ticket were not queued. `lasting`: nor would others be, as the
    node's operator does not want them."""

    ticket: int
    count: int
    reason: str
    lasting: bool = False


class GetTasks(Message, tag=41):
    """`count` slots are free and it is this ticket's turn (§3.2 getTask). `free`: what a demand may take."""

    ask: int
    ticket: int
    count: int
    free: dict[str, float] | None = None


class Used(msgspec.Struct, array_like=True, frozen=True):
    """What an attempt has used: CPUs on average, the most memory at a time, and how many bytes a second of large data
    it had fetched on average, from when it had its slot. None: not known."""

    cpu: float | None = None
    memory_bytes: int | None = None
    net_bytes_per_s: float | None = None


class Report(Message, tag=42):
    """An attempt ended. Status "lost": its executor died; the task may have run. `used`: of placed tasks, if known.
    `retry`: it failed in a way that may pass, as its executor says."""

    job: str
    task: int
    attempt: int
    status: TaskStatus
    result: Data
    error: str
    started_at_s: float | None
    service_s: float | None
    stdout: str = ""
    stderr: str = ""
    used: Used | None = None
    retry: bool = False


NO_ROOM_NOW = "now"
"""Other data are kept at the node: room comes back."""
NO_ROOM_EVER = "ever"
"""The data are more than the node may keep at all, or than it keeps for this user."""


class HandBack(Message, tag=43):
    """The attempt was not started here and will not be. `missing`: hashes of its inputs that no node named has.
    `lasting`: nor would another of its stage be, as the node's operator does not want them.

    `no_room`: the node cannot keep the task's inputs, though they may be had: `NO_ROOM_NOW` or `NO_ROOM_EVER`; empty if
    that is not so. Schedulers that do not know the field take those that are `missing` for gone.
    """

    job: str
    attempt: int
    reason: str
    missing: tuple[str, ...] = ()
    lasting: bool = False
    no_room: str = ""


class AttemptRuns(Message, tag=44):
    """Answer to CancelAttempt: too late."""

    job: str
    attempt: int


class NodeChanged(Message, tag=45):
    """The node's slots, resources, attributes or apps changed, as when an executor says something of its node."""

    node: NodeInfo


class NodeState(Message, tag=46):
    """The node's state. "cordoned": it wants no further reservations. "draining": and those it had are gone.

    To "draining" `DrainingKnown` is the answer.
    """

    state: str
    reason: str


class Claimed(Message, tag=47):
    """Answer to `Claim`: what of the job runs here, as (task, attempt). `vouches`: the `StartedHere` before it name
    every task of the job that was ever started here.

    `user` and `instance` say which job of that id, as the claim did; so they do in `StartedHere`. A node monitor that
    does not say them (`user` None) means any.
    """

    job: str
    epoch: int
    running: list[tuple[int, int]]
    vouches: bool = False
    user: str | None = None
    instance: int = 0


class StartedHere(Message, tag=51):
    """Tasks of a claimed job that were started here, be their outcomes still held or not; some of them."""

    job: str
    epoch: int
    tasks: list[int]
    user: str | None = None
    instance: int = 0


class Fenced(Message, tag=48):
    """Another scheduler has claimed the job with this epoch: it is yours no more.

    `user` and `instance` say which job of that id; a node monitor that does not say them (`user` None) means any.
    """

    job: str
    epoch: int
    user: str | None = None
    instance: int = 0


class Idle(Message, tag=49):
    """The node has `free` slots and nothing queued: a hint, said to one scheduler."""

    free: int


class QueueLength(Message, tag=50):
    """Answer to `AskLength`: tasks that run here, wait here, or are on their way for a slot that asked."""

    probe: int
    length: int


class Leading(Message, tag=58):
    """Answer to `Lead`, and said again when another scheduler leads the plane: `epoch` is the highest that the node has
    accepted for the plane, `leader` the name of that one's scheduler, `linked` whether that is linked to the node now
    and has not asked since. `address`: where the node dials it, for people.

    If the scheduler that is told is the leader, and has said so in its `Lead`, then `Inventory` messages follow.
    """

    plane: str
    epoch: int
    leader: str
    linked: bool
    address: str = ""


class Inventory(Message, tag=59):
    """Jobs of a plane of which the node has something: tasks that run, outcomes, or the memory of starts. Each is
    (user, job, instance); some of them in each message, at most `NUMBERS_PER_MESSAGE_MAX`, and the last one says
    `complete`."""

    plane: str
    epoch: int
    jobs: list[tuple[str, str, int]]
    complete: bool


class NodeLoad(Message, tag=65):
    """What the node has left and what is measured there, for planes that place tasks. Said to schedulers that have sent
    `Lead`: on change at most twice a second, else every `LOAD_REFRESH_S`.

    `lane_free`: slots of the lane of placed tasks that none holds or waits for; `lane_slots`: all of them. `short`:
    slots taken by sampled tasks. `queued`: reservations and tasks that wait. `free`: of the node's resources, what no
    task demands that is here, be it a placed one that waits.
    `cpu`: CPUs in use; `memory_bytes` in use; `net_bytes_per_s`: received and sent. None if it cannot be measured.
    """

    lane_free: int
    lane_slots: int
    short: int
    queued: int
    free: dict[str, float]
    cpu: float | None = None
    memory_bytes: int | None = None
    net_in_bytes_per_s: float | None = None
    net_out_bytes_per_s: float | None = None


class Occupied(Message, tag=66):
    """Placed tasks hold so many slots of the node, for long: who samples reckons with the others. Said to schedulers
    that sample, on change, at most twice a second."""

    slots: int


class Preempted(Message, tag=67):
    """Answer to `CancelAttempt` with `preempt`: the attempt was stopped after so long, and has no result."""

    job: str
    attempt: int
    service_s: float


class TaskSays(Message, tag=70):
    """A task that runs at the node, as this attempt, has a client of its own, and this is a frame of that client's
    messages, relayed: of its `Hello` first, and then as over a link. `client` tells it from others of the attempt, of
    those before it included. The user is that of the attempt's job, whatever the Hello says. Answered by `TaskHears`.
    """

    job: str
    attempt: int
    client: int
    frame: bytes


class TaskGone(Message, tag=71):
    """The client is gone, as it was closed or as its attempt has ended: its jobs are cancelled, with what runs."""

    job: str
    attempt: int
    client: int


class TaskHears(Message, tag=72):
    """A frame of messages for a client within a task (`TaskSays`): `Welcome` first. After a `Goodbye` the scheduler
    knows no such client any more."""

    job: str
    attempt: int
    client: int
    frame: bytes


class TaskHeard(Message, tag=73):
    """So many frames of a client within a task (`TaskSays`) have been looked at, as far as they will be. Each counts
    once, as a node has only so many on their way (`node_monitor/frames_ahead.py`). is_over: nothing more that the
    client says is looked at, and the node closes its connection once what was said before has left."""

    client: int
    frames: int
    is_over: bool = False


LOAD_REFRESH_S = 30.0
"""An unchanged load is said again after so long."""
READY, CORDONED, DRAINING = "ready", "cordoned", "draining"


UNHURRIED_S: dict[type, float] = {
    JobAccepted: 0.002,
    CancelReservations: 0.005,
    ForgetJob: 0.5,
    Idle: 0.001,
    NodeLoad: 0.25,
    Occupied: 0.25,
    TaskHeard: 0.001,
}
"""Messages that nobody waits for, and how long (seconds) they may wait for one that somebody does, to travel with it.

A frame costs more than all else that is done with a message. A reservation that has become useless is cancelled while
its node is busy, for tens of milliseconds as a rule; a node that is not has asked for it already, and the cancellation
travels with the answer. What a node keeps of a job that has ended is a few hundred bytes. That it is idle it says again
and again while tasks start and end, and mostly with the report of one.
"""

SINCE: dict[type, int] = {
    Leads: 4,
    LaunchPlaced: 4,
    Lead: 4,
    Leading: 4,
    Inventory: 4,
    NodeLoad: 4,
    Occupied: 4,
    Preempted: 4,
    TaskHeard: 4,
    GiveResults: 4,
    AskResults: 4,
    TaskSays: 4,
    TaskGone: 4,
    TaskHears: 4,
    GiveBack: 4,
    Detach: 4,
    Attach: 4,
    Detached: 4,
    NotDetached: 4,
    Attached: 4,
    NotAttached: 4,
    KeepData: 4,
}
"""The version that brought a message, for those that came after `PROTOCOL_VERSION_OLDEST`.

A peer that speaks an older version is not sent them (`links.OlderLink`): who sends one must be content with that.
"""
PLANES_SINCE = 4
"""The version from which on schedulers say which plane they run, and know priorities of stages and data that are given
to jobs."""


FromClient = (
    SubmitJob | AddTasks | CancelJob | CancelTasks | Known | CountKnown | UsingKnown | AskPlaced | BlobAt
    | FinishedElsewhere | GiveResults | GiveBack | Detach | Attach | Received | Renew | Goodbye
)  # fmt: skip
ToClient = (
    JobAccepted | JobRefused | Placed | Outcome | NotCancelled | JobEnded | Retried | Counted | Using | Unused
    | PlacedNow | BlobLost | AskResults | Draining | Leads | HandedOver | AllHandedOver | Detached | NotDetached
    | Attached | NotAttached | Goodbye
)  # fmt: skip
ToNode = (
    Reserve | CancelReservations | Common | Launch | LaunchNow | LaunchPlaced | Lead | NoTask | CancelAttempt
    | ForgetJob | Input | Claim | AskLength | DrainingKnown | TaskHears | TaskHeard | KeepData
    | Goodbye
)  # fmt: skip
FromNode = (
    ReservationsRefused | GetTasks | Report | HandBack | AttemptRuns | NodeChanged | NodeState | Claimed | StartedHere
    | Fenced | Idle | QueueLength | Leading | Inventory | NodeLoad | Occupied | Preempted | TaskSays | TaskGone | Renew
    | Goodbye
)  # fmt: skip

_encoder = msgspec.msgpack.Encoder()
encode_into = _encoder.encode_into


def one_message_frame(message: Message) -> bytes:
    """A frame that holds this message alone."""
    return _encoder.encode([message])


_ARRAY_32 = 0xDD
"""The first byte of an array in msgpack with a 32-bit count."""


class FrameDecoder:
    """Decodes frames whose messages must be of the given union of message types."""

    def __init__(self, messages: Any) -> None:
        self._decode = msgspec.msgpack.Decoder(list[messages]).decode

    def __call__(self, frame: bytes | bytearray | memoryview) -> list[Any]:
        """The frame's messages; `LinkError` if it is not a frame of such messages."""
        if frame and frame[0] == _ARRAY_32:  # No other array can be too long.
            _check_count(frame)
        try:
            return self._decode(frame)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise LinkError(f"malformed frame of {len(frame)} bytes: {error}") from None


def _check_count(frame: bytes | bytearray | memoryview) -> None:
    """Before its messages are decoded."""
    count = int.from_bytes(frame[1:5], "big")
    if count > MESSAGES_PER_FRAME_MAX:
        raise LinkError(
            f"malformed frame of {len(frame)} bytes: {count} messages; at most {MESSAGES_PER_FRAME_MAX} are allowed"
        )
