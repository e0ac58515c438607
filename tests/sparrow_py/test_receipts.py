"""Schedulers are told how much of what they sent has been handled."""

import asyncio

import msgspec
import pytest

from scheduler.book.footprint import outcome_bytes
from scheduler.options import SchedulerOptions
from sparrow_py.job import FINISHED
from sparrow_py.session import receipts
from sparrow_py.session.receipts import RECEIPT_BYTES, RECEIPT_MESSAGES, Receipts
from sparrow_py.wire import messages as m
from tests.support.waiting import TIMEOUT_S


class Told(Receipts):
    """Remembers what it says."""

    def __init__(self) -> None:
        self.said: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
        super().__init__(lambda scheduler, message: self.said.put_nowait((scheduler, message.count)))

    async def next(self) -> tuple[str, int]:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.said.get()


def outcome(size: int) -> m.Outcome:
    return m.Outcome("j", 0, FINISHED, bytes(size), "", 1, "n", 0.0, 0.0, 0.1)


async def test_frames_that_come_one_after_the_other_have_one_receipt_after_a_while() -> None:
    told = Told()
    told.begin("s")
    for _ in range(10):
        told.handled("s", [outcome(1), m.JobEnded("j")])
    assert told.said.empty()
    assert await told.next() == ("s", 20)
    told.handled("s", [m.JobEnded("j")])
    assert await told.next() == ("s", 21)
    assert told.said.empty()


async def test_what_has_been_handled_is_told_at_the_end() -> None:
    told = Told()
    for scheduler in ("s", "t"):
        told.begin(scheduler)
    told.handled("s", [m.JobEnded("j")])
    told.stop()
    assert told.said.get_nowait() == ("s", 1) and told.said.empty()


@pytest.mark.parametrize(
    "batch",
    [
        [outcome(RECEIPT_BYTES + 1)],
        [msgspec.structs.replace(outcome(0), stdout="o" * RECEIPT_BYTES, stderr="e")],
        [m.JobEnded("j")] * (RECEIPT_MESSAGES + 1),
    ],
)
async def test_much_is_told_at_once(batch: list[m.Message], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "RECEIPT_DELAY_S", 0.0)
    told = Told()
    told.begin("s")
    told.handled("s", [m.JobEnded("j")])
    told.handled("s", batch)
    assert told.said.get_nowait() == ("s", len(batch) + 1)
    told.handled("s", [m.JobEnded("j")])
    assert await told.next() == ("s", len(batch) + 2), "once, though it was to be told soon besides"
    assert told.said.empty()


@pytest.mark.parametrize("size", [0, 1, 100, 700, 710, 1000, 60_000, 200_000, 250_000, 250_001, 261_500, 300_000])
async def test_all_that_the_smallest_window_has_is_told_at_once(size: int) -> None:
    """A scheduler sends no more before it hears of that."""
    window_bytes = SchedulerOptions(link_backlog_bytes_max=1 << 20).link_backlog_bytes_max // 2
    told = Told()
    told.begin("s")
    for _ in range(window_bytes // outcome_bytes(outcome(size))):
        told.handled("s", [outcome(size)])
    assert not told.said.empty()
    told.stop()


async def test_each_link_is_counted_from_its_beginning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receipts, "RECEIPT_DELAY_S", 0.0)
    told = Told()
    told.begin("s")
    told.handled("s", [m.JobEnded("j")] * 5)
    told.end("s")
    told.handled("older", [m.JobEnded("j")])
    told.begin("s")
    told.handled("s", [m.JobEnded("j")])
    assert await told.next() == ("s", 1)
    told.handled("s", [m.JobEnded("j")])
    told.stop()
    assert told.said.get_nowait() == ("s", 2)
    told.begin("t")
    told.handled("t", [m.JobEnded("j")])
    assert await told.next() == ("t", 1)
    assert told.said.empty()
