"""A gang that has waited for long has slots kept free for it, as they get free, until all of it starts."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from scheduler.flow import kind_turns
from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.quincy import Quincy
from sparrow_py.job import FINISHED, LOST
from sparrow_py.wire import messages as m
from tests.support.flow_networks import NEVER_S
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

WAIT_S = 5.0
TWO = {"n1": node_info(2), "n2": node_info(2)}


class Rig(FlowRig):
    """Nodes that are busy with a stream of single tasks, of which one ends each second."""

    def __init__(self, nodes: Mapping[str, m.NodeInfo] = TWO, **options: Any) -> None:
        options = {"flow_gang_wait_s": WAIT_S, **options}
        super().__init__(nodes, network=lambda: ClusterNetwork(Quincy(), second_after_s=NEVER_S), **options)
        self.now_s = 0.0
        self.submit_job(500, job="singles")
        self.note_launches()

    def seconds(self, count: int) -> None:
        """In each of them the task ends that is of no gang and has run for longest."""
        for _ in range(count):
            self.now_s += 1.0
            self.tick(self.now_s)
            running = [(attempt, node) for node, has in self.running.items() for attempt in has]
            singles = [one for one in sorted(running) if self.running[one[1]][one[0]].job in ("singles", "others")]
            if singles:
                attempt, node = singles[0]
                self.end(node, attempt, now_s=self.now_s)

    def gang(self, tasks: int = 3, job: str = "gang", **fields: Any) -> None:
        """One more comes."""
        self.submit_job(tasks, job=job, gang=True, now_s=self.now_s, **fields)

    def reasons(self, job: str) -> list[str]:
        """Why its tasks wait."""
        (ask,) = self.plane.explain(self.core.jobs[job].stages, self.now_s)
        return ask().reasons


def test_a_gang_starts_beside_a_stream_of_single_tasks_once_it_has_waited_for_long() -> None:
    rig = Rig()
    rig.gang()
    rig.seconds(int(WAIT_S) - 1)
    assert rig.placed("gang") == {} and len(rig.placed("singles")) == 4, "nothing is kept yet"
    rig.seconds(5)
    assert len(rig.placed("gang")) == 3 and len(rig.placed("singles")) == 1
    for attempt, node in [(attempt, node) for node, has in rig.running.items() for attempt in has]:
        rig.end(node, attempt, now_s=rig.now_s)
    assert len(rig.placed("singles")) == 4, "nothing is kept any more"


def test_without_that_a_gang_may_never_start() -> None:
    rig = Rig(flow_gang_wait_s=math.inf)
    rig.gang()
    rig.seconds(60)
    assert rig.placed("gang") == {}


def test_no_more_slots_are_kept_than_the_gang_needs_and_it_is_told() -> None:
    rig = Rig()
    rig.gang()
    rig.seconds(int(WAIT_S) + 1)
    assert sum(rig.plane._view.kept.values()) == 3
    assert "slots are kept free for it at 2 nodes as they get free" in rig.reasons("gang")
    assert "slots at 2 nodes are kept for a gang of 3 tasks that has waited for long" in rig.reasons("singles")
    free = 4 - len(rig.placed())
    assert free == 2
    (other,) = [node for node, kept in rig.plane._view.kept.items() if kept == 1]
    assert len(rig.running[other]) == 2
    for _ in range(2):  # One of its two slots is kept.
        rig.end(other, min(rig.running[other]), now_s=rig.now_s)
    assert len(rig.placed("gang")) == 3 and len(rig.placed("singles")) == 1


@pytest.mark.parametrize("end", ["cancelled", "timed out"])
def test_slots_are_kept_no_longer_than_the_gang_waits(end: str) -> None:
    rig = Rig()
    rig.gang(queue_timeout_s=WAIT_S + 1.5)
    rig.seconds(int(WAIT_S) + 1)
    assert len(rig.placed()) < 4
    if end == "cancelled":
        rig.client(m.CancelJob("gang"), now_s=rig.now_s)
    else:
        rig.seconds(2)
    assert rig.plane._view.kept == {} and rig.plane._view.kept_for is None
    assert len(rig.placed("singles")) == 4


def test_if_a_node_goes_slots_are_kept_elsewhere() -> None:
    rig = Rig({**TWO, "n3": node_info(2)})
    rig.gang()
    rig.seconds(int(WAIT_S) + 1)
    gone = next(iter(rig.plane._view.kept))
    rig.node_down(gone, rig.now_s)
    rig.seconds(8)
    assert len(rig.placed("gang")) == 3 and gone not in rig.placed("gang").values()


def test_the_oldest_gang_is_first_and_one_at_a_time() -> None:
    rig = Rig()
    rig.gang(job="first")
    rig.seconds(1)
    rig.gang(4, job="second")
    rig.seconds(9)
    assert len(rig.placed("first")) == 3 and rig.placed("second") == {}
    for attempt, node in [(attempt, node) for node, has in rig.running.items() for attempt in has]:
        if rig.running[node][attempt].job == "first":
            rig.end(node, attempt, now_s=rig.now_s)
    rig.seconds(8)
    assert len(rig.placed("second")) == 4


def test_beyond_its_share_a_user_has_no_more_than_one_gang() -> None:
    rig = Rig()
    rig.submit_job(500, job="others", user="bob", client="d")
    rig.gang(job="first", user="eve", client="e")
    rig.gang(job="second", user="eve", client="e")
    rig.seconds(12)
    assert len(rig.placed("first")) + len(rig.placed("second")) == 3
    rig.seconds(20)
    assert len(rig.placed("first")) + len(rig.placed("second")) == 3, "eve's share is not four thirds of all slots"
    assert rig.plane._view.kept == {}


@pytest.mark.parametrize(
    ("fields", "nodes", "counts"),
    [
        ({"max_per_node": 1}, {f"n{number}": node_info(2) for number in range(3)}, [1, 1, 1]),
        (
            {"demand": {"gpu": 1.0}},
            {f"n{number}": node_info(2, resources={"gpu": 1.0}) for number in range(3)},
            [1] * 3,
        ),
        (
            {"max_per_rack": 2},
            {f"n{number}": node_info(2, attributes={"rack": f"r{number % 2}"}) for number in range(4)},
            [1, 2],
        ),
    ],
)
def test_limits_of_the_gang_hold(fields: dict[str, Any], nodes: dict[str, m.NodeInfo], counts: list[int]) -> None:
    rig = Rig(nodes)
    rig.gang(**fields)
    rig.seconds(int(WAIT_S) + 14)
    where = sorted(rig.placed("gang").values())
    assert len(where) == 3
    if "max_per_rack" in fields:
        where = [nodes[node].attributes["rack"] for node in where]
    assert sorted(where.count(one) for one in set(where)) == counts


def test_all_jobs_end() -> None:
    rig = Rig()
    for number in range(6):
        rig.gang(2 + number % 3, job=f"g{number}")
        rig.seconds(3)
    while rig.core.jobs:
        rig.now_s += 1.0
        rig.tick(rig.now_s)
        rig.end_all(rig.now_s)
    assert {status for _, status, _ in rig.outcomes()} == {FINISHED}
    assert not rig.plane.left_over() and rig.plane._view.kept == {}


FOUR = {f"n{number}": node_info(4, resources={"cpu": 4.0}) for number in range(4)}


class Quiet(Rig):
    """Nothing runs at first; tasks of ada end by themselves never, those of bob after a second."""

    def __init__(self) -> None:
        super().__init__(FOUR)
        self.client(m.CancelJob("singles"))
        for node, has in list(self.running.items()):
            for attempt in list(has):
                self.end(node, attempt)

    def submit(self, tasks: int, job: str, user: str, **fields: Any) -> None:
        """A job of the user's, now."""
        self.submit_job(tasks, job=job, user=user, client=user, now_s=self.now_s, **fields)

    def seconds_of_keeping(self, count: int) -> int:
        """In how many of the next seconds slots are kept."""
        kept = 0
        for _ in range(count):
            self.seconds(1)
            kept += bool(self.plane._view.kept)
        return kept


def test_slots_that_the_gangs_own_user_has_are_no_reason_to_keep_others() -> None:
    rig = Quiet()
    rig.submit(1, "long", "ada", expected_duration_s=3600.0)
    rig.submit(16, "gang", "ada", gang=True)
    rig.seconds(int(WAIT_S) + 2)
    rig.submit(40, "others", "bob")
    assert rig.seconds_of_keeping(1) == 0 and len(rig.placed("others")) == 15
    assert rig.seconds_of_keeping(30) == 0


def test_neither_are_resources_that_they_have() -> None:
    rig = Quiet()
    rig.submit(4, "long", "ada", demand={"cpu": 3.0}, max_per_node=1)
    rig.submit(4, "gang", "ada", gang=True, max_per_node=1, demand={"cpu": 2.0})
    rig.seconds(int(WAIT_S) + 2)
    assert rig.seconds_of_keeping(30) == 0


def test_slots_are_kept_beside_tasks_of_the_gangs_user_that_end_soon() -> None:
    rig = Quiet()
    rig.submit(16, "others", "ada", expected_duration_s=1.0)
    rig.submit(16, "gang", "ada", gang=True)
    rig.seconds(int(WAIT_S) + 17)
    assert len(rig.placed("gang")) == 16


@pytest.mark.rest
def test_a_gang_that_does_not_start_keeps_slots_for_half_of_the_time_at_most() -> None:
    rig = Quiet()
    rig.submit(1, "long", "ada", expected_duration_s=1.0)  # Which is not true.
    rig.submit(16, "gang", "ada", gang=True)
    rig.submit(500, "others", "bob")
    rig.seconds(int(WAIT_S))
    first = rig.seconds_of_keeping(10)
    assert 0 < first <= 6
    for number in range(5):  # New ones get no slots sooner.
        rig.submit(15, f"gang-{number}", "ada", gang=True)
    assert rig.seconds_of_keeping(40) <= 16
    assert rig.seconds_of_keeping(100) <= 12
    assert "slots were kept free for a gang in vain, so none are for a while" in rig.reasons("gang")


def of_kinds(rig: FlowRig, count: int, *, others: int = 0, **fields: Any) -> list[m.Outcome]:
    """A gang whose tasks prefer so many different sets of nodes, and others that prefer none: its outcomes."""
    details = {task: m.TaskDetail((f"n{task}", "n0")[: 1 + (task > 0)]) for task in range(count)}
    rig.submit_job(count + others, job="gang", gang=True, local=True, details=details, **fields)
    found: list[m.Outcome] = [outcome for outcome in rig.take(m.Outcome) if outcome.job == "gang"]
    return found


@pytest.mark.parametrize(("count", "others", "sets"), [(5, 0, 5), (4, 1, 5), (9, 3, 10)])
@pytest.mark.parametrize("fields", [{}, {"wait_for_nodes_s": 60.0}])
def test_a_gang_whose_tasks_prefer_more_sets_of_nodes_than_are_weighed_at_a_time_is_lost_at_once(
    count: int, others: int, sets: int, fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 4)
    rig = FlowRig({f"n{number}": node_info(3) for number in range(10)})
    outcomes = of_kinds(rig, count, others=others, **fields)
    assert len(outcomes) == count + others and {outcome.status for outcome in outcomes} == {LOST}
    reason = f"a gang whose tasks prefer {sets} different sets of nodes; at most 4 are weighed at a time"
    assert all(reason in outcome.error for outcome in outcomes)
    rig.submit_job(1, job="next")
    assert len(rig.placed("next")) == 1 and "gang" not in rig.core.jobs


def test_a_gang_of_as_many_sets_as_are_weighed_at_a_time_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 4)
    rig = FlowRig({f"n{number}": node_info(3) for number in range(10)})
    assert not of_kinds(rig, 3, others=2) and len(rig.placed("gang")) == 5


def test_a_gang_of_more_sets_waits_if_its_tasks_take_any_node_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 4)
    rig = FlowRig({f"n{number}": node_info(3) for number in range(10)})
    assert not of_kinds(rig, 8, delay_s=2.0) and not rig.placed("gang")
    for now_s in range(1, 30):
        rig.tick(float(now_s))
    assert len(rig.placed("gang")) == 8
