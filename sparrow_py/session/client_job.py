"""A job of a client: its messages, what is known of its tasks, and where it is. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from sparrow_py import constraints
from sparrow_py.job import (
    FLOW_FROM_S,
    BlobRef,
    Ended,
    JobSpec,
    RetryPolicy,
    StageSpec,
    TaskResult,
    TaskSpec,
    TaskStatus,
    new_job_id,
)
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from sparrow_py.session.letting_go import LettingGo
    from sparrow_py.session.parts import Parts
    from sparrow_py.session.sink import Sink
    from sparrow_py.stored_values import AwaitedFuture

CHUNK_TASKS = m.TASKS_PER_MESSAGE_MAX
ENTRY_OVERHEAD_BYTES = 5
"""What msgpack adds to a payload in a message, at most."""
DATUM_OVERHEAD_BYTES = 15
"""What a node's name and a number of bytes take in a message beside the name, at most."""
KNOWN_OVERHEAD_BYTES = 32
"""What an outcome in a `Known` takes beside its result, at most; also a number of a task and of its starts."""
AWAITED_OVERHEAD_BYTES = 64
"""What an awaited result takes in a message beside the name of its job, or what became of it beside result and error,
at most."""
REF_BYTES = 256
"""What a reference to large data takes in a message, about; one with many addresses takes more."""
PENDING = 0
"""In `ClientJob.settled`: the task has no outcome yet. Else the number of its status, from 1."""
STATUSES = tuple(TaskStatus)
_NO_CHUNKS: Iterator[m.Message] = iter(())


class ClientJob:
    """A job of this client."""

    __slots__ = (
        "accepted", "asked_placed", "asked_results", "attached_by", "awaited", "behind", "cancelled", "cancelling",
        "chunks", "deadline_s", "decide_by_s", "details", "ended", "failures", "finished_elsewhere", "futures",
        "given", "id", "inner", "is_given", "letting_go", "parts", "payloads", "plane", "policy", "position",
        "refusals", "results", "return_by_s", "returns_to", "running_too", "scheduler", "settled", "sink", "spec",
        "starts", "streaming", "submission", "submitted_s", "taken", "told_to_cancel", "unsettled", "unstarted",
        "uploads", "used", "waiting", "whole",
    )  # fmt: skip

    def __init__(
        self,
        spec: JobSpec,
        sink: Sink,
        deadline_s: float,
        instance: int = 0,
        *,
        submitted_s: float = 0.0,
        acknowledges: bool = False,
    ) -> None:
        self.id = str(spec.job_id) or new_job_id()
        self.spec = spec
        self.parts: Parts | None = None
        """If it goes to schedulers in parts: then it is with none itself."""
        self.whole = ""
        """The id of the job that it is a part of; empty if it is none."""
        stages = spec.as_stages()
        firsts: dict[str, int] = {}
        sizes: dict[str, int] = {}
        self.payloads: list[m.Data] = []
        for stage in stages:
            firsts[stage.name], sizes[stage.name] = len(self.payloads), len(stage.tasks)
            self.payloads += _payloads(stage)
        self.details: dict[int, m.TaskDetail] = {}
        given = _Given(stages)
        for stage in stages:
            for number, task in enumerate(stage.tasks, firsts[stage.name]):
                if type(task) is bytes or not isinstance(task, TaskSpec):
                    continue
                if task.preferred or task.inputs or task.data or task.data_bytes is not None:
                    self.details[number] = _detail(task, firsts, sizes, given)
        self.given = given.refs
        """Large data that tasks ask for."""
        self.awaited = given.results
        """Results of tasks of any job that tasks ask for, and their numbers."""
        self.ended: dict[int, Ended] = {}
        """By the number of an awaited result how its task ended, if it has."""
        self.asked_results: set[int] = set()
        """Of the awaited results those of which the scheduler wants to be told."""
        self.futures: Sequence[AwaitedFuture] = ()
        """What stands for them where they are used: kept as long as the job."""
        self.policy = str(spec.policy)
        """What its user has stated."""
        self.plane = self.policy if self.policy in (m.SPARROW, m.FLOW, m.ALTRUISTIC) else ""
        """The plane that it is for; empty until that is decided."""
        self.submission = m.SubmitJob(
            self.id, 0, str(spec.name), [_stage(stage, spec) for stage in stages], spec.max_attempts, spec.retry_failed,
            _float(spec.queue_timeout_s), spec.report_placed, _float(spec.wait_for_nodes_s), tuple(spec.avoid),
            spec.on_client_lost, instance, acknowledges, priority=spec.priority, avoid_by=str(spec.avoid_by),
            policy=self.plane, preemptible=spec.preemptible,
        )  # fmt: skip
        self.submitted_s = submitted_s
        followed = {name for stage in stages for name in stage.after}
        self.inner = [range(firsts[name], firsts[name] + sizes[name]) for name in sorted(followed)]
        """The tasks of stages that others come after: their results are kept, for the next scheduler."""
        self.sink = sink
        self.deadline_s = deadline_s
        """When to give up if no scheduler takes the job."""
        self.scheduler: str | None = None
        self.returns_to: str | None = None
        """The scheduler that it was at, if that is waited for, as its link broke."""
        self.return_by_s = 0.0
        """How long that is waited for."""
        self.decide_by_s = submitted_s
        """How long schedulers that have not been dialled yet are waited for, to decide on its plane."""
        self.refusals = 0
        """How often it was refused for now since a scheduler had it last."""
        self.taken = False
        """Whether this scheduler has accepted it."""
        self.position = 0
        """Among the client's jobs, in order of submission."""
        self.behind: str | None = None
        """The job for which it waits (`turns.Turns`)."""
        self.accepted = False
        """Whether any scheduler has, and so the sink was told."""
        self.cancelled = False
        self.running_too = False
        """Whether what runs is to be cancelled with the job."""
        self.letting_go: LettingGo | None = None
        """If its client wants to let go of it."""
        self.attached_by: int | None = None
        """What this client has drawn for it, if it has attached to it, and was not the one that submitted it."""
        self.streaming = False
        self.chunks: Iterator[m.Message] = _NO_CHUNKS
        self.cancelling: dict[int, bool] = {}
        """Tasks to cancel that have not been answered for, and whether even if they run."""
        self.told_to_cancel: set[int] = set()
        """The tasks of `cancelling` of which the scheduler has been told."""
        self.asked_placed: dict[int, Callable[[Sequence[int]], None]] | None = None
        """Who is to be told which tasks have left the queue, by the number of the question."""
        self.is_given = False
        """Whether the client knows results of its tasks though no scheduler had it yet (`give`)."""
        self.finished_elsewhere: list[int] = []
        """Tasks that have finished in another job, of which the scheduler is to be told."""
        self.settled = bytearray(len(self.payloads))
        self.unsettled = len(self.payloads)
        self.results: dict[int, m.Data] = {}
        self.starts: dict[int, int] = {}
        """Starts in vain of tasks without an outcome, and of tasks with one those before the start that it is of."""
        self.failures: dict[int, int] = {}
        """Failures of tasks that were retried by their stage's policy, and are not among `starts`; kept as those."""
        self.unstarted: tuple[tuple[int, int], ...] = ()
        """(first, count) of tasks of which no start was open when the last scheduler handed the job over, or was
        lost."""
        self.waiting: set[int] = set()
        """Tasks that wait after a failure: no start of them is open, nor will be before this client is told."""
        self.used: set[str] | None = set()
        """Memories of node monitors where its tasks may have been started, as far as schedulers say so; None: unknown,
        as one of them may not have said so."""

        self.uploads: Mapping[str, bytes] = {}
        """Large inputs that this client has uploaded, by hash: a node that has one may be lost."""

    @property
    def is_long(self) -> bool:
        """Whether all its stages expect tasks that last: with policy "auto" it is then for policy flow."""
        return all((stage.expected_duration_s or 0.0) >= FLOW_FROM_S for stage in self.submission.stages)

    def decide(self, plane: str) -> None:
        """It is for this plane from now on, wherever it moves."""
        self.plane = plane
        if self.policy or plane != m.SPARROW:
            self.submission = msgspec.structs.replace(self.submission, policy=plane)

    def give(self, results: Mapping[int, m.Data]) -> None:
        """These tasks, of inner stages, are not to run: their results are known. Nor are they to run again if one is
        lost: it is another job that can produce it."""
        self.is_given = True
        for task, result in results.items():
            self.settled[task] = STATUSES.index(TaskStatus.FINISHED) + 1
            self.results[task] = result
            self.starts[task] = self.submission.max_attempts - 1
        self.unsettled -= len(results)

    def is_inner(self, task: int) -> bool:
        """Whether another stage may need the task's result."""
        return any(task in tasks for tasks in self.inner)

    def attempts(self, task: int) -> int:
        """How often the task may have been started, if no scheduler says."""
        if self.attached_by is not None:  # Nobody has told this client of starts in vain.
            retry = self._stage(task).retry
            return self.submission.max_attempts + (0 if retry is None else retry.attempts - 1)
        if self.scheduler is None:
            handed_back = any(first <= task < first + count for first, count in self.unstarted)
            one_more = self.submission.epoch > 0 and not handed_back
        else:
            one_more = task not in self.waiting
        return min(self.starts.get(task, 0) + one_more, self.submission.max_attempts) + self.failures.get(task, 0)

    def _stage(self, task: int) -> m.Stage:
        first = 0
        for stage in self.submission.stages:
            first += stage.task_count
            if task < first:
                return stage
        raise IndexError(task)

    def leave(self, unstarted: Sequence[tuple[int, int]]) -> None:
        """Its scheduler is lost, or has handed it over with these tasks, as (first, count), of which no start is
        open."""
        tasks = {task for first, count in unstarted for task in range(first, first + count)}
        self.waiting.update(task for task in self.failures if task in tasks and not self.settled[task])
        self.unstarted = _ranges(sorted(tasks | self.waiting)) if self.waiting else tuple(unstarted)

    def keep_starts(self, task: int, attempts: int) -> None:
        """The task, whose result another may ask for, was started so often: it may have to run again for that."""
        starts = attempts - 1 - self.failures.get(task, 0)
        if starts > 0:
            self.starts[task] = min(starts, self.submission.max_attempts - 1)

    def messages(self, bytes_max: int) -> Iterator[m.Message]:
        """All that follows the submission: what is known of the job's tasks, then the tasks."""
        if self.submission.epoch or self.is_given:
            return self._known_and_tasks(bytes_max)
        if self.given or self.awaited:
            return self._given_and_tasks(bytes_max)
        return chunks(self.id, self.payloads, bytes_max, self.details)

    def _known_and_tasks(self, bytes_max: int) -> Iterator[m.Message]:
        yield from self._known(bytes_max)
        yield from self._given_and_tasks(bytes_max)

    def _given_and_tasks(self, bytes_max: int) -> Iterator[m.Message]:
        if self.given:
            yield from _given_in_messages(self.id, self.given, bytes_max)
        if self.awaited:
            yield from _awaited_in_messages(self.id, list(self.awaited), bytes_max)
            yield from given_results(self.id, dict(self.ended), bytes_max)  # It may grow meanwhile.
        yield from chunks(self.id, self.payloads, bytes_max, self.details)

    def _known(self, bytes_max: int) -> Iterator[m.Known]:
        outcomes: list[m.KnownOutcome] = []
        size = 0
        for task, status in enumerate(self.settled):
            if status == PENDING:
                continue
            result = self.results.get(task, b"")
            taken = bytes_of(result) + KNOWN_OVERHEAD_BYTES
            if outcomes and (size + taken > bytes_max or len(outcomes) == CHUNK_TASKS):
                yield m.Known(self.id, outcomes, {})
                outcomes, size = [], 0
            size += taken
            outcomes.append(m.KnownOutcome(task, STATUSES[status - 1], result))
        counted = list(self.starts | self.failures)
        if outcomes:
            yield m.Known(self.id, outcomes, {})
        count = min(CHUNK_TASKS, bytes_max // KNOWN_OVERHEAD_BYTES)
        for first in range(0, len(counted), count):
            some = counted[first : first + count]
            starts = {task: self.starts[task] for task in some if task in self.starts}
            failures = {task: self.failures[task] for task in some if task in self.failures}
            yield m.Known(self.id, [], starts, failures=failures)
        for index in range(0, len(self.unstarted), count):
            yield m.Known(self.id, [], {}, self.unstarted[index : index + count])
        if self.used is not None and self.submission.accounts:
            used = sorted(self.used)
            for first in range(0, len(used) or 1, m.NUMBERS_PER_MESSAGE_MAX):
                yield m.Known(self.id, [], {}, (), tuple(used[first : first + m.NUMBERS_PER_MESSAGE_MAX]))


def _ranges(tasks: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """These numbers, which ascend, as (first, count)."""
    ranges: list[tuple[int, int]] = []
    for task in tasks:
        if ranges and sum(ranges[-1]) == task:
            ranges[-1] = ranges[-1][0], ranges[-1][1] + 1
        else:
            ranges.append((task, 1))
    return tuple(ranges)


def _payloads(stage: StageSpec) -> Sequence[m.Data]:
    tasks = stage.tasks
    if len(tasks) == 1 and type(tasks[0]) is bytes:
        return (tasks[0],)
    return [task.payload if isinstance(task, TaskSpec) else task for task in tasks]


def _stage(stage: StageSpec, job: JobSpec) -> m.Stage:
    demand = None if not stage.demand else {str(name): float(amount) for name, amount in stage.demand.items()}
    where: tuple[constraints.Constraint, ...] = ()
    if stage.where:
        where = tuple(constraints.parse(f"where[{index}]", text) for index, text in enumerate(stage.where))
    local = any([type(task) is not bytes and isinstance(task, TaskSpec) and task.preferred for task in stage.tasks])
    return m.Stage(
        str(stage.app), len(stage.tasks), stage.common, str(stage.runtime), float(stage.probe_ratio), stage.prefetch,
        _float(stage.expected_duration_s), demand, str(stage.name), tuple(stage.after), where, _float(stage.delay_s),
        _float(stage.task_timeout_s), local, stage.gang, stage.max_per_node, stage.max_per_rack,
        str(stage.together_with), None if stage is job else stage.priority, _float(stage.lease_s), _retry(stage.retry),
    )  # fmt: skip


def _retry(policy: RetryPolicy | None) -> m.Retry | None:
    if policy is None:
        return None
    first_s, longest_s = float(policy.first_delay_s), float(policy.longest_delay_s)
    return m.Retry(policy.attempts, first_s, float(policy.factor), longest_s, float(policy.jitter))


class _Given:
    """What tasks ask for besides results of their job's stages, with numbers after the last task's: large data, then
    results of tasks of any job."""

    __slots__ = ("_numbers", "refs", "results")

    def __init__(self, stages: Sequence[StageSpec]) -> None:
        refs: dict[str, BlobRef] = {}
        results: dict[TaskResult, int] = {}
        for stage in stages:
            for task in stage.tasks:
                for name in task.inputs if isinstance(task, TaskSpec) else ():
                    if isinstance(name, BlobRef):
                        refs.setdefault(name.hash, name)
                    elif isinstance(name, TaskResult):
                        results[name] = 0
        self.refs = list(refs.values())
        self.results = results
        if refs or results:
            first = sum([len(stage.tasks) for stage in stages])
            self._numbers = {hash_: number for number, hash_ in enumerate(refs, first)}
            results.update({result: number for number, result in enumerate(results, first + len(refs))})

    def number(self, name: BlobRef | TaskResult) -> int:
        return self._numbers[name.hash] if isinstance(name, BlobRef) else self.results[name]


def _detail(task: TaskSpec, firsts: dict[str, int], sizes: dict[str, int], given: _Given) -> m.TaskDetail:
    inputs = []
    for name in task.inputs:
        if isinstance(name, BlobRef | TaskResult):
            inputs.append((given.number(name), 1))
            continue
        first, count = (firsts[name], sizes[name]) if isinstance(name, str) else (firsts[name[0]] + name[1], 1)
        if count:
            inputs.append((first, count))
    data = tuple((task.data or {}).items())
    return m.TaskDetail(tuple(dict.fromkeys(task.preferred)), tuple(inputs), data, task.data_bytes)


def bytes_of(data: m.Data) -> int:
    return REF_BYTES + sum(map(len, data.at)) if isinstance(data, BlobRef) else len(data)


def bytes_of_detail(detail: m.TaskDetail) -> int:
    """What a task's detail takes in a message, at most."""
    names = sum(len(name.encode()) + ENTRY_OVERHEAD_BYTES for name in detail.preferred)
    names += sum(len(node.encode()) + DATUM_OVERHEAD_BYTES for node, _ in detail.data)
    stated = 0 if detail.data_bytes is None else DATUM_OVERHEAD_BYTES
    return names + 3 * ENTRY_OVERHEAD_BYTES * (1 + len(detail.inputs)) + stated


def chunks(
    job_id: str,
    payloads: list[m.Data],
    bytes_max: int,
    details: dict[int, m.TaskDetail] | None = None,
) -> Iterator[m.AddTasks]:
    """The tasks in messages that each fit a frame."""
    first = 0
    while first < len(payloads):
        size = 0
        end = first
        own: dict[int, m.TaskDetail] = {}
        while end < len(payloads) and end - first < CHUNK_TASKS:
            payload = payloads[end]
            size += (len(payload) if isinstance(payload, bytes) else bytes_of(payload)) + ENTRY_OVERHEAD_BYTES
            detail = details.get(end) if details else None
            if detail is not None:
                size += bytes_of_detail(detail)
            if size > bytes_max and end > first:
                break
            if detail is not None:
                own[end] = detail
            end += 1
        yield m.AddTasks(job_id, first, payloads[first:end], own or None)
        first = end


def _given_in_messages(job_id: str, given: list[BlobRef], bytes_max: int) -> Iterator[m.AddTasks]:
    first = 0
    while first < len(given):
        size, end = bytes_of(given[first]), first + 1
        while end < len(given) and (size := size + bytes_of(given[end]) + ENTRY_OVERHEAD_BYTES) <= bytes_max:
            end += 1
        yield m.AddTasks(job_id, 0, [], None, tuple(given[first:end]))
        first = end


def _awaited_in_messages(job_id: str, results: list[TaskResult], bytes_max: int) -> Iterator[m.AddTasks]:
    first = 0
    while first < len(results):
        size, end = AWAITED_OVERHEAD_BYTES + len(results[first].job_id.encode()), first + 1
        while end < len(results):
            size += AWAITED_OVERHEAD_BYTES + len(results[end].job_id.encode())
            if size > bytes_max:
                break
            end += 1
        yield m.AddTasks(job_id, 0, [], awaited=tuple([(one.job_id, one.task) for one in results[first:end]]))
        first = end


def given_results(job_id: str, ended: Mapping[int, Ended], bytes_max: int) -> Iterator[m.GiveResults]:
    """What has become of tasks whose results have these numbers, in messages that each fit a frame."""
    some: dict[int, Ended] = {}
    size = 0
    for number, (status, result, error) in ended.items():
        one = status, result, m.cut_reason(error)
        if not isinstance(result, BlobRef) and len(result) > bytes_max:
            why = f"{len(result)} bytes, too many for a message to this scheduler: at most {bytes_max}"
            one = TaskStatus.LOST, b"", f"its result is {why}"
        taken = bytes_of(one[1]) + len(one[2].encode()) + AWAITED_OVERHEAD_BYTES
        if some and size + taken > bytes_max:
            yield _given_message(job_id, some)
            some, size = {}, 0
        some[number] = one
        size += taken
    if some:
        yield _given_message(job_id, some)


def _given_message(job_id: str, ended: Mapping[int, Ended]) -> m.GiveResults:
    results = {number: result for number, (status, result, _) in ended.items() if status is TaskStatus.FINISHED}
    return m.GiveResults(job_id, results, {number: one for number, one in ended.items() if number not in results})


def _float(value: float | None) -> float | None:
    """A plain float of any kind of number: NumPy's, say, which messages cannot hold."""
    return None if value is None else float(value)
