"""A scheduler ends in order: it says of what no start is open, and the next one does not count that as started."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from simulator.soak.world import World
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig
from tests.support.suites import rest_after

FINISHED, LOST = TaskStatus.FINISHED, TaskStatus.LOST
INFO = m.NodeInfo(4, {}, {}, {"many": ""})


class Rig(SchedulerRig):
    """A scheduler that has long been up, with the node "a"."""

    def __init__(self) -> None:
        super().__init__({"a": INFO}, settling_s=0.0, claim_timeout_s=1.0)

    def submit(self, tasks: int, *between: Any, **fields: Any) -> None:
        self.submit_job(tasks, *between, **fields)

    def ask(self, count: int) -> list[m.Launch]:
        """The tasks that the node gets for so many free slots."""
        ticket = self.take(m.Reserve)[0].ticket
        self.node("a", m.GetTasks(1, ticket, count))
        return self.take(m.Launch)

    def hand_over(self) -> m.HandedOver:
        ((client, last),) = self.core.hand_over(1.0)
        self.core.check_invariants()
        assert client == "c"
        assert isinstance(last, m.HandedOver)
        return last


def test_what_waits_is_told_and_what_runs_is_left_to_the_next_scheduler() -> None:
    rig = Rig()
    rig.submit(6)
    launched = rig.ask(3)
    rig.node("a", m.Report("j", 0, launched[0].attempt, FINISHED, b"r", "", 0.0, 0.1))
    rig.node("a", m.HandBack("j", launched[1].attempt, "the node is draining"))
    assert rig.hand_over() == m.HandedOver("j", ((1, 1), (3, 3)))
    assert rig.core.jobs == {}
    assert rig.core.counters.jobs_handed_over == 1
    assert not rig.take(m.ForgetJob), "nodes keep what they know of it, for the next scheduler's claim"


def test_nothing_is_started_or_accepted_after_it() -> None:
    rig = Rig()
    rig.submit(2)
    ticket = rig.take(m.Reserve)[0].ticket
    rig.hand_over()
    rig.node("a", m.GetTasks(1, ticket, 2))
    assert (rig.take(m.Launch), rig.take(m.NoTask)) == ([], [m.NoTask(1, 2)])
    rig.client(submission("other", 1))
    assert [refused.retry_after_s for refused in rig.take(m.JobRefused)] == [1.0]


def test_tasks_that_had_not_arrived_yet_wait_as_well() -> None:
    rig = Rig()
    rig.client(submission("j", 5), m.AddTasks("j", 0, [b"p"] * 2))
    rig.ask(1)
    assert rig.hand_over() == m.HandedOver("j", ((1, 4),))


def test_starts_in_vain_have_been_told_before() -> None:
    rig = Rig()
    rig.submit(2)
    (launch,) = rig.ask(1)
    rig.node("a", m.Report("j", 0, launch.attempt, LOST, b"", "its executor died", None, None))
    assert rig.take(m.Retried) == [m.Retried("j", 0, 1)]
    assert rig.hand_over() == m.HandedOver("j", ((0, 2),))


def test_a_task_whose_client_is_yet_to_know_its_starts_has_no_start_open() -> None:
    rig = Rig()
    rig.submit(2, acknowledges=True)
    (launch,) = rig.ask(1)
    rig.node("a", m.Report("j", 0, launch.attempt, LOST, b"", "its executor died", None, None))
    assert rig.take(m.Counted) == [m.Counted("j", {0: 1})]
    assert rig.hand_over() == m.HandedOver("j", ((0, 2),))


@pytest.mark.parametrize("max_attempts", [1, 3])
def test_the_next_scheduler_counts_no_start_of_what_waited(max_attempts: int) -> None:
    rig = Rig()
    rig.submit(3, m.Known("j", [], {}, ((0, 1), (2, 1))), epoch=1, max_attempts=max_attempts)
    rig.node("a", m.Claimed("j", 1, []))
    # Of task 1 nobody knows anything: it counts as started.
    lost = [outcome.task for outcome in rig.take(m.Outcome) if outcome.status is LOST]
    assert lost == ([1] if max_attempts == 1 else [])
    launches = rig.ask(4)
    assert [launch.task for launch in launches] == ([0, 2] if max_attempts == 1 else [0, 1, 2])
    rig.node("a", *(m.Report("j", one.task, one.attempt, FINISHED, b"", "", 0.0, 0.1) for one in launches))
    attempts = {outcome.task: outcome.attempts for outcome in rig.take(m.Outcome)}
    assert attempts == ({0: 1, 2: 1} if max_attempts == 1 else {0: 1, 1: 2, 2: 1})


def test_one_that_ends_before_nodes_have_answered_its_claim_passes_on_what_it_was_told() -> None:
    rig = Rig()
    rig.submit(4, m.Known("j", [], {}, ((1, 2),)), epoch=1)
    assert rig.take(m.Claim)
    assert rig.hand_over() == m.HandedOver("j", ((1, 2),))


@pytest.mark.parametrize("ranges", [((2, 2), (3, 1)), ((0, 0),), ((-1, 2),), ((3, 2),), ((2, 1), (0, 1))])
def test_ranges_that_cannot_be_end_the_link(ranges: tuple[tuple[int, int], ...]) -> None:
    rig = Rig()
    rig.client(submission("j", 4, epoch=1))
    with pytest.raises(LinkError, match="cannot be unstarted"):
        rig.client(m.Known("j", [], {}, ranges))


@pytest.mark.parametrize("seed", rest_after(8, *range(20)))
def test_schedulers_that_end_one_after_the_other_lose_nothing_and_start_nothing_twice(seed: int) -> None:
    """Not even tasks that may start once only; frames take up to a third of a task's time."""
    world = World(seed, nodes=[2, 2, 2], schedulers=3, latency=(0.0005, 0.01), scheduler={"settling_s": 0.1})
    jobs = [
        world.submit([0.03] * 40, max_attempts=1),
        world.submit_stages(("a", [], [0.03] * 20), ("b", ["a"], [0.03] * 20), max_attempts=1),
    ]
    for number in range(3):
        world.run_for(0.05 + 0.01 * seed)
        world.stop_scheduler(world.schedulers[0], drains_s=0.002 * number, back_after_s=0.05)
    world.run()
    world.check_end()
    for log in jobs:
        assert set(log.statuses()) == {FINISHED}
    starts = Counter((start.log.spec.job_id, start.task) for start in world.starts)
    assert set(starts.values()) == {1} and len(starts) == 80
    assert world.clients[0].core.moves >= 1


@pytest.mark.parametrize("seed", range(10))
def test_a_job_on_its_way_to_a_scheduler_that_ends_counts_as_never_started(seed: int) -> None:
    """It did not reach the scheduler: the next has nothing to claim, and need not wait for anybody."""
    world = World(seed, nodes=[4], schedulers=2, latency=(0.0005, 0.01), scheduler={"settling_s": 5.0})
    logs = []
    for number in range(2):
        world.stop_scheduler(world.schedulers[0], drains_s=0.01, back_after_s=0.05)
        for _ in range(40):
            world.run_for(0.001)
            logs.append(world.submit([0.001]))
        world.run_for(0.2 * number)
    world.run()
    world.check_end()
    assert {outcome.attempts for log in logs for outcome in log.outcomes} == {1}
