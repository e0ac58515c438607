"""Jobs of several stages: when they open, what dooms them, how long results are held, and what is left of the job."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from scheduler.book.jobs import JobState
from scheduler.core import SchedulerCore
from simulator.soak.world import World
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.counted_calls import calls
from tests.support.scheduler_rig import StagedRig as Rig
from tests.support.scheduler_rig import ref

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


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


def test_cancellation_the_job_cancels_stages_that_are_not_open() -> None:
    rig = Rig()
    rig.submit(("a", [], 1), ("b", ["a"], 2))
    (launch,) = rig.run()
    rig.client(m.CancelJob("j"))
    assert rig.settled() == [(1, CANCELLED), (2, CANCELLED)]
    rig.report(launch)
    assert rig.settled() == [(0, FINISHED)]


def test_cancellation_a_task_dooms_what_comes_after() -> None:
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
