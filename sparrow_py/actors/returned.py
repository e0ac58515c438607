"""Handles that come back to the process whose client owns the actor, copied or from a task: they are the owner's own
there. One that dialled would, on an asyncio client's loop, wait for that very loop to answer."""

from __future__ import annotations

import asyncio
import os
from weakref import WeakValueDictionary

from sparrow_py.actors.methods import Methods
from sparrow_py.actors.places import Place


class OwnersHandle(Methods):
    """Base of handles at the client that owns the actor."""

    __slots__ = ("__weakref__",)

    def works_here(self) -> bool:
        """Whether it may be used by the thread that asks."""
        raise NotImplementedError


_handles: WeakValueDictionary[Place, OwnersHandle] = WeakValueDictionary()
_loops: dict[tuple[str, int], asyncio.AbstractEventLoop] = {}
"""By the addresses at which clients of this process are dialled."""


def _forked() -> None:
    """The actors are the parent's: a worker, say, has to dial it."""
    _handles.clear()
    _loops.clear()


os.register_at_fork(after_in_child=_forked)


def note_address(host: str, port: int) -> None:
    """The loop that runs here is the one that answers there, until `forget_address`."""
    _loops[host, port] = asyncio.get_running_loop()


def forget_address(host: str, port: int) -> None:
    """Nobody is dialled there any more."""
    _loops.pop((host, port), None)


def answers_here(place: Place) -> bool:
    """Whether the thread that asks runs the loop that would have to answer if it dialled the place's owner."""
    try:
        return asyncio.get_running_loop() is _loops.get((place.host, place.port))
    except RuntimeError:  # None runs.
        return False


def note(place: Place, handle: OwnersHandle) -> None:
    """This is the owner's handle, as long as it lives."""
    _handles[place] = handle


def owners_handle(place: Place) -> OwnersHandle | None:
    """The owner's handle, if it is of this process and works in this thread."""
    handle = _handles.get(place)
    return handle if handle is not None and handle.works_here() else None
