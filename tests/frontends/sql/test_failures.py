"""Nodes and executors that are killed during queries (SIGKILL, real processes), and partitions that no node holds."""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from frontends.sql.errors import PartitionLost, QueryFailed
from frontends.sql.frontend import Answer, SqlFrontend
from sparrow_py import LocalCluster
from tests.support.daemons import get_json, nodes_of
from tests.support.tpch import Reference, check_same
from tests.support.waiting import TIMEOUT_S, wait_until

SLOW = """
    SELECT n_nationkey, count(*) AS pairs, sum(l_quantity) AS quantity
    FROM lineitem, part, nation
    WHERE l_quantity + p_size + n_nationkey > 60 AND p_size < 3
    GROUP BY n_nationkey ORDER BY n_nationkey
"""
"""A query whose scans take long enough that a process can be killed during them."""
SLOW_BY_COUNTS = """
    WITH items AS (SELECT l_quantity, count(*) AS many FROM lineitem GROUP BY l_quantity),
         parts AS (SELECT p_size, count(*) AS many FROM part WHERE p_size < 3 GROUP BY p_size)
    SELECT n_nationkey, sum(items.many * parts.many)::BIGINT AS pairs,
           sum(l_quantity * (items.many * parts.many)::DECIMAL(18, 0))::DECIMAL(38, 2) AS quantity
    FROM items, parts, nation
    WHERE l_quantity + p_size + n_nationkey > 60
    GROUP BY n_nationkey ORDER BY n_nationkey
"""
"""The same without a row for each pair: it takes no time."""
QUICK = "SELECT l_linenumber, count(*) AS n FROM lineitem GROUP BY l_linenumber ORDER BY l_linenumber"
PARTITIONS = 30


@pytest.fixture(scope="module")
def slow_answer(reference_hundredth: Reference) -> pa.Table:
    """What DuckDB answers to `SLOW`."""
    return reference_hundredth.query(SLOW_BY_COUNTS)


@pytest.fixture
def doomed(tmp_path: Path) -> Iterator[LocalCluster]:
    """A cluster for a test that kills processes."""
    with LocalCluster(node_monitors=3, slots=1, log_dir=tmp_path / "logs") as cluster:
        yield cluster


def finished_tasks(cluster: LocalCluster) -> int:
    """The number of finished tasks of the query that runs; 0 if no query runs."""
    jobs = get_json(cluster.addresses[0], "/v1/jobs")["jobs"]
    return sum(job["finished"] for job in jobs if job["name"].startswith("query ") and job["state"] == "running")


def killed_under_way(cluster: LocalCluster, frontend: SqlFrontend, kill: Callable[[], None]) -> Answer:
    """The answer of a query during which `kill` is called."""
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(frontend.run, SLOW, TIMEOUT_S * 2)
        wait_until(lambda: running.done() or finished_tasks(cluster) >= 5, "scans that have finished")
        assert not running.done()
        kill()
        return running.result()


def executor_of(cluster: LocalCluster, node: int) -> psutil.Process:
    """The sql executor of this node monitor."""
    children = psutil.Process(cluster.node_processes[node].pid).children()
    return next(child for child in children if "frontends.sql.executor" in child.cmdline())


@pytest.mark.rest
def test_a_node_that_dies_during_a_query_is_replaced_by_replicas(
    doomed: LocalCluster, tpch_hundredth: Path, reference_hundredth: Reference, slow_answer: pa.Table
) -> None:
    with SqlFrontend(doomed, tpch_hundredth) as frontend:
        frontend.place(2)
        answer = killed_under_way(doomed, frontend, doomed.node_processes[0].kill)
        check_same(answer.table, slow_answer, ordered=True)
        wait_until(lambda: set(nodes_of(doomed.addresses[0])) == {"node-1", "node-2"})
        # The node's replicas are missing now; queries go on without them, and `repair` makes new ones.
        assert {len(nodes) for nodes in frontend.holders()} == {1, 2}
        check_same(frontend.query(QUICK, TIMEOUT_S), reference_hundredth.query(QUICK), ordered=True)
        repaired = frontend.repair(2)
        assert set(repaired) == {"node-1", "node-2"}
        assert {frozenset(nodes) for nodes in frontend.holders()} == {frozenset({"node-1", "node-2"})}
        assert frontend.repair(2) == {}


@pytest.mark.rest
def test_results_that_are_lost_with_their_node_are_computed_again(
    doomed: LocalCluster, tpch_hundredth: Path, slow_answer: pa.Table
) -> None:
    """One node has done all scans so far, and has their results, when it dies."""
    with SqlFrontend(doomed, tpch_hundredth) as frontend:
        frontend.place(3)
        stopped = [psutil.Process(doomed.node_processes[node].pid) for node in (1, 2)]
        for process in stopped:
            process.suspend()  # So that node-0 alone scans …
        try:
            with ThreadPoolExecutor(1) as threads:
                running = threads.submit(frontend.run, SLOW, TIMEOUT_S * 2)
                wait_until(lambda: running.done() or finished_tasks(doomed) >= 3, "scans of node-0")
                assert not running.done()
                doomed.node_processes[0].kill()  # … and takes its results with it.
                for process in stopped:
                    process.resume()
                answer = running.result()
        finally:
            for process in stopped:
                process.resume()
        check_same(answer.table, slow_answer, ordered=True)
        scan = answer.stages[0]
        assert scan.name == "scan"
        assert "node-0" in scan.nodes, "an outcome is told once, where it was first"


@pytest.mark.rest
def test_partitions_of_an_executor_that_dies_during_a_query_are_loaded_again(
    doomed: LocalCluster, tpch_hundredth: Path, slow_answer: pa.Table
) -> None:
    with SqlFrontend(doomed, tpch_hundredth) as frontend:
        frontend.place(1)
        executor = executor_of(doomed, 1)
        answer = killed_under_way(doomed, frontend, executor.kill)
        check_same(answer.table, slow_answer, ordered=True)


@pytest.mark.rest
def test_the_partitions_of_a_dead_executor_are_not_advertised(doomed: LocalCluster, tpch_hundredth: Path) -> None:
    with SqlFrontend(doomed, tpch_hundredth) as frontend:
        frontend.place(2)
        attribute = frontend.dataset.attribute

        def advertised(node: str) -> str | None:
            value: str | None = nodes_of(doomed.addresses[0])[node]["attributes"].get(attribute)
            return value

        assert advertised("node-1") is not None
        assert get_json(doomed.node_processes[1].address, "/v1/nodes")["nodes"][0]["attributes"][attribute]
        executor_of(doomed, 1).kill()
        wait_until(lambda: advertised("node-1") is None)
        assert advertised("node-0") is not None
        assert {len(nodes) for nodes in frontend.holders()} == {1, 2}
        assert list(frontend.repair(2)) == ["node-1"]
        assert {len(nodes) for nodes in frontend.holders()} == {2}


@pytest.mark.rest
def test_a_scheduler_that_comes_later_is_told_what_nodes_hold(tmp_path: Path, tpch_hundredth: Path) -> None:
    with LocalCluster(schedulers=2, slots=1, log_dir=tmp_path / "logs") as cluster:
        with SqlFrontend(cluster, tpch_hundredth) as frontend:
            frontend.place(1)
            attribute = frontend.dataset.attribute
        held = ",".join(map(str, range(PARTITIONS)))
        for address in cluster.addresses:
            wait_until(lambda address=address: nodes_of(address)["node-0"]["attributes"].get(attribute) == held)  # type: ignore[misc]


@pytest.mark.rest
def test_a_partition_that_no_live_node_holds_is_an_error_that_names_it(
    doomed: LocalCluster, tpch_hundredth: Path
) -> None:
    with SqlFrontend(doomed, tpch_hundredth) as frontend:
        with pytest.raises(PartitionLost) as caught:
            frontend.query("SELECT count(*) FROM orders")
        assert caught.value.partitions == list(range(PARTITIONS))
        frontend.place(1)
        gone = [partition for partition, nodes in enumerate(frontend.holders()) if nodes == ["node-2"]]
        assert gone
        doomed.node_processes[2].kill()
        wait_until(lambda: "node-2" not in nodes_of(doomed.addresses[0]))
        frontend.nodes()
        with pytest.raises(PartitionLost) as caught:
            frontend.query("SELECT count(*) FROM orders")
        assert (caught.value.tables, caught.value.partitions) == (["orders"], gone)
        assert f"partitions {', '.join(map(str, gone))} of orders" in str(caught.value)
        # Tables that every node holds whole are still there.
        assert frontend.query("SELECT count(*) AS n FROM nation").to_pylist() == [{"n": 25}]


@pytest.mark.rest
def test_a_partition_is_lost_in_the_midst_of_a_query(doomed: LocalCluster, tpch_hundredth: Path) -> None:
    with SqlFrontend(doomed, tpch_hundredth) as frontend:
        frontend.place(1)
        with pytest.raises(PartitionLost, match="of denorm") as caught:
            killed_under_way(doomed, frontend, doomed.node_processes[0].kill)
        assert caught.value.partitions == list(range(0, PARTITIONS, 3))


@pytest.mark.rest
def test_files_that_are_gone_are_an_error_that_names_table_and_partition(
    doomed: LocalCluster, tpch_hundredth: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    for path in tpch_hundredth.rglob("*"):
        if path.is_file() and "orders/part=4" not in str(path):
            target = copy / path.relative_to(tpch_hundredth)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.link(path, target)
    with (
        SqlFrontend(doomed, copy) as frontend,
        pytest.raises(Exception, match="partition 4 of orders has no file"),
    ):
        frontend.place(1)


def test_a_query_that_takes_too_long_is_stopped(sql_cluster: LocalCluster, frontend_hundredth: SqlFrontend) -> None:
    endless = "SELECT count(*) FROM part a, part b, part c WHERE hash(a.p_name || b.p_name || c.p_name) = 1"
    with pytest.raises(TimeoutError):
        frontend_hundredth.query(endless, timeout_s=0.5)
    # The slots are free again: no task of the query runs on.
    wait_until(lambda: all(node["busy"] == 0 for node in nodes_of(sql_cluster.addresses[0]).values()))


def test_a_fragment_that_fails_is_an_error_that_names_its_task(frontend_hundredth: SqlFrontend) -> None:
    with pytest.raises(QueryFailed, match=r"^task \d+ of stage scan on node-\d: .*Could not convert string"):
        frontend_hundredth.query("SELECT sum(CAST(l_shipmode AS INTEGER)) FROM lineitem")


def test_queries_of_several_threads_share_a_frontend(
    frontend_hundredth: SqlFrontend, reference_hundredth: Reference
) -> None:
    sqls = [f"SELECT count(*) AS n, sum(l_tax) AS t FROM lineitem WHERE l_linenumber = {n}" for n in range(1, 8)]
    start = threading.Barrier(len(sqls))

    def ask(sql: str) -> Answer:
        start.wait(TIMEOUT_S)
        return frontend_hundredth.run(sql, TIMEOUT_S)

    with ThreadPoolExecutor(len(sqls)) as threads:
        for sql, answer in zip(sqls, threads.map(ask, sqls), strict=True):
            check_same(answer.table, reference_hundredth.query(sql), ordered=True)
