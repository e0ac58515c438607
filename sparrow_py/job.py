"""The job model: what a frontend asks for, and what it is told.

A job is a DAG of stages (most often of one), a stage a list of tasks that may run in parallel
(Sparrow §2, §6). To schedulers and node monitors a task is an opaque payload
and the name of the app whose executors understand it.
"""

from __future__ import annotations

import enum
import graphlib
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, Protocol

import msgspec

from sparrow_py import constraints
from sparrow_py.counted import counted
from sparrow_py.errors import InvalidRequest, shown

PROBE_RATIO_DEFAULT = 2.0
PROBE_RATIO_MAX = 1000.0
PREFETCH_MAX = 1024
PRIORITY_MIN, PRIORITY_MAX = -1000, 1_000_000
"""What a job may state; the operator says how high its user's may be."""
MAX_ATTEMPTS_DEFAULT = 3
MAX_ATTEMPTS_MAX = 1000
NAME_BYTES_MAX = 256
"""Limit on user, app, stage, job and node names and on job ids, in bytes of UTF-8."""
JOB_ID_BYTES = 16
"""Of a job id that is minted here."""
STAGES_MAX = 1000
STAGE_EDGES_MAX = 100_000
DEMANDS_MAX = 64
DEMAND_MIN = 1e-9
RESOURCE_MAX = 1e18
"""Of a resource that a node offers or a task demands: an exabyte, and sums of many are still exact enough."""
HASH_CHARS = 64
PREFERRED_MAX = 1000
INPUTS_MAX = 10_000
GIVEN_MAX = 10_000
"""Large data that the tasks of a job may ask for as inputs, all of them together."""
AWAITED_PAIRS_MAX = 1_000_000
"""Pairs of a task and a result of another job that it waits for, of all tasks of a job together: a result that comes is
looked at once for each task that waits for it."""
RETRY_ATTEMPTS_MAX = 1000
RETRY_DELAY_S_MAX = 86_400.0
RETRY_FACTOR_MAX = 1000.0
"""Of a `RetryPolicy`."""
ON_CLIENT_LOST = ("cancel", "finish")
POLICIES = ("", "sparrow", "flow", "altruistic", "auto")
"""What a job may state as its policy: see `JobSpec`."""
POLICIES_ALLOWED = ", ".join(shown(policy) for policy in POLICIES)
FLOW_FROM_S = 10.0
"""With policy "auto", jobs whose stages all expect tasks of at least so long are for policy flow."""
LEASE_S_MIN, LEASE_S_MAX = 0.1, 1e6
"""Bounds of `StageSpec.lease_s`; the operator of a node may bound leases there further (`lease_s_max`)."""
GROUP_MAX = 1_000_000
"""Tasks that a stage may allow on a node or in a rack."""
DATA_NODES_MAX = 64
"""Nodes of which a task may say that they hold some of its data."""
DATA_BYTES_MAX = 1 << 40
"""Of a task's data on a node: what all of it costs must stay within the numbers of a network of the largest cluster."""
RAN_TOO_LONG = "it ran for longer than task_timeout_s"
"""How the error of a task begins that its node stopped for that."""


class BlobRef(msgspec.Struct, array_like=True, frozen=True):
    """A reference to bytes that are too large for a message.

    hash: their SHA-256, 64 hexadecimal digits.
    size: how many bytes.
    at: HTTP addresses, host:port, of nodes that have them.
    """

    hash: str
    size: int
    at: tuple[str, ...]


class TaskStatus(enum.StrEnum):
    """How a task ended. Every task of an accepted job ends in exactly one of these (guarantee 1).

    FINISHED: it ran, and has a result.
    FAILED: it ran and failed: its function raised, its command exited with a status other than 0, its time was up.
    CANCELLED: somebody cancelled it.
    LOST: it was started as often as it may be without its outcome becoming known, or found no place.
    """

    FINISHED = "finished"
    FAILED = "failed"
    CANCELLED = "cancelled"
    LOST = "lost"


FINISHED, FAILED, CANCELLED, LOST = TaskStatus
"""For what is done with every task: to look a member up in its enum takes a tenth of a microsecond."""


@dataclass(frozen=True)
class RetryPolicy:
    """How often, and after which delays, a task runs again that has failed in a way that may pass.

    Its executor says which failures are such (`CallOptions.retry_on` tells the Python executor). The task waits at the
    scheduler, in no slot. After its n-th such failure that is first_delay_s * factor ** (n - 1) seconds, at most
    `longest_delay_s`, less a random part of it. `InvalidRequest` if a field cannot be.

    Parameters
    ----------
    attempts: so many such failures are the task's: the last of them is its outcome. From 1, which is no retry. Starts
        that were lost do not count here, nor do these failures count to the job's `max_attempts`.
    first_delay_s: seconds from the first failure to the next start.
    factor: what each further delay is times the one before. From 1.
    longest_delay_s: no delay is longer. From `first_delay_s`.
    jitter: the part of a delay, from 0 to 1, that chance may take off, so that tasks which failed together do not come
        back together. 0: none.
    """

    attempts: int = 5
    first_delay_s: float = 0.5
    factor: float = 2.0
    longest_delay_s: float = 30.0
    jitter: float = 0.5

    def __post_init__(self) -> None:
        check_retry("", self)


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task of any job of the same client; there may be none yet."""

    job_id: str
    task: int


Ended = tuple[TaskStatus, bytes | BlobRef, str]
"""How a task ended: its status, its result (or exception), its error."""
InputName = str | tuple[str, int] | BlobRef | TaskResult
"""What a task asks for: all results of a stage, that of one task of it, data that were uploaded before, or the result
of a task of another job."""


@dataclass(slots=True)
class TaskSpec:
    """One task.

    payload: opaque bytes for the executor, or a reference to bytes that were uploaded before.
    id: for its submitter's use.
    preferred: ids of the nodes that have its input (task-level constraint, §3.3). See `StageSpec.delay_s`.
    inputs: results of earlier stages and of tasks of other jobs, and data that were uploaded before, which the executor
        is given with the payload, in this order. The task waits for those of other jobs.
    data: ids of nodes, and how many bytes of what the task reads lie on each: a hint for policies that count what has
        to move. Sampling makes nothing of it.
    data_bytes: how many bytes that the task reads these are parts of. To be stated where bytes have replicas, or lie
        elsewhere, too. By default each byte lies on one of these nodes: the sum.
    """

    payload: bytes | BlobRef = b""
    id: str = ""
    _: KW_ONLY
    preferred: Sequence[str] = ()
    inputs: Sequence[InputName] = ()
    data: Mapping[str, int] | None = None
    data_bytes: int | None = None


@dataclass(slots=True)
class StageSpec:
    """Tasks that may run in parallel, once all tasks of the stages named in `after` have finished.

    Parameters
    ----------
    tasks: payloads (`bytes`) or `TaskSpec`s. A stage without tasks finishes at once.
    name: for people, and for other stages' `after`; unique in its job.
    after: names of the stages whose results or effects this one needs.
    app: whose executors run the tasks.
    common: bytes that every task of the stage needs (a pickled function, say); sent once per node.
    probe_ratio: d of the paper (§3.1): ceil(d·m) reservations for m tasks. Any number from 1.
    prefetch: how many tasks a node monitor may hold per slot ahead of a free slot.
        0 is the paper's late binding; for tasks of a few milliseconds or less 8 to 32 saves
        most of the messages, and gives up that much of late binding.
    expected_duration_s: what a task is expected to take; used as the first charge of fair queueing.
    runtime: what the executors must run, as they state it ("3.11" for the python app); empty: any.
    demand: what each task takes of its node besides a slot: cpu, memory_bytes, or what nodes name.
    where: predicates over nodes' attributes, all of which must hold; see `constraints`.
    delay_s: after so long without a place, a task with `preferred` nodes may run on others (§8,
        delay scheduling). None: never.
    task_timeout_s: a task that runs for longer is stopped, and has failed. None: never.
    gang: its tasks are placed all at once, or wait all. Needs policy "flow", as do the next three.
    max_per_node: so many of its tasks may be on one node at a time. None: any number.
    max_per_rack: so many of its tasks may be on the nodes of one rack (attribute `rack`) at a time. None: any number.
    together_with: name of another stage of the job: tasks go to nodes where tasks of that one run, as long as that has
        tasks which have not ended.
    priority: among the job's stages, and all that the job's own is compared with; at most the job's. None: the job's.
    lease_s: its tasks may last long: nodes charge them so much slot time at a time, and when it is over a task may be
        asked to end (`should_yield`), as it is another user's turn. None: a task keeps its slot until it ends.
    retry: how often tasks run again whose executor says that their failure may pass, and after which delays. None: they
        do not. Needs `max_attempts` of at least 2, and no `retry_failed`.
    """

    tasks: Sequence[bytes | BlobRef | TaskSpec] = ()
    _: KW_ONLY
    name: str = ""
    after: Sequence[str] = ()
    app: str = "python"
    common: bytes | BlobRef = b""
    probe_ratio: float = PROBE_RATIO_DEFAULT
    prefetch: int = 0
    expected_duration_s: float | None = None
    runtime: str = ""
    demand: Mapping[str, float] | None = None
    where: Sequence[str] = ()
    delay_s: float | None = None
    task_timeout_s: float | None = None
    gang: bool = False
    max_per_node: int | None = None
    max_per_rack: int | None = None
    together_with: str = ""
    priority: int | None = None
    lease_s: float | None = None
    retry: RetryPolicy | None = None

    def validate_stage(self, where: str = "") -> None:
        """Raise `InvalidRequest` for the first field that cannot be; `where` goes before the field's name."""
        check_name(where + "name", self.name)
        check_name(where + "app", self.app, empty=False)
        check_name(where + "runtime", self.runtime)
        check_number(where + "probe_ratio", self.probe_ratio, 1, PROBE_RATIO_MAX)
        check_whole(where + "prefetch", self.prefetch, 0, PREFETCH_MAX)
        for name in ("expected_duration_s", "delay_s", "task_timeout_s"):
            value = getattr(self, name)
            if value is not None:
                check_number(where + name, value, 0, 1e9)
        check_lease(where + "lease_s", self.lease_s)
        if self.retry is not None and not isinstance(self.retry, RetryPolicy):
            raise InvalidRequest(where + "retry", self.retry, "a RetryPolicy, or None")
        if not isinstance(self.common, bytes | BlobRef):
            raise InvalidRequest(where + "common", self.common, "bytes")
        check_blob_ref(where + "common", self.common)
        if self.demand is not None:
            check_demand(where + "demand", self.demand)
            if self.demand and self.prefetch:
                raise InvalidRequest(where + "prefetch", self.prefetch, "0 for tasks with a demand")
        if len(sequence(where + "where", self.where)) > constraints.CONSTRAINTS_MAX:
            raise InvalidRequest(
                where + "where", f"{len(self.where)} of them", f"at most {constraints.CONSTRAINTS_MAX}"
            )
        for index, text in enumerate(self.where):
            constraints.parse(f"{where}where[{index}]", text)
        for index, name in enumerate(sequence(where + "after", self.after)):
            check_name(f"{where}after[{index}]", name, empty=False)
        check_limits(where, self)
        check_tasks(where, self.tasks)


@dataclass(slots=True)
class JobSpec(StageSpec):
    """A job: the fields of its one stage, or several `stages`.

    Parameters
    ----------
    stages: the stages of a job that has several, in any order; then `tasks` is empty.
    name: for people; shown by `sparrow jobs`.
    job_id: minted if empty. An id that a running job has is refused.
    max_attempts: how often a task may be started in all, its failures by a `retry` policy aside; 1 makes execution
        at-most-once.
    retry_failed: whether a task that ran and failed is started again too.
    queue_timeout_s: a task that has found no place after this long ends lost. None: never.
    wait_for_nodes_s: a task that no connected node may run waits so long for one. None: the job is
        refused if there is none when it is submitted, and later the scheduler's default holds.
    avoid: ids of this client's jobs; no node runs tasks of this job and of one of those at a time (§8).
    on_client_lost: "cancel" or "finish" what has not started when the client has vanished.
    report_placed: whether the client is told of each task that leaves the queue; else `Future.running()` asks.
    priority: higher goes first (§3.5); None: the user's own, which is also the highest that is allowed. It orders the
        user's jobs among each other, and where node monitors serve strict priorities those of all users.
    avoid_by: name of a node attribute: `avoid` is then of all nodes that have the same value of this attribute, such as
        those in one rack, and nodes without the attribute run no task of this job. Empty: of each node itself.
    policy: which schedulers may have the job: those of policy "sparrow" (sampling, for short tasks), "flow" (each task
        to the best place in the whole cluster, for long ones) or "altruistic" (shares of the whole cluster, of which
        each job yields what it does not need now, for jobs of several stages). "auto": flow if every stage expects
        tasks of 10 s or more (`expected_duration_s`) and a scheduler that leads policy flow is connected, else
        sampling. Empty: sampling. Both: what is connected, if no scheduler samples. Which it is is decided once.
    preemptible: its tasks may be stopped to make room for others, and start again, which uses up no attempt. Needs
        policy "flow", and `max_attempts` of at least 2; not for stages with `gang`, `max_per_node`, `max_per_rack` or
        `together_with`.
    """

    stages: Sequence[StageSpec] = ()
    job_id: str = ""
    max_attempts: int = MAX_ATTEMPTS_DEFAULT
    retry_failed: bool = False
    queue_timeout_s: float | None = None
    wait_for_nodes_s: float | None = None
    avoid: Sequence[str] = ()
    on_client_lost: str = "cancel"
    report_placed: bool = False
    avoid_by: str = ""
    policy: str = ""
    preemptible: bool = False

    def validate(self) -> None:
        """Raise `InvalidRequest` for the first field that cannot be."""
        check_name("job_id", self.job_id)
        check_whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS_MAX)
        for name in ("queue_timeout_s", "wait_for_nodes_s"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), 0, math.inf)
        for name in ("retry_failed", "report_placed", "preemptible"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidRequest(name, getattr(self, name), "True or False")
        if self.on_client_lost not in ON_CLIENT_LOST:
            raise InvalidRequest("on_client_lost", self.on_client_lost, " or ".join(ON_CLIENT_LOST))
        if not isinstance(self.policy, str) or self.policy not in POLICIES:
            raise InvalidRequest("policy", self.policy, POLICIES_ALLOWED)
        for index, job_id in enumerate(sequence("avoid", self.avoid)):
            check_name(f"avoid[{index}]", job_id, empty=False)
        check_name("avoid_by", self.avoid_by)
        check_preemptible(preemptible=self.preemptible, policy=self.policy, max_attempts=self.max_attempts)
        self.validate_stage()
        self._check_flow_only("", self)
        self._check_retry("", self)
        if not self.stages:
            check_dag([self])
            return
        if self.tasks:
            raise InvalidRequest(
                "tasks", f"{counted(len(self.tasks), 'task')}", "no tasks beside stages, which have their own"
            )
        for index, stage in enumerate(self.stages):
            if not isinstance(stage, StageSpec):
                raise InvalidRequest(f"stages[{index}]", stage, "a StageSpec")
            where = f"stages[{index}]."
            stage.validate_stage(where)
            self._check_flow_only(where, stage)
            self._check_retry(where, stage)
            check_stage_priority(where, stage.priority, self.priority)
        check_dag(self.stages)

    def _check_flow_only(self, where: str, stage: StageSpec) -> None:
        if self.policy != "flow" and (name := first_flow_only(stage)):
            raise needs_flow(where + name, getattr(stage, name), self.policy)
        check_stops_alone(where, stage, preemptible=self.preemptible)

    def _check_retry(self, where: str, stage: StageSpec) -> None:
        if stage.retry is not None:
            check_retries(where, max_attempts=self.max_attempts, retry_failed=self.retry_failed)

    def as_stages(self) -> Sequence[StageSpec]:
        """Its stages, whichever way they were given."""
        return self.stages or [self]


@dataclass(slots=True, frozen=True, repr=False)
class TaskReport:
    """What became of one task.

    Times are seconds since the epoch, each by the clock of the machine where the event happened. Where a task never
    got so far, they are None.

    task: its number in the job, from 0, through all stages.
    status: how it ended.
    attempts: how often it was started, starts included that nobody can rule out.
    node: id of the node where it ran last; empty if it never ran.
    error: why it did not finish, in words; empty if it did.
    submitted_at_s: when the client submitted it.
    reserved_at_s: when the scheduler made the first reservation for its stage.
    started_at_s, finished_at_s: when its last start began and ended at the node.
    service_s: how many seconds that took, on one monotonic clock.
    stdout, stderr: what a call printed, 65,536 characters of each stream at most, with `CallOptions.capture_output`.
    """

    task: int
    status: TaskStatus
    attempts: int
    node: str
    error: str
    submitted_at_s: float
    reserved_at_s: float | None
    started_at_s: float | None
    finished_at_s: float | None
    service_s: float | None
    stdout: str = ""
    stderr: str = ""
    earlier_errors: tuple[str, ...] = ()
    """Beginnings of the errors of the last few failures that were retried, the oldest first."""

    @property
    def wait_s(self) -> float | None:
        """Seconds from submission until the task started (the paper's wait time); None if it never did."""
        return None if self.started_at_s is None else self.started_at_s - self.submitted_at_s

    @property
    def response_s(self) -> float | None:
        """Seconds of wait and of service together; None if the task never ran."""
        wait = self.wait_s
        return None if wait is None or self.service_s is None else wait + self.service_s

    def __repr__(self) -> str:
        where = f" on {self.node}" if self.node else ""
        took = "" if self.service_s is None else f" after {self.service_s:.3f} s"
        why = f", error: {shown(self.error)}" if self.error else ""
        return f"<TaskReport of task {self.task}, {self.status}{where}{took}, attempts: {self.attempts}{why}>"


@dataclass(slots=True, repr=False)
class JobReport:
    """What became of a job.

    job_id: the job's id.
    tasks: the reports of its tasks, in the order of submission.
    """

    job_id: str
    tasks: list[TaskReport] = field(default_factory=list)

    def count(self, status: TaskStatus | str) -> int:
        """How many tasks ended so; `ValueError` if there is no such status. The status' text will do."""
        wanted = TaskStatus(status)
        return sum(1 for task in self.tasks if task.status is wanted)

    @property
    def response_s(self) -> float | None:
        """Seconds from submission to the end of the last task (the paper's response time); None if no task ran."""
        ends = [t.finished_at_s - t.submitted_at_s for t in self.tasks if t.finished_at_s is not None]
        return max(ends, default=None)

    def __repr__(self) -> str:
        counts = ", ".join(f"{count} {status}" for status in TaskStatus if (count := self.count(status)))
        response = "" if (response_s := self.response_s) is None else f"; response {response_s:.3f} s"
        return f"<JobReport of job {self.job_id}, tasks: {counts or 'none'}{response}>"

    def _repr_html_(self) -> str:
        """For notebooks: the counts and times, and the tasks that did not finish."""
        from sparrow_py.html_tables import html_block  # Which daemons do without.

        facts: list[tuple[str, str | int | float]] = [("tasks", len(self.tasks))]
        facts += [(str(status), count) for status in TaskStatus if (count := self.count(status))]
        if (response_s := self.response_s) is not None:
            facts.append(("response s", response_s))
        for name, times in (("wait s", "wait_s"), ("service s", "service_s")):
            found = sorted(value for task in self.tasks if (value := getattr(task, times)) is not None)
            if found:
                facts.append((f"{name}, median and longest", f"{found[len(found) // 2]:.3g}, {found[-1]:.3g}"))
        unfinished = [task for task in self.tasks if task.status is not FINISHED]
        rows = [(task.task, str(task.status), task.node, task.attempts, shown(task.error)) for task in unfinished]
        return html_block(f"Report of job {self.job_id}", facts, ("task", "status", "node", "attempts", "error"), rows)


def stage_of(spec: JobSpec, task: int) -> StageSpec:
    """The stage of a job's task."""
    first = 0
    stages = spec.as_stages()
    for stage in stages:
        first += len(stage.tasks)
        if task < first:
            return stage
    return stages[-1]


def new_job_id() -> str:
    """A fresh job id: 32 hexadecimal digits, unique without coordination."""
    return os.urandom(JOB_ID_BYTES).hex()


def check_name(field: str, value: object, *, empty: bool = True) -> None:
    """Raise `InvalidRequest` unless `value` is a printable string of at most `NAME_BYTES_MAX` bytes."""
    if type(value) is str and len(value) <= NAME_BYTES_MAX and value.isascii() and value.isprintable():
        plain = value != "" or empty
        if plain:  # As nearly all are, several of each job: found without a copy.
            return
    size = len(value.encode("utf-8", "replace")) if isinstance(value, str) else 0
    if not isinstance(value, str) or size > NAME_BYTES_MAX or (not value and not empty):
        raise InvalidRequest(field, value, f"{'' if empty else 'non-empty '}text of at most {NAME_BYTES_MAX} bytes")
    if not value.isprintable():
        raise InvalidRequest(field, value, "printable characters")


def check_number(field: str, value: object, low: float, high: float) -> None:
    """Raise `InvalidRequest` unless `value` is a number with low ≤ value ≤ high (so never NaN)."""
    if type(value) is float and low <= value <= high:  # As most are.
        return
    if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
        raise InvalidRequest(field, value, f"a number from {low:g} to {high:g}")


def check_lease(field: str, value: object) -> None:
    """Raise `InvalidRequest` unless the value may be a lease: a number of seconds, or None."""
    if value is not None:
        check_number(field, value, LEASE_S_MIN, LEASE_S_MAX)


class RetryNumbers(Protocol):
    """The fields of a `RetryPolicy`; of that as of a message about one."""

    @property
    def attempts(self) -> int: ...

    @property
    def first_delay_s(self) -> float: ...

    @property
    def factor(self) -> float: ...

    @property
    def longest_delay_s(self) -> float: ...

    @property
    def jitter(self) -> float: ...


def check_retry(where: str, retry: RetryNumbers) -> None:
    """Raise `InvalidRequest` for the first field of a `RetryPolicy` that cannot be; `where` goes before its name."""
    check_whole(where + "attempts", retry.attempts, 1, RETRY_ATTEMPTS_MAX)
    check_number(where + "first_delay_s", retry.first_delay_s, 0, RETRY_DELAY_S_MAX)
    check_number(where + "factor", retry.factor, 1, RETRY_FACTOR_MAX)
    check_number(where + "longest_delay_s", retry.longest_delay_s, 0, RETRY_DELAY_S_MAX)
    if retry.longest_delay_s < retry.first_delay_s:
        allowed = f"from first_delay_s, here {retry.first_delay_s:g}, to {RETRY_DELAY_S_MAX:g}"
        raise InvalidRequest(where + "longest_delay_s", retry.longest_delay_s, allowed)
    check_number(where + "jitter", retry.jitter, 0, 1)


def check_retries(where: str, *, max_attempts: int, retry_failed: bool) -> None:
    """Raise `InvalidRequest` if a job of this kind cannot have a stage with a `RetryPolicy`."""
    if max_attempts == 1:
        allowed = "None with max_attempts=1, which allows no second start"
        raise InvalidRequest(where + "retry", "a RetryPolicy", allowed)
    if retry_failed:
        allowed = "False beside a retry policy, which says what is retried, and when"
        raise InvalidRequest("retry_failed", retry_failed, allowed)


def check_whole(field: str, value: object, low: int, high: int) -> None:
    """Raise `InvalidRequest` unless `value` is a whole number with low ≤ value ≤ high."""
    if type(value) is int and low <= value <= high:  # As most are.
        return
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidRequest(field, value, f"a whole number from {low} to {high}")


def sequence(field: str, value: object) -> Sequence[Any]:
    """`value`; `InvalidRequest` unless it is a list or tuple: a lone string is one of characters, and never meant."""
    if not isinstance(value, list | tuple):
        raise InvalidRequest(field, value, "a list")
    return value


def check_demand(field: str, demand: Mapping[str, float]) -> None:
    """Raise `InvalidRequest` unless `demand` maps names to amounts."""
    if not isinstance(demand, Mapping) or len(demand) > DEMANDS_MAX:
        raise InvalidRequest(field, demand, f"a mapping of at most {DEMANDS_MAX} names to numbers")
    for name, amount in demand.items():
        check_name(f"{field} {name!r}", name, empty=False)
        check_number(f"{field}[{name!r}]", amount, 0, RESOURCE_MAX)
        if 0 < amount < DEMAND_MIN:
            raise InvalidRequest(f"{field}[{name!r}]", amount, f"0, or a number from {DEMAND_MIN:g}")


class GroupLimits(Protocol):
    """What of a stage only policy "flow" knows; of a `StageSpec` as of a message about one."""

    @property
    def gang(self) -> bool: ...

    @property
    def max_per_node(self) -> int | None: ...

    @property
    def max_per_rack(self) -> int | None: ...

    @property
    def together_with(self) -> str: ...

    @property
    def priority(self) -> int | None: ...


def check_limits(where: str, stage: GroupLimits) -> None:
    """Raise `InvalidRequest` for the first of these fields that cannot be, whatever the policy is."""
    if not isinstance(stage.gang, bool):
        raise InvalidRequest(where + "gang", stage.gang, "True or False")
    if stage.max_per_node is not None:
        check_whole(where + "max_per_node", stage.max_per_node, 1, GROUP_MAX)
    if stage.max_per_rack is not None:
        check_whole(where + "max_per_rack", stage.max_per_rack, 1, GROUP_MAX)
    check_name(where + "together_with", stage.together_with)
    if stage.priority is not None:
        check_whole(where + "priority", stage.priority, PRIORITY_MIN, PRIORITY_MAX)


def first_flow_only(stage: GroupLimits) -> str:
    """The first field that the stage states and that policy "flow" alone knows; "" if there is none."""
    if stage.gang:
        return "gang"
    if stage.max_per_node is not None:
        return "max_per_node"
    if stage.max_per_rack is not None:
        return "max_per_rack"
    return "together_with" if stage.together_with else ""


def needs_flow(field: str, value: object, policy: str) -> InvalidRequest:
    """The error for a field that policy "flow" alone knows, in a job of this policy."""
    return InvalidRequest(field, value, f'nothing but with policy="flow"; this job\'s policy is {shown(policy)}')


def check_preemptible(*, preemptible: bool, policy: str, max_attempts: int) -> None:
    """Raise `InvalidRequest` if a job of this kind cannot be preemptible, and is."""
    if not preemptible:
        return
    if policy != "flow":
        raise needs_flow("preemptible", preemptible, policy)
    if max_attempts == 1:
        raise InvalidRequest("preemptible", preemptible, "False with max_attempts=1, which allows no second start")


def check_stops_alone(where: str, stage: GroupLimits, *, preemptible: bool) -> None:
    """Raise `InvalidRequest` if tasks of a preemptible job's stage depend on where others of it are: to stop one of
    them would leave the others with less than they were promised."""
    if preemptible and (name := first_flow_only(stage)):
        allowed = "nothing in a preemptible job, whose tasks are stopped one by one; submit a job of its own"
        raise InvalidRequest(where + name, getattr(stage, name), allowed)


def check_stage_priority(where: str, priority: int | None, of_job: int | None) -> None:
    """Raise `InvalidRequest` if a stage states a higher priority than its job."""
    if priority is not None and of_job is not None and priority > of_job:
        raise InvalidRequest(
            where + "priority", priority, f"a whole number from {PRIORITY_MIN} to {of_job}, the job's own"
        )


def check_together(stages: Sequence[tuple[str, Sequence[str], str]]) -> None:
    """Raise `InvalidRequest` unless stages, of which (name, after, together_with) are given, and whose order is right,
    are together with other stages of the job, and no stage would have to wait for itself."""
    if not any(together_with for _, _, together_with in stages):
        return
    names = {name for name, _, _ in stages}
    for number, (name, _, other) in enumerate(stages):
        if other and (other == name or other not in names):
            field = f"stages[{number}].together_with" if len(stages) > 1 else "together_with"
            others = ", ".join(sorted(names - {name})) or "there are none"
            raise InvalidRequest(field, other, f"names of the job's other stages: {others}")
    waits = {name: [*after, *([other] if other else [])] for name, after, other in stages}
    try:
        graphlib.TopologicalSorter(waits).prepare()
    except graphlib.CycleError as error:
        circle = " waits for ".join(reversed(error.args[1]))
        allowed = "stages that do not wait for themselves, by after or together_with"
        raise InvalidRequest("stages", circle, allowed) from None


def check_blob_ref(field: str, data: object) -> None:
    """Raise `InvalidRequest` if `data` is a reference to large data, and cannot be one."""
    if not isinstance(data, BlobRef):
        return
    if not isinstance(data.hash, str) or len(data.hash) != HASH_CHARS or set(data.hash) - set("0123456789abcdef"):
        raise InvalidRequest(f"{field}.hash", data.hash, f"{HASH_CHARS} lower-case hexadecimal digits")
    check_whole(f"{field}.size", data.size, 0, 1 << 62)
    for address in sequence(f"{field}.at", data.at):
        if not constraints.is_unicode(address):
            raise InvalidRequest(f"{field}.at", address, "addresses (host:port) of nodes")


def check_tasks(where: str, tasks: Iterable[bytes | BlobRef | TaskSpec]) -> None:
    """Raise `InvalidRequest` if a task is not one, or if an id is given twice."""
    seen: set[str] = set()
    for index, task in enumerate(tasks):
        if isinstance(task, bytes):
            continue
        field = f"{where}tasks[{index}]"
        if isinstance(task, BlobRef):
            check_blob_ref(f"{field}.payload", task)
            continue
        if not isinstance(task, TaskSpec) or not isinstance(task.payload, bytes | BlobRef):
            raise InvalidRequest(field, task, "bytes, or a TaskSpec whose payload is bytes")
        check_blob_ref(f"{field}.payload", task.payload)
        _check_names(f"{field}.preferred", task.preferred, PREFERRED_MAX)
        for number, wanted in enumerate(sequence(f"{field}.inputs", task.inputs)):
            check_blob_ref(f"{field}.inputs[{number}]", wanted)
        if task.data is not None:
            check_data(f"{field}.data", task.data)
        if task.data_bytes is not None:
            check_data_bytes(f"{field}.data_bytes", task.data_bytes, task.data or {})
        if not task.id:
            continue
        check_name(f"{field}.id", task.id)
        if task.id in seen:
            raise InvalidRequest(f"{field}.id", task.id, "an id that no other task of the stage has")
        seen.add(task.id)


def check_data(field: str, data: Mapping[str, int]) -> None:
    """Raise `InvalidRequest` unless `data` maps ids of nodes to bytes."""
    if not isinstance(data, Mapping) or len(data) > DATA_NODES_MAX:
        raise InvalidRequest(field, data, f"a mapping of at most {DATA_NODES_MAX} ids of nodes to bytes")
    for node, size in data.items():
        check_name(f"{field} {node!r}", node, empty=False)
        check_whole(f"{field}[{node!r}]", size, 0, DATA_BYTES_MAX)


def check_data_bytes(field: str, data_bytes: int, data: Mapping[str, int]) -> None:
    """Raise `InvalidRequest` unless `data` may be parts of so many bytes."""
    check_whole(field, data_bytes, max(data.values(), default=0), DATA_NODES_MAX * DATA_BYTES_MAX)


def _check_names(field: str, names: object, count_max: int) -> None:
    given = sequence(field, names)
    if len(given) > count_max:
        raise InvalidRequest(field, f"{len(given)} names", f"at most {count_max}")
    for index, name in enumerate(given):
        check_name(f"{field}[{index}]", name, empty=False)


def check_dag(stages: Sequence[StageSpec]) -> None:
    """Raise `InvalidRequest` unless names are unique, `after` names other stages and nothing goes round in a circle,
    and tasks ask for results of stages in their stage's `after` only."""
    check_order([(stage.name, stage.after) for stage in stages])
    check_together([(stage.name, stage.after, stage.together_with) for stage in stages])
    sizes = {stage.name: len(stage.tasks) for stage in stages}
    given: set[str | TaskResult] = set()
    pairs = 0
    for number, stage in enumerate(stages):
        for index, task in enumerate(stage.tasks):
            if not isinstance(task, TaskSpec) or not task.inputs:
                continue
            field = f"{f'stages[{number}].' if len(stages) > 1 else ''}tasks[{index}].inputs"
            results = sum(sizes.get(name, 0) if isinstance(name, str) else 1 for name in task.inputs)
            if results > INPUTS_MAX:
                raise InvalidRequest(field, f"{results} results", f"at most {INPUTS_MAX}")
            for name in task.inputs:
                if isinstance(name, BlobRef | TaskResult):
                    if isinstance(name, TaskResult):
                        check_name(f"{field}.job_id", name.job_id, empty=False)
                        pairs += 1
                    given.add(name.hash if isinstance(name, BlobRef) else name)
                    continue
                source, position = name if isinstance(name, tuple) and len(name) == 2 else (name, 0)
                if source not in stage.after:
                    raise InvalidRequest(field, name, f"stages named in after: {', '.join(stage.after) or 'empty'}")
                if isinstance(name, tuple):
                    check_whole(field, position, 0, sizes[source] - 1)
    if len(given) > GIVEN_MAX:
        raise InvalidRequest("inputs", f"{len(given)} pieces of data", f"at most {GIVEN_MAX} in a job")
    if pairs > AWAITED_PAIRS_MAX:
        allowed = f"at most {AWAITED_PAIRS_MAX} in a job, counted for each task that waits for one"
        raise InvalidRequest("inputs", f"{pairs} results of other jobs", allowed)


def check_order(stages: Sequence[tuple[str, Sequence[str]]]) -> None:
    """As `check_dag`, of (name, after) alone."""
    if len(stages) == 1 and not stages[0][1]:
        return
    if len(stages) > STAGES_MAX:
        raise InvalidRequest("stages", f"{len(stages)} stages", f"at most {STAGES_MAX}")
    edges = sum(len(after) for _, after in stages)
    if edges > STAGE_EDGES_MAX:
        allowed = f"at most {STAGE_EDGES_MAX} in all"
        raise InvalidRequest("stages", f"{edges} names of stages in their `after`", allowed)
    names: set[str] = set()
    for number, (name, _) in enumerate(stages):
        if len(stages) > 1 and (not name or name in names):
            raise InvalidRequest(f"stages[{number}].name", name, "a name that no other stage of the job has")
        names.add(name)
    for number, (_, after) in enumerate(stages):
        for other in after:
            if other not in names:
                known = ", ".join(sorted(names))
                raise InvalidRequest(f"stages[{number}].after", other, f"names of the job's stages: {known}")
    try:
        graphlib.TopologicalSorter({name: after for name, after in stages}).prepare()
    except graphlib.CycleError as error:
        circle = " after ".join(reversed(error.args[1]))
        raise InvalidRequest("stages", circle, "stages that do not come after themselves") from None
