"""The planes that a scheduler can run, by its options `policy` and `placement`."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from scheduler.central.plane import CentralPlane
from scheduler.direct.plane import DirectPlane
from scheduler.plane import BookForPlane, Plane
from scheduler.sampling.plane import SamplingPlane
from sparrow_py.distribution import install_command
from sparrow_py.errors import ClusterError
from sparrow_py.wire.messages import FLOW

if TYPE_CHECKING:
    from scheduler.options import SchedulerOptions

PLANES: dict[str, Callable[[BookForPlane], Plane]] = {
    "sparrow": SamplingPlane,
    "batch": DirectPlane,
    "per-task": DirectPlane,
    "random": DirectPlane,
    "central": CentralPlane,
}
"""Of policy "sparrow", by placement."""


def plane_of(options: SchedulerOptions) -> Callable[[BookForPlane], Plane]:
    """What makes the plane. That of policy "flow" is imported here, as others do not need what it imports."""
    if options.policy != FLOW:
        return PLANES[options.placement]
    try:
        start = importlib.import_module("scheduler.flow.start")
    except ImportError:
        raise ClusterError(f"policy flow needs the extra `flow`: {install_command('flow')}") from None
    made: Callable[[BookForPlane], Plane] = start.flow_plane(options)
    return made
