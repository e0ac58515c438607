"""A TLS handshake of this process with itself. The standard library shows what a certificate says in no other way."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Mapping
from typing import Any

HANDSHAKE_STEPS_MAX = 10


def handshake(
    accepting: ssl.SSLContext, dialling: ssl.SSLContext
) -> tuple[Mapping[str, Any] | None, Mapping[str, Any] | None]:
    """The certificates that the side that accepts and the side that dials have seen, each of the other; empty where a
    side does not verify. In memory. `ssl.SSLError` if a side does not accept the other."""
    to_accepted, to_dialled = ssl.MemoryBIO(), ssl.MemoryBIO()
    accepted = accepting.wrap_bio(to_accepted, to_dialled, server_side=True)
    dialled = dialling.wrap_bio(to_dialled, to_accepted)
    waiting = [dialled, accepted]
    for _ in range(HANDSHAKE_STEPS_MAX):
        for side in tuple(waiting):
            with contextlib.suppress(ssl.SSLWantReadError):
                side.do_handshake()
                waiting.remove(side)
        if not waiting:
            return accepted.getpeercert(), dialled.getpeercert()
    raise ssl.SSLError("the handshake does not end")
