"""Tasks of preemptible jobs make room, and move; no others ever do."""

from __future__ import annotations

from collections.abc import Mapping

from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.policy import Task, TaskCosts
from sparrow_py.job import FINISHED
from sparrow_py.wire import messages as m
from tests.scheduler.flow.test_plane_answers import Stated
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

COSTS = {"low": {"M0": 1, "M1": 5}, "high": {"M0": 1}}
WAITING = {"low": 10, "high": 100}


class Keeping(Stated):
    """Who runs goes on, unless something is worth more."""

    def task(self, task: Task) -> TaskCosts:
        costs = super().task(task)
        running = self._costs[task.job].get(task.runs_on, 0) if task.runs_on else 0
        return TaskCosts(costs.arcs, costs.waiting, running)


class PreemptingRig(FlowRig):
    """Nodes that stop tasks when they are told to."""

    def __init__(self, nodes: Mapping[str, int], costs: Mapping[str, Mapping[str, int]] = COSTS) -> None:
        infos = {name: node_info(slots) for name, slots in nodes.items()}
        super().__init__(
            infos,
            network=lambda: ClusterNetwork(Keeping(costs, WAITING), keeps_running=True),
            flow_preemption=True,
        )

    def stopping(self) -> list[tuple[str, int]]:
        """(node, attempt) of those that nodes are told to stop."""
        return [(node, cancel.attempt) for node, cancel in self.outbox.take(m.CancelAttempt) if cancel.preempt]

    def preempt(self, node: str, attempt: int, now_s: float = 0.0) -> None:
        """The node has stopped it."""
        launch = self.running[node].pop(attempt)
        self.node(node, m.Preempted(launch.job, attempt, 1.0), now_s=now_s)


def test_a_task_makes_room_for_one_that_costs_more_to_have_wait() -> None:
    rig = PreemptingRig({"M0": 1})
    rig.submit_job(1, job="low", preemptible=True)
    assert rig.placed("low") == {0: "M0"}
    rig.submit_job(1, job="high")
    assert rig.placed("high") == {}
    ((node, attempt),) = rig.stopping()
    rig.preempt(node, attempt)
    assert rig.placed("high") == {0: "M0"} and rig.placed("low") == {}
    rig.end("M0", next(iter(rig.running["M0"])))
    assert rig.placed("low") == {0: "M0"}
    rig.end_all()
    assert rig.outcomes() == [(0, FINISHED, 1), (0, FINISHED, 1)], "being stopped has cost no attempt"
    assert not rig.plane.left_over()


def test_tasks_of_other_jobs_are_never_stopped() -> None:
    rig = PreemptingRig({"M0": 1})
    rig.submit_job(1, job="low")
    rig.submit_job(1, job="high")
    for now_s in range(1, 30):
        rig.tick(float(now_s))
    assert rig.placed("low") == {0: "M0"} and not rig.stopping()


def test_tasks_that_may_start_once_are_never_stopped() -> None:
    rig = PreemptingRig({"M0": 1})
    rig.submit_job(1, job="low", preemptible=False, max_attempts=1)
    rig.submit_job(1, job="high")
    assert rig.placed("low") == {0: "M0"} and not rig.stopping()


def test_a_task_moves_to_a_better_place_that_is_free_again() -> None:
    rig = PreemptingRig({"M0": 1, "M1": 1}, COSTS | {"first": {"M0": 0}})
    WAITING["first"] = 100
    rig.submit_job(1, job="first")
    rig.submit_job(1, job="low", preemptible=True)
    assert rig.placed("low") == {0: "M1"}
    rig.end("M0", next(iter(rig.running["M0"])))
    ((node, attempt),) = rig.stopping()
    assert node == "M1"
    rig.preempt(node, attempt)
    assert rig.placed("low") == {0: "M0"}


def test_a_task_that_ends_before_it_could_be_stopped_has_ended() -> None:
    rig = PreemptingRig({"M0": 1})
    rig.submit_job(1, job="low", preemptible=True)
    rig.submit_job(1, job="high")
    ((node, attempt),) = rig.stopping()
    rig.end(node, attempt)
    assert rig.placed() == {0: "M0"}
    rig.end_all()
    assert len(rig.outcomes()) == 2


def test_what_runs_on_a_lost_node_waits_again() -> None:
    rig = PreemptingRig({"M0": 1, "M1": 1})
    rig.submit_job(1, job="low", preemptible=True)
    rig.node_down("M0")
    assert rig.placed("low") == {0: "M1"}
    rig.end_all()
    assert not rig.plane.left_over()
