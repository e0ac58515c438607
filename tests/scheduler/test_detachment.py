"""Jobs that their clients let go of: they go on, what becomes of them is kept, and another client is told each outcome
once."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import msgspec
import pytest

from scheduler.book.detachment import LEASE_RENEWAL_S
from sparrow_py.errors import LinkError
from sparrow_py.job import FINISHED, NAME_BYTES_MAX, BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info, ref

HOUR_S = 3600.0


class Rig(SchedulerRig):
    """A scheduler with a node that runs what it may, and clients of two users: c and d of anna, e of bert."""

    def __init__(self, **options: Any) -> None:
        super().__init__("n", **{"settling_s": 0.0, "client_grace_s": 10.0} | options)
        self.launched: dict[int, m.Launch] = {}
        for client, user in (("c", "anna"), ("d", "anna"), ("e", "bert")):
            self.core.client_up(client, user)

    def submit(self, tasks: int = 2, **fields: Any) -> None:
        """The job j of the client c, whose tasks are on the node."""
        self.submit_job(tasks, probe_ratio=1.0, **fields)
        self.run()

    def run(self) -> None:
        """The node asks for all that is reserved there."""
        while reserves := self.outbox.take(m.Reserve):
            for node, reserve in reserves:
                self.node(node, m.GetTasks(1, reserve.ticket, reserve.count))
            self.launched.update({launch.task: launch for launch in self.take(m.Launch)})

    def end(self, *tasks: int, status: TaskStatus = FINISHED, result: m.Data = b"r", now_s: float = 0.0) -> None:
        """These tasks of the job j, which run, end."""
        for task in tasks:
            attempt = self.launched.pop(task).attempt
            self.node("n", m.Report("j", task, attempt, status, result, "", 0.0, 0.1), now_s=now_s)

    def detach(
        self, tasks: int = 2, client: str = "c", retention_s: float = HOUR_S, given_back: tuple[int, ...] = (),
        user: str = "anna", **fields: Any,
    ) -> list[Any]:  # fmt: skip
        """The client lets go of the job j, and gives back outcomes of these tasks; returns what it is told."""
        self.told(client)
        outcomes = [m.Outcome("j", task, FINISHED, b"given", "", 1, "n", None, None, None) for task in given_back]
        said = [m.GiveBack("j", outcomes)] if outcomes else []
        detach = m.Detach(submission("j", tasks, probe_ratio=1.0, **fields), retention_s)
        self.client(*said, detach, client=client, user=user)
        return self.told(client)

    def attach(self, client: str = "d", user: str = "anna", by: int = 1, now_s: float = 0.0) -> list[Any]:
        """The client attaches to the job j; returns what it is told."""
        self.client(m.Attach("j", by), client=client, user=user, now_s=now_s)
        return self.told(client)

    def told(self, client: str) -> list[Any]:
        """What the client was sent since it was asked for last."""
        sent = [one for to, one in self.outbox.sent if to == client]
        self.outbox.sent = [pair for pair in self.outbox.sent if pair[0] != client]
        return sent

    def leaves(self, client: str, *, said_goodbye: bool = True, now_s: float = 0.0) -> None:
        self.core.client_down(client, now_s, said_goodbye=said_goodbye)
        self.core.pump(now_s)
        self.core.check_invariants()


def results(messages: list[Any]) -> dict[int, m.Data]:
    """Task to result of the outcomes among them."""
    return {one.task: one.result for one in messages if type(one) is m.Outcome}


@pytest.mark.parametrize("said_goodbye", [True, False])
def test_a_job_goes_on_without_its_client_and_whoever_attaches_is_told_each_outcome_once(said_goodbye: bool) -> None:
    rig = Rig()
    rig.submit(3)
    assert rig.detach(3) == [m.Detached("j")]
    rig.leaves("c", said_goodbye=said_goodbye)
    rig.end(0)
    rig.tick(100.0)
    attached, first = rig.attach()
    assert type(attached) is m.Attached and attached.submission.stages[0].task_count == 3
    assert results([first]) == {0: b"r"}
    rig.end(1, 2)
    told = rig.told("d")
    assert results(told) == {1: b"r", 2: b"r"} and told[-1] == m.JobEnded("j")
    rig.client(m.Received(5), client="d")
    assert not rig.core.admission.held_bytes and rig.core.book.detachment.count() == 0


def test_what_the_client_had_is_given_back_and_told_with_the_rest() -> None:
    rig = Rig()
    rig.submit(3)
    rig.end(0, 1)
    rig.client(m.Received(3))
    assert rig.detach(3, given_back=(0, 1)) == [m.Detached("j")]
    rig.end(2)
    assert results(rig.attach()) == {0: b"given", 1: b"given", 2: b"r"}


def test_what_was_on_its_way_to_the_client_is_void_and_told_to_the_next() -> None:
    rig = Rig()
    rig.submit(2)
    rig.end(0)  # The client says that it has received it only after it has let go of the job.
    rig.detach(2)
    rig.client(m.Received(3))
    assert results(rig.attach()) == {0: b"r"}


def test_a_job_that_ends_while_its_client_lets_go_of_it_is_kept_if_all_of_it_is_there() -> None:
    rig = Rig()
    rig.submit(2)
    rig.end(0, 1)
    rig.client(m.Received(4))
    assert not rig.core.jobs
    (why_not,) = rig.detach(2, given_back=(1,))
    assert why_not == m.NotDetached("j", "the scheduler does not have it")
    assert rig.detach(2, given_back=(0, 1)) == [m.Detached("j")]
    told = rig.attach()
    assert results(told) == {0: b"given", 1: b"given"} and told[-1] == m.JobEnded("j")


def test_one_client_is_attached_at_a_time_until_its_link_is_gone() -> None:
    rig = Rig()
    rig.submit(2)
    rig.detach(2)
    rig.attach("d")
    rig.end(0)
    assert rig.attach("c", by=2) == [m.NotAttached("j", is_kept=True)]
    rig.client(m.Received(2), client="d")
    rig.leaves("d", said_goodbye=False)
    rig.end(1)
    assert results(rig.attach("c", by=2)) == {1: b"r"}  # The other was told to the client before.


def test_a_client_that_dials_again_is_attached_again_though_its_link_is_not_known_to_be_gone() -> None:
    rig = Rig()
    rig.submit(2)
    rig.detach(2)
    rig.attach("d", by=7)
    rig.end(0)
    assert results(rig.attach("c", by=7)) == {0: b"r"}
    rig.end(1)
    assert results(rig.told("c")) == {1: b"r"}
    rig.client(m.Received(2), client="d")
    rig.leaves("d")
    assert results(rig.attach("c", by=7)) == {}
    assert rig.core.book.detachment.count() == 1


def test_leases_of_large_results_are_renewed_as_long_as_they_are_kept() -> None:
    rig = Rig()
    rig.core.nodes.by_id["n"].info = node_info(address="n:1")
    rig.submit(2)
    rig.detach(2)
    ref = BlobRef("f" * 64, 1 << 20, ("n:1", "gone:1"))
    rig.end(0, result=ref)
    for at_s in (LEASE_RENEWAL_S, 2 * LEASE_RENEWAL_S):
        rig.tick(at_s)
        assert rig.take(m.KeepData) == [m.KeepData("anna", (ref.hash,))]
    rig.attach()
    rig.client(m.Received(2), client="d")
    rig.tick(3 * LEASE_RENEWAL_S)
    assert not rig.take(m.KeepData)


def test_nobody_else_hears_of_a_users_job() -> None:
    rig = Rig()
    rig.submit(1)
    rig.detach(1)
    unknown = m.NotAttached("j")
    assert rig.attach("e", user="bert") == [unknown]
    rig.client(m.Attach("other", 1), client="d")
    assert rig.told("d") == [m.NotAttached("other")]


def test_it_is_kept_for_so_long_after_its_end_and_no_longer() -> None:
    rig = Rig()
    rig.submit(1)
    rig.detach(1, retention_s=50.0)
    rig.tick(1000.0)
    rig.end(0, now_s=1000.0)
    rig.tick(1049.0)
    rig.attach(now_s=1049.0)
    rig.leaves("d", now_s=1060.0)  # It has not said that it has received it.
    rig.tick(1109.0)
    assert rig.core.book.detachment.count() == 1
    rig.tick(1110.0)
    assert rig.attach("c", now_s=1110.0) == [m.NotAttached("j")]
    assert rig.core.book.detachment.count() == 0
    rig.tick(1200.0)
    assert rig.core.next_deadline_s() is None
    rig.client(m.Received(3))
    assert not rig.core.admission.held_bytes


def test_a_job_runs_on_when_whoever_attached_goes_and_can_be_cancelled_by_whoever_is_attached() -> None:
    rig = Rig()
    rig.submit_job(9, probe_ratio=1.0, on_client_lost="cancel")
    rig.detach(9)
    rig.attach()
    rig.leaves("d")
    rig.tick(100.0)
    assert rig.core.jobs["j"].unplaced == 9
    rig.core.client_up("d", "anna")
    rig.attach(by=2)
    rig.client(m.CancelJob("j"), client="d")
    told = rig.told("d")
    assert {one.status for one in told if type(one) is m.Outcome} == {TaskStatus.CANCELLED}
    assert told[-1] == m.JobEnded("j")


def test_starts_that_the_client_was_to_know_of_wait_for_it_no_more() -> None:
    rig = Rig()
    rig.submit_job(1, probe_ratio=1.0, max_attempts=1, acknowledges=True)
    rig.run()
    assert not rig.launched  # The client has not answered where it may be started.
    rig.detach(1, max_attempts=1, acknowledges=True)
    rig.run()
    rig.end(0)
    assert results(rig.attach()) == {0: b"r"}


def test_a_client_that_comes_back_with_its_job_has_it_again() -> None:
    rig = Rig()
    rig.submit(2)
    rig.detach(2)
    rig.attach("d")
    rig.end(0)
    rig.told("d")
    again = submission("j", 2, epoch=1, probe_ratio=1.0)
    rig.client(again, m.AddTasks("j", 0, [b"p"] * 2))
    assert [type(one) for one in rig.told("d")] == [m.JobRefused]
    rig.node("n", m.Claimed("j", 1, [(1, rig.launched[1].attempt)]))
    assert results(rig.told("c")) == {0: b"r"}
    assert rig.attach("d") == [m.NotAttached("j")]


def test_outcomes_beyond_what_may_be_held_cancel_the_job_and_what_has_not_run_is_not_kept() -> None:
    rig = Rig(held_bytes_max=1_000_000, link_backlog_bytes_max=1 << 20)
    rig.submit_job(3000, probe_ratio=1.0)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 1))
    rig.launched = {0: rig.take(m.Launch)[0]}
    rig.detach(3000)
    rig.end(0, result=bytes(900_000))
    assert not rig.core.jobs
    told = rig.attach()
    while told[-1] != m.JobEnded("j"):
        rig.client(m.Received(len(told)), client="d")
        told += rig.told("d")
    assert results(told)[0] == bytes(900_000)
    assert 1 < len(results(told)) < 3000


@pytest.mark.parametrize(
    ("options", "fields", "why"),
    [
        ({}, {"retention_s": 1e9}, "retention_s is 1e+09; allowed are seconds from 0 to detached_retention_s_max"),
        ({}, {"retention_s": float("nan")}, "retention_s is nan; allowed are seconds"),
        ({"detached_jobs_max": 0}, {}, "user anna has detached_jobs_max = 0 detached jobs"),
        ({}, {"client": "d"}, "it is not with this client"),
    ],
)  # fmt: skip
def test_a_job_that_is_not_kept_stays_with_its_client(
    options: dict[str, Any], fields: dict[str, Any], why: str
) -> None:
    rig = Rig(**options)
    rig.submit(2)
    (answer,) = rig.detach(2, **fields)
    assert type(answer) is m.NotDetached and why in answer.reason
    rig.end(0)
    assert results(rig.told("c")) == {0: b"r"}


def test_a_job_is_let_go_of_once_all_of_it_is_there_and_it_needs_its_client_no_more() -> None:
    rig = Rig()
    rig.client(submission("j", 2, acknowledges=True), m.AddTasks("j", 0, [b"p"], awaited=(("gone", 0),)))
    assert rig.detach(2)[0].reason == "1 of its tasks has not come"
    rig.client(m.AddTasks("j", 1, [b"p"], {1: m.TaskDetail(inputs=((2, 1),))}))
    assert "wait for 1 result of other jobs" in rig.detach(2)[0].reason
    rig.client(m.GiveResults("j", {2: b"value"}))
    assert rig.detach(2) == [m.Detached("j")]


def test_a_job_whose_results_another_one_waits_for_stays_with_its_client() -> None:
    rig = Rig()
    rig.submit(1)
    added = m.AddTasks("k", 0, [b"p"], {0: m.TaskDetail(inputs=((1, 1),))}, awaited=(("j", 0),))
    rig.client(submission("k", 1, acknowledges=True), added)
    assert rig.detach(1)[0].reason == "another job of its client waits for its results"


def test_a_scheduler_that_ends_keeps_nothing_more() -> None:
    rig = Rig()
    rig.submit(1)
    rig.core.drain(0.0)
    assert "shutting down" in rig.detach(1)[0].reason


def test_a_scheduler_may_end_though_outcomes_are_kept_for_nobody_yet() -> None:
    rig = Rig()
    rig.submit(1)
    rig.detach(1)
    assert not rig.core.is_done
    rig.end(0)
    assert rig.core.is_done
    rig.attach()
    assert not rig.core.is_done


def test_nobody_lets_go_of_a_job_as_what_it_is_not() -> None:
    rig = Rig()
    rig.submit(2)
    with pytest.raises(LinkError, match="as what it is not"):
        rig.detach(3)
    with pytest.raises(LinkError, match="what its tasks have in common"):
        rig.detach(2, common=b"c")


def test_letting_go_twice_is_refused() -> None:
    rig = Rig()
    rig.submit(1)
    rig.detach(1)
    assert "a detached job of the id j is kept already" in rig.detach(1)[0].reason
    rig.attach("d")
    assert rig.detach(1, client="d") == [m.Detached("j")]


def test_outcomes_that_are_given_back_count_and_too_many_are_a_reason_to_refuse() -> None:
    rig = Rig(held_bytes_max=10_000)
    rig.submit(2)
    outcome = m.Outcome("j", 0, FINISHED, bytes(50_000), "", 1, "n", None, None, None)
    rig.client(m.GiveBack("j", [outcome]))
    assert "held_bytes_max = 10000" in rig.detach(2)[0].reason
    rig.client(m.GiveBack("j", [msgspec.structs.replace(outcome, result=b"")]))
    assert rig.core.admission.held_bytes["anna"] > rig.core.jobs["j"].held_bytes
    rig.leaves("c", said_goodbye=False)
    assert rig.core.admission.held_bytes["anna"] == rig.core.jobs["j"].held_bytes


def test_only_how_tasks_of_the_job_ended_is_given_back() -> None:
    rig = Rig()
    rig.submit(2)
    rig.end(0)
    rig.client(m.Received(2))
    rig.detach(2, given_back=(0, 1, 7))  # The second runs on, and there is no eighth.
    assert results(rig.attach()) == {0: b"given"}
    rig.end(1)
    assert results(rig.told("d")) == {1: b"r"}
    with pytest.raises(LinkError, match="an outcome of another job"):
        rig.client(m.GiveBack("j", [m.Outcome("k", 0, FINISHED, b"", "", 1, "n", None, None, None)]), client="d")


@pytest.mark.parametrize(
    ("job", "node", "why"),
    [
        ("j" * 500_000, "n", "(500002 characters) are given back: there can be none"),
        ("", "n", "outcomes of job '' are given back: there can be none"),
        ("é" * 200, "n", "there can be none"),
        ("k", "n" * 500_000, "(500002 characters) is given back"),
        ("k", "é" * 200, "an outcome of node"),
    ],
)  # fmt: skip
def test_names_in_what_is_given_back_are_short_for_nobody_counts_them(job: str, node: str, why: str) -> None:
    rig = Rig()
    with pytest.raises(LinkError, match=re.escape(why)) as raised:
        rig.client(m.GiveBack(job, [m.Outcome(job, 0, FINISHED, b"", "", 1, node, None, None, None)]))
    assert len(str(raised.value)) < 300
    assert not rig.core.admission.held_bytes


def test_all_that_is_given_back_of_a_job_has_one_copy_of_its_id() -> None:
    rig = Rig()
    outcomes = [m.Outcome("job", task, FINISHED, b"", "", 1, "n", None, None, None) for task in range(2)]
    rig.client(*m.FrameDecoder(m.FromClient)(m.one_message_frame(m.GiveBack("job", outcomes))))
    kept = rig.core.book.deliveries.take_given_back("c", "job")
    assert kept is not None and kept[0].job is kept[1].job


def test_who_may_not_let_go_of_a_job_is_not_told_all_of_an_id_that_is_none() -> None:
    rig = Rig()
    rig.client(m.Detach(submission("j" * 500_000, 1), HOUR_S))
    (answer,) = rig.told("c")
    assert type(answer) is m.NotDetached and answer.job == "j" * NAME_BYTES_MAX
    with pytest.raises(LinkError, match="what its tasks have in common") as raised:
        rig.client(m.Detach(submission("j" * 500_000, 1, common=b"c"), HOUR_S))
    assert len(str(raised.value)) < 300


def test_a_client_within_a_task_lets_go_of_no_job_of_its_own_and_again_of_one_that_it_attached_to() -> None:
    rig = Rig()
    rig.submit(1)
    rig.detach(1)
    rig.core.client_up("t", "anna", depth=1)
    assert type(rig.attach("t")[0]) is m.Attached
    assert rig.detach(1, "t") == [m.Detached("j")]
    rig.client(m.SubmitJob(**msgspec.structs.asdict(submission("k", 1)) | {"epoch": 0}), client="t")
    rig.client(m.AddTasks("k", 0, [b""]), client="t")
    rig.told("t")
    rig.client(m.Detach(submission("k", 1), HOUR_S), client="t")
    why = "a task has submitted it, and what a task has submitted ends with the task"
    assert rig.told("t") == [m.NotDetached("k", why, "job")]


@pytest.mark.parametrize("said_goodbye", [True, False])
def test_a_job_runs_on_when_a_task_that_attached_to_it_ends(said_goodbye: bool) -> None:
    rig = Rig()
    rig.submit(3)
    rig.detach(3)
    rig.core.client_up("t", "anna", depth=1)
    rig.attach("t")
    rig.end(0)
    rig.leaves("t", said_goodbye=said_goodbye)
    assert not rig.take(m.CancelAttempt)
    rig.end(1, 2)
    told = rig.attach("d", by=2)
    assert results(told) == {0: b"r", 1: b"r", 2: b"r"} and told[-1] == m.JobEnded("j")


def test_an_input_that_a_task_which_ends_was_asked_for_is_awaited_no_more() -> None:
    rig = Rig()
    rig.submit(1, payloads=[ref("f")])
    rig.detach(1)
    rig.core.client_up("t", "anna", depth=1)
    rig.attach("t")
    rig.node("n", m.HandBack("j", rig.launched[0].attempt, "n:1: 404", ("f" * 64,)))
    rig.leaves("t")
    _, outcome, ended = rig.attach("d", by=2)
    assert outcome.status is TaskStatus.LOST and "the client that has it went away" in outcome.error
    assert ended == m.JobEnded("j")


@pytest.mark.parametrize(
    ("field", "wrong"), [("name", "n" * 1000), ("policy", "flow"), ("max_attempts", 0), ("age_s", -1.0)]
)
def test_a_job_that_runs_is_let_go_of_with_fields_that_a_job_can_have(field: str, wrong: Any) -> None:
    rig = Rig()
    rig.submit(1)
    (why_not,) = rig.detach(1, **{field: wrong})
    assert type(why_not) is m.NotDetached and why_not.field == field


def test_whoever_attaches_is_told_what_the_job_is_and_not_what_its_client_said_last() -> None:
    rig = Rig()
    rig.submit(1, name="mine")
    rig.detach(1, name="other", app="nosuch", max_attempts=7, avoid=("k",))
    (attached,) = rig.attach()
    assert attached == m.Attached(submission("j", 1, probe_ratio=1.0, name="mine"), HOUR_S)


def test_a_job_is_not_let_go_of_if_the_answer_to_whoever_attaches_would_not_fit_a_frame(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.submit(1)
    answer = m.Attached(submission("j", 1, probe_ratio=1.0, age_s=0.5), HOUR_S)
    monkeypatch.setattr(m, "FRAME_BYTES_MAX", len(m.one_message_frame(answer)) - 1)
    assert rig.detach(1) == [m.NotDetached("j", "what whoever attaches has to know of it does not fit a message")]
    assert rig.core.jobs["j"].client == "c"


def test_tasks_of_a_job_that_is_cancelled_for_what_is_held_are_told_as_cancelled_with_the_reason() -> None:
    rig = Rig(held_bytes_max=100_000)
    rig.submit_job(40, probe_ratio=1.0)
    rig.run()
    rig.detach(40)
    rig.end(0, result=b"x" * 100_000)
    outcomes = [one for one in rig.attach() if type(one) is m.Outcome]
    cancelled = [one for one in outcomes if one.status is TaskStatus.CANCELLED]
    assert len(cancelled) == 40 - 1 - len(rig.launched)
    assert all("held_bytes_max = 100000" in one.error for one in cancelled)


# ---- tasks that wait for room at the client -------------------------------------------------------


class FullRig(Rig):
    """Clients may be told 850 outcomes of tasks that have not run, and no more before they have read them."""

    def __init__(self, tasks: int) -> None:
        super().__init__(link_backlog_bytes_max=1 << 20)
        self.tasks = tasks
        self.counts: Counter[str] = Counter()
        """Messages that each client was sent and has looked at."""
        self.submit_job(tasks, probe_ratio=1.0)

    def told(self, client: str) -> list[Any]:
        told = super().told(client)
        self.counts[client] += len(told)
        return told

    def cancel(self, client: str) -> None:
        """The client, which has the job j, cancels it: tasks wait for room."""
        self.client(m.CancelJob("j"), client=client)
        assert 0 < self.core.jobs["j"].settled < self.tasks

    def reads(self, client: str) -> list[Any]:
        """The client says what it has read until it is told nothing more; returns what it is told by that."""
        read: list[Any] = []
        said = -1
        while said < self.counts[client]:
            said = self.counts[client]
            self.client(m.Received(said), client=client)
            self.tick(1.0)
            read += self.told(client)
        return read

    def is_told(self, told: list[Any]) -> bool:
        """Whether these messages tell all of the job, each task once."""
        tasks = sorted(one.task for one in told if type(one) is m.Outcome)
        return tasks == list(range(self.tasks)) and told[-1] == m.JobEnded("j")


MANY = pytest.mark.parametrize("tasks", [3000, 8000])
"""So few that the job ends when its client lets go of it, and more than are settled in one event."""


@MANY
def test_tasks_that_wait_for_room_at_the_client_that_lets_go_end_without_it(tasks: int) -> None:
    rig = FullRig(tasks)
    rig.cancel("c")
    assert rig.detach(tasks) == [m.Detached("j")]
    rig.leaves("c", said_goodbye=False)
    told = rig.attach()
    assert rig.is_told(told + rig.reads("d"))
    assert not rig.core.jobs and rig.core.book.detachment.count() == 0


@MANY
def test_a_client_that_has_let_go_is_told_nothing_more_though_it_has_room(tasks: int) -> None:
    rig = FullRig(tasks)
    (reserve,) = rig.take(m.Reserve)
    rig.node("n", m.GetTasks(1, reserve.ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.launched = {launch.task: launch}
    rig.cancel("c")
    rig.end(launch.task, result=bytes(300_000))  # It waits before the others, though there is room for some of them.
    before = rig.told("c")
    rig.client(m.Received(450))
    before += rig.told("c")
    rig.client(m.GiveBack("j", [one for one in before if type(one) is m.Outcome]))
    assert rig.detach(tasks) == [m.Detached("j")]
    assert rig.reads("c") == []
    told = rig.attach()
    assert rig.is_told(told + rig.reads("d"))


@MANY
def test_tasks_that_wait_for_room_at_a_link_that_is_gone_end_once_its_client_dials_again(tasks: int) -> None:
    rig = FullRig(tasks)
    rig.detach(tasks)
    rig.attach("d", by=7)
    rig.cancel("d")
    told = rig.attach("c", by=7)
    assert type(told[0]) is m.Attached and rig.is_told(told + rig.reads("c"))
    rig.leaves("d", said_goodbye=False)
    assert not rig.core.jobs and rig.core.book.detachment.count() == 0


def test_an_input_that_a_link_which_is_gone_was_asked_for_is_asked_for_no_more() -> None:
    rig = Rig()
    rig.submit(1, payloads=[ref("f")])
    rig.detach(1)
    rig.attach("d", by=7)
    rig.node("n", m.HandBack("j", rig.launched[0].attempt, "n:1: 404", ("f" * 64,)))
    assert rig.told("d") == [m.BlobLost("j", "f" * 64)]
    _, outcome, ended = rig.attach("c", by=7)
    assert outcome.status is TaskStatus.LOST and "the client that has it went away" in outcome.error
    assert ended == m.JobEnded("j")
