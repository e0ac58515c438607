"""Attempts begin and end: what a node is sent to start a task, and the books of what runs where."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from scheduler.book.holdings import Holdings
from scheduler.book.jobs import ASKED, PLACED, RUNS, STOPPING, Attempt
from scheduler.book.reserve_message import reserve_message
from sparrow_py.errors import LinkError
from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.nodes import Node


class Attempts:
    """The attempts of all jobs of a scheduler."""

    def __init__(self, ledger: Ledger) -> None:
        self._jobs = ledger.jobs
        self._nodes = ledger.nodes
        self._options = ledger.options
        self._counters = ledger.counters
        self._admission = ledger.admission
        self._to_node = ledger.to_node
        self._to_client = ledger.to_client
        self.holdings = Holdings(ledger.nodes)
        """Which nodes have large data."""
        self._next = 1
        self._pushes = itertools.count(1)
        """Tickets of tasks that are sent to nodes unasked."""

    # ---- they begin --------------------------------------------------------------------------

    def launch(self, stage: StageState, task: int, node: Node, ask: int, ticket: int = 0) -> None:
        """Send the task, which is unplaced no more, to the node: as the answer to its ask, or (ask 0) for a reservation
        of this ticket there."""
        attempt = self._begin(stage, task, node)
        job, number, payload = stage.job, stage.first + task, stage.payloads[task]
        assert payload is not None, f"task {number} of {job.id} is settled"
        detail = stage.details.get(task) if stage.details else None
        inputs = detail.inputs if detail is not None else ()
        if inputs:
            self._send_inputs(job, inputs, node)
        self._to_node(node.id, m.Launch(ask, job.id, stage.index, number, attempt.id, payload, inputs, ticket))
        if job.report_placed:
            self._to_client(job.client, m.Placed(job.id, number))

    def launch_now(self, stage: StageState, task: int, node: Node) -> None:
        """Send the task, which is unplaced no more, for a slot that the node has said is free: it starts there at once,
        or is handed back. It must ask for no other's result."""
        attempt = self._begin(stage, task, node)
        attempt.pushed = True
        job, number, payload, spec = stage.job, stage.first + task, stage.payloads[task], stage.spec
        assert payload is not None, f"task {number} of {job.id} is settled"
        assert task not in stage.details, f"task {number} of {job.id} has inputs, or prefers nodes"
        user, options = job.user, self._options
        self._to_node(
            node.id,
            m.LaunchNow(
                job.id, stage.index, number, attempt.id, payload, user, options.weight(user), stage.priority,
                spec.app, spec.expected_duration_s, job.depth,
            ),
        )  # fmt: skip
        self._counters.pushes += 1
        if job.report_placed:
            self._to_client(job.client, m.Placed(job.id, number))

    def place(self, stage: StageState, task: int, node: Node, lead: int) -> None:
        """Send this unplaced task to the node's lane of placed tasks; only to one that takes them (`places`). `lead`:
        the epoch with which this scheduler leads its plane."""
        stage.withdraw(task, PLACED)
        attempt = self._begin(stage, task, node)
        job, number, payload, spec = stage.job, stage.first + task, stage.payloads[task], stage.spec
        assert payload is not None, f"task {number} of {job.id} is settled"
        detail = stage.details.get(task) if stage.details else None
        inputs = detail.inputs if detail is not None else ()
        if inputs:
            self._send_inputs(job, inputs, node)
        user = job.user
        self._to_node(
            node.id,
            m.LaunchPlaced(
                job.id, stage.index, number, attempt.id, payload, lead, user, self._options.weight(user),
                stage.priority, spec.app, spec.expected_duration_s,
                spec.demand, inputs,
            ),
        )  # fmt: skip
        if job.report_placed:
            self._to_client(job.client, m.Placed(job.id, number))

    def _begin(self, stage: StageState, task: int, node: Node) -> Attempt:
        """An attempt of the task is at the node from now on, which is sent the stage's common bytes before it."""
        job = stage.job
        attempt = Attempt(job.attempt_id(self._next), stage, task, node.id)
        self._next += 1
        node.launched += 1
        stage.states[task] = PLACED
        self.begin(attempt, node)
        sent = node.sent.get(job.id)
        if sent is None:
            sent = node.sent[job.id] = set()
            job.sent_to.add(node.id)
        if -1 - stage.index not in sent:
            sent.add(-1 - stage.index)
            once, spec = job.using is not None, stage.spec
            self._to_node(
                node.id,
                m.Common(job.id, stage.index, stage.common, spec.task_timeout_s, job.instance, once, spec.lease_s),
            )
        return attempt

    def _send_inputs(self, job: JobState, inputs: Iterable[tuple[int, int]], node: Node) -> None:
        """Send the results for which a task asks, those that were not sent there before."""
        sent = node.sent[job.id]
        for first, count in inputs:
            for source in range(first, first + count):
                if source not in sent:
                    sent.add(source)
                    result = job.results[source]
                    if isinstance(result, BlobRef):
                        self.holdings.sent(node, result)
                    self._to_node(node.id, m.Input(job.id, source, result))

    def push(self, stage: StageState, tasks: list[int], node: Node) -> None:
        """Send these unplaced tasks to the node, which has not asked for them: they wait for their turn there."""
        ticket = next(self._pushes)
        self._counters.reservations += len(tasks)
        for task in tasks:
            stage.withdraw(task, PLACED)
            self.launch(stage, task, node, 0, ticket)
        # Last, as with a reservation whose task has not come yet a node would ask for one.
        self._to_node(node.id, reserve_message(stage, ticket, len(tasks), self._options, prefetch=0))

    def count_placed(self, stage: StageState, tasks: int) -> None:
        """So many of the stage's unplaced tasks have been launched or pushed."""
        stage.search.backoff_s = 0.0
        self._admission.placed(stage.job.user, tasks)
        self._counters.launched += tasks

    def begin(self, attempt: Attempt, node: Node) -> None:
        """The attempt is at the node."""
        stage = attempt.stage
        job = stage.job
        job.attempts[attempt.id] = attempt
        stage.attempts[attempt.task] = attempt.id
        node.attempts.add(attempt)
        if job.running_at is not None:
            job.running_at[node.id] = job.running_at.get(node.id, 0) + 1

    # ---- they end ----------------------------------------------------------------------------

    def take(self, node: Node, job_id: str, attempt_id: int) -> Attempt | None:
        """The attempt, which is at its node no more; None if it was not at this one."""
        job = self._jobs.get(job_id)
        attempt = job.attempts.get(attempt_id) if job is not None else None
        if attempt is None or attempt.node_id != node.id:
            return None
        self.end(attempt)
        return attempt

    def end(self, attempt: Attempt) -> None:
        """The attempt is at its node no more."""
        job = attempt.stage.job
        del job.attempts[attempt.id]
        node = self._nodes.get(attempt.node_id)
        if node is not None:
            node.attempts.discard(attempt)
        if job.running_at is not None:
            job.running_at[attempt.node_id] -= 1
            if not job.running_at[attempt.node_id]:
                del job.running_at[attempt.node_id]

    # ---- they are to be cancelled --------------------------------------------------------------

    def cancel(self, attempt: Attempt, *, running: bool) -> None:
        """Ask the attempt's node to cancel it; but never the same twice, however often clients ask."""
        wanted = STOPPING if running else ASKED
        if attempt.cancelling < wanted:
            attempt.cancelling = wanted
            self._to_node(attempt.node_id, m.CancelAttempt(attempt.stage.job.id, attempt.id, running))
        elif attempt.cancelling == RUNS:
            self._not_cancelled(attempt)
        # Else the answer is on its way.

    def runs(self, node: Node, message: m.AttemptRuns, now_s: float) -> None:
        """A node does not cancel an attempt, as it runs."""
        job: JobState | None = self._jobs.get(message.job)
        attempt = job.attempts.get(message.attempt) if job is not None else None
        # Else it ended, or is being stopped: the client is told its outcome.
        if attempt is not None and attempt.node_id == node.id and attempt.cancelling == ASKED:
            attempt.cancelling = RUNS
            self._not_cancelled(attempt)

    def _not_cancelled(self, attempt: Attempt) -> None:
        stage = attempt.stage
        self._to_client(stage.job.client, m.NotCancelled(stage.job.id, stage.first + attempt.task))

    def preempt(self, attempt: Attempt) -> None:
        """Have the attempt, of a preemptible job, make room for others: its node stops it, or hands it back. One that
        has ended meanwhile has ended."""
        job = attempt.stage.job
        assert job.preemptible, f"job {job.id} is not preemptible"
        if not attempt.preempting and not attempt.cancelled:
            attempt.preempting = True
            self._to_node(attempt.node_id, m.CancelAttempt(job.id, attempt.id, preempt=True))

    # ---- clients ask where tasks are ---------------------------------------------------------

    def placed_now(self, job: JobState, message: m.AskPlaced, now_s: float) -> None:
        """A client asks which of these tasks are placed."""
        if len(message.tasks) > m.NUMBERS_PER_MESSAGE_MAX:
            asked = f"{len(message.tasks)} tasks in a message; at most {m.NUMBERS_PER_MESSAGE_MAX}"
            raise LinkError(f"job {job.id}: {asked}")
        placed = [number for number in message.tasks if _is_placed(job, number)]
        self._to_client(job.client, m.PlacedNow(job.id, message.number, placed))


def _is_placed(job: JobState, number: int) -> bool:
    if not 0 <= number < job.task_count:
        raise LinkError(f"job {job.id}: there is no task {number}; it has {job.task_count}")
    stage = job.stage_of(number)
    task = number - stage.first
    return task < len(stage.states) and stage.states[task] == PLACED  # Else it has not even arrived.
