"""Clients of a simulated cluster whose link to a scheduler is lost do what real ones do: they dial it again first."""

from __future__ import annotations

import pytest

from simulator.soak.job_log import JobLog
from simulator.soak.links import Link
from simulator.soak.world import World
from sparrow_py.session.core import RETURN_TIMEOUT_S


def with_a_job() -> tuple[World, JobLog, Link]:
    """A job runs in part; its client's link to the scheduler that has it."""
    world = World(1, nodes=[2, 2], schedulers=3, scheduler={"settling_s": 0.0})
    log = world.submit([0.3] * 12)
    world.run_for(0.05)
    (link,) = [one for one in world.open_links(world.clients[0]) if one.scheduler.core.jobs]
    return world, log, link


def moved_to(world: World, log: JobLog) -> tuple[str, str, float]:
    """The scheduler that had the job, the one that has it then, and how long the job was at neither."""
    begin_s = world.now
    world.run()
    world.check_end()
    one, other = log.submitted_to
    return one, other, log.moved_at_s[0] - begin_s


@pytest.mark.parametrize("back_after_s", [0.1, RETURN_TIMEOUT_S - 0.1])
def test_a_job_goes_back_to_its_scheduler_if_only_the_link_was_lost(back_after_s: float) -> None:
    world, log, link = with_a_job()
    world.drop_link(link, back_after_s)
    one, other, after_s = moved_to(world, log)
    assert one == other and after_s >= back_after_s
    assert {outcome.attempts for outcome in log.outcomes} == {1}, "what waited has not started elsewhere"


def test_a_job_goes_elsewhere_if_its_scheduler_stays_away() -> None:
    world, log, link = with_a_job()
    world.drop_link(link, RETURN_TIMEOUT_S + 1.0)
    one, other, after_s = moved_to(world, log)
    assert one != other and after_s >= RETURN_TIMEOUT_S


def test_a_job_goes_elsewhere_at_once_if_the_process_of_its_scheduler_is_gone() -> None:
    world, log, link = with_a_job()
    world.crash_scheduler(link.scheduler, 0.5)
    one, other, after_s = moved_to(world, log)
    assert one != other and after_s < 0.5
