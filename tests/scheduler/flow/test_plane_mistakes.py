"""What a policy gets wrong of the tasks of one stage is that stage's alone."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from scheduler.flow.guarded_policy import GuardedNetwork, GuardedPolicy
from scheduler.flow.policies.policy import (
    ANY_MACHINE,
    Aggregator,
    ArcTo,
    Cluster,
    FollowsMachines,
    Machine,
    Task,
    TaskCosts,
    UnitCost,
)
from scheduler.flow.policies.quincy import Quincy
from scheduler.flow.set_aside import PAUSE_MAX_S, PAUSE_S
from sparrow_py.job import FINISHED
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

ALL = Aggregator("all")
FINE = TaskCosts((ArcTo(ALL, 0),), 100)


class Picky:
    """Says of jobs called "bad" what a test wants it to."""

    def __init__(self, of_bad: Callable[[Task], TaskCosts]) -> None:
        self.of_bad = of_bad
        self.asked = 0
        """Of such jobs."""

    def see(self, cluster: Cluster) -> None:
        """See `Policy`, as the others."""
        self._machines = cluster.machines

    def task(self, task: Task) -> TaskCosts:
        if task.job != "bad":
            return FINE
        self.asked += 1
        return self.of_bad(task)

    def machine_cost(self, machine: Machine) -> UnitCost:
        return 0

    def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
        return [ArcTo(name, 0, machine.slots) for name, machine in self._machines.items()]


def raising(task: Task) -> TaskCosts:
    raise KeyError(f"no class of {task.job}")


def convex_that_raises(units: int) -> int:
    raise OverflowError("too many")


class Rig(FlowRig):
    """With a policy that may be wrong; `warned` is what the log says."""

    def __init__(self, of_bad: Callable[[Task], TaskCosts], nodes: Any = None, **options: Any) -> None:
        self.policy = Picky(of_bad)
        infos = {"n1": node_info(4)} if nodes is None else nodes
        keeps = options.get("flow_preemption", False)
        super().__init__(infos, network=lambda: GuardedNetwork(self.policy, keeps_running=keeps), **options)
        self.warned: list[str] = []
        self.core.warned = self.warned.append

    def ticks(self, from_s: int, to_s: int) -> None:
        """Time passes, by the second."""
        for now_s in range(from_s, to_s):
            self.tick(float(now_s))


WRONG = {
    "it raises": (raising, "KeyError: 'no class of bad'"),
    "no such machine": (lambda _: TaskCosts((ArcTo("n9", 1),), 5), "an arc leads to the machine n9"),
    "too dear": (lambda _: TaskCosts((ArcTo(ALL, 10**17),), 5), "costs 100,000,000,000,000,000; allowed are"),
    "too dear to wait": (lambda _: TaskCosts((), 10**17), "waiting is 100,000,000,000,000,000"),
    "too dear to run": (lambda _: TaskCosts((), 5, -(10**17)), "running is -100,000,000,000,000,000"),
    "no whole number": (lambda _: TaskCosts((), 0.5), "waiting is 0.5; costs are whole numbers"),  # type: ignore[arg-type]
    "no number": (lambda _: TaskCosts((), 5, waiting_per_s=math.nan), "waiting_per_s is nan"),
    "too steep": (lambda _: TaskCosts((), 5, running_per_s=math.inf), "running_per_s is inf"),
    "a cost raises": (lambda _: TaskCosts((ArcTo(ALL, convex_that_raises),), 5), "OverflowError: too many"),
    "an arc of half a unit": (
        lambda _: TaskCosts((ArcTo(ALL, 0.5),), 5),  # type: ignore[arg-type]
        "costs 0.5; costs are whole numbers",
    ),
    "a cost that becomes no whole number": (
        lambda _: TaskCosts((ArcTo(ALL, lambda units: units + 0.5),), 5),  # type: ignore[arg-type, return-value]
        "costs 0.5; costs are whole numbers",
    ),
    "text": (lambda _: TaskCosts((), 5, waiting_per_s="1"), "waiting_per_s is '1'"),  # type: ignore[arg-type]
    "nothing": (lambda _: None, "task() returns None; allowed are TaskCosts"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_stage_whose_costs_are_wrong_waits_and_others_go_on(case: str) -> None:
    of_bad, why = WRONG[case]
    rig = Rig(of_bad)  # type: ignore[arg-type]
    rig.submit_job(3, job="bad")
    rig.submit_job(2, job="good")
    assert len(rig.placed("good")) == 2 and rig.placed("bad") == {}
    (line,) = rig.warned
    assert line.startswith("job bad is set aside, as the policy cannot say what its tasks cost: ") and why in line
    rig.ticks(1, 60)
    assert rig.end_all(60.0) == 2 and rig.placed("bad") == {}
    assert len(rig.warned) == 1 and rig.plane.rounds.failed == 0
    (ask,) = rig.plane.explain(rig.core.jobs["bad"].stages, 60.0)
    told = ask().reasons
    assert any("the policy cannot say what its tasks cost, and is asked again in" in one and why in one for one in told)


def test_what_a_policy_says_and_cannot_be_names_the_policy_and_what_raises_there_its_line() -> None:
    rig = Rig(lambda _: TaskCosts((), 1.5))  # type: ignore[arg-type]
    rig.submit_job(1, job="bad")
    said = f"waiting is 1.5; costs are whole numbers ({__name__}:Picky); it is tried again"
    assert len(rig.warned) == 1 and said in rig.warned[0]
    raises = Rig(raising)
    raises.submit_job(1, job="bad")
    assert "(test_plane_mistakes.py, line " in raises.warned[0]


def test_it_is_tried_again_after_pauses_that_grow_up_to_a_bound() -> None:
    rig = Rig(raising)
    rig.submit_job(1, job="bad")
    asked = []
    for now_s in range(1, 3 * int(PAUSE_MAX_S)):
        before = rig.policy.asked
        rig.tick(float(now_s))
        if rig.policy.asked > before:
            asked.append(now_s)
    assert asked[:5] == [1, 3, 7, 15, 31] and PAUSE_S == 1.0
    assert max(later - now for now, later in itertools.pairwise(asked)) <= PAUSE_MAX_S + 1


def test_once_the_policy_is_right_the_stage_is_placed_with_all_the_time_that_it_has_waited() -> None:
    rig = Rig(raising)
    rig.submit_job(3, job="bad")
    rig.ticks(1, 3)
    seen: list[float] = []
    rig.policy.of_bad = lambda task: seen.append(task.waited_s) or FINE
    rig.ticks(3, 10)
    assert len(rig.placed("bad")) == 3 and seen[0] == 3.0
    assert rig.end_all(10.0) == 3
    assert not rig.core.jobs and not rig.plane.left_over() and not rig.plane._aside


def test_a_mistake_about_one_task_sets_its_whole_stage_aside_and_no_other_of_its_job() -> None:
    def of_bad(task: Task) -> TaskCosts:
        return raising(task) if task.name.endswith(".1") else FINE

    rig = Rig(of_bad)
    stages = [m.Stage("many", count, b"", "", 1.0, 0, None, name=f"s{count}") for count in (1, 2)]
    job = m.SubmitJob("bad", 0, "", stages, 1, retry_failed=False, queue_timeout_s=None, report_placed=False)
    rig.client(job, m.AddTasks("bad", 0, [b"p"] * 3))
    assert rig.placed() == {0: "n1"}
    assert [line.partition(",")[0] for line in rig.warned] == ["stage 's2' of job bad is set aside"]
    rig.client(m.CancelJob("bad"))
    rig.end_all()
    assert not rig.core.jobs and not rig.plane.left_over() and not rig.plane._aside


def test_a_gang_that_is_set_aside_waits_whole() -> None:
    rig = Rig(lambda task: raising(task) if task.name.endswith(".2") else FINE)
    rig.submit_job(3, job="bad", gang=True)
    rig.submit_job(2, job="good", gang=True)
    rig.ticks(1, 10)
    assert rig.placed("bad") == {} and len(rig.placed("good")) == 2


def test_tasks_that_run_go_on_though_the_policy_is_wrong_about_them() -> None:
    rig = Rig(lambda _: FINE, {"n1": node_info(1)}, flow_preemption=True)
    rig.submit_job(2, job="bad", preemptible=True)
    assert rig.placed("bad") == {0: "n1"}
    rig.policy.of_bad = raising
    rig.node_up("n2", node_info(1))
    rig.submit_job(1, job="good")
    rig.ticks(1, 20)
    assert rig.placed("bad") == {0: "n1"} and rig.placed("good") == {0: "n2"}
    assert not [cancel for _, cancel in rig.outbox.take(m.CancelAttempt)]
    rig.policy.of_bad = lambda _: FINE
    rig.ticks(20, 100)
    assert rig.end_all(100.0) == 3
    assert [status for _, status, _ in rig.outcomes()] == [FINISHED] * 3


def test_what_is_wrong_beside_tasks_loses_the_round() -> None:
    class Broken(Picky):
        def aggregator_arcs(self, aggregator: Aggregator) -> Sequence[ArcTo]:
            raise ValueError("no arcs")

    rig = FlowRig({"n1": node_info(1)}, network=lambda: GuardedNetwork(Broken(raising)))
    rig.submit_job(1, job="good")
    assert rig.plane.rounds.failed == 1 and rig.placed() == {}


def test_a_guarded_policy_has_whatever_else_the_policy_has() -> None:
    class More(Quincy):
        def learns(self) -> str:
            return "so much"

    guarded: Any = GuardedPolicy(More())
    assert isinstance(guarded, FollowsMachines) and guarded.learns() == "so much"
    assert not isinstance(GuardedPolicy(Picky(raising)), FollowsMachines)


def test_asking_again_when_machines_change_is_guarded_too() -> None:
    rig = Rig(lambda _: TaskCosts((ArcTo(ALL, 0),), 0, asks_again=(ANY_MACHINE,)), {"n1": node_info(1)})
    rig.submit_job(1, job="good")
    rig.submit_job(1, job="bad")
    rig.policy.of_bad = raising
    rig.node_up("n2", node_info(0))
    rig.tick(1.0)
    assert len(rig.warned) == 1 and rig.plane.rounds.failed == 0
