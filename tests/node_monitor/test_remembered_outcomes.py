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


def test_a_small_node_remembers_a_few_all_the_same() -> None:
    outcomes = RememberedOutcomes(share=0.0)
    for task in range(remembered_outcomes.OUTCOMES_MIN + 1):
        outcomes.remember(ADA, report(task))
    assert [one.task for one in outcomes.of(ADA, "j")] == list(range(1, remembered_outcomes.OUTCOMES_MIN + 1))


@pytest.mark.parametrize("name", ["result", "stdout", "stderr"])
def test_what_a_task_printed_counts_as_its_result_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remembered_outcomes, "LARGE_OUTCOME_BYTES_MAX", LARGE_BYTES + 100)
    outcomes = RememberedOutcomes()
    for task in range(2):
        large = report(task)
        setattr(large, name, bytes(LARGE_BYTES + 1) if name == "result" else "x" * (LARGE_BYTES + 1))
        outcomes.remember(ADA, large)
    outcomes.remember(ADA, report(7))
    assert {one.task for one in outcomes.of(ADA, "j")} == {1, 7}, "small ones do not drive out large ones"
