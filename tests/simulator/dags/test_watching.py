"""What is watched while jobs are played: what their shares could do without, and how one job's tasks come and go."""

from __future__ import annotations

import numpy as np
import pytest

from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.settings import SCHEDULERS, Settings, settings_named
from simulator.dags.leftovers import Leftovers
from simulator.dags.one_job import OneJob
from simulator.dags.play import Arrival, play

ONE = np.ones((1, 2))
SHORT_AND_LONG = Dag([Group(2, (0.25, 0.0), 1.0), Group(1, (0.25, 0.0), 10.0), Group(1, (0.25, 0.0), 1.0, (0, 1))])
"""Its last stage waits for both others: the short tasks may wait for nine seconds."""


def test_a_job_could_do_without_what_its_barrier_does_not_wait_for() -> None:
    """Of three tasks two could wait, for longer than they take; once they are over nothing could."""
    leftovers = Leftovers(1.5)
    play([Arrival(0.0, "a", SHORT_AND_LONG)], ONE, settings_named("drf"), watchers=[leftovers])
    assert leftovers.parts()[0] == pytest.approx([2 / 3, 0.0])
    assert leftovers.waiting_parts()[0] == pytest.approx([2 / 3, 0.0])
    assert leftovers.parts()[1:] == pytest.approx(np.zeros((len(leftovers.allocated) - 1, 2)))
    assert leftovers.shapes[0] == (3, 1, 2)


def test_what_can_wait_only_for_less_than_it_takes_is_not_left_over() -> None:
    """A task of 8 s beside one of 10 s."""
    leftovers = Leftovers(100.0)
    dag = Dag([Group(1, (0.25, 0.0), 8.0), Group(1, (0.25, 0.0), 10.0), Group(1, (0.25, 0.0), 1.0, (0, 1))])
    play([Arrival(0.0, "a", dag)], ONE, Settings(), watchers=[leftovers])
    assert leftovers.parts()[0] == pytest.approx([0.0, 0.0])
    assert leftovers.waiting_parts()[0] == pytest.approx([0.5, 0.0])


def test_one_jobs_tasks_are_counted_from_its_arrival_until_it_is_over() -> None:
    one = OneJob("b", 1.0)
    jobs = [Arrival(0.0, "a", Dag([Group(1, (0.1, 0.0), 20.0)])), Arrival(5.0, "b", SHORT_AND_LONG)]
    play(jobs, ONE, settings_named("drf"), watchers=[one])
    assert one.running[0] == 3 and one.running[2:10] == [1] * 8 and one.running[-1] == 0
    assert one.lent == one.running  # Without altruism `may` alone says who starts.


def test_tasks_that_are_killed_are_counted_no_more() -> None:
    one = OneJob("a", 0.1)
    dag = Dag([Group(4, (0.1, 0.5), 1.0)])
    result = play([Arrival(0.0, "a", dag)], ONE, Settings(), misestimate=-0.5, watchers=[one])
    assert result.kills and max(one.running) == 2 and one.running[-1] == 0


@pytest.mark.parametrize("name", sorted(SCHEDULERS))
def test_who_watches_changes_nothing(name: str) -> None:
    jobs = [Arrival(float(number), f"j{number}", SHORT_AND_LONG) for number in range(5)]
    seen, unseen = (
        play(jobs, ONE, settings_named(name), watchers=watchers)
        for watchers in ([Leftovers(1.0), OneJob("j2", 1.0)], [])
    )
    assert (seen.completions_s == unseen.completions_s).all() and seen.unfit == unseen.unfit
