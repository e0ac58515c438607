"""An event for which most often nobody waits."""

from __future__ import annotations

import threading


class LateEvent:
    """As `threading.Event`, whose lock and condition are made when somebody waits: they cost more than all else of it.

    Who waits looks whether it is set once the others may find the event; who sets it looks for the event once that is
    said. So one of the two sees the other.
    """

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Whether `set` was called."""
        return self._is_set

    def set(self) -> None:
        """Let those go on who wait, and who will."""
        self._is_set = True
        event = vars(self).get("_event")
        if event is not None:
            event.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False if the time ran out."""
        if self._is_set:
            return True
        event: threading.Event = vars(self).setdefault("_event", threading.Event())
        return self._is_set or event.wait(timeout_s)
