"""The workflows that are measured, over made-up tables in Parquet files that are kept between runs."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.report import ROOT
from frontends.sql.generate import generate_base_tables
from frontends.sql.tpch import BASE_TABLES
from frontends.workflow.example_data import tables as example_tables
from frontends.workflow.ir.dag import Dag, Scan
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.sources import Source, source_of_file
from frontends.workflow.table_files import given_tables

EXAMPLES = ROOT / "examples" / "workflow"
WORK_VARIABLE = "SPARROW_WORKFLOW_FIGURES"
"""The environment variable that names the directory of tables and unfinished figures."""
GAS_STOP = "iteration < 20"
"""How long the examples in GAS go on; the thesis's figures take five iterations."""


def work_directory() -> Path:
    """Where tables are kept, and what an interrupted figure has measured; it is made if it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    found = Path(os.environ.get(WORK_VARIABLE) or cache / "sparrow-py" / "workflow-figures")
    found.mkdir(parents=True, exist_ok=True)
    return found


@dataclass(frozen=True)
class Workload:
    """A workflow over tables. name: with the size, so that it is one in all figures."""

    name: str
    dag: Dag
    files: Mapping[str, Path]
    sizes: Mapping[str, TableSize]

    @property
    def bytes(self) -> int:
        """Of the tables, before compression."""
        return sum(_stored_bytes(path) for path in self.files.values())


def _stored_bytes(path: Path) -> int:
    metadata = pq.read_metadata(path)
    return sum(int(metadata.row_group(group).total_byte_size) for group in range(metadata.num_row_groups))


def workload(name: str, source: Source, files: Mapping[str, Path]) -> Workload:
    """The workflow over those of the tables that it scans."""
    given = given_tables(files)
    dag = source.dag({table: one.schema for table, one in given.items()})
    scanned = sorted({scan.table for scan in dag.of_type(Scan)})
    return Workload(name, dag, {one: files[one] for one in scanned}, {one: given[one].size for one in scanned})


def example(file: str, size: int, *, iterations: int | None = None, seed: int = 1) -> Workload:
    """One of examples/workflow, over its made-up tables. size: rows, about, of the greatest; iterations: of GAS."""
    source = source_of_file(EXAMPLES / file)
    if iterations is not None:
        text = source.text.replace(GAS_STOP, f"iteration < {iterations}")
        if text == source.text and iterations != 20:
            raise AssertionError(f"{file} has no {GAS_STOP!r}")
        source = Source(source.language, text, source.file)
    workflow = file.partition(".")[0]
    return workload(f"{workflow}, {size:,}", source, example_files(workflow, size, seed))


def example_files(workflow: str, size: int, seed: int = 1) -> dict[str, Path]:
    """The tables of an example, written if they are not there."""
    directory = work_directory() / f"{workflow}-{size}-{seed}"
    if not (directory / "whole").exists():
        directory.mkdir(exist_ok=True)
        for name, table in example_tables(workflow, size, seed).items():
            pq.write_table(table, directory / f"{name}.parquet", row_group_size=ROW_GROUP_ROWS)
        (directory / "whole").touch()
    return {path.stem: path for path in sorted(directory.glob("*.parquet"))}


ROW_GROUP_ROWS = 122_880
"""As DuckDB writes them: engines that read row groups at once, and mappers that share them, have several."""


def tpch_files(scale: float) -> dict[str, Path]:
    """TPC-H's tables at a scale factor, by tpchgen-cli, made if they are not there."""
    directory = work_directory() / f"tpch-{scale:g}"
    if not (directory / "whole").exists():
        directory.mkdir(exist_ok=True)
        generate_base_tables(directory, scale)
        (directory / "whole").touch()
    return {table: directory / f"{table}.parquet" for table in BASE_TABLES}


def tpch_query(number: int, scale: float) -> Workload:
    """A query of TPC-H in HiveQL."""
    source = source_of_file(EXAMPLES / "tpch" / f"q{number:02}.hql")
    return workload(f"TPC-H {number}, {scale:g}", source, tpch_files(scale))


# ---- workflows of the figures alone ----------------------------------------------------------

PROJECT = "SELECT user_id, amount * 2 AS twice FROM purchases AS projected;\n"
JOIN = "purchases JOIN customers ON purchases.user_id = customers.user_id AS joined;\n"
COUNT = "SELECT user_id, COUNT(*) AS bought FROM purchases GROUP BY user_id AS customers;\n"
_UNROLLED = """\
CREATE RELATION community_a WITH COLUMNS (INTEGER, INTEGER),
CREATE RELATION community_b WITH COLUMNS (INTEGER, INTEGER),
(community_a) INTERSECT (community_b) AS edges,
COUNT [edges_1] FROM (edges) GROUP BY [edges_0] AS node_cnt,
(edges) JOIN (node_cnt) ON edges_0 AND node_cnt_0 AS edges_cnt,
DIV [node_cnt_1, node_cnt_1] FROM (node_cnt) AS rank0"""
_ITERATION = """\
(edges_cnt) JOIN (rank{before}) ON edges_cnt_0 AND rank{before}_0 AS sent{n},
DIV [sent{n}_3, sent{n}_2] FROM (sent{n}) AS shared{n},
PROJECT [shared{n}_1, shared{n}_3] FROM (shared{n}) AS links{n},
AGG [links{n}_1, +] FROM (links{n}) GROUP BY [links{n}_0] AS sums{n},
MUL [0.85, sums{n}_1] FROM (sums{n}) AS damped{n},
SUM [0.15, damped{n}_1] FROM (damped{n}) AS rank{n}"""


def project(size: int) -> Workload:
    """The thesis's Project: one operator over purchases."""
    return workload(f"project, {size:,}", Source("hive", PROJECT, "<project>"), example_files("top_shopper", size))


def join(size: int) -> Workload:
    """The thesis's Join: of purchases with what is known of who made them."""
    source = Source("hive", COUNT + JOIN, "<join>")
    return workload(f"join, {size:,}", source, example_files("top_shopper", size))


def unrolled_communities(size: int, iterations: int = 5) -> Workload:
    """Cross-community PageRank without a loop, which engines that have none can run."""
    steps = [_ITERATION.format(before=n - 1, n=n) for n in range(1, iterations + 1)]
    source = Source("beer", ",\n".join([_UNROLLED, *steps]) + "\n", "<unrolled>")
    files = example_files("cross_community_pagerank", size)
    return workload(f"cross_community_pagerank, {size:,}, unrolled", source, files)
