"""An executor that nobody shuts down: at the interpreter's end what was submitted is finished, and no more is taken."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from sparrow_py import Client, LocalCluster, NoScheduler, SparrowExecutor, executor
from sparrow_py.wire import blobs
from tests.support import tasks
from tests.support.daemons import clean_environment
from tests.support.waiting import TIMEOUT_S, wait_until

BEGINNING = """
import sys
from sparrow_py import SparrowExecutor
from tests.support import tasks

def say(future):
    print("done", future.result(), flush=True)

executor = SparrowExecutor(sys.argv[1])
"""


def ended(program: str, *arguments: object) -> tuple[str, str]:
    """What a program said on its standard output and error before it ended well."""
    root = str(Path(__file__).parents[2])
    over = subprocess.run(
        [sys.executable, "-c", program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT_S,
        check=False,
        env={**clean_environment(), "PYTHONPATH": root},
    )
    assert over.returncode == 0, over.stderr
    return over.stdout, over.stderr


def test_what_was_submitted_is_finished_and_hooks_submit_nothing(cluster: LocalCluster) -> None:
    """Also what is too large for a message, for which threads of the client's loop have work that late."""
    said, complaints = ended(
        BEGINNING
        + """
import atexit

@atexit.register
def last():
    for use in (executor.submit, executor.map):
        try:
            use(tasks.square, [2])
        except RuntimeError as error:
            print(error)
    executor.shutdown()

for number in range(9):
    executor.submit(tasks.square, number).add_done_callback(say)
executor.submit(len, b"a" * 2_000_000).add_done_callback(say)
""",
        cluster.addresses[0],
    )
    *done, first, second = said.splitlines()
    assert sorted(done) == sorted([*(f"done {number * number}" for number in range(9)), "done 2000000"])
    assert first == second == "cannot schedule new futures after interpreter shutdown"
    assert complaints == ""


def test_what_was_left_by_a_shutdown_that_does_not_wait_is_finished(cluster: LocalCluster) -> None:
    said, complaints = ended(
        BEGINNING
        + """
for number in range(9):
    executor.submit(tasks.square, number).add_done_callback(say)
executor.shutdown(wait=False)
""",
        cluster.addresses[0],
    )
    assert sorted(said.splitlines()) == sorted(f"done {number * number}" for number in range(9))
    assert complaints == ""


@pytest.mark.rest
def test_what_was_cancelled_by_a_shutdown_that_does_not_wait_ends(cluster: LocalCluster) -> None:
    said, complaints = ended(
        BEGINNING
        + """
for number in range(200):
    executor.submit(tasks.square, number).add_done_callback(lambda future: sys.stdout.write(f"{future.done()}\\n"))
executor.shutdown(wait=False, cancel_futures=True)
""",
        cluster.addresses[0],
    )
    assert said.split() == ["True"] * 200
    assert complaints == ""


@pytest.mark.processes
def test_an_embedded_cluster_ends_after_the_work_and_a_forked_process_waits_for_nothing() -> None:
    said, complaints = ended(
        """
import multiprocessing, os, warnings
from sparrow_py import LocalCluster, SparrowExecutor
from tests.support import tasks

class Shape(LocalCluster):
    def __init__(self, **options):
        super().__init__(slots=1, **options)
        print(*[process.pid for process in (*self.scheduler_processes, *self.node_processes)], flush=True)

import sparrow_py.cluster
sparrow_py.cluster.LocalCluster = Shape
executor = SparrowExecutor()
warnings.simplefilter("ignore")
child = multiprocessing.get_context("fork").Process(target=int)
child.start()
child.join()
print(child.exitcode, flush=True)
executor.submit(tasks.square, 12).add_done_callback(lambda future: print("done", future.result(), flush=True))
"""
    )
    pids, *rest = said.splitlines()
    assert rest == ["0", "done 144"]
    for pid in pids.split():
        assert not Path(f"/proc/{pid}").exists()
    assert complaints == ""


def test_an_executor_that_is_made_in_the_end_takes_nothing(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_exiting", True)
    late = SparrowExecutor(cluster)
    with pytest.raises(RuntimeError, match="cannot schedule new futures after interpreter shutdown"):
        late.submit(tasks.square, 1)
    late.shutdown()


def test_the_end_does_not_wait_for_schedulers_that_are_gone(
    cluster: LocalCluster, gate: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(executor, "EXIT_LOOK_S", 0.01)
    pool = SparrowExecutor(cluster)
    held = pool.submit(tasks.hold, gate, "held")
    wait_until(lambda: tasks.started(gate, "held"))
    pool._end.begin_at_exit()
    ending = threading.Thread(target=pool._end.finish_at_exit)
    monkeypatch.setattr(Client, "cut_off_s", lambda _: executor.EXIT_PATIENCE_S)
    ending.start()
    ending.join(0.1)
    assert ending.is_alive()  # A scheduler may be back.
    monkeypatch.setattr(Client, "cut_off_s", lambda _: executor.EXIT_PATIENCE_S + 1.0)
    ending.join(TIMEOUT_S)
    assert not ending.is_alive()
    with pytest.raises(NoScheduler, match="the interpreter ends"):
        held.result()
    assert "1 call is given up" in caplog.text


async def test_large_data_is_hashed_though_no_thread_can_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(blobs.asyncio, "to_thread", refuse)  # type: ignore[attr-defined]
    assert await blobs.sha256_hex_aside(b"data") == blobs.sha256_hex(b"data")
