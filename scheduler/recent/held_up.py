"""What a job could have taken, what its tasks waited for, and which node and whose tasks held it up: in words."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from scheduler.book.setbacks import Cause
from scheduler.recent.last_task import LastTask, stage_of
from sparrow_py.counted import counted
from sparrow_py.job import FINISHED

if TYPE_CHECKING:
    from scheduler.recent.recent import Recent
    from scheduler.recent.task_log import Ran
    from scheduler.recent.timeline import JobTimeline

OTHERS_MAX = 20_000
"""Records of all jobs that are looked at for those whose tasks ran on a node meanwhile: the latest."""
JOBS_MAX = 10_000
"""Jobs whose records these are."""
RECORDS_PER_TURN = 1_000
USERS_NAMED_MAX = 3
SPENT_ON = {
    Cause.IN_VAIN: "until a start in vain was over",
    Cause.RAN: "in earlier runs of it",
    Cause.PAUSE: "in pauses before retries",
    Cause.RESULTS: "until the results of other jobs that it asks for were there",
    Cause.ROOM: "as nodes had no room for its inputs",
    Cause.INPUTS: "until inputs that had got lost were back",
    Cause.NODES: "until a node that may run it was ready",
}
"""What a wait went to besides a slot, after so many seconds."""


# ---- who ran there meanwhile -------------------------------------------------------------------


@dataclass(slots=True)
class Meanwhile:
    """Seconds that tasks of each user ran on a node between two times, as far as this scheduler remembers. Others have
    their turns between."""

    node: str
    from_s: float
    until_s: float
    by_user: dict[str, float] = field(default_factory=dict)
    _left: Iterator[tuple[str, Ran]] = field(default_factory=lambda: iter(()))

    @classmethod
    def of(cls, last: LastTask, recent: Recent) -> Meanwhile:
        """While this task waited for the slot in which it ran."""
        found = cls(last.node, last.slot_from_s, last.run.started_at_s)
        chains = recent.chains_since(found.from_s, JOBS_MAX)
        found._left = islice(((user, ran) for user, place in chains for ran in recent.tasks.walk(place)), OTHERS_MAX)
        return found

    def goes_on(self) -> bool:
        """Look at some more; whether there are others."""
        taken = 0
        for user, ran in islice(self._left, RECORDS_PER_TURN):
            taken += 1
            if ran.node == self.node:
                began_s, ended_s = max(self.from_s, ran.started_at_s), ran.started_at_s + ran.service_s
                if (seconds := min(self.until_s, ended_s) - began_s) > 0:  # Never of what is no number.
                    self.by_user[user] = self.by_user.get(user, 0.0) + seconds
        return taken == RECORDS_PER_TURN


# ---- in words ----------------------------------------------------------------------------------


def in_words(
    job: JobTimeline,
    after: Sequence[Sequence[int]],
    last: LastTask | None,
    meanwhile: Meanwhile | None,
    may_see: Callable[[str], bool],
) -> list[str]:
    """What is known of the job: its ideal, its waits, and what held it up. after: of each stage of `job` those that
    come before it. may_see: whether whoever asks may see this user's jobs; of others there are no names."""
    if last is None:
        return []
    return [_ideal(job, after), _waits(job), *_held_up(job, last, meanwhile, may_see)]


def ideal_s(longest_s: Sequence[float], after: Sequence[Sequence[int]]) -> float:
    """The sum of the stages' longest tasks, along the chain of stages where it is largest. Stages come in any order."""
    ends_s: dict[int, float] = {}
    left = list(range(len(longest_s)))
    while left:
        ready = [stage for stage in left if all(one in ends_s for one in after[stage] if one < len(longest_s))]
        if not ready:  # A circle, which no job has.
            break
        for stage in ready:
            ends_s[stage] = longest_s[stage] + max((ends_s.get(one, 0.0) for one in after[stage]), default=0.0)
        left = [stage for stage in left if stage not in ends_s]
    return max(ends_s.values(), default=0.0)


def _ideal(job: JobTimeline, after: Sequence[Sequence[int]]) -> str:
    longest_s = [0.0] * len(job.stages)
    for run in job.runs:
        stage = stage_of(job, run)
        longest_s[stage] = max(longest_s[stage], run.service_s)
    ideal = ideal_s(longest_s, after)
    end_s = job.now_s if job.ended_at_s is None else job.ended_at_s
    took_s = max(0.0, end_s - job.submitted_at_s)
    times = f", {took_s / ideal:.1f} times as long" if ideal > 0 else ""
    whose = "its longest" if len(job.stages) == 1 else "the longest of stages that come after each other"
    verb = "it has taken" if job.ended_at_s is None else "it took"
    return f"ideal: {_shown(ideal)}, if each task had started at once, as {whose} ran; {verb} {_shown(took_s)}{times}"


def _waits(job: JobTimeline) -> str:
    waits_s = []
    for run in job.runs:
        if (reserved_at_s := job.stages[stage_of(job, run)].reserved_at_s) is not None:
            waits_s.append(max(0.0, run.started_at_s - reserved_at_s))
    unfinished = sum(run.status != FINISHED.value for run in job.runs)
    failed = f"; {unfinished:,} of them did not finish" if unfinished else ""
    more = f" (of {counted(job.more_runs, 'other')} nothing is remembered)" if job.more_runs else ""
    if not waits_s:
        return f"waits: not known of any of its {counted(len(job.runs), 'run')}{more}{failed}"
    half_s = statistics.median(waits_s)
    return (
        f"waits: half of its {counted(len(waits_s), 'run')}{more} began within {_shown(half_s)} of when "
        f"nodes were sought, all within {_shown(max(waits_s))}{failed}"
    )


def _held_up(
    job: JobTimeline, last: LastTask, meanwhile: Meanwhile | None, may_see: Callable[[str], bool]
) -> list[str]:
    so_far = " so far" if job.ended_at_s is None else ""
    ran, waited = _shown(last.run.service_s), _shown(last.waited_s)
    of_stage = f"of {f'stage {last.of_stage}' if last.of_stage else 'its stage'} "
    place = f"the last to end{so_far}" if last.of_stage is None else f"the last {of_stage}to end"
    if not last.held_up:
        return [f"held up by: task {last.run.task}, {place}, ran for {ran} on {last.node} (wait {waited})"]
    which = f"held up by: task {last.run.task}, {place}, waited {waited}"
    others, slot_s = last.parts()
    if others:
        spent = ", ".join(_spent(*other) for other in others)
        said = [
            f"{which}: {spent}, and {_shown(slot_s)} for a slot, which it got on {last.node}; then it ran for {ran}"
        ]
    else:
        said = [f"{which} for a slot, which it got on {last.node}, and ran for {ran}"]
    if not last.is_whole:
        said.append("of what kept its tasks from starting besides, not all is remembered")
    if meanwhile is not None:
        said.append(_occupants(job.user, meanwhile, may_see))
    return said


def _spent(cause: Cause, seconds: float, reason: str) -> str:
    return f"{_shown(seconds)} {SPENT_ON[cause]}{f' ({reason})' if reason else ''}"


def _occupants(own: str, meanwhile: Meanwhile, may_see: Callable[[str], bool]) -> str:
    seconds: dict[str, float] = {}
    for user, some_s in meanwhile.by_user.items():
        name = "its own user" if user == own else f"user {user}" if may_see(user) else "other users"
        seconds[name] = seconds.get(name, 0.0) + some_s
    if not seconds:
        return f"no task that this scheduler remembers ran on {meanwhile.node} meanwhile: other schedulers' may have"
    most = sorted(seconds, key=lambda name: (-seconds[name], name))
    named = ", ".join(f"{name} ({_shown(seconds[name])})" for name in most[:USERS_NAMED_MAX])
    more = f" and {len(most) - USERS_NAMED_MAX:,} more" if len(most) > USERS_NAMED_MAX else ""
    return f"meanwhile {meanwhile.node} ran tasks of {named}{more}, of this scheduler's"


def _shown(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds < 1000 else f"{seconds:,.0f} s"
