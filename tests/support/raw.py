"""HTTP and WebSockets by hand over a socket, for what a well-behaved client does not do."""

import base64
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPResponse
from typing import Any

import msgspec
import orjson

from sparrow_py.wire import messages as m
from tests.support.waiting import TIMEOUT_S

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


@dataclass
class Answer:
    """What came back."""

    status: int
    headers: Message
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        """The error of a JSON body."""
        error: dict[str, Any] = orjson.loads(self.body)["error"]
        return error


class Raw:
    """A connection to a daemon."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)

    def send(self, data: bytes) -> None:
        """Send as much as is taken: the other side may have closed already."""
        with suppress(ConnectionError):
            self.socket.sendall(data)

    def end(self) -> None:
        """Say that nothing more will come; the other side may have closed already."""
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_WR)

    def answer(self, method: str = "GET") -> Answer:
        """The next answer."""
        response = HTTPResponse(self.socket, method=method)
        response.begin()
        return Answer(response.status, response.headers, response.read())

    def rest(self) -> bytes:
        """All that comes until the other side closes."""
        data = bytearray()
        with suppress(ConnectionError):
            while chunk := self.socket.recv(1 << 16):
                data += chunk
        return bytes(data)

    # ---- WebSockets --------------------------------------------------------------------------

    def upgrade(self, *headers: str) -> Answer:
        """Ask for a link; the answer's body is empty if it is one."""
        self.ask_to_upgrade(*headers)
        return self.upgraded()

    def ask_to_upgrade(self, *headers: str, behind: bytes = b"") -> None:
        """Ask for a link, and send `behind` in one piece with that."""
        key = base64.b64encode(os.urandom(16)).decode()
        asked = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}")
        self.send(request("GET", "/link", *asked, *headers) + behind)

    def upgraded(self) -> Answer:
        """The answer to who asked for a link."""
        head = bytearray()
        while not head.endswith(b"\r\n\r\n"):  # Not a byte more: frames follow.
            byte = self.socket.recv(1)
            assert byte, bytes(head)
            head += byte
        lines = head.decode().split("\r\n")
        found = Message()
        for line in lines[1:-2]:
            name, _, value = line.partition(":")
            found[name] = value.strip()
        return Answer(int(lines[0].split()[1]), found, b"")

    def hello(self, hello: m.Message) -> None:
        """Become a link, and hear Welcome."""
        assert self.upgrade().status == 101
        self.send(ws_frame(BINARY, batch(hello)))
        opcode, payload = self.frame()
        assert opcode == BINARY, payload
        welcome = msgspec.msgpack.Decoder(list[m.Welcome]).decode(payload)
        assert len(welcome) == 1

    def frame(self) -> tuple[int, bytes]:
        """The next frame that comes: opcode and payload; `CLOSE` if the connection ends without one."""
        try:
            first, length = self.exactly(2)
            if length == 126:
                (length,) = struct.unpack(">H", self.exactly(2))
            elif length == 127:
                (length,) = struct.unpack(">Q", self.exactly(8))
            return first & 0x0F, self.exactly(length)
        except ConnectionError:
            return CLOSE, b""

    def said(self) -> "Ended":
        """All that the other side says until it closes."""
        ended = Ended()
        while True:
            opcode, payload = self.frame()
            if opcode == CLOSE:
                ended.code = struct.unpack(">H", payload[:2])[0] if len(payload) >= 2 else None
                return ended
            if opcode == PONG:
                ended.pongs += 1
            if opcode == BINARY:
                ended.messages += msgspec.msgpack.decode(payload)

    def exactly(self, count: int) -> bytes:
        """The next bytes, so many."""
        data = bytearray()
        while len(data) < count:
            chunk = self.socket.recv(count - len(data))
            if not chunk:
                raise ConnectionResetError
            data += chunk
        return bytes(data)


@dataclass
class Ended:
    """How a link ended: the messages that came, as arrays, and the close code."""

    messages: list[list[Any]] = field(default_factory=list)
    code: int | None = None
    pongs: int = 0

    @property
    def goodbye(self) -> str:
        """The reason that was given; empty if there was none."""
        tag = m.Goodbye.__struct_config__.tag
        return next((message[1] for message in self.messages if message[0] == tag), "")


@contextmanager
def connected(address: str) -> Iterator[Raw]:
    """A connection that is closed in the end."""
    raw = Raw(address)
    try:
        yield raw
    finally:
        raw.socket.close()


def request(method: str, path: str, *headers: str, host: str | None = "localhost", body: bytes = b"") -> bytes:
    """A request."""
    lines = [f"{method} {path} HTTP/1.1", *([] if host is None else [f"Host: {host}"]), *headers]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


def ask(
    address: str, method: str, path: str, *headers: str, host: str | None = "localhost", body: bytes = b""
) -> Answer:
    """The answer to a request on a connection of its own."""
    with connected(address) as raw:
        raw.send(request(method, path, *headers, host=host, body=body))
        return raw.answer(method)


def ask_json(address: str, path: str, body: bytes, *headers: str) -> Answer:
    """The answer to a POST of JSON, or of what should be."""
    given = (f"Content-Length: {len(body)}", "Content-Type: application/json", *headers)
    return ask(address, "POST", path, *given, body=body)


def batch(*messages: m.Message) -> bytes:
    """A link's frame of these messages."""
    return msgspec.msgpack.encode(list(messages))


def ws_frame(
    opcode: int, payload: bytes = b"", *, fin: bool = True, rsv: int = 0, mask: bool = True, length: int | None = None
) -> bytes:
    """A WebSocket frame; `length` is what it says of itself, if that is not true."""
    size = len(payload) if length is None else length
    first = (0x80 if fin else 0) | rsv << 4 | opcode
    flag = 0x80 if mask else 0
    if size < 126:
        head = bytes((first, flag | size))
    elif size < 1 << 16:
        head = bytes((first, flag | 126)) + struct.pack(">H", size)
    else:
        head = bytes((first, flag | 127)) + struct.pack(">Q", size)
    return head + (bytes(4) if mask else b"") + payload  # Masked with zeros it is as it was.
