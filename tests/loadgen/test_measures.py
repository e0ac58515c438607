"""Figures against numbers worked out by hand, and invariants of any run."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.measures import figures, ideal_s, job_by_job, percentiles, queued, running, spans, utilisation, window_s
from loadgen.recorded import JOBS, TASKS, table
from sparrow_py.errors import InvalidOption
from tests.support.recorded_runs import Made

seconds = st.floats(0, 100)


def job(number: int, response_s: float, ideal: float, **cells: Any) -> dict[str, Any]:
    """A job of one stage that was due `number` seconds after the point began."""
    row = {
        "point": 0, "job": number, "label": "", "user": "ann", "tasks": 1, "stages": 1, "after": [[]], "measured": True,
        "status": "finished", "due_s": float(number), "submitted_s": float(number), "ended_s": number + response_s,
        "response_s": response_s, "ideal_s": ideal,
    }  # fmt: skip
    return row | cells


def task(number: int, arrived_s: float, started_s: float, finished_s: float, **cells: Any) -> dict[str, Any]:
    """A task of the job of this number."""
    row = {
        "point": 0, "job": number, "stage": 0, "stage_name": "", "task": 0, "constrained": False, "status": "finished",
        "node": "n", "scheduler": "s", "attempts": 1, "arrived_s": arrived_s, "reserved_s": arrived_s,
        "asked_s": started_s, "launched_s": started_s, "started_s": started_s, "finished_s": finished_s,
        "service_s": finished_s - started_s,
    }  # fmt: skip
    return row | cells


def of(jobs: list[dict[str, Any]], tasks: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """The figures of these jobs and tasks."""
    return figures(table(JOBS, jobs), table(TASKS, tasks), **more)


# ---- the offline ideal -----------------------------------------------------------------------


def test_a_job_of_one_stage_ideally_takes_as_long_as_its_longest_task() -> None:
    assert ideal_s([[]], [[0.1, 0.4, 0.2]]) == 0.4


def test_a_diamond_ideally_takes_as_long_as_its_longer_path() -> None:
    # 0 → 1 and 2 → 3: 1 + max(2, 5) + 3.
    assert ideal_s([[], [0], [0], [1, 2]], [[1.0, 0.5], [2.0], [5.0, 4.0], [3.0]]) == 9.0


def test_a_stage_without_tasks_and_a_job_without_stages_take_no_time() -> None:
    assert ideal_s([[], [0], [1]], [[1.0], [], [2.0]]) == 3.0
    assert ideal_s([], []) == 0.0


def test_stages_may_stand_in_any_order() -> None:
    assert ideal_s([[1], []], [[2.0], [1.0]]) == 3.0


@pytest.mark.parametrize("stages", [[[0]], [[1], [0]], [[7]]])
def test_stages_that_wait_for_each_other_are_refused(stages: list[list[int]]) -> None:
    with pytest.raises(InvalidOption, match="after"):
        ideal_s(stages, [[1.0]] * len(stages))


@given(st.lists(st.lists(seconds, min_size=1, max_size=4), min_size=1, max_size=6))
def test_a_chain_takes_the_sum_and_stages_side_by_side_the_longest(durations: list[list[float]]) -> None:
    chain = [[number - 1] if number else [] for number in range(len(durations))]
    assert ideal_s(chain, durations) == pytest.approx(sum(max(times) for times in durations))
    assert ideal_s([[] for _ in durations], durations) == max(max(times) for times in durations)


@given(st.data())
def test_no_job_takes_less_than_its_longest_task_nor_more_than_all_after_each_other(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 6))
    stages = [data.draw(st.sets(st.integers(0, number - 1)) if number else st.just(set())) for number in range(count)]
    durations = [data.draw(st.lists(seconds, max_size=3)) for _ in range(count)]
    longest = [max(times, default=0.0) for times in durations]
    found = ideal_s([sorted(before) for before in stages], durations)
    assert max(longest) <= found <= sum(longest) + 1e-6


# ---- response, waits, ratios -----------------------------------------------------------------


def test_times_of_three_jobs() -> None:
    jobs = [job(0, 0.10, 0.10), job(1, 0.13, 0.10), job(2, 0.30, 0.20, user="bob", label="q1")]
    tasks = [task(0, 0.0, 0.0, 0.10), task(1, 1.0, 1.03, 1.13), task(2, 2.0, 2.1, 2.3)]
    found = of(jobs, tasks)
    assert (found["p50"], found["ideal_p50"], found["value"]) == (130.0, 100.0, 1.3)
    assert found["p5"] == pytest.approx(103.0)  # A tenth of the way from 100 to 130.
    assert found["p95"] == pytest.approx(283.0)
    assert found["p99"] == pytest.approx(296.6)
    assert found["over_ideal_p50_ms"] == 30.0  # Of 0, 30 and 100.
    assert (found["wait_p50"], found["wait_p95"]) == (30.0, pytest.approx(93.0))
    assert (found["jobs_measured"], found["tasks_measured"], found["jobs_unfinished"]) == (3, 3, 0)
    assert {user: times["p50"] for user, times in found["by_user"].items()} == {"ann": 115.0, "bob": 300.0}
    assert found["by_label"]["q1"]["value"] == 1.5
    assert found["by_label"]["q1"]["wait_p50"] == 100.0
    assert found["by_label"][""]["jobs_measured"] == 2


def test_warm_up_and_unfinished_jobs_are_not_in_the_times() -> None:
    jobs = [
        job(0, 9.0, 0.1, measured=False),
        job(1, 0.2, 0.1),
        job(2, math.nan, math.nan, status="failed", ended_s=math.nan),
        job(3, 5.0, 0.1, status="lost"),
    ]
    tasks = [task(number, number, number + 0.01, number + 0.1) for number in range(4)]
    found = of(jobs, tasks)
    assert (found["p50"], found["p99"], found["jobs_measured"], found["jobs_unfinished"]) == (200.0, 200.0, 1, 2)
    assert found["tasks_measured"] == 1


def test_figures_without_measured_jobs_are_none() -> None:
    for found in (of([], []), of([job(0, 1.0, 1.0, measured=False)], [task(0, 0, 0, 1)], slots=4)):
        assert [found[name] for name in ("value", "p50", "ideal_p99", "wait_p5", "utilisation")] == [None] * 5
        assert found["jobs_measured"] == 0


def test_the_wait_of_a_later_stage_begins_at_the_last_end_of_the_stages_before() -> None:
    # Stages 0 and 1 end at 0.5 and 0.8; stage 2 waits for both and starts at 0.9; stage 3 only for 0, starts at 0.6.
    jobs = [job(0, 1.5, 1.0, stages=4, after=[[], [], [0, 1], [0]], label="q")]
    tasks = [
        task(0, 0.1, 0.2, 0.5, stage_name="left"),
        task(0, 0.1, 0.2, 0.4, stage_name="left", task=1),
        task(0, 0.1, 0.1, 0.8, stage=1, stage_name="right"),
        task(0, 0.1, 0.9, 1.5, stage=2, stage_name="join"),
        task(0, 0.1, 0.6, 0.7, stage=3, stage_name="aside"),
    ]
    found = spans(table(JOBS, jobs), table(TASKS, tasks))
    assert found.ready_s.tolist() == [0.1, 0.1, 0.1, 0.8, 0.5]
    assert found.wait_s == pytest.approx([0.1, 0.1, 0.0, 0.1, 0.1])
    assert found.first.tolist() == [True, True, True, False, False]
    by_stage = of(jobs, tasks)["by_stage"]["q"]
    assert list(by_stage) == ["left", "right", "join", "aside"]
    assert {name: times["p50"] for name, times in by_stage.items()} == {
        "left": 400.0, "right": 700.0, "join": 700.0, "aside": 200.0
    }  # fmt: skip
    assert by_stage["left"]["tasks_measured"] == 2
    assert by_stage["join"]["wait_p50"] == pytest.approx(100.0)


def test_a_stage_without_tasks_ends_when_it_could_start() -> None:
    jobs = [job(0, 1.5, 1.0, stages=4, after=[[], [0], [1], []])]
    tasks = [task(0, 0.0, 0.0, 0.5), task(0, 0.0, 0.7, 0.9, stage=2)]
    assert spans(table(JOBS, jobs), table(TASKS, tasks)).ready_s.tolist() == [0.0, 0.5]


def test_a_stage_after_one_with_an_unknown_end_has_an_unknown_wait() -> None:
    for order in ([0, 1], [1, 0]):
        jobs = [job(0, 1.5, 1.0, stages=3, after=[[], [], order])]
        tasks = [task(0, 0, 0, math.nan), task(0, 0, 0, 0.5, stage=1), task(0, 0, 0.6, 0.7, stage=2)]
        assert np.isnan(spans(table(JOBS, jobs), table(TASKS, tasks)).wait_s).tolist() == [False, False, True]


def test_a_task_of_an_unknown_job_is_refused() -> None:
    for jobs in ([], [job(0, 1.0, 1.0), job(2, 1.0, 1.0)]):
        with pytest.raises(InvalidOption, match="tasks job: 1"):
            of(jobs, [task(1, 0, 0, 1)])


def test_jobs_may_stand_in_any_order() -> None:
    jobs = [job(5, 1.0, 1.0, user="five"), job(2, 2.0, 1.0, user="two")]
    tasks = [task(2, 0, 2, 3), task(5, 0, 5, 6), task(2, 0, 4, 5, task=1)]
    assert spans(table(JOBS, jobs), table(TASKS, tasks)).job.tolist() == [1, 0, 1]
    assert of(jobs, tasks)["by_user"]["five"]["wait_p50"] == 5000.0


# ---- over time -------------------------------------------------------------------------------


def test_tasks_that_run_and_wait_at_a_time() -> None:
    # One waits 0–1 and runs 1–3, one waits 0–2 and runs 2–4, one never starts and its job ends at 3.
    jobs = [job(0, 4.0, 1.0), job(1, 2.0, 1.0, status="lost")]
    tasks = [
        task(0, 0.0, 1.0, 3.0),
        task(0, 0.0, 2.0, 4.0, task=1),
        task(1, 1.0, math.nan, math.nan, status="lost"),
    ]
    found = spans(table(JOBS, jobs), table(TASKS, tasks))
    edges = np.array([0.0, 1.0, 2.0, 3.0, 4.0])
    assert running(found, edges) == pytest.approx([0, 1, 2, 1])
    assert queued(found, edges) == pytest.approx([2, 2, 1, 0])
    assert running(found, np.array([1.5, 2.5])) == pytest.approx([1.5])


def test_utilisation_is_of_the_time_from_the_first_to_the_last_measured_arrival() -> None:
    jobs = [job(0, 1, 1, measured=False), job(1, 1, 1), job(2, 1, 1), job(5, 1, 1), job(6, 1, 1, measured=False)]
    tasks = [task(0, 0.0, 0.0, 2.0), task(2, 2.0, 3.0, 4.0), task(5, 5.0, 5.0, 9.0)]
    measured = table(JOBS, jobs)
    assert window_s(measured) == (1.0, 5.0)
    # From 1 to 5 two slots could do 8 s of work; 1 s of the first task and all of the second ran in that time.
    assert utilisation(measured, spans(measured, table(TASKS, tasks)), 2) == pytest.approx(2 / 8)
    assert of(jobs, tasks, slots=2)["utilisation"] == 0.25


def test_later_jobs_are_compared_with_earlier_ones() -> None:
    # Rows in any order; only the jobs that count are halved, by when they were due.
    jobs = [job(4, 6.0, 1), job(1, 1.0, 1), job(0, 90.0, 1, measured=False), job(2, 2.0, 1), job(3, 3.0, 1)]
    found = of(jobs, [task(row["job"], 0, 0, 1) for row in jobs])
    assert found["p95_later_over_earlier"] == pytest.approx((3 + 0.95 * 3) / (1 + 0.95))
    assert of(jobs[:1], [task(4, 0, 0, 1)])["p95_later_over_earlier"] is None


def test_counts_and_cpu_time_per_task() -> None:
    found = of(
        [job(0, 1.0, 1.0)],
        [task(0, 0, 0, 1), task(0, 0, 0, 1, task=1)],
        counts={"noops": 1, "cancelled_reservations": 3},
        cpu_s={"schedulers": 0.0005},
    )
    assert (found["noops_per_task"], found["cancellations_per_task"]) == (0.5, 1.5)
    assert found["cpu_us_per_task"] == {"schedulers": 250.0}
    none = of([job(0, 1.0, 1.0)], [task(0, 0, 0, 1)])
    assert (none["noops_per_task"], none["cpu_us_per_task"], none["utilisation"]) == (None, {}, None)


# ---- any run ---------------------------------------------------------------------------------


@given(st.lists(st.floats(-1e6, 1e6) | st.just(math.nan), max_size=50))
def test_percentiles_are_in_order_and_within_what_was_measured(values: list[float]) -> None:
    found = list(percentiles(np.array(values, dtype=float)).values())
    known = [value for value in values if not math.isnan(value)]
    if not known:
        assert found == [None] * 4
    else:
        assert found == sorted(found)
        assert min(known) - 0.001 <= found[0] <= found[-1] <= max(known) + 0.001


@given(
    st.integers(0, 1000),
    st.sampled_from(["sparrow", "batch", "per-task", "random"]),
    st.floats(0.1, 0.95),
    st.integers(5, 40),
)
def test_invariants_of_the_figures_of_any_run(seed: int, placement: str, load: float, jobs: int) -> None:
    made = Made(seed=seed, placement=placement, load=load, jobs=jobs)
    rows_of_jobs, rows_of_tasks, _ = made.rows()
    found = of(rows_of_jobs, rows_of_tasks, slots=40)
    assert found["value"] >= 1
    assert found["over_ideal_p50_ms"] >= 0
    assert found["wait_p5"] >= 0
    for percent in (5, 50, 95, 99):
        assert found[f"ideal_p{percent}"] <= found[f"p{percent}"]
    assert found["utilisation"] is None or 0 <= found["utilisation"] <= 1
    for kind in ("by_label", "by_user"):
        assert sum(times["jobs_measured"] for times in found[kind].values()) == found["jobs_measured"]
    in_stages = [times["tasks_measured"] for stages in found["by_stage"].values() for times in stages.values()]
    assert sum(in_stages) == found["tasks_measured"]


@given(st.integers(0, 1000))
def test_the_integral_of_running_tasks_is_their_service_time(seed: int) -> None:
    rows_of_jobs, rows_of_tasks, _ = Made(seed=seed, jobs=10, failing=frozenset()).rows()
    found = spans(table(JOBS, rows_of_jobs), table(TASKS, rows_of_tasks))
    edges = np.linspace(0, 100, 37)
    service_s = sum(row["service_s"] for row in rows_of_tasks)
    assert np.sum(running(found, edges) * np.diff(edges)) == pytest.approx(service_s)
    assert np.sum(queued(found, edges) * np.diff(edges)) == pytest.approx(float(np.sum(found.wait_s)))


# ---- the same jobs in two runs ---------------------------------------------------------------


def test_jobs_are_compared_one_by_one_if_both_runs_measured_them() -> None:
    before = [job(0, 2.0, 1.0), job(1, 3.0, 1.0), job(2, 1.0, 1.0), job(3, 9.0, 1.0), job(4, 9.0, 1.0, measured=False)]
    later = [job(1, 2.0, 1.0), job(0, 1.0, 1.0), job(2, 1.25, 1.0), job(3, 1.0, 1.0, status="lost"), job(4, 1.0, 1.0)]
    found = job_by_job(table(JOBS, before), table(JOBS, later))
    assert found is not None
    assert found.pop("slower") == pytest.approx(1 / 3)
    assert found == {
        "jobs": 3, "mean_ms": 1416.667, "factor": pytest.approx((2.0 + 1.5 + 0.8) / 3, abs=1e-4),
        "factor_p5": pytest.approx(0.87), "factor_p50": 1.5, "factor_p95": pytest.approx(1.95),
    }  # fmt: skip
    assert job_by_job(table(JOBS, before[:1]), table(JOBS, later[:1])) is None
