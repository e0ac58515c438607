"""What all parts of the book share: bytes that jobs hold, timers that keep no job, and what is remembered."""

from __future__ import annotations

import gc
import weakref

from scheduler.book.jobs import JobState, StageState
from scheduler.book.ledger import Ledger
from scheduler.options import SchedulerOptions
from tests.support.recorder import Recorder, submission


def ledger_of(**options: int) -> Ledger:
    return Ledger(SchedulerOptions(**options), Recorder())


def job_in(ledger: Ledger, name: str = "j") -> JobState:
    job = ledger.jobs[name] = JobState(submission(name), "c", "anna", 0.0)
    return job


def test_bytes_beyond_the_users_limit_are_counted_and_said() -> None:
    ledger = ledger_of(held_bytes_max=100)
    one, other = job_in(ledger, "one"), job_in(ledger, "other")
    assert ledger.holds(one, 60) and ledger.holds(other, 40)
    assert not ledger.holds(other, 1) and other.held_bytes == 41
    assert ledger.holds(other, -41) and ledger.holds(one, -60)
    assert not ledger.admission.held_bytes


def test_what_is_due_for_a_stage_is_done_while_its_job_is_here() -> None:
    ledger, done = ledger_of(), list[tuple[int, float]]()
    stage = job_in(ledger).stages[0]
    ledger.at_stage(1.0, stage, lambda stage, now_s: done.append((stage.index, now_s)))
    assert ledger.timers.next_deadline_s() == 1.0
    ledger.timers.run_due(1.5)
    assert done == [(0, 1.5)]


def test_what_was_due_for_a_job_that_left_is_not_done_for_another_of_its_id() -> None:
    ledger, done = ledger_of(), list[StageState]()
    ledger.at_stage(1.0, job_in(ledger).stages[0], lambda stage, _: done.append(stage))
    job_in(ledger)
    ledger.timers.run_due(2.0)
    assert not done


def test_a_timer_keeps_no_job() -> None:
    ledger = ledger_of()
    gone = weakref.ref(job := job_in(ledger))
    ledger.at_stage(1e9, job.stages[0], lambda *_: None)
    del ledger.jobs["j"], job
    gc.collect()  # A job and its stages refer to each other.
    assert gone() is None


def test_a_jobs_story_has_what_concerns_it_and_all() -> None:
    ledger = ledger_of(history_len_max=3)
    for number, job in enumerate(["j", "other", "", "j"]):
        ledger.note(float(number), job, "note %d", number)
    assert ledger.history.story("j") == ["2.000000 note 2", "3.000000 note 3"]
    assert ledger.history.touched == {"j", "other", ""}


def test_nothing_is_remembered_without_a_length() -> None:
    ledger = ledger_of(history_len_max=0)
    ledger.note(0.0, "j", "%d", "not a number")
    assert ledger.history.story("j") == [] and not ledger.history.touched
