"""The event loop of a client that has one of its own."""

from __future__ import annotations

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A loop of the fastest kind that this platform has."""
    try:
        from sparrow_py.session.uv_loop import Loop
    except ImportError:  # No uvloop on this platform.
        return asyncio.new_event_loop()
    return Loop()
