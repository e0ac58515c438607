"""Paper 002, §3 and §4: what its text claims of altruistic scheduling, a test a claim.

Figure 2, theorem 3.1, work conservation and P = 0 are in tests/scheduler/altruistic/test_allocator.py.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.intra import Horizon, Job, planned
from scheduler.altruistic.settings import Rank, Settings
from scheduler.altruistic.shares import Cap
from tests.support.altruistic import EPS, J1, J2, Played, random_jobs

ONE = np.ones(1)
EQUAL = Settings(cap=Cap.EQUAL)


def test_3_2_it_looks_when_jobs_arrive_and_end_and_when_tasks_end_and_at_nothing_else() -> None:
    """ "invoked on job arrival, job completion, as well as task completion events". (Here also at the next latest
    start, which the allocator names.)"""
    played = Played([J1, J2], EQUAL)
    assert played.look() and not played.look()
    played.now_s = played.allocator.next_s - EPS
    assert not played.look()


def test_3_3_a_job_donates_more_the_further_it_can_put_off_its_tasks() -> None:
    """A packer that considers the whole DAG leaves more than one that looks at children of ready tasks alone."""
    dag = Dag([Group(1, (0.4,), 1.0), Group(1, (0.1,), 1.0, (0,)), Group(1, (0.1,), 1.0), Group(1, (0.1,), 5.0)])
    must = {horizon: planned(Job(dag), np.array([0.6]), 0.0, ONE, horizon=horizon).must_run for horizon in Horizon}
    assert must[Horizon.DAG] == {3: 1} and set(must[Horizon.BARRIER]) > {3}


def test_3_3_looking_at_their_whole_rest_random_jobs_must_run_less_than_looking_at_barriers() -> None:
    """But for a few, as lists of tasks do."""
    must: dict[Horizon, list[int]] = {horizon: [] for horizon in Horizon}
    for dag in (dag for seed in range(200) for dag in random_jobs(seed)):
        cap, scale = np.maximum(dag.largest, 0.5), np.ones(dag.demand.shape[1])
        for horizon, found in must.items():
            found.append(sum(planned(Job(dag), cap, 0.0, scale, horizon=horizon).must_run.values()))
    barrier, whole = np.array(must[Horizon.BARRIER]), np.array(must[Horizon.DAG])
    assert whole.sum() < 0.95 * barrier.sum() and (whole > barrier).mean() < 0.01


def test_3_3_leftovers_first_end_jobs_and_then_are_filled_up() -> None:
    """SRTF takes J2's task, 0.29, and packing J1's, 0.21: together all that was yielded."""
    played = Played([J1, J2], EQUAL)
    lent = [(start.job, start.group) for start in played.look() if start.is_lent]
    assert lent[0] == ("1", 0) and ("0", 1) in lent and played.allocator.machines.free[0, 0] < 0.04


@pytest.mark.parametrize("may", [Rank.SRTF, Rank.PACK, Rank.DRF])
def test_4_whose_leftovers_come_first_can_be_reversed(may: Rank) -> None:
    """ "their order can be reversed": what jobs must run does not depend on it."""
    played = Played([J1, J2], Settings(cap=Cap.EQUAL, may=may))
    must = sorted((start.job, start.group, start.tasks) for start in played.look() if not start.is_lent)
    assert must == [("0", 1, 1), ("1", 0, 1)]


def test_3_4_jobs_that_arrive_shrink_the_share_and_the_target_moves_back() -> None:
    """Theorem 3.1 holds offline only."""
    played = Played([Dag([Group(8, (0.25,), 1.0)])], EQUAL)
    played.look()
    first = played.targets()[0]
    played.next()
    played.dags.append(Dag([Group(8, (0.25,), 1.0)]))
    played.ends.append(np.inf)
    played.allocator.job_came("1", played.dags[1])
    played.look()
    here = played.allocator.jobs["0"]
    assert first == 2.0 and here.job.target_s > first and here.late == 1


@given(st.integers(0, 1 << 30))
def test_3_4_a_target_never_rises_while_the_share_stands(seed: int) -> None:
    """Nor when other jobs end, as shares then grow."""
    played = Played(random_jobs(seed), EQUAL)
    before = dict[str, float]()
    while True:
        played.look()
        for name, here in played.allocator.jobs.items():
            assert here.job.target_s <= before.get(name, np.inf) + EPS
            before[name] = here.job.target_s
        if not played.next():
            return


def test_3_5_a_task_that_fails_has_the_completion_estimated_anew() -> None:
    """ "in case of task failures, Carbyne must recalculate the completion estimation"."""
    played = Played([Dag([Group(2, (0.5,), 2.0)])], EQUAL)
    (start,) = played.look()
    assert played.targets() == [2.0]
    played.now_s = 1.0
    played.allocator.failed(start.job, start.group, start.machine, start.end_s)
    assert [again.tasks for again in played.allocator.pump(1.0)] == [1]
    assert played.targets() == [3.0]


def test_3_4_nobody_yields_by_chance_alone() -> None:
    """P(Altruism) = 0.5: a job yields at about every second look."""
    chance = Random(3)
    yields = 0
    for _ in range(200):
        played = Played([J1, J2], Settings(cap=Cap.EQUAL, altruism=0.5))
        played.allocator._draw = chance.random
        yields += any(start.job == "0" and not start.is_lent and start.tasks == 1 for start in played.look())
    assert 60 < yields < 140


def test_2_2_stages_with_several_parents_are_barriers() -> None:
    assert J1.barriers == 1 and J2.barriers == 0
