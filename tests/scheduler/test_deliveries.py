"""Outcomes on their way to clients: paced, kept until clients have them, and told again to a client that comes back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from scheduler.book import deliveries
from scheduler.book.deliveries import MESSAGE_BYTES, NUMBER_BYTES, TASK_WINDOW_BYTES_MAX, WINDOW_BYTES_MAX
from scheduler.book.footprint import OUTCOME_BYTES
from sparrow_py.errors import LinkError
from sparrow_py.job import FINISHED, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, StagedRig

MIB = 1 << 20
SMALL_WINDOW = MIB // 2
"""With the smallest `link_backlog_bytes_max`."""


class Rig(SchedulerRig):
    """A scheduler with a node and clients that say what they have received."""

    def __init__(self, **options: Any) -> None:
        super().__init__(["a"], client_grace_s=10.0, **options)
        self.asks = 0
        self.connect()

    def connect(self, client: str = "c") -> None:
        self.core.client_up(client, "anna")

    def vanish(self, client: str = "c", now_s: float = 1.0) -> None:
        self.core.client_down(client, now_s, said_goodbye=False)
        self.core.check_invariants()

    def launched(self, job: str = "j") -> list[m.Launch]:
        """All tasks of the job are on the node."""
        for reserve in self.take(m.Reserve):
            self.asks += 1
            self.node("a", m.GetTasks(self.asks, reserve.ticket, reserve.count))
        return [launch for launch in self.take(m.Launch) if launch.job == job]

    def report(self, *launches: m.Launch, result: bytes = b"r") -> None:
        for one in launches:
            self.node("a", m.Report(one.job, one.task, one.attempt, FINISHED, result, "", 0.0, 0.1))

    def ran(self, tasks: int, result: bytes = b"r", **fields: Any) -> None:
        """A job whose tasks have all finished."""
        self.submit_job(tasks, probe_ratio=1.0, **fields)
        self.report(*self.launched(fields.get("job", "j")), result=result)

    def told(self, client: str = "c") -> list[Any]:
        """What the client was sent since it was asked for last, but for what is said of starts."""
        sent = [one for to, one in self.outbox.sent if to == client and type(one) not in (m.Using, m.Counted)]
        self.outbox.sent = [pair for pair in self.outbox.sent if pair[0] != client]
        return sent

    def come_back(self, tasks: int, client: str = "c2", known: tuple[int, ...] = (), **fields: Any) -> None:
        """The client has connected again, and takes the job here with all that it has of it."""
        self.connect(client)
        outcomes = [m.KnownOutcome(task, FINISHED, b"") for task in known]
        self.submit_job(
            tasks, m.Known("j", outcomes, {}), probe_ratio=1.0, client=client, **{"epoch": 1, **fields}
        )  # fmt: skip


def tasks_of(messages: list[Any]) -> list[int]:
    return [message.task for message in messages if type(message) is m.Outcome]


def test_what_is_on_its_way_is_bounded_and_the_rest_follows_in_order_as_it_is_received() -> None:
    rig = Rig(link_backlog_bytes_max=MIB)
    rig.ran(10, bytes(200_000))
    first = rig.told()
    assert tasks_of(first) == [0, 1]
    assert sum(len(one.result) for one in first if type(one) is m.Outcome) <= SMALL_WINDOW
    assert not rig.core.jobs and not rig.core.is_done
    told = list(first)
    while not rig.core.is_done:
        rig.client(m.Received(len(told)))
        more = rig.told()
        assert len(tasks_of(more)) <= 2
        told += more
    assert tasks_of(told) == list(range(10))
    assert [type(one) for one in told if type(one) is not m.Outcome] == [m.JobAccepted, m.JobEnded]
    rig.client(m.Received(len(told)))
    assert rig.core.admission.held_bytes == {}


def test_the_window_is_a_part_of_the_backlog_and_has_a_limit_of_its_own() -> None:
    rig = Rig(link_backlog_bytes_max=1 << 30)
    rig.ran(20, bytes(MIB - 10_000))
    assert len(tasks_of(rig.told())) == WINDOW_BYTES_MAX // MIB


def test_the_window_of_a_client_within_a_task_is_small() -> None:
    rig = Rig()
    rig.core.client_up("t", "anna", depth=1)
    for _ in range(TASK_WINDOW_BYTES_MAX // MESSAGE_BYTES + 100):
        rig.core.tell_client("t", m.JobEnded("j"))
    assert len(rig.told("t")) == TASK_WINDOW_BYTES_MAX // MESSAGE_BYTES
    rig.core.book.deliveries.send_all()
    assert len(rig.told("t")) == 100


def test_one_outcome_is_sent_however_large_it_is() -> None:
    rig = Rig(link_backlog_bytes_max=MIB, frame_bytes_max=8 * MIB)
    rig.ran(2, bytes(4 * MIB))
    told = rig.told()
    assert tasks_of(told) == []  # The acceptance is on its way.
    rig.client(m.Received(len(told)))
    assert tasks_of(rig.told()) == [0]
    rig.client(m.Received(len(told) + 1))
    assert tasks_of(rig.told()) == [1]


@pytest.mark.parametrize("count", [-1, 3, 1 << 60])
def test_no_more_is_received_than_was_sent(count: int) -> None:
    rig = Rig()
    rig.ran(1)
    rig.told()
    with pytest.raises(LinkError, match="cannot have been received: 3 were sent" if count > 3 else "received"):
        rig.client(m.Received(count if count != 3 else 4))


def test_what_was_received_is_not_received_again() -> None:
    rig = Rig()
    rig.ran(1)
    rig.client(m.Received(2))
    with pytest.raises(LinkError, match="1 messages cannot have been received"):
        rig.client(m.Received(1))


def test_what_a_client_is_asked_counts_by_what_it_is_asked_for_until_it_has_read_it() -> None:
    rig = Rig()
    awaited = tuple(("gone", task) for task in range(1000))
    rig.client(submission("j", 1), m.AddTasks("j", 0, [], awaited=awaited), m.AddTasks("j", 0, [b""]))
    rig.client(m.CancelJob("j"), m.Received(4))
    assert rig.core.admission.held_bytes == {} and rig.core.is_done
    rig.client(submission("j", 1), m.AddTasks("j", 0, [], awaited=awaited), m.AddTasks("j", 0, [b""]))
    rig.client(m.CancelJob("j"))
    assert rig.core.admission.held_bytes["anna"] > 3 * MESSAGE_BYTES + 1000 * NUMBER_BYTES


def test_what_waits_for_clients_that_do_not_read_is_bounded_for_their_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many clients: each that has more to hear is cut off. Others' clients do not count."""
    monkeypatch.setattr(deliveries, "NEWS_BYTES_MAX", 20 * MESSAGE_BYTES)
    rig = Rig()
    rig.core.book.deliveries._window_bytes = 3 * MESSAGE_BYTES
    rig.connect("c")
    rig.connect("d")
    rig.core.client_up("e", "bert")

    def asks(client: str, times: int, user: str = "anna") -> None:
        rig.client(*[m.Attach("gone", 1)] * times, client=client, user=user)

    asks("c", 3 + 12)
    asks("e", 3 + 20, "bert")
    asks("d", 3 + 8)
    with pytest.raises(LinkError, match="more than 6000 bytes of messages wait for clients of this user"):
        asks("d", 1)
    assert rig.core.book.deliveries.overfull == set()
    rig.vanish("d")
    rig.client(m.Received(3))
    asks("c", 3 + 8)
    with pytest.raises(LinkError, match="messages wait"):
        asks("c", 1)
    rig.vanish("c")
    rig.vanish("e")
    assert not rig.core.book.deliveries._waiting_news and not rig.core.admission.held_bytes


@pytest.mark.parametrize(
    "message",
    [
        m.PlacedNow("j", 1, list(range(900))),
        m.Counted("j", dict.fromkeys(range(450), 1), {1: 1}),
        m.HandedOver("j", ((1, 1),) * 900),
        m.Attached(submission("j" * 40_000)),
    ],
)
def test_large_messages_count_by_what_they_have(message: m.Message) -> None:
    rig = Rig()
    rig.core.tell_client("c", message)
    assert 18_000 < rig.core.admission.held_bytes["anna"] < 60_000


def test_an_outcome_that_was_kept_counts_once_though_its_task_is_doomed_before_it_arrives_again() -> None:
    rig = Rig()
    stages = [
        msgspec.structs.replace(submission(probe_ratio=1.0).stages[0], name=name, after=after)
        for name, after in (("x", ()), ("y", ("x",)), ("z", ()))
    ]
    added = m.AddTasks("j", 0, [b"p"] * 3)
    rig.client(msgspec.structs.replace(submission("j"), stages=stages), added)
    (of_x,) = [one for one in rig.launched() if one.task == 0]
    rig.node("a", m.Report("j", 0, of_x.attempt, TaskStatus.FAILED, b"", "", 0.0, 0.1))
    for epoch, payloads in ((1, [b"p"]), (2, [b"p"] * 3)):
        rig.vanish("c" * epoch)
        rig.connect("c" * (epoch + 1))
        submitted = msgspec.structs.replace(submission("j", epoch=epoch), stages=stages)
        rig.client(submitted, m.AddTasks("j", 0, payloads), client="c" * (epoch + 1))
    told = [(one.task, one.status) for one in rig.told("ccc") if type(one) is m.Outcome]
    assert told == [(0, TaskStatus.FAILED), (1, TaskStatus.CANCELLED)]


def test_undelivered_outcomes_count_to_their_user_until_they_are_received() -> None:
    rig = Rig()
    rig.ran(3, bytes(1000))
    told = rig.told()
    assert rig.core.admission.held_bytes == {"anna": 3 * (1000 + OUTCOME_BYTES) + 2 * MESSAGE_BYTES}
    rig.client(m.Received(len(told)))
    assert rig.core.admission.held_bytes == {} and rig.core.is_done


def test_a_user_whose_undelivered_outcomes_fill_its_share_has_its_job_cancelled_and_is_told_why() -> None:
    rig = Rig(link_backlog_bytes_max=MIB, held_bytes_max=2 * MIB)
    rig.submit_job(10, probe_ratio=1.0)
    ticket = rig.take(m.Reserve)[0].ticket
    rig.node("a", m.GetTasks(1, ticket, 5))
    rig.report(*rig.take(m.Launch), result=bytes(500_000))
    assert rig.core.admission.held_bytes["anna"] > 2 * MIB
    assert rig.core.jobs["j"].cancelled and not rig.core.jobs["j"].attempts
    rig.submit_job(1, job="k")
    told = rig.told()
    while True:
        count = len(told)
        rig.client(m.Received(count))
        told += rig.told()
        if len(told) == count:
            break
    outcomes = {one.task: one for one in told if type(one) is m.Outcome}
    assert Counter(one.status for one in outcomes.values()) == {FINISHED: 5, TaskStatus.CANCELLED: 5}
    assert "held_bytes_max = 2097152" in outcomes[9].error
    (refused,) = [one for one in told if type(one) is m.JobRefused]
    assert "held_bytes_max" in refused.reason and refused.retry_after_s is not None
    assert rig.core.admission.held_bytes == {}


def test_a_client_that_reads_is_not_held_against_the_limit() -> None:
    """What is on its way counts, but nothing is cancelled for it."""
    rig = Rig(held_bytes_max=MIB)
    rig.ran(8, bytes(500_000))
    assert Counter(one.status for one in rig.told() if type(one) is m.Outcome) == {FINISHED: 8}


@pytest.mark.parametrize("known", [(), (0,), (0, 1, 2)])
def test_a_client_that_comes_back_hears_what_it_has_not_read_of_a_job_that_has_ended(known: tuple[int, ...]) -> None:
    rig = Rig()
    rig.ran(3, b"result", max_attempts=1)
    rig.vanish()
    rig.outbox.sent.clear()
    rig.come_back(3, known=known, max_attempts=1)
    told = rig.told("c2")
    assert tasks_of(told) == [task for task in range(3) if task not in known]
    assert {one.result for one in told if type(one) is m.Outcome} <= {b"result"}
    assert [type(one) for one in told if type(one) is not m.Outcome] == [m.JobAccepted, m.JobEnded]
    assert not rig.take(m.Claim) and not rig.take(m.Reserve) and not rig.core.jobs
    rig.client(m.Received(len(told)), client="c2")
    assert rig.core.is_done and rig.core.admission.held_bytes == {}


def test_outcomes_that_come_while_the_client_is_away_are_kept_for_it() -> None:
    rig = Rig()
    rig.submit_job(2, probe_ratio=1.0)
    first, second = rig.launched()
    rig.report(first)
    rig.vanish()
    rig.report(second)
    assert not rig.core.jobs
    rig.come_back(2)
    assert tasks_of(rig.told("c2")) == [0, 1]


def test_of_a_job_that_still_runs_what_has_ended_is_told_and_the_rest_is_adopted() -> None:
    rig = Rig()
    rig.submit_job(2, probe_ratio=1.0)
    first, second = rig.launched()
    rig.report(first)
    rig.vanish()
    rig.come_back(2)
    assert tasks_of(rig.told("c2")) == [0]
    rig.node("a", m.Claimed("j", 1, [(1, second.attempt)]))
    rig.tick(20.0)
    rig.report(second)
    assert tasks_of(rig.told("c2")) == [1]
    assert rig.core.counters.retries == 0 and not rig.core.jobs


def test_a_client_may_dial_again_before_its_old_link_is_seen_to_be_gone() -> None:
    rig = Rig(link_backlog_bytes_max=MIB)
    rig.ran(4, bytes(200_000))
    before = rig.told()
    assert tasks_of(before) == [0, 1]
    rig.come_back(4)
    again = rig.told("c2")
    assert tasks_of(again) == [0, 1]
    rig.client(m.Received(len(again)), client="c2")
    rig.client(m.Received(len(before)))
    assert not tasks_of(rig.told()), "the old link is told nothing more of them"
    rig.vanish()
    more = rig.told("c2")
    assert tasks_of(more) == [2, 3]
    rig.client(m.Received(len(again) + len(more)), client="c2")
    assert rig.core.is_done and rig.core.admission.held_bytes == {}


def test_a_client_may_vanish_again_before_its_tasks_have_arrived() -> None:
    rig = Rig()
    rig.ran(2)
    rig.vanish()
    rig.connect("c2")
    rig.client(submission("j", 2, epoch=1), client="c2")
    rig.vanish("c2", now_s=2.0)
    rig.come_back(2, client="c3", epoch=2, now_s=3.0)
    assert tasks_of(rig.told("c3")) == [0, 1]


def test_a_job_may_come_twice_over_one_link_and_nothing_of_it_is_kept_for_ever() -> None:
    rig = Rig()
    rig.ran(1)
    first = len(rig.told())
    rig.submit_job(1, m.Known("j", [], {}), epoch=1)  # Before the client has said that it has what it was told.
    assert tasks_of(rig.told()) == [0]
    rig.client(m.Received(first))
    rig.vanish(now_s=1.0)
    assert rig.core.admission.held_bytes, "the outcome may not have been read"
    rig.tick(11.0)
    assert rig.core.is_done and rig.core.admission.held_bytes == {}


def test_a_client_that_was_refused_when_it_came_back_has_the_whole_grace_time_again() -> None:
    rig = Rig()
    rig.submit_job(2, probe_ratio=1.0)
    rig.report(rig.launched()[0])
    rig.vanish(now_s=1.0)
    rig.core.admission.unplaced_tasks_max = 1
    rig.come_back(2, now_s=9.0)
    assert [type(one) for one in rig.told("c2")] == [m.JobRefused]
    rig.core.admission.unplaced_tasks_max = 100
    rig.tick(12.0)  # Later than the end of the time that began when it vanished.
    rig.come_back(2, client="c3", epoch=2, now_s=12.0)
    assert tasks_of(rig.told("c3")) == [0]


@pytest.mark.parametrize("held_bytes_max", [3000, 4 << 30])
def test_who_comes_back_for_outcomes_is_taken_though_they_fill_its_share(held_bytes_max: int) -> None:
    rig = Rig()
    rig.ran(4, bytes(1000))
    rig.vanish()
    rig.core.admission.held_bytes_max = held_bytes_max
    rig.come_back(4)
    told = rig.told("c2")
    assert not [one for one in told if type(one) is m.JobRefused]
    assert tasks_of(told) == [0, 1, 2, 3]
    assert {one.status for one in told if type(one) is m.Outcome} == {FINISHED}


@pytest.mark.parametrize("refused", [False, True])
def test_what_nobody_comes_back_for_goes_when_the_grace_time_is_over(refused: bool) -> None:
    rig = Rig()
    rig.ran(2)
    rig.vanish(now_s=1.0)
    if refused:
        rig.core.admission.unplaced_tasks_max = 1
        rig.come_back(2, now_s=3.0)
        assert [type(one) for one in rig.told("c2")] == [m.JobRefused]
    rig.tick(10.9)
    assert not rig.core.is_done
    rig.tick(11.0)
    assert rig.core.is_done and set(rig.core.admission.held_bytes) <= ({"anna"} if refused else set())


def test_a_scheduler_that_takes_no_further_jobs_takes_back_those_of_which_it_keeps_outcomes() -> None:
    rig = Rig()
    rig.ran(2)
    rig.vanish()
    rig.core.drain(2.0)
    rig.come_back(2)
    assert tasks_of(rig.told("c2")) == [0, 1]
    rig.submit_job(1, job="k", client="c2", epoch=1)
    assert [one.reason for one in rig.told("c2")] == ["the scheduler is shutting down"]


def test_on_its_way_may_be_a_window_beyond_the_limit_for_all_links_of_a_user_together() -> None:
    rig = Rig(held_bytes_max=MIB, link_backlog_bytes_max=8 * MIB, order="reserved", probe_sharing=False)
    for number in range(6):
        rig.connect(f"c{number}")
        rig.submit_job(3, probe_ratio=1.0, job=f"j{number}", client=f"c{number}")
    tickets = {reserve.job: reserve.ticket for reserve in rig.take(m.Reserve)}
    for job, ticket in tickets.items():
        rig.node("a", m.GetTasks(ticket, ticket, 2))
        launches = rig.take(m.Launch)
        assert {launch.job for launch in launches} == {job}
        rig.report(*launches, result=bytes(1_000_000))
    cancelled = [job.id for job in rig.core.jobs.values() if job.cancelled]
    assert cancelled == ["j2", "j3", "j4", "j5"], "what they may start would be too much"
    rig.client(m.Received(len(rig.told("c5"))), client="c5")
    (cancelled,) = [one for one in rig.told("c5") if type(one) is m.Outcome and one.status is TaskStatus.CANCELLED]
    assert "held_bytes_max = 1048576" in cancelled.error


def test_a_client_that_says_goodbye_wants_no_outcomes() -> None:
    rig = Rig()
    rig.ran(2)
    rig.core.client_down("c", 1.0, said_goodbye=True)
    assert rig.core.is_done and rig.core.admission.held_bytes == {}


@pytest.mark.parametrize("fields", [{"user": "ben"}, {"instance": 7}])
def test_what_is_kept_is_for_the_same_job_of_the_same_user_alone(fields: dict[str, Any]) -> None:
    rig = Rig()
    rig.ran(1)
    rig.vanish()
    rig.connect("c2")
    rig.submit_job(1, probe_ratio=1.0, client="c2", epoch=1, **fields)
    assert tasks_of(rig.told("c2")) == []


def test_results_that_later_stages_need_are_there_again() -> None:
    rig = StagedRig(client_grace_s=10.0)
    rig.core.client_up("c", "anna")
    rig.submit(("one", (), 1), ("two", ("one",), 1, ("one",)))
    (launch,) = rig.run()
    rig.report(launch, result=b"of one")
    rig.core.client_down("c", 1.0, said_goodbye=False)
    rig.core.client_up("c2", "anna")
    stages = [
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="one"),
        m.Stage("many", 1, b"", "", 1.0, 0, None, name="two", after=("one",)),
    ]
    again = m.SubmitJob("j", 1, "", stages, 3, False, None, False)
    added = m.AddTasks("j", 0, [b"p", b"p"], {1: m.TaskDetail((), ((0, 1),))})
    rig.client(again, m.Known("j", [], {}), added, client="c2", now_s=2.0)
    assert [one.result for _, one in rig.outbox.take(m.Outcome)] == [b"of one", b"of one"]
    rig.node("n", m.Claimed("j", 1, []))
    rig.tick(10.0)
    (launch,) = rig.run()
    assert launch.task == 1
    assert [one.data for one in rig.take(m.Input)] == [b"of one"]


def test_clients_that_were_not_announced_have_what_they_are_told() -> None:
    rig = Rig(link_backlog_bytes_max=MIB)
    rig.submit_job(4, probe_ratio=1.0, client="http")
    rig.report(*rig.launched(), result=bytes(400_000))
    assert tasks_of(rig.told("http")) == [0, 1, 2, 3]
    assert rig.core.is_done and rig.core.admission.held_bytes == {}


def test_a_scheduler_that_ends_sends_what_waits_before_its_last_words() -> None:
    rig = Rig(link_backlog_bytes_max=MIB)
    rig.ran(4, bytes(300_000))
    rig.submit_job(1, job="k")
    assert tasks_of(rig.told()) == [0]
    assert rig.core.hand_over(1.0) == [("c", m.HandedOver("k", ((0, 1),)))]
    assert [type(one) for one in rig.told()] == [m.Outcome] * 3 + [m.JobEnded, m.JobAccepted]


def test_a_job_that_another_scheduler_has_claimed_leaves_nothing() -> None:
    rig = Rig()
    rig.submit_job(2, probe_ratio=1.0)
    rig.report(rig.launched()[0])
    rig.vanish()
    rig.node("a", m.Fenced("j", 1))
    assert rig.core.is_done and rig.core.admission.held_bytes == {}


class Comings(RuleBasedStateMachine):
    """A client that reads when it likes, goes and comes back: it has each outcome of a job once, and no task is started
    again that has ended."""

    @initialize(tasks=st.integers(1, 8), size=st.sampled_from([1, 90_000, 400_000]))
    def begin(self, tasks: int, size: int) -> None:
        self.rig, self.tasks, self.result = Rig(link_backlog_bytes_max=MIB), tasks, bytes(size)
        self.now_s, self.epoch, self.client = 0.0, 0, "c"
        self.away = False
        self.mail: list[Any] = []
        """Sent over the link that stands, and not read."""
        self.read_count = 0
        self.known: set[int] = set()
        self.ended: set[int] = set()
        self.rig.submit_job(tasks, probe_ratio=1.0)
        self.running = {one.task: one for one in self.rig.launched()}
        self.over = False
        self.collect()

    def collect(self) -> None:
        mail = self.rig.told(self.client)
        if not self.away:
            self.mail += mail

    @rule(data=st.data())
    @precondition(lambda self: self.running)
    def task_ends(self, data: st.DataObject) -> None:
        task = data.draw(st.sampled_from(sorted(self.running)))
        self.rig.report(self.running.pop(task), result=self.result)
        self.ended.add(task)
        self.collect()

    @rule(count=st.integers(1, 20))
    @precondition(lambda self: self.mail)
    def client_reads(self, count: int) -> None:
        batch, self.mail = self.mail[:count], self.mail[count:]
        for message in batch:
            self.over = self.over or type(message) is m.JobEnded
            if type(message) is m.Outcome:
                assert message.task not in self.known and message.status is FINISHED
                self.known.add(message.task)
        self.read_count += len(batch)
        self.rig.client(m.Received(self.read_count), client=self.client, now_s=self.now_s)
        self.collect()

    @rule()
    def nothing_happens(self) -> None:
        self.rig.tick(self.now_s)

    @rule()
    @precondition(lambda self: not self.away and not self.over)
    def link_breaks(self) -> None:
        self.rig.vanish(self.client, self.now_s)
        self.away, self.mail = True, []

    @rule(seconds=st.floats(0.0, 9.0))
    @precondition(lambda self: self.away)
    def client_comes_back(self, seconds: float) -> None:
        self.now_s += seconds
        self.rig.tick(self.now_s)
        self.epoch += 1
        self.client, self.away, self.read_count = f"c{self.epoch}", False, 0
        self.rig.connect(self.client)
        known = m.Known("j", [m.KnownOutcome(task, FINISHED, b"") for task in sorted(self.known)], {})
        self.rig.submit_job(
            self.tasks, known, probe_ratio=1.0, client=self.client, epoch=self.epoch, now_s=self.now_s
        )  # fmt: skip
        for claim in self.rig.take(m.Claim):
            running = [(task, one.attempt) for task, one in sorted(self.running.items())]
            self.rig.node("a", m.Claimed("j", claim.epoch, running), now_s=self.now_s)
        self.now_s += 9.0
        self.rig.tick(self.now_s)
        assert not self.rig.take(m.Reserve) and not self.rig.take(m.Launch)
        self.collect()

    @invariant()
    def little_is_on_its_way(self) -> None:
        if hasattr(self, "mail") and len(self.mail) > 1:
            assert sum(len(one.result) for one in self.mail if type(one) is m.Outcome) <= SMALL_WINDOW

    def teardown(self) -> None:
        if not hasattr(self, "rig"):
            return
        while self.running:
            self.rig.report(self.running.popitem()[1], result=self.result)
        self.collect()
        if self.away:
            self.client_comes_back(0.0)
        while self.mail:
            self.client_reads(3)
        assert self.known == set(range(self.tasks)) and self.over
        assert self.rig.core.is_done and self.rig.core.admission.held_bytes == {}


Comings.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestComings = Comings.TestCase
