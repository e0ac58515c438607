"""What cannot be an argument: the error says where it is, and what to do instead."""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

import cloudpickle
import pytest

from sparrow_py import AsyncClient, CallStage, Client, LocalCluster, ResultOf, SparrowExecutor, calls
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S


class Box:
    def __init__(self, content: object) -> None:
        self.content = content


class SlottedBox:
    __slots__ = ("content", "unset")

    def __init__(self, content: object) -> None:
        self.content = content


def noted(call: Callable[[], object]) -> str:
    """The note of the error that pickling raises, as the call does."""
    with pytest.raises(Exception, match="cannot pickle") as caught:
        call()
    (note,) = caught.value.__notes__
    return str(note)


LOCK = threading.Lock()


@pytest.mark.parametrize(
    ("args", "kwargs", "where"),
    [
        ((1, LOCK), {}, "args[1]"),
        ((1,), {"by": LOCK}, "kwargs['by']"),
        (([0, {"k": (1, LOCK)}],), {}, "args[0][1]['k'][1]"),
        ((Box([LOCK]),), {}, "args[0].content[0]"),
        ((SlottedBox(LOCK),), {}, "args[0].content"),
        (({LOCK: 1},), {}, f"args[0], its key {LOCK!r}"),
        (({LOCK},), {}, "args[0], an element of it"),
        ((partial(tasks.square, LOCK),), {}, "args[0].args[0]"),
        ((lambda: LOCK,), {}, "args[0], its global variable 'LOCK'"),
        ((lambda lock=LOCK: lock,), {}, f"args[0], its default {LOCK!r}"),
    ],
    ids=["second", "keyword", "nested", "object", "slots", "key", "set", "partial", "global", "default"],
)
def test_the_place_in_the_arguments_is_said(args: tuple[Any, ...], kwargs: dict[str, Any], where: str) -> None:
    with_globals_by_value = args and getattr(args[0], "__globals__", None) is globals()
    if with_globals_by_value:
        args[0].__module__ = "__main__"
    note = noted(lambda: calls.encode_arguments(args, kwargs))
    assert note.startswith(f"what cannot be pickled: {where} is <unlocked _thread.lock object")
    assert note.endswith("of type _thread.lock")


def test_of_what_is_out_of_sight_the_argument_is_said() -> None:
    class Hides:
        def __reduce__(self) -> Any:
            return list, ([threading.Lock()],)

    assert noted(lambda: calls.encode_arguments((1, [Hides()]), {})).startswith(
        "what cannot be pickled: args[1] has in it <unlocked _thread.lock object"
    )


def test_it_is_looked_for_among_so_many_values_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    many: list[Any] = [*range(1000), *([number] for number in range(20)), LOCK]
    assert "args[0][1020] is <unlocked" in noted(lambda: calls.encode_arguments((many,), {}))
    monkeypatch.setattr("sparrow_py.unpicklable.LOOKED_AT_MAX", 20)
    assert "args[0] has in it <unlocked" in noted(lambda: calls.encode_arguments((many,), {}))


def test_a_deep_place_is_shortened() -> None:
    deep: Any = LOCK
    for _ in range(50):
        deep = [deep]
    assert "args[0][0][0][0][0][0] … [0][0][0][0][0][0] is" in noted(lambda: calls.encode_arguments((deep,), {}))


def test_the_items_of_a_map_are_counted() -> None:
    items = [*range(5), LOCK]
    note = noted(lambda: list(calls.encode_chunks((range(9), items), 2)))
    assert note.startswith("what cannot be pickled: item 5 of iterables[1] is <unlocked")


def test_stages_are_named_and_results_of_others_are_no_fault(client: Client) -> None:
    first = CallStage("first", tasks.square, [(2,)])
    second = CallStage("second", tasks.describe, [(1,), ([ResultOf("first")], LOCK)])
    note = noted(lambda: client.submit_stages([first, second]))
    assert note.startswith("what cannot be pickled: stage 'second': arguments[1][1] is <unlocked")


def test_an_error_of_the_users_own_code_is_that_error() -> None:
    with pytest.raises(SystemExit):
        calls.encode_arguments((tasks.RaisesAtPickling(SystemExit),), {})
    with pytest.raises(LookupError, match="on purpose") as caught:
        calls.encode_arguments(([tasks.RaisesAtPickling(LookupError)],), {})
    assert caught.value.__notes__[0].startswith("what cannot be pickled: args[0][0] is ")


def test_what_cannot_even_be_shown() -> None:
    with pytest.raises(TypeError, match="I stay where I am") as caught:
        calls.encode_arguments((tasks.Grumpy(),), {})
    note = "what cannot be pickled: args[0] is <Grumpy, which cannot be shown> of type tests.support.tasks.Grumpy"
    assert caught.value.__notes__ == [note]


# ---- what works in its process alone ---------------------------------------------------------


def refused(error: BaseException | None, what: str) -> None:
    assert isinstance(error, TypeError)
    assert str(error).startswith(f"{what}, which works in this process alone. ")
    assert "submit_stages" in str(error)
    assert "ResultOf" in str(error)


def test_futures_and_clients_as_arguments(client: Client) -> None:
    foreign = Future[int]()
    job = client.submit_calls(tasks.square, [(1,)])
    for value, what in (
        (foreign, "a future"),
        (client, "a Client"),
        (client.with_options(prefetch=1), "a CallsWithOptions"),
        (job, "a Job"),
    ):
        refused(client.submit(tasks.describe, 1, [value]).exception(TIMEOUT_S), f"args[1][0] is {what}")
        refused(client.submit(tasks.describe, by={"k": value}).exception(TIMEOUT_S), f"kwargs['by']['k'] is {what}")
    with pytest.raises(TypeError) as caught:
        client.map(tasks.square, [1, foreign])
    refused(caught.value, "item 1 of iterables[0] is a future")
    with pytest.raises(TypeError) as caught:
        client.submit_stages([CallStage("only", tasks.square, [(1,), (foreign,)])])
    refused(caught.value, "stage 'only': arguments[1][0] is a future")


def test_futures_beside_what_cannot_be_pickled_are_no_fault(client: Client) -> None:
    future = client.submit(tasks.square, 2)
    error = client.submit(tasks.describe, [future, LOCK]).exception(TIMEOUT_S)
    assert error is not None
    (note,) = error.__notes__
    assert note.startswith("what cannot be pickled: args[0][1] is <unlocked")
    note = noted(lambda: client.map(tasks.describe, [[future, LOCK]], chunksize=2))
    assert note.startswith("what cannot be pickled: item 0 of iterables[0][1] is <unlocked")
    note = noted(lambda: client.submit_stages([CallStage("only", tasks.describe, [([future, LOCK],)])]))
    assert note.startswith("what cannot be pickled: stage 'only': arguments[0][0][1] is <unlocked")


def test_an_executor_as_argument(cluster: LocalCluster) -> None:
    with SparrowExecutor(cluster) as executor:
        refused(executor.submit(tasks.describe, executor).exception(TIMEOUT_S), "args[0] is a SparrowExecutor")


async def test_futures_and_clients_as_arguments_with_asyncio(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client:
        view = client.with_options(prefetch=1)
        assert view.options.prefetch == 1
        assert await view.submit(tasks.square, 3) == 9
        job = client.submit_calls(tasks.square, [(1,)])
        foreign = asyncio.get_running_loop().create_future()
        for value, what in ((foreign, "a future"), (client, "an AsyncClient"), (job, "an AsyncJob")):
            with pytest.raises(TypeError) as caught:
                client.submit(tasks.describe, value)
            refused(caught.value, f"args[0] is {what}")
        assert isinstance(job.futures[0], asyncio.Future)
        assert await job.results() == [1]


def test_what_a_function_refers_to(client: Client) -> None:
    futures = [client.submit(tasks.square, 2)]

    def add(number: int) -> int:
        return number + futures[0].result()

    refused(
        client.submit(add, 1).exception(TIMEOUT_S),
        f"the function {add.__qualname__}, its variable 'futures'[0] is a future",
    )
    refused(
        client.submit(partial(tasks.describe, client)).exception(TIMEOUT_S), "the function partial.args[0] is a Client"
    )


def test_what_a_function_of_the_main_script_refers_to(client: Client) -> None:
    script: dict[str, Any] = {"__name__": "__main__", "client": client, "pending": [client.submit(tasks.square, 2)]}
    exec(
        "def inner():\n    return pending[0].result()\n"
        "def outer():\n    return inner()\n"
        "def direct():\n    return client.submit(pow, 2, 3)\n",
        script,
    )
    outer = "the function outer, its global variable 'inner', its global variable 'pending'[0] is a future"
    refused(client.submit(script["outer"]).exception(TIMEOUT_S), outer)
    direct = "the function direct, its global variable 'client' is a Client"
    refused(client.submit(script["direct"]).exception(TIMEOUT_S), direct)


def test_cloudpickle_of_a_client_says_what_it_is(client: Client) -> None:
    with pytest.raises(TypeError, match="cannot pickle 'Client' object: it works in this process alone"):
        cloudpickle.dumps(client)


def test_the_job_of_a_call_that_was_not_sent_says_why(client: Client) -> None:
    future = client.submit(abs, LOCK)
    job = future.job  # type: ignore[attr-defined]
    for ask in (lambda: job.accepted(TIMEOUT_S), lambda: client.detach(job), future.result):
        with pytest.raises(TypeError, match="cannot pickle"):
            ask()
