"""`SparrowExecutor` keeps what concurrent.futures documents of executors and futures, one test per promise."""

import gc
import logging
import operator
import os
import re
import threading
import weakref
from collections.abc import Iterator
from concurrent.futures import (
    ALL_COMPLETED,
    FIRST_COMPLETED,
    FIRST_EXCEPTION,
    CancelledError,
    Executor,
    Future,
    InvalidStateError,
    as_completed,
    wait,
)
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import CallOptions, LocalCluster, RemoteTraceback, SparrowExecutor, TaskLost
from tests.conftest import SLOTS
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S, wait_until


@pytest.fixture
def executor(cluster: LocalCluster) -> Iterator[SparrowExecutor]:
    with SparrowExecutor(cluster) as executor:
        yield executor


@pytest.fixture
def occupied(executor: SparrowExecutor, gate: Path) -> Iterator[list[Future[str]]]:
    """Futures of tasks that hold every slot until the gate is there: whatever is submitted next is queued."""
    marks = [f"slot{number}" for number in range(SLOTS)]
    futures = [executor.submit(tasks.hold, gate, mark) for mark in marks]
    wait_until(lambda: tasks.started(gate, *marks), "every slot to be held")
    yield futures
    gate.touch()


# ---- Executor --------------------------------------------------------------------------------


def test_is_an_executor(executor: SparrowExecutor) -> None:
    assert isinstance(executor, Executor)


def test_submit_schedules_fn_args_kwargs_and_returns_a_future(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.describe, 1, "two", three=3)
    assert isinstance(future, Future)
    assert future.result(TIMEOUT_S) == ((1, "two"), {"three": 3})


def test_submit_takes_keywords_that_are_named_as_its_own_parameters(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.describe, self=1, fn=2, function=3)
    assert future.result(TIMEOUT_S) == ((), {"self": 1, "fn": 2, "function": 3})


def test_submit_takes_lambdas_closures_and_bound_methods(executor: SparrowExecutor) -> None:
    offset = 5
    futures: list[Future[object]] = [executor.submit(lambda x: x + offset, 1), executor.submit("a,b".split, ",")]
    assert [future.result(TIMEOUT_S) for future in futures] == [6, ["a", "b"]]


def test_map_returns_results_in_order(executor: SparrowExecutor) -> None:
    assert list(executor.map(tasks.square, range(300))) == [x * x for x in range(300)]


def test_map_is_like_builtin_map_over_several_iterables_and_ends_with_the_shortest(executor: SparrowExecutor) -> None:
    assert list(executor.map(operator.add, [1, 2, 3], iter([10, 20]))) == [11, 22]
    assert list(executor.map(tasks.square, [])) == []


def test_map_collects_the_iterables_immediately(executor: SparrowExecutor) -> None:
    pulled: list[int] = []
    results = executor.map(tasks.square, (pulled.append(x) or x for x in range(25_000)), chunksize=500)
    assert len(pulled) == 25_000
    assert sum(results) == sum(x * x for x in range(25_000))


def test_map_with_buffersize_collects_no_more_than_that(executor: SparrowExecutor) -> None:
    pulled: list[int] = []
    results = executor.map(tasks.square, (pulled.append(x) or x for x in range(1000)), buffersize=8)
    assert len(pulled) <= 8
    assert next(results) == 0
    assert len(pulled) <= 16
    assert list(results) == [x * x for x in range(1, 1000)]
    with pytest.raises(ValueError, match="buffersize"):
        executor.map(tasks.square, [1], buffersize=0)


def test_map_runs_before_its_results_are_asked_for(executor: SparrowExecutor, gate: Path) -> None:
    results = executor.map(tasks.hold, [gate], ["one"])
    wait_until(lambda: tasks.started(gate, "one"))
    gate.touch()
    assert list(results) == ["one"]


def test_map_results_outlive_the_executor(cluster: LocalCluster) -> None:
    with SparrowExecutor(cluster) as executor:
        results = executor.map(tasks.square, range(25_000), chunksize=500)
    assert sum(results) == sum(x * x for x in range(25_000))


def test_map_raises_a_calls_exception_when_its_value_is_retrieved(executor: SparrowExecutor) -> None:
    results = executor.map(tasks.divide, [1, 1, 1], [1, 0, 2])
    assert next(results) == 1.0
    with pytest.raises(ZeroDivisionError):
        next(results)


def test_map_raises_timeout_error_if_the_result_is_not_there_in_time(
    executor: SparrowExecutor, occupied: list[Future[str]]
) -> None:
    results = executor.map(tasks.square, [1], timeout=0.01)
    with pytest.raises(TimeoutError):
        next(results)


@pytest.mark.timeout(30)
def test_map_timeout_counts_from_the_call_of_map(
    executor: SparrowExecutor, occupied: list[Future[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [0.0]
    monkeypatch.setattr(executor._client._session, "now_s", lambda: now_s[0])
    results = executor.map(tasks.square, [1], timeout=1e6)
    now_s[0] = 2e6
    with pytest.raises(TimeoutError):
        next(results)


def test_map_chunksize_makes_tasks_of_several_calls(executor: SparrowExecutor) -> None:
    results = list(executor.map(tasks.describe, range(10), chunksize=4))
    assert results == [((x,), {}) for x in range(10)]
    with pytest.raises(ValueError, match="chunksize"):
        executor.map(tasks.square, [1], chunksize=0)


def test_shutdown_waits_for_pending_futures(cluster: LocalCluster) -> None:
    executor = SparrowExecutor(cluster)
    futures = [executor.submit(tasks.square, x) for x in range(50)]
    executor.shutdown(wait=True)
    assert all(future.done() for future in futures)
    assert [future.result() for future in futures] == [x * x for x in range(50)]


def test_shutdown_without_wait_returns_and_pending_futures_still_finish(cluster: LocalCluster, gate: Path) -> None:
    executor = SparrowExecutor(cluster)
    futures = [executor.submit(tasks.hold, gate, f"m{number}") for number in range(SLOTS + 2)]
    executor.shutdown(wait=False)
    assert not any(future.done() for future in futures)
    gate.touch()
    assert [future.result(TIMEOUT_S) for future in futures] == [f"m{number}" for number in range(SLOTS + 2)]
    executor.shutdown()


def test_shutdown_cancel_futures_cancels_what_has_not_started(
    cluster: LocalCluster, executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    queued = [executor.submit(tasks.square, x) for x in range(20)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert not wait(queued, TIMEOUT_S).not_done
    assert all(future.cancelled() for future in queued)
    assert not any(future.done() for future in occupied)
    gate.touch()
    executor.shutdown(wait=True)
    assert [future.result() for future in occupied] == [f"slot{number}" for number in range(SLOTS)]


def test_shutdown_from_a_callback(cluster: LocalCluster, gate: Path) -> None:
    executor = SparrowExecutor(cluster)
    future = executor.submit(tasks.hold, gate, "m")
    returned = threading.Event()

    def shut_down(_: Future[str]) -> None:
        executor.shutdown(wait=False, cancel_futures=True)
        returned.set()

    future.add_done_callback(shut_down)
    gate.touch()
    assert returned.wait(TIMEOUT_S)
    executor.shutdown()


@pytest.mark.parametrize("waits", [True, False])
def test_submit_and_map_after_shutdown_raise_runtime_error(cluster: LocalCluster, waits: bool) -> None:
    executor = SparrowExecutor(cluster)
    executor.shutdown(wait=waits)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(tasks.square, 1)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.map(tasks.square, [1])
    executor.shutdown()


def test_shutdown_may_be_called_again(cluster: LocalCluster) -> None:
    executor = SparrowExecutor(cluster)
    executor.shutdown()
    executor.shutdown(wait=False, cancel_futures=True)
    executor.shutdown()


def test_context_manager_waits_and_shuts_down(cluster: LocalCluster) -> None:
    with SparrowExecutor(cluster) as executor:
        future = executor.submit(tasks.square, 12)
    assert future.done()
    assert future.result() == 144
    with pytest.raises(RuntimeError):
        executor.submit(tasks.square, 1)


def test_may_be_used_from_several_threads(executor: SparrowExecutor) -> None:
    results: dict[int, list[int]] = {}

    def use(thread: int) -> None:
        futures = [executor.submit(tasks.square, thread * 1000 + x) for x in range(100)]
        results[thread] = [future.result(TIMEOUT_S) for future in futures]

    threads = [threading.Thread(target=use, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert results == {t: [(t * 1000 + x) ** 2 for x in range(100)] for t in range(8)}


def test_a_big_fan_out(executor: SparrowExecutor) -> None:
    futures = [executor.submit(tasks.square, x) for x in range(5000)]
    assert sum(future.result(TIMEOUT_S) for future in futures) == sum(x * x for x in range(5000))


# ---- Future ----------------------------------------------------------------------------------


def test_cancel_of_a_queued_call_is_true_and_it_never_runs(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    queued = executor.submit(tasks.hold, gate, "never")
    assert not queued.cancelled()
    assert queued.cancel()
    assert queued.cancelled()
    assert queued.done()
    assert not queued.running()
    with pytest.raises(CancelledError):
        queued.result(TIMEOUT_S)
    with pytest.raises(CancelledError):
        queued.exception(TIMEOUT_S)
    assert queued.cancel()  # Again: it is cancelled still.
    gate.touch()
    wait(occupied, TIMEOUT_S)
    assert not tasks.started(gate, "never")


def test_cancel_of_a_running_call_is_false(executor: SparrowExecutor, occupied: list[Future[str]], gate: Path) -> None:
    assert not occupied[0].cancel()
    assert not occupied[0].cancelled()
    gate.touch()
    assert occupied[0].result(TIMEOUT_S) == "slot0"


def test_cancel_of_a_finished_call_is_false(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.square, 2)
    assert future.result(TIMEOUT_S) == 4
    assert not future.cancel()
    assert not future.cancelled()


def test_cancel_one_of_many_queued_leaves_the_others(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    queued = [executor.submit(tasks.square, x) for x in range(10)]
    assert queued[3].cancel()
    gate.touch()
    assert [f.result(TIMEOUT_S) for f in queued if f is not queued[3]] == [x * x for x in range(10) if x != 3]
    assert queued[3].cancelled()


def test_running_and_done_tell_the_state(executor: SparrowExecutor, occupied: list[Future[str]], gate: Path) -> None:
    queued = executor.submit(tasks.square, 3)
    wait_until(occupied[0].running)
    assert not occupied[0].done()
    assert not queued.running()
    assert not queued.done()
    gate.touch()
    assert queued.result(TIMEOUT_S) == 9
    assert queued.done()
    assert not queued.running()


def test_result_and_exception_raise_timeout_error(occupied: list[Future[str]]) -> None:
    with pytest.raises(TimeoutError):
        occupied[0].result(0.01)
    with pytest.raises(TimeoutError):
        occupied[0].exception(timeout=0.01)


def test_result_raises_the_calls_exception_with_its_remote_traceback_as_cause(executor: SparrowExecutor) -> None:
    with pytest.raises(ValueError, match="on purpose") as caught:
        executor.submit(tasks.fail, "on purpose").result(TIMEOUT_S)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert "tasks.py" in str(cause)
    assert 'raise ValueError(text)' in str(cause)  # fmt: skip


def test_exception_returns_it_or_none(executor: SparrowExecutor) -> None:
    assert isinstance(executor.submit(tasks.fail, "x").exception(TIMEOUT_S), ValueError)
    assert executor.submit(tasks.square, 1).exception(TIMEOUT_S) is None


def test_callbacks_get_the_future_in_the_order_added(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    calls: list[tuple[int, object]] = []
    called = threading.Event()
    future = occupied[0]
    for number in range(5):
        future.add_done_callback(lambda done, number=number: calls.append((number, done)))  # type: ignore[misc]
    future.add_done_callback(lambda _: called.set())
    gate.touch()
    assert called.wait(TIMEOUT_S)
    assert calls == [(number, future) for number in range(5)]


def test_callback_of_a_done_future_is_called_at_once(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.square, 2)
    future.result(TIMEOUT_S)
    calls: list[object] = []
    future.add_done_callback(calls.append)
    assert calls == [future]


def test_callback_is_called_when_cancelled(executor: SparrowExecutor, occupied: list[Future[str]]) -> None:
    queued = executor.submit(tasks.square, 1)
    cancelled: list[bool] = []
    called = threading.Event()
    queued.add_done_callback(lambda future: (cancelled.append(future.cancelled()), called.set()))  # type: ignore[func-returns-value]
    assert queued.cancel()
    assert called.wait(TIMEOUT_S)
    assert cancelled == [True]


def test_callbacks_exceptions_are_logged_and_ignored(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    called = threading.Event()

    def complain(_: Future[str]) -> None:
        raise LookupError("from the callback")

    occupied[0].add_done_callback(complain)
    occupied[0].add_done_callback(lambda _: called.set())
    with caplog.at_level(logging.ERROR, logger="concurrent.futures"):
        gate.touch()
        assert called.wait(TIMEOUT_S)
    assert occupied[0].result(TIMEOUT_S) == "slot0"
    assert "from the callback" in caplog.text


def test_a_callback_may_submit(executor: SparrowExecutor) -> None:
    chained: list[Future[int]] = []
    called = threading.Event()
    future = executor.submit(tasks.square, 3)
    future.add_done_callback(lambda done: (chained.append(executor.submit(tasks.square, done.result())), called.set()))  # type: ignore[func-returns-value]
    assert called.wait(TIMEOUT_S)
    assert chained[0].result(TIMEOUT_S) == 81


# ---- module functions ------------------------------------------------------------------------


def test_as_completed_yields_each_future_as_it_completes(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    done = Future[str]()
    done.set_result("done already")
    completed = as_completed([*occupied, done, done], timeout=TIMEOUT_S)
    assert next(completed) is done
    gate.touch()
    assert set(completed) == set(occupied)


def test_as_completed_raises_timeout_error(occupied: list[Future[str]]) -> None:
    with pytest.raises(TimeoutError):
        next(as_completed(occupied, timeout=0.01))


def test_wait_first_completed(executor: SparrowExecutor, gate: Path) -> None:
    held, quick = executor.submit(tasks.hold, gate), executor.submit(tasks.square, 1)
    done, not_done = wait([held, quick], TIMEOUT_S, FIRST_COMPLETED)
    assert (done, not_done) == ({quick}, {held})


def test_wait_first_exception(executor: SparrowExecutor, gate: Path) -> None:
    held, bad = executor.submit(tasks.hold, gate), executor.submit(tasks.fail, "x")
    done, not_done = wait([held, bad], TIMEOUT_S, FIRST_EXCEPTION)
    assert bad in done
    assert not_done == {held}


def test_wait_all_completed(executor: SparrowExecutor) -> None:
    futures = {executor.submit(tasks.square, x) for x in range(20)}
    done, not_done = wait(futures, TIMEOUT_S, ALL_COMPLETED)
    assert (done, not_done) == (futures, set())


def test_wait_timeout(executor: SparrowExecutor, occupied: list[Future[str]]) -> None:
    done, not_done = wait(occupied, 0.01)
    assert (done, not_done) == (set(), set(occupied))


# ---- what cannot be pickled ------------------------------------------------------------------


def test_an_unpicklable_argument_is_the_futures_error(executor: SparrowExecutor) -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        executor.submit(tasks.describe, threading.Lock()).result(TIMEOUT_S)
    assert executor.submit(tasks.square, 2).result(TIMEOUT_S) == 4


def test_an_unpicklable_function_is_the_futures_error(executor: SparrowExecutor) -> None:
    lock = threading.Lock()
    with pytest.raises(TypeError, match="cannot pickle"):
        executor.submit(lock.locked).result(TIMEOUT_S)


def test_an_unpicklable_result_is_an_error_that_names_it(executor: SparrowExecutor) -> None:
    with pytest.raises(TypeError, match=r"result <unlocked _thread.lock object.* of type lock cannot be pickled"):
        executor.submit(threading.Lock).result(TIMEOUT_S)


def test_an_unpicklable_result_that_cannot_even_be_shown(executor: SparrowExecutor) -> None:
    with pytest.raises(TypeError, match=r"of type Grumpy cannot be pickled: I stay where I am"):
        executor.submit(tasks.make_grumpy).result(TIMEOUT_S)


def test_an_unpicklable_exception_becomes_one_that_tells(executor: SparrowExecutor) -> None:
    def fail_with_lock() -> None:
        raise OSError("with a lock", threading.Lock())

    with pytest.raises(RuntimeError, match=r"OSError: .*with a lock.*cannot be pickled") as caught:
        executor.submit(fail_with_lock).result(TIMEOUT_S)
    assert "fail_with_lock" in str(caught.value.__cause__)


def test_an_exception_that_pickle_alone_cannot_unpickle_arrives_as_itself(executor: SparrowExecutor) -> None:
    with pytest.raises(tasks.OneWay, match="1 and 2"):
        executor.submit(tasks.fail_one_way).result(TIMEOUT_S)


def test_an_exception_that_cannot_be_shown_still_arrives(executor: SparrowExecutor) -> None:
    with pytest.raises(tasks.Unshowable):
        executor.submit(tasks.fail_unshowably).result(TIMEOUT_S)


def test_an_exception_with_a_lone_surrogate_arrives(executor: SparrowExecutor) -> None:
    with pytest.raises(ValueError, match="a file name: \udcff"):
        executor.submit(tasks.fail_with_surrogate).result(TIMEOUT_S)


# ---- what else CPython's own tests ask of executors ------------------------------------------


def cancelled_future(*, seen: bool) -> Future[Any]:
    """A future of nobody that is cancelled; `seen` if its executor has noticed."""
    future = Future[Any]()
    future.cancel()
    if seen:
        future.set_running_or_notify_cancel()
    return future


def done_future(error: Exception | None = None) -> Future[Any]:
    future = Future[Any]()
    if error is None:
        future.set_result("done")
    else:
        future.set_exception(error)
    return future


def test_submit_without_a_function_is_a_type_error(executor: SparrowExecutor) -> None:
    with pytest.raises(TypeError):
        executor.submit(fn=tasks.describe, arg=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        executor.submit(arg=1)  # type: ignore[call-arg]


def test_a_map_that_nobody_iterates_is_done_by_shutdown(cluster: LocalCluster, gate: Path) -> None:
    marks = [f"m{number}" for number in range(SLOTS + 2)]
    gate.touch()
    executor = SparrowExecutor(cluster)
    executor.map(tasks.hold, [gate] * len(marks), marks)
    executor.shutdown()
    assert tasks.started(gate, *marks)


def test_a_map_that_times_out_cancels_what_has_not_started(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    results = executor.map(tasks.hold, [gate, gate], ["second", "third"], timeout=0)
    with pytest.raises(TimeoutError):
        next(results)
    gate.touch()
    wait(occupied, TIMEOUT_S)
    executor.shutdown()
    assert not tasks.started(gate, "second")
    assert not tasks.started(gate, "third")


def test_what_was_submitted_is_not_kept(executor: SparrowExecutor) -> None:
    thing = tasks.Thing(3)
    kept = weakref.ref(thing)
    future = executor.submit(thing.doubled)
    del thing
    assert future.result(TIMEOUT_S) == 6
    wait_until(lambda: kept() is None, "the object to be let go")


def test_a_future_that_is_dropped_is_not_kept(executor: SparrowExecutor) -> None:
    [done] = list(as_completed([executor.submit(tasks.Thing, 3)], TIMEOUT_S))
    kept = weakref.ref(done)
    del done
    wait_until(lambda: kept() is None or (gc.collect() and False), "the future to be let go")


def test_an_argument_is_let_go_when_the_call_has_ended(executor: SparrowExecutor, tmp_path: Path) -> None:
    assert isinstance(executor.submit(id, tasks.Farewell(tmp_path)).result(TIMEOUT_S), int)
    mine = tmp_path / str(os.getpid())
    wait_until(lambda: set(tmp_path.iterdir()) - {mine}, "a worker to let go of its argument")


def test_wait_takes_a_future_twice(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.square, 2)
    assert wait([future, future], TIMEOUT_S, ALL_COMPLETED) == ({future}, set())


def test_wait_first_completed_among_futures_of_others(executor: SparrowExecutor, gate: Path) -> None:
    held, quick = executor.submit(tasks.hold, gate), executor.submit(tasks.square, 1)
    unseen, seen, done = cancelled_future(seen=False), cancelled_future(seen=True), done_future()
    assert wait([unseen, quick, held], TIMEOUT_S, FIRST_COMPLETED) == ({quick}, {unseen, held})
    assert wait([seen, done, held], TIMEOUT_S, FIRST_COMPLETED) == ({seen, done}, {held})


def test_wait_first_exception_among_futures_of_others(executor: SparrowExecutor, gate: Path) -> None:
    held, bad = executor.submit(tasks.hold, gate), executor.submit(tasks.divide, 1, 0)
    unseen, seen, done = cancelled_future(seen=False), cancelled_future(seen=True), done_future()
    failed = done_future(OSError("failed already"))
    assert wait([failed, held], TIMEOUT_S, FIRST_EXCEPTION) == ({failed}, {held})
    assert wait([done, unseen, seen, bad, held], TIMEOUT_S, FIRST_EXCEPTION) == ({done, seen, bad}, {unseen, held})


def test_wait_all_completed_among_futures_of_others(executor: SparrowExecutor) -> None:
    others = {cancelled_future(seen=True), done_future(), done_future(OSError("failed already"))}
    ours = {executor.submit(tasks.divide, 1, 0), executor.submit(tasks.square, 2)}
    assert wait(others | ours, TIMEOUT_S, ALL_COMPLETED) == (others | ours, set())


def test_wait_timeout_among_futures_of_others(occupied: list[Future[str]]) -> None:
    others = {cancelled_future(seen=True), done_future(), done_future(OSError("failed already"))}
    assert wait([*others, occupied[0]], 0.01, ALL_COMPLETED) == (others, {occupied[0]})


def test_as_completed_yields_a_future_once(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.square, 2)
    assert list(as_completed([future, future, future], TIMEOUT_S)) == [future]


@pytest.mark.parametrize("timeout_s", [0, 0.01])
def test_as_completed_yields_what_is_done_before_it_times_out(occupied: list[Future[str]], timeout_s: float) -> None:
    others = {cancelled_future(seen=True), done_future(), done_future(OSError("failed already"))}
    completed = set()
    with pytest.raises(TimeoutError, match=r"1 \(of 4\) futures unfinished"):
        for future in as_completed(others | {occupied[0]}, timeout_s):
            completed.add(future)
    assert completed == others


def test_shutdown_ends_its_threads(cluster: LocalCluster) -> None:
    before = set(threading.enumerate())
    executor = SparrowExecutor(cluster)
    assert executor.submit(tasks.square, 2).result(TIMEOUT_S) == 4
    executor.shutdown()
    assert set(threading.enumerate()) <= before


def test_one_that_is_dropped_finishes_and_ends_its_threads(cluster: LocalCluster, gate: Path) -> None:
    executor = SparrowExecutor(cluster)
    results = executor.map(tasks.hold, [gate] * 6, [f"m{number}" for number in range(6)])
    end = executor._end
    dropped = weakref.ref(executor)
    del executor
    assert dropped() is None
    assert end.is_alive()
    gate.touch()
    assert list(results) == [f"m{number}" for number in range(6)]
    end.join(TIMEOUT_S)
    assert not end.is_alive()


def test_one_that_is_dropped_takes_what_its_map_has_left(cluster: LocalCluster) -> None:
    results = SparrowExecutor(cluster).map(tasks.square, range(50), buffersize=4)
    gc.collect()
    assert list(results) == [x * x for x in range(50)]


def test_shutdown_after_a_call_was_cancelled(cluster: LocalCluster) -> None:
    executor = SparrowExecutor(cluster)
    executor.submit(tasks.square, 1).result(TIMEOUT_S)
    future = executor.submit(tasks.square, 2)
    future.cancel()
    executor.shutdown()
    assert future.done()


def test_shutdown_may_cancel_what_one_before_has_left(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    queued = executor.submit(tasks.square, 1)
    executor.shutdown(wait=False)
    executor.shutdown(wait=False, cancel_futures=True)
    assert not wait([queued], TIMEOUT_S).not_done
    assert queued.cancelled()
    assert not any(future.done() for future in occupied)
    gate.touch()
    executor.shutdown()
    assert [future.result() for future in occupied] == [f"slot{number}" for number in range(SLOTS)]


def test_shutdown_waits_for_a_call_whose_worker_dies(cluster: LocalCluster) -> None:
    with SparrowExecutor(cluster, options=CallOptions(max_attempts=1)) as executor:
        future = executor.submit(tasks.exit_worker)
        executor.shutdown()
        assert isinstance(future.exception(), TaskLost)


def test_shutdown_after_a_call_that_cannot_be_pickled(cluster: LocalCluster) -> None:
    executor = SparrowExecutor(cluster)
    future = executor.submit(tasks.describe, tasks.RaisesAtPickling(ValueError))
    executor.shutdown(wait=False)
    with pytest.raises(ValueError, match="on purpose"):
        future.result(TIMEOUT_S)
    executor.shutdown()


def test_large_arguments_of_calls_that_kill_their_workers(cluster: LocalCluster) -> None:
    data = b"a" * 300_000  # More than a pipe holds.
    with SparrowExecutor(cluster, options=CallOptions(max_attempts=1)) as executor:
        futures = [executor.submit(tasks.exit_worker_with, data) for _ in range(3)]
        assert {type(future.exception(TIMEOUT_S)) for future in futures} == {TaskLost}
        assert executor.submit(len, data).result(TIMEOUT_S) == 300_000


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_what_unpickling_an_argument_raises_is_the_futures_error(
    executor: SparrowExecutor, kind: type[BaseException]
) -> None:
    future = executor.submit(id, tasks.RaisesAtUnpickling(kind))
    assert type(future.exception(TIMEOUT_S)) is kind
    assert executor.submit(tasks.square, 2).result(TIMEOUT_S) == 4


def test_repr_tells_the_state(executor: SparrowExecutor, occupied: list[Future[str]], gate: Path) -> None:
    queued, left = executor.submit(tasks.square, 1), executor.submit(tasks.fail, "x")
    wait_until(occupied[0].running)
    assert re.fullmatch("<TaskFuture at 0x[0-9a-f]+ state=pending>", repr(queued))
    assert re.fullmatch("<TaskFuture at 0x[0-9a-f]+ state=running>", repr(occupied[0]))
    assert queued.cancel()
    assert re.fullmatch("<TaskFuture at 0x[0-9a-f]+ state=cancelled>", repr(queued))
    gate.touch()
    wait([left, *occupied], TIMEOUT_S)
    assert re.fullmatch("<TaskFuture at 0x[0-9a-f]+ state=finished returned str>", repr(occupied[0]))
    assert re.fullmatch("<TaskFuture at 0x[0-9a-f]+ state=finished raised ValueError>", repr(left))


def test_a_future_that_is_done_cannot_be_set(executor: SparrowExecutor) -> None:
    future = executor.submit(tasks.square, 3)
    assert future.result(TIMEOUT_S) == 9
    with pytest.raises(InvalidStateError, match=r"FINISHED: <TaskFuture at 0x.* state=finished returned int>"):
        future.set_result(10)
    with pytest.raises(InvalidStateError):
        future.set_exception(ValueError())
    assert future.result() == 9
    assert future.exception() is None


def test_result_waits_in_another_thread(executor: SparrowExecutor, gate: Path) -> None:
    futures = [executor.submit(tasks.hold, gate, "m"), executor.submit(tasks.square, 2)]
    seen: list[object] = []
    waiting = threading.Thread(target=lambda: seen.extend(future.result(TIMEOUT_S) for future in futures))
    waiting.start()
    wait_until(lambda: tasks.started(gate, "m"))
    gate.touch()
    waiting.join(TIMEOUT_S)
    assert seen == ["m", 4]


def test_callback_of_a_future_that_failed_or_was_cancelled(
    executor: SparrowExecutor, occupied: list[Future[str]], gate: Path
) -> None:
    cancelled, failed = executor.submit(tasks.square, 1), executor.submit(tasks.fail, "x")
    assert cancelled.cancel()
    gate.touch()
    wait([failed], TIMEOUT_S)
    seen: list[Future[Any]] = []
    cancelled.add_done_callback(seen.append)
    failed.add_done_callback(seen.append)
    assert seen == [cancelled, failed]
