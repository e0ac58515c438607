"""An event for which most often nobody waits."""

from __future__ import annotations

from sparrow_py.futures.sleepers import Sleepers


class LateEvent:
    """As `threading.Event`, whose lock and condition cost more than all else of it: here is only what who waits makes,
    when it waits. A signal's handler that raises leaves nothing locked."""

    def __init__(self) -> None:
        self._is_set = False

    def is_set(self) -> bool:
        """Whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Let those go on who wait, and who will."""
        self._is_set = True
        sleepers: Sleepers | None = vars(self).get("_sleepers")
        if sleepers is not None:
            sleepers.wake()

    def clear(self) -> None:
        """Who waits from now on waits until it is set again."""
        self._is_set = False

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is set; False if the time ran out."""
        if self._is_set:
            return True
        sleepers: Sleepers = vars(self).setdefault("_sleepers", Sleepers())
        return sleepers.sleep_until(self.is_set, timeout_s)
