"""What a job must run now, and when: packed and justified schedules, targets, the example of figure 2."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.altruistic.at_work import Running, columns_of
from scheduler.altruistic.dags import Dag, DagError, Group
from scheduler.altruistic.intra import Horizon, Job, Plan, planned
from scheduler.altruistic.orders import Order
from scheduler.altruistic.packing import Run, Schedule, justified, packed

EPS = 1e-6
HALF = np.array([0.5])
ONE = np.ones(1)


def random_dag(chance: Random, resources: int = 2) -> Dag:
    """Up to six stages of up to five tasks; demands and durations in eighths."""
    groups = []
    for number in range(chance.randint(1, 6)):
        parents = tuple(parent for parent in range(number) if chance.random() < 0.4)
        demand = [chance.randint(0, 4) / 8 for _ in range(resources)]
        demand[chance.randrange(resources)] = chance.randint(1, 4) / 8
        groups.append(Group(chance.randint(1, 5), tuple(demand), chance.randint(1, 16) / 8, parents))
    return Dag(groups)


def used_at(dag: Dag, runs: list[Run], running: list[Running], at_s: float, now_s: float) -> Any:
    total = np.zeros(dag.demand.shape[1])
    for group, start_s, tasks in runs:
        if start_s <= at_s < start_s + dag.duration_s[group] - EPS:
            total += tasks * dag.demand[group]
    for group, end_s, tasks in running:
        if now_s <= at_s < end_s - EPS:
            total += tasks * dag.demand[group]
    return total


def check_feasible(
    dag: Dag, schedule: Schedule, left: list[int], running: list[Running], cap: Any, now_s: float
) -> None:
    """All tasks once, children after parents, nothing before now or after the end, no more than may be used."""
    for group, tasks in enumerate(left):
        assert sum(run.tasks for run in schedule.runs.listed() if run.group == group) == tasks
    for group, start_s, _ in schedule.runs.listed():
        assert now_s - EPS <= start_s and start_s + dag.duration_s[group] <= schedule.end_s + EPS
        for parent in dag.groups[group].parents:
            for other, other_s, _ in schedule.runs.listed():
                assert other != parent or other_s + dag.duration_s[parent] <= start_s + EPS
            assert all(at.end_s <= start_s + EPS for at in running if at.group == parent)
    for _, start_s, _ in schedule.runs.listed():
        assert (used_at(dag, schedule.runs.listed(), running, start_s + EPS, now_s) <= cap + EPS).all()


def random_case(seed: int) -> tuple[Dag, list[int], list[Running], Any, float]:
    """A job that has begun somewhere, and what it may use."""
    chance = Random(seed)
    dag = random_dag(chance)
    cap = np.maximum(dag.largest, [chance.randint(2, 10) / 8 for _ in range(2)])
    running: list[Running] = []
    left, now_s = dag.tasks.tolist(), float(chance.randint(0, 3))
    for group in dag.order:
        busy = {number for number, tasks in enumerate(left) if tasks} | {at.group for at in running}
        if not busy.isdisjoint(dag.groups[group].parents) or chance.random() < 0.4:
            break
        ended = chance.randint(0, left[group])
        left[group] -= ended
        free = cap - sum((at.tasks * dag.demand[at.group] for at in running), np.zeros(2))
        if left[group] and chance.random() < 0.5 and (dag.demand[group] <= free + EPS).all():
            left[group] -= 1
            running.append(Running(group, now_s + chance.randint(1, 8) / 8, 1))
    return dag, left, running, cap, now_s


@given(st.integers(0, 1 << 30), st.sampled_from(Order))
def test_a_packed_schedule_is_feasible_and_a_justified_one_is_too_no_longer_and_none_starts_sooner(
    seed: int, order: Order
) -> None:
    dag, left, running, cap, now_s = random_case(seed)
    schedule = packed(dag, np.array(left), columns_of(running), cap, now_s, np.ones(2), order)
    check_feasible(dag, schedule, left, running, cap, now_s)
    busy = {group for group, tasks in enumerate(left) if tasks} | {at.group for at in running}
    ready = {group for group, tasks in enumerate(left) if tasks and busy.isdisjoint(dag.groups[group].parents)}
    for movable in (None, ready):
        latest = justified(dag, schedule, columns_of(running), cap, now_s, movable)
        check_feasible(dag, latest, left, running, cap, now_s)
        assert latest.end_s == schedule.end_s
        for group in range(len(dag.groups)):
            before, after = (
                sorted(run.start_s for run in each.runs.listed() if run.group == group for _ in range(run.tasks))
                for each in (schedule, latest)
            )
            assert all(late >= early - EPS for early, late in zip(before, after, strict=True))
            assert movable is None or group in movable or before == after


def played(job: Job, cap: Any, horizon: Horizon, chance: Random | None = None) -> tuple[float, list[float]]:
    """Run what must run, when it must, until the job is over: when that is, and its targets. With `chance` it is lent
    room for further tasks now and then, beyond what it may use."""
    now_s, targets = 0.0, []
    for _ in range(500):
        plan = planned(job, cap, now_s, np.ones(2), horizon=horizon)
        targets.append(job.target_s)
        for group, tasks in plan.must_run.items():
            job.start(group, tasks, now_s)
        assert chance is not None or (job.used() <= cap + EPS).all()
        for group in job.ready() if chance is not None else ():
            if chance is not None and chance.random() < 0.3:
                job.start(group, chance.randint(1, job.left[group]), now_s)
        if job.is_over:
            return now_s, targets
        now_s = min([*(at.end_s for at in job.running), plan.next_s])
        assert math.isfinite(now_s), "nothing runs, and nothing will"
        for at in job.running:
            if at.end_s <= now_s + EPS:
                job.ended(*at)
    raise AssertionError("it does not end")


@given(st.integers(0, 1 << 30), st.sampled_from(Horizon), st.booleans())
def test_a_job_that_yields_what_it_can_ends_when_it_said_at_first(seed: int, horizon: Horizon, lent: bool) -> None:
    """Theorem 3.1 for a job alone: it runs what it must, when it must, and, if it is lent room, more. Its target never
    rises."""
    chance = Random(seed)
    dag = random_dag(chance)
    cap = np.maximum(dag.largest, [chance.randint(2, 10) / 8 for _ in range(2)])
    job = Job(dag)
    end_s, targets = played(job, cap, horizon, chance if lent else None)
    assert end_s <= targets[0] + EPS and targets == sorted(targets, reverse=True)
    assert end_s <= targets[-1] + EPS


def test_a_job_whose_share_shrank_has_another_target() -> None:
    job = Job(J2)
    planned(job, np.array([0.6]), 0.0, ONE)
    assert job.target_s == 1.0
    plan = planned(job, HALF, 0.0, ONE, anew=True)
    assert job.target_s == 2.0 and plan.must_run == {0: 1}


# ---- figure 2 -------------------------------------------------------------------------------------------

J1 = Dag([Group(2, (0.04,), 1.0), Group(3, (0.21,), 1.0), Group(1, (0.5,), 0.1, (0, 1))])
J2 = Dag([Group(2, (0.29,), 1.0)])


def yielded(plan: Plan, dag: Dag) -> float:
    return float((HALF - sum(tasks * dag.demand[group] for group, tasks in plan.must_run.items()))[0])


@pytest.mark.parametrize("horizon", Horizon)
def test_jobs_of_figure_2_yield_as_much_as_the_paper_says(horizon: Horizon) -> None:
    """§3.3: with half of the resource each J1 yields 0.29 (0.08 of S0's tasks and 0.21 of one of S1's), and J2 0.21."""
    one, other = Job(J1), Job(J2)
    first, second = (planned(job, HALF, 0.0, ONE, horizon=horizon) for job in (one, other))
    assert one.target_s == pytest.approx(2.1) and other.target_s == 2.0
    assert first.must_run == {1: 1} and second.must_run == {0: 1}
    assert yielded(first, J1) == pytest.approx(0.29) and yielded(second, J2) == pytest.approx(0.21)
    assert first.next_s == pytest.approx(1.0) and second.next_s == 1.0


def test_the_papers_line_20_has_a_sign_wrong() -> None:
    """Actual = Rev + T − Dur would start S2 of J1, which is first in the reversed graph (Rev = 0), at T − Dur, but S0
    (Rev 0.1, Dur 1) at 1.2, after S2 must have begun: T − Rev − Dur is meant."""
    end_s, reversed_s, duration_s = 2.1, 0.1, 1.0
    assert end_s + reversed_s - duration_s + duration_s > end_s - 0.1
    job = Job(J1)
    planned(job, HALF, 0.0, ONE)
    last = max(run.start_s for run in job.plan.listed() if run.group == 0)
    assert last == pytest.approx(end_s - reversed_s - duration_s)


def test_a_job_for_which_nothing_ran_when_it_had_to_keeps_its_target_and_its_plan() -> None:
    job = Job(J1)
    planned(job, HALF, 0.0, ONE)
    plan = planned(job, HALF, 0.4, ONE)
    assert job.target_s == pytest.approx(2.1)
    assert plan.must_run == {1: 1} and plan.next_s == pytest.approx(1.0)


# ---- what a job says of itself --------------------------------------------------------------------------

TASK = Group(1, (0.1,), 1.0)


@pytest.mark.parametrize(("groups", "message"), [
    ([], "stages: 0 is not valid"),
    ([TASK] * 1001, "stages: 1,001 is not valid; allowed: 1 to 1,000"),
    ([Group(100_001, (0.1,), 1.0)], "tasks: 100,001 is not valid"),
    ([Group(0, (0.1,), 1.0)], "tasks of stage 0: 0 is not valid"),
    ([Group(1, (0.1,), 0.0)], r"duration_s of stage 0: 0.0 is not valid"),
    ([Group(1, (0.1,), math.nan)], "duration_s of stage 0: nan"),
    ([Group(1, (0.1,), 2e9)], r"duration_s of stage 0: 2000000000.0 is not valid; allowed: above 0, up to 1e\+09"),
    ([Group(1, (-0.1,), 1.0)], "demand of stage 0"),
    ([Group(1, (0.0,), 1.0)], "one of them above 0"),
    ([Group(1, (math.inf,), 1.0)], "demand of stage 0"),
    ([TASK, Group(1, (0.1, 0.1), 1.0)], "demand of stage 1: 2 resources; stage 0 has 1"),
    ([Group(1, (0.1,), 1.0, (1,))], "parents of stage 0"),
    ([TASK, Group(1, (0.1,), 1.0, (0, 0))], "parents of stage 1"),
    ([Group(1, (0.1,), 1.0, (1,)), Group(1, (0.1,), 1.0, (0,))], r"stages \[0, 1\] wait for each other"),
])  # fmt: skip
def test_a_dag_that_cannot_be_is_refused_by_field(groups: list[Group], message: str) -> None:
    with pytest.raises(DagError, match=message):
        Dag(groups)


def test_what_is_known_of_a_dag() -> None:
    dag = Dag([Group(2, (0.1, 0.2), 2.0), Group(1, (0.3, 0.0), 1.0), Group(4, (0.1, 0.1), 0.5, (0, 1))])
    assert np.allclose(dag.work, [0.4 + 0.3 + 0.2, 0.8 + 0.2]) and dag.critical_path_s == 2.5 and dag.barriers == 1
    assert np.allclose(dag.largest, [0.3, 0.2]) and dag.depth.tolist() == [0, 0, 1]
    assert Job(dag).remaining_work(np.ones(len(dag.work))) == pytest.approx(dag.work.max())


def test_a_cap_without_room_for_the_largest_task_is_refused() -> None:
    with pytest.raises(ValueError, match=r"cap: .* room for the largest task"):
        packed(J2, np.array([2]), columns_of([]), np.array([0.2]), 0.0, ONE)
