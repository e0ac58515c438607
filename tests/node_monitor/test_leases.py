"""Leases at a node: what tasks that last long are charged, when they are asked to yield, and what becomes of them."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_monitor.executors.executor_state import AppPlan
from node_monitor.queueing.tickets import TURN_S
from node_monitor.stopping import KILL_GRACE_S
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, OneJob
from tests.support.recorder import reserve
from tests.support.timed_node import LATENCY_S, TimedNode

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST
FOR_EVER = float("inf")
WITHIN_S = 5.0
TOO_LATE = "it was asked to yield its slot, and did not end within yield_within_s = 5 s"
NODES = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class LeasingNode(TimedNode):
    """Whose tasks may be killed."""

    may_kill = True

    def workers(
        self, user: str, ticket: int, count: int, lease_s: float, after_s: float | None = 0.01, **f: Any
    ) -> None:
        """Tasks that last until they are asked to yield, and so long after; None: that do not yield."""
        self.leases[ticket] = lease_s
        self.yield_after_s[ticket] = after_s
        self.reserve(user, ticket, count, FOR_EVER, **f)

    def mean_s(self, user: str) -> float:
        """What a task of the user is expected to take."""
        return self.core.queue._level.flows[user].mean_s  # type: ignore[attr-defined]


class LeasedJob(OneJob):
    """A node where tasks of the job j have leases of a second, and others wait, who have executors, too."""

    def __init__(self, slots: int = 1, app: str = "pool", *, spare: bool = True, **resources: float) -> None:
        super().__init__(slots, app, **resources)
        for number in range(slots if app == "pool" and spare else 0):
            self.core.executor_up(f"q{number}", "pool", 1, 0.0)

    def executor_of(self, run: int) -> str:
        """Which has the run."""
        return next(one.id for one in self.core.executors.values() if run in one.running)

    def lease(self, *attempts: int, lease_s: float = 1.0, **fields: Any) -> None:
        """These attempts, which have leases, are at the node."""
        self.receive(m.Common("j", 0, b"", lease_s=lease_s))
        for attempt in attempts:
            (ask,) = self.reserve(attempt, **fields)
            self.launch(attempt, ask.ask)

    def others_wait(self, count: int = 100, ticket: int = 1000, **fields: Any) -> None:
        """Another user has this queued."""
        self.receive(reserve(ticket, count, app=self.app, **{"job": "other", "user": "bert", **fields}))

    def yields(self) -> list[int]:
        """The runs that are asked to yield."""
        return [message.run for message in self.take(x.Yield)]


# ---- asked to yield --------------------------------------------------------------------------


def test_nobody_yields_as_long_as_nobody_waits() -> None:
    rig = LeasedJob(2)
    rig.lease(1, 2)
    for second in range(1, 20):
        rig.tick(float(second))
    assert not rig.yields() and rig.core.free_slots == 0


def test_at_the_end_of_a_lease_a_task_makes_way_for_another_user() -> None:
    rig = LeasedJob()
    rig.lease(1)
    rig.others_wait()
    rig.tick(0.99)
    assert not rig.take(x.Yield)
    rig.tick(1.0)
    assert rig.take(x.Yield) == [x.Yield(1, WITHIN_S)]
    rig.done(rig.executor_of(1), 1, now_s=1.5)
    assert rig.reports() == [(1, FINISHED, "")]
    rig.tick(1.5 + WITHIN_S)
    assert not rig.outbox.killed and rig.core.counters.yields == 1 and rig.core.counters.yields_late == 0


def test_who_comes_during_a_lease_waits_for_its_end() -> None:
    rig = LeasedJob()
    rig.lease(1)
    rig.tick(1.0)
    rig.tick(1.3)
    rig.others_wait()
    rig.tick(1.9)
    assert not rig.yields()
    rig.tick(2.0)
    assert rig.yields() == [1]


def test_a_task_that_does_not_yield_in_time_is_killed_and_lost() -> None:
    rig = LeasedJob()
    rig.lease(1)
    rig.others_wait()
    rig.tick(1.0)
    rig.tick(1.0 + WITHIN_S - 0.01)
    assert not rig.outbox.killed
    rig.tick(1.0 + WITHIN_S)
    executor = rig.executor_of(1)
    assert rig.outbox.killed == [executor]
    rig.died(executor)
    assert rig.reports() == [(1, LOST, TOO_LATE)]
    assert rig.core.asking == 1 and rig.core.counters.yields_late == 1  # For the other user.


def test_of_an_executor_of_many_places_only_the_run_is_killed() -> None:
    rig = LeasedJob(2, "many")
    rig.lease(1, 2)
    rig.others_wait()
    rig.tick(1.0)
    assert rig.yields() == [1]
    rig.tick(1.0 + WITHIN_S)
    assert rig.take(x.Kill) == [x.Kill([1])] and not rig.outbox.killed
    rig.done("p0", 1, FAILED, error="it was killed")
    assert rig.reports() == [(1, LOST, TOO_LATE)]
    rig.tick(1.0 + WITHIN_S + KILL_GRACE_S)
    assert not rig.outbox.killed


def test_a_task_that_ends_while_it_is_being_killed_has_its_result() -> None:
    rig = LeasedJob(1, "many")
    rig.lease(1)
    rig.others_wait()
    rig.tick(1.0)
    rig.tick(1.0 + WITHIN_S)
    rig.done("p0", 1)
    assert rig.reports() == [(1, FINISHED, "")]


def test_a_task_that_was_asked_to_yield_can_be_cancelled() -> None:
    rig = LeasedJob()
    rig.lease(1)
    rig.others_wait()
    rig.tick(1.0)
    rig.receive(m.CancelAttempt("j", 1))
    assert len(rig.take(m.AttemptRuns)) == 1
    rig.receive(m.CancelAttempt("j", 1, running=True))
    executor = rig.executor_of(1)
    assert rig.outbox.killed == [executor]
    rig.died(executor)
    assert [status for _, status, _ in rig.reports()] == [CANCELLED]
    rig.tick(1.0 + WITHIN_S)
    assert rig.core.counters.yields_late == 0


def test_a_time_limit_holds_beside_a_lease() -> None:
    rig = LeasedJob()
    rig.receive(m.Common("j", 0, b"", 1.5, lease_s=1.0))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask)
    rig.others_wait()
    rig.tick(1.0)
    rig.tick(1.5)
    rig.died(rig.executor_of(1))
    assert rig.reports() == [(1, FAILED, "it ran for longer than task_timeout_s = 1.5 s")]


def test_a_task_whose_executor_dies_while_it_yields_is_lost_and_the_next_is_asked() -> None:
    rig = LeasedJob(2)
    rig.lease(1, 2)
    rig.others_wait()
    rig.tick(1.0)
    assert rig.yields() == [1]
    rig.died(rig.executor_of(1))
    assert [status for _, status, _ in rig.reports()] == [LOST]
    rig.tick(1.0)
    assert rig.yields() == [2]


def test_on_a_node_that_drains_no_lease_is_renewed() -> None:
    rig = LeasedJob(2)
    rig.lease(1, 2)
    rig.tick(1.0)
    rig.tick(1.2)
    rig.core.drain(1.2)
    rig.tick(1.9)
    assert not rig.yields()
    rig.tick(2.0)
    assert rig.yields() == [1]
    rig.done(rig.executor_of(1), 1)
    rig.tick(2.0)
    assert rig.yields() == [2]
    rig.done(rig.executor_of(2), 2)
    assert rig.core.idle and [status for _, status, _ in rig.reports()] == [FINISHED, FINISHED]


def test_on_a_node_that_is_to_end_leases_are_over_by_a_time() -> None:
    rig = LeasedJob(2)
    rig.lease(1, 2)
    rig.core.drain(0.2)
    rig.core.end_leases_by(0.6)
    rig.tick(0.5)
    assert not rig.yields()
    rig.tick(0.6)
    assert rig.yields() == [1]
    rig.tick(1.0)  # When the lease of the other would have been over.
    assert not rig.yields()
    rig.done(rig.executor_of(1), 1)
    rig.tick(1.0)
    assert rig.yields() == [2]
    rig.done(rig.executor_of(2), 2)
    assert rig.core.idle and [status for _, status, _ in rig.reports()] == [FINISHED, FINISHED]


def test_a_lease_that_is_over_before_that_time_is_not_waited_for() -> None:
    rig = LeasedJob(1)
    rig.lease(1)
    rig.core.drain(0.2)
    rig.core.end_leases_by(5.0)
    rig.tick(1.0)
    assert rig.yields() == [1]


# ---- one at a time ---------------------------------------------------------------------------


def test_one_task_of_a_node_is_asked_at_a_time_and_the_next_when_its_slot_is_taken() -> None:
    rig = LeasedJob(3)
    rig.lease(1, 2, 3)
    rig.others_wait()
    rig.tick(1.0)
    assert rig.yields() == [1]
    rig.tick(1.4)
    assert not rig.yields()
    executor = rig.executor_of(1)
    rig.done(executor, 1)
    rig.tick(1.4)
    assert rig.yields() == [2]


def test_whose_turn_it_is_again_goes_on() -> None:
    """Of two tasks whose leases end together one yields, and the others' share is then as large."""
    rig = LeasedJob(2)
    rig.lease(1, 2)
    rig.others_wait(count=1)
    rig.tick(1.0)
    assert rig.yields() == [1]
    executor = rig.executor_of(1)
    rig.done(executor, 1)
    rig.tick(1.0)
    rig.tick(1.9)
    assert not rig.yields()
    rig.tick(20.0)
    assert not rig.yields()


def test_a_lease_that_is_over_is_forgotten_if_its_task_ends_before_it_is_asked() -> None:
    rig = LeasedJob(2)
    rig.lease(1, 2)
    rig.others_wait()
    rig.tick(1.0)
    second = rig.executor_of(2)
    rig.done(second, 2)
    rig.tick(1.0 + WITHIN_S)
    assert rig.core.counters.yields == 1


# ---- who waits for it ------------------------------------------------------------------------


def test_a_users_own_tasks_wait() -> None:
    rig = LeasedJob()
    rig.lease(1)
    rig.receive(reserve(7, 10, app="pool", job="own"))
    rig.tick(5.0)
    assert not rig.yields()


def test_who_could_not_run_here_anyway_waits_for_nothing() -> None:
    """Another demands more than the task holds and what is free."""
    rig = LeasedJob(1, cpu=4.0)
    rig.lease(1, demand={"cpu": 1.0})
    rig.others_wait(demand={"cpu": 4.5})
    rig.tick(1.0)
    assert not rig.yields()


def test_resources_that_a_task_holds_are_waited_for_too() -> None:
    rig = LeasedJob(2, cpu=4.0)
    rig.lease(1, demand={"cpu": 3.0})
    assert rig.core.free_slots == 1
    rig.others_wait(demand={"cpu": 2.0})
    rig.tick(1.0)
    assert rig.yields() == [1]


def test_a_user_without_an_executor_gets_one_before_anybody_yields() -> None:
    rig = LeasedJob(1, spare=False)
    rig.lease(1)
    rig.outbox.started.clear()
    assert not rig.core.apps["pool"].free
    rig.others_wait()
    rig.tick(1.0)
    assert not rig.yields() and rig.outbox.started == [("pool", 1)]
    rig.core.executor_up("p9", "pool", 1, 1.1)
    rig.tick(2.0)
    assert rig.yields() == [1]


def test_placed_tasks_come_before_a_lease_and_have_none_themselves() -> None:
    rig = LeasedJob()
    rig.core.scheduler_up("f", plane=m.FLOW)
    rig.receive(m.Lead(m.FLOW, 1), scheduler="f")
    rig.lease(1)
    rig.receive(
        m.Common("placed", 0, b"", lease_s=1.0),
        m.LaunchPlaced("placed", 0, 0, 1, b"p", 1, "bert", 1.0, 0, "pool", None),
        scheduler="f",
    )
    rig.tick(1.0)
    assert rig.yields() == [1]
    rig.done(rig.executor_of(1), 1)
    assert [run.run for run in rig.take(x.Run)] == [1, 2]
    rig.others_wait()
    rig.tick(3.0)
    assert not rig.yields()


# ---- one that waits for several --------------------------------------------------------------


def test_slivers_that_several_leases_hold_are_given_up_one_after_the_other_and_kept() -> None:
    """Each of two tasks holds a sliver of what a third demands whole; small ones that come meanwhile do not start."""
    node = LeasingNode(4, resources={"cpu": 2.0})
    node.workers("anna", 1, 2, lease_s=0.1, after_s=0.3, demand={"cpu": 0.01})
    node.run(1.0)
    node.reserve("bert", 2, 1, 1.0, demand={"cpu": 2.0})
    node.workers("anna", 3, 100, lease_s=0.1, after_s=0.3, demand={"cpu": 0.01})
    node.run(3.0)
    (start_s,) = node.started("bert")
    assert start_s <= 1.0 + 0.1 + 4 * 0.3 + 0.01  # Two small ones started before the first was asked.
    assert len([at_s for at_s in node.started("anna") if at_s < start_s]) == len(node.yields) == 4


def test_slivers_of_several_users_are_given_up() -> None:
    node = LeasingNode(4, resources={"cpu": 2.0})
    for number, user in enumerate(("anna", "carl", "dora"), 1):
        node.workers(user, number, 1, lease_s=0.1, demand={"cpu": 0.01})
        node.run(number / 7)
    node.run(5.0)
    node.reserve("bert", 9, 1, 1.0, demand={"cpu": 2.0})
    node.run(7.0)
    assert len(node.started("bert")) == 1 and len(node.yields) == 3


def test_whoever_alone_is_enough_yields_alone() -> None:
    rig = LeasedJob(3, cpu=2.0)
    rig.lease(1, demand={"cpu": 0.1})
    rig.lease(2, demand={"cpu": 1.9})
    rig.others_wait(demand={"cpu": 1.9}, count=1)
    rig.tick(1.0)
    assert rig.yields() == [2]


def test_nobody_yields_for_a_task_that_would_not_fit_all_the_same() -> None:
    """A plain task holds some of what it demands."""
    rig = LeasedJob(4, cpu=2.0)
    rig.start(9, demand={"cpu": 0.5})
    rig.lease(1, 2, demand={"cpu": 0.1})
    rig.others_wait(demand={"cpu": 2.0})
    rig.tick(1.0)
    rig.tick(2.0)
    assert not rig.yields()


def test_a_task_that_holds_nothing_of_what_is_lacking_goes_on() -> None:
    rig = LeasedJob(4, cpu=2.0, gpu=1.0)
    rig.lease(1, 2, demand={"cpu": 0.1})
    rig.lease(3, demand={"gpu": 1.0})
    rig.others_wait(demand={"cpu": 2.0}, count=1)
    asked = []
    for second in range(1, 9):
        rig.tick(float(second))
        for run in rig.yields():
            asked.append(run)
            rig.done(rig.executor_of(run), run)
    assert asked == [1, 2] and rig.take(m.GetTasks)[-1].ticket == 1000


def test_what_is_kept_for_a_task_is_free_again_when_the_task_is_cancelled() -> None:
    rig = LeasedJob(4, cpu=2.0)
    rig.lease(1, 2, demand={"cpu": 0.1})
    rig.others_wait(demand={"cpu": 2.0}, count=1)
    rig.tick(1.0)
    assert rig.yields() == [1]
    rig.take(m.GetTasks)
    rig.receive(reserve(2000, 1, app="pool", job="small", user="carl", demand={"cpu": 0.1}))
    assert not rig.take(m.GetTasks)
    rig.receive(m.CancelReservations(1000))
    assert [ask.ticket for ask in rig.take(m.GetTasks)] == [2000]


@pytest.mark.parametrize("policy", ["fair", "priority", "fifo"])
def test_under_every_policy_slivers_are_given_up(policy: str) -> None:
    node = LeasingNode(4, resources={"cpu": 2.0}, queue=policy)
    node.workers("anna", 1, 2, lease_s=0.1, demand={"cpu": 0.01})
    node.run(1.0)
    node.reserve("bert", 2, 1, 1.0, demand={"cpu": 2.0})
    node.run(2.0)
    assert len(node.started("bert")) == 1 and len(node.yields) == 2


def test_a_higher_priority_has_what_was_set_aside_for_a_lower_one() -> None:
    node = LeasingNode(4, resources={"cpu": 2.0}, queue="priority")
    node.workers("anna", 1, 2, lease_s=1.0, after_s=None, demand={"cpu": 0.01})
    node.run(0.5)
    node.reserve("bert", 2, 1, 1.0, demand={"cpu": 2.0})
    node.run(1.5)
    assert len(node.yields) == 1
    node.reserve("carl", 3, 1, 0.1, demand={"cpu": 0.5}, priority=1)
    node.reserve("dora", 4, 1, 0.1, demand={"cpu": 0.5})
    node.run(2.0)
    assert len(node.started("carl")) == 1 and not node.started("dora")


def test_a_placed_task_has_slivers_given_up() -> None:
    rig = LeasedJob(4, cpu=2.0)
    rig.core.scheduler_up("f", plane=m.FLOW)
    rig.receive(m.Lead(m.FLOW, 1), scheduler="f")
    rig.lease(1, 2, demand={"cpu": 0.1})
    rig.receive(
        m.Common("placed", 0, b""),
        m.LaunchPlaced("placed", 0, 0, 1, b"p", 1, "bert", 1.0, 0, "pool", None, demand={"cpu": 2.0}),
        scheduler="f",
    )
    rig.tick(1.0)
    assert rig.yields() == [1]
    rig.done(rig.executor_of(1), 1)
    rig.tick(1.0)
    assert rig.yields() == [2]
    rig.done(rig.executor_of(2), 2)
    assert len(rig.take(x.Run)) == 3


# ---- executors that know no Yield ------------------------------------------------------------


@pytest.mark.parametrize("places", [1, 2])
def test_executors_of_version_1_are_given_no_task_that_has_a_lease(places: int) -> None:
    rig = LeasedJob(2, "pool" if places == 1 else "many")
    for executor in rig.core.executors.values():
        executor.version = 1
    rig.lease(1)
    (handed_back,) = rig.take(m.HandBack)
    assert handed_back.attempt == 1 and handed_back.lasting
    assert handed_back.reason.startswith("lease_s needs version 2 of the executor protocol; ")
    assert rig.core.free_slots == 2 and not rig.take(x.Run)
    rig.start(2)  # Others they run.
    assert len(rig.take(x.Run)) == 1


def test_nothing_follows_a_task_that_such_an_executor_was_not_given() -> None:
    rig = LeasedJob(1, spare=False)
    rig.core.executors["p0"].version = 1
    rig.receive(m.Common("j", 0, b"", lease_s=1.0))
    attempts = count(1)
    asks = rig.reserve(1, 8, prefetch=4)
    while asks:
        ask = asks.pop()
        launches = [next(attempts) for _ in range(ask.count)]
        rig.receive(*(m.Launch(ask.ask, "j", 0, number, number, b"p") for number in launches))
        asks += rig.take(m.GetTasks)
    assert len(rig.take(m.HandBack)) == 8 and not rig.take(x.Run)
    assert rig.core.free_slots == 1


# ---- what is charged -------------------------------------------------------------------------


def test_a_users_short_tasks_are_charged_as_if_it_had_no_long_ones() -> None:
    node = LeasingNode(2)
    node.reserve("anna", 1, 20, 0.01)
    node.run(1.0)
    before_s = node.mean_s("anna") if "anna" in node.core.queue._level.flows else 0.01  # type: ignore[attr-defined]
    node.workers("anna", 2, 1, lease_s=1.0)
    node.run(60.0)
    node.reserve("anna", 3, 10_000, 0.01)
    node.reserve("bert", 4, 100_000, 0.01)
    node.run(61.0)
    assert node.mean_s("anna") == pytest.approx(0.01, rel=0.01) == pytest.approx(before_s, rel=0.01)
    assert node.core.queue._level.flows["anna"].longest_s == pytest.approx(0.01, rel=0.01)  # type: ignore[attr-defined]


def test_after_a_long_task_its_user_does_not_wait_for_what_it_has_cost_alone() -> None:
    """While one had the node to itself it was charged, and others start from there."""
    node = LeasingNode(2)
    node.workers("anna", 1, 2, lease_s=1.0)
    node.run(100.0)
    node.reserve("bert", 2, 1_000_000, 0.05)
    node.reserve("anna", 3, 1_000_000, 0.05)
    node.run(110.0)
    anna_s, bert_s = node.service_s("anna") - 200.0, node.service_s("bert")
    assert abs(anna_s - bert_s) <= 4 * 2 * (1.0 + 0.02)
    assert anna_s + bert_s >= 0.98 * 20


def test_leases_are_no_longer_than_the_operator_allows() -> None:
    node = LeasingNode(1, lease_s_max=2.0)
    node.workers("anna", 1, 1, lease_s=1e6)
    node.run(0.5)
    node.reserve("bert", 2, 100, 0.1)
    node.run(1.99)
    assert not node.yields
    node.run(2.01)
    assert len(node.yields) == 1


def test_a_huge_lease_costs_its_own_user_and_nobody_else() -> None:
    """Anna's tasks state an hour and take a tenth of a second: she gets no more than her share."""
    node = LeasingNode(2)
    node.leases[1] = 600.0
    node.reserve("anna", 1, 100_000, 0.1)
    node.reserve("bert", 2, 100_000, 0.1)
    node.run(60.0)
    assert node.service_s("anna") <= node.service_s("bert") + 4 * 2 * 0.1


# ---- shares ----------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0), (1.0, 3.0)])
def test_a_backlog_of_short_tasks_has_its_share_beside_workers_on_all_slots(
    slots: int, weights: tuple[float, float]
) -> None:
    """Workers are submitted again when they have yielded, as a program does that wants all slots that it can get."""
    node = LeasingNode(slots)
    node.workers("anna", 1, 100_000, lease_s=1.0, weight=weights[0])
    node.run(50.0)
    node.reserve("bert", 2, 1_000_000, 0.05, weight=weights[1])
    node.run(60.0)
    begins = {user: node.service_s(user) for user in ("anna", "bert")}
    node.run(160.0)
    got = {user: node.service_s(user) - begins[user] for user in begins}
    assert got["anna"] / sum(got.values()) == pytest.approx(weights[0] / sum(weights), abs=0.02)
    assert sum(got.values()) >= 0.97 * 100 * slots


@pytest.mark.parametrize("slots", [2, 4])
@pytest.mark.parametrize("weights", [(1.0, 1.0), (3.0, 1.0)])
@pytest.mark.parametrize("task_s", [0.05, 0.2])
def test_within_ten_seconds_shares_are_within_a_tenth_of_the_weights(
    slots: int, weights: tuple[float, float], task_s: float
) -> None:
    """Of each window of 10 s, wherever it begins: 5 to 20 leases of a second each fit in there."""
    node = LeasingNode(slots)
    node.workers("anna", 1, 100_000, lease_s=1.0, weight=weights[0])
    node.run(20.0)
    node.reserve("bert", 2, 1_000_000, task_s, weight=weights[1])
    had: list[tuple[float, float]] = []
    for half in range(160):
        node.run(30.0 + half / 2)
        had.append((node.service_s("anna"), node.service_s("bert")))
    for begin, end in zip(had, had[20:], strict=False):
        theirs, others = end[0] - begin[0], end[1] - begin[1]
        for service_s, weight in zip((theirs, others), weights, strict=True):
            assert service_s / (theirs + others) == pytest.approx(weight / sum(weights), rel=0.1)


def test_under_strict_priorities_a_higher_one_waits_for_a_lease_and_a_lower_one_for_the_end() -> None:
    node = LeasingNode(2, queue="priority")
    node.workers("anna", 1, 2, lease_s=1.0, priority=1)
    node.reserve("bert", 2, 1000, 0.1, priority=0)
    node.run(10.5)
    assert not node.yields and not node.started("bert")
    node.reserve("carl", 3, 2, 0.1, priority=2)
    node.run(11.5)
    assert len(node.started("carl")) == 2 and len(node.yields) in (1, 2)
    assert min(node.started("carl")) <= 11.0 + 0.01 + 3 * LATENCY_S


def test_under_strict_priorities_a_priority_is_shared() -> None:
    node = LeasingNode(2, queue="priority")
    node.workers("anna", 1, 100_000, lease_s=1.0, priority=1)
    node.reserve("bert", 2, 1_000_000, 0.05, priority=1)
    node.run(100.0)
    assert node.service_s("anna") == pytest.approx(node.service_s("bert"), rel=0.05)


def test_by_arrival_a_task_makes_way_for_all_that_came_before_its_next_lease() -> None:
    node = LeasingNode(1, queue="fifo")
    node.workers("anna", 1, 2, lease_s=1.0)
    node.run(5.5)
    assert not node.yields  # The second is anna's own.
    node.reserve("bert", 2, 3, 0.1)
    node.run(6.5)
    assert len(node.yields) == 1
    assert [user for user, _ in node.starts] == ["anna", "anna"]  # Her second one came first.
    node.run(8.0)
    assert [user for user, _ in node.starts] == ["anna", "anna", "bert", "bert", "bert"]


# ---- the bound -------------------------------------------------------------------------------


class Watch:
    """The largest difference of two users' services over weight, over any time in which both stay backlogged."""

    def __init__(self, node: TimedNode, weights: dict[str, float]) -> None:
        self.node, self.weights = node, weights
        self.worst = 0.0
        self._low: float | None = None
        self._high = 0.0
        node.after_step = self.see

    def see(self) -> None:
        if not all(self.node.core.queue.user_count(user) for user in self.weights):
            self._low = None
            return
        first, second = (self.node.service_s(user) / weight for user, weight in self.weights.items())
        gap = first - second
        self._low = gap if self._low is None else min(self._low, gap)
        self._high = gap if self._low == gap and self._high < gap else max(self._high, gap)
        self.worst = max(self.worst, self._high - self._low)


USERS = st.fixed_dictionaries(
    {
        "workers": st.integers(0, 3),  # Of a hundred, tasks that last until they yield: none, few, or all.
        "lease_s": st.sampled_from((0.1, 0.5, 1.0)),
        "after_s": st.sampled_from((0.0, 0.02, 0.3, None)),
        "task_s": st.sampled_from((0.01, 0.05, 0.3)),
    }
)


@settings(NODES, max_examples=60)
@given(st.integers(1, 6), st.sampled_from(((1.0, 1.0), (3.0, 1.0))), st.tuples(USERS, USERS), st.integers(0, 3))
def test_services_differ_by_no_more_than_the_bound_with_leases(
    slots: int, weights: tuple[float, float], users: tuple[dict[str, Any], dict[str, Any]], alone: int
) -> None:
    """Each user has short tasks and workers queued, the second comes after a while."""
    within_s = 0.2
    node = LeasingNode(slots, yield_within_s=within_s)
    watch = Watch(node, dict(zip(("anna", "bert"), weights, strict=True)))
    lengths = []
    for number, (user, weight, of) in enumerate(zip(("anna", "bert"), weights, users, strict=True)):
        ticket = 10 * number + 1
        for more in range(of["workers"]):
            node.workers(
                user, ticket + 1 + more, 10_000 if more else slots, of["lease_s"], of["after_s"], weight=weight
            )
        node.reserve(user, ticket, 100_000, of["task_s"], weight=weight)
        node.run(float(alone) if not number else alone + 12.0)
        late_s = within_s if of["after_s"] is None else min(of["after_s"], within_s)
        lengths.append((late_s, max(of["task_s"], of["lease_s"] if of["workers"] else 0.0, TURN_S)))
    # One task is asked at a time: the last of all slots' waits for the others.
    grace_s = slots * max(late_s for late_s, _ in lengths)
    l_i, l_j = ((length_s + grace_s) / weight for (_, length_s), weight in zip(lengths, weights, strict=True))
    assert watch.worst <= slots * (l_i + l_j) + 2 * slots * max(l_i, l_j) + 1e-6


def test_the_bound_with_leases_is_not_idle() -> None:
    """Without renewals in turn (every lease is renewed), services part by far more."""

    def worst() -> float:
        node = LeasingNode(2)
        watch = Watch(node, {"anna": 1.0, "bert": 1.0})
        node.workers("anna", 1, 10_000, 0.5, 0.01)
        node.run(3.0)
        node.reserve("bert", 2, 100_000, 0.01)
        node.run(33.0)
        return watch.worst

    bound = 2 * (0.51 + 0.01) + 2 * 2 * 0.51
    assert bound / 20 < worst() <= bound
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("node_monitor.queueing.fair.Level.comes_before", lambda *_: False)
        assert worst() > bound


def test_a_newcomer_waits_for_one_lease() -> None:
    node = LeasingNode(4)
    node.workers("anna", 1, 100, lease_s=1.0, after_s=0.1)
    node.run(20.35)
    node.reserve("bert", 2, 1, 0.1)
    node.run(30.0)
    (start_s,) = node.started("bert")
    assert start_s <= 20.35 + 1.0 + 0.1 + 3 * LATENCY_S
    assert len(node.yields) == 1


def test_an_app_with_places_for_all_slots_is_served_too() -> None:
    """Its one executor has no free place while the leases last; that of the task that ends is meant."""
    rig = LeasedJob(2, "many")
    assert rig.core.apps["many"].plan == AppPlan("many", one_process=True) == MANY
    rig.lease(1, 2)
    rig.others_wait()
    rig.tick(1.0)
    assert rig.yields() == [1]
