"""What is remembered of a job, read bit by bit: everybody else has turns of the loop between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from scheduler.book.jobs import JobState
from scheduler.recent import timeline
from scheduler.recent.gone_jobs import STAGES_MAX, GoneJob, GoneStage, stages_before
from scheduler.recent.held_up import Meanwhile, in_words
from scheduler.recent.last_task import held_up_by
from scheduler.recent.recent import Recent
from scheduler.recent.timeline import JobTimeline

Known = JobState | GoneJob


async def timeline_of(recent: Recent, find: Callable[[], Known], now_s: Callable[[], float]) -> JobTimeline:
    """The tasks in time of the job that `find` finds, and finds again after the log was read: it may have ended
    meanwhile."""
    found, tasks = find(), recent.tasks
    walk = timeline.Walk(tasks, found.place if isinstance(found, GoneJob) else tasks.latest(found.id))
    while walk.goes_on():
        await asyncio.sleep(0)
    found = find()
    if isinstance(found, GoneJob):
        return timeline.of_gone_job(found, walk, now_s())
    return timeline.of_job(found, walk, recent.slots, now_s())


async def so_far(
    recent: Recent, find: Callable[[], Known], now_s: Callable[[], float], may_see: Callable[[str], bool]
) -> list[str]:
    """Of the job what it could have taken, its waits, and what held it up, in words. may_see: whether whoever asks may
    see this user's jobs."""
    job = await timeline_of(recent, find, now_s)
    found, meanwhile = find(), None
    after = [
        stage.after if isinstance(stage, GoneStage) else stages_before(stage) for stage in found.stages[:STAGES_MAX]
    ]
    last = held_up_by(job, after, recent.setbacks)
    if last is not None and last.held_up and last.waited_for_slot:
        meanwhile = Meanwhile.of(last, recent)
        while meanwhile.goes_on():
            await asyncio.sleep(0)
    return await asyncio.to_thread(in_words, job, after, last, meanwhile, may_see)
