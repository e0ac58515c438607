"""What the node monitor's core knows of apps and their executors."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from node_monitor.suspicion import Suspicion

if TYPE_CHECKING:
    from node_monitor.tasks_here import Held


BROKEN_FAILURES = 3
"""After so many starts in vain, reservations for the app are refused until one succeeds."""


@dataclass(frozen=True, slots=True)
class AppPlan:
    """An app that this node runs, and how.

    app: its name. runtime: what its executors run, for comparison with what a job asks for.
    one_process: one process with a place per slot; otherwise a process with one place per slot.
    supervised: whether the node monitor starts the processes itself.
    gives_attributes: whether its executors may give the node attributes.
    """

    app: str
    runtime: str = ""
    one_process: bool = False
    supervised: bool = True
    gives_attributes: bool = False


class ExecutorState:
    """An executor that said hello. A place runs one task at a time."""

    __slots__ = (
        "app",
        "attributes",
        "busy_places",
        "commons",
        "did_tasks",
        "id",
        "leaving",
        "places",
        "revoked",
        "running",
    )

    def __init__(self, executor_id: str, app: AppState, places: int) -> None:
        self.id = executor_id
        self.app = app
        self.places = places
        self.busy_places = 0
        self.did_tasks = False
        self.leaving = False
        """Its end is about to be told: it gets nothing more."""
        self.running: dict[int, Held] = {}
        """Runs given to it and not ended, oldest first."""
        self.revoked: deque[int] = deque()
        """Runs asked back and not answered for, in the order of asking, which is that of the answers."""
        self.commons: set[int] = set()
        """Numbers of the common bytes that it was sent."""
        self.attributes: dict[str, str] = {}
        """What it says of its node."""

    def worked_s(self, now_s: float) -> float:
        """How long it has worked for its first run, which with one place is the only one that it works for."""
        first = next(iter(self.running.values()), None)
        return 0.0 if first is None else first.worked_s(now_s)

    def end(self, run: int, now_s: float) -> None:
        """The run is over; if another waited for it, that one begins."""
        held = self.running.pop(run)
        if held.ahead is not None:
            held.is_not_ahead()
        elif self.places == 1 and self.running:
            next(iter(self.running.values())).begins(now_s)


class AppState:
    """An app and its executors."""

    __slots__ = (
        "asking", "executors", "failures", "idle", "plan", "starting", "suspicion", "waiting", "wanted",
    )  # fmt: skip

    def __init__(self, plan: AppPlan) -> None:
        self.plan = plan
        self.executors: dict[str, ExecutorState] = {}
        self.idle: list[ExecutorState] = []
        """An entry for each free place; the place that was freed last is used first, while it is warm."""
        self.asking = 0
        """Free places that are spoken for by an ask."""
        self.wanted = False
        self.starting = 0
        """Processes started that have not said hello."""
        self.waiting = 0
        """Restarts that wait for their time."""
        self.failures = 0
        """Processes in a row that ended without having done a task."""
        self.suspicion = Suspicion()

    @property
    def broken(self) -> bool:
        """Whether its executors do not start: what is reserved here would wait in vain."""
        return self.failures >= BROKEN_FAILURES and not self.executors

    def came(self, executor: ExecutorState) -> None:
        """An executor said hello."""
        self.executors[executor.id] = executor
        self.idle += [executor] * executor.places
        self.starting = max(0, self.starting - 1)

    def retire(self, executor: ExecutorState) -> None:
        """An executor is leaving: its free places are none."""
        executor.leaving = True
        self.idle = [other for other in self.idle if other is not executor]

    def went(self, executor: ExecutorState) -> None:
        """An executor is gone."""
        self.retire(executor)
        del self.executors[executor.id]

    def take_place(self) -> ExecutorState:
        """Occupy a free place; there must be one."""
        executor = self.idle.pop()
        executor.busy_places += 1
        return executor

    def free_places(self, executor: ExecutorState) -> int:
        """Free the executor's places that run nothing any more; returns how many slots that frees."""
        needed = len(executor.running) if executor.places > 1 else bool(executor.running)
        freed = executor.busy_places - needed
        executor.busy_places = needed
        if executor.leaving:
            return freed
        if freed == 1:
            self.idle.append(executor)
        elif freed:
            self.idle += [executor] * freed
        return freed
