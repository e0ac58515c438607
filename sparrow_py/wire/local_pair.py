"""A link between two daemons of one process: no socket, no encoding, and no turn of the loop between them.

What a daemon sends in an event waits until that event is over, so that neither core is called while it is in the middle
of something: drivers `deliver` the pair at the end of their events. Then it is delivered, and what the other side
answers, and so on for a few rounds; what is left goes on in the loop's next turn, as others want theirs. Messages that
were sent outside of such an event are delivered in the next turn, too.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Protocol

from sparrow_py.errors import InvalidRequest, LinkError
from sparrow_py.wire import messages as m

log = logging.getLogger("sparrow.links")
ROUNDS_MAX = 8
"""Deliveries to either side before others have their turn: an ask, its answer and the report that follows are three."""
INTERNAL_ERROR = "internal error"


class Owner(Protocol):
    """A daemon that has one of the ends."""

    def said(self, batch: list[Any]) -> None:
        """What the other side has sent; `LinkError` or `InvalidRequest` if it may not have been sent. The event ends
        with `deliver`."""

    def gone(self, reason: str) -> None:
        """The pair is closed."""


class LocalEnd:
    """One end of the pair: a link to the other."""

    version = m.PROTOCOL_VERSION
    """As of a `Link`: both sides are of one release."""
    closing = False
    """As of a `Link`, in the middle of a batch: a pair is closed between them."""

    def __init__(self, pair: LocalPair, peer: str) -> None:
        self.peer = peer
        self.owner: Owner | None = None
        """Whose end it is; until somebody has it, what is for it waits."""
        self.unsent: list[bytearray] = []
        """As of a `Link`: nothing, as what was sent has arrived or is on its way."""
        self._pair = pair
        self._queued: list[m.Message] = []

    @property
    def closed_because(self) -> str:
        """Why the pair was closed; empty while it stands."""
        return self._pair.closed_because

    def send(self, message: m.Message) -> None:
        """Queue a message; after the pair has closed it is dropped."""
        if not self._pair.closed:
            self._queued.append(message)
            self._pair.deliver_soon()

    def take(self) -> list[m.Message]:
        """What was queued here, which is nothing from now on."""
        taken, self._queued = self._queued, []
        return taken

    def deliver(self) -> None:
        """An event of this side is over."""
        self._pair.deliver()

    def close(self, reason: str) -> None:
        """Close the pair once this event is over; both sides hear why."""
        self._pair.close_soon(reason)

    async def aclose(self, reason: str = "") -> None:
        """Deliver what was sent, then close the pair."""
        self._pair.close(reason)


class LocalPair:
    """Both ends. Each side gives its end an `owner`, and then may send."""

    def __init__(self, dialled: str, dialler: str) -> None:
        """The names of the scheduler and of the node monitor."""
        self.dialler = LocalEnd(self, dialled)
        """The end of the node monitor."""
        self.dialled = LocalEnd(self, dialler)
        """The end of the scheduler."""
        self.closed = False
        self.closed_because = ""
        self._delivering = False
        self._due: asyncio.Handle | None = None

    def deliver_soon(self) -> None:
        """In the loop's next turn at the latest."""
        if self._due is None and not self._delivering:
            self._due = asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._due = None
        self.deliver()

    def deliver(self) -> None:
        """Deliver what was sent, and what is answered to it: unless this is called from within a delivery, whose end
        will do."""
        if self._delivering or self.closed:
            return
        self._delivering = True
        try:
            for _ in range(ROUNDS_MAX):
                if not self._delivered(self.dialled, self.dialler) | self._delivered(self.dialler, self.dialled):
                    return
        finally:
            self._delivering = False
        self.deliver_soon()

    def _delivered(self, sender: LocalEnd, receiver: LocalEnd) -> bool:
        """Deliver what was sent at this end, to the other; whether that was anything."""
        owner = receiver.owner
        batch = [] if owner is None else sender.take()
        if owner is None or not batch:
            return False
        try:
            owner.said(batch)
        except (LinkError, InvalidRequest) as error:
            log.warning("%s in this process is cut off: %s", receiver.peer, error)
            self.close_soon(str(error))
        except Exception:  # A bug of ours: it must not reach whose event this delivery follows.
            log.exception("the link to %s in this process failed", receiver.peer)
            self.close_soon(INTERNAL_ERROR)
        return True

    def close_soon(self, reason: str) -> None:
        """Close it in the loop's next turn."""
        asyncio.get_running_loop().call_soon(self.close, reason)

    def close(self, reason: str) -> None:
        """Deliver what was sent, then close; both sides hear why."""
        self.deliver()
        if self.closed:
            return
        self.closed, self.closed_because = True, reason or "the link was closed"
        if self._due is not None:
            self._due.cancel()
        for end in (self.dialled, self.dialler):
            end.take()
            if end.owner is not None:
                end.owner.gone(self.closed_because)
