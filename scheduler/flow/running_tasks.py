"""Tasks that run and stay in the network, so that others may take their places, or they better ones: with the option
`flow_preemption`, those of jobs that are preemptible. All others leave the network when they are placed, so nothing can
come of it that stops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.flow.stage_limits import has_limits

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.jobs import Attempt, StageState
    from scheduler.plane import BookForPlane


class RunningTasks:
    """See the module's docstring."""

    def __init__(self, book: BookForPlane) -> None:
        self._book = book
        self._keeps = book.options.flow_preemption
        self._stages: dict[int, StageState] = {}
        """By number: stages with such tasks."""
        self._asked: set[Attempt] = set()
        """Attempts that are to make room, and have not yet."""
        self._news: list[tuple[str, str]] = []
        """(name, node) of tasks that run since the network was told last."""
        self._gone: list[str] = []
        self._is_new_network = False

    def __bool__(self) -> bool:
        return bool(self._stages)

    @property
    def make_room(self) -> bool:
        """Whether some are about to make room: what is to go there has to wait for that."""
        return bool(self._asked)

    def keeps(self, stage: StageState) -> bool:
        """Whether tasks of the stage stay in the network. (Not where one of them is worth nothing without others.)"""
        return self._keeps and stage.job.preemptible and not has_limits(stage)

    # ---- they begin and end ------------------------------------------------------------------

    def began(self, stage: StageState, task: int, node_id: str) -> None:
        """The task has been placed there."""
        plan = stage.plan
        plan.running[task] = node_id
        self._stages[plan.number] = stage
        self._news.append((plan.name(task), node_id))

    def ended(self, attempt: Attempt) -> None:
        """The attempt, whichever it is, is at its node no more."""
        self._asked.discard(attempt)
        plan = attempt.stage.plan
        if plan is None or plan.running.get(attempt.task) != attempt.node_id:
            return
        del plan.running[attempt.task]
        self._gone.append(plan.name(attempt.task))
        if not plan.running:
            del self._stages[plan.number]

    def stage_left(self, stage: StageState) -> None:
        """What runs of it is of no concern to us."""
        for attempt_id in stage.attempts.values():
            self.ended(stage.job.attempts[attempt_id])

    # ---- what the network is told ------------------------------------------------------------

    def take_news(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Names of tasks that run no more, and (name, node) of those that run now."""
        gone = set(self._gone)
        news = [(name, node_id) for name, node_id in self._news if name not in gone or self._runs_at(name, node_id)]
        names, self._gone, self._news = self._gone, [], []
        return names, news

    def forget_told(self) -> None:
        """The network is a new one: all that run are to be told again."""
        self._gone, self._news, self._is_new_network = [], [], True

    def to_tell_again(self) -> list[StageState]:
        """Stages of which a new network is to be told what runs."""
        again, self._is_new_network = self._is_new_network, False
        if not again:
            return []
        for stage in self._stages.values():
            self._news += [(stage.plan.name(task), node_id) for task, node_id in stage.plan.running.items()]
        return list(self._stages.values())

    def _runs_at(self, name: str, node_id: str) -> bool:
        found = self._find(name)
        return found is not None and found[0].plan.running[found[1]] == node_id

    def _find(self, name: str) -> tuple[StageState, int] | None:
        number, _, task = name.partition(".")
        stage = self._stages.get(int(number))
        return (stage, int(task)) if stage is not None and int(task) in stage.plan.running else None

    def stage_of(self, name: str) -> StageState | None:
        """The stage of a task that runs, by the task's name."""
        found = self._find(name)
        return found[0] if found is not None else None

    # ---- what a round says of them -----------------------------------------------------------

    def take_out(self, placements: Iterable[tuple[str, str]]) -> tuple[list[tuple[str, str]], list[str]]:
        """Of these placements those of tasks that wait; and which tasks are to leave their nodes for better ones."""
        others, moving = [], []
        for name, node_id in placements:
            found = self._find(name) if self._stages else None
            if found is None:
                others.append((name, node_id))
            elif found[0].plan.running[found[1]] != node_id:
                moving.append(name)
        return others, moving

    def stop(self, names: Iterable[str]) -> int:
        """Have these tasks make room; they wait for a place again then. How many are asked that were not before."""
        asked = 0
        for name in names:
            found = self._find(name)
            if found is None:
                continue
            stage, task = found
            attempt = stage.job.attempts[stage.attempts[task]]
            if attempt not in self._asked and not attempt.cancelled and stage.job.preemptible:
                self._asked.add(attempt)
                self._book.preempt(attempt)
                asked += 1
        return asked
