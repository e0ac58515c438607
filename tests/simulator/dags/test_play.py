"""Jobs that are played on simulated machines: their times, fairness, wrong estimates, the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from loadgen.dags.arriving import as_poisson, at_once
from loadgen.dags.dag_files import write_dags
from loadgen.dags.dag_job import DagJob, DagStage
from loadgen.dags.generators import WORKLOADS
from scheduler.altruistic.dags import Dag, DagError, Group
from scheduler.altruistic.settings import SCHEDULERS, Settings, settings_named
from simulator.__main__ import main
from simulator.dags.arrivals import arrival_of
from simulator.dags.play import Arrival, play
from simulator.dags.windows import jain

ONE = np.ones((1, 2))


def test_a_job_alone_takes_as_long_as_its_path_and_waits_for_nothing() -> None:
    dag = Dag([Group(2, (0.5, 0.1), 3.0), Group(1, (0.2, 0.2), 2.0, (0,))])
    for name in SCHEDULERS:
        result = play([Arrival(10.0, "a", dag)], ONE, settings_named(name))
        assert result.jobs["a"].completion_s == 5.0 and result.makespan_s == 5.0
        assert result.busy == pytest.approx([(3 * 1.0 + 2 * 0.2) / 5, (3 * 0.2 + 2 * 0.2) / 5])


def test_tasks_that_want_more_than_there_is_share_it_and_take_longer() -> None:
    """Planned at half of what they take: four run at a time, of which two would have room."""
    dag = Dag([Group(4, (0.5, 0.1), 1.0)])
    result = play([Arrival(0.0, "a", dag)], ONE, Settings(), misestimate=-0.5)
    assert result.jobs["a"].completion_s == pytest.approx(2.0) and result.kills == 0


def test_tasks_beyond_a_machines_memory_are_killed_and_start_again() -> None:
    dag = Dag([Group(4, (0.1, 0.5), 1.0)])
    result = play([Arrival(0.0, "a", dag)], ONE, Settings(), misestimate=-0.5)
    assert result.kills == 2 and result.jobs["a"].completion_s == 2.0, "and what was killed waits for others to end"


def test_a_machine_that_has_killed_tasks_is_given_no_others_until_one_ends_there_and_is_not_busy_for_that() -> None:
    """Another job's short tasks end meanwhile, elsewhere: at each of these ends it would be tried again."""
    large, small = Dag([Group(4, (0.1, 0.5), 8.0)]), Dag([Group(16, (0.0, 1.0), 0.5)])
    result = play([Arrival(0.0, "a", large), Arrival(0.0, "b", small)], np.ones((2, 2)), Settings(), misestimate=-0.5)
    assert result.kills <= 30, "47 if it is tried each time"
    assert result.busy[1] <= 1.0 + 1e-9


def test_what_is_thought_to_be_larger_than_a_machine_is_planned_as_large_as_one() -> None:
    dag = Dag([Group(2, (0.8, 0.1), 1.0)])
    result = play([Arrival(0.0, "a", dag)], ONE, Settings(), misestimate=0.5)
    assert result.jobs["a"].completion_s == pytest.approx(2.0)


@given(st.integers(0, 1 << 20), st.sampled_from(sorted(SCHEDULERS)), st.sampled_from([-0.5, 0.0, 0.5]))
def test_all_jobs_end_whatever_is_thought_of_them_and_equal_seeds_have_equal_times(
    seed: int, name: str, misestimate: float
) -> None:
    chance = np.random.default_rng(seed)
    arrivals = []
    for number in range(int(chance.integers(1, 5))):
        groups = [
            Group(int(chance.integers(1, 6)), (float(chance.integers(1, 5)) / 8, float(chance.integers(0, 5)) / 8),
                  float(chance.integers(1, 9)) / 4, tuple(range(group)) if chance.random() < 0.5 else ())
            for group in range(int(chance.integers(1, 4)))
        ]  # fmt: skip
        arrivals.append(Arrival(float(chance.integers(0, 5)), f"j{number}", Dag(groups)))
    one, other = (
        play(arrivals, np.ones((2, 2)), settings_named(name), seed=seed, misestimate=misestimate) for _ in range(2)
    )
    assert np.isfinite(one.completions_s).all() and (one.completions_s == other.completions_s).all()
    for arrival in arrivals:
        assert one.jobs[arrival.name].completion_s >= arrival.dag.critical_path_s * (1 - 1e-9)


@pytest.mark.rest
def test_estimates_that_are_right_change_nothing() -> None:
    """X = 0."""
    arrivals = [arrival_of(job) for job in WORKLOADS["tpcds"].generate(1, as_poisson(1, 4, 20.0))]
    one, other = (play(arrivals, np.ones((4, 6)), Settings(), misestimate=x) for x in (0.0, 1e-18))
    assert (one.completions_s == other.completions_s).all()


def test_windows_compare_jobs_that_are_there_throughout() -> None:
    """Two jobs of which one has three quarters of the machine, for two windows; a third is there for less than one."""
    long, short = Dag([Group(3, (0.25, 0.0), 120.0)]), Dag([Group(1, (0.25, 0.0), 120.0)])
    result = play([Arrival(0.0, "a", long), Arrival(0.0, "b", short)], np.ones((1, 1)).repeat(2, axis=1), Settings())
    assert result.windows.by_usage == [pytest.approx(jain(np.array([0.75, 0.25])))] * 2


def test_a_task_that_fits_on_no_machine_is_refused_by_job_and_stage() -> None:
    with pytest.raises(DagError, match=r"demand of stage 1 of job a: 1.5 of resource 1 is not valid; .* at most 1$"):
        play([Arrival(0.0, "a", Dag([Group(1, (0.1, 0.1), 1.0), Group(1, (0.1, 1.5), 1.0)]))], ONE, Settings())


def test_jains_index() -> None:
    assert jain(np.array([1.0, 1.0, 1.0])) == 1.0 and jain(np.array([1.0, 0.0])) == 0.5 and jain(np.zeros(2)) == 1.0


def test_the_command_compares_schedulers_on_a_workload_and_refuses_what_cannot_be(tmp_path: Path) -> None:
    file = tmp_path / "jobs.jsonl"
    write_dags(str(file), WORKLOADS["tpcds"].generate(1, at_once(3)))
    large = tmp_path / "large.jsonl"
    write_dags(str(large), [DagJob("a", 0.0, (DagStage(1, 1.0, {"cpu": 21.0}),))])
    runner = CliRunner()
    refused = runner.invoke(main, ["dags", str(large)])
    assert "stages[0] demand cpu of job a: '21' is not valid; allowed: at most 20" in refused.output + str(
        refused.exception
    )
    done = runner.invoke(
        main, ["dags", str(file), "--machines", "3", "--policy", "drf,altruistic/horizon=barrier", "--json"]
    )
    assert done.exit_code == 0, done.output
    rows = json.loads(done.output)["policies"]
    assert rows["drf"]["factor"] == 1.0 and rows["altruistic/horizon=barrier"]["jobs"] == 3
    for words, message in (
        (["--policy", "fifo"], "policy: 'fifo' is not valid; allowed: altruistic"),
        (["--policy", "drf/cap=most"], "cap: 'most' is not valid; allowed: dominant, equal, vector"),
        (["--policy", "drf/speed=1"], "policy: 'speed' is no setting"),
        (["--policy", "drf/altruism=2"], "altruism: 2.0 is not valid; allowed: from 0 to 1"),
        (["--machines", "0"], "machines"),
        (["--misestimate", "-1"], "misestimate"),
    ):
        refused = runner.invoke(main, ["dags", str(file), *words])
        assert refused.exit_code != 0
        assert message in refused.output + str(refused.exception), refused.output
