"""Failover between schedulers that share no state: epochs, claims, adoption, fencing.

A client that lost its scheduler hands the job, with a higher epoch and the outcomes it has, to
another. That one claims the job at all node monitors: they fence lower epochs, report the
outcomes that they still hold, and name what runs. What runs is adopted, what is reported is
settled, and only what nobody accounts for is started again, as if it had been started in vain: unless
nodes that can know it have said that it has not been started (`JobState.accounted_for`), or the job comes back
to the scheduler that had it, which knows that no start of the task was open (`carried`). What is counted so,
the client is told, and knows it before anything is started again (`advance_notice`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.footprint import known_bytes
from scheduler.book.jobs import (
    BLOCKED,
    CLAIMING,
    HELD,
    OPEN,
    PLACED,
    SETTLED,
    UNPLACED,
    Attempt,
    JobState,
    StageState,
)
from scheduler.book.nodes import Node
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.advance_notice import AdvanceNotice
    from scheduler.book.attempts import Attempts
    from scheduler.book.cancellation import Cancellation
    from scheduler.book.inventories import Inventories
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.overtaking import Overtaking
    from scheduler.book.register import Register
    from scheduler.book.restarts import Restarts
    from scheduler.book.stages import Stages

USED_MAX = 100_000
"""Memories of node monitors that a client may name for a job; it remembers no more itself."""
AGE_MARGIN_S = 60.0
"""Jobs are said to be so much older than they are by what their clients say: messages take their time, and clocks run
apart."""
REDIALLED_S = 6.0
"""Seconds in which a node monitor that lives dials again (`sparrow_py.wire.dialling.REDIAL_MAX_S`). A scheduler that is
not older waits so long for those that alone know what of a job has been started."""


@dataclass(eq=False, slots=True)
class Claims:
    """The jobs of a scheduler that were at another one before."""

    _ledger: Ledger
    _attempts: Attempts
    _register: Register
    _outcomes: Outcomes
    _notice: AdvanceNotice
    _restarts: Restarts
    _stages: Stages
    _cancellation: Cancellation
    _overtaking: Overtaking
    _inventories: Inventories
    _nodes_since_s: float
    """Since when at least one node has been connected without a break; before any came, when the scheduler started."""

    # ---- what the client knows ---------------------------------------------------------------

    def known(self, job: JobState, message: m.Known) -> None:
        """Outcomes that the client has, and starts in vain, of tasks that are about to arrive."""
        for outcome in message.outcomes:
            job.known[outcome.task] = outcome
        for task in message.starts | message.failures:
            self._starts_known(job, task, message.starts.get(task, 0), message.failures.get(task, 0))
        if message.used is not None and job.using is not None:
            if any(len(memory) > m.MEMORY_CHARS_MAX for memory in message.used):
                raise LinkError(f"job {job.id}: a memory's name is longer than {m.MEMORY_CHARS_MAX} characters")
            if job.used is None:
                job.used = set()
            job.used.update(message.used)
            job.using.update(dict.fromkeys(message.used, 0))
            if len(job.used) > USED_MAX:
                raise LinkError(f"job {job.id}: more than {USED_MAX} memories of nodes")
        for first, count in message.unstarted:
            if not (sum(job.unstarted[-1]) if job.unstarted else 0) <= first < first + count <= job.task_count:
                raise LinkError(f"job {job.id}: tasks {first} to {first + count - 1} cannot be unstarted: out of order")
            job.unstarted.append((first, count))

    @staticmethod
    def _starts_known(job: JobState, number: int, starts: int, failures: int) -> None:
        """The client knows so many starts of the task, and besides them so many failures that were retried."""
        stage = job.stage_of(number)
        task, retries = number - stage.first, stage.retries
        if not 0 <= starts <= job.max_attempts:
            raise LinkError(f"job {job.id}: task {number} cannot have been started {starts} times")
        if not 0 <= failures < (1 if retries is None else retries.policy.attempts):
            raise LinkError(f"job {job.id}: task {number} cannot have been retried {failures} times")
        # Less than is known if it was here, and more has been counted.
        knows_all = starts >= stage.starts.get(task, 0) and failures >= stage.failures(task)
        if starts >= stage.starts.get(task, 0):
            stage.starts[task] = starts
        if retries is not None and failures > stage.failures(task):
            retries.failures[task] = failures
        if knows_all and job.carried is not None:
            job.carried.untold.discard(number)

    def settle_known(self, stage: StageState, first: int, count: int, now_s: float) -> None:
        """Of the tasks that have just arrived those are settled whose outcomes the client has."""
        job = stage.job
        for task in range(first, first + count):
            known = job.known.pop(stage.first + task, None)
            if known is None:
                continue
            self._ledger.holds(job, -known_bytes(known))  # What is kept of it counts from here on.
            if stage.states[task] != UNPLACED:
                continue
            self._withdraw(stage, task, now_s)
            stage.count_settled(1)
            job.counts[known.status] += 1
            self._outcomes.keep_result(stage, task, known.status, known.result, now_s)
            if not self._ledger.is_here(job):
                return  # Its results were too many bytes.
            if known.status is not TaskStatus.FINISHED:
                self._stages.doom(stage, f"task {known.task} before it was {known.status.value}", now_s)
        if stage.over and count:
            self._stages.over(stage, now_s)

    # ---- claiming ----------------------------------------------------------------------------

    def arrived(self, job: JobState, now_s: float) -> None:
        """A job that had to arrive whole has done so, and was accepted."""
        self._open(job, now_s)

    def start(self, job: JobState, now_s: float) -> None:
        """All tasks of the job have arrived: ask all nodes what they have of it."""
        nodes, options, at_stage = self._ledger.nodes, self._ledger.options, self._ledger.at_stage
        if self._by_inventory(job) and not self._inventories.complete:
            job.listing = True
            at_stage(now_s + options.claim_timeout_s, job.stages[0], self._listed)
        else:
            self._claim_all(job, now_s)
        # Of a scheduler that has just started, or that had lost all, node monitors that dial again may be on their way.
        age_s = now_s - (self._nodes_since_s if len(nodes) else now_s)
        settling_s = options.settling_s - age_s
        away_s = max(REDIALLED_S - age_s, settling_s) if self._away(job) else 0.0
        for wait_s, settled in ((settling_s, self._settled_unless_away), (away_s, self._settled)):
            if wait_s > 0:
                at_stage(now_s + wait_s, job.stages[0], settled)
        wait_s = max(settling_s, away_s, options.claim_timeout_s if job.listing else 0.0)
        at_stage(now_s + wait_s + options.claim_timeout_s, job.stages[0], self._time_out)
        if max(settling_s, away_s) <= 0:
            self._settled(job.stages[0], now_s)

    def _by_inventory(self, job: JobState) -> bool:
        """Whether the job is claimed only where nodes have said that they have something of it: no other can start its
        tasks, as all take them from the leader alone. Of a job that accounts for its starts each node must say so."""
        return self._inventories.in_use and job.using is None

    def _claim_all(self, job: JobState, now_s: float) -> None:
        """Ask all nodes that may have something of the job."""
        nodes = self._ledger.nodes
        asked = nodes.all()
        if self._by_inventory(job):
            asked = [nodes[node_id] for node_id in self._inventories.nodes_of(job) if node_id in nodes]
        for node in asked:
            self._claim(job, node, now_s)

    def inventories_complete(self, now_s: float) -> None:
        """All linked nodes have named their jobs: those that waited for that are claimed."""
        for job in [job for job in self._ledger.jobs.values() if job.listing]:
            self._listed(job.stages[0], now_s)

    def _listed(self, stage: StageState, now_s: float) -> None:
        """Nodes that have not named their jobs by now are waited for no more."""
        job = stage.job
        if job.listing and self._ledger.is_here(job):
            job.listing = False
            self._claim_all(job, now_s)
            self._open_unless_waiting(job, now_s)

    def inventory(self, node: Node, message: m.Inventory, now_s: float) -> None:
        """A node names jobs of which it has something: those that are claimed already are claimed there, too."""
        self._inventories.add(node.id, message.jobs)
        for user, job_id, instance in message.jobs:
            job = self._ledger.jobs.get(job_id)
            if job is None or (job.user, job.instance) != (user, instance) or not self._is_claimed(job):
                continue
            if self._by_inventory(job) and not job.listing:
                self._claim_late(job, node, now_s)
        if message.complete:
            self._inventories.is_complete(node.id, now_s)

    @staticmethod
    def _is_claimed(job: JobState) -> bool:
        """Whether the job was at another scheduler, and nodes have been asked for it."""
        return job.epoch > 0 and job.received == job.task_count

    def _claim_late(self, job: JobState, node: Node, now_s: float) -> None:
        """The job was claimed at other nodes before."""
        if job.phase is CLAIMING:
            self._claim(job, node, now_s)
        else:  # Too late to be waited for, but it fences, and may know an outcome.
            self._ledger.to_node(node.id, m.Claim(job.id, job.user, job.epoch, job.instance))

    def _away(self, job: JobState) -> bool:
        """Whether a node process is not linked without which nobody knows what of the job has been started."""
        return job.used is not None and not job.used <= {node.memory for node in self._ledger.nodes.all()}

    def _settled(self, stage: StageState, now_s: float) -> None:
        """The job of the stage waits for nodes' answers alone from now on."""
        job = stage.job
        if job.settling and self._ledger.is_here(job):
            job.settling = False
            self._open_unless_waiting(job, now_s)

    def _settled_unless_away(self, stage: StageState, now_s: float) -> None:
        if not self._away(stage.job):
            self._settled(stage, now_s)

    def _claim(self, job: JobState, node: Node, now_s: float) -> None:
        job.unanswered.add(node.id)
        age_s = None if job.used is None else now_s - job.born_s + AGE_MARGIN_S
        self._ledger.to_node(node.id, m.Claim(job.id, job.user, job.epoch, job.instance, age_s))

    def node_up(self, node: Node, now_s: float) -> None:
        """A node has come: claim what was claimed at the others."""
        if len(self._ledger.nodes) == 1:
            self._nodes_since_s = now_s
        for job in self._ledger.jobs.values():
            if not self._is_claimed(job):
                continue
            if not self._by_inventory(job):
                self._claim_late(job, node, now_s)
            settled = now_s - self._nodes_since_s >= self._ledger.options.settling_s
            if job.phase is CLAIMING and settled and not self._away(job):
                self._settled(job.stages[0], now_s)

    def node_down(self, node: Node, now_s: float) -> None:
        """A node has gone: it will not answer."""
        for job in [job for job in self._ledger.jobs.values() if node.id in job.unanswered]:
            self._answered(job, node.id, now_s)
        self._inventories.node_down(node.id, now_s)

    def started_here(self, node: Node, message: m.StartedHere, now_s: float) -> None:
        """A node names tasks that it has started for other schedulers; `Claimed` says whether that is all."""
        job = self._ledger.jobs.get(message.job)
        if job is not None and job.is_meant_by(message) and job.epoch == message.epoch and job.used is not None:
            job.started_before.update(task for task in message.tasks if 0 <= task < job.task_count)

    def claimed(self, node: Node, message: m.Claimed, now_s: float) -> None:
        """A node has said what of the job runs there."""
        job = self._ledger.jobs.get(message.job)
        if job is None:  # It ended meanwhile.
            self._ledger.to_node(node.id, m.ForgetJob(message.job))
            return
        meant = job.is_meant_by(message)
        if meant and job.epoch != message.epoch:
            return
        if message.running or self._inventories.names(
            job, node.id
        ):  # It has something of a job of this id, and is to be told when that has ended.
            node.sent.setdefault(job.id, set())
            job.sent_to.add(node.id)
        if not meant:  # Another's job had the id, was claimed, and ended; this one's answer is yet to come.
            return
        for task, attempt_id in message.running:
            if 0 <= task < job.received:
                stage = job.stage_of(task)
                self._adopt(stage, task - stage.first, attempt_id, node, now_s)
        if message.vouches and node.id in job.unanswered:  # Else it is too late: it may be taken for older than it is.
            job.vouched.add(node.memory)
        self._answered(job, node.id, now_s)

    def _adopt(self, stage: StageState, task: int, attempt_id: int, node: Node, now_s: float) -> None:
        """The attempt, which another scheduler started, is ours from now on; unless the task does not need it."""
        job, ledger = stage.job, self._ledger
        if attempt_id in job.attempts:
            return
        if stage.states[task] == UNPLACED:
            stage.withdraw(task, PLACED)
            ledger.admission.placed(job.user)
        elif stage.states[task] == HELD:
            stage.hold_no_more(task)
            stage.states[task] = PLACED
            ledger.admission.placed(job.user)
        else:
            ledger.to_node(node.id, m.CancelAttempt(job.id, attempt_id, running=True))
            return
        attempt = Attempt(attempt_id, stage, task, node.id)
        self._attempts.begin(attempt, node)
        ledger.counters.adopted += 1
        ledger.placing.adopted(attempt)
        ledger.note(now_s, job.id, "adopted task %d, which runs on node %s", stage.first + task, node.id)
        if not stage.unplaced:
            ledger.placing.none_unplaced(stage, now_s)
        if job.cancelled:
            self._attempts.cancel(attempt, running=job.cancel_running)

    def report(self, job: JobState, node: Node, message: m.Report, now_s: float) -> bool:
        """A report of an attempt that we do not know: if an earlier epoch's, it is as good as one of ours."""
        if message.attempt >> m.EPOCH_SHIFT >= job.epoch or not 0 <= message.task < job.received:
            return False
        stage = job.stage_of(message.task)
        task = message.task - stage.first
        if message.status is TaskStatus.CANCELLED:
            return False
        if message.status is TaskStatus.LOST or (message.status is TaskStatus.FAILED and job.retry_failed):
            # The other scheduler may have started it again since: that attempt counts, if there is one.
            if job.phase is CLAIMING:
                job.in_vain[message.task] = job.in_vain.get(message.task, 0) + 1
                if message.status is TaskStatus.FAILED:
                    job.failed_before[message.task] = node.id, message
            return True
        if message.status is TaskStatus.FAILED and message.retry and stage.retries is not None:
            if job.phase is CLAIMING:
                self._failed_before(job, node, message)
            return True
        starts = stage.starts_before(task) + 1
        if stage.states[task] == BLOCKED or not self._overtaking.take_out(stage, task, message, now_s):
            return False
        self._ledger.counters.adopted += 1
        self._outcomes.settle_reported(stage, task, node.id, message, starts, now_s)
        return True

    @staticmethod
    def _failed_before(job: JobState, node: Node, message: m.Report) -> None:
        """An attempt of an earlier epoch failed, as its stage's tasks may some times before that is their outcome."""
        job.retried_before.setdefault(message.task, set()).add(message.attempt)
        latest = job.failed_before.get(message.task)
        if latest is None or latest[1].attempt < message.attempt:
            job.failed_before[message.task] = node.id, message

    def _withdraw(self, stage: StageState, task: int, now_s: float) -> None:
        """The unplaced task is settled."""
        stage.withdraw(task, SETTLED)
        self._ledger.admission.withdrawn(stage.job.user, 1)
        if not stage.unplaced:
            self._ledger.placing.none_unplaced(stage, now_s)

    def _time_out(self, stage: StageState, now_s: float) -> None:
        self._listed(stage, now_s)
        self._settled(stage, now_s)
        for node_id in sorted(stage.job.unanswered):
            self._answered(stage.job, node_id, now_s)

    def _answered(self, job: JobState, node_id: str, now_s: float) -> None:
        if node_id in job.unanswered and self._ledger.is_here(job):
            job.unanswered.discard(node_id)
            self._open_unless_waiting(job, now_s)

    def _open_unless_waiting(self, job: JobState, now_s: float) -> None:
        if not job.settling and not job.listing and not job.unanswered:
            self._open(job, now_s)

    def _open(self, job: JobState, now_s: float) -> None:
        """From now on its tasks may run here: nobody else may still run those that no node has named."""
        job.phase = OPEN
        self._ledger.note(now_s, job.id, "claimed with epoch %d", job.epoch)
        counted = self._count(job) if job.epoch else set()
        for running in (False, True):
            if tasks := [task for task, too in sorted(job.cancel_later.items()) if too is running]:
                self._cancellation.cancel_tasks(job, tasks, now_s, running=running)
        for stage in job.stages:
            if not self._ledger.is_here(job):
                return
            if job.cancelled:
                self._outcomes.settle_rest(stage, job.cancel_reason, now_s)
            elif job.epoch:
                self._start_unaccounted(stage, counted, now_s)
            else:
                if job.expected:
                    self._restarts.hold_new(stage, stage.unplaced_tasks(), now_s)
                here = self._ledger.is_here(job) and not job.cancelled
                if here and not stage.waits_for and stage.spec.task_count:
                    self._stages.open(stage, now_s)

    def _count(self, job: JobState) -> set[int]:
        """Count each start that the client does not know of and that cannot be ruled out; returns whose starts have
        become more by that, or were counted here before without the client's knowing. Of starts in vain the client
        knows some, and nodes some, which may be the same ones."""
        counted = set() if job.carried is None else job.carried.untold
        open_before = set() if job.accounted_for else self._may_have_been_open(job)
        for stage in job.stages:
            for task, state in enumerate(stage.states):
                if state not in (UNPLACED, PLACED):
                    continue
                number = stage.first + task
                if number in job.retried_before and self._count_failures(stage, task, runs=state == PLACED):
                    counted.add(number)
                if state == PLACED or job.was_unstarted(number):
                    one_more = False
                else:
                    one_more = number in job.started_before if job.accounted_for else stage.index in open_before
                # Of an attempt that was adopted the start is counted when it ends.
                in_vain = min(job.in_vain.get(number, 0), job.max_attempts - (one_more or state == PLACED))
                known = stage.starts.get(task, 0)
                starts = min(max(known, in_vain) + one_more, job.max_attempts)
                if starts > known:
                    stage.starts[task] = starts
                    counted.add(number)
        job.carried = None
        return counted

    @staticmethod
    def _count_failures(stage: StageState, task: int, *, runs: bool) -> bool:
        """Count the task's failures of which nodes tell; whether they are more than was known. One that runs has not
        failed as often as it may."""
        retries, told = stage.retries, len(stage.job.retried_before[stage.first + task])
        assert retries is not None
        if told <= stage.failures(task):
            return False
        retries.failures[task] = min(told, retries.policy.attempts - runs)
        if not _has_failed(stage, task) and task not in retries.errors:
            _, latest = stage.job.failed_before[stage.first + task]
            retries.keep_error(task, latest.error)
        return True

    @staticmethod
    def _may_have_been_open(job: JobState) -> set[int]:
        """The stages whose tasks another scheduler may have started: it may have known outcomes that are lost with it.

        It has not if some task of a stage before is known not to have finished: it runs for the first time, or no start
        of it was open.
        """
        left = {stage.index: len(stage.predecessors) for stage in job.stages}
        """Stages before each that cannot have been over, as far as has been looked."""
        opened = [stage for stage in job.stages if not left[stage.index]]
        for stage in opened:  # It grows by those that may have been opened by one before.
            for successor in stage.successors if _may_be_over(stage) else ():
                left[successor.index] -= 1
                if not left[successor.index]:
                    opened.append(successor)
        return {stage.index for stage in opened}

    def _start_unaccounted(self, stage: StageState, counted: set[int], now_s: float) -> None:
        """What has been started so often as it may be, as far as is known, is not started again, be its stage open or
        not; the rest is as soon as the client knows the starts of those that were `counted`, and those that have failed
        have waited."""
        if stage.doomed or not stage.spec.task_count:
            return
        job, outcomes = stage.job, self._outcomes
        if stage.retries is not None and job.acknowledges:
            stage.retries.told_waiting.update(
                task for task in stage.retries.failures if job.told_unstarted(stage.first + task)
            )
        starts_max = job.max_attempts + (0 if stage.retries is None else stage.retries.policy.attempts - 1)
        lost, again, delayed = [], [], []
        for task in stage.unplaced_tasks():
            if job.cancelled or not self._ledger.is_here(job):
                return  # The one before was too many bytes, so that the job was cancelled.
            failed = job.failed_before.get(stage.first + task)
            if stage.starts.get(task, 0) < job.max_attempts and not _has_failed(stage, task):
                if stage.failures(task):
                    delayed.append(task)
                elif stage.first + task in counted:
                    again.append(task)
            elif failed is None or (stage.first + task in job.retried_before and not _has_failed(stage, task)):
                lost.append(task)
            else:
                self._withdraw(stage, task, now_s)
                starts = min(stage.starts_before(task), starts_max)
                outcomes.settle_reported(stage, task, *failed, starts, now_s)
        if job.cancelled or not self._ledger.is_here(job):
            return
        untold = set(again) if again and self._notice.of_starts(stage, again) else set()
        news = {task for task in delayed if stage.first + task in counted}
        self._restarts.hold_after_claim(stage, sorted(untold.union(delayed)), untold, news, now_s)
        if lost:
            reason = "its scheduler was lost, and no node has its outcome: it may have been started"
            if job.epoch > 1:
                reason += f"; its job has moved {job.epoch} times, and each move may have cost a start"
            outcomes.settle_unplaced(stage, lost, TaskStatus.LOST, reason, now_s)
        if job.expected and self._ledger.is_here(job):
            self._restarts.hold_new(stage, stage.unplaced_tasks(), now_s)
        if self._ledger.is_here(job) and not job.cancelled:
            self._stages.open(stage, now_s)


def _has_failed(stage: StageState, task: int) -> bool:
    """Whether the task has failed as often as it may."""
    return stage.retries is not None and stage.failures(task) >= stage.retries.policy.attempts


def _may_be_over(stage: StageState) -> bool:
    """Whether all tasks of a stage that may have been open may have finished."""
    for task, state in enumerate(stage.states):
        runs_first = state == PLACED and not stage.starts.get(task)
        if runs_first or (state == UNPLACED and stage.job.was_unstarted(stage.first + task)):
            return False
    return True
