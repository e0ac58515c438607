"""One pool: what starts when, the example of figure 2, theorem 3.1."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.intra import Horizon, Job
from scheduler.altruistic.pool import Lend, Rank, Round, Settings, Start

EPS = 1e-6
J1 = Dag([Group(2, (0.04,), 1.0), Group(3, (0.21,), 1.0), Group(1, (0.5,), 0.1, (0, 1))])
J2 = Dag([Group(2, (0.29,), 1.0)])


def completions(dags: list[Dag], caps: Any, settings: Settings) -> tuple[list[float], list[float], list[list[Start]]]:
    """When each job ends, its first target, and what started at each look."""
    jobs = [Job.new(dag) for dag in dags]
    ends: list[float | None] = [None] * len(jobs)
    first: list[float] = []
    looks: list[list[Start]] = []
    now_s = 0.0
    for _ in range(1000):
        look = Round(jobs, caps, now_s, settings)
        looks.append(look.run())
        first = first or [job.target_s for job in jobs]
        used = sum((job.used() for job in jobs), np.zeros(caps.shape[1]))
        assert (used <= 1 + EPS).all()
        for number, job in enumerate(jobs):
            if job.is_over and ends[number] is None:
                ends[number] = now_s
        if all(end_s is not None for end_s in ends):
            return [end_s for end_s in ends if end_s is not None], first, looks
        now_s = min([look.next_s, *(at.end_s for job in jobs for at in job.running)])
        assert np.isfinite(now_s), "nothing runs, and nothing will"
        for job in jobs:
            job.running = [at for at in job.running if at.end_s > now_s + EPS]
    raise AssertionError("it does not end")


@pytest.mark.parametrize("horizon", Horizon)
@pytest.mark.parametrize("lend", Lend)
def test_figure_2(horizon: Horizon, lend: Lend) -> None:
    """Of what both yield, 0.5, J2 gets 0.29, as it is closest to its end, and then J1 0.21: 2.1 and 1.0, mean 1.55."""
    ends, _, looks = completions([J1, J2], np.full((2, 1), 0.5), Settings(horizon=horizon, lend=lend))
    assert ends == [pytest.approx(2.1), pytest.approx(1.0)] and np.mean(ends) == pytest.approx(1.55)
    must, lent = ([start[:3] for start in looks[0] if start.is_lent is which] for which in (False, True))
    assert sorted(must) == [(0, 1, 1), (1, 0, 1)]
    assert lent[0] == (1, 0, 1) and (0, 1, 1) in lent


def test_strict_shares_of_figure_2_take_longer() -> None:
    """The paper's 2.05 is the mean of jobs that each keep to half of the resource (figure 2b)."""
    ends = [completions([dag], np.full((1, 1), 0.5), Settings())[1][0] for dag in (J1, J2)]
    assert np.mean(ends) == pytest.approx(2.05)


def random_jobs(seed: int) -> tuple[list[Dag], Any]:
    """Up to four jobs whose tasks fit into the job's part of everything; and these parts."""
    chance = Random(seed)
    count, resources = chance.randint(1, 4), chance.randint(1, 3)
    dags = []
    for _ in range(count):
        groups = []
        for number in range(chance.randint(1, 5)):
            parents = tuple(parent for parent in range(number) if chance.random() < 0.4)
            demand = [chance.randint(0, 8) / 8 / count for _ in range(resources)]
            demand[chance.randrange(resources)] = chance.randint(1, 8) / 8 / count
            groups.append(Group(chance.randint(1, 4), tuple(demand), chance.randint(1, 16) / 8, parents))
        dags.append(Dag(groups))
    return dags, np.full((count, resources), 1 / count)


@given(st.integers(0, 1 << 30), st.sampled_from(Horizon), st.sampled_from(Rank), st.sampled_from(Rank))
def test_theorem_3_1_no_job_ends_later_than_its_first_target(
    seed: int, horizon: Horizon, must: Rank, may: Rank
) -> None:
    """Jobs that are all there from the start, each with the same part of everything, in a pool: altruism makes none
    later, whatever the order in which tasks that may run are lent what is left over."""
    dags, caps = random_jobs(seed)
    ends, first, _ = completions(dags, caps, Settings(horizon=horizon, must=must, may=may, lend=Lend.PROFILE))
    assert all(end_s <= target_s + EPS for end_s, target_s in zip(ends, first, strict=True))


@given(st.integers(0, 1 << 30), st.sampled_from(Rank))
def test_what_is_lent_greedily_leaves_no_room_for_a_task_that_may_run(seed: int, may: Rank) -> None:
    """Work conservation (§3.2)."""
    dags, caps = random_jobs(seed)
    jobs = [Job.new(dag) for dag in dags]
    look = Round(jobs, caps, 0.0, Settings(may=may))
    look.run()
    for job in jobs:
        assert all((job.dag.demand[group] > look.free + EPS).any() for group in job.ready())


def test_a_greedy_loan_may_hold_what_its_owner_needs_later_and_a_profile_does_not_lend_it() -> None:
    """The other job's long task would be at work when this one's must start."""
    owner = Dag([Group(1, (0.1,), 1.0), Group(1, (0.5,), 1.0, (0,))])
    long = Dag([Group(2, (0.4,), 10.0)])
    ends = {lend: completions([owner, long], np.full((2, 1), 0.5), Settings(lend=lend))[0][0] for lend in Lend}
    assert ends[Lend.PROFILE] == 2.0 and ends[Lend.GREEDY] > 2.0
