"""The planes that a scheduler can run, by its option `placement`."""

from __future__ import annotations

from collections.abc import Callable

from scheduler.central.plane import CentralPlane
from scheduler.direct.plane import DirectPlane
from scheduler.plane import BookForPlane, Plane
from scheduler.sampling.plane import SamplingPlane

PLANES: dict[str, Callable[[BookForPlane], Plane]] = {
    "sparrow": SamplingPlane,
    "batch": DirectPlane,
    "per-task": DirectPlane,
    "random": DirectPlane,
    "central": CentralPlane,
}
