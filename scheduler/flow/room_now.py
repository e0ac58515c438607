"""What is free at nodes at one moment, in words: for all stages of a job that is explained, which may ask the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scheduler.flow.reachable import has_own_kind
from scheduler.flow.stage_limits import nodes_near
from scheduler.lane_room import takes_tasks
from sparrow_py.counted import agreeing, counted
from sparrow_py.errors import shown

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.jobs import StageState
    from scheduler.book.kinds import Kind
    from scheduler.flow.cluster_view import ClusterView
    from scheduler.plane import BookForPlane


class RoomNow:
    """To be made anew when something has happened at a node."""

    def __init__(self, book: BookForPlane, view: ClusterView) -> None:
        self._book = book
        self._view = view
        self._told: dict[Kind, str] = {}
        """Of stages that differ in nothing else."""

    def for_stage(self, stage: StageState) -> str:
        """What is free at the nodes that may run the stage's tasks; "" if there are none."""
        if (near := nodes_near(stage)) is not None:
            return self._text_near(stage, near)
        if has_own_kind(stage):
            return self._text(stage, self._book.nodes_now(stage))
        text = self._told.get(stage.kind)
        if text is None:
            text = self._told[stage.kind] = self._text(stage, self._book.nodes_now(stage))
        return text

    def _text_near(self, stage: StageState, near: frozenset[str]) -> str:
        other = shown(stage.spec.together_with)
        if not near:
            return f"its tasks may go only where tasks of stage {other} run, and none do yet"
        where = "the node" if len(near) == 1 else f"the {len(near):,} nodes"
        only = f"its tasks may go only to {where} where tasks of stage {other} run"
        text = self._text(stage, [one for one in self._book.nodes_now(stage) if one in near])
        return f"{only}: {text or 'none of these may run it'}"

    def _text(self, stage: StageState, may_run: Iterable[str]) -> str:
        book, view = self._book, self._view
        nodes = [book.nodes[node_id] for node_id in may_run]
        with_slot = [node for node in nodes if takes_tasks(node) and view.slots_free(node)]
        if not nodes:
            return ""
        if not with_slot:
            where = "the node that may run it" if len(nodes) == 1 else f"all {len(nodes):,} nodes that may run it"
            return f"the slots for placed tasks are taken at {where}"
        lacking = [names for node in with_slot if (names := view.lacks(node, stage.kind.demand))]
        eligible = f"{counted(len(nodes), 'node')} that may run it {agreeing(len(nodes), 'have')}"
        text = f"{len(with_slot):,} of {eligible} a slot free"
        if not lacking:
            return text
        named = {name for names in lacking for name in names}
        demanded = ", ".join(f"{name}={much:g}" for name, much in stage.kind.demand if name in named)
        return f"{text}; {len(lacking):,} of these {agreeing(len(lacking), 'lack')} what a task demands: {demanded}"
