"""`Client` on real processes: what it offers, what it says of mistakes, what it leaves behind."""

import itertools
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from sparrow_py import (
    AsyncClient,
    CallOptions,
    CallStage,
    Client,
    InvalidOption,
    InvalidRequest,
    JobSpec,
    LocalCluster,
    NoScheduler,
    Refused,
    SparrowError,
    StageSpec,
    TaskCancelled,
    TaskLost,
    TaskSpec,
    TaskStatus,
    calls,
)
from tests.conftest import SLOTS
from tests.support import tasks
from tests.support.daemons import clean_environment, get_json, gone, nodes_of
from tests.support.waiting import ANSWER_S, TIMEOUT_S, wait_until


@pytest.fixture
def occupied(client: Client, gate: Path) -> Iterator[list[Any]]:
    """Futures of tasks that hold every slot until the gate is there."""
    marks = [f"slot{number}" for number in range(SLOTS)]
    futures = [client.submit(tasks.hold, gate, mark) for mark in marks]
    wait_until(lambda: tasks.started(gate, *marks), "every slot to be held")
    yield futures
    gate.touch()


def noop_tasks(count: int, **fields: Any) -> JobSpec:
    return JobSpec([b""] * count, app="noop", **fields)


def every_slot_works(client: Client, gate: Path) -> None:
    """Hold all slots of the shared cluster at once."""
    marks = [f"all{number}" for number in range(SLOTS)]
    futures = [client.submit(tasks.hold, gate, mark) for mark in marks]
    wait_until(lambda: tasks.started(gate, *marks), "every slot to run a task")
    gate.touch()
    assert client.gather(futures) == marks


# ---- submit and map --------------------------------------------------------------------------


def test_submit(client: Client) -> None:
    assert client.submit(tasks.describe, 1, b=2).result(TIMEOUT_S) == ((1,), {"b": 2})


def test_gather_keeps_the_order_given_and_raises_the_first_failure(client: Client) -> None:
    futures = [client.submit(tasks.square, x) for x in (3, 1, 2)]
    assert client.gather(futures) == [9, 1, 4]
    with pytest.raises(ValueError, match="first"):
        client.gather([futures[0], client.submit(tasks.fail, "first"), client.submit(tasks.fail, "second")])


@pytest.mark.parametrize("chunksize", [1, 3])
def test_map_over_an_endless_iterable_pulls_no_more_than_its_window(client: Client, chunksize: int) -> None:
    pulled = itertools.count()
    seen = 0

    def endless() -> Iterator[int]:
        nonlocal seen
        for number in pulled:
            seen = number + 1
            yield number

    results = client.map(tasks.square, endless(), window=30, chunksize=chunksize)
    assert seen == 30
    for number in range(200):
        assert next(results) == number * number
        assert seen <= number + 1 + 30 + chunksize
    results.close()  # type: ignore[attr-defined]


def test_map_cancels_what_is_in_flight_when_it_is_abandoned(client: Client, occupied: list[Any], gate: Path) -> None:
    results = client.map(tasks.hold, [gate] * 10, [f"abandoned{number}" for number in range(10)], timeout_s=0.01)
    with pytest.raises(TimeoutError):
        next(results)
    wait_until(lambda: len(client.unfinished()) == SLOTS)
    gate.touch()
    client.gather(occupied)
    assert not any(tasks.started(gate, f"abandoned{number}") for number in range(10))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("window", 0),
        ("chunksize", 0),
        ("window", 1.5),
        ("chunksize", True),
        ("timeout_s", float("nan")),
        ("timeout_s", "1"),
    ],
)
def test_map_names_a_bad_parameter(client: Client, name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=name):
        client.map(tasks.square, [1], **{name: value})  # type: ignore[arg-type]


def test_a_name_that_cannot_be_sent_is_named(client: Client) -> None:
    with pytest.raises(InvalidRequest, match=r"^name: .*ud800"):
        client.submit_calls(tasks.square, [(1,)], name="\ud800")
    with pytest.raises(InvalidRequest, match=r"^name of stage .*ud800"):
        client.submit_stages([CallStage("\ud800", tasks.square, [(1,)])])


def test_with_options(client: Client) -> None:
    quick = client.with_options(prefetch=16, probe_ratio=1)
    assert list(quick.map(tasks.square, range(500))) == [x * x for x in range(500)]
    assert quick.submit(tasks.square, 5).result(TIMEOUT_S) == 25


def test_with_options_of_a_view_keeps_the_others_of_the_view(client: Client) -> None:
    view = client.with_options(policy="flow").with_options(gang=True)
    assert (view.options.policy, view.options.gang) == ("flow", True)
    assert (client.options.policy, client.options.gang) == ("", False)
    again = client.with_options(capture_output=True).with_options(max_attempts=1)
    future = again.submit(tasks.say, "hello")
    assert future.result(TIMEOUT_S) == "hello"
    assert future.report.stdout == "hello\n"  # type: ignore[attr-defined]


def test_with_options_of_an_async_view_keeps_the_others_of_the_view() -> None:
    client = AsyncClient("127.0.0.1:1")
    view = client.with_options(policy="flow").with_options(gang=True)
    assert (view.options.policy, view.options.gang) == ("flow", True)
    assert (client.options.policy, client.options.gang) == ("", False)


def test_progress_does_not_change_the_results(client: Client, capfd: pytest.CaptureFixture[str]) -> None:
    assert list(client.map(tasks.square, range(20), progress=True)) == [x * x for x in range(20)]
    assert client.submit_calls(tasks.square, [(x,) for x in range(20)], progress=True).results() == [
        x * x for x in range(20)
    ]
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "square" in captured.err


# ---- jobs ------------------------------------------------------------------------------------


def test_job_results_in_submission_order(client: Client) -> None:
    job = client.submit_calls(tasks.square, [(x,) for x in range(100)])
    assert len(job) == 100
    assert job.results(TIMEOUT_S) == [x * x for x in range(100)]


def test_job_iterates_as_tasks_complete(client: Client, gate: Path) -> None:
    job = client.submit_calls(tasks.hold, [(gate, "held"), (gate.parent, "quick")])  # That gate is there already.
    completed = iter(job)
    assert next(completed).result() == "quick"
    gate.touch()
    assert next(completed).result() == "held"
    assert next(completed, None) is None


def test_job_wait_and_results_time_out(client: Client, gate: Path) -> None:
    job = client.submit_calls(tasks.hold, [(gate, "x")])
    job.accepted(TIMEOUT_S)
    assert not job.wait(0.01)
    with pytest.raises(TimeoutError, match=job.job_id):
        job.results(0.01)
    gate.touch()
    assert job.results(TIMEOUT_S) == ["x"]


def test_cancel_a_job_cancels_what_has_not_started(client: Client, occupied: list[Any], gate: Path) -> None:
    job = client.submit_calls(tasks.hold, [(gate, f"queued{number}") for number in range(50)])
    job.accepted(TIMEOUT_S)
    client.cancel(job)
    report = job.report(TIMEOUT_S)
    assert report.count(TaskStatus.CANCELLED) == 50
    assert report.response_s is None
    assert {(task.attempts, task.error) for task in report.tasks} == {(0, "it was cancelled")}
    gate.touch()
    client.gather(occupied)
    assert not tasks.started(gate, "queued0")


def test_cancel_what_runs_lets_it_finish(client: Client, gate: Path) -> None:
    future = client.submit(tasks.hold, gate, "running")
    wait_until(lambda: tasks.started(gate, "running"))
    client.cancel(future)
    assert not future.cancel()
    gate.touch()
    assert future.result(TIMEOUT_S) == "running"


def test_cancel_takes_only_futures_of_a_client(client: Client) -> None:
    from concurrent.futures import Future

    wrong: list[Any] = [[Future[int]()], [5], 5, None]
    for one in wrong:
        with pytest.raises(InvalidRequest, match="futures of this client"):
            client.cancel(one)


def test_gather_takes_only_futures(client: Client) -> None:
    wrong: list[Any] = [[client.submit(abs, -1), 1], 5]
    for one in wrong:
        with pytest.raises(InvalidRequest, match="futures of this client"):
            client.gather(one)


@pytest.mark.parametrize(("name", "value"), [("token", 5), ("token", b"secret"), ("tls", 5), ("tls", "x")])
def test_what_is_no_token_and_what_is_no_tls_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidRequest, match=rf"^{name}: ") as raised:
        Client("127.0.0.1:1", **{name: value})  # type: ignore[arg-type]
    assert "secret" not in str(raised.value)


def test_cancelled_tasks_that_were_prefetched(client: Client, occupied: list[Any], gate: Path) -> None:
    """The client knows one as placed, and its future as running; it is cancelled all the same."""
    options = CallOptions(prefetch=8, report_placed=True)
    job = client.submit_calls(tasks.square, [(x,) for x in range(40)], options=options)
    wait_until(lambda: any(future.running() for future in job.futures), "a task to be prefetched")
    placed = next(future for future in job.futures if future.running())
    job.cancel()
    assert job.wait(TIMEOUT_S)
    assert placed.cancelled()
    for ask in (placed.result, placed.exception):
        with pytest.raises(TaskCancelled, match=f"task {placed.task} was cancelled: "):
            ask()
    assert job.report().count(TaskStatus.CANCELLED) == 40


def test_report_has_consistent_times(client: Client) -> None:
    job = client.submit_calls(tasks.square, [(x,) for x in range(50)])
    report = job.report(TIMEOUT_S)
    assert [task.task for task in report.tasks] == list(range(50))
    assert report.job_id == job.job_id
    for task in report.tasks:
        assert (task.status, task.attempts, task.error) == (TaskStatus.FINISHED, 1, "")
        assert task.node in ("node-0", "node-1")
        assert task.reserved_at_s is not None
        assert task.started_at_s is not None
        assert task.finished_at_s is not None
        assert task.service_s is not None
        assert task.wait_s is not None
        assert task.response_s is not None
        clock_jitter_s = 0.002  # Each process has its own clock, set by the wall's when it started.
        times = [task.submitted_at_s, task.reserved_at_s, task.started_at_s, task.finished_at_s]
        assert all(later - earlier > -clock_jitter_s for earlier, later in itertools.pairwise(times))
        assert task.response_s == pytest.approx(task.wait_s + task.service_s)
    assert report.response_s == max(task.finished_at_s - task.submitted_at_s for task in report.tasks)  # type: ignore[operator]


def test_prints_are_captured_on_request(client: Client) -> None:
    captured = client.with_options(capture_output=True).submit(tasks.say, "héllo")
    assert captured.result(TIMEOUT_S) == "héllo"
    assert captured.report.stdout == "héllo\n"  # type: ignore[attr-defined]
    assert captured.report.stderr == "héllo on stderr\n"  # type: ignore[attr-defined]
    plain = client.submit(tasks.say, "hello")
    assert plain.result(TIMEOUT_S) == "hello"
    assert plain.report.stdout == ""  # type: ignore[attr-defined]


def test_prints_of_a_failed_task_are_captured_too(client: Client) -> None:
    def say_and_fail() -> None:
        print("before")
        raise ValueError("after")

    future = client.with_options(capture_output=True).submit(say_and_fail)
    assert isinstance(future.exception(TIMEOUT_S), ValueError)
    assert future.report.stdout == "before\n"  # type: ignore[attr-defined]


def test_printing_a_lone_surrogate(client: Client) -> None:
    future = client.with_options(capture_output=True, max_attempts=1).submit(tasks.say_surrogate)
    assert future.result(TIMEOUT_S) is None
    assert future.report.stdout == "a file name: \\udcff\n"  # type: ignore[attr-defined]


def test_an_empty_job_finishes_at_once(client: Client) -> None:
    for spec in (JobSpec([]), JobSpec([], app="noop"), JobSpec([], app="offered by nobody")):
        job = client.submit_job(spec)
        job.accepted(TIMEOUT_S)
        assert job.results(TIMEOUT_S) == []
        assert job.report().tasks == []
        assert list(job) == []


@pytest.mark.rest
def test_a_job_of_100_000_tasks(client: Client) -> None:
    report = client.submit_job(noop_tasks(100_000, prefetch=32)).report(TIMEOUT_S * 2)
    assert report.count(TaskStatus.FINISHED) == 100_000
    assert {task.attempts for task in report.tasks} == {1}


def test_many_jobs_at_a_time(client: Client) -> None:
    jobs = [client.submit_job(noop_tasks(3)) for _ in range(200)]
    assert all(job.report(TIMEOUT_S).count(TaskStatus.FINISHED) == 3 for job in jobs)
    wait_until(lambda: not client._jobs)


def test_nothing_is_left_at_the_scheduler(cluster: LocalCluster, client: Client) -> None:
    client.submit_job(noop_tasks(500)).results(TIMEOUT_S)
    address = cluster.addresses[0]
    wait_until(lambda: get_json(address, "/v1/jobs")["jobs"] == [])
    wait_until(lambda: all(n["busy"] == n["reservations"] == 0 for n in nodes_of(address).values()), "queues to drain")


# ---- mistakes --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"probe_ratio": -1.0}, "probe_ratio"),
        ({"probe_ratio": float("nan")}, "probe_ratio"),
        ({"probe_ratio": 0.5}, "probe_ratio"),
        ({"probe_ratio": "2"}, "probe_ratio"),
        ({"prefetch": -1}, "prefetch"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"queue_timeout_s": float("nan")}, "queue_timeout_s"),
        ({"expected_duration_s": -1.0}, "expected_duration_s"),
        ({"app": ""}, "app"),
        ({"app": "x" * 300}, "app"),
        ({"name": "two\nlines"}, "name"),
        ({"job_id": "x" * 300}, "job_id"),
    ],
)
def test_a_bad_field_is_named(client: Client, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=f"^{field}: ") as caught:
        client.submit_job(JobSpec([b""], **fields))
    assert caught.value.field == field
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("given", [[b"", "text"], [TaskSpec(b"", "a"), TaskSpec(b"", "a")], [TaskSpec("no")], [None]])  # type: ignore[arg-type]
def test_bad_tasks_are_named(client: Client, given: list[Any]) -> None:
    with pytest.raises(InvalidRequest, match=rf"^tasks\[{len(given) - 1}\]"):
        client.submit_job(JobSpec(given, app="noop"))


def test_a_job_id_given_twice(client: Client, gate: Path) -> None:
    spec = client.options.job("held", calls.encode_function(tasks.hold), [calls.encode_arguments((gate, "once"), {})])
    spec.job_id = f"twice-{gate.parent.name}"
    first = client.submit_job(spec)
    first.accepted(TIMEOUT_S)
    again = client.submit_job(spec)
    with pytest.raises(InvalidRequest, match="job_id"):
        again.accepted(TIMEOUT_S)
    gate.touch()
    assert first.results(TIMEOUT_S) == ["once"]


def test_a_job_id_that_another_client_uses(cluster: LocalCluster, client: Client, gate: Path) -> None:
    spec = client.options.job("held", calls.encode_function(tasks.hold), [calls.encode_arguments((gate, "once"), {})])
    spec.job_id = f"taken-{gate.parent.name}"
    first = client.submit_job(spec)
    first.accepted(TIMEOUT_S)
    with Client(cluster) as other, pytest.raises(InvalidRequest, match="another client has a job of this id"):
        other.submit_job(spec).accepted(TIMEOUT_S)
    gate.touch()
    assert first.results(TIMEOUT_S) == ["once"]


def test_an_unknown_app_is_refused_and_those_offered_are_named(client: Client) -> None:
    job = client.submit_job(JobSpec([b""], app="basic"))
    with pytest.raises(InvalidRequest, match=r"app.*basic.*noop.*python.*sleep") as caught:
        job.accepted(TIMEOUT_S)
    assert caught.value.field == "app"
    with pytest.raises(InvalidRequest):
        job.results(TIMEOUT_S)
    with pytest.raises(InvalidRequest):
        job.report(TIMEOUT_S)


def test_a_priority_above_the_users_own_is_refused_and_a_lower_one_is_not(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="priority: 1 is not valid; allowed: a whole number from -1000 to 0"):
        client.with_options(priority=1).submit(abs, -1).result(TIMEOUT_S)
    assert list(client.with_options(priority=-1).map(abs, [-1, -2])) == [1, 2]


def test_a_job_that_avoids_by_an_attribute_that_no_node_has_is_refused(client: Client) -> None:
    with pytest.raises(InvalidRequest, match="no node monitor satisfies rack exists") as caught:
        client.with_options(avoid_by="rack").submit(abs, -1).result(TIMEOUT_S)
    assert caught.value.field == "avoid_by"
    assert client.with_options(avoid=["gone"], avoid_by="node").submit(abs, -1).result(TIMEOUT_S) == 1


def test_another_python_version_is_refused_at_submission(client: Client) -> None:
    job = client.submit_job(JobSpec([b""], app="python", runtime="2.7"))
    with pytest.raises(InvalidRequest, match=rf"2\.7.*{calls.RUNTIME}") as caught:
        job.accepted(TIMEOUT_S)
    assert caught.value.field == "runtime"


def test_a_module_that_the_worker_lacks_is_named(
    client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_here.py").write_text("def f():\n    return 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    module = __import__("only_here")
    try:
        with pytest.raises(ModuleNotFoundError, match="only_here") as caught:
            client.submit(module.f).result(TIMEOUT_S)
        assert any("only_here" in note and "CallOptions.modules" in note for note in caught.value.__notes__)
        cloudpickle.register_pickle_by_value(module)
        assert client.submit(module.f).result(TIMEOUT_S) == 1
        cloudpickle.unregister_pickle_by_value(module)
    finally:
        del sys.modules["only_here"]


def test_large_payloads_functions_and_results_arrive_whole(client: Client) -> None:
    """They go round the scheduler: see tests/system/test_large_data.py for how."""
    ballast = b"x" * (2 << 20)
    assert client.submit(len, ballast).result(TIMEOUT_S) == 2 << 20
    assert client.submit(lambda: len(ballast)).result(TIMEOUT_S) == 2 << 20
    assert client.submit(bytes, 2 << 20).result(TIMEOUT_S) == bytes(2 << 20)
    for size in (60_000, 1_000_000):
        assert client.submit(bytes, size).result(TIMEOUT_S) == bytes(size)
        assert client.submit(len, bytes(size)).result(TIMEOUT_S) == size


def test_a_large_exception_of_a_stage_that_others_come_after_arrives(client: Client) -> None:
    job = client.submit_stages(
        [CallStage("a", tasks.fail, [("x" * 200_000,)]), CallStage("b", abs, [(1,)], after=["a"])]
    )
    with pytest.raises(ValueError, match=r"^x{200000}$"):
        job.results(TIMEOUT_S)


@pytest.mark.processes
def test_a_call_too_large_for_nodes_is_refused_alone() -> None:
    with LocalCluster(node_options=["--blob-bytes-max", "2000000"]) as cluster, Client(cluster) as client:
        futures = [client.submit(len, bytes(size)) for size in (10, 4_000_000, 20)]
        assert [future.result(TIMEOUT_S) for future in futures[::2]] == [10, 20]
        with pytest.raises(Refused, match="blob_bytes_max"):
            futures[1].result(TIMEOUT_S)


def test_many_large_payloads_that_need_many_frames(client: Client) -> None:
    job = client.submit_calls(len, [(bytes(400_000),) for _ in range(40)])
    assert job.results(TIMEOUT_S) == [400_000] * 40


@pytest.mark.parametrize("common", [b"", b"garbage", b"\x93\xc4\x03abc\xc2\xc2"])
def test_common_bytes_that_are_no_function_fail_the_task_and_not_the_worker(client: Client, common: bytes) -> None:
    job = client.submit_job(JobSpec([b"x"], common=common, max_attempts=2))
    (task,) = job.report(TIMEOUT_S).tasks
    assert (task.status, task.attempts) == (TaskStatus.FAILED, 1)


def test_payload_that_is_no_call_fails_the_task(client: Client) -> None:
    job = client.submit_job(JobSpec([b"garbage"], common=calls.encode_function(len), max_attempts=2))
    (task,) = job.report(TIMEOUT_S).tasks
    assert (task.status, task.attempts) == (TaskStatus.FAILED, 1)


def test_a_bad_payload_of_a_builtin_app_fails_the_task(client: Client) -> None:
    for payload in (b"", b"\xff", b"\xcb\x7f\xf8" + bytes(6), b"\xcb\xbf\xf0" + bytes(6)):
        (task,) = client.submit_job(JobSpec([payload], app="sleep")).report(TIMEOUT_S).tasks
        assert task.status is TaskStatus.FAILED
        assert "payload" in task.error


def test_sys_exit_in_a_task_is_its_exception(client: Client) -> None:
    with pytest.raises(SystemExit) as caught:
        client.with_options(max_attempts=1).submit(tasks.exit_politely, 7).result(TIMEOUT_S)
    assert caught.value.code == 7


@pytest.mark.parametrize("end", [tasks.exit_worker, tasks.kill_worker])
def test_a_task_that_kills_its_worker_is_lost_after_max_attempts(
    client: Client, end: Callable[[], None], gate: Path
) -> None:
    future = client.with_options(max_attempts=2).submit(end)
    with pytest.raises(TaskLost, match=r"started 2 times.*(exited with code 3|killed by SIGKILL)"):
        future.result(TIMEOUT_S)
    report = future.report  # type: ignore[attr-defined]
    assert (report.status, report.attempts) == (TaskStatus.LOST, 2)
    every_slot_works(client, gate)  # Its slots came back.


def test_a_task_that_kills_its_worker_at_most_once(client: Client, tmp_path: Path, gate: Path) -> None:
    def record_and_die(starts: Path) -> None:
        tasks.record_start(starts, 0)
        os._exit(1)

    with pytest.raises(TaskLost, match="started 1 time:"):
        client.with_options(max_attempts=1).submit(record_and_die, tmp_path / "starts").result(TIMEOUT_S)
    assert len(tasks.read_starts(tmp_path / "starts")) == 1
    every_slot_works(client, gate)


def test_retry_failed(client: Client, tmp_path: Path) -> None:
    def fail_twice(starts: Path) -> int:
        tasks.record_start(starts, 0)
        if len(tasks.read_starts(starts)) < 3:
            raise ValueError("not yet")
        return 42

    future = client.with_options(retry_failed=True).submit(fail_twice, tmp_path / "retried")
    assert future.result(TIMEOUT_S) == 42
    assert future.report.attempts == 3  # type: ignore[attr-defined]
    once = client.submit(fail_twice, tmp_path / "once")
    with pytest.raises(ValueError, match="not yet"):
        once.result(TIMEOUT_S)
    assert len(tasks.read_starts(tmp_path / "once")) == 1


def test_queue_timeout_ends_lost(client: Client, occupied: list[Any]) -> None:
    with pytest.raises(TaskLost, match="queue_timeout_s"):
        client.with_options(queue_timeout_s=0.05).submit(tasks.square, 1).result(TIMEOUT_S)


# ---- users -----------------------------------------------------------------------------------


@pytest.mark.parametrize("user", ["", "x" * 10_240, "two\nlines", "\udcff"])
def test_a_bad_user_name_is_an_error_of_one_short_line(cluster: LocalCluster, user: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^user: ") as caught:
        Client(cluster, user=user)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 300


def test_a_user_name_of_many_letters(cluster: LocalCluster, gate: Path) -> None:
    with Client(cluster, user="Ærøskøbing · 用户") as client:
        future = client.submit(tasks.hold, gate, "m")
        wait_until(lambda: tasks.started(gate, "m"))
        assert [job["user"] for job in get_json(cluster.addresses[0], "/v1/jobs")["jobs"]] == ["Ærøskøbing · 用户"]
        gate.touch()
        future.result(TIMEOUT_S)


# ---- connecting and closing ------------------------------------------------------------------


def unused_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_an_address_where_nobody_listens() -> None:
    address = unused_address()
    with pytest.raises(NoScheduler, match=address) as caught:
        Client(address, connect_timeout_s=0.3)
    assert len(str(caught.value).splitlines()) == 1


def test_an_address_that_does_not_answer() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NoScheduler, match=r"within 0.3 s") as caught:
            Client(address, connect_timeout_s=0.3)
    assert len(str(caught.value).splitlines()) == 1


def test_something_else_answers(cluster: LocalCluster) -> None:
    node_monitor = cluster.node_processes[0].address
    with pytest.raises(NoScheduler, match=node_monitor) as caught:
        Client(node_monitor, connect_timeout_s=ANSWER_S)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    "address", ["", " ", [], "nohost", "http://127.0.0.1:1", "127.0.0.1:0", "127.0.0.1:x", "::1:5"]
)
def test_an_address_that_is_none(address: Any) -> None:
    with pytest.raises((InvalidRequest, InvalidOption), match="scheduler"):
        Client(address)


def test_a_name_that_does_not_resolve() -> None:
    with pytest.raises(NoScheduler) as caught:
        Client("x" * 70 + ".invalid:20503", connect_timeout_s=0.3)
    assert len(str(caught.value).splitlines()) == 1


def test_one_of_two_addresses_is_enough(cluster: LocalCluster) -> None:
    with Client([unused_address(), *cluster.addresses]) as client:
        assert client.submit(tasks.square, 2).result(TIMEOUT_S) == 4


def test_schedulers_in_a_file(cluster: LocalCluster, tmp_path: Path) -> None:
    path = tmp_path / "schedulers"
    path.write_text(f"# ours\n\n{cluster.addresses[0]}  # the first\n")
    with Client(f"file:{path}") as client:
        assert client.submit(tasks.square, 2).result(TIMEOUT_S) == 4


def test_a_closed_client_says_so(cluster: LocalCluster) -> None:
    client = Client(cluster)
    job = client.submit_job(noop_tasks(1))
    job.results(TIMEOUT_S)
    client.close()
    client.close()
    for use in (
        lambda: client.submit(tasks.square, 1),
        lambda: client.map(tasks.square, [1]),
        lambda: client.submit_job(noop_tasks(1)),
        lambda: client.submit_calls(tasks.square, [(1,)]),
    ):
        with pytest.raises(RuntimeError, match="closed"):
            use()


def test_close_ends_futures_that_are_not_done(cluster: LocalCluster, gate: Path) -> None:
    client = Client(cluster)
    running = client.submit(tasks.hold, gate, "running")
    wait_until(lambda: tasks.started(gate, "running"))
    queued = [client.submit(tasks.hold, gate, f"queued{number}") for number in range(SLOTS * 3)]
    client.close()
    for future in (running, *queued):
        with pytest.raises(SparrowError, match=r"client (was closed|is done)"):
            future.result(TIMEOUT_S)
    gate.touch()


def test_threads_share_a_client(client: Client) -> None:
    sums: list[int] = []

    def use(thread: int) -> None:
        sums.append(sum(client.map(tasks.square, range(thread, 100 + thread), window=20)))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert sorted(sums) == [sum(x * x for x in range(n, 100 + n)) for n in range(6)]


def test_admission_refuses_what_can_never_fit(tmp_path: Path) -> None:
    options = ["--unplaced-tasks-max", "100"]
    with LocalCluster(in_process=True, slots=1, scheduler_options=options) as cluster, Client(cluster) as client:
        stages = [StageSpec([b""] * 50, name="a", app="noop"), StageSpec([b""] * 51, name="b", app="noop", after=["a"])]
        with pytest.raises(Refused, match="unplaced_tasks_max = 100") as caught:
            client.submit_job(JobSpec(stages=stages)).accepted(TIMEOUT_S)
        assert caught.value.retry_after_s is None
        assert len(client.submit_job(noop_tasks(100)).results(TIMEOUT_S)) == 100


def test_admission_offers_a_job_again_until_it_fits(gate: Path) -> None:
    options = ["--unplaced-tasks-max", "10"]
    with LocalCluster(in_process=True, slots=2, scheduler_options=options) as cluster, Client(cluster) as client:
        held = client.submit_calls(tasks.hold, [(gate, f"m{number}") for number in range(10)])
        held.accepted(TIMEOUT_S)
        wait_until(lambda: tasks.started(gate, "m0", "m1"))
        with Client(cluster, submit_timeout_s=0.0) as impatient, pytest.raises(Refused, match="try again") as caught:
            impatient.submit_job(noop_tasks(10)).accepted(TIMEOUT_S)
        assert caught.value.retry_after_s is not None
        small = client.submit_job(noop_tasks(2))
        assert not small.wait(0.01)
        gate.touch()
        assert held.results(TIMEOUT_S) == [f"m{number}" for number in range(10)]
        assert len(small.results(TIMEOUT_S)) == 2


# ---- embedded --------------------------------------------------------------------------------


EMBEDDED = """
import sys, time, psutil
from sparrow_py import Client
from tests.support.tasks import square

client = Client()
assert client.submit(square, 7).result(30) == 49
children = psutil.Process().children(recursive=True)
print(*(child.pid for child in children), flush=True)
if sys.argv[1] == "close":
    client.close()
    print(*(child.pid for child in children if child.is_running() and child.status() != "zombie"), flush=True)
else:
    time.sleep(60)
"""


@pytest.mark.processes
def test_an_embedded_cluster_ends_with_its_client() -> None:
    answer = subprocess.run(
        [sys.executable, "-W", "error", "-c", EMBEDDED, "close"],
        capture_output=True, text=True, timeout=TIMEOUT_S * 2, env=clean_environment(), check=False,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    started, left = answer.stdout.split("\n")[:2]
    assert len(started.split()) >= 3, "a scheduler, a node monitor and workers"
    assert left == ""
    assert answer.stderr == ""


@pytest.mark.processes
def test_an_embedded_cluster_ends_when_its_client_is_killed() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", EMBEDDED, "stay"], stdout=subprocess.PIPE, text=True, env=clean_environment()
    )
    try:
        assert process.stdout is not None
        pids = [int(pid) for pid in process.stdout.readline().split()]
        assert len(pids) >= 3
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    wait_until(lambda: all(gone(pid) for pid in pids), "the daemons and workers to end")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("heartbeat_s", 0), ("heartbeat_s", "x"), ("heartbeat_s", float("nan")), ("connect_timeout_s", "1"),
        ("connect_timeout_s", -1), ("submit_timeout_s", None), ("submit_timeout_s", True), ("options", {"prefetch": 1}),
    ],
)  # fmt: skip
def test_what_a_client_cannot_be_is_named(cluster: LocalCluster, field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest, match=field):
        Client(cluster, **{field: value})


@pytest.mark.parametrize("schedulers", [20503, {"a": 1}, object()])
def test_what_names_no_schedulers_is_named(schedulers: Any) -> None:
    with pytest.raises(InvalidRequest, match="schedulers"):
        Client(schedulers)


def test_what_parses_the_programs_arguments_in_a_task_finds_none(client: Client) -> None:
    assert client.submit(eval, "__import__('sys').argv").result(TIMEOUT_S) == [""]


@pytest.mark.processes
def test_functions_and_classes_of_the_main_script_travel_from_a_spawned_child(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SPAWNING)
    ended = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
    )
    assert ended.stdout == "8 9\n", ended.stderr


SPAWNING = """
import multiprocessing
from sparrow_py import Client, LocalCluster

class Number:
    def __init__(self, value):
        self.value = value

def double(number):
    return 2 * number

def child(address):
    with Client(address) as client:
        print(client.submit(double, 4).result(), client.submit(lambda number: number.value, Number(9)).result())

if __name__ == "__main__":
    with LocalCluster(slots=1) as cluster:
        process = multiprocessing.get_context("spawn").Process(target=child, args=(cluster.addresses[0],))
        process.start()
        process.join()
"""
