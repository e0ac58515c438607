"""What works in the process alone that made it, as clients, their futures and embedded clusters: is not pickled, and in
a forked child leaves the parent's alone.

A child has none of its parent's threads: who waits there for a client's loop waits for ever. Its copies of sockets and
pipes keep open what the parent closes, and with its copy of an epoll instance it would stop the parent from hearing
of what it closes itself. So in a child everything that is bound to its process is told of the fork before anything
else runs, lets go of its descriptors, and says what it is to whoever uses it.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

if TYPE_CHECKING:
    import asyncio

INHERITED = (
    "it was made in the process that this one was forked from, and works in that alone: make one in each process, "
    "Client(cluster) or Client(addresses) for the same cluster"
)
"""What whoever uses an inherited client is told."""


class StaysHere:
    """Is not pickled: it works in the process alone that made it."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__qualname__!r} object: it works in this process alone")


class BoundToProcess(Protocol):
    """What works in the process alone that made it."""

    def forked(self) -> None:
        """This is a child's copy. Called while the child has no other threads, whatever locks they held."""


_bound: weakref.WeakSet[BoundToProcess] = weakref.WeakSet()


def tell_of_forks(bound: BoundToProcess) -> None:
    """Call its `forked` in children of this process, as long as it lives."""
    _bound.add(bound)


def let_go(descriptors: Iterable[int]) -> None:
    """In a child: have these descriptors, whoever still uses them, refer to nothing that the parent has.

    If no further descriptor is to be had they stay: then only who waits for the parent's end hears of it late.
    """
    try:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    for descriptor in descriptors:
        if descriptor >= 0:  # Else it has been closed.
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def descriptor_of(loop: asyncio.AbstractEventLoop) -> int:
    """Of the epoll instance or the like with which a loop waits; -1 if that cannot be had."""
    if hasattr(loop, "_get_backend_id"):  # uvloop's.
        return int(loop._get_backend_id())
    selector: Any = getattr(loop, "_selector", None)
    return int(selector.fileno()) if hasattr(selector, "fileno") else -1


def _tell() -> None:
    for bound in list(_bound):
        bound.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
