"""Workflows on a cluster of this process: by the command and from Python, on two engines."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from frontends.cli.__main__ import main
from frontends.workflow import api
from frontends.workflow.api import WARM_OPTIONS, Workflow
from frontends.workflow.example_data import page_rank as page_rank_tables
from frontends.workflow.mapping.history import History
from frontends.workflow.running.cluster_runner import ClusterRunner, JobEnd
from frontends.workflow.running.errors import NoEngines, NothingToResume, WorkflowFailed
from frontends.workflow.running.execution import FailedJob, Job
from frontends.workflow.sources import source_of_file
from sparrow_py import LocalCluster
from sparrow_py.errors import InvalidOption, InvalidRequest
from tests.support.workflow_dags import assert_same_bag

pytestmark = pytest.mark.rest
EXAMPLES = Path(__file__).parents[3] / "examples" / "workflow"
PROPERTIES = pa.table({"id": [1, 2, 3], "street": ["Mill Lane", "Mill Lane", "High Street"], "town": ["Ely"] * 3})
PRICES = pa.table({"id": [1, 2, 3], "price": [0.5, 1.5, 2.0]})
DEAREST = {("Mill Lane", "Ely", 1.5), ("High Street", "Ely", 2.0)}


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(slots=2, node_options=WARM_OPTIONS, forward_output=False) as cluster:
        yield cluster


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """A store and no history."""
    return {"store": tmp_path / "store", "history": None, "threads": 1}


@pytest.fixture
def command(cluster: LocalCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs `sparrow workflow` on the cluster."""
    monkeypatch.setenv("SPARROW_WORKFLOW_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("SPARROW_WORKFLOW_STORE", str(tmp_path / "store"))

    def run(subcommand: str, *arguments: str) -> str:
        given = ["workflow", subcommand, "-s", cluster.addresses[0], *arguments]
        ended = CliRunner().invoke(main, given, catch_exceptions=False)
        assert ended.exit_code == 0, ended.output
        return ended.output

    return run


def written(folder: Path, tables: dict[str, pa.Table]) -> str:
    folder.mkdir()
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return str(folder)


def test_page_rank_and_the_dearest_properties_by_the_command_on_two_engines(command: Any, tmp_path: Path) -> None:
    graph = written(tmp_path / "graph", page_rank_tables(100))
    houses = written(tmp_path / "houses", {"properties": PROPERTIES, "prices": PRICES})
    found = {}
    for engine in ("duckdb", "serial"):
        ranks, dearest = tmp_path / f"ranks-{engine}.parquet", tmp_path / f"dearest-{engine}.parquet"
        common = ("--engine", engine, "--threads", "1")
        told = command("run", str(EXAMPLES / "pagerank.beer"), "--data", graph, "--out", str(ranks), *common)
        command("run", str(EXAMPLES / "max_property_price.hql"), "--data", houses, "--out", str(dearest), *common)
        assert f"job 1 on {engine}" in told
        found[engine] = pq.read_table(ranks)
        assert {tuple(row.values()) for row in pq.read_table(dearest).to_pylist()} == DEAREST
    assert found["duckdb"].num_rows > 10
    assert_same_bag(found["duckdb"], found["serial"])
    assert "sizes of 2 relations" in CliRunner().invoke(main, ["workflow", "history"]).output
    assert list((tmp_path / "store").iterdir()) == []
    assert "duckdb" in command("engines")


def test_a_workflow_from_python_gives_tables_plan_and_times(cluster: LocalCluster, options: dict[str, Any]) -> None:
    workflow = Workflow(source_of_file(EXAMPLES / "max_property_price.hql"))
    answer = workflow.run(cluster, tables={"properties": PROPERTIES, "prices": PRICES}, engines=["serial"], **options)
    assert {tuple(row.values()) for row in answer.table.to_pylist()} == DEAREST
    assert [(one.job.engine, one.end.node) for one in answer.jobs] == [("serial", "node-0")]
    assert answer.text().startswith("job 1 on serial at node-0: ")
    assert 0 < answer.plan_s < answer.seconds
    assert "job 1: serial" in answer.html()
    assert "digraph" in answer.dot()


def test_files_for_results_are_named_as_those_of_tables_are(
    cluster: LocalCluster, options: dict[str, Any], tmp_path: Path
) -> None:
    file = tmp_path / "streets.parquet"
    workflow = Workflow.from_hive("SELECT street FROM properties AS streets")
    answer = workflow.run(
        cluster, tables={"properties": PROPERTIES}, out={"streets": str(file)}, engines=["duckdb"], **options
    )
    assert answer.files == {"streets": file}
    assert pq.read_table(file).num_rows == 3


class Killer:
    """Kills the process of an engine while its first job runs."""

    def __init__(self) -> None:
        self.failed_jobs: list[FailedJob] = []
        self.finished_jobs: list[Job] = []

    def started(self, job: Job) -> None:
        """Nothing is to be done."""

    def finished(self, job: Job, end: JobEnd) -> None:
        self.finished_jobs.append(job)

    def failed(self, failed: FailedJob) -> None:
        self.failed_jobs.append(failed)


def test_kill_9_of_the_process_of_an_engine_then_the_job_runs_again(
    cluster: LocalCluster, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The script itself does it, once: no test can choose a better moment."""
    scripts = ClusterRunner.source
    mark = tmp_path / "killed"
    once = (
        f"import os as _os, pathlib as _p\nif not _p.Path({str(mark)!r}).exists():\n"
        f"    _p.Path({str(mark)!r}).touch()\n    _os.kill(_os.getpid(), {int(signal.SIGKILL)})\n"
    )
    monkeypatch.setattr(ClusterRunner, "source", lambda runner, job: _after_head(scripts(runner, job), once))
    observer = Killer()
    workflow = Workflow(source_of_file(EXAMPLES / "max_property_price.hql"))
    tables = {"properties": PROPERTIES, "prices": PRICES}
    answer = workflow.run(cluster, tables=tables, engines=["serial"], observers=[observer], **options)
    assert answer.table.num_rows == 2
    assert len(observer.failed_jobs) == 1
    assert "signal 9 (SIGKILL)" in str(observer.failed_jobs[0])
    assert [str(one) for one in answer.failures] == [str(one) for one in observer.failed_jobs]


def _after_head(script: str, lines: str) -> str:
    """The script with these lines before its `run`, after what must come first."""
    return script.replace("\ndef run(", f"\n{lines}\n\ndef run(", 1)


def test_an_engine_that_fails_is_followed_by_the_next_best_and_the_reason_is_kept(
    cluster: LocalCluster, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    scripts = ClusterRunner.source
    broken = "raise MemoryError('not today')\n"
    monkeypatch.setattr(
        ClusterRunner,
        "source",
        lambda runner, job: broken if job.engine == "duckdb" else scripts(runner, job),
    )
    workflow = Workflow(source_of_file(EXAMPLES / "max_property_price.hql"))
    answer = workflow.run(
        cluster, tables={"properties": PROPERTIES, "prices": PRICES}, engines=["duckdb", "serial"], **options
    )
    assert [one.job.engine for one in answer.jobs] == ["serial"]
    assert [str(one) for one in answer.failures] == ["job 1 on duckdb: MemoryError: not today"]


def test_what_an_interrupted_run_has_made_is_not_made_again(
    cluster: LocalCluster, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two loops, each a job with its results, are done when the job after them fails in the first run."""
    text = "".join(_loop(name) for name in "ab") + "c = UNION ALL last_a, last_b\nRESULTS c\n"
    workflow = Workflow.from_ir("t = SCAN 't' (k INTEGER)\n" + text)
    tables = {"t": pa.table({"k": [1, 2]})}
    scripts = ClusterRunner.source
    with monkeypatch.context() as patch:
        patch.setattr("frontends.workflow.running.planning.CostPlanner.plan", _unit_by_unit)
        patch.setattr(
            ClusterRunner,
            "source",
            lambda runner, job: "raise ValueError('c')" if "c" in job.names else scripts(runner, job),
        )
        with pytest.raises(WorkflowFailed, match="ValueError: c"):
            workflow.run(cluster, tables=tables, engines=["serial"], off=["rewrites"], **options)
    observer = Killer()
    answer = workflow.run(
        cluster, tables=tables, engines=["serial"], off=["rewrites"], resume=True, observers=[observer], **options
    )
    assert sorted(answer.table["k"].to_pylist()) == [3, 3, 4, 4]
    assert [job.names for job in observer.finished_jobs] == [{"c"}]
    with pytest.raises(NothingToResume):
        workflow.run(cluster, tables=tables, engines=["serial"], resume=True, **options)


def test_more_threads_than_a_node_has_are_an_error(cluster: LocalCluster, options: dict[str, Any]) -> None:
    workflow = Workflow.from_ir("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n")
    with pytest.raises(InvalidRequest, match=r"threads: 3 is not valid; allowed: at most 2, the CPUs of the largest"):
        workflow.run(cluster, tables={"t": pa.table({"k": [1]})}, **{**options, "threads": 3})


def _loop(name: str) -> str:
    return (
        f"loop_{name} = WHILE (t) CARRY (i = j) AT MOST 2 DO\n  i = INPUT (k INTEGER)\n"
        "  j = ARITHMETIC i SET k = {k + 1}\n  RESULTS j\nEND\n"
        f"last_{name} = LOOP RESULT loop_{name} OF i (k INTEGER)\n"
    )


def _unit_by_unit(planner: Any, rest: Any, known: Any, barred: Any) -> Any:
    from frontends.workflow.jobs.graph import JobGraph
    from frontends.workflow.running.execution import PlannedJob

    if any(barred.reason("serial", names) for names in JobGraph(rest).units):
        raise NoEngines("none is left")
    planner.last = planner.last or _replanned(planner, rest)
    return [PlannedJob(frozenset(names), "serial") for names in JobGraph(rest).units]


def _replanned(planner: Any, rest: Any) -> Any:
    from frontends.workflow.mapping.partition import replanned

    return replanned(rest, (), planner.costed_engines(), planner.tables, {})


def test_engines_that_no_node_has_are_told_with_what_to_install(
    cluster: LocalCluster, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "offers", lambda *_: {})
    workflow = Workflow.from_ir("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n")
    tables = {"t": pa.table({"k": [1]})}
    with pytest.raises(NoEngines, match=r"no node has the engine duckdb: .* needs duckdb; the extra workflow"):
        workflow.run(cluster, tables=tables, engines=["duckdb"], **options)
    with pytest.raises(NoEngines, match="no node has the engine of any workflow"):
        workflow.run(cluster, tables=tables, **options)


USERS_CODE = """import os, sys
import pyarrow as pa

def where(table):
    with open({mark!r}, "a") as file:
        file.write(sys.argv[0] + "\\n")
    return pa.table({{"k": [number * 2 for number in table["k"].to_pylist()], "at": [os.getpid()] * len(table)}})
"""


def test_udfs_and_black_boxes_run_in_executors_alone(
    cluster: LocalCluster, options: dict[str, Any], tmp_path: Path
) -> None:
    """The daemons of this cluster are processes of their own; only processes of engines say that they called it."""
    mark = tmp_path / "called"
    (tmp_path / "code.py").write_text(USERS_CODE.format(mark=str(mark)))
    text = (
        "CREATE RELATION t WITH COLUMNS (k INTEGER),\n"
        "UDF ./code.py where ON t AS called WITH COLUMNS (k INTEGER, at INTEGER),\n"
        "BLACK BOX duckdb 'SELECT sum(k) AS total, min(at) AS at FROM called' ON called AS boxed "
        "WITH COLUMNS (total INTEGER, at INTEGER)"
    )
    workflow = Workflow.from_beer(text, str(tmp_path / "w.beer"))
    answer = workflow.run(cluster, tables={"t": pa.table({"k": [1, 2, 3]})}, engines=["serial", "duckdb"], **options)
    (row,) = answer.table.to_pylist()
    assert row["total"] == 12
    assert row["at"] != os.getpid()
    assert [one.job.engine for one in answer.jobs] == ["serial", "duckdb"]
    assert [Path(line).name for line in mark.read_text().split()] == ["engine_process.py"]


def test_code_of_a_udf_that_has_changed_is_read_anew_by_a_warm_process(
    cluster: LocalCluster, options: dict[str, Any], tmp_path: Path
) -> None:
    text = "CREATE RELATION t WITH COLUMNS (k INTEGER),\nUDF ./code.py f ON t AS u WITH COLUMNS (k INTEGER)"
    workflow, made = Workflow.from_beer(text, str(tmp_path / "w.beer")), []
    for factor in (2, 3):
        doubled = f"[n * {factor} for n in t['k'].to_pylist()]"
        (tmp_path / "code.py").write_text(f"import pyarrow as pa\ndef f(t):\n    return pa.table({{'k': {doubled}}})\n")
        answer = workflow.run(cluster, tables={"t": pa.table({"k": [1]})}, engines=["serial"], **options)
        made.append(answer.table["k"].to_pylist())
    assert made == [[2], [3]]


def test_mapreduce_does_not_wait_for_the_slot_that_its_job_holds(
    options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tasks run on a cluster within its job's, also where the node monitor's environment names another."""
    monkeypatch.setenv("SPARROW_SCHEDULER", "127.0.0.1:1")
    text = "t = SCAN 't' (k INTEGER)\na = AGGREGATE t BY (k) TO (n = COUNT)\nRESULTS a\n"
    with LocalCluster(slots=1, node_options=WARM_OPTIONS, forward_output=False) as cluster:
        answer = Workflow.from_ir(text).run(
            cluster, tables={"t": pa.table({"k": [1, 1, 2]})}, engines=["mapreduce"], **options
        )
    assert sorted(map(tuple, (row.values() for row in answer.table.to_pylist()))) == [(1, 2), (2, 1)]


def test_a_history_that_fails_later_costs_nothing_but_what_would_be_learned(
    cluster: LocalCluster, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    def locked(*_: object) -> None:
        raise InvalidOption("history", "h.sqlite", "a file that no other program keeps locked")

    monkeypatch.setattr(History, "add_sizes", locked)
    answer = Workflow.from_ir("t = SCAN 't' (k INTEGER)\na = DISTINCT t\nRESULTS a\n").run(
        cluster, tables={"t": pa.table({"k": [1, 1]})}, engines=["serial"],
        **options | {"history": tmp_path / "h.sqlite"},
    )  # fmt: skip
    assert answer.table["k"].to_pylist() == [1]
    assert "nothing more is learned of this run: history" in caplog.text
