"""The altruistic plane live beside simulated: how the two are compared. Nothing is started here."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.altruistic.live import BASE, FULL, OURS, QUICK, Compared, Played, Setup, compared, simulated, target

SMALL = Setup(jobs=6, task_min_s=0.1, wait_max_s=1.0, load=2.0, nodes=2, slots=2)


def of(base_s: list[float], ours_s: list[float]) -> dict[str, Played]:
    return {BASE: Played(np.array(base_s)), OURS: Played(np.array(ours_s))}


def test_how_far_the_factors_are_apart() -> None:
    """2 and 1 live, 2 and 3 simulated."""
    found = Compared(of([2.0, 4.0], [1.0, 4.0]), of([2.0, 3.0], [1.0, 1.0]))
    assert found.apart == pytest.approx(1.0 / 2.5)
    assert [row["factor"] for row in found.rows()] == ["1.000", "1.500", "1.000", "2.500"]
    assert target(found, tells=True).verdict == "missed"
    assert target(found, tells=False).verdict == "not at this scale"


@pytest.mark.rest
def test_a_live_cluster_that_does_what_is_simulated_is_not_apart() -> None:
    found = compared(SMALL, simulated)
    assert found.apart == 0 and target(found, tells=True).verdict == "met"
    assert len(found.live[OURS].took_s) == SMALL.jobs
    slower = compared(SMALL, lambda setup, policy: replace(simulated(setup, policy), took_s=np.full(6, 9.0)))
    assert [row["factor"] for row in slower.rows()][:2] == ["1.000", "1.000"]


def test_a_full_run_has_a_hundred_jobs_of_tasks_of_a_second_and_ends_in_ten_minutes() -> None:
    jobs = FULL.made()
    assert len(jobs) == 100 and FULL.nodes == 20
    assert min(min(job.durations_s) for job in jobs) >= 1.0
    assert jobs[-1].arrival_s + FULL.wait_max_s <= 600.0
    assert sum(sum(job.durations_s) for job in QUICK.made()) / (QUICK.nodes * QUICK.slots) <= 15.0, "a minute in all"
