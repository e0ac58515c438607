"""Jobs are submitted, and their tasks arrive: what is wrong with them is refused, the rest is theirs to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.admission import RETRY_AFTER_UNKNOWN_S, Refusal
from scheduler.book.footprint import ASKED_BYTES, awaited_bytes, known_bytes, tasks_bytes
from scheduler.book.jobs import ARRIVING, CLAIMING, OPEN, UNPLACED, JobState, StageState
from scheduler.book.validation import check_given, check_pairs, check_priority, check_submission, check_tasks
from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.job import FINISHED
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.awaited_results import AwaitedResults
    from scheduler.book.cancellation import Cancellation
    from scheduler.book.claims import Claims
    from scheduler.book.deliveries import Deliveries
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.register import Register
    from scheduler.book.restarts import Restarts
    from scheduler.book.stages import Stages
    from scheduler.book.waiting import Waiting

NOT_LEADING_RETRY_S = 0.5
"""A job that came to a scheduler which does not lead its plane may come again after so long: about what it takes until
nodes have accepted another."""


def _too_deep(depth: int, most: int) -> str:
    return (
        f"the job is nested {depth} deep, and nested_depth_max = {most}: a task has submitted it, whose job a task has "
        "submitted, and so on; does that recursion end?"
    )


@dataclass(eq=False, slots=True)
class Submission:
    """Takes the jobs of a scheduler's clients."""

    _ledger: Ledger
    _deliveries: Deliveries
    _register: Register
    _outcomes: Outcomes
    _waiting: Waiting
    _stages: Stages
    _cancellation: Cancellation
    _claims: Claims
    _restarts: Restarts
    _awaited_results: AwaitedResults

    # ---- jobs --------------------------------------------------------------------------------

    def submit(self, client: str, user: str, message: m.SubmitJob, now_s: float) -> None:
        """A client submits a job: it is accepted, refused, or known already."""
        try:
            check_submission(message, self._ledger.options.payload_bytes_max, self._ledger.placing.name)
            check_priority(user, message, self._ledger.options.priority(user))
        except InvalidRequest as error:
            self._register.refuse(client, user, message.job, Refusal(str(error), field=error.field))
            return
        if why_not := self._ledger.why_no_jobs():
            self._register.refuse(client, user, message.job, Refusal(why_not, NOT_LEADING_RETRY_S))
            return
        before = self._ledger.jobs.get(message.job)
        if before is not None and not self._supersedes(client, user, message, before, now_s):
            return
        depth = self._register.nested.get(client, 0)
        if depth > self._ledger.options.nested_depth_max:
            self._register.refuse(
                client, user, message.job, Refusal(_too_deep(depth, self._ledger.options.nested_depth_max))
            )
            return
        job = JobState(message, client, user, now_s, self._ledger.options.priority(user), depth)
        if before is not None:
            job.carry_over(before)
        # One that is kept was accepted before. A job of a task that is here goes nowhere else, and the task needs it.
        if self._ledger.draining and not depth and not self._deliveries.keeps(job):
            self._register.refuse(client, user, message.job, Refusal("the scheduler is shutting down", 1.0))
            return
        refusal = self._why_no_node(job) or self._admit(job, now_s)
        if refusal is not None:
            self._register.refuse(client, user, job.id, refusal)
            return
        self._register.add(job)
        self._deliveries.give(job)
        if message.avoid:
            self._avoid(job, message.avoid)
        if self._must_arrive_whole(job):
            job.phase = ARRIVING
        else:
            self._register.accept(job, now_s)
        if job.epoch:
            job.phase, job.settling = CLAIMING, True
        if not job.task_count and job.epoch:
            self._claims.start(job, now_s)
        for stage in [stage for stage in job.stages if not stage.spec.task_count and not stage.waits_for]:
            self._stages.over(stage, now_s)

    def _admit(self, job: JobState, now_s: float) -> Refusal | None:
        """Count the job's tasks and bytes in, or say why not. One whose outcomes are kept here was admitted before,
        and is what will make room: no number of bytes is too many for it."""
        ledger, keeps = self._ledger, self._deliveries.keeps(job)
        refusal = ledger.admission.admit(job.user, job.task_count, now_s, bytes_too=not keeps)
        if refusal is not None or ledger.holds(job, job.fixed_bytes + job.common_bytes()) or keeps:
            return refusal
        never = job.held_bytes > ledger.options.held_bytes_max
        reason = ledger.admission.over_bytes(job.user)
        ledger.holds(job, -job.held_bytes)
        ledger.admission.withdrawn(job.user, job.task_count)
        return Refusal(reason, None if never else RETRY_AFTER_UNKNOWN_S)

    def _must_arrive_whole(self, job: JobState) -> bool:
        """Whether it is only known from its tasks that nodes could run them, and it will not wait for any."""
        hard = [stage for stage in job.stages if stage.preferences is not None and stage.spec.delay_s is None]
        return bool(hard) and job.wait_for_nodes_s is None and not job.epoch and len(self._ledger.nodes) > 0

    def _arrived_whole(self, job: JobState, now_s: float) -> None:
        """Accept the job, or refuse it if none of the nodes that one of its tasks prefers could run that."""
        refusal = self._why_homeless(job)
        if refusal is None:
            self._register.accept(job, now_s)
            self._claims.arrived(job, now_s)
            return
        self._register.drop(job, now_s)
        self._register.refuse(job.client, job.user, job.id, refusal)

    def _why_homeless(self, job: JobState) -> Refusal | None:
        """Names the first task that has to run on its preferred nodes, none of which could."""
        for stage in job.stages:
            if stage.spec.delay_s is not None:
                continue
            for task, detail in sorted(stage.details.items()):
                if detail.preferred and not self._ledger.nodes.could_run(stage.kind, detail.preferred):
                    where = f"stages[{stage.index}]." if len(job.stages) > 1 else ""
                    field, names = f"{where}tasks[{task}].preferred", ", ".join(detail.preferred[:5])
                    reason = f"{field}: none of {names} is a node that could run it, and there is no delay_s"
                    return Refusal(reason, field=field)
        return None

    def _supersedes(self, client: str, user: str, message: m.SubmitJob, before: JobState, now_s: float) -> bool:
        """Whether the job that is here already gives way to this submission. Submitting twice is one job."""
        if before.user == user and message.epoch > before.epoch:
            if before.is_detached and before.client:  # It is attached to a job that its own client has come back with.
                reason = "its own client has come back with it"
                self._ledger.to_client(before.client, m.JobRefused(before.id, reason, "job_id"))
            self._deliveries.part(before, now_s)
            self._register.abandon(before, now_s)
            return True
        if before.client == client:
            if before.phase is not ARRIVING:  # Else it is told once all tasks are here.
                self._ledger.to_client(client, m.JobAccepted(message.job))
        else:
            self._register.refuse(
                client, user, message.job, Refusal("another client has a job of this id", field="job_id")
            )
        return False

    def _why_no_node(self, job: JobState) -> Refusal | None:
        """If nodes are connected and none will do for one of the job's stages, and it will not wait."""
        if job.wait_for_nodes_s is not None or job.epoch:
            return None
        for stage in job.stages:
            if stage.spec.task_count and (why_not := self._ledger.nodes.why_none_could(stage.kind)) is not None:
                field, reason = why_not
                return Refusal(reason, field=field)
        return None

    def _avoid(self, job: JobState, others: Sequence[str]) -> None:
        """The job and these do not run on one node at a time, or on nodes of one value of `avoid_by` (§8), as far as
        they are of one user and here."""
        for other_id in others:
            other = self._ledger.jobs.get(other_id)
            if other is None or other is job or other.user != job.user:
                continue  # It has ended, most likely: nothing is left to avoid.
            for one, another in ((job, other), (other, job)):
                one.avoids.setdefault(another.id, set()).add(job.avoid_by)
                if one.running_at is None:
                    one.running_at = {}
                    for attempt in one.attempts.values():
                        one.running_at[attempt.node_id] = one.running_at.get(attempt.node_id, 0) + 1

    # ---- their tasks -------------------------------------------------------------------------

    def add_tasks(self, job: JobState, message: m.AddTasks, now_s: float) -> None:
        """Further tasks of the job have come."""
        if job.cancelled and job.phase is OPEN:
            return  # It was cancelled while its tasks were on their way.
        given = len(message.payloads)
        if message.first != job.received or job.received + given > job.task_count:
            raise LinkError(
                f"job {job.id}: tasks {message.first} to {message.first + given - 1} do not follow the "
                f"{job.received} of {job.task_count} tasks received: each task must be given once, in order"
            )
        if job.received == job.task_count:
            raise LinkError(f"job {job.id}: all of its {job.task_count} tasks have come: nothing is to be added")
        if given > m.TASKS_PER_MESSAGE_MAX:
            raise LinkError(f"job {job.id}: {given} tasks in a message; at most {m.TASKS_PER_MESSAGE_MAX}")
        details = message.details or {}
        self._ask_for(job, message)
        check_tasks(job, message, self._ledger.options.payload_bytes_max)
        payloads = message.payloads
        size = sum([len(p) for p in payloads if isinstance(p, bytes)])
        fixed = tasks_bytes(payloads, details)
        if job.expected and details:
            pairs = check_pairs(job, details)
            job.awaited_pairs += pairs
            fixed += ASKED_BYTES * pairs
        job.received += given
        job.fixed_bytes += fixed
        if not self._ledger.holds(job, size + fixed):
            reason = self._ledger.admission.over_bytes(job.user)
            self._ledger.holds(job, -size)
            self._cancellation.cancel(job, reason, now_s)
            if job.phase is OPEN:
                return
            payloads, details = [b""] * given, {}  # They may run elsewhere, but not from here.
        taken = 0
        while taken < given and self._ledger.is_here(job):  # A stage's outcomes that were kept may end the job.
            stage = job.stage_of(message.first + taken)
            count = min(given - taken, stage.first + stage.spec.task_count - message.first - taken)
            self._add_to_stage(stage, message.first + taken, payloads[taken : taken + count], details, now_s)
            taken += count
        if job.received < job.task_count or not self._ledger.is_here(job):
            return
        if job.epoch:
            self._claims.start(job, now_s)
        elif job.phase is ARRIVING:
            self._arrived_whole(job, now_s)

    def _ask_for(self, job: JobState, message: m.AddTasks) -> None:
        """The job's tasks may ask for what the message gives, and for what it awaits. It counts at once, whatever is
        wrong with the tasks; whether that is too much is looked at with these."""
        size = 0
        if message.given:
            check_given(job, message.given)
            job.give(message.given)
            size += tasks_bytes((), {}, message.given)
        if message.awaited:
            self._awaited_results.await_(job, message.awaited)
            size += awaited_bytes(message.awaited)
        if size:
            job.fixed_bytes += size
            self._ledger.holds(job, size)

    def _add_to_stage(
        self, stage: StageState, first: int, payloads: list[m.Data], details: dict[int, m.TaskDetail], now_s: float
    ) -> None:
        """Tasks of one stage have arrived, the first of which is `first` by the job's count."""
        job = stage.job
        if stage.complete:  # It was doomed while its tasks were on their way.
            self._ledger.holds(job, -sum(len(p) for p in payloads if isinstance(p, bytes)))
            self._outcomes.forget_before(stage, first - stage.first, len(payloads))
            return
        begin = first - stage.first
        own: dict[int, m.TaskDetail] = {}
        if details:
            own = {
                task - stage.first: detail
                for task, detail in details.items()
                if begin <= task - stage.first < begin + len(payloads)
            }
        stage.add_tasks(payloads, own)
        wait: Sequence[int] = range(begin, begin + len(payloads))
        if job.known:
            self._claims.settle_known(stage, begin, len(payloads), now_s)
            wait = [task for task in wait if stage.states[task] == UNPLACED]
        if job.settled_before and self._ledger.is_here(job):
            self._outcomes.settle_before(stage, begin, len(payloads), now_s)
            wait = [task for task in wait if stage.states[task] == UNPLACED]
        if job.expected and job.phase is OPEN and self._ledger.is_here(job):
            self._restarts.hold_new(stage, wait, now_s)
            wait = [task for task in wait if stage.states[task] == UNPLACED]
        if wait and stage.open and self._ledger.is_here(job):
            self._waiting.begin(stage, wait, now_s)
            self._ledger.placing.tasks_unplaced(stage, now_s)

    def known(self, job: JobState, message: m.Known, now_s: float) -> None:
        """What the client knows of tasks that are to follow, of a job that was at another scheduler."""
        tasks = [*(outcome.task for outcome in message.outcomes), *message.starts, *message.failures]
        if any(not job.received <= task < job.task_count for task in tasks):
            raise LinkError(f"job {job.id}: outcomes are only taken of tasks that are to follow")
        if not job.epoch and not all(_may_be_given(job, outcome) for outcome in message.outcomes):
            raise LinkError(
                f"job {job.id}: a job that was nowhere before is only given results that its stages ask for"
            )
        given = {outcome.task for outcome in message.outcomes}
        if len(given) < len(message.outcomes) or not given.isdisjoint(job.known):
            raise LinkError(f"job {job.id}: the outcome of a task was given twice")
        size = sum(map(known_bytes, message.outcomes))
        if not self._ledger.holds(job, size):
            self._ledger.holds(job, -size)
            self._cancellation.cancel(job, self._ledger.admission.over_bytes(job.user), now_s)
            for index, outcome in enumerate(message.outcomes):
                message.outcomes[index] = m.KnownOutcome(outcome.task, outcome.status, b"")  # Nothing needs them now.
        self._claims.known(job, message)
        if job.watched:
            self._awaited_results.ended_elsewhere(job, sorted(given), now_s)


def _may_be_given(job: JobState, outcome: m.KnownOutcome) -> bool:
    """Whether a job may come with this outcome of a task that no scheduler has started for it."""
    return outcome.status is FINISHED and bool(job.stage_of(outcome.task).successors)
