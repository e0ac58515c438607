"""Costs that change with time, as if each were asked for anew."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.ageing import NO_ARC, Ageing
from scheduler.flow.policies.policy import AGE_S_MAX


@given(
    rate=st.sampled_from([-2.0, -0.3, 0.0, 0.1, 0.5, 3.0]),
    since_s=st.floats(-100, 100),
    times_s=st.lists(st.floats(0, 2 * AGE_S_MAX), min_size=1).map(sorted),
    node=st.integers(0, 300),
)
def test_a_cost_is_that_of_its_age_however_often_it_is_asked_for(
    rate: float, since_s: float, times_s: list[float], node: int
) -> None:
    once, often = Ageing(), Ageing()
    for ageing in (once, often):
        ageing.add(node, 7, 1000, rate, since_s, 0.0)
    for now_s in times_s:
        arcs, costs = often.costs(now_s)
        assert arcs.tolist() in ([], [7])
        assert not arcs.size or costs.tolist() == [often.cost(node)]
    once.costs(times_s[-1])
    assert once.cost(node) == often.cost(node)
    assert once.costs(times_s[-1])[0].size == 0
    assert once.costs(3 * AGE_S_MAX)[1].tolist() in ([], [once.cost(node)])
    before = once.cost(node)
    assert once.costs(9 * AGE_S_MAX)[0].size == 0
    assert once.cost(node) == before


def test_all_rise_and_what_is_dropped_is_told_no_more() -> None:
    ageing = Ageing()
    ageing.add(100, 3, 10, 0.0, 0.0, 0.0)
    ageing.add(101, 4, 20, 0.0, 0.0, 0.0)
    ageing.raise_all(5)
    ageing.drop(101)
    ageing.drop(5000)
    arcs, costs = ageing.costs(0.0)
    assert (arcs.tolist(), costs.tolist()) == ([3], [15])
    assert (ageing.arc(100), ageing.arc(101), ageing.arc(5000)) == (3, NO_ARC, NO_ARC)
