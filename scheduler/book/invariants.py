"""What must hold of a job after every event (guarantee 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from scheduler.book.jobs import (
    ASKED,
    BLOCKED,
    HELD,
    NOT_ASKED,
    PLACED,
    SETTLED,
    STOPPING,
    UNPLACED,
    JobState,
    StageState,
)

if TYPE_CHECKING:
    from scheduler.book.admission import Admission
    from scheduler.book.nodes import Nodes

ProblemOfStage = Callable[[StageState], "str | None"]


def check_job(job: JobState, nodes: Nodes, problem_of: ProblemOfStage) -> str | None:
    """What is wrong with the job, or None; `problem_of` says what is wrong with how a stage's tasks are placed."""
    if job.over:
        return "it is over, and still here"
    settled = sum(stage.settled for stage in job.stages)
    if job.settled != settled:
        return f"{settled} tasks of its stages are settled, counted as {job.settled}"
    if job.held_bytes != job.counted_bytes():
        return f"it holds {job.counted_bytes()} bytes, counted as {job.held_bytes}"
    placed = {attempt_id for stage in job.stages for attempt_id in stage.attempts.values()}
    if placed != set(job.attempts):
        return f"attempts are {sorted(job.attempts)}, of placed tasks {sorted(placed)}"
    asked = STOPPING if job.cancel_running else ASKED if job.cancelled else NOT_ASKED
    if any(attempt.cancelling < asked for attempt in job.attempts.values()):
        return "it is cancelled, and not all nodes where it runs have been asked for that"
    if job.running_at is not None:
        running: dict[str, int] = {}
        for attempt in job.attempts.values():
            running[attempt.node_id] = running.get(attempt.node_id, 0) + 1
        if running != job.running_at:
            return f"running at {running}, counted as {job.running_at}"
    for hash_, waiting in job.awaited.items():
        if not waiting or any(hash_ not in job.stages[index].blocked.get(task, ()) for index, task in waiting):
            return f"input {hash_} is awaited by {sorted(waiting)}, who do not wait for it"
    for task, watchers in job.watched.items():
        if not watchers or any(number not in other.expected for (_, number), other in watchers.items()):
            return f"task {task} is watched by jobs that do not expect its result: {sorted(watchers)}"
    for node_id in job.sent_to:
        if job.id not in nodes[node_id].sent:
            return f"was sent to node {node_id}, which does not have it"
    for stage in job.stages:
        problem = _check_stage(stage, nodes, problem_of)
        if problem:
            return f"stage {stage.index}: {problem}"
    return None


def _check_stage(stage: StageState, nodes: Nodes, problem_of: ProblemOfStage) -> str | None:
    counts = [stage.states.count(state) for state in (UNPLACED, PLACED, SETTLED, BLOCKED, HELD)]
    counts.append(len(stage.states) - sum(counts))
    expected = [
        stage.unplaced, len(stage.attempts), stage.settled, len(stage.blocked), len(stage.held), stage.leaving
    ]  # fmt: skip
    if counts != expected:
        return f"tasks unplaced, placed, settled, blocked, held, leaving are {counts}, counted as {expected}"
    if any(stage.states.count(leave.state) != leave.count for leave in stage.leaves):
        return f"tasks do not leave as is counted: {[(leave.reason, leave.count) for leave in stage.leaves]}"
    open_successors = sum(not successor.closed for successor in stage.successors)
    if open_successors != stage.open_successors:
        return f"{open_successors} successors are not closed, counted as {stage.open_successors}"
    due = () if stage.delays is None else stage.delays.due
    waits = stage.untold.keys() | stage.expects.keys()
    idle = {(until_s, task) for task, until_s in stage.held.items() if task not in waits}.difference(due)
    if idle or not stage.untold.keys() <= stage.held.keys():
        return f"held tasks wait for nothing: {sorted(idle)}; untold are {sorted(stage.untold)}"
    for task, numbers in stage.expects.items():
        awaited = [stage.job.expected.get(number) for number in numbers]
        sought = all(one is not None and (stage, task) in one.waiting for one in awaited)
        if not numbers or task not in stage.held or not sought:
            return f"task {task} expects results {sorted(numbers)} that nobody sees to"
    if stage.untold and not stage.job.acknowledges:
        return f"tasks {sorted(stage.untold)} wait for a client that does not answer"
    if stage.waits_for and stage.attempts and not stage.job.epoch:  # Others may have been adopted.
        return "it is not open, but has attempts"
    problem = problem_of(stage)
    if problem:
        return problem
    for task, attempt_id in stage.attempts.items():
        attempt = stage.job.attempts[attempt_id]
        if attempt.task != task or attempt not in nodes[attempt.node_id].attempts:
            return f"task {task} is placed as attempt {attempt_id}, which its node does not have"
        if attempt.pushed and stage.job.max_attempts == 1:
            return f"task {task} was pushed as attempt {attempt_id}, which it must not be"
    for task, hashes in stage.blocked.items():
        if not hashes or any((stage.index, task) not in stage.job.awaited.get(hash_, ()) for hash_ in hashes):
            return f"task {task} waits for inputs {sorted(hashes)} that nobody sees to"
    return None


def check_admission(admission: Admission, jobs: Iterable[JobState], undelivered: Mapping[str, int]) -> str | None:
    """What is wrong with the counts of admission, which are sums over all jobs, and over what is undelivered."""
    unplaced: dict[str, int] = {}
    held_bytes = dict(undelivered)
    for job in jobs:
        for counts, count in ((unplaced, job.unplaced), (held_bytes, job.held_bytes)):
            if count:
                counts[job.user] = counts.get(job.user, 0) + count
    for name, counted, held in (
        ("tasks", admission.unplaced, unplaced),
        ("bytes", admission.held_bytes, held_bytes),
    ):
        if counted != held:
            return f"admission counts {counted} {name}, jobs and deliveries hold {held}"
    return None
