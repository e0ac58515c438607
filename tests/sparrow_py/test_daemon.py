"""What a daemon's process does beside its work."""

import asyncio
import gc
import weakref

import pytest

from sparrow_py import daemon
from tests.support.waiting import TIMEOUT_S


class Ring:
    """Refers to itself, as a connection that has ended does."""

    def __init__(self) -> None:
        self.itself = self


async def test_what_refers_to_itself_is_collected_though_nothing_else_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "GC_EVERY_S", 0.0)
    enabled = gc.isenabled()
    gc.disable()
    try:
        ring = Ring()
        gone = weakref.ref(ring)
        gc.collect(0)  # It grows old.
        gc.collect(1)
        del ring
        collecting = asyncio.ensure_future(daemon.collect_garbage())
        async with asyncio.timeout(TIMEOUT_S):
            while gone() is not None:
                await asyncio.sleep(0)
        collecting.cancel()
    finally:
        if enabled:
            gc.enable()
