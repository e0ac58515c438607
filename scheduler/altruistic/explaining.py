"""Why tasks of a stage wait on the altruistic plane, in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from scheduler.lane_room import ROUNDING, takes_tasks
from scheduler.plane import WhyWaiting
from sparrow_py.counted import agreeing, counted

if TYPE_CHECKING:
    from scheduler.altruistic.allocator import Allocator, JobHere
    from scheduler.book.jobs import StageState
    from scheduler.lane_room import LaneRoom
    from scheduler.plane import BookForPlane


def why_waiting(
    book: BookForPlane, room: LaneRoom, allocator: Allocator, columns: Mapping[str, int], stage: StageState,
    now_s: float,
) -> Callable[[], WhyWaiting]:  # fmt: skip
    """Of unplaced tasks of the stage, which is open."""
    reasons: list[str] = []
    if not book.leads():
        reasons.append("this scheduler does not lead its plane, and places nothing")
    here = allocator.jobs.get(stage.job.id)
    if here is None:
        reasons.append("the job has not been looked at yet")
    else:
        reasons += [_share(allocator, columns, here), _plan(here, stage, now_s)]
    reasons.append(_room(book, room, stage))
    return lambda: WhyWaiting(reasons)


def _share(allocator: Allocator, columns: Mapping[str, int], here: JobHere) -> str:
    """What it may use, and has: of the resource of which it needs most."""
    names = list(columns)
    dominant = int(np.argmax(here.demand))
    has, cap = allocator.rows.has[here.row][dominant], allocator.rows.cap[here.row][dominant]
    share = allocator.rows.share[here.row]
    return f"its share is {share:.0%} of {names[dominant]}: it may use {cap:.4g} of its own right, and has {has:.4g}"


def _plan(here: JobHere, stage: StageState, now_s: float) -> str:
    if not here.can_yield:
        return "nobody knows how long its tasks take: it yields nothing, and has its share"
    if not here.can_plan:
        return "its stages and tasks are too many to plan them: it yields nothing, and has its share"
    if not here.has_room:
        return "no node has the resources that its tasks need: it is planned once one has"
    if not np.isfinite(here.job.target_s):
        return "it is not planned yet: it yields nothing, and has its share"
    after_s = here.job.target_s - now_s
    end = f"it is to end in {after_s:.3g} s" if after_s > 0 else f"it was to end {-after_s:.3g} s ago"
    later = sum(run.tasks for run in here.job.plan.listed() if run.group == stage.index and run.start_s > now_s)
    if not later:
        return f"{end}, and its tasks must start now"
    wait_s = min(run.start_s for run in here.job.plan.listed() if run.group == stage.index and run.start_s > now_s)
    return f"{end}: for that {later:,} of its tasks may start {wait_s - now_s:.3g} s from now and later, and yield"


def _room(book: BookForPlane, room: LaneRoom, stage: StageState) -> str:
    """How many nodes could take one of its tasks now."""
    nodes = [book.nodes[node_id] for node_id in book.nodes_now(stage)]
    demand = stage.kind.demand
    free = 0
    for node in nodes:
        if not takes_tasks(node) or not room.slots_free(node):
            continue
        left, offered = room.free(node), node.info.resources
        free += all(left.get(name, 0.0) >= much - ROUNDING * offered.get(name, 0.0) for name, much in demand)
    turn = "tasks of other jobs are before them" if free else "no node has room"
    eligible = f"{counted(len(nodes), 'node')} that may run them {agreeing(len(nodes), 'have')}"
    return f"{turn}: {free:,} of {eligible} room for one"
