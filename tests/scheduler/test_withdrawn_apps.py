"""Apps that nodes should run and whose executors do not start there: jobs are refused, or end, with the reason."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book.waiting import WITHDRAWN_WAIT_S
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig

REASON = "exited with code 1; it said:\nNo module named 'sparrow_py'"
OFFERED = m.NodeInfo(2, {}, {"zone": "eu"}, {"many": "", "other": ""})
WITHDRAWN = m.NodeInfo(2, {}, {"zone": "eu"}, {"other": ""}, withdrawn={"many": REASON})
WHY = f"the executors of app 'many' do not start on a: {REASON}"


class Rig(SchedulerRig):
    """A scheduler with the nodes a, b, … and a client c."""

    def __init__(self, *nodes: m.NodeInfo, **options: Any) -> None:
        super().__init__(dict(zip("abc", nodes, strict=False)), **options)

    def submit(self, **fields: Any) -> None:
        self.submit_job(**fields)

    def changed(self, node: str, info: m.NodeInfo, now_s: float = 0.0) -> None:
        self.node(node, m.NodeChanged(info), now_s=now_s)

    def refusal(self) -> m.JobRefused | None:
        refused = self.take(m.JobRefused)
        return refused[0] if refused else None

    def ended_at(self, now_s: float) -> list[m.Outcome]:
        self.tick(now_s)
        return self.take(m.Outcome)


def test_a_job_whose_app_does_not_start_anywhere_is_refused_with_the_reason() -> None:
    rig = Rig(WITHDRAWN, WITHDRAWN)
    rig.submit()
    refused = rig.refusal()
    assert refused is not None
    assert refused.reason == WHY.replace("on a:", "on a (nor on 1 more):")
    assert (refused.field, refused.retry_after_s) == ("", None), "nothing is wrong with the job"


def test_it_is_taken_as_long_as_one_node_has_the_app() -> None:
    rig = Rig(WITHDRAWN, OFFERED)
    rig.submit()
    assert rig.refusal() is None
    assert {node for node, _ in rig.outbox.take(m.Reserve)} == {"b"}


def test_it_is_taken_again_once_a_node_offers_the_app_again() -> None:
    rig = Rig(OFFERED)
    rig.changed("a", WITHDRAWN)
    rig.submit()
    assert rig.refusal() is not None
    rig.changed("a", OFFERED)
    rig.submit()
    assert rig.refusal() is None
    assert rig.outbox.take(m.Reserve)


def test_a_job_that_says_how_long_it_waits_for_nodes_waits() -> None:
    rig = Rig(WITHDRAWN)
    rig.submit(wait_for_nodes_s=100.0)
    assert rig.refusal() is None
    assert rig.ended_at(99.0) == []
    (outcome,) = rig.ended_at(100.0)
    assert outcome.status is TaskStatus.LOST
    assert outcome.error == f"no node that may run it was connected for 100 s: {WHY}"


def test_what_the_node_lacks_besides_is_the_reason_that_counts() -> None:
    rig = Rig(WITHDRAWN)
    rig.submit(demand={"gpu": 1.0})
    refused = rig.refusal()
    assert refused is not None
    assert "do not start" not in refused.reason


@pytest.mark.parametrize("local", [False, True])
def test_tasks_of_a_job_that_was_taken_before_do_not_wait_for_long(local: bool) -> None:
    """Nodes that are to come may be waited for, executors that do not start have been."""
    rig = Rig(OFFERED)
    if local:
        detail = {0: m.TaskDetail(("a",))}
        rig.core.receive_from_client("c", "anna", submission(local=True), 0.0)
        rig.core.receive_from_client("c", "anna", m.AddTasks("j", 0, [b""], detail), 0.0)
    else:
        rig.submit()
    ((_, reserved),) = rig.outbox.take(m.Reserve)
    rig.changed("a", WITHDRAWN)
    rig.core.receive_from_node("a", m.ReservationsRefused(reserved.ticket, reserved.count, "it does not start"), 0.0)
    rig.core.check_invariants()
    assert rig.ended_at(WITHDRAWN_WAIT_S - 1.0) == []
    (outcome,) = rig.ended_at(WITHDRAWN_WAIT_S)
    assert outcome.status is TaskStatus.LOST
    assert outcome.error == f"no node that may run it was connected for {WITHDRAWN_WAIT_S:g} s: {WHY}"


def test_they_run_if_the_app_comes_back_in_time() -> None:
    rig = Rig(OFFERED)
    rig.submit()
    ((_, reserved),) = rig.outbox.take(m.Reserve)
    rig.changed("a", WITHDRAWN)
    rig.core.receive_from_node("a", m.ReservationsRefused(reserved.ticket, reserved.count, "it does not start"), 0.0)
    rig.changed("a", OFFERED, 10.0)
    assert rig.ended_at(10.0 + WITHDRAWN_WAIT_S) == []
    assert rig.outbox.take(m.Reserve)


def test_a_reason_beyond_the_limit_is_a_broken_protocol() -> None:
    rig = Rig(OFFERED)
    long = m.NodeInfo(2, {}, {}, {}, withdrawn={"many": "x" * (m.WITHDRAWN_CHARS_MAX + 1)})
    with pytest.raises(LinkError, match=r"withdrawn\['many'\] is 1001 characters; at most 1000"):
        rig.core.receive_from_node("a", m.NodeChanged(long), 0.0)
