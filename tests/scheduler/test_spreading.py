"""Nodes are drawn as the library draws samples."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.spreading import sample, spread_by_room


@given(size=st.integers(0, 300), share=st.floats(0, 1), seed=st.integers(0, 1 << 32))
def test_a_sample_is_the_librarys(size: int, share: float, seed: int) -> None:
    nodes = [f"n{number}" for number in range(size)]
    ours, the_librarys = random.Random(seed), random.Random(seed)
    count = round(share * size)
    assert sample(nodes, count, ours) == the_librarys.sample(nodes, count)
    assert ours.getstate() == the_librarys.getstate()


@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 20, 21, 22, 200])
@pytest.mark.parametrize("size", [21, 22, 100, 1000])
def test_whichever_way_is_the_faster_one(size: int, count: int) -> None:
    nodes = [f"n{number}" for number in range(size)]
    count = min(size, count)
    assert sample(nodes, count, random.Random(3)) == random.Random(3).sample(nodes, count)
    assert nodes == [f"n{number}" for number in range(size)]


# ---- by room -------------------------------------------------------------------------------------


@given(
    rooms=st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=80),
    count=st.integers(1, 200),
    seed=st.integers(0, 1 << 32),
)
def test_by_room_all_are_spread_and_none_without_room_has_any(rooms: list[float], count: int, seed: int) -> None:
    nodes = [f"n{number}" for number in range(len(rooms))]
    room = dict(zip(nodes, rooms, strict=True))
    spreading = dict(spread_by_room(nodes, count, random.Random(seed), room.__getitem__))
    assert sum(spreading.values()) == count and all(spreading.values())
    if any(rooms):
        assert all(room[node] for node in spreading)
        if count <= sum(share > 0 for share in rooms):
            assert set(spreading.values()) == {1}, "distinct nodes while there are enough"


@pytest.mark.parametrize("count", [1, 4, 30, 60])
def test_a_node_with_half_the_room_is_drawn_half_as_often(count: int) -> None:
    """Of 100 nodes, a third each has all, half and a tenth of its slots; a tenth has none."""
    rooms = [1.0, 0.5, 0.1] * 30 + [0.0] * 10
    nodes = [f"n{number}" for number in range(100)]
    room = dict(zip(nodes, rooms, strict=True))
    rng, drawn = random.Random(1), {1.0: 0, 0.5: 0, 0.1: 0}
    for _ in range(4000 // count):
        for node, _ in spread_by_room(nodes, count, rng, room.__getitem__):
            drawn[room[node]] += 1
    most = drawn[1.0]
    if count < 10:
        assert 0.4 * most < drawn[0.5] < 0.6 * most and 0.07 * most < drawn[0.1] < 0.14 * most
    else:  # As they are distinct, those with most room are used up.
        assert most > drawn[0.5] > drawn[0.1]


def test_more_than_nodes_are_spread_in_proportion_to_the_room() -> None:
    room = {"a": 1.0, "b": 0.5, "c": 0.0}
    assert dict(spread_by_room(list(room), 30, random.Random(1), room.__getitem__)) == {"a": 20, "b": 10}
