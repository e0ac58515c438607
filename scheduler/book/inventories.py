"""Which jobs the nodes of a plane with a leader have something of, as each has said when it accepted the leader.

So a job that was at another leader is claimed at a few nodes, and not at all of them: 1,800 jobs of 12,500 nodes would
be 22 million messages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sparrow_py.errors import LinkError

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState

Key = tuple[str, str, int]
"""A job's user, id and instance."""
ENDED_KEPT_S = 300.0
"""So long it is remembered where a job has been that has ended: its client may not have been told, and bring it again.
"""
ENDED_MAX = 100_000
"""Such jobs that are remembered."""
JOBS_PER_NODE_MAX = 100_000
"""Jobs that a node may name; it remembers fewer (`node_monitor.leading.PLACED_JOBS_MAX`)."""


def key_of(job: JobState) -> Key:
    """As inventories name the job."""
    return job.user, job.id, job.instance


class Inventories:
    """See the module's docstring. They are in use only on a plane that has a leader."""

    def __init__(self) -> None:
        self.in_use = False
        self.completed: Callable[[float], None] = _nobody_waits
        """Called with the time when the last inventory that was missing is here."""
        self._missing: set[str] = set()
        """Linked nodes that have accepted, or are about to, and have not named all."""
        self._nodes: dict[Key, dict[str, None]] = {}
        """Job to the nodes that have something of it, in the order in which they said so."""
        self._jobs: dict[str, set[Key]] = {}
        """The same by node."""
        self._ended: dict[Key, float] = {}
        """Jobs that have ended here, and when, the oldest first."""

    @property
    def complete(self) -> bool:
        """Whether all linked nodes have named all."""
        return not self._missing

    def nodes_of(self, job: JobState) -> list[str]:
        """Nodes that have something of the job, as far as is known; some of them may be gone."""
        return list(self._nodes.get(key_of(job), ()))

    def names(self, job: JobState, node_id: str) -> bool:
        """Whether the node has something of the job."""
        return node_id in self._nodes.get(key_of(job), ())

    # ---- nodes -------------------------------------------------------------------------------

    def expect(self, node_id: str) -> None:
        """The node is told who leads: it will name its jobs, those that it named before among them."""
        self._drop(node_id)
        self._missing.add(node_id)

    def add(self, node_id: str, jobs: Iterable[Key]) -> None:
        """The node has something of these jobs."""
        named = self._jobs.setdefault(node_id, set())
        for key in jobs:
            self._nodes.setdefault(key, {})[node_id] = None
            named.add(key)
        if len(named) > JOBS_PER_NODE_MAX:
            raise LinkError(f"node {node_id} names more than {JOBS_PER_NODE_MAX} jobs")

    def is_complete(self, node_id: str, now_s: float) -> None:
        """The node has named all."""
        self._no_more_missing(node_id, now_s)

    def node_down(self, node_id: str, now_s: float) -> None:
        """The node is gone: it names its jobs when it is back."""
        self._drop(node_id)
        self._no_more_missing(node_id, now_s)

    def _no_more_missing(self, node_id: str, now_s: float) -> None:
        if node_id in self._missing:
            self._missing.discard(node_id)
            if not self._missing:
                self.completed(now_s)

    def _drop(self, node_id: str) -> None:
        for key in self._jobs.pop(node_id, ()):
            nodes = self._nodes[key]
            del nodes[node_id]
            if not nodes:
                del self._nodes[key]

    # ---- jobs --------------------------------------------------------------------------------

    def was_sent(self, job: JobState) -> None:
        """The job leaves, and may come back: what was sent to nodes for it since they named their jobs is there."""
        if self.in_use:
            for node_id in sorted(job.sent_to):
                self.add(node_id, [key_of(job)])

    def ended(self, job: JobState, now_s: float) -> None:
        """The job comes back only if its client was not told of all."""
        if not self.in_use:
            return
        self.was_sent(job)
        self._ended.pop(key_of(job), None)
        self._ended[key_of(job)] = now_s
        while self._ended:
            oldest, since_s = next(iter(self._ended.items()))
            if since_s >= now_s - ENDED_KEPT_S and len(self._ended) <= ENDED_MAX:
                break
            del self._ended[oldest]
            for node_id in self._nodes.pop(oldest, ()):
                self._jobs[node_id].discard(oldest)

    def came(self, job: JobState) -> None:
        """The job is here, perhaps again."""
        self._ended.pop(key_of(job), None)

    def clear(self) -> None:
        """This scheduler leads no more."""
        self._missing.clear()
        self._nodes.clear()
        self._jobs.clear()
        self._ended.clear()


def _nobody_waits(now_s: float) -> None:
    """Until `Claims` does."""
