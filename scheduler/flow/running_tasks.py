"""Tasks that run and stay in the network, so that others may take their places, or they better ones: with the option
`flow_preemption`, those of jobs that are preemptible. All others leave the network when they are placed, so nothing can
come of it that stops them."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
        self._unknown: dict[StageState, dict[int, None]] = {}
        """Of those tasks that the network has never had: they were placed by another scheduler."""
        self._is_new_network = False

    def __bool__(self) -> bool:
        return bool(self._stages)

    @property
    def make_room(self) -> bool:
        """Whether some are about to make room: what is to go there has to wait for that."""
        return bool(self._asked)

    def users(self) -> set[str]:
        """Who has such tasks."""
        return {stage.job.user for stage in self._stages.values()}

    def keeps(self, stage: StageState) -> bool:
        """Whether tasks of the stage stay in the network. (Such stages have no limits: `check_stops_alone`.)"""
        return self._keeps and stage.job.preemptible

    # ---- they begin and end ------------------------------------------------------------------

    def began(self, stage: StageState, task: int, node_id: str) -> None:
        """The task has been placed there."""
        plan = stage.plan
        plan.running[task] = node_id
        self._stages[plan.number] = stage
        self._news.append((plan.name(task), node_id))

    def adopted(self, attempt: Attempt) -> None:
        """Another scheduler has placed the task."""
        stage = attempt.stage
        self._unknown.setdefault(stage, {})[attempt.task] = None
        self.began(stage, attempt.task, attempt.node_id)

    def ended(self, attempt: Attempt) -> None:
        """The attempt, whichever it is, is at its node no more."""
        self._asked.discard(attempt)
        plan = attempt.stage.plan
        if plan is None or plan.running.get(attempt.task) != attempt.node_id:
            return
        del plan.running[attempt.task]
        unknown = self._unknown.get(attempt.stage, {})
        if attempt.task in unknown:
            del unknown[attempt.task]
        else:
            self._gone.append(plan.name(attempt.task))
        if not plan.running:
            del self._stages[plan.number]
            self._unknown.pop(attempt.stage, None)

    def stage_left(self, stage: StageState) -> None:
        """What runs of it is of no concern to us."""
        for attempt_id in stage.attempts.values():
            self.ended(stage.job.attempts[attempt_id])

    # ---- what the network is told ------------------------------------------------------------

    def take_news(self) -> tuple[list[str], list[tuple[str, str]]]:
        """Names of tasks that run no more, and (name, node) of those that run now."""
        news = [(name, node_id) for name, node_id in self._news if self._runs_at(name, node_id)]
        names, self._gone, self._news = self._gone, [], []
        return names, news

    def forget_told(self) -> None:
        """The network is a new one: all that run are to be told again."""
        self._gone, self._news, self._is_new_network = [], [], True

    def take_unknown(self) -> list[tuple[StageState, list[int]]]:
        """Tasks that run and that the network is to be told of first: by stage."""
        again, self._is_new_network = self._is_new_network, False
        unknown, self._unknown = self._unknown, {}
        if not again:
            return [(stage, list(tasks)) for stage, tasks in unknown.items() if tasks]
        self._news = []
        for stage in self._stages.values():
            self._news += [(stage.plan.name(task), node_id) for task, node_id in stage.plan.running.items()]
        return [(stage, list(stage.plan.running)) for stage in self._stages.values()]

    def problem(self, stage: StageState) -> str | None:
        """What is wrong with what is kept of the stage, or None."""
        if not self.keeps(stage):
            return None
        attempts = stage.job.attempts
        runs = {task: attempts[attempt_id].node_id for task, attempt_id in stage.attempts.items()}
        if runs != stage.plan.running:
            return f"its tasks run at {runs}, and are kept in the network at {stage.plan.running}"
        return None

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
