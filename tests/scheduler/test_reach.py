"""Which nodes may be given tasks of a stage, now or later: by its kind, by refusals, by jobs that are to be avoided."""

from __future__ import annotations

import pytest

from scheduler.book.jobs import StageState
from scheduler.book.reach import Reach
from sparrow_py.constraints import parse
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info


@pytest.fixture
def rig() -> SchedulerRig:
    """Nodes a, b and c have the app of jobs; d has another."""
    infos = {node: node_info() for node in "abc"} | {"d": node_info(apps={"other": ""})}
    return SchedulerRig(infos)


def stage_of(rig: SchedulerRig, job: str = "j", **fields: object) -> StageState:
    rig.submit_job(1, job=job, **fields)
    return rig.core.jobs[job].stages[0]


def reached(rig: SchedulerRig, stage: StageState) -> tuple[str, str]:
    """The nodes of now and of later; `test` says of each node what `now` says."""
    reach: Reach = rig.core.book.reach
    now, test = reach.now(stage), reach.test(stage)
    assert [node for node in "abcd" if test(node)] == sorted(now) and not test("nobody")
    return "".join(now), "".join(reach.later(stage))


def test_nodes_that_have_what_the_stage_asks_for(rig: SchedulerRig) -> None:
    stage = stage_of(rig)
    assert reached(rig, stage) == ("abc", "abc")
    rig.node("b", m.NodeState(m.CORDONED, ""))
    assert reached(rig, stage) == ("ac", "ac")
    rig.node_down("a")
    assert reached(rig, stage) == ("c", "c")


def test_a_node_that_has_refused_for_now_is_reached_later(rig: SchedulerRig) -> None:
    stage = stage_of(rig)
    stage.search.refused_by.add("a")
    assert reached(rig, stage) == ("bc", "abc")


def test_a_node_that_has_refused_for_good_is_not_reached(rig: SchedulerRig) -> None:
    stage = stage_of(rig)
    stage.search.barred_by["a"] = "its operator said so"
    assert reached(rig, stage) == ("bc", "bc")


def test_a_node_where_an_avoided_job_runs_is_reached_later(rig: SchedulerRig) -> None:
    """It goes both ways; where the other job has nothing but reservations it does not run."""
    stage_of(rig)
    (node, reserve), *_ = rig.reserves().items()
    other = stage_of(rig, "other", avoid=("j",))
    assert reached(rig, other) == ("abc", "abc")
    rig.node(node, m.GetTasks(1, reserve.ticket, 1))
    (launch,) = rig.take(m.Launch)
    assert reached(rig, other) == ("abc".replace(node, ""), "abc")
    rig.node(node, m.HandBack("j", launch.attempt, "no room"))
    assert reached(rig, other) == ("abc", "abc")


def launched(rig: SchedulerRig, job: str) -> tuple[str, int]:
    """Have the first node that has a reservation of the job ask; returns where its task runs, and the attempt."""
    (node, reserve), *_ = [(node, one) for node, one in rig.outbox.take(m.Reserve) if one.job == job]
    rig.node(node, m.GetTasks(1, reserve.ticket, 1))
    (launch,) = rig.take(m.Launch)
    return node, launch.attempt


def in_racks(**racks: str) -> SchedulerRig:
    """Nodes, each in this rack; in none if that is empty."""
    return SchedulerRig(
        {node: node_info(attributes={"rack": rack} if rack else {}) for node, rack in racks.items()}, push_to_idle=False
    )


def test_nodes_of_the_rack_where_an_avoided_job_runs_are_reached_later() -> None:
    """It goes both ways; of nodes without a rack only the one that avoids by racks keeps away."""
    rig = in_racks(a="r0", b="r0", c="r1", d="")
    stage = stage_of(rig, where=(parse("where", "node == a"),))
    node, attempt = launched(rig, "j")
    other = stage_of(rig, "other", avoid=("j",), avoid_by="rack")
    assert rig.core.jobs["j"].avoids == {"other": {"rack"}} and rig.core.jobs["other"].avoids == {"j": {"rack"}}
    assert reached(rig, other) == ("c", "abc")
    plain = stage_of(rig, "plain", avoid=("j",))
    assert reached(rig, plain) == ("bcd", "abcd")
    node_of_other, _ = launched(rig, "other")
    assert node_of_other == "c"
    more = stage_of(rig, "more", avoid=("other", "j"), avoid_by="rack")
    assert reached(rig, more) == ("", "abc")
    rig.node(node, m.HandBack("j", attempt, "no room"))
    assert reached(rig, other) == ("abc", "abc") and reached(rig, more) == ("ab", "abc")
    assert reached(rig, stage) == ("a", "a")


def test_both_ways_and_by_several_attributes_at_once() -> None:
    rig = in_racks(a="r0", b="r0", c="r1")
    first = stage_of(rig, "first")
    stage_of(rig, "second", avoid=("first",), avoid_by="rack", where=(parse("where", "node == a"),))
    rig.client(submission("third", avoid=("second",), avoid_by="zone", wait_for_nodes_s=1.0))
    assert rig.core.jobs["second"].avoids == {"first": {"rack"}, "third": {"zone"}}
    rig.take(m.Launch)
    assert launched(rig, "second")[0] == "a"
    assert reached(rig, first) == ("c", "abc")
    assert reached(rig, rig.core.jobs["third"].stages[0]) == ("", "")
    rig.node("c", m.NodeChanged(node_info(attributes={"rack": "r1", "zone": "z"})))
    assert reached(rig, rig.core.jobs["third"].stages[0]) == ("c", "c")
    rig.node("a", m.NodeChanged(node_info(attributes={"rack": "r0", "zone": "z"})))
    assert reached(rig, rig.core.jobs["third"].stages[0]) == ("", "ac")


def test_what_a_node_says_of_its_rack_now_counts() -> None:
    rig = in_racks(a="r0", b="r1", c="r2")
    stage_of(rig, where=(parse("where", "node == a"),))
    assert launched(rig, "j")[0] == "a"
    other = stage_of(rig, "other", avoid=("j",), avoid_by="rack")
    assert reached(rig, other) == ("bc", "abc")
    rig.node("b", m.NodeChanged(node_info(attributes={"rack": "r0"})))
    assert reached(rig, other) == ("c", "abc")
    rig.node("a", m.NodeChanged(node_info(attributes={"rack": "r2"})))
    assert reached(rig, other) == ("b", "abc")
    rig.node("b", m.NodeChanged(node_info()))
    assert reached(rig, other) == ("", "ac")
    rig.node("a", m.NodeChanged(node_info()))  # What runs there goes on, in no rack.
    assert reached(rig, other) == ("c", "c")
    rig.node_down("a")
    assert reached(rig, other) == ("c", "c")


def test_a_reservation_at_a_node_that_has_lost_its_rack_gets_no_task() -> None:
    rig = in_racks(a="r0", b="r1")
    stage_of(rig, where=(parse("where", "node == b"),))
    other = stage_of(rig, "other", avoid=("j",), avoid_by="rack")
    reserve = next(one for node, one in rig.outbox.take(m.Reserve) if one.job == "other" and node == "a")
    rig.node("a", m.NodeChanged(node_info()))
    rig.node("a", m.GetTasks(1, reserve.ticket, 1))
    assert not rig.take(m.Launch) and other.unplaced == 1
    rig.core.check_invariants()


def test_the_list_of_a_kind_is_not_changed_by_what_one_stage_met(rig: SchedulerRig) -> None:
    stage, other = stage_of(rig), stage_of(rig, "other")
    stage.search.refused_by.add("a")
    stage.search.barred_by["b"] = "full"
    assert reached(rig, stage) == ("c", "ac") and reached(rig, other) == ("abc", "abc")
