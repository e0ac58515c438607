"""A future gets its condition when somebody needs one, and ends once, whoever comes meanwhile."""

from __future__ import annotations

import concurrent.futures
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any

import pytest

from sparrow_py.futures.late_condition import LateConditionFuture, all_ended
from sparrow_py.futures.late_event import LateEvent
from tests.support.interrupts import interrupted
from tests.support.waiting import TIMEOUT_S, wait_until

ROUNDS = 500
"""In which two threads meet at a future; most often one is much too late."""


def has_condition(future: LateConditionFuture) -> bool:
    return "_condition" in vars(future)


def test_a_future_has_no_condition_until_somebody_needs_one() -> None:
    future = LateConditionFuture()
    assert isinstance(future, concurrent.futures.Future)
    assert not future.done() and not has_condition(future)
    assert future.end_unheeded(3, None)
    assert future.done() and not has_condition(future)
    assert future.result(0) == 3 and future.exception(0) is None


def test_all_else_is_as_in_the_librarys_futures() -> None:
    the_librarys: Future[Any] = Future()
    late: dict[str, Any] = {"_condition": None, "_waiters": []}
    assert {**vars(LateConditionFuture()), **late} == {**vars(the_librarys), "_condition": None}


def test_an_error_without_a_condition() -> None:
    future = LateConditionFuture()
    assert future.end_unheeded(None, KeyError("k"))
    with pytest.raises(KeyError):
        future.result(0)


def test_its_condition_is_one() -> None:
    future = LateConditionFuture()
    assert future._condition is future._condition
    assert has_condition(future)


def touch_with_callback(future: LateConditionFuture) -> None:
    future.add_done_callback(lambda _: None)


@pytest.mark.parametrize(
    "touch",
    [touch_with_callback, Future.cancel, lambda future: future.set_result(1), repr],
    ids=["callback", "cancel", "result", "repr"],
)
def test_one_that_has_a_condition_ends_as_any_future(touch: Callable[[Any], object]) -> None:
    future = LateConditionFuture()
    touch(future)
    before = future._state
    assert not future.end_unheeded(2, None)
    assert future._state == before


def test_it_ends_once() -> None:
    future = LateConditionFuture()
    assert future.end_unheeded(1, None)
    assert not future.end_unheeded(2, None)
    with pytest.raises(InvalidStateError):
        future.set_result(3)
    assert future.result() == 1
    assert not future.cancel()


def test_the_library_waits_for_some_of_each_kind() -> None:
    ended, late = LateConditionFuture(), LateConditionFuture()
    ended.end_unheeded(1, None)
    timer = threading.Timer(0, lambda: late.end_unheeded(2, None) or late.set_result(2))
    timer.start()
    assert not concurrent.futures.wait([ended, late], TIMEOUT_S).not_done
    assert {future.result() for future in concurrent.futures.as_completed([ended, late], TIMEOUT_S)} == {1, 2}
    timer.join()


def race(one: Callable[[], object], other: Callable[[], object]) -> None:
    """Both at a time."""
    thread = threading.Thread(target=other)
    thread.start()
    one()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def end(future: LateConditionFuture) -> None:
    if not future.end_unheeded("told", None):
        future.set_result("told")


def test_who_waits_while_it_ends_is_told() -> None:
    for _ in range(ROUNDS):
        future = LateConditionFuture()
        race(lambda: end(future), lambda: future.result(TIMEOUT_S))  # noqa: B023 - both are over within the round
        assert future.result(0) == "told"


def test_a_callback_that_is_added_while_it_ends_is_called_once() -> None:
    for _ in range(ROUNDS):
        future, called = LateConditionFuture(), list[Any]()
        race(lambda: end(future), lambda: future.add_done_callback(called.append))  # noqa: B023
        assert called == [future]


def sleepers(future: LateConditionFuture) -> int:
    """How many threads wait for its end alone."""
    return len(vars(future).get("_sleepers", ()))


ENDS: dict[str, Callable[[LateConditionFuture], object]] = {
    "unheeded": lambda future: future.end_unheeded(1, None),
    "result": lambda future: future.set_result(1),
    "exception": lambda future: future.set_exception(ValueError("1")),
    "cancel": lambda future: future.cancel(),
}


@pytest.mark.parametrize("way", ENDS)
def test_however_it_ends_all_who_wait_for_its_end_go_on(way: str) -> None:
    future = LateConditionFuture()
    said: list[bool] = []
    threads = [threading.Thread(target=lambda: said.append(future._wait_ended(TIMEOUT_S))) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: sleepers(future) == 3)
    assert not has_condition(future)
    ENDS[way](future)
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert said == [True] * 3
    assert not sleepers(future)
    assert future._wait_ended(0), "who comes later does not wait"


@pytest.mark.parametrize("way", ENDS)
def test_who_waits_for_its_end_while_it_ends_goes_on(way: str) -> None:
    for _ in range(ROUNDS):
        future, said = LateConditionFuture(), list[bool]()
        race(lambda: ENDS[way](future), lambda: said.append(future._wait_ended(TIMEOUT_S)))  # noqa: B023
        assert said == [True]


@pytest.mark.parametrize("timeout_s", [-1, 0, 0.001])
def test_who_has_waited_long_enough_leaves_nothing_behind(timeout_s: float) -> None:
    future = LateConditionFuture()
    for _ in range(3):
        assert not future._wait_ended(timeout_s)
    assert not sleepers(future) and not has_condition(future)
    assert future.end_unheeded(1, None)
    assert future._wait_ended(float("inf"))


def test_a_handler_that_raises_ends_a_wait_and_leaves_nothing_behind() -> None:
    future = LateConditionFuture()
    with interrupted(lambda: sleepers(future)):
        future._wait_ended(TIMEOUT_S)
    assert not sleepers(future)
    assert future.end_unheeded(1, None) and future._wait_ended(0)


def test_who_waits_for_all_of_some_goes_on_when_the_last_has_ended() -> None:
    futures = [LateConditionFuture() for _ in range(5)]
    said: list[bool] = []
    thread = threading.Thread(target=lambda: said.append(all_ended(futures, TIMEOUT_S)))
    thread.start()
    for number in (4, 0, 2, 1):
        assert futures[number].end_unheeded(number, None)
    assert not all_ended(futures, 0) and not all_ended(futures, 0.001) and not all_ended(futures, -1)
    futures[3].cancel()
    thread.join()
    assert said == [True] and all_ended(futures) and all_ended([])


def test_a_handler_that_raises_while_all_of_some_are_waited_for_leaves_none_locked() -> None:
    """The library's `wait` holds the conditions of all of them for a while: who ends one might wait for ever."""
    futures = [LateConditionFuture() for _ in range(5)]
    with interrupted(lambda: any(map(sleepers, futures))):
        all_ended(futures, TIMEOUT_S)
    assert not any(map(sleepers, futures)) and not any(map(has_condition, futures))


def test_its_state_is_seen_without_a_condition() -> None:
    future = LateConditionFuture()
    assert not (future.done() or future.running() or future.cancelled() or future._has_value())
    assert not has_condition(future)
    future.set_running_or_notify_cancel()
    assert future.running() and not future.done()
    future.set_exception(ValueError("1"))
    assert future.done() and not (future.running() or future.cancelled() or future._has_value())
    cancelled = LateConditionFuture()
    cancelled.cancel()
    assert cancelled.cancelled() and cancelled.done() and not cancelled._has_value()
    ended = LateConditionFuture()
    assert ended.end_unheeded(None, None) and ended._has_value()


@pytest.mark.processes
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_was_forked_while_a_future_got_its_condition_makes_its_own() -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        with LateConditionFuture.births:
            held.set()
            go_on.wait(TIMEOUT_S)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(TIMEOUT_S)
    child = os.fork()
    if not child:
        future = LateConditionFuture()
        os._exit(7 if future.end_unheeded(1, None) and future.result(0) == 1 else 1)
    go_on.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_an_event_that_nobody_waits_for_is_only_a_flag() -> None:
    event = LateEvent()
    assert not event.is_set() and not event.wait(0)
    other = LateEvent()
    other.set()
    assert other.is_set() and other.wait() and "_event" not in vars(other)


def test_who_waits_while_an_event_is_set_goes_on() -> None:
    for _ in range(ROUNDS):
        event, went_on = LateEvent(), list[bool]()
        race(event.set, lambda: went_on.append(event.wait(TIMEOUT_S)))  # noqa: B023
        assert went_on == [True]
