"""Users' shares of slots: by weight, max-min, and what the network makes of them."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Share
from scheduler.flow.policies.policy import ArcTo, Task
from scheduler.flow.shares import Due, max_min
from tests.support.flow_networks import NEVER_S, Table, machines_of

dues = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(Due, st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.integers(0, 20), st.integers(0, 6)),
    min_size=1,
)


def one_by_one(slots: int, users: dict[str, Due]) -> dict[str, int]:
    """The next slot to whoever has least for the weight."""
    shares = {name: min(due.held, due.wanted) for name, due in users.items()}
    for _ in range(slots - sum(shares.values())):
        wanting = [name for name in users if shares[name] < users[name].wanted]
        if not wanting:
            break
        shares[min(wanting, key=lambda name: ((shares[name] + 1) / users[name].weight, name))] += 1
    return shares


@given(slots=st.integers(0, 80), users=dues)
def test_shares_are_those_of_slots_given_one_by_one(slots: int, users: dict[str, Due]) -> None:
    found, wanted = max_min(slots, users), one_by_one(slots, users)
    assert sum(found.values()) == sum(wanted.values())
    assert all(abs(found[name] - wanted[name]) <= 1 for name in users)


def test_many_users_and_slots_cost_no_step_each() -> None:
    users = {f"u{number}": Due(1.0 + number % 3, 10**9) for number in range(1000)}
    assert sum(max_min(10**9, users).values()) == 10**9


@settings(max_examples=30, deadline=None)
@given(
    users=st.dictionaries(
        st.sampled_from("abcd"),
        st.tuples(st.sampled_from([0.5, 1.0, 2.0]), st.integers(0, 10), st.integers(0, 5)),
        min_size=2,
    ),
    slots=st.integers(0, 14),
)
def test_placements_follow_the_shares_within_one_task(users: dict[str, tuple[float, int, int]], slots: int) -> None:
    names = {f"{user}{number}": user for user, (_, count, _) in users.items() for number in range(count)}
    table = Table({}, dict.fromkeys(names, 50), {"all": [ArcTo("m0", 1, 99)]}, dict.fromkeys(names, "all"))
    placed = ClusterNetwork(table, second_after_s=NEVER_S).round(
        ClusterChanges(
            machines=machines_of(m0=slots),
            tasks=[Task(name, "j", user=user) for name, user in names.items()],
            shares={user: Share(weight, held) for user, (weight, _, held) in users.items()},
        )
    )
    counts = Counter(names[name] for name, _ in placed.placed)
    waiting = {user: due for user, due in users.items() if due[1]}
    wanted = one_by_one(
        slots + sum(held for _, _, held in waiting.values()),
        {user: Due(weight, held + count, held) for user, (weight, count, held) in waiting.items()},
    )
    assert counts.total() == min(slots, len(names))
    for user, (_, _, held) in waiting.items():
        assert abs(counts[user] + held - wanted[user]) <= 1
