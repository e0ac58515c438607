"""What a node monitor remembers for failovers: one user's jobs do not make it forget another's."""

import pytest

from node_monitor import memory
from node_monitor.memory import LARGE_BYTES, Memory
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

ADA, MALLORY = ("ada", 1), ("mallory", 1)


def report(task: int, size: int = 0) -> m.Report:
    return m.Report("j", task, task, TaskStatus.FINISHED, bytes(size), "", 0.0, 0.1)


@pytest.mark.parametrize("size", [0, LARGE_BYTES + 1])
def test_outcomes(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(memory, "OUTCOMES_MAX", 100)
    monkeypatch.setattr(memory, "LARGE_OUTCOME_BYTES_MAX", 100 * (LARGE_BYTES + 1))
    remembers = Memory()
    remembers.remember(ADA, report(7, size))
    for task in range(1000):
        remembers.remember(MALLORY, report(task, size))
    assert [one.task for one in remembers.outcomes(ADA, "j")] == [7]
    assert [one.task for one in remembers.outcomes(MALLORY, "j")] == list(range(902, 1000))
    assert list(remembers.outcomes(("mallory", 2), "j")) == [] == list(remembers.outcomes(ADA, "k"))


def test_fences(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FENCES_MAX", 100)
    remembers = Memory()
    for owner in (ADA, *((f"user{number}", 1) for number in range(10))):
        remembers.fence(owner, "first", 3)
    for number in range(1000):
        remembers.fence(MALLORY, f"{number}", 1)
        remembers.fence(MALLORY, "again and again", number)
    assert remembers.epoch(ADA, "first") == 3
    assert len(remembers.fences) == 100 and remembers.epoch(MALLORY, "again and again") == 999
    for number in range(200):
        remembers.fence(ADA, f"{number}", 2)
    assert len(remembers.fences) == 100
    assert sorted(len(of_user) for of_user in remembers._fenced.values())[-2:] == [45, 45]
