"""Made-up evidence for the laboratory's oracle: a round in which all went well, to be changed by a test."""

from __future__ import annotations

from typing import Any

from benchmarks.chaos.plan import Plan, Scene, zone_of
from benchmarks.laboratory import oracle, work
from benchmarks.laboratory.evidence import Evidence, Program, Run
from benchmarks.laboratory.jobs import Job, Stage, Task, Way
from benchmarks.laboratory.told import Event, Told

S = 1_000_000_000


def job(name: str = "j", tasks: int = 2, **how: Any) -> Job:
    given = how.pop("stages", (Stage(tasks=tuple([Task(duration_s=0.1)] * tasks)),))
    return Job(**{"name": name, "user": "ada", "way": Way.CALLS, "at_s": 0.0, "stages": given} | how)


def planned(*jobs: Job, **how: Any) -> Plan:
    return Plan(**{"seed": 1, "number": 0, "scene": Scene.FAULTS, "placement": "sparrow", "queue": "fair",
                   "schedulers": 1, "slots": (2, 1), "users": {"ada": 1.0, "grace": 1.0}, "jobs": jobs,
                   "faults": ()} | how)  # fmt: skip


def run(task: int = 0, name: str = "j", *, pid: int = 0, at_s: float = 1.0, end_s: float | None = None,
        lasts_s: float | None = 0.1, host: str = "node-0+0") -> Run:  # fmt: skip
    start_ns = int(at_s * S)
    end_ns = None if lasts_s is None else start_ns + int(lasts_s * S)
    return Run(name, task, pid or 100 + task, start_ns, int(end_s * S) if end_s else end_ns, host)


def line(event: Event = Event.OUTCOME, task: int = 0, name: str = "j", at_s: float = 5.0, **more: Any) -> Told:
    if event is Event.OUTCOME:
        mark = work.mark(work.value(name, task, [], 0)) if more.get("status", "finished") == "finished" else None
        more = {"task": task, "status": "finished", "attempts": 1, "mark": mark, "service_s": 0.1} | more
    return Told(**{"event": event, "at_ns": int(at_s * S), "job": name} | more)


def good(*jobs: Job, **how: Any) -> Evidence:
    """A round in which all went well: each task ran once, from second 1 on, one after the other."""
    jobs = jobs or (job(),)
    lines = [line(Event.LIFE, name="", at_s=0.0)]
    runs = []
    for one in jobs:
        lines.append(line(Event.SUBMITTED, name=one.name, at_s=0.5))
        for number, mark in enumerate(oracle.expected_marks(one.name, one)):
            lines.append(line(task=number, name=one.name, mark=mark))
            runs.append(
                run(
                    number, one.name, pid=1000 * jobs.index(one) + number + 1, at_s=1.0 + number + 0.2 * jobs.index(one)
                )
            )
    lines.append(line(Event.OVER, name="", at_s=30.0))
    return evidence_of(planned(*jobs, **how), [Program("ada", 0, tuple(lines))], runs)


def evidence_of(planned: Plan, programs: list[Program], runs: list[Run]) -> Evidence:
    """Of a round in which nobody was disturbed."""
    slots = {f"node-{number}": slots for number, slots in enumerate(planned.slots)}
    zones = {name: zone_of(name) for name in slots}
    return Evidence(slots, {one.name: one for one in planned.jobs}, programs, runs, [], zones=zones)
