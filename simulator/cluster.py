"""What is simulated: the machines and the network between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from node_monitor.options import QUEUE_POLICIES
from simulator.costs import Costs
from simulator.network import Delay
from sparrow_py.errors import InvalidOption

NODES_MAX = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """A cluster to be simulated. `InvalidOption` if a field cannot be.

    nodes: how many.
    slots: of each node: tasks that it runs at a time.
    schedulers: how many; each knows all nodes.
    delay: of the network, one way.
    zones: node i has the attribute zone = z{i mod zones}; 0: none has any.
    weights: of users, by name; default 1.
    priorities: of users, by name, for the queue "priority"; default 0.
    queue: policy of the node monitors.
    costs: of the daemons, in µs of CPU time; None: they decide in no time.
    """

    nodes: int = 1000
    slots: int = 1
    schedulers: int = 1
    delay: Delay = field(default_factory=Delay)
    zones: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    queue: str = "fair"
    costs: Costs | None = None

    def __post_init__(self) -> None:
        for name, most in (("nodes", NODES_MAX), ("slots", 65_536), ("schedulers", 1000)):
            value = getattr(self, name)
            if not 1 <= value <= most:
                raise InvalidOption(name, value, f"a whole number from 1 to {most}")
        if not 0 <= self.zones <= self.nodes:
            raise InvalidOption("zones", self.zones, f"a whole number from 0 to {self.nodes}, the number of nodes")
        if self.queue not in QUEUE_POLICIES:
            raise InvalidOption("queue", self.queue, ", ".join(QUEUE_POLICIES))

    def attributes(self, node: int) -> dict[str, str]:
        """Of a node, by its number."""
        return {"zone": f"z{node % self.zones}"} if self.zones else {}
