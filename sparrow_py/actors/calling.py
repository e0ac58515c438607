"""An actor's handle in a task: calls go over a connection to the client that owns the actor, and answers come back.

A process has one connection for each actor that it calls. Its calls of one actor run in the order in which it made
them.
"""

from __future__ import annotations

import logging
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from typing import Any

from sparrow_py.actors.answers import decode_answer
from sparrow_py.actors.messages import Answer, Call, IsCaller
from sparrow_py.actors.methods import Methods, encode_call
from sparrow_py.actors.places import Line, Place
from sparrow_py.actors.returned import answers_here, owners_handle
from sparrow_py.errors import ActorLost, LinkError, WaitRefused
from sparrow_py.futures.checked_waiters import CheckedWaiters
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.task_context import task_that_waits, without_slot

LINES_MAX = 16
"""Actors to which a process keeps connections. That of the one called least recently is closed for another."""
IDLE_S = 2.0
"""A connection that no call has used for so long is closed: a worker outlives its tasks, and their actors."""
DIALS_MAX = 3
"""Of one call: a connection may end as it is about to be used."""
SLOT_KEPT_S = 0.1
"""A task that waits for longer gives its slot back: the actor may be waiting for it, to start again."""


_log = logging.getLogger("sparrow.actors")


class _Listener(threading.Thread):
    """Settles the calls of an actor, and runs their done-callbacks."""


class CallFuture(StaysHere, Future[Any]):
    """Of a call that a task has made."""

    def __init__(self) -> None:
        super().__init__()
        self._waiters = CheckedWaiters(self)

    def result(self, timeout: float | None = None) -> Any:
        """As of any future. The task gives its slot back if this takes long."""
        self._wait(timeout)
        return super().result(0 if timeout is not None else None)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As `result`."""
        self._wait(timeout)
        return super().exception(0 if timeout is not None else None)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """As of any future. Whatever `fn` raises is logged: answers to other calls come in the same thread."""
        super().add_done_callback(partial(_call_back, fn))

    def _wait(self, timeout: float | None) -> None:
        if self.done():
            return
        self._check_may_wait()
        if task_that_waits() is None or (timeout is not None and timeout <= SLOT_KEPT_S):
            wait([self], timeout)
            return
        if wait([self], SLOT_KEPT_S).done:
            return
        rest_s = None if timeout is None else timeout - SLOT_KEPT_S
        try:
            without_slot(lambda: wait([self], rest_s))
        except WaitRefused:  # An actor has a lease, and keeps its slot; or too many wait.
            wait([self], rest_s)

    def _check_may_wait(self) -> None:
        """Of two actors, too, callbacks of the one's calls could wait for the other's, and those for the one's."""
        if isinstance(threading.current_thread(), _Listener) and not self.done():
            raise RuntimeError("this would wait for itself: done-callbacks run where answers of actors come in")


def _call_back(fn: Callable[[Future[Any]], object], future: Future[Any]) -> None:
    try:
        fn(future)
    except BaseException:  # sys.exit() in it would end the thread, and every call would wait for ever.
        _log.exception("exception calling callback for %r", future)


class _Caller:
    """A process's connection for the calls of one actor."""

    def __init__(self, place: Place, name: str) -> None:
        """`LinkError` if the owner cannot be reached, or does not know the actor any more."""
        self._name = name
        self._line = Line(place, IsCaller())
        self._lock = threading.Lock()
        self._waiting: dict[int, CallFuture] = {}
        self._next = 0
        self.ended = False
        self._retired = False
        self._listener = _Listener(target=self._listen, name="sparrow-actor-calls", daemon=True)
        self._listener.start()

    def call(self, method: str, payload: bytes) -> CallFuture | None:
        """The call's future; None if the connection has ended."""
        future = CallFuture()
        with self._lock:
            if self.ended:
                return None
            number, self._next = self._next, self._next + 1
            self._waiting[number] = future
            future.set_running_or_notify_cancel()  # What has left cannot be taken back.
            try:
                self._line.send(Call(number, method, payload))
            except OSError:  # The thread hears of it, too, and fails what waits.
                self._line.hang_up()
        return future

    def retire(self) -> None:
        """End the connection once all answers have come."""
        with self._lock:
            self._retired = True
            if not self._waiting:
                self._line.hang_up()

    def _listen(self) -> None:
        try:
            while True:
                if not self._line.has_news(IDLE_S):
                    if self._ends_idle():
                        break
                    continue
                for message in self._line.receive():
                    if type(message) is Answer:
                        self._answered(message)
        except (EOFError, OSError):
            pass
        with self._lock:
            self.ended = True
            waiting, self._waiting = self._waiting, {}
        self._line.close()
        reason = "the connection to the client that owns it was closed: this call may have run"
        for future in waiting.values():
            future.set_exception(ActorLost(self._name, "", reason))

    def _ends_idle(self) -> bool:
        with self._lock:
            self.ended = self.ended or not self._waiting
            return self.ended

    def _answered(self, answer: Answer) -> None:
        with self._lock:
            future = self._waiting.pop(answer.number, None)
            if self._retired and not self._waiting:
                self._line.hang_up()
        if future is None:
            return
        value, error = decode_answer(answer.value, raised=answer.raised)
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)


_callers: OrderedDict[Place, _Caller] = OrderedDict()
_lock = threading.Lock()


def _forked() -> None:
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()
    _callers.clear()


os.register_at_fork(after_in_child=_forked)


def _called(place: Place, name: str, method: str, payload: bytes) -> CallFuture:
    for _ in range(DIALS_MAX):
        future = _caller(place, name).call(method, payload)
        if future is not None:
            return future
    raise LinkError("the connection to the client that owns it was closed")


def _caller(place: Place, name: str) -> _Caller:
    with _lock:
        caller = _callers.get(place)
        if caller is None or caller.ended:
            caller = _callers[place] = _Caller(place, name)
        _callers.move_to_end(place)
        retiring = _callers.popitem(last=False)[1] if len(_callers) > LINES_MAX else None
    if retiring is not None:
        retiring.retire()
    return caller


class RemoteActorHandle(Methods):
    """What a task or another actor gets for the handle that it was given: it has the methods of the actor, and neither
    `stop` nor `ready`, which are the owner's."""

    __slots__ = ("_place",)

    def __init__(self, place: Place, name: str, methods: frozenset[str]) -> None:
        super().__init__(name, methods)
        self._place = place

    def __reduce__(self) -> tuple[Callable[..., Methods], tuple[Any, ...]]:
        return remote_handle, (self._place, self._name, sorted(self._methods))

    def _call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        owners = owners_handle(self._place)
        if owners is not None:
            return owners._call(method, args, kwargs)
        payload = encode_call(method, args, kwargs)
        if answers_here(self._place):  # To dial would be to wait for itself; and of an actor there would be a handle.
            return self._lost("it has ended")
        try:
            return _called(self._place, self._name, method, payload)
        except LinkError as error:
            return self._lost(str(error))

    def _lost(self, reason: str) -> CallFuture:
        failed = CallFuture()
        failed.set_exception(ActorLost(self._name, "", reason))
        return failed


def remote_handle(place: tuple[Any, ...], name: str, methods: list[str]) -> Methods:
    """What a handle is unpickled to: the owner's, where it has come back to that."""
    at = Place(*place)
    return owners_handle(at) or RemoteActorHandle(at, name, frozenset(methods))
