"""Large inputs and results ("blobs") as clients see them: sent to a node monitor and fetched from one over HTTP.

A blob is named by the SHA-256 of its bytes. Whoever reads one checks size and hash.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import hashlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence

import aiohttp
import orjson
from aiohttp.abc import AbstractStreamWriter
from tenacity import AsyncRetrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from sparrow_py.access.credentials import Access, tls_reason
from sparrow_py.errors import AccessDenied, InvalidRequest, LinkError, Refused, ResultLost, shown
from sparrow_py.job import BlobRef
from sparrow_py.wire.addresses import check_address

CONNECT_TIMEOUT_S = 5.0
STALL_TIMEOUT_S = 30.0
"""A transfer in which nothing moves for so long has failed."""
CHUNK_BYTES = 256 << 10
"""Bytes written to a connection at a time."""
INLINE_HASH_BYTES_MAX = 64 << 10
"""More than this is hashed in a thread, so that the event loop runs on."""
ADDRESSES_TRIED_MAX = 16
"""A reference may name more places; so many are tried."""
SHORTAGE_TIMEOUT_S = 10.0
"""So long a blob is asked for again that could not be had for want of something that may be there again soon."""
SHORTAGE_RETRY_MAX_S = 1.0
"""The longest wait between two tries."""
ROOM_RETRY_S = 1.0
"""When a node that has no room for a blob now may be asked again."""
SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
"""Errors of opening a connection that say nothing about the other side."""
ERROR_BYTES_MAX = 64 << 10
"""Read of an error's body."""
HASH_ALLOWED = "64 lower-case hexadecimal digits (a SHA-256)"

_is_hash = re.compile("[0-9a-f]{64}").fullmatch


class WrongBytes(LinkError):
    """What came is not the blob that was asked for or announced."""


class Shortage(LinkError):
    """Here or at the node something is used up for now: file descriptors, memory. The blob may well be there."""


def sha256_hex(data: bytes | bytearray | memoryview) -> str:
    """The name of a blob with these bytes."""
    return hashlib.sha256(data).hexdigest()


async def sha256_hex_aside(data: bytes | bytearray) -> str:
    """As `sha256_hex`, without holding the loop up."""
    try:
        return await asyncio.to_thread(sha256_hex, data)
    except RuntimeError:  # No thread can be started any more: the interpreter ends, and this is of its last work.
        return sha256_hex(data)


def is_hash(text: str) -> bool:
    """Whether this may name a blob."""
    return _is_hash(text) is not None


def check_digest(digest: str, hash: str) -> None:
    """`WrongBytes` if the bytes that came have another digest than the blob's."""
    if digest != hash:
        raise WrongBytes(f"its SHA-256 is {digest}, not {hash}")


def check_size(there: int | None, size: int) -> None:
    """`WrongBytes` if a body's Content-Length is not the blob's size. That size is not told: whoever has the hash alone
    hears nothing of the blob."""
    if there != size:
        raise WrongBytes(f"it is {'of unknown size' if there is None else f'not {size} bytes'} there")


async def upload(
    session: aiohttp.ClientSession, address: str, access: Access, data: bytes | bytearray | memoryview, hash: str
) -> BlobRef:
    """Give a blob to the node monitor at `address`, which need not read it if it has it already.

    `Refused` if the node has no room for it, with `retry_after_s` if it may have room later; `AccessDenied`;
    `LinkError` for all else.
    """
    view = memoryview(data).cast("B")
    loop = asyncio.get_running_loop()
    with _reasons(address, access):
        async with asyncio.timeout(CONNECT_TIMEOUT_S + STALL_TIMEOUT_S) as stall:

            def progress() -> None:
                if not stall.expired():
                    stall.reschedule(loop.time() + STALL_TIMEOUT_S)

            async with session.put(
                blob_url(address, hash, access),
                data=_Body(view, progress),
                headers=access.headers(),
                ssl=access.ssl,
                # The node answers before anything is sent if it has the blob, or no room.
                expect100=True,
                timeout=_timeout(),
                allow_redirects=False,
            ) as response:
                status = response.status
                if status in (200, 201):
                    return BlobRef(hash, len(view), (address,))
                reason = await _error_message(response)
    if status in (413, 507):
        raise Refused(f"{address}: {reason}", ROOM_RETRY_S if status == 507 else None)
    raise (AccessDenied if status in (401, 403) else LinkError)(f"{address}: {status}: {reason}")


async def download(session: aiohttp.ClientSession, ref: BlobRef, access: Access) -> bytearray:
    """The bytes of a blob, from the first of its addresses that has them whole; `ResultLost` if none has.

    A node that does not answer is given up at once, as what it had is gone; a shortage is waited out for a while.
    """
    try:
        async for attempt in AsyncRetrying(
            retry=retry_if_exception_type(Shortage),
            wait=wait_random_exponential(multiplier=0.05, max=SHORTAGE_RETRY_MAX_S),
            stop=stop_after_delay(SHORTAGE_TIMEOUT_S),
            reraise=True,
        ):
            with attempt:
                return await _download(session, ref, access)
    except LinkError as error:
        raise ResultLost(f"a result of {ref.size} bytes cannot be fetched: {error}") from None
    raise AssertionError("it is tried until it is had, or not to be had")


async def _download(session: aiohttp.ClientSession, ref: BlobRef, access: Access) -> bytearray:
    """As `download`, once. `LinkError` with all reasons; `Shortage` if one of them was that."""
    errors: list[LinkError] = []
    for address in ref.at[:ADDRESSES_TRIED_MAX]:
        try:
            async with get_blob(session, address, access, ref.hash, access.headers()) as response:
                return await _read(response, ref)
        except LinkError as error:
            errors.append(error)
    kind = Shortage if any(isinstance(error, Shortage) for error in errors) else LinkError
    raise kind(all_reasons([str(error) for error in errors]))


def all_reasons(reasons: Sequence[str]) -> str:
    """Why a blob could be had from none of its addresses."""
    return "; ".join(reasons) or "no node is named that has it"


@contextlib.asynccontextmanager
async def get_blob(
    session: aiohttp.ClientSession, address: str, access: Access, hash: str, proof: dict[str, str]
) -> AsyncIterator[aiohttp.ClientResponse]:
    """A node's answer that brings a blob. `LinkError` names the address, and says why there is none or why what was
    done with it failed on the way. `proof`: the headers that show who asks."""
    with _reasons(address, access):
        async with session.get(
            blob_url(address, hash, access),
            # A node that compressed a blob would only make it slower, and would not say its size.
            headers={"Accept-Encoding": "identity", **proof},
            ssl=access.ssl,
            timeout=_timeout(),
            allow_redirects=False,
        ) as response:
            if response.status == 503:
                raise Shortage(await _error_message(response))
            if response.status != 200:
                raise LinkError(str(response.status))
            yield response


def blob_url(address: str, hash: str, access: Access) -> str:
    """Where a node monitor has a blob; `LinkError` if the address is none."""
    try:
        return access.url(check_address(address), f"/v1/blobs/{hash}")
    except InvalidRequest:
        raise LinkError("not host:port") from None


async def _read(response: aiohttp.ClientResponse, ref: BlobRef) -> bytearray:
    check_size(response.content_length, ref.size)
    # Not made at its full size: to zero 100 MB would hold the loop up for 50 ms. To grow it moves pages, not bytes.
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > ref.size:
            break
    if len(data) != ref.size:
        raise WrongBytes(f"it is {'more than' if len(data) > ref.size else 'only'} {min(len(data), ref.size)} bytes")
    if ref.size <= INLINE_HASH_BYTES_MAX:
        check_digest(sha256_hex(data), ref.hash)
    else:
        check_digest(await sha256_hex_aside(data), ref.hash)
    return data


class _Body(aiohttp.Payload):
    """A request's body from memory, without a copy; from its start again if the request is tried again."""

    def __init__(self, view: memoryview, progress: Callable[[], None]) -> None:
        super().__init__(view, content_type="application/octet-stream")
        self._size = len(view)
        self._view = view
        self._progress = progress

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        raise TypeError("a blob is no text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        for start in range(0, len(self._view), CHUNK_BYTES):
            self._progress()
            await writer.write(self._view[start : start + CHUNK_BYTES])

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        await self.write(writer)


def _timeout() -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(connect=CONNECT_TIMEOUT_S, sock_read=STALL_TIMEOUT_S)  # connect: DNS, too.


async def _error_message(response: aiohttp.ClientResponse) -> str:
    body = await response.content.read(ERROR_BYTES_MAX)
    try:
        return str(orjson.loads(body)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return response.reason or "no reason was given"


@contextlib.contextmanager
def _reasons(address: str, access: Access) -> Iterator[None]:
    """Whatever goes wrong with a connection becomes a `LinkError` that begins with the address."""
    where = address if address.isprintable() and len(address) <= 80 else shown(address)
    try:
        yield
    except LinkError as error:
        raise type(error)(f"{where}: {error}") from None
    except aiohttp.ConnectionTimeoutError:
        raise LinkError(f"{where}: cannot be reached: no answer within {CONNECT_TIMEOUT_S:g} s") from None
    except aiohttp.ClientConnectorError as error:
        reason = tls_reason(error, access) or error.os_error.strerror or error
        raise _kind(error.os_error)(f"{where}: cannot be reached: {reason}") from None
    except UnicodeError:
        raise LinkError(f"{where}: no host has such a name") from None
    except TimeoutError:
        raise LinkError(f"{where}: nothing came or went for {STALL_TIMEOUT_S:g} s") from None
    except (aiohttp.ClientError, OSError) as error:
        raise _kind(error)(f"{where}: broke off: {tls_reason(error, access) or error}") from None


def _kind(error: Exception) -> type[LinkError]:
    return Shortage if isinstance(error, OSError) and error.errno in SHORTAGES else LinkError
