"""The lane of placed tasks: those that a plane has placed at this node (`LaunchPlaced`) and that wait here for a slot.

Placed tasks may hold so many of the node's slots as the lane has: all but a share that is kept for sampled tasks, while
a scheduler is linked that samples. They wait in order of arrival; `placed_tasks` starts them, before the fair queue is
served. What waits is charged to nobody.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable

from node_monitor.counters import Counters
from node_monitor.executors.executor_state import AppState
from node_monitor.queueing.tickets import PUSHED, QueuedTicket
from node_monitor.slots import Slots
from sparrow_py.counted import counted
from sparrow_py.job import CANCELLED
from sparrow_py.wire import messages as m

WAITING_PER_SLOT_MAX = 4
"""Placed tasks that wait at a node, for each of its slots; what comes beyond is handed back."""
MAKES_ROOM = "it makes room for others"

Key = tuple[str, str, int]
"""(scheduler, job, attempt)."""


class PlacedTask:
    """A placed task that waits for a slot."""

    __slots__ = ("app", "came_at_s", "launch", "lead", "scheduler", "ticket")

    def __init__(self, scheduler: str, message: m.LaunchPlaced, app: AppState, now_s: float) -> None:
        self.scheduler = scheduler
        self.lead = message.lead
        self.app = app
        self.came_at_s = now_s
        self.launch = m.Launch(
            0, message.job, message.stage, message.task, message.attempt, message.payload, message.inputs
        )
        self.ticket = QueuedTicket(
            (scheduler, PUSHED), message.job, message.user, message.weight, message.priority, app.name, 0,
            message.expected_duration_s, message.demand, 1, placed=True,
        )  # fmt: skip

    @property
    def key(self) -> Key:
        """Names the attempt as `AttemptBook.by_key` does."""
        return self.scheduler, self.launch.job, self.launch.attempt


class Lane:
    """The placed tasks that wait, and how many slots placed tasks may hold.

    sampling: the linked schedulers that sample. short_share: of the slots, what is kept for those while there are any.
    """

    __slots__ = ("_counters", "_sampling", "_short_share", "_slots", "_to_scheduler", "waiting")

    def __init__(
        self,
        slots: Slots,
        short_share: float,
        sampling: Collection[str],
        counters: Counters,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._slots = slots
        self._short_share = short_share
        self._sampling = sampling
        self._counters = counters
        self._to_scheduler = to_scheduler
        self.waiting: dict[Key, PlacedTask] = {}
        """In order of arrival."""

    # ---- how many slots ----------------------------------------------------------------------

    @property
    def slots(self) -> int:
        """Slots that placed tasks may hold: at least one."""
        if not self._sampling:
            return self._slots.count
        kept = math.ceil(round(self._short_share * self._slots.count, 9))  # 0.2 · 15 is a little over 3.
        return max(1, self._slots.count - kept)

    @property
    def free(self) -> int:
        """Slots of the lane that no placed task holds or waits for."""
        return max(0, self.slots - self._slots.placed - len(self.waiting))

    @property
    def full(self) -> bool:
        """Whether placed tasks hold as many slots as they may."""
        return self._slots.placed >= self.slots

    # ---- who waits ---------------------------------------------------------------------------

    def why_no_room(self) -> str:
        """Why no further task may wait; empty if one may."""
        most = WAITING_PER_SLOT_MAX * self._slots.count
        return "" if len(self.waiting) < most else f"{counted(most, 'placed task', 'wait')} here already"

    def add(self, task: PlacedTask) -> None:
        """A task waits."""
        self.waiting[task.key] = task
        self._slots.moved = True

    def take(self, key: Key) -> PlacedTask | None:
        """The task, which waits no more; None if it did not wait."""
        task = self.waiting.pop(key, None)
        if task is not None:
            self._slots.moved = True
        return task

    def take_all(self, wanted: Callable[[PlacedTask], bool]) -> list[PlacedTask]:
        """Those that are wanted, which wait no more."""
        taken = [task for task in self.waiting.values() if wanted(task)]
        for task in taken:
            self.take(task.key)
        return taken

    def count_of(self, app: AppState, users: Iterable[str]) -> int:
        """How many tasks of these users wait for executors of the app, among others."""
        if not self.waiting:
            return 0
        named = frozenset(users)
        return sum(task.app is app and task.ticket.user in named for task in self.waiting.values())

    # ---- they do not start -------------------------------------------------------------------

    def hand_back(self, tasks: Iterable[PlacedTask], reason: str, *, lasting: bool = False) -> None:
        """These tasks, which have been taken out, are handed back; `lasting`: so would others of their stage be."""
        for task in tasks:
            self.say_handed_back(task.scheduler, task.launch.job, task.launch.attempt, reason, lasting=lasting)

    def say_handed_back(self, scheduler: str, job: str, attempt: int, reason: str, *, lasting: bool = False) -> None:
        """A placed task is handed back."""
        self._counters.handed_back += 1
        self._counters.placed_handed_back += 1
        self._to_scheduler(scheduler, m.HandBack(job, attempt, reason, lasting=lasting))

    def cancel(self, scheduler: str, message: m.CancelAttempt) -> None:
        """Cancel the attempt if it waits, or hand it back if it is to make room; else it has ended."""
        task = self.take((scheduler, message.job, message.attempt))
        if task is None:
            return
        if message.preempt:
            self.hand_back([task], MAKES_ROOM)
            return
        launch = task.launch
        report = m.Report(launch.job, launch.task, launch.attempt, CANCELLED, b"", "it was cancelled", None, None)
        self._to_scheduler(scheduler, report)

    # ---- invariants --------------------------------------------------------------------------

    def problem(self) -> str | None:
        """What does not hold, if anything."""
        most = WAITING_PER_SLOT_MAX * self._slots.count
        if len(self.waiting) > most:
            return f"{len(self.waiting)} placed tasks wait; at most {most} may"
        if any(key != task.key for key, task in self.waiting.items()):
            return "placed tasks wait under other names than theirs"
        return None
