"""The programs of `contention_live`, each run in a network namespace: a store of input, background traffic, readers.

`python -m benchmarks.flow.live_traffic serve|send|read …`; `read` prints a JSON object with response times.
"""

from __future__ import annotations

import json
import random
import socket
import sys
import threading
import time
from concurrent.futures import wait
from typing import Any

from sparrow_py import Client

PORT = 9_000
REQUEST_BYTES = 20
CHUNK = bytes(1 << 16)
DATAGRAM = bytes(1_400)
"""Fits a frame of the usual size."""
BURST_S = 0.005
NET = "net_bytes_per_s"


def read_input(host: str, port: int, size: int) -> int:
    """The task: read so many bytes from the store. How many came."""
    with socket.create_connection((host, port)) as store:
        store.sendall(str(size).encode().ljust(REQUEST_BYTES))
        buffer, got = bytearray(1 << 18), 0
        while count := store.recv_into(buffer):
            got += count
    return got


def serve(host: str, port: int = PORT, *, listener: socket.socket | None = None) -> None:
    """A store: sends whoever connects as many bytes as were asked for. For ever."""
    with listener or socket.create_server((host, port)) as server:
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_send_input, args=(connection,), daemon=True).start()


def _send_input(connection: socket.socket) -> None:
    try:
        with connection:
            left = int(connection.recv(REQUEST_BYTES, socket.MSG_WAITALL))
            while left > 0:
                left -= connection.send(CHUNK[:left])
    except (OSError, ValueError):
        return  # Its reader was ended.


def send(host: str, bytes_per_s: float) -> None:
    """Background traffic: datagrams at this rate, whatever becomes of them. For ever."""
    sent, begun_s = 0, time.monotonic()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        while True:
            while sent < bytes_per_s * (time.monotonic() - begun_s):
                sender.sendto(DATAGRAM, (host, PORT))
                sent += len(DATAGRAM)
            time.sleep(BURST_S)


def read(scheduler: str, store: str, plan: dict[str, Any]) -> dict[str, Any]:
    """Submit a task each at random times, and tell how long each took; what has not ended in time counts as having
    taken that long."""
    chance, taken_s = random.Random(plan["seed"]), [0.0] * plan["tasks"]
    futures = []
    with Client(scheduler, user="reader") as client:
        client.wait_for_nodes(plan["nodes"], timeout_s=60)
        calls = client.with_options(**plan["options"])
        calls.submit(read_input, store, PORT, 1_000).result(timeout=60)  # Executors are there, and have the function.
        begun_s = at_s = time.monotonic()
        for number in range(plan["tasks"]):
            at_s += chance.expovariate(plan["rate"])
            size = int(chance.uniform(plan["size_min"], plan["size_max"]))
            time.sleep(max(0.0, at_s - time.monotonic()))
            submitted_s = time.monotonic()

            def ended(_: Any, number: int = number, submitted_s: float = submitted_s) -> None:
                taken_s[number] = time.monotonic() - submitted_s

            taken_s[number] = -submitted_s
            future = calls.submit(read_input, store, PORT, size)
            future.add_done_callback(ended)
            futures.append(future)
        left = wait(futures, timeout=max(0.0, begun_s + plan["within_s"] - time.monotonic())).not_done
        now_s = time.monotonic()
        found = {"taken_s": [took_s if took_s > 0 else now_s + took_s for took_s in taken_s], "unfinished": len(left)}
        for future in left:
            future.cancel()
    return found


def main(arguments: list[str]) -> None:
    """See the module's docstring."""
    kind, *rest = arguments
    if kind == "serve":
        serve(rest[0])
    elif kind == "send":
        send(rest[0], float(rest[1]))
    else:
        print(json.dumps(read(rest[0], rest[1], json.loads(rest[2]))), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
