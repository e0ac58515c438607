"""Which stages are remembered: of whom, how many, and what of it is news."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.altruistic.known_stages import KnownStages, StageKey, stage_key
from scheduler.altruistic.runs import DURATION, Figure, Figures, Run
from scheduler.altruistic.stage_history import StageHistory


def key_of(user: str, stage: object) -> StageKey:
    return StageKey(user, "python", "nightly", str(stage))


def once(duration_s: float) -> Figures:
    return {DURATION: Figure(1, duration_s)}


def run_of(*durations_s: float) -> Run:
    run = Run()
    for duration_s in durations_s:
        run.finished(duration_s, {})
    return run


def of(known: KnownStages, user: str) -> list[str]:
    return [key.stage for key, _ in known if key.user == user]


def test_stages_without_any_name_are_not_known() -> None:
    assert stage_key("ada", "python", "", "") is None
    assert stage_key("ada", "python", "job", "") == ("ada", "python", "job", "")


def test_stages_differ_by_user_app_job_and_name() -> None:
    known = KnownStages()
    keys = [StageKey("ada", "a", "b", "c"), StageKey("eve", "a", "b", "c"), StageKey("ada", "a", "bc", "")]
    for number, key in enumerate(keys):
        known.ran(key, once(number + 1.0))
    assert [known.of(key) for key in keys] == [once(1.0), once(2.0), once(3.0)]


def test_of_a_user_those_stages_go_that_have_not_run_for_longest() -> None:
    known = KnownStages(per_user_max=3)
    for stage in "abcad":
        known.ran(key_of("ada", stage), once(1.0))
    assert of(known, "ada") == ["c", "a", "d"]


def test_who_has_most_makes_room() -> None:
    known = KnownStages(stages_max=6, per_user_max=5)
    for user, stages in (("eve", "abcde"), ("ada", "xyz")):
        for stage in stages:
            known.ran(key_of(user, stage), once(1.0))
    assert of(known, "eve") == ["c", "d", "e"] and of(known, "ada") == ["x", "y", "z"]


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 6)), max_size=60), st.integers(1, 9), st.integers(1, 4)
)
def test_stages_are_bounded_and_each_users_are_the_latest(
    ran: list[tuple[str, int]], stages_max: int, per_user_max: int
) -> None:
    known = KnownStages(stages_max, per_user_max)
    latest: dict[str, list[str]] = {user: [] for user in "abcd"}
    for user, stage in ran:
        before = Counter(key.user for key, _ in known)
        known.ran(key_of(user, stage), once(1.0))
        after = Counter(key.user for key, _ in known)
        assert known.of(key_of(user, stage)) is not None
        latest[user] = [name for name in latest[user] if name != str(stage)] + [str(stage)]
        for other, count in (before - after).items():
            assert count == 1 and before[other] == max((before | after).values()), "who has most makes room"
        assert len(known) == after.total() <= stages_max and max(after.values()) <= per_user_max
        for other in latest:
            kept = of(known, other)
            assert kept == latest[other][len(latest[other]) - len(kept) :]


@pytest.mark.parametrize(
    ("users", "stages"), [(1, 10_000), (1_000, 20_000), pytest.param(1_000, 100_000, marks=pytest.mark.rest)]
)
def test_ever_new_stages_take_no_more_room(users: int, stages: int) -> None:
    known = KnownStages(stages_max=5_000, per_user_max=100)
    figures = once(1.0)
    for number in range(stages):
        known.ran(key_of(f"user{number % users}", number), figures)
    assert len(known) == min(100 * users, 5_000)


def test_a_stage_is_known_once_it_has_run_and_that_is_news() -> None:
    told: list[int] = []
    history = StageHistory([(key_of("ada", "map"), once(10.0))], on_news=lambda: told.append(len(history.take_news())))
    assert history.of(key_of("ada", "map")) == once(10.0) and not told
    history.ended(key_of("ada", "reduce"), run_of(4.0, 6.0), tasks=2)
    assert history.of(key_of("ada", "reduce")) == once(5.0)
    assert told == [1] and len(history) == 2
    assert history.of(None) == history.of(key_of("eve", "reduce")) == {}


@pytest.mark.parametrize(
    ("finished", "tasks", "remembered"), [(1, 1, True), (2, 4, True), (1, 3, False), (0, 0, False)]
)
def test_a_stage_of_which_less_than_half_has_finished_is_forgotten(finished: int, tasks: int, remembered: bool) -> None:
    history = StageHistory()
    history.ended(key_of("ada", "map"), run_of(*[1.0] * finished), tasks)
    assert bool(history.of(key_of("ada", "map"))) is bool(history.take_news()) is remembered


def test_a_stage_without_a_name_is_no_news() -> None:
    history = StageHistory()
    history.ended(None, run_of(1.0), tasks=1)
    assert not history.take_news() and len(history) == 0


def test_news_that_is_given_back_comes_before_what_has_come_since() -> None:
    told: list[None] = []
    history, straight = StageHistory(on_news=lambda: told.append(None)), StageHistory()
    for number, duration_s in enumerate((1.0, 5.0, 30.0)):
        for one in (history, straight):
            one.ended(key_of("ada", "map"), run_of(duration_s), tasks=1)
        if number == 1:
            taken = history.take_news()
    history.give_back(taken)
    news, expected = dict(history.take_news()), dict(straight.take_news())
    assert news == {key: {DURATION: (3, pytest.approx(of[DURATION].value))} for key, of in expected.items()}
    assert len(told) == 2, "once for the first, once for what came after they were taken"
