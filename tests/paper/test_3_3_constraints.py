"""Paper §3.3, Handling Placement Constraints, claim by claim, on the real cores. Probe sharing is off: exact counts."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.book.preferences import FREE
from scheduler.sampling.locality import Locality
from scheduler.spreading import reservations_wanted
from simulator.soak.world import World
from sparrow_py.constraints import parse
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import submission
from tests.support.scheduler_rig import SchedulerRig, node_info

FINISHED, LOST = TaskStatus.FINISHED, TaskStatus.LOST


class Rig(SchedulerRig):
    """A scheduler with nodes A, B, C, … of which those in `gpus` have a GPU, and a client c."""

    def __init__(self, nodes: str, *, gpus: str = "", seed: int = 0) -> None:
        infos = {
            node: node_info(
                resources={"cpu": 4.0}, attributes={"zone": "eu", **({"gpu": "v100"} if node in gpus else {})}
            )
            for node in nodes
        }
        super().__init__(infos, seed=seed, probe_sharing=False)

    def submit(self, *preferred: str, **fields: Any) -> None:
        """The job j: a task for each of `preferred`, which names its nodes."""
        details = {task: m.TaskDetail(tuple(nodes)) for task, nodes in enumerate(preferred) if nodes}
        self.submit_job(len(preferred), details=details, local=any(preferred), **fields)

    def reserved(self) -> Counter[str]:
        """Reservations per node since the last call; each node gets one message."""
        sent = self.outbox.take(m.Reserve)
        self.tickets = {message.ticket for _, message in sent} or self.tickets
        assert len({node for node, _ in sent}) == len(sent), "more than one message to a node"
        return Counter({node: message.count for node, message in sent})

    tickets: set[int] = frozenset()  # type: ignore[assignment]

    def asks(self, node: str, count: int = 1) -> list[int]:
        """The tasks that the node gets when it asks for so many."""
        (ticket,) = self.tickets
        self.node(node, m.GetTasks(1, ticket, count))
        return [launch.task for launch in self.take(m.Launch)]


# ---- job-level constraints -----------------------------------------------------------------------


def test_job_level_candidates_are_chosen_among_the_nodes_that_satisfy_the_constraint() -> None:
    """The dm candidates come from the subset with a GPU, at random, as if there were no other nodes."""
    chosen: Counter[str] = Counter()
    for seed in range(200):
        rig = Rig("ABCDEFGH", gpus="BDFH", seed=seed)
        rig.submit("", where=(parse("where", "gpu exists"),))
        counts = rig.reserved()
        assert sorted(counts.values()) == [1, 1] and set(counts) <= set("BDFH")
        chosen.update(counts)
    assert set(chosen) == set("BDFH") and min(chosen.values()) > 70  # 100 each, 7.1 is a standard deviation.


def test_all_job_level_constraints_must_hold() -> None:
    rig = Rig("ABCD", gpus="BC")
    rig.submit("", "", where=(parse("where", "gpu == v100"), parse("where", "node in A, B, D")))
    assert rig.reserved() == {"B": 4}


@pytest.mark.parametrize(
    ("fields", "field", "told"),
    [
        ({"where": (parse("where", "zone == mars"),)}, "where", ["zone == mars", "zone eu"]),
        ({"where": (parse("where", "fpga exists"),)}, "where", ["fpga exists", "fpga unset"]),
        ({"demand": {"cpu": 8.0}}, "demand", ["8 cpu", "4 cpu"]),
        ({"demand": {"gpu": 1.0}}, "demand", ["1 gpu", "0 gpu"]),
        ({"app": "none"}, "app", ["'none'", "many"]),
    ],
)
def test_what_no_node_satisfies_is_refused_with_the_field_and_what_nodes_have(
    fields: dict[str, Any], field: str, told: list[str]
) -> None:
    rig = Rig("AB")
    rig.submit("", **fields)
    ((_, refused),) = rig.outbox.sent
    assert isinstance(refused, m.JobRefused) and refused.field == field and refused.retry_after_s is None
    assert all(text in refused.reason for text in told), refused.reason


def test_a_job_that_will_wait_for_nodes_waits_and_runs_when_one_comes() -> None:
    rig = Rig("AB")
    rig.submit("", "", where=(parse("where", "gpu exists"),), wait_for_nodes_s=10.0)
    assert not rig.reserved()
    rig.node_up("G", node_info(attributes={"gpu": "v100"}), 9.9)
    assert rig.reserved() == {"G": 4}
    rig.tick(100.0)
    assert not rig.take(m.Outcome)


def test_and_ends_lost_with_the_reason_if_none_comes() -> None:
    rig = Rig("AB")
    rig.submit("", "", where=(parse("where", "gpu exists"),), wait_for_nodes_s=10.0)
    rig.tick(9.9)
    assert not rig.take(m.Outcome)
    rig.tick(10.0)
    outcomes = rig.take(m.Outcome)
    assert [outcome.status for outcome in outcomes] == [LOST, LOST]
    assert "no node that may run it was connected for 10 s" in outcomes[0].error


# ---- task-level constraints ----------------------------------------------------------------------


def test_a_tasks_d_candidates_are_chosen_at_random_among_its_preferred_nodes() -> None:
    """Three preferred nodes, d = 2: two of them are probed, each pair as likely as the others."""
    pairs: Counter[tuple[str, ...]] = Counter()
    for seed in range(300):
        rig = Rig("ABCDEF", seed=seed)
        rig.submit("ACE")
        counts = rig.reserved()
        assert set(counts.values()) == {1}
        pairs[tuple(sorted(counts))] += 1
    assert set(pairs) == {("A", "C"), ("A", "E"), ("C", "E")} and min(pairs.values()) > 70


def test_with_fewer_preferred_nodes_than_d_all_are_probed() -> None:
    rig = Rig("ABC")
    rig.submit("B", probe_ratio=3.0)
    assert rig.reserved() == {"B": 1}


def test_the_total_is_dm_and_the_probes_of_all_tasks_to_a_node_are_one_message() -> None:
    rig = Rig("ABCD")
    rig.submit("AB", "AB", "AB", "CD", "CD")
    assert rig.reserved() == {"A": 3, "B": 3, "C": 2, "D": 2}


@pytest.mark.parametrize(("ratio", "probes"), [(1.0, 10), (1.2, 12), (1.25, 13), (1.5, 15), (2.0, 20), (2.1, 21)])
def test_the_total_number_of_slaves_probed_remains_dm(ratio: float, probes: int) -> None:
    """ "The scheduler randomly probes d slaves for each task, so the total number of slaves probed remains dm." Not
    ceil(d) for each task; and none is probed again while nothing fails, whichever nodes ask first."""
    for seed in range(20):
        rig = Rig("ABCDEFGHIJKLMNOPQRST", seed=seed)
        rng = random.Random(seed)
        rig.submit(*("".join(rng.sample("ABCDEFGHIJKLMNOPQRST", 3)) for _ in range(10)), probe_ratio=ratio)
        reserved = rig.reserved()
        assert sum(reserved.values()) == probes
        ran: list[int] = []
        while reserved and len(ran) < 10:
            node = rng.choice(sorted(reserved))
            reserved -= Counter({node: 1})
            ran += rig.asks(node)
            assert not rig.reserved()
        assert sorted(ran) == list(range(10))


def test_the_total_is_the_same_if_tasks_come_in_many_messages() -> None:
    rig = Rig("ABCDEF")
    rig.client(submission(tasks=10, local=True, probe_ratio=1.2, wait_for_nodes_s=1.0))
    for task in range(10):
        rig.client(m.AddTasks("j", task, [b""], {task: m.TaskDetail(("A", "B", "C"))}))
    assert sum(message.count for _, message in rig.outbox.take(m.Reserve)) == 12


def test_what_is_left_of_dm_goes_to_the_tasks_at_random_without_bias() -> None:
    """Five tasks at d = 1.2, one of which may run anywhere: one of them is probed for twice, each as often."""
    twice: Counter[int] = Counter()
    wants = {0: ("A", "B"), 1: ("A", "B"), 2: ("C", "D"), 3: ("A", "D", "E"), 4: ()}
    for seed in range(1000):
        locality = Locality()
        for task, nodes in wants.items():
            if nodes:
                locality.constrain(task, nodes)
            locality.add(task)
        locality.choose(1.2, "ABCDE", random.Random(seed))
        made = Counter(task for queue in locality.made_for.values() for task in queue)
        assert sum(made.values()) == 6 and len(made) == 5
        ((most, count),) = made.most_common(1)
        assert count == 2
        twice[most] += 1
    assert set(twice) == {FREE, 0, 1, 2, 3} and min(twice.values()) > 150  # 200 each; 12.6 is a standard deviation.


def test_tasks_with_the_same_constraint_are_sampled_for_in_one_batch() -> None:
    """Five tasks that prefer the same ten nodes: all ten are probed, none twice, each for one of the tasks. So two
    tasks never ask for one queue's place while another that would do as well has not been asked at all."""
    for seed in range(50):
        rig = Rig("ABCDEFGHIJKLMN", seed=seed)
        rig.submit(*["ABCDEFGHIJ"] * 5)
        assert rig.reserved() == dict.fromkeys("ABCDEFGHIJ", 1)


def test_a_returned_task_is_probed_for_again_and_the_others_are_not() -> None:
    rig = Rig("ABCDEF")
    rig.submit("A", *["BCDEF"] * 4, probe_ratio=1.2)
    assert sum(rig.reserved().values()) == 6
    (ticket,) = rig.tickets
    rig.core.receive_from_node("A", m.GetTasks(1, ticket, 1), 0.0)
    ((_, launch),) = rig.outbox.take(m.Launch)
    assert launch.task == 0
    rig.core.receive_from_node("A", m.HandBack("j", launch.attempt, "the node is draining"), 0.1)
    rig.core.check_invariants()
    assert rig.reserved() == {"A": 1}


@settings(max_examples=300)
@given(
    wants=st.lists(st.sets(st.sampled_from("ABCDEFXY"), max_size=6), min_size=1, max_size=12),
    ratio=st.sampled_from([1.0, 1.1, 1.2, 1.5, 1.9, 2.0, 2.5, 3.0]),
    seed=st.integers(0, 1000),
)
def test_all_tasks_together_get_dm_probes_and_each_at_least_one(wants: list[set[str]], ratio: float, seed: int) -> None:
    """Of the nodes A to H; X and Y are not there. Fewer than dm only if tasks want fewer nodes than there are probes
    for them. Then all nodes visit in any order: every task that has a node runs, and nobody is probed again."""
    rng, locality, here = random.Random(seed), Locality(), "ABCDEFGH"
    for task, nodes in enumerate(wants):
        if nodes:
            locality.constrain(task, tuple(sorted(nodes)))
        locality.add(task)
    owns = {task: sorted(nodes & set(here)) for task, nodes in enumerate(wants) if nodes}
    hopeless = {task for task, own in owns.items() if not own}
    free = len(wants) - len(owns)
    least, most = int(ratio), reservations_wanted(ratio, 1)

    chosen = locality.choose(ratio, here, rng)
    assert len(dict(chosen)) == len(chosen)
    slots = sum(min(most, len(own)) for own in owns.values()) + most * free
    total = min(reservations_wanted(ratio, len(wants) - len(hopeless)), slots)
    assert sum(count for _, count in chosen) == total
    assert set(locality.uncovered) == hopeless
    made: Counter[int] = Counter()
    for node, queue in locality.made_for.items():
        assert all(count == 1 for task, count in Counter(queue).items() if task != FREE), "twice at one node"
        assert all(task == FREE or node in wants[task] for task in queue)
        made.update(queue)
    for task in owns.keys() - hopeless:
        assert min(least, len(owns[task])) <= made[task] <= most
    assert least * free <= made[FREE] <= most * free

    unplaced = set(range(len(wants)))
    while locality.made_for and (locality.constrained or locality.free):
        node = rng.choice(sorted(locality.made_for))
        placed = locality.take(node)
        if placed is None:
            locality.waste(node, 1)
        else:
            unplaced.remove(placed)
        assert locality.choose(ratio, here, rng) == [], "probed again, though nothing was lost"
    assert unplaced == hopeless


def test_tasks_without_a_constraint_beside_others_are_probed_anywhere() -> None:
    rig = Rig("ABCD")
    rig.submit("A", "", "")
    counts = rig.reserved()
    assert sum(counts.values()) == 1 + 4


def test_nobody_is_stranded_when_nodes_that_several_prefer_ask_first() -> None:
    """Tasks that prefer {A, B, C}, {D, E, F} and {C, D}: whoever of their reservations asks first, all three run."""
    for seed in range(100):
        rig = Rig("ABCDEF", seed=seed)
        rig.submit("ABC", "DEF", "CD")
        reserved = dict(rig.reserved())
        order = sorted(reserved, key=lambda node: (node not in "CD", random.Random(f"{seed} {node}").random()))
        ran = []
        for node in order:
            for task in rig.asks(node, reserved[node]):
                assert node in ("ABC", "DEF", "CD")[task]
                ran.append(task)
        assert sorted(ran) == [0, 1, 2]


def test_a_visiting_node_gets_first_the_task_that_its_reservation_was_made_for() -> None:
    rig = Rig("AB")
    rig.submit("B", "A", "A", probe_ratio=1.0)
    rig.reserved()
    assert rig.asks("A") == [1] and rig.asks("A") == [2] and rig.asks("B") == [0]


def test_then_another_that_prefers_it_then_one_without_a_constraint() -> None:
    """Of task 0 the reservation at A is left over once it runs at B: it serves task 1, and another one task 2."""
    rig = Rig("AB")
    rig.submit("AB", "AB", "", probe_ratio=2.0)
    counts = rig.reserved()
    assert counts["A"] >= 2 and counts["B"] >= 2
    assert rig.asks("B") == [0]
    assert rig.asks("A") == [1]
    assert rig.asks("A") == [2] or rig.asks("B") == [2]


def test_a_node_that_no_unplaced_task_prefers_gets_none() -> None:
    rig = Rig("AB")
    rig.submit("AB", "B", probe_ratio=2.0)
    rig.reserved()
    assert rig.asks("A") == [0]
    assert rig.asks("A") == []
    assert rig.asks("B", 2) == [1]


def test_a_task_that_comes_back_is_still_covered_by_its_reservations_elsewhere() -> None:
    rig = Rig("AB")
    rig.submit("AB", "A", probe_ratio=2.0)
    rig.reserved()
    (ticket,) = rig.tickets
    rig.node("A", m.GetTasks(1, ticket, 1))
    (launch,) = rig.take(m.Launch)
    assert launch.task == 0
    rig.node("A", m.HandBack("j", launch.attempt, "the node is draining"), now_s=0.1)
    assert not rig.reserved()
    assert rig.asks("B") == [0]


def test_when_its_preferred_nodes_go_a_task_waits_for_them_its_own_time() -> None:
    """Task 0's node is gone from the start, task 1's goes later: each has the whole time, the free one runs."""
    rig = Rig("AB")
    rig.submit("X", "B", "", probe_ratio=1.0, wait_for_nodes_s=10.0)
    rig.node_down("B", 9.0)
    rig.tick(10.0)
    assert [outcome.task for outcome in rig.take(m.Outcome)] == [0]
    rig.tick(18.9)
    assert not rig.take(m.Outcome)
    rig.tick(19.0)
    assert [outcome.task for outcome in rig.take(m.Outcome)] == [1]
    assert rig.core.jobs["j"].unplaced == 1


def test_tasks_of_a_constrained_stage_that_are_free_run_when_a_node_comes() -> None:
    rig = Rig("A")
    rig.submit("A", "", where=(parse("where", "gpu exists"),), wait_for_nodes_s=10.0)
    rig.node_up("G", node_info(attributes={"gpu": "1"}), 1.0)
    assert rig.reserved() == {"G": 2}


def test_a_whole_cluster_runs_constrained_tasks_where_their_data_is() -> None:
    world = World(3, nodes=[2, 2, 2], scheduler={"probe_sharing": False})
    log = world.submit([0.01] * 12, preferred=[("n0", "n1"), ("n2",), ()])
    world.run()
    world.check_end()
    assert log.statuses() == [FINISHED] * 12
    assert {start.node.name for start in log.starts if start.task % 3 == 1} == {"n2"}


# ---- nobody is stranded, by brute force ----------------------------------------------------------

STEPS = st.lists(
    st.tuples(st.sampled_from(["visit", "visit", "visit", "back", "drop", "cancel", "relax"]), st.integers(0, 99)),
    max_size=40,
)


@settings(max_examples=300)
@given(
    preferred=st.lists(st.sampled_from(["", "A", "AB", "BC", "ABC", "CD", "D"]), min_size=1, max_size=8),
    ratio=st.sampled_from([1.0, 1.2, 1.5, 2.0, 3.0]),
    steps=STEPS,
    seed=st.integers(0, 1000),
)
def test_every_unplaced_task_has_a_reservation_where_it_may_run(
    preferred: list[str], ratio: float, steps: list[tuple[str, int]], seed: int
) -> None:
    """`Locality` against a model that knows no more than who may run where: after any visits, returns, losses and
    cancellations, letting all reservations visit places every task, each on a node that it prefers."""
    rng, locality = random.Random(seed), Locality()
    wants = dict(enumerate(preferred))
    unplaced, placed = set(wants), set()

    def top_up() -> None:
        locality.choose(ratio, "ABCD", rng)
        live = {node: len(queue) for node, queue in locality.made_for.items()}
        assert locality.problem_of(live, unplaced) is None and not locality.lacking

    def visit(node: str) -> None:
        queue = locality.made_for[node]
        own, before = queue[0], len(queue)
        task = locality.take(node)
        if task is None:
            assert not any(node in wants[other] or not wants[other] for other in unplaced), "a task was left waiting"
            locality.waste(node, 1)
        else:
            assert task in unplaced and (node in wants[task] or not wants[task])
            assert own not in unplaced or own == task or not wants[own], "a task's own reservation went to another"
            unplaced.remove(task)
            placed.add(task)
        assert len(locality.made_for.get(node, ())) == before - 1

    for task, nodes in wants.items():
        if nodes:
            locality.constrain(task, tuple(nodes))
        locality.add(task)
    top_up()
    for kind, pick in steps:
        if kind == "visit" and locality.made_for:
            visit(sorted(locality.made_for)[pick % len(locality.made_for)])
        elif kind == "drop" and locality.made_for:
            node = sorted(locality.made_for)[pick % len(locality.made_for)]
            locality.drop(node, len(locality.made_for[node]))
        elif kind == "back" and placed:
            task = sorted(placed)[pick % len(placed)]
            placed.remove(task)
            unplaced.add(task)
            locality.add(task)
        elif kind == "cancel" and unplaced:
            task = sorted(unplaced)[pick % len(unplaced)]
            unplaced.remove(task)
            locality.remove(task)
        elif kind == "relax" and any(wants[task] for task in unplaced):
            task = next(task for task in sorted(unplaced) if wants[task])
            locality.relax(task)
            wants[task] = ""
        top_up()
    while unplaced:
        assert locality.made_for, f"{unplaced} are stranded"
        visit(rng.choice(sorted(locality.made_for)))


@pytest.mark.parametrize("cancelled", [False, True])
def test_a_job_with_a_task_whose_preferred_nodes_are_none_is_refused_whole(cancelled: bool) -> None:
    """Nothing of it is reserved before all its tasks are known, in however many messages they come."""
    rig = SchedulerRig("a")
    rig.client(submission(tasks=2, local=True), m.AddTasks("j", 0, [b""], {0: m.TaskDetail(("a",))}))
    assert rig.outbox.sent == []
    if cancelled:
        rig.client(m.CancelJob("j"))
        assert [type(message) for _, message in rig.outbox.sent] == [m.JobAccepted, m.Outcome, m.Outcome, m.JobEnded]
    else:
        rig.client(m.AddTasks("j", 1, [b""], {1: m.TaskDetail(("nowhere",))}))
        ((_, refused),) = rig.outbox.sent
        assert isinstance(refused, m.JobRefused)
        assert refused.field == "tasks[1].preferred" and "nowhere" in refused.reason
    assert not rig.core.jobs and not rig.core.admission.unplaced


def test_a_job_whose_preferred_nodes_are_there_is_accepted_once_it_is_whole() -> None:
    rig = SchedulerRig("a")
    rig.client(submission(tasks=2, local=True))
    for task in range(2):
        rig.client(m.AddTasks("j", task, [b""], {task: m.TaskDetail(("a",))}))
    assert [type(message) for _, message in rig.outbox.sent] == [m.JobAccepted, m.Reserve]
