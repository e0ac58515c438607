"""What clients live through: awkward exceptions, callbacks that end them, jobs that cannot be sent, ids used twice."""

import asyncio
import concurrent.futures
import gc
import threading
import weakref
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sparrow_py import (
    AsyncClient,
    CallOptions,
    Client,
    InvalidRequest,
    JobSpec,
    LocalCluster,
    RemoteTraceback,
    SparrowError,
    SparrowExecutor,
    calls,
)
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S, wait_until

UNSENDABLE_S = 10**400
"""A number, and no float."""


@pytest.fixture
async def async_client(cluster: LocalCluster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster) as client:
        yield client


def held(gate: Path, mark: str, **fields: Any) -> JobSpec:
    """A job with one task that waits for the gate."""
    common = calls.encode_function(tasks.hold, capture_output=False)
    spec = CallOptions().job("hold", common, [calls.encode_arguments((gate, mark), {})])
    return replace(spec, **fields)


def in_callback(client: Client | SparrowExecutor, gate: Path, action: Callable[[], object]) -> list[BaseException]:
    """Do it in a done-callback, on the client's loop; what it raised."""
    raised: list[BaseException] = []
    over = threading.Event()

    def callback(_: object) -> None:
        try:
            action()
        except BaseException as error:
            raised.append(error)
        over.set()

    client.submit(tasks.hold, gate).add_done_callback(callback)
    gate.touch()
    assert over.wait(TIMEOUT_S), "the callback does not return"
    return raised


def in_time(action: Callable[[], object]) -> None:
    """Do it in a thread: a test that waits for ever says nothing."""
    thread = threading.Thread(target=action, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive(), f"{action} does not return"


# ---- exceptions ------------------------------------------------------------------------------


async def test_a_stop_iteration_is_a_runtime_error_and_the_link_stands(async_client: AsyncClient) -> None:
    """asyncio's futures refuse it."""

    def stop() -> None:
        raise StopIteration(7)

    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(RuntimeError, match=r"StopIteration\(7\)") as caught:
            await async_client.submit(stop)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert await async_client.submit(tasks.square, 3) == 9


def test_a_stop_iteration_does_not_end_a_generator_in_silence(client: Client) -> None:
    def stop(number: int) -> None:
        raise StopIteration(number)

    with pytest.raises(RuntimeError, match="StopIteration"):
        list(client.map(stop, [1]))
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def check_frozen(future: Any, kind: type[Any]) -> None:
    """The task was started once, and has raised a `kind` whose code is 3."""
    error = future.exception(TIMEOUT_S)
    assert isinstance(error, kind), error
    assert error.code == 3
    assert isinstance(error.__cause__, RemoteTraceback)
    assert "raise Frozen(3)" in str(error.__cause__)
    assert future.report.attempts == 1


def test_a_frozen_exception_comes_back_as_itself_and_is_not_tried_again(client: Client) -> None:
    @dataclass(frozen=True)
    class Frozen(Exception):
        code: int

        def __reduce__(self) -> tuple[type, tuple[int]]:
            return Frozen, (self.code,)

    def fail() -> None:
        raise Frozen(3)

    check_frozen(client.submit(fail), Frozen)
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_a_frozen_exception_that_pickle_alone_cannot_unpickle_comes_back_as_itself(client: Client) -> None:
    """pickle sets an exception's fields one by one, which a frozen class refuses unless it has a __reduce__."""

    @dataclass(frozen=True)
    class Frozen(Exception):
        code: int

    def fail() -> None:
        raise Frozen(3)

    future = client.submit(fail)
    check_frozen(future, Frozen)
    assert "Frozen: 3" in future.report.error  # type: ignore[attr-defined]


# ---- the end ---------------------------------------------------------------------------------


def test_an_executor_can_be_shut_down_in_a_callback(cluster: LocalCluster, gate: Path) -> None:
    executor = SparrowExecutor(cluster)
    assert in_callback(executor, gate, executor.shutdown) == []
    in_time(executor.shutdown)
    assert not executor._client._thread.is_alive()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(tasks.square, 1)


def test_a_client_is_not_closed_in_a_callback_and_can_be_closed_afterwards(cluster: LocalCluster, gate: Path) -> None:
    client = Client(cluster)
    (error,) = in_callback(client, gate, client.close)
    assert isinstance(error, RuntimeError)
    assert "done-callbacks" in str(error)
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    in_time(client.close)
    assert not client._thread.is_alive()


def test_a_closed_client_takes_no_jobs(cluster: LocalCluster) -> None:
    client = Client(cluster)
    client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.submit_job(JobSpec([b""], app="noop"))
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.submit(tasks.square, 1)


async def test_a_closed_async_client_takes_no_jobs(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client:
        pass
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.submit_job(JobSpec([b""], app="noop"))
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.submit(tasks.square, 1)


# ---- ids used twice --------------------------------------------------------------------------


def test_the_id_of_a_running_job_is_refused_and_the_job_goes_on(client: Client, gate: Path) -> None:
    first = client.submit_job(held(gate, "first", job_id="twice"))
    wait_until(lambda: tasks.started(gate, "first"))
    second = client.submit_job(held(gate, "second", job_id="twice"))
    with pytest.raises(InvalidRequest, match="job_id: 'twice'"):
        second.accepted(TIMEOUT_S)
    assert isinstance(second.futures[0].exception(TIMEOUT_S), InvalidRequest)
    assert client.unfinished() == first.futures
    gate.touch()
    assert first.results(TIMEOUT_S) == ["first"]
    wait_until(lambda: not client._jobs)
    assert client.submit_job(held(gate, "third", job_id="twice")).results(TIMEOUT_S) == ["third"]


def test_a_client_that_closes_ends_the_job_whose_id_was_used_twice(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster) as client:
        first = client.submit_job(held(gate, "first", job_id="twice, then closed"))
        wait_until(lambda: tasks.started(gate, "first"))
        with pytest.raises(InvalidRequest):
            client.submit_job(held(gate, "second", job_id="twice, then closed")).accepted(TIMEOUT_S)
    with pytest.raises(SparrowError, match="the client was closed"):
        first.futures[0].result(TIMEOUT_S)


async def test_the_id_of_a_running_job_is_refused_by_an_async_client(async_client: AsyncClient, gate: Path) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        first = async_client.submit_job(held(gate, "first", job_id="twice, asyncio"))
        await first.accepted()
        with pytest.raises(InvalidRequest, match="job_id: 'twice, asyncio'"):
            async_client.submit_job(held(gate, "second", job_id="twice, asyncio"))
        gate.touch()
        assert await first.results() == ["first"]


# ---- what messages hold ----------------------------------------------------------------------


@pytest.mark.parametrize("field", ["expected_duration_s", "queue_timeout_s"])
def test_numbers_of_numpy(client: Client, field: str) -> None:
    of_numpy = client.with_options(**{field: np.float64(60.0)})
    assert of_numpy.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    assert of_numpy.submit_calls(tasks.square, [(3,)]).results(TIMEOUT_S) == [9]


def test_a_whole_number_that_only_a_float_holds(client: Client) -> None:
    assert client.submit_job(JobSpec([b""], app="noop", queue_timeout_s=10**30)).results(TIMEOUT_S) == [b""]


def test_a_job_that_messages_cannot_hold_is_an_error_of_its_futures(client: Client) -> None:
    job = client.submit_job(JobSpec([b""] * 2, app="noop", queue_timeout_s=UNSENDABLE_S))
    with pytest.raises(SparrowError, match="the job cannot be sent"):
        job.accepted(TIMEOUT_S)
    for future in job.futures:
        assert isinstance(future.exception(TIMEOUT_S), SparrowError)
    call = client.with_options(queue_timeout_s=UNSENDABLE_S).submit(tasks.square, 3)
    assert isinstance(call.exception(TIMEOUT_S), SparrowError)
    assert client.unfinished() == []
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


async def test_a_job_that_messages_cannot_hold_is_an_error_of_an_async_client(async_client: AsyncClient) -> None:
    with pytest.raises(OverflowError):
        async_client.submit_job(JobSpec([b""], app="noop", queue_timeout_s=UNSENDABLE_S))
    async with asyncio.timeout(TIMEOUT_S):
        assert await async_client.submit(tasks.square, 3) == 9


# ---- asyncio ---------------------------------------------------------------------------------


async def test_iteration_ends_though_the_caller_cancelled_a_future(async_client: AsyncClient, gate: Path) -> None:
    job = async_client.submit_calls(tasks.hold, [(gate, f"task{number}") for number in range(3)])
    job.futures[0].cancel()
    await job.accepted()
    gate.touch()
    async with asyncio.timeout(TIMEOUT_S):
        seen = [future async for future in job]
    assert set(seen) == set(job.futures)
    assert len(seen) == 3
    assert [future.cancelled() for future in job.futures] == [True, False, False]


async def test_a_future_that_the_caller_cancels_does_not_start(async_client: AsyncClient, gate: Path) -> None:
    job = async_client.submit_calls(tasks.hold, [(gate, f"task{number}") for number in range(20)])
    await job.accepted()
    job.futures[19].cancel()
    async with asyncio.timeout(TIMEOUT_S):
        future = await anext(aiter(job))  # Nothing else ends while the gate is shut.
        assert future is job.futures[19]
        gate.touch()
        assert [await future for future in job.futures[:19]] == [f"task{number}" for number in range(19)]
    assert not tasks.started(gate, "task19")


async def test_a_map_keeps_only_the_jobs_that_are_in_flight(
    async_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[weakref.ref[Any]] = []
    submit_job = async_client.submit_job

    def remembering(spec: JobSpec, **how: Any) -> Any:
        job = submit_job(spec, **how)
        jobs.append(weakref.ref(job))
        return job

    monkeypatch.setattr(async_client, "submit_job", remembering)
    results = async_client.map(tasks.square, range(600), window=10)
    async with asyncio.timeout(TIMEOUT_S):
        for number in range(590):
            assert await anext(results) == number * number
        gc.collect()
        assert len(jobs) > 50
        assert sum(job() is not None for job in jobs) <= 5
        assert [value async for value in results] == [number * number for number in range(590, 600)]


# ---- calls -----------------------------------------------------------------------------------


def test_each_submit_takes_a_callable_as_it_is_then(client: Client) -> None:
    class Counter:
        def __init__(self) -> None:
            self.number = 0

        def __call__(self) -> int:
            return self.number

    counter, futures = Counter(), []
    for number in range(5):
        counter.number = number
        futures.append(client.submit(counter))
    assert client.gather(futures) == [0, 1, 2, 3, 4]


def test_an_executor_with_options_of_its_own_says_what_runs(cluster: LocalCluster, gate: Path) -> None:
    with SparrowExecutor(cluster, options=CallOptions(probe_ratio=1.0)) as executor:
        future = executor.submit(tasks.hold, gate, "running")
        wait_until(future.running, "the future to say that its task runs")
        gate.touch()
        assert future.result(TIMEOUT_S) == "running"


async def test_each_future_comes_once_though_the_client_closes(cluster: LocalCluster, gate: Path) -> None:
    async with AsyncClient(cluster) as client:
        gates = [gate.with_name("open"), gate]
        gates[0].touch()
        job = client.submit_calls(tasks.hold, [(one, "") for one in gates])
        async with asyncio.timeout(TIMEOUT_S):
            await job.futures[0]
    async with asyncio.timeout(TIMEOUT_S):
        assert [future async for future in job] == job.futures


@pytest.mark.parametrize("waits", ["result", "exception", "map", "results", "wait", "accepted", "the library's"])
def test_who_waits_in_a_done_callback_is_told_that_this_would_wait_for_itself(
    client: Client, gate: Path, waits: str
) -> None:
    def wait() -> None:
        if waits == "map":
            list(client.map(tasks.square, [2]))
        elif waits in ("result", "exception"):
            getattr(client.submit(tasks.square, 2), waits)()
        elif waits == "the library's":
            concurrent.futures.wait([client.submit(tasks.square, 2)], TIMEOUT_S)
        else:
            getattr(client.submit_calls(tasks.square, [(2,)]), waits)()

    (raised,) = in_callback(client, gate, wait)
    assert isinstance(raised, RuntimeError) and "this would wait for itself" in str(raised)
