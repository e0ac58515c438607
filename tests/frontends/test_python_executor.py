"""The Python executor, as its node monitor sees it: a real process at the other end of a Unix socket."""

import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sparrow_py import calls
from sparrow_py.executors.executor_files import read, store
from sparrow_py.executors.executor_protocol import (
    EXECUTOR_PROTOCOL_VERSION,
    INLINE_BYTES_MAX,
    SOCKET_VARIABLE,
    Common,
    Done,
    File,
    ForgetCommon,
    HasSlot,
    MayWait,
    Returned,
    Revoke,
    Run,
    Waits,
    WantsSlot,
)
from sparrow_py.job import TaskSpec, TaskStatus
from tests.frontends.executor_harness import TIMEOUT_S, Monitor
from tests.support import hostile, tasks
from tests.support.daemons import clean_environment
from tests.support.waiting import wait_until


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    path = os.pathsep.join(entry for entry in sys.path if entry)
    with Monitor("frontends.python.executor", tmp_path, PYTHONPATH=path) as monitor:
        yield monitor


def run(number: int, common: int, *args: Any) -> Run:
    return Run(number, common, calls.encode_arguments(args, {}))


def value(done: Done) -> Any:
    """The value that a run returned, or (exception, traceback)."""
    return pickle.loads(read(done.result))


def test_hello(monitor: Monitor) -> None:
    hello = monitor.hello
    assert (hello.version, hello.id, hello.app) == (EXECUTOR_PROTOCOL_VERSION, "e1", "python")
    assert (hello.places, hello.runtime, hello.pid) == (1, calls.RUNTIME, monitor.process.pid)


def test_calls_run_in_order(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.square)), *(run(number, 1, number) for number in range(1, 101)))
    for number in range(1, 101):
        done = monitor.receive(Done)
        assert (done.run, done.status, value(done)) == (number, TaskStatus.FINISHED, number * number)
        assert done.service_s >= 0
        assert done.started_at_s > 0


def test_a_run_that_is_to_be_measured_says_what_it_used_and_others_do_not(monitor: Monitor) -> None:
    """The memory of one run does not count for the next one."""
    monitor.send(Common(1, calls.encode_function(tasks.hold_and_burn)))
    used = []
    for number, (cpu_s, size) in enumerate(((0.2, 100 << 20), (0.0, 0)), 1):
        monitor.send(Run(number, 1, calls.encode_arguments((cpu_s, size), {}), measure=True))
        used.append(monitor.receive(Done).used)
    large, small = used
    assert large is not None and large.cpu_s is not None and 0.2 <= large.cpu_s < 5
    assert large.memory_bytes is not None and large.memory_bytes > 100 << 20
    assert small is not None and small.cpu_s is not None and small.cpu_s < 0.2
    assert small.memory_bytes is not None and small.memory_bytes < large.memory_bytes - (50 << 20)
    monitor.send(run(3, 1, 0.0, 0))
    assert monitor.receive(Done).used is None


def test_several_functions(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.square)), Common(2, calls.encode_function(tasks.divide)))
    monitor.send(run(1, 2, 1, 2), run(2, 1, 3))
    assert [value(monitor.receive(Done)) for _ in range(2)] == [0.5, 9]


def test_a_function_is_unpickled_once_and_can_be_forgotten(monitor: Monitor) -> None:
    class Counting:
        unpickled = 0

        def __setstate__(self, state: object) -> None:
            type(self).unpickled += 1

        def __getstate__(self) -> object:
            return 1

        def __call__(self) -> int:
            return self.unpickled

    monitor.send(Common(1, calls.encode_function(Counting())), run(1, 1), run(2, 1))
    assert [value(monitor.receive(Done)) for _ in range(2)] == [1, 1]
    monitor.send(ForgetCommon(1), ForgetCommon(99), Common(2, calls.encode_function(tasks.square)), run(3, 2, 3))
    assert value(monitor.receive(Done)) == 9


def test_revoked_runs_are_returned_and_do_not_run(monitor: Monitor, gate: Path) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.hold)), *(run(n, 1, gate, f"m{n}") for n in (1, 2, 3, 4)))
    wait_until(lambda: tasks.started(gate, "m1"))
    monitor.send(Revoke([2, 4, 99]))
    gate.touch()
    assert monitor.receive(Done).run == 1
    rest: list[Any] = [monitor.receive(object) for _ in range(2)]
    (returned,) = (message for message in rest if isinstance(message, Returned))
    (done,) = (message for message in rest if isinstance(message, Done))
    assert returned.runs == [2, 4]
    assert done.run == 3
    assert not tasks.started(gate, "m2")
    assert not tasks.started(gate, "m4")


@pytest.mark.parametrize(
    ("function", "status", "error"),
    [
        (tasks.fail_unshowably, TaskStatus.FAILED, "Unshowable: <Unshowable, which cannot be shown>"),
        (tasks.fail_with_surrogate, TaskStatus.FAILED, "ValueError: a file name: \\udcff"),
        (tasks.fail_one_way, TaskStatus.FAILED, "OneWay: 1 and 2"),
        (tasks.make_grumpy, TaskStatus.FAILED, "TypeError: the result <Grumpy, which cannot be shown> of type Grumpy "
         "cannot be pickled: I stay where I am"),
    ],
)  # fmt: skip
def test_calls_that_end_badly_leave_the_worker_alive(
    monitor: Monitor, function: Any, status: TaskStatus, error: str
) -> None:
    monitor.send(Common(1, calls.encode_function(function)), run(1, 1))
    done = monitor.receive(Done)
    assert (done.status, done.error) == (status, error)
    monitor.send(Common(2, calls.encode_function(tasks.square)), run(2, 2, 3))
    assert value(monitor.receive(Done)) == 9


@pytest.mark.parametrize(
    ("function", "error", "told"),
    [
        (hostile.fail_with_notes_that_exit, "NotesExit: no", "the NotesExit could not be formatted: SystemExit: 3"),
        (hostile.fail_with_a_name_that_exits, "<tests.support.hostile.NameExits", "cannot be described: <SystemExit"),
        (hostile.fail_for_a_module_that_exits, "<tests.support.hostile.ModuleExits", "cannot be described: <SystemE"),
    ],
)
def test_an_exception_that_raises_when_it_is_inspected_leaves_the_worker_alive(
    monitor: Monitor, function: Any, error: str, told: str
) -> None:
    monitor.send(Common(1, calls.encode_function(function)), run(1, 1))
    done = monitor.receive(Done)
    assert done.status is TaskStatus.FAILED and done.error.startswith(error)
    assert told in pickle.loads(done.result)[1]
    monitor.send(Common(2, calls.encode_function(tasks.square)), run(2, 2, 3))
    assert value(monitor.receive(Done)) == 9


def test_a_result_for_whose_pickling_there_is_no_memory_is_a_memory_error(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.Huge)), run(1, 1))
    done = monitor.receive(Done)
    assert (done.status, done.error, done.retry) == (TaskStatus.FAILED, "MemoryError: ", False)
    exception, _ = value(done)
    assert type(exception) is MemoryError
    assert exception.__notes__ == ["raised while the result, of type Huge, was pickled"]
    monitor.send(Common(2, calls.encode_function(tasks.square)), run(2, 2, 3))
    assert value(monitor.receive(Done)) == 9


def test_error_and_output_are_cut(monitor: Monitor) -> None:
    def shout() -> None:
        print("é" * 200_000)
        raise ValueError("x" * 200_000)

    monitor.send(Common(1, calls.encode_function(shout, capture_output=True)), run(1, 1))
    done = monitor.receive(Done)
    assert done.error == "ValueError: " + "x" * 488
    assert done.stdout == "é" * 65536


def test_the_traceback_starts_in_the_tasks_own_code(monitor: Monitor) -> None:
    monitor.send(Common(1, calls.encode_function(tasks.fail)), run(1, 1, "why"))
    exception, text = value(monitor.receive(Done))
    assert repr(exception) == "ValueError('why')"
    assert text.count("  File ") == 1
    assert text.endswith("ValueError: why\n")


def test_common_bytes_that_are_not_a_function_fail_the_call(monitor: Monitor) -> None:
    monitor.send(Common(1, b"garbage"), Run(1, 1, b""), Run(2, 0, b""))
    for number in (1, 2):
        done = monitor.receive(Done)
        assert (done.run, done.status) == (number, TaskStatus.FAILED)
        assert "common bytes" in done.error


def test_the_worker_ends_when_the_node_monitor_hangs_up(monitor: Monitor) -> None:
    monitor.hang_up()
    assert monitor.process.wait(TIMEOUT_S) == 0


def test_ctrl_c_does_not_end_the_worker(monitor: Monitor) -> None:
    monitor.process.send_signal(signal.SIGINT)
    monitor.send(Common(1, calls.encode_function(tasks.square)), run(1, 1, 2))
    assert value(monitor.receive(Done)) == 4


# ---- files -----------------------------------------------------------------------------------


def large(content: bytes, folder: Path) -> File:
    """These bytes, which must be more than are sent inline, as a file."""
    file = store(content, str(folder))
    assert isinstance(file, File)
    return file


def test_large_payloads_and_results_are_files(monitor: Monitor, tmp_path: Path) -> None:
    text = os.urandom(INLINE_BYTES_MAX)
    common = calls.encode_function(lambda *parts: b"".join((text, *parts)))
    monitor.send(
        Common(1, large(common, tmp_path)),
        Run(1, 1, large(calls.encode_arguments((text, text), {}), tmp_path)),
        run(2, 1),
    )
    first, second = monitor.receive(Done), monitor.receive(Done)
    assert (value(first), value(second)) == (text * 3, text)
    assert isinstance(first.result, File)
    assert {path.stat().st_mode & 0o777 for path in monitor.files.iterdir()} == {0o600}
    assert len(list(monitor.files.iterdir())) == 2


def test_a_result_that_is_just_small_enough_is_sent_inline(monitor: Monitor) -> None:
    sizes = range(INLINE_BYTES_MAX - 100, INLINE_BYTES_MAX)
    fits = max(size for size in sizes if len(calls.encode_value(bytes(size))) <= INLINE_BYTES_MAX)
    monitor.send(Common(1, calls.encode_function(bytes)), run(1, 1, fits), run(2, 1, fits + 1))
    assert [type(monitor.receive(Done).result) for _ in range(2)] == [bytes, File]


def test_files_that_cannot_be_read_are_errors_of_the_calls(monitor: Monitor, tmp_path: Path) -> None:
    missing = File(str(tmp_path / "missing"), 1, "")
    cut = large(calls.encode_arguments((bytes(1 << 17),), {}), tmp_path)
    os.truncate(cut.path, 1000)
    monitor.send(Common(1, missing), Common(2, calls.encode_function(len)))
    monitor.send(run(1, 1), Run(2, 2, missing), Run(3, 2, cut), run(4, 2, "abc"))
    errors = [monitor.receive(Done).error for _ in range(3)]
    assert errors[0].startswith("ValueError: the job's common bytes are not those of a Python function: [Errno 2] ")
    assert errors[1].startswith("FileNotFoundError: ")
    assert errors[2].startswith("LinkError: the file ")
    assert "has 1000 bytes" in errors[2]
    assert value(monitor.receive(Done)) == 3


def test_a_result_that_cannot_be_written_is_an_error_of_the_call(monitor: Monitor) -> None:
    monitor.files.rmdir()
    monitor.send(Common(1, calls.encode_function(bytes)), run(1, 1, 1 << 17), run(2, 1, 3))
    done = monitor.receive(Done)
    assert (done.status, done.error[:41]) == (TaskStatus.FAILED, "FileNotFoundError: [Errno 2] the result o")
    assert done.error.endswith("bytes cannot be kept on the node: No such file or directory")
    assert value(monitor.receive(Done)) == bytes(3)


def test_an_exception_too_large_to_be_kept_is_still_a_failure(monitor: Monitor) -> None:
    monitor.files.rmdir()
    monitor.send(Common(1, calls.encode_function(tasks.fail)), run(1, 1, "x" * (1 << 17)))
    done = monitor.receive(Done)
    assert (done.status, done.result, done.error[:13]) == (TaskStatus.FAILED, b"", "ValueError: x")


# ---- results of other tasks ------------------------------------------------------------------


def test_arguments_that_are_results_of_other_tasks(monitor: Monitor, tmp_path: Path) -> None:
    text = os.urandom(INLINE_BYTES_MAX)
    one, every = calls.ResultOf("load", 1), calls.ResultOf("load")
    task = calls.encode_call((one, {"all": [every]}), {"text": calls.ResultOf("text", 0)}, {"load": 2}.get)
    assert isinstance(task, TaskSpec) and task.inputs == [("load", 1), "load", ("text", 0)]
    given = [calls.encode_value(n) for n in (20, 10, 20)] + [large(calls.encode_value(text), tmp_path)]
    monitor.send(Common(1, calls.encode_function(tasks.describe)), Run(1, 1, task.payload, given))
    assert value(monitor.receive(Done)) == ((20, {"all": [[10, 20]]}), {"text": text})


def test_an_input_of_a_class_whose_module_is_not_here_says_that_it_can_be_shipped(monitor: Monitor) -> None:
    task = calls.encode_call((calls.ResultOf("load", 1),), {}, len)
    assert isinstance(task, TaskSpec)
    monitor.send(Common(1, calls.encode_function(tasks.describe)), Run(1, 1, task.payload, [b"cgone_module\nShape\n."]))
    done = monitor.receive(Done)
    assert done.error == "ModuleNotFoundError: input 0 cannot be had here: No module named 'gone_module'"
    assert b"or ship it (CallOptions.modules)" in done.result


def test_inputs_that_cannot_be_read_are_errors_of_the_call(monitor: Monitor) -> None:
    task = calls.encode_call((calls.ResultOf("load", 1),), {}, len)
    assert isinstance(task, TaskSpec)
    payload = task.payload
    monitor.send(Common(1, calls.encode_function(tasks.describe)))
    monitor.send(Run(1, 1, payload, [b"garbage"]), Run(2, 1, payload, [File("/missing", 1, "")]), Run(3, 1, payload))
    errors = [monitor.receive(Done).error for _ in range(3)]
    assert errors[0].startswith("ValueError: input 0 is no Python value that can be had here: ")
    assert "/missing" in errors[1]
    assert errors[2].startswith("UnpicklingError: ")


def test_a_worker_whose_node_monitor_has_died_meanwhile_says_so_in_a_line(tmp_path: Path) -> None:
    environment = clean_environment(**{SOCKET_VARIABLE: str(tmp_path / "nobody.sock")})
    command = [sys.executable, "-m", "frontends.python.executor"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "sparrow python executor: [Errno 2] No such file or directory\n"


# ---- functions that are kept from job to job ---------------------------------------------------


def counting() -> Any:
    """A function that is pickled by value, and counts its calls."""
    made: list[int] = []

    def count() -> int:
        made.append(1)
        return len(made)

    return count


def value_of_job(monitor: Monitor, number: int, function: Any, *args: Any, **fields: Any) -> Any:
    """What the only task of a job returns, which is forgotten then."""
    return value(done_of_job(monitor, number, function, *args, **fields))


def done_of_job(monitor: Monitor, number: int, function: Any, *args: Any, user: str = "ann", **fields: Any) -> Done:
    monitor.send(
        Common(number, calls.encode_function(function, **fields)),
        Run(number, number, calls.encode_arguments(args, {}), user=user),
    )
    done = monitor.receive(Done)
    monitor.send(ForgetCommon(number))
    return done


def test_jobs_do_not_share_what_a_closure_remembers(monitor: Monitor) -> None:
    count = counting()
    for number in (1, 2, 3):
        monitor.send(Common(number, calls.encode_function(count)), run(number, number))
        assert value(monitor.receive(Done)) == 1
    monitor.send(run(4, 1), run(5, 2), run(6, 2))
    assert [value(monitor.receive(Done)) for _ in range(3)] == [2, 2, 3]


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_what_replaces_a_function_in_its_module_is_what_later_jobs_call(monitor: Monitor, user: str) -> None:
    assert value_of_job(monitor, 1, tasks.square, 3) == 9
    assert value_of_job(monitor, 2, tasks.replace_square) is None
    assert value_of_job(monitor, 3, tasks.square, 3, user=user) == 27


def test_a_kept_function_does_what_its_new_job_says(monitor: Monitor) -> None:
    written = [
        done_of_job(monitor, number, tasks.say, "a", capture_output=captured).stdout
        for number, captured in enumerate([False, True, False, True])
    ]
    assert written == ["", "a\n", "", "a\n"]


def test_a_function_that_its_module_lacks_is_looked_for_again_by_the_next_job(monitor: Monitor) -> None:
    assert value_of_job(monitor, 1, tasks.square, 3) == 9
    assert value_of_job(monitor, 2, tasks.remove_square) is None
    assert done_of_job(monitor, 3, tasks.square, 3).status is TaskStatus.FAILED
    assert value_of_job(monitor, 4, tasks.replace_square) is None
    assert value_of_job(monitor, 5, tasks.square, 3) == 27


# ---- tasks that wait for tasks of their own ----------------------------------------------------


def wait_once(path: Path) -> str:
    """As a task does that waits for a future: until the file is there."""
    from sparrow_py.task_context import without_slot

    def wait() -> bool:
        wait_until(path.exists)
        return True

    return "waited" if without_slot(wait) else ""


def test_a_task_waits_once_it_may_and_goes_on_once_it_has_a_slot(monitor: Monitor, tmp_path: Path) -> None:
    path = tmp_path / "gate"
    monitor.send(Common(1, calls.encode_function(wait_once)), run(1, 1, path))
    assert monitor.receive(Waits) == Waits(1)
    path.touch()
    monitor.send(MayWait(1))
    assert monitor.receive(WantsSlot) == WantsSlot(1)
    monitor.send(HasSlot(1))
    assert value(monitor.receive(Done)) == "waited"


def test_what_is_behind_a_task_is_returned_before_it_waits(monitor: Monitor, tmp_path: Path) -> None:
    path = tmp_path / "gate"
    monitor.send(Common(1, calls.encode_function(wait_once)), run(1, 1, path), run(2, 1, path))
    monitor.receive(Waits)
    monitor.send(Revoke([2]), MayWait(1))
    assert monitor.receive(Returned).runs == [2]
    path.touch()
    monitor.receive(WantsSlot)
    monitor.send(HasSlot(1))
    assert monitor.receive(Done).run == 1


def test_results_do_not_wait_for_a_task_that_waits(monitor: Monitor, tmp_path: Path) -> None:
    path = tmp_path / "gate"
    monitor.send(
        Common(1, calls.encode_function(tasks.square)),
        Common(2, calls.encode_function(wait_once)),
        run(1, 1, 3),
        run(2, 2, path),
    )
    assert value(monitor.receive(Done)) == 9
    monitor.receive(Waits)
    path.touch()
    monitor.send(MayWait(2))
    monitor.receive(WantsSlot)
    monitor.send(HasSlot(2))
    done = monitor.receive(Done)
    assert value(done) == "waited" and done.service_s < 10


def test_a_wait_that_is_refused_is_an_error_of_the_task(monitor: Monitor, tmp_path: Path) -> None:
    monitor.send(Common(1, calls.encode_function(wait_once)), run(1, 1, tmp_path), run(2, 1, tmp_path))
    for number in (1, 2):
        monitor.receive(Waits)
        monitor.send(MayWait(number, "there are too many"))
        error, _ = value(monitor.receive(Done))
        assert str(error) == "the task may not wait for tasks of its own: there are too many"
