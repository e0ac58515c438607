"""What a node monitor counts, for its metrics."""

from __future__ import annotations

from sparrow_py.timing.histogram import RoundTrips


class Counters:
    """What the metrics show; all counts since the start."""

    __slots__ = (
        "ask_timeouts", "asks", "cancelled_reservations", "ended", "executor_deaths", "get_task_s", "handed_back",
        "noops", "placed", "placed_handed_back", "preempted", "pushes", "pushes_handed_back", "refused_reservations",
        "reservations", "start_failures", "started", "suspicions", "waits", "waits_refused", "withdrawals", "yields",
        "yields_late",
    )  # fmt: skip

    def __init__(self) -> None:
        self.ask_timeouts = 0
        self.asks = 0
        self.cancelled_reservations = 0
        self.ended = 0
        self.executor_deaths = 0
        self.get_task_s = RoundTrips()
        """From getTask messages to the last of their answers, by app."""
        self.handed_back = 0
        self.noops = 0
        self.placed = 0
        self.placed_handed_back = 0
        self.preempted = 0
        self.pushes = 0
        self.pushes_handed_back = 0
        self.refused_reservations = 0
        self.reservations = 0
        self.start_failures = 0
        self.started = 0
        self.suspicions = 0
        self.waits = 0
        self.waits_refused = 0
        self.withdrawals = 0
        self.yields = 0
        self.yields_late = 0
