"""Sessions of people who look: for whom they stand, and for how long."""

from __future__ import annotations

import itertools

import pytest

from sparrow_py.access import view_sessions
from sparrow_py.access.principals import CLIENT, CLUSTER, Principal
from sparrow_py.access.view_sessions import SESSION_S_MAX, ViewSessions

ADA, BOB, ALL = Principal(CLIENT, "ada", b"a"), Principal(CLIENT, "bob", b"b"), Principal(CLUSTER, "", b"c")


@pytest.fixture
def withdrawn() -> set[Principal]:
    return set()


@pytest.fixture
def sessions(withdrawn: set[Principal]) -> ViewSessions:
    numbers = itertools.count()
    return ViewSessions(lambda: f"s{next(numbers)}", lambda principal: principal not in withdrawn)


def test_a_session_stands_for_who_began_it(sessions: ViewSessions) -> None:
    ada, bob = sessions.begin(ADA, 0.0), sessions.begin(BOB, 0.0)
    assert (sessions.principal(ada, 1.0), sessions.principal(bob, 1.0)) == (ADA, BOB)
    assert sessions.principal("", 1.0) is None
    sessions.end(ada)
    sessions.end("unknown")
    assert (sessions.principal(ada, 1.0), len(sessions)) == (None, 1)


def test_it_ends_with_its_time_and_with_its_token(sessions: ViewSessions, withdrawn: set[Principal]) -> None:
    ada, bob = sessions.begin(ADA, 0.0), sessions.begin(BOB, 5.0)
    assert sessions.principal(ada, SESSION_S_MAX) is None
    assert sessions.principal(bob, SESSION_S_MAX) == BOB
    withdrawn.add(BOB)
    assert sessions.principal(bob, SESSION_S_MAX) is None
    assert len(sessions) == 0


def test_there_are_so_many_and_so_many_of_one(sessions: ViewSessions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view_sessions, "SESSIONS_MAX", 3)
    monkeypatch.setattr(view_sessions, "SESSIONS_OF_PRINCIPAL_MAX", 2)
    ada = [sessions.begin(ADA, 0.0) for _ in range(3)]
    assert [sessions.principal(name, 1.0) for name in ada] == [None, ADA, ADA]
    bob, everybody = sessions.begin(BOB, 0.0), sessions.begin(ALL, 0.0)
    assert [sessions.principal(name, 1.0) for name in (*ada[1:], bob, everybody)] == [None, ADA, BOB, ALL]
