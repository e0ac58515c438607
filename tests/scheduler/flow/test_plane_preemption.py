"""Tasks of preemptible jobs make room, and move; no others ever do."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.policy import ArcTo, Task, TaskCosts
from sparrow_py.job import FINISHED
from sparrow_py.wire import messages as m
from tests.scheduler.flow.test_plane_answers import Stated
from tests.support.flow_rig import FlowRig
from tests.support.recorder import submission
from tests.support.scheduler_rig import USER, node_info
from tests.support.suites import rest_after

COSTS = {"low": {"M0": 1, "M1": 5}, "high": {"M0": 1}}
WAITING = {"low": 10, "high": 100}


class Keeping(Stated):
    """Who runs goes on, unless something is worth more."""

    def task(self, task: Task) -> TaskCosts:
        costs = super().task(task)
        running = self._costs[task.job].get(task.runs_on, 0) if task.runs_on else 0
        return TaskCosts(costs.arcs, costs.waiting, running)


class Ranked(Keeping):
    """Jobs are called RANK-NUMBER; the higher the rank, the dearer it is to have them wait."""

    def task(self, task: Task) -> TaskCosts:
        arcs = [ArcTo(name, int(name[1:])) for name in sorted(self._machines)]
        running = int(task.runs_on[1:]) if task.runs_on else 0
        return TaskCosts(arcs, 100 * (1 + int(task.job.partition("-")[0])), running)


class PreemptingRig(FlowRig):
    """Nodes that stop tasks when they are told to."""

    def __init__(
        self,
        nodes: Mapping[str, int],
        costs: Mapping[str, Mapping[str, int]] = COSTS,
        policy: type[Keeping] = Keeping,
        **options: Any,
    ) -> None:
        infos = {name: node_info(slots) for name, slots in nodes.items()}
        options = {"flow_preemption": True, **options}
        super().__init__(infos, network=lambda: ClusterNetwork(policy(costs, WAITING), keeps_running=True), **options)

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


@pytest.mark.parametrize("seed", rest_after(4, *range(10)))
def test_whatever_happens_only_preemptible_tasks_are_stopped_and_all_jobs_end(seed: int) -> None:
    rng = random.Random(seed)
    rig = PreemptingRig({"M0": 2, "M1": 1}, policy=Ranked, inline=False)
    left: list[tuple[str, int]] = []
    """What nodes were told to stop and have not yet."""
    now_s, jobs = 0.0, 0
    preemptible: dict[str, bool] = {}

    def running() -> list[tuple[str, int]]:
        return [(node, attempt) for node, launches in rig.running.items() for attempt in launches]

    def happens(what: str) -> None:
        nonlocal now_s, jobs
        if what == "job" and jobs < 15:
            job, may = f"{rng.randrange(4)}-{jobs}", rng.random() < 0.7
            preemptible[job] = may
            rig.submit_job(rng.randint(1, 3), job=job, preemptible=may, now_s=now_s)
            jobs += 1
        elif what == "solve":
            rig.solve(now_s)
        elif what == "end" and running():
            rig.end(*rng.choice(running()), now_s=now_s)
        elif what == "preempt" and left:
            node, attempt = left.pop(rng.randrange(len(left)))
            if attempt in rig.running.get(node, {}):
                rig.preempt(node, attempt, now_s)
        elif what == "node" and rng.random() < 0.3:
            if "M1" in rig.core.nodes:
                rig.node_down("M1", now_s)
            else:
                rig.node_up("M1", node_info(1), now_s)
        elif what == "tick":
            now_s += 0.6
            rig.tick(now_s)
        rig.note_launches()
        for node, attempt in rig.stopping():
            launch = rig.running.get(node, {}).get(attempt)
            assert launch is None or preemptible[launch.job], f"{launch} was to be stopped"
            left.append((node, attempt))

    for _ in range(120):
        happens(rng.choice(["job", "solve", "solve", "end", "preempt", "node", "tick"]))
    for _ in range(500):
        if not rig.core.jobs:
            break
        happens(rng.choice(["solve", "solve", "end", "preempt", "tick"]))
    assert not rig.core.jobs and len(rig.outcomes()) >= jobs
    assert not rig.plane.left_over() and not rig.plane._running


def adopting(**fields: Any) -> PreemptingRig:
    """A leader that has just adopted two tasks of the job low at M0 and M1."""
    rig = PreemptingRig({"M0": 1, "M1": 1}, COSTS)
    for node, task in (("M0", 0), ("M1", 1)):
        launch = m.LaunchPlaced("low", 0, task, 7 + task, b"p", 1, "u", 1.0, 0, "many", None, {})
        rig.running[node][7 + task] = launch
        rig.node(node, m.Inventory("flow", rig.accepted[node], [(USER, "low", 0)], complete=True))
        rig.node(node, m.NodeLoad(0, 1, 0, 0, {}))
    rig.client(submission("low", 3, epoch=1, preemptible=True, **fields), m.AddTasks("low", 0, [b"p"] * 3))
    for node, task in (("M0", 0), ("M1", 1)):
        rig.node(node, m.Claimed("low", 1, [(task, 7 + task)], user=USER))
    return rig


def test_adopted_tasks_are_part_of_the_network_and_make_room() -> None:
    rig = adopting()
    rig.tick(10.0)
    assert rig.core.counters.adopted == 2
    assert rig.placed("low") == {0: "M0", 1: "M1"} and not rig.stopping()
    rig.submit_job(1, job="high", now_s=10.0)
    ((node, attempt),) = rig.stopping()
    assert (node, attempt) == ("M0", 7)
    rig.preempt(node, attempt, 10.0)
    assert rig.placed("high") == {0: "M0"}
    assert rig.end_all(11.0) == 4 and not rig.core.jobs
    assert not rig.plane.left_over() and not rig.plane._running


def test_an_adopted_task_that_ends_before_the_network_was_told_is_gone() -> None:
    rig = adopting()
    rig.end("M0", 7, now_s=10.0)
    rig.tick(10.0)
    assert rig.placed("low") == {1: "M1", 2: "M0"}
    assert rig.end_all(11.0) == 2 and not rig.core.jobs
    assert not rig.plane.left_over() and not rig.plane._running


def test_a_new_network_is_told_of_adopted_tasks_once() -> None:
    rig = adopting()
    rig.plane._forget_network()
    rig.tick(10.0)
    assert len(rig.networks) >= 1 and rig.placed("low") == {0: "M0", 1: "M1"}
    rig.submit_job(1, job="high", now_s=10.0)
    assert rig.stopping() == [("M0", 7)]


def test_nothing_is_stopped_as_a_node_has_fewer_slots_for_placed_tasks_than_before() -> None:
    rig = PreemptingRig({"M0": 2, "M1": 1}, COSTS | {"low": {"M0": 1}})
    rig.submit_job(2, job="low", preemptible=True)
    rig.node("M0", m.NodeLoad(0, 1, 1, 0, {}), now_s=1.0)
    rig.tick(5.0)
    assert rig.placed("low") == {0: "M0", 1: "M0"} and not rig.stopping()
    rig.submit_job(1, job="high", now_s=6.0)
    ((node, attempt),) = rig.stopping()
    rig.preempt(node, attempt, 6.0)
    assert rig.placed("high") == {}, "its lane has one slot, in which the other task still runs"
    rig.end("M0", next(iter(rig.running["M0"])), now_s=7.0)
    assert rig.placed("high") == {0: "M0"}


def test_what_a_stopped_task_demands_is_free_once_it_has_stopped_and_nothing_is_stopped_for_it_alone() -> None:
    WAITING.update(gpu=50, urgent=200)
    rig = PreemptingRig({"M0": 1}, COSTS | {"gpu": {"M0": 1}, "urgent": {"M0": 1}})
    rig.node("M0", m.NodeChanged(node_info(1, resources={"gpu": 1.0})))
    rig.submit_job(1, job="low", preemptible=True, demand={"gpu": 1.0})
    rig.submit_job(1, job="high", demand={"gpu": 1.0})
    assert rig.placed("low") == {0: "M0"} and not rig.stopping(), "the network sees the slot, and not the resource"
    rig.client(m.CancelJob("high"))
    rig.submit_job(1, job="gpu", demand={"gpu": 1.0}, now_s=1.0)
    rig.submit_job(1, job="urgent", now_s=1.0)
    ((node, attempt),) = rig.stopping()
    rig.preempt(node, attempt, 1.0)
    assert rig.placed("urgent") == {0: "M0"}
    rig.end("M0", next(iter(rig.running["M0"])), now_s=2.0)
    assert rig.placed("gpu") == {0: "M0"} and rig.placed("low") == {}
