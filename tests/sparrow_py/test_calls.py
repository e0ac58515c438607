"""Python calls as tasks: how they are encoded."""

import dataclasses
import pickle
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from frontends.python.executor import Function
from sparrow_py import (
    AsyncClient,
    CallOptions,
    CallStage,
    Client,
    JobSpec,
    LocalCluster,
    RetryPolicy,
    Speculation,
    calls,
)
from sparrow_py.call_jobs import argument_payloads
from sparrow_py.errors import InvalidRequest
from tests.support import tasks
from tests.support.waiting import TIMEOUT_S


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


def encoded(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, list[Any]]:
    """The payload and the inputs of the call's task."""
    task = calls.encode_call(args, kwargs, COUNTS.__getitem__)
    if isinstance(task, bytes):
        return task, []
    assert isinstance(task.payload, bytes)
    return task.payload, list(task.inputs)


def through(*args: Any, **kwargs: Any) -> tuple[Any, list[Any]]:
    """The arguments as a worker sees them, if task n of "load" returned 10 n, and the inputs that the task has."""
    payload, inputs = encoded(args, kwargs)
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
    payload, inputs = encoded((one, [one]), {})
    (first, (second,)), _ = calls.decode_call(payload, [calls.encode_value([1])])
    assert inputs == [("load", 0)]
    assert first is second


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1, "a", None), {}), (([1],), {"a": 1})])
def test_a_call_without_results_is_encoded_as_ever(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    payload, inputs = encoded(args, kwargs)
    assert pickle.loads(payload) == (args, kwargs)
    assert inputs == []


def test_a_result_where_none_can_be_is_said_so() -> None:
    with pytest.raises(TypeError, match="can only be an argument of a task whose stage comes after 'load'"):
        calls.encode_arguments((calls.ResultOf("load"),), {})
    with pytest.raises(KeyError):
        calls.encode_call((calls.ResultOf("other"),), {}, COUNTS.__getitem__)


def test_an_input_that_is_not_there() -> None:
    payload, _ = encoded((calls.ResultOf("load"),), {})
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


# ---- options of stages, and arguments that cannot be -------------------------------------------

OF_THE_WHOLE_JOB: dict[str, Any] = {
    "max_attempts": 1, "retry_failed": True, "queue_timeout_s": 5.0, "wait_for_nodes_s": 5.0, "avoid": ("a",),
    "on_client_lost": "finish", "report_placed": True, "priority": -3, "avoid_by": "rack", "policy": "flow",
    "preemptible": True, "speculate": Speculation(),
}  # fmt: skip
OF_A_STAGE: dict[str, Any] = {
    "probe_ratio": 3.0, "prefetch": 4, "expected_duration_s": 1.0, "demand": {"gpu": 1}, "where": ("gpu exists",),
    "delay_s": 1.0, "task_timeout_s": 9.0, "gang": True, "max_per_node": 1, "max_per_rack": 2, "together_with": "b",
    "lease_s": 9.0, "retry_on": (TimeoutError,), "retry": RetryPolicy(3), "modules": ("tests/support/tasks.py",),
    "capture_output": True,
}  # fmt: skip


def stages_job(of_stage: CallOptions, of_job: CallOptions | None = None) -> JobSpec:
    """A job with one stage of these options."""
    return (of_job or CallOptions()).stages_job("", [CallStage("a", abs, [(1,)], options=of_stage)])


def test_each_option_is_of_the_stage_or_of_the_whole_job() -> None:
    assert {*OF_THE_WHOLE_JOB, *OF_A_STAGE} == {field.name for field in dataclasses.fields(CallOptions)}
    text = Path("docs/python.md").read_text("utf-8")
    of_stage, of_job = re.findall(r"of these ((?:`\w+`(?:, | and )?)+) are the stage's\. The others \((.*?)\)", text)[0]
    assert re.findall(r"`(\w+)`", of_stage) == list(OF_A_STAGE)
    assert re.findall(r"`(\w+)`", of_job) == list(OF_THE_WHOLE_JOB)


@pytest.mark.parametrize("field", OF_THE_WHOLE_JOB)
def test_a_stage_cannot_have_for_itself_what_is_of_the_whole_job(field: str) -> None:
    own, default = OF_THE_WHOLE_JOB[field], getattr(CallOptions(), field)
    for value in (own, "nonsense", -7):
        with pytest.raises(InvalidRequest) as caught:
            stages_job(CallOptions(**{field: value}))
        assert caught.value.field == f"{field} in the options of stage 'a'" and caught.value.value == value
        said = f"the job's {default!r}: {field} is of the whole job, to be given to the client or as options to submit"
        assert said in str(caught.value)
    with pytest.raises(InvalidRequest, match=rf"{field} in the options of stage 'a': 'nonsense'.*of the whole job"):
        stages_job(CallOptions(**{field: "nonsense"}), CallOptions(**{field: own}))


@pytest.mark.parametrize("field", OF_THE_WHOLE_JOB)
def test_a_stage_may_repeat_the_job_s_value_or_the_default(field: str) -> None:
    of_job = CallOptions(**{field: OF_THE_WHOLE_JOB[field]})
    expected = of_job.stages_job("", [CallStage("a", abs, [(1,)])])
    for value in (OF_THE_WHOLE_JOB[field], getattr(CallOptions(), field)):
        repeated = list(value) if isinstance(value, tuple) else value
        assert stages_job(CallOptions(**{field: repeated}), of_job) == expected


@pytest.mark.parametrize("field", OF_A_STAGE)
def test_a_stage_s_own_options_are_heeded(field: str) -> None:
    needs: dict[str, Any] = {"retry_on": (TimeoutError,)} if field == "retry" else {}
    (stage,) = stages_job(CallOptions(**{field: OF_A_STAGE[field]} | needs)).stages
    (plain,) = stages_job(CallOptions(**needs)).stages
    changed = {"capture_output": ["common"], "modules": ["common"], "retry_on": ["common", "retry"]}.get(field, [field])
    assert all(getattr(stage, name) != getattr(plain, name) for name in changed)
    assert dataclasses.replace(stage, **{name: getattr(plain, name) for name in changed}) == plain


@pytest.mark.parametrize(
    ("made", "field", "allowed"),
    [
        (lambda: CallStage("a", abs, options={"prefetch": 1}), "options of stage 'a'", "CallOptions"),  # type: ignore[arg-type]
        (lambda: CallStage("a", abs, 5), "arguments of stage 'a'", "a list of tuples, one for each task"),  # type: ignore[arg-type]
        (lambda: CallStage("a", 5), "function of stage 'a'", "something that can be called"),  # type: ignore[arg-type]
        (lambda: CallOptions().stages_job("", 5), "stages", "a list of CallStages"),  # type: ignore[arg-type]
        (lambda: CallOptions().stages_job("", CallStage("a", abs)), "stages", "a list of CallStages"),  # type: ignore[arg-type]
        (lambda: stages_job(CallOptions(capture_output="x")), "capture_output of stage 'a'", "True or False"),  # type: ignore[arg-type]
        (lambda: argument_payloads(5), "arguments", "a list of tuples, one for each task"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_is_named_at_once(made: Callable[[], object], field: str, allowed: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        made()
    assert (caught.value.field, caught.value.allowed) == (field, allowed)


def test_errors_of_the_caller_s_own_arguments_stay_what_they_are() -> None:
    def broken() -> Iterator[tuple[int]]:
        yield (1,)
        raise TypeError("mine")

    for consume in (argument_payloads, lambda given: CallStage("a", abs, given)):
        with pytest.raises(TypeError, match=r"^mine$"):
            consume(broken())  # type: ignore[operator]


WRONG_CALLS: list[tuple[Any, dict[str, Any], str]] = [
    (5, {}, "function: 5 is not valid; allowed: something that can be called"),
    (abs, {"capture_output": "x"}, "capture_output: 'x' is not valid; allowed: True or False"),
]


@pytest.mark.parametrize(("function", "changes", "said"), WRONG_CALLS)
async def test_clients_say_at_once_what_cannot_be(
    client: Client, cluster: LocalCluster, function: Any, changes: dict[str, Any], said: str
) -> None:
    view = client.with_options(**changes)
    error = view.submit(function, 1).exception(TIMEOUT_S)  # As everything that is wrong with one call.
    assert isinstance(error, InvalidRequest) and str(error) == said
    async with AsyncClient(cluster, options=CallOptions(**changes)) as other:
        for wrong in (
            lambda: view.submit_calls(function, [(1,)]),
            lambda: view.map(function, [1]),
            lambda: other.submit(function, 1),
            lambda: other.submit_calls(function, [(1,)]),
        ):
            with pytest.raises(InvalidRequest) as caught:
                wrong()
            assert str(caught.value) == said


async def test_options_of_one_call_are_call_options(client: Client, cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as other:
        for one in (client, other):
            for wrong in (
                lambda one=one: one.submit_calls(abs, [(1,)], options={"prefetch": 1}),
                lambda one=one: one.submit_stages([CallStage("a", abs, [(1,)])], options={}),
            ):
                with pytest.raises(InvalidRequest, match=r"^options: .* allowed: CallOptions$"):
                    wrong()
