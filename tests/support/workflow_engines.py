"""Runs workflows on engines, to hold what they make against the reference interpreter."""

from __future__ import annotations

import tempfile
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import assume

from frontends.workflow.engines import engine as engine_of
from frontends.workflow.engines.base import ALL_RULES, Engine, Rules
from frontends.workflow.engines.runs import run_script
from frontends.workflow.ir.dag import Dag, Input, Scan
from frontends.workflow.ir.reference import evaluate
from tests.support.workflow_dags import Case, assert_same_results


def installed_engine(name: str) -> Engine:
    """The engine; the test is skipped if its packages are not installed."""
    engine = engine_of(name)
    if engine.version() is None:
        pytest.skip(f"{name} is not installed")
    return engine


def made_by(
    engine: Engine,
    job: Dag,
    tables: dict[str, pa.Table],
    rules: Rules = ALL_RULES,
    small: Collection[str] = (),
    row_group_rows: int | None = None,
) -> dict[str, pa.Table]:
    """The results of the job. tables: by the tables' names of scans, and by the names of inputs. small: as
    `Engine.generate` has it. row_group_rows: of the files, as many as pyarrow likes without it."""
    with tempfile.TemporaryDirectory(prefix="workflow-") as directory:
        inputs, outputs = {}, {}
        for number, leaf in enumerate(job.operators):
            if isinstance(leaf, Scan | Input):
                inputs[leaf.name] = Path(directory, f"in-{number}.parquet")
                name = leaf.table if isinstance(leaf, Scan) else leaf.name
                pq.write_table(tables[name], inputs[leaf.name], row_group_size=row_group_rows)
        for number, name in enumerate(job.results):
            outputs[name] = Path(directory, f"out-{number}.parquet")
        engine.check_installed()
        source = engine.generate(job, rules, small)
        run_script(engine.name, source, inputs, outputs)
        assert not list(Path(directory).glob("*.partial"))
        return {name: pq.read_table(path) for name, path in outputs.items()}


def assert_agrees(engine: Engine, case: Case, rules: Rules = ALL_RULES) -> None:
    """The engine makes of the case what the reference interpreter makes of it; else an `assume` that fails, where the
    meaning is undefined."""
    try:
        expected = evaluate(case.dag, case.tables)
    except OverflowError:
        assume(False)
    assert_same_results(case.dag, made_by(engine, case.dag, case.tables, rules), expected)
