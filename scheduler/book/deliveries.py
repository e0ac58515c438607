"""Messages to clients are sent in order, and as fast as the clients read; outcomes are kept until clients have them.

A client says how many messages it has handled (`messages.Received`). `WINDOW_BYTES_MAX` may be on their way to it;
further messages wait here. So the link of a client that does not read for a while holds no more than a window:
the link's backlog never grows so far that the client is cut off. Messages that are sent again later are paced as well.

An outcome counts towards its user's `held_bytes_max` until the client has handled it. A user whose outcomes take more
has its jobs cancelled: at once if outcomes wait here for its client, else once they take more by a window. If the
client vanishes, its outcomes, and those that its jobs still produce, are kept for `client_grace_s`. If the client
comes back with a job in that time, it is told the job's outcomes, and none of these tasks runs again, even if the job
has ended.

Tasks that end without having run may be a million at once. `room` says how many of them the client may be told now; the
others are not settled before there is room, and so have no outcomes that would have to be kept (`wait_for_room`).

What a client has let go of is kept for whoever attaches to it (`Detachment`), and counts meanwhile.

Clients in this process are not announced (`client_up`): they have each message as soon as it is sent.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from scheduler.book.footprint import outcome_bytes
from scheduler.book.mailbox import GivenBack, Mailbox
from scheduler.book.undelivered import Detached, Key, Undelivered
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from scheduler.book.jobs import JobState, StageState
    from scheduler.book.ledger import Ledger
    from sparrow_py.wire.messages import Outcome

WINDOW_BYTES_MAX = 16 << 20
"""Bytes of messages that a client was sent and may not have. Half of `link_backlog_bytes_max` if that is less."""
TASK_WINDOW_BYTES_MAX = 1 << 20
"""The same for a client within a task: it shares the link of its node with others, and its messages take as little time
as those of its node do."""
NO_LIMIT = 1 << 62
NEWS_BYTES_MAX = 90_000_000
"""Messages besides outcomes, which are counted otherwise, that may wait for a user's clients, all together: one that
has more to hear is cut off."""
MESSAGE_BYTES = 300
"""A message that is no outcome counts as so many bytes: it has few numbers, or none."""
NUMBER_BYTES = 40
"""Of each number besides, in those that may have thousands."""
_MORE_BYTES: dict[type[m.Message], Callable[[Any], int]] = {
    m.AskResults: lambda message: NUMBER_BYTES * len(message.numbers),
    m.PlacedNow: lambda message: NUMBER_BYTES * len(message.tasks),
    m.Counted: lambda message: NUMBER_BYTES * (len(message.starts) + len(message.failures)),
    m.HandedOver: lambda message: NUMBER_BYTES * len(message.unstarted),
    m.Attached: lambda message: len(m.one_message_frame(message)),
}


class Deliveries:
    """See the module's docstring."""

    has_room: Callable[[list[StageState], float], None]
    """Called with stages that have waited for room, when there may be some."""
    detached_gone: Callable[[Undelivered], None]
    """Called with what was kept of a job that its client had let go of, and is kept no more."""
    left_alone: Callable[[Undelivered, float], None]
    """Called with what is kept of such a job when it is over, or when nobody is attached to it any more."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._send = ledger.to_client
        self._count = ledger.admission.holds
        self._boxes: dict[str, Mailbox] = {}
        self._by_key: dict[Key, Undelivered] = {}
        """All outcomes that are kept, also of jobs that have ended and of clients that have vanished."""
        self._stages_waiting: dict[Key, OrderedDict[StageState, None]] = {}
        """Stages of jobs that are here, with tasks that are settled once there is room to tell the client."""
        self._given_back: dict[str, GivenBack] = {}
        """Of each client what it has given back of the job that it is about to let go of."""
        self.overfull: set[str] = set()
        """Clients that have more to hear than may wait for their user's clients."""
        self._waiting_news: Counter[str] = Counter()
        """Bytes of messages besides outcomes that wait, by user."""
        self._window_bytes = min(WINDOW_BYTES_MAX, ledger.options.link_backlog_bytes_max // 2)

    # ---- clients -------------------------------------------------------------------------------

    def client_up(self, client: str, user: str, *, is_in_task: bool = False) -> None:
        """A client has connected which says what it has received. is_in_task: it is one within a task."""
        window_bytes = min(self._window_bytes, TASK_WINDOW_BYTES_MAX) if is_in_task else self._window_bytes
        self._boxes[client] = Mailbox(user, window_bytes)

    def client_down(self, client: str, jobs: Iterable[JobState], now_s: float, *, may_return: bool) -> None:
        """The client's link is gone. `jobs` are its jobs that have not ended. If the client may return, its outcomes
        are kept for a while."""
        box = self._boxes.pop(client, None)
        self.overfull.discard(client)
        if box is None:
            return
        self._count(box.user, -box.bytes)
        self._wait_less(box, box.waiting_bytes)
        self.take_given_back(client, "")
        kept = [one for one in box.jobs.values() if self._by_key.get(one.key) is one]
        detached = [one for one in kept if one.detached is not None]
        if detached:
            kept = [one for one in kept if one.detached is None]
            self._leave(detached, now_s)
        if not may_return:
            for one in kept:
                self._drop(one)
            self._look_for_room([one.key for one in kept], now_s)
            return
        for job in jobs:
            if job.undelivered is None:
                kept.append(self._begin(job))
            assert job.undelivered is not None
            job.undelivered.awaits_client = True
        self._keep_for_now(kept, now_s)

    def _keep_for_now(self, kept: list[Undelivered], now_s: float) -> None:
        """Keep these outcomes for `client_grace_s` from now on."""
        if not kept:
            return
        until_s = now_s + self._ledger.options.client_grace_s
        for one in kept:
            one.kept_until_s = until_s
        self._ledger.timers.at(until_s, lambda at_s: self._expire(kept, at_s))

    def _expire(self, kept: list[Undelivered], now_s: float) -> None:
        """The client has not come back with these jobs in time: nobody is told any more."""
        expired = [one for one in kept if one.kept_until_s <= now_s]  # Of others the client has come, and gone again.
        for one in expired:
            self._drop(one)
        self._look_for_room([one.key for one in expired], now_s)  # Nobody is left to whom too much may be told.

    def _drop(self, undelivered: Undelivered) -> None:
        """Keep these outcomes no longer."""
        undelivered.awaits_client = False
        if self._by_key.get(undelivered.key) is undelivered:
            self._nothing_left(undelivered)

    # ---- messages to clients -------------------------------------------------------------------

    def tell(self, client: str, message: m.Message) -> None:
        """Send a message that is no outcome, after all earlier messages to the client."""
        box = self._boxes.get(client)
        if box is None:
            self._send(client, message)
            return
        more_bytes = _MORE_BYTES.get(type(message))
        size = MESSAGE_BYTES if more_bytes is None else MESSAGE_BYTES + more_bytes(message)
        box.bytes += size
        self._count(box.user, size)
        if self._has_room(box, size):
            self._put(box, size, None, 0)
            self._send(client, message)
        else:
            box.waiting.append((size, None, message))
            box.waiting_bytes += size
            self._waiting_news[box.user] += size
            if self._waiting_news[box.user] > NEWS_BYTES_MAX:
                self.overfull.add(client)

    def _wait_less(self, box: Mailbox, size: int) -> None:
        """So many bytes of the messages besides outcomes wait no more."""
        box.waiting_bytes -= size
        self._waiting_news[box.user] -= size
        if not self._waiting_news[box.user]:
            del self._waiting_news[box.user]

    def check(self, client: str) -> None:
        """`LinkError` if the client, which has just said something, has more to hear than may wait."""
        if client not in self.overfull:
            return
        box = self._boxes[client]
        self.overfull.discard(client)
        if box.waiting_bytes and self._waiting_news[box.user] > NEWS_BYTES_MAX:
            raise LinkError(
                f"more than {NEWS_BYTES_MAX} bytes of messages wait for clients of this user: this one does not say "
                "what it has read"
            )

    def outcome(self, job: JobState, outcome: m.Outcome) -> bool:
        """Tell the job's client the outcome; False if more bytes are held for its user than may be."""
        client = job.client
        box = self._boxes.get(client)
        if box is None:
            self._send(client, outcome)
            kept = job.undelivered
            if kept is None or not kept.awaits_client:
                return True
            if kept.is_for_anybody and not outcome.node and not self._fits_nearly(job.user):
                return True  # It has not run, and its job was cancelled as it is: it is not worth more memory.
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
        """Whether the user is beyond its limit by no more than a window: a client that reads soon takes so much, and
        whoever attaches is told why tasks did not run."""
        admission = self._ledger.admission
        return admission.held_bytes.get(user, 0) <= admission.held_bytes_max + self._window_bytes

    def _begin(self, job: JobState) -> Undelivered:
        """From now on outcomes of the job are kept."""
        key = _key(job)
        before = self._by_key.get(key)
        if before is not None:  # Of a job that its client has submitted anew, as if it had never been here.
            self._drop(before)
        kept = self._by_key[key] = job.undelivered = Undelivered(key)
        return kept

    def _has_room(self, box: Mailbox, size: int) -> bool:
        """Whether a message may be sent now. One always may, however large."""
        return not box.waiting and (not box.sent or box.in_flight_bytes + size <= box.window_bytes)

    def room(self, job: JobState, size: int) -> int:
        """How many outcomes of this size the job's client may be told now. If nothing is on its way to it that is one
        at least, so that it says again what it has received."""
        box = self._boxes.get(job.client)
        if box is None:
            kept = job.undelivered
            waits = kept is not None and kept.awaits_client and not kept.is_for_anybody
            return 0 if waits else NO_LIMIT
        if box.waiting:
            return 0
        held, held_max = self._ledger.admission.held_bytes.get(job.user, 0), self._ledger.admission.held_bytes_max
        free = box.window_bytes - max(box.in_flight_bytes, held - held_max)
        return max(free // size, 0 if box.sent else 1)

    def wait_for_room(self, stage: StageState) -> None:
        """There is no room for outcomes of the stage's job: it is heard of again (`has_room`) when there may be."""
        job = stage.job
        box = self._boxes.get(job.client)
        if box is not None:
            if job.undelivered is None:  # What is kept of the job is looked at when the link ends.
                box.jobs[_key(job)] = self._begin(job)
            box.waiting_for_room[_key(job)] = None
        self._stages_waiting.setdefault(_key(job), OrderedDict())[stage] = None

    def next_may_look(self, client: str, now_s: float) -> None:
        """There may be room at the client for the first of the stages that wait for that. Whoever has heard of room
        says so once it needs no more: so an event is the work of those that find room, however many wait."""
        box = self._boxes.get(client)
        if box is None or not box.waiting_for_room:
            return
        key = next(iter(box.waiting_for_room))
        waiting = self._stages_waiting[key]
        stage = waiting.popitem(last=False)[0]
        if not waiting:
            del self._stages_waiting[key], box.waiting_for_room[key]
        self.has_room([stage], now_s)

    def _look_for_room(self, keys: Iterable[Key], now_s: float) -> None:
        """There may be room for what is to be told of these jobs."""
        stages = [stage for key in keys for stage in self._stages_waiting.pop(key, ())]
        if stages:
            self.has_room(stages, now_s)

    @staticmethod
    def _put(box: Mailbox, size: int, kept: Undelivered | None, task: int) -> None:
        """A message of this size is about to be sent. Of an outcome: where it is kept, and its task."""
        box.sent.append((size, kept, task))
        box.in_flight_bytes += size

    # ---- receipts ------------------------------------------------------------------------------

    def received(self, client: str, count: int, now_s: float) -> None:
        """The client has handled so many messages since it connected."""
        box = self._boxes.get(client)
        if box is None:
            return
        new = count - box.received
        if not 0 <= new <= len(box.sent):
            raise LinkError(f"{count} messages cannot have been received: {box.received + len(box.sent)} were sent")
        box.received = count
        self._handled(client, box, new, now_s)

    def _handled(self, client: str, box: Mailbox, count: int, now_s: float) -> None:
        """The client has the next `count` messages that it was sent."""
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
                if box.jobs.get(kept.key) is kept:  # Else the job has come again over this link.
                    del box.jobs[kept.key]
        if freed:
            self._count(box.user, -freed)
        if box.waiting:
            self._go_on(client, box)
        if count:
            self.next_may_look(client, now_s)

    def _go_on(self, client: str, box: Mailbox) -> None:
        """Send messages that wait, as far as there is room."""
        waiting = box.waiting
        while waiting and (not box.sent or box.in_flight_bytes + waiting[0][0] <= box.window_bytes):
            entry = waiting.popleft()
            if entry[1] is None:
                self._wait_less(box, entry[0])
                self._put(box, entry[0], None, 0)
                self._send(client, entry[2])
            elif (outcome := entry[1].outcomes.get(entry[2])) is not None:  # Else the job has left, or has come again.
                self._put(box, entry[0], entry[1], entry[2])
                self._send(client, outcome)

    # ---- jobs leave, and come back -------------------------------------------------------------

    def job_ended(self, job: JobState, now_s: float) -> None:
        """All outcomes of the job were told: its client has them, or they are on their way, or wait here."""
        kept = job.undelivered
        if kept is not None:
            kept.job_over = True
            self._waits_no_more(job)
            if kept.is_for_anybody:
                self.left_alone(kept, now_s)
            elif not kept.outcomes:
                self._nothing_left(kept)
                self._no_box_has(job)

    def _nothing_left(self, kept: Undelivered) -> None:
        """The client has all outcomes of this job, and no further one will come; or nobody will have them."""
        if self._by_key.get(kept.key) is kept:
            del self._by_key[kept.key]
            self._count(kept.key[0], -kept.clear())
            if kept.detached is not None:
                self.detached_gone(kept)

    def forget(self, job: JobState) -> None:
        """The job is another scheduler's: its client does not wait for outcomes from here."""
        if job.undelivered is not None:
            self._waits_no_more(job)
            self._drop(job.undelivered)
            self._no_box_has(job)

    def _waits_no_more(self, job: JobState) -> None:
        """The job leaves: none of its stages waits for room."""
        self._stages_waiting.pop(_key(job), None)
        box = self._boxes.get(job.client)
        if box is not None:
            box.waiting_for_room.pop(_key(job), None)

    def _no_box_has(self, job: JobState) -> None:
        """The end of the client's link no longer concerns the job's outcomes, and none of them is sent on it."""
        self._not_for(job.client, _key(job))

    def _not_for(self, client: str, key: Key) -> None:
        box = self._boxes.get(client)
        kept = None if box is None else box.jobs.pop(key, None)
        if box is not None and kept is not None and box.waiting:
            box.waiting = deque(entry for entry in box.waiting if entry[1] is not kept)

    def part(self, job: JobState, now_s: float) -> None:
        """The client submits the job again: outcomes that it may not have are kept until the job is admitted anew."""
        kept = job.undelivered
        if kept is None or self._by_key.get(kept.key) is not kept:  # Its outcomes were dropped as its client was gone.
            kept = self._begin(job)
        self._take_back(kept)
        self._waits_no_more(job)
        for task, outcome in job.settled_before.items():
            self._ledger.holds(job, -outcome_bytes(outcome))
            if task not in kept.outcomes:  # Else it was doomed before it arrived, and its client was told that last.
                self._count(job.user, kept.add(outcome))
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
        """Whether the job has been submitted again and outcomes of it are kept."""
        return job.epoch > 0 and _key(job) in self._by_key

    def give(self, job: JobState) -> None:
        """A job was admitted. If outcomes are kept of it, it has them itself until its tasks have arrived."""
        kept = self._by_key.pop(_key(job), None) if job.epoch else None
        if kept is not None:
            self._take_back(kept)
            job.settled_before = kept.outcomes
            size = kept.clear()
            self._count(job.user, -size)
            self._ledger.holds(job, size)

    # ---- jobs that go on without their client --------------------------------------------------

    def give_back(self, client: str, job_id: str, outcomes: Iterable[Outcome]) -> None:
        """The client gives back these outcomes of a job that it is about to let go of."""
        given = self._given_back.get(client)
        if given is None or given.job_id != job_id:
            self.take_given_back(client, "")
            given = self._given_back[client] = GivenBack(job_id, self._boxes[client].user)
        for outcome in outcomes:
            if given.is_too_much or outcome.task in given.outcomes.outcomes:
                continue
            if not self._count(given.user, given.outcomes.add(outcome)):
                given.is_too_much = True
                self._count(given.user, -given.outcomes.clear())

    def take_given_back(self, client: str, job_id: str) -> dict[int, Outcome] | None:
        """What the client has given back of this job, which counts no more; None if that was too much."""
        given = self._given_back.pop(client, None)
        if given is None:
            return {}
        outcomes = given.outcomes.outcomes
        self._count(given.user, -given.outcomes.clear())
        if given.job_id != job_id:
            return {}
        return None if given.is_too_much else outcomes

    def kept_of(self, key: Key) -> Undelivered | None:
        """What is kept of this job."""
        return self._by_key.get(key)

    def hears(self, client: str) -> bool:
        """Whether the client says what it has received."""
        return client in self._boxes

    def let_go(self, client: str, key: Key, detached: Detached, given_back: Iterable[Outcome]) -> Undelivered:
        """The client lets go of the job: what is on its way to it is void, and is kept with the rest."""
        kept, before = Undelivered(key), self._by_key.get(key)
        if before is not None:
            self._take_back(before)
            kept.outcomes, kept.large = before.outcomes, before.large
            kept.bytes, kept.job_over = before.bytes, before.job_over
            before.clear()
            self._not_for(client, key)
        self._by_key[key] = kept
        kept.awaits_client = True
        size = kept.detach(detached)
        size += sum([kept.add(outcome) for outcome in given_back if outcome.task not in kept.outcomes])
        self._count(key[0], size)
        return kept

    def nobody_waits(self, job: JobState, client: str, now_s: float) -> None:
        """The client has let go of the job, and nobody has it now: stages that waited until the client reads wait no
        more. The job may end by that."""
        box = self._boxes.get(client)
        if box is not None:
            box.waiting_for_room.pop(_key(job), None)
        self._look_for_room([_key(job)], now_s)

    def hand_to(self, client: str, kept: Undelivered) -> None:
        """The client attaches to the job: it is told what is kept, and what follows."""
        assert kept.detached is not None
        box = self._boxes[client]
        kept.detached.client, kept.awaits_client = client, False
        box.jobs[kept.key] = kept
        for task, outcome in kept.outcomes.items():
            size = outcome_bytes(outcome)
            if self._has_room(box, size):
                self._put(box, size, kept, task)
                self._send(client, outcome)
            else:
                box.waiting.append((size, kept, task))

    def told_all(self, kept: Undelivered) -> None:
        """The client that is attached was told all there is of the job, which is over."""
        assert kept.detached is not None
        if not kept.outcomes:
            self._not_for(kept.detached.client, kept.key)
            self._nothing_left(kept)

    def expire(self, kept: Undelivered) -> None:
        """Nobody has attached to the job in time."""
        self._drop(kept)

    def _leave(self, kept: Iterable[Undelivered], now_s: float) -> None:
        """The client that was attached to these jobs is gone: what it has not received is kept for another."""
        for one in kept:
            assert one.detached is not None
            one.detached.client, one.awaits_client = "", True
            self.left_alone(one, now_s)
            self._look_for_room([one.key], now_s)

    def _take_back(self, kept: Undelivered) -> None:
        """The job is its client's again, if that had let go of it."""
        if kept.detached is not None:
            self.detached_gone(kept)
            self._count(kept.key[0], -kept.take_back())

    # ---- the end, and what is held -------------------------------------------------------------

    def send_all(self) -> None:
        """This process is about to end: send all messages that wait."""
        self._window_bytes = NO_LIMIT
        for client, box in self._boxes.items():
            box.window_bytes = NO_LIMIT
            self._go_on(client, box)

    @property
    def is_done(self) -> bool:
        """Whether every client has all outcomes; nobody knows who may attach to what clients have let go of."""
        return not any(kept.outcomes and not kept.is_for_anybody for kept in self._by_key.values())

    def counted_bytes(self) -> dict[str, int]:
        """Bytes that count towards each user's `held_bytes_max` here, counted from scratch."""
        counted: dict[str, int] = {}
        for user, size in (
            *((box.user, box.bytes) for box in self._boxes.values()),
            *((kept.key[0], kept.bytes) for kept in self._by_key.values()),
            *((given.user, given.outcomes.bytes) for given in self._given_back.values()),
        ):
            if size:
                counted[user] = counted.get(user, 0) + size
        return counted


def _key(job: JobState) -> Key:
    return job.user, job.id, job.instance
