"""Tasks that are `async def` functions."""

import asyncio
from concurrent.futures import CancelledError
from functools import partial
from pathlib import Path

import pytest

from frontends.python.executor import Function
from sparrow_py import CallStage, Client, LocalCluster, RemoteTraceback, ResultOf, TaskFailed, calls
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S, wait_until


def test_a_coroutine_is_run_to_its_end(client: Client) -> None:
    assert client.submit(tasks.square_later, 7).result(TIMEOUT_S) == 49
    assert list(client.map(tasks.square_later, range(20), chunksize=3)) == [x * x for x in range(20)]
    stages = [
        CallStage("first", tasks.square_later, [(2,), (3,)]),
        CallStage("then", tasks.square_later, [(ResultOf("first", 1),)]),
    ]
    assert client.submit_stages(stages).results(TIMEOUT_S) == [4, 9, 81]


def test_the_coroutine_that_a_plain_function_returns_is_run_too() -> None:
    function = Function(calls.encode_function(partial(tasks.square_later, 5)))
    assert function(calls.encode_arguments((), {})) == 25


def test_an_exception_of_a_coroutine_has_the_traceback_of_the_task_s_code(client: Client) -> None:
    with pytest.raises(ValueError, match=r"^later$") as caught:
        client.submit(tasks.fail_later, "later").result(TIMEOUT_S)
    cause = caught.value.__cause__
    assert isinstance(cause, RemoteTraceback)
    assert cause.text.count("  File ") == 1 and "fail_later" in cause.text


def test_asyncio_tasks_that_a_coroutine_leaves_running_end_with_the_coroutine(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    function = Function(calls.encode_function(tasks.leave_running))
    function(calls.encode_arguments((mark,), {}))
    (left,) = tasks.leaving
    tasks.leaving.clear()
    assert left.cancelled() and not mark.exists()


def test_a_running_coroutine_is_stopped_like_any_task(client: Client, gate: Path) -> None:
    late = client.with_options(task_timeout_s=0.05).submit(asyncio.sleep, 600)
    with pytest.raises(TaskFailed, match="task_timeout_s"):
        late.result(TIMEOUT_S)
    held = client.submit(tasks.hold_later, gate, "held")
    wait_until(lambda: tasks.started(gate, "held"), "the task to start")
    client.cancel(held, running=True)
    with pytest.raises(CancelledError):
        held.result(TIMEOUT_S)


def test_coroutines_run_on_a_cluster_in_this_process() -> None:
    with LocalCluster(in_process=True, slots=2) as cluster, Client(cluster) as client:
        assert list(client.map(tasks.square_later, range(8))) == [x * x for x in range(8)]
