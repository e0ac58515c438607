"""Objects that work only in the process that made them: clients, their futures, embedded clusters. They cannot be
pickled, and their copies in a forked child do not touch what belongs to the parent.

A child has none of its parent's threads: a call that waited there for a client's loop would wait for ever. The child's
copies of sockets and pipes keep connections open that the parent closes, and its copy of an epoll instance would keep
the parent from hearing about descriptors that the child closes. So in a child each such object is told of the fork
before anything else runs: it lets go of its descriptors, and from then on raises an error that says why.
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
"""The error that the user of an inherited client gets."""


class StaysHere:
    """Base of objects that cannot be pickled, since they work only in the process that made them."""

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"cannot pickle {type(self).__qualname__!r} object: it works in this process alone")


class BoundToProcess(Protocol):
    """An object that works only in the process that made it."""

    def forked(self) -> None:
        """This is the copy in a child, which has one thread; other threads of the parent may have held locks."""


_bound: weakref.WeakSet[BoundToProcess] = weakref.WeakSet()


def tell_of_forks(bound: BoundToProcess) -> None:
    """Call the object's `forked` in each child of this process, as long as the object lives."""
    _bound.add(bound)


def let_go(descriptors: Iterable[int]) -> None:
    """In a child: make these descriptors refer to /dev/null, and no longer to what the parent has.

    If the process can open no further descriptor they stay as they are: then a peer of the parent that waits for the
    parent's end hears of that end later.
    """
    try:
        nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return
    for descriptor in descriptors:
        if descriptor >= 0:  # A closed one is -1.
            os.dup2(nothing, descriptor, inheritable=False)
    os.close(nothing)


def descriptor_of(loop: asyncio.AbstractEventLoop) -> int:
    """The descriptor of the epoll instance, or the like, with which a loop waits; -1 if the loop does not tell."""
    if hasattr(loop, "_get_backend_id"):  # uvloop's.
        return int(loop._get_backend_id())
    selector: Any = getattr(loop, "_selector", None)
    return int(selector.fileno()) if hasattr(selector, "fileno") else -1


def _tell() -> None:
    for bound in list(_bound):
        bound.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_tell)
