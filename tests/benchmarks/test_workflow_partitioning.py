"""`benchmarks.workflow.partitioning`: its rows, and what it leaves out."""

import pytest

from benchmarks.workflow.partitioning import NOT_RUN, SETS, Subsets, row, wide
from tests.support.workflow_samples import netflix


@pytest.mark.parametrize("of", SETS)
def test_a_small_workflow_is_searched_in_all_ways(of: str) -> None:
    """The search over all subsets fails the row if it finds another cost than the exact one."""
    found = row("7", netflix(7), SETS[of], Subsets(1.0))
    assert found["downsets"] == 13
    assert all(isinstance(found[name], float) for name in found if name.endswith(", ms"))
    assert min(found["one order, % above best"], found["several orders, % above best"]) >= 0


def test_what_would_take_too_long_is_left_out() -> None:
    subsets = Subsets(0.0)
    assert row("3", wide(3), SETS["MapReduce"], subsets)["all subsets, ms"] != NOT_RUN
    assert row("3", wide(3), SETS["MapReduce"], subsets)["all subsets, ms"] == NOT_RUN
    found = row("12", wide(12), SETS["MapReduce"], Subsets(1.0))
    assert (found["downsets"], found["exact, ms"], found["all subsets, ms"]) == (NOT_RUN, NOT_RUN, NOT_RUN)
