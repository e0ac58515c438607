"""Jobs that go on without their client: it lets go of them once all their tasks have come, and another client of the
same user attaches to them.

What becomes of such a job's tasks is kept for whoever attaches, each outcome until a client has received it: for as
long as the job runs, and for a time after its end, or after the last client that was attached has gone. One client is
attached at a time. All of it is in this scheduler's memory, and goes with it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from scheduler.book.footprint import outcome_bytes
from scheduler.book.jobs import SETTLED
from scheduler.book.undelivered import Detached, Key, Undelivered
from scheduler.book.validation import check_given_back, check_submission
from sparrow_py.counted import agreeing, counted
from sparrow_py.errors import InvalidRequest, LinkError, shown
from sparrow_py.job import NAME_BYTES_MAX, BlobRef
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Collection

    from scheduler.book.advance_notice import AdvanceNotice
    from scheduler.book.deliveries import Deliveries
    from scheduler.book.jobs import JobState
    from scheduler.book.ledger import Ledger
    from scheduler.book.lost_inputs import LostInputs
    from scheduler.book.register import Register
    from scheduler.book.restarts import Restarts


LEASE_RENEWAL_S = 20.0
"""A third of the lease that nodes give large results unless they are told otherwise (`blob_lease_s`)."""


class Detachment:
    """See the module's docstring."""

    def __init__(
        self,
        ledger: Ledger,
        deliveries: Deliveries,
        register: Register,
        notice: AdvanceNotice,
        restarts: Restarts,
        lost_inputs: LostInputs,
    ) -> None:
        self._ledger = ledger
        self._deliveries = deliveries
        self._register = register
        self._notice = notice
        self._restarts = restarts
        self._lost_inputs = lost_inputs
        self._kept: dict[str, dict[str, Undelivered]] = {}
        """By user and job id all jobs that their clients have let go of."""
        deliveries.detached_gone = self._gone
        deliveries.left_alone = self._left_alone
        self._renews = False
        """Whether leases are to be renewed at a time that is set."""

    # ---- clients let go of them --------------------------------------------------------------

    def given_back(self, client: str, user: str, message: m.GiveBack, now_s: float) -> None:
        """A client gives back outcomes that it has, of a job that it is about to let go of."""
        check_given_back(message)
        for outcome in message.outcomes:
            outcome.job = message.job  # Each has come with a copy of it, which nobody counts.
        if self._deliveries.hears(client):
            self._deliveries.give_back(client, message.job, message.outcomes)

    def detach(self, client: str, user: str, message: m.Detach, now_s: float) -> None:
        """A client lets go of its job, or is told why it may not."""
        job = self._ledger.jobs.get(message.submission.job)
        if job is not None and job.client != client:
            job = None
        outcomes = self._deliveries.take_given_back(client, message.submission.job)
        why_not = self._why_not(client, user, job, message, outcomes)
        submission = message.submission if job is None else _as_it_is(job, message.submission)
        if why_not is None and not _fits_a_frame(submission):
            why_not = "", "what whoever attaches has to know of it does not fit a message"
        if why_not is not None:
            field, reason = why_not
            self._ledger.to_client(client, m.NotDetached(submission.job[:NAME_BYTES_MAX], reason, field))
            return
        assert outcomes is not None, "too many outcomes are a reason"
        key = self._key(user, message)
        before = self._kept.get(user, {}).get(submission.job)
        if before is not None and before.key != key:  # The client was attached to it, and had all of it.
            self._deliveries.expire(before)
        born_s = now_s - submission.age_s if job is None else job.born_s
        detached = Detached(submission, message.retention_s, born_s)
        given_back = (
            outcomes.values() if job is None else [one for one in outcomes.values() if _has_ended(job, one.task)]
        )
        kept = self._deliveries.let_go(client, key, detached, given_back)
        self._keep(kept, now_s)
        self._ledger.to_client(client, m.Detached(submission.job))
        self._ledger.note(now_s, submission.job, "its client lets go of it")
        if job is None:
            kept.job_over = True
            self._left_alone(kept, now_s)
        else:
            self._goes_on_alone(job, kept, now_s)

    @staticmethod
    def _key(user: str, message: m.Detach) -> Key:
        return user, message.submission.job, message.submission.instance

    def _goes_on_alone(self, job: JobState, kept: Undelivered, now_s: float) -> None:
        job.on_client_lost = "finish"
        self._without_client(job, kept, now_s)
        if self._ledger.is_here(job):
            self._notice.client_gone(job, now_s)
            self._restarts.client_gone(job, now_s)

    def _without_client(self, job: JobState, kept: Undelivered, now_s: float) -> None:
        """Nobody has the job from now on: what becomes of it is kept there. It may end by that."""
        job.undelivered = kept
        self._register.client_lets_go(job)
        client, job.client = job.client, ""  # Else what waits for room goes to the client, as far as it has room.
        self._deliveries.nobody_waits(job, client, now_s)
        if self._ledger.is_here(job):
            self._lost_inputs.client_gone(job, now_s)

    def _why_not(
        self, client: str, user: str, job: JobState | None, message: m.Detach, given_back: Collection[int] | None
    ) -> tuple[str, str] | None:
        """The field at fault, if there is one, and why the job may not be let go of; None if it may. job: if it has
        not ended, and is the client's."""
        ledger, options, submission = self._ledger, self._ledger.options, message.submission
        if any(stage.common for stage in submission.stages):
            raise LinkError(f"job {shown(submission.job)} is detached with what its tasks have in common")
        if not self._deliveries.hears(client):
            return "job", "the scheduler ends with its client"
        if not 0 <= message.retention_s <= options.detached_retention_s_max:
            longest = f"detached_retention_s_max = {options.detached_retention_s_max:g}"
            return "retention_s", f"retention_s is {message.retention_s:g}; allowed are seconds from 0 to {longest}"
        if ledger.draining:
            return "", "the scheduler is shutting down, and what it keeps goes with it"
        before = self._kept.get(user, {}).get(submission.job)
        if client in self._register.nested and (before is None or before.key != self._key(user, message)):
            return "job", "a task has submitted it, and what a task has submitted ends with the task"
        attached = None if before is None or before.detached is None else before.detached.client
        if before is not None and (
            attached != client or not (before.job_over or before.key == self._key(user, message))
        ):
            return "job", f"a detached job of the id {submission.job} is kept already"
        if before is None and len(self._kept.get(user, ())) >= options.detached_jobs_max:
            return "", f"user {user} has detached_jobs_max = {options.detached_jobs_max} detached jobs"
        if given_back is None or ledger.admission.held_bytes.get(user, 0) > options.held_bytes_max:
            return "", ledger.admission.over_bytes(user)
        why_not = self._why_not_over(user, submission, given_back) if job is None else _why_not_live(job, submission)
        return why_not or self._why_not_valid(submission)

    def _why_not_valid(self, submission: m.SubmitJob) -> tuple[str, str] | None:
        """As `_why_not`, of fields that no job can have."""
        try:
            check_submission(submission, self._ledger.options.payload_bytes_max, self._ledger.placing.name)
        except InvalidRequest as error:
            return error.field, str(error)
        return None

    def _why_not_over(self, user: str, submission: m.SubmitJob, given_back: Collection[int]) -> tuple[str, str] | None:
        """As `_why_not`, of a job that this scheduler does not have, or not for this client."""
        kept = self._deliveries.kept_of((user, submission.job, submission.instance))
        if submission.job in self._ledger.jobs or (kept is not None and not kept.job_over):
            return "", "it is not with this client"
        tasks = sum(stage.task_count for stage in submission.stages)
        known = {*given_back, *(() if kept is None else kept.outcomes)}
        if len(known) < tasks or not all(0 <= task < tasks for task in known):
            return "", "the scheduler does not have it"
        return None

    # ---- others attach -----------------------------------------------------------------------

    def attach(self, client: str, user: str, message: m.Attach, now_s: float) -> None:
        """A client wants a job that another one has let go of."""
        kept = self._kept.get(user, {}).get(message.job)
        if kept is None or not self._deliveries.hears(client):
            self._ledger.to_client(client, m.NotAttached(message.job[:NAME_BYTES_MAX]))
            return
        detached = kept.detached
        assert detached is not None
        if detached.client:
            if detached.client == client or detached.by != message.by:
                self._ledger.to_client(client, m.NotAttached(message.job, is_kept=True))
                return
            kept = self._let_go_again(kept, detached, now_s)  # It is its own link from before, which is gone.
        self._attach(client, kept, message.by, now_s)

    def _let_go_again(self, kept: Undelivered, before: Detached, now_s: float) -> Undelivered:
        """The client that is attached says by another link that this one is gone."""
        user, job_id, _ = kept.key
        job = self._live(kept)
        detached = Detached(before.submission, before.retention_s, before.born_s)
        again = self._deliveries.let_go(before.client, kept.key, detached, ())
        self._kept.setdefault(user, {})[job_id] = again
        if job is not None:
            self._without_client(job, again, now_s)
        return again

    def _keep(self, kept: Undelivered, now_s: float) -> None:
        user, job_id, _ = kept.key
        self._kept.setdefault(user, {})[job_id] = kept
        if not self._renews:
            self._renews = True
            self._ledger.timers.at(now_s + LEASE_RENEWAL_S, self._renew)

    def _attach(self, client: str, kept: Undelivered, by: int, now_s: float) -> None:
        detached, job = kept.detached, self._live(kept)
        assert detached is not None
        detached.by = by
        submission = msgspec.structs.replace(detached.submission, age_s=max(0.0, now_s - detached.born_s))
        if job is not None:
            job.client = client
            self._register.client_has(job)
        self._ledger.note(now_s, kept.key[1], "a client attaches to it")
        self._ledger.to_client(client, m.Attached(submission, detached.retention_s))
        self._deliveries.hand_to(client, kept)
        if job is None:
            self._ledger.to_client(client, m.JobEnded(kept.key[1]))
            self._deliveries.told_all(kept)

    def _live(self, kept: Undelivered) -> JobState | None:
        """The job, if it has not ended."""
        job = self._ledger.jobs.get(kept.key[1])
        return job if job is not None and job.undelivered is kept else None

    # ---- what is kept at nodes ---------------------------------------------------------------

    def _renew(self, now_s: float) -> None:
        """Nodes keep large results no longer than their leases, if room is needed: renew those of jobs that are
        kept."""
        self._renews = bool(self._kept)
        if not self._renews:
            return
        self._ledger.timers.at(now_s + LEASE_RENEWAL_S, self._renew)
        nodes = {node.info.address: node.id for node in self._ledger.nodes.all() if node.info.address}
        for user, jobs in self._kept.items():
            at_node: dict[str, list[str]] = {}
            for kept in jobs.values():
                for task in kept.large:
                    ref = kept.outcomes[task].result
                    assert isinstance(ref, BlobRef), "it lies at nodes"
                    for address in ref.at:
                        if address in nodes:
                            at_node.setdefault(nodes[address], []).append(ref.hash)
            for node_id, hashes in at_node.items():
                for first in range(0, len(hashes), m.NUMBERS_PER_MESSAGE_MAX):
                    some = tuple(hashes[first : first + m.NUMBERS_PER_MESSAGE_MAX])
                    self._ledger.to_node(node_id, m.KeepData(user, some))

    # ---- they go -----------------------------------------------------------------------------

    def _left_alone(self, kept: Undelivered, now_s: float) -> None:
        """Nobody is attached to the job: once it is over it is kept for a while."""
        detached = kept.detached
        assert detached is not None
        kept.kept_until_s = now_s + detached.retention_s if kept.job_over else math.inf
        self._set_timer(kept, detached)

    def _set_timer(self, kept: Undelivered, detached: Detached) -> None:
        """One of each at most, however often clients come and go."""
        if not detached.is_timed and kept.kept_until_s < math.inf:
            detached.is_timed = True
            self._ledger.timers.at(
                kept.kept_until_s, lambda now_s: self._look(kept, detached, now_s), lambda: self._is_kept(kept)
            )

    def _look(self, kept: Undelivered, detached: Detached, now_s: float) -> None:
        """The time may be over for which the job is kept."""
        detached.is_timed = False
        if not self._is_kept(kept) or detached.client:
            return
        if kept.kept_until_s <= now_s:
            self._deliveries.expire(kept)
        else:
            self._set_timer(kept, detached)

    def _is_kept(self, kept: Undelivered) -> bool:
        return self._kept.get(kept.key[0], {}).get(kept.key[1]) is kept

    def _gone(self, kept: Undelivered) -> None:
        """The job is its client's again, or whoever attached has all of it, or its time is over."""
        user, job_id, _ = kept.key
        if self._is_kept(kept):
            del self._kept[user][job_id]
            if not self._kept[user]:
                del self._kept[user]

    # ---- what people and tests look at -------------------------------------------------------

    def count(self) -> int:
        """How many jobs are kept for whoever attaches, or are attached to."""
        return sum(map(len, self._kept.values()))

    def problem(self) -> str | None:
        """What is wrong with what is kept; None if nothing is."""
        for kept in [kept for of_user in self._kept.values() for kept in of_user.values()]:
            detached, job = kept.detached, self._live(kept)
            if detached is None or self._deliveries.kept_of(kept.key) is not kept:
                return f"detached job {kept.key[1]} is not kept"
            if kept.bytes != detached.bytes + sum(map(outcome_bytes, kept.outcomes.values())):
                return f"detached job {kept.key[1]} is counted as {kept.bytes} bytes"
            if kept.awaits_client is bool(detached.client):
                return f"detached job {kept.key[1]} awaits a client, or is attached to: one of both"
            if (job is None) is not kept.job_over or (job is not None and job.client != detached.client):
                return (
                    f"detached job {kept.key[1]} is over, or is here and {detached.client or 'nobody'}'s: one of both"
                )
            if kept.job_over and not detached.client and not detached.is_timed:
                return f"detached job {kept.key[1]} is over, and is kept for ever"
        return None


def _has_ended(job: JobState, task: int) -> bool:
    """Whether the client may have been told how this task of the job ended."""
    if not 0 <= task < job.task_count:
        return False
    stage = job.stage_of(task)
    return stage.states[task - stage.first] == SETTLED or task - stage.first in stage.rerun


def _why_not_live(job: JobState, submission: m.SubmitJob) -> tuple[str, str] | None:
    """As `Detachment._why_not`, of a job that is here, and the client's."""
    stages = [(stage.spec.name, stage.spec.task_count) for stage in job.stages]
    if job.instance != submission.instance or stages != [(one.name, one.task_count) for one in submission.stages]:
        raise LinkError(f"job {job.id} is detached as what it is not")
    if missing := job.task_count - job.received:
        return "", f"{missing:,} of its tasks {agreeing(missing, 'have')} not come"
    if job.expected:
        return (
            "",
            f"its tasks wait for {counted(len(job.expected), 'result')} of other jobs, of which its client is to tell",
        )
    if job.watched:
        return "", "another job of its client waits for its results"
    return None


def _as_it_is(job: JobState, said: m.SubmitJob) -> m.SubmitJob:
    """The job for whoever attaches: as the scheduler has it, whatever its client said when it let go of it. Nobody
    places it anywhere else, so other jobs that it avoids are left out."""
    return msgspec.structs.replace(
        said, name=job.name, avoid=(), preemptible=job.preemptible, max_attempts=job.max_attempts,
        retry_failed=job.retry_failed, report_placed=job.report_placed, acknowledges=job.acknowledges,
        stages=[msgspec.structs.replace(stage.spec, common=b"") for stage in job.stages],
    )  # fmt: skip


def _fits_a_frame(submission: m.SubmitJob) -> bool:
    """Whether the answer to one that attaches fits a frame, whatever the job's age is."""
    answer = m.Attached(msgspec.structs.replace(submission, age_s=0.5), 0.5)
    return len(m.one_message_frame(answer)) <= m.FRAME_BYTES_MAX
