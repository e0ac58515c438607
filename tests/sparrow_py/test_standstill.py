"""A process that stood still knows it, whether a timer or a peer's message comes first."""

import asyncio

import pytest

from sparrow_py.session.session import Session
from sparrow_py.timing.standstill import TICKS, Standstill
from sparrow_py.wire.dialling import REDIAL_MAX_S
from tests.support.waiting import TIMEOUT_S


class SetClock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_message_comes_first() -> None:
    clock, noticed = SetClock(), list[float]()
    standstill = Standstill(1.5, noticed.append, clock)
    for step_s in (0.5, 1.5, 0.0, 1.4):
        clock.now_s += step_s
        standstill.check()
    assert noticed == []
    clock.now_s += 2.0
    standstill.check()
    standstill.check()
    assert noticed == [2.0]


async def test_a_timer_comes_first_and_an_idle_process_is_alive() -> None:
    clock, noticed = SetClock(), list[float]()
    looked = asyncio.Event()

    def now_s() -> float:
        looked.set()
        return clock()

    standstill = Standstill(0.02, noticed.append, now_s)
    standstill.start()
    async with asyncio.timeout(TIMEOUT_S):
        for _ in range(2 * TICKS):
            looked.clear()
            clock.now_s += 0.02 / TICKS
            await looked.wait()
        assert noticed == []
        clock.now_s += 10.0
        looked.clear()
        await looked.wait()
    assert len(noticed) == 1
    standstill.stop()
    looked.clear()
    await asyncio.sleep(0)
    assert not looked.is_set()


async def test_a_client_looks_for_what_has_come_before_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its timers are due, and so are outcomes and schedulers."""
    clock = SetClock()
    session = Session("127.0.0.1:1", submit_timeout_s=60.0, heartbeat_s=10.0)
    monkeypatch.setattr(session, "_clock", clock)
    monkeypatch.setattr(session, "_standstill", Standstill(15.0, session._stood_still, clock))
    fired = list[float]()
    timer = session.timer(lambda: 150.0, lambda: fired.append(clock.now_s))
    clock.now_s = 1000.0
    timer._fire()
    assert fired == []
    clock.now_s += REDIAL_MAX_S
    timer._fire()
    assert fired == [1000.0 + REDIAL_MAX_S]
    timer.cancel()
