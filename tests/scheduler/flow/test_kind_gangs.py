"""Kinds of a gang have their turn in the network together."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow import kind_turns
from scheduler.flow.kind_gangs import KindGangs
from scheduler.flow.kind_turns import KindTurns
from sparrow_py.wire import messages as m
from tests.scheduler.flow.test_kind_turns import one, small
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info


def rounds_together(turns: KindTurns, kinds: set[str], rounds: int, inside: set[str] | None = None) -> list[int]:
    """In which of so many rounds all the kinds were inside, of all users."""
    found = []
    inside = set() if inside is None else inside
    for number in range(rounds):
        came, gone = turns.take_turns(one)
        inside.difference_update(gone)
        inside.update(came)
        assert len(inside) <= kind_turns.KINDS_MAX
        if kinds <= inside:
            found.append(number)
    return found


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> KindTurns:
    """Four kinds a user; turns of three rounds."""
    small(monkeypatch)
    return KindTurns()


def test_all_kinds_of_a_gang_are_inside_at_once_for_a_turn_although_others_of_the_user_came_between(
    turns: KindTurns,
) -> None:
    gang = [f"g{number}" for number in range(4)]
    for number, kind in enumerate(gang):
        turns.wanted("ann", kind, "gang")
        turns.wanted("ann", f"other{number}")
    together = rounds_together(turns, set(gang), 60)
    turn = kind_turns.TURN_ROUNDS
    assert len(together) >= 3 * turn
    first = list(itertools.takewhile(lambda pair: pair[0] == pair[1], enumerate(together, together[0])))
    assert len(first) >= turn


def test_without_being_a_gang_they_never_are(turns: KindTurns) -> None:
    gang = [f"g{number}" for number in range(4)]
    for number, kind in enumerate(gang):
        turns.wanted("ann", kind)
        turns.wanted("ann", f"other{number}")
    assert not rounds_together(turns, set(gang), 60)


def test_other_kinds_of_the_user_have_their_turns_too(turns: KindTurns) -> None:
    for number in range(4):
        turns.wanted("ann", f"other{number}")
        for gang in ("x", "y"):
            turns.wanted("ann", f"{gang}{number}", gang)
    for kinds in ("other", "x", "y"):
        inside: set[str] = set()
        assert rounds_together(turns, {f"{kinds}{number}" for number in range(4)}, 80, inside), kinds


def test_a_gang_of_more_kinds_than_a_user_may_have_comes_in_in_parts(turns: KindTurns) -> None:
    for number in range(5):
        turns.wanted("ann", f"g{number}", "large")
    turns.wanted("ann", "other")
    for kind in ("g0", "g4", "other"):
        assert rounds_together(turns, {kind}, 30), kind


def test_while_others_have_all_the_room_a_gang_gets_what_it_needs(turns: KindTurns) -> None:
    for user, number in itertools.product(("bob", "cid", "dan"), range(8)):
        turns.wanted(user, f"{user}{number}")
    inside: set[str] = set()
    rounds_together(turns, set(), 6, inside)
    assert len(inside) == 12  # Three quarters of the room.
    gang = {f"g{number}" for number in range(4)}
    for kind in sorted(gang):
        turns.wanted("ann", kind, "gang")
    assert rounds_together(turns, gang, 40, inside)
    for user in ("ann", "bob", "cid", "dan"):
        assert turns.inside(user) <= 4


def test_a_gang_whose_kinds_are_never_all_let_in_holds_up_the_others_for_so_many_rounds_at_most(
    turns: KindTurns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kind_turns, "GATHER_ROUNDS_MAX", 6)
    machines = {"g0": 99, "g1": 99, "other": 1}
    turns.wanted("ann", "g0", "gang")
    turns.wanted("ann", "g1", "gang")
    turns.wanted("ann", "g2", "gang")  # No room is left for it: two have 198 of 100 machines.
    turns.wanted("ann", "other")
    came: list[str] = []
    for _ in range(12):
        came += turns.take_turns(lambda kind: machines.get(kind, 1))[0]
    assert "other" in came


def test_gangs_of_two_users_that_share_kinds_both_get_together(turns: KindTurns) -> None:
    for number in range(4):
        turns.wanted("ann", f"k{number}", "ann's")
        turns.wanted("bob", f"k{7 - number}", "bob's")
        turns.wanted("bob", f"k{number}", "bob's other")
        turns.wanted("ann", f"a{number}")
    for low in (0, 4):
        assert rounds_together(turns, {f"k{number}" for number in range(low, low + 4)}, 80), low


def test_kinds_know_their_gangs_until_they_leave() -> None:
    gangs = KindGangs()
    gangs.remove("none", "a")
    for kind in "abc":
        gangs.add("x", kind)
    gangs.add("y", "a")
    assert list(gangs.kinds("x")) == ["a", "b", "c"]
    assert [gangs.gang_of("a", most) for most in (2, 3)] == [None, "x"]
    gangs.remove("x", "b")
    assert gangs.gang_of("a", 2) == "x" and gangs.gang_of("b", 9) is None
    for kind in "ac":
        gangs.remove("x", kind)
    assert gangs.gang_of("a", 9) is None  # One kind alone waits for no other.
    gangs.remove("y", "a")
    assert vars(gangs) == vars(KindGangs())


EVENTS = st.lists(
    st.tuples(st.sampled_from(["wanted", "left", "round", "round"]), st.integers(0, 3), st.integers(0, 9)),
    max_size=60,
)


@settings(max_examples=100, deadline=None)
@given(events=EVENTS)
def test_whatever_comes_and_goes_a_gang_gets_together_and_nothing_is_kept(events: list[tuple[str, int, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        small(patch)
        turns = KindTurns()
        wanted: set[tuple[str, str, str | None]] = set()

        def leave(user: str, kind: str, gang: str | None) -> None:
            wanted.remove((user, kind, gang))
            if gang is not None:
                turns.leaves_gang(gang, kind)
            if not any(one[:2] == (user, kind) for one in wanted):
                turns.unwanted(user, kind)

        for what, user, kind in events:
            gang = f"{'abcd'[user]}{kind % 2}" if kind > 2 else None  # Four and three kinds.
            one_of = "abcd"[user], f"k{kind}", gang
            if what == "wanted":
                wanted.add(one_of)
                turns.wanted(*one_of)
            elif what == "left" and one_of in wanted:
                leave(*one_of)
            else:
                turns.take_turns(one)
        for gang in {gang for _user, _kind, gang in wanted if gang is not None}:
            kinds = {kind for _user, kind, of in wanted if of == gang}
            for _ in range(200):
                turns.take_turns(one)
                if not any(turns.waits(kind) for kind in kinds):
                    break
            else:
                pytest.fail(f"{gang} never got together")
        for one_of in list(wanted):
            leave(*one_of)
        assert vars(turns._gangs) == vars(KindGangs())
        kept = vars(turns) | {"_round": 0, "_gangs": None, "_ahead": ""}
        assert kept == vars(KindTurns()) | {"_gangs": None}


def test_a_gang_starts_although_kinds_of_its_user_that_find_no_place_came_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kind_turns, "KINDS_PER_USER_MAX", 4)
    monkeypatch.setattr(kind_turns, "TURN_ROUNDS", 3)
    rig = FlowRig({f"n{number}": node_info(1) for number in range(8)})
    rig.submit_job(8, job="before")  # All nodes are taken.
    for number in range(4):
        prefers = {0: m.TaskDetail((f"n{number}",))}, {0: m.TaskDetail((f"n{number + 4}",))}
        rig.submit_job(1, job=f"free{number}", local=True, details=prefers[0], delay_s=1000.0)
        rig.submit_job(1, job=f"stuck{number}", local=True, details=prefers[1], delay_s=1000.0)
    details = {task: m.TaskDetail((f"n{task}",)) for task in range(4)}
    rig.submit_job(4, job="gang", gang=True, local=True, details=details, delay_s=1000.0)
    for _round in range(2):  # First what stood before, then what wanted the same nodes.
        for node in range(4):
            rig.end(f"n{node}", next(iter(rig.running[f"n{node}"])))
        for now_s in range(30):
            rig.tick(30.0 * _round + now_s)
    assert rig.placed("gang") == {task: f"n{task}" for task in range(4)}
    assert not any(rig.placed(f"stuck{number}") for number in range(4))
