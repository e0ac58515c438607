"""An actor at the client that owns it: the driver of `ActorCore`. It submits the actor's task, has the connection that
comes from the task, and passes on what callers in tasks say. All methods run on the client's loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from sparrow_py.actors.answers import decode_error
from sparrow_py.actors.core import ENDED, ActorCore, ActorState
from sparrow_py.actors.door import Guest
from sparrow_py.actors.messages import (
    METHOD_CHARS_MAX,
    Answer,
    Call,
    IsActor,
    IsCaller,
    Moves,
    NotConstructed,
    Ready,
    Stop,
)
from sparrow_py.actors.places import Place
from sparrow_py.actors.returned import OwnersHandle
from sparrow_py.actors.serving import serve
from sparrow_py.call_jobs import CallOptions, Uploaded, encoded_function
from sparrow_py.calls import APP
from sparrow_py.errors import ActorLost, LinkError, Refused, ResultLost, SparrowError
from sparrow_py.exception_pickling import encode_exception
from sparrow_py.futures.outcomes import failure
from sparrow_py.job import NAME_BYTES_MAX, JobSpec, TaskSpec, TaskStatus, new_job_id
from sparrow_py.session.job_sink import JobSink
from sparrow_py.stored_values import CallSpec
from sparrow_py.wire.messages import Outcome

NEWS_WITHIN_S = 5.0
"""A connection that has ended is seldom all: so long the cluster has to say what became of the task, and where."""
STOP_WITHIN_S = 10.0
"""An actor that was told to end has so long, and is killed then. One that runs takes `serving.STUCK_S` at most."""

BROKE = "the connection between the actor and its client broke"


class Jobs(Protocol):
    """A client's session, as far as actors need it."""

    def submit(self, spec: JobSpec, sink: JobSink) -> None:
        """Submit a job; `SparrowError` if it cannot be."""

    def cancel_job(self, job_id: str, *, running: bool = False) -> None:
        """Cancel it; with `running` stop it."""


class Waits(Protocol):
    """Who waits for the answer to a call."""

    def begins(self) -> bool:
        """Its turn has come; whether the call is still wanted."""

    def settle(self, value: bytes, *, raised: bool) -> None:
        """The call has ended."""

    def fail(self, error: SparrowError) -> None:
        """The call has not run, or nobody knows whether it has."""

    def forked(self, error: SparrowError) -> None:
        """In a child of the process: the parent hears how the call ends. Another thread may have held any lock."""


@dataclass(frozen=True, slots=True)
class Definition:
    """What an actor is made of. options: those of its task. payload: the class, with the constructor's arguments."""

    name: str
    options: CallOptions
    payload: bytes | TaskSpec
    uploaded: Uploaded
    max_restarts: int
    call_retries: int
    waiting_max: int

    def task(self) -> bytes | TaskSpec:
        """The task of an incarnation. A session empties the list of futures of a task that it has submitted, and the
        next incarnation needs them, too."""
        payload = self.payload
        return replace(payload, futures=list(payload.futures)) if isinstance(payload, CallSpec) else payload


class OwnedActor:
    """One actor. It is the core's outbox."""

    def __init__(
        self, jobs: Jobs, place: Place, definition: Definition, queued: set[Waits], ended: Callable[[int], None]
    ) -> None:
        """queued: who waits for calls that are not on the loop yet (`Actors.queued`). `ended` is told the actor's
        number once it has ended."""
        self._jobs = jobs
        self.place = place
        self.definition = definition
        self.queued = queued
        self._ended = ended
        self.core = ActorCore(
            self,
            f"actor {definition.name}",
            max_restarts=definition.max_restarts,
            call_retries=definition.call_retries,
            waiting_max=definition.waiting_max,
        )
        self._calls: dict[int, Waits] = {}
        """Of which the answer is awaited."""
        self._next_call = 0
        self.life: _Life | None = None
        """Of the present incarnation."""
        self.handle: OwnersHandle | None = None
        """Kept until the actor has ended, for when a copy comes back, though nobody else has it any more."""
        self._watchers: list[Callable[[], None]] = []

    @property
    def state(self) -> ActorState:
        """Of any thread."""
        return self.core.state

    def call(self, method: str, payload: bytes, waits: Waits) -> int:
        """Call a method after all that was called before; the call's number."""
        number = self._next_call
        self._next_call += 1
        self._calls[number] = waits
        self.queued.discard(waits)
        self.core.call(number, method, payload)
        return number

    def awaited(self) -> list[Waits]:
        """Who waits for calls that are not answered, in the order of the calls."""
        return list(self._calls.values())

    def cancelled(self, number: int) -> None:
        """Whoever waited for this call has cancelled it."""
        self.core.cancelled(number)

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call this once, when the actor has another state."""
        self._watchers.append(watcher)

    def stop(self, reason: str) -> None:
        """End the actor; calls that are not answered fail."""
        self.core.stop(reason)

    def entered(self, guest: Guest) -> _Visitor:
        """A connection has proved that it has the actor's key."""
        return _Visitor(self, guest)

    def arrived(self, message: IsActor, guest: Guest) -> _Life:
        """It is the actor's; `LinkError` if it is not the one that is awaited."""
        life = self.life
        if life is None or message.incarnation != life.incarnation or life.guest is not None or self.state in ENDED:
            raise LinkError("another was started in place of this actor")
        life.guest, life.node = guest, message.node[:NAME_BYTES_MAX]
        return life

    def forked(self, error: SparrowError) -> None:
        """In a child of the process: the actor is the parent's."""
        waiting, self._calls = self._calls, {}
        for waits in waiting.values():
            waits.forked(error)

    # ---- the core's outbox -------------------------------------------------------------------

    def start(self, incarnation: int, state: bytes, pause_s: float) -> None:
        """See `Outbox`."""
        self.life = life = _Life(self, incarnation, state)
        if pause_s:
            life.timer = asyncio.get_running_loop().call_later(pause_s, self._submit, life)
        else:
            self._submit(life)

    def _submit(self, life: _Life) -> None:
        if life is not self.life or self.state in ENDED:
            return
        definition, job_id = self.definition, new_job_id()
        try:
            function = partial(serve, self.place, life.incarnation, life.state)
            common = encoded_function(definition.options, function, name=self.core.name, uploaded=definition.uploaded)
            spec = definition.options.job(self.core.name, common, [definition.task()])
            self._jobs.submit(replace(spec, job_id=job_id), life)
        except SparrowError as error:
            life.refuse(error)
        else:
            life.job_id = job_id

    def end(self, incarnation: int, *, at_once: bool) -> None:
        """See `Outbox`."""
        life = self.life
        if life is None or life.incarnation != incarnation:
            return
        life.end(at_once=at_once)

    def begins(self, number: int) -> bool:
        """See `Outbox`."""
        if self._calls[number].begins():
            return True
        del self._calls[number]
        return False

    def send(self, number: int, method: str, payload: bytes) -> None:
        """See `Outbox`."""
        assert self.life is not None and self.life.guest is not None
        self.life.guest.send(Call(number, method, payload))

    def settle(self, number: int, value: bytes, *, raised: bool) -> None:
        """See `Outbox`."""
        self._calls[number].settle(value, raised=raised)
        self._calls.pop(number, None)  # Not before: a child that is forked meanwhile ends it with an error.

    def fail(self, number: int, error: ActorLost | Refused) -> None:
        """See `Outbox`."""
        self._calls[number].fail(error)
        self._calls.pop(number, None)

    def changed(self) -> None:
        """See `Outbox`."""
        watchers, self._watchers = self._watchers, []
        for watcher in watchers:
            watcher()
        if self.state in ENDED:
            self.handle = None
            self._ended(self.place.actor)

    # ---- the job -----------------------------------------------------------------------------

    def cancel(self, job_id: str) -> None:
        """Stop the job of an incarnation."""
        self._jobs.cancel_job(job_id, running=True)


class _Life(JobSink):
    """An incarnation: its job, and the connection that comes from its task."""

    def __init__(self, actor: OwnedActor, incarnation: int, state: bytes) -> None:
        self._actor = actor
        self.incarnation = incarnation
        self.state = state
        self.job_id = ""
        self.guest: Guest | None = None
        self.node = ""
        """The id of the node on which the task runs, as far as it has said so."""
        self.timer: asyncio.TimerHandle | None = None
        """Until the job is submitted, or the cluster had time to say what became of the task, or that had time to
        end."""
        self._is_over = False
        self._is_to_end = False
        self._is_cut_off = False
        self._finished_at: str | None = None
        """The node at which the task has ended by itself."""

    def end(self, *, at_once: bool) -> None:
        """End the task: by a message, or, whatever it does, by the cluster."""
        self._cancel_timer()
        self._is_to_end = True
        if self.guest is not None and not at_once:
            self.guest.send(Stop())
            self.timer = asyncio.get_running_loop().call_later(STOP_WITHIN_S, self._kill)
        else:
            self._kill()
        if self.guest is not None:
            self.guest.close("the actor has ended")

    def _kill(self) -> None:
        """End the task, whatever it does."""
        if self.job_id and not self._is_over:
            self._actor.cancel(self.job_id)

    def leaves(self) -> None:
        """The task ends by itself."""
        self._is_over = True

    def _cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def cut_off(self, reason: str) -> None:
        """The connection has ended."""
        if self._is_to_end:
            return
        self._is_cut_off = True
        self._actor.core.cut_off(self.incarnation, self.node, reason)
        if self._finished_at is not None:
            self._cancel_timer()
            self._actor.core.lost(self.incarnation, self._finished_at, BROKE)
        elif not self._is_over:
            self._lost_soon(self.node, reason)

    def _lost_soon(self, node: str, reason: str) -> None:
        """Unless there is other news by then."""
        self._cancel_timer()
        lost = partial(self._actor.core.lost, self.incarnation, node, reason)
        self.timer = asyncio.get_running_loop().call_later(NEWS_WITHIN_S, lost)

    # ---- the job's sink ----------------------------------------------------------------------

    def refuse(self, error: SparrowError) -> None:
        """See `JobSink`."""
        self._is_over = True
        self._cancel_timer()
        if not self._actor.core.goes_on_without_job(self.incarnation, str(error)):
            self._actor.core.given_up(self.incarnation, "", str(error), error)

    def settle(self, outcome: Outcome, lost: ResultLost | None = None) -> None:
        """See `JobSink`."""
        self._is_over = True
        self._cancel_timer()
        core, node = self._actor.core, outcome.node or self.node
        if (
            outcome.status is TaskStatus.LOST
            and not outcome.node
            and core.goes_on_without_job(self.incarnation, outcome.error)
        ):
            return  # Lost with its schedulers: no node has said that the task has ended.
        if outcome.status is TaskStatus.LOST:
            core.lost(self.incarnation, node, f"its task was lost: {outcome.error}")
        elif outcome.status is TaskStatus.FINISHED and self._is_cut_off:
            core.lost(self.incarnation, node, BROKE)
        elif outcome.status is TaskStatus.FINISHED:  # What it has said last may come after this: why it has ended.
            self._finished_at = node
            self._lost_soon(node, BROKE)
        elif outcome.status is TaskStatus.CANCELLED:
            core.given_up(self.incarnation, node, f"its task was cancelled: {outcome.error}", None)
        else:
            cause = failure(outcome, APP) if lost is None else lost
            core.given_up(self.incarnation, node, f"its task failed: {outcome.error}", cause)

    def finish(self) -> None:
        """See `JobSink`."""


class _Visitor:
    """A connection to an actor's owner (`door.Peer`): the actor itself, or one that calls it."""

    def __init__(self, actor: OwnedActor, guest: Guest) -> None:
        self._actor = actor
        self._guest = guest
        self._life: _Life | None = None
        """If it is the actor."""
        self._is_caller = False

    def said(self, message: Any) -> None:
        """See `Peer`."""
        kind = type(message)
        if self._life is not None:
            self._of_actor(self._life, message)
        elif self._is_caller and kind is Call:
            self._called(message)
        elif kind is IsCaller and not self._is_caller:
            self._is_caller = True
        elif kind is IsActor and not self._is_caller:
            self._life = self._actor.arrived(message, self._guest)
        else:
            raise LinkError(f"{kind.__name__} is no message of one that has not said whether it is the actor")

    def _of_actor(self, life: _Life, message: Any) -> None:
        core, incarnation = self._actor.core, life.incarnation
        match message:
            case Answer(number, raised, value):
                core.answered(incarnation, number, value, raised=raised)
            case Ready():
                core.ready(incarnation)
            case NotConstructed(data):
                life.leaves()
                error = decode_error(data)
                if life.state:
                    core.not_unpickled(incarnation, life.node, error)
                    return
                core.given_up(incarnation, life.node, f"its constructor raised {type(error).__name__}: {error}", error)
            case Moves(state, why_not):
                if why_not:
                    core.cannot_move(incarnation, life.node, why_not)
                else:
                    core.moves(incarnation, state)
            case _:
                raise LinkError(f"{type(message).__name__} is no message of an actor")

    def _called(self, message: Call) -> None:
        if len(message.method) > METHOD_CHARS_MAX:
            raise LinkError(f"a method's name has {len(message.method)} characters; at most {METHOD_CHARS_MAX}")
        self._actor.call(message.method, message.payload, _Elsewhere(self._guest, message.number))

    def gone(self, reason: str) -> None:
        """See `Peer`."""
        if self._life is not None:
            self._life.cut_off(reason)


@dataclass(frozen=True, slots=True)
class _Elsewhere:
    """Who waits for a call in a task (`Waits`)."""

    guest: Guest
    number: int

    def begins(self) -> bool:
        """See `Waits`."""
        return True

    def settle(self, value: bytes, *, raised: bool) -> None:
        """See `Waits`."""
        self.guest.send(Answer(self.number, raised, value))

    def fail(self, error: SparrowError) -> None:
        """See `Waits`."""
        self.guest.send(Answer(self.number, True, encode_exception(error, str(error))))

    def forked(self, error: SparrowError) -> None:
        """See `Waits`."""
