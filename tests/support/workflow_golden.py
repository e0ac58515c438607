"""The scripts that engines generate for examples, kept as files to be read and reviewed.

`python -m tests.support.workflow_golden ENGINE …` writes those of these engines anew.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from pathlib import Path

from frontends.workflow.engines import engine
from frontends.workflow.ir.dag import Dag
from frontends.workflow.positions import Position
from tests.support.workflow_samples import max_property_price, page_rank

DIRECTORY = Path(__file__).parents[1] / "frontends/workflow/engines/golden"
WORKFLOWS: dict[str, Callable[[], Dag]] = {"max_property_price": max_property_price, "page_rank": page_rank}


def placed(dag: Dag) -> Dag:
    """The workflow, as if each of its operators were a line of a text."""
    operators = (
        dataclasses.replace(operator, at=Position(line, 1, "example.hive"))
        for line, operator in enumerate(dag.operators, 1)
    )
    return Dag(tuple(operators), dag.results)


def generated(engine_name: str, workflow: str) -> str:
    return engine(engine_name).generate(placed(WORKFLOWS[workflow]()))


def path(engine_name: str, workflow: str) -> Path:
    return DIRECTORY / f"{workflow}.{engine_name}.txt"


def main() -> None:
    for engine_name in sys.argv[1:]:
        for workflow in WORKFLOWS:
            path(engine_name, workflow).write_text(generated(engine_name, workflow), encoding="utf-8")


if __name__ == "__main__":
    main()
