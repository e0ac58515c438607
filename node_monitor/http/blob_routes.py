"""The HTTP of large inputs and results: clients give and fetch them, nodes fetch them from each other."""

from __future__ import annotations

import os

from aiohttp import web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.web_request import BaseRequest

from node_monitor.blobs.blob_store import ARRIVAL_BYTES_PER_S_MIN, BlobStore, NoRoom
from sparrow_py.access.principals import ANYBODY, Principal
from sparrow_py.daemon.http_app import PRINCIPAL, holder_of
from sparrow_py.errors import shown
from sparrow_py.http import http_guard
from sparrow_py.http.http_api import error_response, json_response
from sparrow_py.wire import blobs
from sparrow_py.wire.blobs import WrongBytes

READ_BYTES = 1 << 20
"""Read from a file at a time where the loop has no sendfile."""


def add_blob_routes(app: web.Application, store: BlobStore) -> None:
    """Add GET, HEAD and PUT of /v1/blobs/{hash}."""
    api = _Api(store)
    app.router.add_get("/v1/blobs/{hash}", api.get)
    app.router.add_put("/v1/blobs/{hash}", api.put, expect_handler=_continue_later)


class _Api:
    """The handlers of requests."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def get(self, request: web.Request) -> web.StreamResponse:
        """`GET /v1/blobs/{hash}`, and `HEAD`."""
        hash = request.match_info["hash"]
        if not blobs.is_hash(hash):
            return _malformed(hash)
        if not self._store.has(hash):
            return _absent(hash)
        try:
            # aiohttp itself would answer with 404, whatever keeps the file from being opened.
            os.close(os.open(self._store.path(hash), os.O_RDONLY))
        except FileNotFoundError:
            return _absent(hash)
        except OSError as error:
            return _not_now(f"blob {hash} cannot be read now: {error.strerror}")
        return _BlobResponse(self._store, hash, holder_of(request), _user_of(request))

    async def put(self, request: web.Request) -> web.StreamResponse:
        """`PUT /v1/blobs/{hash}`."""
        hash, size = request.match_info["hash"], request.content_length
        if not blobs.is_hash(hash):
            return _malformed(hash)
        if size is None:
            return error_response(411, "Content-Length is missing: say how many bytes the blob has")
        if "Content-Encoding" in request.headers:
            given = shown(request.headers["Content-Encoding"])
            return error_response(415, f"Content-Encoding: {given} is not valid; allowed: no header")
        if self._store.has(hash):
            return self._stored(request, hash, 200)
        if size > self._store.table.bytes_max:
            return error_response(413, self._store.table.refusal(size))
        return await self._receive(request, hash, size)

    async def _receive(self, request: web.Request, hash: str, size: int) -> web.StreamResponse:
        user = holder_of(request)
        async with self._store.upload_seats.taken(user):
            why_not = self._store.why_no_room(size, user)
            if why_not:
                self._store.found_no_room(f"an upload of {size} bytes", why_not, is_disk_full=False)
                return error_response(507, why_not)
            try:
                await _say_continue(request)
                await self._store.receive(hash, size, request.content, user=user)
            except NoRoom as error:
                return error_response(507, str(error))
            except WrongBytes as error:
                return error_response(422, f"the body is not the blob {hash}: {error}")
            except TimeoutError:
                return _closing(error_response(408, _too_slow()))
            except (ConnectionError, web.RequestPayloadError):
                return _closing(error_response(400, "the connection ended before the body did"))
        self._store.counters.uploaded_bytes += size
        return self._stored(request, hash, 201)

    def _stored(self, request: web.Request, hash: str, status: int) -> web.Response:
        """The blob is here, for a while at least; 507 if it had lapsed and the user may hold no more."""
        size = self._store.table.size(hash) or 0
        if not self._store.touch(hash, _user_of(request)):
            return error_response(507, self._store.table.refusal(size, user=_user_of(request)))
        return json_response({"hash": hash, "size": size}, status)


def _user_of(request: web.Request) -> str:
    """Who uses the blob; empty for the cluster's nodes, and where nobody says who asks."""
    principal: Principal = request.get(PRINCIPAL, ANYBODY)
    return principal.user


def _absent(hash: str) -> web.Response:
    return error_response(404, f"blob {hash} is not here, or not any more")


def _not_now(message: str) -> web.Response:
    response = error_response(503, message)
    response.headers["Retry-After"] = "1"
    return response


def _malformed(hash: str) -> web.Response:
    return error_response(400, f"hash: {shown(hash)} is not valid; allowed: {blobs.HASH_ALLOWED}")


def _too_slow() -> str:
    return f"nothing came for {blobs.STALL_TIMEOUT_S:g} s, or less than {ARRIVAL_BYTES_PER_S_MIN} bytes/s"


def _closing(response: web.Response) -> web.Response:
    """Close the connection afterwards: nobody can tell what comes next on it."""
    response.force_close()
    return response


async def _continue_later(_: web.Request) -> None:
    """A client that says `Expect: 100-continue` is told to send the body once there is room for it, not now."""


async def _say_continue(request: web.Request) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # This line is not part of the answer yet.


class _BlobResponse(web.FileResponse):
    """A blob, or a range of it, from its file: the blob arrives whole even if it is evicted meanwhile."""

    def __init__(self, store: BlobStore, hash: str, holder: str, user: str) -> None:
        super().__init__(store.path(hash), READ_BYTES, headers={"Content-Type": "application/octet-stream"})
        self._store = store
        self._hash = hash
        self._holder = holder
        """Whose share of connections the answer counts to while it is sent."""
        self._user = user

    async def prepare(self, request: BaseRequest) -> AbstractStreamWriter | None:
        self._store.touch(self._hash, self._user)
        with http_guard.served(request, self._holder):
            writer = await super().prepare(request)  # Sends it all.
        if request.method == "GET" and self.status in (200, 206):
            self._store.served(self._hash, self.content_length or 0, self.status == 200, self._user)
        return writer
