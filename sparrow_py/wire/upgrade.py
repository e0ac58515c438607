"""From HTTP to WebSocket (RFC 6455 §4): the headers of both sides, and what came behind them."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Mapping

VERSION = "13"
KEY_BYTES = 16
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Behind:
    """Stands where aiohttp has parsers of frames: collects what came in one piece with the upgrade, behind it."""

    def __init__(self) -> None:
        self.data = b""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """As a parser's."""
        self.data += data
        return False, b""

    def feed_eof(self) -> None:
        """As a parser's."""


def new_key() -> str:
    """What a dialler's request has in Sec-WebSocket-Key."""
    return base64.b64encode(os.urandom(KEY_BYTES)).decode()


def accept_of(key: str) -> str:
    """What the answer has in Sec-WebSocket-Accept."""
    return base64.b64encode(hashlib.sha1(key.encode() + _GUID, usedforsecurity=False).digest()).decode()


def request_headers(key: str) -> dict[str, str]:
    """Of a request to upgrade."""
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Version": VERSION,
        "Sec-WebSocket-Key": key,
    }


def answer_headers(key: str) -> dict[str, str]:
    """Of the answer to a request with this key."""
    return {"Upgrade": "websocket", "Connection": "upgrade", "Sec-WebSocket-Accept": accept_of(key)}


def why_no_request(headers: Mapping[str, str]) -> str:
    """What a request with these headers lacks to be one to upgrade; empty if it lacks nothing."""
    if headers.get("Upgrade", "").strip().lower() != "websocket":
        return "this is for WebSockets: the request lacks Upgrade: websocket"
    if "upgrade" not in _tokens(headers.get("Connection", "")):
        return "the request lacks Connection: Upgrade"
    if headers.get("Sec-WebSocket-Version") != VERSION:
        return f"the request lacks Sec-WebSocket-Version: {VERSION}"
    try:
        key = base64.b64decode(headers.get("Sec-WebSocket-Key", ""), validate=True)
    except ValueError:  # Of base64, or of ASCII.
        key = b""
    return "" if len(key) == KEY_BYTES else f"Sec-WebSocket-Key is not the base64 of {KEY_BYTES} bytes"


def why_no_answer(status: int, headers: Mapping[str, str], key: str) -> str:
    """Why this is not the answer to a request with this key; empty if it is."""
    if status != 101:
        return f"it answered with HTTP status {status}"
    upgraded = headers.get("Upgrade", "").lower() == "websocket" and "upgrade" in _tokens(headers.get("Connection", ""))
    if not upgraded or headers.get("Sec-WebSocket-Accept", "") != accept_of(key):
        return "it does not upgrade to WebSocket as it should"
    return ""


def _tokens(header: str) -> list[str]:
    return [token.strip().lower() for token in header.split(",")]
