"""Placed tasks at a node: they have a lane of their own, wait there for room, and start before the fair queue, or are
handed back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_monitor.host.accounts import UserAccounts
from node_monitor.lanes import WAITING_PER_SLOT_MAX
from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore, far
from tests.support.recorder import reserve

SECOND = 1 << m.EPOCH_SHIFT
"""Attempts of a job that has moved once begin here."""


def placed(attempt: int, *, job: str = "p", lead: int = 1, **fields: Any) -> m.LaunchPlaced:
    made = {"user": "anna", "weight": 1.0, "priority": 0, "app": "many", "expected_duration_s": 600.0, **fields}
    payload = made.pop("payload", b"%d" % attempt)
    return m.LaunchPlaced(job, 0, attempt % SECOND, attempt, payload, lead, **made)


class Rig(NodeCore):
    """A node with an executor of the app "many" for all its slots, the scheduler s that samples, and f, which leads the
    plane "flow" with epoch 1."""

    def __init__(self, slots: int = 5, *, samples: bool = True, plans: Any = (MANY,), **more: Any) -> None:
        super().__init__(slots, plans, schedulers="s" if samples else "", **more)
        self.core.scheduler_up("f", plane=m.FLOW)
        self.core.scheduler_up("g", plane=m.FLOW)
        self.receive(m.Lead(m.FLOW, 1), scheduler="f")

    def place(self, *attempts: int, **fields: Any) -> None:
        """f places these tasks here, in one frame."""
        common = m.Common(fields.get("job", "p"), 0, b"")
        self.receive(common, *(placed(attempt, **fields) for attempt in attempts), scheduler="f")

    def started(self) -> list[bytes]:
        return [run.payload for run in self.take(x.Run)]

    def backs(self) -> list[tuple[int, str]]:
        """(attempt, reason) of what was handed back."""
        return [(back.attempt, back.reason) for back in self.take(m.HandBack)]

    def asked(self) -> int:
        """For how many tasks slots have asked."""
        return sum(ask.count for ask in self.take(m.GetTasks))

    @property
    def waiting(self) -> list[int]:
        return [attempt for _, _, attempt in self.core.lane.waiting]


# ---- what they use -------------------------------------------------------------------------------


def test_of_placed_tasks_alone_it_is_asked_and_told_what_they_have_used() -> None:
    rig = Rig()
    rig.place(1)
    rig.receive(reserve(1))
    rig.launches(7, ask=1)
    placed_run, sampled_run = rig.take(x.Run)
    assert (placed_run.measure, sampled_run.measure) == (True, False)
    used = x.Used(30.0, 5_000)
    for run in (placed_run, sampled_run):
        rig.core.done("p0", x.Done(run.run, TaskStatus.FINISHED, b"", "", 0.0, 20.0, used=used), 20.0)
    rig.settle(20.0)
    reports = {report.attempt: report.used for report in rig.take(m.Report)}
    assert reports == {1: m.Used(1.5, 5_000, None), 7: None}


@pytest.mark.parametrize(
    "used", [x.Used(-1.0), x.Used(float("nan")), x.Used(1e300), x.Used(1.0, -1), x.Used(None, 1 << 63)]
)
def test_an_executor_that_says_what_nobody_can_have_used_is_cut_off(used: x.Used) -> None:
    rig = Rig()
    rig.place(1)
    (run,) = rig.take(x.Run)
    with pytest.raises(LinkError, match=r"an executor reported .* allowed are 0 to"):
        rig.core.done("p0", x.Done(run.run, TaskStatus.FINISHED, b"", "", 0.0, 1.0, used=used), 1.0)


# ---- how many slots they may hold ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("slots", "share", "lane"),
    [(5, 0.2, 4), (12, 0.2, 9), (15, 0.2, 12), (1, 0.2, 1), (2, 0.2, 1), (4, 1.0, 1), (4, 0.0, 4), (10, 0.7, 3)],
)
def test_the_lane_has_all_slots_but_the_share_of_sampled_tasks_and_one_at_least(
    slots: int, share: float, lane: int
) -> None:
    rig = Rig(slots, short_share=share)
    rig.place(*range(1, slots + 1))
    assert rig.core.lane.slots == lane and len(rig.started()) == lane and len(rig.waiting) == slots - lane
    assert rig.core.occupied == lane


def test_the_share_is_kept_only_while_a_scheduler_is_linked_that_samples() -> None:
    rig = Rig(samples=False)
    rig.place(1, 2, 3, 4, 5, 6)
    assert len(rig.started()) == 5 and rig.waiting == [6]
    rig.core.scheduler_up("s")
    rig.settle()
    assert rig.core.lane.slots == 4 and rig.core.occupied == 5, "what runs goes on"
    rig.done("p0", 1)
    assert not rig.started() and rig.waiting == [6]
    rig.core.scheduler_down("s", 0.0)
    rig.settle()
    assert rig.started() == [b"6"]


def test_the_share_is_from_0_to_1() -> None:
    for share in (-0.1, 1.1):
        with pytest.raises(Exception, match=f"short_share.*{share}.*a number from 0 to 1"):
            Rig(short_share=share)
    with pytest.raises(Exception, match=r"lane_timeout_s.*0.*a number of seconds above 0"):
        Rig(lane_timeout_s=0)


# ---- who is first --------------------------------------------------------------------------------


def test_a_placed_task_has_the_next_free_slot_before_what_was_reserved_earlier() -> None:
    rig = Rig(1)
    rig.place(1)
    rig.receive(reserve(1, 3, user="bert"))
    rig.place(2)
    assert rig.started() == [b"1"] and not rig.asked()
    rig.done("p0", 1, service_s=1.0, now_s=1.0)
    assert rig.started() == [b"2"] and not rig.asked()
    rig.done("p0", 2, now_s=2.0)
    assert rig.asked() == 1


def test_beyond_the_lane_slots_are_for_sampled_tasks() -> None:
    rig = Rig()
    rig.place(*range(1, 7))
    rig.receive(reserve(1, 3))
    assert len(rig.started()) == 4 and rig.waiting == [5, 6] and rig.asked() == 1


def test_sampled_tasks_may_have_all_slots_where_nothing_is_placed() -> None:
    rig = Rig()
    rig.receive(reserve(1, 9))
    assert rig.asked() == 5
    rig.place(1)
    assert not rig.started() and rig.waiting == [1]


def test_the_first_that_does_not_fit_has_its_demand_and_a_slot_set_aside() -> None:
    rig = Rig(resources={"cpu": 4.0, "gpu": 1.0})
    rig.place(1, demand={"cpu": 3.0})
    rig.place(2, demand={"cpu": 2.0})
    assert rig.started() == [b"1"]
    # One cpu is free, and set aside; a gpu is free, and not.
    rig.receive(reserve(1, 1, demand={"cpu": 1.0}), reserve(2, 1, demand={"gpu": 1.0}), reserve(3, 9))
    assert [(ask.ticket, ask.count) for ask in rig.take(m.GetTasks)] == [(2, 1), (3, 2)], "a slot is left for it"
    rig.place(3, demand={"cpu": 1.0})
    assert rig.waiting == [2, 3]
    rig.done("p0", 1)
    assert rig.started() == [b"2", b"3"] and not rig.waiting


def test_no_stream_of_small_tasks_keeps_a_large_one_waiting() -> None:
    rig = Rig(4, resources={"cpu": 4.0}, samples=False)
    for attempt in range(1, 5):
        rig.place(attempt, demand={"cpu": 1.0})
    rig.place(10, demand={"cpu": 4.0})
    rig.place(*range(11, 20), demand={"cpu": 1.0})
    rig.started()
    for run in range(1, 5):
        rig.done("p0", run)
        assert rig.started() == ([b"10"] if run == 4 else [])
    rig.done("p0", 5)
    assert rig.started() == [b"11", b"12", b"13", b"14"]


def test_where_the_lane_is_full_resources_are_set_aside_but_no_slot() -> None:
    rig = Rig(5, resources={"cpu": 6.0})
    rig.place(1, 2, 3, 4, 5, demand={"cpu": 1.0})
    rig.receive(reserve(1, 1, demand={"cpu": 2.0}))
    assert len(rig.started()) == 4 and not rig.asked(), "of the two that are free one is set aside"
    rig.receive(reserve(2, 1, demand={"cpu": 1.0}))
    assert rig.asked() == 1


def test_a_task_that_no_executor_can_run_now_lets_others_pass() -> None:
    rig = Rig(2, samples=False, plans=[POOL, MANY], executors=0)
    rig.core.executor_up("e", "many", 2, 0.0)
    rig.place(1, app="pool")
    rig.place(2)
    assert rig.started() == [b"2"] and rig.waiting == [1]
    rig.core.executor_up("p", "pool", 1, 0.0)
    rig.settle()
    assert rig.started() == [b"1"]


def test_executors_are_started_for_users_who_wait_in_the_lane() -> None:
    rig = Rig(2, samples=False, plans=[POOL], executors=0)
    rig.place(1, app="pool", user="anna")
    rig.place(2, app="pool", user="bert")
    assert rig.outbox.started == [("pool", 1)] * 2
    for name in ("p", "q"):
        rig.core.executor_up(name, "pool", 1, 0.0)
    rig.settle()
    assert rig.started() == [b"1", b"2"]
    assert {executor.user for executor in rig.core.executors.values()} == {"anna", "bert"}


def test_a_pushed_task_finds_no_slot_while_a_placed_one_waits() -> None:
    rig = Rig(resources={"cpu": 1.0})
    rig.place(1, 2, demand={"cpu": 1.0})
    rig.receive(m.LaunchNow("j", 0, 9, 9, b"9", "bert", 1.0, 0, "many", None))
    assert [attempt for attempt, _ in rig.backs()] == [9]


def test_placed_tasks_do_not_count_in_the_fair_queue() -> None:
    """Anna's placed task ran for an hour: at the next free slot her sampled task comes first, as she came first."""
    rig = Rig(2)
    rig.place(1, user="anna")
    rig.receive(reserve(1, 1, user="carl"))
    (ask,) = rig.take(m.GetTasks)
    rig.receive(reserve(2, 1, user="anna"), reserve(3, 1, user="bert"))
    rig.done("p0", 1, service_s=3600.0, now_s=3600.0)
    assert [one.ticket for one in rig.take(m.GetTasks)] == [2]
    rig.receive(m.NoTask(ask.ask, 1), now_s=3600.0)
    assert [one.ticket for one in rig.take(m.GetTasks)] == [3]


# ---- they are handed back ------------------------------------------------------------------------


def test_what_finds_no_room_in_time_is_handed_back_with_what_it_waited_for() -> None:
    rig = Rig(5, resources={"cpu": 4.0}, plans=[MANY, POOL])
    rig.place(1, demand={"cpu": 4.0})
    rig.place(2, demand={"cpu": 1.0})
    rig.place(3, app="pool")
    rig.tick(4.9)
    assert not rig.backs()
    rig.tick(5.0)
    assert rig.backs() == [
        (2, "it waited lane_timeout_s = 5 s for 1 cpu"),
        (3, "it waited lane_timeout_s = 5 s for an executor of app 'pool'"),
    ]
    rig.place(4, 5, 6, 7)
    rig.tick(10.0)
    assert rig.backs() == [(7, "it waited lane_timeout_s = 5 s for one of the 4 slots that placed tasks may hold")]
    rig.receive(reserve(1, 2))
    rig.done("p0", 1, now_s=10.0)
    for attempt, ask in enumerate(rig.take(m.GetTasks), 1):
        rig.launches(attempt, ask=ask.ask)
    assert rig.core.free_slots == 0
    rig.place(8)
    rig.tick(15.0)
    assert rig.backs() == [(8, "it waited lane_timeout_s = 5 s for a slot")]
    assert (rig.core.counters.placed, rig.core.counters.placed_handed_back) == (4, 4)


def test_what_was_set_aside_for_one_that_is_handed_back_is_for_those_behind_it() -> None:
    rig = Rig(5, resources={"cpu": 4.0}, lane_timeout_s=2.5)
    rig.place(1, demand={"cpu": 2.0})
    rig.place(2, demand={"cpu": 3.0})
    rig.place(3, demand={"cpu": 1.0})
    assert rig.waiting == [2, 3] and len(rig.started()) == 1
    rig.tick(2.5)
    assert rig.backs() == [(2, "it waited lane_timeout_s = 2.5 s for 3 cpu")]
    assert rig.started() == [b"3"]


def test_so_many_may_wait_and_no_more() -> None:
    rig = Rig(2, samples=False)
    most = 2 + 2 * WAITING_PER_SLOT_MAX
    rig.place(*range(1, 3))
    rig.place(*range(3, most + 3))
    assert len(rig.waiting) == 2 * WAITING_PER_SLOT_MAX
    assert rig.backs() == [(attempt, "8 placed tasks wait here already") for attempt in (most + 1, most + 2)]


@pytest.mark.parametrize(("scheduler", "lead"), [("f", 0), ("f", 2), ("g", 1), ("s", 1)])
def test_only_the_leaders_tasks_of_its_epoch_are_taken(scheduler: str, lead: int) -> None:
    rig = Rig()
    rig.receive(m.Common("p", 0, b""), placed(1, lead=lead), scheduler=scheduler)
    assert rig.backs() == [(1, "another scheduler leads its plane")] and not rig.started()


def test_what_waits_of_a_leader_before_is_handed_back_and_what_runs_goes_on() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.receive(m.Lead(m.FLOW, 2), scheduler="g")
    assert rig.backs() == [(2, "another scheduler leads its plane")]
    rig.done("p0", 1)
    assert [to for to, _ in rig.outbox.take(m.Report)] == ["f"]


def test_what_can_never_fit_is_handed_back_at_once() -> None:
    rig = Rig(resources={"cpu": 4.0})
    rig.place(1, demand={"cpu": 5.0})
    rig.place(2, demand={"gpu": 1.0})
    assert rig.backs() == [
        (1, "it demands 5 cpu, and the node has 4"), (2, "it demands 1 gpu, and the node has 0"),
    ]  # fmt: skip


def test_what_runs_nowhere_here_is_handed_back_at_once() -> None:
    rig = Rig()
    rig.place(1, app="none")
    assert rig.backs() == [(1, "no app 'none' here")]


def test_a_user_without_an_account_here_has_nothing_placed_here_for_good() -> None:
    accounts = UserAccounts.parsed(("anna=root",))
    rig = Rig(plans=[POOL], executors=0, users=accounts)
    rig.place(1, app="pool", user="bert")
    (back,) = rig.take(m.HandBack)
    assert back == m.HandBack("p", 1, "user 'bert' has no account at this node (run_as)", lasting=True)


def test_what_waits_for_an_app_that_is_withdrawn_is_handed_back() -> None:
    rig = Rig(plans=[POOL], executors=0, resources={})
    rig.place(1, app="pool")
    while not rig.core.apps["pool"].offer.withdrawn:
        for _ in range(rig.core.apps["pool"].starting):
            rig.core.executor_failed("pool", "no such module", rig.now_s)
        rig.tick(rig.now_s + 0.4)
    ((attempt, reason),) = rig.backs()
    assert attempt == 1 and reason.startswith("executors of 'pool' do not start here")
    rig.place(2, app="pool")
    assert [attempt for attempt, _ in rig.backs()] == [2]


@pytest.mark.parametrize("state", ["draining", "cordoned"])
def test_a_node_that_wants_nothing_new_hands_back(state: str) -> None:
    rig = Rig(1)
    rig.place(1, 2)
    (rig.core.drain if state == "draining" else rig.core.cordon)(0.0)
    assert rig.backs() == ([(2, "the node is draining")] if state == "draining" else [])
    rig.place(3)
    assert rig.backs() == [(3, f"the node is {state}")]
    rig.done("p0", 1)
    assert rig.started() == [b"1"] + ([] if state == "draining" else [b"2"])


@pytest.mark.parametrize(
    "fields", [{"weight": 0.0}, {"expected_duration_s": -1.0}, {"demand": {"cpu": -1.0}}, {"demand": {"cpu": 1e19}}]
)
def test_a_placed_task_with_numbers_that_cannot_be_cuts_the_link(fields: dict[str, Any]) -> None:
    with pytest.raises(LinkError, match="bad placed task: 'many' for 'anna'"):
        Rig().place(1, **fields)


def test_a_placed_task_that_comes_twice_is_run_once_and_not_handed_back() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.place(1)
    rig.place(2)
    assert rig.started() == [b"1"] and rig.waiting == [2] and not rig.backs()


# ---- inputs, claims, cancellation, links ---------------------------------------------------------


def test_a_task_is_given_the_results_that_came_before_it() -> None:
    rig = Rig()
    rig.receive(m.Common("p", 0, b""), m.Input("p", 7, b"seven"), scheduler="f")
    rig.place(1, inputs=((7, 1),))
    (run,) = rig.take(x.Run)
    assert run.inputs == [b"seven"]
    rig.place(2, inputs=((8, 1),))
    assert rig.backs() == [(2, "its inputs were not sent before it")]
    assert rig.core.occupied == 1 and rig.core.free_slots == 4


def test_a_task_whose_large_input_is_fetched_holds_its_slot_and_is_handed_back_if_that_is_gone() -> None:
    rig = Rig(1)
    rig.place(1, payload=far("a"))
    assert rig.core.occupied == 1 and not rig.started()
    rig.core.fetched("anna", "a" * 64, "far:1: 404", 0.0)
    rig.settle()
    assert rig.take(m.HandBack) == [m.HandBack("p", 1, "far:1: 404", ("a" * 64,))] and rig.core.occupied == 0


def test_a_waiting_task_of_a_job_that_another_scheduler_claims_is_handed_back_and_fenced() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.receive(m.Claim("p", "anna", 1), scheduler="g")
    assert rig.backs() == [(2, "another scheduler has the job")]
    assert [to for to, _ in rig.outbox.take(m.Fenced)] == ["f", "f"]
    assert [claimed.running for claimed in rig.take(m.Claimed)] == [[(1, 1)]]
    rig.place(3)
    rig.done("p0", 1)
    assert rig.backs() == [(3, "another scheduler has the job")] and rig.core.free_slots == 1
    assert [to for to, _ in rig.outbox.take(m.Report)] == ["g"]


def test_a_claim_of_the_same_scheduler_withdraws_what_waits_of_the_epoch_before_without_a_word() -> None:
    rig = Rig(1)
    rig.place(1, 2, 3, job="p")
    rig.place(4, job="other")
    rig.receive(m.Claim("p", "anna", 1), scheduler="f")
    assert rig.waiting == [4] and not rig.backs()


def test_a_waiting_task_is_cancelled_at_once() -> None:
    rig = Rig(1)
    rig.place(1, 2, 3)
    rig.receive(m.CancelAttempt("p", 2), m.CancelAttempt("p", 3, running=True), scheduler="f")
    assert [(report.attempt, report.status) for report in rig.take(m.Report)] == [
        (2, TaskStatus.CANCELLED), (3, TaskStatus.CANCELLED),
    ]  # fmt: skip
    assert not rig.waiting


def test_a_scheduler_that_is_gone_takes_what_waits_with_it_and_what_runs_goes_on() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.core.scheduler_down("f", 0.0)
    rig.settle()
    assert not rig.waiting and not rig.backs() and rig.core.occupied == 1
    rig.receive(m.Claim("p", "anna", 1), scheduler="g")
    assert [claimed.running for claimed in rig.take(m.Claimed)] == [[(1, 1)]]


def test_a_job_that_is_forgotten_takes_what_waits_with_it() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.receive(m.ForgetJob("p"), scheduler="f")
    assert not rig.waiting
    rig.done("p0", 1)
    assert not rig.core.jobs.by_key


def test_a_task_that_dies_with_its_executor_is_lost_and_its_lane_slot_free() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.died("p0")
    assert [(report.attempt, report.status) for report in rig.take(m.Report)] == [(1, TaskStatus.LOST)]
    assert rig.core.occupied == 0 and rig.waiting == [2], "it waits for the next executor"
    rig.core.executor_up("q", "many", 1, 0.0)
    rig.settle()
    assert rig.started()[-1] == b"2"


# ---- preemption ----------------------------------------------------------------------------------


def preempt(attempt: int) -> m.CancelAttempt:
    return m.CancelAttempt("p", attempt, preempt=True)


def test_a_waiting_task_that_is_to_make_room_is_handed_back() -> None:
    rig = Rig(1)
    rig.place(1, 2)
    rig.receive(preempt(2), scheduler="f")
    assert rig.backs() == [(2, "it makes room for others")] and not rig.waiting


def test_a_task_that_waits_for_its_inputs_is_handed_back_to_make_room() -> None:
    rig = Rig(1)
    rig.place(1, payload=far("a"))
    rig.receive(preempt(1), scheduler="f")
    assert rig.backs() == [(1, "it makes room for others")] and rig.core.occupied == 0


def test_a_running_task_of_an_executor_with_many_places_is_killed_and_the_next_has_its_slot() -> None:
    rig = Rig(1)
    rig.place(1)
    rig.receive(preempt(1), *(placed(2),), scheduler="f")
    assert rig.take(x.Kill) == [x.Kill([1])]
    rig.done("p0", 1, TaskStatus.FAILED, error="killed", service_s=3.0, now_s=3.0)
    assert rig.take(m.Preempted) == [m.Preempted("p", 1, 3.0)] and not rig.take(m.Report)
    assert rig.started()[-1] == b"2" and rig.core.counters.preempted == 1


def test_a_running_task_with_an_executor_of_its_own_goes_with_that_and_the_next_waits_for_another() -> None:
    rig = Rig(1, plans=[POOL])
    rig.place(1, app="pool")
    rig.receive(preempt(1), placed(2, app="pool"), scheduler="f")
    assert rig.outbox.killed == ["p0"]
    rig.now_s = 2.0
    rig.died("p0")
    assert rig.take(m.Preempted) == [m.Preempted("p", 1, 2.0)] and not rig.take(m.Report) and not rig.backs()
    rig.core.executor_up("p1", "pool", 1, 2.0)
    rig.settle()
    assert rig.started()[-1] == b"2"


def test_a_result_that_came_before_the_kill_stands() -> None:
    rig = Rig(1)
    rig.place(1)
    rig.receive(preempt(1), preempt(1), scheduler="f")
    assert len(rig.take(x.Kill)) == 1
    rig.done("p0", 1)
    assert [report.status for report in rig.take(m.Report)] == [TaskStatus.FINISHED] and not rig.take(m.Preempted)
    rig.receive(preempt(1), scheduler="f")
    assert not rig.backs() and not rig.take(m.Preempted)


def test_one_that_is_being_stopped_for_another_reason_ends_as_that_says() -> None:
    rig = Rig(1)
    rig.place(1)
    rig.receive(m.CancelAttempt("p", 1, running=True), preempt(1), scheduler="f")
    rig.done("p0", 1, TaskStatus.FAILED, error="killed")
    assert [report.status for report in rig.take(m.Report)] == [TaskStatus.CANCELLED]


def test_who_claims_the_job_hears_that_its_task_was_preempted() -> None:
    rig = Rig(1)
    rig.place(1)
    rig.receive(preempt(1), scheduler="f")
    rig.receive(m.Claim("p", "anna", 1), scheduler="g")
    rig.done("p0", 1, TaskStatus.FAILED, error="killed", service_s=1.0, now_s=1.0)
    assert rig.outbox.take(m.Preempted) == [("g", m.Preempted("p", 1, 1.0))]


@pytest.mark.parametrize("returns", [True, False])
def test_a_task_behind_another_is_asked_back_to_make_room_and_stopped_if_it_has_begun(returns: bool) -> None:
    """A sampled task, as placed ones are behind no others."""
    rig = NodeCore(1)
    rig.receive(reserve(1, 9, app="pool", prefetch=8))
    rig.launches(1, ask=1)
    rig.launches(2, 3, ask=2)
    rig.done("p0", 1)
    rig.receive(m.CancelAttempt("j1", 3, preempt=True), m.CancelAttempt("j1", 3, running=True))
    assert rig.take(x.Revoke) == [x.Revoke([3])]
    if returns:
        rig.returned("p0", 3)
        assert rig.take(m.HandBack) == [m.HandBack("j1", 3, "it makes room for others")]
    else:
        rig.done("p0", 2)
        rig.returned("p0")
        assert rig.outbox.killed == ["p0"]
        rig.died("p0")
        assert [told.attempt for told in rig.take(m.Preempted)] == [3]


def test_a_task_that_was_pushed_and_waits_for_its_turn_is_handed_back_to_make_room() -> None:
    """As direct placement does it."""
    rig = NodeCore(1)
    rig.receive(m.Launch(0, "j1", 0, 1, 1, b"p", (), 1), reserve(1, 1, app="pool"))
    rig.receive(m.Launch(0, "j1", 0, 2, 2, b"p", (), 2), reserve(2, 1, app="pool"))
    rig.receive(m.CancelAttempt("j1", 2, preempt=True))
    assert rig.take(m.HandBack) == [m.HandBack("j1", 2, "it makes room for others")] and not rig.take(m.Report)


# ---- whatever happens ----------------------------------------------------------------------------


EVENTS = st.one_of(
    st.tuples(st.just("place"), st.sampled_from([None, 0.5, 2.0, 3.0])),
    st.tuples(st.just("reserve"), st.sampled_from([None, 1.0])),
    st.tuples(st.just("done"), st.integers(0, 9)),
    st.tuples(st.just("fail"), st.integers(0, 9)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("stop"), st.integers(0, 9)),
    st.tuples(st.just("preempt"), st.integers(0, 9)),
    st.tuples(st.just("wait"), st.sampled_from([0.1, 1.1, 4.0])),
    st.tuples(st.just("die"), st.none()),
    st.tuples(st.just("lead"), st.none()),
    st.tuples(st.just("sampling"), st.booleans()),
    st.tuples(st.just("state"), st.sampled_from(["drain", "cordon", "uncordon"])),
)


@settings(max_examples=150)
@given(events=st.lists(EVENTS, max_size=40))
def test_each_placed_task_is_here_or_has_been_answered_for_once(events: list[tuple[str, Any]]) -> None:
    rig = Rig(4, resources={"cpu": 4.0})
    lead, number, executors, sampled = 1, 0, 0, 1000
    answers: dict[int, int] = {}
    for kind, value in events:
        core, here = rig.core, [*rig.core.attempts.by_key, *rig.core.lane.waiting]
        mine = [attempt for scheduler, _, attempt in here if scheduler == "f"]
        runs = [(one, run) for one, executor in core.executors.items() for run in executor.running]
        if kind == "place":
            number += 1
            answers[number] = 0
            rig.place(number, lead=lead, demand=value and {"cpu": value})
        elif kind == "reserve" and "s" in core.schedulers:
            sampled += 1
            rig.receive(reserve(sampled, 2, demand=value and {"cpu": value}))
        elif kind in ("done", "fail") and runs:
            status = TaskStatus.FINISHED if kind == "done" else TaskStatus.FAILED
            rig.done(*runs[value % len(runs)], status)
        elif kind in ("cancel", "stop", "preempt") and mine:
            cancel = m.CancelAttempt("p", mine[value % len(mine)], kind == "stop", kind == "preempt")
            rig.receive(cancel, scheduler="f")
        elif kind == "wait":
            rig.tick(rig.now_s + value)
        elif kind == "die":
            rig.died(next(iter(core.executors)))
            executors += 1
            core.executor_up(f"q{executors}", "many", 4, rig.now_s)
            rig.settle()
        elif kind == "lead":
            lead += 2
            rig.receive(m.Lead(m.FLOW, lead - 1), scheduler="g")
            rig.receive(m.Lead(m.FLOW, lead), scheduler="f")
        elif kind == "sampling":
            if "s" in core.schedulers:
                core.scheduler_down("s", rig.now_s)
            if value:
                core.scheduler_up("s")
            rig.settle()
        elif kind == "state":
            {"drain": core.drain, "cordon": core.cordon, "uncordon": core.uncordon}[value](rig.now_s)
            rig.settle()
        for to, message in rig.outbox.sent:
            if to == "f" and isinstance(message, m.Report | m.HandBack | m.Preempted):
                answers[message.attempt] += 1
        rig.outbox.sent.clear()
        left = {attempt for scheduler, _, attempt in [*core.attempts.by_key, *core.lane.waiting] if scheduler == "f"}
        assert answers == {attempt: int(attempt not in left) for attempt in answers}
        assert core.occupied == sum(scheduler == "f" for scheduler, _, _ in core.attempts.by_key)
        assert -1e-9 <= core.free["cpu"] <= 4.0
