"""Large data by HTTP: uploaded once, served whole or in part, and what is refused."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from node_monitor.blobs import blob_store
from node_monitor.http import blob_routes
from sparrow_py.daemon.process import until
from sparrow_py.errors import Refused
from sparrow_py.job import BlobRef
from sparrow_py.wire import blobs
from tests.support.blob_nodes import (
    ACCESS,
    AUTHORIZED,
    DATA,
    HASH,
    LEASE_S,
    MB,
    TOKEN,
    Node,
    Start,
    message_of,
    url,
)


async def test_what_was_uploaded_is_a_file_named_by_its_hash(node: Node, session: aiohttp.ClientSession) -> None:
    ref = await blobs.upload(session, node.address, ACCESS, DATA, HASH)
    assert ref == BlobRef(HASH, len(DATA), (node.address,))
    assert node.store.has(HASH)
    file = node.store.file(HASH)
    assert (file.size, file.hash) == (len(DATA), HASH)
    path = Path(file.path)
    assert path.read_bytes() == DATA
    assert path.stat().st_mode & 0o777 == 0o400
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert node.store.counters.uploaded_bytes == len(DATA)
    assert node.files == {HASH}


async def test_a_blob_of_no_bytes(node: Node, session: aiohttp.ClientSession, start: Start) -> None:
    ref = await blobs.upload(session, node.address, ACCESS, b"", blobs.sha256_hex(b""))
    assert await (await start()).fetch(ref) == ""
    assert await blobs.download(session, ref, ACCESS) == b""


async def test_a_put_answers_201_then_200_and_takes_no_second_body(node: Node, session: aiohttp.ClientSession) -> None:
    async with session.put(url(node), data=DATA, headers=AUTHORIZED) as response:
        assert response.status == 201
        assert await response.json() == {"hash": HASH, "size": len(DATA)}
    async with session.put(url(node), data=DATA, headers=AUTHORIZED) as response:
        assert response.status == 200
    assert node.store.counters.uploaded_bytes == len(DATA)


async def test_a_body_that_is_here_already_is_not_sent(node: Node, session: aiohttp.ClientSession) -> None:
    node.keep(DATA)
    sent: list[int] = []

    async def body() -> AsyncIterator[bytes]:
        sent.append(1)
        yield DATA

    headers = AUTHORIZED | {"Content-Length": str(len(DATA))}
    async with session.put(url(node), data=body(), headers=headers, expect100=True) as response:
        assert response.status == 200
    assert sent == []


@pytest.mark.parametrize("hash", ["x", HASH.upper(), HASH[1:], HASH + "0", HASH[1:] + "g", "..%2f..%2fetc"])
@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_a_malformed_hash_is_refused(node: Node, session: aiohttp.ClientSession, hash: str, method: str) -> None:
    async with session.request(method, url(node, hash), headers=AUTHORIZED) as response:
        assert response.status == 400
        message = await message_of(response)
    assert message.startswith("hash: '")
    assert message.endswith("is not valid; allowed: 64 lower-case hexadecimal digits (a SHA-256)")


@pytest.mark.parametrize("method", ["GET", "PUT"])
async def test_the_token_is_asked_for(node: Node, session: aiohttp.ClientSession, method: str) -> None:
    async with session.request(method, url(node), data=b"x") as response:
        assert response.status == 401


async def test_a_body_of_unknown_length_is_refused(node: Node, session: aiohttp.ClientSession) -> None:
    async def body() -> AsyncIterator[bytes]:
        yield DATA

    async with session.put(url(node), data=body(), headers=AUTHORIZED) as response:
        assert response.status == 411
        assert "Content-Length" in await message_of(response)


async def test_a_compressed_body_is_refused(node: Node, session: aiohttp.ClientSession) -> None:
    headers = AUTHORIZED | {"Content-Encoding": "gzip"}
    async with session.put(url(node), data=b"", headers=headers) as response:
        assert response.status == 415
        assert "Content-Encoding: 'gzip' is not valid" in await message_of(response)


async def test_other_bytes_than_announced_are_not_kept(node: Node, session: aiohttp.ClientSession) -> None:
    wrong = DATA[:-1] + b"!"
    async with session.put(url(node), data=wrong, headers=AUTHORIZED) as response:
        assert response.status == 422
        assert await message_of(response) == (
            f"the body is not the blob {HASH}: its SHA-256 is {blobs.sha256_hex(wrong)}, not {HASH}"
        )
    assert not node.store.has(HASH)
    assert node.files == set()


async def test_what_can_never_fit_is_refused_before_it_is_sent(start: Start, session: aiohttp.ClientSession) -> None:
    node = await start(bytes_max=len(DATA) - 1)
    with pytest.raises(Refused) as refused:
        await blobs.upload(session, node.address, ACCESS, DATA, HASH)
    assert str(refused.value) == (
        f"{node.address}: the blob is {len(DATA)} bytes; at most blob_bytes_max = {len(DATA) - 1} bytes are kept at a "
        "node; 0 are in use"
    )
    async with session.put(url(node), data=DATA, headers=AUTHORIZED) as response:
        assert response.status == 413


async def test_what_does_not_fit_now_is_refused(start: Start, session: aiohttp.ClientSession) -> None:
    node = await start(bytes_max=2 * len(DATA))
    node.keep(bytes(len(DATA) + 1))
    async with session.put(url(node), data=DATA, headers=AUTHORIZED) as response:
        assert response.status == 507
        assert (await message_of(response)).endswith(f"{len(DATA) + 1} are in use")
    assert node.store.counters.no_room == 1
    node.clock.now_s += LEASE_S
    await blobs.upload(session, node.address, ACCESS, DATA, HASH)
    await node.settled()
    assert node.files == {HASH}


async def test_uploads_at_once_of_one_blob_do_not_mix(node: Node, session: aiohttp.ClientSession) -> None:
    data = os.urandom(2 * MB)
    hash = blobs.sha256_hex(data)
    refs = await asyncio.gather(*(blobs.upload(session, node.address, ACCESS, data, hash) for _ in range(8)))
    assert set(refs) == {BlobRef(hash, len(data), (node.address,))}
    assert node.files == {hash}
    assert Path(node.store.path(hash)).read_bytes() == data
    assert node.store.table.bytes_used == len(data)


async def half_a_put(node: Node, data: bytes, sent: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(*node.address.rsplit(":", 1))
    head = f"PUT /v1/blobs/{HASH} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\nContent-Length: {len(data)}"
    writer.write(head.encode() + b"\r\n\r\n" + data[:sent])
    await writer.drain()
    return reader, writer


async def test_uploads_at_once_have_room_for_all_or_are_refused(start: Start, session: aiohttp.ClientSession) -> None:
    node = await start(bytes_max=2 * len(DATA))
    _, writer = await half_a_put(node, DATA, 1000)
    await until(lambda: node.store.table.bytes_reserved > 0, every_s=0.001)
    other = b"x" * (len(DATA) + 1)
    async with session.put(url(node, blobs.sha256_hex(other)), data=other, headers=AUTHORIZED) as response:
        assert response.status == 507
        assert (await message_of(response)).endswith(f"{len(DATA)} are in use")
    writer.write(DATA[1000:])
    await until(lambda: node.store.has(HASH), every_s=0.001)
    writer.close()


async def test_an_upload_that_is_broken_off_leaves_nothing(node: Node) -> None:
    _, writer = await half_a_put(node, DATA, 1000)
    await until(lambda: node.store.table.bytes_reserved > 0, every_s=0.001)
    writer.close()
    await until(lambda: node.store.table.bytes_reserved == 0, every_s=0.001)
    assert node.files == set()


async def test_a_client_that_goes_before_it_may_send_is_no_fault_of_the_node(
    node: Node, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    say, said = blob_routes._say_continue, asyncio.Event()

    async def gone_then_say(request: web.Request) -> None:
        assert request.transport is not None
        request.transport.abort()
        try:
            await say(request)
        finally:
            said.set()

    monkeypatch.setattr(blob_routes, "_say_continue", gone_then_say)
    with pytest.raises(aiohttp.ClientError):
        async with session.put(url(node), data=DATA, headers=AUTHORIZED, expect100=True):
            pass
    await said.wait()
    assert node.files == set() and not caplog.records


async def test_an_upload_that_drips_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Something comes all the time, and never enough."""
    monkeypatch.setattr(blobs, "STALL_TIMEOUT_S", 0.2)
    reader, writer = await half_a_put(node, DATA, 1)

    async def drip() -> None:
        for number in range(1, len(DATA)):
            writer.write(DATA[number : number + 1])
            await asyncio.sleep(0.01)

    dripping = asyncio.create_task(drip())
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    assert b"or less than 16384 bytes/s" in await reader.readuntil(b"}}")
    dripping.cancel()
    writer.close()
    await until(lambda: node.files == set(), every_s=0.001)


async def test_an_upload_that_stalls_is_ended(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "STALL_TIMEOUT_S", 0.05)
    reader, writer = await half_a_put(node, DATA, 1000)
    assert (await reader.readline()).startswith(b"HTTP/1.1 408")
    assert b"nothing came for 0.05 s" in await reader.readuntil(b"}}")
    writer.close()
    assert node.store.table.bytes_reserved == 0
    assert node.files == set()


async def test_a_full_disk_is_told(node: Node, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(blob_store._Arrival, "_absorb", fail)
    with pytest.raises(Refused, match="it cannot be written: No space left on device"):
        await blobs.upload(session, node.address, ACCESS, DATA, HASH)
    assert node.files == set()


async def test_more_uploads_than_seats_wait_for_their_turn(node: Node, session: aiohttp.ClientSession) -> None:
    many = [bytes([number]) * 1000 for number in range(3 * blob_store.UPLOADS_AT_ONCE_MAX)]
    await asyncio.gather(*(blobs.upload(session, node.address, ACCESS, b, blobs.sha256_hex(b)) for b in many))
    assert len(node.files) == len(many)


async def test_a_blob_is_served(node: Node, session: aiohttp.ClientSession) -> None:
    node.keep(DATA)
    async with session.get(url(node), headers=AUTHORIZED) as response:
        assert response.status == 200
        assert response.content_type == "application/octet-stream"
        assert await response.read() == DATA
    await until(lambda: node.store.counters.served_bytes == len(DATA), every_s=0.001)


@pytest.mark.parametrize(
    ("given", "part"),
    [("bytes=0-9", slice(0, 10)), ("bytes=100-", slice(100, None)), ("bytes=-5", slice(-5, None))],
)
async def test_a_range_is_served(node: Node, session: aiohttp.ClientSession, given: str, part: slice) -> None:
    node.keep(DATA)
    async with session.get(url(node), headers=AUTHORIZED | {"Range": given}) as response:
        assert response.status == 206
        assert await response.read() == DATA[part]
    await until(lambda: node.store.counters.served_bytes == len(DATA[part]), every_s=0.001)


async def test_a_range_beyond_the_end_is_refused(node: Node, session: aiohttp.ClientSession) -> None:
    node.keep(DATA)
    async with session.get(url(node), headers=AUTHORIZED | {"Range": f"bytes={len(DATA)}-"}) as response:
        assert response.status == 416


async def test_head_says_the_size(node: Node, session: aiohttp.ClientSession) -> None:
    node.keep(DATA)
    async with session.head(url(node), headers=AUTHORIZED) as response:
        assert (response.status, response.content_length) == (200, len(DATA))
    assert node.store.counters.served_bytes == 0


async def test_what_is_not_here_is_404(node: Node, session: aiohttp.ClientSession) -> None:
    async with session.get(url(node), headers=AUTHORIZED) as response:
        assert response.status == 404
        assert await message_of(response) == f"blob {HASH} is not here, or not any more"


async def test_what_cannot_be_opened_now_is_not_said_to_be_gone(
    node: Node, session: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.keep(DATA)
    open_file = os.open

    def used_up(path: Any, *more: Any, **named: Any) -> int:
        if path == node.store.path(HASH):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return open_file(path, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", used_up)
        async with session.get(url(node), headers=AUTHORIZED) as response:
            assert (response.status, response.headers["Retry-After"]) == (503, "1")
            assert await message_of(response) == f"blob {HASH} cannot be read now: Too many open files"
    async with session.get(url(node), headers=AUTHORIZED) as response:
        assert await response.read() == DATA


async def test_what_somebody_deleted_is_404_and_may_come_again(node: Node, session: aiohttp.ClientSession) -> None:
    node.keep(DATA)
    Path(node.store.path(HASH)).unlink()
    async with session.get(url(node), headers=AUTHORIZED) as response:
        assert response.status == 404
    assert node.store.table.bytes_used == 0
    await blobs.upload(session, node.address, ACCESS, DATA, HASH)
    assert Path(node.store.path(HASH)).read_bytes() == DATA


async def test_to_be_fetched_renews_the_lease(start: Start, session: aiohttp.ClientSession) -> None:
    node = await start(bytes_max=len(DATA))
    ref = node.keep(DATA)
    node.clock.now_s += LEASE_S
    await blobs.download(session, ref, ACCESS)
    assert node.store.why_no_room(1)
    node.clock.now_s += LEASE_S
    assert node.store.why_no_room(1) == ""


async def test_what_is_evicted_while_it_is_served_arrives_whole(start: Start, session: aiohttp.ClientSession) -> None:
    data = os.urandom(30 * MB)
    node = await start(bytes_max=len(data), lease_s=0.0)
    ref = node.keep(data)
    async with session.get(url(node, ref.hash), headers=AUTHORIZED) as response:
        node.keep(b"something else")
        await node.settled()
        assert not node.store.has(ref.hash)
        assert not Path(node.store.path(ref.hash)).exists()
        assert await response.read() == data
