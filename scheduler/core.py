"""The scheduler's pure core: every decision of the scheduler, and nothing else.

Events come in through the public methods, each with the time; effects go out through the
`Outbox`. No sockets, clocks, randomness or logging of its own: the daemon, the simulator and
the fault tests drive this same class.

How a job runs (Sparrow §3.1, §3.2): `submit` makes a stage, `_ensure_probes` queues
ceil(d·m) reservations on random nodes, `_get_tasks` binds tasks to nodes that ask, `_report`
settles them. When the last task is placed, `_release_surplus` passes the reservations that are
left to another job of the user or cancels them (§8).

What holds after each event (`check_invariants`): a stage with unplaced tasks has at least as
many live reservations as unplaced tasks, or a pending re-probe, or waits for nodes; a stage
without unplaced tasks, all of whose tasks have arrived, has no reservation; counts add up.
"""

from __future__ import annotations

import heapq
import weakref
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.admission import Admission
from scheduler.invariants import check_stage
from scheduler.jobs import PLACED, SETTLED, UNPLACED, Attempt, JobState, ShareKey, StageState, Ticket
from scheduler.nodes import Node, Nodes
from scheduler.options import SchedulerOptions
from scheduler.sampling import reservations_wanted, spread
from scheduler.validation import check_node, check_submission
from sparrow_py import messages as m
from sparrow_py.errors import InvalidRequest, InvariantViolated, LinkError
from sparrow_py.job import NAME_BYTES_MAX, TaskStatus

if TYPE_CHECKING:
    import random

PROBE_BACKOFF_S = 0.05
"""First wait of a stage that every node refused; doubles up to the maximum."""
PROBE_BACKOFF_MAX_S = 2.0
SHARED_PER_TASK_MAX = 8
"""Probe sharing stops once the heir has this many reservations per unplaced task."""


class Outbox(Protocol):
    """Where effects go. Messages to peers that are gone may be dropped."""

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Send to a node monitor."""

    def to_client(self, client: str, message: m.Message) -> None:
        """Send to a client."""


class Counters:
    """What the metrics show; all counts since the start."""

    __slots__ = (
        "asks", "attempts_lost", "handed_back", "jobs_accepted", "jobs_ended", "jobs_refused", "launched",
        "noops", "reservations", "reservations_cancelled", "reservations_refused", "reservations_shared",
        "retries", "settled", "stale_reports",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.settled: dict[TaskStatus, int] = dict.fromkeys(TaskStatus, 0)

    asks: int
    attempts_lost: int
    handed_back: int
    jobs_accepted: int
    jobs_ended: int
    jobs_refused: int
    launched: int
    noops: int
    reservations: int
    reservations_cancelled: int
    reservations_refused: int
    reservations_shared: int
    retries: int
    stale_reports: int


class SchedulerCore:
    """See the module's docstring. Times are seconds, of any clock that never goes back."""

    def __init__(self, options: SchedulerOptions, rng: random.Random, outbox: Outbox) -> None:
        self.options = options
        self.counters = Counters()
        self.nodes = Nodes()
        self.jobs: dict[str, JobState] = {}
        self.draining = False
        self.admission = Admission(options.unplaced_tasks_max, options.held_bytes_max)
        self._rng = rng
        self._to_node = outbox.to_node
        self._to_client = outbox.to_client
        self._tickets: dict[int, Ticket] = {}
        self._attempts: dict[int, Attempt] = {}
        self._jobs_of: dict[str, dict[str, JobState]] = {}
        self._heirs: dict[ShareKey, dict[str, StageState]] = {}
        """Stages with unplaced tasks by share key, oldest first."""
        self._timers: list[tuple[float, int, Callable[[float], None]]] = []
        self._next_ticket = 1
        self._next_attempt = 1
        self._next_timer = 0
        self._history: deque[tuple[float, str, str]] = deque(maxlen=options.history_len_max)
        self._touched: set[str] = set()
        self._keep_history = options.history_len_max > 0
        self._from_node: dict[type, Callable[[Node, Any, float], None]] = {
            m.GetTasks: self._get_tasks,
            m.Report: self._report,
            m.HandBack: self._handed_back,
            m.ReservationsRefused: self._refused,
            m.AttemptRuns: self._attempt_runs,
            m.NodeChanged: self._node_changed,
            m.NodeDraining: self._node_draining,
        }
        self._from_client: dict[type, Callable[[str, Any, float], None]] = {
            m.AddTasks: self._add_tasks,
            m.CancelJob: self._cancel_job_message,
            m.CancelTasks: self._cancel_tasks,
        }

    # ---- events: peers -----------------------------------------------------------------------

    def node_up(self, node_id: str, info: m.NodeInfo, now_s: float) -> None:
        """A node monitor has connected; its id must not be connected already."""
        self.nodes.add(Node(node_id, info))
        self._note(now_s, "", "node %s up, %d slots", node_id, info.slots)
        self._probe_waiting(now_s)
        self._probe_newcomer(node_id, now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """The link to a node monitor broke: its reservations and running tasks go elsewhere (guarantee 4)."""
        node = self.nodes.remove(node_id)
        self._note(now_s, "", "node %s down", node_id)
        for job_id in node.commons:
            self.jobs[job_id].commons_at.discard(node_id)
        stages = self._drop_reservations(node)
        for attempt_id in sorted(node.attempts):
            attempt = self._attempts.pop(attempt_id)
            stages[attempt.stage.job.id] = attempt.stage
            self._attempt_lost(attempt, f"node {node_id} was lost", now_s)
        self._ensure_all(stages, now_s)

    def client_down(self, client: str, now_s: float) -> None:
        """A client's link broke: what of its jobs has not started is cancelled."""
        for job in list(self._jobs_of.pop(client, {}).values()):
            self._cancel_job(job, "its client went away", now_s)

    def receive_from_node(self, node_id: str, message: m.Message, now_s: float) -> None:
        """A message from a connected node monitor; `LinkError` if it may not be sent."""
        self._from_node[type(message)](self.nodes[node_id], message, now_s)

    def receive_from_client(self, client: str, user: str, message: m.Message, now_s: float) -> None:
        """A message from a client; `LinkError` if it may not be sent."""
        if isinstance(message, m.SubmitJob):
            self._submit(client, user, message, now_s)
        else:
            self._from_client[type(message)](client, message, now_s)

    # ---- events: time and operator -----------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        return self._timers[0][0] if self._timers else None

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: do what was due."""
        while self._timers and self._timers[0][0] <= now_s:
            heapq.heappop(self._timers)[2](now_s)

    def drain(self, now_s: float) -> None:
        """Take no further jobs; those accepted go on."""
        self.draining = True
        self._note(now_s, "", "draining")

    def cancel_job(self, job_id: str, now_s: float) -> bool:
        """Cancel what of the job has not started (operator's command); False if there is no such job."""
        job = self.jobs.get(job_id)
        if job is None:
            return False
        self._cancel_job(job, "it was cancelled by the operator", now_s)
        return True

    def story(self, job_id: str) -> list[str]:
        """What is remembered of a job, for people who look for a bug; needs `history_len_max` > 0."""
        return [f"{at_s:.6f} {text}" for at_s, job, text in self._history if job in (job_id, "")]

    def live_reservations(self, node_id: str) -> int:
        """Reservations of this scheduler queued at the node."""
        return sum(self._tickets[ticket].live[node_id] for ticket in self.nodes[node_id].tickets)

    # ---- submission --------------------------------------------------------------------------

    def _submit(self, client: str, user: str, message: m.SubmitJob, now_s: float) -> None:
        if message.job in self.jobs:
            # Submitting twice is one job; the outcomes go to whom it was accepted from.
            if self.jobs[message.job].client == client:
                self._to_client(client, m.JobAccepted(message.job))
            else:
                self._refuse(client, message.job, "another client has a job of this id", field="job_id")
            return
        try:
            check_submission(message, self.options.payload_bytes_max)
        except InvalidRequest as error:
            self._refuse(client, message.job, str(error), field=error.field)
            return
        stage = message.stages[0]
        if self.draining:
            self._refuse(client, message.job, "the scheduler is shutting down", retry_after_s=1.0)
            return
        none_eligible = self.nodes.why_none_eligible(stage.app, stage.runtime)
        if none_eligible and stage.task_count:
            self._refuse(client, message.job, none_eligible[1], field=none_eligible[0])
            return
        refusal = self.admission.admit(user, stage.task_count, now_s)
        if refusal:
            self._refuse(client, message.job, refusal.reason, retry_after_s=refusal.retry_after_s)
            return
        job = JobState(message, client, user, now_s)
        self.jobs[job.id] = job
        self._jobs_of.setdefault(client, {})[job.id] = job
        self.counters.jobs_accepted += 1
        self._note(now_s, job.id, "accepted, %d tasks of user %s", stage.task_count, user)
        self._to_client(client, m.JobAccepted(job.id))
        self._end_if_settled(job, now_s)

    def _refuse(
        self, client: str, job_id: str, reason: str, *, field: str = "", retry_after_s: float | None = None
    ) -> None:
        self.counters.jobs_refused += 1
        self._to_client(client, m.JobRefused(job_id[:NAME_BYTES_MAX], reason, field, retry_after_s))

    def _add_tasks(self, client: str, message: m.AddTasks, now_s: float) -> None:
        job = self._jobs_of.get(client, {}).get(message.job)
        if job is None or job.cancelled:
            return  # The job was refused or cancelled while its tasks were on their way.
        stage = job.stage
        held, announced, given = len(stage.states), stage.spec.task_count, len(message.payloads)
        if message.first != held or held + given > announced:
            raise LinkError(
                f"job {job.id}: tasks {message.first} to {message.first + given - 1} do not follow the "
                f"{held} of {announced} tasks received: each task must be given once, in order"
            )
        if given > m.TASKS_PER_MESSAGE_MAX:
            raise LinkError(f"job {job.id}: {given} tasks in a message; at most {m.TASKS_PER_MESSAGE_MAX}")
        largest, bytes_max = max(map(len, message.payloads), default=0), self.options.payload_bytes_max
        if largest > bytes_max:  # It would not fit the frame to a node monitor.
            raise LinkError(f"job {job.id}: a payload of {largest} bytes; at most {bytes_max}")
        stage.add_tasks(message.payloads)
        if not self.admission.holds(job.user, sum(map(len, message.payloads))):
            self._cancel_job(job, self.admission.over_bytes(job.user), now_s)
            return
        self._start_queue_timeout(stage, range(held, held + given), now_s)
        self._ensure_probes(stage, now_s)

    # ---- probing -----------------------------------------------------------------------------

    def _ensure_probes(self, stage: StageState, now_s: float) -> None:
        """Top the stage's live reservations up to ceil(d · unplaced)."""
        if not stage.unplaced:
            return
        self._add_heir(stage)
        missing = reservations_wanted(stage.spec.probe_ratio, stage.unplaced) - stage.live
        if missing <= 0:
            return
        nodes = self.nodes.eligible(stage.spec.app, stage.spec.runtime)
        if stage.refused_by:
            nodes = [node for node in nodes if node not in stage.refused_by]
        if nodes:
            self._probe(stage, spread(nodes, missing, self._rng), now_s)
        elif stage.refused_by and stage.probe_at_s is None:
            self._back_off(stage, now_s)
        # Otherwise no node is there: `node_up` probes for all who wait.

    def _probe(self, stage: StageState, per_node: list[tuple[str, int]], now_s: float) -> None:
        job, spec = stage.job, stage.spec
        ticket = stage.own_ticket
        if ticket is None or ticket.id not in stage.tickets:
            ticket = stage.own_ticket = Ticket(self._next_ticket, stage)
            self._next_ticket += 1
            self._tickets[ticket.id] = stage.tickets[ticket.id] = ticket
        if stage.reserved_at_s is None:
            stage.reserved_at_s = now_s
        weight, priority = self.options.weight(job.user), self.options.priority(job.user)
        reserves: dict[int, m.Reserve] = {}
        nodes, live, to_node, ticket_id = self.nodes, ticket.live, self._to_node, ticket.id
        for node_id, count in per_node:
            reserve = reserves.get(count)
            if reserve is None:
                reserve = reserves[count] = m.Reserve(
                    ticket_id, job.id, job.epoch, job.user, weight, priority, spec.app, count,
                    spec.prefetch, spec.expected_duration_s, spec.demand,
                )  # fmt: skip
            live[node_id] = live.get(node_id, 0) + count
            nodes[node_id].tickets.add(ticket_id)
            stage.live += count
            self.counters.reservations += count
            to_node(node_id, reserve)
        self._note(now_s, job.id, "ticket %d reserved %s", ticket_id, per_node)

    def _probe_waiting(self, now_s: float) -> None:
        """A node has come: probe for the stages that have fewer reservations than they want."""
        for heirs in list(self._heirs.values()):
            for stage in list(heirs.values()):
                if stage.live < stage.unplaced and stage.probe_at_s is None:
                    self._ensure_probes(stage, now_s)

    def _probe_newcomer(self, node_id: str, now_s: float) -> None:
        """A node has come: of what waits elsewhere it gets the share it would have if it had been there."""
        for stage in [stage for heirs in self._heirs.values() for stage in heirs.values()]:
            nodes = self.nodes.eligible(stage.spec.app, stage.spec.runtime)
            if node_id not in nodes or any(node_id in ticket.live for ticket in stage.tickets.values()):
                continue
            wanted = reservations_wanted(stage.spec.probe_ratio, stage.unplaced)
            share, rest = divmod(wanted, len(nodes))
            share += self._rng.randrange(len(nodes)) < rest
            if share:
                self._probe(stage, [(node_id, share)], now_s)

    def _back_off(self, stage: StageState, now_s: float) -> None:
        """Every node refused: try them all again after a while."""
        stage.backoff_s = min(stage.backoff_s * 2 or PROBE_BACKOFF_S, PROBE_BACKOFF_MAX_S)
        stage.probe_at_s = now_s + stage.backoff_s * self._rng.uniform(0.5, 1.0)
        self._at(stage.probe_at_s, lambda at_s: self._probe_again(stage, at_s))

    def _probe_again(self, stage: StageState, now_s: float) -> None:
        stage.probe_at_s = None
        stage.refused_by.clear()
        self._ensure_probes(stage, now_s)

    def _refused(self, node: Node, message: m.ReservationsRefused, now_s: float) -> None:
        """A node's queue is full for this user: sample others, or back off."""
        ticket = self._tickets.get(message.ticket)
        if ticket is None:
            return
        self.counters.reservations_refused += message.count
        self._reservations_gone(ticket, node, message.count)
        stage = ticket.stage
        if node.id not in stage.refused_by:
            stage.refused_by.add(node.id)
            # Not for ever: a job may be long.
            self._at(now_s + PROBE_BACKOFF_MAX_S, lambda _: stage.refused_by.discard(node.id))
        self._note(now_s, stage.job.id, "node %s refused %d: %s", node.id, message.count, message.reason)
        self._ensure_probes(stage, now_s)

    def _reservations_gone(self, ticket: Ticket, node: Node, count: int) -> None:
        """Of the ticket's reservations at the node, `count` are queued no more."""
        if count < 1:
            raise LinkError(f"node {node.id} takes {count} reservations of ticket {ticket.id}")
        held = ticket.live.get(node.id, 0)
        gone = min(held, count)
        ticket.stage.live -= gone
        if held > gone:
            ticket.live[node.id] = held - gone
        elif held:
            del ticket.live[node.id]
            node.tickets.discard(ticket.id)

    def _drop_reservations(self, node: Node) -> dict[str, StageState]:
        """All reservations at the node are gone; returns the stages concerned by job id."""
        stages = {}
        for ticket_id in sorted(node.tickets):
            ticket = self._tickets[ticket_id]
            ticket.stage.live -= ticket.live.pop(node.id)
            stages[ticket.stage.job.id] = ticket.stage
        node.tickets.clear()
        return stages

    def _ensure_all(self, stages: dict[str, StageState], now_s: float) -> None:
        for stage in stages.values():
            if stage.job.id in self.jobs:
                self._ensure_probes(stage, now_s)

    # ---- late binding ------------------------------------------------------------------------

    def _get_tasks(self, node: Node, message: m.GetTasks, now_s: float) -> None:
        """A node has free slots: bind the stage's first unplaced tasks to it (§3.2)."""
        self.counters.asks += 1
        left = message.count
        ticket = self._tickets.get(message.ticket)
        if ticket is not None:
            self._reservations_gone(ticket, node, left)
            stage = ticket.stage
            if stage.unplaced:
                while left and stage.unplaced:
                    left -= 1
                    self._launch(stage, node, message.ask)
                self._note(now_s, stage.job.id, "node %s took %d", node.id, message.count - left)
                if not stage.unplaced:
                    self._all_placed(stage, now_s)
        if left > 0:
            self.counters.noops += left
            self._to_node(node.id, m.NoTask(message.ask, left))

    def _launch(self, stage: StageState, node: Node, ask: int) -> None:
        job, task = stage.job, stage.next_unplaced()
        attempt = Attempt(job.attempt_id(self._next_attempt), stage, task, node.id)
        self._next_attempt += 1
        self._attempts[attempt.id] = attempt
        stage.attempts[task] = attempt.id
        stage.states[task] = PLACED
        node.attempts.add(attempt.id)
        self.admission.placed(job.user)
        self.counters.launched += 1
        if job.id not in node.commons:
            node.commons.add(job.id)
            job.commons_at.add(node.id)
            self._to_node(node.id, m.Common(job.id, stage.spec.common))
        payload = stage.payloads[task]
        assert payload is not None, f"task {task} of {job.id} is settled"
        self._to_node(node.id, m.Launch(ask, job.id, task, attempt.id, payload))
        if job.report_placed:
            self._to_client(job.client, m.Placed(job.id, task))

    # ---- surplus reservations ----------------------------------------------------------------

    def _release_surplus(self, stage: StageState, now_s: float) -> None:
        """No task is left to place: pass the stage's reservations on, and cancel the rest (§8)."""
        heir = self._oldest_heir(stage) if self.options.probe_sharing and stage.live else None
        room = heir.unplaced * SHARED_PER_TASK_MAX - heir.live if heir else 0
        for ticket in stage.tickets.values():
            for node_id, count in list(ticket.live.items()):
                if heir and count <= room:
                    room -= count
                    heir.live += count
                    self.counters.reservations_shared += count
                    continue
                del ticket.live[node_id]
                self.nodes[node_id].tickets.discard(ticket.id)
                self.counters.reservations_cancelled += count
                self._to_node(node_id, m.CancelReservations(ticket.id))
            if heir and ticket.live:
                ticket.stage = heir
                heir.tickets[ticket.id] = ticket
                heir.reserved_at_s = heir.reserved_at_s or now_s
            else:
                del self._tickets[ticket.id]
        stage.tickets.clear()
        stage.own_ticket = None
        stage.live = 0

    def _add_heir(self, stage: StageState) -> None:
        heirs = self._heirs.setdefault(stage.share_key, {})
        if stage.job.id in heirs:
            return
        heirs[stage.job.id] = stage
        if stage.fresh:  # It was there before and comes back: oldest first must hold again.
            self._heirs[stage.share_key] = dict(
                sorted(heirs.items(), key=lambda item: (item[1].job.submitted_at_s, item[0]))
            )

    def _remove_heir(self, stage: StageState) -> None:
        heirs = self._heirs.get(stage.share_key)
        if heirs is not None:
            heirs.pop(stage.job.id, None)
            if not heirs:
                del self._heirs[stage.share_key]

    def _oldest_heir(self, stage: StageState) -> StageState | None:
        return next(iter(self._heirs.get(stage.share_key, {}).values()), None)

    # ---- outcomes ----------------------------------------------------------------------------

    def _take_attempt(self, node: Node, attempt_id: int) -> Attempt | None:
        """The attempt, if it runs at this node; otherwise it is unknown or settled, and counted so."""
        if attempt_id not in node.attempts:
            self.counters.stale_reports += 1
            return None
        node.attempts.discard(attempt_id)
        return self._attempts.pop(attempt_id)

    def _report(self, node: Node, message: m.Report, now_s: float) -> None:
        attempt = self._take_attempt(node, message.attempt)
        if attempt is None:
            return
        stage, task, status = attempt.stage, attempt.task, message.status
        if status is TaskStatus.LOST:
            self._attempt_lost(attempt, message.error, now_s)
            self._ensure_probes(stage, now_s)
            return
        starts = stage.starts.get(task, 0) + 1
        job = stage.job
        cancelled = attempt.cancelled or job.cancelled
        if status is TaskStatus.FAILED and job.retry_failed and starts < job.max_attempts and not cancelled:
            self._retry(attempt, message.error, now_s)
            self._ensure_probes(stage, now_s)
            return
        outcome = m.Outcome(
            job.id, task, status, message.result, message.error,
            starts if status is not TaskStatus.CANCELLED else starts - 1,
            node.id, stage.reserved_at_s, message.started_at_s, message.service_s, message.stdout, message.stderr,
        )  # fmt: skip
        del stage.attempts[task]
        self._settle(stage, task, outcome, now_s)

    def _attempt_lost(self, attempt: Attempt, reason: str, now_s: float) -> None:
        """Node or executor died before the outcome was known: again, if attempts remain (guarantee 3)."""
        self.counters.attempts_lost += 1
        stage, task = attempt.stage, attempt.task
        starts = stage.starts.get(task, 0) + 1
        if starts < stage.job.max_attempts:
            self._retry(attempt, reason, now_s)
            return
        del stage.attempts[task]
        noun = "time" if starts == 1 else "times"
        self._settle_unrun(stage, task, TaskStatus.LOST, f"started {starts} {noun}: {reason}", now_s, starts)

    def _retry(self, attempt: Attempt, reason: str, now_s: float) -> None:
        self.counters.retries += 1
        stage, task = attempt.stage, attempt.task
        stage.starts[task] = stage.starts.get(task, 0) + 1
        self._give_back(attempt, now_s)
        self._note(now_s, stage.job.id, "task %d is to start again: %s", task, reason)

    def _give_back(self, attempt: Attempt, now_s: float) -> None:
        """The task is unplaced again, unless it is not wanted any more."""
        stage = attempt.stage
        if attempt.cancelled or stage.job.cancelled:
            del stage.attempts[attempt.task]
            self._settle_unrun(stage, attempt.task, TaskStatus.CANCELLED, "it was cancelled", now_s)
            return
        self._start_queue_timeout(stage, [attempt.task], now_s)
        stage.give_back(attempt.task)
        self.admission.returned(stage.job.user)
        self._add_heir(stage)

    def _handed_back(self, node: Node, message: m.HandBack, now_s: float) -> None:
        """The task was not started there: it is unplaced again, and this was no start."""
        attempt = self._take_attempt(node, message.attempt)
        if attempt is None:
            return
        self.counters.handed_back += 1
        self._give_back(attempt, now_s)
        self._note(now_s, attempt.stage.job.id, "task %d handed back: %s", attempt.task, message.reason)
        self._ensure_probes(attempt.stage, now_s)

    def _settle_unrun(
        self, stage: StageState, task: int, status: TaskStatus, reason: str, now_s: float, attempts: int | None = None
    ) -> None:
        """Settle a task with no report of an executor."""
        starts = stage.starts.get(task, 0) if attempts is None else attempts
        outcome = m.Outcome(stage.job.id, task, status, b"", reason, starts, "", stage.reserved_at_s, None, None)
        self._settle(stage, task, outcome, now_s)

    def _settle(self, stage: StageState, task: int, outcome: m.Outcome, now_s: float) -> None:
        job = stage.job
        stage.states[task] = SETTLED
        payload = stage.payloads[task]
        if payload:
            self.admission.holds(job.user, -len(payload))
        stage.payloads[task] = None
        stage.settled += 1
        job.counts[outcome.status] += 1
        self.counters.settled[outcome.status] += 1
        self._to_client(job.client, outcome)
        if stage.settled == stage.spec.task_count:
            self._end_if_settled(job, now_s)

    def _end_if_settled(self, job: JobState, now_s: float) -> None:
        stage = job.stage
        if stage.settled < stage.spec.task_count:
            return
        self._note(now_s, job.id, "ended")
        self.counters.jobs_ended += 1
        del self.jobs[job.id]
        jobs = self._jobs_of.get(job.client)
        if jobs is not None:
            jobs.pop(job.id, None)
            if not jobs:
                del self._jobs_of[job.client]
        for node_id in sorted(job.commons_at):
            self.nodes[node_id].commons.discard(job.id)
            self._to_node(node_id, m.ForgetJob(job.id))
        self._to_client(job.client, m.JobEnded(job.id))

    # ---- cancellation ------------------------------------------------------------------------

    def _cancel_job_message(self, client: str, message: m.CancelJob, now_s: float) -> None:
        job = self._jobs_of.get(client, {}).get(message.job)
        if job is not None:
            self._cancel_job(job, "it was cancelled", now_s)

    def _cancel_job(self, job: JobState, reason: str, now_s: float) -> None:
        """Cancel the job's unplaced tasks now, and ask nodes for those they hold ahead of a slot."""
        if job.cancelled:
            return
        stage = job.stage
        job.cancelled = True
        stage.add_tasks([b""] * (stage.spec.task_count - len(stage.states)))
        for task, attempt_id in stage.attempts.items():
            self._to_node(self._attempts[attempt_id].node_id, m.CancelAttempt(job.id, attempt_id))
            assert stage.states[task] == PLACED
        self._settle_unplaced(stage, list(stage.unplaced_tasks()), TaskStatus.CANCELLED, reason, now_s)

    def _settle_unplaced(
        self, stage: StageState, tasks: list[int], status: TaskStatus, reason: str, now_s: float
    ) -> None:
        """Settle some of the stage's unplaced tasks."""
        stage.unplaced -= len(tasks)
        self.admission.withdrawn(stage.job.user, len(tasks))
        if not stage.unplaced:
            self._all_placed(stage, now_s)
        for task in tasks:
            self._settle_unrun(stage, task, status, reason, now_s)

    def _all_placed(self, stage: StageState, now_s: float) -> None:
        """No task is unplaced (any more, or for now if some have not arrived)."""
        self._remove_heir(stage)
        if stage.complete:
            self._release_surplus(stage, now_s)

    def _cancel_tasks(self, client: str, message: m.CancelTasks, now_s: float) -> None:
        job = self._jobs_of.get(client, {}).get(message.job)
        if job is None:
            return  # It ended: the outcomes are on their way.
        stage = job.stage
        if len(message.tasks) > m.TASKS_PER_MESSAGE_MAX:
            raise LinkError(f"job {job.id}: {len(message.tasks)} tasks in a message; at most {m.TASKS_PER_MESSAGE_MAX}")
        for task in message.tasks:
            if not 0 <= task < len(stage.states):
                raise LinkError(f"job {job.id}: there is no task {task}; it has {len(stage.states)}")
            if stage.states[task] == UNPLACED:
                self._settle_unplaced(stage, [task], TaskStatus.CANCELLED, "it was cancelled", now_s)
            elif stage.states[task] == PLACED:
                attempt = self._attempts[stage.attempts[task]]
                if not attempt.cancelled:  # Else the answer is on its way.
                    attempt.cancelled = True
                    self._to_node(attempt.node_id, m.CancelAttempt(job.id, attempt.id))

    def _attempt_runs(self, node: Node, message: m.AttemptRuns, now_s: float) -> None:
        attempt = self._attempts.get(message.attempt)
        if attempt is not None and attempt.node_id == node.id:
            job = attempt.stage.job
            attempt.cancelled = False
            self._to_client(job.client, m.NotCancelled(job.id, attempt.task))

    def _start_queue_timeout(self, stage: StageState, tasks: Iterable[int], now_s: float) -> None:
        """Tasks that became unplaced now end lost if they are not placed in `queue_timeout_s`."""
        if stage.job.queue_timeout_s is None:
            return
        place_by_s = now_s + stage.job.queue_timeout_s
        stage.place_by_s.update(dict.fromkeys(tasks, place_by_s))
        job = weakref.ref(stage.job)  # It may end long before.
        self._at(place_by_s, lambda at_s: self._queue_timeout(job(), tasks, at_s))

    def _queue_timeout(self, job: JobState | None, tasks: Iterable[int], now_s: float) -> None:
        if job is None or self.jobs.get(job.id) is not job:
            return
        stage = job.stage
        # One of them may have been placed, and be unplaced again with a later time.
        late = [task for task in tasks if stage.states[task] == UNPLACED and stage.place_by_s[task] <= now_s]
        if late:
            reason = f"no place was found within queue_timeout_s = {stage.job.queue_timeout_s:g} s"
            self._settle_unplaced(stage, late, TaskStatus.LOST, reason, now_s)

    # ---- nodes -------------------------------------------------------------------------------

    def _node_changed(self, node: Node, message: m.NodeChanged, now_s: float) -> None:
        check_node(message.node)
        node.info = message.node
        self.nodes.changed()
        self._probe_waiting(now_s)

    def _node_draining(self, node: Node, message: m.NodeDraining, now_s: float) -> None:
        """The node takes nothing more; what runs there goes on."""
        node.draining = True
        self.nodes.changed()
        self._note(now_s, "", "node %s drains: %s", node.id, message.reason)
        self._ensure_all(self._drop_reservations(node), now_s)

    # ---- helpers -----------------------------------------------------------------------------

    def _at(self, at_s: float, action: Callable[[float], None]) -> None:
        heapq.heappush(self._timers, (at_s, self._next_timer, action))
        self._next_timer += 1

    def _note(self, now_s: float, job_id: str, text: str, *values: object) -> None:
        """Remember an event; formatted only if it is remembered."""
        if self._keep_history:
            self._history.append((now_s, job_id, text % values))
            self._touched.add(job_id)

    # ---- invariants --------------------------------------------------------------------------

    def check_invariants(self) -> None:
        """Raise `InvariantViolated`, with the job's story, if something that must hold does not.

        Checks the jobs that had an event since the last call where history is kept, else all.
        """
        touched = self._touched if self._keep_history else self.jobs
        for job in [self.jobs[job_id] for job_id in touched if job_id in self.jobs]:
            problem = check_stage(job.stage, self.nodes, self._tickets, self._attempts)
            if problem:
                raise InvariantViolated(f"job {job.id}: {problem}", self.story(job.id))
        self._touched.clear()
        unplaced: dict[str, int] = {}
        for job in self.jobs.values():
            waiting = job.stage.unplaced + job.stage.spec.task_count - len(job.stage.states)
            if waiting:
                unplaced[job.user] = unplaced.get(job.user, 0) + waiting
        if unplaced != self.admission.unplaced:
            raise InvariantViolated(f"admission counts {self.admission.unplaced}, jobs hold {unplaced}", self.story(""))
        held_bytes: dict[str, int] = {}
        for job in self.jobs.values():
            size = sum(len(payload) for payload in job.stage.payloads if payload)
            if size:
                held_bytes[job.user] = held_bytes.get(job.user, 0) + size
        if held_bytes != self.admission.held_bytes:
            problem = f"admission counts {self.admission.held_bytes} bytes, jobs hold {held_bytes}"
            raise InvariantViolated(problem, self.story(""))
        if not self.jobs and (self._tickets or self._attempts or self._heirs):
            raise InvariantViolated(
                f"no jobs, but tickets {list(self._tickets)}, attempts {list(self._attempts)}, heirs {self._heirs}",
                self.story(""),
            )
