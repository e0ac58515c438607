"""Users' shares of slots: by weight, max-min, and what the network makes of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.cluster_network import ClusterChanges, ClusterNetwork, Share
from scheduler.flow.policies.policy import ArcTo, Task
from scheduler.flow.shares import AHEAD_S_MAX, REMEMBERED_MAX, Balance, Due, Holding, max_min
from tests.support.flow_networks import NEVER_S, Play, Table, machines_of

dues = st.dictionaries(
    st.sampled_from("abcdef"),
    st.builds(
        Due,
        weight=st.sampled_from([0.5, 1.0, 2.0, 3.0]),
        wanted=st.integers(0, 20),
        held=st.integers(0, 6),
        runs=st.integers(0, 8),
        ahead_s=st.sampled_from([-3.0, 0.0, 2.0]),
    ),
    min_size=1,
)


def exact(slots: int, users: dict[str, Due]) -> dict[str, float]:
    """Shares by fractions of slots: who has least for the weight is filled first."""

    def filled(level: float) -> dict[str, float]:
        return {
            name: max(min(due.held, due.wanted), min(due.wanted, level * due.weight)) for name, due in users.items()
        }

    low, high = 0.0, 1000.0
    for _ in range(60):
        level = (low + high) / 2
        low, high = (level, high) if sum(filled(level).values()) < slots else (low, level)
    return filled(low)


@given(slots=st.integers(0, 80), users=dues)
def test_shares_are_exact_ones_but_for_fractions_of_slots(slots: int, users: dict[str, Due]) -> None:
    found, wanted = max_min(slots, users), exact(slots, users)
    held = sum(min(due.held, due.wanted) for due in users.values())
    assert sum(found.values()) == max(held, min(slots, sum(due.wanted for due in users.values())))
    alone = exact(slots, {name: replace(due, held=0) for name, due in users.items()})
    for name in users:
        assert wanted[name] - 1 - 1e-6 < found[name] < max(wanted[name], alone[name]) + 1 + 1e-6
    if all(abs(share - round(share)) < 1e-6 for share in wanted.values()) and wanted == alone:
        assert all(found[name] == round(wanted[name]) for name in users)


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
    dues = {user: Due(weight, held + count, held) for user, (weight, count, held) in waiting.items()}
    all_slots = slots + sum(held for _, _, held in waiting.values())
    wanted = exact(all_slots, dues)
    alone = exact(all_slots, {user: replace(due, held=0) for user, due in dues.items()})
    assert counts.total() == min(slots, len(names))
    for user, (_, _, held) in waiting.items():
        assert wanted[user] - 1 - 1e-6 < counts[user] + held < max(wanted[user], alone[user]) + 1 + 1e-6


# ---- over time -----------------------------------------------------------------------------------------------------


@dataclass
class Slots:
    """Slots that users' tasks take, round after round: one each time that tasks have ended. Nothing is preempted."""

    slots: int
    weights: Mapping[str, float]
    lengths_s: Mapping[str, float]
    balance: Balance = field(default_factory=Balance)
    now_s: float = 0.0
    ends: list[tuple[float, str]] = field(default_factory=list)
    used_s: Counter[str] = field(default_factory=Counter)
    longest_s: dict[str, float] = field(default_factory=dict)
    """By user: for how long all tasks have waited at a time."""

    def run(self, until_s: float, waiting: Collection[str] | None = None) -> None:
        """These users, or all, have more tasks than there are slots."""
        users = list(self.weights) if waiting is None else waiting
        none_since = dict.fromkeys(users, self.now_s)
        while self.now_s < until_s:
            self._round(users)
            self.ends.sort()
            last_s, self.now_s = self.now_s, self.ends[0][0]
            for name in users:
                held = sum(one == name for _, one in self.ends)
                self.used_s[name] += held * (self.now_s - last_s)
                if held:
                    none_since[name] = self.now_s
                self.longest_s[name] = max(self.longest_s.get(name, 0.0), self.now_s - none_since[name])
            self.ends = [end for end in self.ends if end[0] > self.now_s + 1e-9]

    def _round(self, users: Collection[str]) -> None:
        self.balance.begin(self.now_s, {name: self.weights[name] for name in users})
        held = Counter(name for _, name in self.ends)
        free = self.slots - held.total()
        dues = {
            name: Due(self.weights[name], held[name] + self.slots, held[name], held[name], self.balance.ahead_s[name])
            for name in users
        }
        allowed = max_min(free + sum(held[name] for name in users), dues)
        for name in users:
            self.ends += [(self.now_s + self.lengths_s[name], name)] * (allowed[name] - held[name])
        self.balance.end({name: Holding(allowed[name], is_short=False) for name in users})

    def shares(self) -> dict[str, float]:
        return {name: used_s / self.used_s.total() for name, used_s in self.used_s.items()}


def due_shares(weights: Mapping[str, float]) -> dict[str, float]:
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


@pytest.mark.parametrize(
    ("slots", "weights"),
    [
        (2, {"ann": 1, "bob": 1, "zoe": 1}),
        (4, {"ann": 10, "zoe": 1}),
        (4, {"zoe": 10, "ann": 1}),
        (4, dict.fromkeys("abcde", 1)),
        (4, {"ann": 3, "bob": 2}),
        (3, {"ann": 1, "bob": 1}),
        (1, {"ann": 5, "bob": 1, "eve": 1, "zoe": 0.5}),
        (4, {"ann": 2, "bob": 1, "zoe": 1}),
    ],
)
@pytest.mark.parametrize("longer", [1.0, 7.0])
def test_shares_hold_over_time_though_they_are_no_whole_slots(
    slots: int, weights: dict[str, float], longer: float
) -> None:
    lengths_s = {name: 0.2 * (longer if number == 0 else 1.0) for number, name in enumerate(weights)}
    played = Slots(slots, weights, lengths_s)
    played.run(200 * max(lengths_s.values()))
    for name, due in due_shares(weights).items():
        assert played.shares()[name] == pytest.approx(due, rel=0.1)


@settings(max_examples=10, deadline=None)
@given(
    slots=st.integers(1, 4),
    users=st.lists(
        st.tuples(st.sampled_from([0.5, 1.0, 2.0, 3.0]), st.sampled_from([0.1, 0.17, 0.2, 0.9])), min_size=2, max_size=6
    ),
)
def test_in_any_mix_shares_hold_and_nobody_starves(slots: int, users: list[tuple[float, float]]) -> None:
    weights = {f"u{number}": weight for number, (weight, _) in enumerate(users)}
    played = Slots(slots, weights, {f"u{number}": length_s for number, (_, length_s) in enumerate(users)})
    played.run(180.0)
    for name, due in due_shares(weights).items():
        assert played.shares()[name] == pytest.approx(due, rel=0.1)
        # Between two tasks all others may run as many as the user's weight is less than theirs, and one more.
        rest_s = sum(weights[one] / weights[name] * 0.9 + played.lengths_s[one] for one in weights if one != name)
        assert played.longest_s[name] <= 2 * (rest_s + 0.9)


def test_shares_of_whole_slots_are_exact_in_each_round() -> None:
    played = Slots(6, {"ann": 3.0, "bob": 2.0, "zoe": 1.0}, dict.fromkeys(("ann", "bob", "zoe"), 0.2))
    played.run(10.0)
    assert played.shares() == pytest.approx({"ann": 3 / 6, "bob": 2 / 6, "zoe": 1 / 6})


def test_who_comes_later_has_saved_nothing_up() -> None:
    played = Slots(1, dict.fromkeys(("ann", "bob", "zoe"), 1.0), dict.fromkeys(("ann", "bob", "zoe"), 0.5))
    played.run(100.0, ["ann", "bob"])
    played.used_s.clear()
    played.run(130.0)
    assert played.shares() == pytest.approx(dict.fromkeys(("ann", "bob", "zoe"), 1 / 3), rel=0.1)


def test_who_could_not_use_slots_gains_nothing_over_the_mean() -> None:
    balance, weights = Balance(), dict.fromkeys(("ann", "bob", "zoe"), 1.0)
    for second in range(100):
        balance.begin(float(second), weights)
        balance.end({"ann": Holding(1, False), "bob": Holding(1, False), "zoe": Holding(0, True)})
    assert balance.ahead_s == pytest.approx(dict.fromkeys(weights, 0.0))


def test_a_balance_is_bounded_and_forgets() -> None:
    balance = Balance()
    names = [f"u{number}" for number in range(2 * REMEMBERED_MAX)]
    balance.begin(1.0, dict.fromkeys([*names, "zoe"], 1.0))
    balance.end({name: Holding(1, False) for name in names} | {"zoe": Holding(0, False)})
    balance.begin(10 * AHEAD_S_MAX, {"zoe": 1.0})
    assert len(balance.ahead_s) <= 1 + REMEMBERED_MAX
    assert balance.ahead_s["zoe"] == -AHEAD_S_MAX
    balance.begin(10 * AHEAD_S_MAX + 1, {})
    assert not balance.ahead_s


def test_tasks_that_could_be_stopped_keep_the_slots_of_fractions_where_they_run() -> None:
    users = {"ann": Due(1.0, 9, 0, 2, 5.0), "bob": Due(1.0, 9, 0, 1, -5.0)}
    assert max_min(3, users) == {"ann": 2, "bob": 1}
    assert max_min(3, {name: replace(due, runs=1) for name, due in users.items()}) == {"ann": 1, "bob": 2}


def test_rounds_of_a_network_give_each_user_the_share_that_is_due() -> None:
    """Three users, two slots: the one whose name comes last has the same share."""
    names = {f"{user}{number}": user for user in ("ann", "bob", "zoe") for number in range(40)}
    table = Table({}, dict.fromkeys(names, 50), {"all": [ArcTo("m0", 1, 99)]}, dict.fromkeys(names, "all"))
    play = Play(ClusterNetwork(table, second_after_s=NEVER_S))
    play.round(ClusterChanges(machines=machines_of(m0=2), tasks=[Task(name, "j", user=names[name]) for name in names]))
    ended: Counter[str] = Counter()
    for _ in range(60):
        play.now_s += 0.1
        oldest = next(iter(play.running))
        ended[names[oldest]] += 1
        play.end(oldest)
        play.round()
    assert max(ended.values()) - min(ended.values()) <= 2 and len(ended) == 3
