"""What a client does with its cluster besides running jobs: it keeps and fetches large data, and looks at the nodes."""

from __future__ import annotations

from typing import Any

from sparrow_py import stored_values
from sparrow_py.cluster_nodes import NodeStatus
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import BlobRef
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.session.loop_thread import LoopThread
from sparrow_py.session.session import Session
from sparrow_py.stored_values import StoredValue


class ClusterAccess(StaysHere):
    """The part of `Client` that asks for no job. All methods are for any thread."""

    _session: Session
    _thread: LoopThread

    def upload(self, data: bytes) -> BlobRef:
        """Give data to the cluster that several jobs' tasks need, as payload or common bytes: a reference to it.

        It is kept as long as jobs use it, and for the nodes' retention time after that.
        """
        return self._thread.run(lambda: self._session.upload(data))

    def fetch(self, ref: BlobRef) -> bytes:
        """The bytes that `ref` stands for: of a large result, or what `upload` was given. `ResultLost` if no node has
        them any more."""
        check_fetched(ref)
        return bytes(self._thread.run(lambda: self._session.download(ref)))

    def put(self, value: Any, *, broadcast: bool = False) -> StoredValue:
        """Give a value to the cluster once, for any number of calls of this client: what is returned stands for the
        value in their arguments, at any depth.

        Each node fetches the value at most once, and workers map it: arrays in it are read-only views, without a copy.
        With `broadcast` it is given to up to 64 nodes at once, before any task needs it. The client keeps the encoded
        value as long as the returned object lives. Raises what pickling raises, and as `upload`.
        """
        content = stored_values.encode(value)
        return self._thread.run(lambda: self._session.stored.store(content, broadcast=broadcast))

    def get(self, value: StoredValue) -> Any:
        """The value that `put` was given, decoded anew; arrays in it are read-only. `InvalidRequest` for a value of
        another client."""
        return stored_values.decode(self._session.stored.content_of(value))

    def nodes(self) -> list[NodeStatus]:
        """The nodes of the cluster, by id, as the schedulers that are connected list them now (10,000 each at most).

        `SparrowError` if none of them answers.
        """
        return self._thread.run(self._session.nodes)

    def wait_for_nodes(self, count: int, timeout_s: float | None = None) -> None:
        """Return when each connected scheduler has at least `count` nodes that are ready; `TimeoutError` if that takes
        longer than `timeout_s` (None: for ever)."""
        self._thread.run(lambda: self._session.wait_for_nodes(count, timeout_s))

    def cut_off_s(self) -> float:
        """For how long no scheduler could be reached; 0 while one can be."""
        return self._session.cut_off_s()

    def is_denied(self) -> bool:
        """Whether no scheduler can be reached because each has refused this client's token or certificate."""
        return self._session.is_denied()

    def why_cut_off(self) -> str:
        """The addresses of the schedulers, each with why no link leads there."""
        return self._session.why_cut_off()


def check_fetched(ref: object) -> None:
    """`InvalidRequest` if this is no reference to bytes."""
    if not isinstance(ref, BlobRef):
        raise InvalidRequest("ref", ref, "a BlobRef; the value that put was given comes from get")
