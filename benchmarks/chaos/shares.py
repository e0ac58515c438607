"""What must hold of the rounds in which users stream: shares by weight, and a newcomer who does not wait long.

Tasks are counted, not seconds, and only while all users are backlogged: tolerances are wide enough for a machine that
is busy with other things, as it keeps all of them waiting alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from benchmarks.chaos.plan import CENTRAL, Plan, Scene
from benchmarks.laboratory.evidence import Evidence, Run
from benchmarks.laboratory.told import Event

FROM, UNTIL = 0.1, 0.7
"""Shares of a user's tasks: from when every user has submitted all and started so many until one has started so many,
all are backlogged."""
SHARE_TOLERANCE = 0.1
TASKS_PER_SLOT = 2
"""Beside that share: what a slot may have too many or too few."""
NEWCOMER_PER_SLOT = 10
"""So many tasks of another user may start per slot between a newcomer's submission and its start: about one by the
promise, and the others while a busy machine brings the task to its node."""


def judge(plan: Plan, found: Evidence) -> Iterator[str]:
    """All that is violated."""
    if plan.scene is Scene.SHARES:
        yield from (f"shares: {what}" for what in shares_hold(plan, found))
    elif plan.scene is Scene.NEWCOMER:
        yield from (f"newcomer: {what}" for what in newcomer_starts(found))


def shares_hold(plan: Plan, found: Evidence) -> Iterator[str]:
    """While all users are backlogged each starts as many tasks as its weight says.

    Tasks that are bound late are backlogged at all nodes, those of a central scheduler at that. Others are pushed: they
    wait at one node each, and users may have more of them at one than at another: there the promise is each node's.
    """
    starts: dict[str, list[Run]] = defaultdict(list)
    for run in sorted(found.runs, key=lambda run: run.start_ns):
        starts[found.jobs[run.job].user].append(run)
    tasks = {user: sum(len(job.tasks) for job in plan.jobs if job.user == user) for user in plan.users}
    if any(len(starts[user]) < UNTIL * count for user, count in tasks.items()):
        yield f"tasks did not start: { ({user: len(starts[user]) for user in tasks}) } of {tasks}"
        return
    # Who has yet to submit is not backlogged.
    submitted_ns = max((line.at_ns for line in found.told(Event.SUBMITTED)), default=0)
    if plan.placement in ("sparrow", CENTRAL):
        yield from _shares_of(
            {user: starts[user] for user in tasks}, plan.users, sum(found.slots.values()), submitted_ns
        )
        return
    for node, slots in found.slots.items():
        here = {user: [run for run in starts[user] if run.node == node] for user in tasks}
        if all(here.values()):
            yield from (f"at {node} {what}" for what in _shares_of(here, plan.users, slots, submitted_ns))


def _shares_of(starts: dict[str, list[Run]], weights: dict[str, float], slots: int, submitted_ns: int) -> Iterator[str]:
    """Whose starts, by user and in order, are not as many as they should be while all users are backlogged."""
    from_ns = max([runs[int(FROM * len(runs))].start_ns for runs in starts.values()] + [submitted_ns])
    until_ns = min(runs[int(UNTIL * len(runs)) - 1].start_ns for runs in starts.values())
    counts = {user: sum(from_ns <= run.start_ns < until_ns for run in runs) for user, runs in starts.items()}
    for user, count in counts.items():
        due = sum(counts.values()) * weights[user] / sum(weights.values())
        if abs(count - due) > SHARE_TOLERANCE * due + TASKS_PER_SLOT * slots:
            yield f"{user} started {count} tasks instead of {due:.0f}: {counts}, weights {weights}"


def newcomer_starts(found: Evidence) -> Iterator[str]:
    """Another user's tasks do not go before a newcomer's one for long, whatever they state or prefetch."""
    name = "newcomer"
    submitted_ns = next((line.at_ns for line in found.told(Event.SUBMITTED) if line.job == name), None)
    started_ns = next((run.start_ns for run in found.runs if run.job == name), None)
    others = [run.start_ns for run in found.runs if run.job != name]
    if submitted_ns is None or started_ns is None:
        yield "it was not started"
        return
    between = sum(submitted_ns < at_ns < started_ns for at_ns in others)
    if between > NEWCOMER_PER_SLOT * sum(found.slots.values()):
        seconds = (started_ns - submitted_ns) / 1e9
        yield f"{between} tasks of another user started in {sum(found.slots.values())} slots before it, {seconds:.2f} s"
