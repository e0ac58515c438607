"""Handles of actors: what `Client.actor` and `AsyncClient.actor` return."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from concurrent.futures._base import FINISHED
from functools import partial
from typing import TYPE_CHECKING, Any

from sparrow_py.actors.answers import decode_answer
from sparrow_py.actors.calling import remote_handle
from sparrow_py.actors.core import ENDED, ActorState
from sparrow_py.actors.methods import encode_call
from sparrow_py.actors.owned import OwnedActor
from sparrow_py.actors.returned import OwnersHandle, note
from sparrow_py.errors import SparrowError
from sparrow_py.futures.checked_waiters import CheckedWaiters
from sparrow_py.futures.task_future import call_back
from sparrow_py.processes.process_bound import StaysHere
from sparrow_py.session.loop_thread import LoopThread

STOPPED = "it was stopped"


class ActorCall(StaysHere, Future[Any]):
    """The future of a call of an actor. `cancel` takes back a call that has not begun."""

    def __init__(self, thread: LoopThread) -> None:
        super().__init__()
        self._thread = thread
        self._waiters = CheckedWaiters(self)
        self.give_back: Callable[[], object] | None = None
        """On the loop: gives back its place among the calls that wait."""

    def cancel(self) -> bool:
        """Take back the call, if it has not begun; another may have its place."""
        if self.cancelled() or not super().cancel():
            return self.cancelled()
        with contextlib.suppress(RuntimeError):  # The client is closed.
            self._thread.call_soon(lambda: self.give_back and self.give_back())
        return True

    def result(self, timeout: float | None = None) -> Any:
        """As of any future."""
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """As of any future."""
        self._check_may_wait()
        return super().exception(timeout)

    def add_done_callback(self, fn: Callable[[Future[Any]], object]) -> None:
        """Call `fn` when the call has ended, as every future does. On the client's own loop anything that `fn` raises
        is logged."""
        super().add_done_callback(partial(call_back, fn, runs_on_loop=self._thread.runs_here))

    def _check_may_wait(self) -> None:
        if not self.done():
            self._thread.check_not_here()

    # ---- `owned.Waits` -----------------------------------------------------------------------

    def begins(self) -> bool:
        """See `Waits`."""
        return self._state != FINISHED and self.set_running_or_notify_cancel()

    def settle(self, value: bytes, *, raised: bool) -> None:
        """See `Waits`."""
        result, error = decode_answer(value, raised=raised)
        with contextlib.suppress(InvalidStateError):  # Its user has set it, and it stays so.
            if error is None:
                self.set_result(result)
            else:
                self.set_exception(error)

    def fail(self, error: SparrowError) -> None:
        """See `Waits`."""
        with contextlib.suppress(InvalidStateError):
            if self.running() or self.begins():
                self.set_exception(error)

    def forked(self, error: SparrowError) -> None:
        """See `Waits`."""
        self._condition = threading.Condition()
        self._done_callbacks: list[Callable[[Future[Any]], object]] = []  # The parent's are not for the child.
        if not self.done():
            self.fail(error)


class _OwnersHandle(OwnersHandle):
    """A handle at the client that owns the actor. Pickled it is one with which a task calls the actor."""

    __slots__ = ("_actor",)

    def __init__(self, actor: OwnedActor, methods: frozenset[str]) -> None:
        super().__init__(f"actor {actor.definition.name}", methods)
        self._actor = actor
        actor.handle = self
        note(actor.place, self)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[Any, ...]]:
        return remote_handle, (tuple(self._actor.place), self._name, sorted(self._methods))

    @property
    def state(self) -> str:
        """`starting`, `ready`, `restarting`, `lost` or `stopped`."""
        return self._actor.state.value

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._name}, {self.state}>"

    def _when_ready(self, tell: Callable[[SparrowError | None], None]) -> None:
        """On the loop: tell once the actor is ready, or has ended."""
        state = self._actor.state
        if state is ActorState.READY:
            tell(None)
        elif state in ENDED:
            tell(self._actor.core.error())
        else:
            self._actor.watch(lambda: self._when_ready(tell))


class ActorHandle(_OwnersHandle):
    """An actor of a `Client`: `handle.method(...)` calls a method, and returns a future at once.

    Calls of one client run in order, one at a time. In a `with` block the actor is stopped at its end.
    """

    __slots__ = ("_thread",)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., Future[Any]]: ...

    def __init__(self, thread: LoopThread, actor: OwnedActor, methods: frozenset[str]) -> None:
        super().__init__(actor, methods)
        self._thread = thread

    def works_here(self) -> bool:
        """In any thread."""
        return True

    def __enter__(self) -> ActorHandle:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        payload = encode_call(method, args, kwargs)
        future = ActorCall(self._thread)
        self._actor.queued.add(future)
        try:
            self._thread.call_soon(lambda: self._begin(method, payload, future))
        except RuntimeError:  # The client is closed.
            self._actor.queued.discard(future)
            raise
        return future

    def _begin(self, method: str, payload: bytes, future: ActorCall) -> None:
        number = self._actor.call(method, payload, future)
        future.give_back = partial(self._actor.cancelled, number)

    def ready(self, timeout_s: float | None = None) -> None:
        """Wait until it has been constructed. `ActorLost` if it has ended, `TimeoutError` if this takes longer than
        `timeout_s` (None: for ever)."""
        answer: Future[None] = Future()

        def tell(error: SparrowError | None) -> None:
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        self._thread.check_not_here()
        self._thread.call_soon(lambda: self._when_ready(tell))
        answer.result(timeout_s)

    def stop(self) -> None:
        """End the actor: what it does is stopped, and calls that are not answered fail with `ActorLost`. Its slot is
        given back. Does nothing if it has ended, as it has once its client is closed."""
        if self._thread.runs_here():
            self._actor.stop(STOPPED)
            return

        async def stop() -> None:
            self._actor.stop(STOPPED)

        with contextlib.suppress(RuntimeError):  # The client is closed.
            self._thread.run(stop)


class _AsyncCall:
    """Who waits for a call in the loop (`owned.Waits`)."""

    __slots__ = ("future",)

    def __init__(self) -> None:
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def begins(self) -> bool:
        """See `Waits`."""
        return not self.future.done()

    def settle(self, value: bytes, *, raised: bool) -> None:
        """See `Waits`."""
        if self.future.done():  # Its caller has cancelled it.
            return
        result, error = decode_answer(value, raised=raised)
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)

    def fail(self, error: SparrowError) -> None:
        """See `Waits`."""
        if not self.future.done():
            self.future.set_exception(error)

    def forked(self, error: SparrowError) -> None:
        """See `Waits`."""
        with contextlib.suppress(RuntimeError):  # Its loop was closed before.
            self.fail(error)


class AsyncActorHandle(_OwnersHandle):
    """An actor of an `AsyncClient`: as `ActorHandle`, with asyncio's futures. Use it in the client's loop."""

    __slots__ = ("_loop",)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., asyncio.Future[Any]]: ...

    def __init__(self, actor: OwnedActor, methods: frozenset[str]) -> None:
        super().__init__(actor, methods)
        self._loop = asyncio.get_running_loop()

    def works_here(self) -> bool:
        """In the client's loop alone."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:  # None runs.
            return False

    async def __aenter__(self) -> AsyncActorHandle:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()

    def _call(self, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        payload = encode_call(method, args, kwargs)
        call = _AsyncCall()
        number = self._actor.call(method, payload, call)
        call.future.add_done_callback(partial(self._ended, number))
        return call.future

    def _ended(self, number: int, future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            self._actor.cancelled(number)

    async def ready(self) -> None:
        """Return once it has been constructed; `ActorLost` if it has ended."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def tell(error: SparrowError | None) -> None:
            if answer.done():
                return
            if error is None:
                answer.set_result(None)
            else:
                answer.set_exception(error)

        self._when_ready(tell)
        await answer

    def stop(self) -> None:
        """As `ActorHandle.stop`."""
        self._actor.stop(STOPPED)
