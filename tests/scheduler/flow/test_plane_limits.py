"""Limits of stages, through the plane and the real network: what is told of them, and why their tasks wait."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.flow import kind_turns
from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.quincy import Quincy
from sparrow_py.constraints import Constraint
from sparrow_py.wire import messages as m
from tests.support.flow_networks import NEVER_S
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info
from tests.support.suites import rest_after

STAGES_PER_JOB = 25


def rig_of(nodes: dict[str, m.NodeInfo], **options: Any) -> FlowRig:
    """With the real network."""
    return FlowRig(nodes, network=lambda: ClusterNetwork(Quincy(), second_after_s=NEVER_S), **options)


def entries(rig: FlowRig) -> dict[str, int]:
    """How much the network and the plane keep, by what they keep it in."""
    network, plane = rig.networks[-1], rig.plane
    cluster = network.cluster
    return {
        f"{type(part).__name__}.{name}": len(value)
        for part in (network, network._room, cluster, cluster.kinds, cluster.groups, cluster.classes, plane)
        for name, value in vars(part).items()
        if isinstance(value, dict | set)
    }


def limited(job: str) -> tuple[m.SubmitJob, m.AddTasks]:
    """A job of many stages of two tasks each, which have limits, are a gang, or are to be near the stage before."""
    stages = []
    for number in range(STAGES_PER_JOB):
        fields: dict[str, Any] = [{"max_per_node": 1}, {"max_per_rack": 2}][number % 2]
        if number % 5 == 4:
            fields = {"together_with": f"s{number - 1}"}
        if not number:
            fields = {"gang": True}
        stages.append(m.Stage("many", 2, b"", "", 1.0, 0, None, name=f"s{number}", **fields))
    made = m.SubmitJob(
        job, 0, "", stages, max_attempts=1, retry_failed=False, queue_timeout_s=None, report_placed=False
    )
    return made, m.AddTasks(job, 0, [b"p"] * (2 * STAGES_PER_JOB))


def play(rig: FlowRig, job: str, now_s: float) -> None:
    """All its tasks are placed and end."""
    rig.client(*limited(job), now_s=now_s)
    ended = 0
    while job in rig.core.jobs:
        now_s += 0.1
        rig.tick(now_s)
        ended += rig.end_all(now_s)
        rig.outbox.sent.clear()
    assert ended == 2 * STAGES_PER_JOB


@pytest.mark.parametrize("stages", rest_after(1, 100, 1_000))
def test_many_stages_with_limits_come_and_go_and_leave_nothing(stages: int) -> None:
    rig = rig_of({f"n{number}": node_info(15, attributes={"rack": "ab"[number % 2]}) for number in range(4)})

    def settle(now_s: float) -> tuple[dict[str, int], int, int]:
        """Another job's round tells what is gone."""
        for step in range(3):
            rig.submit_job(1, job=f"after{now_s}.{step}", now_s=now_s)
            rig.end_all(now_s)
        graph = rig.networks[-1].graph
        return entries(rig), graph.nodes, graph.arcs

    play(rig, "first", 0.0)
    before = settle(50.0)
    for number in range(stages // STAGES_PER_JOB):
        play(rig, f"j{number}", 100.0 * (number + 1))
    assert settle(9_000.0) == before
    assert len(rig.networks) == 1
    assert not rig.networks[-1].cluster.groups.known and not rig.plane.left_over()


def reasons(rig: FlowRig, job: str = "j", stage: int = 0, now_s: float = 1.0) -> list[str]:
    """Why the stage's tasks wait."""
    (ask,) = rig.plane.explain([rig.core.jobs[job].stages[stage]], now_s)
    found: list[str] = ask().reasons
    return found


def test_tasks_that_wait_for_their_turn_outside_the_network_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 1)
    rig = rig_of({f"n{number}": node_info(1) for number in range(3)})
    for job in ("runs", "weighed"):
        rig.submit_job(1, job=job, local=True, details={0: m.TaskDetail(("n0",))})
    rig.submit_job(2, local=True, details={task: m.TaskDetail((f"n{task + 1}",)) for task in range(2)})
    assert rig.placed("runs") == {0: "n0"} and len(rig.placed()) == 1
    *_, turn, task = reasons(rig)
    assert turn.startswith("2 of the 2 sets of constraints and preferred nodes that its tasks have wait for their turn")
    assert task.startswith("task 0 is weighed nowhere: no machine may have it now; or its constraints wait")
    assert not any("turn" in one for one in reasons(rig, "weighed"))


def two_racks(rig: FlowRig, where: tuple[Constraint, ...], tasks: int = 4) -> list[str]:
    """A stage with a task in a rack, and another one that is to be near it: why the latter waits."""
    first = m.Stage("many", 1, b"", "", 1.0, 0, None, name="a", where=(Constraint("rack", "==", ("b",)),))
    near = m.Stage("many", tasks, b"", "", 1.0, 0, None, name="near", together_with="a", where=where)
    rig.client(
        m.SubmitJob(
            "j", 0, "", [first, near], max_attempts=1, retry_failed=False, queue_timeout_s=None, report_placed=False
        ),
        m.AddTasks("j", 0, [b"p"] * (1 + tasks)),
    )
    return reasons(rig, stage=1)


@pytest.mark.parametrize(
    ("slots", "where", "reason"),
    [
        (
            {"n1": 1, "n2": 1},
            (),
            "its tasks may go only to the node where tasks of stage 'a' run: the slots for placed tasks are taken at "
            "the node that may run it",
        ),
        (
            {"n1": 1, "n2": 2},
            (Constraint("rack", "==", ("a",)),),
            "its tasks may go only to the node where tasks of stage 'a' run: none of these may run it",
        ),
    ],
)
def test_tasks_that_may_go_only_where_others_run_say_so(
    slots: dict[str, int], where: tuple[Constraint, ...], reason: str
) -> None:
    racks = {"n1": "a", "n2": "b"}
    rig = rig_of({node: node_info(count, attributes={"rack": racks[node]}) for node, count in slots.items()})
    told = two_racks(rig, where)
    assert reason in told
    assert not any(one.startswith("1 of 2 nodes") for one in told)


def test_tasks_that_wait_until_others_run_say_so() -> None:
    rig = rig_of({node: node_info(1, attributes={"rack": rack}) for node, rack in (("n1", "a"), ("n2", "b"))})
    rig.submit_job(1, job="first", where=(Constraint("rack", "==", ("b",)),))
    assert "its tasks may go only where tasks of stage 'a' run, and none do yet" in two_racks(rig, ())
