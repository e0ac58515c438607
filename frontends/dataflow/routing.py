"""What becomes of a message for a partition, by where the partition is and whose map is newer."""

from __future__ import annotations

from enum import StrEnum

HOPS_MAX = 8


class Action(StrEnum):
    ACCEPT = "accept"
    HOLD = "hold"
    """The partition is on its way here, or the news of that is."""
    FORWARD = "forward"
    """The sender's map is stale: it goes to the holder that the map here names."""
    RETURN = "return"
    """The partition is to come here, and not before the message's block is over: it goes to where that still is."""
    ERROR = "error"
    """The version names one holder, and two workers take it for different ones."""


class Presence(StrEnum):
    """Where a partition is, as its message's receiver knows."""

    HERE = "here"
    COMING = "coming"
    """It is awaited, and what is left of the message's block is done here."""
    LATER = "later"
    """It is awaited from a later block on."""
    NAMED = "named"
    """The map names this worker, and the order to fetch the partition is still to come."""
    AWAY = "away"


class Newer(StrEnum):
    """Whose entry of the map is newer."""

    SENDERS = "sender's"
    NEITHER = "neither"
    MINE = "mine"


Case = tuple[Presence, Newer]

RULES: dict[Case, Action] = {
    **{(Presence.HERE, newer): Action.ACCEPT for newer in Newer},
    **{(Presence.COMING, newer): Action.HOLD for newer in Newer},
    **{(Presence.LATER, newer): Action.RETURN for newer in Newer},
    **{(Presence.NAMED, newer): Action.HOLD for newer in Newer},
    (Presence.AWAY, Newer.SENDERS): Action.HOLD,
    (Presence.AWAY, Newer.NEITHER): Action.ERROR,
    (Presence.AWAY, Newer.MINE): Action.FORWARD,
}


def newer(senders: int, mine: int) -> Newer:
    """Whose version is the higher one."""
    if senders == mine:
        return Newer.NEITHER
    return Newer.SENDERS if senders > mine else Newer.MINE
