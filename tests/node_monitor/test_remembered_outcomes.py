"""Outcomes that a node remembers for failovers: one user's jobs do not make it forget another's."""

import pytest

from node_monitor import remembered_outcomes
from node_monitor.remembered_outcomes import LARGE_BYTES, RememberedOutcomes
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m

ADA, MALLORY = ("ada", 1), ("mallory", 1)


def report(task: int, size: int = 0) -> m.Report:
    return m.Report("j", task, task, TaskStatus.FINISHED, bytes(size), "", 0.0, 0.1)


@pytest.mark.parametrize("size", [0, LARGE_BYTES + 1])
def test_one_users_outcomes_do_not_drive_out_anothers(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(remembered_outcomes, "OUTCOMES_MAX", 100)
    monkeypatch.setattr(remembered_outcomes, "LARGE_OUTCOME_BYTES_MAX", 100 * (LARGE_BYTES + 1))
    outcomes = RememberedOutcomes()
    outcomes.remember(ADA, report(7, size))
    for task in range(1000):
        outcomes.remember(MALLORY, report(task, size))
    assert [one.task for one in outcomes.of(ADA, "j")] == [7]
    assert [one.task for one in outcomes.of(MALLORY, "j")] == list(range(902, 1000))
    assert list(outcomes.of(("mallory", 2), "j")) == [] == list(outcomes.of(ADA, "k"))
