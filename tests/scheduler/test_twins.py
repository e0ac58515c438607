"""Two node monitors that have one name: who of those that come after each other is known to be alive."""

import logging
from collections.abc import AsyncIterator

import aiohttp
import msgspec
import pytest

from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from scheduler.twins import RUNS_MAX, TWIN_S, Twins
from sparrow_py.wire import messages as m
from tests.support.raw_links import NODE, RawLinks


def test_one_that_comes_back_after_another_is_a_twin() -> None:
    twins = Twins()
    assert twins.came("n", "first", "here", 0.0) == ""
    assert twins.came("n", "second", "there", 1.0) == ""  # The first may be dead.
    assert twins.other("n", 1.0) == ""
    assert twins.came("n", "first", "here", 2.0) == "there"
    assert twins.other("n", 2.0) == "there"
    assert twins.came("n", "second", "there", 3.0) == ""  # That has been said.
    assert twins.other("n", 3.0) == "here"


def test_it_is_said_again_after_a_while_and_told_of_for_as_long() -> None:
    twins = Twins()
    runs = ["first", "second"] * 100
    said = [twins.came("n", run, run, TWIN_S / 10 * number) for number, run in enumerate(runs)]
    assert said.count("first") + said.count("second") == len(said[2:]) // 10 + 1
    last_s = TWIN_S / 10 * (len(runs) - 1)
    assert twins.other("n", last_s + 0.9 * TWIN_S) == "first"
    assert twins.other("n", last_s + TWIN_S) == ""


def test_one_that_dials_again_or_is_started_again_is_none() -> None:
    twins = Twins()
    for run in ("first", "first", "second", "second", "third"):
        assert twins.came("n", run, run, 0.0) == ""
    twins.gone("n")
    for run in ("first", "second"):  # The name was free in the meantime.
        assert twins.came("n", run, run, 0.0) == ""
    assert twins.came("another", "first", "first", 0.0) == ""


def test_three_of_one_name_are_found_and_few_are_remembered() -> None:
    twins = Twins()
    assert [twins.came("n", run, run, 0.0) for run in "abc"] == [""] * 3
    assert twins.came("n", "a", "a", 0.0) == "c"
    for number in range(100):
        twins.came("n", f"run-{number}", "", 0.0)
    assert len(twins._names["n"].runs) == RUNS_MAX


@pytest.fixture
async def scheduler() -> AsyncIterator[SchedulerDaemon]:
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    await daemon.start()
    yield daemon
    await daemon.stop()


async def test_a_scheduler_says_of_two_that_take_turns_where_both_are(
    scheduler: SchedulerDaemon, caplog: pytest.LogCaptureFixture
) -> None:
    hellos = {
        port: m.Hello(
            m.PROTOCOL_VERSION, "node", "n", "", "",
            msgspec.structs.replace(NODE, address=f"127.0.0.1:{port}", memory=f"memory of {port}"),
        )
        for port in (1, 2)
    }  # fmt: skip
    async with (
        RawLinks(scheduler.address) as links,
        aiohttp.ClientSession(f"http://{scheduler.address}") as http,
    ):

        async def twin() -> str:
            async with http.get("/v1/nodes") as response:
                [node] = (await response.json())["nodes"]
                return str(node["twin"])

        for port in (1, 1, 2):
            await links.dial(hellos[port])
            assert await twin() == "" and not caplog.records
        await links.dial(hellos[1])
        assert await twin() == "127.0.0.1:2 (dialled from 127.0.0.1)"
    [warned] = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert warned.startswith(
        "two node monitors have the name n, one at 127.0.0.1:1 (dialled from 127.0.0.1), "
        "one at 127.0.0.1:2 (dialled from 127.0.0.1): "
    )
