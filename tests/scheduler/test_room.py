"""Tasks that end without having run have their outcomes when their client can be told: what waits takes no memory that
does not count, and nothing waits for ever."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from scheduler.book.footprint import OUTCOME_BYTES, outcome_bytes, unrun_bytes
from scheduler.book.jobs import LEAVES_MAX
from scheduler.book.outcomes import SETTLED_AT_ONCE_MAX
from sparrow_py.job import CANCELLED, FAILED, FINISHED, LOST, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, StagedRig
from tests.support.suites import rest_after

MIB = 1 << 20
WINDOW = MIB // 2
"""With the smallest `link_backlog_bytes_max`."""
GRACE_S = 10.0


class Mail:
    """An outbox that counts what clients are sent, and keeps nothing of it."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()
        self.outcomes: Counter[tuple[str, TaskStatus]] = Counter()

    def to_node(self, node_id: str, message: m.Message) -> None:
        """Nodes do nothing here."""

    def to_client(self, client: str, message: m.Message) -> None:
        self.sent[client] += 1
        if type(message) is m.Outcome:
            self.outcomes[message.job, message.status] += 1


class Rig(SchedulerRig):
    """A client of a scheduler with one node, where nothing is started."""

    def __init__(self, **options: Any) -> None:
        self.mail = Mail()
        defaults = {"link_backlog_bytes_max": MIB, "client_grace_s": GRACE_S}
        super().__init__("n", outbox=self.mail, **{**defaults, **options})
        self.core.client_up("c", "anna")

    def submitted(self, job: str, tasks: int, **fields: Any) -> bool:
        """Whether the job was accepted, whose tasks come in one message."""
        self.core.receive_from_client("c", "anna", submission(job, tasks, **fields), 0.0)
        if job not in self.core.jobs:
            return False
        self.core.receive_from_client("c", "anna", m.AddTasks(job, 0, [b""] * tasks), 0.0)
        return True

    def says(self, message: Any, now_s: float = 0.0) -> None:
        self.core.receive_from_client("c", "anna", message, now_s)

    def run_timers(self, until_s: float = 1.0) -> None:
        while (due_s := self.core.next_deadline_s()) is not None and due_s <= until_s:
            self.core.tick(due_s)

    def read_all(self) -> None:
        """The client reads until there is nothing more."""
        read = -1
        while read < self.mail.sent["c"]:
            read = self.mail.sent["c"]
            self.says(m.Received(read))
            self.run_timers()
        self.core.check_invariants()


# ---- memory ----------------------------------------------------------------------------------


def cancel_jobs(rig: Rig, job: str, tasks: int) -> None:
    rig.says(m.CancelJob(job))


def cancel_tasks(rig: Rig, job: str, tasks: int) -> None:
    rig.says(m.CancelTasks(job, list(range(tasks))))


def let_time_out(rig: Rig, job: str, tasks: int) -> None:
    rig.run_timers()


@pytest.mark.parametrize(
    ("end", "tasks"),
    rest_after(2, [cancel_jobs, 900], [let_time_out, 9_000], [cancel_jobs, 9_000], [cancel_tasks, 9_000]),
)
def test_outcomes_of_tasks_that_did_not_run_take_no_more_than_their_user_may_hold(
    end: Callable[[Rig, str, int], None], tasks: int
) -> None:
    """As Python's allocator counts, for a client that never says what it has read."""
    held_bytes_max = 2 * MIB
    rig = Rig(held_bytes_max=held_bytes_max)
    timeout_s = 0.5 if end is let_time_out else None
    jobs = 0
    rig.submitted("first", 1)
    tracemalloc.start()
    try:
        while rig.submitted(f"j{jobs}", tasks, queue_timeout_s=timeout_s):
            end(rig, f"j{jobs}", tasks)
            rig.run_timers()
            jobs += 1
            assert jobs < 10_000, "the user fills its share"
        taken, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert jobs * tasks * OUTCOME_BYTES > 6 * held_bytes_max, "so much the outcomes would take"
    assert rig.core.admission.held_bytes["anna"] <= held_bytes_max + WINDOW
    assert taken <= held_bytes_max + WINDOW
    assert peak <= held_bytes_max + WINDOW + MIB, "beside that it has one message of a client in its hands"
    rig.core.check_invariants()
    rig.says(m.CancelJob("first"))
    rig.read_all()
    status = LOST if end is let_time_out else CANCELLED
    assert rig.mail.outcomes == {("first", CANCELLED): 1, **{(f"j{number}", status): tasks for number in range(jobs)}}
    assert not rig.core.jobs and rig.core.is_done and rig.core.admission.held_bytes == {}


@pytest.mark.parametrize("reason", ["it was cancelled", "", "ein Gerät ist verschwunden"])
def test_room_is_counted_as_the_outcome_will_be(reason: str) -> None:
    outcome = m.Outcome("j", 1, CANCELLED, b"", reason, 0, "", None, None, None)
    assert unrun_bytes(reason) == outcome_bytes(outcome)


def test_all_links_of_a_user_have_one_window_beyond_its_share() -> None:
    rig = Rig(held_bytes_max=3 * MIB)
    links = 40
    for number in range(links):
        rig.core.client_up(f"c{number}", "anna")
        rig.core.receive_from_client(f"c{number}", "anna", submission(f"j{number}", 1_000), 0.0)
    for number in range(links):
        rig.core.receive_from_client(f"c{number}", "anna", m.CancelJob(f"j{number}"), 0.0)
    rig.run_timers()
    assert len(rig.core.jobs) == links, "each of them has tasks that wait"
    assert rig.core.admission.held_bytes["anna"] < 3 * MIB + WINDOW + links * 2 * OUTCOME_BYTES
    rig.core.check_invariants()


# ---- nothing waits for ever ------------------------------------------------------------------

MANY = 4 * WINDOW // OUTCOME_BYTES


def waiting_rig(**fields: Any) -> Rig:
    """A cancelled job has more tasks than its client can be told of at once."""
    rig = Rig()
    assert rig.submitted("j", MANY, **fields)
    rig.says(m.CancelJob("j"))
    rig.run_timers()
    assert 0 < rig.mail.outcomes["j", CANCELLED] <= WINDOW // OUTCOME_BYTES and "j" in rig.core.jobs
    return rig


@pytest.mark.parametrize("said_goodbye", [True, False])
@pytest.mark.parametrize("on_client_lost", ["cancel", "finish"])
def test_a_job_ends_whose_client_goes_while_its_tasks_wait(said_goodbye: bool, on_client_lost: str) -> None:
    rig = waiting_rig(on_client_lost=on_client_lost)
    rig.core.client_down("c", 1.0, said_goodbye=said_goodbye)
    rig.run_timers(0.9 + GRACE_S)
    assert bool(rig.core.jobs) is not said_goodbye, "who has vanished may come back for the outcomes"
    rig.run_timers(2.0 + GRACE_S)
    assert not rig.core.jobs and rig.core.is_done and rig.core.admission.held_bytes == {}


def test_a_job_that_is_claimed_elsewhere_while_its_tasks_wait_leaves_nothing() -> None:
    rig = waiting_rig()
    rig.core.receive_from_node("n", m.Fenced("j", 1), 1.0)
    rig.read_all()
    assert not rig.core.jobs and rig.core.is_done and rig.core.admission.held_bytes == {}


def test_a_job_without_a_client_that_reads_is_settled_at_once() -> None:
    rig = Rig()
    rig.core.receive_from_client("http", "anna", submission("j", MANY), 0.0)
    rig.core.receive_from_client("http", "anna", m.CancelJob("j"), 0.0)
    rig.run_timers()
    assert rig.mail.outcomes == {("j", CANCELLED): MANY} and not rig.core.jobs


def test_a_job_that_was_cancelled_by_others_is_cancelled_when_its_client_brings_it_back() -> None:
    """Some of its tasks are cancelled as the client has read, so none of the others is to run."""
    rig = Rig()
    assert rig.submitted("j", MANY)
    assert rig.core.cancel_job("j", 0.0)
    rig.core.client_down("c", 1.0, said_goodbye=False)
    rig.core.client_up("c", "anna")
    rig.mail.sent.clear()
    assert rig.submitted("j", MANY, epoch=1)
    rig.core.receive_from_node("n", m.Claimed("j", 1, []), 1.0)
    rig.run_timers(30.0)
    rig.read_all()
    assert not rig.core.jobs and rig.core.is_done
    assert rig.mail.outcomes["j", CANCELLED] >= MANY and list(rig.mail.outcomes) == [("j", CANCELLED)]


def test_a_job_that_was_cancelled_for_want_of_its_client_goes_on_when_that_is_back() -> None:
    rig = Rig(client_grace_s=0.1)
    assert rig.submitted("j", 2, epoch=1)
    rig.core.client_down("c", 0.0, said_goodbye=False)
    rig.core.tick(0.1)  # It is being claimed, so that its tasks wait for what the node says.
    assert rig.core.jobs["j"].cancelled
    rig.core.client_up("c", "anna")
    assert rig.submitted("j", 2, epoch=2)
    assert not rig.core.jobs["j"].cancelled


@pytest.mark.parametrize("epoch", [1, 3])
def test_a_job_that_an_operator_cancels_while_its_client_is_gone_stays_cancelled(epoch: int) -> None:
    """It was cancelled for want of its client before, and a task of it runs. Other schedulers may have refused it
    since, at epochs between."""
    rig = SchedulerRig("n", client_grace_s=0.1)
    rig.core.client_up("c", "anna")
    rig.submit_job(3)
    (ticket,) = [reserve.ticket for reserve in rig.reserves().values()]
    rig.node("n", m.GetTasks(1, ticket, 1))
    (launch,) = rig.take(m.Launch)
    rig.core.client_down("c", 0.0, said_goodbye=False)
    rig.tick(0.1)
    assert rig.core.cancel_job("j", 0.2), "it is here"
    assert [task for task, _, _ in rig.outcomes()] == [1, 2], "which nobody reads"
    rig.core.client_up("c", "anna")
    rig.submit_job(3, epoch=epoch, now_s=0.3)
    rig.node("n", m.Claimed("j", epoch, [(launch.task, launch.attempt)]), now_s=0.3)
    rig.tick(60.0)
    assert rig.reserves() == {}
    rig.node("n", m.Report("j", launch.task, launch.attempt, FINISHED, b"", "", 0.0, 0.1), now_s=60.0)
    told = sorted((task, status) for task, status, _ in rig.outcomes())
    assert told == [(0, FINISHED), (1, CANCELLED), (2, CANCELLED)]
    assert not rig.core.jobs


def test_outcomes_that_were_dropped_are_kept_anew_when_the_job_comes_back_once_more() -> None:
    """What is kept for the client of tasks of a doomed stage counts until it is kept no longer."""
    rig = StagedRig(client_grace_s=1.0)
    stages = [("a", (), 2), ("b", ("a",), 2)]

    def comes(client: str, epoch: int, now_s: float) -> None:
        rig.core.client_up(client, "anna")
        specs = [m.Stage("many", 2, b"", "", 1.0, 0, None, name=name, after=after) for name, after, _ in stages]
        job = m.SubmitJob(
            "j", epoch, "", specs, max_attempts=3, retry_failed=False, queue_timeout_s=None, report_placed=False,
            on_client_lost="finish",
        )  # fmt: skip
        rig.client(job, m.AddTasks("j", 0, [b""] * 4, None), client=client, now_s=now_s)

    comes("c0", 0, 0.0)
    first, second = rig.run()
    rig.report(first, FAILED)  # So the tasks of the stage after it are cancelled.
    rig.core.client_down("c0", 0.1, said_goodbye=False)
    for epoch in (1, 2):
        comes(f"c{epoch}", epoch, 0.2)
        rig.node("n", m.Claimed("j", epoch, [(second.task, second.attempt)]), now_s=0.2)
        rig.core.client_down(f"c{epoch}", 0.3, said_goodbye=True)
        rig.core.check_invariants()
    rig.tick(20.0)
    assert rig.core.cancel_job("j", 20.0)
    rig.report(second)
    rig.tick(40.0)
    rig.core.check_invariants()
    assert not rig.core.jobs and rig.core.is_done and rig.core.admission.held_bytes == {}


def count_turns(rig: Rig) -> list[int]:
    """Has one number more each time that stages look for room; how many look."""
    outcomes, turns = rig.core.book.outcomes, []
    look = outcomes._settle_some

    def counted(*args: Any) -> int:
        turns.append(1)
        return look(*args)

    outcomes._settle_some = counted  # type: ignore[method-assign]
    return turns


def test_what_a_receipt_costs_does_not_grow_with_the_tasks_that_were_cancelled_one_by_one() -> None:
    rig = Rig()
    assert rig.submitted("j", MANY)
    rig.says(m.CancelTasks("j", list(range(MANY))))
    rig.run_timers()
    turns = count_turns(rig)
    for count in range(1, 11):
        rig.says(m.Received(count))
        rig.run_timers()
    assert len(turns) <= 20
    rig.read_all()
    assert rig.mail.outcomes == {("j", CANCELLED): MANY} and not rig.core.jobs


def test_what_a_receipt_costs_does_not_grow_with_the_jobs_that_wait_for_room() -> None:
    rig, jobs, each = Rig(), 100, 20
    for number in range(jobs):
        assert rig.submitted(f"j{number}", each)
    for number in range(jobs):
        rig.says(m.CancelJob(f"j{number}"))
    rig.run_timers()
    assert len(rig.core.jobs) > jobs // 2
    turns = count_turns(rig)
    for count in range(1, 11):
        rig.says(m.Received(count))
        rig.run_timers()
    assert len(turns) <= 30
    rig.read_all()
    assert rig.mail.outcomes == {(f"j{number}", CANCELLED): each for number in range(jobs)} and not rig.core.jobs


def test_one_event_settles_tasks_of_many_stages() -> None:
    """Else a user with many small jobs would keep another's waiting, a pause for each of them."""
    rig, jobs = Rig(), 200
    for number in range(jobs):
        assert rig.submitted(f"j{number}", 2)
    rig.core.client_down("c", 0.0, said_goodbye=False)  # So there is no room.
    for number in range(jobs):
        assert rig.core.cancel_job(f"j{number}", 0.0)
    assert len(rig.core.jobs) == jobs
    rig.core.tick(GRACE_S)
    assert not rig.core.jobs


def test_tasks_that_leave_for_too_many_reasons_have_the_last_of_them() -> None:
    rig = Rig()
    tasks = 2 * LEAVES_MAX
    assert rig.submitted("j", SETTLED_AT_ONCE_MAX)
    rig.core.client_down("c", 1.0, said_goodbye=False)  # So there is no room.
    job = rig.core.jobs["j"]
    for task in range(tasks):
        rig.core.book.outcomes.settle_unplaced(job.stages[0], [task], LOST, f"reason {task}", 1.0)
        rig.core.check_invariants()
    assert job.stages[0].leaving == tasks and len(job.stages[0].leaves) == LEAVES_MAX
    rig.run_timers(2.0 + GRACE_S)
    assert not rig.core.jobs


class Leavings(RuleBasedStateMachine):
    """A client cancels tasks, reads when it likes, goes and comes back: it has one outcome of each task, and none runs
    that was cancelled before it started."""

    @initialize(tasks=st.integers(1, 40), placed=st.integers(0, 4), size=st.sampled_from([1, 200_000, 400_000]))
    def begin(self, tasks: int, placed: int, size: int) -> None:
        self.rig = SchedulerRig("n", link_backlog_bytes_max=MIB, client_grace_s=GRACE_S)
        self.tasks, self.result, self.now_s, self.epoch = tasks, bytes(size), 0.0, 0
        self.client, self.away, self.over = "c0", False, False
        self.mail: list[Any] = []
        self.read_count = 0
        self.status: dict[int, TaskStatus] = {}
        self.cancelled: set[int] = set()
        self.running: dict[int, m.Launch] = {}
        self.rig.core.client_up("c0", "anna")
        self.rig.submit_job(tasks, probe_ratio=1.0, client="c0")
        for reserve in self.rig.take(m.Reserve) if placed else ():
            self.rig.node("n", m.GetTasks(1, reserve.ticket, min(placed, reserve.count)))
        self.collect()

    def collect(self) -> None:
        for launch in self.rig.take(m.Launch):
            assert launch.task not in self.cancelled
            self.running[launch.task] = launch
        self.rig.take(m.Reserve)
        mail = [message for to, message in self.rig.outbox.sent if to == self.client]
        self.rig.outbox.sent = [pair for pair in self.rig.outbox.sent if pair[0] != self.client]
        self.mail += [] if self.away else mail

    def says(self, *messages: Any) -> None:
        self.rig.client(*messages, client=self.client, now_s=self.now_s)
        self.collect()

    @property
    def here(self) -> bool:
        return not self.away and not self.over

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def task_ends(self, data: st.DataObject) -> None:
        launch = self.running.pop(data.draw(st.sampled_from(sorted(self.running))))
        self.rig.node("n", m.Report("j", launch.task, launch.attempt, FINISHED, self.result, "", 0.0, 0.1))
        self.collect()

    @rule(data=st.data())
    @precondition(lambda self: self.here)
    def some_are_cancelled(self, data: st.DataObject) -> None:
        some = data.draw(st.lists(st.integers(0, self.tasks - 1), unique=True))
        self.cancelled.update(task for task in some if task not in self.running)
        self.says(m.CancelTasks("j", some))

    @rule()
    @precondition(lambda self: self.here)
    def job_is_cancelled(self) -> None:
        self.cancelled.update(set(range(self.tasks)) - set(self.running))
        self.says(m.CancelJob("j"))

    @rule(count=st.integers(1, 20))
    @precondition(lambda self: self.mail)
    def client_reads(self, count: int) -> None:
        batch, self.mail = self.mail[:count], self.mail[count:]
        for message in batch:
            self.over = self.over or type(message) is m.JobEnded
            if type(message) is m.Outcome:
                assert message.task not in self.status
                self.status[message.task] = message.status
        self.read_count += len(batch)
        self.says(m.Received(self.read_count))

    @rule(seconds=st.floats(0.0, 0.1))
    def time_passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.rig.tick(self.now_s)
        self.collect()

    @rule()
    @precondition(lambda self: self.here)
    def link_breaks(self) -> None:
        self.rig.core.client_down(self.client, self.now_s, said_goodbye=False)
        self.rig.core.check_invariants()
        self.away, self.mail = True, []

    @rule()
    @precondition(lambda self: self.away)
    def client_comes_back(self) -> None:
        self.epoch += 1
        self.client, self.away, self.read_count = f"c{self.epoch}", False, 0
        self.rig.core.client_up(self.client, "anna")
        known = m.Known("j", [m.KnownOutcome(task, status, b"") for task, status in self.status.items()], {})
        added = m.AddTasks("j", 0, [b"p"] * self.tasks, None)
        self.says(submission("j", self.tasks, probe_ratio=1.0, epoch=self.epoch), known, added)
        unanswered = sorted(self.cancelled - set(self.status))
        if "j" in self.rig.core.jobs:
            self.says(m.CancelTasks("j", unanswered))
        for claim in self.rig.take(m.Claim):
            running = [(task, launch.attempt) for task, launch in sorted(self.running.items())]
            self.rig.node("n", m.Claimed("j", claim.epoch, running), now_s=self.now_s)
        self.now_s += 9.0
        self.time_passes(0.0)

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        if self.away:
            self.client_comes_back()
        if not self.over:
            self.job_is_cancelled()
        while self.running:
            launch = self.running.popitem()[1]
            self.rig.node("n", m.Report("j", launch.task, launch.attempt, FINISHED, self.result, "", 0.0, 0.1))
        self.collect()
        while self.mail:
            self.client_reads(7)
            self.time_passes(0.01)
        assert set(self.status) == set(range(self.tasks)) and self.over
        assert not self.rig.core.jobs and self.rig.core.is_done and self.rig.core.admission.held_bytes == {}


Leavings.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestLeavings = Leavings.TestCase
