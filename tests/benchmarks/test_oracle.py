"""Every check of the laboratory's oracle finds the violations that are planted for it, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from benchmarks.laboratory import jobs, kinds, oracle, work
from benchmarks.laboratory.evidence import Evidence
from benchmarks.laboratory.faults import Happened, Kind
from benchmarks.laboratory.jobs import Job, Stage, Task, Way
from benchmarks.laboratory.told import Event, Told
from tests.support.evidence import S, good, job, line, run


def with_lines(found: Evidence, change: Callable[[Told], Told | None], *more: Told) -> Evidence:
    """Lines changed, left out, or added before the last."""
    (program,) = found.programs
    changed = [new for old in program.lines if (new := change(old)) is not None]
    return replace(found, programs=[replace(program, lines=(*changed[:-1], *more, changed[-1]))])


def outcome(found: Evidence, task: int, **how: Any) -> Evidence:
    """That task's outcome is another."""

    def change(old: Told) -> Told:
        return msgspec.structs.replace(old, **how) if (old.event, old.task) == (Event.OUTCOME, task) else old

    return with_lines(found, change)


def fault(kind: Kind, at_s: float = 0.7, target: str = "node-0") -> Happened:
    return Happened(int(at_s * S), kind, target)


def stages() -> Job:
    first = Stage(name="a", tasks=(Task(duration_s=0.1), Task(duration_s=0.1)))
    second = Stage(name="b", after=("a",), tasks=(Task(duration_s=0.1, inputs=(("a", -1), ("a", 1))),))
    return job(stages=(first, second), way=Way.STAGES)


def ended_by_death(found: Evidence) -> Evidence:
    """The program was killed instead of coming to its end, after its job was accepted."""
    (program,) = found.programs
    kept = [one for one in program.lines if one.event not in (Event.OVER, Event.OUTCOME)]
    return replace(found, programs=[replace(program, lines=(*kept, line(Event.ACCEPTED, at_s=0.6)))])


def late(found: Evidence) -> Evidence:
    """A task is started when it has been told of."""
    return replace(found, runs=[*found.runs, run(0, at_s=6, pid=7)])


def no(kind: Event, task: int) -> Callable[[Told], Told | None]:
    return lambda old: None if (old.event, old.task) == (kind, task) else old


def same(old: Told) -> Told:
    return old


LOST = {"status": "lost", "error": "gone", "mark": None}
FAILED = {"status": "failed", "error": "PlannedFailure: so", "mark": None}
CANCELLED = {"status": "cancelled", "error": "why", "mark": None}
FAILS = (Stage(tasks=(Task(duration_s=0.1, fails=1), Task(duration_s=0.1))),)

PLANTED: dict[str, list[Callable[[], Evidence]]] = {
    "every job ends": [lambda: with_lines(good(), no(Event.OUTCOME, 1))],
    "every end has a reason": [
        lambda: outcome(replace(good(), happened=[fault(Kind.KILL_NODE)]), 0, **LOST | {"error": "", "attempts": 3}),
        lambda: outcome(good(), 0, status="vanished", mark=None),
    ],
    "no job is refused": [
        lambda: with_lines(good(), lambda old: None if old.event is Event.OUTCOME else old,
                           line(Event.REFUSED, error="full")),
        lambda: replace(
            with_lines(good(job(input_bytes=kinds.INPUT_BYTES)),
                       lambda old: None if old.event is Event.OUTCOME else old, line(Event.REFUSED, error="no node")),
            happened=[fault(Kind.KILL_NODE)],
        ),
    ],
    "http jobs end with their scheduler only": [
        lambda: with_lines(good(job(way=Way.HTTP)), no(Event.OUTCOME, 1), line(Event.GONE, error="broke off"))
    ],
    "outcomes are told once": [
        lambda: with_lines(good(), same, line(task=1)),
        lambda: with_lines(good(), same, line(Event.TWICE, error="accepted, twice")),
    ],
    "values are right": [
        lambda: outcome(good(), 1, mark="other"),
        lambda: outcome(good(stages()), 2, mark=work.value("j", 2, [], 0)),
        lambda: outcome(good(job(capture_output=True, tasks=1)), 0, stdout="j 1\n"),
    ],
    "what finished has ended": [
        lambda: replace(good(), runs=[run(0)]),
        lambda: replace(good(), runs=[run(0), run(1, lasts_s=None)]),
    ],
    "times are of a monotonic clock": [
        lambda: outcome(good(), 0, service_s=3600.0), lambda: outcome(good(), 0, service_s=-1.0),
    ],
    "starts are limited": [
        lambda: outcome(
            replace(good(job(max_attempts=2)), happened=[fault(Kind.KILL_NODE)],
                    runs=[run(0), run(1), run(0, at_s=2, pid=7), run(0, at_s=6, pid=8)]), 0, attempts=2
        ),
        lambda: replace(good(job(max_attempts=1)), happened=[fault(Kind.KILL_PAIR)],
                        runs=[run(0), run(1), run(0, at_s=6, pid=7)]),
    ],
    "attempts say the truth": [
        lambda: replace(good(), happened=[fault(Kind.KILL_NODE)], runs=[run(0), run(1), run(0, at_s=2, pid=7)]),
        lambda: outcome(good(), 0, attempts=4),
    ],
    "restarts are explained": [
        lambda: outcome(replace(good(), runs=[run(0), run(1), run(0, at_s=2, pid=7)]), 0, attempts=2),
        lambda: outcome(
            replace(
                good(), happened=[fault(Kind.KILL_PAIR, target="node-1")],
                runs=[run(0), run(1), run(0, at_s=2, pid=7)]
            ), 0, attempts=2,
        ),
        lambda: outcome(replace(good(job(stages=FAILS)), runs=[run(0), run(1), run(0, at_s=2, pid=7)]), 0, attempts=2),
    ],
    "nothing starts after its outcome": [
        lambda: late(good(job("j", prefetch=8), job("k", speculate=True))),
    ],
    "losses are explained": [
        lambda: outcome(good(), 0, **LOST | {"attempts": 3}),
        lambda: outcome(replace(good(), happened=[fault(Kind.KILL_NODE)]), 0, **LOST | {"attempts": 2}),
        lambda: outcome(replace(good(job(max_attempts=1)), happened=[fault(Kind.KILL_NODE, 5.5)]), 0, **LOST),
        lambda: outcome(replace(good(), happened=[fault(Kind.CLOCK)]), 0, **LOST | {"attempts": 3}),
        lambda: outcome(
            replace(good(), happened=[fault(Kind.KILL_NODE, target="node-1")]), 0, **LOST | {"attempts": 3}
        ),
    ],
    "failures are explained": [
        lambda: outcome(good(), 0, **FAILED),
        lambda: outcome(good(job(stages=FAILS, retry_failed=True)), 0, **FAILED),
        lambda: good(job(stages=FAILS)),
        lambda: outcome(good(job(task_timeout_s=0.4)), 0, status="failed", error="timed out", mark=None),
    ],
    "cancellations are explained": [
        lambda: outcome(good(), 0, **CANCELLED),
        lambda: outcome(good(stages()), 2, **CANCELLED),
        lambda: with_lines(outcome(good(job(cancel=jobs.Cancel(after_s=1.0, running=False))), 0, **CANCELLED), same,
                           line(Event.CANCELLED, at_s=0.6)),
    ],
    "results are lost with nodes only": [
        lambda: outcome(replace(good(), happened=[fault(Kind.KILL_SCHEDULER)]), 0, result_lost=True, error="404"),
    ],
    "jobs finish without their client": [
        lambda: replace(ended_by_death(good(job(on_client_lost="finish"))), runs=[run(0)]),
        lambda: replace(ended_by_death(good(job(on_client_lost="finish"))), runs=[run(0), run(1, lasts_s=None)]),
    ],
    "no node runs more than its slots": [
        lambda: replace(good(job(tasks=3)), runs=[run(0), run(1), run(2)]),
        lambda: replace(good(job(gpu=True)), runs=[run(0), run(1)]),
    ],
    "workers run one task at a time": [
        lambda: replace(good(), runs=[run(0, pid=7), run(1, pid=7, at_s=1.05)]),
        lambda: outcome(
            replace(good(), happened=[fault(Kind.KILL_WORKER)],
                    runs=[run(0, pid=7, lasts_s=None), run(1, pid=7, at_s=3), run(0, at_s=4)]), 0, attempts=2
        ),
    ],
    "workers belong to one user": [
        lambda: replace(good(job("j", 1), job("k", 1, user="grace")),
                        runs=[run(0, "j", pid=7), run(0, "k", pid=7, at_s=2)]),
    ],
    "tasks run where they may": [
        lambda: good(job(zone="b")),
        lambda: good(job(stages=(Stage(tasks=(Task(duration_s=0.1, preferred=("node-1",)),)),))),
    ],
    "stages come in order": [
        lambda: replace(good(stages()), runs=[run(0), run(1, at_s=2), run(2, at_s=2.05)]),
        lambda: outcome(
            replace(good(stages()), happened=[fault(Kind.KILL_NODE)],
                    runs=[run(0), run(1, at_s=2, lasts_s=None), run(2, at_s=4), run(1, at_s=4.5, pid=9)]), 1, attempts=2
        ),
    ],
    "nothing is left": [lambda: replace(good(), troubles=["node-0: 3 reservations"])],
}  # fmt: skip
"""By the name of the check that is to find it, and no other."""


@pytest.mark.parametrize(
    ("name", "planted"), [(name, planted) for name, all_planted in PLANTED.items() for planted in all_planted]
)
def test_a_planted_violation_is_found(name: str, planted: Callable[[], Evidence]) -> None:
    violations = list(oracle.judge(planted()))
    assert {violation.partition(":")[0] for violation in violations} == {name}, violations


def test_every_check_has_a_violation_planted() -> None:
    assert {check.__name__.replace("_", " ") for check in oracle.CHECKS} == set(PLANTED)


@pytest.mark.parametrize(
    "found",
    [
        good(),
        good(stages()),
        good(job("j"), job("k", user="grace"), job("l", zone="a")),
        # Lost with all attempts used up, after a death.
        outcome(replace(good(), happened=[fault(Kind.KILL_NODE)]), 0, **LOST | {"attempts": 3}),
        # Its scheduler died, or a node that it was sent to, and never started at.
        outcome(replace(good(), happened=[fault(Kind.KILL_PAIR, target="scheduler-0")]), 0, **LOST | {"attempts": 3}),
        outcome(replace(good(), happened=[fault(Kind.KILL_NODE, target="node-1")], runs=[run(1)]), 0,
                **LOST | {"attempts": 3}),
        # The node that had it first stood still and was given up; it went on with it later.
        outcome(replace(good(), happened=[fault(Kind.STOP_MACHINE, target="node-1")],
                        runs=[run(0), run(1), run(0, at_s=2, pid=7, host="node-1+0")]), 0, attempts=2),
        # Failed as it was to; again, and then finished.
        outcome(good(job(stages=FAILS)), 0, **FAILED),
        outcome(replace(good(job(stages=FAILS, retry_failed=True)), runs=[run(0), run(1), run(0, at_s=2, pid=7)]), 0,
                attempts=2),
        # Stopped when its time was over.
        outcome(replace(good(job(task_timeout_s=0.4)), runs=[run(0, lasts_s=None), run(1)]), 0, **FAILED),
        # Cancelled before it started, and what comes after what failed.
        with_lines(outcome(replace(good(job(cancel=jobs.Cancel(after_s=1.0, running=False))), runs=[run(1)]), 0,
                           **CANCELLED), same, line(Event.CANCELLED, at_s=0.6)),
        # A copy of a slow task.
        replace(good(job(speculate=True, max_attempts=2)), runs=[run(0), run(1, at_s=2), run(0, at_s=1.05, pid=7)]),
        # It went on without its client, which was only cut off.
        outcome(replace(good(job(max_attempts=2, on_client_lost="finish")),
                        happened=[fault(Kind.ISOLATE_CLIENT, target="ada"), fault(Kind.KILL_NODE)],
                        runs=[run(0), run(1), run(0, at_s=2, pid=7), run(0, at_s=3, pid=8)]), 0, attempts=2),
        # Its scheduler died, and its program.
        with_lines(replace(good(job(way=Way.HTTP)), happened=[fault(Kind.KILL_SCHEDULER)]), no(Event.OUTCOME, 1),
                   line(Event.GONE)),
        replace(ended_by_death(good(job(on_client_lost="cancel"))), runs=[run(0)]),
    ],
)  # fmt: skip
def test_what_is_allowed_is_no_violation(found: Evidence) -> None:
    assert list(oracle.judge(found)) == []


def test_the_clock_of_commands_has_steps() -> None:
    found = replace(good(job(tasks=3, way=Way.COMMAND)), runs=[run(0), run(1), run(2, at_s=1.1)])
    assert list(oracle.judge(found)) == [], "one may have ended 10 ms later than it wrote, another begun so"
