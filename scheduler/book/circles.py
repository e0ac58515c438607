"""Tasks that wait for each other in a circle, by results that they ask for of other tasks: none of them will ever
start.

Whoever has submitted them can cancel them. Once that client is gone for good nobody is left who would.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from scheduler.book.jobs import JobState, StageState

Node = tuple[StageState, int]
"""The end of a task; or, in place of its number, of a stage: it opens, or all its tasks have ended."""
OPENS, WHOLE = -2, -1


def never_coming(jobs: Iterable[JobState]) -> list[tuple[JobState, int]]:
    """The awaited results, by their numbers in these jobs, that never come: in the end their tasks wait for themselves,
    or for some that do. What is awaited of jobs besides these may come. Takes time in proportion to what the tasks of
    these jobs wait for."""
    here = {job.id: job for job in jobs}
    nodes = [node for job in here.values() for stage in job.stages for node in _nodes(stage)]
    missing: dict[Node, int] = {}
    followers: dict[Node, list[Node]] = {}
    for node in nodes:
        before = list(_before(node, here))
        missing[node] = len(before)
        for one in before:
            followers.setdefault(one, []).append(node)
    ends = deque(node for node in nodes if not missing[node])
    while ends:
        for node in followers.pop(ends.popleft(), ()):
            missing[node] -= 1
            if not missing[node]:
                ends.append(node)
    never = {
        (stage.job.id, number)
        for (stage, task), count in missing.items()
        if count and task >= 0
        for number, producer in _producers(stage, task, here)
        if producer in followers
    }
    return [(here[job_id], number) for job_id, number in sorted(never)]


def _nodes(stage: StageState) -> Iterator[Node]:
    yield stage, OPENS
    yield stage, WHOLE
    for task in stage.expects:
        yield stage, task


def _before(node: Node, here: dict[str, JobState]) -> Iterator[Node]:
    """What has to happen before this does."""
    stage, task = node
    if task == OPENS:
        for index in stage.waits_for:
            yield stage.job.stages[index], WHOLE
        return
    yield stage, OPENS
    if task == WHOLE:
        for one in stage.expects:
            yield stage, one
    else:
        for _, producer in _producers(stage, task, here):
            yield producer


def _producers(stage: StageState, task: int, here: dict[str, JobState]) -> Iterator[tuple[int, Node]]:
    """The tasks in these jobs whose results the task waits for, with the results' numbers. One that waits for no result
    itself waits for its stage to open."""
    for number in stage.expects.get(task, ()):
        expected = stage.job.expected[number]
        other = here.get(expected.job_id)
        if other is None or (stage.job.id, number) not in other.watched.get(expected.task, ()):
            continue
        source = other.stage_of(expected.task)
        own = expected.task - source.first
        yield number, (source, own if own in source.expects else OPENS)
