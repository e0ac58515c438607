"""Tasks that ask for results of tasks of other jobs, before there are any: they are held, in no slot, until these are
here, and end as an input did that will not come."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from scheduler.book.footprint import ASKED_BYTES, AWAITED_BYTES
from scheduler.book.jobs import HELD, JobState
from scheduler.book.validation import check_tasks
from scheduler.explaining import waiting_stages
from sparrow_py.errors import LinkError
from sparrow_py.job import GIVEN_MAX, BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import CLIENT, USER, SchedulerRig

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


class Rig(SchedulerRig):
    """Of one node n, which starts what it may at once."""

    def __init__(self, **options: Any) -> None:
        super().__init__("n", **{"settling_s": 0.0} | options)
        self.launched: dict[tuple[str, int], m.Launch] = {}

    def submit(
        self, job: str, *asks: tuple[int, ...], awaited: tuple[tuple[str, int], ...] = (), **fields: Any
    ) -> None:
        """A job with a task for each of these: the positions in `awaited` of the results that the task asks for."""
        client = {name: fields.pop(name) for name in ("client", "user") if name in fields}
        first = len(asks)
        details = {
            task: m.TaskDetail(inputs=tuple((first + one, 1) for one in wanted))
            for task, wanted in enumerate(asks)
            if wanted
        }
        self.client(
            submission(job, len(asks), **{"acknowledges": True, **fields}),
            *([m.AddTasks(job, 0, [], awaited=awaited)] if awaited else []),
            m.AddTasks(job, 0, [b"p"] * len(asks), details or None),
            **client,
        )

    def run(self, now_s: float = 0.0) -> list[tuple[str, int]]:
        """Start all that may start; returns which tasks that were."""
        started = []
        while reserves := self.outbox.take(m.Reserve):
            for node, reserve in reserves:
                self.node(node, m.GetTasks(1, reserve.ticket, reserve.count), now_s=now_s)
            for launch in self.take(m.Launch):
                self.launched[launch.job, launch.task] = launch
                started.append((launch.job, launch.task))
        return started

    def end(
        self, job: str, task: int = 0, status: TaskStatus = FINISHED, result: m.Data = b"r", error: str = ""
    ) -> None:
        """The task, which runs, ends."""
        attempt = self.launched.pop((job, task)).attempt
        self.node("n", m.Report(job, task, attempt, status, result, error, 0.0, 1.0))

    def inputs(self, job: str, task: int = 0) -> list[m.Data]:
        """What the node was sent as the inputs of the task, which was started."""
        sent = {one.task: one.data for one in self.take(m.Input) if one.job == job}
        launch = self.launched[job, task]
        return [sent[number] for first, count in launch.inputs for number in range(first, first + count)]

    def told(self) -> dict[tuple[str, int], tuple[TaskStatus, m.Data, str]]:
        """The outcomes since the last call."""
        return {(one.job, one.task): (one.status, one.result, one.error) for one in self.take(m.Outcome)}


def test_a_task_waits_at_the_scheduler_for_the_result_of_another_job_and_is_given_it() -> None:
    rig = Rig()
    rig.submit("a", ())
    rig.submit("b", (0,), awaited=(("a", 0),))
    assert rig.run() == [("a", 0)]
    assert rig.core.jobs["b"].stages[0].states[0] == HELD and not rig.take(m.AskResults)
    rig.end("a", result=b"value")
    assert rig.run() == [("b", 0)]
    assert rig.inputs("b") == [b"value"]


def test_each_task_waits_for_its_own_inputs_alone() -> None:
    rig = Rig()
    rig.submit("a", (), ())
    rig.submit("b", (0,), (1,), (), (0, 1), awaited=(("a", 0), ("a", 1)))
    assert sorted(rig.run()) == [("a", 0), ("a", 1), ("b", 2)]
    rig.end("a", 1)
    assert rig.run() == [("b", 1)]
    rig.end("a", 0)
    assert rig.run() == [("b", 0), ("b", 3)]


def test_tasks_of_one_job_may_wait_for_each_other() -> None:
    rig = Rig()
    rig.submit("a", (), (0,), (1,), awaited=(("a", 0), ("a", 1)))
    for task in range(3):
        assert rig.run() == [("a", task)]
        rig.end("a", task)
    assert not rig.core.jobs


def test_a_large_result_travels_as_a_reference() -> None:
    rig, ref = Rig(), BlobRef("f" * 64, 1 << 30, ("n:1",))
    rig.submit("a", ())
    rig.submit("b", (0,), awaited=(("a", 0),))
    rig.run()
    rig.end("a", result=ref)
    rig.run()
    assert rig.inputs("b") == [ref]


def test_the_last_task_to_arrive_that_ends_its_job_as_an_input_did_leaves_no_reservation_behind() -> None:
    rig = Rig()
    rig.client(submission("b", 2, acknowledges=True), m.AddTasks("b", 0, [b"p"], awaited=(("gone", 0),)))
    assert rig.run() == [("b", 0)]
    rig.end("b")
    rig.client(m.GiveResults("b", {}, {2: (FAILED, b"", "why")}))
    rig.client(m.AddTasks("b", 1, [b"p"], {1: m.TaskDetail(inputs=((2, 1),))}))
    assert not rig.core.jobs and not rig.core.plane.left_over()


def test_nor_does_one_that_its_client_knows_to_have_finished() -> None:
    rig = Rig()
    (x,), (y,) = submission(tasks=2).stages, submission(after=("x",)).stages
    stages = [msgspec.structs.replace(x, name="x"), msgspec.structs.replace(y, name="y")]
    rig.client(msgspec.structs.replace(submission("b"), stages=stages), m.AddTasks("b", 0, [b"p"]))
    rig.run()
    rig.client(m.Known("b", [m.KnownOutcome(1, FINISHED, b"r")], {}), m.AddTasks("b", 1, [b"p"]))
    assert not rig.core.jobs["b"].stages[0].plan.tickets


@pytest.mark.parametrize(("status", "result"), [(FAILED, b"exception"), (LOST, b"")])
def test_a_task_ends_as_its_input_did_and_so_do_those_after_it(status: TaskStatus, result: bytes) -> None:
    rig = Rig()
    rig.submit("a", (), max_attempts=1, acknowledges=False)
    rig.submit("b", (0,), (), awaited=(("a", 0),))
    rig.submit("c", (0,), awaited=(("b", 0),))
    rig.run()
    rig.end("a", status=status, result=result, error="why")
    told = rig.told()
    assert {key: one[:2] for key, one in told.items()} == dict.fromkeys(
        [("a", 0), ("b", 0), ("c", 0)], (status, result)
    )
    error = told["c", 0][2]
    assert error == told["b", 0][2] and error.startswith("task 0 of job a, an input: ") and error.endswith("why")
    assert error.count("an input: ") == 1
    assert list(rig.core.jobs) == ["b"], "its other task runs"


def test_cancellation_travels() -> None:
    rig = Rig()
    rig.submit("a", ())
    rig.submit("b", (0,), awaited=(("a", 0),))
    rig.client(m.CancelJob("a"))
    assert {key: one[0] for key, one in rig.told().items()} == {("a", 0): CANCELLED, ("b", 0): CANCELLED}
    assert not rig.core.jobs and not rig.core.admission.unplaced


def test_a_task_that_waits_can_be_cancelled_and_its_input_goes_on() -> None:
    rig = Rig()
    rig.submit("a", ())
    rig.submit("b", (0,), (0,), awaited=(("a", 0),))
    rig.client(m.CancelTasks("b", [0]))
    rig.client(m.CancelJob("b"))
    assert {key: one[0] for key, one in rig.told().items()} == {("b", 0): CANCELLED, ("b", 1): CANCELLED}
    assert rig.run() == [("a", 0)] and not rig.core.jobs["a"].watched
    rig.end("a")
    assert not rig.core.jobs


def test_a_chain_of_any_length_ends_when_its_first_task_fails() -> None:
    rig, count = Rig(), 3000
    rig.submit("a", (), *[(task,) for task in range(count)], awaited=tuple(("a", task) for task in range(count)))
    rig.run()
    rig.end("a", status=FAILED)
    assert len(rig.told()) == count + 1 and not rig.core.jobs


# ---- the client is asked ---------------------------------------------------------------------


def test_the_client_is_asked_for_what_is_not_here_and_says_what_it_knows_when_it_knows_it() -> None:
    rig = Rig()
    rig.submit("b", (0,), (1,), (2,), awaited=(("gone", 0), ("gone", 1), ("gone", 2)))
    assert rig.take(m.AskResults) == [m.AskResults("b", [3, 4, 5])]
    rig.client(m.GiveResults("b", {3: b"x"}))
    assert rig.run() == [("b", 0)] and rig.inputs("b") == [b"x"]
    rig.client(m.GiveResults("b", {}, {4: (FAILED, b"exception", "why"), 5: (CANCELLED, b"", "")}))
    assert {key: one[:2] for key, one in rig.told().items()} == {
        ("b", 1): (FAILED, b"exception"),
        ("b", 2): (CANCELLED, b""),
    }


def test_what_is_said_twice_counts_once() -> None:
    rig = Rig()
    rig.submit("a", ())
    rig.submit("b", (0,), awaited=(("a", 0),))
    rig.client(m.GiveResults("b", {1: b"first"}))
    rig.client(m.GiveResults("b", {1: b"second"}))
    rig.client(m.GiveResults("b", {}, {1: (FAILED, b"", "")}))
    rig.run()
    rig.end("a", result=b"third")
    assert rig.inputs("b") == [b"first"]
    assert rig.core.jobs["b"].counted_bytes() == rig.core.jobs["b"].held_bytes


def test_the_client_is_asked_when_the_other_job_leaves() -> None:
    rig = Rig()
    rig.submit("a", ())
    rig.submit("b", (0,), awaited=(("a", 0),))
    rig.client(submission("a", 1, epoch=1))
    assert rig.take(m.AskResults) == [m.AskResults("b", [1])]


def test_the_client_is_asked_for_what_the_other_job_came_with() -> None:
    rig = Rig()
    stages = [
        m.Stage("many", 1, b"", "", 1.0, 0, None, name=name, after=after) for name, after in (("x", ()), ("y", ("x",)))
    ]
    rig.client(m.SubmitJob("a", 0, "", stages, 3, False, None, report_placed=False))
    rig.submit("b", (0,), awaited=(("a", 0),))
    rig.client(m.Known("a", [m.KnownOutcome(0, FINISHED, b"known")], {}))
    assert rig.take(m.AskResults) == [m.AskResults("b", [1])]


@pytest.mark.parametrize("other", [{"client": "c2"}, {"user": "bert"}])
def test_results_of_others_are_not_to_be_had(other: dict[str, str]) -> None:
    rig = Rig()
    rig.submit("a", (), **other)
    rig.submit("b", (0,), awaited=(("a", 0),))
    assert rig.take(m.AskResults) == [m.AskResults("b", [1])]


def test_without_its_client_a_job_ends_that_only_the_client_could_have_told() -> None:
    rig = Rig()
    rig.submit("a", (), on_client_lost="finish")
    rig.submit("b", (0,), (1,), awaited=(("gone", 0), ("a", 0)), on_client_lost="finish")
    rig.core.client_down(CLIENT, 0.0, said_goodbye=True)
    rig.core.check_invariants()
    assert rig.run() == [("a", 0)]
    rig.end("a")
    assert rig.run() == [("b", 1)] and rig.core.jobs["b"].counts[LOST] == 1


@pytest.mark.parametrize("client_is_gone", [True, False])
def test_a_task_that_ends_as_its_input_did_when_its_starts_are_known_ends_those_after_it(client_is_gone: bool) -> None:
    rig = Rig()
    stages = [
        m.Stage("many", 1, b"", "", 1.0, 0, None, name=name, after=after) for name, after in (("x", ()), ("y", ("x",)))
    ]
    job = m.SubmitJob(
        "b", 1, "", stages, 3, False, None, on_client_lost="finish", report_placed=False, acknowledges=True
    )
    asks = {0: m.TaskDetail(inputs=((2, 1),))}
    rig.client(job, m.AddTasks("b", 0, [b"p"] * 2, asks, awaited=(("gone", 0),)))
    rig.node("n", m.Claimed("b", 1, []))
    rig.client(m.GiveResults("b", {}, {2: (FAILED, b"exception", "why")}))
    assert sum(len(stage.untold) for stage in rig.core.jobs["b"].stages) == 2
    if client_is_gone:
        rig.core.client_down(CLIENT, 0.0, said_goodbye=True)
        rig.core.check_invariants()
    else:
        rig.client(m.CountKnown("b", {0: 1, 1: 1}))
    assert not rig.core.jobs


def test_tasks_that_wait_for_themselves_in_the_end_are_lost_once_nobody_is_left_to_cancel_them() -> None:
    rig = Rig()
    finish = {"on_client_lost": "finish", "acknowledges": True}
    one = {0: m.TaskDetail(inputs=((1, 1),))}
    rig.submit("waits for itself", (0,), awaited=(("waits for itself", 0),), on_client_lost="finish")
    rig.client(submission("p", 1, **finish), submission("q", 1, **finish))
    rig.client(
        m.AddTasks("p", 0, [b"p"], one, awaited=(("q", 0),)), m.AddTasks("q", 0, [b"p"], one, awaited=(("p", 0),))
    )
    rig.submit("after q", (0,), awaited=(("q", 0),), on_client_lost="finish")
    rig.submit("runs", (), on_client_lost="finish")
    rig.submit("after it", (0,), awaited=(("runs", 0),), on_client_lost="finish")
    assert rig.run() == [("runs", 0)]
    rig.core.client_down(CLIENT, 0.0, said_goodbye=False)
    assert len(rig.core.jobs) == 6, "its client may return, and cancel them"
    rig.tick(1000.0)
    assert list(rig.core.jobs) == ["runs", "after it"]
    rig.end("runs")
    assert rig.run() == [("after it", 0)]


def test_a_stage_and_a_task_of_one_before_it_that_wait_for_each_other_are_lost_once_their_client_is_gone() -> None:
    rig = Rig()
    stages = [
        m.Stage("many", 2, b"", "", 1.0, 0, None, name=name, after=after) for name, after in (("x", ()), ("y", ("x",)))
    ]
    job = m.SubmitJob("a", 0, "", stages, 3, False, None, on_client_lost="finish", report_placed=False)
    asks = {0: m.TaskDetail(inputs=((4, 1),))}
    rig.client(job, m.AddTasks("a", 0, [b"p"] * 4, asks, awaited=(("a", 3),)))
    assert rig.run() == [("a", 1)]
    rig.core.client_down(CLIENT, 0.0, said_goodbye=True)
    rig.core.check_invariants()
    assert rig.core.jobs["a"].counts[LOST] == 1 and rig.core.jobs["a"].counts[CANCELLED] == 2
    rig.end("a", 1)
    assert not rig.core.jobs


def test_a_job_that_moved_is_told_what_is_known_before_its_tasks_come() -> None:
    rig = Rig()
    rig.core.client_up(CLIENT, USER)
    details = {0: m.TaskDetail(inputs=((2, 1),)), 1: m.TaskDetail(inputs=((3, 1),))}
    rig.client(
        submission("b", 2, epoch=1, acknowledges=True, max_attempts=3),
        m.AddTasks("b", 0, [], awaited=(("a", 0), ("a", 1))),
        m.GiveResults("b", {2: b"x"}),
        m.AddTasks("b", 0, [b"p", b"p"], details),
    )
    (claim,) = rig.take(m.Claim)
    rig.node("n", m.Claimed("b", claim.epoch, []))
    counted = rig.take(m.Counted)
    rig.client(*[m.CountKnown("b", one.starts, one.failures) for one in counted])
    assert rig.run() == [("b", 0)], "the other lacks its result"
    rig.client(m.GiveResults("b", {3: b"y"}))
    assert rig.run() == [("b", 1)]


# ---- limits ----------------------------------------------------------------------------------


def test_what_waits_is_explained_and_counts() -> None:
    rig = Rig()
    rig.submit("b", (0,), awaited=(("gone", 0),))
    ((stage,), _) = waiting_stages(rig.core, rig.core.jobs["b"], 0.0)
    assert "1 of its tasks waits for results of other jobs, their inputs" in stage.reasons
    assert rig.core.admission.unplaced == {USER: 1}
    assert rig.core.jobs["b"].fixed_bytes > AWAITED_BYTES


def test_results_that_the_tasks_of_a_job_await_are_bounded_counted_for_each_task(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scheduler.book.validation.AWAITED_PAIRS_MAX", 5)
    rig = Rig()
    rig.client(submission("b", 3), m.AddTasks("b", 0, [], awaited=(("gone", 0), ("gone", 1))))
    both = m.TaskDetail(inputs=((3, 1), (4, 1)))
    rig.client(m.AddTasks("b", 0, [b""] * 2, {0: both, 1: both}))
    with pytest.raises(LinkError, match="its tasks await 6 results, counted for each task; at most 5"):
        rig.client(m.AddTasks("b", 2, [b""], {2: both}))
    rig.core.check_invariants()


@pytest.mark.parametrize(
    "message",
    [
        m.AddTasks("b", 0, [], awaited=(("a", 0),) * (GIVEN_MAX + 1)),
        m.AddTasks("b", 0, [], awaited=(("", 0),)),
        m.AddTasks("b", 0, [], awaited=(("a" * 5000, 0),)),
        m.AddTasks("b", 0, [], awaited=(("a", -1),)),
        m.GiveResults("b", {0: b""}),
        m.GiveResults("b", {2: b""}),
        m.GiveResults("b", {1: BlobRef("short", 1, ())}),
        m.GiveResults("b", {}, {1: (FAILED, BlobRef("short", 1, ()), "")}),
        m.GiveResults("b", {}, {1: (FINISHED, b"", "")}),
    ],
)
def test_a_client_that_says_what_cannot_be_is_cut_off(message: Any) -> None:
    rig = Rig()
    rig.client(submission("b", 1, acknowledges=True), m.AddTasks("b", 0, [], awaited=(("a", 0),)))
    with pytest.raises(LinkError, match=r"job b|no reference to a blob"):
        rig.client(message)


def test_results_that_are_too_many_bytes_cancel_the_job() -> None:
    rig = Rig(held_bytes_max=20_000)
    rig.submit("b", (0,), awaited=(("gone", 0),))
    rig.client(m.GiveResults("b", {1: bytes(20_000)}))
    assert rig.told()["b", 0][0] is CANCELLED and not rig.core.jobs


def test_failures_count_as_results_do() -> None:
    rig = Rig(held_bytes_max=20_000)
    rig.submit("b", (), (0,), awaited=(("gone", 0), ("gone", 1)))
    rig.client(m.GiveResults("b", {}, {3: (FAILED, bytes(5_000), "why")}))
    job = rig.core.jobs["b"]
    assert job.counted_bytes() == job.held_bytes > 5_000
    rig.client(m.GiveResults("b", {}, {2: (FAILED, bytes(20_000), "why")}))
    assert {key: one[0] for key, one in rig.told().items()} == {("b", 0): CANCELLED, ("b", 1): CANCELLED}
    assert not rig.core.jobs and not rig.core.admission.held_bytes


def test_one_failure_that_many_tasks_end_as_cancels_their_job_when_their_outcomes_are_too_many_bytes() -> None:
    rig = Rig(held_bytes_max=400_000, link_backlog_bytes_max=1 << 20)
    rig.core.client_up(CLIENT, USER)
    rig.submit("b", *[(0,)] * 100, awaited=(("gone", 0),))
    rig.client(m.GiveResults("b", {}, {100: (FAILED, bytes(20_000), "why")}))
    job = rig.core.jobs["b"]
    assert job.cancelled and job.counts[FAILED] < 60
    assert rig.core.admission.held_bytes[USER] < 1 << 20


def test_whatever_a_task_waits_for_counts() -> None:
    rig = Rig()
    rig.submit("b", (0,), awaited=(("gone", 0), ("gone", 1)))
    rig.submit("c", (0, 1), awaited=(("gone", 0), ("gone", 1)))
    assert rig.core.jobs["c"].fixed_bytes - rig.core.jobs["b"].fixed_bytes > ASKED_BYTES


def test_a_task_names_each_result_that_it_awaits_as_few_bytes_could_have_a_scheduler_wait_for_many() -> None:
    rig = Rig()
    rig.client(
        submission("b", 2, acknowledges=True),
        m.AddTasks("b", 0, [], given=(BlobRef("f" * 64, 1, ()), BlobRef("e" * 64, 1, ()))),
        m.AddTasks("b", 0, [], awaited=(("gone", 0),)),
        m.AddTasks("b", 0, [b""], {0: m.TaskDetail(inputs=((2, 2), (4, 1)))}),
    )
    with pytest.raises(LinkError, match="it has to name each of these"):
        rig.client(m.AddTasks("b", 1, [b""], {1: m.TaskDetail(inputs=((3, 2),))}))


def test_what_comes_counts_though_the_tasks_with_it_cannot_be() -> None:
    rig = Rig()
    rig.client(submission("b", 1, acknowledges=True))
    with pytest.raises(LinkError, match="asks for tasks"):
        rig.client(m.AddTasks("b", 0, [b""], {0: m.TaskDetail(inputs=((0, 1),))}, awaited=(("gone", 0),) * 10))
    assert rig.core.jobs["b"].held_bytes > 10 * AWAITED_BYTES


def test_nothing_is_added_once_all_tasks_have_come() -> None:
    rig = Rig()
    rig.client(submission("b", 1, epoch=1), m.AddTasks("b", 0, [b""]))
    with pytest.raises(LinkError, match="all of its 1 tasks have come"):
        rig.client(m.AddTasks("b", 1, [], awaited=(("gone", 0),)))
    assert len(rig.take(m.Claim)) == 1


def test_tasks_of_a_gang_await_nothing_as_one_alone_would_hold_up_all() -> None:
    job = JobState(submission("b", 2, gang=True), CLIENT, USER, 0.0)
    number = job.expect("gone", 0)
    with pytest.raises(LinkError, match="its stage is a gang"):
        check_tasks(job, m.AddTasks("b", 0, [b"", b""], {1: m.TaskDetail(inputs=((number, 1),))}), 1000)


def test_what_goes_on_with_a_task_whose_end_is_too_many_bytes_is_cancelled_with_the_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    details = {0: m.TaskDetail(inputs=((2, 1),))}
    rig.client(
        submission("b", 2, epoch=1, acknowledges=True),
        m.AddTasks("b", 0, [], awaited=(("a", 0),)),
        m.GiveResults("b", {}, {2: (FAILED, b"exception", "why")}),
        m.AddTasks("b", 0, [b"p", b"p"], details),
    )
    (claim,) = rig.take(m.Claim)
    rig.node("n", m.Claimed("b", claim.epoch, []))
    (counted,) = rig.take(m.Counted)
    outcomes = rig.core.book.outcomes
    tell = outcomes._tell
    monkeypatch.setattr(outcomes, "_tell", lambda *told: tell(*told) and False)  # As if the client did not read.
    rig.client(m.CountKnown("b", counted.starts, counted.failures))
    assert {key: one[0] for key, one in rig.told().items()} == {("b", 0): FAILED, ("b", 1): CANCELLED}
    assert not rig.core.jobs and not rig.run()
