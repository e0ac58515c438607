"""The queue for a policy's name."""

from __future__ import annotations

from node_monitor.queueing.fair import FairQueue
from node_monitor.queueing.fifo import FifoQueue
from node_monitor.queueing.priority import PriorityQueue
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import CHARGE_S_MAX


def make_queue(policy: str, slots: int, charge_s_max: float = CHARGE_S_MAX) -> ReservationQueue:
    """The queue for a policy: "fair" (the daemon's default), "fifo" or "priority"; the rest as for `FairQueue`."""
    if policy == "fair":
        return FairQueue(slots, charge_s_max)
    if policy == "priority":
        return PriorityQueue(slots, charge_s_max)
    if policy == "fifo":
        return FifoQueue()
    raise ValueError(f"unknown queue policy {policy!r}: allowed are 'fair', 'fifo', 'priority'")
