"""`queue_timeout_s` in the scheduler's pure core: whom a timer concerns, and from when it counts."""

from __future__ import annotations

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig


class Rig(SchedulerRig):
    """A scheduler with one node n that has the app "many", and a client c."""

    def __init__(self) -> None:
        super().__init__("n")

    def submit(self, now_s: float, tasks: int, queue_timeout_s: float | None) -> None:
        """The job j, with all its tasks."""
        self.submit_job(tasks, queue_timeout_s=queue_timeout_s, now_s=now_s)

    def ended_at(self, now_s: float) -> list[m.Outcome]:
        """What ends when time has come to `now_s`."""
        self.tick(now_s)
        return self.take(m.Outcome)


def lost(*tasks: int) -> list[tuple[int, TaskStatus]]:
    return [(task, TaskStatus.LOST) for task in tasks]


def ends(outcomes: list[m.Outcome]) -> list[tuple[int, TaskStatus]]:
    return [(outcome.task, outcome.status) for outcome in outcomes]


def test_tasks_that_find_no_place_in_time_are_lost() -> None:
    rig = Rig()
    rig.submit(1.0, 3, 60.0)
    assert rig.ended_at(60.9) == []
    assert ends(rig.ended_at(61.0)) == lost(0, 1, 2)
    assert not rig.core.jobs


def test_the_timer_of_a_job_that_ended_does_nothing_to_another_of_its_id() -> None:
    """Fewer tasks, and no timeout: what the old timer names is not there."""
    rig = Rig()
    rig.submit(1.0, 10, 60.0)
    rig.client(m.CancelJob("j"), now_s=2.0)
    assert len(rig.take(m.Outcome)) == 10 and not rig.core.jobs
    rig.submit(3.0, 3, None)
    assert rig.ended_at(61.5) == []
    assert rig.core.jobs["j"].unplaced == 3


def test_another_job_of_the_id_has_its_own_timeout() -> None:
    rig = Rig()
    rig.submit(1.0, 10, 60.0)
    rig.client(m.CancelJob("j"), now_s=2.0)
    rig.take(m.Outcome)
    rig.submit(3.0, 2, 100.0)
    assert rig.ended_at(61.5) == []
    assert ends(rig.ended_at(103.0)) == lost(0, 1)


def test_a_task_that_is_unplaced_again_has_its_whole_timeout_again() -> None:
    rig = Rig()
    rig.submit(1.0, 2, 60.0)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 1), now_s=50.0)
    (launch,) = rig.take(m.Launch)
    assert launch.task == 0
    rig.node("n", m.HandBack("j", launch.attempt, "the node is draining"), now_s=55.0)
    assert ends(rig.ended_at(61.0)) == lost(1)
    assert rig.ended_at(114.9) == []
    assert ends(rig.ended_at(115.0)) == lost(0)


def test_a_task_that_is_placed_is_not_timed_out() -> None:
    rig = Rig()
    rig.submit(1.0, 1, 60.0)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 1), now_s=50.0)
    assert rig.ended_at(1000.0) == [] and list(rig.core.jobs) == ["j"]
