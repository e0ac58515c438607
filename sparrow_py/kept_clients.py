"""The client that an adapter to another library (joblib, Dask) uses: the one that it is given, or one that the program
keeps for it.

These libraries are called again and again, and keep their own workers between calls. So does this: a client that is
made here lasts until the program ends, one for each cluster.
"""

from __future__ import annotations

import atexit
import os
import threading
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

from sparrow_py.client import Client
from sparrow_py.errors import InvalidRequest, NoScheduler, NotInTask
from sparrow_py.task_context import in_task
from sparrow_py.wire.addresses import sources_of_environment

if TYPE_CHECKING:
    from sparrow_py.cluster import LocalCluster

CLIENTS_MAX = 16
"""Clients that are kept at a time."""

_kept: dict[Hashable, tuple[object, Client]] = {}
"""By cluster: what it was given as, which so keeps its id, and its client."""
_lock = threading.Lock()


def client_for(
    client: Client | None = None,
    cluster: LocalCluster | None = None,
    addresses: str | Sequence[str] | None = None,
) -> Client | None:
    """The client to use. In a task it is the task's own, unless a client is given; None where tasks have none: then
    adapters run what they are given in the task itself, as one that waited for others would hold its slot meanwhile.

    At most one of the arguments may be given. With none: the schedulers that SPARROW_SCHEDULER names, or else an
    embedded cluster, as for `Client()`. Raises what `Client` raises, and `InvalidRequest` for anything that is none.
    """
    ways = {"client": client, "cluster": cluster, "addresses": addresses}
    given = [name for name, value in ways.items() if value is not None]
    if len(given) > 1:
        raise InvalidRequest(given[1], ways[given[1]], f"None beside {given[0]}")
    if client is not None:
        if not isinstance(client, Client):
            raise InvalidRequest("client", client, "a Client")
        return client
    if in_task():
        return _own_client()
    return _client_of(cluster if cluster is not None else addresses)


def _own_client() -> Client | None:
    """The client of the task that runs; None if it can have none."""
    try:
        return Client.current()
    except (NotInTask, NoScheduler):
        return None


def close_clients() -> None:
    """Close all clients that are kept, with the embedded clusters that were started for them. Who needs one later gets
    a new one."""
    with _lock:
        clients = [client for _, client in _kept.values()]
        _kept.clear()
    for client in clients:
        client.close()


def _client_of(schedulers: Any) -> Client:
    """The client of these schedulers that is kept, or a new one."""
    key = _key(schedulers)
    with _lock:
        for known in [known for known, (_, client) in _kept.items() if client.closed]:
            del _kept[known]
        if key not in _kept:
            if len(_kept) >= CLIENTS_MAX:
                allowed = f"one of the {CLIENTS_MAX} clusters that have a client already; close_clients() lets them go"
                raise InvalidRequest("cluster", schedulers, allowed)
            _kept[key] = schedulers, Client(schedulers)
        return _kept[key][1]


def _key(schedulers: Any) -> Hashable:
    """What tells clusters apart."""
    if schedulers is None:
        return tuple(sources_of_environment())
    if isinstance(schedulers, str):
        return (schedulers,)
    return tuple(schedulers) if isinstance(schedulers, list | tuple) else id(schedulers)


def _forked() -> None:
    """In a child of the process: a thread that is not here may have held the lock. The clients are closed here."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


atexit.register(close_clients)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
