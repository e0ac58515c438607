"""How long a task may be unplaced (its job's queue timeout), and how long it insists on its preferred nodes (delay
scheduling, §8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from scheduler.book.jobs import UNPLACED
from sparrow_py.job import LOST

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes


class Timeouts:
    """The time-outs of all unplaced tasks of a scheduler."""

    def __init__(self, ledger: Ledger, outcomes: Outcomes) -> None:
        self._ledger = ledger
        self._outcomes = outcomes

    def begin(self, stage: StageState, tasks: Sequence[int], now_s: float) -> None:
        """These tasks wait for a place from now on."""
        timeout_s, delay_s = stage.job.queue_timeout_s, stage.spec.delay_s
        if timeout_s is not None:
            place_by_s = now_s + timeout_s
            stage.place_by_s.update(dict.fromkeys(tasks, place_by_s))
            self._ledger.at_stage(place_by_s, stage, lambda one, at_s: self._queue_timeout(one, tasks, at_s))
        if delay_s is not None and stage.preferences is not None:
            self._ledger.at_stage(now_s + delay_s, stage, lambda one, at_s: self.relax(one, tasks, at_s))

    def _queue_timeout(self, stage: StageState, tasks: Iterable[int], now_s: float) -> None:
        # One of them may have been placed, and be unplaced again with a later time.
        late = [task for task in tasks if stage.states[task] == UNPLACED and stage.place_by_s[task] <= now_s]
        if late:
            reason = f"no place was found within queue_timeout_s = {stage.job.queue_timeout_s:g} s"
            self._outcomes.settle_unplaced(stage, late, LOST, reason, now_s)

    def relax(self, stage: StageState, tasks: Iterable[int], now_s: float) -> None:
        """Their preferred nodes had their time: from now on other nodes will do."""
        preferences = stage.preferences
        assert preferences is not None
        for task in tasks:
            if stage.states[task] == UNPLACED and task in preferences.preferred:
                preferences.relax(task)
        self._ledger.placing.tasks_unplaced(stage, now_s)
