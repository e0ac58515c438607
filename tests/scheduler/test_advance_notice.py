"""What a client must know before something of its job starts: how often, and where (guarantee 3 over failovers)."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler.book.claims import REDIALLED_S
from sparrow_py.errors import LinkError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from sparrow_py.wire.dialling import REDIAL_MAX_S
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST


def info(memory: str = "") -> m.NodeInfo:
    return m.NodeInfo(4, {}, {}, {"many": ""}, "", memory)


class Rig(SchedulerRig):
    """A scheduler that has long been up, nodes of the given memories, and a client that answers by hand."""

    def __init__(self, memories: dict[str, str] | None = None, **options: Any) -> None:
        nodes = {node: info(memory) for node, memory in (memories or {"a": "A"}).items()}
        super().__init__(nodes, **{"settling_s": 0.0, "claim_timeout_s": 1.0, **options})

    def submit(self, tasks: int = 1, *between: Any, **fields: Any) -> None:
        self.submit_job(tasks, *between, **{"acknowledges": True, **fields})

    def ask(self, node: str = "a", count: int = 4) -> list[m.Launch]:
        """The node asks with all tickets of which it knows."""
        for to, reserve in self.outbox.take(m.Reserve):
            self.node(to, m.GetTasks(1, reserve.ticket, min(count, reserve.count)))
        return self.take(m.Launch)

    def lose(self, launch: m.Launch, node: str = "a") -> None:
        self.node(node, m.Report("j", launch.task, launch.attempt, LOST, b"", "its executor died", None, None))


# ---- where -----------------------------------------------------------------------------------


@pytest.mark.parametrize("local", [False, True])
def test_a_node_that_asked_too_early_has_its_reservation_again_once_the_client_knows_of_it(local: bool) -> None:
    """What was reserved elsewhere in the meantime may wait for ever: behind a task that lasts as long as it likes."""
    rig = Rig({"busy": "A", "idle": "B"})
    tasks = m.AddTasks("j", 0, [b"p"], {0: m.TaskDetail(("busy", "idle"))} if local else None)
    rig.client(submission("j", 1, acknowledges=True, max_attempts=1, local=local), tasks)
    reserves = dict(rig.outbox.take(m.Reserve))
    assert set(reserves) == {"busy", "idle"}
    rig.node("idle", m.GetTasks(1, reserves["idle"].ticket, 1))
    assert rig.take(m.NoTask) == [m.NoTask(1, 1)]
    rig.outbox.take(m.Reserve)  # All that is left for it is the busy node.
    rig.client(*(m.UsingKnown("j", using.number) for using in rig.take(m.Using)))
    again = dict(rig.outbox.take(m.Reserve))
    assert again["idle"].count == 1
    rig.node("idle", m.GetTasks(2, again["idle"].ticket, 1))
    assert [launch.task for launch in rig.take(m.Launch)] == [0]


def test_a_node_that_asked_too_early_has_no_more_reservations_again_than_it_asked_with() -> None:
    rig = Rig({"a": "A"})
    rig.submit(3, max_attempts=1)
    (reserve,) = rig.take(m.Reserve)
    rig.node("a", m.GetTasks(1, reserve.ticket, 1))
    stage = rig.core.jobs["j"].stages[0]
    assert stage.plan.asked_too_soon == {"a": 1}


# ---- how often -------------------------------------------------------------------------------


def test_a_task_starts_again_once_its_client_knows_its_starts() -> None:
    rig = Rig()
    rig.submit()
    (launch,) = rig.ask()
    rig.lose(launch)
    assert rig.take(m.Counted) == [m.Counted("j", {0: 1})]
    assert not rig.take(m.Retried) and not rig.take(m.Reserve)
    rig.client(m.CountKnown("j", {0: 2}))
    assert not rig.take(m.Reserve), "not what it was told"
    rig.client(m.CountKnown("j", {0: 1}), m.CountKnown("j", {0: 1}))
    (again,) = rig.ask()
    rig.lose(again)
    assert rig.take(m.Counted) == [m.Counted("j", {0: 2})]


def test_a_client_that_does_not_answer_is_told_and_not_waited_for() -> None:
    rig = Rig()
    rig.submit(acknowledges=False)
    (launch,) = rig.ask()
    rig.lose(launch)
    assert rig.take(m.Retried) == [m.Retried("j", 0, 1)] and not rig.take(m.Counted)
    assert len(rig.ask()) == 1


def test_an_answer_for_a_task_that_there_is_not_ends_the_link() -> None:
    rig = Rig()
    rig.submit()
    with pytest.raises(LinkError, match="there is no task 7; it has 1"):
        rig.client(m.CountKnown("j", {7: 1}))


@pytest.mark.parametrize("cancel", [m.CancelJob("j"), m.CancelTasks("j", [0])], ids=["job", "task"])
def test_a_task_whose_client_is_yet_to_answer_can_be_cancelled(cancel: m.Message) -> None:
    rig = Rig()
    rig.submit()
    (launch,) = rig.ask()
    rig.lose(launch)
    rig.client(cancel)
    assert rig.outcomes() == [(0, CANCELLED, 1)] and not rig.core.jobs


def test_a_job_that_goes_on_without_its_client_waits_for_it_only_so_long_as_that_may_come_back() -> None:
    rig = Rig(client_grace_s=10.0)
    rig.submit(on_client_lost="finish")
    (launch,) = rig.ask()
    rig.core.client_down("c", 1.0, said_goodbye=False)
    rig.lose(launch)
    assert not rig.take(m.Reserve)
    rig.core.tick(11.0)
    rig.core.check_invariants()
    assert len(rig.ask()) == 1


def test_a_job_whose_client_has_said_goodbye_waits_for_nobody() -> None:
    rig = Rig()
    rig.submit(on_client_lost="finish")
    (launch,) = rig.ask()
    rig.lose(launch)
    rig.core.client_down("c", 1.0, said_goodbye=True)
    rig.core.check_invariants()
    assert len(rig.ask()) == 1


def test_what_a_failover_counts_the_client_knows_before_it_starts_again() -> None:
    rig = Rig()
    rig.submit(3, m.Known("j", [], {1: 1}), epoch=1, max_attempts=3)
    rig.node("a", m.Claimed("j", 1, [(2, 7)]))
    assert rig.take(m.Counted) == [m.Counted("j", {0: 1, 1: 2})] and not rig.take(m.Reserve)
    rig.client(m.CountKnown("j", {1: 2}))
    assert [launch.task for launch in rig.ask()] == [1]
    rig.client(m.CountKnown("j", {0: 1}))
    assert [launch.task for launch in rig.ask()] == [0]


def test_an_outcome_or_a_run_that_a_late_node_tells_of_is_not_waited_with() -> None:
    rig = Rig()
    rig.submit(2, epoch=1)
    rig.node("a", m.Claimed("j", 1, []))
    rig.core.node_up("b", info(), 1.0)
    rig.node("b", m.Report("j", 0, 3, FINISHED, b"r", "", 0.0, 0.1), m.Claimed("j", 1, [(1, 4)]))
    rig.node("b", m.Report("j", 1, 4, FINISHED, b"r", "", 0.0, 0.1))
    assert [task for task, status, _ in rig.outcomes() if status is FINISHED] == [0, 1] and not rig.core.jobs


@pytest.mark.parametrize(
    ("claimed", "unstarted", "counts"),
    [
        ([], (), {0: 1, 1: 1, 2: 1}),
        ([(0, 5)], (), {}),
        ([(1, 5)], (), {0: 1}),
        ([], ((0, 1),), {}),
    ],
    ids=["nobody knows of any", "the first runs", "the second runs", "the first has not started"],
)
def test_tasks_of_a_stage_that_another_scheduler_may_have_opened_may_have_started(
    claimed: list[tuple[int, int]], unstarted: tuple[tuple[int, int], ...], counts: dict[int, int]
) -> None:
    """It may have known outcomes of the stages before, which are lost with it."""
    rig = Rig()
    chain = [
        m.Stage("many", 1, b"", "", 2.0, 0, None, name=str(number), after=(str(number - 1),) if number else ())
        for number in range(3)
    ]
    rig.client(m.SubmitJob("j", 1, "", chain, 3, False, None, False, acknowledges=True))
    rig.client(m.Known("j", [], {}, unstarted), m.AddTasks("j", 0, [b"p"] * 3))
    rig.node("a", m.Claimed("j", 1, claimed))
    told: dict[int, int] = {}
    for message in rig.take(m.Counted):
        told |= message.starts
    assert told == counts


def test_a_start_that_cannot_be_ruled_out_is_reported_of_what_does_not_start_any_more() -> None:
    """The first may have finished before its scheduler died, and the second have begun."""
    rig = Rig()
    two = [
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="first"),
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="second", after=("first",)),
    ]
    rig.client(m.SubmitJob("j", 1, "", two, 1, False, None, False), m.AddTasks("j", 0, [b"p"] * 2))
    rig.node("a", m.Claimed("j", 1, []))
    assert sorted(rig.outcomes()) == [(0, LOST, 1), (1, CANCELLED, 1)]


def test_starts_of_a_task_with_an_outcome_are_known_to_the_next_scheduler_too() -> None:
    """Its result is lost later: it is not produced again by a third start of two."""
    rig = Rig()
    two = [
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="first"),
        m.Stage("many", 1, b"", "", 2.0, 0, None, name="second", after=("first",)),
    ]
    rig.client(m.SubmitJob("j", 1, "", two, 2, False, None, False, acknowledges=True))
    result = BlobRef("f" * 64, 1 << 20, ("gone:1",))
    rig.client(m.Known("j", [m.KnownOutcome(0, FINISHED, result)], {0: 1}))
    rig.client(m.AddTasks("j", 0, [b"p"] * 2, {1: m.TaskDetail((), ((0, 1),))}))
    rig.node("a", m.Claimed("j", 1, []))
    rig.client(m.CountKnown("j", {1: 1}))
    (launch,) = rig.ask()
    rig.node("a", m.HandBack("j", launch.attempt, "404", (result.hash,)))
    (outcome,) = rig.take(m.Outcome)
    assert (outcome.task, outcome.status) == (1, LOST) and "has been started 2 times" in outcome.error


# ---- where -----------------------------------------------------------------------------------


def test_a_task_that_may_start_once_starts_where_its_client_knows_of() -> None:
    rig = Rig({"a": "A", "b": "B"})
    rig.submit(2, max_attempts=1)
    (using,) = rig.take(m.Using)
    assert set(using.memories) == {"A", "B"}
    assert not rig.ask()
    rig.client(m.UsingKnown("j", using.number + 1))
    assert not rig.ask()
    rig.client(m.UsingKnown("j", using.number))
    assert {launch.task for launch in rig.ask()} == {0, 1}
    assert not rig.take(m.Using)


@pytest.mark.parametrize(
    "fields",
    [{"max_attempts": 2}, {"max_attempts": 1, "acknowledges": False}, {"max_attempts": 1, "on_client_lost": "finish"}],
    ids=["may start again", "a client that does not answer", "goes on without its client"],
)
def test_others_start_at_once(fields: dict[str, Any]) -> None:
    rig = Rig()
    rig.submit(**fields)
    assert len(rig.ask()) == 1 and not rig.take(m.Using)


@pytest.mark.parametrize("placement", ["batch", "per-task", "random"])
def test_a_task_that_may_start_once_is_pushed_only_to_nodes_that_its_client_knows_of(placement: str) -> None:
    rig = Rig({"a": "A", "b": "B"}, placement=placement)
    rig.submit(2, max_attempts=1)
    (using,) = rig.take(m.Using)
    assert set(using.memories) == {"A", "B"} and not rig.take(m.Launch)
    rig.client(m.UsingKnown("j", using.number))
    for to, question in rig.outbox.take(m.AskLength):
        rig.node(to, m.QueueLength(question.probe, 0))
    assert {launch.task for launch in rig.take(m.Launch)} == {0, 1}


def test_a_node_that_is_gone_with_all_that_it_had_need_not_be_asked_any_more() -> None:
    rig = Rig({"a": "A", "b": "B"})
    rig.submit(2, max_attempts=1)
    (using,) = rig.take(m.Using)
    rig.client(m.UsingKnown("j", using.number))
    launches = rig.outbox.take(m.Reserve)
    to, reserve = launches[0]
    rig.node(to, m.GetTasks(1, reserve.ticket, 1))
    (launched,) = rig.outbox.take(m.Launch)
    rig.outbox.sent.clear()
    rig.core.node_down(launched[0], 1.0)
    told = [message for to, message in rig.outbox.sent if to == "c"]
    assert [type(message) for message in told] == [m.Outcome, m.Unused], "in this order"
    # It comes back: an answer to what was said before does not count.
    rig.core.node_up(launched[0], info(told[1].memory), 2.0)
    (again,) = rig.take(m.Using)
    assert again.memories == (told[1].memory,) and again.number != using.number
    rig.client(m.UsingKnown("j", using.number))
    assert rig.core.jobs["j"].using is not None and rig.core.jobs["j"].using[told[1].memory] == again.number


# ---- what the next scheduler makes of it -----------------------------------------------------


class Brought(Rig):
    """A job of 3 tasks, that may start once, comes from another scheduler, which used the memories A and B."""

    def __init__(
        self, memories: dict[str, str], used: tuple[str, ...] | None = ("A", "B"), now_s: float = 0.0, **options: Any
    ) -> None:
        super().__init__(memories, **options)
        self.submit(3, m.Known("j", [], {}, (), used), now_s=now_s, epoch=1, max_attempts=1, age_s=5.0)

    def answer(self, node: str, *started: int, vouches: bool = True) -> None:
        self.node(node, m.StartedHere("j", 1, list(started)), m.Claimed("j", 1, [], vouches))

    def lost(self) -> list[int]:
        return [task for task, status, attempts in self.outcomes() if (status, attempts) == (LOST, 1)]


def test_what_no_node_that_was_used_has_started_has_not_started() -> None:
    rig = Brought({"a": "A", "b": "B", "other": "C"})
    assert [claim.age_s for claim in rig.take(m.Claim)] == [65.0] * 3
    rig.answer("a", 1)
    rig.answer("b")
    rig.answer("other", vouches=False)
    assert rig.lost() == [1]
    for using in rig.take(m.Using):  # Of C, if that was probed.
        rig.client(m.UsingKnown("j", using.number))
    launches = rig.ask()
    assert [launch.task for launch in launches] == [0, 2] and not rig.take(m.Counted)
    rig.node("a", *(m.Report("j", one.task, one.attempt, FINISHED, b"", "", 0.0, 0.1) for one in launches))


def test_a_node_that_cannot_say_leaves_it_open() -> None:
    rig = Brought({"a": "A", "b": "B"})
    rig.answer("a")
    rig.answer("b", vouches=False)
    assert rig.lost() == [0, 1, 2]


def test_a_node_that_was_restarted_is_not_the_one_that_was_used() -> None:
    rig = Brought({"a": "A", "b": "B, after a restart"})
    rig.answer("a")
    rig.answer("b")
    assert rig.lost() == [], "the one that was used may be on its way"
    rig.core.tick(REDIALLED_S)
    assert rig.lost() == [0, 1, 2]


def test_a_young_scheduler_waits_for_a_node_that_was_used_and_dials_again() -> None:
    """It settles with the nodes that came in `settling_s`, but for jobs of which others alone know what has started."""
    rig = Brought({"a": "A"}, settling_s=2.0)
    rig.answer("a")
    rig.core.tick(2.0)
    rig.core.node_up("b", info("B"), REDIAL_MAX_S)
    assert rig.lost() == []
    rig.answer("b", 1)
    assert rig.lost() == [1]


def test_a_scheduler_that_settles_for_long_waits_so_long_for_a_node_that_was_used() -> None:
    rig = Brought({"a": "A"}, settling_s=20.0)
    rig.answer("a")
    rig.core.tick(REDIALLED_S)
    assert rig.lost() == []
    rig.core.node_up("b", info("B"), 10.0)
    rig.answer("b", 1)
    rig.core.tick(20.0)
    assert rig.lost() == [1]


def test_an_old_scheduler_does_not_wait_for_nodes_that_are_not_linked() -> None:
    rig = Brought({"a": "A"}, now_s=REDIALLED_S)
    rig.answer("a")
    assert rig.lost() == [0, 1, 2]


def test_who_waits_for_nodes_waits_for_longer_than_they_pause_between_dials() -> None:
    assert REDIALLED_S > REDIAL_MAX_S


def test_a_node_that_does_not_answer_leaves_it_open() -> None:
    rig = Brought({"a": "A", "b": "B"})
    rig.answer("a")
    rig.core.tick(1.0)
    assert rig.lost() == [0, 1, 2]
    rig.answer("b")


def test_a_scheduler_before_that_did_not_say_where_it_started_leaves_it_open() -> None:
    rig = Brought({"a": "A", "b": "B"}, used=None)
    assert [claim.age_s for claim in rig.take(m.Claim)] == [None] * 2
    rig.answer("a")
    rig.answer("b")
    assert rig.lost() == [0, 1, 2]


def test_a_job_of_which_no_node_was_used_has_not_started() -> None:
    rig = Brought({"a": "A"}, used=())
    rig.answer("a", vouches=False)
    assert rig.lost() == []


def test_a_memory_with_a_name_that_is_too_long_ends_the_link() -> None:
    with pytest.raises(LinkError, match="longer than 64"):
        Brought({"a": "A"}, used=("A" * 65,))
