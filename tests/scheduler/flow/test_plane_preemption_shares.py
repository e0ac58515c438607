"""With preemption users have their shares, too, whatever they say of their tasks; and nobody is stopped for a user who
has more than that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.flow.cluster_network import ClusterNetwork
from scheduler.flow.policies.load_spreading import LoadSpreading
from scheduler.flow.policies.policy import Policy
from scheduler.flow.policies.quincy import Quincy
from scheduler.flow.shares import Due, max_min
from sparrow_py.wire import messages as m
from tests.support.flow_networks import NEVER_S
from tests.support.flow_rig import FlowRig
from tests.support.scheduler_rig import node_info

USERS = ("ada", "bob", "cy")


class Rig(FlowRig):
    """Nodes that stop tasks as soon as they are told to. All users have tasks that run until they are stopped."""

    def __init__(self, nodes: int = 4, slots: int = 4, policy: type[Policy] = Quincy, **options: object) -> None:
        infos = {f"n{number}": node_info(slots) for number in range(nodes)}
        super().__init__(
            infos,
            network=lambda: ClusterNetwork(policy(), keeps_running=True, second_after_s=NEVER_S),
            flow_preemption=True,
            **options,
        )
        self.now_s = 0.0
        self.slots = nodes * slots
        self.numbers = count()
        self.stopped: list[str] = []
        """Users whose tasks were."""

    def comes(self, user: str, tasks: int, *, preemptible: bool) -> None:
        """A job."""
        name = f"{user}-{next(self.numbers)}"
        self.submit_job(tasks, job=name, user=user, client=user, preemptible=preemptible, now_s=self.now_s)

    def settle(self, seconds: int = 4) -> None:
        """Until nothing more is stopped, for so many seconds at least."""
        quiet = 0
        while quiet < seconds:
            self.now_s += 1.0
            self.tick(self.now_s)
            quiet = 0 if self.obey() else quiet + 1
            assert self.now_s < 1000, "tasks are stopped without end"

    def obey(self) -> bool:
        """Stop what is to be stopped."""
        cancels = [(node, one.attempt) for node, one in self.outbox.take(m.CancelAttempt) if one.preempt]
        for node, attempt in cancels:
            launch = self.running[node].pop(attempt)
            self.stopped.append(launch.job.partition("-")[0])
            self.node(node, m.Preempted(launch.job, attempt, 1.0), now_s=self.now_s)
        return bool(cancels)

    def held(self) -> Counter[str]:
        """Slots by user."""
        return Counter(one.job.partition("-")[0] for has in self.running.values() for one in has.values())


@pytest.mark.parametrize(("bobs", "adas"), [(True, False), (True, True)])
@pytest.mark.parametrize("policy", [Quincy, LoadSpreading])
def test_preemptible_tasks_make_room_for_others_shares_and_no_more(
    bobs: bool, adas: bool, policy: type[Policy]
) -> None:
    rig = Rig(policy=policy)
    rig.comes("bob", 32, preemptible=bobs)
    assert rig.held() == {"bob": 16}
    rig.comes("ada", 64, preemptible=adas)
    rig.settle()
    assert rig.held() == {"bob": 8, "ada": 8}
    assert set(rig.stopped) == {"bob"}


def test_who_has_no_tasks_that_wait_keeps_the_share_that_is_due_by_weight() -> None:
    rig = Rig(user_weight=("bob=3",))
    rig.comes("bob", 16, preemptible=True)
    rig.comes("ada", 64, preemptible=False)
    rig.settle()
    assert rig.held() == {"bob": 12, "ada": 4}
    rig.comes("cy", 64, preemptible=True)
    rig.settle()
    assert rig.held()["bob"] >= 9 and rig.held()["ada"] == 4


jobs = st.tuples(st.sampled_from(USERS), st.integers(1, 20), st.booleans())
weights = st.lists(st.sampled_from([1, 2, 3]), min_size=3, max_size=3)


@settings(deadline=None, max_examples=25)
@given(st.lists(jobs, min_size=2, max_size=7), weights)
def test_users_keep_their_shares_whatever_of_their_tasks_is_preemptible(
    come: list[tuple[str, int, bool]], weights: list[int]
) -> None:
    rig = Rig(3, 4, user_weight=tuple(f"{user}={weight}" for user, weight in zip(USERS, weights, strict=True)))
    wanted, plain = Counter[str](), Counter[str]()
    for user, tasks, preemptible in come:
        before, so_far = rig.held(), len(rig.stopped)
        rig.comes(user, tasks, preemptible=preemptible)
        wanted[user] += tasks
        rig.settle()
        held = rig.held()
        plain = Counter(
            one.job.partition("-")[0]
            for has in rig.running.values()
            for one in has.values()
            if not rig.core.jobs[one.job].preemptible
        )
        due = exact_shares(
            rig.slots,
            {name: Due(weights[USERS.index(name)], wanted[name], plain[name]) for name in USERS if wanted[name]},
        )
        for name, share in due.items():
            assert held[name] >= min(wanted[name], int(share)), f"{name} is due {due}, and {held} run"
        for name in set(rig.stopped[so_far:]) - {user}:
            assert before[name] > int(due[name]) and before[user] < due[user], (
                f"{name}'s were stopped: {before}, due {due}"
            )


def exact_shares(slots: int, users: Mapping[str, Due]) -> dict[str, Fraction]:
    """Shares with their fractions, whose slots users have in turns: those of slots cut into so many parts that weights
    of 1 to 3 leave no fractions of them."""
    parts = 2520
    cut = {name: Due(due.weight, parts * due.wanted, parts * due.held) for name, due in users.items()}
    return {name: Fraction(share, parts) for name, share in max_min(parts * slots, cut).items()}
