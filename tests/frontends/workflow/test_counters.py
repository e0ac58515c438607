"""How many iterations a loop makes, as far as its counter shows."""

import pytest

from frontends.workflow.ir.counters import iterations_counted
from frontends.workflow.ir.dag import While
from frontends.workflow.ir.reading import read
from tests.support.workflow_samples import page_rank

LOOP = """v = VALUES (n INTEGER) ROWS ({start})
l = WHILE (v) CARRY (i = n) {condition} AT MOST 50 DO
  i = INPUT (n INTEGER)
  n = ARITHMETIC i SET n = {{{step}}}
  RESULTS n
END
r = LOOP RESULT l OF i (n INTEGER)
RESULTS r"""


@pytest.mark.parametrize(
    ("start", "condition", "step", "iterations"),
    [
        ("{0}", "TEST FIRST i {n < 5}", "n + 1", 5),
        ("{0}", "TEST FIRST i {n <= 5}", "n + 1", 6),
        ("{0}", "TEST FIRST i {5 > n}", "1 + n", 5),
        ("{0}", "TEST FIRST i {n < 5}", "n + 2", 3),
        ("{9}", "TEST FIRST i {n > 5}", "n - 2", 2),
        ("{9}", "TEST FIRST i {n < 5}", "n + 1", 0),
        ("{9}", "TEST i {n < 5}", "n + 1", 1),
        ("{0}", "TEST FIRST i {n < 5000}", "n + 1", 50),
        ("{0}", "", "n + 1", 50),
        ("{0}", "TEST FIRST i {n < 5}", "n * 2", None),
        ("{0}", "TEST FIRST i {n < 5 AND n > -9}", "n + 1", None),
        ("{0}), ({1}", "TEST FIRST i {n < 5}", "n + 1", None),
    ],
)
def test_counters_say_how_many_iterations_there_are(
    start: str, condition: str, step: str, iterations: int | None
) -> None:
    dag = read(LOOP.format(start=f"({start})", condition=condition, step=step))
    (loop,) = dag.of_type(While)
    assert iterations_counted(dag, loop) == iterations


def test_a_counter_beside_a_graph_counts() -> None:
    dag = page_rank(7)
    (loop,) = dag.of_type(While)
    assert iterations_counted(dag, loop) == 7
