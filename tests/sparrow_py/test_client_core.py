"""The client's pure core: outcomes exactly once, refusals and retries, streaming, cancellation before and after."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest

from sparrow_py.errors import InvalidRequest, NoScheduler, Refused, SparrowError
from sparrow_py.job import RetryPolicy, StageSpec, TaskStatus
from sparrow_py.session.client_job import ClientJob, chunks
from sparrow_py.session.core import RETRY_GROWN_MAX_S, RETURN_TIMEOUT_S
from sparrow_py.wire import messages as m
from tests.support.client_core import Rig, outcome

FINISHED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.CANCELLED, TaskStatus.LOST


def test_each_outcome_is_told_once() -> None:
    rig = Rig("s")
    _, told = rig.submit(3)
    rig.receive(
        m.JobAccepted("j"), m.JobAccepted("j"), outcome(1), outcome(1, LOST), outcome(0), outcome(1), outcome(7)
    )
    rig.receive(outcome(2), scheduler="other")  # Not from the scheduler that has the job.
    rig.receive(outcome(-1), outcome(2), m.JobEnded("j"), m.JobEnded("j"), outcome(2))
    assert told.outcomes == dict.fromkeys(range(3), FINISHED)
    assert told.calls == ["accepted", "ended"]
    assert rig.core.duplicates == 6
    assert not rig.core.jobs


def test_a_job_that_its_scheduler_ends_without_a_word_is_lost() -> None:
    rig = Rig("s")
    _, told = rig.submit(2)
    rig.receive(m.JobAccepted("j"), outcome(0), m.JobEnded("j"))
    assert told.outcomes == {0: FINISHED, 1: LOST}
    assert told.calls == ["accepted", "ended"]


def test_an_empty_job_ends() -> None:
    rig = Rig("s")
    _, told = rig.submit(0)
    assert rig.kinds() == [m.SubmitJob]
    rig.receive(m.JobAccepted("j"), m.JobEnded("j"))
    assert told.calls == ["accepted", "ended"]


def test_a_refusal_with_retry_after_is_tried_again_then() -> None:
    rig = Rig("s")
    _, told = rig.submit(2)
    assert rig.kinds() == [m.SubmitJob, m.AddTasks]
    rig.receive(m.JobRefused("j", "full", "", 2.0), now_s=1.0)
    assert rig.core.next_deadline_s() == 3.0
    rig.core.tick(2.9)
    assert rig.kinds() == [] and told.calls == []
    rig.core.tick(3.0)
    assert rig.kinds() == [m.SubmitJob, m.AddTasks]
    rig.receive(m.JobAccepted("j"), now_s=3.1)
    assert told.calls == ["accepted"]


def test_a_job_that_is_refused_again_and_again_waits_longer_each_time() -> None:
    """Else all that were refused came back at the moment when there may be room for one of them."""
    rig = Rig("s", submit_timeout_s=100.0)
    rig.submit(2)
    now_s, waits_s = 0.0, []
    for _ in range(12):
        rig.receive(m.JobRefused("j", "full", "", 0.1), now_s=now_s)
        due_s = rig.core.next_deadline_s()
        assert due_s is not None
        waits_s.append(due_s - now_s)
        now_s = due_s
        rig.core.tick(now_s)
    assert waits_s[0] == pytest.approx(0.1)
    for number, wait_s in enumerate(waits_s):
        grown_s = min(0.1 * 2**number, RETRY_GROWN_MAX_S)
        assert max(0.1, grown_s / 2) <= wait_s + 1e-9 and wait_s <= grown_s + 1e-9
    assert len({round(wait_s, 6) for wait_s in waits_s[-5:]}) == 5, "not all jobs come back at the same moment"
    rig.receive(m.JobRefused("j", "full", "", 7.0), now_s=now_s)
    assert rig.core.next_deadline_s() == pytest.approx(now_s + 7.0), "what the scheduler says is the least"
    rig.core.tick(now_s + 7.0)
    rig.receive(m.JobAccepted("j"), now_s=now_s + 7.0)
    rig.core.check_invariants()


def test_a_job_that_is_refused_again_and_again_is_offered_once_more_at_its_deadline() -> None:
    rig = Rig("s")
    _, told = rig.submit(2)
    now_s = 0.0
    while not told.error:
        rig.receive(m.JobRefused("j", "full", "", 0.5), now_s=now_s)
        if (due_s := rig.core.next_deadline_s()) is not None and not told.error:
            now_s = due_s
            rig.core.tick(now_s)
    assert isinstance(told.error, Refused) and now_s == 10.0


def test_a_refusal_is_final_when_trying_again_would_be_too_late() -> None:
    rig = Rig("s")
    _, told = rig.submit(2)
    rig.receive(m.JobRefused("j", "full", "", 5.0), now_s=6.0)
    assert isinstance(told.error, Refused) and told.error.retry_after_s == 5.0 and "full" in str(told.error)
    assert not rig.core.jobs and told.outcomes == {}


def test_a_refusal_that_names_a_field_is_an_invalid_request() -> None:
    rig = Rig("s")
    _, told = rig.submit(1)
    rig.receive(m.JobRefused("j", "no node monitor runs the app 'x'", "app", None))
    assert isinstance(told.error, InvalidRequest) and told.error.field == "app"


def test_what_fails_for_good_ends_all_jobs_and_those_to_come() -> None:
    rig = Rig("s")
    _, told = rig.submit(2)
    _, begun = rig.submit(1, job_id="begun")
    rig.receive(m.JobAccepted("begun"))
    error = SparrowError("no node monitor is left")
    rig.core.fail(error)
    rig.core.check_invariants()
    assert told.error is begun.error is error
    assert told.outcomes == begun.outcomes == {} and rig.core.next_deadline_s() is None
    with pytest.raises(SparrowError, match="no node monitor is left"):
        rig.submit(1, job_id="late")
    rig.receive(m.JobEnded("begun"))
    assert begun.calls == ["accepted", "refused"], "what was on its way is told to nobody"


def test_without_a_scheduler_a_job_waits_and_gives_up_in_time() -> None:
    rig = Rig()
    _, told = rig.submit(1)
    _, late = rig.submit(1, job_id="late", now_s=5.0)
    rig.core.tick(10.0)
    rig.core.check_invariants()
    assert isinstance(told.error, NoScheduler)
    rig.core.scheduler_up("s", m.FRAME_BYTES_MAX, 11.0)
    assert rig.kinds() == [m.SubmitJob, m.AddTasks]
    assert late.calls == []


def test_a_job_of_a_lost_scheduler_goes_to_another_with_what_is_known_of_it() -> None:
    """Guarantee 4; whether it had been accepted or not, as far as the client knows."""
    rig = Rig("s", "t")
    job, told = rig.submit(3)
    first = job.scheduler
    assert first is not None
    rig.core.receive(first, m.JobAccepted("j"), 1.0)
    rig.core.receive(first, outcome(1), 1.0)
    rig.core.receive(first, m.Retried("j", 2, 1), 1.0)
    rig.outbox.sent.clear()
    rig.core.scheduler_down(first, "gone", 1.0)
    rig.core.check_invariants()
    assert job.scheduler not in (first, None)
    (_, submitted), (_, known), (_, starts) = rig.outbox.sent[:3]
    assert isinstance(submitted, m.SubmitJob) and submitted.epoch == 1
    assert known == m.Known("j", [m.KnownOutcome(1, FINISHED, b"")], {})
    assert starts == "stream"
    assert next(iter(job.chunks)) == m.Known("j", [], {2: 1})
    rig.core.receive(first, outcome(0), 2.0)
    assert told.outcomes == {1: FINISHED}, "the lost scheduler is not listened to any more"
    rig.core.receive(job.scheduler, m.JobAccepted("j"), 2.0)
    for task in range(3):
        rig.core.receive(job.scheduler, outcome(task), 2.0)
    rig.core.receive(job.scheduler, m.JobEnded("j"), 2.0)
    assert told.outcomes == {0: FINISHED, 1: FINISHED, 2: FINISHED}
    assert told.calls == ["accepted", "ended"] and rig.core.duplicates == 2


def test_each_move_raises_the_epoch() -> None:
    rig = Rig("s", "t")
    job, _ = rig.submit(1)
    for epoch in (1, 2):
        assert job.scheduler is not None
        lost = job.scheduler
        rig.core.scheduler_down(lost, "gone", 1.0)
        assert job.submission.epoch == epoch
        rig.core.scheduler_up(lost, m.FRAME_BYTES_MAX, 1.0)
    assert rig.core.moves == 2


def returning() -> tuple[Rig, str, str]:
    """A job has lost the link to its scheduler, which is dialled again; the names of that one and of another."""
    rig = Rig("s", "t")
    job, _ = rig.submit(2)
    home = job.scheduler
    assert home is not None
    other = "t" if home == "s" else "s"
    rig.core.scheduler_down(home, "no sign of life", 1.0, redialled=True)
    rig.core.check_invariants()
    assert job.scheduler is None and job.submission.epoch == 1
    return rig, home, other


def test_a_job_goes_back_to_its_scheduler_if_that_is_there_again() -> None:
    rig, home, other = returning()
    rig.core.scheduler_up("u", m.FRAME_BYTES_MAX, 1.1)
    rig.core.scheduler_unreachable(other, 1.2)
    assert rig.core.jobs["j"].scheduler is None
    rig.core.scheduler_up(home, m.FRAME_BYTES_MAX, 1.5)
    assert rig.core.jobs["j"].scheduler == home
    assert rig.outbox.take(m.SubmitJob)[-1][0] == home
    rig.core.tick(100.0)
    rig.core.check_invariants()
    assert rig.core.jobs["j"].scheduler == home


@pytest.mark.parametrize("how", ["unreachable", "late"])
def test_a_job_whose_scheduler_stays_away_goes_to_another(how: str) -> None:
    rig, home, other = returning()
    if how == "unreachable":
        rig.core.scheduler_unreachable(home, 1.1)
    else:
        rig.core.tick(2.9)
        assert rig.core.jobs["j"].scheduler is None
        assert rig.core.next_deadline_s() == 1.0 + RETURN_TIMEOUT_S
        rig.core.tick(1.0 + RETURN_TIMEOUT_S)
    rig.core.check_invariants()
    assert rig.core.jobs["j"].scheduler == other


@pytest.mark.parametrize("how", ["unreachable", "late"])
def test_a_job_whose_scheduler_stays_away_waits_for_any_while_there_is_none(how: str) -> None:
    rig, home, other = returning()
    rig.core.scheduler_down(other, "gone as well", 1.0, redialled=True)
    if how == "unreachable":
        rig.core.scheduler_unreachable(home, 1.1)
    else:
        rig.core.tick(1.0 + RETURN_TIMEOUT_S)
    rig.core.check_invariants()
    assert rig.core.jobs["j"].scheduler is None
    rig.core.scheduler_up("u", m.FRAME_BYTES_MAX, 4.0)
    assert rig.core.jobs["j"].scheduler == "u"


def test_a_job_that_waits_for_its_scheduler_longer_than_it_may_be_submitted_ends_lost() -> None:
    rig = Rig("s", submit_timeout_s=1.0)
    _, told = rig.submit(1)
    rig.receive(m.JobAccepted("j"))
    rig.core.scheduler_down("s", "gone", 1.0, redialled=True)
    rig.core.tick(2.0)
    assert told.outcomes == {0: LOST}
    rig.core.tick(1.0 + RETURN_TIMEOUT_S)


def test_a_job_that_finds_no_other_scheduler_in_time_ends_lost() -> None:
    rig = Rig("s")
    job, told = rig.submit(2)
    rig.receive(m.JobAccepted("j"), outcome(1))
    rig.core.scheduler_down("s", "gone", 1.0)
    assert told.calls == ["accepted"] and job.scheduler is None
    deadline_s = rig.core.next_deadline_s()
    assert deadline_s is not None and deadline_s > 1.0
    rig.core.tick(deadline_s)
    assert told.outcomes == {0: LOST, 1: FINISHED} and told.calls == ["accepted", "ended"]


def test_a_cancelled_job_is_cancelled_at_the_next_scheduler_once_that_has_all_its_tasks() -> None:
    """Some of them may run: nothing is told of them before the node monitors have been asked."""
    rig = Rig("s", "t")
    job, told = rig.submit(3)
    first = job.scheduler
    assert first is not None
    rig.core.receive(first, m.JobAccepted("j"), 1.0)
    rig.core.receive(first, m.Retried("j", 2, 1), 1.0)
    rig.core.cancel_job("j", 1.0)
    rig.core.scheduler_down(first, "gone", 1.0)
    rig.outbox.sent.clear()
    second = job.scheduler
    assert second is not None and job.streaming
    rig.core.receive(second, m.JobAccepted("j"), 1.0)
    assert rig.outbox.sent == []
    rig.core.streamed(job)
    assert rig.outbox.sent == [(second, m.CancelJob("j"))] and told.outcomes == {}


# ---- cancellation ----------------------------------------------------------------------------


def test_a_job_that_no_scheduler_has_is_cancelled_here() -> None:
    rig = Rig()
    _, told = rig.submit(2)
    rig.core.cancel_job("j", 0.0)
    assert told.outcomes == {0: CANCELLED, 1: CANCELLED} and told.calls == ["ended"]
    rig.core.scheduler_up("s", m.FRAME_BYTES_MAX, 0.0)
    assert rig.kinds() == []


def test_a_cancelled_job_that_is_refused_is_not_submitted_again() -> None:
    rig = Rig("s")
    _, told = rig.submit(2)
    rig.core.cancel_job("j", 0.0)
    rig.receive(m.JobRefused("j", "full", "", 1.0))
    assert told.outcomes == {0: CANCELLED, 1: CANCELLED} and told.calls == ["ended"]
    rig.kinds()
    rig.core.tick(5.0)
    assert rig.kinds() == []


def test_cancelled_tasks_are_remembered_until_the_job_is_accepted_and_sent() -> None:
    """The scheduler forgets what it refuses, and knows no task that has not arrived."""
    rig = Rig("s", frame_bytes_max=m.MESSAGE_OVERHEAD_BYTES + 30)
    job, told = rig.submit(20)
    rig.core.cancel_tasks("j", [3, 1, 3], 0.0)
    rig.receive(m.JobRefused("j", "full", "", 1.0))
    rig.core.tick(1.0)
    rig.receive(m.JobAccepted("j"))
    assert m.CancelTasks not in rig.kinds()
    list(job.chunks)
    rig.core.streamed(job)
    assert rig.outbox.sent == [("s", m.CancelTasks("j", [1, 3]))]
    rig.receive(outcome(1, CANCELLED), m.NotCancelled("j", 3))
    assert told.calls == ["accepted", "not cancelled 3"]


def test_all_tasks_of_a_waiting_job_cancelled_one_by_one_end_it() -> None:
    rig = Rig()
    _, told = rig.submit(2)
    rig.core.cancel_tasks("j", [0], 0.0)
    rig.core.cancel_tasks("j", [0], 0.0)
    assert told.calls == []
    rig.core.cancel_tasks("j", [1], 0.0)
    assert told.outcomes == {0: CANCELLED, 1: CANCELLED} and told.calls == ["ended"]


def test_cancellations_are_cut_into_messages() -> None:
    rig = Rig("s")
    job, _ = rig.submit(25_000)
    list(job.chunks)
    rig.core.streamed(job)
    rig.receive(m.JobAccepted("j"))
    rig.outbox.sent.clear()
    rig.core.cancel_tasks("j", list(range(25_000)), 0.0)
    assert [len(message.tasks) for _, message in rig.outbox.sent] == [10_000, 10_000, 5_000]


# ---- sizes -----------------------------------------------------------------------------------


def test_chunks_fit_their_bytes_and_counts() -> None:
    rng = random.Random(1)
    payloads = [bytes(rng.choice((0, 1, 50, 900, 1000))) for _ in range(3000)]
    cut = list(chunks("j", payloads, 1000))
    assert [payload for chunk in cut for payload in chunk.payloads] == payloads
    assert [chunk.first for chunk in cut] == [sum(len(c.payloads) for c in cut[:n]) for n in range(len(cut))]
    assert all(sum(map(len, chunk.payloads)) <= 1000 for chunk in cut)
    assert [len(chunk.payloads) for chunk in chunks("j", [b""] * 25_000, 1 << 20)] == [10_000, 10_000, 5_000]


def test_a_job_of_100_000_tasks_streams() -> None:
    rig = Rig("s")
    job, told = rig.submit(100_000)
    assert rig.kinds() == [m.SubmitJob, m.AddTasks, "stream"] and job.streaming
    rest = list(job.chunks)
    assert sum(len(chunk.payloads) for chunk in rest) == 90_000
    rig.core.streamed(job)
    assert not job.streaming
    rig.core.receive("s", m.JobAccepted("j"), 0.0)
    for task in range(100_000):
        rig.core.receive("s", outcome(task), 0.0)
    rig.core.receive("s", m.JobEnded("j"), 0.0)
    assert len(told.outcomes) == 100_000 and told.calls == ["accepted", "ended"]


def test_a_payload_or_common_too_large_for_a_frame_is_named() -> None:
    rig = Rig("s", frame_bytes_max=m.MESSAGE_OVERHEAD_BYTES + 1000)
    with pytest.raises(InvalidRequest, match=r"tasks\[1\]: .*1001 bytes.*at most 1000 bytes"):
        rig.submit([b"", b"x" * 1001])
    with pytest.raises(InvalidRequest, match=r"common: .*1000 bytes"):
        rig.submit(1, common=b"x" * 1001)
    assert not rig.core.jobs and rig.kinds() == []
    rig.submit([b"x" * 1000], common=b"x" * 1000)


def test_a_waiting_job_too_large_for_the_scheduler_that_comes_is_refused() -> None:
    rig = Rig()
    _, told = rig.submit([b"x" * 1001])
    _, other = rig.submit(1, job_id="other")
    rig.core.scheduler_up("s", m.MESSAGE_OVERHEAD_BYTES + 1000, 0.0)
    assert isinstance(told.error, InvalidRequest) and other.error is None
    rig.core.check_invariants()


def test_a_job_too_large_for_the_scheduler_that_is_left_is_refused() -> None:
    rig = Rig("big")
    _, told = rig.submit([b"x" * 1001])
    rig.core.scheduler_up("small", m.MESSAGE_OVERHEAD_BYTES + 1000, 0.0)
    rig.core.scheduler_down("big", "gone", 0.0)
    assert isinstance(told.error, InvalidRequest) and not rig.core.jobs


def test_a_job_id_given_twice_is_an_error() -> None:
    rig = Rig("s")
    rig.submit(1)
    with pytest.raises(InvalidRequest, match="job_id"):
        rig.submit(1)
    assert list(rig.core.jobs) == ["j"]


# ---- schedulers that end in order --------------------------------------------------------------


def test_a_draining_scheduler_is_given_no_further_job_while_another_is_there() -> None:
    rig = Rig("s", "other")
    rig.receive(m.Draining(), scheduler="s")
    jobs = [rig.submit(1, job_id=f"j{number}")[0] for number in range(20)]
    assert {job.scheduler for job in jobs} == {"other"}
    rig.core.scheduler_down("other", "gone", 0.0)
    assert {job.scheduler for job in jobs} == {"s"}, "it may refuse them, and they are offered again"


def test_a_job_that_a_draining_scheduler_refuses_is_tried_at_another_at_once() -> None:
    rig = Rig("s")
    job, told = rig.submit(1)
    rig.core.scheduler_up("other", m.FRAME_BYTES_MAX, 0.0)
    rig.receive(m.Draining(), m.JobRefused("j", "the scheduler is shutting down", "", 1.0))
    assert (job.scheduler, job.submission.epoch, told.calls) == ("other", 0, [])


def test_a_job_that_avoids_one_at_a_draining_scheduler_is_offered_again_in_time_not_at_once() -> None:
    rig = Rig("s")
    rig.submit(1, job_id="first")
    rig.core.scheduler_up("other", m.FRAME_BYTES_MAX, 0.0)
    job, _ = rig.submit(1, avoid=["first"])
    rig.receive(m.Draining(), m.JobRefused("j", "the scheduler is shutting down", "", 1.0))
    assert (job.scheduler, rig.core.next_deadline_s()) == (None, 1.0)


def test_a_job_that_is_handed_over_goes_to_another_with_what_had_not_started() -> None:
    rig = Rig("s", "t", "u")
    for scheduler in ("t", "u"):
        rig.receive(m.Draining(), scheduler=scheduler)
    job, told = rig.submit(4)
    rig.receive(m.JobAccepted("j"), outcome(0), m.Draining())
    rig.core.scheduler_up("next", m.FRAME_BYTES_MAX, 0.0)
    rig.outbox.sent.clear()
    rig.receive(m.HandedOver("j", ((2, 2),)))
    sent = [message for to, message in rig.outbox.sent if to == "next"]
    assert sent[:3] == [
        job.submission,
        m.Known("j", [m.KnownOutcome(0, FINISHED, b"")], {}),
        "stream",
    ]
    assert list(job.chunks) == [m.Known("j", [], {}, ((2, 2),)), m.AddTasks("j", 0, [b"x"] * 4)]
    assert (job.scheduler, job.submission.epoch, rig.core.moves) == ("next", 1, 1)
    assert told.calls == ["accepted"]
    rig.receive(outcome(1), scheduler="s")  # It has nothing to say of the job any more.
    assert told.outcomes == {0: FINISHED}


@pytest.mark.parametrize("running", [False, True])
def test_a_job_that_was_cancelled_where_it_was_is_cancelled_where_it_goes(running: bool) -> None:
    """By an operator, say: the client has heard nothing of that yet."""
    rig = Rig("s")
    job, told = rig.submit(2)
    rig.core.scheduler_up("next", m.FRAME_BYTES_MAX, 0.0)
    rig.receive(m.JobAccepted("j"), m.Draining(), m.HandedOver("j", ((0, 2),), True, running))
    rig.outbox.sent.clear()
    rig.core.streamed(job)
    rig.receive(m.JobAccepted("j"), scheduler="next")
    assert ("next", m.CancelJob("j", running)) in rig.outbox.sent
    rig.receive(*(outcome(task, TaskStatus.CANCELLED) for task in range(2)), scheduler="next")
    assert told.outcomes == dict.fromkeys(range(2), TaskStatus.CANCELLED)


def test_what_had_not_started_at_one_scheduler_may_have_at_the_next_that_dies() -> None:
    rig = Rig("s")
    job, _ = rig.submit(2)
    rig.core.scheduler_up("next", m.FRAME_BYTES_MAX, 0.0)
    rig.receive(m.JobAccepted("j"), m.Draining(), m.HandedOver("j", ((0, 2),)))
    assert job.unstarted == ((0, 2),)
    rig.core.scheduler_down("next", "gone", 0.0)
    assert job.unstarted == ()


def test_a_job_that_did_not_reach_a_scheduler_that_ends_is_new_to_the_next() -> None:
    """It need not be claimed there, and none of its tasks counts as started."""
    rig = Rig("s")
    rig.receive(m.Draining())
    job, _ = rig.submit(2)
    rig.receive(m.AllHandedOver())
    rig.outbox.sent.clear()
    rig.core.scheduler_down("s", "the scheduler is shutting down", 0.0)
    rig.core.scheduler_up("next", m.FRAME_BYTES_MAX, 0.0)
    assert (job.scheduler, job.submission.epoch, rig.core.moves) == ("next", 0, 0)
    assert rig.outbox.sent[0] == ("next", job.submission)


def test_a_question_to_a_scheduler_that_did_not_get_the_job_is_answered_by_its_end() -> None:
    rig = Rig("s")
    rig.submit(2)
    told: list[Any] = []
    assert rig.core.ask_placed("j", [0, 1], told.append)
    rig.receive(m.AllHandedOver())
    assert told == [()]


def test_a_scheduler_that_has_handed_over_all_gets_no_more_jobs() -> None:
    rig = Rig("s")
    rig.receive(m.AllHandedOver())
    job, _ = rig.submit(1)
    assert job.scheduler is None and not rig.outbox.sent


def test_what_a_scheduler_had_accepted_and_did_not_hand_over_may_have_been_started() -> None:
    rig = Rig("s", "t")
    rig.receive(m.Draining(), scheduler="t")
    job, _ = rig.submit(1)
    rig.receive(m.JobAccepted("j"), m.AllHandedOver())
    assert (job.scheduler, job.submission.epoch) == ("t", 1)


# ---- what the next scheduler is to know ------------------------------------------------------


def known_of(job: ClientJob) -> list[m.Known]:
    return [message for message in job.messages(1 << 20) if isinstance(message, m.Known)]


def test_starts_are_acknowledged_and_told_to_the_next_scheduler() -> None:
    rig = Rig("s")
    job, _ = rig.submit(3)
    assert job.submission.acknowledges
    rig.outbox.sent.clear()
    rig.receive(m.Counted("j", {0: 1, 2: 2}))
    assert rig.outbox.sent == [("s", m.CountKnown("j", {0: 1, 2: 2}))]
    rig.receive(outcome(2))
    rig.core.scheduler_down("s", "gone", 7.0)
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 9.0)
    assert job.submission.age_s == 9.0
    assert {task: starts for known in known_of(job) for task, starts in known.starts.items()} == {0: 1}
    rig.core.receive("s", m.Counted("j", {1: 1}), 9.0)
    assert job.starts == {0: 1}, "the lost scheduler is not listened to any more"


def test_starts_of_a_task_that_may_have_to_run_again_for_its_result_are_told_as_well() -> None:
    rig = Rig("s")
    stages = [StageSpec([b"p"] * 2, name="first"), StageSpec([b"p"], name="last", after=["first"])]
    job, _ = rig.submit([], stages=stages)
    twice = m.Outcome("j", 0, FINISHED, b"r", "", 2, "n", None, None, None)
    rig.receive(twice, msgspec.structs.replace(twice, task=1, attempts=1))
    rig.core.scheduler_down("s", "gone", 1.0)
    assert {task: starts for known in known_of(job) for task, starts in known.starts.items()} == {0: 1}


def unstarted_of(job: ClientJob) -> list[tuple[int, int]]:
    return [some for known in known_of(job) for some in known.unstarted]


def test_tasks_that_wait_after_a_failure_are_told_as_without_a_start_wherever_the_job_goes() -> None:
    rig = Rig("s")
    job, _ = rig.submit(5, retry=RetryPolicy(), max_attempts=2)
    rig.outbox.sent.clear()
    rig.receive(m.Counted("j", dict.fromkeys((0, 1, 3), 0), dict.fromkeys((0, 1, 3), 1), waiting=True))
    assert not rig.outbox.sent
    assert [job.attempts(task) for task in range(3)] == [1, 1, 1]
    for gone, back in ("st", "ts"):
        rig.core.scheduler_down(gone, "gone", 1.0)
        rig.core.scheduler_up(back, m.FRAME_BYTES_MAX, 1.0)
        assert unstarted_of(job) == [(0, 2), (3, 1)]
    rig.receive(m.Counted("j", {0: 0}, {0: 1}), outcome(3))
    rig.core.scheduler_down("s", "gone", 2.0)
    assert unstarted_of(job) == [(1, 1)]
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 2.0)
    rig.core.receive("t", m.HandedOver("j", ((0, 1), (4, 1))), 2.0)
    assert unstarted_of(job) == [(0, 2), (4, 1)]
    rig.core.scheduler_up("u", m.FRAME_BYTES_MAX, 3.0)
    rig.core.scheduler_down(job.scheduler or "", "gone", 3.0)
    assert unstarted_of(job) == [(0, 2)], "what has not failed may have started since"


def test_failures_that_are_retried_are_acknowledged_and_told_to_the_next_scheduler() -> None:
    rig = Rig("s")
    stages = [StageSpec([b"p"] * 3, name="first", retry=RetryPolicy()), StageSpec([b"p"], name="last", after=["first"])]
    job, _ = rig.submit([], stages=stages)
    assert job.submission.stages[0].retry == m.Retry(5, 0.5, 2.0, 30.0, 0.5)
    rig.outbox.sent.clear()
    rig.receive(m.Counted("j", {0: 1, 1: 0}, {0: 2, 1: 1}))
    assert rig.outbox.sent == [("s", m.CountKnown("j", {0: 1, 1: 0}, {0: 2, 1: 1}))]
    rig.receive(m.Outcome("j", 0, FINISHED, b"r", "", 4, "n", None, None, None))
    assert job.attempts(1) == 2
    rig.core.scheduler_down("s", "gone", 1.0)
    known = known_of(job)
    assert {task: starts for one in known for task, starts in one.starts.items()} == {0: 1, 1: 0}
    assert {task: count for one in known for task, count in one.failures.items()} == {0: 2, 1: 1}


def test_where_tasks_that_may_start_once_were_started_is_acknowledged_and_told_to_the_next_scheduler() -> None:
    rig = Rig("s")
    job, _ = rig.submit(3, max_attempts=1)
    rig.outbox.sent.clear()
    rig.receive(m.Using("j", 5, ("A", "B")), m.Using("j", 6, ("C",)), m.Unused("j", "B"))
    assert rig.outbox.sent == [("s", m.UsingKnown("j", 5)), ("s", m.UsingKnown("j", 6))]
    rig.core.scheduler_down("s", "gone", 1.0)
    assert [known.used for known in known_of(job)] == [("A", "C")]


def test_that_nothing_was_started_anywhere_is_told_as_well() -> None:
    rig = Rig("s")
    job, _ = rig.submit(3, max_attempts=1)
    rig.core.scheduler_down("s", "gone", 1.0)
    assert [known.used for known in known_of(job)] == [()]


@pytest.mark.parametrize("fields", [{}, {"max_attempts": 1, "on_client_lost": "finish"}], ids=["again", "finish"])
def test_of_other_jobs_it_is_not_known(fields: dict[str, Any]) -> None:
    rig = Rig("s")
    job, _ = rig.submit(3, **fields)
    rig.core.scheduler_down("s", "gone", 1.0)
    assert known_of(job) == []


def test_a_job_that_was_at_too_many_nodes_does_without(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sparrow_py.session.core.USED_MAX", 2)
    rig = Rig("s")
    job, _ = rig.submit(3, max_attempts=1)
    rig.receive(m.Using("j", 5, ("A", "B", "C")))
    rig.core.scheduler_down("s", "gone", 1.0)
    assert job.used is None and known_of(job) == []


@pytest.mark.parametrize(
    ("submitted", "told", "attempts"),
    [(False, [], [0, 0]), (True, [], [1, 1]), (True, [m.Counted("j", {1: 2})], [1, 3])],
    ids=["none ever had it", "one is lost", "one had counted"],
)
def test_tasks_that_no_scheduler_takes_are_told_the_starts_that_may_have_been(
    submitted: bool, told: list[m.Message], attempts: list[int]
) -> None:
    rig = Rig(*(["s"] if submitted else []))
    job, seen = rig.submit(2)
    if submitted:
        rig.receive(m.JobAccepted("j"), *told)
        rig.core.scheduler_down("s", "gone", 1.0)
        rig.core.cancel_job("j", 1.0)
    assert [job.attempts(task) for task in range(2)] == attempts
    assert seen.outcomes == {}


def test_jobs_at_several_schedulers_cannot_be_avoided_by_one_job_which_is_refused_and_not_left_to_luck() -> None:
    rig = Rig("s")
    rig.submit(1, job_id="a")
    rig.core.scheduler_up("t", m.FRAME_BYTES_MAX, 0.0)
    number = 0
    while rig.core.jobs[f"b{number}" if number else "a"].scheduler != "t":
        number += 1
        rig.submit(1, job_id=f"b{number}")
    with pytest.raises(InvalidRequest, match=rf"avoid: .*one scheduler; a is at s, b{number} is at t") as caught:
        rig.submit(1, job_id="j", avoid=["a", f"b{number}", "ended"])
    assert caught.value.field == "avoid" and "j" not in rig.core.jobs
    job, _ = rig.submit(1, job_id="k", avoid=[f"b{number}", "ended"])
    assert job.scheduler == "t"
