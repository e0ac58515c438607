"""The command `sparrow sql`."""

import csv
import io
import json
import math
import os
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from frontends.cli.__main__ import main
from frontends.cli.sql import print_answer
from frontends.sql.dataset import Dataset
from frontends.sql.frontend import Answer, SqlFrontend
from frontends.sql.plan import Plan
from sparrow_py import LocalCluster
from sparrow_py.distribution import install_command
from tests.frontends.sql.conftest import FEW_PARTITIONS
from tests.support.daemons import clean_environment


def sparrow_sql(*arguments: str) -> Result:
    """What comes of the command in this process: another one would import all that it needs anew."""
    return CliRunner().invoke(main, ["sql", *arguments])


@pytest.fixture
def where(sql_cluster: LocalCluster, frontend_hundredth: SqlFrontend) -> list[str]:
    """Options that name the cluster and the dataset that it holds."""
    return ["-s", sql_cluster.addresses[0], "--data", str(frontend_hundredth.dataset.directory)]


def test_a_table(where: list[str]) -> None:
    """By the command in a process of its own."""
    sql = "SELECT r_name, r_regionkey AS key, NULL AS none FROM region ORDER BY 2 LIMIT 2"
    command = [sys.executable, "-m", "frontends.cli", "sql", sql, *where]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=90, env=clean_environment())
    assert ended.stdout.splitlines() == ["r_name   key  none", "AFRICA     0  NULL", "AMERICA    1  NULL"]
    assert (ended.stderr, ended.returncode) == ("", 0)


@pytest.mark.rest
def test_csv_and_json(where: list[str]) -> None:
    sql = (
        "SELECT o_orderpriority, sum(o_totalprice) AS total, max(o_orderdate) AS last FROM orders GROUP BY 1 ORDER BY 1"
    )
    rows = list(csv.DictReader(io.StringIO(sparrow_sql(sql, "--csv", *where).stdout)))
    objects = json.loads(sparrow_sql("--json", *where, sql).stdout)
    assert [row["o_orderpriority"] for row in rows] == [entry["o_orderpriority"] for entry in objects]
    assert [float(row["total"]) for row in rows] == [entry["total"] for entry in objects]
    assert rows[0]["last"] == objects[0]["last"] <= "1998-08-02"


def test_nan_and_infinities_are_texts_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Within lists, too."""
    table = pa.table({"x": [math.nan, None], "listed": [[math.inf, 1.0], [-math.inf]], "d": [Decimal("1.5"), None]})
    print_answer(Answer(table, b"", Plan((), ()), (), 0.0), "json")
    printed = capsys.readouterr().out
    assert json.loads(printed) == [
        {"x": "NaN", "listed": ["Infinity", 1.0], "d": 1.5},
        {"x": None, "listed": ["-Infinity"], "d": None},
    ]


@pytest.mark.rest
def test_the_time_of_each_stage(where: list[str]) -> None:
    ended = sparrow_sql("--tpch", "3", "--stages", *where)
    assert len(ended.stdout.splitlines()) == 11
    header, *stages, response = ended.stderr.splitlines()
    assert header.split()[:3] == ["STAGE", "TASKS", "NODES"]
    assert [line.split()[:2] for line in stages] == [
        ["scan", str(FEW_PARTITIONS)],
        ["group-by", "1"],
        ["order-by", "1"],
    ]
    assert response.startswith("response: ")


def test_the_plan(tpch_hundredth: Path) -> None:
    ended = sparrow_sql("--explain", "--tpch", "6", "--data", str(tpch_hundredth))
    assert ended.stdout.splitlines()[0] == "scan (a task per partition)"
    assert "group-by (tasks: 1, after scan)" in ended.stdout


@pytest.mark.rest
def test_without_schedulers_a_query_starts_its_own_cluster(tpch_few: Path) -> None:
    ended = sparrow_sql("SELECT count(*) AS n FROM lineitem", "--csv", "--data", str(tpch_few))
    assert (ended.stdout, ended.stderr) == ("n\n60175\n", "")


def test_generate_and_place(sql_cluster: LocalCluster, tmp_path: Path) -> None:
    directory = str(tmp_path / "new")
    made = sparrow_sql("generate", "--scale", "0.01", "--dir", directory, "--name", "tiny", "--partitions", "4")
    assert made.exit_code == 0, made.stderr
    assert ["lineitem", "60175"] in [line.split() for line in made.stdout.splitlines()]
    placed = sparrow_sql("place", "--data", directory, "--replicas", "2", "-s", sql_cluster.addresses[1])
    rows = [line.split() for line in placed.stdout.splitlines()[1:]]
    assert [row[0] for row in rows] == ["node-0", "node-1", "node-2"]
    assert sum(int(row[1]) for row in rows) == sum(int(row[2]) for row in rows) == 8
    again = sparrow_sql("place", "--data", directory, "--replicas", "2", "-s", sql_cluster.addresses[0])
    assert [line.split()[2] for line in again.stdout.splitlines()[1:]] == ["0", "0", "0"]
    listed = CliRunner().invoke(main, ["nodes", "-s", sql_cluster.addresses[0]])
    assert Dataset(directory).attribute in listed.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["SELECT median(l_tax) FROM lineitem"], "sql: the aggregate median is not supported"),
        (["SELECT"], "sql: "),
        ([], "give either SQL or --tpch N"),
        (["SELECT 1", "--tpch", "1"], "give either SQL or --tpch N"),
        (["--tpch", "23"], "Invalid value for '--tpch'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments: list[str], message: str, tpch_hundredth: Path) -> None:
    ended = sparrow_sql("query", *arguments, "--data", str(tpch_hundredth))
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert ended.stderr.startswith("sparrow: ")
    assert message in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_a_dataset_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    ended = sparrow_sql("SELECT 1", "--data", str(tmp_path))
    assert (ended.exit_code, len(ended.stderr.splitlines())) == (2, 1)
    assert "manifest.json: No such file or directory" in ended.stderr


@pytest.mark.rest
def test_a_dataset_that_no_node_holds_is_one_line(
    sql_cluster: LocalCluster, tpch_hundredth: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for path in tpch_hundredth.iterdir():
        (copy / path.name).symlink_to(path)
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").unlink()
    (copy / "manifest.json").write_text(json.dumps({**manifest, "id": "0"}))
    ended = sparrow_sql("--tpch", "6", "--data", str(copy), "-s", sql_cluster.addresses[0])
    assert ended.exit_code == 1
    assert "no live node holds a replica; `sparrow sql place` loads it again" in ended.stderr


@pytest.mark.rest
def test_a_package_of_the_extra_that_is_missing_is_named(tmp_path: Path) -> None:
    """The test hides the packages of the extra, as if only the runtime dependencies were installed."""
    (tmp_path / "duckdb.py").write_text("raise ModuleNotFoundError(\"No module named 'duckdb'\", name='duckdb')")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    ended = subprocess.run(
        [sys.executable, "-m", "frontends.cli", "sql", "SELECT 1", "--data", "x"],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert ended.returncode == 1
    said = f"the package duckdb is not installed; the extra brings it: {install_command('sql')}"
    assert ended.stderr == f"sparrow: {said}\n"
