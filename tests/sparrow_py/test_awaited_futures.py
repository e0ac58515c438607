"""Futures as arguments of calls: as bytes, in a client's core, and on a cluster."""

from __future__ import annotations

import asyncio
import gc
import pickle
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import (
    AsyncClient,
    CallOptions,
    CallStage,
    Client,
    InvalidRequest,
    JobSpec,
    LocalCluster,
    Speculation,
    TaskCancelled,
    TaskLost,
)
from sparrow_py.calls import decode_call, encode_arguments, encode_call
from sparrow_py.job import INPUTS_MAX, BlobRef, Ended, TaskResult, TaskSpec, TaskStatus
from sparrow_py.session.awaited_futures import AwaitedFutures
from sparrow_py.session.client_job import ClientJob
from sparrow_py.stored_values import CallSpec, asking, result_value
from sparrow_py.wire import messages as m
from tests.support.client_core import Rig as CoreRig
from tests.support.client_core import Told
from tests.support.waiting import TIMEOUT_S

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST
REF = BlobRef("f" * 64, 1 << 30, ("n:1",))


# ---- as bytes --------------------------------------------------------------------------------


class Stand:
    """A future of the task of this number."""

    session: object = None

    def __init__(self, task: int) -> None:
        self.task_result = TaskResult("j", task)

    def __reduce__(self) -> Any:
        encoded = asking()
        assert encoded is not None
        return result_value, (encoded.place_of(self),)

    def ended(self) -> Ended | None:
        return None

    def content(self) -> bytes | None:
        return None

    def add_done_callback(self, fn: Callable[[Any], object]) -> None: ...


def spec_of(*args: Any, **kwargs: Any) -> CallSpec:
    spec = encode_arguments(args, kwargs)
    assert isinstance(spec, CallSpec)
    return spec


def test_futures_at_any_depth_stand_for_values_each_of_which_travels_once() -> None:
    one, two = Stand(1), Stand(2)
    spec = spec_of(one, [two, {"x": (one,)}], y={one: 3})
    assert list(spec.inputs) == [TaskResult("j", 1), TaskResult("j", 2)] and list(spec.futures) == [one, two]
    args, kwargs = decode_call(bytes(spec.payload), [pickle.dumps("v1"), pickle.dumps("v2")])  # type: ignore[arg-type]
    assert args == ("v1", ["v2", {"x": ("v1",)}]) and kwargs == {"y": {"v1": 3}}


def test_calls_of_stages_may_have_them_too() -> None:
    spec = encode_call((Stand(1), 5), {}, lambda _: 0)
    assert isinstance(spec, CallSpec) and list(spec.inputs) == [TaskResult("j", 1)]


def test_a_call_has_so_many_inputs_and_no_more() -> None:
    assert len(spec_of([Stand(task) for task in range(INPUTS_MAX)]).inputs) == INPUTS_MAX
    with pytest.raises(InvalidRequest, match=f"at most {INPUTS_MAX}"):
        spec_of([Stand(task) for task in range(INPUTS_MAX + 1)])


# ---- in a client's core ----------------------------------------------------------------------


class Rig(CoreRig):
    """A core with a scheduler; jobs of one task each, which may ask for results of others."""

    def awaits(self, job_id: str, *results: TaskResult, ended: dict[TaskResult, Ended] | None = None) -> ClientJob:
        spec = self.spec([TaskSpec(b"x", inputs=list(results))], job_id=job_id)
        job = self.core.submit(spec, Told(), 0.0, ended=ended or {})
        self.core.check_invariants()
        return job

    def ends(self, job_id: str, status: TaskStatus = FINISHED, result: m.Data = b"r", error: str = "") -> None:
        outcome = m.Outcome(job_id, 0, status, result, error, 1, "n", None, None, None)
        self.receive(outcome)

    def taken(self, job_id: str, now_s: float = 0.0) -> None:
        self.receive(m.JobAccepted(job_id), now_s=now_s)
        self.core.tick(now_s)
        self.core.check_invariants()

    def offered(self) -> list[str]:
        """The jobs that were offered to the scheduler since the last call."""
        return [message.job for _, message in self.outbox.take(m.SubmitJob)]

    def sent(self, job_id: str = "b") -> list[Any]:
        """What was sent of the job since the last call, and what is still to be streamed."""
        sent = [message for _, message in self.outbox.take(m.AddTasks) if message.job == job_id]
        given = [message for _, message in self.outbox.take(m.GiveResults)]
        return [*sent, *given, *self.core.jobs[job_id].chunks] if job_id in self.core.jobs else given

    def given(self) -> list[m.GiveResults]:
        return [message for message in self.sent() if isinstance(message, m.GiveResults)]


def a_and_b() -> Rig:
    """b, which asks for a's result; both are at the scheduler."""
    rig = Rig("s")
    rig.submit(1, job_id="a")
    rig.awaits("b", TaskResult("a", 0))
    rig.taken("a")
    return rig


def test_a_job_names_the_results_that_it_awaits() -> None:
    rig = a_and_b()
    assert [(one.awaited, one.details) for one in rig.sent()] == [
        ((("a", 0),), None),
        ((), {0: m.TaskDetail(inputs=((1, 1),))}),
    ]


def test_the_scheduler_is_told_of_a_result_if_it_asks() -> None:
    rig = a_and_b()
    rig.ends("a")
    assert not rig.given()
    rig.receive(m.AskResults("b", [1]))
    assert rig.given() == [m.GiveResults("b", {1: b"r"})]


@pytest.mark.parametrize(
    ("status", "result", "given"),
    [
        (FINISHED, REF, m.GiveResults("b", {1: REF})),
        (FAILED, b"exception", m.GiveResults("b", {}, {1: (FAILED, b"exception", "why")})),
        (CANCELLED, b"", m.GiveResults("b", {}, {1: (CANCELLED, b"", "why")})),
    ],
)
def test_it_is_told_as_soon_as_the_client_knows(status: TaskStatus, result: m.Data, given: m.GiveResults) -> None:
    rig = a_and_b()
    rig.receive(m.AskResults("b", [1]))
    assert not rig.given()
    rig.ends("a", status, result, "why")
    assert rig.given() == [given]


def test_a_job_whose_input_is_refused_is_told_so() -> None:
    rig = Rig("s")
    rig.submit(1, job_id="a")
    rig.awaits("b", TaskResult("a", 0))
    rig.receive(m.JobRefused("a", "no", "where"))
    rig.core.tick(0.0)
    (given,) = rig.given()
    status, _, error = given.failures[1]
    assert status is LOST and "no" in error


def test_what_has_ended_before_is_said_with_the_job() -> None:
    rig = Rig("s")
    rig.awaits("b", TaskResult("a", 0), ended={TaskResult("a", 0): (FINISHED, b"r", "")})
    assert rig.given() == [m.GiveResults("b", {1: b"r"})]


def test_a_job_that_moves_takes_along_what_is_known() -> None:
    rig = a_and_b()
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 0.0)
    rig.ends("a")
    rig.core.scheduler_down("s", "gone", 0.0)
    rig.core.check_invariants()
    assert rig.given() == [m.GiveResults("b", {1: b"r"})]


def test_a_reference_is_where_the_client_has_uploaded_it_again() -> None:
    rig = a_and_b()
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 0.0)
    rig.ends("a", result=REF)
    again = BlobRef(REF.hash, REF.size, ("n:2",))
    rig.core.uploaded("b", again)
    rig.core.scheduler_down("s", "gone", 0.0)
    assert rig.given() == [m.GiveResults("b", {1: again})]


def test_results_travel_in_messages_that_fit_frames_and_one_that_fits_none_is_a_loss() -> None:
    room = 2000
    rig = Rig()
    rig.core.scheduler_up("s", room + m.MESSAGE_OVERHEAD_BYTES, 0.0)
    sizes = {0: 100, 1: 1500, 2: 300, 3: 5000, 4: 10}
    results = {TaskResult("a", task): (FINISHED, bytes(size), "") for task, size in sizes.items()}
    rig.awaits("b", *results, ended=results)
    given = rig.given()
    assert all(sum(map(len, one.results.values())) < room for one in given) and len(given) > 1
    lengths = {number - 1: len(result) for one in given for number, result in one.results.items()}  # type: ignore[arg-type]
    assert lengths == {task: size for task, size in sizes.items() if size < room}
    (failure,) = [one for message in given for one in message.failures.values()]
    assert failure[0] is LOST and "at most" in failure[2]


def test_nothing_is_kept_of_jobs_that_have_ended() -> None:
    rig = a_and_b()
    rig.receive(m.JobAccepted("b"))
    rig.ends("b", CANCELLED)
    rig.receive(m.JobEnded("b"))
    assert not rig.core._awaiting.results
    rig.ends("a")
    assert not rig.given()


def test_a_job_is_offered_once_those_are_taken_whose_results_it_awaits() -> None:
    rig = Rig("s")
    rig.submit(1, job_id="a")
    rig.awaits("b", TaskResult("a", 0))
    rig.awaits("c", TaskResult("a", 0), TaskResult("b", 0), TaskResult("c", 0))
    rig.receive(m.JobRefused("a", "full", "", 9.0))
    rig.core.tick(8.0)
    assert rig.offered() == ["a"]
    rig.core.tick(9.0)
    rig.taken("a", 9.0)
    assert rig.offered() == ["a", "b"]
    rig.receive(m.JobRefused("b", "full", "", 9.0), now_s=9.0)  # Its own time has begun only now.
    rig.core.tick(18.0)
    assert rig.offered() == ["b"]
    rig.taken("b", 18.0)
    assert rig.offered() == ["c"]


def test_without_a_scheduler_jobs_do_not_wait_one_after_the_other_until_they_are_given_up() -> None:
    rig = Rig()
    _, told = rig.submit(1, job_id="a")
    sinks: list[Any] = [told, rig.awaits("b", TaskResult("a", 0)).sink, rig.awaits("c", TaskResult("b", 0)).sink]
    rig.core.tick(10.0)
    assert [str(sink.error)[:27] for sink in sinks] == [f"no scheduler took job {job}" + " wit" for job in "abc"]
    assert not rig.core.jobs


def test_jobs_that_move_keep_that_order() -> None:
    rig = a_and_b()
    rig.taken("b")
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 0.0)
    rig.offered()
    rig.core.scheduler_down("s", "gone", 0.0)
    assert rig.offered() == ["a"]
    rig.receive(m.JobAccepted("a"), scheduler="t")
    rig.core.tick(0.0)
    assert rig.offered() == ["b"]


def test_a_job_that_waits_for_its_turn_can_be_cancelled() -> None:
    rig = Rig("s")
    rig.submit(1, job_id="a")
    job = rig.awaits("b", TaskResult("a", 0))
    rig.core.cancel_job("b", 0.0)
    assert job.sink.outcomes == {0: CANCELLED}  # type: ignore[attr-defined]
    rig.taken("a")
    assert rig.offered() == ["a"]


def test_a_job_whose_input_is_over_before_it_was_taken_is_offered() -> None:
    rig = Rig("s")
    rig.submit(1, job_id="a")
    rig.awaits("b", TaskResult("a", 0))
    rig.receive(m.JobRefused("a", "full", "", 9.0))
    rig.core.cancel_job("a", 0.0)
    rig.core.tick(0.0)
    (given,) = rig.given()
    assert given.failures[1][0] is CANCELLED


# ---- on a cluster ----------------------------------------------------------------------------


def add(*values: int) -> int:
    return sum(values)


def fail(value: int) -> None:
    raise LookupError(f"no {value}")


def test_a_call_waits_for_futures_anywhere_in_its_arguments(client: Client) -> None:
    one = client.submit(add, 1)
    two = client.submit(add, one, 1)
    assert client.submit(sum, [one, two]).result(TIMEOUT_S) == 3
    assert client.submit(len, {"a": (one, [two])}).result(TIMEOUT_S) == 1
    assert list(client.map(add, [one, two, 7], [two, two, 1])) == [3, 4, 8]
    assert client.submit_calls(add, [(one, two), (5,), (two,)]).results() == [3, 5, 2]
    stages = client.submit_stages([CallStage("s", add, [(one, two)])])
    assert stages.results() == [3]


def test_a_chain_and_a_tree_of_calls(client: Client) -> None:
    last = client.submit(add, 0)
    for _ in range(50):
        last = client.submit(add, last, 1)
    level = [client.submit(add, number) for number in range(32)]
    while len(level) > 1:
        level = [client.submit(add, *level[first : first + 2]) for first in range(0, len(level), 2)]
    assert (last.result(TIMEOUT_S), level[0].result(TIMEOUT_S)) == (50, sum(range(32)))


def test_a_result_of_which_nothing_is_known_any_more_is_a_loss(client: Client) -> None:
    over = client.submit_job(JobSpec([b""], app="noop"))
    over.results(TIMEOUT_S)
    unknown = [TaskResult(over.job_id, 0), TaskResult("never was", 0), TaskResult("this", 3)]
    spec = JobSpec([TaskSpec(b"", inputs=[one]) for one in unknown], app="noop", job_id="this")
    for future in client.submit_job(spec).futures:
        with pytest.raises(TaskLost, match="nothing is known of it"):
            future.result(TIMEOUT_S)


def test_a_chain_of_calls_is_not_kept_by_its_last_future(client: Client) -> None:
    first = value = client.submit(add, 1)
    calls_before = weakref.ref(first)
    for _ in range(3):
        value = client.submit(add, value, 1)
        assert value.result(TIMEOUT_S)
    del first
    client.submit(add).result(TIMEOUT_S)  # What the client's loop had in hand is over.
    gc.collect()
    assert calls_before() is None


@pytest.mark.rest
def test_calls_that_wait_take_no_room_from_those_that_they_wait_for() -> None:
    few = LocalCluster(slots=1, scheduler_options=["--unplaced-tasks-max", "4"])
    with few as cluster, Client(cluster, submit_timeout_s=TIMEOUT_S) as client:
        functions: list[Callable[..., int]] = [add, pow]  # So that each call is a job.
        value = client.submit(add, 1)
        for number in range(40):
            value = client.submit(functions[number % 2], value, 1)
        assert value.result(TIMEOUT_S) == 21


@pytest.mark.rest
def test_nor_do_they_while_arguments_of_those_are_uploaded() -> None:
    few = LocalCluster(slots=1, scheduler_options=["--unplaced-tasks-max", "2"])
    with few as cluster, Client(cluster, submit_timeout_s=TIMEOUT_S) as client:
        before = [client.submit_calls(len, [(bytes([number]) * 1_200_000,)]) for number in range(4)]
        after = [client.submit_calls(add, [(job.futures[0], 1)]) for job in before]
        assert [job.results(TIMEOUT_S) for job in after] == [[1_200_001]] * 4


def test_a_large_value_goes_by_reference_and_as_often_as_it_is_asked_for(client: Client) -> None:
    large = client.submit(bytes, 2_000_000)
    assert client.submit(len, large).result(TIMEOUT_S) == 2_000_000
    large.result(TIMEOUT_S)
    assert client.submit(len, large).result(TIMEOUT_S) == 2_000_000


def test_a_call_waits_for_one_whose_arguments_are_on_their_way_to_a_node(client: Client) -> None:
    one = client.submit(len, bytes(2_000_000))
    assert client.submit(add, one, 1).result(TIMEOUT_S) == 2_000_001


def test_a_future_whose_job_is_submitted_needs_no_callback(client: Client) -> None:
    waiting = client.with_options(where=["node == nowhere"], wait_for_nodes_s=10 * TIMEOUT_S).submit(add, 1)
    after = client.submit(add, waiting)
    after.job.accepted(TIMEOUT_S)  # type: ignore[attr-defined]
    assert not waiting._done_callbacks  # type: ignore[attr-defined]
    assert waiting.cancel()
    with pytest.raises(TaskCancelled, match="an input"):
        after.result(TIMEOUT_S)


def test_the_exception_of_an_input_is_that_of_the_call_before_and_after_it_is_known(client: Client) -> None:
    failed = client.submit(fail, 3)
    after = client.submit(add, client.submit(add, failed), 1)
    for future in (after, failed, client.submit(add, failed)):
        with pytest.raises(LookupError, match="no 3"):
            future.result(TIMEOUT_S)


def test_cancellation_of_an_input_is_that_of_the_call(client: Client) -> None:
    waiting = client.with_options(where=["node == nowhere"], wait_for_nodes_s=10 * TIMEOUT_S).submit(add, 1)
    after = client.submit(add, waiting)
    assert waiting.cancel()
    with pytest.raises(TaskCancelled, match="an input"):
        after.result(TIMEOUT_S)


def test_what_stands_for_no_task_of_the_client_is_refused_by_name(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster) as other:
        foreign = other.submit(add, 1)
        with pytest.raises(InvalidRequest, match="futures of this very client"):
            client.submit(add, foreign).result(TIMEOUT_S)
        foreign.result(TIMEOUT_S)
    with pytest.raises(InvalidRequest, match="futures of this very client"):
        client.submit(add, foreign).result(TIMEOUT_S)
    refused = client.with_options(where=["node == nowhere"]).submit(add, 1)
    with pytest.raises(TaskLost, match=r"an input: .*nowhere"):
        client.submit(add, refused).result(TIMEOUT_S)


def test_calls_that_travel_with_one_that_is_refused_do_not_fail_with_it(cluster: LocalCluster, client: Client) -> None:
    with Client(cluster) as other:
        foreign = other.submit(add, 1)
        futures = [client.submit(add, argument) for argument in (1, foreign, 2, other.put(3), 4)]
        assert [future.result(TIMEOUT_S) for future in futures[::2]] == [add(1), add(2), add(4)]
        for future, what in zip(futures[1::2], ("futures of", "values that"), strict=True):
            with pytest.raises(InvalidRequest, match=f"arguments: .*{what} this very client"):
                future.result(TIMEOUT_S)


def test_tasks_that_start_together_do_not_wait_for_futures() -> None:
    spec = JobSpec([spec_of(Stand(1))], gang=True, policy="flow")
    with pytest.raises(InvalidRequest, match="gang=True"):
        AwaitedFutures(spec, None)


def test_futures_are_no_values_outside_of_calls(client: Client) -> None:
    with pytest.raises(TypeError, match="this process alone"):
        pickle.dumps(client.submit(add, 1))


def test_threads_may_use_each_others_futures(client: Client) -> None:
    found: list[int] = []

    def use(future: Any) -> None:
        found.append(client.submit(add, future, 1).result(TIMEOUT_S))

    threads = [threading.Thread(target=use, args=(client.submit(add, number),)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert sorted(found) == [1, 2, 3, 4]


async def test_with_asyncio_it_is_the_same(cluster: LocalCluster) -> None:
    async with AsyncClient(cluster) as client:
        one = client.submit(add, 1)
        failed = client.submit(fail, one)
        assert await client.submit(add, one, client.submit(add, one)) == 2
        assert await client.submit(len, client.submit(bytes, 2_000_000)) == 2_000_000
        with pytest.raises(LookupError, match="no 1"):
            await client.submit(add, failed)
        with pytest.raises(TypeError, match="future"):
            client.submit(add, asyncio.get_running_loop().create_future())


def straggle(number: int, where: str) -> int:
    """The last of nine lasts, the first time."""
    try:
        if number == 8:
            Path(where).mkdir()
            time.sleep(10 * TIMEOUT_S)
    except FileExistsError:
        pass
    return number


@pytest.mark.rest
def test_the_copy_of_a_slow_task_gives_the_value_if_it_is_first(client: Client, tmp_path: Path) -> None:
    speculating = CallOptions(speculate=Speculation(copies_max=1.0))  # Another may be slow on a cold worker.
    job = client.submit_calls(straggle, [(number, str(tmp_path / "first")) for number in range(9)], options=speculating)
    assert client.submit(add, job.futures[8], 1).result(TIMEOUT_S) == 9
    assert job.results() == list(range(9))
    assert client.submit(add, job.futures[8], 2).result(TIMEOUT_S) == 10
