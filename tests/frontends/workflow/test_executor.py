"""The executor of workflows as a process, from its node monitor's side of the socket, with the engine `serial`."""

import itertools
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frontends.workflow.engines import engine, installed
from frontends.workflow.ir.reading import read as read_dag
from frontends.workflow.running.execution import Cause
from frontends.workflow.running.tasks import (
    TASK_BYTES_MAX,
    Answer,
    Failed,
    Made,
    Probe,
    Script,
    decode_answer,
    encode,
)
from frontends.workflow.warm_engines.script_runner import checked, not_shared
from sparrow_py.errors import InvalidRequest
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_files import read
from sparrow_py.job import TaskStatus
from sparrow_py.processes.process_control import children
from tests.frontends.executor_harness import Monitor
from tests.support.daemons import gone
from tests.support.waiting import wait_until

pytestmark = pytest.mark.rest
MODULE = "frontends.workflow.executor"
DAG = read_dag("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n")
ENDLESS = "def run(inputs, outputs):\n    open(outputs['a'] + '.begun', 'w').close()\n    while True:\n        pass\n"
runs = itertools.count(1)


@pytest.fixture
def monitor(tmp_path: Path) -> Iterator[Monitor]:
    """An executor with one place, whose engines are known."""
    with Monitor(MODULE, tmp_path) as monitor:
        told = monitor.receive(x.Attributes)
        assert told.attributes == {f"workflow.{one.name}": one.version() for one in installed()}
        yield monitor


def script(folder: Path, source: str | None = None, **changes: object) -> Script:
    """The job of `DAG` over a table of three rows; or another source."""
    (folder / "token").write_text("secret")
    pq.write_table(pa.table({"k": [1, 2, 2]}), folder / "t.parquet")
    source = engine("serial").generate(DAG) if source is None else source
    fields: dict[str, object] = {
        "inputs": {"t": str(folder / "t.parquet")}, "outputs": {"a": str(folder / "a.parquet")},
        "store": str(folder), "token": "secret", **changes,
    }  # fmt: skip
    return Script("serial", source, **fields)  # type: ignore[arg-type]


def start(monitor: Monitor, task: Script | Probe) -> int:
    run = next(runs)
    monitor.send(x.Run(run, 0, encode(task)))
    return run


def done(monitor: Monitor, run: int) -> x.Done:
    """The end of the run, past what is told of warm engines."""
    while not isinstance(message := monitor.receive(object), x.Done):
        assert isinstance(message, x.Attributes)
    assert message.run == run
    return message


def do(monitor: Monitor, task: Script) -> Answer:
    ended = done(monitor, start(monitor, task))
    answer = decode_answer(read(ended.result))
    assert (ended.status is TaskStatus.FINISHED) == isinstance(answer, Made)
    return answer


def failed(monitor: Monitor, task: Script) -> Failed:
    answer = do(monitor, task)
    assert isinstance(answer, Failed)
    return answer


def begun(folder: Path) -> None:
    wait_until((folder / "a.parquet.begun").exists, "the script to begin")


def test_a_job_then_another_in_the_warm_process(monitor: Monitor, tmp_path: Path) -> None:
    run = start(monitor, script(tmp_path))
    warm = monitor.receive(x.Attributes)
    assert warm.attributes["workflow_warm"] == "serial"
    first = decode_answer(read(done(monitor, run).result))
    second = do(monitor, script(tmp_path))
    assert isinstance(first, Made)
    assert isinstance(second, Made)
    assert (first.cold, second.cold) == (True, False)
    assert second.relations["a"].rows == 2
    assert sorted(pq.read_table(tmp_path / "a.parquet")["k"].to_pylist()) == [1, 2]


def test_a_store_that_the_node_does_not_see_is_named(monitor: Monitor, tmp_path: Path) -> None:
    elsewhere = failed(monitor, script(tmp_path, store="/nowhere"))
    other = failed(monitor, script(tmp_path, token="another"))
    gone_table = failed(monitor, script(tmp_path, inputs={"t": "/nowhere/t.parquet"}))
    assert [one.cause for one in (elsewhere, other, gone_table)] == [Cause.STORE.value] * 3
    assert "store /nowhere is not shared with node" in elsewhere.reason
    assert "which has another directory of that name" in other.reason
    assert "/nowhere/t.parquet is not there" in gone_table.reason


def test_what_a_script_raises_is_told_apart(monitor: Monitor, tmp_path: Path) -> None:
    broken = failed(monitor, script(tmp_path, "def run(inputs, outputs):\n    raise ValueError('so it is')\n"))
    full = failed(monitor, script(tmp_path, "def run(inputs, outputs):\n    raise MemoryError('no more')\n"))
    endless = failed(
        monitor,
        script(
            tmp_path,
            "class IterationsExceeded(Exception): ...\ndef run(i, o):\n    raise IterationsExceeded('loop', 5)\n",
        ),
    )
    assert (broken.cause, full.cause) == (Cause.ENGINE.value, Cause.MEMORY.value)
    assert broken.reason == "ValueError: so it is"
    assert 'File "<job>", line 2, in run' in broken.details
    assert endless.cause == Cause.WORKFLOW.value
    assert "after 5 iterations" in endless.reason


def test_memory_beyond_what_the_job_may_have_is_refused_and_the_process_is_good_for_the_next(
    monitor: Monitor, tmp_path: Path
) -> None:
    takes = "def run(inputs, outputs):\n    bytearray(4 << 30)\n"
    answer = failed(monitor, script(tmp_path, takes, memory_bytes_max=1 << 30))
    assert answer.cause == Cause.MEMORY.value
    assert isinstance(do(monitor, script(tmp_path)), Made)


def test_a_process_that_has_more_than_the_job_may_have_refuses_and_is_good_for_the_next(
    monitor: Monitor, tmp_path: Path
) -> None:
    """A script that started a thread under such a limit would wait for ever."""
    assert isinstance(do(monitor, script(tmp_path)), Made)
    answer = failed(monitor, script(tmp_path, memory_bytes_max=1 << 20))
    assert answer.cause == Cause.MEMORY.value
    assert "maps" in answer.reason and "1,048,576" in answer.reason
    assert isinstance(do(monitor, script(tmp_path)), Made)


def test_kill_9_of_the_process_of_an_engine_is_told_and_the_next_job_has_another(
    monitor: Monitor, tmp_path: Path
) -> None:
    run = start(monitor, script(tmp_path, ENDLESS))
    begun(tmp_path)
    (process,) = children(monitor.process.pid)
    os.kill(process, signal.SIGKILL)
    answer = decode_answer(read(done(monitor, run).result))
    assert isinstance(answer, Failed)
    assert answer.cause == Cause.DIED.value
    assert answer.reason == "the process of the engine serial ended: signal 9 (SIGKILL)"
    again = do(monitor, script(tmp_path))
    assert isinstance(again, Made)
    assert again.cold


def test_a_run_is_killed(monitor: Monitor, tmp_path: Path) -> None:
    run = start(monitor, script(tmp_path, ENDLESS))
    begun(tmp_path)
    monitor.send(x.Kill([run]))
    ended = done(monitor, run)
    assert (ended.status, ended.error) == (TaskStatus.FAILED, "it was killed")


def test_processes_end_with_the_executor(monitor: Monitor, tmp_path: Path) -> None:
    start(monitor, script(tmp_path, ENDLESS))
    begun(tmp_path)
    (process,) = children(monitor.process.pid)
    monitor.hang_up()
    wait_until(lambda: gone(process), "the process to end")


def test_what_is_no_task_is_refused(monitor: Monitor) -> None:
    run = next(runs)
    monitor.send(x.Run(run, 0, b"nonsense"))
    ended = done(monitor, run)
    assert ended.status is TaskStatus.FAILED
    assert "a task of the app workflow" in ended.error


def test_an_idle_process_ends_and_the_node_says_so(tmp_path: Path) -> None:
    with Monitor(MODULE, tmp_path, "--engine-idle-s", "0.05") as monitor:
        monitor.receive(x.Attributes)
        done(monitor, start(monitor, script(tmp_path)))
        wait_until(lambda: not children(monitor.process.pid), "the process to end")


# ---- scripts that attack the executor, which is there for all users --------------------------------

SPEAKS = "import os, struct, sys\ndef run(inputs, outputs):\n    socket = int(sys.argv[1])\n"


def test_the_process_of_an_engine_is_hidden_and_its_socket_is_its_own(monitor: Monitor, tmp_path: Path) -> None:
    dumpable = "ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)"
    source = f"import ctypes\n{SPEAKS}    raise ValueError(({dumpable}, os.get_inheritable(socket)))\n"
    assert failed(monitor, script(tmp_path, source)).reason == "ValueError: (0, False)"


def test_the_death_of_a_process_is_seen_though_a_child_of_it_holds_its_socket(monitor: Monitor, tmp_path: Path) -> None:
    source = (
        f"{SPEAKS}    if os.fork() == 0:\n        os.setsid()\n"
        f"        open({str(tmp_path / 'child')!r}, 'w').write(str(os.getpid()))\n        os.read(os.pipe()[0], 1)\n"
        f"    while not os.path.exists({str(tmp_path / 'child')!r}): pass\n    os.kill(os.getpid(), 9)\n"
    )
    answer = failed(monitor, script(tmp_path, source))
    assert answer.reason == "the process of the engine serial ended: signal 9 (SIGKILL)"
    os.kill(int((tmp_path / "child").read_text()), signal.SIGKILL)


@pytest.mark.parametrize(
    "said",
    ["struct.pack('!iQ', -1, 1 << 40) + b'x' * 9", "struct.pack('!i', 1) + b'x'"],
    ids=["endless", "no answer"],
)
def test_a_script_that_answers_for_itself_harms_nobody(monitor: Monitor, tmp_path: Path, said: str) -> None:
    answer = failed(monitor, script(tmp_path, f"{SPEAKS}    os.write(socket, {said})\n"))
    assert answer.cause == Cause.DIED.value
    again = do(monitor, script(tmp_path))
    assert isinstance(again, Made)
    assert again.cold


@pytest.mark.parametrize("what", ["link", "pipe", "directory"])
def test_a_token_that_is_no_file_is_not_read(tmp_path: Path, what: str) -> None:
    """Endless files and pipes would hold the executor up."""
    if what == "link":
        (tmp_path / "token").symlink_to("/dev/zero")
    elif what == "pipe":
        os.mkfifo(tmp_path / "token")
    else:
        (tmp_path / "token").mkdir()
    assert "is not shared with node" in not_shared(Script("serial", "", {}, {}, str(tmp_path), "secret"))


def test_a_store_whose_name_no_file_can_have_is_told() -> None:
    assert "is not shared with node" in not_shared(Script("serial", "", {}, {}, "/a\0b", "secret"))


def test_a_task_that_is_too_large_is_not_even_read() -> None:
    with pytest.raises(InvalidRequest, match=r"payload: '67,108,865 bytes' .* at most 67,108,864"):
        checked(x.File("/nowhere", TASK_BYTES_MAX + 1, ""))
    assert checked(b"x") == b"x"
