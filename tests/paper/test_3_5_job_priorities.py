"""Paper §3.5 on priorities: "Some cluster operators may prefer strict priorities to fair shares; e.g., jobs serving
user-facing requests should receive strict priority over explorative queries. Our design can provide a strict priority
service by maintaining a separate queue for each priority at each slave and always servicing tasks from the highest
priority active queue."

That is a property of jobs, so a job may state it, as far as the operator lets its user. The nodes' queues alone are
held to it in `test_3_5_resource_allocation.py`.
"""

from __future__ import annotations

import random
import re
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.jobs import WorkloadJob
from loadgen.synthetic import Synthetic
from node_monitor.queueing.policies import make_queue
from node_monitor.queueing.priority import PriorityQueue
from node_monitor.queueing.tickets import QueuedTicket
from simulator.cluster import Cluster
from simulator.simulate import simulate
from simulator.soak.world import World
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig
from tests.support.virtual_node import VirtualNode

FINISHED = TaskStatus.FINISHED


class Rig(SchedulerRig):
    """A scheduler with nodes; anna's jobs may have priority 5, all others' 0."""

    def __init__(self, nodes: str, **options: Any) -> None:
        super().__init__(nodes, **{"user_priority": ("anna=5",), "push_to_idle": False} | options)
        self.asks = 0

    def ask(self, node: str, ticket: int, count: int = 1) -> list[str]:
        """The jobs whose tasks the node gets when it asks for so many."""
        self.asks += 1
        self.node(node, m.GetTasks(self.asks, ticket, count))
        return [launch.job for launch in self.take(m.Launch)]

    def reserved(self) -> tuple[int, set[int]]:
        """The ticket of what was reserved since the last call, and its priorities."""
        reserves = self.take(m.Reserve)
        ((ticket),) = {reserve.ticket for reserve in reserves}
        return ticket, {reserve.priority for reserve in reserves}


# ---- what a job may state ------------------------------------------------------------------------


@pytest.mark.parametrize(("stated", "has"), [(None, 5), (5, 5), (0, 0), (-1000, -1000)])
def test_a_job_has_its_users_priority_or_the_lower_one_that_it_states(stated: int | None, has: int) -> None:
    rig = Rig("ABCD")
    rig.submit_job(2, priority=stated)
    assert rig.take(m.JobAccepted)
    _, priorities = rig.reserved()
    assert priorities == {has}


@pytest.mark.parametrize(
    ("user", "stated", "allowed"),
    [("anna", 6, "from -1000 to 5, .*'anna'"), ("bert", 1, "from -1000 to 0, .*'bert'"), ("low", 0, "-2000 to -2000")],
)
def test_a_higher_one_is_refused_with_the_field_the_value_and_what_is_allowed(
    user: str, stated: int, allowed: str
) -> None:
    rig = Rig("ABCD", user_priority=("anna=5", "low=-2000"))
    rig.client(m.SubmitJob("j", 0, "", [m.Stage("many", 1, b"", "", 2.0, 0, None)], 3, False, None, False,
                           priority=stated), user=user)  # fmt: skip
    (refused,) = rig.take(m.JobRefused)
    assert refused.field == "priority" and refused.retry_after_s is None
    assert re.match(f"priority: {stated} .*{allowed}", refused.reason), refused.reason
    assert not rig.core.jobs and not rig.outbox.sent


@pytest.mark.parametrize("stated", [-1001, 1_000_001])
def test_what_no_job_may_state_is_refused_too(stated: int) -> None:
    rig = Rig("A", user_priority=("anna=1000000",))
    rig.submit_job(1, priority=stated)
    (refused,) = rig.take(m.JobRefused)
    assert refused.field == "priority" and "-1000 to 1000000" in refused.reason


def test_a_pushed_task_has_its_jobs_priority() -> None:
    rig = Rig("A", push_to_idle=True)
    rig.node("A", m.Idle(1))
    rig.submit_job(1, priority=3)
    (launch,) = rig.take(m.LaunchNow)
    assert launch.priority == 3


# ---- at the scheduler: the user's own jobs -------------------------------------------------------


@pytest.mark.parametrize("order", ["shortest", "oldest"])
def test_of_a_users_jobs_the_highest_priority_is_served_first_whosever_reservation_it_is(order: str) -> None:
    """Though it came last, and has most work left."""
    rig = Rig("ABCD", order=order)
    rig.submit_job(1, job="low", priority=0)
    low, _ = rig.reserved()
    rig.submit_job(3, job="high", priority=1)
    assert [rig.ask(node, low) for node in list(rig.core.plane.probing.tickets[low].live)] == [["high"], ["high"]]


def test_a_reservation_never_serves_a_lower_priority_than_its_own() -> None:
    """Else low would stand before another user's jobs in a node's queue, where high's reservations stand."""
    rig = Rig("A")
    rig.submit_job(5, job="low", priority=0)
    rig.submit_job(1, job="high", priority=1)
    high = next(reserve.ticket for reserve in rig.take(m.Reserve) if reserve.job == "high")
    assert rig.ask("A", high, 2) == ["high"]
    assert sum(message.count for message in rig.take(m.NoTask)) == 1


def test_surplus_reservations_do_not_pass_to_a_lower_priority() -> None:
    rig = Rig("AB")
    rig.submit_job(5, job="low", priority=0)
    rig.submit_job(1, job="high", priority=1)
    high = next(reserve.ticket for reserve in rig.take(m.Reserve) if reserve.job == "high")
    rig.ask("A", high)
    assert [message.ticket for message in rig.take(m.CancelReservations)] == [high]
    assert rig.core.counters.reservations_shared == 0


def test_an_idle_node_goes_to_the_users_job_of_highest_priority() -> None:
    rig = Rig("AB")
    rig.submit_job(3, job="low", priority=-1)
    rig.submit_job(3, job="high", priority=1)
    rig.take(m.Reserve)
    rig.node("A", m.Idle(1))
    ((reserve),) = rig.take(m.Reserve)
    assert (reserve.job, reserve.priority) == ("high", 1)


def test_lower_priorities_starve_as_long_as_there_are_higher_ones_however_many_tasks_overtake_them() -> None:
    """It is what strict priority means, and is documented: `overtaken_max` holds within one priority."""
    rig = Rig("A", overtaken_max=1)
    rig.submit_job(1, job="low", priority=0)
    low, _ = rig.reserved()
    served = []
    for number in range(20):
        rig.submit_job(1, job=f"high{number}", priority=1)
        rig.take(m.Reserve)
        served += rig.ask("A", low)
        low = max(rig.core.jobs["low"].stages[0].plan.tickets)
    assert served == [f"high{number}" for number in range(20)]


JOBS = st.lists(
    st.tuples(st.sampled_from(["anna", "bert"]), st.sampled_from([None, 0, 0, -1, -3]), st.integers(1, 4)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=150)
@given(
    jobs=JOBS,
    steps=st.lists(st.tuples(st.sampled_from(["ask", "ask", "ask", "submit", "lose", "idle"]), st.integers(0, 99)),
                   max_size=50),
    order=st.sampled_from(["shortest", "oldest", "reserved"]),
    sharing=st.booleans(),
)  # fmt: skip
def test_what_a_reservation_gets_is_of_its_user_and_of_no_lower_priority(
    jobs: list[tuple[str, int | None, int]], steps: list[tuple[str, int]], order: str, sharing: bool
) -> None:
    """Whatever nodes do. Where the scheduler orders a user's jobs it gets one of the highest that wait; and in the end
    every task is placed."""
    rig = Rig("ABCD", order=order, probe_sharing=sharing)
    core = rig.core
    priorities: dict[str, int] = {}
    reserves: dict[int, m.Reserve] = {}
    waiting = list(enumerate(jobs))

    def submit() -> None:
        number, (user, stated, tasks) = waiting.pop()
        own = 5 if user == "anna" else 0
        priorities[f"j{number}"] = own if stated is None else stated
        rig.submit_job(tasks, job=f"j{number}", user=user, client=user, priority=stated)

    def ask(pick: int) -> None:
        reserves.update((reserve.ticket, reserve) for reserve in rig.take(m.Reserve))
        live = sorted((ticket.id, node) for ticket in core.plane.probing.tickets.values() for node in ticket.live)
        if not live:
            return
        ticket, node = live[pick % len(live)]
        reserve = reserves[ticket]
        unplaced = [job for job in core.jobs.values() if job.user == reserve.user and job.unplaced]
        highest = max(priorities[job.id] for job in unplaced)
        for job in rig.ask(node, ticket):
            assert core.jobs[job].user == reserve.user
            assert priorities[job] >= reserve.priority, "it got before others what its own priority would not give it"
            assert order == "reserved" or priorities[job] == highest

    submit()
    for kind, pick in steps:
        if kind == "submit" and waiting:
            submit()
        elif kind == "lose":
            rig.node_down("ABCD"[pick % 4])
            rig.node_up("ABCD"[pick % 4])
        elif kind == "idle":
            rig.node("ABCD"[pick % 4], m.Idle(1))
        else:
            ask(pick)
    while waiting:
        submit()
    rng = random.Random(1)
    for _ in range(1000):
        if not any(job.unplaced for job in core.jobs.values()):
            return
        ask(rng.randrange(1000))
    raise AssertionError("some tasks are never placed")


# ---- at the nodes, and end to end ----------------------------------------------------------------


def test_under_fair_queueing_a_jobs_priority_takes_nothing_from_other_users() -> None:
    node = VirtualNode(make_queue("fair", 4), 4, lambda ticket: 0.1)
    node.add("anna", 100_000, priority=5)
    node.add("bert", 100_000)
    node.run(100.0)
    assert node.served["anna"] == pytest.approx(node.served["bert"], abs=4 * 4 * 0.1)


@pytest.mark.parametrize("seed", range(12))
def test_a_cluster_serves_strict_priorities_of_jobs_at_each_node(seed: int) -> None:
    """Several schedulers, jobs of two users with priorities of their own, a node that leaves: no node takes a
    reservation while one of a higher priority is queued there; and all jobs end, so nothing is stranded."""
    rng = random.Random(seed)
    broken: list[QueuedTicket] = []
    take = PriorityQueue.take

    def watched(queue: PriorityQueue, *arguments: Any) -> Any:
        charge = take(queue, *arguments)
        if charge is not None and any(one.priority > charge.ticket.priority for one in queue.tickets()):
            broken.append(charge.ticket)
        return charge

    with mock.patch.object(PriorityQueue, "take", watched):
        world = World(
            seed, nodes=[2, 2, 1], users=["anna", "bert"], schedulers=2, node={"queue": "priority"},
            scheduler={"user_priority": ("anna=5", "bert=3")},
        )  # fmt: skip
        logs = []
        for number in range(30):
            client = rng.randrange(2)
            world.at(rng.uniform(0, 0.5), lambda number=number, client=client: logs.append(  # type: ignore[misc]
                world.submit([0.02] * rng.randint(1, 5), client=client, job_id=f"job{number}",
                             priority=rng.choice([None, 3, 1, -7]))))  # fmt: skip
        world.run()
        world.check_end()
    assert not broken
    assert len(logs) == 30 and all(set(log.statuses()) == {FINISHED} for log in logs)


class TwoKinds(Synthetic):
    """Every fifth job is urgent, the others are not."""

    def generate(self, seed: int, nodes: int, slots: int) -> Any:
        for job in super().generate(seed, nodes, slots):
            job.priority = 9 if job.number % 5 == 0 else 0
            yield job


@pytest.mark.parametrize("queue", ["fair", "priority"])
def test_urgent_jobs_hardly_wait_on_a_busy_simulated_cluster(queue: str) -> None:
    """Of one user they go first at the scheduler, whatever the nodes' policy."""
    cluster = Cluster(nodes=10, slots=2, schedulers=1, queue=queue, priorities={"user0": 9})
    result = simulate(cluster, TwoKinds(tasks=10, load=0.95, jobs=400), seed=3)

    def mean_s(jobs: list[WorkloadJob], ended_s: dict[int, float]) -> float:
        return sum(ended_s[job.number] - job.arrival_s for job in jobs) / len(jobs)

    ended_s = {
        record.job.number: max(s + d for s, d in zip(record.started_s, record.job.durations_s, strict=True))
        for record in result.records
    }
    jobs = [record.job for record in result.records]
    urgent = mean_s([job for job in jobs if job.priority == 9], ended_s)
    others = mean_s([job for job in jobs if job.priority == 0], ended_s)
    assert 2 * urgent < others
