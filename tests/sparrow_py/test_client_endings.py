"""What may end and what may not: exceptions that are no `Exception`, futures that their user sets, closed clients."""

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import AsyncClient, Client, LocalCluster, SparrowError, TaskFailed, TaskStatus, async_client
from sparrow_py.access.credentials import OPEN
from sparrow_py.async_client import AsyncJob
from sparrow_py.client import Job
from sparrow_py.cluster_nodes import NODES_MAX
from sparrow_py.connection import Connection
from sparrow_py.futures.task_future import TaskFuture
from sparrow_py.session.tasks_in_flight import TasksInFlight
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S, wait_until

TOKEN = "t" * 40
KINDS = [SystemExit, KeyboardInterrupt, asyncio.CancelledError, GeneratorExit, StopIteration, ValueError]


@pytest.fixture
async def aclient(cluster: LocalCluster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster) as client:
        yield client


def goes_on(client: Client) -> None:
    """The client works, over the link that it has had all the time."""
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    assert client._session.core.moves == 0
    assert len(client._session._links) == 1


async def works_still(client: AsyncClient) -> None:
    """As `goes_on`."""
    async with asyncio.timeout(TIMEOUT_S):
        assert await client.submit(tasks.square, 3) == 9
    session = client._shared.open_session()
    assert session.core.moves == 0
    assert len(session._links) == 1


def carried(kind: type[BaseException]) -> type[BaseException]:
    """What futures have in its place."""
    return RuntimeError if kind is StopIteration else kind


# ---- exceptions that are no `Exception` ------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_done_callback_raises_is_logged_and_ends_nothing(
    client: Client, gate: Path, kind: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    job = client.submit_calls(tasks.hold, [(gate, "one"), (gate, "two")])
    called = threading.Event()
    job.futures[0].add_done_callback(lambda _: tasks.raise_(kind))
    job.futures[0].add_done_callback(lambda _: called.set())
    gate.touch()
    assert called.wait(TIMEOUT_S)
    assert job.results(TIMEOUT_S) == ["one", "two"]
    assert "exception calling callback" in caplog.text
    assert kind.__name__ in caplog.text
    goes_on(client)


def test_what_a_callback_raises_where_its_user_adds_it_is_its_users(client: Client) -> None:
    future = client.submit(tasks.square, 2)
    future.result(TIMEOUT_S)
    wait_until(lambda: not client._jobs)
    with pytest.raises(KeyboardInterrupt):
        future.add_done_callback(lambda _: tasks.raise_(KeyboardInterrupt))


@pytest.mark.parametrize("kind", KINDS)
def test_what_unpickling_a_result_raises_is_that_futures(client: Client, kind: type[BaseException]) -> None:
    job = client.submit_calls(tasks.RaisesAtUnpickling, [(kind,), (kind,)])
    for future in job.futures:
        error = future.exception(TIMEOUT_S)
        assert type(error) is carried(kind)
        assert "could not be unpickled here" in str(error.__notes__)
    goes_on(client)


@pytest.mark.parametrize("kind", KINDS)
def test_what_unpickling_an_exception_raises_is_said(client: Client, kind: type[BaseException]) -> None:
    error = client.submit(tasks.fail_where_it_arrives, kind).exception(TIMEOUT_S)
    assert type(error) is TaskFailed
    assert f"its exception could not be unpickled here: {kind.__name__}('on purpose')" in error.__notes__
    goes_on(client)


@pytest.mark.parametrize("kind", KINDS)
async def test_what_unpickling_raises_is_that_futures_with_asyncio(
    aclient: AsyncClient, kind: type[BaseException]
) -> None:
    job = aclient.submit_calls(tasks.RaisesAtUnpickling, [(kind,)])
    failed = aclient.submit(tasks.fail_where_it_arrives, kind)
    await asyncio.wait([*job.futures, failed], timeout=TIMEOUT_S)
    assert type(job.futures[0].exception()) is carried(kind)
    assert type(failed.exception()) is TaskFailed
    await works_still(aclient)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, ValueError])
def test_what_pickling_a_result_raises_is_that_futures_and_is_not_tried_again(
    client: Client, kind: type[BaseException]
) -> None:
    future = client.submit(tasks.RaisesAtPickling, kind)
    assert isinstance(future.exception(TIMEOUT_S), TypeError if kind is ValueError else kind)
    assert future.report.attempts == 1  # type: ignore[attr-defined]


# ---- futures that their user sets ------------------------------------------------------------


def ending(future: Future[Any]) -> object:
    """How the future has ended, without its job's name in it."""
    if future.cancelled():
        return "cancelled"
    return future.result() if future.exception() is None else repr(future.exception())


@pytest.mark.parametrize("report_placed", [False, True])
@pytest.mark.parametrize(
    ("meddle", "end"),
    [
        (lambda future: future.set_result("mine"), "mine"),
        (lambda future: future.set_exception(LookupError("mine")), "LookupError('mine')"),
        (Future.cancel, "cancelled"),
        (lambda future: (future.set_running_or_notify_cancel(), future.set_result("mine")), "mine"),
        (lambda future: (Future.cancel(future), future.set_running_or_notify_cancel()), "cancelled"),
    ],
)
def test_a_future_that_its_user_has_set_stays_so_and_the_link_stands(
    client: Client, gate: Path, meddle: Callable[[TaskFuture], object], end: str, report_placed: bool
) -> None:
    paused = threading.Event()
    client._thread.call_soon(paused.wait)  # Nothing is heard of the task before its user has set the future.
    job = client.with_options(report_placed=report_placed).submit_calls(tasks.hold, [(gate, "one"), (gate, "two")])
    meddle(job.futures[0])
    paused.set()
    wait_until(lambda: tasks.started(gate, "one", "two"))
    gate.touch()
    assert not wait(job.futures, TIMEOUT_S).not_done  # Who waits sees one that was cancelled, too.
    assert ending(job.futures[0]) == end
    goes_on(client)


def test_a_future_that_its_user_has_set_stays_so_when_its_task_is_cancelled(client: Client, gate: Path) -> None:
    job = client.submit_calls(tasks.hold, [(gate, "one"), (gate, "two"), (gate, "three")])
    wait_until(lambda: tasks.started(gate, "one", "two", "three"))
    job.futures[0].set_result("mine")
    Future.cancel(job.futures[1])
    job.cancel(running=True)
    assert not wait(job.futures, TIMEOUT_S).not_done
    assert [ending(future) for future in job.futures] == ["mine", "cancelled", "cancelled"]
    goes_on(client)


def test_a_future_that_its_user_has_set_does_not_keep_the_client_from_closing(
    cluster: LocalCluster, gate: Path
) -> None:
    client = Client(cluster)
    job = client.submit_calls(tasks.hold, [(gate, "one"), (gate, "two")])
    job.futures[0].set_result("mine")
    client.close()
    assert job.futures[0].result() == "mine"
    with pytest.raises(SparrowError, match="the client was closed"):
        job.futures[1].result()


@pytest.mark.parametrize(
    "meddle", [lambda future: future.set_result("mine"), lambda future: future.set_exception(LookupError("mine"))]
)
async def test_a_future_that_its_user_has_set_with_asyncio(
    aclient: AsyncClient, gate: Path, meddle: Callable[[asyncio.Future[Any]], None]
) -> None:
    job = aclient.submit_calls(tasks.hold, [(gate, "one"), (gate, "two")])
    meddle(job.futures[0])
    gate.touch()
    async with asyncio.timeout(TIMEOUT_S):
        assert len((await job.report()).tasks) == 2
        assert {future async for future in job} == set(job.futures)
    assert job.futures[0].exception() is not None or job.futures[0].result() == "mine"
    await works_still(aclient)


# ---- closed clients --------------------------------------------------------------------------


def test_a_view_of_a_closed_client_raises_at_once(cluster: LocalCluster) -> None:
    client = Client(cluster)
    view = client.with_options(prefetch=4)
    client.close()
    for either in (client, view, client.with_options(prefetch=8)):
        for use in (
            lambda either=either: either.submit(tasks.square, 1),
            lambda either=either: either.submit(tasks.describe, threading.Lock()),
            lambda either=either: either.submit_calls(tasks.square, [(1,)]),
            lambda either=either: either.map(tasks.square, [1]),
            lambda either=either: either.map(tasks.square, []),
        ):
            with pytest.raises(RuntimeError, match="the client is closed"):
                use()
    for other in (lambda: client.upload(b"data"), lambda: client.renew_token(TOKEN)):
        with pytest.raises(RuntimeError, match="the client is closed"):
            other()
    assert client.unfinished() == []
    client.cancel_unfinished()


def test_who_waits_for_a_client_that_is_closed_hears_so(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    client = Client(cluster)
    uploading = threading.Event()
    said: list[BaseException] = []

    async def upload(_: bytes) -> None:
        uploading.set()
        await asyncio.Event().wait()

    def use() -> None:
        try:
            client.upload(b"data")
        except RuntimeError as error:
            said.append(error)

    monkeypatch.setattr(client._session, "upload", upload)
    user = threading.Thread(target=use, daemon=True)
    user.start()
    assert uploading.wait(TIMEOUT_S)
    client.close()
    user.join(TIMEOUT_S)
    assert not user.is_alive()
    assert [str(error) for error in said] == ["the client was closed meanwhile"]


WAITS: dict[str, Callable[[Client, Job], object]] = {
    "accepted": lambda _, job: job.accepted(),
    "results": lambda _, job: job.results(),
    "report": lambda _, job: job.report(),
    "detach": lambda client, job: client.detach(job),
    "attach": lambda client, _: client.attach("another"),
    "nodes": lambda client, _: client.wait_for_nodes(NODES_MAX),
    "cancel": lambda _, job: job.futures[0].cancel(),
}


@pytest.mark.parametrize("wait", WAITS)
def test_every_wait_ends_when_the_client_is_closed_though_its_scheduler_says_nothing(
    cluster: LocalCluster, wait: str
) -> None:
    client = Client(cluster)
    client._session.core.receive = lambda *_: None  # type: ignore[method-assign]
    job = client.submit_calls(tasks.square, [(2,)])
    wait_until(lambda: job.job_id in client._session.core.jobs)
    waiting, said = threading.Event(), list[BaseException | None]()

    def use() -> None:
        waiting.set()
        try:
            WAITS[wait](client, job)
            said.append(None)
        except (SparrowError, RuntimeError) as error:
            said.append(error)

    user = threading.Thread(target=use, daemon=True)
    user.start()
    assert waiting.wait(TIMEOUT_S)
    client.close()
    user.join(TIMEOUT_S)
    assert not user.is_alive()
    assert "closed" in str(said[0]) or wait == "cancel"
    with pytest.raises(SparrowError, match="the client was closed"):
        job.accepted()


ASYNC_WAITS: dict[str, Callable[[AsyncClient, AsyncJob], Awaitable[object]]] = {
    "accepted": lambda _, job: job.accepted(),
    "results": lambda _, job: job.results(),
    "report": lambda _, job: job.report(),
    "detach": lambda client, job: client.detach(job),
    "attach": lambda client, _: client.attach("another"),
    "nodes": lambda client, _: client.wait_for_nodes(NODES_MAX),
    "next": lambda _, job: anext(aiter(job)),
}


@pytest.mark.parametrize("wait", ASYNC_WAITS)
async def test_the_same_with_asyncio(cluster: LocalCluster, wait: str) -> None:
    client = AsyncClient(cluster)
    await client.start()
    client._shared.open_session().core.receive = lambda *_: None  # type: ignore[method-assign]
    job = client.submit_calls(tasks.square, [(2,)])
    waiting = asyncio.ensure_future(ASYNC_WAITS[wait](client, job))
    await asyncio.sleep(0)
    await client.close()
    async with asyncio.timeout(TIMEOUT_S):
        await asyncio.wait([waiting])
    if wait == "next":  # It is a future, which says so.
        assert "closed" in str(waiting.result().exception())  # type: ignore[attr-defined]
    else:
        assert "closed" in str(waiting.exception())


async def test_a_report_of_a_job_whose_client_was_closed_is_none(cluster: LocalCluster, gate: Path) -> None:
    """It would have some of its tasks, and look like one of all."""
    client = AsyncClient(cluster)
    await client.start()
    job = client.submit_calls(tasks.hold, [(gate, "one")])
    await job.accepted()
    await client.close()
    with pytest.raises(SparrowError, match="the client was closed"):
        await job.report()


async def test_a_start_that_finds_nobody_ends_when_the_client_is_closed() -> None:
    client = AsyncClient("127.0.0.1:1", connect_timeout_s=1e6)
    starting = asyncio.ensure_future(client.start())
    while client._shared.starting is None or client._shared.starting._connected is None:
        await asyncio.sleep(0)
    await client.close()
    async with asyncio.timeout(TIMEOUT_S):
        with pytest.raises(RuntimeError, match="was closed while it was being started"):
            await starting


async def test_a_view_of_a_closed_async_client_raises_at_once(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client:
        view = client.with_options(prefetch=4)
    for either in (client, view, client.with_options(prefetch=8)):
        with pytest.raises(RuntimeError, match="the client is closed"):
            either.submit(tasks.square, 1)
        with pytest.raises(RuntimeError, match="the client is closed"):
            async with asyncio.timeout(TIMEOUT_S):
                await anext(either.map(tasks.square, [1]))
        with pytest.raises(RuntimeError, match="the client is closed"):
            await either.upload(b"data")
        await either.close()
        with pytest.raises(RuntimeError, match="the client is closed"):
            await either.start()


async def test_to_close_a_view_closes_the_client(cluster: LocalCluster, gate: Path) -> None:
    client = AsyncClient(cluster)
    view = client.with_options(prefetch=4)
    await client.start()
    assert await view.submit(tasks.square, 3) == 9
    held = client.submit(tasks.hold, gate)
    await view.close()
    with pytest.raises(SparrowError, match="the client was closed"):
        await held
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.submit(tasks.square, 1)


async def test_an_async_client_that_has_not_been_started_says_so() -> None:
    client = AsyncClient("127.0.0.1:1")
    for either in (client, client.with_options(prefetch=4)):
        with pytest.raises(RuntimeError, match="has not been started"):
            either.submit(tasks.square, 1)
        with pytest.raises(RuntimeError, match="has not been started"):
            either.submit_calls(tasks.square, [])
        with pytest.raises(RuntimeError, match="has not been started"):
            await either.upload(b"data")
        with pytest.raises(RuntimeError, match="has not been started"):
            either.renew_token(TOKEN)
    await client.close()
    with pytest.raises(RuntimeError, match="the client is closed"):
        await client.start()


async def test_an_async_client_is_started_once(aclient: AsyncClient) -> None:
    with pytest.raises(RuntimeError, match="has been started"):
        await aclient.start()
    with pytest.raises(RuntimeError, match="has been started"):
        await aclient.with_options(prefetch=4).start()
    await works_still(aclient)


async def test_an_async_client_that_reached_nobody_may_be_started_again(cluster: LocalCluster, tmp_path: Path) -> None:
    where = tmp_path / "schedulers"
    where.write_text("127.0.0.1:1\n")
    client = AsyncClient(f"file:{where}", connect_timeout_s=0.05)
    with pytest.raises(SparrowError):
        await client.start()
    where.write_text("\n".join(cluster.addresses))
    client._session_options["connect_timeout_s"] = TIMEOUT_S
    await client.start()
    assert await client.submit(tasks.square, 3) == 9
    await client.close()


# ---- a start that is given up ----------------------------------------------------------------


class Cluster:
    """Stands in for an embedded cluster, whose start takes until `may_start` is set."""

    def __init__(self, addresses: list[str]) -> None:
        self.addresses = addresses
        self.starting = threading.Event()
        self.may_start = threading.Event()
        self.stopped = threading.Event()

    def started(self, *_: object, **__: object) -> Connection:
        """As `connection_to`."""
        self.starting.set()
        assert self.may_start.wait(TIMEOUT_S)
        return Connection(self.addresses, OPEN, cluster=self, own=True)  # type: ignore[arg-type]

    in_flight = TasksInFlight()

    def tell_if_broken(self, _: object) -> Callable[[], None]:
        """It never is."""
        return lambda: None

    def stop(self) -> None:
        self.stopped.set()


@pytest.fixture
def embedded(cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """What an `AsyncClient()` starts."""
    fake = Cluster(cluster.addresses)
    monkeypatch.setattr(async_client, "connection_to", fake.started)
    return fake


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def test_a_start_that_is_cancelled_stops_the_cluster_that_it_starts(embedded: Cluster) -> None:
    client = AsyncClient()
    starting = asyncio.create_task(client.start())
    await until(embedded.starting.is_set)
    starting.cancel()
    embedded.may_start.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert embedded.stopped.is_set()
    with pytest.raises(RuntimeError, match="has not been started"):
        client.submit(tasks.square, 1)


async def test_a_start_that_is_cancelled_twice_stops_the_cluster_all_the_same(embedded: Cluster) -> None:
    starting = asyncio.create_task(AsyncClient().start())
    await until(embedded.starting.is_set)
    starting.cancel()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    embedded.may_start.set()
    await until(embedded.stopped.is_set)


async def test_a_start_that_is_cancelled_while_it_connects_stops_the_cluster(
    embedded: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.may_start.set()
    connecting = asyncio.Event()

    async def start(_: object) -> None:
        connecting.set()
        await asyncio.Event().wait()

    monkeypatch.setattr("sparrow_py.session.session.Session.start", start)
    starting = asyncio.create_task(AsyncClient().start())
    await asyncio.wait_for(connecting.wait(), TIMEOUT_S)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert embedded.stopped.is_set()


async def test_a_client_that_is_closed_while_it_starts_does_not_start(embedded: Cluster) -> None:
    client = AsyncClient()
    starting = asyncio.create_task(client.start())
    await until(embedded.starting.is_set)
    await client.close()
    embedded.may_start.set()
    with pytest.raises(RuntimeError, match="was closed while"):
        await starting
    assert embedded.stopped.is_set()


async def test_a_close_that_is_cancelled_stops_the_cluster(
    embedded: Cluster, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embedded.may_start.set()
    client = AsyncClient()
    await client.start()
    held = client.submit(tasks.hold, gate)
    session, stopping = client._shared.open_session(), asyncio.Event()
    stop = session.stop

    async def stop_for_ever() -> None:
        stopping.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(session, "stop", stop_for_ever)
    closing = asyncio.create_task(client.close())
    await asyncio.wait_for(stopping.wait(), TIMEOUT_S)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    assert isinstance(held.exception(), SparrowError)
    assert embedded.stopped.is_set()
    await stop()


async def test_a_close_that_was_cancelled_at_once_ends_links_and_jobs_all_the_same(cluster: LocalCluster) -> None:
    """Whoever closes the client again waits until that is done."""
    client = AsyncClient(cluster)
    await client.start()
    links = client._shared.open_session()._dialling
    future = client.submit(tasks.square, 1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await client.close()
    assert isinstance(future.exception(), SparrowError)
    await client.close()
    assert links is not None and not links.links


async def test_who_was_cancelled_once_uploads_what_a_node_has(cluster: LocalCluster) -> None:
    """The node answers before it has read anything; a task stays one that was cancelled if another of its TaskGroup has
    failed."""
    data = os.urandom(1_000_000)
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(0)
    assert task.cancelling() == 1
    async with AsyncClient(cluster) as one, AsyncClient(cluster) as another:
        assert (await one.upload(data)).hash == (await another.upload(data)).hash
    task.uncancel()


def test_a_client_that_another_loop_started_says_so(cluster: LocalCluster) -> None:
    """Its futures would wait for ever."""
    client = AsyncClient(cluster)
    with asyncio.Runner() as first, asyncio.Runner() as second:
        first.run(client.start())

        async def use() -> None:
            client.submit(tasks.square, 1)

        with pytest.raises(RuntimeError, match="belongs to the event loop on which it was started"):
            second.run(use())
        first.run(client.close())


# ---- iteration -------------------------------------------------------------------------------


async def test_two_iterators_over_a_job_both_see_everything(aclient: AsyncClient, gate: Path) -> None:
    job = aclient.submit_calls(tasks.hold, [(gate, f"task{number}") for number in range(6)])

    async def seen() -> list[asyncio.Future[Any]]:
        return [future async for future in job]

    async with asyncio.timeout(TIMEOUT_S):
        iterators = [asyncio.create_task(seen()) for _ in range(3)]
        await job.accepted()
        await asyncio.sleep(0)
        iterators[0].cancel()  # Which takes nothing from the others.
        gate.touch()
        ended = [await iterator for iterator in iterators[1:]]
        assert ended[0] == ended[1] == await seen()
    assert set(ended[0]) == set(job.futures)
    assert len(ended[0]) == 6


# ---- what a map has yielded ------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [1, 4])
def test_a_map_keeps_nothing_of_what_it_has_yielded(client: Client, chunksize: int) -> None:
    count = 0
    for thing in client.map(tasks.Thing, range(12), chunksize=chunksize):
        assert thing.number == count
        count += 1
        seen = weakref.ref(thing)
        del thing
        assert seen() is None
    assert count == 12


@pytest.mark.parametrize("chunksize", [1, 4])
async def test_a_map_keeps_nothing_of_what_it_has_yielded_with_asyncio(aclient: AsyncClient, chunksize: int) -> None:
    count = 0
    async for thing in aclient.map(tasks.Thing, range(12), chunksize=chunksize):
        assert thing.number == count
        count += 1
        seen = weakref.ref(thing)
        del thing
        assert seen() is None
    assert count == 12


# ---- what cannot be sent ---------------------------------------------------------------------


def test_a_number_whose_own_code_exits_is_an_error_of_its_job(client: Client) -> None:
    class Exits(float):
        def __float__(self) -> float:
            raise SystemExit("on purpose")

    with pytest.raises(SparrowError, match="the job cannot be sent: on purpose"):
        client.with_options(queue_timeout_s=Exits(60.0)).submit(tasks.square, 3).result(TIMEOUT_S)
    goes_on(client)


# ---- jobs that end before they are accepted --------------------------------------------------


async def never(*_: Any) -> None:
    await asyncio.Event().wait()


def test_who_waits_for_a_job_to_be_accepted_hears_of_its_cancellation(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client._session, "_upload", never)
    job = client.submit_calls(len, [(bytes(2_000_000),)])
    job.cancel()
    job.accepted(TIMEOUT_S)
    assert [task.status for task in job.report(TIMEOUT_S).tasks] == [TaskStatus.CANCELLED]


async def test_who_awaits_a_job_to_be_accepted_hears_of_its_cancellation(
    aclient: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aclient._shared.open_session(), "_upload", never)
    job = aclient.submit_calls(len, [(bytes(2_000_000),)])
    job.cancel()
    async with asyncio.timeout(TIMEOUT_S):
        await job.accepted()
        assert [task.status for task in (await job.report()).tasks] == [TaskStatus.CANCELLED]
