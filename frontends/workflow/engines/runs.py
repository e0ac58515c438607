"""Runs the script of a job in this process: for tests, and within the host processes that keep engines warm."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from frontends.workflow.engines.base import ALL_RULES, Engine, Rules
from frontends.workflow.errors import IterationsExceeded, JobFailed, TableMismatch
from frontends.workflow.ir.dag import Dag, Input, Scan
from frontends.workflow.ir.tables import conformed
from frontends.workflow.ir.types import Schema
from sparrow_py.errors import SparrowError

TRACEBACK_CHARS_MAX = 4_000
"""Characters of a failed script's traceback that are kept: its end."""

Run = Callable[[dict[str, str], dict[str, str]], None]


def run_job(
    engine: Engine,
    job: Dag,
    inputs: Mapping[str, str | Path],
    outputs: Mapping[str, str | Path],
    rules: Rules = ALL_RULES,
) -> None:
    """Generate the job's script and run it here.

    inputs, outputs: Parquet files by the names of the relations of `Scan`s and `Input`s, and of results.
    `EngineMissing`, `Inexpressible`, `TableMismatch`, `IterationsExceeded`, or `JobFailed` with what else
    the script raises.
    """
    engine.check_installed()
    source = engine.generate(job, rules)
    check_inputs(job, inputs)
    run_script(engine.name, source, inputs, outputs)


def run_script(engine: str, source: str, inputs: Mapping[str, str | Path], outputs: Mapping[str, str | Path]) -> None:
    """Run the script's `run`; `IterationsExceeded` or `JobFailed` if it raises."""
    try:
        run = loaded(source)
        run(
            {name: str(path) for name, path in inputs.items()},
            {name: str(path) for name, path in outputs.items()},
        )
    except SparrowError:
        raise
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # Engines in Rust panic with what is no Exception.
        if type(error).__name__ == "IterationsExceeded":
            raise IterationsExceeded(*error.args) from None
        details = traceback.format_exc()[-TRACEBACK_CHARS_MAX:]
        raise JobFailed(engine, type(error).__name__, str(error), details) from error


def loaded(source: str) -> Run:
    """The script's `run`."""
    namespace: dict[str, Any] = {"__name__": "workflow_job"}
    exec(compile(source, "<job>", "exec"), namespace)
    run: Run = namespace["run"]
    return run


def check_inputs(job: Dag, inputs: Mapping[str, str | Path]) -> None:
    """`TableMismatch` unless each file is Parquet with the declared columns. Reads the files' footers alone."""
    for leaf in job.operators:
        if isinstance(leaf, Scan | Input):
            table = leaf.table if isinstance(leaf, Scan) else leaf.name
            if leaf.name not in inputs:
                raise TableMismatch(table, f"no file is given for {leaf.name}")
            try:
                found = pq.read_schema(inputs[leaf.name])
            except (OSError, pa.ArrowException) as error:
                raise TableMismatch(table, f"{inputs[leaf.name]} is no readable Parquet file: {error}") from None
            conformed(found.empty_table(), leaf.schema, table)
            _check_case(found, leaf.schema, table)


def _check_case(found: pa.Schema, schema: Schema, table: str) -> None:
    """Engines that ignore case would read the other column."""
    declared = {name.casefold(): name for name in schema.names}
    for name in found.names:
        other = declared.get(name.casefold(), name)
        if other != name:
            raise TableMismatch(table, f"columns {other} and {name} differ only in case; rename one of them")
