"""What a round has placed is looked at again before it is sent: much may have happened while it was solved."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scheduler.book.jobs import UNPLACED
from scheduler.flow.cluster_view import rack_of
from scheduler.flow.stage_limits import nodes_near, running_at
from scheduler.lane_room import takes_tasks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.jobs import StageState
    from scheduler.book.nodes import Node
    from scheduler.flow.cluster_view import ClusterView
    from scheduler.plane import BookForPlane

Places = list[tuple[int, str]]
"""(task, node id)"""


def still_fitting(
    book: BookForPlane, view: ClusterView, stage: StageState, places: Iterable[tuple[int, str]]
) -> Places:
    """Those of these placements of a stage's tasks that may be sent, all together: the tasks still wait, and the nodes
    still take them, by slots and resources as we count them, and by all constraints. Of a gang all, or none."""
    if not book.is_here(stage.job) or not stage.open:
        return []
    fitting: Places = []
    check = _StageCheck(book, view, stage)
    for task, node_id in places:
        node = book.nodes.get(node_id)
        if stage.states[task] == UNPLACED and node is not None and check.takes(node, task):
            fitting.append((task, node_id))
    if stage.spec.gang and len(fitting) < stage.unplaced:
        return []
    return fitting


def places_of_all(book: BookForPlane, view: ClusterView, stage: StageState, nodes: Iterable[str]) -> Places:
    """Where all waiting tasks of the stage may start at once, at these nodes; nothing if not all may. A node without
    room for one of them has none for the others, unless tasks prefer nodes."""
    check, places = _StageCheck(book, view, stage), Places()
    open_to = [node for node_id in nodes if (node := book.nodes.get(node_id)) is not None]
    for task in stage.unplaced_tasks():
        for node in list(open_to):
            if check.takes(node, task):
                places.append((task, node.id))
                break
            if stage.preferences is None:
                open_to.remove(node)
        else:
            return []
    return places


class _StageCheck:
    """Checks placements of one stage, each on top of those before it."""

    def __init__(self, book: BookForPlane, view: ClusterView, stage: StageState) -> None:
        self._book = book
        self._view = view
        self._stage = stage
        self._may_run_at = book.test_node(stage)
        self._taken: Counter[str] = Counter()
        """By node: tasks of the stage that were let through."""
        self._at_node: Counter[str] = Counter()
        """By node: tasks of the stage, those that were let through included, if that is limited."""
        self._in_rack: Counter[str] = Counter()
        spec = stage.spec
        self._near = nodes_near(stage)
        if spec.max_per_node is not None or spec.max_per_rack is not None:
            for node_id, count in running_at(stage).items():
                self._count(node_id, count)

    def takes(self, node: Node, task: int) -> bool:
        """Whether the node takes this task, too. If so, it is counted."""
        stage, job = self._stage, self._stage.job
        if not (takes_tasks(node) and self._may_run_at(node.id) and self._is_wanted(node, task)):
            return False
        if not self._is_within_limits(node):
            return False
        if not self._view.room_for(node, stage.kind.demand, self._taken[node.id] + 1, stage):
            return False
        if not self._book.may_start_at(job, node):
            return False
        self._taken[node.id] += 1
        self._count(node.id, 1)
        return True

    def _is_wanted(self, node: Node, task: int) -> bool:
        preferences = self._stage.preferences
        wanted = preferences.preferred.get(task) if preferences is not None else None
        return wanted is None or node.id in wanted

    def _is_within_limits(self, node: Node) -> bool:
        spec = self._stage.spec
        if spec.max_per_node is not None and self._at_node[node.id] >= spec.max_per_node:
            return False
        if spec.max_per_rack is not None and self._in_rack[rack_of(node)] >= spec.max_per_rack:
            return False
        return self._near is None or node.id in self._near

    def _count(self, node_id: str, tasks: int) -> None:
        self._at_node[node_id] += tasks
        node = self._book.nodes.get(node_id)
        if node is not None:
            self._in_rack[rack_of(node)] += tasks
