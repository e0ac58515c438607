"""Jobs that tasks submit: how deep they are, which is served first, and what becomes of them with their task."""

from __future__ import annotations

import logging
from itertools import count
from typing import Any

import msgspec
import pytest

from scheduler.options import SchedulerOptions
from scheduler.task_clients import MESSAGES_PER_TURN_MAX, TaskClients
from sparrow_py.errors import AccessDenied, InvalidOption, LinkError
from sparrow_py.job import TaskStatus
from sparrow_py.limits.shares import Shares
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder, submission
from tests.support.scheduler_rig import CLIENT, USER, SchedulerRig

IN_TASK = "in a task"
HELLO = m.Hello(m.PROTOCOL_VERSION_OLDEST, "client", "", "whoever", "", newest=m.PROTOCOL_VERSION, user_stated=False)


class _Outbox(Recorder):
    """As the daemon's: what is for a client within a task goes there."""

    def __init__(self, clients: dict[str, Any]) -> None:
        super().__init__()
        self._clients = clients

    def to_client(self, client: str, message: Any) -> None:  # type: ignore[override]
        link = self._clients.get(client)
        if link is None:
            super().to_client(client, message)
        else:
            link.send(message)


class NestingRig(SchedulerRig):
    """A node n where the task of job `parent` runs, and tasks' clients, whose frames the node relays."""

    def __init__(self, clients_max: int = 100, **options: Any) -> None:
        self.clients: dict[str, Any] = {}
        super().__init__("n", outbox=_Outbox(self.clients), **options)
        self.heard: list[Any] = []
        """What the clients within tasks were sent."""
        self.task_clients = TaskClients(
            self.core,
            self.clients,
            count(1),
            lambda: m.Welcome(m.PROTOCOL_VERSION, "s", 1 << 20),
            self.core.receive_from_client,
            lambda: None,
            Shares("clients_max", clients_max, "clients within tasks are connected", lends=True),
        )
        self.relayed: list[m.TaskHeard] = []
        """What the node was told of frames."""
        self.peer = "n"

    def send(self, message: Any) -> None:
        """To the node, as its link."""
        if isinstance(message, m.TaskHeard):
            self.relayed.append(message)
            return
        assert isinstance(message, m.TaskHears)
        (one,) = msgspec.msgpack.decode(message.frame, type=list[m.ToClient | m.Welcome])
        self.heard.append(one)

    def runs(self, job: str = "parent", user: str = USER) -> m.Launch:
        """The job's task is started at the node."""
        self.submit_job(job=job, user=user)
        return self.asked(job)

    def asked(self, job: str) -> m.Launch:
        """The node asks for the job's task, and has it."""
        ticket = next(reserve.ticket for reserve in self.take(m.Reserve) if reserve.job == job)
        self.node("n", m.GetTasks(1, ticket, 1))
        (launch,) = self.take(m.Launch)
        assert isinstance(launch, m.Launch) and launch.job == job
        return launch

    def says(self, launch: m.Launch, *messages: m.Message, number: int = 1) -> None:
        """A client within the task says that."""
        for message in messages:
            frame = m.one_message_frame(message)
            self.task_clients.turn(0.0)
            self.task_clients.said("n", self, m.TaskSays(launch.job, launch.attempt, number, frame), 0.0)
            self.core.check_invariants()

    def submits(self, launch: m.Launch, job: str, **fields: Any) -> None:
        """The task submits a job of one task."""
        self.says(launch, submission(job, 1, **fields), m.AddTasks(job, 0, [b"p"]))


def test_a_client_within_a_task_has_the_tasks_user_and_no_other() -> None:
    rig = NestingRig()
    launch = rig.runs()
    rig.says(launch, HELLO)
    (welcome,) = rig.heard
    assert (type(welcome), welcome.user, welcome.name) == (m.Welcome, USER, "s")
    rig.submits(launch, "child")
    assert rig.core.jobs["child"].user == USER
    rig.core.check_invariants(every_job=True)


def test_jobs_are_as_deep_as_the_jobs_of_their_tasks_and_one_more() -> None:
    rig = NestingRig()
    launch = rig.runs()
    for depth in range(1, 4):
        rig.says(launch, HELLO)
        rig.submits(launch, f"j{depth}")
        (reserve,) = rig.take(m.Reserve)
        assert reserve.depth == rig.core.jobs[f"j{depth}"].depth == depth
        rig.node("n", m.GetTasks(depth, reserve.ticket, 1))
        (launch,) = rig.take(m.Launch)


def test_a_recursion_without_end_is_refused_with_its_depth() -> None:
    rig = NestingRig(nested_depth_max=1)
    launch = rig.runs()
    rig.says(launch, HELLO)
    rig.submits(launch, "child")
    launch = rig.asked("child")
    rig.heard.clear()
    rig.says(launch, HELLO, submission("grandchild", 1))
    refused = rig.heard[-1]
    assert isinstance(refused, m.JobRefused) and refused.retry_after_s is None
    assert "nested 2 deep, and nested_depth_max = 1" in refused.reason


@pytest.mark.parametrize("order", ["shortest", "oldest", "reserved"])
def test_a_node_that_asks_gets_a_task_of_the_deepest_job_first(order: str) -> None:
    rig = NestingRig(order=order)
    launch = rig.runs()
    rig.submit_job(job="older")
    rig.says(launch, HELLO)
    rig.submits(launch, "child")
    tickets = {reserve.job: reserve.ticket for reserve in rig.take(m.Reserve)}
    first = tickets["child" if order == "reserved" else "older"]  # Nodes go by depth, too.
    rig.node("n", m.GetTasks(7, first, 1))
    assert [launch.job for launch in rig.take(m.Launch)] == ["child"]


def test_a_scheduler_that_drains_takes_jobs_of_the_tasks_that_it_has() -> None:
    rig = NestingRig()
    launch = rig.runs()
    rig.says(launch, HELLO)
    rig.core.drain(0.0)
    rig.submits(launch, "child")
    launch = rig.asked("child")
    rig.says(launch, HELLO)
    rig.submits(launch, "grandchild")
    assert not [one for one in rig.heard if isinstance(one, m.JobRefused)]
    assert rig.core.jobs["grandchild"].depth == 2


@pytest.mark.parametrize("end", ["goodbye", "gone", "node gone"])
def test_with_the_client_its_jobs_are_cancelled_and_what_runs_of_them(end: str) -> None:
    rig = NestingRig()
    launch = rig.runs()
    rig.says(launch, HELLO)
    rig.submits(launch, "runs")
    child = rig.asked("runs")
    rig.submits(launch, "waits", on_client_lost="finish")
    if end == "goodbye":
        rig.says(launch, m.Goodbye("it is done"))
    elif end == "gone":
        rig.task_clients.gone("n", m.TaskGone(launch.job, launch.attempt, 1), 0.0)
    else:
        rig.task_clients.node_gone("n", 0.0)
    assert [(one.attempt, one.running) for one in rig.take(m.CancelAttempt)] == [(child.attempt, True)]
    assert not rig.clients and not len(rig.task_clients) and not rig.core.register.nested
    rig.node("n", m.Report("runs", 0, child.attempt, TaskStatus.CANCELLED, b"", "stopped", None, None))
    assert list(rig.core.jobs) == ["parent"]


@pytest.mark.parametrize("wrong", ["attempt", "job", "node"])
def test_an_attempt_that_is_not_at_the_node_has_no_client(wrong: str) -> None:
    rig = NestingRig()
    rig.node_up("other")
    launch = rig.runs()
    job, attempt = ("other" if wrong == "job" else launch.job), launch.attempt + (wrong == "attempt")
    node = "other" if wrong == "node" else "n"
    rig.task_clients.said(node, rig, m.TaskSays(job, attempt, 1, m.one_message_frame(HELLO)), 0.0)
    (goodbye,) = rig.heard
    assert isinstance(goodbye, m.Goodbye) and "is not at node" in goodbye.reason and not goodbye.is_denied


def test_what_a_client_says_wrongly_ends_the_client_alone() -> None:
    rig = NestingRig()
    launch = rig.runs()
    for number, nonsense in enumerate(
        (b"nonsense", b"", b"\x90", m.one_message_frame(HELLO).replace(b"\x91", b"\x90", 1)), 3
    ):
        rig.task_clients.said("n", rig, m.TaskSays(launch.job, launch.attempt, number, nonsense), 0.0)
    rig.says(launch, HELLO, m.AddTasks("j", 0, []), number=2)
    rig.task_clients.said("n", rig, m.TaskSays(launch.job, launch.attempt, 2, b"nonsense"), 0.0)
    goodbyes = [one for one in rig.heard if isinstance(one, m.Goodbye)]
    assert len(goodbyes) == 5 and "0 messages in the first frame" in goodbyes[2].reason
    assert not rig.clients and launch.attempt in rig.core.jobs["parent"].attempts


def test_a_client_that_is_cut_off_is_said_so_once_and_its_node_closes_it(caplog: pytest.LogCaptureFixture) -> None:
    rig = NestingRig()
    launch = rig.runs()
    rig.says(launch, HELLO)
    caplog.set_level(logging.INFO, "sparrow.scheduler")
    for _ in range(100):
        rig.task_clients.said("n", rig, m.TaskSays(launch.job, launch.attempt, 1, b"\xff"), 0.0)
    assert len([record for record in caplog.records if "is cut off" in record.message]) == 1
    assert [one.is_over for one in rig.relayed] == [False, True] + 99 * [False]
    assert sum(one.frames for one in rig.relayed) == 101 and len(rig.heard) == 2
    for number in range(2, 100):  # And if it comes again each time: the lines are bounded.
        rig.task_clients.said("n", rig, m.TaskSays(launch.job, launch.attempt, number, b"\xff"), 0.0)
        rig.task_clients.turn(0.0)
        rig.task_clients.gone("n", m.TaskGone(launch.job, launch.attempt, number), 0.0)
    assert len([record for record in caplog.records if "is cut off" in record.message]) <= 10
    rig.task_clients.gone("n", m.TaskGone(launch.job, launch.attempt, 1), 0.0)
    assert not rig.task_clients._over and not rig.task_clients.waiting


def test_what_a_client_says_is_looked_at_in_turns_with_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be it in many frames or in one; each frame is told to the node once, when it was looked at."""
    rig = NestingRig()
    launch = rig.runs()
    rig.says(launch, HELLO)
    rig.says(launch, HELLO, number=2)
    looked_at: list[str] = []
    monkeypatch.setattr(rig.task_clients, "_receive", lambda client, *_: looked_at.append(client))
    rig.task_clients.turn(0.0)
    rig.relayed.clear()
    many = msgspec.msgpack.encode([m.CancelJob("j", running=False)] * 3 * MESSAGES_PER_TURN_MAX)
    rig.task_clients.said("n", rig, m.TaskSays(launch.job, launch.attempt, 1, many), 0.0)
    assert len(looked_at) == MESSAGES_PER_TURN_MAX and not rig.relayed
    for _ in range(4):
        rig.task_clients.said(
            "n",
            rig,
            m.TaskSays(launch.job, launch.attempt, 2, m.one_message_frame(m.CancelJob("j", running=False))),
            0.0,
        )
    assert len(looked_at) == MESSAGES_PER_TURN_MAX
    rig.task_clients.turn(0.0)
    assert len(looked_at) == 2 * MESSAGES_PER_TURN_MAX and len(set(looked_at[-8:])) == 1
    assert looked_at[MESSAGES_PER_TURN_MAX:].count(looked_at[0]) == MESSAGES_PER_TURN_MAX - 4
    assert rig.relayed == [m.TaskHeard(2, 1)] * 4
    rig.task_clients.gone("n", m.TaskGone(launch.job, launch.attempt, 1), 0.0)
    assert len(rig.task_clients) == 2  # What it said before counts.
    rig.task_clients.turn(0.0)
    rig.task_clients.turn(0.0)
    assert rig.relayed[4:] == [m.TaskHeard(1, 1)] and len(rig.task_clients) == 1
    assert not rig.task_clients.waiting


def test_a_user_with_many_clients_has_no_more_turns_than_one_with_a_single_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = NestingRig()
    mine, other = rig.runs(), rig.runs("other", "bert")
    for number in range(6):
        rig.says(mine, HELLO, number=number)
    rig.says(other, HELLO)
    looked_at: list[str] = []
    monkeypatch.setattr(rig.task_clients, "_receive", lambda client, user, *_: looked_at.append(user))
    monkeypatch.setattr(rig.task_clients, "_left", 0)
    one = m.one_message_frame(m.CancelJob("j", running=False))
    for _ in range(4):
        for number in range(6):
            rig.task_clients.said("n", rig, m.TaskSays(mine.job, mine.attempt, number, one), 0.0)
    for _ in range(3):
        rig.task_clients.said("n", rig, m.TaskSays(other.job, other.attempt, 1, one), 0.0)
    rig.task_clients.turn(0.0)
    assert looked_at == [USER, "bert"] * 3 + [USER] * 21
    assert not rig.task_clients.waiting and not rig.task_clients._turns


def test_clients_within_tasks_are_so_many_and_leave_room_for_other_users() -> None:
    rig = NestingRig(clients_max=4)
    mine, other = rig.runs(), rig.runs("other", "bert")
    for number in range(4):
        rig.says(mine, HELLO, number=number)
    assert len(rig.task_clients) == 3
    goodbye = rig.heard[-1]
    assert isinstance(goodbye, m.Goodbye) and not goodbye.is_denied
    assert "at most clients_max = 4 clients within tasks are connected: user anna has 3 of them" in goodbye.reason
    rig.says(other, HELLO)
    for number in (0, 1):
        rig.task_clients.gone("n", m.TaskGone(mine.job, mine.attempt, number), 0.0)
    rig.says(mine, HELLO, number=9)
    assert len(rig.task_clients) == 3
    rig.task_clients.node_gone("n", 0.0)
    assert not rig.task_clients._seats.total


def test_a_peer_that_is_no_client_is_refused() -> None:
    rig = NestingRig()
    launch = rig.runs()
    rig.says(launch, m.Hello(m.PROTOCOL_VERSION, "node", "n2", "", ""))
    (goodbye,) = rig.heard
    assert "role" in goodbye.reason


@pytest.mark.parametrize("options", [{"placement": "central"}, {"policy": "flow"}])
def test_planes_that_count_slots_have_no_nested_jobs(options: dict[str, str]) -> None:
    rig = NestingRig(**options)
    with pytest.raises(AccessDenied, match="tasks have no clients of their own here"):
        rig.core.depth_in_task("n", "j", 1)


def test_a_depth_that_cannot_be_is_refused() -> None:
    for depth in (-1, m.DEPTH_MAX + 1):
        with pytest.raises(InvalidOption, match="nested_depth_max"):
            SchedulerOptions(nested_depth_max=depth)


def test_of_what_is_no_attempt_nothing_is_told() -> None:
    rig = NestingRig()
    with pytest.raises(LinkError):
        rig.core.depth_in_task("n", "j" * 10_000, 1)
    rig.submit_job(job="plain", client=CLIENT)
    assert rig.core.jobs["plain"].depth == 0
