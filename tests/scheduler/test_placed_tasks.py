"""The book's side of placed tasks: they are sent to nodes' lanes, and preempted; nodes say what they have left."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from scheduler.planes import PLANES
from sparrow_py.errors import LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.most_free_slots import InLanes
from tests.support.scheduler_rig import SchedulerRig, node_info

FINISHED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.CANCELLED, TaskStatus.LOST


class Rig(SchedulerRig):
    """A scheduler whose plane places tasks in lanes, with the node n of 4 slots, 8 cpu and 10 memory."""

    def __init__(self, nodes: Any = None, **options: Any) -> None:
        super().__init__(nodes or {"n": _info()}, placement="random", **options)
        self.plane: Any = self.core.plane

    def placed(self) -> list[m.LaunchPlaced]:
        return self.take(m.LaunchPlaced)

    def preempt(self, launch: m.LaunchPlaced) -> list[m.CancelAttempt]:
        """The plane preempts the attempt; what the nodes are asked."""
        self.plane.book.preempt(self.core.jobs[launch.job].attempts[launch.attempt])
        self.core.check_invariants()
        return self.take(m.CancelAttempt)

    def end(self, launch: m.LaunchPlaced, status: TaskStatus = FINISHED) -> None:
        self.node("n", m.Report("j", launch.task, launch.attempt, status, b"r", "", 0.0, 0.1))


@pytest.fixture(autouse=True)
def _lanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(PLANES, "random", InLanes)
    yield


def _info() -> m.NodeInfo:
    return node_info(4, resources={"cpu": 8.0, "memory": 10.0})


# ---- they are placed -----------------------------------------------------------------------------


def test_a_task_is_sent_with_what_its_node_needs_to_know() -> None:
    rig = Rig(user_weight=("anna=2",), user_priority=("anna=5",))
    limits = {"task_timeout_s": 90.0, "lease_s": 30.0}
    rig.submit_job(1, common=b"c", expected_duration_s=60.0, demand={"cpu": 2.0}, priority=None, **limits)
    (common,), (launch,) = rig.take(m.Common), rig.placed()
    assert common == m.Common("j", 0, b"c", 90.0, lease_s=30.0)
    assert launch == m.LaunchPlaced(
        "j", 0, 0, launch.attempt, b"p", 0, "anna", 2.0, 5, "many", 60.0, {"cpu": 2.0}
    )  # fmt: skip
    assert (rig.core.counters.launched, rig.core.counters.reservations) == (1, 0)
    rig.end(launch)
    assert rig.outcomes() == [(0, FINISHED, 1)] and not rig.core.jobs


def test_the_priority_of_a_stage_goes_before_that_of_its_job() -> None:
    rig = Rig()
    stage = m.Stage("many", 1, b"", "", 2.0, 0, None, priority=-3)
    rig.client(m.SubmitJob("j", 0, "", [stage], 3, False, None, False), m.AddTasks("j", 0, [b"p"]))
    (launch,) = rig.placed()
    assert launch.priority == -3


def test_results_that_a_task_is_given_come_before_it() -> None:
    rig = Rig()
    stages = [m.Stage("many", 1, b"", "", 2.0, 0, None, name="a")]
    stages.append(m.Stage("many", 1, b"", "", 2.0, 0, None, name="b", after=("a",)))
    tasks = m.AddTasks("j", 0, [b"p", b"q"], {1: m.TaskDetail(inputs=((0, 1),))})
    rig.client(m.SubmitJob("j", 0, "", stages, 3, False, None, False), tasks)
    (first,) = rig.placed()
    rig.end(first)
    kinds = [type(message) for to, message in rig.outbox.sent if to == "n"]
    assert kinds[-2:] == [m.Input, m.LaunchPlaced]
    (launch,) = rig.placed()
    assert (launch.stage, launch.task, launch.inputs) == (1, 1, ((0, 1),))


def test_the_client_hears_of_it_if_it_asked_for_that() -> None:
    rig = Rig()
    rig.submit_job(2, report_placed=True)
    assert rig.take(m.Placed) == [m.Placed("j", 0), m.Placed("j", 1)]


def test_what_is_handed_back_is_placed_again() -> None:
    rig = Rig({"n": _info(), "o": node_info(1)})
    rig.submit_job(1, max_attempts=1)
    (launch,) = rig.placed()
    rig.node("n", m.HandBack("j", launch.attempt, "it waited lane_timeout_s = 5 s for a slot"))
    (again,) = rig.placed()
    assert again.task == 0 and again.attempt != launch.attempt
    assert rig.core.counters.handed_back == 1 and not rig.outcomes()


def test_nodes_that_know_no_placed_tasks_get_none() -> None:
    rig = Rig()
    rig.core.node_up("old", node_info(100), 0.0, version=3)
    rig.submit_job(4)
    assert {to for to, _ in rig.outbox.take(m.LaunchPlaced)} == {"n"}


# ---- they are preempted --------------------------------------------------------------------------


def test_a_preempted_task_waits_again_and_the_start_does_not_count() -> None:
    rig = Rig()
    rig.submit_job(1, preemptible=True, max_attempts=2)
    for _ in range(3):
        (launch,) = rig.placed()
        assert rig.preempt(launch) == [m.CancelAttempt("j", launch.attempt, preempt=True)]
        assert rig.preempt(launch) == []  # It has been asked.
        rig.node("n", m.Preempted("j", launch.attempt, 7.5))
    (launch,) = rig.placed()
    rig.end(launch)
    assert rig.outcomes() == [(0, FINISHED, 1)]
    assert rig.plane.preemptions == [(0, "n", 7.5)] * 3
    assert (rig.core.counters.preempted, rig.core.counters.retries) == (3, 0)


@pytest.mark.parametrize("status", [FINISHED, LOST])
def test_a_report_that_crossed_stands(status: TaskStatus) -> None:
    rig = Rig()
    rig.submit_job(1, preemptible=True, max_attempts=2)
    (launch,) = rig.placed()
    rig.preempt(launch)
    rig.end(launch, status)
    assert rig.outcomes() == ([(0, FINISHED, 1)] if status is FINISHED else [])
    assert rig.core.counters.attempts_lost == (status is LOST)
    rig.node("n", m.Preempted("j", launch.attempt, 0.1))
    assert (rig.core.counters.stale_reports, rig.core.counters.preempted) == (1, 0)


def test_one_that_had_not_started_is_handed_back() -> None:
    rig = Rig({"n": _info(), "o": node_info(1)})
    rig.submit_job(1, preemptible=True)
    (launch,) = rig.placed()
    rig.preempt(launch)
    rig.node("n", m.HandBack("j", launch.attempt, "it makes room for others"))
    assert len(rig.placed()) == 1 and rig.core.counters.preempted == 0


def test_what_nobody_asked_to_preempt_is_not_preempted() -> None:
    rig = Rig()
    rig.submit_job(1, preemptible=True)
    (launch,) = rig.placed()
    rig.node("n", m.Preempted("j", launch.attempt, 1.0), m.Preempted("other", 1, 1.0))
    assert rig.core.counters.stale_reports == 2 and not rig.placed()
    rig.end(launch)
    assert rig.outcomes() == [(0, FINISHED, 1)]


def test_a_cancelled_job_is_not_preempted_and_one_that_was_does_not_start_again() -> None:
    rig = Rig()
    rig.submit_job(2, preemptible=True)
    first, second = rig.placed()
    rig.preempt(first)
    rig.client(m.CancelJob("j", running=True))
    assert {cancel.attempt: cancel.running for cancel in rig.take(m.CancelAttempt)} == {
        first.attempt: True, second.attempt: True,
    }  # fmt: skip
    assert rig.preempt(second) == []
    rig.node("n", m.Preempted("j", first.attempt, 2.0))
    rig.end(second, CANCELLED)
    assert sorted(rig.outcomes()) == [(0, CANCELLED, 0), (1, CANCELLED, 1)] and not rig.core.jobs


def test_only_tasks_of_preemptible_jobs_that_may_start_twice_are_preempted() -> None:
    rig = Rig()
    rig.submit_job(1, job="once", preemptible=True, max_attempts=1)
    assert [refused.field for refused in rig.take(m.JobRefused)] == ["preemptible"]
    rig.submit_job(1, preemptible=False)
    (launch,) = rig.placed()
    assert not rig.core.jobs["j"].preemptible
    with pytest.raises(AssertionError, match="job j is not preemptible"):
        rig.preempt(launch)


def test_what_the_scheduler_before_had_preempted_waits_again_too() -> None:
    """The node answers to whoever has the job by then."""
    rig = Rig(settling_s=0.0)
    rig.submit_job(1, epoch=1, preemptible=True)
    (claim,) = rig.take(m.Claim)
    rig.node("n", m.Claimed("j", 1, [(0, 77)], user="anna", instance=claim.instance))
    assert rig.core.counters.adopted == 1 and not rig.placed()
    rig.node("n", m.Preempted("j", 77, 3.0))
    (launch,) = rig.placed()
    assert launch.task == 0 and rig.core.counters.preempted == 1


# ---- nodes say what they have left ---------------------------------------------------------------


def test_planes_are_told_of_loads() -> None:
    rig = Rig()
    load = m.NodeLoad(2, 4, 1, 3, {"cpu": 4.0}, cpu=2.5, memory_bytes=1 << 30, net_in_bytes_per_s=1e9)
    rig.node("n", load, m.Occupied(2))
    node = rig.core.nodes["n"]
    assert (node.load, node.occupied, rig.plane.loads) == (load, 2, ["n"])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"lane_slots": 5}, "lane_slots is 5; it is a whole number from 0 to 4"),
        ({"lane_free": 4}, "lane_free is 4; it is a whole number from 0 to 3"),
        ({"lane_free": -1}, "lane_free is -1"),
        ({"short": 5}, "short is 5"),
        ({"queued": -1}, "queued is -1"),
        ({"free": {"cpu": 8.5}}, "8.5 cpu is free, of 8.0"),
        ({"free": {"cpu": float("nan")}}, "nan cpu is free"),
        ({"free": {"gpu": 0.0}}, "'gpu', which it does not have"),
        ({"cpu": -0.5}, "cpu is -0.5; it is a number from 0"),
        ({"memory_bytes": -1}, "memory_bytes is -1"),
        ({"net_in_bytes_per_s": float("inf")}, "net_in_bytes_per_s is inf"),
        ({"net_out_bytes_per_s": float("nan")}, "net_out_bytes_per_s is nan"),
    ],
)
def test_loads_that_cannot_be_cut_the_link(changes: dict[str, Any], said: str) -> None:
    rig = Rig()
    fields = {"lane_free": 1, "lane_slots": 3, "short": 0, "queued": 0, "free": {"cpu": 8.0}}
    with pytest.raises(LinkError, match=f"node n says .*{said}"):
        rig.node("n", m.NodeLoad(**(fields | changes)))
    assert rig.core.nodes["n"].load is None and not rig.plane.loads


@pytest.mark.parametrize("slots", [-1, 5])
def test_a_node_cannot_have_more_slots_occupied_than_it_has(slots: int) -> None:
    rig = Rig()
    with pytest.raises(LinkError, match=f"node n says that {slots} of its 4 slots are occupied"):
        rig.node("n", m.Occupied(slots))


@pytest.mark.parametrize("service_s", [-1.0, float("nan"), float("inf")])
def test_a_preempted_task_has_run_for_a_time_that_can_be(service_s: float) -> None:
    with pytest.raises(LinkError, match="node n says that service_s is"):
        Rig().node("n", m.Preempted("j", 1, service_s))
