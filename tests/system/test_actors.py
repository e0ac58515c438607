"""Actors on clusters of real processes: calls from clients, tasks and other actors, and what is left of an actor whose
process, node, scheduler or client is killed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import ActorLost, AsyncClient, Client, InvalidRequest, LocalCluster, SparrowError
from sparrow_py.embedded.daemon_process import DaemonProcess
from tests.support.daemons import clean_environment, get_json, gone
from tests.support.waiting import POLL_S, TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes


class Counter:
    """An actor that counts."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def increment(self, by: int = 1) -> int:
        self.count += by
        return self.count

    def pid(self) -> int:
        return os.getpid()

    def fail(self) -> None:
        raise ValueError("not this one")

    def add_of(self, other: Any) -> int:
        """As another actor counts."""
        return self.increment(other.increment().result(TIMEOUT_S))

    def wait_for(self, path: str) -> str:
        wait_until(Path(path).exists)
        return "it is there"


class Given:
    """An actor that was given what other calls give."""

    def __init__(self, number: int, *, future: int, stored: list[int], actor: Any) -> None:
        self.number, self.future, self.stored, self.actor = number, future, stored, actor

    def sums(self) -> list[int]:
        return [self.number, self.future, sum(self.stored), self.actor.increment().result(TIMEOUT_S)]

    def pid(self) -> int:
        return os.getpid()


def increment(counter: Any, times: int) -> list[int]:
    """A task that calls an actor."""
    return [future.result(TIMEOUT_S) for future in [counter.increment() for _ in range(times)]]


def wait_with(counter: Any, path: str) -> str:
    return str(counter.wait_for(path).result(TIMEOUT_S))


def make_in_task() -> None:
    Client.current().actor(Counter)


def busy(client: Client) -> int:
    return sum(node.busy for node in client.nodes())


def kill(future: Future[int]) -> None:
    """Kill the process of this pid, as kill -9 does."""
    os.kill(future.result(TIMEOUT_S), signal.SIGKILL)


@contextlib.contextmanager
def made_anew(actor: Any) -> Iterator[None]:
    """What is done here kills the actor, and this returns when the next one is started: its state alone would not tell,
    as that may be ready before anybody looks."""
    incarnation = actor._actor.core.incarnation
    yield
    wait_until(lambda: actor._actor.core.incarnation > incarnation)


# ---- calls -----------------------------------------------------------------------------------


def test_clients_tasks_and_other_actors_call_it(client: Client) -> None:
    with client.actor(Counter, 10) as counter, client.actor(Counter, count=100) as other:
        assert counter.increment(2).result(TIMEOUT_S) == 12
        assert client.submit(increment, counter, 3).result(TIMEOUT_S) == [13, 14, 15]
        assert other.add_of(counter).result(TIMEOUT_S) == 116
        with pytest.raises(ValueError, match="not this one"):
            counter.fail().result(TIMEOUT_S)
        assert counter.increment().result(TIMEOUT_S) == 17
        assert client.submit(os.getenv, "SPARROW_EXECUTOR_NODE").result(TIMEOUT_S) in {one.id for one in client.nodes()}
        with pytest.raises(InvalidRequest, match="actors of a client outside of tasks"):
            client.submit(make_in_task).result(TIMEOUT_S)
    wait_until(lambda: not busy(client), "slots to be given back")


def test_its_calls_are_among_what_a_client_has_not_finished_and_what_it_cancels(client: Client, gate: Path) -> None:
    with client.actor(Counter) as counter:
        runs, waits = counter.wait_for(str(gate)), counter.increment()
        wait_until(runs.running)
        assert client.unfinished() == [runs, waits]
        client.cancel(client.unfinished(), running=True)
        assert [runs.done(), waits.cancelled()] == [False, True]
        waits = counter.increment()
        client.cancel_unfinished()
        assert client.unfinished() == [runs], "it is asked after what was to be cancelled"
        assert waits.cancelled()
        gate.touch()
        assert runs.result(TIMEOUT_S) == "it is there"
        assert client.unfinished() == []


@pytest.mark.rest
def test_of_two_clients_each_has_its_own_and_another_ones_by_its_handle(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster) as other, client.actor(Counter) as first, other.actor(Counter) as second:
        assert [first.increment().result(TIMEOUT_S), second.increment().result(TIMEOUT_S)] == [1, 1]
        assert other.submit(increment, first, 2).result(TIMEOUT_S) == [2, 3]
    with pytest.raises(ActorLost, match="it was stopped"):
        first.increment().result(TIMEOUT_S)


def test_asyncio_awaits_its_calls(cluster: LocalCluster) -> None:
    async def program() -> list[int]:
        async with AsyncClient(cluster) as client, client.actor(Counter, 1) as counter:
            await counter.ready()
            values = list(await asyncio.gather(*(counter.increment() for _ in range(5))))
            return [*values, *await client.submit(increment, counter, 2)]

    assert asyncio.run(program()) == [2, 3, 4, 5, 6, 7, 8]


@pytest.mark.rest
def test_a_closed_client_ends_its_actors_whatever_they_do(cluster: LocalCluster, client: Client, gate: Path) -> None:
    with Client(cluster) as closing:
        counter = closing.actor(Counter)
        pid = counter.pid().result(TIMEOUT_S)
        waiting = counter.wait_for(str(gate))
        wait_until(waiting.running)
    with pytest.raises(ActorLost, match="its client was closed"):
        waiting.result(TIMEOUT_S)
    assert counter.state == "stopped"
    wait_until(lambda: gone(pid), "the process of an actor that had a call")
    wait_until(lambda: not busy(client), "slots to be given back")


@pytest.mark.rest
def test_a_task_that_waits_long_for_an_actor_gives_its_slot_back(gate: Path) -> None:
    """Two slots: the actor's, and one for both tasks, of which the first waits for what the second does."""
    with LocalCluster(slots=2) as cluster, Client(cluster) as client, client.actor(Counter) as counter:
        counter.ready(TIMEOUT_S)
        waits = client.submit(wait_with, counter, str(gate))
        assert client.submit(Path(gate).touch).result(TIMEOUT_S) is None
        assert waits.result(TIMEOUT_S) == "it is there"


@pytest.mark.rest
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_in_a_forked_child_the_actor_is_the_parents(client: Client, gate: Path) -> None:
    with client.actor(Counter) as counter:
        waiting = counter.wait_for(str(gate))
        wait_until(waiting.running)
        child = os.fork()
        if not child:
            code = 1
            try:
                with pytest.raises(SparrowError, match="the client cannot be used here"):
                    waiting.result(TIMEOUT_S)
                with pytest.raises(RuntimeError, match="the client cannot be used here"):
                    counter.increment()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        gate.touch()
        assert waiting.result(TIMEOUT_S) == "it is there"
        assert counter.increment().result(TIMEOUT_S) == 1


@pytest.mark.rest
def test_a_cluster_in_this_process_has_actors() -> None:
    with LocalCluster(in_process=True, slots=2) as cluster, Client(cluster) as client, client.actor(Counter) as counter:
        assert client.submit(increment, counter, 2).result(TIMEOUT_S) == [1, 2]


# ---- what is killed --------------------------------------------------------------------------


@pytest.fixture
def two(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """Two schedulers and two node monitors, for a test that kills."""
    with LocalCluster(schedulers=2, node_monitors=2, slots=1) as cluster:
        yield cluster


@pytest.mark.rest
def test_a_killed_process_is_a_lost_actor_or_one_that_is_made_anew(cluster: LocalCluster) -> None:
    with Client(cluster) as client:
        counter = client.actor(Counter, 5)
        assert counter.increment().result(TIMEOUT_S) == 6
        kill(counter.pid())
        with pytest.raises(ActorLost) as caught:
            counter.increment().result(TIMEOUT_S)
        assert caught.value.actor == "actor Counter"
        assert caught.value.node in {node.id for node in client.nodes()}
        assert "was killed by SIGKILL" in caught.value.reason
        assert counter.state == "lost"

        anew = client.actor(Counter, 5, max_restarts=1)
        assert anew.increment().result(TIMEOUT_S) == 6
        with made_anew(anew):
            kill(anew.pid())
        assert anew.increment().result(TIMEOUT_S) == 6
        kill(anew.pid())
        with pytest.raises(ActorLost):
            anew.increment().result(TIMEOUT_S)


@pytest.mark.rest
def test_its_constructor_takes_futures_stored_values_and_handles_and_so_does_that_of_the_one_made_anew(
    client: Client,
) -> None:
    with client.actor(Counter, 1) as first:
        given = {"future": client.submit(pow, 2, 3), "stored": client.put(list(range(1000))), "actor": first}
        with client.actor(Given, 7, **given, max_restarts=1) as holder:
            assert holder.sums().result(TIMEOUT_S) == [7, 8, 499500, 2]
            with made_anew(holder):
                kill(holder.pid())
            assert holder.sums().result(TIMEOUT_S) == [7, 8, 499500, 3]


@pytest.mark.rest
def test_the_call_that_a_killed_actor_had_fails_unless_it_may_be_retried(client: Client, tmp_path: Path) -> None:
    for retries in (0, 1):
        path = tmp_path / str(retries)
        counter = client.actor(Counter, max_restarts=1, call_retries=retries)
        pid = counter.pid().result(TIMEOUT_S)
        had, behind = counter.wait_for(str(path)), counter.increment()
        wait_until(had.running)
        os.kill(pid, signal.SIGKILL)
        if retries:
            path.touch()
            assert had.result(TIMEOUT_S) == "it is there"
        else:
            with pytest.raises(ActorLost, match="it is started again, and this call may have run"):
                had.result(TIMEOUT_S)
        assert behind.result(TIMEOUT_S) == 1
        counter.stop()


@pytest.mark.rest
def test_the_death_of_a_node_is_that_of_its_actors(two: LocalCluster) -> None:
    with Client(two) as client:
        counter = client.actor(Counter, 5, max_restarts=1)
        first = counter.pid().result(TIMEOUT_S)
        victim = next(index for index, node in enumerate(client.nodes()) if node.busy)
        with made_anew(counter):
            two.node_processes[victim].kill()
        assert counter.increment().result(TIMEOUT_S) == 6
        assert counter.pid().result(TIMEOUT_S) != first
        assert gone(first)


@pytest.mark.rest
def test_the_death_of_its_scheduler_is_none_of_the_actors_business(two: LocalCluster) -> None:
    with Client(two) as client:
        counter = client.actor(Counter, max_restarts=1)
        first = counter.pid().result(TIMEOUT_S)
        (owner,) = schedulers_with_jobs(two)
        owner.kill()
        assert [counter.increment().result(TIMEOUT_S) for _ in range(3)] == [1, 2, 3]
        wait_until(lambda: schedulers_with_jobs(two), "another scheduler to have the actor's task")
        assert counter.increment().result(TIMEOUT_S) == 4
        with made_anew(counter):
            os.kill(first, signal.SIGKILL)
        assert counter.increment().result(TIMEOUT_S) == 1, "the other scheduler has started it again"


@pytest.mark.rest
def test_an_actor_moves_with_its_state_when_its_lease_is_over(two: LocalCluster) -> None:
    with Client(two, user="anna") as anna, Client(two, user="ben") as ben:
        counters = [anna.with_options(lease_s=0.1).actor(Counter, 10) for _ in range(2)]
        pids = [counter.pid().result(TIMEOUT_S) for counter in counters]
        assert [counter.increment().result(TIMEOUT_S) for counter in counters] == [11, 11]
        assert ben.submit(pow, 2, 3).result(TIMEOUT_S) == 8, "all slots were the actors'"
        assert [counter.increment().result(TIMEOUT_S) for counter in counters] == [12, 12]
        assert pids


@pytest.mark.rest
def test_an_actor_leaves_a_node_that_ends_with_its_state() -> None:
    """Its lease, of a minute, is over when half of the time for draining is."""
    with (
        LocalCluster(node_monitors=2, slots=1, node_options=["--drain-timeout-s", "2"]) as cluster,
        Client(cluster) as client,
    ):
        counter = client.actor(Counter, 5)
        first = counter.pid().result(TIMEOUT_S)
        busy_node = next(index for index, node in enumerate(client.nodes()) if node.busy)
        cluster.node_processes[busy_node].process.terminate()
        wait_until(lambda: counter.pid().result(TIMEOUT_S) != first)
        assert counter.increment().result(TIMEOUT_S) == 6


def schedulers_with_jobs(cluster: LocalCluster) -> list[DaemonProcess]:
    alive = [process for process in cluster.scheduler_processes if process.process.poll() is None]
    return [process for process in alive if get_json(process.address, "/v1/jobs")["jobs"]]


OWNER = """
import sys, time
from sparrow_py import Client
from tests.system.test_actors import Counter

client = Client(sys.argv[1:])
print(client.actor(Counter).pid().result(30), flush=True)
time.sleep(600)
"""


@pytest.mark.rest
def test_an_actor_whose_client_is_killed_ends(two: LocalCluster) -> None:
    command = [sys.executable, "-c", OWNER, *two.addresses]
    environment = clean_environment() | {"SPARROW_TOKEN": two.access.token}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as owner, Client(two) as client:
        assert owner.stdout is not None
        assert int(owner.stdout.readline())
        assert busy(client) == 1
        owner.kill()
        wait_until(lambda: not busy(client), "its slot to be given back", poll_s=POLL_S)
