"""Who starts what, and where: the example of figure 2, theorem 3.1, schedulers to compare with, many machines."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler.altruistic import allocator as allocators
from scheduler.altruistic.allocator import PLAN_UNITS_MAX, Allocator, Start
from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.intra import Horizon
from scheduler.altruistic.orders import Order
from scheduler.altruistic.settings import CARBYNE, Lend, Rank, Settings, SettingsError, settings_named
from scheduler.altruistic.shares import Cap, Queue
from tests.support.altruistic import EPS, J1, J2, Played, random_jobs

ROOT = Path(__file__).parents[3]


def completions(
    dags: list[Dag], settings: Settings, machines: Any = None
) -> tuple[list[float], list[float], list[list[Start]]]:
    """When each job ends, its first target, and what started at each look. Jobs have equal parts of everything."""
    played = Played(dags, replace(settings, cap=Cap.EQUAL), machines)
    played.look()
    first = played.targets()
    played.next()
    return played.play().ends, first, played.looks


@pytest.mark.parametrize("horizon", Horizon)
@pytest.mark.parametrize("lend", Lend)
def test_figure_2(horizon: Horizon, lend: Lend) -> None:
    """Of what both yield, 0.5, J2 gets 0.29, as it is closest to its end, and then J1 0.21: 2.1 and 1.0, mean 1.55."""
    ends, _, looks = completions([J1, J2], Settings(horizon=horizon, lend=lend))
    assert ends == [pytest.approx(2.1), pytest.approx(1.0)] and np.mean(ends) == pytest.approx(1.55)
    must, lent = (
        [(start.job, start.group, start.tasks) for start in looks[0] if start.is_lent is which]
        for which in (False, True)
    )
    assert sorted(must) == [("0", 1, 1), ("1", 0, 1)]
    assert lent[0] == ("1", 0, 1) and ("0", 1, 1) in lent


def test_strict_shares_of_figure_2_take_longer() -> None:
    """The paper's 2.05 is the mean of jobs that each keep to half of the resource (figure 2b)."""
    ends = [completions([dag], Settings(), np.full((1, 1), 0.5))[0][0] for dag in (J1, J2)]
    assert np.mean(ends) == pytest.approx(2.05)


@given(st.integers(0, 1 << 30), st.sampled_from(Horizon), st.sampled_from(Rank), st.sampled_from(Rank))
def test_theorem_3_1_no_job_ends_later_than_its_first_target(
    seed: int, horizon: Horizon, must: Rank, may: Rank
) -> None:
    """Jobs that are all there from the start, each with the same part of everything, in a pool: altruism makes none
    later, whatever the order in which tasks that may run are lent what is left over."""
    ends, first, _ = completions(random_jobs(seed), Settings(horizon=horizon, must=must, may=may, lend=Lend.PROFILE))
    assert all(end_s <= target_s + EPS for end_s, target_s in zip(ends, first, strict=True))


@given(st.integers(0, 1 << 30), st.sampled_from(Rank), st.integers(1, 5), st.sampled_from([0.0, 0.5, 1.0]))
def test_what_is_lent_greedily_leaves_no_room_for_a_task_that_may_run(
    seed: int, may: Rank, machines: int, altruism: float
) -> None:
    """Work conservation (§3.2), after each event, on any number of machines."""
    dags = random_jobs(seed)
    played = Played(dags, Settings(may=may, altruism=altruism), np.ones((machines, dags[0].demand.shape[1])))
    while True:
        played.look()
        held = set(np.flatnonzero(played.allocator.machines.held_for >= 0).tolist())
        for here in played.allocator.jobs.values():
            for group in here.job.ready():
                fits = (here.job.dag.demand[group] <= played.allocator.machines.free - EPS).all(axis=1)
                assert not [number for number in np.flatnonzero(fits) if number not in held]
        if not played.next():
            return


def test_a_greedy_loan_may_hold_what_its_owner_needs_later_and_a_profile_does_not_lend_it() -> None:
    """The other job's long task would be at work when this one's must start."""
    owner = Dag([Group(1, (0.1,), 1.0), Group(1, (0.5,), 1.0, (0,))])
    long = Dag([Group(2, (0.4,), 10.0)])
    ends = {lend: completions([owner, long], Settings(lend=lend))[0][0] for lend in Lend}
    assert ends[Lend.PROFILE] == 2.0 and ends[Lend.GREEDY] > 2.0


# ---- schedulers that the paper is measured against ------------------------------------------------------

SHORT, LONG = Dag([Group(4, (0.25,), 1.0)]), Dag([Group(8, (0.25,), 1.0)])
NARROW = Dag([Group(1, (0.25,), 1.0), Group(1, (0.25,), 1.0, (0,)), Group(1, (0.25,), 1.0, (1,))])
"""Little work on a long path."""


def first_look(dags: list[Dag], may: Rank, fairness: float = 0.0) -> list[int]:
    """How many tasks of each job start at first."""
    looked = Played(dags, Settings(altruism=0.0, may=may, fairness=fairness, cap=Cap.EQUAL)).look()
    return [sum(start.tasks for start in looked if start.job == str(number)) for number in range(len(dags))]


def test_drf_gives_tasks_to_whoever_has_least_of_its_share() -> None:
    """9 CPUs and 18 GB; tasks of (1, 4) and of (3, 1): three and two of them."""
    dags = [Dag([Group(9, (1 / 9, 4 / 18), 1.0)]), Dag([Group(9, (3 / 9, 1 / 18), 1.0)])]
    assert first_look(dags, Rank.DRF) == [3, 2]


@pytest.mark.parametrize("settings", [CARBYNE, replace(CARBYNE, lend=Lend.PROFILE), replace(CARBYNE, altruism=0.5)])
def test_nothing_is_planned_while_no_machine_has_what_a_job_needs(settings: Settings) -> None:
    """The job's first task needs no more than what stays."""
    chain = Dag([Group(1, (1.0, 0.0), 1.0), Group(4, (1.0, 1.0), 1.0, (0,))])
    allocator = Allocator(2, settings)
    allocator.machines_came(["a", "b"], np.array([[2.0, 0.0], [2.0, 2.0]]))
    allocator.job_came("j", chain)
    allocator.machine_gone("b")
    (first,) = allocator.pump(0.0)
    assert (first.group, first.machine, allocator.next_s) == (0, "a", np.inf)
    allocator.ended("j", 0, "a", first.end_s)
    allocator.machine_gone("a")
    assert not allocator.pump(1.0) and allocator.next_s == np.inf
    allocator.machines_came(["b"], np.full((1, 2), 2.0))
    assert [(start.group, start.machine, start.tasks) for start in allocator.pump(9.0)] == [(1, "b", 2)]


def test_a_job_that_comes_before_all_machines_has_the_share_that_it_would_have_after_them() -> None:
    """Of the second resource there are a thousand times as many units."""
    demands = []
    for is_early in (False, True):
        allocator = Allocator(2)
        for step in ("job", "machines") if is_early else ("machines", "job"):
            if step == "job":
                allocator.job_came("j", Dag([Group(4, (1.0, 10.0), 1.0)]))
                allocator.pump(0.0)
            else:
                allocator.machines_came(["m"], np.array([[10.0, 10_000.0]]))
        allocator.pump(1.0)
        demands.append(allocator.jobs["j"].demand.tolist())
    assert demands[0] == demands[1] == [1.0, 0.01]


def test_shortest_jobs_first_by_work_and_by_their_longest_path() -> None:
    assert first_look([LONG, SHORT], Rank.SJF) == [0, 4]
    assert first_look([LONG, NARROW], Rank.SJF) == [3, 1]
    assert first_look([LONG, NARROW], Rank.SJF_BY_PATH) == [4, 0]


def test_packing_takes_the_task_that_is_most_like_what_is_free_and_tetris_jobs_with_little_left_too() -> None:
    large, small = Dag([Group(20, (0.6, 0.6), 1.0)]), Dag([Group(1, (0.5, 0.5), 1.0)])
    assert first_look([large, small], Rank.PACK) == [1, 0]
    assert first_look([large, small], Rank.TETRIS) == [0, 1]


def test_tetris_with_fairness_leaves_out_jobs_that_have_most_of_their_share() -> None:
    large, small = Dag([Group(4, (0.3,), 1.0)]), Dag([Group(8, (0.1,), 1.0)])
    settings = Settings(altruism=0.0, may=Rank.TETRIS, fairness=0.5, cap=Cap.EQUAL)
    played = Played([large], settings, np.full((1, 1), 0.3))
    played.look()
    played.allocator.machines_came(["0"], np.ones((1, 1)))
    played.allocator.job_came("1", small)
    assert [(start.job, start.tasks) for start in played.allocator.pump(0.0)] == [("1", 7)]


@given(st.integers(0, 1 << 30))
def test_without_altruism_and_with_drfs_order_of_what_is_left_over_it_is_drf_step_for_step(seed: int) -> None:
    """§3.4: P(Altruism) = 0 reduces Carbyne to DRF. Here DRF is written down once more, from its definition."""
    dags = random_jobs(seed)
    settings = Settings(altruism=0.0, order=Order.BREADTH_FIRST, may=Rank.DRF)
    _, _, looks = completions(dags, settings)
    resources = dags[0].demand.shape[1]
    left = [dag.tasks.tolist() for dag in dags]
    running: list[tuple[float, int, int]] = []
    now_s = 0.0
    for look in looks:
        expected = []
        while True:
            used = np.zeros((len(dags), resources))
            for _, number, group in running:
                used[number] += dags[number].demand[group]
            free = 1 + EPS / 1000 - used.sum(axis=0)
            for number in sorted(range(len(dags)), key=lambda number: (used[number].max().round(9), number)):
                busy = {group for group, tasks in enumerate(left[number]) if tasks}
                busy |= {group for _, other, group in running if other == number}
                groups = [
                    group for group, tasks in enumerate(left[number])
                    if tasks and busy.isdisjoint(dags[number].groups[group].parents)
                    and (dags[number].demand[group] <= free).all()
                ]  # fmt: skip
                if groups:
                    group = min(groups, key=lambda group: (dags[number].depth[group], group))
                    left[number][group] -= 1
                    running.append((now_s + float(dags[number].duration_s[group]), number, group))
                    expected.append((str(number), group))
                    break
            else:
                break
        assert [(start.job, start.group) for start in look for _ in range(start.tasks)] == expected
        if running:
            now_s = min(running)[0]
            running = [at for at in running if at[0] > now_s + EPS]


@pytest.mark.parametrize(("room", "at_a"), [(1.0, "1"), (1.2, "0")])
@pytest.mark.parametrize("settings", [Settings(), settings_named("tetris-packing")])
def test_tasks_that_are_local_are_worth_a_tenth_more_there(settings: Settings, room: float, at_a: str) -> None:
    """Not as much as a task that is a fifth larger."""
    played = Played([Dag([Group(1, (0.8 * room,), 1.0)]), Dag([Group(1, (0.8,), 1.0)])], settings, np.ones((2, 1)))
    played.allocator.prefer({("1", 0): np.array([True, False])})
    assert {start.machine: start.job for start in played.look()} == {"0": at_a, "1": "01".replace(at_a, "")}


def test_altruistic_by_name_without_any_altruism_is_drf_but_for_what_is_stated() -> None:
    assert settings_named("altruistic/altruism=0") == settings_named("drf")
    assert settings_named("altruistic/altruism=0/may=srtf").may is Rank.SRTF
    assert settings_named("altruistic/altruism=0.1").may is Rank.SRTF


@given(st.integers(0, 1 << 30), st.sampled_from(Rank), st.floats(0, 1))
def test_whoever_yields_all_jobs_end(seed: int, may: Rank, altruism: float) -> None:
    """Nobody starves."""
    ends, _, _ = completions(random_jobs(seed), Settings(may=may, altruism=altruism))
    assert np.isfinite(ends).all()


@pytest.mark.parametrize("jobs", [1, 10, 150])
def test_a_user_with_many_small_jobs_has_no_more_than_its_share_while_another_wants_its_own(jobs: int) -> None:
    """Each job may use one task's room, and jobs with less work left come first: by these alone Mallory would have all
    of the four slots for as long as she has jobs."""
    of_mallory, of_ada = Dag([Group(900 // jobs, (0.25,), 1.0)]), Dag([Group(20, (0.25,), 1.0)])
    played = Played([*[of_mallory] * jobs, of_ada], CARBYNE, owners=[*["mallory"] * jobs, "ada"])
    tasks: Counter[str] = Counter()
    for _ in range(8):
        for start in played.look():
            tasks["ada" if start.job == str(jobs) else "mallory"] += start.tasks
        played.next()
    assert tasks == {"ada": 16, "mallory": 16}


def test_a_capacity_scheduler_serves_queues_by_what_is_guaranteed_and_first_come_first_served() -> None:
    """Ada's queue has three quarters guaranteed, and at most 80 %; Bert's the rest; Carl has no queue. Ada's
    jobs come one after the other."""
    allocator = Allocator(1, settings_named("capacity"), queues={"ada": Queue(0.75, 0.8), "bert": Queue(0.25)})
    allocator.machines_came(["m"], np.ones((1, 1)))
    task = Group(40, (0.05,), 1.0)
    for name, user in (("a1", "ada"), ("a2", "ada"), ("b1", "bert"), ("c1", "carl")):
        allocator.job_came(name, Dag([task]), user)
    tasks: Counter[str] = Counter()
    for start in allocator.pump(0.0):
        tasks[start.job] += start.tasks
    assert tasks == {"a1": 14, "b1": 5, "c1": 1}
    allocator.job_gone("b1")
    allocator.job_gone("c1")
    allocator.machines_came(["n"], np.ones((1, 1)))
    for start in allocator.pump(0.0):
        tasks[start.job] += start.tasks
    assert tasks["a1"] == 32 and not tasks["a2"]  # 80 % of two machines.


TASKS = 400
"""Of which the machine has room."""


def queue_parts(queues: dict[str, Queue], wanted: dict[str, float]) -> dict[str, float]:
    """What each queue has of a machine, if its only job wants so much of it."""
    allocator = Allocator(1, settings_named("capacity"), queues=queues)
    allocator.machines_came(["m"], np.ones((1, 1)))
    for name, part in wanted.items():
        allocator.job_came(name, Dag([Group(max(1, round(part * TASKS)), (1 / TASKS,), 1.0)]), name)
    had = dict.fromkeys(wanted, 0.0)
    for start in allocator.pump(0.0):
        had[start.job] += start.tasks / TASKS
    return had


def test_what_queues_do_not_want_others_have_in_proportion_up_to_their_most() -> None:
    queues = {"a": Queue(0.5), "b": Queue(0.25, 0.3), "c": Queue(0.25)}
    within = {"abs": 2 / TASKS}
    assert queue_parts(queues, {"a": 1, "b": 1, "c": 1}) == pytest.approx({"a": 0.5, "b": 0.25, "c": 0.25}, **within)
    assert queue_parts(queues, {"b": 1, "c": 1}) == pytest.approx({"b": 0.3, "c": 0.7}, **within)
    assert queue_parts(queues, {"a": 0.1, "c": 0.2}) == pytest.approx({"a": 0.1, "c": 0.2}, **within)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8), st.integers(1, 8)), min_size=1, max_size=6))
def test_queues_have_what_is_guaranteed_if_they_want_it_and_nothing_is_left_that_one_wants(
    case: list[tuple[int, int, int]],
) -> None:
    total = sum(guaranteed for guaranteed, _, _ in case)
    queues = {
        str(number): Queue(guaranteed / total, min(1.0, guaranteed / total + more / 8))
        for number, (guaranteed, more, _) in enumerate(case)
    }
    wanted = {str(number): want / 8 for number, (_, _, want) in enumerate(case)}
    had, task = queue_parts(queues, wanted), 1.5 / TASKS
    assert sum(had.values()) <= 1 + EPS
    for name, queue in queues.items():
        assert had[name] >= min(queue.guaranteed, wanted[name]) - task
        assert had[name] <= min(queue.most, wanted[name]) + task
        assert sum(had.values()) > 1 - task or had[name] >= min(queue.most, wanted[name]) - task


# ---- many machines --------------------------------------------------------------------------------------


@example(318, Rank.SRTF, Rank.SRTF, Lend.PROFILE)  # Nobody yields, by chance, after a look at which somebody did.
@given(st.integers(0, 1 << 30), st.sampled_from(Rank), st.sampled_from(Rank), st.sampled_from(Lend))
def test_no_machine_is_ever_overbooked_and_equal_seeds_start_equal_tasks(
    seed: int, must: Rank, may: Rank, lend: Lend
) -> None:
    chance = Random(seed)
    dags = random_jobs(seed)
    machines = np.array([[chance.randint(8, 16) / 8 for _ in range(dags[0].demand.shape[1])] for _ in range(3)])
    settings = Settings(must=must, may=may, lend=lend, altruism=0.7)
    one, other = (Played(dags, settings, machines).play() for _ in range(2))
    assert one.looks == other.looks


def test_a_task_that_must_run_and_fits_nowhere_has_a_machine_kept_for_it() -> None:
    """Small tasks that come again and again would else take whatever gets free, one after the other."""
    machines = np.ones((2, 1))
    played = Played([Dag([Group(1, (1.0,), 1.0)])], Settings(may=Rank.SRTF), machines)
    allocator = played.allocator
    allocator.job_gone("0")
    number = 1

    def small(count: int) -> None:
        nonlocal number
        for _ in range(count):
            played.dags.append(Dag([Group(1, (0.5,), 1.0 + number % 7 / 10)]))
            played.ends.append(np.inf)
            allocator.job_came(str(number), played.dags[-1])
            number += 1

    small(4)
    played.look()
    large = str(number)
    played.dags.append(Dag([Group(1, (1.0,), 1.0)]))
    played.ends.append(np.inf)
    allocator.job_came(large, played.dags[-1])
    number += 1
    for _ in range(60):
        small(2)
        played.look()
        played.next()
        if played.ends[int(large)] < np.inf:
            assert allocator.unfit > 0
            return
    raise AssertionError("it starves")


def test_a_machine_that_goes_is_given_nothing_and_its_tasks_start_elsewhere() -> None:
    played = Played([Dag([Group(4, (0.5,), 1.0)])], Settings(), np.ones((2, 1)))
    starts = played.look()
    allocator = played.allocator
    for start in [start for start in starts if start.machine == "0"]:
        allocator.failed(start.job, start.group, "0", start.end_s, start.tasks)
        played.running.remove(start)
    allocator.machine_gone("0")
    assert allocator.pump(0.0) == [] and allocator.machines.total.tolist() == [1.0]
    played.capacity = np.array([[0.0], [1.0]])
    played.next()
    assert sum(start.tasks for start in played.look()) == 2 and played.now_s == 1.0


@pytest.mark.processes
def test_compiled_and_interpreted_it_starts_the_same_tasks_at_the_same_times() -> None:
    """The interpreter runs the functions as they stand, in a process of its own."""
    program = "from tests.scheduler.altruistic.test_allocator import digest; print(digest())"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment, cwd=ROOT
    )
    assert done.stdout.strip() == digest()


def digest() -> str:
    """Of what starts in some runs, to the last bit."""
    found = hashlib.sha256()
    for seed, (may, lend) in enumerate(itertools.product((Rank.SRTF, Rank.TETRIS, Rank.DRF), Lend)):
        dags = random_jobs(seed)
        machines = np.ones((2, dags[0].demand.shape[1]))
        played = Played(dags, Settings(may=may, lend=lend, altruism=0.7), machines).play()
        found.update(repr((played.looks, played.ends)).encode())
    return found.hexdigest()


@pytest.mark.parametrize(("fields", "message"), [
    ({"altruism": 1.5}, "altruism: 1.5 is not valid; allowed: from 0 to 1"),
    ({"altruism": float("nan")}, "altruism: nan"),
    ({"fairness": 1.0}, "fairness: 1.0 is not valid; allowed: from 0, below 1"),
])  # fmt: skip
def test_a_setting_that_cannot_be_is_refused_by_field(fields: dict[str, float], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        Settings(**fields)  # type: ignore[arg-type]


# ---- plans are rationed -----------------------------------------------------------------------------------


@given(st.integers(0, 1 << 30), st.sampled_from(Lend), st.sampled_from([0.5, 1.0]), st.integers(1, 300))
def test_jobs_end_though_there_is_little_time_for_plans(seed: int, lend: Lend, altruism: float, per_s: int) -> None:
    """Nothing is overbooked, and all end (`Played`)."""
    settings = Settings(lend=lend, altruism=altruism)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocators, "PLAN_UNITS_AT_ONCE", 5.0)
        Played(random_jobs(seed), settings, plan_units_per_s=float(per_s)).play()


def test_as_many_jobs_are_planned_at_a_time_as_there_is_time_for_and_the_others_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    dag = Dag([Group(4, (0.25,), 1.0), Group(4, (0.25,), 1.0, (0,))])
    monkeypatch.setattr(allocators, "PLAN_UNITS_AT_ONCE", 2 * dag.plan_units)
    played = Played([dag] * 5, Settings(), np.full((1, 1), 0.01), plan_units_per_s=dag.plan_units)
    planned = []
    for _ in range(4):
        played.allocator.pump(played.now_s)
        planned.append([name for name, here in played.allocator.jobs.items() if here.job.target_s < np.inf])
        played.now_s += 1.0
        assert played.allocator.yielding == len(planned[-1])
    assert [len(names) for names in planned] == [2, 3, 4, 5] and planned[0] == ["0", "1"]


def test_a_job_that_would_take_too_long_to_plan_has_its_share_and_yields_nothing() -> None:
    many = Dag([Group(100, (0.01,), 1.0)] * 1000)
    assert many.plan_units > PLAN_UNITS_MAX
    played = Played([many, Dag([Group(1, (0.5,), 1.0)])], Settings(cap=Cap.EQUAL), plan_units_per_s=1e7)
    played.look()
    assert played.allocator.yielding == 1 and played.allocator.jobs["0"].job.target_s == np.inf
    assert played.allocator.rows.has[played.allocator.jobs["0"].row] == pytest.approx(0.5)
