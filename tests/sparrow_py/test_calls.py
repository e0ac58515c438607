"""Python calls as tasks: how they are encoded."""

import pickle
import threading
from typing import Any

import msgspec
import pytest

from frontends.python.executor import Function
from sparrow_py import AsyncClient, Client, LocalCluster, calls
from sparrow_py.call_jobs import argument_payloads
from sparrow_py.errors import InvalidRequest
from tests.support import tasks


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [((), {}), ((1, "a", None, b"x", 1.5, True), {}), ((), {"a": 1}), (([1], {"k": (2,)}), {"b": []})],
)
def test_a_call_arrives_as_it_was_made(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    function = Function(calls.encode_function(tasks.describe))
    assert function(calls.encode_arguments(args, kwargs)) == (args, kwargs)


def test_lambdas_in_arguments_arrive() -> None:
    function = Function(calls.encode_function(lambda f: f(2)))
    assert function(calls.encode_arguments((lambda x: x * 21,), {})) == 42


def test_a_chunk_of_calls() -> None:
    function = Function(calls.encode_function(tasks.describe, chunked=True))
    chunks = [function(payload) for payload in calls.encode_chunks(([1, 2, 3], "abc"), 2)]
    assert chunks == [[((1, "a"), {}), ((2, "b"), {})], [((3, "c"), {})]]


def test_capture_output_travels_with_the_function() -> None:
    assert Function(calls.encode_function(len, capture_output=True)).capture_output
    assert not Function(calls.encode_function(len)).capture_output


@pytest.mark.parametrize("data", [b"", b"\xc1", msgspec.msgpack.encode([1, 2, 3])])
def test_common_bytes_that_are_no_function_are_an_error_of_the_call(data: bytes) -> None:
    with pytest.raises(ValueError, match="common bytes"):
        Function(data)(calls.encode_arguments((), {}))


# ---- arguments that are results of other tasks -----------------------------------------------

COUNTS = {"load": 3, "none": 0}


def through(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    """The arguments as a worker sees them, if task n of "load" returned 10 n, and the inputs that the task has."""
    payload, inputs = calls.encode_call(args, kwargs, COUNTS.__getitem__)
    numbers = [n for name in inputs for n in (range(COUNTS[name]) if isinstance(name, str) else [name[1]])]
    return calls.decode_call(payload, [calls.encode_value(10 * n) for n in numbers]), inputs


def test_results_take_their_places() -> None:
    every, last = calls.ResultOf("load"), calls.ResultOf("load", 2)
    arguments, inputs = through(last, [every, {"k": (last, every)}], f=lambda: 1, x=calls.ResultOf("none"))
    (args, kwargs) = arguments
    assert args == (20, [[0, 10, 20], {"k": (20, [0, 10, 20])}])
    assert (kwargs["x"], kwargs["f"]()) == ([], 1)
    assert inputs == [("load", 2), "load"]


def test_a_stage_without_tasks_has_no_inputs() -> None:
    assert through([calls.ResultOf("none")]) == ((([[]],), {}), [])


def test_a_result_is_unpickled_once_for_a_run() -> None:
    one = calls.ResultOf("load", 0)
    payload, inputs = calls.encode_call((one, [one]), {}, COUNTS.__getitem__)
    (first, (second,)), _ = calls.decode_call(payload, [calls.encode_value([1])])
    assert inputs == [("load", 0)]
    assert first is second


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, "a", None), {}), (([1],), {"a": 1})])
def test_a_call_without_results_is_encoded_as_ever(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    payload, inputs = calls.encode_call(args, kwargs, COUNTS.__getitem__)
    assert pickle.loads(payload) == (args, kwargs)
    assert inputs == []


def test_a_result_where_none_can_be_is_said_so() -> None:
    with pytest.raises(TypeError, match="can only be an argument of a task whose stage comes after 'load'"):
        calls.encode_arguments((calls.ResultOf("load"),), {})
    with pytest.raises(KeyError):
        calls.encode_call((calls.ResultOf("other"),), {}, COUNTS.__getitem__)


def test_an_input_that_is_not_there() -> None:
    payload, _ = calls.encode_call((calls.ResultOf("load"),), {}, COUNTS.__getitem__)
    with pytest.raises(ValueError, match="refers to input 2 of its task, which has 2"):
        calls.decode_call(payload, [calls.encode_value(1)] * 2)


def test_what_cannot_be_pickled_raises() -> None:
    for encode in (calls.encode_function, lambda lock: calls.encode_arguments((lock,), {})):
        with pytest.raises(TypeError, match="pickle"):
            encode(threading.Lock())


def test_arguments_of_a_call_are_a_tuple_and_no_string() -> None:
    assert [pickle.loads(payload)[0] for payload in argument_payloads([("ab",), ["cd", 2], ()])] == [
        ("ab",), ("cd", 2), (),
    ]  # fmt: skip
    for index, wrong in enumerate(("ab", b"ab", 7, None, {"a": 1}, {1, 2})):
        with pytest.raises(InvalidRequest, match=rf"^arguments\[{index}\]: .* a tuple of arguments"):
            argument_payloads([(0,)] * index + [wrong])  # type: ignore[list-item]


async def test_who_submits_calls_hears_of_it_at_once(client: Client, cluster: LocalCluster) -> None:
    with pytest.raises(InvalidRequest, match=r"arguments\[0\]: 'ab'"):
        client.submit_calls(len, ["ab"])  # type: ignore[list-item]
    async with AsyncClient(cluster) as other:
        with pytest.raises(InvalidRequest, match=r"arguments\[0\]: 'ab'"):
            other.submit_calls(len, ["ab"])  # type: ignore[list-item]
