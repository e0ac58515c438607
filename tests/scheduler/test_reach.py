"""Which nodes may be given tasks of a stage, now or later: by its kind, by refusals, by jobs that are to be avoided."""

from __future__ import annotations

import pytest

from scheduler.book.jobs import StageState
from scheduler.book.reach import Reach
from sparrow_py.wire import messages as m
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


def test_the_list_of_a_kind_is_not_changed_by_what_one_stage_met(rig: SchedulerRig) -> None:
    stage, other = stage_of(rig), stage_of(rig, "other")
    stage.search.refused_by.add("a")
    stage.search.barred_by["b"] = "full"
    assert reached(rig, stage) == ("c", "ac") and reached(rig, other) == ("abc", "abc")
