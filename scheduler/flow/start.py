"""How a flow plane begins: which policy it has, and what must be there for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrow_py.distribution import install_command
from sparrow_py.errors import ClusterError, InvalidOption

if TYPE_CHECKING:
    from scheduler.options import SchedulerOptions
    from scheduler.plane import BookForPlane, Plane

EXTRA = "flow"
EXTRA_PACKAGES = ("numpy", "numba")


def flow_plane(options: SchedulerOptions) -> Callable[[BookForPlane], Plane]:
    """What makes the plane; `ClusterError` or `InvalidOption`, in one line, if it cannot be."""
    for package in EXTRA_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ClusterError(f"policy flow needs the package {package}; it comes with {install_command(EXTRA)}")
    from scheduler.flow.guarded_policy import GuardedNetwork
    from scheduler.flow.plane import FlowPlane
    from scheduler.flow.policies.table import PolicyNameError, policy_named

    name, keeps_running = options.flow_policy, options.flow_preemption
    try:
        policy_named(name)
    except PolicyNameError as error:
        raise InvalidOption.told("flow_policy", str(error)) from None
    return lambda book: FlowPlane(book, lambda: GuardedNetwork(policy_named(name), keeps_running=keeps_running))
