"""Which unplaced task wants which nodes, and which reservation was made for which task (`Locality`)."""

from __future__ import annotations

import random

from scheduler.book.preferences import FREE, Preferences
from scheduler.sampling.locality import Locality


def with_tasks(kind: type[Preferences]) -> Preferences:
    """Task 0 wants a or b, task 1 wants b, task 2 anything."""
    preferences = kind()
    preferences.constrain(0, ("a", "b"))
    preferences.constrain(1, ("b",))
    for task in range(3):
        preferences.add(task)
    return preferences


def test_who_wants_a_node_is_known_in_order() -> None:
    preferences = with_tasks(Preferences)
    assert {node: list(tasks) for node, tasks in preferences.wanting.items()} == {"a": [0], "b": [0, 1]}
    assert (preferences.free, preferences.free_tasks()) == (1, [2])
    assert preferences.problem({0, 1, 2}) is None
    assert preferences.problem({0, 1}) is not None


def test_nothing_is_left_of_tasks_that_are_placed() -> None:
    preferences = with_tasks(Preferences)
    for task in range(3):
        preferences.remove(task)
    assert not preferences.wanting and not preferences.constrained and not preferences.free
    assert preferences.next_free() is None


def test_a_task_that_is_relaxed_runs_anywhere() -> None:
    preferences = with_tasks(Preferences)
    preferences.relax(0)
    assert preferences.free_tasks() == [0, 2] and list(preferences.constrained) == [1]
    assert preferences.next_free() == 0


class TestLocality:
    def test_a_task_whose_nodes_may_not_run_it_stays_uncovered(self) -> None:
        locality = with_tasks(Locality)
        assert isinstance(locality, Locality)
        chosen = locality.choose(1.0, ["a"], random.Random(1))
        assert chosen == [("a", 2)]  # The second is for task 2.
        assert list(locality.uncovered) == [1] and locality.lacking

    def test_a_node_is_given_the_task_of_its_oldest_reservation(self) -> None:
        locality = with_tasks(Locality)
        assert isinstance(locality, Locality)
        assert locality.reserve_at("b", 2) == 2
        assert [locality.take("b"), locality.take("b")] == [0, 1]
        assert locality.take("b") == 2  # Then one without a constraint.
        assert locality.take("b") is None

    def test_reservations_that_are_gone_leave_their_tasks_uncovered(self) -> None:
        locality = with_tasks(Locality)
        assert isinstance(locality, Locality)
        locality.choose(1.0, ["a", "b"], random.Random(1))
        assert not locality.lacking and sum(FREE in made for made in locality.made_for.values()) == 1
        for node, made in list(locality.made_for.items()):
            locality.drop(node, len(made))
        assert sorted(locality.uncovered) == [0, 1] and locality.free_live == 0
        assert locality.problem_of({}, {0, 1, 2}) is None

    def test_counts_that_differ_are_told(self) -> None:
        locality = with_tasks(Locality)
        assert isinstance(locality, Locality)
        locality.reserve_at("b", 1)
        assert "made for tasks" in str(locality.problem_of({}, {0, 1, 2}))
        assert "unplaced are" in str(locality.problem_of({"b": 1}, {0, 1}))
        locality.free_live += 1
        assert "reservations by task" in str(locality.problem_of({"b": 1}, {0, 1, 2}))
