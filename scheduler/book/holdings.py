"""Which nodes have which large data, as far as is known here: a hint on where tasks that ask for them start best.

Of each piece of data those nodes are remembered that were told where it lies, for a task that asks for it, until they
are started anew; besides them those have it whose address its reference names. What nodes have let go of meanwhile
nobody says.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scheduler.book.nodes import Node, Nodes
    from sparrow_py.job import BlobRef

PIECES_MAX = 10_000
"""Pieces of data of which nodes are remembered; with more those that were sent last."""
NODES_MAX = 64
"""Nodes that are remembered of one piece: the last ones."""


class Holdings:
    """See the module's docstring."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self._by_hash: OrderedDict[str, OrderedDict[str, str]] = OrderedDict()
        """By the hash of what was sent there, nodes by their ids, with their memories (`Node.memory`); both in the
        order in which it was sent last."""

    def sent(self, node: Node, ref: BlobRef) -> None:
        """The node is told where these data are: it fetches them, if it does not have them."""
        there = self._by_hash.get(ref.hash)
        if there is None:
            there = self._by_hash[ref.hash] = OrderedDict()
            if len(self._by_hash) > PIECES_MAX:
                self._by_hash.popitem(last=False)
        self._by_hash.move_to_end(ref.hash)
        there[node.id] = node.memory
        there.move_to_end(node.id)
        if len(there) > NODES_MAX:
            there.popitem(last=False)

    def bytes_at(self, node: Node, refs: Iterable[BlobRef]) -> int:
        """How many bytes of these data the node has."""
        return sum([ref.size for ref in refs if node.info.address in ref.at or self._was_sent(node, ref)])

    def _was_sent(self, node: Node, ref: BlobRef) -> bool:
        there = self._by_hash.get(ref.hash)
        return there is not None and there.get(node.id) == node.memory

    def most_at(self, refs: Iterable[BlobRef]) -> list[str]:
        """The connected nodes that have any of these data, those that have most bytes first."""
        held: dict[str, int] = {}
        for ref in refs:
            sent = [self._nodes.get(node_id) for node_id in self._by_hash.get(ref.hash, ())]
            here = [node.id for node in sent if node is not None and self._was_sent(node, ref)]
            for address in ref.at:
                here += self._nodes.at_address.get(address, ())
            for node_id in dict.fromkeys(here):
                held[node_id] = held.get(node_id, 0) + ref.size
        return sorted(held, key=lambda node_id: -held[node_id])
