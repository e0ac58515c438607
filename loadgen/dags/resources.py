"""The six resources that tasks of DAG jobs demand (paper 002, §2.2), and the machine of the paper's cluster (§5.1)."""

from __future__ import annotations

from collections.abc import Mapping

CPU, MEMORY = "cpu", "memory_bytes"
DISK_IN, DISK_OUT = "disk_in_bytes_per_s", "disk_out_bytes_per_s"
NET_IN, NET_OUT = "net_in_bytes_per_s", "net_out_bytes_per_s"
RESOURCES = (CPU, MEMORY, DISK_IN, DISK_OUT, NET_IN, NET_OUT)
"""Those that nodes report have the names that they have there. `in` is what a task reads or receives, `out` what it
writes or sends."""

MACHINE: Mapping[str, float] = {
    CPU: 20.0,
    MEMORY: 128e9,
    DISK_IN: 500e6,
    DISK_OUT: 500e6,
    NET_IN: 1.25e9,
    NET_OUT: 1.25e9,
}
"""20 cores, 128 GB and 10 Gbit/s are the paper's. It does not say how fast its SSDs are: these are what one behind SATA
gives."""
MACHINES = 100
"""Of the paper's cluster."""
TASK_SHARE_MAX = 0.25
"""Of a machine, that a task of a generated job may demand of any resource."""


def shares(demand: Mapping[str, float], machine: Mapping[str, float] = MACHINE) -> tuple[float, ...]:
    """A demand as shares of a machine, in the order of `RESOURCES`."""
    return tuple(demand.get(resource, 0.0) / machine[resource] for resource in RESOURCES)


def bounded(demand: Mapping[str, float]) -> dict[str, float]:
    """The demand, but of no resource more than a task may have."""
    return {
        resource: _rounded(min(demand.get(resource, 0.0), TASK_SHARE_MAX * MACHINE[resource])) for resource in RESOURCES
    }


def _rounded(amount: float) -> float:
    """To four digits: more would only make files longer."""
    return float(f"{amount:.4g}")
