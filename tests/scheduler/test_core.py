"""The core dispatches: messages go to the book or to the plane, late ones are counted, and what ended is let go."""

from __future__ import annotations

import msgspec
import pytest

from scheduler.core import _does_not_matter
from scheduler.options import PLACEMENTS
from scheduler.planes import PLANES
from sparrow_py.errors import InvariantViolated, LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.most_free_slots import LedMostFreeSlots
from tests.support.scheduler_rig import SchedulerRig, node_info

OF_LINKS = {m.Hello, m.Goodbye, m.Renew}
"""Messages that daemons take before their cores."""


def test_every_message_of_a_node_has_a_handler_with_one_of_the_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    cores = [SchedulerRig(placement=placement).core for placement in PLACEMENTS]
    monkeypatch.setitem(PLANES, "random", LedMostFreeSlots)
    cores.append(SchedulerRig(placement="random").core)
    handled = {kind for one in cores for kind, handler in one._from_node.items() if handler is not _does_not_matter}
    of_task_clients = {m.TaskSays, m.TaskGone}
    assert handled == set(m.FromNode.__args__) - OF_LINKS - of_task_clients


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_every_message_of_a_client_has_a_handler_whatever_the_plane(placement: str) -> None:
    core = SchedulerRig(placement=placement).core
    handled = core._from_client.keys() | core._of_detached.keys()
    not_of_a_job_here = {m.SubmitJob, m.Received}
    assert handled == set(m.FromClient.__args__) - OF_LINKS - not_of_a_job_here


class LoadAverage(msgspec.Struct):
    """What nodes might say one day, for a plane of that day."""


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_message_that_only_another_plane_takes_is_ignored(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plane names its messages itself: the core and the other planes need not know them."""
    monkeypatch.setattr(m, "FromNode", m.FromNode | LoadAverage)
    rig = SchedulerRig("a", placement=placement)
    rig.submit_job(1)
    rig.outbox.sent.clear()
    rig.node("a", LoadAverage())
    assert not rig.outbox.sent


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_messages_that_a_plane_does_not_want_change_nothing(placement: str) -> None:
    rig = SchedulerRig("a", placement=placement)
    rig.node("a", m.ReservationsRefused(7, 1, "full"), m.QueueLength(7, 3), m.Idle(1))
    assert not rig.outbox.sent


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_an_ask_for_which_there_is_nothing_is_answered_so(placement: str) -> None:
    rig = SchedulerRig("a", placement=placement)
    rig.node("a", m.GetTasks(5, 99, 2))
    assert rig.outbox.sent == [("a", m.NoTask(5, 2))]
    assert (rig.core.counters.asks, rig.core.counters.noops) == (1, 2)


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_node_that_is_idle_with_no_slot_breaks_its_link(placement: str) -> None:
    with pytest.raises(LinkError, match="idle with 0 free slots"):
        SchedulerRig("a", placement=placement).node("a", m.Idle(0))


def test_messages_about_jobs_that_are_not_here_are_counted_or_ignored() -> None:
    rig = SchedulerRig("a")
    rig.node("a", m.Report("j", 0, 1, TaskStatus.FINISHED, b"", "", None, None), m.HandBack("j", 1, "no room"))
    assert rig.core.counters.stale_reports == 2
    rig.client(m.CancelJob("j"), m.AddTasks("j", 0, [b""]))
    assert not rig.outbox.sent


def test_another_client_does_not_reach_the_job() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1)
    rig.take(m.Reserve)
    rig.client(m.CancelJob("j"), client="d", user="bert")
    assert not rig.take(m.Outcome) and "j" in rig.core.jobs


def test_a_draining_scheduler_refuses_jobs_and_goes_on_with_those_that_it_has() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1)
    rig.core.drain(0.0)
    rig.submit_job(1, job="k")
    (refused,) = rig.take(m.JobRefused)
    assert refused.job == "k" and "shutting down" in refused.reason
    assert list(rig.core.jobs) == ["j"] and rig.core.draining


def test_the_operator_is_told_whether_there_is_such_a_job() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(1)
    assert rig.core.cancel_job("j", 0.0) and not rig.core.cancel_job("j", 0.0)
    assert rig.outcomes() == [(0, TaskStatus.CANCELLED, 0)]


def test_what_does_not_hold_is_told_with_the_jobs_story() -> None:
    rig = SchedulerRig("a", history_len_max=10)
    rig.submit_job(2)
    rig.core.jobs["j"].stages[0].unplaced = 1
    with pytest.raises(InvariantViolated, match="unplaced, placed, settled, blocked, held, leaving are") as raised:
        rig.core.check_invariants(every_job=True)
    assert "accepted with epoch 0" in str(raised.value)


def test_only_jobs_with_an_event_are_checked_where_history_is_kept() -> None:
    rig = SchedulerRig("a", history_len_max=10)
    rig.submit_job(2)
    rig.core.jobs["j"].counts[TaskStatus.FINISHED] = rig.core.jobs["j"].stages[0].settled = 1
    rig.core.check_invariants()
    with pytest.raises(InvariantViolated):
        rig.core.check_invariants(every_job=True)


def test_what_is_left_in_admission_is_found() -> None:
    rig = SchedulerRig("a")
    rig.submit_job(2)
    rig.core.admission.unplaced["anna"] += 1
    with pytest.raises(InvariantViolated, match="admission counts"):
        rig.core.check_invariants()


def test_a_node_that_changes_gets_what_waits_for_it() -> None:
    rig = SchedulerRig({"a": node_info(apps={"other": ""})}, wait_for_nodes_s=60.0)
    rig.submit_job(1, wait_for_nodes_s=60.0)
    assert not rig.take(m.Reserve)
    rig.node("a", m.NodeChanged(node_info()))
    assert rig.take(m.Reserve)
