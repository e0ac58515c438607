"""Clients that are gone: their jobs go on, or end, at once or after the grace time, as each job says."""

from __future__ import annotations

import pytest

from simulator.world import World
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig


@pytest.mark.parametrize(
    ("says", "goodbye", "left"),
    [("cancel", True, 0), ("cancel", False, 1), ("finish", True, 1), ("finish", False, 1)],
)
def test_jobs_of_a_client_that_is_gone_end_or_go_on_as_they_say(says: str, goodbye: bool, left: int) -> None:
    rig = SchedulerRig("a", client_grace_s=10.0)
    rig.submit_job(2, on_client_lost=says)
    rig.core.client_down("c", 1.0, said_goodbye=goodbye)
    assert len(rig.core.jobs) == left
    rig.core.tick(11.0)
    assert len(rig.core.jobs) == (says == "finish")
    rig.core.check_invariants()


def test_a_job_whose_tasks_did_not_all_come_cannot_finish() -> None:
    rig = SchedulerRig("a")
    for message in (submission("j", 3, on_client_lost="finish"), m.AddTasks("j", 0, [b""])):
        rig.core.receive_from_client("c", "anna", message, 0.0)
    rig.core.client_down("c", 1.0)
    assert not rig.core.jobs
    rig.core.check_invariants()


def test_a_dag_runs_to_its_end_without_its_client() -> None:
    world = World(nodes=[2, 2])
    log = world.submit_stages(("a", [], [0.05] * 4), ("b", ["a"], [0.05] * 4), large=True, on_client_lost="finish")
    world.run_for(0.02)
    world.kill_client(world.clients[0])
    world.run()
    world.check_end()
    assert sorted(start.task for start in log.starts) == list(range(8))
    assert all(start.ended_at_s is not None for start in log.starts)
