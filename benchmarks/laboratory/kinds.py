"""Kinds of jobs, drawn from a generator: what users do to a cluster, from plain batches to cancelled stages."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from benchmarks.laboratory.jobs import LARGE_BYTES, Cancel, Job, Stage, Task, Way
from benchmarks.laboratory.names import node

ZONES = ("a", "b")
MEDIUM_BYTES = 50_000
"""Of a result that goes in messages."""
INPUT_BYTES = 1_100_000
"""Of an input that is uploaded first."""
PAD_BYTES = 120_000
PADDED_TASKS = 32
"""Of a job that travels in several messages, so that its client can die between two of them."""
HANGS_S = 60.0
"""A task that has to be stopped."""
TASK_TIMEOUT_S = 0.4
BUSY_S = 1.0
"""So long a job of many tasks has all slots busy, at most."""
MANY = 200


class Draw:
    """Draws jobs for a cluster of so many slots. storm: tasks are long enough to meet several faults."""

    def __init__(self, rng: random.Random, slots: int, *, storm: bool = False) -> None:
        self._rng = rng
        self._storm = storm
        self._slots = slots

    def batch(self, kinds: Sequence[str], users: Sequence[str], within_s: float) -> Iterator[Job]:
        """Some jobs of these users: the first of these kinds, the others of any."""
        for count in range(self._rng.randint(2, 5)):
            kind = kinds[count] if count < len(kinds) else self._rng.choice(list(KINDS))
            job = KINDS[kind](self)
            user, at_s = self._rng.choice(users), round(self._rng.uniform(0, within_s), 3)
            yield msgspec.structs.replace(job, name=f"{kind}-{count}", user=user, at_s=at_s)

    def stream(self, weights: Mapping[str, int], user: str, name: str) -> Iterator[Job]:
        """Jobs without end, of kinds by their weights. name: what their names begin with."""
        for count in itertools.count():
            kind = self._rng.choices(list(weights), list(weights.values()))[0]
            yield msgspec.structs.replace((KINDS | MORE_KINDS)[kind](self), name=f"{name}-{count}-{kind}", user=user)

    def _job(self, stages: tuple[Stage, ...], way: Way = Way.CALLS, **how: object) -> Job:
        rng = self._rng
        options: dict[str, object] = {
            "max_attempts": rng.choice((1, 2, 2, 3)),
            "prefetch": rng.choice((0, 0, 8, 64)),
            "on_client_lost": rng.choice(("cancel", "finish")),
        }
        return Job(name="", user="", way=way, at_s=0.0, stages=stages, **(options | how))  # type: ignore[arg-type]

    def _many(self, **how: object) -> tuple[Task, ...]:
        """As many as keep all slots busy for a while, so that faults meet tasks that run and tasks that wait."""
        longest_s = self._rng.choice((0.2, 0.6) if self._storm else (0.01, 0.05, 0.2))
        count = round(self._slots * self._rng.uniform(0.2, BUSY_S) / (longest_s / 2))
        return self._tasks(min(count, MANY), min(count, MANY), longest_s, **how)

    def _tasks(self, least: int, most: int, longest_s: float = 0.1, **how: object) -> tuple[Task, ...]:
        count = self._rng.randint(least, most)
        return tuple(self._task(self._rng.uniform(0, longest_s), **how) for _ in range(count))

    @staticmethod
    def _task(duration_s: float, **how: object) -> Task:
        return Task(duration_s=round(duration_s, 4), **how)  # type: ignore[arg-type]

    def flat(self) -> Job:
        """A batch."""
        return self._job((Stage(tasks=self._many()),))

    def captured(self) -> Job:
        """What tasks print comes back."""
        return self._job((Stage(tasks=self._tasks(5, 30)),), capture_output=True)

    def single(self) -> Job:
        """Calls one by one."""
        return self._job((Stage(tasks=self._tasks(5, 60)),), Way.SUBMIT)

    def mapped(self) -> Job:
        """`map`."""
        return self._job((Stage(tasks=self._many()),), Way.MAP)

    def dag(self) -> Job:
        """Stages that come after random others, and take some of their results."""
        rng = self._rng
        sizes: dict[str, int] = {}
        stages = []
        for number in range(rng.randint(2, 5)):
            before = rng.sample(sorted(sizes), rng.randint(1, min(2, len(sizes)))) if sizes and number else []
            tasks = []
            for _ in range(rng.randint(1, 8)):
                inputs = tuple((name, rng.choice((-1, rng.randrange(sizes[name])))) for name in before)
                large = LARGE_BYTES if rng.random() < 0.15 else 0
                inputs = inputs if rng.random() < 0.8 else ()
                tasks.append(
                    self._task(rng.uniform(0, 0.3 if self._storm else 0.05), inputs=inputs, result_bytes=large)
                )
            name = f"s{number}"
            stages.append(Stage(name=name, after=tuple(before), tasks=tuple(tasks)))
            sizes[name] = len(tasks)
        return self._job(tuple(stages), Way.STAGES)

    def large_results(self) -> Job:
        """Results by reference."""
        return self._job((Stage(tasks=self._tasks(3, 10, result_bytes=LARGE_BYTES)),))

    def medium_results(self) -> Job:
        """Results that go in messages, which node monitors remember for a while."""
        return self._job((Stage(tasks=self._tasks(2, 5, result_bytes=MEDIUM_BYTES)),))

    def large_stages(self) -> Job:
        """Results by reference that a later stage needs."""
        first = Stage(name="make", tasks=self._tasks(3, 6, result_bytes=LARGE_BYTES))
        inputs = [("make", task) for task in range(len(first.tasks))]
        second = Stage(name="use", after=("make",), tasks=tuple(self._task(0.03, inputs=(one,)) for one in inputs))
        third = Stage(name="all", after=("use",), tasks=(self._task(0.01, inputs=(("use", -1), ("make", -1))),))
        if self._rng.random() < 0.5:
            return self._job((first, second), Way.STAGES)
        return self._job((first, second, msgspec.structs.replace(third, after=("use", "make"))), Way.STAGES)

    def large_inputs(self) -> Job:
        """Arguments that are uploaded first."""
        return self._job((Stage(tasks=self._tasks(2, 5)),), input_bytes=INPUT_BYTES)

    def flaky(self) -> Job:
        """Tasks that fail, and are started again."""
        attempts = self._rng.choice((2, 3))
        counts = [self._rng.choice((0, 0, 1, 2, 3)) for _ in range(self._rng.randint(4, 20))]
        tasks = tuple(self._task(0.01, fails=fails) for fails in counts)
        return self._job((Stage(tasks=tasks),), retry_failed=True, max_attempts=attempts)

    def failing(self) -> Job:
        """Tasks that fail, and are not started again."""
        tasks = tuple(self._task(0.01, fails=self._rng.choice((0, 0, 1))) for _ in range(self._rng.randint(4, 20)))
        return self._job((Stage(tasks=tasks),))

    def timed(self) -> Job:
        """Some tasks have to be stopped."""
        durations_s = [HANGS_S if self._rng.random() < 0.3 else 0.02 for _ in range(self._rng.randint(3, 8))]
        tasks = tuple(self._task(duration_s) for duration_s in durations_s)
        return self._job((Stage(tasks=tasks),), task_timeout_s=TASK_TIMEOUT_S, max_attempts=self._rng.choice((1, 2)))

    def innocent(self) -> Job:
        """Short tasks that must not be started twice: they meet whatever else is being killed."""
        return self._job((Stage(tasks=self._many()),), max_attempts=1, prefetch=self._rng.choice((0, 64)))

    def slow(self) -> Job:
        """The slowest are submitted again."""
        tasks = (*[self._task(0.03)] * 8, self._task(1.0))
        attempts = self._rng.choice((2, 3))
        return self._job((Stage(tasks=tasks),), speculate=True, prefetch=0, max_attempts=attempts)

    def cancelled(self) -> Job:
        """Cancelled in the middle, as a whole or in part."""
        count = self._rng.randint(20, 60)
        chosen = tuple(sorted(self._rng.sample(range(count), count // 2))) if self._rng.random() < 0.5 else ()
        cancel = Cancel(after_s=round(self._rng.uniform(0, 0.6), 3), running=self._rng.random() < 0.5, tasks=chosen)
        return self._job((Stage(tasks=tuple([self._task(0.1)] * count)),), cancel=cancel)

    def preferring(self) -> Job:
        """Tasks that prefer nodes, for ever or for a while."""
        tasks = tuple(
            self._task(0.02, preferred=(node(self._rng.randrange(2)),) if self._rng.random() < 0.6 else ())
            for _ in range(self._rng.randint(4, 20))
        )
        delay_s = self._rng.choice((None, 0.3))
        return self._job((Stage(name="near", tasks=tasks),), Way.STAGES, delay_s=delay_s)

    def zoned(self) -> Job:
        """Tasks that run on nodes with an attribute."""
        return self._job((Stage(tasks=self._many()),), zone=self._rng.choice(ZONES))

    def demanding(self) -> Job:
        """Tasks that take a resource of their node."""
        return self._job((Stage(tasks=self._tasks(5, 15)),), gpu=True, prefetch=0)

    def commands(self) -> Job:
        """Commands."""
        return self._job((Stage(tasks=self._tasks(5, 40, 0.2)),), Way.COMMAND)

    def over_http(self) -> Job:
        """Commands, as curl would submit them."""
        return self._job((Stage(tasks=self._tasks(3, 15)),), Way.HTTP)

    def nested(self) -> Job:
        """Tasks that wait for tasks of their own."""
        longest_s = 0.6 if self._storm else 0.1
        return self._job((Stage(tasks=self._tasks(3, 12, longest_s, children=self._rng.randint(1, 3))),), prefetch=0)

    def built_in(self) -> Job:
        """Sleeps that a node monitor does by itself; nobody writes down their starts."""
        return self._job((Stage(tasks=self._many()),), Way.BUILT_IN)

    def no_op(self) -> Job:
        """Tasks of no length that a node monitor does by itself, given ahead of time."""
        tasks = tuple([self._task(0.0)] * self._rng.randint(50, 300))
        return self._job((Stage(tasks=tasks),), Way.BUILT_IN, prefetch=16)

    def interrupted(self) -> Job:
        """Its client dies in the middle of the submission."""
        tasks = tuple([self._task(0.01)] * PADDED_TASKS)
        return self._job((Stage(tasks=tasks),), input_bytes=PAD_BYTES, dies_after=self._rng.choice((0, 1, 2)))


KINDS: dict[str, Callable[[Draw], Job]] = {
    "flat": Draw.flat,
    "timed": Draw.timed,
    "dag": Draw.dag,
    "cancelled": Draw.cancelled,
    "innocent": Draw.innocent,
    "commands": Draw.commands,
    "large-stages": Draw.large_stages,
    "interrupted": Draw.interrupted,
    "flaky": Draw.flaky,
    "slow": Draw.slow,
    "over-http": Draw.over_http,
    "mapped": Draw.mapped,
    "large-results": Draw.large_results,
    "preferring": Draw.preferring,
    "large-inputs": Draw.large_inputs,
    "captured": Draw.captured,
    "demanding": Draw.demanding,
    "failing": Draw.failing,
    "single": Draw.single,
    "zoned": Draw.zoned,
    "built-in": Draw.built_in,
    "nested": Draw.nested,
}
"""Kinds of jobs of a round. That of its first job takes turns, so that a short run meets most of them."""
MORE_KINDS: dict[str, Callable[[Draw], Job]] = {"no-op": Draw.no_op, "medium-results": Draw.medium_results}
"""Kinds that take a longer time to show anything."""
