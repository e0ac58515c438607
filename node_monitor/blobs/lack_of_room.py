"""That a node has no room for large data, which other reasons why they cannot be had are told apart from."""

from __future__ import annotations

from typing import Self

from sparrow_py.wire import messages as m


class LackOfRoom(str):
    """The reason, in words as other reasons are. It passes, unless it is lasting: then the data are more than the node
    may keep at all, or for their user."""

    __slots__ = ("is_lasting",)

    is_lasting: bool

    def __new__(cls, why: str, *, is_lasting: bool = False) -> Self:
        """why: what is refused, and what is allowed."""
        reason = super().__new__(cls, f"no room: {why}")
        reason.is_lasting = is_lasting
        return reason

    @property
    def kind(self) -> str:
        """As schedulers are told it."""
        return m.NO_ROOM_EVER if self.is_lasting else m.NO_ROOM_NOW
