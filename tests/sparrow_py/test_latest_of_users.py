"""The latest of what users have brought about: no user loses it to those who have more."""

from hypothesis import given
from hypothesis import strategies as st

from sparrow_py.limits.latest_of_users import Latest
from sparrow_py.limits.shares import SHARE


def test_a_user_alone_keeps_its_latest() -> None:
    kept: Latest[int] = Latest(1000)
    for number in range(1001):
        kept.add("mallory", number)
    assert list(kept.of("mallory")) == list(range(11, 1001))  # A hundredth goes at a time.
    assert list(kept.of("ada")) == []


@given(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.integers(1, 40)), max_size=200))
def test_nobody_with_little_loses_it_to_others(items: list[tuple[str, int]]) -> None:
    kept: Latest[int] = Latest(100)
    kept.add("ada", -1, 5)
    for number, (user, size) in enumerate(items):
        kept.add(user, number, size)
        assert kept._size == sum(of_user.size for of_user in kept._users.values()) <= 100
        assert list(kept.of(user)) == sorted(kept.of(user))
    assert list(kept.of("ada")) == [-1]  # With nine users the average is more than that.


def test_users_share_who_take_it_all() -> None:
    kept: Latest[int] = Latest(100 * SHARE)
    for number in range(1000):
        for user in "abcdefghij":
            kept.add(user, number)
    counts = [len(list(kept.of(user))) for user in "abcdefghij"]
    assert sum(counts) <= 100 * SHARE and min(counts) >= 35
