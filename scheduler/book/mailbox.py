"""What is kept for a connected client: messages on their way to it, and what it gives back of a job that it is about to
let go of. `Deliveries` alone changes them."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import TYPE_CHECKING

from scheduler.book.undelivered import Key, Undelivered

if TYPE_CHECKING:
    from sparrow_py.wire import messages as m


class Mailbox:
    """Messages to a connected client: those that it was sent and may not have, and those that wait until it reads."""

    __slots__ = (
        "bytes", "in_flight_bytes", "jobs", "received", "sent", "user", "waiting", "waiting_bytes", "waiting_for_room",
        "window_bytes",
    )  # fmt: skip

    def __init__(self, user: str, window_bytes: int) -> None:
        self.user = user
        self.window_bytes = window_bytes
        """What may be on its way to it."""
        self.received = 0
        """How many messages the client has said to have."""
        self.sent: deque[tuple[int, Undelivered | None, int]] = deque()
        """Messages that were sent after those. Of an outcome: its size, where it is kept, its task. Of any other
        message: its size, None, 0."""
        self.in_flight_bytes = 0
        """The sizes of these messages together."""
        self.waiting: deque[tuple[int, Undelivered, int] | tuple[int, None, m.Message]] = deque()
        """Messages that are to be sent. Of an outcome: its size, where it is kept, its task. Of any other message: its
        size, None, the message."""
        self.bytes = 0
        """Sizes of the messages in `sent` and `waiting` that are no outcomes. Outcomes count where they are kept."""
        self.waiting_bytes = 0
        """Of these those in `waiting`."""
        self.jobs: dict[Key, Undelivered] = {}
        """Jobs with outcomes that were put into `sent` or `waiting`, and where these outcomes are kept."""
        self.waiting_for_room: OrderedDict[Key, None] = OrderedDict()
        """Jobs with tasks that are settled once there is room."""


class GivenBack:
    """Outcomes that a client has given back of a job that it is about to let go of."""

    __slots__ = ("is_too_much", "job_id", "outcomes", "user")

    def __init__(self, job_id: str, user: str) -> None:
        self.job_id = job_id
        self.user = user
        self.outcomes = Undelivered((user, job_id, 0))
        self.is_too_much = False
        """Whether they were more bytes than may be held, so that none is kept."""
