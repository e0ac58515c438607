"""The central plane: where tasks go, whose turn it is, what waits, and what happens when nodes come and go."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.central.plane import CentralPlane
from sparrow_py.constraints import parse
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info

FINISHED, LOST, CANCELLED = TaskStatus.FINISHED, TaskStatus.LOST, TaskStatus.CANCELLED


class Central(SchedulerRig):
    """A scheduler that takes all slots of its nodes. `running`: (job, task) to its node and attempt."""

    def __init__(self, nodes: Mapping[str, m.NodeInfo] | list[str], *, seed: int = 1, **options: Any) -> None:
        super().__init__(nodes, seed=seed, placement="central", **options)
        self.running: dict[tuple[str, int], tuple[str, int]] = {}

    def started(self) -> list[tuple[str, int, str]]:
        """(job, task, node) of what was sent since the last call, each with its reservation."""
        launches, reserves = self.outbox.take(m.Launch), self.outbox.take(m.Reserve)
        assert Counter((node, one.ticket) for node, one in launches) == Counter(
            {(node, one.ticket): one.count for node, one in reserves}
        )
        assert not self.outbox.take(m.AskLength)
        for node, one in launches:
            assert one.ask == 0
            self.running[one.job, one.task] = node, one.attempt
        return [(one.job, one.task, node) for node, one in launches]

    def where(self) -> Counter[str]:
        """Tasks sent since the last call, by node."""
        return Counter(node for _, _, node in self.started())

    def end(
        self, job: str, task: int, status: TaskStatus = FINISHED, service_s: float = 0.1, now_s: float = 0.0
    ) -> None:
        """The task's node says that it has ended."""
        node, attempt = self.running.pop((job, task))
        self.node(node, m.Report(job, task, attempt, status, b"", "", 0.0, service_s), now_s=now_s)


def nodes(**slots: int) -> dict[str, m.NodeInfo]:
    return {name: node_info(count) for name, count in slots.items()}


# ---- the least loaded node -------------------------------------------------------------------


def test_tasks_go_to_the_least_loaded_nodes_and_what_is_too_much_waits_here() -> None:
    central = Central(nodes(a=4, b=2, c=2))
    central.submit_job(4)
    assert central.where() in (Counter(a=2, b=1, c=1), Counter(a=1, b=2, c=1), Counter(a=1, b=1, c=2))
    central.submit_job(10, job="k")
    assert sum(central.where().values()) == 4  # Eight slots in all.
    assert central.core.admission.unplaced == {"anna": 6}
    central.end("j", 0)
    assert len(central.started()) == 1


def test_load_is_tasks_over_slots() -> None:
    central = Central(nodes(big=10, small=2))
    central.submit_job(6)
    assert central.where() == Counter(big=5, small=1)


def test_equal_nodes_are_chosen_at_random_and_the_same_with_the_same_seed() -> None:
    def first(seed: int) -> str:
        central = Central([f"n{number}" for number in range(5)], seed=seed)
        central.submit_job(1)
        ((_, _, node),) = central.started()
        return node

    assert len({first(seed) for seed in range(30)}) == 5
    assert [first(seed) for seed in range(5)] == [first(seed) for seed in range(5)]


def test_a_full_cluster_keeps_tasks_and_sends_one_for_each_that_ends() -> None:
    central = Central(nodes(a=1, b=1))
    central.submit_job(4)
    assert [task for _, task, _ in central.started()] == [0, 1]
    for task in range(2):
        node = central.running["j", task][0]
        central.end("j", task)
        assert central.started() == [("j", task + 2, node)]
    for task in (2, 3):
        central.end("j", task)
    assert central.outcomes() == [(task, FINISHED, 1) for task in range(4)]
    assert not central.core.jobs


# ---- whose turn it is ------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=6),
    slots=st.lists(st.integers(1, 3), min_size=1, max_size=3),
    picks=st.randoms(use_true_random=False),
)
def test_jobs_of_a_user_go_in_order_of_arrival_whatever_their_size(
    sizes: list[int], slots: list[int], picks: random.Random
) -> None:
    central = Central({f"n{number}": node_info(count) for number, count in enumerate(slots)})
    for number, tasks in enumerate(sizes):
        central.submit_job(tasks, job=f"j{number}")
    order = central.started()
    while central.running:
        central.end(*picks.choice(sorted(central.running)))
        order += central.started()
    arrived = [(f"j{number}", task) for number, tasks in enumerate(sizes) for task in range(tasks)]
    assert [(job, task) for job, task, _ in order] == arrived


def test_a_task_that_starts_again_goes_before_the_jobs_that_came_later() -> None:
    central = Central(nodes(a=1))
    for job in ("j0", "j1", "j2"):
        central.submit_job(1, job=job)
    assert central.started() == [("j0", 0, "a")]
    central.end("j0", 0, LOST)
    assert central.started() == [("j0", 0, "a")]
    central.end("j0", 0)
    assert central.started() == [("j1", 0, "a")]


def test_users_take_turns_however_much_one_of_them_submits() -> None:
    central = Central(nodes(a=1))
    central.submit_job(50, user="anna", job="large", client="c1")
    central.started()
    central.submit_job(3, user="bert", job="small", client="c2")
    central.end("large", 0)
    order = [job for job, _, _ in central.started()]
    while len(order) < 6:
        central.end(*next(iter(central.running)))
        order += [job for job, _, _ in central.started()]
    assert order.count("small") == 3


def test_a_users_jobs_of_higher_priority_go_first() -> None:
    central = Central({"a": node_info(1)}, user_priority=("anna=2",))
    central.submit_job(2, job="low", priority=0)
    central.submit_job(2, job="high", priority=1)
    order = []
    while started := central.started():
        ((job, task, _),) = started
        order.append(job)
        central.end(job, task)
    assert order == ["low", "high", "high", "low"]


@st.composite
def contests(draw: st.DrawFn) -> tuple[list[int], dict[str, float], dict[str, float]]:
    """Slots of nodes; of each user its weight, and how long its tasks take."""
    slots = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    users = draw(st.integers(2, 4))
    weights = draw(st.lists(st.sampled_from([0.5, 1.0, 2.0, 4.0]), min_size=users, max_size=users))
    lasts = draw(st.lists(st.floats(0.01, 1.0), min_size=users, max_size=users))
    names = [f"u{number}" for number in range(users)]
    return slots, dict(zip(names, weights, strict=True)), dict(zip(names, lasts, strict=True))


@settings(max_examples=60, deadline=None)
@given(contest=contests(), stated=st.booleans(), seed=st.integers(0, 1000))
def test_users_get_slot_time_by_their_weights(
    contest: tuple[list[int], dict[str, float], dict[str, float]], stated: bool, seed: int
) -> None:
    """The bound of `node_monitor.queueing.fair`, for as many servers as there are slots: users that wait throughout are
    never further apart than 4 c of the longest task over weight."""
    slots, weights, lasts = contest
    infos = {f"n{number}": node_info(count) for number, count in enumerate(slots)}
    central = Central(infos, seed=seed, user_weight=tuple(f"{user}={weight}" for user, weight in weights.items()))
    fields = {"expected_duration_s": 0.05} if stated else {}  # What is stated may be wrong.
    for user in weights:
        central.submit_job(300, job=user, user=user, client=user, **fields)
    now_s, got, ends = 0.0, dict.fromkeys(weights, 0.0), {}
    bound_s = 4 * sum(slots) * max(lasts[user] / weights[user] for user in weights)
    for _ in range(120):
        ends |= {(job, task): now_s + lasts[job] for job, task, _ in central.started()}
        job, task = min(ends, key=lambda key: (ends[key], key))
        now_s = ends.pop((job, task))
        central.end(job, task, service_s=lasts[job], now_s=now_s)
        got[job] += lasts[job] / weights[job]
        assert max(got.values()) - min(got.values()) <= bound_s + 1e-9


# ---- constraints -----------------------------------------------------------------------------


def where(text: str) -> tuple[Any, ...]:
    return (parse("where", text),)


def test_a_job_runs_where_its_constraints_hold_and_does_not_hold_up_others() -> None:
    central = Central({"a": node_info(1, attributes={"gpu": "yes"}), "b": node_info(2)})
    central.submit_job(2, job="gpu", where=where("gpu exists"))
    central.submit_job(2, job="any")
    assert sorted(central.started()) == [("any", 0, "b"), ("any", 1, "b"), ("gpu", 0, "a")]
    central.end("any", 0)
    assert not central.started()
    central.end("gpu", 0)
    assert central.started() == [("gpu", 1, "a")]


def test_a_demand_is_placed_where_so_much_is_free() -> None:
    central = Central({name: node_info(4, resources={"memory": 10.0}) for name in "ab"})
    central.submit_job(5, demand={"memory": 4.0})
    assert central.where() == Counter(a=2, b=2)
    central.submit_job(4, job="k", demand={"memory": 1.0})
    assert central.where() == Counter(a=2, b=2)
    central.end("k", 0)
    assert not central.started()  # The fifth of j takes 4, and 3 are free.
    central.end("j", 0)
    assert len(central.started()) == 1


def test_many_fractions_of_a_resource_add_up_to_it() -> None:
    central = Central({"a": node_info(10, resources={"cpu": 1.0})})
    central.submit_job(10, demand={"cpu": 0.1})
    assert central.where() == Counter(a=10)


def test_tasks_run_on_the_nodes_that_they_prefer_and_wait_for_these() -> None:
    central = Central(nodes(a=1, b=1, c=1))
    details = {0: m.TaskDetail(("a",)), 1: m.TaskDetail(("a", "b")), 2: m.TaskDetail(("a", "b"))}
    central.submit_job(4, details=details, local=True)
    found = {task: node for _, task, node in central.started()}
    assert set(found.values()) == {"a", "b", "c"} and found[3] == "c" and len(found) == 3
    assert all(found[task] in "ab" for task in found if task != 3)
    (waits,) = {0, 1, 2} - found.keys()
    central.end("j", next(task for task, node in found.items() if node == "a"))
    assert central.started() == [("j", waits, "a")]


def test_jobs_that_avoid_each_other_do_not_share_a_node() -> None:
    central = Central(nodes(a=2, b=2))
    central.submit_job(3, job="j0")
    central.submit_job(1, job="j1", avoid=("j0",))
    central.submit_job(1, job="j2")
    found = central.started()
    assert [job for job, _, _ in found] == ["j0", "j0", "j0", "j2"]  # j0 is on both nodes: j2 does not wait for j1.
    alone = next(node for node in "ab" if sum(one == node and job == "j0" for job, _, one in found) == 1)
    central.end("j0", next(task for job, task, node in found if node == alone and job == "j0"))
    assert central.started() == [("j1", 0, alone)]


def test_a_task_that_may_start_once_starts_only_where_its_client_knows_of() -> None:
    central = Central({"a": node_info(4, memory="ma"), "b": node_info(4, memory="mb")})
    central.submit_job(2, max_attempts=1, acknowledges=True)
    assert not central.started()
    ((_, using),) = central.outbox.take(m.Using)
    assert sorted(using.memories) == ["ma", "mb"]
    central.client(m.UsingKnown("j", using.number))
    assert central.where() == Counter(a=1, b=1)


# ---- limits ----------------------------------------------------------------------------------


def test_the_queue_of_a_user_has_a_maximum_and_a_refusal_says_so() -> None:
    central = Central(nodes(a=1), unplaced_tasks_max=5)
    central.submit_job(4)
    central.submit_job(3, job="k")
    ((_, refused),) = central.outbox.take(m.JobRefused)
    assert refused.job == "k" and refused.retry_after_s
    assert "anna has 3 unplaced tasks and the job 3; at most unplaced_tasks_max = 5 fit" in refused.reason
    central.submit_job(2, job="l", user="bert", client="other")
    assert not central.outbox.take(m.JobRefused)


# ---- nodes and jobs come and go --------------------------------------------------------------


def test_tasks_wait_for_the_first_node_and_use_one_that_comes() -> None:
    central = Central([])
    central.submit_job(6)
    assert not central.started()
    central.node_up("a", node_info(2))
    assert central.where() == Counter(a=2)
    central.node_up("b", node_info(3))
    assert central.where() == Counter(b=3)


def test_what_ran_at_a_lost_node_starts_again_elsewhere() -> None:
    central = Central(nodes(a=2, b=2))
    central.submit_job(4)
    central.started()
    central.node_down("a")
    assert not central.started()  # b is full.
    central.end(*next(key for key, (node, _) in central.running.items() if node == "b"))
    assert central.where() == Counter(b=1)


def test_a_lost_node_is_waited_for_no_longer_than_the_job_says() -> None:
    central = Central(nodes(a=1))
    central.submit_job(2, wait_for_nodes_s=5.0, max_attempts=1)
    central.node_down("a")
    assert central.outcomes() == [(0, LOST, 1)]
    central.tick(4.9)
    assert central.outcomes() == []
    central.tick(5.1)
    ((task, status, attempts),) = central.outcomes()
    assert (task, status, attempts) == (1, LOST, 0)


@pytest.mark.parametrize("state", [m.CORDONED, m.DRAINING])
def test_a_node_that_takes_no_tasks_gets_none_until_it_is_ready_again(state: str) -> None:
    central = Central(nodes(a=4, b=1))
    central.node("a", m.NodeState(state, "maintenance"))
    central.submit_job(3)
    assert central.where() == Counter(b=1)
    central.node("a", m.NodeState(m.READY, ""))
    assert central.where() == Counter(a=2)


def test_a_node_that_offers_more_slots_is_used() -> None:
    central = Central(nodes(a=1))
    central.submit_job(3)
    assert central.where() == Counter(a=1)
    central.node("a", m.NodeChanged(node_info(2)))
    assert central.where() == Counter(a=1)


def test_a_task_that_is_handed_back_goes_elsewhere_and_to_the_same_node_after_a_while() -> None:
    central = Central(nodes(a=1, b=1))
    central.submit_job(2)
    central.started()
    node, attempt = central.running.pop(("j", 0))
    central.node(node, m.HandBack("j", attempt, "its executor does not start"))
    assert not central.started()
    central.tick(2.1)
    assert central.started() == [("j", 0, node)]
    central.end("j", 0, now_s=2.2)
    assert central.outcomes() == [(0, FINISHED, 1)]


def test_a_cancelled_job_leaves_the_queue_and_its_slots_serve_the_next() -> None:
    central = Central(nodes(a=1))
    central.submit_job(3)
    central.submit_job(1, job="k")
    central.started()
    central.client(m.CancelJob("j", running=True))
    assert central.outcomes() == [(1, CANCELLED, 0), (2, CANCELLED, 0)]
    central.end("j", 0, CANCELLED)
    assert central.started() == [("k", 0, "a")]


def test_what_is_claimed_from_another_scheduler_takes_its_slots() -> None:
    central = Central(nodes(a=2), settling_s=0.0)
    central.submit_job(4, epoch=1)
    central.node("a", m.Claimed("j", 1, [(2, 7)]))
    assert [(task, node) for _, task, node in central.started()] == [(0, "a")]
    central.node("a", m.Report("j", 2, 7, FINISHED, b"", "", 0.0, 0.1))
    assert [(task, node) for _, task, node in central.started()] == [(1, "a")]


def test_a_job_that_goes_to_another_scheduler_leaves_nothing() -> None:
    central = Central(nodes(a=1))
    central.submit_job(3)
    central.started()
    central.node("a", m.Fenced("j", 1))
    assert not central.core.jobs
    central.core.check_invariants(every_job=True)
    central.submit_job(1, job="k")
    assert central.started() == [("k", 0, "a")]


# ---- whatever happens ------------------------------------------------------------------------

EVENTS = st.one_of(
    st.tuples(st.just("submit"), st.integers(1, 5), st.sampled_from(["", "even", "heavy", "local", "avoid"])),
    st.tuples(st.just("end"), st.integers(0, 99), st.sampled_from([FINISHED, LOST, CANCELLED])),
    st.tuples(st.just("hand back"), st.integers(0, 99), st.none()),
    st.tuples(st.just("up"), st.integers(0, 4), st.integers(1, 3)),
    st.tuples(st.just("down"), st.integers(0, 4), st.none()),
    st.tuples(st.just("state"), st.integers(0, 4), st.sampled_from([m.READY, m.CORDONED])),
    st.tuples(st.just("cancel"), st.integers(0, 99), st.booleans()),
)


@settings(max_examples=150, deadline=None)
@given(events=st.lists(EVENTS, min_size=8, max_size=40), seed=st.integers(0, 1000))
def test_no_slot_has_two_tasks_and_none_is_free_while_a_task_waits_that_may_run_there(
    events: list[tuple[str, int, Any]], seed: int
) -> None:
    central = Central({"n0": info(0, 2), "n1": info(1, 1)}, seed=seed)
    for number, (verb, pick, extra) in enumerate(events):
        happens(central, number, verb, pick, extra)
        central.started()
        central.core.check_invariants(every_job=True)
        core = central.core
        for node in core.nodes.all():
            assert len(node.attempts) <= node.info.slots
        for job in core.jobs.values():
            for stage in job.stages:
                assert not (stage.unplaced and stage.open and free_for(central, stage)), stage.unplaced_tasks()


def info(number: int, slots: int) -> m.NodeInfo:
    attributes = {"parity": "even" if number % 2 == 0 else "odd"}
    return node_info(slots, attributes=attributes, resources={"memory": 2.0})


def happens(central: Central, number: int, verb: str, pick: int, extra: Any) -> None:
    """One event; nothing if it means nothing now."""
    now_s, core, name = float(number), central.core, f"n{pick}"
    if verb == "submit":
        fields: dict[str, Any] = {"wait_for_nodes_s": 1e6}
        if extra == "even":
            fields["where"] = where("parity == even")
        elif extra == "heavy":
            fields["demand"] = {"memory": 1.5}
        elif extra == "local":
            fields |= {"local": True, "details": {0: m.TaskDetail(("n0", "n3"))}}
        elif extra == "avoid":
            fields["avoid"] = tuple(core.jobs)
        central.submit_job(pick, job=f"j{number}", now_s=now_s, **fields)
    elif verb in ("end", "hand back"):
        alive = [key for key, (node, attempt) in central.running.items() if runs(central, key[0], node, attempt)]
        if alive and verb == "end":
            central.end(*alive[pick % len(alive)], extra, now_s=now_s)
        elif alive:
            job, task = alive[pick % len(alive)]
            node, attempt = central.running.pop((job, task))
            central.node(node, m.HandBack(job, attempt, "no room"), now_s=now_s)
    elif verb == "up":
        if name in core.nodes:
            central.node(name, m.NodeChanged(info(pick, max(extra, len(core.nodes[name].attempts)))), now_s=now_s)
        else:
            central.node_up(name, info(pick, extra), now_s)
    elif verb == "down" and name in core.nodes:
        central.node_down(name, now_s)
    elif verb == "state" and name in core.nodes:
        central.node(name, m.NodeState(extra, ""), now_s=now_s)
    elif verb == "cancel" and core.jobs:
        jobs = sorted(core.jobs)
        central.client(m.CancelJob(jobs[pick % len(jobs)], running=extra), now_s=now_s)


def runs(central: Central, job: str, node: str, attempt: int) -> bool:
    known = central.core.jobs.get(job)
    return known is not None and attempt in known.attempts and node in central.core.nodes


def free_for(central: Central, stage: Any) -> list[str]:
    """Nodes with a free slot that may run a waiting task of the stage: found by looking at all of them."""
    core, found = central.core, []
    wanted: set[str] | None = None
    if stage.preferences is not None and not stage.preferences.free:
        wanted = set(stage.preferences.wanting)
    for node in core.nodes.all():
        taken = sum(dict(attempt.stage.kind.demand).get("memory", 0.0) for attempt in node.attempts)
        demand = dict(stage.kind.demand).get("memory", 0.0)
        if (
            node.state == m.READY
            and len(node.attempts) < node.info.slots
            and node.why_not(stage.kind) is None
            and node.id not in stage.search.refused_by
            and not core.book.reach.avoided_at(stage, node.id)
            and node.info.resources["memory"] - taken >= demand
            and (wanted is None or node.id in wanted)
        ):
            found.append(node.id)
    return found


def test_it_is_the_plane_of_its_name() -> None:
    assert type(Central([]).core.plane) is CentralPlane
