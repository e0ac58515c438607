"""Tasks that ask for large data go to nodes that have these, if they may."""

from __future__ import annotations

import random

import pytest

from scheduler.book import holdings
from scheduler.book.holdings import Holdings
from scheduler.book.nodes import Node, Nodes
from scheduler.sampling import near_data
from sparrow_py.job import BlobRef
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info


def piece(number: int, *at: str, size: int = 1 << 20) -> BlobRef:
    return BlobRef(f"{number:064x}", size, tuple(f"{node}:1" for node in at))


class Near(SchedulerRig):
    """A scheduler with these nodes of one slot, each of which may be asked at its name and port 1."""

    def __init__(self, *nodes: str, **options: object) -> None:
        super().__init__({node: node_info(1, address=f"{node}:1") for node in nodes}, **options)  # type: ignore[arg-type]
        self.asks = 0

    def submit(self, inputs: list[list[int]], *given: BlobRef, job: str = "j", **fields: object) -> None:
        """A job whose tasks ask for these of the pieces that it is given."""
        count = len(inputs)
        details = {
            task: m.TaskDetail(inputs=tuple((count + number, 1) for number in own)) for task, own in enumerate(inputs)
        }
        self.client(submission(job, count, **fields), m.AddTasks(job, 0, [b"p"] * count, details, given))

    def reserved(self) -> dict[str, int]:
        """Reservations by node since the last call."""
        found: dict[str, int] = {}
        for node, message in self.outbox.take(m.Reserve):
            self.ticket = message.ticket
            found[node] = found.get(node, 0) + message.count
        return found

    def ask_for_any(self, node: str) -> str:
        """The job of whose tasks the node gets one, at a reservation of any job."""
        self.asks += 1
        ticket = next(iter(self.core.plane.probing.tickets_at[node]))
        self.node(node, m.GetTasks(self.asks, ticket, 1))
        (launch,) = [launch for to, launch in self.outbox.take(m.Launch) if to == node]
        return str(launch.job)

    def ask(self, node: str, count: int = 1) -> list[int]:
        """The tasks that the node gets."""
        self.asks += 1
        self.reserved()
        self.node(node, m.GetTasks(self.asks, self.ticket, count))
        return [launch.task for to, launch in self.outbox.take(m.Launch) if to == node]


def test_a_node_gets_the_task_of_whose_data_it_has_most_and_else_the_first() -> None:
    rig = Near("a", "b", "c")
    rig.submit([[0], [0], [1], [1, 2], [0]], piece(0, "a"), piece(1, "b"), piece(2, "b", size=5))
    assert rig.ask("b", 3) == [3, 2, 0]
    assert rig.ask("c") == [1]
    assert rig.ask("a") == [4]


def test_a_node_is_taken_to_have_what_it_was_told_of_in_another_job_too() -> None:
    rig = Near("a", "b")
    rig.submit([[0], [1], [0], [1]], piece(0), piece(1))
    assert rig.ask("a") == [0]
    assert rig.ask("b", 2) == [1, 3]
    assert rig.ask("a") == [2]
    rig.submit([[0], [1]], piece(0), piece(1), job="k")
    assert rig.ask("b") == [1]


def test_what_another_call_has_made_counts_as_what_was_stored() -> None:
    rig = Near("a", "b")
    rig.submit_job(2, job="first")
    for node in ("a", "b"):
        (task,) = rig.ask(node)
        attempt = next(one for one in rig.core.jobs["first"].attempts.values() if one.task == task)
        rig.node(node, m.Report("first", task, attempt.id, m.TaskStatus.FINISHED, piece(task, node), "", 0.0, 0.1))
    rig.client(
        submission("k", 2),
        m.AskPlaced("k", 1, []),
        m.AddTasks(
            "k", 0, [b"p"] * 2, {n: m.TaskDetail(inputs=((2 + n, 1),)) for n in range(2)}, (), (("x", 0), ("x", 1))
        ),
        m.GiveResults("k", {2: piece(0, "a"), 3: piece(1, "b")}),
    )
    assert rig.ask("b") == [1]


@pytest.mark.parametrize("order", ["oldest", "shortest"])
def test_of_several_jobs_a_node_is_given_that_whose_data_it_has_but_not_for_ever(order: str) -> None:
    rig = Near("a", "b", order=order)
    rig.submit([[0]], piece(0, "a"), job="first")
    for number in range(near_data.OVERTAKEN_MAX + 1):
        rig.submit([[0]], piece(number + 1, "b"), job=f"j{number}")
    rig.submit([[0]] * 2, piece(0, "b"), job="longer")
    started = [rig.ask_for_any("b") for _ in range(near_data.OVERTAKEN_MAX + 1)]
    assert started == [*(f"j{number}" for number in range(near_data.OVERTAKEN_MAX)), "first"]


def test_the_oldest_job_is_first_again_when_a_task_of_it_comes_back() -> None:
    rig = Near("a", "b", order="oldest")
    rig.submit([[0], [1]], piece(0, "a"), piece(1, "b"), job="first")
    assert rig.ask("b", 2) == [1, 0]
    rig.submit([[0]], piece(2), job="second")
    rig.node_down("b")
    assert rig.ask_for_any("a") == "first"


def test_an_idle_node_that_has_the_data_is_the_only_one_asked() -> None:
    nodes = [f"n{number}" for number in range(50)]
    rig = Near(*nodes)
    for number in range(20):
        for node in nodes:
            rig.node(node, m.Idle(1))
        rig.submit([[0]], piece(number, f"n{number}"), job=f"j{number}")
        assert rig.reserved() == {f"n{number}": 1}


def test_a_busy_one_is_asked_beside_others() -> None:
    rig = Near(*(f"n{number}" for number in range(50)))
    for number in range(20):
        rig.submit([[0]], piece(number, f"n{number}"), job=f"j{number}")
        reserved = rig.reserved()
        assert sum(reserved.values()) == 2 and reserved[f"n{number}"]


def test_reservations_are_as_many_as_of_any_stage_however_often_some_are_refused() -> None:
    rig = Near("a", "b", "c", "d")
    rig.submit([[0]] * 10, piece(0, "a"))
    assert sum(rig.reserved().values()) == 20
    for _ in range(5):
        rig.node("a", m.ReservationsRefused(rig.ticket, 1, "full"))
        assert sum(rig.reserved().values()) == 1


def test_one_that_may_not_run_the_task_is_not() -> None:
    rig = Near("a", "b", "c")
    rig.node("a", m.Idle(1))
    rig.node("a", m.NodeState(m.DRAINING, ""))
    rig.submit([[0]], piece(0, "a"))
    assert set(rig.reserved()) == {"b", "c"}
    rig.node_down("b")
    rig.node_down("c")
    rig.reserved()
    rig.submit([[0]], piece(0, "b"), job="k")
    assert rig.reserved() == {}


def test_each_task_starts_once_whatever_is_where_and_however_often_nodes_go() -> None:
    draw = random.Random(1)
    for _ in range(30):
        nodes = [f"n{number}" for number in range(4)]
        rig = Near(*nodes, order=draw.choice(["reserved", "oldest"]))
        count = draw.randint(1, 100)
        pieces = [piece(number, *draw.sample(nodes, draw.randint(0, 2))) for number in range(5)]
        for node in draw.sample(nodes, 2):
            rig.node(node, m.Idle(1))
        rig.submit([draw.sample(range(5), draw.randint(0, 2)) for _ in range(count)], *pieces, max_attempts=1000)
        placed: list[int] = []
        while rig.core.jobs["j"].stages[0].unplaced:
            node = draw.choice(nodes)
            placed += rig.ask(node, draw.randint(1, 5))
            if draw.random() < 0.1:
                lost = [attempt.task for attempt in rig.core.nodes[node].attempts]
                rig.node_down(node)
                placed = [task for task in placed if task not in lost]
                rig.node_up(node, node_info(1, address=f"{node}:1"))
        assert sorted(placed) == list(range(count))


def test_what_is_remembered_is_bounded() -> None:
    known = Holdings(nodes := Nodes())
    for name in ("a", "b"):
        nodes.add(Node(name, node_info(1, address=f"{name}:1")))
    for number in range(holdings.PIECES_MAX + 1):
        known.sent(nodes["a"], piece(number))
    assert known.most_at([piece(0)]) == [] and known.most_at([piece(1)]) == ["a"]
    for number in range(holdings.NODES_MAX):
        known.sent(Node(f"n{number}", node_info(1)), piece(1))
    assert known.most_at([piece(1)]) == [], "those that are not connected are not named"
    nodes.add(Node("b/2", node_info(1, address="b:1")))
    assert known.most_at([piece(1, "b", size=2), piece(2, size=3)]) == ["a", "b", "b/2"], "hosted ones share their data"
    nodes.learn(nodes["a"], node_info(1, address="b:1"))
    assert known.most_at([piece(2, "b")]) == ["a", "b", "b/2"] and list(nodes.at_address) == ["b:1"]
    nodes.remove("a")
    nodes.add(Node("a", node_info(1, address="a:1", memory="another")))
    assert known.most_at([piece(2)]) == [], "it was started anew"
    nodes.remove("b")
    assert known.most_at([piece(1, "b")]) == ["b/2"]
