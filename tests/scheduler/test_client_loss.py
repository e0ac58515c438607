"""Clients that are gone: their jobs go on, or end, at once or after the grace time, as each job says."""

from __future__ import annotations

import pytest

from simulator.soak.world import World
from sparrow_py.job import TaskStatus
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


@pytest.mark.parametrize(
    ("goodbye", "reason"), [(True, "its client went away"), (False, "its client vanished")], ids=["goodbye", "vanished"]
)
def test_what_has_not_started_is_cancelled_with_the_reason_and_what_runs_goes_on(goodbye: bool, reason: str) -> None:
    rig = SchedulerRig("a", client_grace_s=10.0)
    rig.submit_job(2, probe_ratio=1.0, on_client_lost="cancel")
    rig.node("a", m.GetTasks(1, rig.reserves()["a"].ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.core.client_down("c", 1.0, said_goodbye=goodbye)
    rig.tick(10.9)
    if not goodbye:
        assert rig.core.jobs["j"].stages[0].unplaced == 1, "the client may yet come back"
    rig.tick(11.0)
    assert rig.core.jobs["j"].cancel_reason == reason and not rig.core.jobs["j"].stages[0].unplaced
    rig.node("a", m.Report("j", launch.task, launch.attempt, TaskStatus.FINISHED, b"", "", 0.0, 0.1))
    assert not rig.core.jobs


def test_a_client_that_comes_back_has_its_job_again_and_the_grace_time_of_the_old_one_ends_nothing() -> None:
    rig = SchedulerRig("a", client_grace_s=10.0, settling_s=0.0)
    rig.submit_job(1, on_client_lost="cancel")
    rig.core.client_down("c", 1.0, said_goodbye=False)
    rig.submit_job(1, epoch=1, client="again", on_client_lost="cancel", now_s=5.0)
    rig.node("a", m.Claimed("j", 1, []), now_s=5.0)
    rig.tick(12.0)
    assert rig.core.jobs["j"].client == "again" and not rig.core.jobs["j"].cancelled


def test_jobs_of_other_clients_are_not_touched() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1, job="mine", on_client_lost="cancel")
    rig.submit_job(1, job="theirs", client="d", on_client_lost="cancel")
    rig.core.client_down("c", 1.0)
    rig.core.client_down("nobody", 1.0)
    assert list(rig.core.jobs) == ["theirs"]
