"""Gangs that do not start keep slots from others for half of the time at most, and soon for hardly any of it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from scheduler.flow.hold_turns import FORGOTTEN_AFTER_HOLDS, PAUSE_HOLDS_MAX, USERS_MAX, HoldTurns

HOLD_S = 30.0


def kept_s(turns: HoldTurns, users: list[str], seconds: range, stop_after_s: float = HOLD_S) -> float:
    """For how many of these seconds slots are kept while users have gangs without end that do not start. Whoever had
    slots kept for so long withdraws its gang, and the next user is first."""
    kept = at_once = 0.0
    users = list(users)
    for second in seconds:
        user = next((one for one in users if turns.may_hold(one, float(second))), None)
        if user is None:
            at_once = 0.0
            continue
        turns.held(user, 4, 1.0, float(second + 1))
        kept, at_once = kept + 1.0, at_once + 1.0
        if at_once >= stop_after_s:
            at_once = 0.0
            users.append(users.pop(users.index(user)))
    return kept


def test_others_have_half_of_the_time_at_first_and_nearly_all_soon() -> None:
    turns = HoldTurns(HOLD_S)
    assert kept_s(turns, ["eve"], range(60)) == 30
    assert kept_s(turns, ["eve"], range(60, 600)) <= 4 * 30
    kept_s(turns, ["eve"], range(600, 4000))
    assert kept_s(turns, ["eve"], range(4000, 14000)) <= 10000 / PAUSE_HOLDS_MAX + HOLD_S


@given(st.integers(1, 6), st.integers(1, 35))
def test_others_have_half_of_the_time_whoever_has_gangs_and_withdraws_them(users: int, stop_after_s: int) -> None:
    names = [f"u{number}" for number in range(users)]
    kept = kept_s(HoldTurns(HOLD_S), names, range(2000), stop_after_s)
    assert kept <= 1000 + users * HOLD_S
    assert kept >= min(users, 2) * HOLD_S


def test_a_start_of_a_gang_that_is_no_smaller_has_all_forgotten() -> None:
    turns = HoldTurns(HOLD_S)
    turns.held("ann", 16, HOLD_S, 30.0)
    turns.started("ann", 2)
    assert not turns.may_hold("ann", 59.0) and len(turns) == 1
    turns.held("ann", 16, HOLD_S, 100.0)
    assert not turns.may_hold("ann", 159.0) and turns.may_hold("ann", 160.0)
    turns.started("ann", 16)
    assert turns.may_hold("ann", 130.0) and len(turns) == 0


def test_a_user_whose_gangs_had_no_slots_for_long_begins_anew() -> None:
    turns = HoldTurns(HOLD_S)
    for end_s in (30.0, 100.0, 300.0):
        turns.held("ann", 4, HOLD_S, end_s)
    late_s = 300.0 + 4 * HOLD_S + FORGOTTEN_AFTER_HOLDS * HOLD_S
    assert turns.may_hold("ann", late_s - 1) and len(turns) == 1
    assert turns.may_hold("ann", late_s) and len(turns) == 0


def test_so_many_users_are_remembered() -> None:
    turns = HoldTurns(HOLD_S)
    for number in range(USERS_MAX + 10):
        turns.held(f"u{number}", 4, 1.0, float(number))
    assert len(turns) == USERS_MAX


def test_slots_are_kept_for_a_while_even_if_gangs_need_not_wait_for_that() -> None:
    assert HoldTurns(0.0).hold_s > 0.0
