"""Each oracle finds the bug that it is there for: with one planted in a core, a run fails that passes without."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from node_monitor.asking import Asking
from node_monitor.attempt_book import AttemptBook
from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppState
from node_monitor.jobs import LocalJob
from node_monitor.queueing.backlog import Backlog
from node_monitor.remembered_outcomes import RememberedOutcomes
from node_monitor.remembered_starts import RememberedStarts
from node_monitor.serving import Serving
from node_monitor.slots import Slots
from node_monitor.stopping import Stopping
from scheduler.book.advance_notice import AdvanceNotice
from scheduler.book.endings import Endings
from scheduler.book.jobs import JobState, StageState
from scheduler.book.nodes import Node, Nodes
from scheduler.book.outcomes import Outcomes
from scheduler.book.reach import Reach
from scheduler.book.register import Register
from scheduler.book.retries import Retries
from scheduler.book.waiting import Waiting
from scheduler.core import SchedulerCore
from scheduler.sampling.binding import Binding
from simulator.soak.broken import Broken
from simulator.soak.world import World
from sparrow_py.errors import InvariantViolated
from sparrow_py.job import RetryPolicy, TaskStatus
from sparrow_py.session.core import ClientCore
from sparrow_py.wire import messages as m
from tests.support.worlds import crash_all_that_know_a_job

Patch = pytest.MonkeyPatch


# ---- runs that are as they should be without a planted bug -----------------------------------


BUSY_SEEDS = 6
"""Chance decides whether a bug shows: one of so many worlds is to find it."""


def busy() -> None:
    """Several jobs of two users, a DAG, constraints, failures, cancellations, time limits."""
    for seed in range(BUSY_SEEDS):
        world = World(seed, nodes=[2, 1, 2], users=["anna", "bert"], events_max=20_000)
        world.submit([0.01] * 8)
        world.submit([0.02] * 6, client=1, where=["parity == even"], failures=1, retry_failed=True)
        world.submit_stages(("a", (), [0.2] * 3), ("b", ("a",), [0.01] * 2), client=1, ask=False)
        world.submit([0.5, 0.001], app="pool", task_timeout_s=0.05, max_attempts=1)
        first = world.submit([0.05] * 2)
        world.run_for(0.005)
        world.submit([0.01] * 4, avoid=[first.spec.job_id])
        late = world.submit([0.3] * 30)
        world.run_for(0.02)
        world.cancel_tasks(late, [28, 29])
        world.cancel(late)
        world.run()
        world.check_end()


def deadly() -> None:
    """Executors die under a job that may be started twice, and an only node under one that may be started once."""
    world = World(1, nodes=[2])
    log = world.submit([0.1] * 4, app="pool", max_attempts=2)
    world.submit([0.1] * 2, max_attempts=1)
    for _ in range(10):
        world.run_for(0.05)
        for executor in list(world.nodes[0].executors.values()):
            if executor.running:
                world.kill_executor(executor)
    world.run()
    world.check_end()
    assert log.outcomes


def failover() -> None:
    """A client's link breaks while its job has ended in part, and runs in part; the job moves, and is claimed."""
    for seed in range(4):
        world = World(seed, nodes=[2, 2], schedulers=2, latency=(0.001, 0.002), scheduler={"settling_s": 0.0})
        world.submit([0.02, 0.2] * 4)
        world.run_for(0.05)
        (link,) = [one for one in world.links() if one.peer is world.clients[0] and one.scheduler.core.jobs]
        for pipe in link.pipes:
            pipe.hold(world.now + 0.05)
        world.run_for(0.02)
        world.drop_link(link)
        world.run()
        world.check_end()


def dying_together() -> None:
    """Schedulers die with the nodes, again and again, under a job that may be started twice; the client lives."""
    world = World(2, nodes=[1, 1], schedulers=3, scheduler={"settling_s": 0.0})
    world.submit([1.0] * 2, max_attempts=2)
    crash_all_that_know_a_job(world, 4, every_s=0.4, restart_s=0.1)
    world.run()
    world.check_end()


def once() -> None:
    """A scheduler dies under a job that may be started once; all nodes live."""
    world = World(1, nodes=[2, 2], schedulers=2)
    world.submit([0.1] * 20, max_attempts=1)
    world.run_for(0.15)
    (scheduler,) = [one for one in world.schedulers if one.core.jobs]
    world.crash_scheduler(scheduler)
    world.run()
    world.check_end()


def preferring() -> None:
    """Tasks with preferred nodes, some of which may go elsewhere in time; tasks that ask for results of others."""
    world = World(2, nodes=[1, 1, 1])
    world.submit([0.05] * 4, preferred=(("n0",),))
    world.submit([0.05] * 6, preferred=(("n1",),), delay_s=0.1)
    world.submit_stages(("a", (), [0.01] * 3), ("b", ("a",), [0.01] * 2))
    world.run()
    world.check_end()


def retrying() -> None:
    """Tasks whose failures are retried, some of which never end well; their scheduler dies while some wait."""
    policy = RetryPolicy(attempts=3, first_delay_s=0.1, factor=2.0, longest_delay_s=1.0, jitter=0.5)
    world = World(1, nodes=[2, 1], schedulers=2)
    well = world.submit([0.01] * 4, failures=2, retry=policy)
    world.submit([0.01] * 2, failures=9, retry=policy, max_attempts=2)
    world.run_for(0.12)
    for scheduler in [one for one in world.schedulers if one.core.jobs]:
        world.crash_scheduler(scheduler)
    world.submit([0.01], failures=9, retry=policy)
    world.run()
    world.check_end()
    assert well.statuses() == [TaskStatus.FINISHED] * 4


def avoiding() -> None:
    """A job that has to keep away from nodes on which another runs."""
    for seed in range(4):
        world = World(seed, nodes=[2, 2, 2])
        other = world.submit([0.3] * 2)
        world.run_for(0.05)
        world.submit([0.01] * 6, avoid=[other.spec.job_id])
        world.run()
        world.check_end()


def avoiding_racks() -> None:
    """A job that has to keep away from racks in which another runs, and from nodes that are in none."""
    for seed in range(4):
        world = World(seed, nodes=[2] * 5, racks=("r0", "r1", "r0", "r1", ""))
        other = world.submit([0.3], where=["rack == r0"])
        world.run_for(0.05)
        world.submit([0.01] * 8, avoid=[other.spec.job_id], avoid_by="rack")
        world.run()
        world.check_end()


def demanding() -> None:
    """Tasks that take most of a node each, where there are slots for more."""
    world = World(3, nodes=[2, 1, 2])
    world.submit([0.02] * 6, demand={"cpu": 3.0})
    world.run()
    world.check_end()


def cancelling() -> None:
    """Tasks that have long to wait are cancelled."""
    world = World(1, nodes=[1], events_max=5000)
    log = world.submit([0.5] * 8)
    world.run_for(0.1)
    world.cancel_tasks(log, [5, 6])
    world.run()
    world.check_end()


def pushing() -> None:
    """Tasks are pushed to nodes where reservations for others come just before them."""
    handed_back = 0
    for seed in range(BUSY_SEEDS):
        world = World(seed, nodes=[2, 2], schedulers=2, users=["anna", "bert"], scheduler={"push_to_idle": True})
        for _ in range(20):
            world.submit([0.01], max_attempts=1)
            world.submit([0.01], client=1, max_attempts=3)
            world.run_for(0.03)
        world.run()
        world.check_end()
        handed_back += sum(scheduler.core.counters.pushes_handed_back for scheduler in world.schedulers)
    assert handed_back


# ---- bugs ------------------------------------------------------------------------------------


def wrap(patch: Patch, owner: Any, name: str, around: Callable[..., Any]) -> None:
    """Replace a method by `around(inner, *arguments)`."""
    inner = getattr(owner, name)
    patch.setattr(owner, name, lambda *arguments, **named: around(inner, *arguments, **named))


def every(nth: int, bug: Callable[..., Any]) -> Callable[..., Any]:
    """The bug, with every nth call only."""
    calls = 0

    def around(inner: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        return bug(inner, *arguments, **named) if calls % nth == 0 else inner(*arguments, **named)

    return around


def nothing(*_: Any, **__: Any) -> None:
    """What should be done is not."""


def drops_reports(patch: Patch) -> None:
    def leave(inner: Any, book: Any, attempt: Any, executor: Any, now_s: float, last: Any, *charged: Any) -> None:
        inner(book, attempt, executor, now_s, None, *charged)

    wrap(patch, AttemptBook, "leave", every(3, leave))


def takes_what_finished_for_lost(patch: Patch) -> None:
    def report(inner: Any, endings: Any, node: Any, message: Any, now_s: float) -> None:
        inner(endings, node, msgspec.structs.replace(message, status=TaskStatus.LOST, error="so it is believed"), now_s)

    wrap(patch, Endings, "reported", every(4, report))


def launches_twice(patch: Patch) -> None:
    def launch(inner: Any, asking: Any, scheduler: str, message: Any, now_s: float) -> None:
        inner(asking, scheduler, message, now_s)
        asking._launched.pop(scheduler, None)
        inner(asking, scheduler, message, now_s)

    wrap(patch, Asking, "launch", every(5, launch))


def forgets_cancelled_reservations(patch: Patch) -> None:
    patch.setattr(Backlog, "cancel_unasked", lambda backlog, ticket: 0)


def starts_once_too_often(patch: Patch) -> None:
    def lost(inner: Any, endings: Any, attempt: Any, reason: str, now_s: float) -> None:
        attempt.stage.job.max_attempts += 1
        inner(endings, attempt, reason, now_s)

    wrap(patch, Endings, "lost", lost)


def waits_for_no_answer(patch: Patch) -> None:
    """As schedulers did that told clients of retries alone, and of none that a failover had counted."""
    patch.setattr(AdvanceNotice, "of_starts", lambda notice, stage, tasks: False)


def forgets_starts_in_vain(patch: Patch) -> None:
    def settle(inner: Any, outcomes: Any, stage: Any, task: int, node: str, report: Any, starts: int, now_s: float):
        inner(outcomes, stage, task, node, report, 1, now_s)

    wrap(patch, Outcomes, "settle_reported", settle)


def vouches_for_nothing(patch: Patch) -> None:
    patch.setattr(RememberedStarts, "complete_since", lambda starts, user, submitted_s: False)


def tells_an_outcome_twice(patch: Patch) -> None:
    def settle(inner: Any, client: Any, job: Any, outcome: Any) -> None:
        inner(client, job, outcome)
        job.sink.outcome(outcome)

    wrap(patch, ClientCore, "_settle", every(5, settle))


def loses_an_outcome(patch: Patch) -> None:
    def settle(inner: Any, client: Any, job: Any, outcome: Any) -> None:
        client.duplicates += 1

    wrap(patch, ClientCore, "_settle", every(5, settle))


def mixes_results_up(patch: Patch) -> None:
    def settle(inner: Any, client: Any, job: Any, outcome: Any) -> None:
        inner(client, job, msgspec.structs.replace(outcome, result=b"another's"))

    wrap(patch, ClientCore, "_settle", every(5, settle))


def leaks_slots(patch: Patch) -> None:
    def freed(inner: Any, app: Any, executor: Any, now_s: float) -> int:
        return inner(app, executor, now_s) - 1

    wrap(patch, AppState, "free_places", every(4, freed))


def lends_slots_twice(patch: Patch) -> None:
    def freed(inner: Any, app: Any, executor: Any, now_s: float) -> int:
        return inner(app, executor, now_s) + 1

    wrap(patch, AppState, "free_places", every(3, freed))


def ignores_constraints(patch: Patch) -> None:
    patch.setattr(Nodes, "eligible", lambda nodes, kind: [node.id for node in nodes.all()])


def ignores_demands(patch: Patch) -> None:
    patch.setattr(Slots, "fits", lambda slots, demand: True)
    patch.setattr("scheduler.sampling.binding.fitting", lambda demand, free: 1000)  # Which would see to it, too.


def ignores_preferences(patch: Patch) -> None:
    def add(inner: Any, stage: Any, payloads: Any, details: Any) -> None:
        everywhere = {task: m.TaskDetail(("n0", "n1", "n2"), detail.inputs) for task, detail in details.items()}
        inner(stage, payloads, everywhere)

    wrap(patch, StageState, "add_tasks", add)


def ignores_avoided_jobs(patch: Patch) -> None:
    patch.setattr(Reach, "_avoided_by", lambda reach, job: lambda node_id: False)


def ignores_what_nodes_share(patch: Patch) -> None:
    """Each node is taken for one without attributes by those who look where jobs to be avoided run."""

    def avoided_by(reach: Any, job: Any) -> Any:
        return lambda node_id: any((reach._jobs[other].running_at or {}).get(node_id) for other in job.avoids)

    patch.setattr(Reach, "_avoided_by", avoided_by)


def uses_nodes_without_the_attribute(patch: Patch) -> None:
    def lacks(inner: Any, node: Any, kind: Any) -> Any:
        return inner(node, kind._replace(avoid_by=""))

    wrap(patch, Node, "lacks", lacks)
    wrap(patch, JobState, "__init__", lambda inner, job, *given: (inner(job, *given), setattr(job, "avoid_by", ""))[0])


def opens_stages_too_soon(patch: Patch) -> None:
    def linked(inner: Any, job: Any) -> None:
        inner(job)
        for stage in job.stages:
            stage.waits_for.clear()

    wrap(patch, JobState, "_link_stages", linked)


def mixes_inputs_up(patch: Patch) -> None:
    wrap(patch, LocalJob, "inputs_of", lambda inner, job, wanted: inner(job, wanted)[::-1])


def runs_without_common_bytes(patch: Patch) -> None:
    def receive(inner: Any, core: Any, scheduler: str, message: Any, now_s: float) -> None:
        if isinstance(message, m.Launch):
            core.jobs.by_key[scheduler, message.job].commons.clear()
        inner(core, scheduler, message, now_s)

    wrap(patch, NodeMonitorCore, "receive", every(3, receive))


def ignores_delays(patch: Patch) -> None:
    def begin(inner: Any, waiting: Any, stage: Any, tasks: Any, now_s: float) -> None:
        inner(waiting, stage, tasks, now_s)
        if stage.preferences is not None and stage.spec.delay_s is not None:
            waiting.relax(stage, tasks, now_s)

    wrap(patch, Waiting, "begin", begin)


def ignores_delays_of_retries(patch: Patch) -> None:
    patch.setattr(Retries, "delay_s", lambda retries, task, rng: 0.0)


def forgets_failures(patch: Patch) -> None:
    def failed(inner: Any, retries: Any, task: int, error: str) -> None:
        inner(retries, task, error)
        retries.failures[task] = 1

    wrap(patch, Retries, "failed", failed)


def lets_tasks_run_for_ever(patch: Patch) -> None:
    patch.setattr(Stopping, "stop_at", nothing)


def cancels_of_itself(patch: Patch) -> None:
    cores: list[SchedulerCore] = []

    def made(inner: Any, core: Any, *arguments: Any, **named: Any) -> None:
        inner(core, *arguments, **named)
        cores.append(core)

    def accept(inner: Any, register: Any, job: Any, now_s: float) -> None:
        inner(register, job, now_s)
        (book,) = (core.book for core in cores if core.register is register)
        book.ledger.at_stage(
            now_s + 0.01,
            job.stages[0],
            lambda stage, at_s: book.cancellation.cancel(stage.job, "of itself", at_s),
        )

    wrap(patch, SchedulerCore, "__init__", made)
    wrap(patch, Register, "accept", every(3, accept))


def remembers_no_outcomes(patch: Patch) -> None:
    patch.setattr(RememberedOutcomes, "of", lambda outcomes, owner, job: iter(()))


def keeps_what_it_should_forget(patch: Patch) -> None:
    patch.setattr(NodeMonitorCore, "_forget_job", nothing)


def answers_for_slots_that_did_not_ask(patch: Patch) -> None:
    def get_tasks(inner: Any, binding: Any, node: Any, message: Any, now_s: float) -> None:
        binding._to_node(node.id, m.NoTask(message.ask, message.count + 100))
        inner(binding, node, message, now_s)

    wrap(patch, Binding, "get_tasks", get_tasks)


def sends_no_cancellation(patch: Patch) -> None:
    patch.setattr(ClientCore, "_send_cancels", nothing)


def never_submits(patch: Patch) -> None:
    patch.setattr(ClientCore, "_assign", nothing)


def tries_for_ever(patch: Patch) -> None:
    def get_tasks(inner: Any, binding: Any, node: Any, message: Any, now_s: float) -> None:
        ticket = binding._tickets.get(message.ticket)
        binding._to_node(node.id, m.NoTask(message.ask, message.count))
        if ticket is not None:
            binding._probing.spend(ticket, node, message.count)
            binding._probing.ensure(ticket.stage, now_s)

    wrap(patch, Binding, "get_tasks", get_tasks)


def lets_pushed_tasks_overtake(patch: Patch) -> None:
    def start_now(inner: Any, serving: Any, ticket: Any, task: Any, now_s: float) -> bool:
        queued, serving._queue.size = serving._queue.size, 0
        started = inner(serving, ticket, task, now_s)
        serving._queue.size += queued
        return bool(started)

    wrap(patch, Serving, "start_now", start_now)


BUGS: list[tuple[Callable[[Patch], None], Callable[[], None], str]] = [
    (drops_reports, busy, "believes that attempts"),
    (takes_what_finished_for_lost, busy, "was started again for no reason"),
    (launches_twice, failover, "was started twice|was started again for no reason|tasks are here"),
    (forgets_cancelled_reservations, busy, "reservations of s0 queued"),
    (starts_once_too_often, deadly, "attempts of task|starts of task"),
    (waits_for_no_answer, dying_together, "starts of task"),
    (forgets_starts_in_vain, busy, "which was started 2 times"),
    (vouches_for_nothing, once, "all nodes could say that it had not been started"),
    (tells_an_outcome_twice, busy, "told again"),
    (loses_an_outcome, busy, "lost while attempts remained|these have no outcome"),
    (mixes_results_up, busy, "the result of another"),
    (leaks_slots, busy, "slots are not"),
    (lends_slots_twice, busy, "slots are not"),
    (ignores_constraints, busy, "which is not parity == even"),
    (ignores_demands, demanding, "are taken|taken of"),
    (ignores_preferences, preferring, "which is none of"),
    (ignores_avoided_jobs, avoiding, "avoid each other"),
    (ignores_what_nodes_share, avoiding_racks, "run where rack is r0"),
    (uses_nodes_without_the_attribute, avoiding_racks, "which has no rack"),
    (opens_stages_too_soon, busy, "before those that it comes after"),
    (mixes_inputs_up, preferring, "the inputs that it asked for"),
    (runs_without_common_bytes, busy, "not the stage's common bytes"),
    (lets_pushed_tasks_overtake, pushing, "a pushed task started where|not the stage's common bytes"),
    (ignores_delays, preferring, "before its preferred nodes had their time"),
    (ignores_delays_of_retries, retrying, "before its delay was over"),
    (forgets_failures, retrying, "starts of task|attempts of task|goes on and on"),
    (lets_tasks_run_for_ever, busy, "ran for longer"),
    (cancels_of_itself, busy, "cancelled by nobody"),
    (remembers_no_outcomes, failover, "knew of it"),
    (keeps_what_it_should_forget, busy, "left at n"),
    (answers_for_slots_that_did_not_ask, busy, "rejects what an honest peer sent"),
    (sends_no_cancellation, cancelling, "long after it was cancelled"),
    (never_submits, busy, "waits for nothing"),
    (tries_for_ever, cancelling, "goes on and on"),
]


@pytest.mark.parametrize(
    "run",
    [
        busy,
        deadly,
        failover,
        dying_together,
        once,
        preferring,
        retrying,
        avoiding,
        avoiding_racks,
        demanding,
        cancelling,
        pushing,
    ],
)
def test_the_runs_pass_without_a_bug(run: Callable[[], None]) -> None:
    run()


@pytest.mark.parametrize(("plant", "run", "problem"), BUGS, ids=[plant.__name__ for plant, _, _ in BUGS])
def test_a_planted_bug_is_found(
    plant: Callable[[Patch], None], run: Callable[[], None], problem: str, monkeypatch: Patch
) -> None:
    plant(monkeypatch)
    with pytest.raises((Broken, InvariantViolated), match=problem):
        run()


def test_what_is_broken_names_the_job() -> None:
    assert str(Broken("it ended twice", "j7")) == "j7: it ended twice" and Broken("x", "j7").job == "j7"
    assert str(Broken("a slot runs two tasks")) == "a slot runs two tasks"


def test_a_link_over_which_a_frame_came_twice_is_exempt_from_comparing_reservations_and_no_other() -> None:
    """The same difference is found on a link that delivered nothing twice."""
    for duplicated in (True, False):
        world = World(nodes=[1])
        world.submit([0.5] * 3)
        world.run_for(0.1)
        (link,) = world.links(type(world.nodes[0]))
        link.duplicated = duplicated
        world.nodes[0].core.queue.clear()
        if duplicated:
            world.check()
            continue
        with pytest.raises(Broken, match="0 reservations of s0 queued at n0"):
            world.check()
