"""What tasks receive, judged by what nodes measure."""

from __future__ import annotations

from scheduler.flow.profiles import NET
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

MB = 1e6


def told(rig: FlowRig, node: str, rate: float | None, *, taken: int = 0, short: int = 0) -> None:
    """The node says what it receives, in megabytes a second."""
    measured = None if rate is None else rate * MB
    rig.node(node, m.NodeLoad(4 - taken, 4, short, 0, {}, net_in_bytes_per_s=measured))


def expected(rig: FlowRig, stage: str, user: str = "anna") -> float:
    """What a task of the stage is expected to receive, in megabytes a second."""
    found: float = rig.plane._profiles.expected(user, "many", stage, {}).get(NET, 0.0)
    return found / MB


def rig_with(*jobs: str, tasks: int = 1) -> FlowRig:
    """A node of four slots with tasks of these jobs, which received 10 MB/s before they came."""
    rig = FlowRig({"n": node_info(4)})
    told(rig, "n", 10)
    for job in jobs:
        rig.submit_job(tasks, job=job, name=job)
    return rig


def test_it_is_what_the_node_receives_beyond_what_it_did_without_tasks_in_equal_parts() -> None:
    rig = rig_with("load", tasks=2)
    told(rig, "n", 110, taken=2)
    assert expected(rig, "load") == 50.0


def test_nobody_can_tell_whose_it_is_beside_others() -> None:
    several = rig_with("a", "b")
    told(several, "n", 110, taken=2)
    assert expected(several, "a") == expected(several, "b") == 0.0
    sampled, sent, unmeasured = rig_with("a"), rig_with("a"), rig_with("a")
    told(sampled, "n", 110, taken=1, short=1)
    told(sent, "n", 110, taken=0)
    told(unmeasured, "n", None, taken=1)
    assert expected(sampled, "a") == expected(sent, "a") == expected(unmeasured, "a") == 0.0


def test_without_having_seen_the_node_without_tasks_nothing_is_known() -> None:
    rig = FlowRig({"n": node_info(4)})
    rig.submit_job(1, job="a", name="a")
    told(rig, "n", 110, taken=1)
    assert expected(rig, "a") == 0.0
    left = rig_with("a")
    left.node_down("n")
    left.node_up("n", node_info(4))
    left.submit_job(1, job="b", name="b")
    told(left, "n", 110, taken=1)
    assert expected(left, "b") == 0.0
