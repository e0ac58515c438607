"""Tasks that wait for tasks of their own: their slots run others meanwhile, and they get one again first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from node_monitor.attempts import RUNS
from node_monitor.executors.executor_state import AppPlan
from node_monitor.options import WAITING_TASKS_MAX, NodeMonitorOptions
from node_monitor.paused_tasks import HAS_LEASE, IS_PLACED
from node_monitor.queueing.policies import make_queue
from node_monitor.queueing.tickets import QueuedTicket
from sparrow_py.errors import InvalidOption, LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, POOL, NodeCore, OneJob
from tests.support.recorder import reserve


class NestedJob(OneJob):
    """A node where tasks of the job j wait, and that has an executor more than slots."""

    def __init__(self, slots: int = 1, *, executors: int | None = None, plan: AppPlan = POOL, **options: Any) -> None:
        NodeCore.__init__(self, slots, [plan], executors=slots + 1 if executors is None else executors, **options)
        self.app = plan.app

    def executor_of(self, run: int) -> str:
        """Which has the run."""
        return next(one.id for one in self.core.executors.values() if run in one.running)

    def waits(self, run: int) -> x.MayWait:
        """The run says that it waits: the answer."""
        self.core.waits(self.executor_of(run), x.Waits(run), self.now_s)
        (answer,) = self.take(x.MayWait)
        assert isinstance(answer, x.MayWait) and answer.run == run
        self.settle()
        return answer

    def wants_slot(self, run: int) -> None:
        """The run has waited."""
        self.core.wants_slot(self.executor_of(run), x.WantsSlot(run), self.now_s)
        self.settle()

    def go_on(self) -> list[int]:
        """Runs that have heard that they have a slot."""
        return [message.run for message in self.take(x.HasSlot)]


def true_s(rig: NodeCore, user: str = "anna") -> float:
    """What the user's tasks have been charged for, in seconds, at weight 1."""
    return rig.core.queue._level.flows[user].true / 1e15  # type: ignore[attr-defined, no-any-return]


def test_a_slot_runs_others_while_its_task_waits() -> None:
    rig = NestedJob()
    rig.start(1)
    assert rig.core.free_slots == 0 and not rig.reserve(2)
    assert rig.waits(1) == x.MayWait(1)
    (ask,) = rig.take(m.GetTasks)
    rig.launch(2, ask.ask)
    assert rig.core.waiting == 1 and rig.core.free_slots == 0
    assert rig.executor_of(2) != rig.executor_of(1)


def test_who_has_waited_gets_its_slot_before_anything_that_is_queued() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    rig.start(2)
    assert not rig.reserve(3)
    rig.wants_slot(1)
    assert not rig.go_on() and rig.core.waiting == 1
    rig.done(rig.executor_of(2), 2)
    assert rig.go_on() == [1] and not rig.take(m.GetTasks) and rig.core.waiting == 0
    rig.done(rig.executor_of(1), 1)
    assert rig.take(m.GetTasks)


def test_who_has_waited_goes_on_at_once_where_a_slot_is_free() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    rig.wants_slot(1)
    assert rig.go_on() == [1] and rig.core.free_slots == 0
    rig.done(rig.executor_of(1), 1)
    assert rig.reports() == [(1, TaskStatus.FINISHED, "")]
    assert rig.core.free_slots == 1


def test_the_deepest_goes_on_first() -> None:
    rig = NestedJob(executors=4)
    for attempt, depth in ((1, 0), (2, 2), (3, 1)):
        rig.start(attempt, depth=depth)
        rig.waits(attempt)
    rig.start(4)
    for run in (1, 2, 3):
        rig.wants_slot(run)
    order: list[int] = []
    for _ in range(3):
        rig.done(rig.executor_of(order[-1] if order else 4), order[-1] if order else 4)
        order += rig.go_on()
    assert order == [2, 3, 1]


# ---- users take turns ------------------------------------------------------------------------


TURN_S = 2.0


class TwoUsers(NestedJob):
    """A slot that three tasks of mallory's want again, over and over, beside anna, who has much queued. Each has the
    slot for two seconds at a time."""

    def __init__(self, policy: str = "fair", weight: float = 1.0, idle_s: float = 0.0) -> None:
        super().__init__(executors=6, queue=policy)
        self.weight, self.next_attempt = weight, 100
        self.had_s = {"anna": 0.0, "mallory": 0.0}
        for attempt in (1, 2, 3):
            (ask,) = self.reserve(attempt, user="mallory")
            self.launch(attempt, ask.ask)
            self.waits(attempt)
        self.now_s += idle_s
        self.receive(reserve(10, 100, app="pool", job="a", user="anna", weight=weight))
        self.answer()
        for run in (1, 2, 3):
            self.wants_slot(run)

    def answer(self) -> None:
        """Anna's scheduler answers with a task each."""
        for ask in self.take(m.GetTasks):
            self.next_attempt += 1
            self.receive(m.Launch(ask.ask, "a", 0, self.next_attempt, self.next_attempt, b"p"))

    def turn(self) -> str:
        """Whoever has the slot has had it; returns whose task that was."""
        (holder,) = [one for one in self.core.attempts.by_key.values() if one.state is RUNS]
        self.now_s += TURN_S
        user = holder.charge.ticket.user
        self.had_s[user] += TURN_S
        if user == "mallory":
            self.waits(holder.run)
            self.wants_slot(holder.run)
        else:
            self.done(holder.executor_id, holder.run, service_s=TURN_S)
        self.answer()
        return user


@pytest.mark.parametrize("policy", ["fair", "priority"])
@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_who_waits_and_goes_on_over_and_over_has_no_more_than_a_share(policy: str, weight: float) -> None:
    rig = TwoUsers(policy, weight)
    for _ in range(60):
        rig.turn()
        assert abs(rig.had_s["anna"] / weight - rig.had_s["mallory"]) <= 4 * TURN_S


def test_nothing_is_saved_up_while_tasks_wait() -> None:
    """Ten hours of it would be ten hours for which nobody else has the slot."""
    rig = TwoUsers(idle_s=36_000.0)
    for _ in range(20):
        rig.turn()
    assert abs(rig.had_s["anna"] - rig.had_s["mallory"]) <= 4 * TURN_S


def test_in_order_of_arrival_what_has_begun_comes_first() -> None:
    rig = TwoUsers("fifo")
    assert [rig.turn() for _ in range(5)] == ["anna", *["mallory"] * 4]


def test_a_user_has_its_slot_where_others_tickets_cannot_run() -> None:
    """Their app has no executor free."""
    rig = NestedJob(executors=1)
    rig.start(1)
    rig.waits(1)
    rig.receive(reserve(9, 5, app="pool", job="a", user="anna"))
    rig.wants_slot(1)
    assert rig.go_on() == [1]


def test_a_lease_of_a_user_who_comes_first_is_renewed() -> None:
    """Beside one that has had the slot for long, and wants it again."""
    rig = NestedJob(executors=3)
    rig.start(1, user="mallory")
    rig.now_s = 100.0
    rig.waits(1)
    rig.receive(m.Common("a", 0, b"", None, lease_s=2.0), reserve(9, app="pool", job="a", user="anna"))
    (ask,) = rig.take(m.GetTasks)
    rig.receive(m.Launch(ask.ask, "a", 0, 9, 9, b"p"))
    rig.wants_slot(1)
    rig.tick(102.0)
    assert not rig.take(x.Yield) and not rig.go_on()


def test_a_placed_task_keeps_its_slot() -> None:
    rig = NestedJob()
    rig.start(1)
    (attempt,) = rig.core.attempts.by_key.values()
    attempt.charge.ticket.placed = True
    rig.core.waits(rig.executor_of(1), x.Waits(1), 0.0)
    attempt.charge.ticket.placed = False
    assert [answer.why_not for answer in rig.take(x.MayWait)] == [IS_PLACED] and rig.core.free_slots == 0


def test_no_pushed_task_takes_the_slot_of_one_that_has_waited() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    rig.start(2)
    rig.wants_slot(1)
    rig.core.done(rig.executor_of(2), x.Done(2, TaskStatus.FINISHED, b"", "", 0.0, 0.0), 0.0)
    rig.core.receive("s", m.LaunchNow("j", 0, 9, 9, b"", "anna", 1.0, 0, "pool", None), 0.0)
    assert [back.attempt for back in rig.take(m.HandBack)] == [9]
    rig.settle()
    assert rig.go_on() == [1]


def test_beyond_the_limit_a_wait_is_refused_by_name_and_the_slot_is_kept() -> None:
    rig = NestedJob(2, executors=4, waiting_tasks_max=1)
    rig.start(1, 2)
    assert not rig.waits(1).why_not
    refused = rig.waits(2)
    assert refused.why_not == "at most waiting_tasks_max = 1 tasks of a node wait for tasks of their own"
    assert rig.core.free_slots == 1 and rig.core.counters.waits_refused == 1
    rig.wants_slot(1)
    assert rig.go_on() == [1] and not rig.waits(2).why_not


def test_a_user_alone_leaves_a_share_of_the_limit_to_others() -> None:
    rig = NestedJob(4, executors=8, waiting_tasks_max=4)
    rig.start(1, 2, 3, 4)
    assert [bool(rig.waits(run).why_not) for run in (1, 2, 3, 4)] == [False, False, False, True]
    (ask,) = rig.reserve(5, user="bert")
    rig.launch(5, ask.ask)
    assert not rig.waits(5).why_not and rig.core.waiting == 4


@pytest.mark.parametrize("most", [-1, WAITING_TASKS_MAX + 1])
def test_a_limit_that_cannot_be_is_refused(most: int) -> None:
    with pytest.raises(InvalidOption, match="waiting_tasks_max"):
        NodeMonitorOptions(waiting_tasks_max=most)


def test_a_task_with_a_lease_keeps_its_slot() -> None:
    rig = NestedJob()
    rig.receive(m.Common("j", 0, b"", lease_s=1.0))
    (ask,) = rig.reserve(1)
    rig.launch(1, ask.ask)
    assert rig.waits(1).why_not == HAS_LEASE and rig.core.free_slots == 0


def test_what_has_a_lease_yields_to_one_that_has_waited_though_it_is_the_same_users() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    rig.receive(m.Common("j", 0, b"", lease_s=1.0))
    (ask,) = rig.reserve(2)
    rig.launch(2, ask.ask)
    rig.tick(1.0)
    assert not rig.take(x.Yield), "nobody wants the slot"
    rig.wants_slot(1)
    rig.tick(2.0)
    assert [message.run for message in rig.take(x.Yield)] == [2]
    assert not rig.go_on()
    rig.done(rig.executor_of(2), 2, now_s=2.5)
    assert rig.go_on() == [1]


def test_a_task_of_an_executor_with_several_places_keeps_its_slot() -> None:
    rig = NestedJob(2, plan=MANY, executors=1)
    rig.start(1)
    assert "is for all slots" in rig.waits(1).why_not


def test_what_was_given_behind_it_is_asked_back_before_it_waits() -> None:
    rig = NestedJob()
    rig.receive(m.Common("j", 0, b""))
    rig.core.jobs.job("s", "j").duration_s = 1e-5
    by_slot, ahead = rig.reserve(1, 3, prefetch=3)
    rig.launch(1, by_slot.ask)
    rig.launch(2, ahead.ask)
    rig.launch(3, ahead.ask)
    rig.done(rig.executor_of(1), 1)
    executor = rig.core.executors[rig.executor_of(2)]
    assert list(executor.running) == [2, 3]
    rig.core.waits(executor.id, x.Waits(2), 0.0)
    assert [type(message) for _, message in rig.outbox.sent[-2:]] == [x.Revoke, x.MayWait]
    rig.returned(executor.id, 3)
    assert [back.attempt for back in rig.take(m.HandBack)] == [3]
    assert list(executor.running) == [2] and executor.waiting is not None


def test_an_executor_that_dies_while_its_task_waits_loses_the_task_and_no_slot() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    rig.start(2)
    rig.died(rig.executor_of(1))
    assert [(attempt, status) for attempt, status, _ in rig.reports()] == [(1, TaskStatus.LOST)]
    assert rig.core.free_slots == 0 and rig.core.waiting == 0
    rig.done(rig.executor_of(2), 2)
    assert rig.core.free_slots == 1


def test_a_task_that_waits_is_cancelled_with_its_process() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    rig.receive(m.CancelAttempt("j", 1, running=True))
    executor = rig.executor_of(1)
    assert rig.outbox.killed == [executor]
    rig.core.wants_slot(executor, x.WantsSlot(1), 0.0)
    rig.settle()
    assert not rig.go_on()
    rig.died(executor)
    assert [(attempt, status) for attempt, status, _ in rig.reports()] == [(1, TaskStatus.CANCELLED)]
    assert rig.core.free_slots == 1


def test_a_user_is_charged_for_what_ran_alone() -> None:
    rig = NestedJob(2, executors=4)
    rig.start(1)
    rig.receive(reserve(900, 1, app="pool", job="other", user="bert"))  # So that the busy period does not end.
    rig.now_s = 1.0
    rig.waits(1)
    assert true_s(rig) == pytest.approx(1.0)
    rig.now_s = 11.0
    rig.wants_slot(1)
    rig.now_s = 13.0
    rig.done(rig.executor_of(1), 1, now_s=13.0)
    assert true_s(rig) == pytest.approx(3.0)


def test_an_executed_app_gets_a_process_for_the_slot_that_was_given_back() -> None:
    rig = NestedJob(1, executors=1)
    rig.start(1)
    before = len(rig.outbox.started)
    rig.waits(1)
    assert len(rig.outbox.started) == before + 1


@pytest.mark.parametrize("message", [x.Waits(7), x.WantsSlot(1), x.WantsSlot(7)])
def test_who_says_what_cannot_be_is_cut_off(message: Any) -> None:
    rig = NestedJob()
    rig.start(1)
    tell: Callable[..., None] = rig.core.waits if isinstance(message, x.Waits) else rig.core.wants_slot
    with pytest.raises(LinkError):
        tell(rig.executor_of(1), message, 0.0)


def test_a_run_that_waits_ends_only_once_it_has_its_slot() -> None:
    rig = NestedJob()
    rig.start(1)
    rig.waits(1)
    with pytest.raises(LinkError, match="waits and has no slot"):
        rig.core.done(rig.executor_of(1), x.Done(1, TaskStatus.FINISHED, b"", "", 0.0, 0.0), 0.0)
    with pytest.raises(LinkError):
        rig.core.waits(rig.executor_of(1), x.Waits(1), 0.0)


@pytest.mark.parametrize("policy", ["fair", "priority", "fifo"])
def test_deeper_tickets_of_a_user_go_first(policy: str) -> None:
    rig = NestedJob(1, queue=policy)
    for number, depth in enumerate((0, 2, 1, 2, 0, 3), 1):
        rig.core.queue.add(QueuedTicket(("s", number), "j", "anna", app="pool", depth=depth))
    order = [rig.core.queue.take(lambda _: True) for _ in range(6)]
    assert [charge.ticket.key[1] for charge in order if charge is not None] == [6, 2, 4, 3, 1, 5]
    for charge in order:
        assert charge is not None
        rig.core.queue.refund(charge)
    rig.core.queue.check_invariants()


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=30),
    st.sampled_from(["fair", "priority", "fifo"]),
)
def test_tickets_lie_by_depth_and_then_by_arrival(changes: list[tuple[int, bool]], policy: str) -> None:
    """Whatever comes and is cancelled in between."""
    queue = make_queue(policy, 2)
    expected: list[tuple[int, int]] = []
    for number, (depth, cancels) in enumerate(changes, 1):
        if cancels and expected:
            _, gone = expected.pop(depth % len(expected))
            assert queue.cancel(("s", gone)) == 1
        else:
            queue.add(QueuedTicket(("s", number), "j", "anna", depth=depth))
            expected.append((-depth, number))
        queue.check_invariants()
    served: list[int] = []
    while (charge := queue.take(lambda _: True)) is not None:
        served.append(charge.ticket.key[1])
        queue.settle(charge, 0.0)
        queue.check_invariants()
    assert served == [number for _, number in sorted(expected)]


# ---- whatever happens ------------------------------------------------------------------------


@given(data=st.data(), policy=st.sampled_from(["fair", "priority", "fifo"]), forks=st.booleans())
@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_a_slot_never_runs_two_tasks_that_do_not_wait(data: st.DataObject, policy: str, forks: bool) -> None:
    """Tasks start, wait, want their slots, end, die and are cancelled in any order: invariants hold after each event,
    and at the end all slots are free."""
    slots = data.draw(st.integers(1, 3))
    most = data.draw(st.integers(0, 3))
    rig = NestedJob(slots, executors=slots, plan=AppPlan("pool", forks=forks), queue=policy, waiting_tasks_max=most)
    core = rig.core
    next_attempt, executors = 1, slots

    def runs(state: str) -> list[int]:
        return [one.run for one in core.attempts.by_key.values() if one.state.name == state]

    for _ in range(data.draw(st.integers(1, 40))):
        rig.now_s += data.draw(st.sampled_from([0.0, 0.001, 1.0]))
        while rig.outbox.started:
            rig.outbox.started.pop()
            core.executor_up(f"p{executors}", "pool", 1, rig.now_s)
            executors += 1
        rig.settle()
        for ask in rig.take(m.GetTasks):
            for _ in range(ask.count):
                rig.receive(m.Launch(ask.ask, "j", 0, next_attempt, next_attempt, b"p"))
                next_attempt += 1
        action = data.draw(st.sampled_from(["reserve", "wait", "want", "end", "die", "cancel", "claim"]))
        if action == "reserve":
            depth, user = data.draw(st.integers(0, 3)), data.draw(st.sampled_from(["anna", "bert"]))
            rig.receive(reserve(1000 + next_attempt, 1, app="pool", job="j", user=user, depth=depth))
        elif action == "wait" and (waiting := runs("RUNS")):
            rig.waits(data.draw(st.sampled_from(waiting)))
        elif action == "want" and (paused := runs("PAUSED")):
            rig.wants_slot(data.draw(st.sampled_from(paused)))
        elif action == "end" and (ending := runs("RUNS")):
            run = data.draw(st.sampled_from(ending))
            rig.done(rig.executor_of(run), run)
        elif action == "die" and (alive := list(core.executors)):
            rig.died(data.draw(st.sampled_from(alive)))
        elif action == "cancel" and (attempts := [one.number for one in core.attempts.by_key.values()]):
            rig.receive(m.CancelAttempt("j", data.draw(st.sampled_from(attempts)), running=True))
        for killed in [one for one in rig.outbox.killed if one in core.executors]:
            rig.died(killed)
        with_slots = sum(
            one.state.name in ("RUNS", "STOPPED") and core.executors[one.executor_id].waiting is not one
            for one in core.attempts.by_key.values()
        )
        assert with_slots + core.free_slots + core.asking == slots
        if core.free_slots:
            assert not runs("RESUMING")
    while core.attempts.by_key:
        rig.died(next(iter(core.attempts.by_key.values())).executor_id)
    rig.receive(*(m.NoTask(ask.ask, ask.count) for ask in rig.take(m.GetTasks) if ask.ask in core.asks.open))
    assert core.waiting == 0
