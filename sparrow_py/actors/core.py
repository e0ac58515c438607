"""What an actor's owner decides: in which state the actor is, which call is next, and what becomes of each.

One call is with the actor at a time. So at every moment at most one call is such that nobody knows whether it has run,
should the actor be lost: all others are answered, or have not left. A call whose actor is lost while it has the call
fails, unless calls may be retried; those that wait go to the actor that is started in its place.

Pure: events in, effects out to an `Outbox`.
"""

from __future__ import annotations

import enum
from collections import OrderedDict, deque
from dataclasses import dataclass
from typing import Protocol

from sparrow_py.errors import ActorLost, InvariantViolated, Refused

WAITING_BYTES_MAX = 256 << 20
"""Of the arguments of calls that wait for an actor."""
PAUSE_MIN_S, PAUSE_MAX_S = 0.1, 10.0
"""Before an actor is started again that was lost before it was ready: it doubles each time."""
STORY_EVENTS_MAX = 50
"""Events that a violated invariant tells."""


class ActorState(enum.Enum):
    """Of an actor, as its handle says."""

    STARTING = "starting"
    """It waits for a slot, or is being constructed."""
    READY = "ready"
    RESTARTING = "restarting"
    """It was lost, or moves, and waits for a slot, or is being constructed."""
    LOST = "lost"
    STOPPED = "stopped"


ENDED = frozenset({ActorState.LOST, ActorState.STOPPED})


class Outbox(Protocol):
    """Effects."""

    def start(self, incarnation: int, state: bytes, pause_s: float) -> None:
        """Submit the actor's task, after the pause; `state`: the pickled object, or empty: then construct it."""

    def end(self, incarnation: int, *, at_once: bool) -> None:
        """End the actor's task; `at_once`: whatever it does."""

    def begins(self, number: int) -> bool:
        """Whether this call is still wanted, as its turn has come; asked once."""

    def send(self, number: int, method: str, payload: bytes) -> None:
        """Have the actor run this call."""

    def settle(self, number: int, value: bytes, *, raised: bool) -> None:
        """The call has ended."""

    def fail(self, number: int, error: ActorLost | Refused) -> None:
        """The call has not run, or nobody knows whether it has."""

    def changed(self) -> None:
        """The actor has another state."""


@dataclass(slots=True, eq=False)
class _Call:
    number: int
    method: str
    payload: bytes
    retries: int
    is_sent: bool = False


class ActorCore:
    """Of one actor. Incarnations are numbered from 1; what is told of an earlier one counts for nothing.

    max_restarts: how often it is started again after it was lost. call_retries: how often a call is run again that the
    actor had when it was lost.
    """

    def __init__(self, outbox: Outbox, name: str, *, max_restarts: int, call_retries: int, waiting_max: int) -> None:
        self._outbox = outbox
        self.name = name
        self.state = ActorState.STARTING
        self.incarnation = 0
        self.node = ""
        """Where it was lost; empty if nobody knows."""
        self.reason = ""
        """Why it has ended, or was started again the last time."""
        self.cause: BaseException | None = None
        """The exception by which it has ended, if it was one."""
        self._restarts_left = max_restarts
        self._call_retries = call_retries
        self._waiting_max = waiting_max
        self._waiting: OrderedDict[int, _Call] = OrderedDict()
        self._waiting_bytes = 0
        self._running: _Call | None = None
        """The call that the actor has, or that is the next one to be run again."""
        self._is_cut_off = False
        """Whether nothing more can be sent to this incarnation, of which it is not known yet what became of it."""
        self._jobless = ""
        """Why the cluster has given up the job of this incarnation, which goes on as long as the connection to it."""
        self._fruitless = 0
        """Incarnations in a row that were lost before they were ready."""
        self._story: deque[str] = deque(maxlen=STORY_EVENTS_MAX)

    # ---- the owner ---------------------------------------------------------------------------

    def begin(self) -> None:
        """Start the actor."""
        self._start(b"", 0.0)

    def call(self, number: int, method: str, payload: bytes) -> None:
        """Call a method after all that was called before. number: never used before."""
        if self.state in ENDED:
            self._outbox.fail(number, self.error())
        elif len(self._waiting) >= self._waiting_max:
            self._outbox.fail(number, Refused(f"{self._waiting_max} calls wait for {self.name}: waiting_calls_max"))
        elif self._waiting_bytes + len(payload) > WAITING_BYTES_MAX:
            limit = f"WAITING_BYTES_MAX = {WAITING_BYTES_MAX}"
            self._outbox.fail(number, Refused(f"calls with {self._waiting_bytes} bytes wait for {self.name}: {limit}"))
        else:
            self._waiting[number] = _Call(number, method, payload, self._call_retries)
            self._waiting_bytes += len(payload)
            if self._running is None:
                self._pump()

    def cancelled(self, number: int) -> None:
        """The call is not wanted any more: another may have its place, if it waits for its turn."""
        call = self._waiting.pop(number, None)
        if call is not None:
            self._waiting_bytes -= len(call.payload)
            self._outbox.begins(number)

    def stop(self, reason: str) -> None:
        """End the actor; calls that are not answered fail."""
        if self.state not in ENDED:
            self._finish(ActorState.STOPPED, "", reason)

    def error(self) -> ActorLost:
        """What calls fail with once the actor has ended."""
        error = ActorLost(self.name, self.node, self.reason)
        error.__cause__ = self.cause
        return error

    # ---- the actor ---------------------------------------------------------------------------

    def ready(self, incarnation: int) -> None:
        """It has been constructed."""
        if incarnation == self.incarnation and self.state in (ActorState.STARTING, ActorState.RESTARTING):
            self._fruitless = 0
            self._is_cut_off = False
            self._become(ActorState.READY)
            self._pump()

    def goes_on_without_job(self, incarnation: int, why: str) -> bool:
        """The cluster has given up its job, and not because the actor has ended. Whether it goes on all the same, as
        one does that is ready, for as long as the connection to it stands."""
        if incarnation == self.incarnation and self.state is ActorState.READY and not self._is_cut_off:
            self._jobless = why
        return bool(self._jobless)

    def cut_off(self, incarnation: int, node: str, reason: str) -> None:
        """The connection to it has ended: calls that have not left wait for the next one. Of one without a job nobody
        else says that it is lost."""
        if incarnation == self.incarnation:
            self._is_cut_off = True
            if self._jobless:
                self.lost(incarnation, node, f"{reason}; before that the cluster gave up its task: {self._jobless}")

    def answered(self, incarnation: int, number: int, value: bytes, *, raised: bool) -> None:
        """It has run the call that it had."""
        call = self._running
        if incarnation != self.incarnation or self.state is not ActorState.READY:
            return
        if call is None or call.number != number or not call.is_sent:
            return
        self._running = None
        self._outbox.settle(number, value, raised=raised)
        self._pump()

    def moves(self, incarnation: int, state: bytes) -> None:
        """Its lease is over, and it goes on elsewhere with this state; it had no call."""
        if incarnation != self.incarnation or self.state is not ActorState.READY:
            return
        self._has_not_begun()
        self.reason = "its lease was over, and it was another user's turn"
        self._become(ActorState.RESTARTING)
        self._start(state, 0.0)

    def cannot_move(self, incarnation: int, node: str, why: str) -> None:
        """Its lease is over, and its state cannot go on elsewhere; it had no call."""
        if incarnation == self.incarnation and self.state is ActorState.READY:
            self._has_not_begun()
            self.lost(incarnation, node, f"its lease was over, and its state cannot be pickled: {why}")

    def lost(self, incarnation: int, node: str, reason: str) -> None:
        """It is gone: its process, its node, or the connection to it."""
        if incarnation != self.incarnation or self.state in ENDED:
            return
        if not self._restarts_left:
            self._finish(ActorState.LOST, node, reason)
            return
        self._restarts_left -= 1
        self.node, self.reason = node, reason
        self._outbox.end(incarnation, at_once=True)
        self._become(ActorState.RESTARTING)
        self._take_back(ActorLost(self.name, node, f"{reason}; it is started again, and this call may have run"))
        pause_s = min(PAUSE_MIN_S * 2.0 ** min(self._fruitless - 1, 20), PAUSE_MAX_S) if self._fruitless else 0.0
        self._fruitless += 1
        self._start(b"", pause_s)

    def not_unpickled(self, incarnation: int, node: str, error: BaseException) -> None:
        """It had moved, and its state cannot be unpickled where it was to go on: if it may it is constructed anew."""
        reason = f"it had moved, and its state cannot be unpickled: {type(error).__name__}: {error}"
        if self._restarts_left:
            self.lost(incarnation, node, reason)
        else:
            self.given_up(incarnation, node, reason, error)

    def given_up(self, incarnation: int, node: str, reason: str, cause: BaseException | None) -> None:
        """It can never be ready: its constructor raised, or its job was refused or cancelled."""
        if incarnation == self.incarnation and self.state not in ENDED:
            self.cause = cause
            self._finish(ActorState.LOST, node, reason)

    # ---- what follows ------------------------------------------------------------------------

    def _start(self, state: bytes, pause_s: float) -> None:
        self.incarnation += 1
        self._outbox.start(self.incarnation, state, pause_s)

    def _become(self, state: ActorState) -> None:
        self._jobless = ""
        self._story.append(f"{self.state.value} -> {state.value}, incarnation {self.incarnation}: {self.reason}")
        self.state = state
        self._outbox.changed()

    def _pump(self) -> None:
        """Give the actor the next call, if it is ready."""
        if self.state is not ActorState.READY or self._is_cut_off:
            return
        call = self._running
        while call is None and self._waiting:
            _, first = self._waiting.popitem(last=False)
            self._waiting_bytes -= len(first.payload)
            call = first if self._outbox.begins(first.number) else None
        self._running = call
        if call is not None and not call.is_sent:
            call.is_sent = True
            self._outbox.send(call.number, call.method, call.payload)

    def _has_not_begun(self) -> None:
        """A call that was sent to it crossed its message that it ends: the next one is to run it."""
        if self._running is not None:
            self._running.is_sent = False

    def _take_back(self, error: ActorLost) -> None:
        """The actor is gone with the call that it had."""
        call = self._running
        if call is None or not call.is_sent:
            return
        if call.retries:
            call.retries -= 1
            call.is_sent = False
        else:
            self._running = None
            self._outbox.fail(call.number, error)

    def _finish(self, state: ActorState, node: str, reason: str) -> None:
        had_call = self._running is not None and self._running.is_sent
        self.node, self.reason = node, reason
        is_idle = self.state is ActorState.READY and not had_call and not self._is_cut_off
        self._outbox.end(self.incarnation, at_once=not is_idle)
        self._become(state)
        unanswered = [self._running] if self._running is not None else []
        unanswered += self._waiting.values()
        self._running, self._waiting_bytes = None, 0
        self._waiting.clear()
        for call in unanswered:
            self._outbox.fail(call.number, self.error())

    def check_invariants(self) -> None:
        """Raise `InvariantViolated` if something cannot be."""
        problems = []
        if self._waiting_bytes != sum(len(call.payload) for call in self._waiting.values()):
            problems.append("bytes of waiting calls are miscounted")
        if len(self._waiting) > self._waiting_max or self._waiting_bytes > WAITING_BYTES_MAX:
            problems.append("more waits than may")
        if any(call.is_sent for call in self._waiting.values()):
            problems.append("a call waits that the actor has")
        if self.state in ENDED and (self._waiting or self._running is not None):
            problems.append("calls wait for an actor that has ended")
        if self.state is ActorState.READY and not self._is_cut_off and self._running is None and self._waiting:
            problems.append("a call waits though the actor has nothing to do")
        if self._jobless and (self.state is not ActorState.READY or self._is_cut_off):
            problems.append("an actor without a job goes on without a connection")
        running = self._running
        if self.state is not ActorState.READY and running is not None and running.is_sent:
            problems.append("an actor that is not ready has a call")
        if problems:
            raise InvariantViolated("; ".join(problems), list(self._story))
