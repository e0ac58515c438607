"""docs/workflow-engines.md: its tables are what the engines say."""

import pytest

from benchmarks.workflow import matrix
from frontends.workflow.engines import engines
from tests.support.documents import section

PATH = "docs/workflow-engines.md"


@pytest.mark.parametrize(
    ("heading", "made"),
    [
        ("Operators", matrix.operators_table),
        ("Scalar expressions", matrix.scalars_table),
        ("Switches", matrix.rules_table),
        ("Switches", matrix.reasons),
    ],
)
def test_the_tables_are_what_the_engines_say(heading: str, made: object) -> None:
    assert callable(made)
    assert made() in section(PATH, heading), "copy what `python -m benchmarks.workflow.matrix` prints"


def test_each_engine_is_described() -> None:
    described = section(PATH, "Engines")
    assert all(f"| `{name}` |" in described for name in engines())
