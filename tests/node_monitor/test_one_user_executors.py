"""The node monitor's pure core: an executor of one place is one user's for good, and gets nothing once it is to end."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_monitor.core import IDLE_WORKERS_PER_SLOT
from node_monitor.executors.executor_state import AppPlan
from node_monitor.host.accounts import ALL_AS_OURSELVES, UserAccounts
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve


class Rig(NodeCore):
    """A node whose executors of the app "pool" are forked, or executed. All that it is to start starts when told."""

    def __init__(
        self, slots: int = 1, *, forks: bool = True, accounts: UserAccounts = ALL_AS_OURSELVES, **options: Any
    ) -> None:
        plans = [AppPlan("pool", forks=forks, account=account) for account in accounts.names]
        super().__init__(slots, plans, executors=0, users=accounts, **options)
        self.core.start(["pool"])
        self.pool = self.core.apps[plans[0].name]
        self.users: dict[str, set[str]] = {}
        """Executor to those whose tasks it was given."""
        self._numbers = 0
        self.ended: set[str] = set()

    def start_what_is_to_start(self) -> None:
        for name, places in self.outbox.started:
            self._numbers += 1
            self.core.executor_up(f"p{self._numbers}", name, places, self.now_s)
        self.outbox.started.clear()
        self.settle()

    def end_what_is_to_end(self) -> None:
        for executor in self.outbox.killed:
            self.ended.add(executor)
            self.core.executor_down(executor, "was killed by SIGKILL", self.now_s)
        self.outbox.killed.clear()
        self.settle()

    def reserve(self, user: str, count: int = 1, **fields: Any) -> None:
        self._numbers += 1
        self.core.receive("s", reserve(self._numbers, count, app="pool", user=user, job=user, **fields), self.now_s)
        self.settle()

    def answer(self) -> list[tuple[str, str, int]]:
        """All asks get tasks: (executor, user, run) of each that started."""
        for _, ask in self.outbox.take(m.GetTasks):
            if ask.ask not in self.core.asks.open:
                continue  # It timed out.
            user = self.core.asks.open[ask.ask].ticket.user
            for _ in range(ask.count):
                self._numbers += 1
                self.core.receive("s", m.Launch(ask.ask, user, 0, 0, self._numbers, user.encode()), self.now_s)
        self.settle()
        started = [(at, bytes(run.payload).decode(), run.run) for at, run in self.outbox.take(x.Run)]
        for at, user, _ in started:
            self.users.setdefault(at, set()).add(user)
        return started

    def run_ends(self, executor: str, run: int) -> None:
        """The executor's run ends, after 10 ms."""
        self.now_s += 0.01
        self.done(executor, run, service_s=0.01)

    def run(self, user: str) -> str:
        """A task of this user runs here; the executor that ran it."""
        self.reserve(user)
        ((executor, _, run),) = self.answer()
        self.run_ends(executor, run)
        return executor

    def account(self, executor: str) -> str:
        """As which it runs."""
        return self.core.executors[executor].app.plan.account


def test_users_who_take_turns_have_executors_of_their_own_and_keep_them() -> None:
    rig = Rig()
    rig.start_what_is_to_start()
    mine = rig.run("anna")
    rig.start_what_is_to_start()
    others = rig.run("bert")
    assert mine != others
    rig.start_what_is_to_start()
    assert [rig.run(user) for user in ("anna", "bert", "anna")] == [mine, others, mine]
    assert rig.outbox.started == rig.outbox.killed == [], "nothing was started for that"


def test_a_newcomer_finds_a_fresh_executor_for_every_slot() -> None:
    rig = Rig(2)
    rig.start_what_is_to_start()
    rig.reserve("anna", 2)
    rig.answer()
    assert len(rig.outbox.started) == 2, "those that were taken are replaced"
    rig.start_what_is_to_start()
    assert rig.pool.fresh == 2


def test_what_an_ask_got_no_task_for_is_fresh_still() -> None:
    rig = Rig()
    rig.start_what_is_to_start()
    rig.reserve("anna")
    ((_, ask),) = rig.outbox.take(m.GetTasks)
    rig.core.receive("s", m.NoTask(ask.ask, 1), 0.0)
    rig.settle()
    first = rig.run("bert")
    assert first == "p1"


def test_while_a_fork_is_under_way_the_slot_is_others_and_then_the_newcomers() -> None:
    rig = Rig()
    rig.start_what_is_to_start()
    rig.reserve("anna", 3)
    ((mine, _, run),) = rig.answer()
    rig.reserve("bert")
    rig.run_ends(mine, run)
    ((executor, user, run),) = rig.answer()
    assert (executor, user) == (mine, "anna"), "no fresh executor is there, and the slot does not wait for it"
    rig.start_what_is_to_start()
    rig.run_ends(executor, run)
    ((executor, user, _),) = rig.answer()
    assert (executor, user) != (mine, "anna") and user == "bert"


def test_executors_that_cost_are_not_kept_ahead_but_started_for_who_lacks_one() -> None:
    rig = Rig(2, forks=False)
    rig.start_what_is_to_start()
    rig.reserve("anna", 30)
    started = rig.answer()
    assert rig.outbox.started == [], "as many as slots"
    rig.reserve("bert")
    rig.run_ends(*started[0][::2])
    assert len(rig.outbox.started) == 1
    ((_, user, _),) = rig.answer()
    assert user == "anna"
    rig.start_what_is_to_start()
    served = started[1:]
    while "bert" not in [user for _, user, _ in served]:
        rig.run_ends(*served.pop(0)[::2])
        served += rig.answer()


@pytest.mark.parametrize("given", [0, 1])
def test_those_that_were_unused_for_longest_go_when_more_are_kept_than_may(given: int) -> None:
    rig = Rig(idle_workers_max=given)
    kept_max = given or IDLE_WORKERS_PER_SLOT
    executors = []
    for number in range(kept_max + 1):
        rig.start_what_is_to_start()
        executors.append(rig.run(f"user{number}"))
    assert rig.outbox.killed == executors[:1]
    assert rig.pool.offered.idle == kept_max
    rig.end_what_is_to_end()
    rig.start_what_is_to_start()
    assert rig.run("user0") not in executors, "whose it was gets a fresh one"
    assert rig.pool.offer.failures == 0


def test_a_start_in_vain_ends_what_another_keeps_if_somebody_waits() -> None:
    """What it lacked may be what that takes: processes, say, of which an account has only so many."""
    rig = Rig()
    rig.start_what_is_to_start()
    mine = rig.run("anna")
    rig.outbox.started.clear()
    rig.core.executor_failed("pool", "Resource temporarily unavailable", 0.0)
    rig.settle()
    assert rig.outbox.killed == [], "nobody waits"
    rig.reserve("bert")
    assert rig.pool.offer.failures == 1
    rig.core.tick(rig.core.next_deadline_s() or 0.0)
    rig.core.executor_failed("pool", "Resource temporarily unavailable", 0.0)
    rig.settle()
    assert rig.outbox.killed == [mine]


# ---- what is to end gets nothing -----------------------------------------------------------------


def test_from_the_decision_to_end_an_executor_on_it_is_given_nothing() -> None:
    """Its end takes a moment, and what it was given meanwhile would be lost by another task's fault."""
    rig = Rig()
    rig.start_what_is_to_start()
    rig.reserve("anna", 2)
    ((executor, _, run),) = rig.answer()
    attempt = next(iter(rig.core.attempts.by_key.values())).number
    rig.core.receive("s", m.CancelAttempt("anna", attempt, running=True), 0.0)
    rig.settle()
    assert rig.outbox.killed == [executor]
    rig.run_ends(executor, run)  # It ended by itself just before.
    assert rig.answer() == [], "its slot is free, and it has no place"
    rig.start_what_is_to_start()
    ((other, _, _),) = rig.answer()
    assert other != executor
    rig.end_what_is_to_end()
    assert [report.status for _, report in rig.outbox.take(m.Report)] == [TaskStatus.FINISHED]


def test_an_executor_that_is_to_end_is_given_nothing_ahead_either() -> None:
    rig = Rig()
    rig.start_what_is_to_start()
    rig.reserve("anna", 12, prefetch=8)
    ((executor, _, first),) = rig.answer()[:1]
    rig.core.done(executor, x.Done(first, TaskStatus.FINISHED, b"", "", 0.0, 0.0001), 0.0)
    rig.settle()
    given = rig.answer()
    assert len(given) > 1, "short ones are given ahead"
    running = rig.core.executors[executor].running
    stopped = running[given[0][2]]
    rig.core.receive("s", m.CancelAttempt("anna", stopped.number, running=True), 0.0)
    rig.settle()
    assert rig.outbox.killed == [executor]
    for at, _, run in given:
        rig.run_ends(at, run)  # What it said before it was killed.
    assert all(at != executor for at, _, _ in rig.answer())


# ---- whatever happens ----------------------------------------------------------------------------

TWO = UserAccounts({"user0": "a"}, "b")
THREE = UserAccounts({"user0": "a", "user1": "b", "user2": "c", "user3": "c"}, None)

STEP = st.one_of(
    st.tuples(st.just("reserve"), st.integers(0, 3), st.sampled_from([0, 4])),
    st.tuples(st.sampled_from(["answer", "no task", "done", "start", "fail", "end", "cancel", "die", "time"])),
)


@settings(max_examples=150, deadline=None)
@given(
    st.integers(1, 3), st.booleans(), st.integers(0, 2), st.sampled_from([ALL_AS_OURSELVES, TWO, THREE]),
    st.lists(STEP, max_size=60),
)  # fmt: skip
def test_no_executor_ever_runs_two_users_tasks_nor_anything_once_it_is_to_end(
    slots: int, forks: bool, kept: int, accounts: UserAccounts, steps: list[Any]
) -> None:
    """Nor is its account another than its user's."""
    rig = Rig(slots, forks=forks, idle_workers_max=kept, accounts=accounts)
    runs: list[tuple[str, int]] = []
    for step, *details in steps:
        if step == "reserve":
            rig.reserve(f"user{details[0]}", 2, prefetch=details[1])
        elif step == "answer":
            to_end = set(rig.outbox.killed)
            started = rig.answer()
            assert not to_end & {at for at, _, _ in started}
            assert all(rig.account(at) == accounts.of(user) for at, user, _ in started)
            runs += [(at, run) for at, _, run in started]
        elif step == "no task":
            for _, ask in rig.outbox.take(m.GetTasks):
                rig.core.receive("s", m.NoTask(ask.ask, ask.count), rig.now_s)
            rig.settle()
        elif step == "start":
            rig.start_what_is_to_start()
        elif step == "fail" and rig.outbox.started:
            name, _ = rig.outbox.started.pop()
            rig.core.executor_failed(name, "no luck", rig.now_s)
            rig.settle()
        elif step == "end":
            rig.end_what_is_to_end()
        elif step == "time":
            rig.now_s += 1.0
            rig.core.tick(rig.now_s)
            rig.settle()
        runs = [(at, run) for at, run in runs if at in rig.core.executors and run in rig.core.executors[at].running]
        if runs and step == "done":
            rig.run_ends(*runs.pop(0))
        elif runs and step == "cancel":
            attempt = rig.core.executors[runs[0][0]].running[runs[0][1]]
            rig.core.receive("s", m.CancelAttempt(attempt.job.id, attempt.number, running=True), rig.now_s)
            rig.settle()
        elif runs and step == "die":
            if runs[0][0] in rig.outbox.killed:
                rig.outbox.killed.remove(runs[0][0])
            rig.core.executor_down(runs[0][0], "was killed by SIGSEGV", rig.now_s)
            rig.settle()
    assert all(len(users) == 1 for users in rig.users.values())
    assert rig.pool.offered.idle <= (kept or IDLE_WORKERS_PER_SLOT * slots)
