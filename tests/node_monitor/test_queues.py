"""The reservation queues: their bookkeeping, policies, and the bound proved in `node_monitor.queueing.fair`."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import combinations, cycle, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from node_monitor.queueing.fair import LEAST_CHARGE_S, MAX_DEBTORS, FairQueue
from node_monitor.queueing.fifo import FifoQueue
from node_monitor.queueing.policies import make_queue
from node_monitor.queueing.priority import PriorityQueue
from node_monitor.queueing.reservation_queue import ReservationQueue
from node_monitor.queueing.tickets import MAX_DURATION_S, TURN_S, Charge, QueuedTicket
from tests.support.virtual_node import GapWatch, VirtualNode

POLICIES = ("fair", "fifo", "priority")


def ticket(user: str = "u", number: int = 0, *, scheduler: str = "s", **fields: object) -> QueuedTicket:
    return QueuedTicket((scheduler, number), "job", user, **fields)  # type: ignore[arg-type]


def anything(ticket: QueuedTicket) -> bool:
    return True


def nothing(ticket: QueuedTicket) -> bool:
    return False


def take(queue: ReservationQueue, may_run: Callable[[QueuedTicket], bool] = anything) -> Charge:
    charge = queue.take(may_run)
    assert charge is not None
    queue.check_invariants()
    return charge


# What all policies share


@pytest.mark.parametrize("policy", POLICIES)
def test_counts_follow_what_is_queued(policy: str) -> None:
    queue = make_queue(policy, 4)
    queue.add(ticket("a", 1, count=3))
    queue.add(ticket("b", 2, count=2))
    queue.add(ticket("a", 3, scheduler="t"))
    queue.check_invariants()
    assert (len(queue), queue.user_count("a"), queue.user_count("none")) == (6, 4, 0)
    assert queue.users() == {"a": 4, "b": 2}
    assert sorted(t.key for t in queue.tickets()) == [("s", 1), ("s", 2), ("t", 3)]
    assert queue.ticket(("s", 1)) is not None
    assert queue.ticket(("s", 9)) is queue.ticket(("none", 1)) is None
    charges = [take(queue) for _ in range(6)]
    assert (len(queue), queue.users(), list(queue.tickets())) == (0, {}, [])
    assert queue.take(anything) is None
    for charge in charges:
        queue.settle(charge, 0.1)
    queue.check_invariants()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_key_queued_again_grows_and_keeps_its_place(policy: str) -> None:
    queue = make_queue(policy, 4)
    queue.add(ticket("a", 1))
    queue.add(ticket("a", 2))
    queue.add(ticket("a", 1, count=2))
    assert (len(queue), queue.users()) == (4, {"a": 4})
    assert [take(queue).ticket.key[1] for _ in range(4)] == [1, 1, 1, 2]


@pytest.mark.parametrize("policy", POLICIES)
def test_cancel_removes_a_ticket_a_scheduler_or_everything(policy: str) -> None:
    queue = make_queue(policy, 4)
    for number in range(4):
        queue.add(ticket("ab"[number % 2], number, count=number + 1, priority=number))
        queue.add(ticket("ab"[number % 2], number, scheduler="t", count=10))
    charge = take(queue)
    taken = charge.ticket.key == ("s", 2)
    assert queue.cancel(("s", 2)) == 3 - taken
    assert queue.cancel(("s", 2)) == queue.cancel(("x", 0)) == queue.cancel_scheduler("x") == 0
    queue.check_invariants()
    assert queue.cancel_scheduler("t") == 40
    queue.check_invariants()
    assert {t.key[0] for t in queue.tickets()} == {"s"}
    rest = len(queue)
    assert (queue.clear(), len(queue), queue.users()) == (rest, 0, {})
    queue.check_invariants()
    queue.settle(charge, 1.0)  # what was taken before is not touched
    queue.check_invariants()


@pytest.mark.parametrize("policy", POLICIES)
def test_nothing_that_may_run_is_none_and_no_charge(policy: str) -> None:
    queue = make_queue(policy, 4)
    for number, user in enumerate("aabbc"):
        queue.add(ticket(user, number))
    for _ in range(10):
        assert queue.take(nothing) is None
        queue.check_invariants()
    assert [take(queue).ticket.user for _ in range(5)] in (list("abcab"), list("aabbc"))


@pytest.mark.parametrize("policy", POLICIES)
def test_within_a_user_tickets_go_in_order_and_those_that_may_not_run_are_passed_over(policy: str) -> None:
    queue = make_queue(policy, 4)
    for number in range(6):
        queue.add(ticket("a", number))
    order = [take(queue, lambda t: t.key[1] % 2 == 1).ticket.key[1] for _ in range(3)]
    order += [take(queue).ticket.key[1] for _ in range(3)]
    assert order == [1, 3, 5, 0, 2, 4]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(
    "fields",
    [
        {"count": 0},
        {"count": -1},
        {"weight": 0.0},
        {"weight": -1.0},
        {"weight": float("nan")},
        {"weight": float("inf")},
        {"expected_duration_s": -0.1},
        {"expected_duration_s": float("nan")},
        {"expected_duration_s": float("inf")},
    ],
)
def test_numbers_out_of_range_are_refused_and_nothing_is_queued(policy: str, fields: dict[str, float]) -> None:
    queue = make_queue(policy, 4)
    with pytest.raises(ValueError, match="must be"):
        queue.add(ticket(**fields))
    assert len(queue) == 0
    queue.check_invariants()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_charge_ends_once(policy: str) -> None:
    queue = make_queue(policy, 4)
    queue.add(ticket(count=5))
    settled, refunded = take(queue), take(queue)
    for bad in (-1.0, float("nan"), float("inf"), 2 * MAX_DURATION_S):
        with pytest.raises(ValueError, match="service_s"):
            queue.settle(settled, bad)
    queue.settle(settled, 0.1)
    queue.refund(refunded)
    for charge in (settled, refunded):
        with pytest.raises(ValueError, match="settled or refunded before"):
            queue.refund(charge)
        with pytest.raises(ValueError, match="settled or refunded before"):
            queue.settle(charge, 0.1)
    queue.check_invariants()


def test_make_queue_knows_three_policies() -> None:
    assert [type(make_queue(policy, 1)) for policy in POLICIES] == [FairQueue, FifoQueue, PriorityQueue]
    with pytest.raises(ValueError, match=r"'lottery'.*'fair', 'fifo', 'priority'"):
        make_queue("lottery", 1)
    with pytest.raises(ValueError, match="slots"):
        make_queue("fair", 0)


def test_the_invariants_notice_what_is_wrong() -> None:
    queue = FairQueue(2)
    queue.add(ticket(count=3))
    queue.size = 2
    with pytest.raises(AssertionError, match="counted 3, kept 2"):
        queue.check_invariants()
    queue.size = 3
    queue._level.flows["u"].entry = None
    with pytest.raises(AssertionError, match="backlogged"):
        queue.check_invariants()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_predicate_that_raises_leaves_the_queue_whole(policy: str) -> None:
    queue = make_queue(policy, 4)
    for user in "abc":
        queue.add(ticket(user, ord(user)))

    def fails_at_c(ticket: QueuedTicket) -> bool:
        if ticket.user == "c":
            raise RuntimeError("boom")
        return False

    with pytest.raises(RuntimeError, match="boom"):
        queue.take(fails_at_c)
    queue.check_invariants()
    assert [take(queue).ticket.user for _ in range(3)] == ["a", "b", "c"]


# FIFO and priority


def test_fifo_serves_tickets_in_order_of_arrival() -> None:
    queue = make_queue("fifo", 4)
    for number, user in enumerate("abab"):
        queue.add(ticket(user, number, count=2, weight=1.0 + number))
    assert [take(queue).ticket.key[1] for _ in range(8)] == [0, 0, 1, 1, 2, 2, 3, 3]


def test_priority_serves_the_highest_first_and_lower_ones_when_it_may_not_run() -> None:
    queue = make_queue("priority", 4)
    for number, priority in enumerate((0, 5, -5, 5)):
        queue.add(ticket("u", number, priority=priority))
    assert take(queue, lambda t: t.priority < 5).ticket.key[1] == 0
    assert [take(queue).ticket.key[1] for _ in range(3)] == [1, 3, 2]


def test_priority_levels_go_when_idle() -> None:
    queue = make_queue("priority", 4)
    assert isinstance(queue, PriorityQueue)
    for number in range(100):
        queue.add(ticket("u", number, priority=number))
    charges = [take(queue) for _ in range(50)]
    queue.clear()
    assert queue.flow_count == 50
    for charge in charges:
        queue.settle(charge, 1.0)
    assert queue.flow_count == 0
    queue.check_invariants()
    queue.add(ticket("u", 1000, priority=1000))
    assert [level.priority for level in queue._levels()] == [1000]


# Fair: charges


def test_estimates_are_what_is_stated_else_the_users_mean_else_the_default() -> None:
    queue = FairQueue(4)
    queue.add(ticket("a", 1, count=100))
    first, second = take(queue), take(queue)
    assert first.estimate_s == second.estimate_s == TURN_S
    queue.settle(first, 2.0)
    third = take(queue)
    assert third.estimate_s == 2.0
    queue.settle(third, 1.0)
    assert 1.0 < take(queue).estimate_s < 2.0
    queue.add(ticket("b", 2, count=2, expected_duration_s=7.5))
    charge = take(queue, lambda t: t.user == "b")
    assert charge.estimate_s == TURN_S
    queue.settle(charge, 3.0)
    assert take(queue, lambda t: t.user == "b").estimate_s == 3.0
    queue.add(ticket("b", 3, expected_duration_s=0.5))
    assert take(queue, lambda t: t.user == "b").estimate_s == 0.5


def test_a_charge_is_bounded_by_the_operators_maximum() -> None:
    queue = FairQueue(4, charge_s_max=2.0)
    queue.add(ticket("a", 1, count=3, expected_duration_s=1e9))
    queue.settle(take(queue), 1e6)
    assert take(queue).estimate_s == 2.0
    for bad in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="charge_s_max must be above 0"):
            FairQueue(4, charge_s_max=bad)


def test_a_no_op_does_not_cost_the_user_its_turn() -> None:
    """User "a" asks in vain 50 times and is next each time, whoever came in between and however bad the estimate."""
    queue = FairQueue(4)
    queue.add(ticket("b", 1, count=100))
    queue.add(ticket("a", 2, count=100, expected_duration_s=1000.1, weight=3.0))
    queue.add(ticket("c", 3, count=100))
    assert take(queue).ticket.user == "b"
    for number in range(50):
        charge = take(queue)
        assert charge.ticket.user == "a"
        if number % 2:
            queue.add(ticket("late", number + 10))  # starts at V, "a"'s tag, but came later
        queue.refund(charge)
    assert len(queue) == 100 - 1 + 100 - 50 + 100 + 25


def test_a_weight_that_changes_counts_from_then_on() -> None:
    queue = FairQueue(1)
    queue.add(ticket("a", 1, count=1000))
    queue.add(ticket("b", 2, count=1000))

    def shares(rounds: int) -> dict[str, int]:
        got = {"a": 0, "b": 0}
        for _ in range(rounds):
            charge = take(queue)
            got[charge.ticket.user] += 1
            queue.settle(charge, 0.1)
        return got

    assert shares(100) == {"a": 50, "b": 50}
    queue.add(ticket("b", 2, weight=3.0))  # the same ticket again
    assert shares(400)["b"] == pytest.approx(300, abs=2)
    queue.add(ticket("b", 3, weight=1.0))  # another one
    assert shares(100)["b"] == pytest.approx(50, abs=2)


def test_a_charge_is_corrected_at_the_weight_it_was_made_at() -> None:
    queue = FairQueue(4)
    queue.add(ticket("a", 1, count=100, expected_duration_s=1.0))
    flow = queue._level.flows["a"]
    first, second = take(queue), take(queue)
    queue.add(ticket("a", 2, weight=100.0))
    queue.settle(first, 3.0)
    assert flow.position()[0] == int((3.0 + TURN_S) * 1e15)
    queue.refund(second)
    assert flow.position()[0] == int(3.0 * 1e15)


def test_a_reservation_handed_back_keeps_its_turn() -> None:
    """Refund and add, in either order, of the only reservation that its user has."""
    for add_first in (False, True):
        queue = FairQueue(4)
        queue.add(ticket("a", 1))
        queue.add(ticket("b", 2, count=100))
        back = take(queue)
        assert (back.ticket.user, take(queue).ticket.user) == ("a", "b")
        if add_first:
            queue.add(ticket("a", 1))
        queue.refund(back)
        if not add_first:
            queue.add(ticket("a", 1))
        assert [take(queue).ticket.user for _ in range(2)] == ["a", "b"]


def test_a_take_without_result_costs_nobody_what_it_is_owed() -> None:
    """Corrections leave "a" far behind V; a take that finds that nobody may run leaves it there."""
    queue = FairQueue(4)
    queue.add(ticket("a", 1, count=100, expected_duration_s=1.0))
    queue.add(ticket("b", 2, count=100, expected_duration_s=1.0))
    for charge in [take(queue) for _ in range(8)]:
        queue.settle(charge, 0.0 if charge.ticket.user == "a" else 1.0)
    assert queue.take(nothing) is None
    assert [take(queue).ticket.user for _ in range(4)] == ["a"] * 4


# Fair: idle users


def served(queue: FairQueue, count: int) -> list[str]:
    """Whose tasks are the next ones, each of which takes 0.1 s."""
    users = []
    for _ in range(count):
        charge = take(queue)
        users.append(charge.ticket.user)
        queue.settle(charge, 0.1)
    return users


def test_idleness_saves_nothing_up() -> None:
    queue = FairQueue(1)
    queue.add(ticket("busy", 1, count=10_000))
    queue.add(ticket("idle", 2))
    for _ in range(1000):
        queue.settle(take(queue), 0.1)
    queue.add(ticket("idle", 3, count=100))
    assert served(queue, 20).count("idle") == 10


def test_a_user_that_was_passed_over_saves_nothing_up_either() -> None:
    queue = FairQueue(1)
    queue.add(ticket("small", 1, count=10_000))
    queue.add(ticket("huge", 2, count=10_000))
    for _ in range(1000):
        queue.settle(take(queue, lambda t: t.user == "small"), 0.1)
    assert served(queue, 20).count("huge") == 10


def test_debt_is_remembered_while_others_are_busy_and_then_forgotten() -> None:
    queue = FairQueue(1)
    queue.add(ticket("a", 1, expected_duration_s=1.0))
    queue.add(ticket("b", 2, count=1000, expected_duration_s=0.1))
    charge = take(queue)
    assert charge.ticket.user == "a"
    queue.settle(charge, 1.0)
    assert queue.flow_count == 2  # a owes a second
    queue.add(ticket("a", 3, expected_duration_s=1.0))  # back at once
    users = []
    for _ in range(12):
        charge = take(queue)
        users.append(charge.ticket.user)
        queue.settle(charge, {"a": 1.0, "b": 0.1}[charge.ticket.user])
    assert users.index("a") == 11  # b has a second first, and then wins the tie, having waited longer
    assert queue.flow_count == 2
    for _ in range(10):
        queue.settle(take(queue), 0.1)
    assert queue.flow_count == 1  # paid
    queue.check_invariants()


@pytest.mark.parametrize("estimate_s", [None, 0.001, 100.0])
@pytest.mark.parametrize("held", [1, 4])
def test_cycling_between_idle_and_backlogged_gains_nothing(estimate_s: float | None, held: int) -> None:
    """The cyclist queues `held` reservations at a time, again only when their tasks have ended, and states nonsense;
    the steady user always has something queued. The cyclist gets its half at most, give or take what is in flight."""
    rng = random.Random(7)

    def on_end(done: QueuedTicket) -> None:
        if done.user == "cyclist" and not node.running["cyclist"]:
            node.add("cyclist", held, expected_duration_s=estimate_s)

    node = VirtualNode(make_queue("fair", 4), 4, lambda t: rng.choice((0.01, 0.1)), on_end=on_end, latency_s=0.002)
    node.add("steady", 1_000_000)
    node.add("cyclist", held, expected_duration_s=estimate_s)
    node.run(200.0)
    assert node.served["cyclist"] > 1.0
    assert node.served["cyclist"] <= node.served["steady"] + 4 * 4 * 0.1


@pytest.mark.parametrize("end", ["refund", "settle"])
def test_an_overestimate_from_before_a_lift_is_no_credit(end: str) -> None:
    """Charges of 100 s that come to nothing after the user was lifted to V: nothing was believed of them."""
    queue = FairQueue(8)
    queue.add(ticket("cyclist", 1, count=4, expected_duration_s=100.0))
    held = [take(queue) for _ in range(4)]
    queue.add(ticket("steady", 2, count=100_000))
    for _ in range(10_000):
        queue.settle(take(queue), 0.1)
    queue.add(ticket("cyclist", 3, count=1000, expected_duration_s=0.1))
    for charge in held:
        queue.refund(charge) if end == "refund" else queue.settle(charge, 0.0)
    users = []
    for _ in range(20):
        charge = take(queue)
        users.append(charge.ticket.user)
        queue.settle(charge, 0.1)
    assert users.count("cyclist") in (10, 11)


def test_a_busy_period_ends_with_nothing_remembered() -> None:
    queue = FairQueue(4)
    for number in range(10):
        queue.add(ticket(f"u{number}", number, count=3, weight=1.0 + number))
    charges = [take(queue) for _ in range(30)]
    for number, charge in enumerate(charges):
        assert queue.flow_count > 0
        queue.settle(charge, 0.01 * number) if number % 3 else queue.refund(charge)
        queue.check_invariants()
    assert queue.flow_count == 0
    queue.add(ticket("u9", 1))
    assert take(queue).estimate_s == TURN_S


def test_debtors_are_limited() -> None:
    """One task runs for ever, nobody waits, and a stream of users comes once each: V stands still, all stay in debt."""
    queue = FairQueue(4)
    queue.add(ticket("long", 0))
    queue.take(anything)
    for number in range(1, 3 * MAX_DEBTORS):
        queue.add(ticket(f"u{number}", number))
        charge = queue.take(anything)
        assert charge is not None
        queue.settle(charge, 1.0 + number)
    queue.check_invariants()
    assert queue.flow_count == MAX_DEBTORS + 1
    assert len(queue._level.debts) == MAX_DEBTORS


def test_heaps_stay_in_proportion_to_the_users() -> None:
    """Estimates far too high leave a dead entry each; so do users that come and are cancelled."""
    queue = FairQueue(4)
    queue.add(ticket("a", 0, count=100_000, expected_duration_s=1000.0))
    queue.add(ticket("b", 1, count=100_000, expected_duration_s=1000.0))
    owing = [take(queue), take(queue)]
    for number in range(2, 5000):
        charge = queue.take(anything)
        assert charge is not None
        queue.settle(charge, 0.01)
        queue.add(ticket("c", number))
        queue.cancel(("s", number))
        level = queue._level
        assert len(level.heap) + len(level.debts) <= 200
    for charge in owing:
        queue.settle(charge, 0.01)
    queue.check_invariants()


@pytest.mark.parametrize("running", [True, False])
def test_coming_and_being_cancelled_again_and_again_leaves_nothing(running: bool) -> None:
    """A user with a task running, or in debt, far beyond V: its dead entries would not come up for long."""
    queue = FairQueue(4)
    queue.add(ticket("a", 0, count=100_000))
    queue.add(ticket("b", 1, expected_duration_s=1e6))
    charge = take(queue, lambda t: t.user == "b")
    if not running:
        queue.settle(charge, 1e6)
    for number in range(2, 2000):
        queue.add(ticket("b", number))
        assert queue.cancel(("s", number)) == 1
        level = queue._level
        assert len(level.heap) + len(level.debts) <= 150
    assert queue.flow_count == 2
    queue.check_invariants()


def test_heaps_shrink_with_the_users() -> None:
    """A thousand users leave an entry far up each, then all but one are gone."""
    queue = FairQueue(4)
    for number in range(1000):
        queue.add(ticket(f"u{number}", number, count=2, expected_duration_s=1000.0))
    charges = [queue.take(anything) for _ in range(1000)]
    for charge in charges:
        assert charge is not None
        queue.settle(charge, 0.01)  # the entry at 1000 s is dead
    queue.add(ticket("stays", 1000, count=100_000, expected_duration_s=0.001))
    for _ in range(1100):
        charge = queue.take(anything)
        assert charge is not None
        queue.settle(charge, 0.01)
    assert queue.flow_count == 1
    assert len(queue._level.heap) <= 70
    assert len(queue._level.debts) <= 70
    queue.check_invariants()


# Fair: the bound

ALTERNATING = -1.0
"""In place of a statement: each ticket of the user states another, 0 and 1e9 in turn."""
STATEMENTS = (None, 0.0, 0.1, 3.0, 1e9, ALTERNATING)


@st.composite
def workloads(draw: st.DrawFn) -> dict[str, object]:
    users = draw(st.integers(2, 4))
    return {
        "seed": draw(st.integers(0, 2**32)),
        "slots": draw(st.integers(1, 8)),
        "latency_s": draw(st.sampled_from((0.0, 0.003, 0.2))),
        "weights": draw(st.lists(st.floats(0.1, 10.0), min_size=users, max_size=users)),
        # Durations of a user's tasks: its own scale times 1 to 10.
        "scales": draw(st.lists(st.sampled_from((0.01, 0.03, 0.1)), min_size=users, max_size=users)),
        # Stated: nothing, something near the truth, or wrong by a lot, or now too little and then too much.
        "stated": draw(st.lists(st.sampled_from(STATEMENTS), min_size=users, max_size=users)),
        "no_ops": draw(st.sampled_from((0.0, 0.1, 0.7))),
        "idle": draw(st.booleans()),  # users come and go
        "unable": draw(st.booleans()),  # the last user may run only some of the time
    }


def simulate(
    seed: int,
    slots: int,
    latency_s: float,
    weights: list[float],
    scales: list[float],
    stated: list[float | None],
    no_ops: float,
    idle: bool,
    unable: bool,
    check: bool = False,
) -> tuple[VirtualNode, list[GapWatch]]:
    rng = random.Random(seed)
    names = [f"u{number}" for number in range(len(weights))]
    lies = cycle((0.0, 1e9))
    picky = names[-1] if unable and len(names) > 2 else None  # not among those watched then

    def outcome(ticket: QueuedTicket) -> float | None:
        if rng.random() < no_ops:
            return None
        return scales[names.index(ticket.user)] * 10 ** rng.random()

    node = VirtualNode(
        make_queue("fair", slots),
        slots,
        outcome,
        latency_s=latency_s,
        may_run=lambda ticket: ticket.user != picky or int(node.now * 7) % 2 == 0,
    )
    watched = [(name, weight) for name, weight in zip(names, weights, strict=True) if name != picky]
    node.watches = [GapWatch(*pair) for pair in combinations(watched, 2)]
    for name, weight, expected_duration_s in zip(names, weights, stated, strict=True):
        start = rng.uniform(0.0, 1.0)
        for _ in range(20 if idle else 200 if expected_duration_s == ALTERNATING else 1):
            number = rng.choice((1, 5, 50)) if idle or expected_duration_s == ALTERNATING else 100_000
            stated_s = next(lies) if expected_duration_s == ALTERNATING else expected_duration_s
            node.at(
                start,
                lambda name=name, number=number, weight=weight, expected=stated_s: node.add(  # type: ignore[misc]
                    name, number, weight=weight, expected_duration_s=expected
                ),
            )
            start += rng.expovariate(4.0) if idle else 0.0
    if check:
        for step in range(200):
            node.at(step * 0.04, node.queue.check_invariants)
    node.run(8.0)
    return node, node.watches


@settings(max_examples=80)
@given(workloads())
def test_while_two_users_stay_backlogged_their_services_differ_by_no_more_than_the_bound(
    workload: dict[str, object],
) -> None:
    node, watches = simulate(**workload, check=True)  # type: ignore[arg-type]
    node.queue.check_invariants()
    for watch in watches:
        assert watch.outstanding <= node.slots
        assert watch.worst <= watch.bound(node)


def test_the_bound_is_not_idle() -> None:
    """The watch sees differences of the order of the bound (else the test above might measure nothing), and a queue
    that forgets to correct charges breaks it."""
    workload = {
        "seed": 1,
        "slots": 4,
        "latency_s": 0.0,
        "weights": [1.0, 1.0],
        "scales": [0.01, 0.1],
        "stated": [0.1, 0.1],
        "no_ops": 0.0,
        "idle": False,
        "unable": False,
    }
    node, (watch,) = simulate(**workload)  # type: ignore[arg-type]
    assert watch.bound(node) / 20 < watch.worst <= watch.bound(node)
    with pytest.MonkeyPatch.context() as patch:
        settle = FairQueue.settle
        patch.setattr(FairQueue, "settle", lambda self, charge, service_s: settle(self, charge, charge.estimate_s))
        node, (watch,) = simulate(**workload)  # type: ignore[arg-type]
    assert watch.worst > watch.bound(node)


@pytest.mark.parametrize("stated_s", [None, 1e9])
def test_in_the_long_run_shares_are_exact_whatever_durations_do(stated_s: float | None) -> None:
    """One user's tasks take 2 ms or 200 ms, by chance: it is neither better nor worse off by more than the bound."""
    rng = random.Random(2)
    node = VirtualNode(make_queue("fair", 4), 4, lambda t: rng.choice((0.002, 0.2)) if t.user == "a" else 0.1)
    node.add("a", 10_000_000, expected_duration_s=stated_s)
    node.add("b", 10_000_000)
    node.run(1000.0)
    assert node.served["a"] == pytest.approx(2000.0, rel=0.001)


@settings(max_examples=60)
@given(st.sampled_from(STATEMENTS[:-1]), st.sampled_from((0.001, 0.01, 0.1)), st.integers(1, 8), st.integers(0, 9999))
def test_a_newcomer_beside_one_user_gets_the_next_slot(
    stated_s: float | None, task_s: float, slots: int, seed: int
) -> None:
    rng = random.Random(seed)
    node = VirtualNode(make_queue("fair", slots), slots, lambda t: task_s * 10 ** rng.random())
    node.add("b", 1_000_000, expected_duration_s=stated_s)
    node.at(1.0, lambda: node.add("a", 1, expected_duration_s=1e9))
    node.run(1.0)
    before = len(node.started)
    node.run(1.0 + 10 * task_s)
    assert node.started[before][1].user == "a"


@settings(max_examples=60)
@given(st.lists(st.sampled_from(STATEMENTS[:-1]), min_size=1, max_size=6), st.integers(1, 8), st.integers(0, 9999))
def test_a_newcomer_beside_several_users_waits_for_a_bounded_service(
    stated: list[float | None], slots: int, seed: int
) -> None:
    rng = random.Random(seed)
    node = VirtualNode(make_queue("fair", slots), slots, lambda t: 0.01 * 10 ** rng.random())
    for number, stated_s in enumerate(stated):
        node.add(f"u{number}", 1_000_000, expected_duration_s=stated_s)
    node.at(1.0, lambda: node.add("new", 1))
    node.run(1.0)
    before = len(node.started)
    node.run(3.5)
    users = [ticket.user for _, ticket in node.started[before:]]
    behind = min(slots, len(stated))
    assert users.index("new") * 0.01 <= (slots + slots * behind + len(stated)) * 0.1


def test_tasks_that_last_ten_times_longer_get_no_more_of_the_node() -> None:
    node = VirtualNode(make_queue("fair", 8), 8, lambda t: 1.0 if t.user == "long" else 0.1)
    node.add("long", 100_000)
    node.add("short", 100_000)
    node.run(500.0)
    assert node.served["long"] == pytest.approx(2000.0, abs=8 * 4 * 1.0 / 2)
    assert sum(node.served.values()) == pytest.approx(8 * 500.0)


def test_an_idle_share_goes_to_the_others_at_once() -> None:
    node = VirtualNode(make_queue("fair", 4), 4, lambda t: 0.1)
    node.add("a", 100_000, weight=1.0)
    node.add("b", 40, weight=9.0)
    node.run(20.0)
    assert node.served == pytest.approx({"a": 20.0 * 4 - 4.0, "b": 4.0})


# Fair: the heap against a plain search

STEPS = st.lists(
    st.tuples(st.sampled_from(("add", "take", "take", "refund", "settle", "cancel", "none")), st.integers(0, 2**16)),
    max_size=120,
)


@settings(max_examples=200)
@given(STEPS)
def test_every_take_serves_the_least_tag_of_those_that_may_run(steps: list[tuple[str, int]]) -> None:
    queue = FairQueue(4)
    charges: list[Charge] = []
    virtual = 0
    for number, (step, pick) in enumerate(steps):
        if step == "add":
            user = f"u{pick % 5}"
            stated = (None, 0.0, 0.5, 20.0)[pick // 5 % 4]
            weight = (0.5, 1.0, 3.0)[pick // 20 % 3]
            queue.add(ticket(user, number, weight=weight, expected_duration_s=stated, count=1 + pick % 17))
        elif step == "cancel":
            queue.cancel(("s", pick % (number + 1)))
        elif step == "none":
            assert queue.take(nothing) is None
        elif step == "take":
            barred = pick % 6  # at most one user may not run
            may_run = lambda t, barred=barred: t.user != f"u{barred}"  # type: ignore[misc]  # noqa: E731
            flows = [flow for flow in queue._level.flows.values() if any(map(may_run, flow.tickets.values()))]
            best = min(flows, key=lambda flow: (*flow.position(), flow.order), default=None)
            if best is None:
                assert queue.take(may_run) is None
            else:
                (tag, _), true, expected = best.position(), best.true, next(iter(best.tickets.values()))
                charge = take(queue, may_run)
                assert charge.ticket is expected
                assert best.position()[0] - tag == int(max(charge.estimate_s, LEAST_CHARGE_S) * best.rate)
                assert best.level.virtual >= true
                charges.append(charge)
        elif charges:
            charge = charges.pop(pick % len(charges))
            queue.refund(charge) if step == "refund" else queue.settle(charge, (0.0, 0.1, 5.0)[pick % 3])
        queue.check_invariants()
        level_virtual = queue._level.virtual
        assert level_virtual >= virtual or not queue.flow_count  # back to 0 only with all forgotten
        virtual = level_virtual
    queue.clear()
    for charge in charges:
        queue.settle(charge, 0.3)
    assert queue.flow_count == 0
    queue.check_invariants()


def test_a_refund_restores_the_tag_to_the_last_digit() -> None:
    rng = random.Random(3)
    queue = FairQueue(4)
    queue.add(ticket("a", 1, count=10_000, weight=0.3))
    flow = queue._level.flows["a"]
    for _ in range(1000):
        queue.settle(take(queue), rng.random())
        before = flow.position()[0]
        charges = [take(queue) for _ in range(3)]
        rng.shuffle(charges)
        for charge in charges:
            queue.refund(charge)
        assert flow.position()[0] == before


def test_thousands_of_users_are_served_in_turn() -> None:
    queue = FairQueue(16)
    for number in range(5000):
        queue.add(ticket(f"u{number}", number, count=100_000))
    served = []
    for _ in range(15_000):
        charge = queue.take(anything)
        assert charge is not None
        served.append(charge.ticket.key[1])
        queue.settle(charge, 0.1)
    assert all(sorted(served[at : at + 5000]) == list(range(5000)) for at in range(0, 15_000, 5000))
    assert all(b - a in (1, -4999) for a, b in pairwise(served))
    queue.check_invariants()
