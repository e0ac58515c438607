"""The scheduler's pure core: every decision of the scheduler, and nothing else.

Events come in through the public methods, each with the time; effects go out through the
`Outbox`. No sockets, clocks, randomness or logging of its own: the daemon, the simulator and
the fault tests drive this same class.

How a job runs (Sparrow §3.1, §3.2): `_submit` makes a job of stages, `probing` queues ceil(d·m)
reservations for a stage that is open, `_get_tasks` binds tasks to nodes that ask, `_report` takes
their ends to `progress`, which settles them and opens the stages that waited for them. A job that
was at another scheduler before is first claimed at the nodes (`claims`).

What holds after each event (`check_invariants`): a stage with unplaced tasks that may run has at
least as many live reservations as unplaced tasks (with task-level constraints: one for each), or a
pending re-probe, or waits for nodes; a stage without unplaced tasks, all of whose tasks have
arrived, has no reservation; counts add up.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from scheduler.book.admission import RETRY_AFTER_UNKNOWN_S, Admission
from scheduler.book.claims import ARRIVING, SETTLING, Claims
from scheduler.book.footprint import known_bytes, tasks_bytes
from scheduler.book.invariants import check_job
from scheduler.book.jobs import ASKED, PLACED, RUNS, STOPPING, UNPLACED, Attempt, JobState, StageState
from scheduler.book.nodes import Node, Nodes
from scheduler.book.progress import Progress
from scheduler.book.telling import Telling
from scheduler.book.validation import check_blob, check_node, check_submission, check_tasks
from scheduler.direct.placement import DirectPlacement
from scheduler.options import SchedulerOptions
from scheduler.sampling.adaptive import AdaptiveRatio
from scheduler.sampling.idle import IdleNodes
from scheduler.sampling.probing import Probing
from sparrow_py.errors import InvalidRequest, InvariantViolated, LinkError, shown
from sparrow_py.job import CANCELLED, LOST, NAME_BYTES_MAX, TaskStatus
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    import random


VANISHED = "its client vanished"
FITTING_MAX = 1 << 30
ROUNDING = 1e-6
"""What is free is a sum of many fractions: so much of a task's demand may seem to be missing and is not."""


class Outbox(Protocol):
    """Where effects go. Messages to peers that are gone may be dropped."""

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Send to a node monitor."""

    def to_client(self, client: str, message: m.Message) -> None:
        """Send to a client."""


class Counters:
    """What the metrics show; all counts since the start."""

    __slots__ = (
        "adopted", "asks", "attempts_lost", "handed_back", "jobs_accepted", "jobs_ended", "jobs_fenced",
        "jobs_handed_over", "jobs_refused", "launched", "noops", "probes", "reservations", "reservations_cancelled",
        "reservations_idle", "reservations_refused", "reservations_shared", "retries", "settled", "stale_reports",
    )  # fmt: skip

    def __init__(self) -> None:
        for name in self.__slots__:
            setattr(self, name, 0)
        self.settled: dict[TaskStatus, int] = dict.fromkeys(TaskStatus, 0)

    adopted: int
    asks: int
    attempts_lost: int
    handed_back: int
    jobs_accepted: int
    jobs_ended: int
    jobs_fenced: int
    jobs_handed_over: int
    jobs_refused: int
    launched: int
    noops: int
    probes: int
    reservations: int
    reservations_cancelled: int
    reservations_idle: int
    reservations_refused: int
    reservations_shared: int
    retries: int
    stale_reports: int


class SchedulerCore:
    """See the module's docstring. Times are seconds, of any clock that never goes back.

    The parts of the core (`probing`, `progress`, `claims`) share its state; nobody else touches it.
    """

    def __init__(self, options: SchedulerOptions, rng: random.Random, outbox: Outbox, *, now_s: float = 0.0) -> None:
        self.options = options
        self.rng = rng
        self.counters = Counters()
        self.nodes = Nodes()
        self.jobs: dict[str, JobState] = {}
        self.draining = False
        self.alone_until_s = now_s
        """When the first node came of those that there are now, or the scheduler started."""
        self.admission = Admission(options.unplaced_tasks_max, options.held_bytes_max)
        self.adaptive = AdaptiveRatio(options.probe_ratio_max) if options.probe_ratio_max else None
        self.to_node = outbox.to_node
        self.to_client = outbox.to_client
        self.probing = Probing(self)
        self.progress = Progress(self)
        self.claims = Claims(self)
        self.telling = Telling(self)
        self.idle = IdleNodes(self)
        self.direct = None if options.placement == "sparrow" else DirectPlacement(self, options.placement)
        self.job_gone: Callable[[JobState, str, float], None] = _nobody_is_told
        """Told of each job that was accepted and is here no more: how it went, and when."""
        self._jobs_of: dict[str, dict[str, JobState]] = {}
        self._ended: list[JobState] = []
        """Jobs that have ended in the event that is handled now: once it is over nothing looks at them any more."""
        self._timers = Timers()
        self._next_attempt = 1
        self._history: deque[tuple[float, str, str]] = deque(maxlen=options.history_len_max)
        self._touched: set[str] = set()
        self._keep_history = options.history_len_max > 0
        self._reorders = options.order != "reserved"
        self._from_node: dict[type, Callable[[Node, Any, float], None]] = {
            m.GetTasks: self._get_tasks,
            m.Report: self._report,
            m.HandBack: self._handed_back,
            m.ReservationsRefused: self.probing.refused,
            m.AttemptRuns: self._attempt_runs,
            m.NodeChanged: self._node_changed,
            m.NodeState: self._node_state,
            m.Claimed: self.claims.claimed,
            m.StartedHere: lambda _, message, now_s: self.claims.started_here(message),
            m.Idle: self.idle.told,
            m.QueueLength: self._queue_length,
            m.Fenced: lambda _, message, now_s: self.claims.fenced(message, now_s),
        }
        self._from_client: dict[type, Callable[[JobState, Any, float], None]] = {
            m.AddTasks: self._add_tasks,
            m.CancelJob: self._cancel_job,
            m.CancelTasks: self._cancel_tasks,
            m.Known: self._known,
            m.CountKnown: self.telling.count_known,
            m.UsingKnown: self.telling.using_known,
            m.AskPlaced: self._ask_placed,
            m.BlobAt: self._blob_at,
        }

    # ---- events: peers -----------------------------------------------------------------------

    def node_up(self, node_id: str, info: m.NodeInfo, now_s: float) -> None:
        """A node monitor has connected; its id must not be connected already."""
        node = Node(node_id, info)
        if not len(self.nodes):
            self.alone_until_s = now_s
        self.nodes.add(node)
        self.note(now_s, "", "node %s up, %d slots", node_id, info.slots)
        self.claims.node_up(node, now_s)
        self.probing.node_came(node_id, now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """The link to a node monitor broke: its reservations and running tasks go elsewhere (guarantee 4)."""
        node = self.nodes.remove(node_id)
        self.idle.forget(node_id)
        self.note(now_s, "", "node %s down", node_id)
        for job_id in node.sent:
            self.jobs[job_id].sent_to.discard(node_id)
        stages = self.probing.drop_node(node)
        for attempt in sorted(node.attempts, key=lambda attempt: attempt.order):
            self.end(attempt)
            stages[attempt.stage] = None
            self.progress.lost(attempt, f"node {node_id} was lost", now_s)
        self.telling.node_down(node)
        self.claims.node_down(node, now_s)
        if self.direct is not None:
            self.direct.node_down(node_id, now_s)
        self._ensure_all(stages, now_s)
        self._let_go()

    def client_down(self, client: str, now_s: float, *, said_goodbye: bool = True) -> None:
        """A client's link broke. Its jobs go on, or what of them has not started is cancelled, as each job says:
        at once if the client said goodbye, after a grace time if it vanished and may yet move the job."""
        for job in list(self._jobs_of.pop(client, {}).values()):
            job.client = ""
            reason = "its client went away" if said_goodbye else VANISHED
            if job.on_client_lost == "finish" and job.received == job.task_count:
                self.progress.client_gone(job, now_s)
                gone: Callable[[JobState, float], None] = self.telling.nobody
            else:
                gone = partial(self._client_gone, reason=reason)
            if said_goodbye:
                gone(job, now_s)
            else:
                over_s = now_s + self.options.client_grace_s
                self.at_stage(over_s, job.stages[0], partial(_of_job, gone))
        self._let_go()

    def _client_gone(self, job: JobState, now_s: float, *, reason: str) -> None:
        self.cancel(job, reason, now_s)
        if job.claiming and job.received < job.task_count:  # What is still to come never will, and was not claimed.
            self.abandon(job, now_s)

    def receive_from_node(self, node_id: str, message: m.Message, now_s: float) -> None:
        """A message from a connected node monitor; `LinkError` if it may not be sent."""
        self._from_node[type(message)](self.nodes.by_id[node_id], message, now_s)
        if self._ended:
            self._let_go()

    def receive_from_client(self, client: str, user: str, message: Any, now_s: float) -> None:
        """A message from a client; `LinkError` if it may not be sent."""
        if isinstance(message, m.SubmitJob):
            self._submit(client, user, message, now_s)
        else:
            job = self.jobs.get(message.job)
            if job is not None and job.client == client:  # Else it was refused, or has ended, or is somebody else's.
                self._from_client[type(message)](job, message, now_s)
        self._let_go()

    # ---- events: time and operator -----------------------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        return self._timers.next_deadline_s()

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: do what was due."""
        self._timers.run_due(now_s)
        self._let_go()

    def drain(self, now_s: float) -> None:
        """Take no further jobs; those accepted go on."""
        self.draining = True
        self.note(now_s, "", "draining")

    def hand_over(self, now_s: float) -> list[tuple[str, m.Message]]:
        """The process is about to end: let go of all jobs, whose clients take them to other schedulers.

        Returns what to tell which client once the nodes have read all that was sent to them: else the next scheduler
        might claim a job at a node before that has seen our last tasks of it. Nothing more is started, and what is
        told is exact, so what waited here does not count as started there. (Earlier starts clients know already.)
        """
        self.draining = True
        last_words: list[tuple[str, m.Message]] = []
        for job in list(self.jobs.values()):
            unstarted = job.without_start()[: m.UNSTARTED_RANGES_MAX]
            last_words.append((job.client, m.HandedOver(job.id, tuple(unstarted))))
            self.note(now_s, job.id, "handed over")
            for node_id in job.sent_to:  # Nodes are not to forget it: the next scheduler claims it there.
                del self.nodes[node_id].sent[job.id]
            job.sent_to.clear()
            self._drop(job, now_s)
            self.counters.jobs_handed_over += 1
            self.job_gone(job, "was handed over to other schedulers", now_s)
        self._let_go()
        return last_words

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> bool:
        """Cancel what of the job has not started (operator's command), or all of it; False if there is no such job."""
        job = self.jobs.get(job_id)
        if job is None:
            return False
        self.cancel(job, "it was cancelled by the operator", now_s, running=running)
        self._let_go()
        return True

    def story(self, job_id: str) -> list[str]:
        """What is remembered of a job, for people who look for a bug; needs `history_len_max` > 0."""
        return [f"{at_s:.6f} {text}" for at_s, job, text in self._history if job in (job_id, "")]

    def live_reservations(self, node_id: str) -> int:
        """Reservations of this scheduler queued at the node."""
        return sum(self.probing.tickets[ticket].live[node_id] for ticket in self.nodes[node_id].tickets)

    def wait_for_nodes_s(self, job: JobState) -> float | None:
        """How long tasks that no connected node may run wait for one; None: for ever."""
        limit_s = self.options.wait_for_nodes_s if job.wait_for_nodes_s is None else job.wait_for_nodes_s
        return None if limit_s == math.inf else limit_s

    # ---- submission --------------------------------------------------------------------------

    def _submit(self, client: str, user: str, message: m.SubmitJob, now_s: float) -> None:
        try:
            check_submission(message, self.options.payload_bytes_max)
        except InvalidRequest as error:
            self._refuse(client, message.job, str(error), field=error.field)
            return
        before = self.jobs.get(message.job)
        if before is not None and not self._supersedes(client, user, message, before, now_s):
            return
        if self.draining:
            self._refuse(client, message.job, "the scheduler is shutting down", retry_after_s=1.0)
            return
        job = JobState(message, client, user, now_s)
        why_not = self._why_no_node(job)
        if why_not is not None:
            self._refuse(client, message.job, why_not[1], field=why_not[0])
            return
        refusal = self.admission.admit(user, job.task_count, now_s)
        if refusal:
            self._refuse(client, message.job, refusal.reason, retry_after_s=refusal.retry_after_s)
            return
        if not self.holds(job, job.counted_bytes()):
            reason = self.admission.over_bytes(user)
            never = job.held_bytes > self.options.held_bytes_max
            self.holds(job, -job.held_bytes)
            self.admission.withdrawn(user, job.task_count)
            self._refuse(client, message.job, reason, retry_after_s=None if never else RETRY_AFTER_UNKNOWN_S)
            return
        self.jobs[job.id] = job
        self._jobs_of.setdefault(client, {})[job.id] = job
        if message.avoid:
            self._avoid(job, message.avoid)
        if self._must_arrive_whole(job):
            job.claiming.add(ARRIVING)
        else:
            self._accept(job, now_s)
        if job.epoch:
            job.claiming.add(SETTLING)
        if not job.task_count and job.epoch:
            self.claims.start(job, now_s)
        for stage in [stage for stage in job.stages if not stage.spec.task_count and not stage.waits_for]:
            self.progress.stage_over(stage, now_s)

    def _accept(self, job: JobState, now_s: float) -> None:
        self.counters.jobs_accepted += 1
        self.claims.taken_over.pop(job.id, None)
        self.note(now_s, job.id, "accepted with epoch %d, %d tasks of user %s", job.epoch, job.task_count, job.user)
        self.to_client(job.client, m.JobAccepted(job.id))

    def _must_arrive_whole(self, job: JobState) -> bool:
        """Whether it is only known from its tasks that nodes could run them, and it will not wait for any."""
        hard = any(stage.locality is not None and stage.spec.delay_s is None for stage in job.stages)
        return hard and job.wait_for_nodes_s is None and not job.epoch and len(self.nodes) > 0

    def _arrived_whole(self, job: JobState, now_s: float) -> None:
        """Accept the job, or refuse it if none of the nodes that one of its tasks prefers could run that."""
        why_not = self._why_homeless(job)
        if why_not is None:
            self._accept(job, now_s)
            self.claims.arrived(job, now_s)
            return
        self._drop(job, now_s)
        self._refuse(job.client, job.id, why_not[1], field=why_not[0])

    def _why_homeless(self, job: JobState) -> tuple[str, str] | None:
        """(field, reason) of the first task that has to run on its preferred nodes, none of which could."""
        for stage in job.stages:
            if stage.spec.delay_s is not None:
                continue
            for task, detail in sorted(stage.details.items()):
                if detail.preferred and not self.nodes.could_run(stage.kind, detail.preferred):
                    where = f"stages[{stage.index}]." if len(job.stages) > 1 else ""
                    field, names = f"{where}tasks[{task}].preferred", ", ".join(detail.preferred[:5])
                    return field, f"{field}: none of {names} is a node that could run it, and there is no delay_s"
        return None

    def _supersedes(self, client: str, user: str, message: m.SubmitJob, before: JobState, now_s: float) -> bool:
        """Whether the job that is here already gives way to this submission. Submitting twice is one job."""
        if before.user == user and message.epoch > before.epoch:
            self.abandon(before, now_s)
            return True
        if before.client == client:
            if ARRIVING not in before.claiming:  # Else it is told once all tasks are here.
                self.to_client(client, m.JobAccepted(message.job))
        else:
            self._refuse(client, message.job, "another client has a job of this id", field="job_id")
        return False

    def _why_no_node(self, job: JobState) -> tuple[str, str] | None:
        """(field, reason) if nodes are connected and none will do for one of the job's stages, and it will not wait."""
        if job.wait_for_nodes_s is not None or job.epoch:
            return None
        for stage in job.stages:
            if stage.spec.task_count and (why_not := self.nodes.why_none_could(stage.kind)) is not None:
                return why_not
        return None

    def _avoid(self, job: JobState, others: Sequence[str]) -> None:
        """The job and these do not run on one node at a time (§8), as far as they are of one user and here."""
        for other_id in others:
            other = self.jobs.get(other_id)
            if other is None or other is job or other.user != job.user:
                continue  # It has ended, most likely: nothing is left to avoid.
            for one, another in ((job, other), (other, job)):
                one.avoids.add(another.id)
                if one.running_at is None:
                    one.running_at = {}
                    for attempt in one.attempts.values():
                        one.running_at[attempt.node_id] = one.running_at.get(attempt.node_id, 0) + 1

    def _refuse(
        self, client: str, job_id: str, reason: str, *, field: str = "", retry_after_s: float | None = None
    ) -> None:
        self.counters.jobs_refused += 1
        self.to_client(client, m.JobRefused(job_id[:NAME_BYTES_MAX], reason, field, retry_after_s))

    def _add_tasks(self, job: JobState, message: m.AddTasks, now_s: float) -> None:
        if job.cancelled and not job.claiming:
            return  # It was cancelled while its tasks were on their way.
        given = len(message.payloads)
        if message.first != job.received or job.received + given > job.task_count:
            raise LinkError(
                f"job {job.id}: tasks {message.first} to {message.first + given - 1} do not follow the "
                f"{job.received} of {job.task_count} tasks received: each task must be given once, in order"
            )
        if given > m.TASKS_PER_MESSAGE_MAX:
            raise LinkError(f"job {job.id}: {given} tasks in a message; at most {m.TASKS_PER_MESSAGE_MAX}")
        details = message.details or {}
        check_tasks(job, message, self.options.payload_bytes_max)
        job.received += given
        payloads = message.payloads
        size = sum(len(p) for p in payloads if isinstance(p, bytes))
        fixed = tasks_bytes(payloads, details)
        job.fixed_bytes += fixed
        if not self.holds(job, size + fixed):
            reason = self.admission.over_bytes(job.user)
            self.holds(job, -size)
            self.cancel(job, reason, now_s)
            if not job.claiming:
                return
            payloads, details = [b""] * given, {}  # They may run elsewhere, but not from here.
        taken = 0
        while taken < given:
            stage = job.stage_of(message.first + taken)
            count = min(given - taken, stage.first + stage.spec.task_count - message.first - taken)
            self._add_to_stage(stage, message.first + taken, payloads[taken : taken + count], details, now_s)
            taken += count
        if job.received < job.task_count or self.jobs.get(job.id) is not job:
            return
        if job.epoch:
            self.claims.start(job, now_s)
        elif ARRIVING in job.claiming:
            self._arrived_whole(job, now_s)

    def _add_to_stage(
        self, stage: StageState, first: int, payloads: list[m.Data], details: dict[int, m.TaskDetail], now_s: float
    ) -> None:
        """Tasks of one stage have arrived, the first of which is `first` by the job's count."""
        job = stage.job
        if stage.complete:  # It was doomed while its tasks were on their way.
            self.holds(job, -sum(len(p) for p in payloads if isinstance(p, bytes)))
            return
        begin = first - stage.first
        own = {
            task - stage.first: detail
            for task, detail in details.items()
            if begin <= task - stage.first < begin + len(payloads)
        }
        stage.add_tasks(payloads, own)
        if job.known:
            self.claims.settle_known(stage, begin, len(payloads), now_s)
        if stage.open:
            self.became_unplaced(stage, range(begin, begin + len(payloads)), now_s)
            self.probing.ensure(stage, now_s)

    def became_unplaced(self, stage: StageState, tasks: Sequence[int], now_s: float) -> None:
        """Tasks wait for a place from now on: their time-outs begin."""
        timeout_s, delay_s = stage.job.queue_timeout_s, stage.spec.delay_s
        if timeout_s is not None:
            place_by_s = now_s + timeout_s
            stage.place_by_s.update(dict.fromkeys(tasks, place_by_s))
            self.at_stage(place_by_s, stage, lambda one, at_s: self._queue_timeout(one, tasks, at_s))
        if delay_s is not None and stage.locality is not None:
            self.at_stage(now_s + delay_s, stage, lambda one, at_s: self._relax(one, tasks, at_s))

    def _queue_timeout(self, stage: StageState, tasks: Iterable[int], now_s: float) -> None:
        # One of them may have been placed, and be unplaced again with a later time.
        late = [task for task in tasks if stage.states[task] == UNPLACED and stage.place_by_s[task] <= now_s]
        if late:
            reason = f"no place was found within queue_timeout_s = {stage.job.queue_timeout_s:g} s"
            self.progress.settle_unplaced(stage, late, LOST, reason, now_s)

    def _relax(self, stage: StageState, tasks: Iterable[int], now_s: float) -> None:
        """Their preferred nodes had their time (§8, delay scheduling): from now on other nodes will do."""
        locality = stage.locality
        assert locality is not None
        for task in tasks:
            if stage.states[task] == UNPLACED and task in locality.preferred:
                locality.relax(task)
        self.probing.ensure(stage, now_s)

    def _known(self, job: JobState, message: m.Known, now_s: float) -> None:
        tasks = [*(outcome.task for outcome in message.outcomes), *message.starts]
        if not job.epoch or any(not job.received <= task < job.task_count for task in tasks):
            raise LinkError(f"job {job.id}: outcomes are only taken of tasks that are to follow, with an epoch above 0")
        given = {outcome.task for outcome in message.outcomes}
        if len(given) < len(message.outcomes) or not given.isdisjoint(job.known):
            raise LinkError(f"job {job.id}: the outcome of a task was given twice")
        size = sum(map(known_bytes, message.outcomes))
        if not self.holds(job, size):
            self.holds(job, -size)
            self.cancel(job, self.admission.over_bytes(job.user), now_s)
            for index, outcome in enumerate(message.outcomes):
                message.outcomes[index] = m.KnownOutcome(outcome.task, outcome.status, b"")  # Nothing needs them now.
        self.claims.known(job, message)

    def _blob_at(self, job: JobState, message: m.BlobAt, now_s: float) -> None:
        check_blob(message.blob)
        self.progress.blob_at(job, message.blob, now_s)

    # ---- late binding ------------------------------------------------------------------------

    def _get_tasks(self, node: Node, message: m.GetTasks, now_s: float) -> None:
        """A node has free slots: bind the stage's first unplaced tasks to it (§3.2)."""
        self.counters.asks += 1
        left = message.count
        ticket = self.probing.tickets.get(message.ticket)
        if ticket is not None and ticket.id not in node.dropped:
            stage = ticket.stage
            known = self.probing.spend(ticket, node, left)
            if stage.locality is not None:  # Each of its reservations is one task's: one too many would be another's.
                left -= known - self._serve_local(stage, node, message, known, now_s)
            elif stage.share_key is not None and self._reorders:
                left = self._serve_in_order(stage, node, message, now_s)
            elif stage.unplaced:
                left = self._serve(stage, node, message, left, now_s)
        if left > 0:
            self.counters.noops += left
            self.to_node(node.id, m.NoTask(message.ask, left))

    def _serve_local(self, stage: StageState, node: Node, message: m.GetTasks, count: int, now_s: float) -> int:
        """As `_serve`, for a stage with task-level constraints."""
        if count and stage.unplaced:
            return self._serve(stage, node, message, count, now_s)
        assert stage.locality is not None
        stage.locality.waste(node.id, count)
        return count

    def _serve_in_order(self, reserved: StageState, node: Node, message: m.GetTasks, now_s: float) -> int:
        """As `_serve`, with the user's stages of the kind in order: whose reservation it is does not matter to the
        node (see `order`)."""
        left = message.count
        while left:
            stage = self.probing.first_heir(reserved)
            if stage is None or stage.job.avoids:
                break
            before, left = left, self._serve(stage, node, message, left, now_s)
            if left == before:
                break
        if left and reserved.unplaced:  # The first may have to keep away from the node, which this one need not.
            left = self._serve(reserved, node, message, left, now_s)
        if reserved.live < reserved.unplaced:  # It lent its reservation, and gets it back as the others' surplus.
            self.probing.ensure(reserved, now_s)
        return left

    def _serve(self, stage: StageState, node: Node, message: m.GetTasks, count: int, now_s: float) -> int:
        """Answer `count` of the ask's slots with tasks of the stage; returns for how many of them there is none."""
        declined, job = 0, stage.job
        if job.avoids and self.probing.avoided_at(stage, node.id):
            declined = count
        elif message.free is not None and stage.kind.demand:
            declined = max(0, message.count - _fitting(stage.kind.demand, message.free))  # Of the whole ask.
        if job.using is not None and not self.telling.may_use(job, node):
            declined = count
            stage.unknown_at[node.id] = stage.unknown_at.get(node.id, 0) + count
        left = count
        while left > declined and stage.unplaced:
            task = stage.take(node.id)
            if task is None:
                break
            left -= 1
            self.launch(stage, task, node, message.ask)
        launched = count - left
        if launched:
            self.placed(stage, launched, now_s)
        if stage.locality is not None:  # What is left of the ask has used up reservations, too.
            stage.locality.waste(node.id, left)
        if self._keep_history:
            self.note(now_s, stage.job.id, "node %s took %d", node.id, launched)
        if not stage.unplaced:
            self.probing.none_unplaced(stage, now_s)
        elif left:
            if declined:
                self.probing.shun(stage, node, now_s)
            self.probing.ensure(stage, now_s)
        return left

    def placed(self, stage: StageState, launched: int, now_s: float) -> None:
        """So many of the stage's tasks have come to a node."""
        stage.backoff_s = 0.0
        self.admission.placed(stage.job.user, launched)
        self.counters.launched += launched
        if self.probing.by_work:
            self.probing.served(stage, launched)
        if self.adaptive is not None and stage.reserved_at_s is not None:
            self.adaptive.waited(now_s - stage.reserved_at_s, launched)

    def launch(self, stage: StageState, task: int, node: Node, ask: int, ticket: int = 0) -> None:
        """Send the task to the node: as the answer to its ask, or (ask 0) for a reservation of this ticket there."""
        job = stage.job
        attempt = Attempt(job.attempt_id(self._next_attempt), stage, task, node.id)
        self._next_attempt += 1
        stage.states[task] = PLACED
        self.begin(attempt, node)
        number = stage.first + task
        sent = node.sent.get(job.id)
        if sent is None:
            sent = node.sent[job.id] = set()
            job.sent_to.add(node.id)
        if -1 - stage.index not in sent:
            sent.add(-1 - stage.index)
            once, timeout_s = job.using is not None, stage.spec.task_timeout_s
            self.to_node(node.id, m.Common(job.id, stage.index, stage.common, timeout_s, job.instance, once))
        detail = stage.details.get(task) if stage.details else None
        inputs = detail.inputs if detail is not None else ()
        for first, count in inputs:
            for source in range(first, first + count):
                if source not in sent:
                    sent.add(source)
                    self.to_node(node.id, m.Input(job.id, source, job.results[source]))
        payload = stage.payloads[task]
        assert payload is not None, f"task {number} of {job.id} is settled"
        self.to_node(node.id, m.Launch(ask, job.id, stage.index, number, attempt.id, payload, inputs, ticket))
        if job.report_placed:
            self.to_client(job.client, m.Placed(job.id, number))

    def begin(self, attempt: Attempt, node: Node) -> None:
        """The attempt is at the node."""
        stage = attempt.stage
        job = stage.job
        job.attempts[attempt.id] = attempt
        stage.attempts[attempt.task] = attempt.id
        node.attempts.add(attempt)
        if job.running_at is not None:
            job.running_at[node.id] = job.running_at.get(node.id, 0) + 1

    def end(self, attempt: Attempt) -> None:
        """The attempt is at its node no more."""
        job = attempt.stage.job
        del job.attempts[attempt.id]
        node = self.nodes.get(attempt.node_id)
        if node is not None:
            node.attempts.discard(attempt)
        if job.running_at is not None:
            job.running_at[attempt.node_id] -= 1

    # ---- reports -----------------------------------------------------------------------------

    def _take_attempt(self, node: Node, job_id: str, attempt_id: int) -> Attempt | None:
        """The attempt, if it runs at this node."""
        job = self.jobs.get(job_id)
        attempt = job.attempts.get(attempt_id) if job is not None else None
        if attempt is None or attempt.node_id != node.id:
            return None
        self.end(attempt)
        return attempt

    def _report(self, node: Node, message: m.Report, now_s: float) -> None:
        attempt = self._take_attempt(node, message.job, message.attempt)
        if attempt is None:
            job = self.jobs.get(message.job)
            if job is None or not job.epoch or not self.claims.report(job, node, message, now_s):
                self.counters.stale_reports += 1
            return
        stage = attempt.stage
        unplaced = stage.unplaced
        if self.adaptive is not None and message.service_s is not None and message.service_s >= 0:
            self.adaptive.ran(message.service_s)
        if message.status is LOST:
            self.progress.lost(attempt, message.error, now_s)
        else:
            self.progress.ended(attempt, node, message, now_s)
        if stage.unplaced > unplaced:  # It is to start again.
            self.probing.ensure(stage, now_s)

    def _handed_back(self, node: Node, message: m.HandBack, now_s: float) -> None:
        """The task was not started there: it is unplaced again, and this was no start."""
        attempt = self._take_attempt(node, message.job, message.attempt)
        if attempt is None:
            self.counters.stale_reports += 1
            return
        self.counters.handed_back += 1
        reason = m.cut_reason(message.reason)
        if self.direct is not None:
            self.probing.shun(attempt.stage, node, now_s)
        self.note(now_s, message.job, "task %d handed back: %s", attempt.stage.first + attempt.task, reason)
        if message.missing and not (attempt.cancelled or attempt.stage.job.cancelled):
            self.progress.inputs_missing(attempt, message.missing, reason, now_s)
        else:
            self.progress.give_back(attempt, now_s)
        self._ensure_all({attempt.stage: None}, now_s)

    def _attempt_runs(self, node: Node, message: m.AttemptRuns, now_s: float) -> None:
        job = self.jobs.get(message.job)
        attempt = job.attempts.get(message.attempt) if job is not None else None
        # Else it ended, or is being stopped: the client is told its outcome.
        if attempt is not None and attempt.node_id == node.id and attempt.cancelling == ASKED:
            attempt.cancelling = RUNS
            self._not_cancelled(attempt)

    def _ensure_all(self, stages: dict[StageState, None], now_s: float) -> None:
        for stage in stages:
            if self.jobs.get(stage.job.id) is stage.job:
                self.probing.ensure(stage, now_s)

    # ---- jobs end ----------------------------------------------------------------------------

    def job_over(self, job: JobState, now_s: float) -> None:
        """Every task has its outcome."""
        if self.jobs.get(job.id) is not job:
            return
        self.note(now_s, job.id, "ended")
        self.counters.jobs_ended += 1
        self._remove(job)
        self.to_client(job.client, m.JobEnded(job.id))
        self.job_gone(job, "ended", now_s)

    def abandon(self, job: JobState, now_s: float) -> None:
        """The job is another scheduler's, or comes again with a higher epoch: drop it without a word."""
        self.note(now_s, job.id, "abandoned at epoch %d", job.epoch)
        self.counters.jobs_fenced += 1
        self._drop(job, now_s)
        self.job_gone(job, "was taken over by another scheduler", now_s)

    def _drop(self, job: JobState, now_s: float) -> None:
        for stage in job.stages:
            self.probing.abandon(stage, now_s)
        for attempt in list(job.attempts.values()):
            self.end(attempt)
        self.admission.withdrawn(job.user, job.unplaced)
        self._remove(job)

    def _remove(self, job: JobState) -> None:
        del self.jobs[job.id]
        jobs = self._jobs_of.get(job.client)
        if jobs is not None:
            jobs.pop(job.id, None)
            if not jobs:
                del self._jobs_of[job.client]
        self.holds(job, -job.held_bytes)
        for other_id in job.avoids:
            self.jobs[other_id].avoids.discard(job.id)
        for node_id in sorted(job.sent_to):
            del self.nodes[node_id].sent[job.id]
            self.to_node(node_id, m.ForgetJob(job.id))
        self._ended.append(job)

    def _let_go(self) -> None:
        """An event is over: what it ended goes."""
        for job in self._ended:
            job.dissolve()
        self._ended.clear()

    def holds(self, job: JobState, change: int) -> bool:
        """The job makes this scheduler hold so many bytes more (or less); False if that is too many for its user."""
        job.held_bytes += change
        return self.admission.holds(job.user, change)

    # ---- cancellation ------------------------------------------------------------------------

    def _cancel_job(self, job: JobState, message: m.CancelJob, now_s: float) -> None:
        self.cancel(job, "it was cancelled", now_s, running=message.running)

    def cancel(self, job: JobState, reason: str, now_s: float, *, running: bool = False) -> None:
        """Cancel the job's tasks that are not placed now, and ask nodes for the others: for those that they hold
        ahead of a slot, or with `running` for all."""
        if job.cancelled and (job.cancel_running or not running):
            return
        if ARRIVING in job.claiming:  # Its client may send no more of it.
            job.claiming.discard(ARRIVING)
            self._accept(job, now_s)
        job.cancelled = True
        job.cancel_running = job.cancel_running or running
        job.cancel_reason = job.cancel_reason or reason
        for attempt in job.attempts.values():
            self.cancel_attempt(attempt, running=running)
        # While it is claimed, some of it may run or have ended: wait for what the nodes say.
        for stage in job.stages if not job.claiming else ():
            if self.jobs.get(job.id) is job:
                self.progress.settle_rest(stage, reason, now_s)

    def _cancel_tasks(self, job: JobState, message: m.CancelTasks, now_s: float) -> None:
        if len(message.tasks) > m.TASKS_PER_MESSAGE_MAX:
            raise LinkError(f"job {job.id}: {len(message.tasks)} tasks in a message; at most {m.TASKS_PER_MESSAGE_MAX}")
        tasks = dict.fromkeys(message.tasks)
        for number in tasks:
            # Tasks that were on their way when the job was cancelled or doomed count as received.
            here = 0 <= number < job.task_count and len((stage := job.stage_of(number)).states) > number - stage.first
            if not here:
                raise LinkError(f"job {job.id}: there is no task {number}; it has {job.received}")
        self.cancel_tasks(job, tasks, now_s, running=message.running)

    def cancel_tasks(self, job: JobState, tasks: Iterable[int], now_s: float, *, running: bool) -> None:
        """As `cancel`, for some of the job's tasks."""
        for number in tasks:
            if job.claiming:  # It may run or have ended: wait for what the nodes say.
                job.cancel_later[number] = job.cancel_later.get(number, False) or running
                continue
            stage = job.stage_of(number)
            task = number - stage.first
            if task in stage.rerun:
                continue  # Its outcome is known; it runs again for others.
            if stage.states[task] == UNPLACED:
                self.progress.settle_unplaced(stage, [task], CANCELLED, "it was cancelled", now_s)
            elif task in stage.blocked:
                self.progress.settle_blocked(stage, [task], CANCELLED, "it was cancelled", now_s)
            elif task in stage.untold:
                self.progress.settle_untold(stage, [task], CANCELLED, "it was cancelled", now_s)
            elif stage.states[task] == PLACED:
                self.cancel_attempt(job.attempts[stage.attempts[task]], running=running)

    def cancel_attempt(self, attempt: Attempt, *, running: bool) -> None:
        """Ask the attempt's node to cancel it; but never the same twice, however often clients ask."""
        wanted = STOPPING if running else ASKED
        if attempt.cancelling < wanted:
            attempt.cancelling = wanted
            self.to_node(attempt.node_id, m.CancelAttempt(attempt.stage.job.id, attempt.id, running))
        elif attempt.cancelling == RUNS:
            self._not_cancelled(attempt)
        # Else the answer is on its way.

    def _not_cancelled(self, attempt: Attempt) -> None:
        stage = attempt.stage
        self.to_client(stage.job.client, m.NotCancelled(stage.job.id, stage.first + attempt.task))

    def _ask_placed(self, job: JobState, message: m.AskPlaced, now_s: float) -> None:
        if len(message.tasks) > m.NUMBERS_PER_MESSAGE_MAX:
            asked = f"{len(message.tasks)} tasks in a message; at most {m.NUMBERS_PER_MESSAGE_MAX}"
            raise LinkError(f"job {job.id}: {asked}")
        placed = [number for number in message.tasks if self._is_placed(job, number)]
        self.to_client(job.client, m.PlacedNow(job.id, message.number, placed))

    @staticmethod
    def _is_placed(job: JobState, number: int) -> bool:
        if not 0 <= number < job.task_count:
            raise LinkError(f"job {job.id}: there is no task {number}; it has {job.task_count}")
        stage = job.stage_of(number)
        task = number - stage.first
        return task < len(stage.states) and stage.states[task] == PLACED  # Else it has not even arrived.

    # ---- nodes -------------------------------------------------------------------------------

    def _node_changed(self, node: Node, message: m.NodeChanged, now_s: float) -> None:
        check_node(message.node)
        node.learn(message.node)
        self.nodes.changed()
        self.probing.node_came(node.id, now_s)

    def _node_state(self, node: Node, message: m.NodeState, now_s: float) -> None:
        """A cordoned node gets no further reservations; a draining one has dropped those it had. What runs goes on."""
        if message.state not in (m.READY, m.CORDONED, m.DRAINING):
            raise LinkError(f"node {node.id} says it is {shown(message.state)}")
        node.state = message.state
        self.nodes.changed()
        self.idle.forget(node.id)
        self.note(now_s, "", "node %s is %s: %s", node.id, message.state, m.cut_reason(message.reason))
        if message.state == m.DRAINING:
            self.to_node(node.id, m.DrainingKnown())
            self._ensure_all(self.probing.drained(node), now_s)
        elif message.state == m.READY:
            self.probing.node_came(node.id, now_s)

    def _queue_length(self, node: Node, message: m.QueueLength, now_s: float) -> None:
        if self.direct is not None:
            self.direct.answered(node, message, now_s)

    # ---- helpers -----------------------------------------------------------------------------

    def at(self, at_s: float, action: Callable[[float], None]) -> None:
        """Call `action` with the time once it is `at_s`."""
        self._timers.at(at_s, action)

    def at_stage(self, at_s: float, stage: StageState, action: Callable[[StageState, float], None]) -> None:
        """Call `action` with the stage and the time, if its job is still here then; meanwhile nothing keeps it."""
        job, index = weakref.ref(stage.job), stage.index

        def here() -> JobState | None:
            found = job()
            return found if found is not None and self.jobs.get(found.id) is found else None

        def act(now_s: float) -> None:
            found = here()
            if found is not None:
                action(found.stages[index], now_s)

        self._timers.at(at_s, act, lambda: here() is not None)

    def note(self, now_s: float, job_id: str, text: str, *values: object) -> None:
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
            problem = check_job(job, self)
            if problem:
                raise InvariantViolated(f"job {job.id}: {problem}", self.story(job.id))
        self._touched.clear()
        unplaced: dict[str, int] = {}
        held_bytes: dict[str, int] = {}
        for job in self.jobs.values():
            for counts, count in ((unplaced, job.unplaced), (held_bytes, job.held_bytes)):
                if count:
                    counts[job.user] = counts.get(job.user, 0) + count
        for name, counted, held in (
            ("tasks", self.admission.unplaced, unplaced),
            ("bytes", self.admission.held_bytes, held_bytes),
        ):
            if counted != held:
                raise InvariantViolated(f"admission counts {counted} {name}, jobs hold {held}", self.story(""))
        probing = self.probing
        if probing.by_work is not None and any(
            len(heirs) != len(probing.by_work[key]) for key, heirs in probing.heirs.items()
        ):
            raise InvariantViolated("stages that wait and stages in order of work differ", self.story(""))
        if not self.jobs and (probing.tickets or probing.heirs or probing.by_work or probing.local):
            left = f"tickets {list(probing.tickets)}, heirs {probing.heirs}, {list(probing.local)}"
            raise InvariantViolated(f"no jobs, but {left}", self.story(""))


def _nobody_is_told(job: JobState, how: str, now_s: float) -> None:
    """Of jobs that are gone."""


def _of_job(action: Callable[[JobState, float], None], stage: StageState, now_s: float) -> None:
    action(stage.job, now_s)


def _fitting(demand: Iterable[tuple[str, float]], free: dict[str, float]) -> int:
    """How many tasks of this demand fit what is free."""
    shares = (free.get(name, 0.0) / amount + ROUNDING for name, amount in demand if amount > 0)
    # A node may say anything: what is not a number fits nothing.
    return min((int(min(share, FITTING_MAX)) if share >= 0 else 0 for share in shares), default=FITTING_MAX)
