"""What schedulers decide stays what it was: digests of all that they start, on random jobs.

A change that is meant to decide otherwise writes these digests anew, and makes all recorded figures obsolete; one that
is meant to be faster leaves them alone.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from random import Random

import numpy as np
import pytest

from scheduler.altruistic.allocator import Start
from scheduler.altruistic.dags import Dag, Group
from scheduler.altruistic.settings import settings_named
from simulator.dags.play import Arrival, play
from simulator.dags.watching import Watcher
from tests.support.altruistic import random_jobs

DIGESTS = {
    "altruistic": "de5ee65d0f53",
    "altruistic/horizon=barrier": "042f735cb41f",
    "altruistic/lend=profile": "9a0466c88833",
    "altruistic/altruism=0.5": "e882bd7f7e1d",
    "altruistic/cap=vector/may=tetris": "9f5f1be2c5f7",
    "altruistic/order=troublesome/must=srtf/may=drf": "7b87a569211c",
    "capacity": "4bd0d286a5e3",
    "drf": "d21afc5fb319",
    "sjf": "b1ddb7657444",
    "sjf-by-work": "5753756dea5b",
    "srtf": "f9b655ed92d2",
    "tetris": "4b8afa94ade6",
    "tetris-fair": "1164b6de2e37",
    "tetris-packing": "987cb475d72c",
}
CASES = 6


class Digest(Watcher):
    """Of all that starts, in order."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()

    def started(self, start: Start) -> None:
        self.add(start.job, start.group, start.machine, start.tasks, round(start.end_s, 6), start.is_lent)

    def add(self, *values: object) -> None:
        self._hash.update(repr(values).encode())

    def text(self) -> str:
        return self._hash.hexdigest()[:12]


def wider(dag: Dag, resources: int) -> Dag:
    """The same job, of which no task needs any of the further resources."""
    groups = [
        Group(group.tasks, (*group.demand, *[0.0] * (resources - len(group.demand))), group.duration_s, group.parents)
        for group in dag.groups
    ]
    return Dag(groups)


@pytest.mark.parametrize("policy", DIGESTS)
def test_decisions_are_what_they_were(policy: str) -> None:
    digest = Digest()
    for seed in range(CASES):
        chance = Random(seed)
        arrivals = [
            Arrival(chance.randint(0, 8) / 4, f"{number}", wider(dag, 3))
            for number, dag in enumerate(dag for other in range(3) for dag in random_jobs(3 * seed + other))
        ]
        result = play(arrivals, np.ones((2, 3)), settings_named(policy), seed=seed, watchers=[digest])
        digest.add([round(float(took_s), 6) for took_s in result.completions_s])
    assert digest.text() == DIGESTS[policy]


@pytest.mark.rest
def test_decisions_are_the_same_where_nothing_is_compiled() -> None:
    """The kernels as plain Python, with the same numpy below them."""
    this = f"{__file__}::{test_decisions_are_what_they_were.__name__}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-k", "altruistic or drf", this],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
