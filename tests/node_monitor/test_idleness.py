"""A node monitor that has had nothing to do for a while leaves."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_monitor.blobs.blobs import BlobTable
from node_monitor.idleness import Idleness
from node_monitor.options import NodeMonitorOptions
from sparrow_py.errors import InvalidOption


def test_it_is_over_after_so_long_without_anything_to_do() -> None:
    idleness = Idleness(10.0)
    assert not idleness.is_over(False, 0, 100.0)
    assert not idleness.is_over(False, 0, 109.9)
    assert idleness.is_over(False, 0, 110.0)


@pytest.mark.parametrize(("busy", "count"), [(True, 0), (False, 1)])
def test_work_begins_it_anew_also_what_came_and_went_between_two_looks(busy: bool, count: int) -> None:
    idleness = Idleness(10.0)
    assert not idleness.is_over(False, 0, 0.0)
    assert not idleness.is_over(busy, count, 9.0)
    assert not idleness.is_over(False, count, 18.0)
    assert idleness.is_over(False, count, 28.0)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1), st.integers(1, 9)), max_size=40))
def test_it_is_never_over_before_so_long_after_the_last_work(looks: list[tuple[bool, int, int]]) -> None:
    idleness, now_s, count, worked_s = Idleness(10.0), 0.0, 0, 0.0
    for busy, more, passed_s in looks:
        now_s, count = now_s + passed_s, count + more
        over = idleness.is_over(busy, count, now_s)
        if busy or more:
            worked_s = now_s
        assert not (over and now_s - worked_s < 10.0)


def test_data_that_is_pinned_or_leased_is_needed() -> None:
    table = BlobTable(100, retention_s=50.0, lease_s=10.0)
    assert not table.is_needed(0.0)
    table.reserve(10, 0.0)
    assert table.is_needed(0.0)
    table.release(10)
    table.add("h", 10, 0.0)
    assert table.is_needed(9.0)
    assert not table.is_needed(11.0)
    table.pin("h", "job")
    assert table.is_needed(99.0)


@pytest.mark.parametrize("idle_exit_s", [-1.0, 0.5, 2e6])
def test_times_that_cannot_be(idle_exit_s: float) -> None:
    with pytest.raises(InvalidOption, match="idle_exit_s"):
        NodeMonitorOptions(idle_exit_s=idle_exit_s)
