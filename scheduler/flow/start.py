"""How a flow plane begins: which policy it has, and what must be there for it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sparrow_py.distribution import install_command
from sparrow_py.errors import ClusterError, InvalidOption

if TYPE_CHECKING:
    from scheduler.flow.policies.policy import Policy
    from scheduler.options import SchedulerOptions
    from scheduler.plane import BookForPlane, Plane

EXTRA = "flow"
EXTRA_PACKAGES = ("numpy", "numba")
POLICIES = {
    "quincy": "scheduler.flow.policies.quincy:Quincy",
    "load-spreading": "scheduler.flow.policies.load_spreading:LoadSpreading",
    "network-aware": "scheduler.flow.policies.network_aware:NetworkAware",
    "shortest-job": "scheduler.flow.policies.shortest_job:ShortestJob",
    "co-location": "scheduler.flow.policies.co_location:CoLocation",
}
"""Those that come with us; of others the module and the class are named."""
METHODS = ("see", "task", "machine_cost", "aggregator_arcs")
"""What a policy has."""


def flow_plane(options: SchedulerOptions) -> Callable[[BookForPlane], Plane]:
    """What makes the plane; `ClusterError` or `InvalidOption`, in one line, if it cannot be."""
    for package in EXTRA_PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise ClusterError(f"policy flow needs the package {package}; it comes with {install_command(EXTRA)}")
    from scheduler.flow.cluster_network import ClusterNetwork
    from scheduler.flow.plane import FlowPlane

    policy_of = policy_class(options.flow_policy)
    keeps_running = options.flow_preemption
    return lambda book: FlowPlane(book, lambda: ClusterNetwork(policy_of(), keeps_running=keeps_running))


def policy_class(name: str) -> Callable[[], Policy]:
    """The policy of that name, or at that place (module:Class); `InvalidOption` says what is wrong with it."""
    place = POLICIES.get(name, name)
    module_name, colon, class_name = place.partition(":")
    if not colon:
        raise _wrong(name, f"{', '.join(_present())}, or module:Class")
    try:
        found: Any = importlib.import_module(module_name)
    except Exception as error:  # It is somebody's code.
        raise _wrong(name, f"a policy; its module cannot be imported ({type(error).__name__}: {error})") from None
    for part in class_name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise _wrong(name, f"a policy; {module_name} has no class {class_name}")
    lacks = [method for method in METHODS if not callable(getattr(found, method, None))]
    if lacks:
        raise _wrong(name, f"a policy, which has the methods {', '.join(METHODS)}; it lacks {', '.join(lacks)}")
    try:
        found()
    except Exception as error:
        raise _wrong(name, f"a policy that needs no arguments ({type(error).__name__}: {error})") from None
    return found


def _present() -> list[str]:
    return [name for name, place in POLICIES.items() if importlib.util.find_spec(place.partition(":")[0])]


def _wrong(name: str, allowed: str) -> InvalidOption:
    return InvalidOption("flow_policy", name, allowed)
