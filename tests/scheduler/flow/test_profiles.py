"""The knowledge base: what is remembered of stages, of whom, how much of it, and how old figures fade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.profiles import CPU, FALL, MEMORY, NET, WEIGHT, Profiles

USERS = [f"user{number}" for number in range(4)]


def test_durations_and_cpus_are_means_in_which_the_latest_counts_most() -> None:
    known = Profiles()
    assert known.duration_s("a", "app", "map") is None
    for took_s, cpu in ((10.0, 2.0), (20.0, 4.0)):
        known.ran("a", "app", "map", took_s)
        known.used("a", "app", "map", {CPU: cpu})
    assert known.duration_s("a", "app", "map") == 10 + WEIGHT * 10
    assert known.expected("a", "app", "map", {}) == {CPU: 2 + WEIGHT * 2}


@pytest.mark.parametrize("resource", [MEMORY, NET])
def test_memory_and_bandwidth_are_what_tasks_come_up_to(resource: str) -> None:
    known = Profiles()
    for amount in (100.0, 500.0, 100.0):
        known.used("a", "app", "map", {resource: amount})
    assert known.expected("a", "app", "map", {}) == {resource: 500 - FALL * 400}, "which is 480"
    for _ in range(200):
        known.used("a", "app", "map", {resource: 100.0})
    assert known.expected("a", "app", "map", {}) == {resource: 100.0}


def test_what_is_demanded_counts_if_it_is_more() -> None:
    known = Profiles()
    known.used("a", "app", "map", {NET: 123_456_789.0, CPU: 0.5})
    assert known.expected("a", "app", "map", {NET: 1e6, CPU: 2.0, "gpu": 1.0}) == {NET: 120e6, CPU: 2.0, "gpu": 1.0}
    assert known.expected("a", "app", "other", {NET: 1e6}) == {NET: 1e6}


@pytest.mark.parametrize("amount", [None, -1.0, math.nan, math.inf])
def test_what_is_no_amount_is_not_known(amount: float | None) -> None:
    known = Profiles()
    known.used("a", "app", "map", {NET: amount})
    assert known.expected("a", "app", "map", {}) == {} and len(known) == 0


def test_users_teach_each_other_nothing() -> None:
    known = Profiles()
    known.ran("eve", "python", "train", 0.001)
    known.used("eve", "python", "train", {NET: 1e12})
    assert known.duration_s("ada", "python", "train") is None
    assert known.expected("ada", "python", "train", {NET: 1.0}) == {NET: 1.0}


def test_who_fills_the_room_pushes_out_nobody_elses() -> None:
    known = Profiles(profiles_max=100, per_user_max=90)
    known.ran("ada", "python", "train", 7.0)
    for number in range(1_000):
        known.ran("eve", "python", f"stage {number}", 1.0)
        assert known.duration_s("eve", "python", f"stage {number}") == 1.0
    assert known.duration_s("ada", "python", "train") == 7.0 and len(known) == 91
    for number in range(30):
        known.ran("bob", "python", f"stage {number}", 2.0)
    assert len(known) == 100 and known.duration_s("ada", "python", "train") == 7.0
    assert all(known.duration_s("bob", "python", f"stage {number}") == 2.0 for number in range(30))


def test_of_a_users_stages_those_go_that_were_not_heard_of_for_longest() -> None:
    known = Profiles(per_user_max=2)
    for stage in ("a", "b", "a", "c"):
        known.ran("ada", "app", stage, 1.0)
    assert [known.duration_s("ada", "app", stage) for stage in "abc"] == [1.0, None, 1.0]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(USERS), st.integers(0, 20)), max_size=200))
def test_there_are_never_more_than_allowed_and_the_newest_is_always_there(heard: list[tuple[str, int]]) -> None:
    known = Profiles(profiles_max=20, per_user_max=8)
    for user, stage in heard:
        known.ran(user, "app", str(stage), 1.0)
        there = {one: sum(known.duration_s(one, "app", str(name)) is not None for name in range(21)) for one in USERS}
        assert known.duration_s(user, "app", str(stage)) == 1.0
        assert sum(there.values()) == len(known) <= 20 and max(there.values()) <= 8
