"""Results and inputs that got lost: they are produced or uploaded again, and who waits for them starts then."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book.lost_inputs import INPUT_LOSSES_MAX
from simulator.soak.world import World
from sparrow_py.errors import LinkError
from sparrow_py.job import GIVEN_MAX, BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import StagedRig as Rig
from tests.support.scheduler_rig import ref

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST

# ---- results that got lost -----------------------------------------------------------------------


def lose_a_result(**fields: Any) -> tuple[Rig, m.Launch]:
    """a's large result is gone when b is to start; and the launch of b."""
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 1, ["a"]), **fields)
    (producer,) = rig.run()
    rig.report(producer, result=ref("f"))
    assert rig.settled() == [(0, FINISHED)]
    (consumer,) = rig.run()
    rig.missing(consumer, "f" * 64)
    return rig, consumer


@pytest.mark.parametrize("result", [ref("f", "m:1"), ref("e", "m:1"), b"small this time"])
def test_a_lost_result_is_produced_again_without_a_second_outcome(result: m.Data) -> None:
    rig, _ = lose_a_result()
    assert rig.take(m.Retried) == [m.Retried("j", 0, 1)]
    (again,) = rig.run()
    assert again.task == 0
    rig.take(m.Input)
    rig.report(again, result=result)
    (consumer,) = rig.run()
    assert [put.data for put in rig.take(m.Input)] == [result]
    rig.report(consumer)
    assert rig.settled() == [(1, FINISHED)] and len(rig.take(m.JobEnded)) == 1


def test_what_was_given_to_a_task_is_kept_as_long_as_it_may_have_to_run_again() -> None:
    """a, b, c in a chain: b is over and its large result lost, so it needs that of a once more."""
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 1, ["a"]), ("c", ["b"], 1, ["b"]))
    rig.report(rig.run()[0], result=b"of a")
    rig.report(rig.run()[0], result=ref("f"))
    rig.core.node_up("m", m.NodeInfo(4, {}, {}, {"many": ""}), 0.0)
    (c,) = rig.run() or rig.run("m")
    where = next(attempt.node_id for attempt in rig.core.jobs["j"].attempts.values())
    rig.take(m.Input)
    rig.missing(c, "f" * 64, node=where)
    rig.core.node_down("n", 0.0)
    (again,) = rig.run("m")
    assert again.task == 1 and [(put.task, put.data) for put in rig.take(m.Input)] == [(0, b"of a")]
    rig.report(again, result=ref("f", "m:1"), node="m")
    (c,) = rig.run("m")
    rig.report(c, node="m")
    assert not rig.core.jobs and not rig.core.admission.held_bytes


def test_a_result_that_was_replaced_meanwhile_is_not_produced_yet_again() -> None:
    """Two tasks miss it; the second says so when it is back already."""
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 2, ["a"]))
    rig.report(rig.run()[0], result=ref("f"))
    one, other = rig.run()
    rig.missing(one, "f" * 64)
    (again,) = rig.run()
    rig.report(again, result=ref("e", "m:1"))
    rig.missing(other, "f" * 64)
    assert not rig.take(m.BlobLost)
    assert sorted(launch.task for launch in rig.run()) == [1, 2]


@pytest.mark.parametrize("max_attempts", [1, 2])
def test_when_the_producer_may_not_start_again_the_task_is_lost_and_says_why(max_attempts: int) -> None:
    rig, _ = lose_a_result(max_attempts=max_attempts)
    if max_attempts == 2:
        (again,) = rig.run()
        rig.report(again, result=ref("f", "m:1"))
        (consumer,) = rig.run()
        rig.missing(consumer, "f" * 64)
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.task, outcome.status) == (1, LOST)
    assert f"task 0, which produced it, has been started {max_attempts} times" in outcome.error
    assert not rig.core.jobs


def test_nothing_runs_again_for_a_task_that_is_lost_for_another_of_its_inputs() -> None:
    rig = Rig()
    rig.submit(("a", [], 2), ("b", ["a"], 1, ["a"]), max_attempts=2)
    first, second = rig.run()
    rig.report(first, result=ref("f"))
    rig.report(second, LOST)
    (again,) = rig.run()
    rig.report(again, result=ref("e"))
    (consumer,) = rig.run()
    rig.take(m.Retried)
    rig.missing(consumer, "f" * 64, "e" * 64)
    assert rig.settled()[-1] == (2, LOST)
    assert not rig.take(m.Retried) and not rig.run() and not rig.core.jobs


def test_when_the_producer_fails_this_time_the_task_is_lost_and_says_why() -> None:
    rig, _ = lose_a_result()
    (again,) = rig.run()
    rig.report(again, FAILED)
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.task, outcome.status) == (1, LOST) and "task 0, which produced it, was failed: oh" in outcome.error


def test_cancellation_while_a_result_is_produced_again_cancels_who_waits_for_it() -> None:
    rig, _ = lose_a_result()
    rig.client(m.CancelJob("j"))
    assert rig.settled() == [(1, CANCELLED)] and not rig.core.jobs


# ---- inputs that the client gave -----------------------------------------------------------------


def lose_an_input(**fields: Any) -> Rig:
    """A job whose one task has a large payload that no node has any more."""
    rig = Rig()
    rig.submit(("a", [], 1), payloads=[ref("f")], **fields)
    (launch,) = rig.run()
    rig.missing(launch, "f" * 64)
    assert rig.take(m.BlobLost) == [m.BlobLost("j", "f" * 64)]
    return rig


def test_an_input_that_vanished_is_asked_for_and_the_task_starts_once_it_is_back() -> None:
    rig = lose_an_input()
    assert not rig.run()
    rig.client(m.BlobAt("j", ref("f", "m:1")))
    (launch,) = rig.run()
    assert launch.payload == ref("f", "m:1")
    rig.report(launch)
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.status, outcome.attempts) == (FINISHED, 1)  # It had not started before.


def test_an_input_that_the_client_does_not_have_loses_its_task() -> None:
    rig = lose_an_input()
    rig.client(m.BlobAt("j", BlobRef("f" * 64, 0, ())))
    (outcome,) = rig.take(m.Outcome)
    assert outcome.status is LOST and "the client does not have it" in outcome.error and not rig.core.jobs


def test_an_input_that_the_client_could_not_upload_again_loses_its_task_and_says_why_in_few_words() -> None:
    rig = lose_an_input()
    rig.client(m.BlobAt("j", BlobRef("f" * 64, 0, ()), "m:1: the blob is 9 bytes" + "; 8 are in use" * 1000))
    (outcome,) = rig.take(m.Outcome)
    assert outcome.status is LOST and not rig.core.jobs
    assert outcome.error.startswith(
        "an input is gone, and the client could not upload it again: m:1: the blob is 9 bytes; 8 are in use;"
    )
    assert len(outcome.error) < m.WITHDRAWN_CHARS_MAX + 100


@pytest.mark.parametrize("on_client_lost", ["cancel", "finish"])
def test_an_input_that_went_away_with_the_client_ends_its_task(on_client_lost: str) -> None:
    rig = lose_an_input(on_client_lost=on_client_lost)
    rig.core.client_down("c", 0.0)
    assert not rig.core.jobs


def test_inputs_that_come_and_go_are_not_sought_for_ever() -> None:
    rig = lose_an_input()
    for _ in range(INPUT_LOSSES_MAX - 1):
        rig.client(m.BlobAt("j", ref("f", "m:1")))
        (launch,) = rig.run()
        rig.missing(launch, "f" * 64)
    (outcome,) = rig.take(m.Outcome)
    assert outcome.status is LOST and "could not be had" in outcome.error


def test_inputs_that_went_together_may_be_found_gone_one_by_one() -> None:
    """Of a node that was started anew, and is there again."""
    rig, names = Rig(), "01234567"
    assert len(names) > INPUT_LOSSES_MAX
    rig.core.node_up("x", m.NodeInfo(0, {}, {}, {}, "x:1"), 0.0)
    rig.submit(("a", [], 1, ["given"]), given=tuple(ref(name, "x:1") for name in names))
    for name in names:
        (launch,) = rig.run()
        rig.missing(launch, name * 64)
        rig.client(m.BlobAt("j", ref(name, "x:1")))
    (launch,) = rig.run()
    rig.missing(launch, "0" * 64)
    (outcome,) = rig.take(m.Outcome)
    assert outcome.status is LOST and "could not be had" in outcome.error


# ---- data that were given to the job -------------------------------------------------------------


def lose_what_was_given(**fields: Any) -> Rig:
    """A job of two tasks that ask for data which no node has any more."""
    rig = Rig()
    rig.submit(("a", [], 2, ["given"]), given=(ref("e", "e:1"), ref("f")), **fields)
    one, other = rig.run()
    assert [(put.task, put.data) for put in rig.take(m.Input)] == [(2, ref("e", "e:1")), (3, ref("f"))]
    assert one.inputs == other.inputs == ((2, 2),)
    rig.missing(one, "f" * 64)
    assert rig.take(m.BlobLost) == [m.BlobLost("j", "f" * 64)]
    rig.missing(other, "f" * 64)
    assert not rig.take(m.BlobLost) and not rig.run()
    return rig


def test_what_was_given_is_asked_for_and_its_tasks_start_once_it_is_back() -> None:
    rig = lose_what_was_given()
    rig.client(m.BlobAt("j", ref("f", "m:1")))
    one, other = rig.run()
    assert [(put.task, put.data) for put in rig.take(m.Input)] == [(3, ref("f", "m:1"))]  # e was sent there before.
    rig.report(one)
    rig.report(other)
    assert [status for _, status in rig.settled()] == [FINISHED, FINISHED] and not rig.core.jobs


def test_what_was_given_and_the_client_does_not_have_loses_its_tasks() -> None:
    rig = lose_what_was_given()
    rig.client(m.BlobAt("j", BlobRef("f" * 64, 0, ())))
    outcomes = rig.take(m.Outcome)
    assert [outcome.status for outcome in outcomes] == [LOST, LOST] and not rig.core.jobs
    assert all("the client does not have it" in outcome.error for outcome in outcomes)


@pytest.mark.parametrize("on_client_lost", ["cancel", "finish"])
def test_what_was_given_and_went_away_with_the_client_ends_its_tasks(on_client_lost: str) -> None:
    rig = lose_what_was_given(on_client_lost=on_client_lost)
    rig.core.client_down("c", 0.0)
    assert not rig.core.jobs


def test_a_result_and_what_was_given_may_be_the_same_bytes() -> None:
    """The result is what can be had again without the client."""
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 1, ["a", "given"]), given=(ref("f"),))
    rig.report(rig.run()[0], result=ref("f"))
    (consumer,) = rig.run()
    rig.missing(consumer, "f" * 64)
    assert not rig.take(m.BlobLost)
    rig.report(rig.run()[0], result=ref("f", "m:1"))
    rig.take(m.Input)
    (consumer,) = rig.run()
    rig.report(consumer)
    assert [status for _, status in rig.settled()] == [FINISHED, FINISHED] and not rig.core.jobs


@pytest.mark.parametrize("wanted", [(1, 1), (2, 2), (3, 1), (0, 2), (-1, 1), (2, 0)])
def test_a_task_asks_for_what_its_job_was_not_given(wanted: tuple[int, int]) -> None:
    rig = Rig()
    job = m.SubmitJob("j", 0, "", [m.Stage("many", 2, b"", "", 1.0, 0, None)], 3, False, None, False)
    with pytest.raises(LinkError, match="nor data that the job was given"):
        rig.client(job, m.AddTasks("j", 0, [b"p"] * 2, {0: m.TaskDetail((), (wanted,))}, (ref("f"),)))


def test_too_much_is_given() -> None:
    rig = Rig()
    job = m.SubmitJob("j", 0, "", [m.Stage("many", 1, b"", "", 1.0, 0, None)], 3, False, None, False)
    rig.client(job, m.AddTasks("j", 0, [], None, (ref("f"),) * GIVEN_MAX))
    with pytest.raises(LinkError, match=f"is given {GIVEN_MAX + 1} pieces of data; at most {GIVEN_MAX}"):
        rig.client(m.AddTasks("j", 0, [b"p"], None, (ref("f"),)))


def test_data_that_come_before_the_tasks_in_several_messages_are_counted_through() -> None:
    rig = Rig()
    job = m.SubmitJob("j", 0, "", [m.Stage("many", 1, b"", "", 1.0, 0, None)], 3, False, None, False)
    given = [m.AddTasks("j", 0, [], None, (ref(name),)) for name in "ef"]
    rig.client(job, *given, m.AddTasks("j", 0, [b"p"], {0: m.TaskDetail((), ((2, 1), (1, 1)))}))
    (launch,) = rig.run()
    assert launch.inputs == ((2, 1), (1, 1))
    assert [(put.task, put.data) for put in rig.take(m.Input)] == [(2, ref("f")), (1, ref("e"))]


def test_what_is_given_counts_with_what_is_held_for_its_user() -> None:
    rig, other = Rig(), Rig()
    rig.submit(("a", [], 1, ["given"]), given=(ref("f"),))
    other.submit(("a", [], 1))
    assert sum(rig.core.admission.held_bytes.values()) > sum(other.core.admission.held_bytes.values())
    rig.report(rig.run()[0])
    assert not rig.core.jobs and not rig.core.admission.held_bytes


# ---- the whole of it -----------------------------------------------------------------------------


@pytest.mark.parametrize("results_differ", [False, True])
def test_jobs_of_large_results_survive_the_nodes_that_hold_them(results_differ: bool) -> None:
    """Every 30 ms a node dies with what lies there; there are attempts enough."""
    reruns = 0
    for seed in range(8):
        world = World(seed, nodes=[2] * 4, results_differ=results_differ)
        a, b, c = ("a", [], [0.01] * 4), ("b", ["a"], [0.02] * 4), ("c", ["b", "a"], [0.02] * 4)
        log = world.submit_stages(a, b, c, large=True, max_attempts=100)
        for _ in range(4):
            world.run_for(0.03)
            world.crash_node(world.rng.choice(world.nodes), back_after_s=0.02)
        world.run()
        world.check_end()
        assert log.statuses() == [FINISHED] * 12
        done = [start.task for start in log.starts if start.ended_at_s is not None and not start.failed]
        reruns += len(done) - 12
    assert reruns > 0
