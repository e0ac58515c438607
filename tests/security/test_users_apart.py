"""One user's tasks against another's, in real workers: what the one leaves in its worker, the other does not meet."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator

import pytest

from sparrow_py import Client, LocalCluster

TURNS = 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    with LocalCluster(slots=1) as cluster:
        yield cluster


def poison(mark: str) -> int:
    """Change what every later task in this process runs with."""
    builtins.POISON = mark  # type: ignore[attr-defined]
    return os.getpid()


def look() -> tuple[int, str]:
    """This process, and what was left in it."""
    return os.getpid(), getattr(builtins, "POISON", "")


def test_users_who_take_turns_at_one_slot_never_share_a_worker(cluster: LocalCluster) -> None:
    with Client(cluster, user="anna") as anna, Client(cluster, user="bert") as bert:
        mine = {anna.submit(poison, "anna").result()}
        others = set()
        for _ in range(TURNS):
            pid, found = bert.submit(look).result()
            assert found == "", "it was anna's worker"
            others.add(pid)
            mine.add(anna.submit(poison, "anna").result())
        assert len(mine) == len(others) == 1 and mine != others, "each keeps its own"
