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

from scheduler.book.jobs import JobState, StageState
from scheduler.book.nodes import Node
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.core import SchedulerCore


class Telling:
    """What clients are told of starts, and wait for, for all jobs of a scheduler."""

    def __init__(self, core: SchedulerCore) -> None:
        self._core = core
        self._numbers = itertools.count(1)
        """Of messages `Using`."""

    # ---- how often tasks have been started ---------------------------------------------------

    def count(self, stage: StageState, tasks: list[int]) -> bool:
        """Tell the client the starts of tasks that are to start again; whether these must wait for its answer."""
        job, to_client = stage.job, self._core.to_client
        starts = [(stage.first + task, stage.starts[task]) for task in tasks]
        if not job.acknowledges:
            for number, count in starts:
                to_client(job.client, m.Retried(job.id, number, count))
            return False
        for index in range(0, len(starts), m.NUMBERS_PER_MESSAGE_MAX):
            to_client(job.client, m.Counted(job.id, dict(starts[index : index + m.NUMBERS_PER_MESSAGE_MAX])))
        return True

    def count_known(self, job: JobState, message: m.CountKnown, now_s: float) -> None:
        """The client knows these starts: the tasks may start again."""
        known: dict[StageState, list[int]] = {}
        for number, starts in message.starts.items():
            if not 0 <= number < job.task_count:
                raise LinkError(f"job {job.id}: there is no task {number}; it has {job.task_count}")
            stage = job.stage_of(number)
            task = number - stage.first
            if task in stage.untold and stage.starts[task] == starts:
                known.setdefault(stage, []).append(task)
        self._go_on(known, now_s)

    def _go_on(self, told: dict[StageState, list[int]], now_s: float) -> None:
        for stage, tasks in told.items():
            self._core.progress.unplaced_again(stage, tasks, now_s)
            self._core.probing.ensure(stage, now_s)

    def nobody(self, job: JobState, now_s: float) -> None:
        """The job goes on without its client: there is nobody to wait for."""
        job.acknowledges = False
        self._go_on({stage: sorted(stage.untold) for stage in job.stages if stage.untold}, now_s)

    # ---- where tasks may be started ----------------------------------------------------------

    def may_use(self, job: JobState, node: Node) -> bool:
        """Whether tasks of the job may be started at the node now; if not, its client is asked."""
        if job.using is None or job.using.get(node.memory) == 0:
            return True
        self.use(job, [node.id])
        return False

    def use(self, job: JobState, node_ids: Iterable[str]) -> None:
        """Tell the client of those nodes of which it has not been told: tasks may be started there."""
        using, nodes = job.using, self._core.nodes
        if using is None:
            return
        new = list(dict.fromkeys(memory for one in node_ids if (memory := nodes[one].memory) not in using))
        for index in range(0, len(new), m.NUMBERS_PER_MESSAGE_MAX):
            some = tuple(new[index : index + m.NUMBERS_PER_MESSAGE_MAX])
            number = next(self._numbers)
            using.update(dict.fromkeys(some, number))
            self._core.to_client(job.client, m.Using(job.id, number, some))

    def using_known(self, job: JobState, message: m.UsingKnown, now_s: float) -> None:
        """The client knows of these nodes: those of them that have asked meanwhile are asked again."""
        if job.using is None:
            return
        known = {memory for memory, number in job.using.items() if number == message.number}
        job.using.update(dict.fromkeys(known, 0))
        for stage in job.stages:
            known_nodes = [
                one for one in stage.unknown_at if (node := self._core.nodes.get(one)) and node.memory in known
            ]
            for node_id in known_nodes:
                stage.refused_by.discard(node_id)
                self._core.probing.reserve_again(stage, node_id, stage.unknown_at.pop(node_id), now_s)
            if known_nodes or self._core.direct is not None:
                self._core.probing.ensure(stage, now_s)

    def node_down(self, node: Node) -> None:
        """The node has gone, and what it had of jobs has been settled: who has them next need not ask it."""
        for job in self._core.jobs.values():
            if job.using is not None and not job.claiming and job.using.pop(node.memory, None) is not None:
                self._core.to_client(job.client, m.Unused(job.id, node.memory))
