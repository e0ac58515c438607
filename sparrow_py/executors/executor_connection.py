"""An executor's connection to its node monitor. Calls block: it is for executors that are a plain loop."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterable
from typing import Any

from sparrow_py.errors import InvalidOption
from sparrow_py.executors.executor_files import load, store
from sparrow_py.executors.executor_protocol import (
    EXECUTOR_PROTOCOL_VERSION,
    FILES_SUFFIX,
    FILES_VARIABLE,
    ID_VARIABLE,
    LOG_VARIABLE,
    PLACES_MAX,
    PLACES_VARIABLE,
    SOCKET_VARIABLE,
    TO_EXECUTOR,
    Data,
    ExecutorHello,
    FrameSplitter,
    encode_frame,
)

__all__ = ["ExecutorConnection", "load", "places_from_environment", "write_to_log"]

RECEIVE_BYTES = 1 << 16
"""With a larger buffer each call would map and unmap memory."""


def write_to_log() -> None:
    """From now on this executor's standard error is the node monitor's log itself.

    Until the hello the node monitor reads the executor's standard error, so that it can say why a start failed.
    """
    descriptor = os.environ.pop(LOG_VARIABLE, "")
    if descriptor.isdecimal():
        with contextlib.suppress(OSError):
            os.dup2(int(descriptor), 2)


def places_from_environment() -> int:
    """`SPARROW_EXECUTOR_PLACES`, by default 1; `InvalidOption` if it is not a number of places."""
    text = os.environ.get(PLACES_VARIABLE, "1")
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= PLACES_MAX:
        raise InvalidOption(PLACES_VARIABLE, text, f"a whole number from 1 to {PLACES_MAX}")
    return int(text)


class ExecutorConnection:
    """A connection to the node monitor.

    `files_directory` is the directory in which `data` puts large values. For executors that the node monitor did not
    start the directory lies beside the socket.
    """

    def __init__(self, path: str, files_directory: str = "") -> None:
        self.path = path
        self.files_directory = files_directory or os.path.splitext(path)[0] + FILES_SUFFIX  # noqa: PTH122 - as in `executor_files`
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.connect(path)
        except BaseException:
            self._socket.close()
            raise
        self._splitter = FrameSplitter(TO_EXECUTOR)

    @classmethod
    def from_environment(cls, app: str, places: int = 1, runtime: str = "") -> ExecutorConnection:
        """Connect to the node monitor that started this process, and say hello."""
        connection = cls(os.environ[SOCKET_VARIABLE], os.environ.get(FILES_VARIABLE, ""))
        connection.hello(app, places, runtime, os.environ.get(ID_VARIABLE, ""))
        write_to_log()
        return connection

    def hello(self, app: str, places: int = 1, runtime: str = "", executor_id: str = "") -> None:
        """Send the first message, which says what this executor runs and how many tasks at a time."""
        self.send([ExecutorHello(EXECUTOR_PROTOCOL_VERSION, executor_id, app, places, runtime, os.getpid())])

    def fileno(self) -> int:
        """The descriptor of the connection, for `select`."""
        return self._socket.fileno()

    def receive(self, *, wait: bool = True) -> list[Any]:
        """The next messages; without `wait`, those that have arrived. `EOFError` once the node monitor has closed the
        connection."""
        messages: list[Any] = []
        while not messages:
            try:
                data = self._socket.recv(RECEIVE_BYTES, 0 if wait else socket.MSG_DONTWAIT)
            except BlockingIOError:
                break
            if not data:
                raise EOFError
            messages = self._splitter.feed(data)
            if not wait:
                break
        return messages

    def is_gone(self) -> bool:
        """Whether the node monitor has closed the connection, and nothing of what it said is left to be received."""
        try:
            return not self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def send(self, messages: Iterable[Any]) -> None:
        """Send these messages; `LinkError` if one is too large for a frame."""
        self._socket.sendall(encode_frame(list(messages)))

    def send_through(self, messages: Iterable[Any]) -> BaseException | None:
        """As `send`, all of it, whatever a signal's handler raises meanwhile: that is returned. `OSError` if the node
        monitor is gone.

        A handler runs between two steps of the interpreter, so that nobody would know whether a call that it follows
        was made. `extend` calls `send` and notes what came of it in one step.
        """
        frame, sent = memoryview(encode_frame(list(messages))), list[int]()
        interrupted: BaseException | None = None
        while sum(sent) < len(frame):
            try:
                sent.extend(map(self._socket.send, (frame[sum(sent) :],)))
            except BaseException as error:
                if isinstance(error, OSError) and self.is_gone():  # Handlers raise such, too.
                    raise
                interrupted = error
        return interrupted

    def data(self, value: bytes) -> Data:
        """`value` for a message: the bytes themselves, or a file that holds them if they are many. `load` is the
        reverse. `OSError` if the file cannot be written.
        """
        return store(value, self.files_directory)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()
