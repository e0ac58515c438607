"""Datasets and a cluster that hold them, made once for all tests of the sql framework."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from frontends.sql.frontend import SqlFrontend
from frontends.sql.generate import generate
from sparrow_py import LocalCluster
from tests.support.tpch import HereRunner, Reference

TENTH, HUNDREDTH = 0.1, 0.01
FEW_PARTITIONS = 6
"""In place of the usual 30: each costs every stage a task."""


@pytest.fixture(scope="package")
def tpch_tenth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scale factor 0.1: 600,000 items."""
    return generate(tmp_path_factory.mktemp("tpch") / "tenth", TENTH).directory


@pytest.fixture(scope="package")
def tpch_hundredth(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Scale factor 0.01: 60,000 items."""
    return generate(tmp_path_factory.mktemp("tpch") / "hundredth", HUNDREDTH, name="small").directory


@pytest.fixture(scope="package")
def tpch_few(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same rows in few partitions."""
    directory = tmp_path_factory.mktemp("tpch") / "few"
    return generate(directory, HUNDREDTH, name="few", partitions=FEW_PARTITIONS).directory


@pytest.fixture(scope="package")
def reference_tenth(tpch_tenth: Path) -> Reference:
    return Reference(tpch_tenth)


@pytest.fixture(scope="package")
def reference_hundredth(tpch_hundredth: Path) -> Reference:
    return Reference(tpch_hundredth)


@pytest.fixture(scope="package")
def runner_hundredth(tpch_few: Path) -> HereRunner:
    return HereRunner(tpch_few)


@pytest.fixture(scope="package")
def sql_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two schedulers, three node monitors. Tests share this cluster, and must not kill its processes."""
    with LocalCluster(2, 3, slots=1, log_dir=tmp_path_factory.mktemp("sql-logs")) as cluster:
        yield cluster


@pytest.fixture(scope="package")
def frontend_tenth(sql_cluster: LocalCluster, tpch_tenth: Path) -> Iterator[SqlFrontend]:
    """The dataset of scale 0.1, each partition held by two of three nodes."""
    with SqlFrontend(sql_cluster, tpch_tenth) as frontend:
        frontend.place(2)
        yield frontend


@pytest.fixture(scope="package")
def frontend_hundredth(sql_cluster: LocalCluster, tpch_few: Path) -> Iterator[SqlFrontend]:
    """The rows of scale 0.01 in few partitions on the same cluster."""
    with SqlFrontend(sql_cluster, tpch_few) as frontend:
        frontend.place(2)
        yield frontend
