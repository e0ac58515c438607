"""Shares of jobs: dominant resource fairness in closed form and by filling; what jobs may use; a capacity scheduler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scheduler.altruistic.shares import (
    Cap,
    Queue,
    Queues,
    caps,
    closed_form,
    demand_vectors,
    filled,
    weights_of,
)

POSITIVE = st.integers(1, 40).map(lambda number: number / 8)
FROM_ZERO = st.integers(0, 16).map(lambda number: number / 8)


@st.composite
def demands(draw: Any, elements: Any = POSITIVE) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Of some jobs, with their weights."""
    jobs, resources = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    work = draw(hnp.arrays(np.float64, (jobs, resources), elements=elements))
    work[work.max(axis=1) == 0, 0] = 1
    return demand_vectors(work), draw(hnp.arrays(np.float64, jobs, elements=POSITIVE))


def test_two_jobs_by_hand() -> None:
    """The example of the paper on dominant resource fairness: 9 CPUs and 18 GB; tasks of (1, 4) and of (3, 1)."""
    capacity = np.array([9.0, 18.0])
    tasks = np.array([[1.0, 4.0], [3.0, 1.0]])
    shares = closed_form(demand_vectors(tasks / capacity), np.ones(2)) * capacity
    assert np.allclose(shares[:, 0] / tasks[:, 0], [3, 2]) and np.allclose(shares[:, 1] / tasks[:, 1], [3, 2])


@given(demands())
def test_the_closed_form_is_what_filling_finds(case: Any) -> None:
    demand, weights = case
    assert np.allclose(closed_form(demand, weights), filled(demand, weights))


@given(demands(FROM_ZERO))
def test_filling_is_fair_and_leaves_no_job_with_room(case: Any) -> None:
    demand, weights = case
    shares = filled(demand, weights)
    used = shares.sum(axis=0)
    assert (used <= 1 + 1e-9).all()
    full = used > 1 - 1e-9
    level = shares.max(axis=1) / weights
    for job, wanted in enumerate(demand):
        held_back_by = full & (wanted > 0)
        assert held_back_by.any(), "it could have more"
        sharing = (demand[:, held_back_by] > 0).any(axis=1)
        assert level[job] >= level[sharing].min() - 1e-9


@given(demands())
def test_no_job_would_rather_have_its_part_of_everything_or_what_another_has(case: Any) -> None:
    """Sharing incentive, and freedom of envy, of jobs of equal weights (paper 002 builds on both)."""
    demand, _ = case
    shares = closed_form(demand, np.ones(len(demand)))
    for job, wanted in enumerate(demand):
        tasks = (shares[job] / wanted).min()
        assert tasks >= (1 / len(demand) / wanted).min() - 1e-9
        for other in shares:
            assert tasks >= (other / wanted).min() - 1e-9


def test_what_a_job_cannot_use_others_have() -> None:
    demand = demand_vectors(np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]]))
    shares = filled(demand, np.ones(3), most=np.array([0.1, 1.0, 1.0]))
    assert np.allclose(shares, [[0.1, 0.1], [0.45, 0.45], [0.45, 0]])
    half = filled(demand, np.ones(3), capacity=np.array([0.3, 1.0]))
    assert np.allclose(half[:, 0], 0.1)


@given(demands(), st.sampled_from(Cap))
def test_caps_have_room_for_the_share_and_for_the_largest_task(case: Any, rule: Cap) -> None:
    demand, weights = case
    shares = closed_form(demand, weights)
    largest = np.full_like(demand, 0.01)
    found = caps(shares, weights, rule, largest)
    assert (found >= largest).all()
    if rule is Cap.DOMINANT:
        assert np.allclose(found, np.maximum(shares.max(axis=1, keepdims=True), largest))
    elif rule is Cap.VECTOR:
        assert np.allclose(found, np.maximum(shares, largest))
    else:
        assert (found.sum(axis=0) <= 1 + len(demand) * 0.01).all()


def test_a_users_weight_is_divided_among_its_jobs() -> None:
    weights = weights_of([("ada", 1.0), ("ada", 3.0), ("bob", 1.0)], {"ada": 2.0})
    assert np.allclose(weights, [0.5, 1.5, 1.0])


def test_a_job_without_work_has_no_share() -> None:
    with pytest.raises(ValueError, match="a job without any work"):
        demand_vectors(np.zeros((1, 2)))


# ---- a capacity scheduler ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("guaranteed", "most", "message"), [
    (0.0, 1.0, "guaranteed: 0.0 is not valid"), (1.5, 1.0, "guaranteed: 1.5"), (0.5, 0.4, "most: 0.4 is not valid"),
    (0.5, 1.1, "most: 1.1"),
])  # fmt: skip
def test_a_queue_that_cannot_be_is_refused(guaranteed: float, most: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Queue(guaranteed, most)


def test_more_than_everything_cannot_be_guaranteed() -> None:
    with pytest.raises(ValueError, match=r"guaranteed: 1.2 in all queues"):
        Queues({"a": Queue(0.6), "b": Queue(0.6)})
