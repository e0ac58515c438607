"""What an actor's owner decides, in all orders of events: each call is answered once, in order, and runs no more often
than its policy allows, whatever becomes of the actor."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.actors import core as actor_core
from sparrow_py.actors.core import ENDED, ActorCore, ActorState
from sparrow_py.errors import ActorLost, Refused

EVENTS = st.lists(
    st.tuples(
        st.sampled_from(
            (
                "call",
                "call",
                "call",
                "ready",
                "answered",
                "answered",
                "moves",
                "cannot move",
                "lost",
                "given up",
                "cancel",
                "stop",
                "cut off",
                "job given up",
                "not unpickled",
            )
        ),
        st.integers(0, 2),
    ),
    max_size=60,
)


class Cluster:
    """The outbox: notes what is to be done, and plays the actor of each incarnation."""

    def __init__(self, *, max_restarts: int = 0, call_retries: int = 0, waiting_max: int = 5) -> None:
        self.core = ActorCore(
            self, "actor A", max_restarts=max_restarts, call_retries=call_retries, waiting_max=waiting_max
        )
        self.starts: list[tuple[int, bytes, float]] = []
        self.ends: list[tuple[int, bool]] = []
        self.sent: list[tuple[int, int]] = []
        """(incarnation, call), in the order in which they were sent."""
        self.has: int | None = None
        """The call that the actor has."""
        self.outcomes: dict[int, Any] = {}
        self.cancelled: set[int] = set()
        self.begun: list[int] = []
        self.calls = 0
        self.core.begin()

    # ---- the outbox --------------------------------------------------------------------------

    def start(self, incarnation: int, state: bytes, pause_s: float) -> None:
        self.starts.append((incarnation, state, pause_s))
        self.has = None

    def end(self, incarnation: int, *, at_once: bool) -> None:
        assert incarnation == self.core.incarnation
        self.ends.append((incarnation, at_once))

    def begins(self, number: int) -> bool:
        assert number not in self.begun
        self.begun.append(number)
        if number not in self.cancelled:
            return True
        self.outcomes[number] = "cancelled"
        return False

    def send(self, number: int, method: str, payload: bytes) -> None:
        assert self.core.state is ActorState.READY
        assert self.has is None, "one call at a time"
        self.has = number
        self.sent.append((self.core.incarnation, number))

    def settle(self, number: int, value: bytes, *, raised: bool) -> None:
        self.end_of(number, value)

    def fail(self, number: int, error: ActorLost | Refused) -> None:
        self.end_of(number, error)

    def end_of(self, number: int, outcome: object) -> None:
        assert number not in self.outcomes, "told once"
        self.outcomes[number] = outcome

    def changed(self) -> None:
        """See `Outbox`."""

    # ---- events ------------------------------------------------------------------------------

    def call(self, payload: bytes = b"p") -> int:
        self.calls += 1
        self.core.call(self.calls, "m", payload)
        return self.calls

    def answer(self, incarnation: int | None = None) -> None:
        number, self.has = self.has, None
        assert number is not None
        self.core.answered(incarnation or self.core.incarnation, number, b"v", raised=False)

    def play(self, event: str, late_by: int) -> None:
        """An event of the incarnation so many before the present one."""
        incarnation = self.core.incarnation - late_by
        match event:
            case "call":
                self.call()
            case "cancel":
                self.cancelled.add(self.calls)
                if late_by:  # Else nobody says so before its turn has come.
                    self.core.cancelled(self.calls)
            case "ready":
                self.core.ready(incarnation)
            case "answered" if self.has is not None and not late_by:
                self.answer()
            case "answered":
                self.core.answered(incarnation, self.calls + 1 if not late_by else self.calls, b"v", raised=False)
            case "moves":
                self.core.moves(incarnation, b"state")
            case "cannot move":
                self.core.cannot_move(incarnation, "node-1", "a lock")
            case "lost":
                self.core.lost(incarnation, "node-1", "killed")
            case "given up":
                self.core.given_up(incarnation, "", "no", None)
            case "cut off":
                self.core.cut_off(incarnation, "node-1", "closed")
            case "job given up":
                self.core.goes_on_without_job(incarnation, "no scheduler")
            case "not unpickled":
                self.core.not_unpickled(incarnation, "node-1", ValueError("no"))
            case "stop":
                self.core.stop("stopped")
        self.core.check_invariants()


@given(EVENTS, st.integers(0, 3), st.integers(0, 2))
def test_each_call_ends_once_in_order_and_runs_as_often_as_it_may(
    events: list[tuple[str, int]], max_restarts: int, call_retries: int
) -> None:
    cluster = Cluster(max_restarts=max_restarts, call_retries=call_retries)
    lost = moves = crossed = 0
    for event, late_by in events:
        incarnation = cluster.core.incarnation
        cluster.play(event, late_by)
        if cluster.core.incarnation != incarnation:
            moves += event == "moves"
            crossed += event == "cannot move"
            lost += event in ("lost", "cut off", "not unpickled", "cannot move")
    cluster.play("stop", 0)
    assert cluster.core.state in ENDED
    assert cluster.outcomes.keys() == set(range(1, cluster.calls + 1))
    assert lost <= max_restarts
    assert [incarnation for incarnation, _, _ in cluster.starts] == list(range(1, 2 + lost + moves))
    numbers = [number for _, number in cluster.sent]
    assert numbers == sorted(numbers)
    assert all(numbers.count(number) <= 1 + call_retries + moves + crossed for number in numbers)
    answered = [number for number, outcome in cluster.outcomes.items() if outcome == b"v"]
    assert set(answered) <= set(numbers)


@given(EVENTS, st.integers(0, 3))
def test_without_retries_a_call_that_may_have_run_is_not_sent_again(
    events: list[tuple[str, int]], max_restarts: int
) -> None:
    cluster = Cluster(max_restarts=max_restarts)
    for event, late_by in events:
        had, sent = cluster.has, len(cluster.sent)
        cluster.play(event, late_by)
        if event == "lost" and had is not None and not late_by:
            assert had in cluster.outcomes
        if event not in ("moves", "cannot move"):  # There the call crossed the message, and has not begun.
            assert had not in [number for _, number in cluster.sent[sent:]]


def test_calls_wait_until_the_actor_is_ready_and_go_one_by_one() -> None:
    cluster = Cluster()
    first, second = cluster.call(), cluster.call()
    assert not cluster.sent
    cluster.core.ready(1)
    assert cluster.sent == [(1, first)]
    cluster.answer()
    assert cluster.sent == [(1, first), (1, second)]
    assert cluster.outcomes == {first: b"v"}


def test_of_a_lost_actor_the_call_that_it_had_fails_and_the_others_wait_for_the_next() -> None:
    cluster = Cluster(max_restarts=1)
    cluster.core.ready(1)
    first, second = cluster.call(), cluster.call()
    cluster.core.lost(1, "node-1", "its executor died")
    error = cluster.outcomes[first]
    assert (error.actor, error.node) == ("actor A", "node-1")
    assert "its executor died" in error.reason
    assert cluster.core.state is ActorState.RESTARTING
    cluster.core.ready(2)
    assert cluster.sent[-1] == (2, second)
    cluster.core.lost(2, "", "again")
    assert cluster.core.state is ActorState.LOST
    assert isinstance(cluster.outcomes[second], ActorLost)
    late = cluster.call()
    assert str(cluster.outcomes[late]) == "actor A: again"


def test_calls_that_come_when_the_connection_has_ended_wait_for_the_next_actor() -> None:
    cluster = Cluster(max_restarts=1)
    cluster.core.ready(1)
    cluster.core.cut_off(1, "", "closed")
    call = cluster.call()
    assert not cluster.sent
    cluster.core.lost(1, "", "its executor died")
    cluster.core.ready(2)
    assert cluster.sent == [(2, call)]


def test_a_call_that_may_be_retried_is_the_next_one_of_the_new_actor() -> None:
    cluster = Cluster(max_restarts=2, call_retries=1)
    cluster.core.ready(1)
    first, second = cluster.call(), cluster.call()
    cluster.core.lost(1, "", "x")
    cluster.core.ready(2)
    assert cluster.sent == [(1, first), (2, first)]
    cluster.core.lost(2, "", "x")
    assert isinstance(cluster.outcomes[first], ActorLost)
    cluster.core.ready(3)
    assert cluster.sent[-1] == (3, second)


def test_an_actor_that_moves_takes_its_state_along_and_uses_no_restart() -> None:
    cluster = Cluster()
    cluster.core.ready(1)
    crossed = cluster.call()
    cluster.core.moves(1, b"state")
    assert cluster.starts[-1] == (2, b"state", 0.0)
    cluster.has = None
    cluster.core.ready(2)
    assert cluster.sent == [(1, crossed), (2, crossed)]
    cluster.answer()
    assert cluster.outcomes == {crossed: b"v"}


@pytest.mark.parametrize("call_retries", [0, 1])
def test_a_call_that_crosses_the_message_of_an_actor_that_cannot_move_goes_to_the_next(call_retries: int) -> None:
    cluster = Cluster(max_restarts=1, call_retries=call_retries)
    cluster.core.ready(1)
    first, second = cluster.call(), cluster.call()
    cluster.core.cannot_move(1, "node-1", "a lock")
    assert not cluster.outcomes
    cluster.core.ready(2)
    assert cluster.sent == [(1, first), (2, first)]
    cluster.answer()
    assert (cluster.outcomes, cluster.sent[-1]) == ({first: b"v"}, (2, second))


def test_an_actor_that_is_lost_before_it_is_ready_is_started_again_after_longer_and_longer_pauses() -> None:
    cluster = Cluster(max_restarts=20)
    for incarnation in range(1, 21):
        cluster.core.lost(incarnation, "", "x")
    pauses = [pause_s for _, _, pause_s in cluster.starts[1:]]
    assert pauses[:4] == [0.0, 0.1, 0.2, 0.4]
    assert pauses[-1] == actor_core.PAUSE_MAX_S
    cluster.core.ready(21)
    assert cluster.core.state is ActorState.READY


def test_what_does_nothing_is_ended_by_a_message_and_what_has_a_call_at_once() -> None:
    idle, busy = Cluster(), Cluster()
    for cluster in (idle, busy):
        cluster.core.ready(1)
    busy.call()
    for cluster in (idle, busy):
        cluster.core.stop("stopped")
    assert (idle.ends, busy.ends) == ([(1, False)], [(1, True)])


def test_more_calls_than_may_wait_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(waiting_max=2)
    accepted = [cluster.call(), cluster.call()]
    refused = cluster.call()
    assert isinstance(cluster.outcomes[refused], Refused)
    assert "waiting_calls_max" in str(cluster.outcomes[refused])
    monkeypatch.setattr(actor_core, "WAITING_BYTES_MAX", 10)
    large = Cluster()
    assert isinstance(large.outcomes[large.call(b"x" * 11)], Refused)
    cluster.core.ready(1)
    cluster.answer()
    assert cluster.outcomes[accepted[0]] == b"v"


@pytest.mark.parametrize("max_restarts", [0, 1])
def test_an_actor_that_is_ready_outlives_its_job_for_as_long_as_its_connection(max_restarts: int) -> None:
    cluster = Cluster(max_restarts=max_restarts)
    assert not cluster.core.goes_on_without_job(1, "no scheduler"), "nobody would say that it is lost"
    cluster.core.ready(1)
    assert cluster.core.goes_on_without_job(1, "no scheduler")
    first = cluster.call()
    cluster.answer()
    assert cluster.outcomes == {first: b"v"}
    cluster.core.cut_off(1, "node-1", "the connection was closed")
    assert cluster.core.state is (ActorState.RESTARTING if max_restarts else ActorState.LOST)
    assert cluster.core.node == "node-1"
    assert "the connection was closed; before that the cluster gave up its task: no scheduler" in cluster.core.reason
    assert len(cluster.starts) == 1 + max_restarts


@given(EVENTS)
def test_that_its_job_is_given_up_changes_nothing_for_an_actor_that_is_ready(events: list[tuple[str, int]]) -> None:
    cluster = Cluster(max_restarts=2)
    for event, late_by in events:
        before = cluster.core.state, cluster.core.incarnation, dict(cluster.outcomes)
        cluster.play(event, late_by)
        if event == "job given up":
            assert (cluster.core.state, cluster.core.incarnation, cluster.outcomes) == before
