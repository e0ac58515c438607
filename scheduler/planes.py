"""The planes that a scheduler can run, by its options `policy` and `placement`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from scheduler.central.plane import CentralPlane
from scheduler.direct.plane import DirectPlane
from scheduler.plane import BookForPlane, Plane
from scheduler.sampling.plane import SamplingPlane
from sparrow_py.wire.messages import ALTRUISTIC, FLOW

if TYPE_CHECKING:
    from scheduler.altruistic.stage_history import StageHistory
    from scheduler.options import SchedulerOptions

PLANES: dict[str, Callable[[BookForPlane], Plane]] = {
    "sparrow": SamplingPlane,
    "batch": DirectPlane,
    "per-task": DirectPlane,
    "random": DirectPlane,
    "central": CentralPlane,
}
"""Of policy "sparrow", by placement."""


def plane_of(options: SchedulerOptions, history: StageHistory | None = None) -> Callable[[BookForPlane], Plane]:
    """What makes the plane. Those of policies "flow" and "altruistic" are imported here, as others do not need what
    they import. history: of stages, for the latter."""
    if options.policy == FLOW:
        from scheduler.flow.start import flow_plane

        return flow_plane(options)
    if options.policy == ALTRUISTIC:
        from scheduler.altruistic.start import altruistic_plane

        return altruistic_plane(options, history)
    return PLANES[options.placement]


class WarmUp(NamedTuple):
    """What the plane's solvers need before the first problem."""

    here: Callable[[], None]
    """Makes them ready in this process; compiles them, if need be."""
    is_compiled: Callable[[], bool]
    """Whether there is nothing to compile."""
    module: str
    """One that compiles them, as a program whose argument is the number of its parent's process."""


def warm_up_of(options: SchedulerOptions) -> WarmUp | None:
    """Of the plane; None if it needs nothing."""
    if options.policy == FLOW:
        from scheduler.flow.compiled import is_compiled
        from scheduler.flow.warm_up import warm_up

        return WarmUp(warm_up, is_compiled, "scheduler.flow.compile_solvers")
    if options.policy == ALTRUISTIC:
        from scheduler.altruistic import compiled
        from scheduler.altruistic import warm_up as altruistic

        return WarmUp(altruistic.warm_up, compiled.is_compiled, "scheduler.altruistic.compile_kernels")
    return None
