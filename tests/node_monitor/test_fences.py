"""Fences of claimed jobs: one user's jobs do not make a node forget another's."""

import pytest

from node_monitor import fences as fences_module
from node_monitor.fences import Fences

ADA, MALLORY = ("ada", 1), ("mallory", 1)


def test_one_users_fences_do_not_drive_out_anothers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences_module, "FENCES_MAX", 100)
    fences = Fences()
    for owner in (ADA, *((f"user{number}", 1) for number in range(10))):
        fences.raise_to(owner, "first", 3)
    for number in range(1000):
        fences.raise_to(MALLORY, f"{number}", 1)
        fences.raise_to(MALLORY, "again and again", number)
    assert fences.epoch(ADA, "first") == 3
    assert len(fences.epochs) == 100 and fences.epoch(MALLORY, "again and again") == 999
    for number in range(200):
        fences.raise_to(ADA, f"{number}", 2)
    assert len(fences.epochs) == 100
    assert sorted(len(claimed) for claimed in fences._by_user.values())[-2:] == [45, 45]


def test_a_job_that_nobody_claimed_has_no_fence() -> None:
    fences = Fences()
    fences.raise_to(ADA, "j", 2)
    assert (fences.epoch(ADA, "j"), fences.epoch(ADA, "k"), fences.epoch(MALLORY, "j")) == (2, 0, 0)


def test_another_job_of_the_same_id_has_its_own_fence() -> None:
    """A user may use an id again: the instance tells the jobs apart."""
    fences = Fences()
    fences.raise_to(("ada", 1), "nightly", 7)
    assert fences.epoch(("ada", 2), "nightly") == 0


def test_a_job_that_is_claimed_again_is_forgotten_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fences_module, "FENCES_MAX", 2)
    fences = Fences()
    for job, epoch in (("old", 1), ("other", 1), ("old", 2), ("new", 1)):
        fences.raise_to(ADA, job, epoch)
    assert fences.epochs == {(ADA, "old"): 2, (ADA, "new"): 1}
