"""What is said of a job's ideal, its waits, and what held it up."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.recent import held_up, timeline
from scheduler.recent.held_up import Meanwhile, ideal_s, in_words
from scheduler.recent.last_task import LastTask, held_up_by
from scheduler.recent.timeline import JobTimeline, TimelineRun, TimelineStage
from sparrow_py.wire import messages as m
from tests.scheduler.recent.test_recent import WatchedRig


def job(*runs: tuple[int, float, float], reserved_at_s: float = 10.0, stages: int = 1, **more: object) -> JobTimeline:
    """A job of 3 tasks to a stage, submitted at 10 s; runs on node n0: (task, started_at_s, service_s)."""
    fields: dict[str, object] = {
        "job": "j", "name": "", "user": "ada", "how": "ended", "tasks": 3 * stages, "submitted_at_s": 10.0,
        "ended_at_s": 20.0, "now_s": 99.0, "more_stages": 0, "nodes": ["n0"], "more_runs": 0, "here": [],
        "more_here": 0,
        "stages": [TimelineStage("", 3 * number, 3, reserved_at_s, 0) for number in range(stages)],
        "runs": [TimelineRun(task, 0, at_s, service_s, "finished") for task, at_s, service_s in runs],
    }  # fmt: skip
    return JobTimeline(**(fields | more))  # type: ignore[arg-type]


def words(
    of: JobTimeline, by_user: dict[str, float] | None = None, see: str = "adabob", after: Sequence[Sequence[int]] = ()
) -> list[str]:
    last = held_up_by(of, after or [() for _ in of.stages])
    meanwhile = None if by_user is None else Meanwhile("n0", 10.0, 12.0, by_user)
    return in_words(of, [() for _ in of.stages], last, meanwhile, lambda user: user in see)


def test_the_wait_of_the_last_task_held_it_up() -> None:
    ideal, waits, held, who = words(job((0, 10.5, 2.0), (1, 10.5, 4.0), (2, 17.0, 3.0)), {"bob": 5.0, "ada": 1.5})
    assert ideal == "ideal: 4 s, if each task had started at once, as its longest ran; it took 10 s, 2.5 times as long"
    assert waits == "waits: half of its 3 runs began within 0.5 s of when nodes were sought, all within 7 s"
    assert held == ("held up by: task 2, the last to end, waited 7 s for a slot, which it got on n0, and ran for 3 s")
    assert who == "meanwhile n0 ran tasks of user bob (5 s), its own user (1.5 s), of this scheduler's"


def test_a_long_task_held_it_up() -> None:
    assert words(job((0, 10.01, 9.0)))[2:] == ["held up by: task 0, the last to end, ran for 9 s on n0 (wait 0.01 s)"]


CHAIN: list[tuple[int, ...]] = [(), (0,), (0, 1)]


def staged(*runs: tuple[int, float, float], reserved_s: tuple[float, ...]) -> JobTimeline:
    """A job whose stages come after each other; nodes were sought for them at these times."""
    of = job(*runs, stages=3)
    for number, at_s in enumerate(reserved_s):
        of.stages[number].name, of.stages[number].reserved_at_s = "abc"[number], at_s
    return of


def test_a_stage_before_that_waited_held_it_up() -> None:
    of = staged((0, 15.0, 0.1), (1, 10.0, 0.1), (3, 15.1, 1.0), (6, 16.2, 2.0), reserved_s=(10.0, 15.1, 16.1))
    assert words(of, {"bob": 5.0}, after=CHAIN)[2:] == [
        "held up by: task 0, the last of stage a to end, waited 5 s for a slot, which it got on n0, and ran for 0.1 s",
        "meanwhile n0 ran tasks of user bob (5 s), of this scheduler's",
    ]


def test_so_did_one_that_ran_long() -> None:
    of = staged((0, 10.0, 0.1), (1, 10.0, 6.0), (3, 16.0, 1.0), (6, 17.1, 2.0), reserved_s=(10.0, 16.0, 17.0))
    assert words(of, after=CHAIN)[2:] == [
        "held up by: task 1, the last of stage a to end, ran for 6 s on n0 (wait 0 s)"
    ]


def test_a_task_that_was_not_waited_for_did_not() -> None:
    """It had a long wait, and others of its stage ended after it; or its stage comes before none."""
    of = staged((0, 13.0, 0.1), (1, 10.0, 5.0), (3, 18.0, 0.1), (6, 15.1, 2.0), reserved_s=(10.0, 12.0, 15.0))
    assert words(of, after=[(), (), (0,)])[2:] == [
        "held up by: task 3, the last to end, waited 6 s for a slot, which it got on n0, and ran for 0.1 s"
    ]
    of = staged((0, 13.0, 0.1), (1, 10.0, 5.0), (6, 15.1, 2.0), reserved_s=(10.0, 12.0, 15.0))
    assert words(of, after=[(), (), (0,)])[2:] == [
        "held up by: task 1, the last of stage a to end, ran for 5 s on n0 (wait 0 s)"
    ]


def test_a_stage_without_a_name_and_a_circle_of_stages() -> None:
    of = staged((0, 15.0, 0.1), (6, 16.2, 2.0), reserved_s=(10.0, 15.1, 16.1))
    of.stages[0].name = ""
    assert words(of, after=CHAIN)[2].startswith("held up by: task 0, the last of its stage to end, waited 5 s")
    assert len(words(of, after=[(2,), (0,), (0,)])) == 3


def test_users_that_one_may_not_see_have_no_names() -> None:
    seen = words(job((0, 15.0, 1.0)), {"bob": 2.0, "carl": 1.0, "ada": 0.5}, see="ada")[-1]
    assert seen == "meanwhile n0 ran tasks of other users (3 s), its own user (0.5 s), of this scheduler's"


def test_where_nothing_is_remembered_of_others_that_is_said() -> None:
    assert words(job((0, 15.0, 1.0)), {})[-1].startswith("no task that this scheduler remembers ran on n0 meanwhile")


def test_a_job_that_goes_on_has_taken_so_long() -> None:
    ideal, waits, held = words(job((0, 10.0, 2.0), ended_at_s=None, now_s=12.0, how="", more_runs=1))
    assert "it has taken 2 s, 1.0 times as long" in ideal and "the last to end so far" in held
    assert "its 1 run (of 1 other nothing is remembered) began" in waits


def test_a_job_of_which_no_task_has_run() -> None:
    assert words(job()) == []


def test_a_stage_that_nodes_were_never_sought_for() -> None:
    of = job((0, 12.0, 1.0))
    of.stages[0].reserved_at_s = None
    assert words(of)[1] == "waits: not known of any of its 1 run"


def test_the_ideal_of_stages_is_along_the_longest_chain() -> None:
    assert ideal_s([1.0, 5.0, 2.0, 1.0], [(), (), (0,), (1, 2)]) == 6.0
    assert ideal_s([1.0, 2.0], [(1,), (0,)]) == 0.0  # A circle, which no job has.
    assert ideal_s([], []) == 0.0


@given(st.lists(st.tuples(st.integers(0, 8), st.floats(0, 1e6), st.floats(0, 1e6))))
def test_something_is_said_of_any_job(runs: list[tuple[int, float, float]]) -> None:
    assert len(words(job(*runs, stages=3))) == (3 if runs else 0)


def test_who_ran_on_the_node_meanwhile_is_found_in_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_up, "RECORDS_PER_TURN", 1)
    rig = WatchedRig()
    for name, user, started_at_s, service_s in (
        ("early", "bob", 0.0, 1.0),  # Over before the wait begins.
        ("before", "bob", 4.0, 3.0),  # Half of it is within the wait.
        ("here", "carl", 7.0, 2.0),
    ):
        rig.submit_job(1 if name != "here" else 2, job=name, user=user)
        launch = rig.run()[0]
        report = m.Report(name, launch.task, launch.attempt, m.TaskStatus.FINISHED, b"", "", started_at_s, service_s)
        rig.node("n", report, now_s=started_at_s + service_s)
    run = timeline.TimelineRun(0, 0, 9.5, 1.0, "finished")
    meanwhile = Meanwhile.of(LastTask(run, "n", 5.0), rig.recent)
    turns = 1
    while meanwhile.goes_on():
        turns += 1
    assert meanwhile.by_user == {"bob": 2.0, "carl": 2.0} and turns == 3
