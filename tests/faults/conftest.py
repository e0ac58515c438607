"""The cluster of the fault matrix, which rows share as long as they leave it whole, and their report."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from tests.faults.cluster import MACHINES, Cluster
from tests.faults.network import Loopback, Network, why_no_mounts, why_no_namespaces
from tests.faults.play import Observation


class Shared:
    """A cluster, made when first asked for, and made anew after a row that failed."""

    def __init__(self, directories: Callable[[], Path]) -> None:
        self._directories = directories
        self._held = contextlib.ExitStack()
        self._cluster: Cluster | None = None
        self.why_no_network = why_no_namespaces()
        self.why_no_disk = why_no_mounts(directories())

    def get(self) -> Cluster:
        """The cluster."""
        if self._cluster is None:
            network = Loopback() if self.why_no_network else Network(list(MACHINES.values()))
            self._held.callback(network.close)
            cluster = Cluster(self._directories(), network, disks=not self.why_no_disk)
            self._cluster = self._held.enter_context(cluster)
        return self._cluster

    def discard(self) -> None:
        """The next row gets a new one."""
        self._cluster = None
        self._held.close()


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shared]:
    """The cluster for all rows."""
    shared = Shared(lambda: tmp_path_factory.mktemp("faults"))
    yield shared
    shared.discard()


@pytest.fixture(scope="session")
def report(pytestconfig: pytest.Config) -> Callable[[Observation], None]:
    """Adds a row to the file that `--faults-report` names, if it does."""
    path = pytestconfig.getoption("--faults-report")

    def add(observation: Observation) -> None:
        if path:
            with Path(path).open("ab") as file:
                file.write(msgspec.json.encode(observation) + b"\n")

    return add


