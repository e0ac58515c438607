"""A blob store that serves HTTP, for tests of the store and of its routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web

from node_monitor.blobs.blob_store import BlobStore
from node_monitor.blobs.blobs import BlobTable
from node_monitor.blobs.result_files import ResultDirectory
from node_monitor.http.blob_routes import add_blob_routes
from sparrow_py.access.credentials import Access, Credentials
from sparrow_py.access.principals import check_secret
from sparrow_py.daemon.http_app import make_app
from sparrow_py.daemon.options import DaemonOptions
from sparrow_py.daemon.process import until
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import BlobRef
from sparrow_py.timing.clock import Clock
from sparrow_py.wire import blobs

LEASE_S, RETENTION_S = 10.0, 60.0
TOKEN = "secret" * 6
ACCESS = Access(TOKEN)
MB = 1_000_000


def names(directory: str | Path) -> list[str]:
    """What is in the directory."""
    return sorted(path.name for path in Path(directory).iterdir())


class SetClock(Clock):
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def guarded() -> DaemonOptions:
    """Those of a daemon that asks for the token."""
    options = DaemonOptions()
    options.tokens = check_secret("token", TOKEN)
    return options


class Node:
    """A store, served over HTTP as in a daemon."""

    def __init__(self, store: BlobStore, clock: SetClock) -> None:
        self.options = guarded()
        self.store = store
        self.clock = clock
        self.got: list[str] = []
        """Method and hash of every request for a blob."""
        self.runner: web.AppRunner | None = None

    async def start(self) -> None:
        self.store.start()
        self.results = ResultDirectory(self.store.incoming, "executor")
        app = make_app(self, Credentials(self.options, dials=True), lambda exemplars: [])
        add_blob_routes(app, self.store)
        app.middlewares.append(self._note())
        self.runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self.runner.setup()
        await web.TCPSite(self.runner, "127.0.0.1", 0).start()
        self.store.address = f"127.0.0.1:{self.runner.addresses[0][1]}"

    def _note(self) -> Any:
        @web.middleware
        async def note(
            request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
        ) -> web.StreamResponse:
            self.got.append(f"{request.method} {request.path.rpartition('/')[2]}")
            return await handler(request)

        return note

    def why_not_ready(self) -> str:
        return ""

    async def stop(self) -> None:
        assert self.runner is not None
        await self.runner.cleanup()
        self.results.close()
        await self.store.stop()

    @property
    def address(self) -> str:
        return self.store.address

    @property
    def files(self) -> set[str]:
        """Names of the blobs' files, after those of the partial ones have gone."""
        assert self.partial == []
        return set(names(Path(self.store.incoming).parent)) - {"incoming", "partial", "lock"}

    @property
    def partial(self) -> list[str]:
        return names(Path(self.store.incoming).parent / "partial")

    async def settled(self) -> None:
        """Wait for files to be deleted."""
        await until(lambda: not self.partial, every_s=0.001)

    async def fetch(self, ref: BlobRef) -> str:
        """What `done` is told."""
        told: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.store.fetch(ref, lambda _, reason: told.set_result(reason))
        assert not told.done()
        return await told

    def put_file(self, data: bytes, hash: str = "") -> x.File:
        """A result as an executor gives it."""
        path = Path(self.results.path, "result")
        path.write_bytes(data)
        return x.File(str(path), len(data), hash)

    async def take(self, file: x.File) -> x.File:
        """The store takes it over for a job."""
        return await self.store.take(self.results, file, "job")

    def keep(self, data: bytes) -> BlobRef:
        """The blob is here, as a result of an executor's."""
        path = Path(self.store._partial_path())
        path.write_bytes(data)
        self.store._keep(str(path), blobs.sha256_hex(data), len(data), None, "")
        self.store._unfetched.add(blobs.sha256_hex(data))
        return self.ref(data)

    def ref(self, data: bytes) -> BlobRef:
        return BlobRef(blobs.sha256_hex(data), len(data), (self.address,))


def make_node(
    session: aiohttp.ClientSession, directory: str, bytes_max: int = 100 * MB, lease_s: float = LEASE_S
) -> Node:
    """A node that has not started."""
    clock = SetClock()
    return Node(BlobStore(BlobTable(bytes_max, RETENTION_S, lease_s), session, lambda: ACCESS, clock, directory), clock)


Start = Callable[..., Awaitable[Node]]


Peer = Callable[[bytes], Awaitable[str]]


HANG = b"HANG"
DATA = b"large data" * 20_000
HASH = blobs.sha256_hex(DATA)
AUTHORIZED = {"Authorization": f"Bearer {TOKEN}"}


def ok(length: int) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n".encode()


def url(node: Node, hash: str = HASH) -> str:
    return f"http://{node.address}/v1/blobs/{hash}"


async def message_of(response: aiohttp.ClientResponse) -> str:
    message = (await response.json())["error"]["message"]
    assert isinstance(message, str)
    return message
