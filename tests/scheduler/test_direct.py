"""Direct placement, what the paper compares Sparrow with: who is asked, where tasks go, what goes wrong."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.options import SchedulerOptions
from scheduler.spreading import reservations_wanted
from sparrow_py.errors import InvalidOption, LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig


class Scheduler(SchedulerRig):
    """A scheduler with nodes n0, n1, …"""

    def __init__(self, placement: str, nodes: int = 10, seed: int = 1) -> None:
        super().__init__([f"n{node}" for node in range(nodes)], seed=seed, placement=placement)

    def submit(self, tasks: int, details: dict[int, m.TaskDetail] | None = None, **fields: Any) -> None:
        self.submit_job(tasks, details=details, **fields)

    def asked(self) -> list[tuple[str, int]]:
        """(node, number of the probe) since the last call."""
        return [(node, message.probe) for node, message in self.outbox.take(m.AskLength)]

    def answer(self, lengths: dict[str, int]) -> None:
        for node, probe in self.asked():
            self.node(node, m.QueueLength(probe, lengths[node]))

    def pushed(self) -> list[tuple[str, m.Launch]]:
        """(node, task) since the last call; each comes with a reservation."""
        launches, reserves = self.outbox.take(m.Launch), self.outbox.take(m.Reserve)
        tickets = Counter((node, launch.ticket) for node, launch in launches)
        assert tickets == Counter({(node, reserve.ticket): reserve.count for node, reserve in reserves})
        assert all(launch.ask == 0 for _, launch in launches)
        return launches

    def where(self) -> Counter[str]:
        """Tasks by node since the last call."""
        return Counter(node for node, _ in self.pushed())


def test_random_placement_asks_nobody_and_spreads_evenly() -> None:
    scheduler = Scheduler("random")
    scheduler.submit(5000)
    assert not scheduler.asked()
    where = scheduler.where()
    assert sum(where.values()) == 5000
    assert all(abs(where[f"n{node}"] - 500) < 130 for node in range(10))  # Six standard deviations.


def test_per_task_sampling_sends_each_task_to_the_shorter_of_two_queues() -> None:
    scheduler = Scheduler("per-task")
    scheduler.submit(50)
    probes: dict[int, list[str]] = {}
    for node, probe in scheduler.asked():
        probes.setdefault(probe, []).append(node)
    assert len(probes) == 50 and all(len(set(nodes)) == 2 for nodes in probes.values())
    for probe, (one, other) in probes.items():
        for node in (one, other):
            scheduler.node(node, m.QueueLength(probe, int(node[1:])))
        assert list(scheduler.where()) == [min(one, other, key=lambda name: int(name[1:]))]
    assert scheduler.core.counters.probes == 100


def test_batch_sampling_sends_m_tasks_to_the_m_shortest_of_d_m_queues() -> None:
    scheduler = Scheduler("batch", nodes=100)
    scheduler.submit(10)
    asked = scheduler.asked()
    assert len({node for node, _ in asked}) == 20
    for node, probe in asked:
        assert not scheduler.pushed()  # Not before the last answer.
        scheduler.node(node, m.QueueLength(probe, int(node[1:])))
    shortest = sorted((node for node, _ in asked), key=lambda name: int(name[1:]))[:10]
    assert scheduler.where() == Counter(shortest)


def test_a_batch_of_more_tasks_than_nodes_fills_the_shorter_queues_first() -> None:
    scheduler = Scheduler("batch", nodes=2)
    scheduler.submit(4, probe_ratio=1.0)
    scheduler.answer({"n0": 0, "n1": 5})
    assert scheduler.where() == Counter(n0=2, n1=2)  # Each was asked for two.


@pytest.mark.parametrize("placement", ["random", "per-task", "batch"])
def test_tasks_with_preferred_nodes_go_to_those(placement: str) -> None:
    scheduler = Scheduler(placement)
    scheduler.submit(3, {0: m.TaskDetail(("n3",)), 2: m.TaskDetail(("n4", "n5"))}, local=True)
    scheduler.answer({f"n{node}": 0 for node in range(10)})
    found = {launch.task: node for node, launch in scheduler.pushed()}
    assert found[0] == "n3" and found[2] in ("n4", "n5") and len(found) == 3


WITH_PREFERENCES = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=10), min_size=1, max_size=40)


@pytest.mark.parametrize(
    ("placement", "ratio", "probes"), [("batch", 1.5, 15), ("per-task", 1.5, 20), ("batch", 2, 20)]
)
def test_tasks_with_preferred_nodes_are_asked_for_as_often_as_others(placement: str, ratio: float, probes: int) -> None:
    """§3.3: ceil(d·m) in all for a batch; ceil(d) for each task by itself."""
    scheduler = Scheduler(placement, nodes=30)
    details = {task: m.TaskDetail(tuple(f"n{3 * task + node}" for node in range(3))) for task in range(10)}
    scheduler.submit(10, details, local=True, probe_ratio=ratio)
    asked = scheduler.asked()
    assert len(asked) == len({node for node, _ in asked}) == scheduler.core.counters.probes == probes
    assert {int(node[1:]) // 3 for node, _ in asked} == set(range(10)), "each task has one of its own nodes"


@given(WITH_PREFERENCES, st.sampled_from([1.0, 1.1, 1.5, 2.0, 2.75, 4.0]))
def test_a_batch_asks_no_more_than_d_m_nodes_whatever_its_tasks_prefer(
    preferred: list[list[int]], ratio: float
) -> None:
    scheduler, count = Scheduler("batch"), len(preferred)
    details = {task: m.TaskDetail(tuple(f"n{node}" for node in nodes)) for task, nodes in enumerate(preferred)}
    scheduler.submit(count, details, local=True, probe_ratio=ratio)
    assert scheduler.core.counters.probes <= reservations_wanted(ratio, count)
    scheduler.answer({f"n{node}": 0 for node in range(10)})
    found = {launch.task: node for node, launch in scheduler.pushed()}
    assert set(found) == set(range(count))
    assert all(int(found[task][1:]) in nodes for task, nodes in enumerate(preferred) if nodes)


@pytest.mark.parametrize("placement", ["per-task", "batch"])
def test_a_node_that_is_lost_before_it_answers_is_not_waited_for(placement: str) -> None:
    scheduler = Scheduler(placement, nodes=2)
    scheduler.submit(1)
    ((lost, _), (other, probe)) = scheduler.asked()
    scheduler.core.node_down(lost, 0.0)
    scheduler.core.check_invariants()
    scheduler.node(other, m.QueueLength(probe, 9))
    assert scheduler.where() == Counter([other])


@pytest.mark.parametrize("placement", ["random", "per-task", "batch"])
def test_a_task_that_is_handed_back_goes_to_another_node(placement: str) -> None:
    scheduler = Scheduler(placement, nodes=2)
    scheduler.submit(1)
    scheduler.answer({"n0": 0, "n1": 0})
    ((node, launch),) = scheduler.pushed()
    scheduler.node(node, m.HandBack("j", launch.attempt, "full"))
    scheduler.answer({"n0": 0, "n1": 0})
    ((other, again),) = scheduler.pushed()
    assert other != node and again.attempt != launch.attempt
    report = m.Report("j", 0, again.attempt, TaskStatus.FINISHED, b"", "", 1.0, 0.1)
    scheduler.node(other, report)
    (outcome,) = [message for _, message in scheduler.outbox.take(m.Outcome)]
    assert (outcome.status, outcome.attempts) == (TaskStatus.FINISHED, 1)
    assert not scheduler.core.jobs


@pytest.mark.parametrize("placement", ["random", "per-task", "batch"])
def test_tasks_wait_for_the_first_node(placement: str) -> None:
    scheduler = Scheduler(placement, nodes=0)
    scheduler.submit(2)
    assert not scheduler.pushed()
    scheduler.node_up("n0")
    scheduler.answer({"n0": 0})
    assert scheduler.where() == Counter(n0=2)


def test_tasks_that_are_cancelled_while_nodes_are_asked_go_nowhere() -> None:
    scheduler = Scheduler("batch")
    scheduler.submit(3)
    scheduler.core.receive_from_client("c", "anna", m.CancelTasks("j", [1]), 0.0)
    scheduler.answer({f"n{node}": 0 for node in range(10)})
    assert sorted(launch.task for _, launch in scheduler.pushed()) == [0, 2]


def test_an_answer_for_a_job_that_is_gone_is_ignored_and_one_below_zero_is_an_error() -> None:
    scheduler = Scheduler("per-task", nodes=2)
    scheduler.submit(1)
    asked = scheduler.asked()
    scheduler.core.receive_from_client("c", "anna", m.CancelJob("j"), 0.0)
    with pytest.raises(LinkError, match="n0 says that its queue has length -1"):
        scheduler.core.receive_from_node("n0", m.QueueLength(1, -1), 0.0)
    for node, probe in asked:
        scheduler.node(node, m.QueueLength(probe, 0))
    assert not scheduler.pushed()


def test_idle_nodes_get_no_reservations_without_late_binding() -> None:
    scheduler = Scheduler("batch", nodes=2)
    scheduler.submit(1)
    scheduler.node("n0", m.Idle(4))
    assert not scheduler.pushed()


def test_an_unknown_placement_is_named() -> None:
    with pytest.raises(InvalidOption, match=r"placement.*'best'.*sparrow, batch, per-task, random"):
        SchedulerOptions(placement="best")
