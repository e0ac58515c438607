"""Clients and clusters that come to a child by a fork: they say so, end at once, and leave the parent's alone."""

import asyncio
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import traceback
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import as_completed, wait
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import AsyncClient, Client, JobSpec, LocalCluster, SparrowError, SparrowExecutor
from sparrow_py.processes import process_bound
from tests.support import tasks
from tests.support.daemons import clean_environment, gone
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes

CHILD_S = 20
"""After this a child that hangs is ended by a signal, and its test fails."""
SAID = "works in that alone"


@pytest.fixture(autouse=True)
def _forks_beside_threads() -> Iterator[None]:
    """Python 3.12 and later warn of what is tested here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
        yield


def in_child(check: Callable[[], object]) -> None:
    """Do it in a forked process, which must come to its end."""
    child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(CHILD_S)
            check()
            code = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def goes_on(client: Client) -> None:
    """The client works, over the link that it has had all the time."""
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9
    assert client._session.core.moves == 0


# ---- clients ---------------------------------------------------------------------------------


def test_every_call_raises_at_once_in_a_child(client: Client, gate: Path) -> None:
    held = client.submit(tasks.hold, gate)

    def check() -> None:
        for use in (
            lambda: client.submit(tasks.square, 1),
            lambda: client.with_options(prefetch=2).submit(tasks.square, 1),
            lambda: client.submit_calls(tasks.square, [(1,)]),
            lambda: client.submit_job(JobSpec([b""], app="noop")),
            lambda: client.map(tasks.square, [1]),
            lambda: client.upload(b"data"),
            lambda: client.renew_token("t" * 40),
        ):
            with pytest.raises(RuntimeError, match=SAID):
                use()
        with client:
            client.cancel_unfinished()
        with pytest.raises(SparrowError, match=SAID):
            client.gather([held])

    in_child(check)
    gate.touch()
    assert held.result(TIMEOUT_S) == ""
    goes_on(client)


def test_who_waits_in_a_child_for_what_the_parent_has_submitted_hears_so(client: Client, gate: Path) -> None:
    job = client.submit_calls(tasks.hold, [(gate, "one"), (gate, "two")])
    called: list[object] = []
    job.futures[0].add_done_callback(called.append)
    completing = as_completed(job.futures)
    begun = iter(job)
    done = client.submit(tasks.square, 2)
    assert done.result(TIMEOUT_S) == 4

    def check() -> None:
        assert not wait(job.futures).not_done
        assert len(list(job)) == len(list(begun)) == len(list(completing)) == 2
        for use in (job.results, job.report, job.accepted):
            with pytest.raises(SparrowError, match=SAID):
                use()
        with pytest.raises(RuntimeError, match=SAID):
            job.cancel()
        assert not job.futures[0].cancel()
        assert done.result() == 4
        assert called == []

    in_child(check)
    gate.touch()
    assert job.results(TIMEOUT_S) == ["one", "two"]
    wait_until(lambda: len(called) == 1)


def test_a_child_hears_so_though_the_fork_was_made_while_others_used_the_client(client: Client, gate: Path) -> None:
    future = client.submit(tasks.hold, gate)

    def check() -> None:
        client.close()
        with pytest.raises(SparrowError, match=SAID):
            future.result()

    with client._thread.lock, future._condition:
        in_child(check)
    gate.touch()
    goes_on(client)


def test_a_fork_in_a_callback(client: Client, gate: Path) -> None:
    future = client.submit(tasks.hold, gate)
    raised: list[BaseException] = []

    def callback(_: object) -> None:
        try:
            in_child(client.close)
        except BaseException as error:
            raised.append(error)

    future.add_done_callback(callback)
    gate.touch()
    goes_on(client)
    assert raised == []


def test_a_child_makes_a_client_of_its_own(cluster: LocalCluster, client: Client) -> None:
    def check() -> None:
        with Client(cluster) as own:
            goes_on(own)

    in_child(check)
    goes_on(client)


def pool_task(number: int) -> str:
    try:
        _client_of_pool.submit(tasks.square, number)
    except RuntimeError as error:
        return str(error)
    return "taken"


_client_of_pool: Any = None


def test_a_pool_of_forked_processes(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}._client_of_pool", client)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        said = pool.map_async(pool_task, range(4)).get(TIMEOUT_S)
    assert all(SAID in text for text in said)
    goes_on(client)


def test_a_child_holds_none_of_the_parents_connections(client: Client) -> None:
    goes_on(client)

    def check() -> None:
        sockets = [made.fileno() for made in client._session._sockets]
        assert sockets
        for descriptor in (*sockets, process_bound.descriptor_of(client._thread.loop)):
            assert str(Path(f"/proc/self/fd/{descriptor}").readlink()) == os.devnull

    in_child(check)
    goes_on(client)


def test_a_child_without_a_free_descriptor_ends_well_all_the_same(
    client: Client, gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def check() -> None:
        client.close()
        with pytest.raises(SparrowError, match=SAID):
            held.result()

    held = client.submit(tasks.hold, gate)
    with monkeypatch.context() as patch:
        patch.setattr("sparrow_py.processes.process_bound.os.open", refuse)
        in_child(check)
    gate.touch()
    goes_on(client)


# ---- executors -------------------------------------------------------------------------------


def test_an_executor_in_a_child(cluster: LocalCluster, gate: Path) -> None:
    with SparrowExecutor(cluster) as executor:
        held = executor.submit(tasks.hold, gate)

        def check() -> None:
            with executor:
                with pytest.raises(RuntimeError, match=SAID):
                    executor.submit(tasks.square, 1)
                with pytest.raises(RuntimeError, match=SAID):
                    executor.map(tasks.square, [1])
                executor.shutdown(cancel_futures=True)
            with pytest.raises(SparrowError, match=SAID):
                held.result()

        in_child(check)
        gate.touch()
        assert held.result(TIMEOUT_S) == ""


# ---- asyncio ---------------------------------------------------------------------------------


@pytest.fixture
async def aclient(cluster: LocalCluster) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(cluster) as client:
        yield client


async def test_an_async_client_in_a_child(aclient: AsyncClient, gate: Path) -> None:
    job = aclient.submit_calls(tasks.hold, [(gate,)])

    def check() -> None:
        with pytest.raises(RuntimeError, match=SAID):
            aclient.submit(tasks.square, 1)
        with pytest.raises(RuntimeError, match=SAID):
            aclient.with_options(prefetch=2).submit_calls(tasks.square, [(1,)])
        with pytest.raises(StopIteration):
            aclient.close().send(None)  # It ends without a pause.
        with pytest.raises(SparrowError, match=SAID):
            job.futures[0].result()
        job.cancel()

    in_child(check)
    gate.touch()
    async with asyncio.timeout(TIMEOUT_S):
        assert await job.results() == [""]
        assert await aclient.submit(tasks.square, 3) == 9
    assert aclient._shared.open_session().core.moves == 0


async def test_an_async_client_that_the_parent_has_not_started_is_started_in_a_child(cluster: LocalCluster) -> None:
    client = AsyncClient(cluster)

    async def use() -> int:
        async with client:
            return int(await client.submit(tasks.square, 3))

    def check() -> None:
        asyncio._set_running_loop(None)  # The parent's, which a fork beside a coroutine leaves behind.
        assert asyncio.run(use()) == 9

    in_child(check)
    assert await use() == 9


# ---- embedded clusters -----------------------------------------------------------------------


@pytest.mark.parametrize("processes", ["one", "separate"])
def test_a_child_does_not_stop_the_parents_cluster_nor_keep_it_from_ending(processes: str) -> None:
    ready, release = os.pipe(), os.pipe()
    with LocalCluster(slots=1, processes=processes) as cluster, Client(cluster) as client:
        goes_on(client)
        pids = [process.pid for process in (*cluster.scheduler_processes, *cluster.node_processes)]
        child = os.fork()
        if not child:
            try:
                signal.alarm(CHILD_S)
                os.close(release[1])
                client.close()
                cluster.stop()
                os.write(ready[1], b"1")
                os.read(release[0], 1)  # It outlives the cluster.
            finally:
                os._exit(0)
        assert os.read(ready[0], 1) == b"1"
        goes_on(client)
        for process in (*cluster.node_processes, *cluster.scheduler_processes):
            process.end()
        wait_until(lambda: all(gone(pid) for pid in pids), "the daemons to end though a child lives")
    os.write(release[1], b"1")
    os.waitpid(child, 0)
    for descriptor in (*ready, *release):
        os.close(descriptor)


def test_a_cluster_in_the_process_is_not_stopped_by_a_child() -> None:
    with LocalCluster(in_process=True, slots=1) as cluster, Client(cluster) as client:
        in_child(lambda: (client.close(), cluster.stop()))
        goes_on(client)


@pytest.mark.rest
@pytest.mark.parametrize("made", ["Client()", "Client(LocalCluster(in_process=True, slots=1))", "SparrowExecutor()"])
def test_a_child_that_ends_as_programs_do_ends_well_and_without_a_word(made: str) -> None:
    """Blocks, hooks, finalizers and the interpreter's end run in it."""
    program = f"""
import os, signal, sys, warnings
from sparrow_py import Client, LocalCluster, SparrowExecutor
warnings.simplefilter("ignore", DeprecationWarning)
with {made} as made:
    print(made.submit(pow, 2, 3).result(), flush=True)
    child = os.fork()
    if not child:
        signal.alarm({CHILD_S})
        sys.exit(0)
    print(os.waitpid(child, 0)[1], made.submit(pow, 2, 4).result({TIMEOUT_S}))
"""
    over = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT_S,
        check=False,
        env=clean_environment(),
    )
    assert (over.returncode, over.stdout.split(), over.stderr) == (0, ["8", "0", "16"], "")
