"""Speculation, decided: when a task is slow, one outcome per task whatever the order, and what a copy's job is."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow_py.call_jobs import CallOptions
from sparrow_py.errors import InvalidRequest, Refused
from sparrow_py.job import NAME_BYTES_MAX, BlobRef, JobSpec, StageSpec, TaskSpec, TaskStatus
from sparrow_py.session.slow_tasks import RunningMedian
from sparrow_py.session.speculated_job import AGAIN, Shape, copy_of
from sparrow_py.session.speculator import Speculator
from sparrow_py.speculation import Speculation, check_speculation
from tests.support.speculating import AT_ONCE, COPY, ORIGINAL, SpeculatorRig

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


def racing(speculate: Speculation = AT_ONCE) -> SpeculatorRig:
    """Two tasks: 0 has finished, 1 runs twice."""
    rig = SpeculatorRig(2, speculate)
    rig.place(0, 1)
    rig.ends(0)
    assert rig.tick(2.0) == [[1]]
    return rig


# ---- when a task is slow ---------------------------------------------------------------------


def test_slow_is_longer_than_so_many_medians_once_enough_have_finished() -> None:
    rig = SpeculatorRig(4, replace(AT_ONCE, quantile=0.75))
    rig.place(0, 1, 2, 3)
    rig.ends(0, 1)
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []
    rig.ends(2, service_s=7.0)
    assert rig.core.next_deadline_s() == 2.0
    assert rig.tick(1.9) == [] and rig.tick(2.0) == [[3]]
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []


def test_a_job_that_has_not_been_placed_is_not_slow() -> None:
    rig = SpeculatorRig(3)
    rig.place(0, 1)
    rig.ends(0, 1)
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []
    rig.place(2, now_s=1000.0)
    assert rig.core.next_deadline_s() == 1002.0


def test_tasks_that_are_slow_at_the_same_time_are_one_job_the_longest_running_first() -> None:
    rig = SpeculatorRig(6)
    rig.place(5, 4, now_s=1.0)
    rig.place(2, now_s=2.0)
    rig.place(0, 1, 3, now_s=3.0)
    rig.ends(0, 1, 3)
    assert rig.tick(3.5) == [[5, 4]]
    assert rig.core.next_deadline_s() == 4.0


def test_a_task_that_was_placed_again_runs_from_then_on() -> None:
    rig = SpeculatorRig(3)
    rig.place(0, 1, 2)
    rig.place(0, now_s=5.0)
    rig.ends(1, service_s=1.0)
    rig.ends(2, service_s=1.0)
    assert rig.tick(6.9) == [] and rig.tick(7.0) == [[0]]


def test_a_task_that_was_placed_again_waits_behind_those_that_run_for_longer() -> None:
    rig = SpeculatorRig(4)
    rig.place(0, 1, 2, 3)
    rig.place(0, now_s=5.0)
    rig.ends(2, 3)
    assert rig.core.next_deadline_s() == 2.0 and rig.tick(2.0) == [[1]]


def test_one_copy_per_task() -> None:
    rig = racing()
    rig.copy_ends(1, FAILED)
    rig.place(1, now_s=3.0)  # Its node was lost, and it runs again.
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []


@pytest.mark.parametrize(("share", "tasks", "copies"), [(0.0, 8, 0), (0.1, 8, 1), (0.1, 30, 3), (0.5, 8, 4)])
def test_no_more_copies_than_the_share(share: float, tasks: int, copies: int) -> None:
    rig = SpeculatorRig(tasks, replace(AT_ONCE, quantile=0.0, copies_max=share))
    rig.place(*range(tasks))
    rig.ends(tasks - 1)
    submitted = rig.tick(1000.0) + rig.tick(2000.0)
    assert submitted == ([list(range(copies))] if copies else [])
    assert rig.core.next_deadline_s() is None


def test_a_task_that_has_run_for_a_moment_is_never_slow() -> None:
    rig = SpeculatorRig(2, replace(AT_ONCE, running_s_min=0.5))
    rig.place(0, 1)
    rig.ends(0, service_s=0.001)
    assert rig.core.next_deadline_s() == 0.5
    assert rig.tick(0.49) == [] and rig.tick(0.5) == [[1]]


def test_tasks_that_end_otherwise_do_not_count() -> None:
    """Of 10 tasks 6 fail or are cancelled: 2 of the other 4 are half."""
    rig = SpeculatorRig(10)
    rig.place(*range(10))
    rig.ends(0, 1, 2, status=FAILED, service_s=900.0)
    rig.ends(3, 4, 5, status=CANCELLED, service_s=None)
    rig.ends(6)
    assert rig.core.next_deadline_s() is None
    rig.ends(7)
    assert rig.core.next_deadline_s() == 2.0


def test_outcomes_without_a_service_time_say_nothing_about_slowness() -> None:
    rig = SpeculatorRig(2)
    rig.place(0, 1)
    rig.ends(0, service_s=None)
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []


@given(st.lists(st.floats(0, 1e6), max_size=40))
def test_the_running_median_is_the_median(numbers: list[float]) -> None:
    median = RunningMedian()
    assert median.value is None
    for count, number in enumerate(numbers, 1):
        median.add(number)
        assert median.value == pytest.approx(statistics.median(numbers[:count]))


# ---- whose outcome counts --------------------------------------------------------------------


def test_the_copy_wins() -> None:
    rig = racing()
    rig.copy_ends(1)
    assert rig.told.outcomes[1] == (COPY, FINISHED)
    assert rig.cancelled == [(ORIGINAL, 1)]
    assert rig.told.calls.count("ended") == 1 and rig.core.over  # It does not wait for the loser.
    rig.core.not_cancelled(1)
    rig.core.placed(1, 9.0)
    rig.ends(1, status=CANCELLED)
    rig.core.ended()
    assert rig.core.swallowed == 1
    assert rig.told.calls == ["placed 0", "placed 1", "ended"]


@pytest.mark.parametrize("status", [FINISHED, CANCELLED])
def test_the_original_decides_when_it_finishes_or_is_cancelled(status: TaskStatus) -> None:
    rig = racing()
    rig.ends(1, status=status)
    assert rig.told.outcomes[1] == (ORIGINAL, status)
    assert rig.cancelled == [(COPY, 1)] and rig.told.calls.count("ended") == 1
    rig.copy_ends(1)
    rig.core.ended()
    assert rig.core.swallowed == 1 and rig.told.calls.count("ended") == 1


@pytest.mark.parametrize("status", [FAILED, LOST, CANCELLED])
def test_a_copy_that_does_not_finish_decides_nothing(status: TaskStatus) -> None:
    rig = racing()
    rig.copy_ends(1, status)
    assert 1 not in rig.told.outcomes and not rig.cancelled
    rig.ends(1)
    assert rig.told.outcomes[1] == (ORIGINAL, FINISHED) and not rig.cancelled


def test_copies_that_are_refused_decide_nothing() -> None:
    rig = racing()
    rig.core.copies_refused([1])
    rig.ends(1, status=LOST)
    assert rig.told.outcomes[1] == (ORIGINAL, LOST) and not rig.cancelled


@pytest.mark.parametrize("status", [FAILED, LOST])
def test_an_original_that_failed_or_was_lost_waits_for_its_copy(status: TaskStatus) -> None:
    rig = racing()
    rig.ends(1, status=status)
    rig.core.ended()
    assert 1 not in rig.told.outcomes and "ended" not in rig.told.calls
    rig.copy_ends(1)
    assert rig.told.outcomes[1] == (COPY, FINISHED)
    assert not rig.cancelled and rig.told.calls.count("ended") == 1


@pytest.mark.parametrize("how", ["fails", "is refused"])
def test_if_its_copy_does_not_finish_either_its_own_outcome_is_told(how: str) -> None:
    rig = racing()
    rig.ends(1, status=LOST)
    rig.core.ended()
    if how == "fails":
        rig.copy_ends(1, FAILED)
    else:
        rig.core.copies_refused([1])
    assert rig.told.outcomes[1] == (ORIGINAL, LOST)
    assert not rig.cancelled and rig.told.calls.count("ended") == 1


def test_a_loser_that_answers_at_once_is_swallowed() -> None:
    """The client core may settle a task while it is told to cancel it."""
    rig = racing()
    rig.end_original = lambda outcome: rig.ends(outcome.task, status=CANCELLED)  # type: ignore[method-assign]
    rig.copy_ends(1)
    assert rig.told.outcomes[1] == (COPY, FINISHED) and rig.told.calls.count("ended") == 1


# ---- stages ----------------------------------------------------------------------------------


def stages(*task_counts: int, followed: tuple[int, ...] = (0,)) -> SpeculatorRig:
    """A job of several stages; all tasks are placed at 0."""
    rig = SpeculatorRig(0)
    rig.core = Speculator(task_counts, AT_ONCE, rig.told, rig, followed=followed)
    rig.place(*range(sum(task_counts)))
    return rig


def test_a_task_is_slow_beside_those_of_its_stage() -> None:
    rig = stages(2, 2)
    rig.ends(0, service_s=1.0)
    assert rig.core.next_deadline_s() == 2.0 and rig.tick(2.0) == [[1]]
    rig.ends(2, service_s=5.0)
    assert rig.core.next_deadline_s() == 10.0 and rig.tick(10.0) == [[3]]


def test_copies_of_two_stages_are_two_jobs() -> None:
    rig = stages(2, 3)
    rig.ends(0, 3, 4)
    assert rig.tick(9.0) == [[1], [2]]


def test_each_stage_has_its_own_share_of_copies() -> None:
    rig = stages(4, 4)
    rig.core = Speculator([4, 4], replace(AT_ONCE, quantile=0.0, copies_max=0.25), rig.told, rig)
    rig.place(*range(8))
    rig.ends(3, 7)
    assert rig.tick(9.0) == [[0], [4]] and rig.core.next_deadline_s() is None


@pytest.mark.parametrize("status", [FAILED, LOST])
def test_an_original_that_others_come_after_does_not_wait_for_its_copy(status: TaskStatus) -> None:
    """Its scheduler gives up the stages after it."""
    rig = stages(2, 1)
    rig.ends(0)
    rig.tick(2.0)
    rig.ends(1, status=status)
    assert rig.told.outcomes[1] == (ORIGINAL, status) and rig.cancelled == [(COPY, 1)]
    rig.copy_ends(1)
    assert rig.core.swallowed == 1


def test_a_copy_of_a_task_of_a_later_stage_comes_with_the_results_that_it_asks_for() -> None:
    spec = JobSpec(
        stages=[
            StageSpec([b"0", b"1"], name="scan", app="many", common=b"c"),
            StageSpec([b"2"], name="other", app="many"),
            StageSpec([b"3"], name="unasked", app="many"),
            StageSpec(
                [TaskSpec(b"4", inputs=["scan"]), TaskSpec(b"5", inputs=[("other", 0), ("scan", 1)])],
                name="sum", app="many", after=["scan", "other", "unasked"],
            ),
        ]
    )  # fmt: skip
    copy, given = copy_of(spec, Shape(spec.as_stages()), [5])
    copy.validate()
    assert given == [0, 1, 2]
    scan, other, again = copy.stages
    assert [(one.name, list(one.tasks), one.after) for one in (scan, other)] == [
        ("scan", [b"", b""], ()), ("other", [b""], ()),
    ]  # fmt: skip
    assert again == replace(spec.stages[3], tasks=[spec.stages[3].tasks[1]], after=("scan", "other"))


def test_a_copy_of_a_task_that_asks_for_no_results_is_a_job_of_one_stage() -> None:
    spec = JobSpec(stages=[StageSpec([b"0"], name="a"), StageSpec([b"1", b"2"], name="b", after=["a"])])
    copy, given = copy_of(spec, Shape(spec.as_stages()), [2])
    assert not given and copy.stages == [StageSpec([b"2"], name="b")]


# ---- the user --------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [True, False])
def test_cancellation_cancels_the_copy_and_leaves_the_decision_to_the_original(whole: bool) -> None:
    rig = racing()
    rig.core.cancel_job() if whole else rig.core.cancel_tasks([1])
    assert rig.cancelled == [(COPY, 1)]
    rig.copy_ends(1)  # It was too late to cancel it.
    assert 1 not in rig.told.outcomes
    rig.core.not_cancelled(1)
    rig.ends(1)
    assert rig.told.outcomes[1] == (ORIGINAL, FINISHED) and "not cancelled 1" in rig.told.calls


@pytest.mark.parametrize("whole", [True, False])
def test_cancellation_tells_what_waited_for_its_copy(whole: bool) -> None:
    """The client core has settled the original, and would say nothing more."""
    rig = racing()
    rig.ends(1, status=LOST)
    rig.core.cancel_job() if whole else rig.core.cancel_tasks([1])
    assert rig.told.outcomes[1] == (ORIGINAL, LOST) and rig.cancelled == [(COPY, 1)]


def test_what_was_cancelled_gets_no_copy() -> None:
    rig = SpeculatorRig(4, replace(AT_ONCE, quantile=0.25))
    rig.place(0, 1, 2, 3)
    rig.ends(0)
    rig.core.cancel_tasks([2])
    rig.place(2, now_s=1.0)
    assert rig.tick(5.0) == [[1, 3]]
    rig.core.cancel_job()
    rig.place(0, 1, 2, 3, now_s=6.0)
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []


def test_what_is_placed_after_its_job_was_cancelled_gets_no_copy() -> None:
    """The cancellation may be too late for it."""
    rig = SpeculatorRig(3, replace(AT_ONCE, quantile=0.0))
    rig.place(0, 1)
    rig.ends(0)
    rig.core.cancel_job()
    rig.place(2, now_s=1.0)
    assert rig.core.next_deadline_s() is None and rig.tick(1000.0) == []


def test_placing_is_told_if_it_was_asked_for() -> None:
    for asked in (True, False):
        rig = SpeculatorRig(1, tell_placed=asked)
        rig.place(0)
        assert rig.told.calls == (["placed 0"] if asked else [])


def test_acceptance_refusal_and_a_job_without_tasks() -> None:
    rig = SpeculatorRig(0)
    rig.core.accepted()
    assert not rig.core.over
    rig.core.ended()
    assert rig.told.calls == ["accepted", "ended"] and rig.core.over
    refusal = Refused("full")
    rig = SpeculatorRig(2)
    rig.core.refused(refusal)
    assert rig.told.calls == ["refused"] and rig.told.error is refusal and rig.core.over


# ---- exactly once, whatever the order --------------------------------------------------------


class Play(SpeculatorRig):
    """A job and its copies in any order of events, and what must come of it by the rules of the module's docstring."""

    def __init__(self, tasks: int, speculate: Speculation) -> None:
        super().__init__(tasks, speculate)
        self.now_s = 0.0
        self.running = set(range(tasks))
        """Originals that have not ended."""
        self.copies: list[set[int]] = []
        """Of each job of copies, those that have not ended."""
        self.copied: Counter[int] = Counter()
        self.may_win: set[int] = set()
        self.held: dict[int, tuple[str, TaskStatus]] = {}
        self.expected: dict[int, tuple[str, TaskStatus]] = {}

    def submit_copies(self, tasks: list[int]) -> None:
        assert not self.expected.keys() & set(tasks), "a copy of what has been told"
        self.copies.append(set(tasks))
        self.copied.update(tasks)
        self.may_win.update(tasks)

    def act(self, kind: str, pick: int, status: TaskStatus) -> None:
        """One event, if it can happen."""
        if kind == "place" and self.running:
            self.place(_nth(self.running, pick), now_s=self.now_s)
        elif kind == "time":
            self.now_s += pick
            self.core.tick(self.now_s)
        elif kind == "original" and self.running:
            self._original_ends(_nth(self.running, pick), status)
        elif kind == "copy" and any(self.copies):
            job = [job for job in self.copies if job][pick % sum(map(bool, self.copies))]
            self._copy_ends(job, _nth(job, pick), status)
        elif kind == "refuse" and self.copies:
            self._refuse(self.copies[pick % len(self.copies)])
        elif kind == "cancel tasks":
            tasks = sorted({pick % len(self.core._told), pick // 2 % len(self.core._told)})
            self._copies_over(tasks)
            self.core.cancel_tasks(tasks)
        elif kind == "cancel job":
            self._copies_over(list(self.may_win))
            self.core.cancel_job()
        self.core.check_invariants()
        assert self.told.outcomes == self.expected
        assert self.told.calls.count("ended") == (len(self.expected) == len(self.core._told))

    def _original_ends(self, task: int, status: TaskStatus) -> None:
        self.running.discard(task)
        if task not in self.expected:
            if status in (FAILED, LOST) and task in self.may_win:
                self.held[task] = (ORIGINAL, status)
            else:
                self.expected[task] = (ORIGINAL, status)
                self.may_win.discard(task)
        self.ends(task, status=status)
        if not self.running:
            self.core.ended()

    def _copy_ends(self, job: set[int], task: int, status: TaskStatus) -> None:
        job.discard(task)
        if status is FINISHED and task in self.may_win:
            self.expected[task] = (COPY, FINISHED)
            self.may_win.discard(task)
            self.held.pop(task, None)
        elif status is not FINISHED:
            self._copies_over([task])
        self.copy_ends(task, status)

    def _refuse(self, job: set[int]) -> None:
        tasks = sorted(job)
        self._copies_over(tasks)
        job.clear()
        self.core.copies_refused(tasks)

    def _copies_over(self, tasks: list[int]) -> None:
        for task in tasks:
            self.may_win.discard(task)
            if task in self.held:
                self.expected[task] = self.held.pop(task)

    def drain(self, status: TaskStatus) -> None:
        """Everything that still runs ends."""
        while self.running:
            self.act("original", 0, status)
        while any(self.copies):
            self.act("copy", 0, status)


def _nth(tasks: set[int], pick: int) -> int:
    return sorted(tasks)[pick % len(tasks)]


KINDS = (
    "place",
    "place",
    "time",
    "time",
    "original",
    "original",
    "copy",
    "copy",
    "refuse",
    "cancel tasks",
    "cancel job",
)
EVENTS = st.lists(
    st.tuples(
        st.sampled_from(KINDS), st.integers(0, 40), st.sampled_from([FINISHED, FINISHED, FAILED, LOST, CANCELLED])
    )
)


@settings(max_examples=400)
@given(
    st.integers(1, 8),
    st.sampled_from([0.0, 0.5, 0.75]),
    st.sampled_from([0.1, 0.5, 1.0]),
    EVENTS,
    st.sampled_from([FINISHED, LOST]),
)
def test_each_outcome_is_told_exactly_once_whatever_the_order(
    tasks: int, quantile: float, share: float, events: list[tuple[str, int, TaskStatus]], last: TaskStatus
) -> None:
    play = Play(tasks, Speculation(quantile, 1.0, share, 0.0))
    for task in range(tasks):
        play.act("place", task, FINISHED)
    for kind, pick, status in events:
        play.act(kind, pick, status)
    play.drain(last)
    assert play.told.outcomes.keys() == set(range(tasks)) and play.told.calls[-1] == "ended"
    assert set(play.copied.values()) <= {1} and play.copied.total() <= math.ceil(share * tasks)
    cancelled = Counter(play.cancelled)
    assert set(cancelled.values()) <= {1}
    for who, task in cancelled:  # Only losers of a race, or copies of what the user cancelled.
        assert task in play.copied and play.told.outcomes[task] != (who, FINISHED)
    assert play.core.next_deadline_s() is None and not play.core._out and not play.core._held


# ---- what is asked for, and what is submitted ------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("quantile", 1.01), ("quantile", -0.1), ("quantile", float("nan")), ("slowdown", 0.9), ("slowdown", "2"),
        ("copies_max", 2), ("copies_max", True), ("running_s_min", -1.0),
    ],
)  # fmt: skip
def test_fields_that_cannot_be(field: str, value: Any) -> None:
    with pytest.raises(InvalidRequest) as raised:
        Speculation(**{field: value})
    assert raised.value.field == field and raised.value.allowed.startswith("a number from")


def test_a_speculation_is_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Speculation().quantile = 0.5  # type: ignore[misc]


@pytest.mark.parametrize(
    ("speculate", "spec", "field"),
    [
        (True, JobSpec(), "speculate"),
        (Speculation(), JobSpec(stages=[StageSpec(name="a"), StageSpec(name="b", prefetch=1)]), "stages[1].prefetch"),
        (Speculation(), JobSpec(max_attempts=1), "max_attempts"),
        (Speculation(), JobSpec(prefetch=8), "prefetch"),
        (Speculation(), JobSpec(stages=[StageSpec(prefetch=8)]), "prefetch"),
    ],
)
def test_jobs_that_cannot_be_speculated(speculate: Any, spec: JobSpec, field: str) -> None:
    spec.validate()
    with pytest.raises(InvalidRequest) as raised:
        check_speculation(speculate, spec)
    assert raised.value.field == field and raised.value.allowed


def test_a_copy_is_a_job_of_the_chosen_tasks() -> None:
    ref = BlobRef("ab" * 32, 5_000_000, ("node:1",))
    tasks: list[Any] = [b"0", TaskSpec(b"1", "one", preferred=["n1"]), ref, b"3"]
    spec = JobSpec(
        tasks, app="many", common=ref, name="wash", job_id="j", max_attempts=7, report_placed=True,
        on_client_lost="finish", where=["arch == 'arm'"], demand={"cpu": 2},
    )  # fmt: skip
    copy, given = copy_of(spec, Shape(spec.as_stages()), [1, 2])
    assert not given
    copy.validate()
    assert copy.tasks == [tasks[1], ref] and copy.common is ref
    assert copy.name == "wash (again)" and copy.job_id not in ("", "j") and copy.max_attempts == 7
    assert not copy.report_placed and copy.on_client_lost == "cancel"
    same: dict[str, Any] = {
        "tasks": tasks,
        "job_id": "j",
        "name": "wash",
        "report_placed": True,
        "on_client_lost": "finish",
    }
    assert replace(copy, **same) == spec


def test_a_copy_keeps_away_from_the_jobs_that_the_original_avoids() -> None:
    stages = [StageSpec([b"a"], name="a"), StageSpec([TaskSpec(b"b", inputs=["a"])], name="b", after=["a"])]
    for spec in (
        JobSpec([b"a", b"b"], avoid=["j"], avoid_by="rack"),
        JobSpec(stages=stages, avoid=["j"], avoid_by="rack"),
    ):
        copy, _ = copy_of(spec, Shape(spec.as_stages()), [1])
        assert (copy.avoid, copy.avoid_by) == (["j"], "rack")


def test_a_copy_has_the_policy_of_the_original_and_goes_by_itself() -> None:
    stages = [
        StageSpec([b"a"], name="a"),
        StageSpec([b"c"], name="c"),
        StageSpec(
            [TaskSpec(b"b", inputs=["a"])] * 2, name="b", after=["a"], gang=True, together_with="c", max_per_node=1
        ),
    ]
    spec = JobSpec(stages=stages, policy="flow")
    copy, _ = copy_of(spec, Shape(spec.as_stages()), [3], "flow")
    copy.validate()
    assert [(stage.name, stage.gang, stage.together_with) for stage in copy.stages] == [
        ("a", False, ""),
        ("b", False, ""),
    ]
    assert (copy.policy, copy.preemptible, copy.stages[-1].max_per_node) == ("flow", False, 1)
    stopped = JobSpec([b"a", b"b"], policy="flow", preemptible=True)
    copy, _ = copy_of(stopped, Shape(stopped.as_stages()), [0], "flow")
    copy.validate()
    assert (copy.policy, copy.preemptible) == ("flow", True)
    decided, _ = copy_of(JobSpec([b"a", b"b"], policy="auto", gang=False), Shape([stages[0]]), [0], "sparrow")
    assert decided.policy == "sparrow"


def test_a_copy_of_a_stage_is_a_stage() -> None:
    spec = JobSpec(stages=[StageSpec([b"0", b"1"], name="only", app="many")])
    copy, given = copy_of(spec, Shape(spec.as_stages()), [1])
    assert not given
    copy.validate()
    assert not copy.tasks and copy.stages == [StageSpec([b"1"], name="only", app="many")]


def test_a_copy_of_a_job_with_a_long_name_has_one_that_may_be() -> None:
    spec = JobSpec([b""], name="ä" * (NAME_BYTES_MAX // 2))
    copy, _ = copy_of(spec, Shape(spec.as_stages()), [0])
    copy.validate()
    assert copy.name.endswith("ä" + AGAIN)


def test_options_of_calls_carry_it() -> None:
    options = CallOptions(speculate=Speculation(slowdown=3.0))
    assert options.speculate == Speculation(slowdown=3.0)
    assert options.job("f", b"", [b"x"]) == replace(options, speculate=None).job("f", b"", [b"x"])
