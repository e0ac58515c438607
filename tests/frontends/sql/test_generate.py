"""Making datasets: their content, and the options that are refused before anything is made."""

from pathlib import Path

import duckdb
import pytest

from frontends.sql import generate as making
from frontends.sql.dataset import MANIFEST, Dataset
from frontends.sql.errors import DoesNotFit
from frontends.sql.generate import generate
from frontends.sql.tpch import BASE_TABLES, DENORM, TABLES
from sparrow_py.errors import InvalidRequest


def count(sql: str) -> int:
    return int(duckdb.sql(sql).fetchall()[0][0])


def test_the_manifest_describes_the_files(tpch_hundredth: Path) -> None:
    manifest = Dataset(tpch_hundredth).manifest
    assert (manifest.name, manifest.scale, manifest.partitions) == ("small", 0.01, 30)
    assert manifest.rows["lineitem"] == manifest.rows["denorm"] == sum(manifest.partition_rows["denorm"]) == 60_175
    assert manifest.rows["orders"] == sum(manifest.partition_rows["orders"]) == 15_000
    assert set(manifest.rows) == set(TABLES)
    assert min(manifest.partition_rows["denorm"]) > 1000
    assert manifest.distinct["l_returnflag"] == 3
    whole = {f"{table}.parquet" for table in BASE_TABLES} - {"lineitem.parquet", "orders.parquet"}
    assert {path.name for path in tpch_hundredth.iterdir()} == {MANIFEST, "denorm", "orders"} | whole


def test_an_order_and_its_items_are_in_one_partition(tpch_hundredth: Path) -> None:
    def part(table: str) -> str:
        return f"read_parquet('{tpch_hundredth / table}/*/*.parquet', hive_partitioning = true)"

    assert (
        count(f"SELECT count(*) FROM {part('denorm')} d JOIN {part('orders')} o ON l_orderkey = o_orderkey") == 60_175
    )
    apart = "SELECT count(*) FROM {} d JOIN {} o ON l_orderkey = o_orderkey AND d.part <> o.part"
    assert count(apart.format(part("denorm"), part("orders"))) == 0


def test_the_denormalised_table_is_the_join_of_the_base_tables(tpch_hundredth: Path) -> None:
    denorm = f"'{tpch_hundredth}/denorm/*/*.parquet'"
    described = duckdb.sql(f"DESCRIBE SELECT * FROM read_parquet({denorm}, hive_partitioning = false)")
    columns = [str(name) for name, *_ in described.fetchall()]
    assert columns == list(TABLES[DENORM])
    joined = f"""
        SELECT count(*) FROM {denorm} d, '{tpch_hundredth}/orders/*/*.parquet' o, '{tpch_hundredth}/customer.parquet' c,
            '{tpch_hundredth}/nation.parquet' n, '{tpch_hundredth}/region.parquet' r
        WHERE d.l_orderkey = o.o_orderkey AND d.o_custkey = o.o_custkey AND c.c_custkey = o.o_custkey
            AND d.c_mktsegment = c.c_mktsegment AND n.n_nationkey = c.c_nationkey AND d.cn_name = n.n_name
            AND r.r_regionkey = n.n_regionkey AND d.cr_name = r.r_name AND d.o_orderdate = o.o_orderdate
    """
    assert count(joined) == 60_175


@pytest.mark.rest
def test_as_many_partitions_as_asked_for_even_if_some_are_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "SCALE_MIN", 0.001)
    dataset = generate(tmp_path / "few", 0.001, partitions=300)
    rows = dataset.manifest.partition_rows["orders"]
    assert len(rows) == 300 and 0 in rows
    assert all(dataset.files("orders", partition) for partition in range(300))


def test_a_scale_that_does_not_fit_the_disk_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "DISK_BYTES_PER_SCALE", 10**15)
    with pytest.raises(
        DoesNotFit, match=r"^scale: 2 does not fit: it needs about 2000000\.00 GB on disk .* are free at"
    ):
        generate(tmp_path / "new", 2)
    assert not (tmp_path / "new").exists()


def test_a_scale_that_does_not_fit_memory_is_refused_with_the_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "memory_available_bytes", lambda: 2_000_000_000)
    message = r"^scale: 2 does not fit: it needs about 2\.80 GB of memory for one copy, and 2\.00 GB are available$"
    with pytest.raises(DoesNotFit, match=message):
        generate(tmp_path / "new", 2)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": 0}, "scale: 0 is not valid; allowed: a number from 0.01 to 1000"),
        ({"scale": float("nan")}, "scale: nan is not valid"),
        ({"scale": 0.01, "partitions": 0}, "partitions: 0 is not valid"),
        ({"scale": 0.01, "name": "Bad name"}, "name: 'Bad name' is not valid"),
    ],
)
def test_invalid_options_are_refused(tmp_path: Path, options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        generate(tmp_path / "new", **options)  # type: ignore[arg-type]
    assert not (tmp_path / "new").exists()


def test_a_directory_that_is_not_empty_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(InvalidRequest, match="a directory that is empty or not there"):
        generate(tmp_path, 0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.rest
def test_a_failure_leaves_an_empty_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> dict[str, int]:
        raise OSError("no more")

    monkeypatch.setattr(making, "_distinct_counts", fail)
    with pytest.raises(OSError, match="no more"):
        generate(tmp_path / "new", 0.01, partitions=2)
    assert list((tmp_path / "new").iterdir()) == []


@pytest.mark.parametrize("text", ["", "{}", '{"format": 1}', "[", '{"format": 7, "name": "x"}', "\xff"])
def test_a_file_that_is_not_a_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / MANIFEST).write_text(text, "latin-1")
    with pytest.raises(InvalidRequest, match=r"^data: .* allowed: a directory that `sparrow sql generate` has made"):
        Dataset(tmp_path)
