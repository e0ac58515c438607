"""Generated scripts are as they were reviewed, and run by themselves."""

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from frontends.workflow.ir.reference import evaluate
from tests.support.workflow_dags import assert_same_bag
from tests.support.workflow_engines import installed_engine
from tests.support.workflow_golden import WORKFLOWS, generated, path
from tests.support.workflow_samples import max_property_price

ENGINES = ("dask", "datafusion", "duckdb", "pandas", "polars", "pyspark", "pyspark_rdd", "serial")
TABLES = {
    "properties": pa.table({"id": [1, 2, 3], "street": ["Elm", "Elm", "Oak"], "town": ["A", "A", "B"]}),
    "prices": pa.table({"id": [1, 2, 3], "price": [10.0, 20.0, 5.0]}),
}


@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("name", ENGINES)
def test_scripts_are_as_reviewed(name: str, workflow: str) -> None:
    assert generated(name, workflow) == path(name, workflow).read_text(encoding="utf-8"), (
        f"review what `python -m tests.support.workflow_golden {name}` writes"
    )


@pytest.mark.processes
@pytest.mark.rest
@pytest.mark.parametrize("name", ENGINES)
def test_a_script_runs_by_itself(name: str, tmp_path: Path) -> None:
    installed_engine(name)
    script = tmp_path / "job.py"
    script.write_text(path(name, "max_property_price").read_text(encoding="utf-8"), encoding="utf-8")
    for table, rows in TABLES.items():
        pq.write_table(rows, tmp_path / f"{table}.parquet")
    given = [f"--input={table}={tmp_path / table}.parquet" for table in TABLES]
    out = tmp_path / "out=.parquet"
    subprocess.run([sys.executable, str(script), *given, "--output", f"street_price={out}"], check=True)
    assert_same_bag(pq.read_table(out), evaluate(max_property_price(), TABLES)["street_price"])
    incomplete = subprocess.run([sys.executable, str(script), *given], check=False, capture_output=True, text=True)
    assert incomplete.returncode and "--output street_price=PATH is missing" in incomplete.stderr
