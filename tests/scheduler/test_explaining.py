"""Why tasks wait, whatever the plane."""

from __future__ import annotations

import pytest

from scheduler.explaining import STAGES_MAX, slots_held, waiting_stages
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, StagedRig, node_info


def reasons(rig: SchedulerRig, job: str = "j", now_s: float = 0.0) -> list[str]:
    """Of all stages of the job."""
    found = []
    for stage in waiting_stages(rig.core, rig.core.jobs[job], now_s)[0]:
        found += stage.reasons
        if stage.ask is not None:
            found += stage.ask().reasons
    return found


def test_reservations_are_named_with_their_nodes() -> None:
    rig = SchedulerRig(["n1"])
    rig.submit_job(3)
    assert reasons(rig) == ["6 reservations are queued at 1 node: n1 (6)"]


def test_a_stage_names_those_before_it() -> None:
    rig = StagedRig()
    rig.submit(("map", (), 2), ("reduce", ("map",), 1))
    assert "it comes after map, of which tasks have not finished" in reasons(rig)


def test_tasks_that_have_not_arrived() -> None:
    rig = SchedulerRig(["n1"])
    rig.submit_job(1, job="other")
    rig.client(m.SubmitJob("j", 0, "", [m.Stage("many", 5, b"", "", 2.0, 0, None)], 3, False, None, False))
    assert "5 of its tasks have not arrived from the client" in reasons(rig)


def test_a_job_that_has_no_node_any_more() -> None:
    rig = SchedulerRig(["n1"])
    rig.submit_job(1)
    rig.node_down("n1")
    found = reasons(rig, now_s=2.0)
    assert "no node monitor is connected" in found
    assert "it has waited for a node for 2.0 s" in found


def test_nodes_that_lack_what_it_asks_for() -> None:
    rig = SchedulerRig({"n1": node_info(resources={"gpu": 1.0})})
    rig.submit_job(1, demand={"gpu": 1.0})
    rig.node_down("n1")
    rig.node_up("n2")
    assert any("no node monitor satisfies 1 gpu" in reason for reason in reasons(rig))


@pytest.mark.parametrize(
    ("placement", "reason"),
    [
        ("central", "no slot is free: 0 of 1 node that may run it has a free slot"),
        ("batch", "nodes are asked how long their queues are, for 1 task"),
    ],
)
def test_other_placements_say_what_they_wait_for(placement: str, reason: str) -> None:
    rig = SchedulerRig({"n1": node_info(1)}, placement=placement)
    rig.submit_job(2 if placement == "central" else 1)
    assert reason in reasons(rig)


def test_a_job_of_which_nothing_waits() -> None:
    rig = SchedulerRig({"n1": node_info(4)}, placement="central")
    rig.submit_job(2)
    assert waiting_stages(rig.core, rig.core.jobs["j"], 0.0) == ([], 0)


def test_of_a_job_of_many_stages_the_first_are_explained_and_the_others_counted() -> None:
    rig = StagedRig()
    rig.submit(*((f"s{number}", (), 1) for number in range(STAGES_MAX + 5)), ("last", ("s0",), 1))
    found, more = waiting_stages(rig.core, rig.core.jobs["j"], 0.0)
    assert [stage.name for stage in found] == [f"s{number}" for number in range(STAGES_MAX)]
    assert more == 6


def test_stages_that_are_open_are_explained_before_those_that_wait_for_others() -> None:
    rig = StagedRig()
    after = ((f"s{number}", ("late",), 1) for number in range(STAGES_MAX + 5))
    rig.submit(("late", (), 1), *after)
    rig.core.jobs["j"].stages.reverse()
    found, more = waiting_stages(rig.core, rig.core.jobs["j"], 0.0)
    assert found[0].name == "late" and found[0].ask is not None and more == 6


def test_whose_tasks_are_at_the_nodes_where_reservations_are_queued() -> None:
    rig = SchedulerRig({"n1": node_info(2)})
    for user in ("ada", "bob"):
        rig.submit_job(1, job=user, user=user)
        rig.node("n1", m.GetTasks(1, rig.reserves()["n1"].ticket, 1))
    rig.submit_job(3)
    (stage,) = waiting_stages(rig.core, rig.core.jobs["j"], 0.0)[0]
    assert stage.ask is not None
    queued_at = stage.ask().queued_at
    assert queued_at == ["n1"]
    assert slots_held(rig.core, queued_at, lambda user: True) == [
        "n1 has 2 slots; tasks are there of user ada (1), user bob (1)"
    ]
    assert slots_held(rig.core, queued_at, lambda user: False) == ["n1 has 2 slots; tasks are there of other users (2)"]
    assert slots_held(rig.core, ["gone"], lambda user: True) == []
