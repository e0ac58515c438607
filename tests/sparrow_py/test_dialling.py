"""Keeping links to schedulers, without any: what is said when none can be reached."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from sparrow_py.errors import LinkError, LinkRefused
from sparrow_py.wire import dial, dialling, resolution
from sparrow_py.wire import messages as m
from sparrow_py.wire.dialling import Dialling
from tests.support.waiting import TIMEOUT_S

ADDRESSES = ["127.0.0.1:7001", "127.0.0.1:7002"]


class FakeLink:
    """A link that stands until it is cut."""

    def __init__(self) -> None:
        self.closed_because = ""
        self.cut = asyncio.Event()

    def listen(self, *_: object) -> None:
        pass

    async def ended(self) -> None:
        await self.cut.wait()

    async def aclose(self, reason: str = "") -> None:
        self.closed_because = self.closed_because or reason
        self.cut.set()


class Schedulers:
    """Those that can be reached, and the user of the links to them."""

    def __init__(self) -> None:
        self.up: set[str] = set()
        self.refused = 0
        """Dials in vain."""
        self.denying: set[str] = set()
        """Those that do not know the token."""
        self.reasons: dict[str, str] = {}
        """By address, where a dial in vain has another than that nobody is there."""
        self.gone: list[tuple[str, str]] = []
        """Links that have ended, each with the reason."""
        self.not_linked: list[str] = []
        """What a node monitor has been told."""
        self.links: dict[str, FakeLink] = {}
        self.names: dict[str, str] = {}
        """By address, where a scheduler has another name than that."""
        self.stayed_away: list[str] = []

    async def dial(self, _session: Any, address: str, *_: Any, **__: Any) -> tuple[FakeLink, m.Welcome]:
        if address not in self.up:
            self.refused += 1
            if address in self.denying:
                raise LinkRefused(f"scheduler {address} refused the link: who are you?", is_denied=True)
            raise LinkError(f"scheduler {address} cannot be reached: {self.reasons.get(address, 'nobody is there')}")
        self.links[address] = FakeLink()
        return self.links[address], m.Welcome(m.PROTOCOL_VERSION, self.names.get(address, address), 1000)

    def end(self, *addresses: str) -> None:
        for address in addresses:
            self.up.discard(address)
            self.links.pop(address).cut.set()

    def scheduler_up(self, scheduler: str, welcome: m.Welcome) -> None:
        pass

    def scheduler_said(self, scheduler: str, batch: list[Any]) -> None:
        pass

    def scheduler_down(self, scheduler: str, reason: str) -> None:
        self.gone.append((scheduler, reason))

    def unreachable(self, scheduler: str) -> None:
        self.stayed_away.append(scheduler)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


@pytest.fixture
def schedulers(monkeypatch: pytest.MonkeyPatch) -> Schedulers:
    schedulers = Schedulers()
    monkeypatch.setattr(dial, "dial", schedulers.dial)
    monkeypatch.setattr(dialling, "REDIAL_MIN_S", 0.0005)
    monkeypatch.setattr(dialling, "REDIAL_MAX_S", 0.001)
    return schedulers


@pytest.fixture
async def client(schedulers: Schedulers, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Dialling]:
    caplog.set_level(logging.INFO, "sparrow.links")
    hello = m.Hello(m.PROTOCOL_VERSION, "client", "", "ada", "")
    schedulers.up.update(ADDRESSES)
    client = Dialling(
        ADDRESSES, hello, m.FrameDecoder(m.ToClient), schedulers, None, heartbeat_s=10.0,  # type: ignore[arg-type]
        unreachable=schedulers.unreachable,
    )  # fmt: skip
    client.start()
    await until(lambda: len(client.links) == 2)
    yield client
    await client.stop("the test is over")


async def test_an_outage_is_said_once_with_all_that_cannot_be_reached(
    client: Dialling, schedulers: Schedulers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "OUTAGE_SAID_AFTER_S", 3600.0)
    for outage in (1, 2):
        schedulers.end(*ADDRESSES)
        await until(lambda: not client.links)
        assert client.cut_off_s() > 0.0
        await until(lambda: all("nobody is there" in client._failures.get(address, "") for address in ADDRESSES))
        assert client._outage is not None and not caplog.records
        client._outage.cancel()
        client._say_outage()  # Its time has come.
        refused = schedulers.refused
        await until(lambda refused=refused: schedulers.refused > refused + 100)  # It goes on trying, in silence.
        [said] = caplog.records
        assert said.levelno == logging.WARNING, outage
        for address in ADDRESSES:
            assert f"scheduler {address} cannot be reached: nobody is there" in said.getMessage()
        caplog.clear()
        schedulers.up.update(ADDRESSES)
        await until(lambda: len(client.links) == 2)
        assert client.cut_off_s() == 0.0
        [said] = caplog.records
        assert said.levelno == logging.INFO
        assert "reached again" in said.getMessage()
        caplog.clear()


async def test_who_asks_hears_once_that_each_address_has_been_dialled(schedulers: Schedulers) -> None:
    """Be it in vain; those that answered are linked by then."""
    schedulers.up.add(ADDRESSES[0])
    linked_then: list[list[str]] = []
    hello = m.Hello(m.PROTOCOL_VERSION, "client", "", "ada", "")
    client = Dialling(
        ADDRESSES, hello, m.FrameDecoder(m.ToClient), schedulers, None, heartbeat_s=10.0,  # type: ignore[arg-type]
        all_dialled=lambda: linked_then.append(list(client.links)),
    )  # fmt: skip
    client.start()
    await until(lambda: linked_then)
    schedulers.up.add(ADDRESSES[1])
    await until(lambda: len(client.links) == 2)
    schedulers.end(*ADDRESSES)
    await until(lambda: not client.links and schedulers.refused > 10)
    assert linked_then == [[ADDRESSES[0]]]
    await client.stop("the test is over")


async def test_who_asks_hears_once_all_deny_it_and_not_while_one_is_merely_away(schedulers: Schedulers) -> None:
    schedulers.denying.add(ADDRESSES[0])
    denied: list[str] = []
    hello = m.Hello(m.PROTOCOL_VERSION, "client", "", "ada", "")
    client = Dialling(
        ADDRESSES, hello, m.FrameDecoder(m.ToClient), schedulers, None, heartbeat_s=10.0,  # type: ignore[arg-type]
        denied=lambda: denied.append(client.why_cut_off()),
    )  # fmt: skip
    client.start()
    assert not client.is_denied()  # Nobody has been dialled.
    await until(lambda: schedulers.refused > 10)
    assert not denied and not client.is_denied()
    schedulers.up.add(ADDRESSES[1])
    await until(lambda: client.links)
    schedulers.end(ADDRESSES[1])
    assert not denied and not client.is_denied()
    schedulers.denying.add(ADDRESSES[1])
    await until(lambda: denied)
    assert client.is_denied()
    why = "; ".join(f"scheduler {address} refused the link: who are you?" for address in ADDRESSES)
    assert set(denied) == {why}
    schedulers.denying.remove(ADDRESSES[0])
    schedulers.up.add(ADDRESSES[0])
    await until(lambda: client.links)
    assert not client.is_denied()
    await client.stop("the test is over")


async def test_who_asks_hears_that_a_scheduler_stays_away(client: Dialling, schedulers: Schedulers) -> None:
    schedulers.end(ADDRESSES[0])
    await until(lambda: schedulers.refused)
    assert set(schedulers.stayed_away) == {ADDRESSES[0]}


async def test_a_scheduler_stays_away_if_another_has_its_address(client: Dialling, schedulers: Schedulers) -> None:
    schedulers.names[ADDRESSES[0]] = "another"
    schedulers.links.pop(ADDRESSES[0]).cut.set()
    await until(lambda: "another" in client.links)
    await until(lambda: schedulers.stayed_away)
    assert schedulers.stayed_away == [ADDRESSES[0]] and not schedulers.refused


async def test_a_scheduler_that_is_there_again_has_not_stayed_away(client: Dialling, schedulers: Schedulers) -> None:
    before = schedulers.links.pop(ADDRESSES[0])
    before.cut.set()
    await until(lambda: schedulers.links.get(ADDRESSES[0]) is not None and len(client.links) == 2)
    assert not schedulers.stayed_away


async def test_nothing_is_said_while_a_scheduler_can_be_reached(client: Dialling, schedulers: Schedulers) -> None:
    schedulers.end(ADDRESSES[0])
    await until(lambda: schedulers.refused > 10)
    assert client._outage is None
    assert client.cut_off_s() == 0.0


async def test_nothing_is_said_of_a_scheduler_that_is_back_in_time(
    client: Dialling, schedulers: Schedulers, caplog: pytest.LogCaptureFixture
) -> None:
    schedulers.end(*ADDRESSES)
    await until(lambda: client._outage is not None)
    outage = client._outage
    schedulers.up.update(ADDRESSES)
    await until(lambda: len(client.links) == 2)
    assert outage is not None
    assert outage.cancelled()
    assert not caplog.records


async def test_nothing_is_said_of_links_that_are_closed(
    client: Dialling, schedulers: Schedulers, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "OUTAGE_SAID_AFTER_S", 0.0)
    await client.stop("the client is done")
    assert not client.links
    assert client._outage is None
    assert not caplog.records


# ---- schedulers that are not linked ----------------------------------------------------------


@pytest.fixture
async def node(schedulers: Schedulers) -> AsyncIterator[Dialling]:
    """As a node monitor dials; it has yet to start."""
    hello = m.Hello(m.PROTOCOL_VERSION, "node", "n", "", "")
    node = Dialling(
        ADDRESSES, hello, m.FrameDecoder(m.ToNode), schedulers, None, heartbeat_s=10.0,  # type: ignore[arg-type]
        not_linked=schedulers.not_linked.append,
    )  # fmt: skip
    yield node
    await node.stop("the test is over")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialling, "NOT_LINKED_SAID_AFTER_S", 0.0)


async def dialled_often(schedulers: Schedulers) -> None:
    refused = schedulers.refused
    await until(lambda: schedulers.refused > refused + 50)


def nobody_at(*addresses: str) -> list[str]:
    return [f"scheduler {address} cannot be reached: nobody is there" for address in addresses]


async def test_each_scheduler_that_was_never_reached_is_told_of_once(
    at_once: None, node: Dialling, schedulers: Schedulers
) -> None:
    node.start()
    await dialled_often(schedulers)
    assert sorted(schedulers.not_linked) == nobody_at(*ADDRESSES)


async def test_one_that_is_not_reached_is_told_of_while_another_is_linked(
    at_once: None, node: Dialling, schedulers: Schedulers
) -> None:
    schedulers.up.add(ADDRESSES[0])
    node.start()
    await dialled_often(schedulers)
    assert ADDRESSES[0] in schedulers.links and schedulers.not_linked == nobody_at(ADDRESSES[1])


async def test_it_is_told_of_again_if_the_reason_changes_or_a_link_has_stood(
    at_once: None, node: Dialling, schedulers: Schedulers, caplog: pytest.LogCaptureFixture
) -> None:
    schedulers.up.add(ADDRESSES[1])
    schedulers.reasons[ADDRESSES[0]] = "no route"
    node.start()
    await dialled_often(schedulers)
    assert schedulers.not_linked == [f"scheduler {ADDRESSES[0]} cannot be reached: no route"]
    del schedulers.reasons[ADDRESSES[0]]
    await dialled_often(schedulers)
    assert schedulers.not_linked[1:] == nobody_at(ADDRESSES[0])
    schedulers.up.add(ADDRESSES[0])
    await until(lambda: ADDRESSES[0] in schedulers.links)
    schedulers.end(ADDRESSES[0])
    await dialled_often(schedulers)
    assert schedulers.not_linked[2:] == nobody_at(ADDRESSES[0])
    schedulers.denying.add(ADDRESSES[0])
    await dialled_often(schedulers)
    assert schedulers.not_linked[3:] == []  # A refusal is logged by itself, at once.
    assert [record.levelno for record in caplog.records if "refused the link" in record.getMessage()][:1] == [
        logging.WARNING
    ]


async def test_an_outage_of_all_is_not_told_again_for_each(
    at_once: None, node: Dialling, schedulers: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "OUTAGE_SAID_AFTER_S", 3600.0)
    schedulers.up.update(ADDRESSES)
    node.start()
    await until(lambda: len(node.links) == 2)
    monkeypatch.setattr(dialling, "NOT_LINKED_SAID_AFTER_S", 3600.0)
    schedulers.end(*ADDRESSES)
    await until(lambda: not node.links and len(node._failures) == 2)
    assert node._outage is not None
    node._outage.cancel()
    node._say_outage()  # Its time has come.
    monkeypatch.setattr(dialling, "NOT_LINKED_SAID_AFTER_S", 0.0)
    await dialled_often(schedulers)
    assert schedulers.not_linked == []


async def test_nothing_is_told_of_one_that_is_soon_there(
    node: Dialling, schedulers: Schedulers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dialling, "NOT_LINKED_SAID_AFTER_S", 3600.0)
    node.start()
    await dialled_often(schedulers)
    schedulers.up.update(ADDRESSES)
    await until(lambda: len(node.links) == 2)
    assert schedulers.not_linked == []


# ---- a file that names schedulers ------------------------------------------------------------


class SchedulersFile:
    """Which is read again at once. It is written in one step: one that is half written names fewer schedulers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = f"file:{path}"

    def write(self, *lines: str) -> None:
        self.path.with_suffix(".new").write_text("\n".join(lines))
        self.path.with_suffix(".new").rename(self.path)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SchedulersFile:
    monkeypatch.setattr(resolution, "REFRESH_S", 0.0005)
    file = SchedulersFile(tmp_path / "schedulers")
    file.write(*ADDRESSES)
    return file


@pytest.fixture
async def reader(
    file: SchedulersFile, schedulers: Schedulers, caplog: pytest.LogCaptureFixture
) -> AsyncIterator[Dialling]:
    """Dials those that the file names; both are linked."""
    caplog.set_level(logging.INFO, "sparrow.links")
    schedulers.up.update(ADDRESSES)
    hello = m.Hello(m.PROTOCOL_VERSION, "node", "n", "", "")
    reader = Dialling(
        [file.source], hello, m.FrameDecoder(m.ToNode), schedulers, None, heartbeat_s=10.0,  # type: ignore[arg-type]
    )  # fmt: skip
    reader.start()
    await until(lambda: len(reader.links) == 2)
    yield reader
    await reader.stop("the test is over")


async def test_who_had_a_link_to_one_that_is_named_no_more_hears_why_it_ended(
    file: SchedulersFile, reader: Dialling, schedulers: Schedulers
) -> None:
    link = schedulers.links[ADDRESSES[0]]
    file.write(ADDRESSES[1])
    await until(lambda: schedulers.gone and link.closed_because)
    why = f"{ADDRESSES[0]} is no longer named by {file.source}"
    assert schedulers.gone == [(ADDRESSES[0], why)]
    assert link.closed_because == why, "the scheduler is told, too"


async def test_what_is_wrong_with_the_file_is_said_once_for_each_change(
    file: SchedulersFile, reader: Dialling, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    resolve = resolution.resolve

    async def counted(sources: list[str]) -> list[str]:
        nonlocal reads
        reads += 1
        return await resolve(sources)

    async def read_often() -> None:
        before = reads
        await until(lambda: reads > before + 5)

    monkeypatch.setattr(resolution, "resolve", counted)
    for lines in ((ADDRESSES[0], "what?"), ("# none",), (ADDRESSES[0], "what?"), ADDRESSES):
        file.write(*lines)
        await read_often()
    said = [record.getMessage() for record in caplog.records]
    bad_line, none, again, well = said
    assert bad_line.startswith(f"schedulers' file {file.path}, line 2: 'what?' is not valid; allowed: host:port; ")
    assert none.startswith(f"schedulers' file {file.path} names no scheduler; ")
    assert again == bad_line
    assert well == f"schedulers can be found again: {file.source}"
    assert len(reader.links) == 2, "links stand while the file is wrong"
