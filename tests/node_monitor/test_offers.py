"""When a node offers an app: starts of executors that fail, and what is said of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from node_monitor.executors.executor_state import AppPlan
from node_monitor.executors.offers import START_FAILURES_MAX, STOOD_S, Offer, OfferState
from sparrow_py.wire import messages as m
from tests.support.node_core import NodeCore
from tests.support.recorder import reserve

REASON = "exited with code 1; it said:\nNo module named 'sparrow_py'"


class Rig(NodeCore):
    """A node of some slots with the app "pool"; its start is at 0 s, with executors wanted."""

    def __init__(self, slots: int = 1, *, forks: bool = False) -> None:
        plans = [AppPlan("noop", one_process=True, supervised=False), AppPlan("pool", "r1", forks=forks)]
        super().__init__(slots, plans, executors=0, schedulers=())
        self.core.executor_up("noop", "noop", slots, 0.0)
        self.core.scheduler_up("s")
        self.core.start(["pool"])

    @property
    def offer(self) -> Offer:
        return self.core.apps["pool"].offer

    def fail(self, reason: str = REASON) -> None:
        """All starts that are under way fail together, and the next are due."""
        for _ in range(self.started()):
            self.core.executor_failed("pool", reason, self.now_s)
            self.settle()
        self.wait()

    def wait(self) -> None:
        while (due_s := self.core.next_deadline_s()) is not None:
            self.now_s = max(self.now_s, due_s)
            self.core.tick(self.now_s)
            self.settle()

    def up(self, executor: str) -> None:
        self.core.executor_up(executor, "pool", 1, self.now_s)
        self.settle()

    def started(self) -> int:
        """How many starts were wanted since this was last asked."""
        count, self.outbox.started = len(self.outbox.started), []
        return count

    def told(self) -> list[m.NodeInfo]:
        return [changed.node for _, changed in self.outbox.take(m.NodeChanged)]

    def withdraw(self) -> None:
        for _ in range(START_FAILURES_MAX):
            assert not self.offer.withdrawn
            self.fail()
        assert self.offer.withdrawn


def test_an_app_whose_starts_fail_is_withdrawn_with_the_reason() -> None:
    rig = Rig()
    assert rig.offer.state is OfferState.STARTING
    rig.core.receive("s", reserve(1, 3, app="pool"), 0.0)
    rig.withdraw()
    (node,) = rig.told()
    assert (node.apps, node.withdrawn) == ({"noop": ""}, {"pool": REASON})
    assert rig.outbox.offer_changes == [("pool", REASON)]
    assert [(refused.ticket, refused.count) for refused in rig.take(m.ReservationsRefused)] == [(1, 3)]
    assert (rig.core.counters.start_failures, rig.core.counters.withdrawals) == (3, 1)
    assert rig.core.useless_for == ["pool"]


def test_schedulers_hear_that_it_is_withdrawn_before_what_they_reserved_is_refused() -> None:
    """Else they would look for other reservations at a node that cannot have them."""
    rig = Rig()
    rig.core.receive("s", reserve(1, app="pool"), 0.0)
    rig.withdraw()
    kinds = [type(message) for _, message in rig.outbox.sent]
    assert kinds.index(m.NodeChanged) < kinds.index(m.ReservationsRefused)


def test_it_is_offered_again_once_a_start_succeeds_and_then_all_are_started() -> None:
    rig = Rig(slots=4, forks=True)
    rig.withdraw()
    rig.told()
    assert rig.started() == 1, "one at a time is tried"
    rig.up("p1")
    (node,) = rig.told()
    assert (node.apps, node.withdrawn) == ({"noop": "", "pool": "r1"}, {})
    assert rig.outbox.offer_changes[1:] == [("pool", "")]
    assert rig.started() == 3
    assert rig.core.useless_for == []
    rig.core.scheduler_up("later")
    assert rig.told() == [], "it is as it was when it was greeted"


def test_it_is_tried_for_ever_and_less_and_less_often() -> None:
    rig = Rig()
    waits = []
    for _ in range(14):
        before_s = rig.now_s
        rig.fail()
        waits.append(rig.now_s - before_s)
        assert len(rig.outbox.started) == 1
    assert waits == sorted(waits) and waits[-1] == 30.0
    assert len(rig.outbox.offer_changes) == 1, "somebody is told of a change, not of each start"


def test_who_links_later_hears_of_it_and_of_the_latest_reason() -> None:
    rig = Rig()
    rig.withdraw()
    rig.told()
    rig.fail("was killed by SIGKILL")
    (node,) = rig.told()
    assert node.withdrawn == {"pool": "was killed by SIGKILL"}
    rig.fail("was killed by SIGKILL")
    assert rig.told() == [], "nothing new"
    rig.core.scheduler_up("later")
    assert rig.told() == [node]


def test_a_reason_of_any_length_is_cut() -> None:
    rig = Rig()
    for _ in range(START_FAILURES_MAX):
        rig.fail(f"exited with code 1; it said:\n{'x' * 10_000}\nthe cause")
    reason = rig.told()[0].withdrawn["pool"]
    assert len(reason) == m.WITHDRAWN_CHARS_MAX
    assert reason.startswith("exited with code 1; ") and reason.endswith("x\nthe cause")


def test_starts_that_fail_together_are_one_failure() -> None:
    """A fork server that is killed once takes all starts with it, and executors that have done nothing."""
    rig = Rig(slots=8, forks=True)
    rig.up("p1")
    rig.up("p2")
    for _ in range(rig.started() - 2):
        rig.core.executor_failed("pool", "its fork server was killed by SIGKILL", 0.0)
    for executor in ("p1", "p2"):
        rig.core.executor_down(executor, "was killed by SIGKILL", 0.0)
    rig.settle()
    assert rig.offer.failures <= 2
    assert not rig.offer.withdrawn
    rig.wait()
    assert rig.started() == 8


def test_executors_that_come_and_end_at_once_are_starts_in_vain() -> None:
    rig = Rig()
    for number in range(START_FAILURES_MAX):
        assert not rig.offer.withdrawn
        rig.up(f"p{number}")
        rig.core.executor_down(f"p{number}", "exited with code 1", rig.now_s)
        rig.wait()
    assert rig.offer.withdrawn


def test_an_executor_that_stood_for_long_was_no_start_in_vain() -> None:
    rig = Rig()
    for number in range(3 * START_FAILURES_MAX):
        rig.up(f"p{number}")
        rig.now_s += STOOD_S
        rig.core.executor_down(f"p{number}", "was killed by SIGKILL", rig.now_s)
        rig.wait()
        assert not rig.offer.withdrawn


def test_as_long_as_one_executor_is_there_the_app_is_offered() -> None:
    rig = Rig(slots=2, forks=True)
    rig.up("p1")
    for _ in range(2 * START_FAILURES_MAX):
        rig.core.executor_failed("pool", REASON, rig.now_s)
        rig.wait()
    assert not rig.offer.withdrawn


def test_an_app_that_nobody_wanted_yet_is_no_reason_against_the_node() -> None:
    core = NodeCore(1, [AppPlan("pool"), AppPlan("lazy")], executors=0).core
    assert core.useless_for == []
    core.start(["pool"])
    for _ in range(START_FAILURES_MAX):
        core.executor_failed("pool", REASON, 0.0)
        core.tick(core.next_deadline_s() or 0.0)
    assert core.useless_for == ["pool"]
    core.receive("s", reserve(1, app="lazy"), 0.0)
    assert core.useless_for == [], "lazy may come"


@given(st.lists(st.sampled_from(["start", "fail", "up", "down", "work"]), max_size=60))
def test_an_app_is_withdrawn_only_where_none_is_there_and_never_without_a_reason(events: list[str]) -> None:
    offer, starting, here = Offer(), 0, 0
    for event in events:
        if event == "start":
            starting += 1
            if not here:
                offer.starts()
        elif event == "fail" and starting:
            starting -= 1
            offer.start_failed(REASON, starting, alone=not here)
        elif event == "up" and starting:
            starting, here = starting - 1, here + 1
            was = offer.withdrawn
            assert offer.came(starting) is was
        elif event == "down" and here:
            here -= 1
            offer.died_unused("it died", offer.failures, alone=not here)
        elif event == "work" and here:
            offer.worked()
        assert offer.withdrawn == bool(offer.reason) != offer.told
        assert not (offer.withdrawn and here)
