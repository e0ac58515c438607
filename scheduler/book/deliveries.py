"""What is told to clients goes out in order and as fast as they read; outcomes are kept until clients have them.

A client says how much of what it was sent it has handled (`messages.Received`). So much as `WINDOW_BYTES_MAX` may be on
its way; what follows waits here. So a client that does not read for a while has no more than that in its link, whose
backlog is never what cuts it off, and what is replayed to it later is paced as well.

An outcome counts to its user's `held_bytes_max` until the client has handled it. Beyond that, by a window, the user's
jobs are cancelled, and at once if the client is behind. If the client vanishes meanwhile, its
outcomes, and those of its jobs that are still to come, are kept for `client_grace_s`. When the client comes back with a
job, those are told to it, and none of these tasks runs again: also if the job has ended here long since.

Clients that were not announced (`client_up`) have what they are told at once: those in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from scheduler.book.undelivered import Key, Undelivered
from sparrow_py.errors import LinkError

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState
    from scheduler.book.ledger import Ledger
    from sparrow_py.wire import messages as m

WINDOW_BYTES_MAX = 16 << 20
"""On their way to a client that has not said that it has them; and half of `link_backlog_bytes_max` at most."""
NEWS_MAX = 300_000
"""Messages besides outcomes, which are counted otherwise, that a client may not have received: one that asks for more
is cut off."""
MESSAGE_BYTES = 300
"""What a message that is no outcome counts for, about."""


class Mailbox:
    """Of a connected client: what it was sent and may not have, and what is to be sent as soon as it reads."""

    __slots__ = ("bytes", "in_flight_bytes", "jobs", "received", "sent", "user", "waiting")

    def __init__(self, user: str) -> None:
        self.user = user
        self.received = 0
        """How many messages the client has said to have."""
        self.sent: deque[tuple[int, Undelivered | None, int]] = deque()
        """Size of each message after those; of an outcome where it is kept, and its task."""
        self.in_flight_bytes = 0
        self.waiting: deque[tuple[int, Undelivered, int] | tuple[int, None, m.Message]] = deque()
        """The same of what is still to be sent; what is no outcome, itself."""
        self.bytes = 0
        """What those of both that are no outcomes count for; outcomes count where they are kept."""
        self.jobs: dict[Key, Undelivered] = {}
        """The jobs of which outcomes are kept, or were."""


class Deliveries:
    """See the module's docstring."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._send = ledger.to_client
        self._count = ledger.admission.holds
        self._boxes: dict[str, Mailbox] = {}
        self._by_key: dict[Key, Undelivered] = {}
        """All that is kept, also of jobs that have ended and of clients that have vanished."""
        self.overfull: set[str] = set()
        """Clients that have more to hear than `NEWS_MAX` messages."""
        self._window_bytes = min(WINDOW_BYTES_MAX, ledger.options.link_backlog_bytes_max // 2)

    # ---- clients -----------------------------------------------------------------------------

    def client_up(self, client: str, user: str) -> None:
        """A client has connected which says what it has received."""
        self._boxes[client] = Mailbox(user)

    def client_down(self, client: str, jobs: Iterable[JobState], now_s: float, *, may_return: bool) -> None:
        """Its link is gone. These jobs are its own. If it may come back, outcomes are kept for it for a while."""
        box = self._boxes.pop(client, None)
        self.overfull.discard(client)
        if box is None:
            return
        self._count(box.user, -box.bytes)
        kept = [one for one in box.jobs.values() if self._by_key.get(one.key) is one]
        if not may_return:
            self._expire(kept)
            return
        for job in jobs:
            if job.undelivered is None:
                kept.append(self._begin(job))
            assert job.undelivered is not None
            job.undelivered.awaits_client = True
        self._keep_for_now(kept, now_s)

    def _keep_for_now(self, kept: list[Undelivered], now_s: float) -> None:
        if kept:
            self._ledger.timers.at(now_s + self._ledger.options.client_grace_s, lambda _: self._expire(kept))

    def _expire(self, kept: list[Undelivered]) -> None:
        """The client has not come back with these jobs: nobody is told any more."""
        for one in kept:
            self._drop(one)

    def _drop(self, undelivered: Undelivered) -> None:
        undelivered.awaits_client = False
        if self._by_key.get(undelivered.key) is undelivered:
            del self._by_key[undelivered.key]
            self._count(undelivered.key[0], -undelivered.clear())

    # ---- what is told ------------------------------------------------------------------------

    def tell(self, client: str, message: m.Message) -> None:
        """Send a message that is no outcome: after all that the client was told before."""
        box = self._boxes.get(client)
        if box is None:
            self._send(client, message)
            return
        box.bytes += MESSAGE_BYTES
        self._count(box.user, MESSAGE_BYTES)
        if self._has_room(box, MESSAGE_BYTES):
            self._put(box, MESSAGE_BYTES, None, 0)
            self._send(client, message)
        else:
            box.waiting.append((MESSAGE_BYTES, None, message))
            if box.bytes > NEWS_MAX * MESSAGE_BYTES:
                self.overfull.add(client)

    def check(self, client: str) -> None:
        """`LinkError` if the client, which has just said something, has more to hear than may wait."""
        if client in self.overfull:
            raise LinkError(
                f"more than {NEWS_MAX} messages are not received yet: the client does not say what it has read"
            )

    def outcome(self, job: JobState, outcome: m.Outcome) -> bool:
        """Tell the job's client the outcome; False if its user takes more bytes than may be held."""
        client = job.client
        box = self._boxes.get(client)
        if box is None:
            self._send(client, outcome)
            kept = job.undelivered
            if kept is None or not kept.awaits_client:
                return True
            return self._count(job.user, kept.add(outcome))
        kept = job.undelivered
        if kept is None:
            kept = box.jobs[_key(job)] = self._begin(job)
        size = kept.add(outcome)
        fits = self._count(job.user, size)
        if self._has_room(box, size):
            self._put(box, size, kept, outcome.task)
            self._send(client, outcome)
            return fits or self._fits_nearly(job.user)
        box.waiting.append((size, kept, outcome.task))
        return fits

    def _fits_nearly(self, user: str) -> bool:
        """What is on its way to a client that reads is beyond the limit for a moment only."""
        admission = self._ledger.admission
        return admission.held_bytes.get(user, 0) <= admission.held_bytes_max + self._window_bytes

    def _begin(self, job: JobState) -> Undelivered:
        key = _key(job)
        before = self._by_key.get(key)
        if before is not None:  # Of a job that its client has submitted anew, as if it had never been here.
            self._drop(before)
        kept = self._by_key[key] = job.undelivered = Undelivered(key)
        return kept

    def _has_room(self, box: Mailbox, size: int) -> bool:
        """Whether a message may be sent now. One always may, however large."""
        return not box.waiting and (not box.sent or box.in_flight_bytes + size <= self._window_bytes)

    @staticmethod
    def _put(box: Mailbox, size: int, kept: Undelivered | None, task: int) -> None:
        box.sent.append((size, kept, task))
        box.in_flight_bytes += size

    # ---- what has been received --------------------------------------------------------------

    def received(self, client: str, count: int) -> None:
        """The client has handled so many messages since it connected."""
        box = self._boxes.get(client)
        if box is None:
            return
        news = count - box.received
        if not 0 <= news <= len(box.sent):
            raise LinkError(f"{count} messages cannot have been received: {box.received + len(box.sent)} were sent")
        box.received = count
        self._handled(client, box, news)

    def received_all(self, client: str) -> None:
        """The client, which does not say what it has received, has read all that was sent to it."""
        box = self._boxes.get(client)
        if box is not None and box.sent:
            box.received += len(box.sent)
            self._handled(client, box, len(box.sent))

    def _handled(self, client: str, box: Mailbox, count: int) -> None:
        freed = 0
        for _ in range(count):
            size, kept, task = box.sent.popleft()
            box.in_flight_bytes -= size
            if kept is None:
                box.bytes -= size
                freed += size
                continue
            freed += kept.remove(task, size)
            if kept.job_over and not kept.outcomes:
                self._nothing_left(kept)
                box.jobs.pop(kept.key, None)
        if freed:
            self._count(box.user, -freed)
        if box.waiting:
            self._go_on(client, box)

    def _go_on(self, client: str, box: Mailbox) -> None:
        """There may be room for what waits."""
        waiting = box.waiting
        while waiting and (not box.sent or box.in_flight_bytes + waiting[0][0] <= self._window_bytes):
            entry = waiting.popleft()
            if entry[1] is None:
                self._put(box, entry[0], None, 0)
                self._send(client, entry[2])
            elif (outcome := entry[1].outcomes.get(entry[2])) is not None:  # Else it is not this client's any more.
                self._put(box, entry[0], entry[1], entry[2])
                self._send(client, outcome)

    # ---- jobs leave, and come back -----------------------------------------------------------

    def job_ended(self, job: JobState) -> None:
        """All its outcomes have been told, here or on their way."""
        kept = job.undelivered
        if kept is not None:
            kept.job_over = True
            if not kept.outcomes:
                self._nothing_left(kept)
                self._no_box_has(job)

    def _nothing_left(self, kept: Undelivered) -> None:
        if self._by_key.get(kept.key) is kept:
            del self._by_key[kept.key]

    def forget(self, job: JobState) -> None:
        """The job is another scheduler's: its client does not wait for outcomes from here."""
        if job.undelivered is not None:
            self._drop(job.undelivered)
            self._no_box_has(job)

    def _no_box_has(self, job: JobState) -> None:
        box = self._boxes.get(job.client)
        kept = None if box is None else box.jobs.pop(_key(job), None)
        if box is not None and kept is not None and box.waiting:
            box.waiting = deque(entry for entry in box.waiting if entry[1] is not kept)

    def part(self, job: JobState, now_s: float) -> None:
        """The job's client comes with it again: what it may not have is kept until the job has been admitted anew."""
        kept = job.undelivered or self._begin(job)
        for outcome in job.settled_before.values():
            size = kept.add(outcome)
            self._ledger.holds(job, -size)
            self._count(job.user, size)
        job.settled_before = {}
        self._no_box_has(job)
        job.undelivered = None
        kept.awaits_client = False
        kept.job_over = True
        if kept.outcomes:
            self._keep_for_now([kept], now_s)
        else:
            self._nothing_left(kept)

    def keeps(self, job: JobState) -> bool:
        """Whether outcomes are kept of the job, which has come back."""
        return job.epoch > 0 and _key(job) in self._by_key

    def give(self, job: JobState) -> None:
        """The job, which has come back, was admitted: what is kept is its own until its tasks have arrived."""
        kept = self._by_key.pop(_key(job), None) if job.epoch else None
        if kept is not None:
            job.settled_before = kept.outcomes
            size = kept.clear()
            self._count(job.user, -size)
            self._ledger.holds(job, size)

    # ---- the end, and what people look at ----------------------------------------------------

    def send_all(self) -> None:
        """This process is about to end: send what waits."""
        self._window_bytes = 1 << 62
        for client, box in self._boxes.items():
            self._go_on(client, box)

    @property
    def is_done(self) -> bool:
        """Whether every client has all outcomes."""
        return not any(kept.outcomes for kept in self._by_key.values())

    def counted_bytes(self) -> dict[str, int]:
        """What is held here, by user, by a count from scratch."""
        counted: dict[str, int] = {}
        for user, size in (
            *((box.user, box.bytes) for box in self._boxes.values()),
            *((kept.key[0], kept.bytes) for kept in self._by_key.values()),
        ):
            if size:
                counted[user] = counted.get(user, 0) + size
        return counted


def _key(job: JobState) -> Key:
    return job.user, job.id, job.instance
