"""Tasks that a scheduler pushes to slots that the node has said are free (`LaunchNow`): now, or handed back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.errors import LinkError
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import MANY, NodeCore
from tests.support.recorder import reserve


def pushed(attempt: int, *, job: str = "j", user: str = "anna", **fields: Any) -> m.LaunchNow:
    made = {"weight": 1.0, "priority": 0, "app": "many", "expected_duration_s": None, **fields}
    return m.LaunchNow(job, 0, attempt, attempt, b"%d" % attempt, user, **made)


class Rig(NodeCore):
    """A node of one executor, of the app "many", with a place for each slot."""

    def __init__(self, slots: int = 1, **options: Any) -> None:
        super().__init__(slots, [MANY], schedulers="st", **options)

    def push(self, *attempts: int, scheduler: str = "s", **fields: Any) -> None:
        launches = [pushed(attempt, **fields) for attempt in attempts]
        self.receive(m.Common(fields.get("job", "j"), 0, b""), *launches, scheduler=scheduler)

    def started(self) -> list[bytes]:
        return [run.payload for run in self.take(x.Run)]

    def handed_back(self) -> list[int]:
        return [back.attempt for back in self.take(m.HandBack)]


def test_a_pushed_task_starts_at_once_where_a_slot_is_free_and_nobody_is_asked() -> None:
    rig = Rig(slots=2)
    rig.push(1, 2)
    assert rig.started() == [b"1", b"2"]
    assert not rig.take(m.GetTasks) and not rig.handed_back()


def test_what_finds_no_free_slot_is_handed_back_at_once_and_waits_nowhere() -> None:
    rig = Rig(slots=2)
    rig.push(1, 2, 3)
    assert (rig.started(), rig.handed_back()) == ([b"1", b"2"], [3])
    rig.done("p0", 1)
    assert not rig.started() and not rig.core.backlog.ready and not len(rig.core.queue)
    assert (rig.core.counters.pushes, rig.core.counters.pushes_handed_back) == (2, 1)


def test_a_pushed_task_overtakes_nobody_who_came_before_it_in_the_same_frame() -> None:
    rig = Rig()
    rig.receive(reserve(1, 1, user="bert"), m.Common("j", 0, b""), pushed(1))
    assert rig.handed_back() == [1]
    assert [ask.ticket for ask in rig.take(m.GetTasks)] == [1]


def test_a_pushed_task_overtakes_nobody_who_waits_for_more_than_a_slot() -> None:
    rig = Rig(slots=2, resources={"cpu": 1.0})
    rig.receive(reserve(1, 1, user="bert", demand={"cpu": 2.0}))
    rig.push(1)
    assert rig.handed_back() == [1] and not rig.started()


def test_a_slot_that_asks_is_not_free() -> None:
    rig = Rig()
    rig.receive(reserve(1, 1))
    rig.push(1, scheduler="t")
    assert rig.handed_back() == [1]


@pytest.mark.parametrize(("push", "first"), [(True, 3), (False, 2)])
def test_a_pushed_task_is_charged_to_its_user_as_any_start_is(push: bool, first: int) -> None:
    """Anna's task has run for a second when she and Bert wait for the slot: it is Bert's, though she came first. Had
    she had nothing before, it would be hers."""
    rig = Rig()
    rig.push(1, user="anna" if push else "carl")
    rig.started()
    rig.receive(reserve(2, 1, user="anna"), reserve(3, 1, user="bert"))
    rig.done("p0", 1, service_s=1.0, now_s=1.0)
    assert [ask.ticket for ask in rig.take(m.GetTasks)] == [first]


@pytest.mark.parametrize("state", ["draining", "cordoned"])
def test_a_node_that_wants_nothing_hands_back(state: str) -> None:
    rig = Rig()
    (rig.core.drain if state == "draining" else rig.core.cordon)(0.0)
    rig.push(1)
    assert [back.reason for back in rig.take(m.HandBack)] == [f"the node is {state}"]
    assert not rig.started()


def test_an_app_that_is_not_there_or_has_no_executor_hands_back() -> None:
    rig = Rig()
    rig.push(1, app="none")
    assert [back.reason for back in rig.take(m.HandBack)] == ["no app 'none' here"]
    rig.died("p0")
    rig.push(2)
    assert rig.handed_back() == [2]


def test_a_push_that_comes_twice_is_run_once_and_not_handed_back() -> None:
    rig = Rig(slots=2)
    rig.push(1)
    rig.push(1)
    assert (rig.started(), rig.handed_back()) == ([b"1"], [])


def test_what_is_pushed_after_another_scheduler_claimed_the_job_is_handed_back_and_leaves_the_slot_free() -> None:
    rig = Rig()
    rig.receive(m.Claim("j", "anna", 1), scheduler="t")
    rig.push(1)
    assert [(back.attempt, back.reason) for back in rig.take(m.HandBack)] == [(1, "another scheduler has the job")]
    assert [to for to, _ in rig.outbox.take(m.Fenced)] == ["s"]
    rig.push(1 << m.EPOCH_SHIFT | 1, scheduler="t")
    assert len(rig.started()) == 1


def test_what_a_lost_scheduler_had_pushed_goes_on_for_the_one_that_claims_it() -> None:
    rig = Rig()
    rig.push(1)
    rig.core.scheduler_down("s", 0.0)
    rig.receive(m.Claim("j", "anna", 1), scheduler="t")
    assert [claimed.running for claimed in rig.take(m.Claimed)] == [[(1, 1)]]


def test_a_cancellation_that_follows_a_push_finds_it_running_or_gone() -> None:
    rig = Rig()
    rig.push(1, 2)
    rig.receive(m.CancelAttempt("j", 1), m.CancelAttempt("j", 2))
    assert rig.handed_back() == [2]
    assert [runs.attempt for runs in rig.take(m.AttemptRuns)] == [1] and not rig.take(m.Report)
    rig.receive(m.CancelAttempt("j", 1, running=True))
    assert rig.take(x.Kill) == [x.Kill([1])]


def test_a_scheduler_that_uses_slots_it_was_told_of_is_not_told_again_until_another_is_free() -> None:
    rig = Rig(slots=3)
    rig.core.pump(0.0)
    assert rig.take(m.Idle) == [m.Idle(3)]
    rig.push(1)
    rig.push(2)
    assert not rig.take(m.Idle)
    rig.done("p0", 1)
    assert rig.take(m.Idle) == [m.Idle(2)]


@pytest.mark.parametrize("wrong", [{"weight": 0.0}, {"weight": float("nan")}, {"expected_duration_s": -1.0}])
def test_numbers_with_which_nobody_can_reckon_break_the_link(wrong: dict[str, float]) -> None:
    with pytest.raises(LinkError, match="bad launch"):
        Rig().push(1, **wrong)


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "reserve", "answer", "done", "cancel", "cancel-reservations", "tick"]),
        st.sampled_from("st"),
        st.sampled_from(["anna", "bert"]),
    ),
    max_size=40,
)


@given(EVENTS, st.integers(1, 3))
def test_whatever_happens_a_pushed_task_starts_before_the_next_event_or_is_handed_back(
    events: list[tuple[str, str, str]], slots: int
) -> None:
    rig = Rig(slots=slots)
    now_s = 0.0
    runs: list[int] = []
    for number, (what, scheduler, user) in enumerate(events, start=1):
        free, queued = rig.core.free_slots, len(rig.core.queue)
        if what == "push":
            rig.push(number, scheduler=scheduler, user=user)
            run, back = rig.take(x.Run), rig.handed_back()
            assert (len(run), back) == ((1, []) if free and not queued else (0, [number]))
            runs += [one.run for one in run]
        elif what == "reserve":
            rig.receive(reserve(number, 2, user=user), scheduler=scheduler)
        elif what == "answer":
            for to, ask in rig.outbox.take(m.GetTasks):
                rig.receive(m.NoTask(ask.ask, ask.count), scheduler=to)
        elif what == "done" and runs:
            rig.done("p0", runs.pop(0), TaskStatus.FINISHED)
        elif what == "cancel":
            rig.receive(m.CancelAttempt("j", number - 1), scheduler=scheduler)
        elif what == "cancel-reservations":
            rig.receive(m.CancelReservations(number - 1), scheduler=scheduler)
        elif what == "tick":
            now_s += 2.0
            rig.tick(now_s)
