"""Turns between users of the central plane: charges, refunds, what is remembered, and that books add up throughout."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.central.shares import DEBTORS_MAX, TURN_S, Charge, Shares


def serve(shares: Shares, expected_s: float | None = None) -> tuple[str, Charge]:
    """One task of the user whose turn it is."""
    user = shares.first()
    assert user is not None
    return user, shares.charge(user, expected_s)


def test_nobody_waits_at_first() -> None:
    assert Shares().first() is None


def test_a_user_with_twice_the_weight_gets_two_turns_of_three() -> None:
    shares = Shares()
    shares.waits("light", 1.0)
    shares.waits("heavy", 2.0)
    turns = []
    for _ in range(30):
        user, charge = serve(shares)
        shares.settle(charge, 0.1)
        turns.append(user)
    assert turns.count("heavy") == 20


def test_who_waits_again_has_saved_nothing_up() -> None:
    shares = Shares()
    shares.waits("busy", 1.0)
    for _ in range(100):
        shares.settle(serve(shares)[1], 1.0)
    shares.waits("new", 1.0)
    turns = []
    for _ in range(10):
        user, charge = serve(shares)
        shares.settle(charge, 1.0)
        turns.append(user)
    assert turns[0] == "new" and turns.count("new") == 5


def test_who_leaves_and_comes_back_still_owes() -> None:
    shares = Shares()
    for user in ("a", "b"):
        shares.waits(user, 1.0)
    first, charge = serve(shares)
    shares.settle(charge, 10.0)
    shares.waits_no_more(first)
    shares.waits(first, 1.0)
    for _ in range(9):
        user, charge = serve(shares)
        assert user != first
        shares.settle(charge, 1.0)


def test_a_refund_gives_the_turn_back() -> None:
    shares = Shares()
    for user in ("a", "b"):
        shares.waits(user, 1.0)
    first, charge = serve(shares, 5.0)
    shares.refund(charge)
    assert shares.first() == first


def test_a_user_is_not_believed_that_says_less_or_more_than_its_tasks_take() -> None:
    shares = Shares()
    shares.waits("a", 1.0)
    assert serve(shares, 1e9)[1].estimate_s == TURN_S
    _, charge = serve(shares, 0.0)
    assert charge.estimate_s == 0.0 and charge.cost > 0
    shares.settle(charge, 0.5)
    assert serve(shares, 1e9)[1].estimate_s == 0.5


def test_what_cannot_be_is_not_counted() -> None:
    shares = Shares()
    for user in ("a", "b"):
        shares.waits(user, 1.0)
    for service_s in (-1.0, float("nan"), float("inf"), 1e300):
        user, charge = serve(shares)
        shares.settle(charge, service_s)
        assert shares.problem({"a", "b"}) is None and user in "ab"
    assert {serve(shares)[0] for _ in range(2)} == {"a", "b"}


def test_debts_of_users_that_left_are_remembered_up_to_a_maximum() -> None:
    shares = Shares()
    shares.waits("stays", 1.0)
    serve(shares)
    for number in range(4 * DEBTORS_MAX):
        user = f"u{number}"
        shares.waits(user, 1.0)
        while shares.first() != user:
            serve(shares)
        charge = shares.charge(user, None)
        shares.waits_no_more(user)
        shares.settle(charge, 100.0)
    assert len(shares._shares) <= 2 * DEBTORS_MAX + 2
    assert shares.problem({"stays"}) is None


def test_nothing_is_remembered_once_nobody_is_here() -> None:
    shares = Shares()
    shares.waits("a", 1.0)
    _, charge = serve(shares)
    shares.waits_no_more("a")
    shares.settle(charge, 3.0)
    assert (shares.virtual, len(shares._shares), shares.first()) == (0.0, 0, None)


STEPS = st.one_of(
    st.tuples(st.just("waits"), st.integers(0, 3), st.sampled_from([0.5, 1.0, 3.0])),
    st.tuples(st.just("waits no more"), st.integers(0, 3), st.none()),
    st.tuples(st.just("round"), st.integers(1, 4), st.booleans()),
    st.tuples(st.just("settle"), st.integers(0, 9), st.sampled_from([None, 0.0, 0.1, 2.0])),
    st.tuples(st.just("refund"), st.integers(0, 9), st.none()),
)


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(STEPS, max_size=60))
def test_books_add_up_whatever_happens(steps: list[tuple[str, int, float | bool | None]]) -> None:
    shares, waiting, charges = Shares(), set[str](), list[Charge]()
    for verb, pick, extra in steps:
        user = f"u{pick}"
        if verb == "waits":
            shares.waits(user, float(extra or 1.0))
            waiting.add(user)
        elif verb == "waits no more" and user in waiting:
            shares.waits_no_more(user)
            waiting.discard(user)
        elif verb == "round":
            passed = set()
            for turn in range(pick):
                first = shares.first()
                assert (first is None) == (waiting == passed)
                if first is None:
                    break
                assert first in waiting - passed
                if extra and turn % 2 == 0:
                    shares.pass_over(first)
                    passed.add(first)
                else:
                    charges.append(shares.charge(first, None))
            shares.end_round()
        elif verb == "settle" and charges:
            shares.settle(charges.pop(pick % len(charges)), extra)
        elif verb == "refund" and charges:
            shares.refund(charges.pop(pick % len(charges)))
        assert shares.problem(waiting) is None
    for charge in charges:
        shares.settle(charge, None)
    for user in waiting:
        shares.waits_no_more(user)
    assert not shares._shares
