"""The sql executor as a process, from its node monitor's side of the socket."""

import itertools
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.sql.dataset import Dataset
from frontends.sql.results import decode_tables
from frontends.sql.tasks import Drop, Fragment, Input, Load, Task, encode_task
from sparrow_py.executors import executor_protocol as x
from sparrow_py.executors.executor_files import read
from sparrow_py.job import TaskStatus
from sparrow_py.start import command
from tests.frontends.executor_harness import Monitor
from tests.support.waiting import TIMEOUT_S

MODULE = "frontends.sql.executor"
ENDLESS = "SELECT count(*) FROM range(100000000) a, range(100000000) b WHERE hash(a.range, b.range) = 1"
runs = itertools.count(1)


@pytest.fixture(scope="module")
def monitor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Monitor]:
    """An executor with two places, which no test changes."""
    with two_places(tmp_path_factory.mktemp("executor")) as monitor:
        yield monitor


@pytest.fixture
def own_monitor(tmp_path: Path) -> Iterator[Monitor]:
    """One for a test that loads partitions or ends it."""
    with two_places(tmp_path) as monitor:
        yield monitor


def two_places(folder: Path) -> Monitor:
    return Monitor(MODULE, folder, "--any-data", SPARROW_EXECUTOR_PLACES="2")


def start(monitor: Monitor, task: Task, *inputs: x.Data) -> int:
    run = next(runs)
    monitor.send(x.Run(run, 0, encode_task(task), list(inputs)))
    return run


def do(monitor: Monitor, task: Task, *inputs: x.Data) -> x.Done:
    run = start(monitor, task, *inputs)
    done = monitor.receive(x.Done)
    assert done.run == run
    return done


def test_the_hello_names_app_places_and_runtime(monitor: Monitor) -> None:
    assert (monitor.hello.app, monitor.hello.places, monitor.hello.id) == ("sql", 2, "e1")
    assert monitor.hello.runtime.startswith("duckdb ")


def test_the_process_hides_before_the_imports_that_take_long(tmp_path: Path) -> None:
    """Until it hides, other processes of its account can read its memory."""
    PR_GET_DUMPABLE = 3
    code = f"import ctypes, os; os._exit(40 + ctypes.CDLL(None).prctl({PR_GET_DUMPABLE}, 0, 0, 0, 0))"
    for module in ("duckdb", "pyarrow", "msgspec"):
        (tmp_path / f"{module}.py").write_text(code)
    ended = subprocess.run(command(MODULE), env={"PYTHONPATH": str(tmp_path)}, check=False, timeout=TIMEOUT_S)
    assert ended.returncode == 40


@pytest.mark.rest
def test_held_partitions_are_advertised_before_the_load_ends(own_monitor: Monitor, tpch_hundredth: Path) -> None:
    dataset = Dataset(tpch_hundredth)
    run = start(own_monitor, Load(str(tpch_hundredth), [3, 1]))
    assert own_monitor.receive(x.Attributes).attributes == {dataset.attribute: "3"}
    assert own_monitor.receive(x.Attributes).attributes == {dataset.attribute: "1,3"}
    done = own_monitor.receive(x.Done)
    assert (done.run, done.status) == (run, TaskStatus.FINISHED)
    # Partitions that are held are not loaded again.
    assert do(own_monitor, Load(str(tpch_hundredth), [3])).status is TaskStatus.FINISHED
    start(own_monitor, Drop(dataset.key))
    assert own_monitor.receive(x.Attributes).attributes == {}
    assert own_monitor.receive(x.Done).status is TaskStatus.FINISHED


def test_a_fragment_for_a_partition_that_is_not_held_loads_it(own_monitor: Monitor, tpch_hundredth: Path) -> None:
    start(own_monitor, Fragment("SELECT count(*) AS n FROM denorm", str(tpch_hundredth), 5, last=True))
    assert own_monitor.receive(x.Attributes).attributes == {Dataset(tpch_hundredth).attribute: "5"}
    rows = Dataset(tpch_hundredth).manifest.partition_rows["denorm"][5]
    assert decode_tables([read(own_monitor.receive(x.Done).result)]).to_pylist() == [{"n": rows}]


def test_results_for_other_stages_are_files_and_a_small_last_result_is_inline(monitor: Monitor) -> None:
    first = do(monitor, Fragment("SELECT 1 AS a"))
    assert isinstance(first.result, x.File)
    second = do(monitor, Fragment("SELECT 2 AS a"))
    both = Fragment('SELECT sum(a)::INTEGER AS total FROM "stage one"', inputs=[Input("stage one", 2)], last=True)
    last = do(monitor, both, first.result, second.result)
    assert isinstance(last.result, bytes)
    assert decode_tables([last.result]).to_pylist() == [{"total": 3}]


def test_a_task_reads_its_bucket_of_its_inputs(monitor: Monitor) -> None:
    cut = do(monitor, Fragment("SELECT range AS a, (range % 3)::UTINYINT AS __bucket FROM range(10)", buckets=3))
    for bucket, expected in enumerate([[0, 3, 6, 9], [1, 4, 7], [2, 5, 8]]):
        task = Fragment('SELECT a FROM "stage cut" ORDER BY a', inputs=[Input("stage cut", 1, bucket)], last=True)
        result = do(monitor, task, cut.result).result
        assert decode_tables([read(result)]).column("a").to_pylist() == expected


@pytest.mark.parametrize(
    ("task", "error"),
    [
        (Fragment("SELECT nothing"), 'Referenced column "nothing" was not found'),
        (Fragment("SELECT * FROM read_csv('/etc/passwd')"), "may not use the table function read_csv"),
        (Fragment("COPY (SELECT 1) TO '/tmp/sparrow-sql-test'"), "a fragment must be one SELECT"),
        (Fragment("SELECT 1", "/nowhere"), "manifest.json: No such file or directory"),
        (Load("/nowhere", [0]), "manifest.json: No such file or directory"),
        (Fragment("SELECT 1 FROM x", inputs=[Input("x", 0)]), "results of the stages before"),
    ],
)
def test_an_invalid_task_fails_and_the_executor_goes_on(monitor: Monitor, task: Task, error: str) -> None:
    done = do(monitor, task)
    assert done.status is TaskStatus.FAILED
    assert error in done.error
    assert "\n" not in done.error
    assert do(monitor, Fragment("SELECT 1 AS a")).status is TaskStatus.FINISHED


def test_a_payload_that_is_not_a_task_fails(monitor: Monitor) -> None:
    monitor.send(x.Run(next(runs), 0, b"select 1"))
    done = monitor.receive(x.Done)
    assert done.status is TaskStatus.FAILED
    assert "payload" in done.error


def test_a_partition_that_does_not_exist_is_refused(monitor: Monitor, tpch_hundredth: Path) -> None:
    done = do(monitor, Load(str(tpch_hundredth), [30]))
    assert done.status is TaskStatus.FAILED
    assert "partition: 30 is not valid; allowed: a whole number from 0 to 29" in done.error


def test_a_run_that_is_killed_ends_and_others_go_on(monitor: Monitor) -> None:
    endless = start(monitor, Fragment(ENDLESS))
    assert do(monitor, Fragment("SELECT 1 AS a")).status is TaskStatus.FINISHED
    monitor.send(x.Kill([endless, 999_999]))
    done = monitor.receive(x.Done)
    assert (done.run, done.status, done.error) == (endless, TaskStatus.FAILED, "it was killed")
    assert do(monitor, Fragment("SELECT 1 AS a")).status is TaskStatus.FINISHED


def test_runs_that_wait_are_returned_when_revoked(monitor: Monitor) -> None:
    busy = [start(monitor, Fragment(ENDLESS)) for _ in range(2)]
    waiting = start(monitor, Fragment("SELECT 1 AS a"))
    monitor.send(x.Revoke([waiting, 999_999]))
    assert monitor.receive(x.Returned).runs == [waiting]
    monitor.send(x.Kill(busy))
    assert {monitor.receive(x.Done).run for _ in busy} == set(busy)


def test_the_executor_ends_at_once_when_its_node_monitor_goes(own_monitor: Monitor) -> None:
    start(own_monitor, Fragment(ENDLESS))
    own_monitor.hang_up()
    assert own_monitor.process.wait(30) == 0


@pytest.mark.rest
def test_the_executor_passes_the_conformance_check(tmp_path: Path) -> None:
    (tmp_path / "payload").write_bytes(encode_task(Fragment("SELECT 1 AS a", last=True)))
    arguments = ["--payload-file", str(tmp_path / "payload"), "--app", "sql", "--places", "2"]
    ended = subprocess.run(
        [sys.executable, "-m", "node_monitor.conformance", *arguments, "--", sys.executable, "-m", MODULE],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)},
    )
    assert ended.returncode == 0, ended.stdout
    assert "FAIL" not in ended.stdout


@pytest.mark.parametrize("places", ["0", "many"])
@pytest.mark.rest
def test_an_invalid_number_of_places_is_an_error(places: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", MODULE],
        env=os.environ | {"SPARROW_EXECUTOR_PLACES": places, "SPARROW_EXECUTOR_SOCKET": "/nowhere"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 1
    assert f"SPARROW_EXECUTOR_PLACES: '{places}' is not valid" in ended.stderr
