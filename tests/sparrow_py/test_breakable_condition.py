"""A condition whose lock is never given back is not waited for for ever, and those of futures are such conditions."""

from __future__ import annotations

import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures._base import _AcquireFutures
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import Client, LocalCluster
from sparrow_py.futures import breakable_condition
from sparrow_py.futures.breakable_condition import BreakableCondition
from sparrow_py.futures.late_condition import LateConditionFuture
from sparrow_py.futures.late_event import LateEvent
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture(autouse=True)
def short_looks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(breakable_condition, "LOOK_S", 0.001)
    monkeypatch.setattr(BreakableCondition, "_abandoned_until_s", float("-inf"))
    yield


def in_a_thread(action: Callable[[], object]) -> None:
    """To its end."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def abandoned(count: int) -> list[BreakableCondition]:
    """Conditions that a thread has taken, one after the other, and never gives back. The thread lives on: of one that
    has ended another may get the number by which locks know their holder."""
    conditions = [BreakableCondition() for _ in range(count)]
    taken = threading.Event()

    def take() -> None:
        for condition in conditions:
            condition.acquire()
        taken.set()
        threading.Event().wait()

    threading.Thread(target=take, daemon=True).start()
    assert taken.wait(TIMEOUT_S)
    return conditions


def is_held(condition: BreakableCondition) -> bool:
    """Whether another thread holds it."""
    if condition.acquire(blocking=False):
        condition.release()
        return False
    return True


def test_it_is_taken_and_given_back_as_any() -> None:
    condition = BreakableCondition()
    seen: list[bool] = []
    with condition, condition:
        in_a_thread(lambda: seen.append(is_held(condition)))
        condition.notify_all()
    in_a_thread(lambda: seen.append(is_held(condition)))
    assert seen == [True, False]


def test_who_waits_for_it_is_notified() -> None:
    condition, said = BreakableCondition(), list[bool]()

    def wait() -> None:
        with condition:
            said.append(condition.wait(TIMEOUT_S))

    thread = threading.Thread(target=wait)
    thread.start()

    def notified() -> bool:
        with condition:
            condition.notify_all()
        return bool(said)

    wait_until(notified)
    thread.join()
    assert said == [True] and not is_held(condition)


def test_one_that_is_never_given_back_is_taken_all_the_same_and_is_whole_then() -> None:
    (condition,) = abandoned(1)
    assert not condition.acquire(timeout=0) and not condition.acquire(blocking=False)
    with condition:
        held: list[bool] = []
        in_a_thread(lambda: held.append(is_held(condition)))
        assert held == [True]
    assert not is_held(condition)


def test_of_many_that_one_call_left_only_the_first_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = abandoned(5)
    with first:
        pass
    monkeypatch.setattr(breakable_condition, "LOOK_S", TIMEOUT_S)  # Who looked once more would be too late.
    in_a_thread(lambda: [condition.__enter__() for condition in others])


def test_one_that_was_taken_later_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    (left,) = abandoned(1)
    with left:
        pass
    condition, taken = BreakableCondition(), list[bool]()
    with condition:
        monkeypatch.setattr(breakable_condition, "LOOK_S", TIMEOUT_S)
        thread = threading.Thread(target=lambda: taken.append(condition.acquire()))
        thread.start()
        thread.join(0.01)
        assert not taken
    thread.join(TIMEOUT_S)
    assert taken == [True]


def test_who_gives_one_back_that_was_replaced_meanwhile_gives_nothing_back() -> None:
    condition, held, go_on = BreakableCondition(), threading.Event(), threading.Event()

    def hold() -> None:
        with condition:
            held.set()
            go_on.wait(TIMEOUT_S)

    slow = threading.Thread(target=hold)
    slow.start()
    held.wait(TIMEOUT_S)
    with condition:
        go_on.set()
        slow.join(TIMEOUT_S)
        others: list[bool] = []
        in_a_thread(lambda: others.append(is_held(condition)))
        assert others == [True]
    assert not is_held(condition)


def test_several_who_find_one_abandoned_have_it_one_after_the_other() -> None:
    (condition,) = abandoned(1)
    inside: list[int] = []

    def enter() -> None:
        with condition:
            inside.append(1)
            assert len(inside) == 1
            inside.pop()

    threads = [threading.Thread(target=enter) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not any(thread.is_alive() for thread in threads) and not inside and not is_held(condition)


# ---- the library's waiting -------------------------------------------------------------------


def interrupt_the_library(futures: Sequence[LateConditionFuture]) -> None:
    """Leave what `wait` and `as_completed` leave if a handler raises when they have taken the futures' conditions, and
    not yet come to where they give them back."""
    _AcquireFutures(futures).__enter__()


def test_futures_end_though_the_library_was_interrupted_when_it_had_taken_their_conditions() -> None:
    futures = [LateConditionFuture() for _ in range(5)]
    others: list[Any] = []
    waits = threading.Thread(target=lambda: others.append(concurrent.futures.wait(futures)))
    waits.start()
    wait_until(lambda: all(future._waiters for future in futures))
    interrupt_the_library(futures)
    in_a_thread(lambda: [future.set_result(1) for future in futures])
    waits.join(TIMEOUT_S)
    assert not waits.is_alive() and others[0].not_done == set()
    assert [future.result(0) for future in futures] == [1] * 5


@pytest.mark.processes
def test_a_client_goes_on_and_closes_though_the_library_was_interrupted_so(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster) as client:
        job = client.submit_calls(tasks.hold, [(gate, number) for number in range(20)])
        interrupt_the_library(job.futures)
        gate.touch()
        assert job.results(TIMEOUT_S) == list(range(20))
        assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
        in_a_thread(lambda: [future.exception() for future in concurrent.futures.as_completed(job.futures)])
        in_a_thread(client.close)


def test_the_library_waits_by_events_that_bear_a_handler_that_raises() -> None:
    future = LateConditionFuture()
    thread = threading.Thread(target=lambda: concurrent.futures.wait([future]))
    thread.start()
    wait_until(lambda: future._waiters)
    assert isinstance(future._waiters[0].event, LateEvent)
    future.set_result(1)
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()
