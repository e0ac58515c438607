"""Blob stores that serve HTTP, and peers that serve what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from tests.support.blob_nodes import (
    HANG,
    LEASE_S,
    MB,
    Node,
    Peer,
    Start,
    make_node,
)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def start(session: aiohttp.ClientSession, tmp_path: Path) -> AsyncIterator[Start]:
    """Starts nodes, which end with the test."""
    nodes: list[Node] = []

    async def start_one(bytes_max: int = 100 * MB, lease_s: float = LEASE_S) -> Node:
        node = make_node(session, str(tmp_path / str(len(nodes))), bytes_max, lease_s)
        nodes.append(node)
        await node.start()
        return node

    yield start_one
    for node in nodes:
        node.store.table.check_invariants()
        assert node.store.table.bytes_reserved == 0
        await node.stop()


@pytest.fixture
async def node(start: Start) -> Node:
    return await start()


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """Makes a server that sends these bytes to whoever asks, and then hangs up, or hangs if they end in `HANG`."""
    servers: list[asyncio.Server] = []
    end = asyncio.Event()

    async def start_one(answer: bytes) -> str:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer.removesuffix(HANG))
            if answer.endswith(HANG):
                await end.wait()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}"

    yield start_one
    end.set()
    for server in servers:
        server.close()
        await server.wait_closed()
