"""Queries as jobs: their names, by which a plane of policy altruistic knows them again."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from frontends.sql.compiler import compile_query
from frontends.sql.dataset import FORMAT, MANIFEST, Dataset, Manifest
from frontends.sql.query_jobs import job_name, query_job
from frontends.sql.tasks import APP
from frontends.sql.tpch import REPLICATED, STORED
from frontends.sql.tpch_queries import tpch_query
from sparrow_py.job import JobSpec
from sparrow_py.wire import messages as m
from tests.support.led_rig import LedRig
from tests.support.scheduler_rig import node_info

PARTITIONS = 3
QUERIES = (2, 3, 18, 21)
"""With subqueries, joins and group-bys of several tasks."""
PRINT_STAGES = """
from frontends.sql.compiler import compile_query
from frontends.sql.tpch import REPLICATED, STORED
from frontends.sql.tpch_queries import tpch_query
print([(stage.name, stage.after) for number in {numbers} for stage in compile_query(tpch_query(number)).stages])
"""


def dataset(directory: Path, name: str = "made", number: str = "1") -> Dataset:
    """A dataset without data: what compiling queries needs to know."""
    directory.mkdir()
    rows = dict.fromkeys((*REPLICATED, *STORED), 1)
    parts = {name: [1] * PARTITIONS for name in STORED}
    described = Manifest(FORMAT, name, number, 0.01, PARTITIONS, rows, parts, {}, 0, 0)
    (directory / MANIFEST).write_bytes(msgspec.json.encode(described))
    return Dataset(directory)


def job_of(sql: str, data: Dataset) -> JobSpec:
    spec = query_job(sql, compile_query(sql, data.statistics), data, [["n"]] * PARTITIONS)
    spec.validate()
    return spec


def test_a_job_is_named_by_its_query_and_the_data(tmp_path: Path) -> None:
    first, other = dataset(tmp_path / "first"), dataset(tmp_path / "other", number="2")
    names = [job_name(tpch_query(number), data) for data in (first, other) for number in range(1, 23)]
    assert len(set(names)) == len(names)
    assert job_name(tpch_query(3), first) == job_name(tpch_query(3), Dataset(tmp_path / "first"))
    assert job_of(tpch_query(3), first).name == job_name(tpch_query(3), first)
    assert names[0].startswith("query ") and len(names[0]) == len("query 3f9a2c1b")


@pytest.mark.rest
def test_stages_of_a_query_have_the_same_names_in_every_process() -> None:
    """What hashes of texts may not change: sets in another order."""
    program = PRINT_STAGES.format(numbers=QUERIES)
    found = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1 and "order-by" in found.pop()


def test_a_query_that_comes_again_is_known_at_a_plane_of_policy_altruistic(tmp_path: Path) -> None:
    """And its plan is made with what its tasks took; another query's is not."""
    data = dataset(tmp_path / "data")
    info = node_info(8, apps={APP: ""}, attributes={data.attribute: "0,1,2"})
    rig = LedRig({"n": info}, policy=m.ALTRUISTIC, wait_for_nodes_s=1000.0)

    def submit(job_id: str, sql: str) -> bool:
        """Whether it is known how long all of its tasks take."""
        spec = job_of(sql, data)
        stages = [
            m.Stage(each.app, len(each.tasks), b"", "", 2.0, 0, None, name=each.name, after=tuple(each.after))
            for each in spec.stages
        ]
        submission = m.SubmitJob(job_id, 0, spec.name, stages, 3, False, None, False, wait_for_nodes_s=1000.0)
        count = sum(stage.task_count for stage in stages)
        rig.client(submission, m.AddTasks(job_id, 0, [b"t"] * count, None))
        can_yield: bool = rig.core.jobs[job_id].stages[0].plan.live.can_yield
        return can_yield

    assert not submit("first", tpch_query(3))
    while rig.running["n"]:
        rig.end("n", next(iter(rig.running["n"])))
    assert "first" not in rig.core.jobs
    assert submit("again", tpch_query(3))
    assert not submit("another", tpch_query(6))
