"""Jobs of several stages: when they open, what dooms them, results by value or reference, and those that got lost."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest

from scheduler.book.jobs import JobState
from scheduler.book.lost_inputs import INPUT_LOSSES_MAX
from scheduler.core import SchedulerCore
from simulator.world import World
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


def ref(name: str, *at: str) -> BlobRef:
    """Large data; `name` is one hexadecimal digit."""
    return BlobRef(name * 64, 1 << 20, at or ("n:1",))


class Rig(SchedulerRig):
    """A scheduler with the node n, which may be asked to run what is due, and a client c."""

    def __init__(self, **options: Any) -> None:
        # What is written down here names tasks by the order in which stages were submitted.
        super().__init__("n", **{"order": "oldest"} | options)
        self.asks = 0

    def submit(self, *stages: tuple[Any, ...], **fields: Any) -> None:
        """The job j of stages (name, after, tasks, asks for all results of these stages)."""
        specs, details, firsts, number = [], {}, {}, 0
        for name, after, count, *rest in stages:
            firsts[name] = (number, count)
            specs.append(m.Stage("many", count, b"", "", 1.0, 0, None, name=name, after=tuple(after)))
            inputs = tuple(firsts[other] for other in (rest[0] if rest else ()))
            details.update({number + task: m.TaskDetail((), inputs) for task in range(count) if inputs})
            number += count
        fields = {"max_attempts": 3, "retry_failed": False, "queue_timeout_s": None, **fields}
        payloads = fields.pop("payloads", [b"p"] * number)
        job = m.SubmitJob("j", 0, "", specs, report_placed=False, **fields)
        self.client(job, m.AddTasks("j", 0, payloads, details or None))

    def run(self, node: str = "n") -> list[m.Launch]:
        """What is launched when the node asks for all that is reserved there."""
        for to, reserve in self.outbox.take(m.Reserve):
            if to == node:
                self.asks += 1
                self.node(node, m.GetTasks(self.asks, reserve.ticket, reserve.count))
        return [launch for to, launch in self.outbox.take(m.Launch) if to == node]

    def report(
        self, launch: m.Launch, status: TaskStatus = FINISHED, result: m.Data = b"r", *, node: str = "n"
    ) -> None:
        self.node(node, m.Report("j", launch.task, launch.attempt, status, result, "oh", 0.0, 0.1))

    def missing(self, launch: m.Launch, *hashes: str, node: str = "n") -> None:
        self.node(node, m.HandBack("j", launch.attempt, "n:1: 404", hashes))

    def settled(self) -> list[tuple[int, TaskStatus]]:
        return [(task, status) for task, status, _ in self.outcomes()]


# ---- order ---------------------------------------------------------------------------------------


def test_a_stage_opens_when_those_before_it_have_finished_without_a_word_of_the_client() -> None:
    rig = Rig()
    rig.submit(("a", [], 2), ("b", ["a"], 1))
    first, second = rig.run()
    rig.report(first)
    assert not rig.run()
    rig.report(second)
    (third,) = rig.run()
    assert third.task == 2
    rig.report(third)
    assert len(rig.take(m.JobEnded)) == 1 and not rig.core.jobs


def test_a_client_sends_two_messages_for_a_whole_dag() -> None:
    world = World(nodes=[4])
    sent = []
    (client,) = world.clients
    client.to_scheduler = lambda scheduler, message: (  # type: ignore[method-assign]
        sent.append(type(message)),
        client.links[scheduler].to_scheduler.send(message),
    )
    log = world.submit_stages(("a", [], [0.01] * 3), ("b", ["a"], [0.01] * 3), ("c", ["b"], [0.01]))
    world.run()
    assert log.statuses() == [FINISHED] * 7 and sent == [m.SubmitJob, m.AddTasks]


def test_a_diamond_runs_both_sides_at_a_time_and_then_its_end() -> None:
    rig = Rig()
    rig.submit(("top", [], 1), ("left", ["top"], 1), ("right", ["top"], 1), ("end", ["left", "right"], 1))
    (top,) = rig.run()
    rig.report(top)
    left, right = rig.run()
    rig.report(right)
    assert not rig.run()
    rig.report(left)
    assert [launch.task for launch in rig.run()] == [3]


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_empty_stages_are_over_when_it_is_their_turn(count: int) -> None:
    rig = Rig()
    empty = [(f"e{number}", [f"e{number - 1}" if number else "a"], 0) for number in range(count - 2)]
    rig.submit(("a", [], 1), *empty, ("z", [empty[-1][0] if empty else "a"], 1))
    (launch,) = rig.run()
    rig.report(launch)
    (launch,) = rig.run()
    rig.report(launch)
    assert not rig.core.jobs


def test_a_job_of_empty_stages_ends() -> None:
    rig = Rig()
    rig.submit(*[(f"e{number}", [f"e{number - 1}"] if number else [], 0) for number in range(1000)])
    assert len(rig.take(m.JobEnded)) == 1


def after_all_before(count: int, tasks: int) -> list[tuple[str, list[str], int]]:
    names = [f"s{number}" for number in range(count)]
    return [(name, names[:number], tasks) for number, name in enumerate(names)]


def calls(action: Callable[[], None]) -> int:
    """How many functions, and steps of generators, run in the action."""
    count = 0

    def counts(frame: FrameType, event: str, arg: Any) -> None:
        nonlocal count
        count += event == "call"

    before = sys.getprofile()
    sys.setprofile(counts)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def end_empty(rig: Rig, count: int) -> None:
    rig.submit(*after_all_before(count, 0))


def end_one_after_another(rig: Rig, count: int) -> None:
    rig.submit(*after_all_before(count, 1))
    for _ in range(count):
        (launch,) = rig.run()
        rig.report(launch)


def end_doomed(rig: Rig, count: int) -> None:
    rig.submit(*after_all_before(count, 1))
    (launch,) = rig.run()
    rig.report(launch, FAILED)


@pytest.mark.parametrize("end", [end_empty, end_one_after_another, end_doomed])
def test_a_job_costs_by_its_edges(end: Callable[[Rig, int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Twice the stages, each after all before it, are four times the edges; asking for each edge would be eight."""
    monkeypatch.setattr(SchedulerCore, "check_invariants", lambda core: None)
    rig = Rig()
    few, many = (calls(partial(end, rig, count)) for count in (100, 200))
    assert not rig.core.jobs
    assert many < 4.5 * few


def test_open_successors_are_counted_while_stages_close_in_any_order() -> None:
    rig = Rig()
    rig.submit(("a", [], 1), ("b", [], 1), ("c", ["a", "b"], 0), ("d", ["a", "c"], 1), ("e", ["a", "a"], 1))
    a, b = rig.run()
    (first, second, *_) = stages = rig.core.jobs["j"].stages
    assert [stage.open_successors for stage in stages] == [3, 1, 1, 0, 0]
    rig.report(a)
    (e,) = rig.run()
    rig.report(e)
    assert (first.open_successors, second.open_successors) == (2, 1) and first.job.results
    rig.report(b)
    assert (first.open_successors, second.open_successors) == (1, 0)
    (d,) = rig.run()
    rig.report(d)
    assert not rig.core.jobs


# ---- what does not finish ------------------------------------------------------------------------


@pytest.mark.parametrize("status", [FAILED, LOST])
def test_what_comes_after_a_task_that_did_not_finish_is_cancelled_and_says_why(status: TaskStatus) -> None:
    rig = Rig()
    rig.submit(("a", [], 2), ("b", ["a"], 1), ("c", ["b"], 1), ("d", [], 1), max_attempts=1)
    first, second, other = rig.run()
    rig.report(first, status)
    ended = {outcome.task: outcome for outcome in rig.take(m.Outcome)}
    assert {task: outcome.status for task, outcome in ended.items()} == {0: status, 2: CANCELLED, 3: CANCELLED}
    assert f"task 0 before it was {status.value}" in ended[2].error and "oh" in ended[3].error
    rig.report(second)  # What may run goes on.
    rig.report(other)
    assert rig.settled() == [(1, FINISHED), (4, FINISHED)] and not rig.core.jobs


def test_a_long_chain_is_doomed_at_once() -> None:
    rig = Rig()
    rig.submit(*[(f"s{number}", [f"s{number - 1}"] if number else [], 1) for number in range(1000)])
    (launch,) = rig.run()
    rig.report(launch, FAILED)
    assert len(rig.settled()) == 1000 and not rig.core.jobs


class Iterated(list[Any]):
    """A list that counts how often somebody goes through it."""

    count = 0

    def __iter__(self) -> Iterator[Any]:
        self.count += 1
        return super().__iter__()


def test_what_comes_after_is_doomed_once_however_many_tasks_do_not_finish() -> None:
    rig = Rig()
    rig.submit(("a", [], 1000), ("b", ["a"], 1))
    stage = rig.core.jobs["j"].stages[0]
    stage.successors = successors = Iterated(stage.successors)
    rig.core.receive_from_client("c", "anna", m.CancelJob("j"), 0.0)
    assert not rig.core.jobs and successors.count < 10


def test_stages_before_are_looked_up_once_for_all_tasks_that_ask_for_results() -> None:
    rig = Rig()
    stages = [m.Stage("many", count, b"", "", 1.0, 0, None, name=name, after=after)
              for name, after, count in (("a", (), 1), ("b", ("a",), 1000))]  # fmt: skip
    rig.client(m.SubmitJob("j", 0, "", stages, 3, False, None, False))
    stage = rig.core.jobs["j"].stages[1]
    stage.predecessors = predecessors = Iterated(stage.predecessors)
    details = {task: m.TaskDetail((), ((0, 1),)) for task in range(1, 1001)}
    rig.core.receive_from_client("c", "anna", m.AddTasks("j", 0, [b"p"] * 1001, details), 0.0)
    assert stage.unplaced == 1000 and predecessors.count == 1


def test_a_failed_task_that_is_retried_dooms_nothing() -> None:
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 1), retry_failed=True)
    (launch,) = rig.run()
    rig.report(launch, FAILED)
    (again,) = rig.run()
    rig.report(again)
    assert [launch.task for launch in rig.run()] == [1]


def test_cancelling_the_job_cancels_stages_that_are_not_open() -> None:
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 2))
    (launch,) = rig.run()
    rig.client(m.CancelJob("j"))
    assert rig.settled() == [(1, CANCELLED), (2, CANCELLED)]
    rig.report(launch)
    assert rig.settled() == [(0, FINISHED)]


def test_cancelling_a_task_dooms_what_comes_after() -> None:
    rig = Rig()
    rig.submit(("a", [], 2), ("b", ["a"], 1))
    rig.client(m.CancelTasks("j", [1]))
    assert rig.settled() == [(1, CANCELLED), (2, CANCELLED)]


# ---- results -------------------------------------------------------------------------------------


def test_results_go_once_to_each_node_before_the_first_task_that_asks() -> None:
    rig = Rig()
    rig.submit(("a", [], 2), ("b", ["a"], 2, ["a"]))
    for number, launch in enumerate(rig.run()):
        rig.report(launch, result=b"%d" % number if number else ref("f"))
    launches = rig.run()
    assert [(put.task, put.data) for put in rig.take(m.Input)] == [(0, ref("f")), (1, b"1")]
    assert [launch.inputs for launch in launches] == [((0, 2),), ((0, 2),)]


def test_results_are_held_until_nobody_can_ask_for_them_and_count_as_the_users_bytes() -> None:
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 1, ["a"]), ("c", ["b"], 1), payloads=[b"", b"", b""])
    without = rig.core.admission.held_bytes["anna"]
    (launch,) = rig.run()
    rig.report(launch, result=b"x" * 100)
    assert rig.core.admission.held_bytes == {"anna": without + 100}
    (launch,) = rig.run()
    rig.report(launch, result=b"")
    assert rig.core.admission.held_bytes == {"anna": without}


def test_results_beyond_the_users_bytes_cancel_the_job_and_nothing_is_counted_twice() -> None:
    stages: list[tuple[Any, ...]] = [("a", [], 1), ("b", ["a"], 1, ["a"])]
    (measured := Rig()).submit(*stages, payloads=[b"", b""])
    limit = measured.core.admission.held_bytes["anna"] + 150
    rig = Rig(held_bytes_max=limit)
    rig.submit(*stages, payloads=[b"p" * 60, b"p" * 60])
    (launch,) = rig.run()
    rig.report(launch, result=b"x" * 100)
    ended = {outcome.task: outcome for outcome in rig.take(m.Outcome)}
    assert (ended[0].status, ended[1].status) == (FINISHED, CANCELLED)
    assert f"held_bytes_max = {limit}" in ended[1].error
    assert not rig.core.jobs and not rig.core.admission.held_bytes


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


def test_when_the_producer_fails_this_time_the_task_is_lost_and_says_why() -> None:
    rig, _ = lose_a_result()
    (again,) = rig.run()
    rig.report(again, FAILED)
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.task, outcome.status) == (1, LOST) and "task 0, which produced it, was failed: oh" in outcome.error


def test_cancelling_while_a_result_is_produced_again_cancels_who_waits_for_it() -> None:
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


# ---- jobs that have ended --------------------------------------------------------------------

ENDS: dict[str, Callable[[Rig], object]] = {
    "its last report": lambda rig: rig.report(rig.run()[0]),
    "its executor is lost": lambda rig: rig.report(rig.run()[0], LOST),
    "its node is lost": lambda rig: (rig.run(), rig.core.node_down("n", 1.0)),
    "its client cancels it": lambda rig: rig.client(m.CancelJob("j")),
    "its operator cancels it": lambda rig: rig.core.cancel_job("j", 1.0),
    "its client goes": lambda rig: rig.core.client_down("c", 1.0),
    "its client vanishes": lambda rig: (rig.core.client_down("c", 1.0, said_goodbye=False), rig.core.tick(100.0)),
    "its time is over": lambda rig: rig.core.tick(10.0),
    "it is handed over": lambda rig: rig.core.hand_over(1.0),
    "another scheduler has it": lambda rig: rig.node("n", m.Fenced("j", 1)),
}
"""How the job j of the stages a and b, each of one task, comes to its end, or half way there."""


@pytest.fixture
def without_garbage_collector() -> Iterator[None]:
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@pytest.mark.parametrize("how", ENDS)
@pytest.mark.usefixtures("without_garbage_collector")
def test_nothing_of_a_job_is_left_once_it_has_ended(how: str) -> None:
    """Its memory is free again with the event that ends it, and not when another job comes or garbage is collected."""
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 1, ["a"]), queue_timeout_s=5.0, max_attempts=1)
    job, stages = weakref.ref(rig.core.jobs["j"]), len(rig.core.jobs["j"].stages)
    ENDS[how](rig)
    if how == "its last report":
        rig.report(rig.run()[0])
    assert stages == 2 and job() is None and not rig.core.jobs


def test_the_end_of_a_job_does_not_count_its_bytes_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were counted as they came and went: a job of 100,000 tasks must not hold up others when it ends."""
    rig = Rig()
    rig.submit(("a", [], 2), ("b", ["a"], 1, ["a"]))
    held = [rig.core.jobs["j"].held_bytes]
    for launch in rig.run():
        rig.report(launch)
        held.append(rig.core.jobs["j"].held_bytes)
    assert held == [rig.core.jobs["j"].fixed_bytes + 3] * 3  # A payload goes, and a result comes.
    (launch,) = rig.run()
    monkeypatch.setattr(JobState, "counted_bytes", None)
    rig.core.receive_from_node("n", m.Report("j", 2, launch.attempt, FINISHED, b"r", "", 0.0, 0.1), 0.0)
    assert not rig.core.jobs and not rig.core.admission.held_bytes
