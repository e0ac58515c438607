"""Which nodes may be given tasks of a stage, now or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger


class Reach:
    """A stage reaches nodes that its kind may run on (§3.3), that have not refused it, and where no job that is to be
    avoided runs, nor at another node of the same rack, say, if it is to be avoided by that (§8)."""

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
            avoided = self._avoided_by(stage.job)
            nodes = [node for node in nodes if not avoided(node)]
        return nodes

    def later(self, stage: StageState) -> list[str]:
        """Nodes that take tasks of the stage, now or later. The list may be shared: don't change it."""
        nodes = self._nodes.eligible(stage.kind)
        barred_by = stage.search.barred_by
        return [node for node in nodes if node not in barred_by] if barred_by else nodes

    def test(self, stage: StageState) -> Callable[[str], bool]:
        """Whether a node, by its id, may be given tasks of the stage now. It is asked before anything else happens."""
        eligible, job = self._nodes.eligible_set(stage.kind), stage.job
        refused_by, barred_by = stage.search.refused_by, stage.search.barred_by
        if not refused_by and not job.avoids and not barred_by:
            return eligible.__contains__
        avoided = self._avoided_by(job)
        return lambda node_id: (
            node_id in eligible and node_id not in refused_by and node_id not in barred_by and not avoided(node_id)
        )

    def avoided_at(self, stage: StageState, node_id: str) -> bool:
        """Whether a job that this one avoids, or that avoids this one, runs on the node, or on one that has the same
        value of an attribute by which they avoid each other."""
        return self._avoided_by(stage.job)(node_id)

    def _avoided_by(self, job: JobState) -> Callable[[str], bool]:
        """As `avoided_at`, for many nodes: where the others run is looked up once."""
        nodes = self._nodes
        taken: set[str] = set()
        """Nodes where they run."""
        taken_values: dict[str, set[str]] = {}
        """Attribute to its values there. Nodes without it have none that is the same."""
        for other_id, attributes in job.avoids.items():
            running_at = self._jobs[other_id].running_at
            if not running_at:
                continue
            taken.update(running_at)
            for attribute in attributes:
                if not attribute:
                    continue
                values = taken_values.setdefault(attribute, set())
                here = [node for node_id in running_at if (node := nodes.get(node_id))]  # One may be leaving just now.
                values.update(node.attributes[attribute] for node in here if attribute in node.attributes)
        needed = job.avoid_by
        if not taken_values and not needed:
            return taken.__contains__

        def avoided(node_id: str) -> bool:
            node = nodes.get(node_id)
            if node_id in taken or node is None:
                return True
            has = node.attributes
            if needed and needed not in has:  # It had the attribute when its reservation was made.
                return True
            return any(has.get(attribute) in values for attribute, values in taken_values.items())

        return avoided
