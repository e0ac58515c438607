"""HTTP servers of a test's own, for clients that are to meet what real daemons never do."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

from aiohttp import web


@contextlib.asynccontextmanager
async def web_servers() -> AsyncIterator[Callable[[web.Application], Awaitable[str]]]:
    """Serves applications as long as the block lasts; each call returns an address (host:port)."""
    runners: list[web.AppRunner] = []

    async def start(app: web.Application) -> str:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        runners.append(runner)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return f"127.0.0.1:{runner.addresses[0][1]}"

    try:
        yield start
    finally:
        for runner in runners:
            await runner.cleanup()
