"""Which tasks have started here, of jobs whose tasks may start once: what is forgotten is known to be forgotten."""

from __future__ import annotations

import pytest

from node_monitor.remembered_starts import STARTED_MIN, RememberedStarts


def test_a_node_that_has_forgotten_starts_does_not_vouch_for_jobs_that_may_be_among_them() -> None:
    starts = RememberedStarts(share=0.0)
    for task in range(STARTED_MIN):
        starts.add(("anna", 1), "first", task, 10.0)
    starts.add(("anna", 1), "first", 0, 11.0)
    assert starts.complete_since("anna", 0.0) and len(starts.of(("anna", 1), "first")) == STARTED_MIN
    starts.add(("anna", 1), "second", 0, 20.0)
    assert starts.of(("anna", 1), "first") == [] and starts.of(("anna", 1), "second") == [0]
    assert (
        not starts.complete_since("anna", 9.0)
        and not starts.complete_since("anna", 10.0)
        and starts.complete_since("anna", 10.1)
    )


def test_one_users_starts_drive_out_nobody_elses() -> None:
    starts = RememberedStarts(share=0.0)
    starts.add(("bert", 1), "his", 0, 1.0)
    for task in range(STARTED_MIN):
        starts.add(("anna", 1), f"j{task}", 0, 10.0 + task)
    assert starts.complete_since("bert", 0.0) and starts.of(("bert", 1), "his") == [0]
    assert not starts.complete_since("anna", 10.0) and starts.complete_since("anna", 10.5)


def test_users_who_forget_are_known_one_by_one_up_to_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("node_monitor.remembered_starts.FORGETFUL_USERS_MAX", 1)
    starts = RememberedStarts(share=0.0)
    for user, since_s in (("anna", 10.0), ("bert", 20.0)):
        for task in range(STARTED_MIN + 1):
            starts.add((user, 1), "j", task, since_s)
    assert [starts.complete_since(user, 15.0) for user in ("anna", "bert", "carl")] == [True, False, True]
    assert not starts.complete_since("carl", 10.0)


def test_a_job_with_more_tasks_than_are_remembered_is_not_vouched_for() -> None:
    starts = RememberedStarts(share=0.0)
    for task in range(STARTED_MIN + 1):
        starts.add(("anna", 1), "j", task, 10.0 + task)
    assert not starts.complete_since("anna", 9.0)


def test_a_task_that_starts_again_counts_once() -> None:
    starts = RememberedStarts(share=0.0)
    for _ in range(2):
        for task in range(STARTED_MIN):
            starts.add(("anna", 1), "j", task, 1.0)
    assert starts.of(("anna", 1), "j") == list(range(STARTED_MIN)) and starts.complete_since("anna", 0.0)


def test_jobs_of_one_id_are_told_apart() -> None:
    starts = RememberedStarts()
    starts.add(("anna", 1), "nightly", 3, 1.0)
    starts.add(("anna", 2), "nightly", 4, 2.0)
    assert (starts.of(("anna", 1), "nightly"), starts.of(("anna", 2), "nightly")) == ([3], [4])
    assert starts.of(("bert", 1), "nightly") == []
