"""How a flow plane begins: which policy it has, and what must be there for it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparrow_py.distribution import install_command
from sparrow_py.errors import ClusterError

if TYPE_CHECKING:
    from scheduler.options import SchedulerOptions
    from scheduler.plane import BookForPlane, Plane

EXTRA = "flow"
EXTRA_PACKAGES = ("numpy", "numba")


def flow_plane(options: SchedulerOptions) -> Callable[[BookForPlane], Plane]:
    """What makes the plane; `ClusterError`, in one line, if it cannot be."""
    for package in EXTRA_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ClusterError(f"policy flow needs the package {package}; it comes with {install_command(EXTRA)}")
    from scheduler.flow.cluster_network import ClusterNetwork
    from scheduler.flow.plane import FlowPlane
    from scheduler.flow.policies.table import PolicyNameError, policy_named

    keeps_running = options.flow_preemption

    def network() -> ClusterNetwork:
        return ClusterNetwork(policy_named(options.flow_policy), keeps_running=keeps_running)

    try:
        network()
    except PolicyNameError as error:
        raise ClusterError(f"flow_policy: {error}") from None
    return lambda book: FlowPlane(book, network)
