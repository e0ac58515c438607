"""Unplaced tasks wait: for a place, as long as their job's queue timeout lets them; for their preferred nodes (delay
scheduling, §8); and if there is no node for them now, for nodes that have refused, which are tried again after a while,
or for one that may run them, but not for ever.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scheduler.book.jobs import UNPLACED
from scheduler.book.preferences import FREE
from sparrow_py.job import LOST

if TYPE_CHECKING:
    import random

    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from scheduler.book.outcomes import Outcomes
    from scheduler.book.reach import Reach

BACKOFF_S = 0.05
"""First wait of a stage that every node refused; doubles up to the maximum."""
BACKOFF_MAX_S = 2.0
WITHDRAWN_WAIT_S = 30.0
"""Tasks that no connected node may run wait no longer than this, unless their job says how long, if nodes should run
them and their executors do not start: that has been tried for some time, and is seldom mended by waiting."""


@dataclass(eq=False, slots=True)
class Waiting:
    """The waits of all stages of a scheduler."""

    _ledger: Ledger
    _rng: random.Random
    _reach: Reach
    _outcomes: Outcomes

    # ---- for a place, so long and no longer --------------------------------------------------

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

    # ---- for nodes that have refused ---------------------------------------------------------

    def leave_alone(self, stage: StageState, node_id: str, now_s: float) -> None:
        """The stage does not turn to the node for a while; not for ever: a job may be long."""
        refused_by = stage.search.refused_by
        if node_id not in refused_by:
            refused_by.add(node_id)
            self._ledger.at_stage(now_s + BACKOFF_MAX_S, stage, lambda one, _: one.search.refused_by.discard(node_id))

    def _back_off(self, stage: StageState, now_s: float) -> None:
        """Every node refused: try them all again after a while."""
        search = stage.search
        search.backoff_s = min(search.backoff_s * 2 or BACKOFF_S, BACKOFF_MAX_S)
        search.retry_at_s = now_s + search.backoff_s * self._rng.uniform(0.5, 1.0)
        self._ledger.at_stage(search.retry_at_s, stage, self._retry)

    def _retry(self, stage: StageState, now_s: float) -> None:
        stage.search.retry_at_s = None
        stage.search.refused_by.clear()
        if self._ledger.is_here(stage.job):
            self._ledger.placing.tasks_unplaced(stage, now_s)

    # ---- for nodes that are to come ----------------------------------------------------------

    def wait(self, stage: StageState, now_s: float) -> None:
        """No node can take more of the stage's tasks now. All of them may use the same nodes; else see
        `wait_for_preferred`."""
        search = stage.search
        if self._reach.later(stage):
            self.wait_no_more(stage, now_s)
            if search.retry_at_s is None:
                self._back_off(stage, now_s)
        elif search.no_node_since_s is None:
            search.no_node_since_s = now_s
            self._ledger.setbacks.no_nodes(stage, now_s)
            limit_s = self._limit_s(stage)
            if limit_s is not None:
                self._ledger.at_stage(now_s + limit_s, stage, lambda one, at_s: self._no_node_came(one, limit_s, at_s))

    def wait_no_more(self, stage: StageState, now_s: float) -> None:
        """There are nodes for the stage's tasks."""
        if stage.search.no_node_since_s is not None:
            stage.search.no_node_since_s = None
            self._ledger.setbacks.nodes_found(stage, now_s)

    def wait_for_preferred(self, stage: StageState, lacking: Collection[int], free_lack: bool, now_s: float) -> None:
        """As `wait`, for a stage with task-level constraints: these tasks with preferred nodes, and perhaps some of
        those without, have no node now. One may wait for nodes that another does not want."""
        preferences = stage.preferences
        assert preferences is not None
        before, preferences.hopeless = preferences.hopeless, {}
        if not lacking and not free_lack:
            return
        later = frozenset(self._reach.later(stage))
        hopeless = [task for task in lacking if later.isdisjoint(preferences.preferred[task])]
        hopeful = len(hopeless) < len(lacking)
        if free_lack:
            hopeful = hopeful or bool(later)
            hopeless += [] if later else [FREE]
        if hopeful and stage.search.retry_at_s is None:
            self._back_off(stage, now_s)
        preferences.hopeless = {task: before.get(task, now_s) for task in hopeless}
        limit_s = self._limit_s(stage)
        if limit_s is not None and any(task not in before for task in hopeless):
            self._ledger.at_stage(now_s + limit_s, stage, lambda one, at_s: self._no_node_came_for(one, limit_s, at_s))

    def is_waiting(self, stage: StageState) -> bool:
        """Whether tasks of the stage wait for nodes, or are to be tried again."""
        preferences, search = stage.preferences, stage.search
        hopeless = preferences is not None and bool(preferences.hopeless)
        return hopeless or search.no_node_since_s is not None or search.retry_at_s is not None

    # ---- and do not come ---------------------------------------------------------------------

    def _limit_s(self, stage: StageState) -> float | None:
        """How long to wait for a node that takes the stage's tasks; None: for ever. Not at all if nodes were found that
        could run them and do not want them, and none took any: a job that no connected node could run is refused, too.
        """
        if stage.search.barred_by and not stage.settled and not stage.attempts:
            return 0.0
        limit_s = self._job_limit_s(stage.job)
        if (
            limit_s is None
            or stage.job.wait_for_nodes_s is not None
            or not self._ledger.nodes.why_withdrawn(stage.kind)
        ):
            return limit_s
        return min(limit_s, WITHDRAWN_WAIT_S)

    def _job_limit_s(self, job: JobState) -> float | None:
        limit_s = self._ledger.options.wait_for_nodes_s if job.wait_for_nodes_s is None else job.wait_for_nodes_s
        return None if limit_s == math.inf else limit_s

    def _no_node_came(self, stage: StageState, limit_s: float, now_s: float) -> None:
        since_s = stage.search.no_node_since_s
        if not self._ledger.is_here(stage.job) or since_s is None or not stage.open:
            return
        if now_s < since_s + limit_s:  # Nodes came and went meanwhile.
            self._ledger.at_stage(since_s + limit_s, stage, lambda one, at_s: self._no_node_came(one, limit_s, at_s))
            return
        stage.search.no_node_since_s = None
        if self._reach.later(stage):  # One has come, at which reservations were waiting for the stage.
            self._ledger.placing.tasks_unplaced(stage, now_s)
            return
        self._give_up(stage, stage.unplaced_tasks(), limit_s, now_s)

    def _no_node_came_for(self, stage: StageState, limit_s: float, now_s: float) -> None:
        preferences = stage.preferences
        assert preferences is not None
        if not self._ledger.is_here(stage.job) or not stage.open:
            return
        late = [task for task, since_s in preferences.hopeless.items() if since_s + limit_s <= now_s]
        if FREE in late:
            late.remove(FREE)
            del preferences.hopeless[FREE]
            late = sorted([*late, *preferences.free_tasks()])
        self._give_up(stage, late, limit_s, now_s)

    def _give_up(self, stage: StageState, tasks: list[int], limit_s: float, now_s: float) -> None:
        reason = f"no node that may run it was connected for {limit_s:g} s"
        if barred_by := stage.search.barred_by:
            node_id, why = next(reversed(barred_by.items()))
            waited = f" has taken it for {limit_s:g} s" if limit_s else " takes it"
            reason = f"no connected node{waited}; node {node_id}: {why}"
        elif withdrawn := self._ledger.nodes.why_withdrawn(stage.kind):
            reason = f"{reason}: {withdrawn}"
        self._outcomes.settle_unplaced(stage, tasks, LOST, reason, now_s)
