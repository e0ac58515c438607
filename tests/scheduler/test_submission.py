"""Jobs are submitted, and their tasks arrive: accepted, refused, or known already."""

from __future__ import annotations

import pytest

from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig


@pytest.mark.parametrize(("first", "count"), [(1, 1), (0, 4), (-1, 1)])
def test_tasks_out_of_order_or_too_many_break_the_link(first: int, count: int) -> None:
    rig = SchedulerRig("n")
    rig.client(submission("j", 3))
    with pytest.raises(LinkError, match="each task must be given once, in order"):
        rig.client(m.AddTasks("j", first, [b""] * count))
    rig.core.client_down("c", 0.0)  # What the daemon does then.
    assert not rig.core.jobs
    rig.core.check_invariants()


def test_a_task_given_twice_breaks_the_link() -> None:
    rig = SchedulerRig("n")
    rig.client(submission("j", 3), m.AddTasks("j", 0, [b"", b""]))
    with pytest.raises(LinkError, match="each task must be given once"):
        rig.client(m.AddTasks("j", 1, [b"", b""]))


def test_more_tasks_than_a_message_may_carry_break_the_link() -> None:
    rig = SchedulerRig("n")
    rig.client(submission("j", 20_000))
    with pytest.raises(LinkError, match="10000"):
        rig.client(m.AddTasks("j", 0, [b""] * 10_001))


def test_a_job_of_another_client_is_not_touched() -> None:
    rig = SchedulerRig("n")
    rig.client(submission("j", 1))
    rig.client(submission("j", 1), m.CancelJob("j"), m.AddTasks("j", 0, [b"evil"]), client="d", user="bert")
    assert [type(message) for _, message in rig.outbox.sent] == [m.JobAccepted, m.JobRefused]
    assert rig.core.jobs["j"].user == "anna"


def test_a_job_that_is_submitted_twice_before_it_has_arrived_whole_is_accepted_or_refused_once() -> None:
    """What its tasks prefer is not known before they are here: the second submission is no reason to accept it."""
    for node, answer in (("n", m.JobAccepted), ("elsewhere", m.JobRefused)):
        rig = SchedulerRig("n")
        rig.client(submission(local=True), submission(local=True))
        assert not rig.outbox.sent
        rig.client(m.AddTasks("j", 0, [b""], {0: m.TaskDetail((node,))}))
        assert [type(message) for to, message in rig.outbox.sent if to == "c"] == [answer]


def answers(rig: SchedulerRig) -> list[type]:
    """What clients were told of acceptance since the last call."""
    told = [type(message) for _, message in rig.outbox.sent if isinstance(message, m.JobAccepted | m.JobRefused)]
    rig.outbox.sent.clear()
    return told


def test_the_same_submission_again_is_one_job() -> None:
    rig = SchedulerRig("a")
    rig.client(submission("j", 2), submission("j", 2))
    assert answers(rig) == [m.JobAccepted, m.JobAccepted] and len(rig.core.jobs) == 1
    assert rig.core.admission.unplaced == {"anna": 2}


@pytest.mark.parametrize(("user", "epoch", "taken"), [("anna", 1, True), ("anna", 0, False), ("bert", 1, False)])
def test_a_job_gives_way_to_a_higher_epoch_of_its_user_alone(user: str, epoch: int, taken: bool) -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1)
    answers(rig)
    rig.client(submission("j", 1, epoch=epoch), client="d", user=user)
    assert answers(rig) == [m.JobAccepted if taken else m.JobRefused]
    assert rig.core.jobs["j"].client == ("d" if taken else "c")


def test_a_scheduler_that_ends_refuses_new_jobs_for_a_moment_and_takes_known_ones() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1)
    rig.core.drain(0.0)
    answers(rig)
    rig.client(submission("j", 1), submission("k", 1))
    (refused,) = rig.take(m.JobRefused)
    assert (refused.job, refused.reason, refused.retry_after_s) == ("k", "the scheduler is shutting down", 1.0)
    assert answers(rig) == [m.JobAccepted]


def test_jobs_that_avoid_each_other_are_of_one_user() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1, job="mine")
    rig.submit_job(1, job="theirs", client="d", user="bert")
    rig.submit_job(1, job="late", avoid=("mine", "theirs", "gone", "late"))
    assert rig.core.jobs["late"].avoids == {"mine": {""}} and rig.core.jobs["mine"].avoids == {"late": {""}}
    assert not rig.core.jobs["theirs"].avoids


def test_tasks_of_several_stages_may_come_in_one_message_or_in_many() -> None:
    stages = [m.Stage("many", 2, b"", "", 1.0, 0, None, name=name) for name in "ab"]
    for sizes in ((4,), (1, 1, 1, 1), (3, 1)):
        rig, first = SchedulerRig("a"), 0
        rig.client(m.SubmitJob("j", 0, "", stages, 3, False, None, False))
        for size in sizes:
            rig.client(m.AddTasks("j", first, [b"%d" % task for task in range(first, first + size)]))
            first += size
        assert [stage.payloads for stage in rig.core.jobs["j"].stages] == [[b"0", b"1"], [b"2", b"3"]]


def test_a_job_without_tasks_ends_at_once() -> None:
    rig = SchedulerRig("a")
    rig.client(submission("j", 0))
    assert rig.take(m.JobEnded) and not rig.core.jobs
