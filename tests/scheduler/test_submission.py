"""Jobs are submitted, and their tasks arrive: accepted, refused, or known already."""

from __future__ import annotations

import random

import pytest

from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from sparrow_py.errors import LinkError
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder, submission


def core() -> tuple[SchedulerCore, Recorder]:
    outbox = Recorder()
    core = SchedulerCore(SchedulerOptions(), random.Random(0), outbox)
    core.node_up("n", m.NodeInfo(4, {}, {}, {"many": "", "python": "3.11"}), 0.0)
    return core, outbox


@pytest.mark.parametrize(("first", "count"), [(1, 1), (0, 4), (-1, 1)])
def test_tasks_out_of_order_or_too_many_break_the_link(first: int, count: int) -> None:
    scheduler, _ = core()
    scheduler.receive_from_client("c", "anna", submission("j", 3), 0.0)
    with pytest.raises(LinkError, match="each task must be given once, in order"):
        scheduler.receive_from_client("c", "anna", m.AddTasks("j", first, [b""] * count), 0.0)
    scheduler.client_down("c", 0.0)  # What the daemon does then.
    assert not scheduler.jobs
    scheduler.check_invariants()


def test_a_task_given_twice_breaks_the_link() -> None:
    scheduler, _ = core()
    scheduler.receive_from_client("c", "anna", submission("j", 3), 0.0)
    scheduler.receive_from_client("c", "anna", m.AddTasks("j", 0, [b"", b""]), 0.0)
    with pytest.raises(LinkError, match="each task must be given once"):
        scheduler.receive_from_client("c", "anna", m.AddTasks("j", 1, [b"", b""]), 0.0)


def test_more_tasks_than_a_message_may_carry_break_the_link() -> None:
    scheduler, _ = core()
    scheduler.receive_from_client("c", "anna", submission("j", 20_000), 0.0)
    with pytest.raises(LinkError, match="10000"):
        scheduler.receive_from_client("c", "anna", m.AddTasks("j", 0, [b""] * 10_001), 0.0)


def test_a_job_of_another_client_is_not_touched() -> None:
    scheduler, outbox = core()
    scheduler.receive_from_client("c", "anna", submission("j", 1), 0.0)
    scheduler.receive_from_client("d", "bert", submission("j", 1), 0.0)
    scheduler.receive_from_client("d", "bert", m.CancelJob("j"), 0.0)
    scheduler.receive_from_client("d", "bert", m.AddTasks("j", 0, [b"evil"]), 0.0)
    assert [type(message) for _, message in outbox.sent] == [m.JobAccepted, m.JobRefused]
    assert scheduler.jobs["j"].user == "anna"


def test_a_job_that_is_submitted_twice_before_it_has_arrived_whole_is_accepted_or_refused_once() -> None:
    """What its tasks prefer is not known before they are here: the second submission is no reason to accept it."""
    for node, answer in (("n", m.JobAccepted), ("elsewhere", m.JobRefused)):
        scheduler, outbox = core()
        for _ in range(2):
            scheduler.receive_from_client("c", "anna", submission(local=True), 0.0)
        assert not outbox.sent
        details = {0: m.TaskDetail((node,))}
        scheduler.receive_from_client("c", "anna", m.AddTasks("j", 0, [b""], details), 0.0)
        assert [type(message) for to, message in outbox.sent if to == "c"] == [answer]
