"""Stages whose tasks wait at the scheduler itself, on planes that keep them until they know a place: whether there is
any node for them, the book is to know."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scheduler.book.jobs import StageState
    from scheduler.plane import BookForPlane


def look_for_nodes(book: BookForPlane, stage: StageState, now_s: float) -> None:
    """Have the stage wait in the book as well, if there is no node for tasks of it, whether or not it has room."""
    preferences = stage.preferences
    nodes = book.nodes_now(stage)
    if stage.job.using is not None:
        book.announce_nodes(stage.job, nodes)
    if preferences is not None:
        allowed, preferred = book.test_node(stage), preferences.preferred
        lacking = [task for task in preferences.constrained if not any(map(allowed, preferred[task]))]
        book.wait_for_preferred(stage, lacking, preferences.free > 0 and not nodes, now_s)
    elif nodes:
        book.wait_no_more(stage, now_s)
    else:
        book.wait(stage, now_s)


def nodes_changed(book: BookForPlane, stages: Iterable[StageState], now_s: float) -> None:
    """Some of these stages may have nodes that had none, or none any more."""
    eligible = book.nodes.eligible
    for stage in stages:
        has_node = bool(eligible(stage.kind))
        if stage.preferences is not None or has_node != (stage.search.no_node_since_s is None):
            look_for_nodes(book, stage, now_s)
