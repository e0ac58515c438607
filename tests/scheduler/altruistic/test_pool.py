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
from scheduler.altruistic.packing import breadth_first
from scheduler.altruistic.pool import Lend, Rank, Round, Settings, Start

EPS = 1e-6
J1 = Dag([Group(2, (0.04,), 1.0), Group(3, (0.21,), 1.0), Group(1, (0.5,), 0.1, (0, 1))])
J2 = Dag([Group(2, (0.29,), 1.0)])


def completions(
    dags: list[Dag], caps: Any, settings: Settings, *, altruism: float = 1.0
) -> tuple[list[float], list[float], list[list[Start]]]:
    """When each job ends, its first target, and what started at each look. `altruism`: how often jobs yield."""
    chance = Random(1)
    jobs = [Job.new(dag) for dag in dags]
    ends: list[float | None] = [None] * len(jobs)
    first: list[float] = []
    looks: list[list[Start]] = []
    now_s = 0.0
    for _ in range(1000):
        look = Round(jobs, caps, now_s, settings)
        looks.append(look.run([chance.random() < altruism for _ in jobs]))
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
    look.run([True] * len(jobs))
    for job in jobs:
        assert all((job.dag.demand[group] > look.free + EPS).any() for group in job.ready())


def test_a_greedy_loan_may_hold_what_its_owner_needs_later_and_a_profile_does_not_lend_it() -> None:
    """The other job's long task would be at work when this one's must start."""
    owner = Dag([Group(1, (0.1,), 1.0), Group(1, (0.5,), 1.0, (0,))])
    long = Dag([Group(2, (0.4,), 10.0)])
    ends = {lend: completions([owner, long], np.full((2, 1), 0.5), Settings(lend=lend))[0][0] for lend in Lend}
    assert ends[Lend.PROFILE] == 2.0 and ends[Lend.GREEDY] > 2.0


# ---- schedulers that the paper is measured against ------------------------------------------------------

SHORT, LONG = Dag([Group(4, (0.25,), 1.0)]), Dag([Group(8, (0.25,), 1.0)])
NARROW = Dag([Group(1, (0.25,), 1.0), Group(1, (0.25,), 1.0, (0,)), Group(1, (0.25,), 1.0, (1,))])
"""Little work on a long path."""


def first_look(dags: list[Dag], settings: Settings) -> list[Start]:
    jobs = [Job.new(dag) for dag in dags]
    caps = np.full((len(jobs), dags[0].demand.shape[1]), 1 / len(jobs))
    return Round(jobs, caps, 0.0, settings).run([False] * len(jobs))


def started(starts: list[Start], jobs: int) -> list[int]:
    return [sum(start.tasks for start in starts if start.job == number) for number in range(jobs)]


def test_drf_gives_tasks_to_whoever_has_least_of_its_share() -> None:
    """9 CPUs and 18 GB; tasks of (1, 4) and of (3, 1): three and two of them."""
    dags = [Dag([Group(9, (1 / 9, 4 / 18), 1.0)]), Dag([Group(9, (3 / 9, 1 / 18), 1.0)])]
    assert started(first_look(dags, Settings(may=Rank.DRF)), 2) == [3, 2]


def test_shortest_jobs_first_by_work_and_by_their_longest_path() -> None:
    assert started(first_look([LONG, SHORT], Settings(may=Rank.SJF)), 2) == [0, 4]
    assert started(first_look([LONG, NARROW], Settings(may=Rank.SJF)), 2) == [3, 1]
    assert started(first_look([LONG, NARROW], Settings(may=Rank.SJF_BY_PATH)), 2) == [4, 0]


def test_packing_takes_the_task_that_is_most_like_what_is_free_and_tetris_jobs_with_little_left_too() -> None:
    large, small = Dag([Group(20, (0.6, 0.6), 1.0)]), Dag([Group(1, (0.5, 0.5), 1.0)])
    assert started(first_look([large, small], Settings(may=Rank.PACK)), 2) == [1, 0]
    assert started(first_look([large, small], Settings(may=Rank.TETRIS)), 2) == [0, 1]


def test_tetris_with_fairness_leaves_out_jobs_that_have_most_of_their_share() -> None:
    large, small = Dag([Group(4, (0.3,), 1.0)]), Dag([Group(8, (0.1,), 1.0)])
    jobs = [Job.new(large), Job.new(small)]
    jobs[0].start(0, 1, 0.0)
    look = Round(jobs, np.full((2, 1), 0.5), 0.0, Settings(may=Rank.TETRIS, fairness=0.5))
    assert started(look.run([False, False]), 2) == [0, 7]


@given(st.integers(0, 1 << 30))
def test_without_altruism_and_with_drfs_order_of_what_is_left_over_it_is_drf_step_for_step(seed: int) -> None:
    """§3.4: P(Altruism) = 0 reduces Carbyne to DRF. Here DRF is written down once more, from its definition."""
    dags, caps = random_jobs(seed)
    _, _, looks = completions(dags, caps, Settings(order=breadth_first, may=Rank.DRF), altruism=0.0)
    jobs, now_s = [Job.new(dag) for dag in dags], 0.0
    for look in looks:
        expected = []
        while True:
            free = 1 + EPS / 1000 - sum((job.used() for job in jobs), np.zeros(caps.shape[1]))
            by_share = sorted(range(len(jobs)), key=lambda number: (jobs[number].used() / caps[number]).max())
            for number in by_share:
                job = jobs[number]
                groups = [group for group in job.ready() if (job.dag.demand[group] <= free).all()]
                if groups:
                    group = min(groups, key=lambda group: (job.dag.depth[group], group))
                    job.start(group, 1, now_s)
                    expected.append((number, group))
                    break
            else:
                break
        assert [(start.job, start.group) for start in look for _ in range(start.tasks)] == expected
        ends = [at.end_s for job in jobs for at in job.running]
        if ends:
            now_s = min(ends)
            for job in jobs:
                job.running = [at for at in job.running if at.end_s > now_s + EPS]


@given(st.integers(0, 1 << 30), st.sampled_from(Rank), st.floats(0, 1))
def test_whoever_yields_all_jobs_end(seed: int, may: Rank, altruism: float) -> None:
    """Nobody starves."""
    dags, caps = random_jobs(seed)
    ends, _, _ = completions(dags, caps, Settings(may=may), altruism=altruism)
    assert len(ends) == len(dags)
