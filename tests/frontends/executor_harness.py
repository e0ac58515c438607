"""A node monitor's side of the executor protocol, for tests: starts an executor and talks to it.

Executors of commands and of Python calls are forked (`forked_starts`), unless a test is marked `real_starts`.
"""

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from sparrow_py.executors.executor_protocol import ExecutorHello, FrameSplitter, encode_frame
from tests.support.forked_starts import Popen

TIMEOUT_S = 30.0
"""How long a test waits for an executor before it fails."""
Message = TypeVar("Message")


class Monitor:
    """A Unix socket, and the executor `module` started as a subprocess that has connected to it."""

    def __init__(self, module: str, folder: Path, *arguments: str, **environment: str) -> None:
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.settimeout(TIMEOUT_S)
        path = str(folder / "executor.socket")
        self._listener.bind(path)
        self._listener.listen()
        self.files = folder / "files"
        self.files.mkdir()
        variables = {
            "SPARROW_EXECUTOR_SOCKET": path,
            "SPARROW_EXECUTOR_ID": "e1",
            "SPARROW_EXECUTOR_FILES": str(self.files),
            **environment,
        }
        self.process = Popen([sys.executable, "-m", module, *arguments], env=os.environ | variables)
        try:
            self._connection, _ = self._listener.accept()
        except TimeoutError:
            self._listener.close()
            self.process.kill()
            self.process.wait()
            raise
        self._connection.settimeout(TIMEOUT_S)
        self._splitter = FrameSplitter()
        self._received: list[Any] = []
        self.hello = self.receive(ExecutorHello)

    def send(self, *messages: Any) -> None:
        """Send these messages as one frame."""
        self._connection.sendall(encode_frame(list(messages)))

    def receive(self, kind: type[Message]) -> Message:
        """The executor's next message, which must be of this kind."""
        while not self._received:
            data = self._connection.recv(1 << 16)
            assert data, "the executor closed its connection"
            self._received += self._splitter.feed(data)
        message = self._received.pop(0)
        assert isinstance(message, kind)
        return message

    def hang_up(self) -> None:
        """Close the connection, as a node monitor that ends does."""
        self._connection.close()

    def __enter__(self) -> "Monitor":
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._connection.close()
        self._listener.close()
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
