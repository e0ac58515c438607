"""Tasks that wait for tasks of their own, on a cluster of one slot: one that kept it would wait for ever."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from sparrow_py import AsyncClient, Client, LocalCluster, NotInTask, Refused, SparrowError, TaskLost, WaitRefused
from tests.support import nested_tasks, tasks
from tests.support.daemons import gone
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes
WAITING_MAX = 6
NODE_OPTIONS = ("--waiting-tasks-max", str(WAITING_MAX))


@pytest.fixture(scope="module")
def one_slot() -> Iterator[LocalCluster]:
    with LocalCluster(slots=1, node_options=NODE_OPTIONS) as cluster:
        yield cluster


@pytest.fixture
def client(one_slot: LocalCluster) -> Iterator[Client]:
    with Client(one_slot, user="anna") as client:
        yield client


def test_recursions_end(client: Client) -> None:
    assert client.submit(nested_tasks.fib, 4).result(TIMEOUT_S) == 3


def test_who_waits_by_the_library_gives_the_slot_back(client: Client) -> None:
    assert client.submit(nested_tasks.by_the_library, [1, 2]).result(TIMEOUT_S) == [1, 4, 1, 4, 81]


def test_what_is_reported_of_a_task_has_its_waits_in_it(client: Client) -> None:
    job = client.submit_calls(nested_tasks.naps, [(0.2,)])
    (over_at_s,) = job.results(TIMEOUT_S)
    (report,) = job.report().tasks
    assert report.finished_at_s is not None and report.finished_at_s > over_at_s - 0.1


def test_a_loop_that_has_nothing_to_do_gives_the_slot_back(client: Client) -> None:
    assert client.submit(nested_tasks.by_asyncio, [1, 2, 3]).result(TIMEOUT_S) == [1, 4, 9]
    assert client.submit(nested_tasks.by_a_coroutine, 4).result(TIMEOUT_S) == 16


@pytest.mark.parametrize("return_as", ["list", pytest.param("generator_unordered", marks=pytest.mark.rest)])
def test_joblib_gives_the_slot_back(client: Client, return_as: str) -> None:
    pytest.importorskip("joblib")
    assert sorted(client.submit(nested_tasks.by_joblib, [1, 2, 3], return_as).result(TIMEOUT_S)) == [1, 4, 9]


def test_large_data_go_by_the_node(client: Client) -> None:
    size = 3 << 20
    assert client.submit(nested_tasks.large, size).result(TIMEOUT_S) == bytes(size)


def test_it_is_the_users_and_knows_no_secret(client: Client) -> None:
    shown, secrets = client.submit(nested_tasks.whoami).result(TIMEOUT_S)
    assert "user 'anna'" in shown and not secrets


def test_beyond_the_limit_a_wait_is_an_error_that_names_it(client: Client) -> None:
    with pytest.raises(WaitRefused, match=f"waiting_tasks_max = {WAITING_MAX}"):
        client.submit(nested_tasks.chain, WAITING_MAX + 1).result(TIMEOUT_S)
    alone = WAITING_MAX - 1  # The rest is other users' share.
    assert client.submit(nested_tasks.chain, alone).result(TIMEOUT_S) == alone


def test_the_children_of_a_parent_that_dies_are_stopped(client: Client, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    dies = client.with_options(max_attempts=1).submit(nested_tasks.parent_that_dies, path)
    with pytest.raises(TaskLost):
        dies.result(TIMEOUT_S)
    wait_until(lambda: gone(int(path.read_text())), "the child to be stopped")
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


def test_children_that_nobody_waited_for_end_with_their_parent(client: Client, tmp_path: Path) -> None:
    assert client.submit(nested_tasks.parent_that_ends, tmp_path / "pid").result(TIMEOUT_S) == "ended"
    assert client.submit(tasks.square, 3).result(TIMEOUT_S) == 9


@pytest.mark.rest
def test_a_recursion_without_end_is_refused_with_its_depth() -> None:
    with LocalCluster(slots=1, scheduler_options=("--nested-depth-max", "2")) as cluster, Client(cluster) as client:
        assert client.submit(nested_tasks.chain, 2).result(TIMEOUT_S) == 2
        with pytest.raises(Refused, match="nested 3 deep, and nested_depth_max = 2"):
            client.submit(nested_tasks.chain, 10**6).result(TIMEOUT_S)


@pytest.mark.rest
def test_a_scheduler_dies_while_children_run(gate: Path) -> None:
    """The parent's client goes to the other one with the parent's job, and takes its own job there."""
    with (
        LocalCluster(schedulers=2, slots=1, processes="separate", node_options=NODE_OPTIONS) as cluster,
        Client(cluster) as client,
    ):
        parent = client.submit(nested_tasks.parent_of_held, gate)
        wait_until(lambda: tasks.started(gate, "one"))
        (job,) = client._session.core.jobs.values()
        assert job.scheduler is not None
        address = client._session._links[job.scheduler].peer
        cluster.scheduler_processes[cluster.dialled.index(address)].kill()
        gate.touch()
        assert parent.result(TIMEOUT_S) == ["one", "two"]
        assert client.submit(nested_tasks.fib, 3).result(TIMEOUT_S) == 2


@pytest.mark.rest
def test_who_waits_for_a_scheduler_gives_the_slot_back(gate: Path) -> None:
    """It does for up to a minute, if its scheduler and its client have died: no other one has its job."""
    with LocalCluster(schedulers=2, slots=1, processes="separate", node_options=NODE_OPTIONS) as cluster:
        access, (first, second) = cluster.access, cluster.dialled
        with Client(first, user="anna", token=access.token or None) as anna:
            anna.submit(nested_tasks.client_once, gate)
            wait_until(lambda: tasks.started(gate, "one"))
            cluster.scheduler_processes[0].kill()
        gate.touch()
        with Client(second, user="ben", token=access.token or None) as ben:
            assert ben.submit(pow, 2, 3).result(TIMEOUT_S) == 8


def test_elsewhere_there_is_no_current_client() -> None:
    for current in (Client.current, AsyncClient.current):
        with pytest.raises(NotInTask, match="only a task has a client of its own"):
            current()
    assert issubclass(NotInTask, SparrowError)
