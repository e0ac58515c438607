"""What happened lately at a node, for people who look for a bug."""

from __future__ import annotations

from collections import deque


class History:
    """The latest notes, `len_max` of them; with 0 nothing is kept, and a note costs nothing."""

    __slots__ = ("_notes", "kept")

    def __init__(self, len_max: int) -> None:
        self._notes: deque[tuple[float, str]] | None = deque(maxlen=len_max) if len_max > 0 else None
        """None where nothing is kept: an empty deque takes 800 bytes, and a process may have thousands of nodes."""
        self.kept = len_max > 0

    def note(self, now_s: float, text: str, *values: object) -> None:
        """Keep this; it is formatted only then."""
        if self._notes is not None:
            self._notes.append((now_s, text % values))

    def story(self) -> list[str]:
        """All notes, oldest first."""
        return [f"{at_s:.6f} {text}" for at_s, text in self._notes or ()]
