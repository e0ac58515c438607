"""Random DAGs: as many stages, barriers and levels as were asked for, if there are such DAGs."""

import random

from hypothesis import given
from hypothesis import strategies as st

from loadgen.dags.shapes import draw, fitting

SIZES = st.tuples(st.integers(-3, 150), st.integers(-3, 40), st.integers(-3, 60))


@given(SIZES, st.integers(0, 2**32))
def test_a_dag_has_what_was_asked_for(sizes: tuple[int, int, int], seed: int) -> None:
    parents = draw(random.Random(seed), *sizes)
    levels: list[int] = []
    for number, above in enumerate(parents):
        assert all(0 <= parent < number for parent in above)
        assert len(set(above)) == len(above)
        levels.append(1 + max((levels[parent] for parent in above), default=0))
    assert (len(parents), sum(len(above) > 1 for above in parents), max(levels)) == fitting(*sizes)


@given(SIZES)
def test_what_fits_stays_as_it_is(sizes: tuple[int, int, int]) -> None:
    """And other numbers are changed no further than is needed."""
    stages, barriers, depth = fitting(*sizes)
    assert fitting(stages, barriers, depth) == (stages, barriers, depth)
    assert stages == max(1, sizes[0])
    assert 0 <= barriers <= max(0, sizes[1])
    if sizes[0] > 2 * sizes[1] >= 0 and sizes[1] < sizes[2] <= sizes[0] - sizes[1]:
        assert (stages, barriers, depth) == sizes
