"""What must hold in a simulated cluster, whatever fails: invariants after each event, guarantees at the end.

The numbers are those of the guarantees in docs/reliability.md. `check` asks cores for their own invariants and compares
what each side of a quiet link knows (5). `check_end` holds each job against 1 to 4 and looks for what is left anywhere
(5). Executors check what they are given (`simulator.soak.executors`), the hosts that honest peers send nothing that a
core rejects (6 is the cores' business; what was refused is checked to have been refused wholly). Rules that need only
what was submitted, started and reported are in `simulator.soak.guarantees`.

Two allowances are made, and no others. A link over which a frame was delivered twice is exempt from the comparison of
reservations: a getTask or a Reserve that came twice leaves each side with another count, which only a new link mends.
And of a job that goes on without its client (`on_client_lost="finish"`), which moves it all the same since it was only
cut off, nobody can count the starts (ARCHITECTURE.md, Failover): they may exceed `max_attempts`, unless that is 1.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator

from node_monitor.queueing.fair import FairQueue
from simulator.soak import guarantees
from simulator.soak.broken import Broken
from simulator.soak.fallible_hosts import ClientHost, NodeHost, SchedulerHost
from simulator.soak.host import Host
from simulator.soak.job_log import JobLog, Start
from simulator.soak.links import Link
from simulator.soak.members import Members
from simulator.soak.nested_task import ChildLog
from sparrow_py.job import BlobRef, TaskResult, TaskStatus
from sparrow_py.session import attaching
from sparrow_py.wire import messages as m

LOST_BECAUSE = (
    "queue_timeout_s",
    "no node that may run it was connected",
    "an input is gone",
    "its inputs could not be had",
    "took job",
    "may have",
    "unplaced_tasks_max",
    attaching.LOST,
    attaching.TOLD_ANOTHER,
)
"""Reasons for which a task may be lost though attempts remain. The last: its job has moved, and until its client gave
up the scheduler that it came to was full, of tasks that wait for results of this job, say."""
AS_INPUT = ", an input: "
"""In the error of a task that ended as one did whose result it asks for."""
MAY_HAVE_STARTED = "it may have been started"
TOLD_S = 1.5
"""What a client says is known to all whom it concerns after so long, where nothing is delayed: the slowest networks
that are simulated need 0.08 s for a frame, and a job may take a few."""
CANCELLED_BY_CLUSTER = ("before it was",)
"""A task before it was not finished."""


def check(world: Members, hosts: Iterable[Host]) -> None:
    """What must hold after every event, of these hosts and their links."""
    links: dict[Link, None] = {}
    for host in hosts:
        if isinstance(host, SchedulerHost):
            host.core.check_invariants(every_job=True)
        else:
            host.core.check_invariants()
        if not isinstance(host, ClientHost):
            links.update(dict.fromkeys(host.links.values()))
    for link in links:
        node, scheduler = link.peer, link.scheduler
        if isinstance(node, NodeHost) and isinstance(scheduler, SchedulerHost) and _quiet(link, scheduler, node):
            _compare(link, scheduler, node)


def _quiet(link: Link, scheduler: SchedulerHost, node: NodeHost) -> bool:
    """Whether each side knows all that the other has sent."""
    if len(link.open) < 2 or not link.alive or not link.empty:
        return False
    both = node.links.get(scheduler.name) is link and scheduler.links.get(link.known_as) is link
    return both and not node.stalled and not scheduler.stalled


def _compare(link: Link, scheduler: SchedulerHost, node: NodeHost) -> None:
    name, core = scheduler.name, scheduler.core
    ready = [(key, task) for key, task in node.core.backlog.ready.all() if key[0] == name]
    tickets = [ticket for ticket in node.core.queue.tickets() if ticket.key[0] == name]
    # Those for which it was asked ahead of a slot are queued at the node, and spent for the scheduler.
    queued = sum(ticket.count - ticket.asked for ticket in tickets) - sum(1 for _, task in ready if task.ask)
    believed = core.live_reservations(node.name)
    # Without cancellation a scheduler forgets reservations that wait at a node; that asks for them one day, in vain.
    # Nor does it keep books of those that it makes for tasks that it pushes.
    agrees = (
        queued == believed if core.options.cancellation and core.options.placement == "sparrow" else queued >= believed
    )
    if not agrees and not link.duplicated:
        raise Broken(f"{queued} reservations of {name} queued at {node.name}, it believes {believed}")
    held = {(job, attempt) for owner, job, attempt in node.core.attempts.by_key if owner == name}
    held |= {(task.job, task.attempt) for _, task in ready}
    held |= {(job, attempt) for owner, job, attempt in node.core.lane.waiting if owner == name}
    lacking = {attempt.order for attempt in core.nodes[node.name].attempts} - held
    if lacking:
        raise Broken(f"{name} believes that attempts {sorted(lacking)} are at {node.name}", min(lacking)[0])


# ---- the end ---------------------------------------------------------------------------------


def check_end(world: Members) -> None:
    """What must hold when nothing more happens: the guarantees of docs/reliability.md, and nothing left anywhere."""
    for log in world.logs.values():
        _check_starts(world, log)
        if isinstance(log, ChildLog):
            _check_stopped_with_parent(world, log)
        # Else its outcomes are nobody's; a client within a task is gone by now, and may have been told all before.
        if log.client.alive or (isinstance(log, ChildLog) and log.ended_count):
            _check_outcomes(world, log)
    for scheduler in world.schedulers:
        _check_scheduler_empty(scheduler)
    for node in world.nodes:
        _check_node_empty(world, node)
    for client in world.clients:
        if client.alive and (client.core.jobs or client.core._waiting):
            raise Broken(f"client {client.name} waits for ever", next(iter(client.core.jobs), ""))


def _nothing_left(where: str, job: str = "", **things: object) -> None:
    for name, thing in things.items():
        if thing:
            raise Broken(f"left at {where}: {name} {thing!r}", job)


def _check_scheduler_empty(scheduler: SchedulerHost) -> None:
    core = scheduler.core
    _nothing_left(scheduler.name, next(iter(core.jobs), ""), jobs=list(core.jobs), unplaced=core.admission.unplaced)
    _nothing_left(
        scheduler.name,
        plane=core.plane.left_over(), held_bytes=core.admission.held_bytes, jobs_of=core.register.by_client,
        deadline=core.next_deadline_s() is not None, detached=core.book.detachment.count(),
    )  # fmt: skip
    _nothing_left(
        scheduler.name,
        clients_within_tasks=len(scheduler.task_clients), said_by_these=scheduler.task_clients.waiting,
        cut_off=scheduler.task_clients._over, nested=core.register.nested,
    )  # fmt: skip
    for node in core.nodes.all():
        _nothing_left(f"{scheduler.name} of {node.id}", attempts=node.attempts, sent=node.sent)


def _check_node_empty(world: Members, node: NodeHost) -> None:
    core = node.core
    job = next((job_id for _, job_id, _ in core.attempts.by_key), "")
    _nothing_left(
        node.name, job,
        queued=list(core.queue.tickets()), asks=core.asks.open, attempts=list(core.attempts.by_key),
        jobs=list(core.jobs.by_key), taken_slots=core.slots - core.free_slots, fetching=core.inputs.fetching,
        pins=node.blobs.pins,
        flows=isinstance(core.queue, FairQueue) and core.queue.flow_count,
    )  # fmt: skip
    for name, amount in world.resources.items():
        if abs(core.free[name] - amount) > 1e-9:
            raise Broken(f"left at {node.name}: {core.free[name]} of {amount} {name} is free")
    _nothing_left(
        node.name,
        ready=list(core.backlog.ready.all()),
        ahead=list(core.backlog.ahead.all()),
        placed=list(core.lane.waiting),
    )
    _nothing_left(node.name, relayed=len(node.relay), on_their_way=node.relay._ahead._clients)
    for known in core.executors.values():
        _nothing_left(f"{node.name} of {known.id}", commons=known.commons)
    for executor in node.executors.values():
        _nothing_left(f"executor {executor.id}", commons=executor.commons)


# ---- starts: guarantee 3 ---------------------------------------------------------------------


def _check_starts(world: Members, log: JobLog) -> None:
    by_task: dict[int, list[Start]] = {}
    for start in log.starts:
        _check_time_limit(world, start)
        _check_not_cancelled(world, start)
        if start.counts:
            by_task.setdefault(start.task, []).append(start)
    for task, starts in by_task.items():
        starts.sort(key=lambda start: start.attempt)
        if not log.left_alone:
            _hold(log, guarantees.too_many_starts(task, len(starts), log.starts_max(task)))
        for start, again in itertools.pairwise(starts):
            if not start.may_be_repeated(again):
                raise Broken(f"task {task} was started again for no reason", log.id)
            if _accounted_for(world, start, again):
                raise Broken(f"task {task} was started again; {start.node.name} knew of it", log.id)


def _hold(log: JobLog, problem: str) -> None:
    """A rule of the guarantees: nothing is wrong."""
    if problem:
        raise Broken(problem, log.id)


def _reached(world: Members, peer: object, scheduler: str, from_s: float, until_s: float) -> bool:
    """Whether they were linked all that time, and neither was stalled or cut off from the other for a while."""
    for link in world.all_links:
        if link.peer is not peer or link.scheduler.name != scheduler:
            continue
        if link.since_s <= from_s and link.until_s >= until_s and link.held_until_s <= from_s:
            return not any(
                host in (peer, link.scheduler) and since_s <= until_s and to_s >= from_s
                for host, since_s, to_s in world.stalls
            )
    return False


def _check_time_limit(world: Members, start: Start) -> None:
    limit_s = start.log.stage(start.task).task_timeout_s
    if limit_s is None or start.started_at_s is None or start.ended_at_s is None:
        return
    stalled = any(
        host is start.node and since_s <= start.ended_at_s and until_s >= start.started_at_s
        for host, since_s, until_s in world.stalls
    )
    if not stalled and start.ended_own_s > start.started_own_s + limit_s + 1e-6:
        raise Broken(f"task {start.task} ran for longer than {limit_s} s", start.log.id)


def _check_not_cancelled(world: Members, start: Start) -> None:
    """A task does not start long after it was cancelled, as far as everybody concerned could be told.

    One of which the user was told that it runs, and so was not cancelled, may fail then and start again.
    """
    log = start.log
    if start.task in log.not_cancelled_tasks:
        return
    asked_s = log.asked_to_cancel.get(start.task, start.given_at_s)
    if start.given_at_s <= asked_s + TOLD_S or log.moved_at_s or log.submitted_last_s[0] > asked_s:
        return
    told = _reached(world, log.client, start.scheduler, asked_s, start.given_at_s)
    if told and _reached(world, start.node, start.scheduler, asked_s, start.given_at_s):
        raise Broken(f"task {start.task} was started long after it was cancelled", log.id)


def _check_stopped_with_parent(world: Members, log: ChildLog) -> None:
    """Nothing of a job starts or runs to its end long after the task was gone that had submitted it, as far as
    everybody concerned could be told."""
    gone_s, node = log.parent.gone_at_s, log.parent.start.node
    if gone_s is None:
        return
    for start in log.starts:
        until_s = start.given_at_s if start.ended_at_s is None else start.ended_at_s
        if until_s <= gone_s + TOLD_S or not _reached(world, node, start.scheduler, gone_s, until_s):
            continue
        if _reached(world, start.node, start.scheduler, start.given_at_s, until_s):  # Else what runs goes on there.
            raise Broken(f"task {start.task} went on long after the task had ended that submitted its job", log.id)


def _accounted_for(world: Members, start: Start, again: Start) -> bool:
    """Whether the scheduler that started the task again had brought a job with an outcome, or a run, of which the node
    of the earlier start told it: they were linked from before it got the job until then."""
    log = start.log
    in_vain = start.executor_died or start.killed or start.produced or start.may_pass
    if again.epoch == start.epoch or in_vain or (start.failed and log.spec.retry_failed):
        return False
    moved_s = log.submitted_last_s.get(again.epoch, 0.0)
    return start.given_at_s < moved_s and _reached(world, start.node, again.scheduler, moved_s, again.given_at_s)


# ---- outcomes: guarantees 1, 2 and 4 ---------------------------------------------------------


def _check_outcomes(world: Members, log: JobLog) -> None:
    if log.error is not None:
        if log.outcomes or log.ended_count:
            raise Broken("it was refused, and yet there are outcomes", log.id)
        return
    if log.accepted_count > 1:
        raise Broken("it was accepted twice", log.id)
    if log.ended_count != 1:
        raise Broken(f"it ended {log.ended_count} times", log.id)
    told = [outcome.task for outcome in log.outcomes]
    _hold(log, guarantees.no_outcome(len(log.payloads), told) or guarantees.told_twice(told))
    for outcome in log.outcomes:
        _check_outcome(world, log, outcome)


def _check_outcome(world: Members, log: JobLog, outcome: m.Outcome) -> None:
    # Later it may only run again for its result.
    starts = [start for start in log.starts if start.task == outcome.task and start.counts]
    before = sum(1 for start in starts if start.given_at_s <= log.told_at_s[outcome.task])
    counted = 0 if log.left_alone or log.is_let_go else before  # It may have been kept for long before it was told.
    _hold(log, guarantees.untrue_attempts(outcome.task, outcome.attempts, log.starts_max(outcome.task), counted))
    full = world.scheduler_options.held_bytes_max < 1 << 20
    if outcome.error == attaching.TOLD_ANOTHER and outcome.task not in log.told_before and not full:
        raise Broken(f"how task {outcome.task} ended was not told before", log.id)
    if AS_INPUT in outcome.error:
        _check_ended_as_input(log, outcome)
        return
    given_up = outcome.status is TaskStatus.LOST and MAY_HAVE_STARTED in outcome.error
    if given_up and not starts and _all_could_say(world, log, outcome.task):
        raise Broken(f"task {outcome.task} was lost, and all nodes could say that it had not been started", log.id)
    if outcome.status in (TaskStatus.FINISHED, TaskStatus.FAILED):
        _check_result(log, outcome)
    elif outcome.status is TaskStatus.LOST:
        if not any(reason in outcome.error for reason in LOST_BECAUSE):
            _hold(log, guarantees.lost_early(outcome.task, outcome.attempts, log.spec.max_attempts, outcome.error))
    else:
        _check_cancelled(world, log, outcome)


def _check_ended_as_input(log: JobLog, outcome: m.Outcome) -> None:
    """The task did not finish as another did not whose result it asks for."""
    wanted = [name for name in log.details[outcome.task].inputs if isinstance(name, TaskResult)]
    if not any(f"task {name.task} of job {name.job_id}{AS_INPUT}" in outcome.error for name in _behind(log, outcome)):
        raise Broken(f"task {outcome.task} asks for no such input: {outcome.error!r}", log.id)
    ended = [log.awaits[name].how_ended(name.task) for name in wanted]
    if all(how is None or how[0] is not outcome.status for how in ended):
        raise Broken(f"no input of task {outcome.task} was {outcome.status.value}: {outcome.error!r}", log.id)


def _behind(log: JobLog, outcome: m.Outcome) -> Iterator[TaskResult]:
    """The results that the task asks for, those that their tasks ask for, and so on."""
    seen: set[TaskResult] = set()
    followed = [(log, outcome.task)]
    while followed:
        asks, task = followed.pop()
        spec = asks.details.get(task)
        for name in () if spec is None else spec.inputs:
            if isinstance(name, TaskResult) and name not in seen:
                seen.add(name)
                yield name
                followed.append((asks.awaits[name], name.task))


def _all_could_say(world: Members, log: JobLog, task: int) -> bool:
    """Whether the scheduler that gave a task up, which may start once at most, could ask all nodes that were ever there
    since the job was submitted."""
    alone = log.spec.on_client_lost == "finish" or log.is_let_go  # Then its client is not told which nodes are used.
    if log.spec.max_attempts > 1 or alone or not log.moved_at_s:
        return False
    epoch = max(log.submitted_last_to)
    scheduler, since_s, until_s = log.submitted_last_to[epoch], log.submitted_last_s[epoch], log.told_at_s[task]
    if any(link.until_s >= log.submitted_at_s and not link.peer.alive for link in world.all_links):
        return False  # Of a node that has died, or a client.
    return all(_reached(world, node, scheduler, since_s, until_s) for node in world.nodes)


def _check_result(log: JobLog, outcome: m.Outcome) -> None:
    result, payload = outcome.result, log.payloads[outcome.task]
    if isinstance(result, BlobRef):
        result = bytes.fromhex(result.hash[: 2 * result.size])
    stopped = outcome.status is TaskStatus.FAILED and not result
    if result != payload and not stopped:
        raise Broken(f"task {outcome.task} has the result of another", log.id)
    if outcome.attempts < 1:
        raise Broken(f"task {outcome.task} {outcome.status.value} and was never started", log.id)
    if outcome.status is TaskStatus.FINISHED and not any(
        start.task == outcome.task and start.ended_at_s is not None and not start.failed for start in log.starts
    ):
        raise Broken(f"task {outcome.task} finished, and no run of it did", log.id)


def _check_cancelled(world: Members, log: JobLog, outcome: m.Outcome) -> None:
    doomed = any(reason in outcome.error for reason in CANCELLED_BY_CLUSTER)
    full = world.scheduler_options.held_bytes_max < 1 << 20
    if log.cancelled_at_s is None and outcome.task not in log.asked_to_cancel and not doomed and not full:
        raise Broken(f"task {outcome.task} was cancelled by nobody: {outcome.error!r}", log.id)
    ran = [start for start in log.starts if start.task == outcome.task and start.counts]
    stopped = log.running_too or log.moved_at_s or "before a scheduler took it" in outcome.error
    if not stopped and not all(start.lost or start.failed or start.killed for start in ran):
        raise Broken(f"task {outcome.task} was cancelled, and yet it ran: {outcome.error!r}", log.id)
