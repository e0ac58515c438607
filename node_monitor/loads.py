"""What schedulers are told of the node's load: those that place tasks what is left here and what was measured, those
that sample how many slots placed tasks hold.

Both are told on change, at most twice a second; and loads again and again, so that whoever listens knows that they
stand. How many sampled tasks run, or wait, is told with the rest: it changes by the millisecond.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from node_monitor.host.measured import Measured
from node_monitor.lanes import Lane
from node_monitor.leading import Leading
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.schedulers import Schedulers
from node_monitor.slots import Slots
from sparrow_py.timing.timers import Timers
from sparrow_py.wire import messages as m

LOAD_PAUSE_S = 0.5
"""Loads are told no sooner than so long after those before."""
LOAD_STEP = 0.1
"""A resource that has changed by this share of what there is of it is told."""
NET_STEP_BYTES_PER_S = 1e6
"""As nobody knows how much a network carries, of it this share of what it carried counts, and no less than so much."""


class Loads:
    """What was told last, and when it is told again."""

    __slots__ = (
        "_due_at_s", "_lane", "_leading", "_measured", "_occupied_told", "_queue", "_schedulers", "_slots", "_timers",
        "_to_scheduler", "_told", "_told_at_s",
    )  # fmt: skip

    def __init__(
        self,
        slots: Slots,
        lane: Lane,
        queue: ReservationQueue,
        leading: Leading,
        schedulers: Schedulers,
        timers: Timers,
        to_scheduler: Callable[[str, m.Message], None],
    ) -> None:
        self._slots = slots
        self._lane = lane
        self._queue = queue
        self._leading = leading
        self._schedulers = schedulers
        self._timers = timers
        self._to_scheduler = to_scheduler
        self._measured = Measured()
        self._told: m.NodeLoad | None = None
        """What schedulers that place tasks were told last."""
        self._occupied_told = 0
        self._told_at_s = -LOAD_PAUSE_S
        self._due_at_s: float | None = None
        """When a timer looks again."""

    @property
    def watched(self) -> bool:
        """Whether anybody wants to know what is measured."""
        return bool(self._leading.watchers)

    # ---- events ------------------------------------------------------------------------------

    def scheduler_up(self, scheduler: str) -> None:
        """A link stands."""
        if self._occupied_told and scheduler in self._schedulers.sampling:
            self._to_scheduler(scheduler, m.Occupied(self._occupied_told))
        self._slots.moved = True  # The lane may have other slots.

    def scheduler_down(self) -> None:
        """A scheduler is gone: the lane may have other slots."""
        self._slots.moved = True

    def wanted_by(self, scheduler: str, now_s: float) -> None:
        """A scheduler that places tasks, or may come to do so, has said so."""
        load = self._load()
        self._tell([scheduler], load)
        if self._told is None:
            self._told = load
        self._look_at(now_s + m.LOAD_REFRESH_S)

    def measured(self, measured: Measured, now_s: float) -> None:
        """So much of the machine is in use."""
        self._measured = measured
        self.look(now_s)

    def look(self, now_s: float) -> None:
        """Something may have changed (`Slots.moved`): tell, now or in a while, who wants to know it."""
        self._slots.moved = False
        watchers = self._leading.watchers
        if self._slots.placed == self._occupied_told and not watchers:
            return
        load = self._load() if watchers else None
        stale = load is not None and now_s >= self._told_at_s + m.LOAD_REFRESH_S
        changed = self._slots.placed != self._occupied_told or (load is not None and self._differs(load))
        if not (changed or stale):
            return
        if now_s < self._told_at_s + LOAD_PAUSE_S:
            self._look_at(self._told_at_s + LOAD_PAUSE_S)
            return
        self._told_at_s = now_s
        self._tell_occupied()
        if load is not None:
            self._told = load
            self._tell(watchers, load)
            self._look_at(now_s + m.LOAD_REFRESH_S)

    # ---- when --------------------------------------------------------------------------------

    def _look_at(self, at_s: float) -> None:
        """Look again then, or sooner."""
        if self._due_at_s is None or at_s < self._due_at_s:
            self._due_at_s = at_s
            self._timers.at(at_s, self._due, lambda: self._due_at_s == at_s)

    def _due(self, now_s: float) -> None:
        if self._due_at_s is not None and self._due_at_s <= now_s:
            self._due_at_s = None
            self.look(now_s)
            if self.watched:
                self._look_at(max(self._told_at_s + m.LOAD_REFRESH_S, now_s + LOAD_PAUSE_S))

    # ---- what --------------------------------------------------------------------------------

    def _tell(self, schedulers: Collection[str], load: m.NodeLoad) -> None:
        for scheduler in schedulers:
            self._to_scheduler(scheduler, load)

    def _tell_occupied(self) -> None:
        placed = self._slots.placed
        if placed != self._occupied_told:
            self._occupied_told = placed
            for scheduler in self._schedulers.sampling:
                self._to_scheduler(scheduler, m.Occupied(placed))

    def _load(self) -> m.NodeLoad:
        slots, lane = self._slots, self._lane
        waiting = lane.waiting.values()
        return m.NodeLoad(
            lane.free, lane.slots, max(0, slots.count - slots.free - slots.placed), self._queue.size + len(waiting),
            slots.unclaimed([task.ticket.demand for task in waiting if task.ticket.demand]), *self._measured,
        )  # fmt: skip

    def _differs(self, load: m.NodeLoad) -> bool:
        """Whether so much is other than was told that it is worth a message."""
        told = self._told
        if told is None or (load.lane_free, load.lane_slots) != (told.lane_free, told.lane_slots):
            return True
        resources = self._slots.resources
        if any(_moved(told.free[name], load.free[name], LOAD_STEP * most) for name, most in resources.items()):
            return True
        return (
            _moved(told.cpu, load.cpu, LOAD_STEP * resources.get("cpu", float(self._slots.count)))
            or _moved(told.memory_bytes, load.memory_bytes, LOAD_STEP * resources.get("memory_bytes", 0.0))
            or _net_moved(told.net_in_bytes_per_s, load.net_in_bytes_per_s)
            or _net_moved(told.net_out_bytes_per_s, load.net_out_bytes_per_s)
        )


def _moved(before: float | None, now: float | None, step: float) -> bool:
    """Whether it has changed by so much."""
    if before is None or now is None:
        return before is not now
    return before != now and abs(now - before) >= step


def _net_moved(before: float | None, now: float | None) -> bool:
    return _moved(before, now, max(LOAD_STEP * max(before or 0.0, now or 0.0), NET_STEP_BYTES_PER_S))
