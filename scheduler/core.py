"""The scheduler's pure core: takes events, has the book and the plane handle them, and lets go of what ended.

Events come in through the public methods, each with the time; effects go out through the `Outbox`. No sockets, clocks,
randomness or logging of its own: the daemon, the simulator and the fault tests drive this same class.

How a job runs: `book.submission` makes a job of stages; the plane finds nodes for the tasks of a stage that is open (by
reservations, for which nodes ask, §3.1 and §3.2, if it is `sampling`); `book.attempts` sends a task to a node,
`book.endings` takes its end, `book.outcomes` settles it and `book.stages` opens the stages that waited for it. A job
that was at another scheduler before is first claimed at the nodes (`book.claims`).

After each event the book's counts add up, and the plane finds nothing wrong with any stage (`check_invariants`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, get_args

from scheduler.book.book import Book
from scheduler.book.invariants import check_admission, check_job
from scheduler.book.ledger import Messenger
from scheduler.book.nodes import Node
from scheduler.book.validation import check_load, check_node, check_occupied
from scheduler.leading import Leading
from scheduler.plane import BookForPlane, Problem
from scheduler.planes import plane_of
from sparrow_py.errors import AccessDenied, InvariantViolated, LinkError, shown
from sparrow_py.job import NAME_BYTES_MAX
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    import random

    from scheduler.altruistic.stage_history import StageHistory
    from scheduler.book.jobs import JobState
    from scheduler.options import SchedulerOptions


NO_NESTING = (
    "tasks have no clients of their own here, as the scheduler reckons by itself which slots are free, and one that a "
    "task gives back while it waits would stay empty"
)


class Outbox(Messenger, Protocol):
    """Where effects go: messages, and what is to be computed."""

    def solve(self, number: int, problem: Problem) -> None:
        """Compute it off the loop; then call `SchedulerCore.solved` with its number and answer."""


class SchedulerCore:
    """See the module's docstring. Times are seconds, of any clock that never goes back."""

    def __init__(
        self,
        options: SchedulerOptions,
        rng: random.Random,
        outbox: Outbox,
        *,
        now_s: float = 0.0,
        name: str = "scheduler",
        history: StageHistory | None = None,
    ) -> None:
        """name: by which its links are welcomed, unlike any other process's. history: of stages, for policy altruistic;
        else it remembers what it sees itself."""
        self.options = options
        self.book = book = Book(options, rng, outbox, now_s)
        self.jobs = book.ledger.jobs
        self.nodes = book.ledger.nodes
        self.counters = book.ledger.counters
        self.admission = book.ledger.admission
        self.register = book.register
        self._outbox = outbox
        self._problems = itertools.count(1)
        self.lead_told: Callable[[bool], None] = _nobody_is_told
        """Called with whether it leads its plane, when that has changed: clients are to be told."""
        self.warned: Callable[[str], None] = _nobody_is_warned
        """Called with a line for the log."""
        self.plane = plane = plane_of(options, history)(_for_plane(book, rng, self._solve, self._leads, self._warn))
        book.ledger.placing = plane
        self.leading = self._make_leading(name) if plane.has_leader else None
        """None on planes that have no leader."""
        self._overfull = book.deliveries.overfull
        self._left = book.register.left
        self._let_go = book.register.let_go
        self._timers = book.ledger.timers
        self._note = book.ledger.note
        self._history = book.ledger.history
        self._from_node: dict[type, Callable[[Node, Any, float], None]] = {
            **dict.fromkeys(get_args(m.FromNode), _does_not_matter),
            m.GetTasks: self._has_no_tasks,
            **plane.messages,
            m.Report: book.endings.reported,
            m.HandBack: book.endings.handed_back,
            m.AttemptRuns: book.attempts.runs,
            m.Preempted: book.endings.preempted,
            m.NodeLoad: self._node_load,
            m.Occupied: self._occupied,
            m.NodeChanged: self._node_changed,
            m.NodeState: self._node_state,
            m.Claimed: book.claims.claimed,
            m.StartedHere: book.claims.started_here,
            m.Fenced: lambda _, message, now_s: book.register.fenced(message, now_s),
            **({} if self.leading is None else {m.Leading: self._who_leads, m.Inventory: self._inventory}),
        }
        self._from_client: dict[type, Callable[[JobState, Any, float], None]] = {
            m.AddTasks: book.submission.add_tasks,
            m.CancelJob: book.cancellation.job_cancelled,
            m.CancelTasks: book.cancellation.tasks_cancelled,
            m.Known: book.submission.known,
            m.CountKnown: book.restarts.starts_known,
            m.UsingKnown: book.notice.nodes_known,
            m.AskPlaced: book.attempts.placed_now,
            m.FinishedElsewhere: book.overtaking.finished_elsewhere,
            m.BlobAt: book.lost_inputs.uploaded_again,
            m.GiveResults: book.awaited_results.given,
        }
        self._of_detached: dict[type, Callable[[str, str, Any, float], None]] = {
            m.GiveBack: book.detachment.given_back,
            m.Detach: book.detachment.detach,
            m.Attach: book.detachment.attach,
        }

    # ---- events: peers -----------------------------------------------------------------------

    def node_up(self, node_id: str, info: m.NodeInfo, now_s: float, version: int = m.PROTOCOL_VERSION) -> None:
        """A node monitor has connected, whose link speaks this version; its id must not be connected already."""
        node = Node(node_id, info, version)
        self.nodes.add(node)
        self._note(now_s, "", "node %s up, %d slots", node_id, info.slots)
        self.book.claims.node_up(node, now_s)
        if self.leading is not None and version >= m.SINCE[m.Lead]:
            self.leading.node_up(node_id, now_s)
        self.plane.node_up(node, now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """The link to a node monitor broke: its reservations and running tasks go elsewhere (guarantee 4)."""
        book, plane = self.book, self.plane
        node = self.nodes.remove(node_id)
        self._note(now_s, "", "node %s down", node_id)
        for job_id in node.sent:
            self.jobs[job_id].sent_to.discard(node_id)
        stages = dict.fromkeys(plane.node_lost(node))
        stages.update(dict.fromkeys(book.endings.node_lost(node, now_s)))
        book.notice.node_down(node)
        book.claims.node_down(node, now_s)
        plane.node_down(node, now_s)
        for stage in stages:
            if book.ledger.is_here(stage.job):
                plane.tasks_unplaced(stage, now_s)
        if self.leading is not None:
            self.leading.node_down(node_id, now_s)
        self._let_go()

    def client_up(self, client: str, user: str, *, depth: int = 0) -> None:
        """A client has connected, which says what it has received (`Received`). depth: of its jobs, if it is within a
        task (`depth_in_task`)."""
        if depth:
            self.register.nested[client] = depth
        self.book.deliveries.client_up(client, user, is_in_task=depth > 0)

    def depth_in_task(self, node_id: str, job_id: str, attempt: int) -> tuple[str, int]:
        """The user of the attempt, which is at this node, and how deep jobs are that its task submits. `LinkError` if
        it is not, `AccessDenied` if tasks of this plane have no clients."""
        if self.plane.counts_slots:
            raise AccessDenied(f"{NO_NESTING} (plane {self._way})")
        job = self.jobs.get(job_id)
        found = None if job is None else job.attempts.get(attempt)
        if job is None or found is None or found.node_id != node_id:
            job_name = job_id[:NAME_BYTES_MAX]
            raise LinkError(f"attempt {attempt} of job {job_name} is not at node {node_id}, as far as is known here")
        return job.user, job.depth + 1

    @property
    def _way(self) -> str:
        placement = self.options.placement
        return f"{self.plane.name}, placement {placement}" if self.plane.name == m.SPARROW else self.plane.name

    def tell_client(self, client: str, message: m.Message) -> None:
        """Send the client a message, after all that it was told before."""
        self.book.deliveries.tell(client, message)

    def client_down(self, client: str, now_s: float, *, said_goodbye: bool = True) -> None:
        """A client's link broke. Its jobs go on, or what of them has not started is cancelled, as each job says:
        at once if the client said goodbye, after a grace time if it vanished and may yet move the job."""
        self.book.client_loss.client_down(client, now_s, said_goodbye=said_goodbye)
        self._let_go()

    def receive_from_node(self, node_id: str, message: m.Message, now_s: float) -> None:
        """A message from a connected node monitor; `LinkError` if it may not be sent."""
        self._from_node[type(message)](self.nodes.by_id[node_id], message, now_s)
        if self._left:
            self._let_go()

    def receive_from_client(self, client: str, user: str, message: Any, now_s: float) -> None:
        """A message from a client; `LinkError` if it may not be sent."""
        if type(message) is m.SubmitJob:
            self.book.submission.submit(client, user, message, now_s)
        elif type(message) is m.Received:
            self.book.deliveries.received(client, message.count, now_s)
        elif (handle := self._of_detached.get(type(message))) is not None:
            handle(client, user, message, now_s)
        else:
            job = self.jobs.get(message.job)
            if job is not None and job.client == client:  # Else it was refused, or has ended, or is somebody else's.
                self._from_client[type(message)](job, message, now_s)
        if self._left:
            self._let_go()
        if self._overfull:
            self.book.deliveries.check(client)

    # ---- events: time, operator, frames, answers ---------------------------------------------

    def next_deadline_s(self) -> float | None:
        """When `tick` is due next."""
        return self._timers.next_deadline_s()

    def tick(self, now_s: float) -> None:
        """Time has come to `now_s`: do what was due."""
        self._timers.run_due(now_s)
        self._let_go()

    def pump(self, now_s: float) -> None:
        """All events that came together, as those of a frame, have been handled."""
        self.plane.pump(now_s)
        if self._left:
            self._let_go()

    def solved(self, number: int, answer: Any, now_s: float) -> None:
        """The answer to the problem of this number (`Outbox.solve`); None if it could not be had."""
        self.plane.solved(number, answer, now_s)
        self._let_go()

    def drain(self, now_s: float) -> None:
        """Take no further jobs but those of tasks that are here; those accepted go on."""
        self.book.ledger.draining = True
        self._note(now_s, "", "draining")

    @property
    def is_done(self) -> bool:
        """Whether no job is here any more, and no outcome that its client may not have."""
        return not self.jobs and self.book.deliveries.is_done

    @property
    def draining(self) -> bool:
        """Whether it takes no further jobs."""
        return self.book.ledger.draining

    def hand_over(self, now_s: float) -> list[tuple[str, m.Message]]:
        """The process is about to end: let go of all jobs, whose clients take them to other schedulers.

        Returns what to tell which client once the nodes have read all that was sent to them: else the next scheduler
        might claim a job at a node before that has seen our last tasks of it. Nothing more is started, and what is
        told is exact, so what waited here does not count as started there. (Earlier starts clients know already.)
        """
        self.book.ledger.draining = True
        self.book.deliveries.send_all()
        last_words = self.register.hand_over(now_s)
        self._let_go()
        return last_words

    def cancel_job(self, job_id: str, now_s: float, *, running: bool = False) -> bool:
        """Cancel what of the job has not started (operator's command), or all of it; False if there is no such job."""
        job = self.jobs.get(job_id)
        if job is None:
            return False
        self.book.cancellation.cancel(job, "it was cancelled by the operator", now_s, running=running)
        self._let_go()
        return True

    # ---- who leads the plane -----------------------------------------------------------------

    @property
    def leads(self) -> bool:
        """Whether it takes jobs for its plane: it leads that, or nobody does, as it has no leader."""
        return self.leading is None or self.leading.leads

    def lead(self, now_s: float) -> bool:
        """An operator wants it to lead its plane, which has a leader; False if it does already."""
        assert self.leading is not None
        return self.leading.force(now_s)

    def _make_leading(self, name: str) -> Leading:
        options, ledger, inventories = self.options, self.book.ledger, self.book.inventories

        def send(node_id: str, message: m.Lead) -> None:
            if message.epoch:
                inventories.expect(node_id)
            ledger.to_node(node_id, message)

        leading = Leading(
            self.plane.name,
            name,
            send,
            ledger.timers,
            standby_of=options.standby_of,
            takeover_s=options.takeover_s,
            settling_s=options.settling_s,
            nodes_expected=options.nodes_expected,
        )
        inventories.in_use = True
        ledger.why_no_jobs = leading.why_not
        leading.changed = self._lead_changed
        return leading

    def _leads(self) -> bool:
        return self.leads

    def _who_leads(self, node: Node, message: m.Leading, now_s: float) -> None:
        assert self.leading is not None
        self.leading.heard(node.id, message, now_s)
        self.book.ledger.lead_epoch = self.leading.epoch

    def _inventory(self, node: Node, message: m.Inventory, now_s: float) -> None:
        """What a node names because of an earlier epoch it will name again."""
        assert self.leading is not None
        if (message.plane, message.epoch) == (self.leading.plane, self.leading.epoch):
            self.book.claims.inventory(node, message, now_s)

    def _lead_changed(self, leads: bool, now_s: float) -> None:
        assert self.leading is not None
        self.book.ledger.lead_epoch = self.leading.epoch
        self._note(now_s, "", "leads with epoch %d" if leads else "leads no more", *[self.leading.epoch] * leads)
        self.plane.lead_changed(leads, now_s)
        self.lead_told(leads)
        if self.leading.is_deposed:
            self.book.inventories.clear()
            self.book.deliveries.send_all()
            for client, message in self.register.hand_over(now_s):
                self.tell_client(client, message)
            self._let_go()

    # ---- nodes -------------------------------------------------------------------------------

    def _node_changed(self, node: Node, message: m.NodeChanged, now_s: float) -> None:
        check_node(message.node)
        self.nodes.learn(node, message.node)
        self.nodes.occupy(node, min(node.occupied, message.node.slots))
        self.plane.node_up(node, now_s)

    def _node_state(self, node: Node, message: m.NodeState, now_s: float) -> None:
        """A cordoned node gets no further tasks; a draining one has dropped what had not started. What runs goes on."""
        if message.state not in (m.READY, m.CORDONED, m.DRAINING):
            raise LinkError(f"node {node.id} says it is {shown(message.state)}")
        node.state = message.state
        self.nodes.changed()
        self._note(now_s, "", "node %s is %s: %s", node.id, message.state, m.cut_reason(message.reason))
        if message.state == m.DRAINING:
            self.book.ledger.to_node(node.id, m.DrainingKnown())
        self.plane.node_state(node, now_s)

    def _node_load(self, node: Node, message: m.NodeLoad, now_s: float) -> None:
        check_load(node.id, node.info.slots, node.info.resources, message)
        node.load = message
        self.plane.node_load(node, now_s)

    def _occupied(self, node: Node, message: m.Occupied, now_s: float) -> None:
        check_occupied(node.id, node.info.slots, message.slots)
        self.nodes.occupy(node, message.slots)

    def _has_no_tasks(self, node: Node, message: m.GetTasks, now_s: float) -> None:
        """A node asks a scheduler whose plane binds no tasks to those that ask."""
        self.counters.asks += 1
        if message.count > 0:
            self.counters.noops += message.count
            self.book.ledger.to_node(node.id, m.NoTask(message.ask, message.count))

    # ---- effects -----------------------------------------------------------------------------

    def _solve(self, problem: Problem) -> int:
        number = next(self._problems)
        self._outbox.solve(number, problem)
        return number

    def _warn(self, text: str) -> None:
        self.warned(text)

    # ---- what people look at -----------------------------------------------------------------

    def story(self, job_id: str) -> list[str]:
        """What is remembered of a job, for people who look for a bug; needs `history_len_max` > 0."""
        return self._history.story(job_id)

    def live_reservations(self, node_id: str) -> int:
        """Reservations of this scheduler queued at the node."""
        return self.plane.live_reservations(node_id)

    def check_invariants(self, *, every_job: bool = False) -> None:
        """Raise `InvariantViolated`, with the job's story, if something that must hold does not.

        Checks the jobs that had an event since the last call where history is kept, or every job.
        """
        history = self._history
        touched = history.touched if history.keeps and not every_job else self.jobs
        for job in [self.jobs[job_id] for job_id in touched if job_id in self.jobs]:
            problem = check_job(job, self.nodes, self.plane.problem)
            if problem:
                raise InvariantViolated(f"job {job.id}: {problem}", self.story(job.id))
        history.touched.clear()
        undelivered = self.book.deliveries.counted_bytes()
        problem = check_admission(self.admission, self.jobs.values(), undelivered)
        problem = problem or self.book.detachment.problem() or self.plane.problem_of_all()
        if problem:
            raise InvariantViolated(problem, self.story(""))
        if not self.jobs and (left := self.plane.left_over()):
            raise InvariantViolated(f"no jobs, but {left}", self.story(""))


def _does_not_matter(node: Node, message: m.Message, now_s: float) -> None:
    """A message that only other planes, or only the daemon, need is ignored: nodes do not know which plane is here."""


def _nobody_is_told(leads: bool) -> None:
    """As long as there is no driver."""


def _nobody_is_warned(text: str) -> None:
    """As long as there is no driver."""


def _for_plane(
    book: Book,
    rng: random.Random,
    solve: Callable[[Problem], int],
    leads: Callable[[], bool],
    warn: Callable[[str], None],
) -> BookForPlane:
    ledger = book.ledger
    return BookForPlane(
        options=ledger.options,
        rng=rng,
        counters=ledger.counters,
        nodes=ledger.nodes,
        holdings=book.attempts.holdings,
        to_node=ledger.to_node,
        note=ledger.note,
        keeps_history=ledger.history.keeps,
        at_stage=ledger.at_stage,
        at=ledger.timers.at,
        is_here=ledger.is_here,
        nodes_now=book.reach.now,
        test_node=book.reach.test,
        avoided_at=book.reach.avoided_at,
        leave_alone=book.waiting.leave_alone,
        announce_nodes=book.notice.of_nodes,
        may_start_at=book.notice.may_start_at,
        launch=book.attempts.launch,
        launch_now=book.attempts.launch_now,
        push=book.attempts.push,
        place=lambda stage, task, node: book.attempts.place(stage, task, node, ledger.lead_epoch),
        preempt=book.attempts.preempt,
        count_placed=book.attempts.count_placed,
        settle_unplaced=book.outcomes.settle_unplaced,
        wait=book.waiting.wait,
        wait_no_more=book.waiting.wait_no_more,
        wait_for_preferred=book.waiting.wait_for_preferred,
        is_waiting=book.waiting.is_waiting,
        leads=leads,
        warn=warn,
        solve=solve,
    )
