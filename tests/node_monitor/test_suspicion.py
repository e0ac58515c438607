"""Nodes where executors keep dying under tasks: avoided for a while, by those whom it concerns."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_monitor.executors.suspicion import AVOIDED_FIRST_S, AVOIDED_MAX_S, SUSPICIOUS_JOBS, Suspicion
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve


class Rig(NodeCore):
    """A node of one slot, for the app "pool" with executors of one place."""

    def __init__(self) -> None:
        super().__init__(executors=0)
        self.core.executor_up("p", "pool", 1, 0.0)
        self.attempts = 0

    def reserved(self, job: str, user: str = "anna", now_s: float = 0.0) -> bool:
        """Whether a reservation is taken; it is the only one then, and asks."""
        self.attempts += 1
        self.core.receive("s", reserve(self.attempts, app="pool", job=job, user=user), now_s)
        self.settle(now_s)
        return not self.take(m.ReservationsRefused)

    def run(self, job: str, user: str = "anna", *, now_s: float = 0.0, ends: str = "dies", failure: str = "") -> None:
        """A task of this job runs here, and its executor dies of it, or not."""
        if not self.core.apps["pool"].serves(user):  # The executor that is here is another user's.
            self.core.executor_up(f"p{self.attempts}", "pool", 1, now_s)
        assert self.reserved(job, user, now_s)
        (ask,) = self.take(m.GetTasks)
        self.core.receive("s", m.Launch(ask.ask, job, 0, 0, self.attempts, b""), now_s)
        ((executor, run),) = self.outbox.take(x.Run)
        if ends == "dies":
            self.core.executor_down(executor, "it was killed", now_s, failure)
            self.core.executor_up(executor, "pool", 1, now_s)
        elif ends == "is stopped":
            self.core.receive("s", m.CancelAttempt(job, self.attempts, running=True), now_s)
            self.core.executor_down(executor, "it was killed", now_s)
            self.core.executor_up(executor, "pool", 1, now_s)
        else:
            self.core.done(executor, x.Done(run.run, TaskStatus(ends), b"", "", 0.0, 0.1), now_s)
        self.settle(now_s)
        self.take(m.Report)


def suspected(*users: str) -> Rig:
    """A node where tasks of just enough jobs died, of these users in turn."""
    rig = Rig()
    for number in range(SUSPICIOUS_JOBS):
        rig.run(f"j{number}", users[number % len(users)])
    return rig


def test_a_node_where_tasks_of_several_users_jobs_died_is_avoided_by_all_and_comes_back_by_itself() -> None:
    rig = suspected("anna", "bert")
    assert not rig.reserved("other", "carl")
    assert rig.core.counters.suspicions == 1
    assert rig.core.next_deadline_s() == AVOIDED_FIRST_S
    rig.core.tick(AVOIDED_FIRST_S)
    rig.settle(AVOIDED_FIRST_S)
    assert rig.take(m.Idle), "a scheduler hears that there are free slots"
    rig.run("other", "carl", now_s=AVOIDED_FIRST_S, ends="finished")
    rig.run("more", "carl", now_s=AVOIDED_FIRST_S)
    assert rig.reserved("last", "carl", AVOIDED_FIRST_S), "what came before the success is forgotten"


def test_one_users_poison_keeps_nobody_else_from_the_node() -> None:
    rig = suspected("anna")
    assert not rig.reserved("again", "anna")
    rig.run("other", "bert", ends="finished")
    assert rig.reserved("again", "anna"), "the node is sound"


def test_one_job_is_no_reason_however_many_of_its_tasks_die() -> None:
    rig = Rig()
    for _ in range(20):
        rig.run("poison")
    assert rig.core.counters.suspicions == 0
    assert rig.reserved("other", "bert") and rig.reserved("another", "anna")


@pytest.mark.parametrize(
    "end", [{"ends": "failed"}, {"ends": "is stopped"}, {"failure": "it used more than task_cpu_s_max = 1 s"}]
)
def test_what_is_no_death_of_a_tasks_executor_is_no_reason(end: dict[str, str]) -> None:
    rig = Rig()
    for number in range(2 * SUSPICIOUS_JOBS):
        rig.run(f"j{number}", f"user{number}", **end)  # type: ignore[arg-type]
    assert rig.core.counters.suspicions == 0


def test_what_was_reserved_before_is_refused_and_what_others_reserved_is_not() -> None:
    rig = Rig()
    for number in range(SUSPICIOUS_JOBS - 1):
        rig.run(f"j{number}")
    assert rig.reserved("last")
    (ask,) = rig.take(m.GetTasks)
    rig.core.receive("s", m.Launch(ask.ask, "last", 0, 0, rig.attempts, b""), 0.0)
    assert rig.reserved("waits", "anna") and rig.reserved("waits too", "bert")
    refused, kept = rig.attempts - 1, rig.attempts
    rig.core.executor_down("p", "it was killed", 0.0)
    rig.settle(0.0)
    assert [(message.ticket, message.count) for message in rig.take(m.ReservationsRefused)] == [(refused, 1)]
    assert [ticket.key[1] for ticket in rig.core.queue.tickets()] == [kept]


def test_it_is_avoided_for_longer_and_longer() -> None:
    suspicion, now_s, times = Suspicion(), 0.0, []
    for number in range(20):
        until_s = suspicion.died("anna", 1, f"j{number}", now_s)
        if until_s is not None:
            times.append(until_s - now_s)
            now_s = until_s
    assert times[:3] == [AVOIDED_FIRST_S, 2 * AVOIDED_FIRST_S, 4 * AVOIDED_FIRST_S]
    assert times[-1] == AVOIDED_MAX_S


def test_one_users_dying_jobs_do_not_go_on_keeping_another_away_whose_job_died_once() -> None:
    suspicion, now_s = Suspicion(), 0.0
    suspicion.died("anna", 1, "a", now_s)
    for number in range(10):
        until_s = suspicion.died("bert", 1, f"b{number}", now_s)
        if until_s is not None:
            assert suspicion.refuses("bert", now_s)
            assert suspicion.refuses("anna", now_s) == (number == 1), "once, as it might be the node"
            now_s = until_s
    suspicion.died("anna", 1, "a2", now_s)
    suspicion.died("bert", 1, "b", now_s)
    assert suspicion.refuses("anna", now_s) and suspicion.refuses("carl", now_s), "both again: it may be the node"


deaths = st.tuples(st.sampled_from(["anna", "bert"]), st.sampled_from(["j1", "j2", "j3", "j4"]))
events = st.lists(st.tuples(st.floats(0.0, 5.0), st.none() | deaths), max_size=60)


@given(events)
def test_refusals_are_for_cause_and_end(history: list[tuple[float, tuple[str, str] | None]]) -> None:
    """Whoever is refused had jobs die here, or two users had, with no success since; and not for ever."""
    suspicion, now_s = Suspicion(), 0.0
    died: set[tuple[str, str]] = set()
    for wait_s, death in history:
        now_s += wait_s
        if death is None:
            suspicion.cleared()
            died = set()
        else:
            died.add(death)
            until_s = suspicion.died(death[0], 1, death[1], now_s)
            assert until_s is None or AVOIDED_FIRST_S - 1e-6 <= until_s - now_s <= AVOIDED_MAX_S + 1e-6
        users = {user for user, _ in died}
        for user in ("anna", "bert", "carl"):
            if suspicion.refuses(user, now_s):
                assert len(died) >= SUSPICIOUS_JOBS
                assert user in users or len(users) > 1
            assert not suspicion.refuses(user, now_s + AVOIDED_MAX_S)
