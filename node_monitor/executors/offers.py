"""Whether a node offers an app, by how the starts of its executors went. Pure.

A node offers what it can run, or may be expected to: an app whose executors have yet to be tried counts. When several
starts in a row were in vain and no executor is left, the app is *withdrawn*: schedulers hear so with the reason, give
the node nothing of it, and refuse jobs that no other node can run. Starts go on, one at a time and less and less often,
and the first that succeeds brings the app back.

That tasks end executors is another matter (`suspicion`): it keeps work from a node for seconds, this until it is
mended.
"""

from __future__ import annotations

from enum import Enum

START_FAILURES_MAX = 3
"""Starts in a row that were in vain, after which an app without any executor is withdrawn."""
STOOD_S = 30.0
"""An executor that stood for so long was no start in vain, though it had nothing to do."""


class OfferState(Enum):
    """Of an app at a node."""

    AWAITED = "awaited"
    """Its executors come by themselves, and none has come yet: schedulers do not know of it."""
    STARTING = "starting"
    """Its executors are being started and none is there: offered, since they may be expected to come."""
    OFFERED = "offered"
    """An executor is there, or will be started for the first task."""
    WITHDRAWN = "withdrawn"
    """Its executors do not start: not offered."""


class Offer:
    """One app's.

    Executors are started several at a time, and what one lacks all lack: those that fail together (a fork server that
    ends, say) are a single failure. So a start counts if it began after the last one that was counted.
    """

    __slots__ = ("_older", "failures", "reason", "state")

    def __init__(self, *, awaited: bool = False) -> None:
        self.state = OfferState.AWAITED if awaited else OfferState.OFFERED
        self.reason = ""
        """Why it is withdrawn; empty if it is not."""
        self.failures = 0
        """Starts in vain since a task ended, or an executor had stood for long; those that failed together are one."""
        self._older = 0
        """Of the starts under way so many began before the last that was counted."""

    @property
    def withdrawn(self) -> bool:
        """Whether its executors do not start."""
        return self.state is OfferState.WITHDRAWN

    @property
    def told(self) -> bool:
        """Whether schedulers are told that it runs here."""
        return self.state is OfferState.OFFERED or self.state is OfferState.STARTING

    def starts(self) -> None:
        """Executors are being started and none is there."""
        if self.state is OfferState.OFFERED:
            self.state = OfferState.STARTING

    def came(self, under_way: int) -> bool:
        """An executor came; so many more are on their way. Whether schedulers are to hear of it."""
        self._older = min(self._older, under_way)
        before, self.state, self.reason = self.state, OfferState.OFFERED, ""
        return before in (OfferState.AWAITED, OfferState.WITHDRAWN)

    def start_failed(self, reason: str, under_way: int, *, alone: bool) -> bool:
        """A start was in vain, and so many others are under way. `alone`: no executor is there. As `_failed`."""
        if self._older:
            self._older -= 1
            counts = False
        else:
            self._older = under_way
            counts = True
        return self._failed(reason, alone=alone, counts=counts)

    def died_unused(self, reason: str, failures_before: int, *, alone: bool) -> bool:
        """An executor ended that came when there had been so many failures, and had done nothing. As `_failed`."""
        return self._failed(reason, alone=alone, counts=failures_before == self.failures)

    def _failed(self, reason: str, *, alone: bool, counts: bool) -> bool:
        """Count it; whether the app is withdrawn by it."""
        self.failures += counts
        if self.withdrawn:
            self.reason = reason
            return False
        if self.failures < START_FAILURES_MAX or not alone:
            return False
        self.state, self.reason = OfferState.WITHDRAWN, reason
        return True

    def worked(self) -> None:
        """An executor did what it is for."""
        self.failures = 0
        self._older = 0
