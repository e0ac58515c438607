"""The cluster that the rows share, as long as they leave it whole."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

from benchmarks.laboratory.network import Namespaces, Network, why_no_mounts, why_no_namespaces
from tests.faults.cluster import MACHINES, Cluster


class Shared:
    """A cluster, made when first asked for, and made anew after a row that failed.

    directories: makes a new directory, empty.
    """

    def __init__(self, directories: Callable[[], Path]) -> None:
        self._directories = directories
        self._held = contextlib.ExitStack()
        self._cluster: Cluster | None = None
        self.why_no_network = why_no_namespaces()
        self.why_no_disk = why_no_mounts(directories())

    def get(self) -> Cluster:
        """The cluster."""
        if self._cluster is None:
            network = Network() if self.why_no_network else Namespaces(MACHINES)
            self._held.callback(network.close)
            cluster = Cluster(self._directories(), network, disks=not self.why_no_disk)
            self._cluster = self._held.enter_context(cluster)
        return self._cluster

    def discard(self) -> None:
        """The next row gets a new one."""
        self._cluster = None
        self._held.close()
