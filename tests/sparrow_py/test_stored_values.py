"""Stored values: as bytes, in the arguments of calls, and given to a cluster."""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py import (
    AsyncClient,
    CallOptions,
    CallStage,
    Client,
    InvalidRequest,
    LocalCluster,
    ResultOf,
    StoredValue,
    calls,
)
from sparrow_py import stored_values as stored
from sparrow_py.call_jobs import MapJobs
from sparrow_py.executors.executor_protocol import File
from sparrow_py.job import GIVEN_MAX, INPUTS_MAX, BlobRef, InputName, JobSpec, StageSpec, TaskResult, TaskSpec
from tests.support.client_core import Rig
from tests.support.waiting import TIMEOUT_S

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def value_of(content: bytes, name: str = "0") -> StoredValue:
    return StoredValue(BlobRef(name * 64, len(content), ("n:1",)), content, None)


# ---- bytes -----------------------------------------------------------------------------------


@given(PLAIN, st.lists(st.binary(max_size=300), max_size=4))
def test_a_value_comes_out_as_it_went_in(plain: object, contents: list[bytes]) -> None:
    arrays = [np.frombuffer(content, np.uint8) for content in contents]
    again, others = stored.decode(stored.encode((plain, arrays)))
    assert again == plain
    assert [array.tobytes() for array in others] == contents


def test_arrays_are_read_only_views_that_begin_on_cache_lines() -> None:
    content = np.frombuffer(stored.encode([np.arange(5), np.ones((3, 3)), np.zeros(0)]), np.uint8)
    first, second, empty = stored.decode(content)
    assert first.tolist() == [0, 1, 2, 3, 4] and second.sum() == 9 and not len(empty)
    for array in (first, second):
        assert not array.flags.writeable and np.shares_memory(array, content)
        assert (array.ctypes.data - content.ctypes.data) % stored.ALIGNMENT_BYTES == 0


def test_an_array_that_is_not_contiguous_is_copied_into_the_pickle() -> None:
    every_other = np.arange(10)[::2]
    assert stored.decode(stored.encode(every_other)).tolist() == [0, 2, 4, 6, 8]


def test_functions_of_the_main_script_and_closures_travel_by_value() -> None:
    two = 2
    assert stored.decode(stored.encode(lambda x: two * x))(3) == 6


@given(st.data())
def test_bytes_that_are_cut_off_or_no_stored_value_are_an_error(data: st.DataObject) -> None:
    content = stored.encode([np.arange(100), "text"])
    cut = content[: data.draw(st.integers(0, len(content) - 1))]
    with pytest.raises((ValueError, EOFError, pickle.UnpicklingError)):
        stored.decode(cut)


@pytest.mark.parametrize(
    ("head", "why"),
    [(b"", "no stored value"), (b"sparrow2" + bytes(8), "no stored value"), (b"sparrow1", "no stored value"),
     (b"sparrow1" + bytes(8), "cannot have 0 parts"), (b"sparrow1" + b"\xff" * 8, "cannot have"),
     (b"sparrow1" + b"\x01" + bytes(7) + b"\xff" * 16, "cut off")],
)  # fmt: skip
def test_a_head_that_cannot_be_says_why(head: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        stored.decode(head)


# ---- in arguments ----------------------------------------------------------------------------


class Holder:
    def __init__(self, held: object) -> None:
        self.held = held


def decoded(task: bytes | TaskSpec, contents: dict[str, bytes]) -> Any:
    """The arguments as a worker has them, where nodes have these contents."""
    if isinstance(task, bytes):
        return calls.decode_call(task, [])
    assert isinstance(task.payload, bytes)
    return calls.decode_call(task.payload, [contents[ref.hash] for ref in task.inputs])  # type: ignore[union-attr]


def test_stored_values_take_their_places_at_any_depth_each_once() -> None:
    one, two = stored.encode([1]), stored.encode("two")
    a, b = value_of(one, "a"), value_of(two, "b")
    task = calls.encode_arguments((a, {"k": (b, a)}, Holder([b])), {"x": a})
    assert isinstance(task, stored.CallSpec)
    assert [ref.hash for ref in task.inputs] == ["a" * 64, "b" * 64] and task.values == [a, b]
    (first, there, holder), kwargs = decoded(task, {"a" * 64: one, "b" * 64: two})
    assert (first, there, holder.held, kwargs) == ([1], {"k": ("two", [1])}, ["two"], {"x": [1]})
    assert first is kwargs["x"]


def test_a_call_without_stored_values_is_its_payload_alone() -> None:
    assert isinstance(calls.encode_arguments(([1], Holder(2)), {}), bytes)


def test_chunks_of_a_map_ask_for_what_their_calls_name() -> None:
    content = stored.encode("v")
    value = value_of(content)
    first, second = calls.encode_chunks(([value, value, 3],), 2)
    assert isinstance(first, TaskSpec) and len(first.inputs) == 1
    assert decoded(first, {"0" * 64: content}) == [("v",), ("v",)]
    assert second == calls.function_pickling.dumps([(3,)])


def test_results_of_stages_and_stored_values_have_places_beside_each_other() -> None:
    content = stored.encode("v")
    value = value_of(content, "a")
    task = calls.encode_call((value, ResultOf("s"), [value], ResultOf("s", 1)), {}, {"s": 2}.__getitem__)
    assert isinstance(task, stored.CallSpec) and isinstance(task.payload, bytes)
    assert task.inputs == [value.blob, "s", ("s", 1)]
    results = [calls.encode_value(10), calls.encode_value(20)]
    args, _ = calls.decode_call(task.payload, [content, *results, results[1]])
    assert args == ("v", [10, 20], ["v"], 20)


@pytest.mark.parametrize("pickled", [pickle.dumps, calls.encode_value])
def test_a_stored_value_goes_nowhere_else(pickled: Callable[[object], bytes]) -> None:
    with pytest.raises(TypeError, match="can only be an argument of a call of the client that has stored it"):
        pickled(value_of(b""))


def test_after_a_call_that_cannot_be_pickled_nothing_is_asked_for_and_what_could_not_be_is_found() -> None:
    value = value_of(b"")
    with pytest.raises(TypeError) as caught:
        calls.encode_arguments((value, {"x": Holder(threading.Lock())}), {})
    (note,) = caught.value.__notes__
    assert "args[1]['x'].held is <unlocked" in note
    with pytest.raises(TypeError, match="can only be an argument"):
        pickle.dumps(value)


def test_a_call_names_too_many() -> None:
    asked = stored.Asked()
    for number in range(INPUTS_MAX):
        asked.place_of(_numbered(number))
    with pytest.raises(InvalidRequest, match=f"at most {INPUTS_MAX}"):
        asked.place_of(_numbered(INPUTS_MAX))


def _numbered(number: int) -> StoredValue:
    return StoredValue(BlobRef(f"{number:064}", 0, ()), b"", None)


@pytest.mark.parametrize(
    ("inputs", "why"),
    [([], "refers to input 0 of its task, which has 0"), ([b"what"], "input 0 is no stored value"),
     ([File("/nowhere", 3, "")], "input 0 is no stored value that can be had here")],
)  # fmt: skip
def test_an_input_that_is_not_there(inputs: list[Any], why: str) -> None:
    task = calls.encode_arguments((value_of(b"x"),), {})
    assert isinstance(task, TaskSpec) and isinstance(task.payload, bytes)
    with pytest.raises(ValueError, match=why):
        calls.decode_call(task.payload, inputs) if inputs else _without_inputs(task.payload)


def _without_inputs(payload: bytes) -> None:
    with stored.given([]):
        pickle.loads(payload)


# ---- at the client's core --------------------------------------------------------------------


def test_what_tasks_ask_for_is_given_to_the_job_once_and_has_numbers_after_its_tasks() -> None:
    one, two = BlobRef("a" * 64, 1, ("n:1",)), BlobRef("b" * 64, 1, ("n:1",))
    first = StageSpec([TaskSpec(inputs=[two, one]), b""], name="first", app="x")
    second = StageSpec([TaskSpec(inputs=[one, "first"])], name="second", after=["first"], app="x")
    job, _ = Rig("s").submit([], stages=[first, second])
    assert job.given == [two, one]
    assert {task: detail.inputs for task, detail in job.details.items()} == {0: ((3, 1), (4, 1)), 2: ((4, 1), (0, 2))}


def test_a_job_that_moves_takes_along_where_its_data_lie_now() -> None:
    rig = Rig("s", "t")
    job, _ = rig.submit([TaskSpec(inputs=[BlobRef("a" * 64, 1, ("n:1",))])])
    now = BlobRef("a" * 64, 1, ("m:1",))
    rig.core.uploaded("j", now)
    assert job.given == [now]


def test_references_that_no_frame_has_room_for_together_come_in_several_messages_before_the_tasks() -> None:
    at = tuple(f"node-{number}:12345" for number in range(64))
    refs = [BlobRef(f"{number:064x}", 1, at) for number in range(2_000)]
    job, _ = Rig("s").submit([TaskSpec(inputs=refs[:1_500]), TaskSpec(inputs=refs)])
    messages = list(job.messages(1 << 20))
    assert len(messages) > 2 and all(len(msgspec.msgpack.encode(message)) < 1 << 20 for message in messages)
    assert [ref for message in messages for ref in message.given] == refs
    assert [len(message.payloads) for message in messages] == [0] * (len(messages) - 1) + [2]


def test_jobs_of_a_map_ask_for_no_more_than_a_job_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow_py.call_jobs.GIVEN_MAX", 5)
    values = [_numbered(number) for number in range(7)]
    pairs = [list(pair) for pair in itertools.pairwise(values)]
    jobs = MapJobs(len, (pairs,), CallOptions(), 1, 100)
    sizes = []
    while (spec := jobs.next(0)) is not None:
        sizes.append(len(spec.tasks))
    assert sizes == [2, 2, 2]


@pytest.mark.parametrize("inputs", [[BlobRef("a", 1, ())], [BlobRef("a" * 64, -1, ())]])
def test_a_reference_that_cannot_be_one_is_refused_with_its_place(inputs: list[InputName]) -> None:
    with pytest.raises(InvalidRequest, match=r"tasks\[0\]\.inputs\[0\]\."):
        JobSpec([TaskSpec(inputs=inputs)]).validate()


def test_a_job_that_asks_for_too_much_data_is_refused() -> None:
    tasks = [
        TaskSpec(inputs=[BlobRef(f"{n:064x}", 1, ()) for n in range(first, first + 2)])
        for first in range(0, GIVEN_MAX + 1, 2)
    ]
    with pytest.raises(InvalidRequest, match=f"at most {GIVEN_MAX} in a job"):
        JobSpec(tasks).validate()


def test_a_job_whose_tasks_wait_for_too_many_results_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow_py.job.AWAITED_PAIRS_MAX", 5)
    tasks = [TaskSpec(inputs=[TaskResult("a", 0), TaskResult("a", 1)]) for _ in range(3)]
    JobSpec(tasks[:2]).validate()
    with pytest.raises(InvalidRequest, match=r"6 results of other jobs.*at most 5 in a job, counted for each task"):
        JobSpec(tasks).validate()


# ---- in a cluster ----------------------------------------------------------------------------


def total(array: Any, times: int = 1) -> tuple[float, bool]:
    return float(array.sum()) * times, array.flags.writeable


def mapped(array: Any) -> bool:
    """Whether the array lies in a file that the process has mapped."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        low, high = (int(end, 16) for end in line.split()[0].split("-"))
        if low <= address < high:
            return line.split()[-1].startswith("/")
    return False


@pytest.mark.processes
def test_calls_of_all_kinds_have_the_value(client: Client) -> None:
    value = client.put(np.arange(1000.0))
    assert client.submit(total, value, times=2).result(TIMEOUT_S) == (999_000.0, False)
    assert client.submit(lambda held: held["x"][0].sum(), {"x": [value]}).result(TIMEOUT_S) == 499_500
    assert list(client.map(total, [value] * 5, chunksize=2)) == [(499_500.0, False)] * 5
    assert client.submit_calls(total, [(value, 1), (value, 2)]).results(TIMEOUT_S) == [
        (499_500.0, False), (999_000.0, False),
    ]  # fmt: skip
    stages = [
        CallStage("each", lambda array, place: array[place], [(value, 1), (value, 2)]),
        CallStage("sum", lambda found, array: sum(found) + len(array), [(ResultOf("each"), value)]),
    ]
    assert client.submit_stages(stages).results(TIMEOUT_S)[-1] == 1003
    assert client.get(value).tolist() == list(range(1000))
    assert client.with_options(prefetch=8).submit(total, value).result(TIMEOUT_S) == (499_500.0, False)


@pytest.mark.processes
@pytest.mark.parametrize("broadcast", [False, True])
def test_workers_map_arrays_and_equal_values_are_stored_once(client: Client, *, broadcast: bool) -> None:
    array = np.arange(100_000.0)
    value = client.put(array, broadcast=broadcast)
    assert list(client.map(mapped, [value] * 4)) == [True] * 4
    assert client.put(array) is value and len(value.blob.at) == (2 if broadcast else 1)


@pytest.mark.processes
def test_values_of_another_client_and_what_is_none(cluster: LocalCluster, client: Client) -> None:
    value = client.put("mine")
    with Client(cluster) as other:
        with pytest.raises(InvalidRequest, match=r"^arguments: .*this very client"):
            other.submit(str, value).result(TIMEOUT_S)
        with pytest.raises(InvalidRequest, match=r"^value: .*this very client"):
            other.get(value)
    with pytest.raises(InvalidRequest, match="what put has returned"):
        client.get("mine")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot pickle"):
        client.put(client)
    with pytest.raises(InvalidRequest, match=r"ref: .* a BlobRef; the value that put was given comes from get"):
        client.fetch(value)  # type: ignore[arg-type]


@pytest.mark.processes
async def test_an_async_client_stores_values(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client:
        value = await client.put(np.arange(10))
        assert await client.submit(total, value) == (45.0, False)
        assert [found async for found in client.map(total, [value, value])] == [(45.0, False)] * 2
        assert client.get(value).sum() == 45


@pytest.mark.processes
def test_a_value_whose_nodes_are_gone_is_given_again() -> None:
    with LocalCluster(node_monitors=1, slots=1, processes="separate") as cluster, Client(cluster) as client:
        value = client.put(np.arange(10.0))
        before = value.blob.at
        cluster.add_node_monitor()
        cluster.node_processes[0].kill()
        assert client.submit(total, value).result(TIMEOUT_S) == (45.0, False)
        assert client.submit(total, value).result(TIMEOUT_S) == (45.0, False)
        assert value.blob.at != before


@pytest.mark.processes
@pytest.mark.rest
def test_calls_have_their_values_though_nodes_have_room_for_two_of_six_each() -> None:
    """Those that have gone are given again, and a call for whose value there is no room is tried again."""
    small = ["--blob-bytes-max", "3000000", "--blob-lease-s", "0.05"]
    with LocalCluster(node_monitors=2, slots=1, node_options=small) as cluster, Client(cluster) as client:
        values = [client.put(bytes([number]) * 1_200_000) for number in range(6)]
        for future in [client.submit(len, value) for value in values]:
            assert future.result(TIMEOUT_S) == 1_200_000
