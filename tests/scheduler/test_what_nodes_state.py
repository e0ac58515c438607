"""What a node monitor says of its node, over a link: what cannot be ends that link, and nothing else."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scheduler.book.validation import check_node
from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py.errors import LinkError
from sparrow_py.job import RESOURCE_MAX
from sparrow_py.wire import messages as m
from tests.support.raw_links import RawLink, RawLinks
from tests.support.waiting import TIMEOUT_S

AMOUNTS = [math.nan, math.inf, -math.inf, -1.0, 1.1 * RESOURCE_MAX]
NODE = m.NodeInfo(3, {"gpu": 2.0}, {}, {"noop": ""}, "127.0.0.1:1")
LOAD: dict[str, Any] = {"lane_free": 2, "lane_slots": 3, "short": 0, "queued": 0, "free": {"gpu": 1.0}}


def node(**resources: float) -> m.NodeInfo:
    return m.NodeInfo(3, resources, {}, {"noop": ""}, "127.0.0.1:1")


@pytest.mark.parametrize("amount", AMOUNTS)
def test_an_amount_that_no_node_has_is_named_with_its_resource(amount: float) -> None:
    with pytest.raises(LinkError, match=r"resources\['gpu'\] is .*; it is a number from 0 to 1e\+18"):
        check_node(node(cpu=1.0, gpu=amount))
    check_node(node(cpu=0.0, gpu=RESOURCE_MAX))


async def _talk(talk: Callable[[SchedulerDaemon, RawLinks, RawLink], Awaitable[None]]) -> None:
    """With a scheduler that has one more node beside those of the test, which is still linked at the end."""
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    await daemon.start()
    try:
        async with RawLinks(daemon.address) as links:
            other = await links.dial(_hello("other", NODE))
            await talk(daemon, links, other)
            other.send(m.NodeLoad(**LOAD))
            async with asyncio.timeout(TIMEOUT_S):
                while (load := daemon.core.nodes["other"].load) is None:
                    await asyncio.sleep(0)
            assert load.lane_free == 2
    finally:
        await daemon.stop()


def _hello(name: str, info: m.NodeInfo) -> m.Hello:
    return m.Hello(m.PROTOCOL_VERSION, "node", name, "", "", info)


async def test_a_node_that_states_such_an_amount_is_refused_and_the_scheduler_lives_on() -> None:
    async def talk(daemon: SchedulerDaemon, links: RawLinks, other: RawLink) -> None:
        for amount in AMOUNTS:
            with pytest.raises(LinkError, match=r"resources\['gpu'\] is"):
                await links.dial(_hello("wrong", node(gpu=amount)))
        assert [one.id for one in daemon.core.nodes.all()] == ["other"]

    await _talk(talk)


IMPOSSIBLE = [
    (m.NodeChanged(node(gpu=math.nan)), "resources['gpu'] is nan"),
    (m.NodeLoad(**LOAD | {"lane_free": 4}), "lane_free is 4"),
    (m.NodeLoad(**LOAD | {"lane_slots": 4}), "lane_slots is 4"),
    (m.NodeLoad(**LOAD | {"lane_free": -1}), "lane_free is -1"),
    (m.NodeLoad(**LOAD | {"short": 4}), "short is 4"),
    (m.NodeLoad(**LOAD | {"queued": -1}), "queued is -1"),
    (m.NodeLoad(**LOAD | {"free": {"gpu": math.nan}}), "nan gpu is free"),
    (m.NodeLoad(**LOAD | {"free": {"gpu": 2.5}}), "2.5 gpu is free"),
    (m.NodeLoad(**LOAD | {"free": {"fpga": 1.0}}), "fpga"),
    (m.NodeLoad(**LOAD, cpu=math.nan), "cpu is nan"),
    (m.NodeLoad(**LOAD, cpu=math.inf), "cpu is inf"),
    (m.NodeLoad(**LOAD, memory_bytes=-1), "memory_bytes is -1"),
    (m.NodeLoad(**LOAD, net_in_bytes_per_s=-0.5), "net_in_bytes_per_s is -0.5"),
    (m.NodeLoad(**LOAD, net_out_bytes_per_s=math.nan), "net_out_bytes_per_s is nan"),
]


async def test_what_a_node_cannot_say_later_ends_its_link_alone() -> None:
    async def talk(daemon: SchedulerDaemon, links: RawLinks, other: RawLink) -> None:
        for number, (message, why) in enumerate(IMPOSSIBLE):
            link = await links.dial(_hello(f"wrong{number}", NODE))
            link.send(message)
            goodbye = await link.until(m.Goodbye)
            assert why in goodbye.reason, goodbye.reason
            async with asyncio.timeout(TIMEOUT_S):
                while f"wrong{number}" in daemon.core.nodes:
                    await asyncio.sleep(0)

    await _talk(talk)
