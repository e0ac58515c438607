"""What the last task of a job waited for: slots, and all else that is told apart from them."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.book import setbacks
from scheduler.book.setbacks import Cause, Setback, Setbacks
from scheduler.recent.held_up import in_words
from scheduler.recent.last_task import LastTask, held_up_by
from scheduler.recent.timeline import TimelineRun
from sparrow_py.wire import messages as m
from tests.scheduler.recent.test_recent import WatchedRig
from tests.support.scheduler_rig import ref

FAILED, FINISHED = m.TaskStatus.FAILED, m.TaskStatus.FINISHED


def submit(rig: WatchedRig, *parts: m.AddTasks, retry: m.Retry | None = None) -> None:
    """The job j of one task, with these messages after it."""
    stage = m.Stage("many", 1, b"", "", 1.0, 0, None, retry=retry)
    job = m.SubmitJob(
        "j", 0, "", [stage], max_attempts=3, retry_failed=False, queue_timeout_s=None, report_placed=False
    )
    rig.client(job, *parts)


def reported(
    rig: WatchedRig, launch: m.Launch, times: tuple[float, float], status: m.TaskStatus = FINISHED, node: str = "n"
) -> None:
    """The attempt ran from then for so long, and its node says so at its end."""
    from_s, service_s = times
    report = m.Report("j", launch.task, launch.attempt, status, b"", "oh", from_s, service_s, retry=True)
    rig.node(node, report, now_s=from_s + service_s)


def held_up(rig: WatchedRig) -> list[str]:
    """What held the job up, without who ran where meanwhile."""
    job = rig.shown(99.0)
    after: list[tuple[int, ...]] = [() for _ in job.stages]
    return in_words(job, after, held_up_by(job, after, rig.recent.setbacks), None, lambda _: True)[2:]


def test_a_node_that_was_lost_is_no_wait_for_a_slot() -> None:
    rig = WatchedRig()
    rig.submit(("", (), 1))
    rig.run()
    rig.node_down("n", now_s=5.0)
    rig.node_up("other", now_s=5.0)
    reported(rig, rig.run("other")[0], (5.5, 1.0), node="other")
    assert held_up(rig) == [
        "held up by: task 0, the last to end, waited 5.5 s: 5 s until a start in vain was over (node n was lost), and "
        "0.5 s for a slot, which it got on other; then it ran for 1 s"
    ]


def test_a_want_of_nodes_is_none_either() -> None:
    rig = WatchedRig()
    rig.node("n", m.NodeState(m.DRAINING, ""))
    rig.submit(("", (), 1))
    rig.node_up("other", now_s=4.0)
    reported(rig, rig.run("other")[0], (4.5, 1.0), node="other")
    assert held_up(rig) == [
        "held up by: task 0, the last to end, waited 4.5 s: 4 s until a node that may run it was ready, and 0.5 s for "
        "a slot, which it got on other; then it ran for 1 s"
    ]


def test_neither_is_the_pause_before_a_retry_nor_what_ran_before_it() -> None:
    rig = WatchedRig()
    submit(rig, m.AddTasks("j", 0, [b"p"]), retry=m.Retry(3, 4.0, 1.0, 4.0, 0.0))
    reported(rig, rig.run()[0], (0.25, 2.0), FAILED)
    rig.tick(6.25)
    reported(rig, rig.run()[0], (6.5, 1.0))
    assert held_up(rig) == [
        "held up by: task 0, the last to end, waited 6.5 s: 2 s in earlier runs of it, 4 s in pauses before retries, "
        "and 0.5 s for a slot, which it got on n; then it ran for 1 s"
    ]


def test_nor_is_the_wait_for_results_of_other_jobs() -> None:
    rig = WatchedRig()
    asks = {0: m.TaskDetail(inputs=((1, 1),))}
    submit(rig, m.AddTasks("j", 0, [], awaited=(("gone", 0),)), m.AddTasks("j", 0, [b"p"], asks))
    rig.client(m.GiveResults("j", {1: b"x"}), now_s=3.0)
    reported(rig, rig.run()[0], (3.5, 1.0))
    assert held_up(rig) == [
        "held up by: task 0, the last to end, waited 3.5 s: 3 s until the results of other jobs that it asks for were "
        "there, and 0.5 s for a slot, which it got on n; then it ran for 1 s"
    ]


def test_nor_is_the_wait_for_inputs_that_were_lost_or_have_no_room() -> None:
    rig = WatchedRig()
    rig.submit(("", (), 1), payloads=[ref("a", "x:1")])
    rig.missing(rig.run()[0], "a" * 64)
    rig.client(m.BlobAt("j", ref("a", "n:1")), now_s=2.0)
    launch = rig.run()[0]
    rig.node("n", m.HandBack("j", launch.attempt, "full", no_room=m.NO_ROOM_NOW), now_s=2.5)
    rig.tick(3.0)
    reported(rig, rig.run()[0], (4.0, 1.0))
    last = held_up_by(rig.shown(99.0), [()], rig.recent.setbacks)
    assert last is not None
    spent, slot_s = last.parts()
    assert [cause for cause, _, _ in spent] == [Cause.INPUTS, Cause.ROOM]
    assert spent[0][1] == 2.0 and 0.05 <= spent[1][1] <= 0.1 and slot_s == pytest.approx(2.0 - spent[1][1])


def test_a_task_that_runs_at_once_makes_no_record() -> None:
    rig = WatchedRig()
    rig.submit(("map", (), 2), ("reduce", ("map",), 1))
    for launch in (*rig.run(), *rig.run()):
        reported(rig, launch, (1.0, 1.0))
    assert not rig.recent.setbacks._records


def test_of_many_the_latest_are_remembered_and_it_is_said_if_some_may_be_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(setbacks, "RECORDS_MAX", 2)
    rig = WatchedRig()
    rig.submit(("", (), 1))
    stage, kept = rig.core.jobs["j"].stages[0], Setbacks()
    for at_s in (1.0, 2.0, 3.0):
        kept.note(stage, 0, Cause.IN_VAIN, at_s, at_s, "x" * 10_000)
    assert [(one.from_s, len(one.reason)) for one in kept.of("j", 0, 0.0)] == [(2.0, 100), (3.0, 100)]
    assert kept.whole_since_s == 1.0 and not kept.of("j", 1, 0.0) and not kept.of("other", 0, 0.0)
    rig.recent.setbacks.whole_since_s = 1.0
    reported(rig, rig.run()[0], (5.0, 1.0))
    assert held_up(rig)[1] == "of what kept its tasks from starting besides, not all is remembered"


SECONDS = st.floats(0, 1e3)


@given(st.lists(st.tuples(st.sampled_from(Cause), SECONDS, st.just(math.inf) | SECONDS), max_size=8), SECONDS)
def test_what_a_wait_went_to_is_the_wait(had: list[tuple[Cause, float, float]], started_at_s: float) -> None:
    """Whatever order and times are noted: the parts have no less than no time, and are the whole."""
    noted = sorted((Setback(cause, at_s, at_s + for_s) for cause, at_s, for_s in had), key=lambda one: one.from_s)
    noted = [one for one in noted if one.from_s <= started_at_s]
    last = LastTask(TimelineRun(0, 0, started_at_s, 1.0, "finished"), "n", 0.0, noted)
    spent, slot_s = last.parts()
    assert slot_s >= 0 and all(some_s > 0 for _, some_s, _ in spent)
    assert slot_s + sum(some_s for _, some_s, _ in spent) == pytest.approx(last.waited_s)
    assert last.since_s <= last.slot_from_s <= started_at_s
