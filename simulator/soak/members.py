"""The processes of a simulated cluster that are there now."""

from __future__ import annotations

from simulator.soak.fallible_hosts import ClientHost, NodeHost, SchedulerHost
from simulator.soak.host import Host
from simulator.soak.links import Link
from simulator.soak.surroundings import Surroundings
from sparrow_py.job import BlobRef


class Members(Surroundings):
    """Schedulers, node monitors and clients, and who is linked to whom."""

    schedulers: list[SchedulerHost]
    nodes: list[NodeHost]
    clients: list[ClientHost]

    def hosts(self) -> list[Host]:
        """All that are alive."""
        return [host for host in (*self.schedulers, *self.nodes, *self.clients) if host.alive]

    def links(self, kind: type = object) -> list[Link]:
        """Links that stand, in a fixed order."""
        links = [link for scheduler in self.schedulers for link in scheduler.links.values()]
        return [link for link in links if link.alive and isinstance(link.peer, kind)]

    def sources_of(self, ref: BlobRef, reader: str) -> list[str]:
        """Names of the nodes from which this one can read large data."""
        there = [node.name for node in self.nodes if node.name in ref.at and node.blobs.file(ref.hash)]
        return [name for name in there if not self.parted(reader, name)]
