"""The event loop of clients where there is uvloop."""

from __future__ import annotations

import asyncio
import socket
from functools import partial
from typing import Any

import uvloop


class Loop(uvloop.Loop):
    """uvloop's, which does not start libuv's threads to resolve names.

    A forked child that ends by `exit` waits for those threads, which it does not have, and is ended by SIGSEGV.
    """

    async def getaddrinfo(
        self, host: Any, port: Any, *, family: int = 0, type: int = 0, proto: int = 0, flags: int = 0
    ) -> Any:
        """Resolve a name as every loop does; an address is resolved at once."""
        try:
            return socket.getaddrinfo(host, port, family, type, proto, flags | socket.AI_NUMERICHOST)
        except socket.gaierror:
            pass
        resolve = partial(socket.getaddrinfo, host, port, family, type, proto, flags)
        try:
            return await asyncio.to_thread(resolve)
        except RuntimeError:  # No thread can be started any more: the interpreter ends.
            return resolve()
