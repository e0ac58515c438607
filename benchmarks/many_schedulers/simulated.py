"""The simulated tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.many_schedulers.costs import COSTS
from benchmarks.report import Report, Row
from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.figures.sweep import Figures, Point, run
from simulator.network import Delay
from simulator.policies import Settings

MEAN_MS = 100.0
TASKS = 10
"""Of each job."""
JOBS_MIN = 20
RTT_MS = 1.0
WANTED_PER_S = 1_000_000
"""The paper asks for "millions of task scheduling decisions per second" (§2): this is one."""
SENSIBLY_BUSY = 0.7
"""Share of the time for which a scheduler should work at most: beyond it queues grow."""
CORES = 2
"""Of a machine of schedulers, each of which uses one."""


@dataclass(frozen=True)
class Plan:
    """A table for each profile, with a row for each number of schedulers. tasks_per_slot: how long each run is."""

    nodes: int
    slots: int
    load: float
    tasks_per_slot: int
    counts: tuple[int, ...]
    profiles: tuple[str, ...]
    seed: int = 1

    @property
    def jobs(self) -> int:
        """Of each run."""
        return max(JOBS_MIN, self.nodes * self.slots * self.tasks_per_slot // TASKS)

    @property
    def tasks_per_s(self) -> float:
        """Tasks that arrive."""
        return self.load * self.nodes * self.slots / (MEAN_MS / 1000)

    def point(self, profile: str, schedulers: int) -> Point:
        """One simulation."""
        delay = Delay("fixed", RTT_MS / 2)
        return Point(
            cluster=Cluster(nodes=self.nodes, slots=self.slots, schedulers=schedulers, delay=delay, costs=COSTS),
            workload=Synthetic(load=self.load, tasks=TASKS, jobs=self.jobs, durations=Durations(mean_ms=MEAN_MS)),
            policy="sparrow",
            settings=Settings.of(profile),
            seed=self.seed,
        )


def measure(plan: Plan, results: Path) -> Report:
    """All tables; what is in the file is not computed again."""
    points = {(name, count): plan.point(name, count) for name in plan.profiles for count in plan.counts}
    found = run("many_schedulers", points.values(), results, processes=1)
    rows = {name: [row(plan, count, found[points[name, count].key]) for count in plan.counts] for name in plan.profiles}
    last = rows[plan.profiles[-1]][0]
    what = f"{plan.nodes:,} × {plan.slots} slots at {plan.load:.0%} load, {plan.tasks_per_s:,.0f} tasks/s"
    return Report(
        "many_schedulers",
        last["most tasks/s"] / last["schedulers"],
        "tasks per second that one scheduler can place, by the model",
        {f"profile {name}, {what}": rows[name] for name in plan.profiles},
        [{"profile": name, "schedulers": count, **found[point.key]} for (name, count), point in points.items()],
        [needed(name, rows[name]) for name in plan.profiles],
    )


def row(plan: Plan, schedulers: int, figures: Figures) -> Row:
    """What one simulation shows. Shares of time are of that in which its tasks arrive."""
    tasks = plan.jobs * TASKS
    scheduler_us, node_us = (figures[f"{kind}_busy_us"] / tasks for kind in ("scheduler", "node_monitor"))
    at_once, cost = plan.tasks_per_s / 1e6, COSTS.scheduler
    awake_us = cost.frame_us * figures["scheduler_frames"] + cost.message_us * figures["scheduler_messages"]
    return {
        "schedulers": schedulers,
        "messages per task": figures["scheduler_messages"] / tasks,
        "messages per frame": figures["scheduler_messages"] / figures["scheduler_frames"],
        "schedulers' µs per task": scheduler_us,
        "node monitors' µs per task": node_us,
        "busy": f"{100 * scheduler_us * at_once / schedulers:.1f} %",
        "node monitor busy": f"{100 * node_us * at_once / plan.nodes:.2f} %",
        "most tasks/s": round(schedulers * 1e6 * tasks / awake_us),
        "over ideal ms p50": figures["over_ideal_p50_ms"],
        "over ideal ms p95": figures["over_ideal_p95_ms"],
        "wait ms p50": figures["wait_p50_ms"],
    }


def needed(profile: str, rows: Sequence[Row]) -> str:
    """How many schedulers `WANTED_PER_S` need, by the last row."""
    schedulers = math.ceil(WANTED_PER_S * rows[-1]["schedulers"] / rows[-1]["most tasks/s"] / SENSIBLY_BUSY)
    node_per_s = 1e6 / rows[-1]["node monitors' µs per task"]
    return (
        f"{profile}: {WANTED_PER_S:,} tasks/s need {schedulers} schedulers that work {SENSIBLY_BUSY:.0%} of the time, "
        f"on {math.ceil(schedulers / CORES)} machines of {CORES} cores; a node monitor could take {node_per_s:,.0f}/s."
    )
