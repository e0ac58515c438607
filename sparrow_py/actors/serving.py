"""What an actor's task does: it makes the object, and calls its methods as its owner says, one at a time."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
from types import CoroutineType
from typing import Any

from sparrow_py import function_pickling
from sparrow_py.actors.answers import encode_error, encode_result
from sparrow_py.actors.messages import CALL_BYTES_MAX, Answer, Call, IsActor, Moves, NotConstructed, Ready, Stop
from sparrow_py.actors.places import Line, Place
from sparrow_py.exception_pickling import text_of
from sparrow_py.executors.executor_protocol import NODE_VARIABLE
from sparrow_py.task_context import is_orphaned, should_yield, task_that_waits

LOOK_EVERY_S = 0.25
"""An actor that has nothing to do looks so often whether its lease is over."""
CLOSING_S = 2.0
"""For which an actor that ends waits for what its coroutines have left in their loop, after it has cancelled that."""
STUCK_S = 3 * CLOSING_S
"""After which it ends with its process."""
SMALL_BYTES = 1 << 16
"""What a socket takes at once, of one answer."""
_OURS = (__file__, asyncio.runners.__file__, asyncio.base_events.__file__)


def serve(
    place: Place, incarnation: int, state: bytes, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Be the actor until its owner says that it ends, or is gone, or the lease is over and it is another user's turn.

    state: the pickled object, of one that has moved; empty: it is constructed. `LinkError` if the owner cannot be
    reached.
    """
    line = Line(place, IsActor(incarnation, os.environ.get(NODE_VARIABLE, "")))
    process = os.getpid()
    try:
        try:
            instance = pickle.loads(state) if state else cls(*args, **kwargs)
        except BaseException as error:  # sys.exit() in it ends the actor, not the worker.
            _end_here_unless(process, error)
            line.send(NotConstructed(encode_error(error, _OURS)))
            line.part()
            return
        _end_here_unless(process)
        line.send(Ready())
        _Serving(line, instance).run()
    except (EOFError, OSError):  # The owner is gone, and with it whoever could call.
        return
    finally:
        line.close()


def _end_here_unless(process: int, error: BaseException | None = None) -> None:
    """In a child that the user's code has forked off `process`: end it with what it returned or raised. The actor is
    the parent, and the child has a copy of the connection: two that answer would be heard as one."""
    if os.getpid() == process:
        return
    status = 1 if error is not None else 0
    if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
        status = (error.code or 0) & 0xFF
    os._exit(status)


class _Serving:
    def __init__(self, line: Line, instance: Any) -> None:
        self._process = os.getpid()
        self._line = line
        self._instance = instance
        self._runner: asyncio.Runner | None = None
        """Runs what methods that are `async def` return: one loop for all of them, as the object may keep things of
        it."""

    def run(self) -> None:
        try:
            self._serve()
        finally:
            if self._runner is not None:
                _close(self._runner)

    def _serve(self) -> None:
        line = self._line
        line.wait_no_longer_than(LOOK_EVERY_S)
        while not should_yield():
            for message in line.receive():
                if type(message) is Stop:
                    return
                assert type(message) is Call
                self._answer(Answer(message.number, *self._called(message)))
        if is_orphaned():  # Its lease is not over: it is lost with its node, of which others tell.
            return
        line.wait_no_longer_than(None)
        line.send(_moving(self._instance))
        line.part()

    def _answer(self, answer: Answer) -> None:
        if len(answer.value) <= SMALL_BYTES:
            self._line.send(answer)
            return
        self._line.wait_no_longer_than(None)
        self._line.send(answer)
        self._line.wait_no_longer_than(LOOK_EVERY_S)

    def _called(self, call: Call) -> tuple[bool, bytes]:
        """Whether the method raised, and what."""
        try:
            if call.method.startswith("_"):
                raise AttributeError(f"{call.method!r}: names that begin with an underscore are not called")
            args, kwargs = pickle.loads(call.payload)
            value = getattr(self._instance, call.method)(*args, **kwargs)
            if type(value) is CoroutineType:
                self._runner = self._runner or asyncio.Runner()
                value = self._runner.run(value)
        except BaseException as error:  # sys.exit() in a method ends the call, not the actor.
            _end_here_unless(self._process, error)
            return True, encode_error(error, _OURS)
        _end_here_unless(self._process)
        return encode_result(value)


def _close(runner: asyncio.Runner) -> None:
    """End the loop in bounded time, as the actor's slot is somebody else's then: `Runner.close` waits for threads that
    `to_thread` has left, and for tasks that will not be cancelled."""
    stuck = threading.Timer(STUCK_S, os._exit, (1,))
    stuck.daemon = True
    if task_that_waits() is not None:  # This process is the task's own.
        stuck.start()
    loop = runner.get_loop()
    try:
        runner.run(_end_tasks(loop))
    finally:
        loop.close()
        asyncio.set_event_loop(None)
        stuck.cancel()


async def _end_tasks(loop: asyncio.AbstractEventLoop) -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=CLOSING_S)
    await asyncio.wait([loop.create_task(loop.shutdown_asyncgens())], timeout=CLOSING_S)


def _moving(instance: Any) -> Moves:
    try:
        state = function_pickling.dumps(instance)
    except BaseException as error:  # To pickle runs the user's code.
        return Moves(b"", f"{type(error).__name__}: {text_of(str, error)}"[:1000])
    if len(state) > CALL_BYTES_MAX:
        return Moves(b"", f"it has {len(state)} bytes; at most {CALL_BYTES_MAX} are allowed")
    return Moves(state)
