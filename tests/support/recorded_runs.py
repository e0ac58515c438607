"""Load runs as a cluster might have left them behind: made up, small, and the same each time."""

import heapq
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.measures import figures, ideal_s
from loadgen.recorded import EVENTS, JOBS, TASKS, Header, Point, Run, Simulated, SimulatedPoint, table

Row = dict[str, Any]

QUERIES: dict[str, list[tuple[str, int, float, list[int]]]] = {
    "q3": [("scan", 8, 0.08, []), ("group-by", 4, 0.05, [0]), ("order-by", 1, 0.03, [1])],
    "q4": [("scan", 6, 0.06, []), ("group-by", 3, 0.04, [0])],
    "q6": [("scan", 8, 0.03, [])],
    "q12": [("scan lineitem", 6, 0.07, []), ("scan orders", 4, 0.05, []), ("join", 4, 0.04, [0, 1])],
}
"""Of each query its stages: name, tasks, mean seconds of a task, and the stages it waits for."""

PLAIN = {"": [("", 10, 0.1, [])]}
"""Jobs that are all alike: ten tasks of 100 ms."""


@dataclass
class Made:
    """Makes one point. The cluster is a list of when each slot is free; `placement` says how a task finds its slot."""

    number: int = 0
    placement: str = "sparrow"
    profile: str = "default"
    policy: str = ""
    load: float = 0.6
    probe_ratio: float = 2.0
    queries: dict[str, list[tuple[str, int, float, list[int]]]] = field(default_factory=lambda: QUERIES)
    users: Sequence[str] = ("user0", "user1")
    jobs: int = 80
    nodes: int = 10
    slots: int = 4
    seed: int = 7
    duration_ms: float | None = None
    tasks_sleep: bool = False
    overhead_s: float = 0.002
    failing: frozenset[int] = frozenset({30})
    """Numbers of jobs of which a task fails: it has no end, and the later stages' tasks no start."""
    valid: bool = True

    def rows(self) -> tuple[list[Row], list[Row], list[Row]]:
        """Of jobs, tasks and events."""
        rng = random.Random(f"{self.seed} {self.placement} {self.probe_ratio}")
        self.free_at = [0.0] * (self.nodes * self.slots)
        plans = list(self._plans())
        ready: list[tuple[float, int, int]] = []
        ends: list[dict[int, float]] = [{} for _ in plans]
        tasks: list[Row] = []
        for job, (_, label, due_s, _) in enumerate(plans):
            for stage, (_, _, _, after) in enumerate(self.queries[label]):
                if not after:
                    heapq.heappush(ready, (due_s + 0.0005, job, stage))
        while ready:
            at_s, job, stage = heapq.heappop(ready)
            rows = list(self._stage(rng, plans[job], job, stage, at_s))
            tasks += rows
            if job in self.failing:
                rows[-1] |= {"status": "failed", "finished_s": math.nan, "service_s": math.nan}
                continue
            ends[job][stage] = max(row["finished_s"] for row in rows)
            for later, (_, _, _, after) in enumerate(self.queries[plans[job][1]]):
                if stage in after and all(before in ends[job] for before in after):
                    heapq.heappush(ready, (max(ends[job][before] for before in after), job, later))
        rows_of_jobs = [self._job(number, plan, tasks) for number, plan in enumerate(plans)]
        events = [
            self._row(at_s=0.1 * number, kind=kind, count=2 + number % 3, user=self.users[0])
            for number in range(20)
            for kind in ("noop", "cancelled")
        ]
        return rows_of_jobs, tasks, events

    def point(self, rows: tuple[list[Row], list[Row], list[Row]]) -> Point:
        """What the header says of it."""
        settings = {
            "placement": self.placement, "policy": self.policy, "profile": self.profile,
            "load": self.load, "probe_ratio": self.probe_ratio,
            "duration_ms": self.duration_ms, "nodes": self.nodes, "slots": self.slots, "schedulers": 2,
            "generators": 2, "seed": self.seed, "workload": "made up", "tasks_sleep": self.tasks_sleep,
        }  # fmt: skip
        count = len(rows[1])
        counts = {
            "jobs": self.jobs, "tasks": count, "noops": count // 2, "asks": count + count // 2,
            "reservations": 2 * count, "cancelled_reservations": count // 4, "retries": 1, "refused_jobs": 0,
        }  # fmt: skip
        cpu_s = {"schedulers": 80e-6 * count, "node_monitors": 130e-6 * count, "generators": 60e-6 * count}
        late = {"p50_ms": 0.2, "p99_ms": 1.4, "max_ms": 3.1 if self.valid else 250.0}
        found = figures(
            table(JOBS, rows[0]), table(TASKS, rows[1]), slots=self.nodes * self.slots, counts=counts, cpu_s=cpu_s
        )
        return Point(
            point=self.number, settings=settings, label=self.placement, valid=self.valid,
            why_invalid="" if self.valid else "the generator was 250 ms late with job 12",
            late=late, counts=counts, cpu_s=cpu_s, lasted_s=12.5, figures=found,
        )  # fmt: skip

    def _plans(self) -> Iterator[tuple[int, str, float, str]]:
        """Of each job: number, query, due, user. They depend on the seed and the load alone."""
        rng = random.Random(self.seed)
        scale = 1.0 if self.duration_ms is None else self.duration_ms / 100
        work_s = [sum(tasks * mean_s * scale for _, tasks, mean_s, _ in stages) for stages in self.queries.values()]
        rate = self.load * self.nodes * self.slots / (sum(work_s) / len(work_s))
        at_s = 0.0
        for number in range(self.jobs):
            at_s += rng.expovariate(rate)
            yield number, list(self.queries)[number % len(self.queries)], at_s, rng.choice(list(self.users))

    def _stage(
        self, rng: random.Random, plan: tuple[int, str, float, str], job: int, stage: int, ready_s: float
    ) -> Iterator[Row]:
        number, label, due_s, _ = plan
        name, count, mean_s, _ = self.queries[label][stage]
        service = random.Random(f"{self.seed} {number} {stage}")
        sampled = rng.sample(range(len(self.free_at)), min(len(self.free_at), math.ceil(count * self.probe_ratio)))
        for task in range(count):
            of = [rng.randrange(len(self.free_at))] if self.placement == "random" else sampled
            if self.placement == "per-task":
                of = rng.sample(range(len(self.free_at)), math.ceil(self.probe_ratio))
            slot = min(of, key=lambda slot: self.free_at[slot])
            started_s = max(ready_s, self.free_at[slot]) + self.overhead_s
            scale = 1.0 if self.duration_ms is None else self.duration_ms / 100
            service_s = mean_s * scale * (1.0 if label == "" else service.uniform(0.6, 1.6))
            self.free_at[slot] = started_s + service_s
            yield self._row(
                job=job, stage=stage, stage_name=name, task=task, constrained=stage == 0 and name != "",
                status="finished", node=f"node{slot // self.slots}", scheduler=f"scheduler{number % 2}", attempts=1,
                arrived_s=due_s + 0.0005, reserved_s=ready_s + 0.0002, asked_s=started_s - 0.001,
                launched_s=started_s - 0.0005, started_s=started_s, finished_s=started_s + service_s,
                service_s=service_s,
            )  # fmt: skip

    def _job(self, number: int, plan: tuple[int, str, float, str], tasks: list[Row]) -> Row:
        _, label, due_s, user = plan
        stages = self.queries[label]
        own = [row for row in tasks if row["job"] == number]
        failed = number in self.failing
        times = [[row["service_s"] for row in own if row["stage"] == stage] for stage in range(len(stages))]
        ended_s = due_s + 0.3 if failed else max(row["finished_s"] for row in own)
        after = [after for _, _, _, after in stages]
        return self._row(
            job=number, label=label, user=user, tasks=sum(tasks for _, tasks, _, _ in stages), stages=len(stages),
            after=after, measured=self.jobs * 0.1 <= number < self.jobs * 0.95,
            status="failed" if failed else "finished", due_s=due_s, submitted_s=due_s + 0.0002, ended_s=ended_s,
            response_s=ended_s - due_s, ideal_s=math.nan if failed else ideal_s(after, times),
        )  # fmt: skip

    def _row(self, **cells: Any) -> Row:
        return {"point": self.number, **cells}


def made_run(points: Sequence[Made], *, simulated: bool = False, **header: Any) -> Run:
    """A run of these points, numbered from 0."""
    found, jobs, tasks, events = [], [], [], []
    for number, made in enumerate(points):
        made.number = number
        rows = made.rows()
        found.append(made.point(rows))
        for all_rows, more in zip((jobs, tasks, events), rows, strict=True):
            all_rows.extend(more)
    texts = {"title": "A made-up run", "command": "python -m loadgen run --preset made-up --report out/", **header}
    curve = None
    if simulated:
        of = {(made.load, made.probe_ratio) for made in points}
        values = [SimulatedPoint(load, d, 100 + 30 * load**3 / (d * (1 - load))) for load, d in sorted(of)]
        curve = Simulated(points=values, command="python -m simulator run --load 0.5")
    return Run(
        Header(points=found, simulated=curve, **texts), table(JOBS, jobs), table(TASKS, tasks), table(EVENTS, events)
    )


def queries_run(**changes: Any) -> Run:
    """Three placements, two users, four queries of several stages, a job that failed."""
    return made_run([Made(placement=placement, **changes) for placement in ("sparrow", "batch", "random")])


def sweep_run(**changes: Any) -> Run:
    """Loads and probe ratios, jobs all alike, with the simulator's curve."""
    points = [
        Made(load=load, probe_ratio=d, queries=PLAIN, failing=frozenset(), **changes)
        for d in (1.0, 1.5, 2.0, 3.0)
        for load in (0.3, 0.5, 0.7, 0.8, 0.9)
    ]
    return made_run(points, simulated=True)


def durations_run(**changes: Any) -> Run:
    """Task durations from 10 ms to 5 s."""
    points = [
        Made(duration_ms=float(ms), load=0.25, queries=PLAIN, failing=frozenset(), **changes)
        for ms in (10, 20, 50, 100, 500, 1000, 5000)
    ]
    return made_run(points)
