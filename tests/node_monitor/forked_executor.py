"""An executor for a fork server, whose tasks are a few words: what a test wants to know of its process."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time

from sparrow_py.executors.executor_connection import ExecutorConnection
from sparrow_py.executors.executor_protocol import (
    EXECUTOR_PROTOCOL_VERSION,
    HEADER_BYTES,
    SOCKET_VARIABLE,
    ClientFrame,
    Done,
    Run,
    TaskClientHello,
    encode_frame,
)
from sparrow_py.job import TaskStatus

PR_GET_DUMPABLE = 3
DAEMON = """
import os, time
if os.fork():
    os._exit(0)
os.setsid()
print(os.getpid(), flush=True)
time.sleep(600)
"""
SEEN: list[str] = []
"""What this process was told: a fork of one that had run something would begin with that."""


def answer(words: str, key: bytes) -> str:
    """What comes of a task."""
    SEEN.append(words)
    match words.split():
        case ["seen"]:
            return " ".join(SEEN)
        case ["stands"]:
            return f"{os.getppid()} {os.getsid(0)} {ctypes.CDLL(None).prctl(PR_GET_DUMPABLE)} {os.read(0, 1)!r}"
        case ["leave"]:
            with subprocess.Popen([sys.executable, "-S", "-c", DAEMON], stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                return process.stdout.readline().decode().strip()
        case ["has", module]:
            return str(module in sys.modules)
        case ["client", run]:
            return client(int(run), key)
        case ["client", run, "version", version]:
            return client(int(run), key, int(version))
        case ["client", run, other_key]:
            return client(int(run), bytes.fromhex(other_key))
        case ["key"]:
            return key.hex()
        case ["exit", code]:
            os._exit(int(code))
    return ""


def client(run: int, key: bytes, version: int = EXECUTOR_PROTOCOL_VERSION) -> str:
    """A client within this run says hello: what it hears, or nothing if it is cut off."""
    with socket.socket(socket.AF_UNIX) as made:
        made.connect(os.environ[SOCKET_VARIABLE])
        made.sendall(encode_frame([TaskClientHello(version, run, key), ClientFrame(b"hello")]))
        try:
            return made.recv(1 << 16)[HEADER_BYTES:].hex()
        except ConnectionError:
            return ""


def main() -> int:
    """Serve until the node monitor goes away."""
    connection = ExecutorConnection.from_environment("forked")
    try:
        while True:
            for run in connection.receive():
                if isinstance(run, Run):
                    assert isinstance(run.payload, bytes)
                    result = answer(run.payload.decode(), run.key).encode()
                    connection.send([Done(run.run, TaskStatus.FINISHED, result, "", time.time(), 0.0)])
    except (EOFError, ConnectionError):
        return 0
