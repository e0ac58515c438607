"""Nodes are drawn as the library draws samples."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.spreading import sample


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
