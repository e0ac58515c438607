"""What a client must know before something of its job starts, so that no failover counts too few starts.

What a client was told, the next scheduler knows. So a task starts again only when its client has answered that it
knows how often the task was started (`Counted`): of each task at most one start is open that the client has not heard
of, and that one the next scheduler counts. And a task that may start once at most starts only at nodes of which the
client has answered that it knows them (`Using`): so the next scheduler knows whom to ask, and what none of them has
started has not been started.

A client that does not answer such messages (an older one, or this scheduler itself for jobs that came over HTTP) is
told what it understands, and not waited for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduler.book.jobs import OPEN
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.nodes import Node


class AdvanceNotice:
    """What the clients of all jobs are told of starts, and what they have answered."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._numbers = itertools.count(1)
        """Of messages `Using`."""

    def of_starts(self, stage: StageState, tasks: list[int], *, waiting: bool = False) -> bool:
        """Tell the client the starts of tasks that are to start again; whether these must wait for its answer: to this
        message, or, if they are said to be `waiting`, to another one later."""
        job, to_client = stage.job, self._ledger.to_client
        if not job.acknowledges:
            for task in tasks:
                to_client(job.client, m.Retried(job.id, stage.first + task, stage.starts_before(task)))
            return False
        for index in range(0, len(tasks), m.NUMBERS_PER_MESSAGE_MAX):
            some = tasks[index : index + m.NUMBERS_PER_MESSAGE_MAX]
            starts = {stage.first + task: stage.starts.get(task, 0) for task in some}
            failures = {stage.first + task: count for task in some if (count := stage.failures(task))}
            to_client(job.client, m.Counted(job.id, starts, failures, waiting))
        return True

    def of_nodes(self, job: JobState, node_ids: Iterable[str]) -> None:
        """Tell the client of those nodes of which it has not been told: tasks may be started there."""
        using, nodes = job.using, self._ledger.nodes
        if using is None:
            return
        new = list(dict.fromkeys(memory for one in node_ids if (memory := nodes[one].memory) not in using))
        for index in range(0, len(new), m.NUMBERS_PER_MESSAGE_MAX):
            some = tuple(new[index : index + m.NUMBERS_PER_MESSAGE_MAX])
            number = next(self._numbers)
            using.update(dict.fromkeys(some, number))
            job.announced[number] = some
            self._ledger.to_client(job.client, m.Using(job.id, number, some))

    def may_start_at(self, job: JobState, node: Node) -> bool:
        """Whether tasks of the job may be started at the node now; if not, its client is asked."""
        if job.using is None or job.using.get(node.memory) == 0:
            return True
        self.of_nodes(job, [node.id])
        return False

    def nodes_known(self, job: JobState, message: m.UsingKnown, now_s: float) -> None:
        """The client knows of these nodes: tasks may be started there."""
        if job.using is None:
            return
        announced = job.announced.pop(message.number, ())
        known = [memory for memory in announced if job.using.get(memory) == message.number]
        job.using.update(dict.fromkeys(known, 0))
        for stage in job.stages:
            self._ledger.placing.memories_known(stage, known, now_s)

    def client_gone(self, job: JobState, now_s: float) -> None:
        """The job goes on without its client: nobody is told any more where its tasks may be started."""
        using, job.using = job.using, None
        unknown = [memory for memory, number in (using or {}).items() if number]
        for stage in job.stages if unknown else ():
            self._ledger.placing.memories_known(stage, unknown, now_s)
        job.announced.clear()

    def node_down(self, node: Node) -> None:
        """The node has gone, and what it had of jobs has been settled: who has them next need not ask it."""
        for job in self._ledger.jobs.values():
            if job.using is not None and job.phase is OPEN and job.using.pop(node.memory, None) is not None:
                self._ledger.to_client(job.client, m.Unused(job.id, node.memory))
