"""Clients that are made inside tasks warn, at the line that makes them, and say what to do instead."""

import asyncio
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

import pytest

from sparrow_py import AsyncClient, Client, LocalCluster, NestedClientWarning, SparrowExecutor
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S

Said = list[tuple[str, str, str]]
"""Class, text and file of each warning."""


def said_by(make: Callable[[], object]) -> Said:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = make()
        if isinstance(made, Client):
            made.close()
        elif isinstance(made, Executor):
            made.shutdown()
    return [(type(one.message).__name__, str(one.message), one.filename) for one in caught]


def make_client(addresses: list[str]) -> Said:
    return said_by(lambda: Client(addresses))


def make_executor(addresses: list[str]) -> Said:
    return said_by(lambda: SparrowExecutor(addresses))


def make_async_client(addresses: list[str]) -> Said:
    return said_by(lambda: AsyncClient(addresses))


def make_client_in_a_thread(addresses: list[str]) -> Said:
    said: Said = []
    thread = threading.Thread(target=lambda: said.extend(make_client(addresses)))
    thread.start()
    thread.join()
    return said


def make_client_in_a_coroutine(addresses: list[str]) -> Said:
    async def make() -> Said:
        return await asyncio.to_thread(make_client, addresses)

    return asyncio.run(make())


def is_the_warning(said: Said) -> None:
    ((kind, text, file),) = said
    assert kind == NestedClientWarning.__name__
    assert "Client.current()" in text
    assert "submit_stages and ResultOf" in text
    assert file == __file__


@pytest.mark.parametrize("make", [make_client, make_executor, make_async_client, make_client_in_a_thread])
def test_a_client_in_a_task_warns(cluster: LocalCluster, client: Client, make: Callable[..., Said]) -> None:
    is_the_warning(client.submit(make, cluster.addresses).result(TIMEOUT_S))
    assert make(cluster.addresses) == []


def test_a_client_in_a_task_of_a_cluster_in_this_process_warns() -> None:
    with LocalCluster(in_process=True, slots=1) as cluster, Client(cluster) as client:
        for make in (make_client, make_executor, make_async_client, make_client_in_a_coroutine):
            is_the_warning(client.submit(make, cluster.addresses).result(TIMEOUT_S))
            assert make(cluster.addresses) == []


def test_a_client_that_starts_a_cluster_in_a_task_is_told_of_that_too(client: Client) -> None:
    def make() -> Any:
        return said_by(AsyncClient)

    ((_, text, _),) = client.submit(make).result(TIMEOUT_S)
    assert "start a cluster of its own" in text


def test_where_warnings_are_errors_nothing_is_started(client: Client) -> None:
    def make() -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error", NestedClientWarning)
            Client()

    with pytest.raises(NestedClientWarning):
        client.submit(make).result(TIMEOUT_S)
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_it_is_shown_without_anybodys_doing(client: Client, cluster: LocalCluster) -> None:
    def make(addresses: list[str]) -> None:
        Client(addresses).close()

    future: Any = client.with_options(capture_output=True).submit(make, cluster.addresses)
    future.result(TIMEOUT_S)
    assert "NestedClientWarning: a client is made inside a task." in future.report.stderr
    assert "Client(addresses).close()" in future.report.stderr
