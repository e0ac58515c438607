"""Workflows that are written by hand for one engine: each has to make what the reference interpreter makes."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.workflow import workloads
from benchmarks.workflow.answers import differing
from benchmarks.workflow.ways import BY_HAND, by_hand
from frontends.workflow.engines.runs import loaded
from frontends.workflow.ir.reference import evaluate

SCRIPTS_BY_HAND = sorted(path.stem for path in BY_HAND.glob("*.py"))


def check_by_hand(script: str, tmp_path: Path) -> None:
    """Run it over the small tables of its workflow, twice in one process: a warm process keeps its engine's session."""
    workflow, engine = script.split("_", 1)
    file, options = {"netflix": ("netflix.hql", {}), "pagerank": ("pagerank.gas", {"iterations": 5})}[workflow]
    one = workloads.example(file, 150, **options)
    made = by_hand("it", workflow, engine, one.files, tmp_path / "made")
    assert made is not None
    (step,) = made.steps
    run, reads = loaded(step.source), {name: str(path) for name, path in step.reads.items()}
    for _ in range(2):
        run(reads, {"result": str(made.results[0])})
    (expected,) = evaluate(one.dag, {name: pq.read_table(path) for name, path in one.files.items()}).values()
    assert differing(pq.read_table(made.results[0]), expected) == "" and expected.num_rows > 5
