"""Which nodes may be given tasks of a stage, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.book.ledger import Ledger


class Reach:
    """A stage reaches nodes that its kind may run on (§3.3), that have not refused it, and where no job that is to be
    avoided runs (§8)."""

    def __init__(self, ledger: Ledger) -> None:
        self._jobs = ledger.jobs
        self._nodes = ledger.nodes

    def now(self, stage: StageState) -> list[str]:
        """Nodes that may be given tasks of the stage now. The list may be shared: don't change it."""
        nodes = self.later(stage)
        refused_by = stage.search.refused_by
        if refused_by:
            nodes = [node for node in nodes if node not in refused_by]
        if stage.job.avoids:
            nodes = [node for node in nodes if not self.avoided_at(stage, node)]
        return nodes

    def later(self, stage: StageState) -> list[str]:
        """Nodes that take tasks of the stage, now or later. The list may be shared: don't change it."""
        nodes = self._nodes.eligible(stage.kind)
        barred_by = stage.search.barred_by
        return [node for node in nodes if node not in barred_by] if barred_by else nodes

    def test(self, stage: StageState) -> Callable[[str], bool]:
        """Whether a node, by its id, may be given tasks of the stage now."""
        eligible, job = self._nodes.eligible_set(stage.kind), stage.job
        refused_by, barred_by = stage.search.refused_by, stage.search.barred_by
        if not refused_by and not job.avoids and not barred_by:
            return eligible.__contains__
        return lambda node_id: (
            node_id in eligible
            and node_id not in refused_by
            and node_id not in barred_by
            and not (job.avoids and self.avoided_at(stage, node_id))
        )

    def avoided_at(self, stage: StageState, node_id: str) -> bool:
        """Whether a job that this one avoids, or that avoids this one, runs on the node."""
        others = (self._jobs[job_id] for job_id in stage.job.avoids)
        return any(other.running_at and other.running_at.get(node_id) for other in others)
