"""Handles that come back to the process whose client owns the actor, copied or from a task: they are the owner's own
there. One that dialled would, on an asyncio client's loop, wait for that very loop to answer."""

from __future__ import annotations

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
os.register_at_fork(after_in_child=_handles.clear)  # The actors are the parent's: a worker, say, has to dial it.


def note(place: Place, handle: OwnersHandle) -> None:
    """This is the owner's handle, as long as it lives."""
    _handles[place] = handle


def owners_handle(place: Place) -> OwnersHandle | None:
    """The owner's handle, if it is of this process and works in this thread."""
    handle = _handles.get(place)
    return handle if handle is not None and handle.works_here() else None
