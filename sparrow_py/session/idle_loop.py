"""A task whose event loop has nothing to do gives its slot back, while tasks of its own client have not ended, or no
scheduler answers to it.

asyncio's loops wait in their selector, and nowhere else. So one that stands before it sees each wait, and the loop goes
on only once the task has its slot again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from sparrow_py.errors import WaitRefused
from sparrow_py.session.session import Session
from sparrow_py.task_context import without_slot


class IdleSelector:
    """The selector of a loop, before which it stands. in_flight: whether there is what somebody may wait for without a
    slot. refused: told of a wait that may not be."""

    def __init__(self, selector: Any, in_flight: Callable[[], bool], refused: Callable[[WaitRefused], None]) -> None:
        self._selector = selector
        self._in_flight = in_flight
        self._refused = refused

    def __getattr__(self, name: str) -> Any:
        return getattr(self._selector, name)

    def select(self, timeout: float | None = None) -> list[Any]:
        """What is ready within the time."""
        if (timeout is not None and timeout <= 0) or not self._in_flight():
            return list(self._selector.select(timeout))
        ready: list[Any] = self._selector.select(0)
        if ready:
            return ready

        def wait() -> bool:
            ready.extend(self._selector.select(timeout))
            return True

        try:
            without_slot(wait)
        except WaitRefused as error:
            self._refused(error)
        return ready


class LongStart:
    """A client's start that waits for a scheduler, and has done so for a while."""

    def __init__(self) -> None:
        self.goes_on = False


def give_slot_while_idle(loop: asyncio.AbstractEventLoop, session: Session, start: LongStart) -> Callable[[], None]:
    """Have the loop do so; returns what takes that back. `RuntimeError` for a loop that is not asyncio's own."""
    selector: Any = getattr(loop, "_selector", None)
    if selector is None:
        raise RuntimeError(f"AsyncClient.current() needs an event loop of asyncio's own, not {type(loop).__module__}'s")

    def refused(error: WaitRefused) -> None:
        """A start goes on with its slot."""
        if start.goes_on:
            start.goes_on = False
        else:
            session.fail(error)

    loop_: Any = loop
    loop_._selector = before = IdleSelector(selector, lambda: bool(session.core.jobs) or start.goes_on, refused)

    def restore() -> None:
        if loop_._selector is before:
            loop_._selector = selector

    return restore
