"""Links share what passes them max-min fairly; a background is served first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fluid import Fluid, fair_rates, first_served


def test_a_link_is_shared_in_equal_parts() -> None:
    assert fair_rates({"l": 9}, [["l"]] * 3) == [3, 3, 3]


def test_who_is_held_back_elsewhere_leaves_its_part_to_others() -> None:
    """The textbook's example: a long transfer over both links, one of which is tight."""
    assert fair_rates({"a": 10, "b": 4}, [["a", "b"], ["a"], ["b"]]) == [2, 8, 2]


links = st.sampled_from("abcd")
uses_of = st.lists(st.lists(links, min_size=1, max_size=3, unique=True), max_size=8)
capacities_of = st.fixed_dictionaries({name: st.integers(1, 20) for name in "abcd"})


@given(capacities_of, uses_of)
def test_no_link_carries_more_than_it_can_and_each_transfer_has_one_that_holds_it_back(
    capacities: dict[str, int], uses: list[list[str]]
) -> None:
    """What max-min fair means: on some full link of each transfer nobody has more than it."""
    rates = fair_rates(capacities, uses)
    passes = {link: sum(rate for rate, used in zip(rates, uses, strict=True) if link in used) for link in capacities}
    assert all(passes[link] <= capacities[link] + 1e-9 for link in capacities)
    for rate, used in zip(rates, uses, strict=True):
        assert any(
            passes[link] >= capacities[link] - 1e-9
            and all(other <= rate + 1e-9 for other, theirs in zip(rates, uses, strict=True) if link in theirs)
            for link in used
        )


@given(capacities_of, st.lists(st.tuples(st.integers(1, 30), st.lists(links, min_size=1, max_size=2, unique=True))))
def test_the_background_has_what_it_wants_where_there_is_enough(
    capacities: dict[str, int], wanted: list[tuple[float, list[str]]]
) -> None:
    rates = first_served(capacities, wanted)
    for (rate, used), found in zip(wanted, rates, strict=True):
        demand = {link: sum(other for other, theirs in wanted if link in theirs) for link in used}
        assert 0 <= found <= rate
        assert found == rate or any(demand[link] > capacities[link] for link in used)
    for link, capacity in capacities.items():
        assert sum(rate for rate, (_, used) in zip(rates, wanted, strict=True) if link in used) <= capacity + 1e-9


def test_transfers_end_when_their_amount_has_passed() -> None:
    fluid = Fluid({"l": 10.0})
    fluid.add({"long": (60.0, ["l"]), "short": (20.0, ["l"])})
    assert fluid.next_end_s() == 4
    assert fluid.advance(4.0) == ["short"]
    assert fluid.used == {"l": 10.0}
    assert fluid.next_end_s() == 8
    fluid.add({"late": (100.0, ["l"])})
    assert fluid.advance(fluid.next_end_s() or 0) == ["long"]
    assert fluid.now_s == 12
    assert fluid.advance(18.0) == ["late"]
    assert fluid.next_end_s() is None and fluid.used == {"l": 0.0}


def test_what_the_background_takes_is_not_there_for_others() -> None:
    fluid = Fluid({"l": 10.0, "m": 10.0}, background=[(8.0, ["l"]), (20.0, ["m"])])
    fluid.add({"over l": (4.0, ["l"]), "over m": (4.0, ["m"])})
    assert fluid.used == {"l": 10.0, "m": 10.0}
    assert fluid.advance(2.0) == ["over l"]
    assert fluid.next_end_s() is None


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="the capacity of link l is 0; allowed are numbers above 0"):
        Fluid({"l": 0})
    fluid = Fluid({"l": 1.0})
    fluid.add({"t": (1.0, ["l"])})
    with pytest.raises(ValueError, match="there are two transfers t"):
        fluid.add({"t": (1.0, ["l"])})
    with pytest.raises(ValueError, match="transfer u: amount 0, 1 links; allowed are above 0"):
        fluid.add({"u": (0, ["l"])})
