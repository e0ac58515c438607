"""What clients within tasks have on its way to schedulers: who waits for room, and is woken."""

from __future__ import annotations

import asyncio

from node_monitor.frames_ahead import BYTES_MAX, FramesAhead
from tests.support.waiting import TIMEOUT_S


async def test_what_is_heard_before_the_waiting_begins_counts() -> None:
    ahead = FramesAhead()
    ahead.sent("s", "ada", 1, BYTES_MAX)
    full = ahead.full("s", "ada")
    assert full is not None
    waits = full.changed()
    ahead.heard("s", 1, 1)
    await asyncio.wait_for(waits, TIMEOUT_S)
    assert ahead.full("s", "ada") is None
