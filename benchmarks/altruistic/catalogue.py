"""Figures of paper 002, as tables of ours beside the paper's numbers.

A run is one scheduler's, so figures that show the same runs from other sides share them: 1 and 4; 5 to 8, table 3, and
parts of 9 to 12, `fair`, table 4 and `2.2`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.altruistic.aims import (
    Medians,
    of_frontier,
    of_leftovers,
    of_offline,
    of_online,
    of_single_jobs,
    of_tetris_fair,
)
from benchmarks.altruistic.setups import BASE, MAP_REDUCE, Run
from benchmarks.flow.outcome import Target

Row = dict[str, Any]


@dataclass(frozen=True)
class Scale:
    """How large figures are played: as many jobs for a machine everywhere, and as many arrivals. seeds_of_sweeps: of
    figures that change one thing again and again. is_short: some of their workloads and settings are left out."""

    name: str
    jobs: int
    machines: int
    seeds: int
    seeds_of_sweeps: int
    is_short: bool = False


FULL = Scale("full", 250, 100, 20, 5)
"""The paper's cluster."""
MIDDLE = Scale("middle", 60, 24, 10, 3)
"""A quarter of that."""
QUICK = Scale("quick", 10, 4, 1, 1, is_short=True)
SCALES = {scale.name: scale for scale in (FULL, MIDDLE, QUICK)}

ONLINE_MEAN_S = 20.0
"""Between arrivals, on 100 machines."""
MEAN_S = {"tpch": 3.0}
"""Of workloads that leave 100 machines idle at that (docs/altruistic-workloads.md)."""
MAP_REDUCE_PER_JOB, MAP_REDUCE_MEAN_S = 8, 1.2
"""So many of those jobs in place of each other one; between arrivals, on 100 machines."""
OFFLINE = ("drf", "tetris", "altruistic", "srtf", "sjf")
ONLINE = ("drf", "tetris", "altruistic", "srtf", "sjf")
WORKLOADS = ("tpcds", "tpch", "bigbench", "production")


@dataclass(frozen=True)
class Case:
    """Runs that differ by scheduler and seed, and what the paper says of them.

    over: the schedulers over which others are better by some factor, job by job; `run`: its scheduler does not count.
    """

    label: str
    run: Run
    schedulers: tuple[str, ...]
    seeds: int
    over: tuple[str, ...] = (BASE,)
    paper: Mapping[str, str] = field(default_factory=dict)
    """By scheduler, or "scheduler over another"."""

    def runs(self) -> list[Run]:
        """The first seed's first."""
        return [self.of(name, seed) for seed in range(self.seeds) for name in self.schedulers]

    def of(self, scheduler: str, seed: int) -> Run:
        """The run of one scheduler and seed."""
        return replace(self.run, scheduler=scheduler, seed=seed)


@dataclass(frozen=True)
class Figure:
    """columns: figures of a run that its table shows. over_time: of the first seed, a row each minute of one job. why:
    less comes out than in the paper, if it does at full scale."""

    title: str
    paper: str
    cases: Callable[[Scale], list[Case]]
    columns: tuple[str, ...]
    targets: Callable[[Medians], list[Target]] = lambda medians: []
    over_time: bool = False
    notes: str = ""
    why: str = ""


def offline(
    workload: str = "tpcds", *, scale: Scale, seeds: int = 0, schedulers: tuple[str, ...] = OFFLINE,
    paper: Mapping[str, str] | None = None, label: str = "",
) -> Case:  # fmt: skip
    """All jobs at once."""
    run = Run(workload, scale.jobs, scale.machines, 0)
    return Case(label or workload, run, schedulers, seeds or scale.seeds, paper=paper or {})


def online(
    workload: str = "tpcds", *, scale: Scale, seeds: int = 0, schedulers: tuple[str, ...] = ONLINE,
    load: float = 1.0, misestimate: float = 0.0, label: str = "", over: tuple[str, ...] = (BASE,),
    paper: Mapping[str, str] | None = None,
) -> Case:  # fmt: skip
    """Jobs arrive, 20 s apart on 100 machines. `load`: on so many times fewer machines."""
    mean_s = round(MEAN_S.get(workload, ONLINE_MEAN_S) * FULL.machines / scale.machines, 3)
    run = Run(workload, scale.jobs, max(1, round(scale.machines / load)), 0, mean_s, misestimate=misestimate)
    return Case(label or workload, run, schedulers, seeds or scale.seeds, over, paper or {})


def map_reduce(*, scale: Scale) -> Case:
    """As Facebook's, scaled down."""
    mean_s = round(MAP_REDUCE_MEAN_S * FULL.machines / scale.machines, 3)
    run = Run(MAP_REDUCE, MAP_REDUCE_PER_JOB * scale.jobs, scale.machines, 0, mean_s)
    paper = {"altruistic over drf": "up to 2.85 mean, 8.88 p95", "altruistic over tetris": "up to 2.85 mean, 8.88 p95"}
    return Case(MAP_REDUCE, run, ("drf", "tetris", "altruistic", "srtf"), 1, ("drf", "tetris"), paper)


OF_TIMES = ("mean_s", "p95_s", "makespan_s", "jain", "jain_raw", "factor_of_means", "below_0.8", "worst")
OF_BESTS = ("mean_s", "makespan_s", "jain", "jain_min", "jain_max", "jain_raw")
OF_ONLINE = ("mean_s", "makespan_s", "jain", "jain_min", "jain_max", "factor", "factor_of_means", "factor_p95", "late")
OF_DISTRIBUTION = ("p10_s", "p25_s", "p50_s", "p75_s", "p90_s", "p95_s", "p99_s")
OF_FACTORS = ("factor", "factor_p50", "factor_p75", "factor_p95", "slower", "below_0.8", "worst", "jain", "late")
OF_SINGLE_JOBS = ("factor_p50", "slower", "below_0.8", "small_below_0.8", "worst")
OF_TABLES = ("factor", "factor_p50", "factor_p75", "factor_p95", "factor_of_means")
OF_LEFTOVERS = (
    "leftover", "leftover_20", "leftover_cpu", "leftover_memory", "leftover_disk_in", "leftover_disk_out",
    "leftover_net_in", "leftover_net_out", "could_wait", "with_barriers", "with_stages", "with_paths",
)  # fmt: skip

FRONTIER = tuple(
    f"altruistic/horizon={horizon}/altruism={altruism}"
    for horizon in ("barrier", "dag")
    for altruism in ("0.25", "0.5", "0.75", "1.0")
    if (horizon, altruism) != ("dag", "1.0")
)
LENDING = (
    "altruistic",
    "altruistic/horizon=barrier",
    "altruistic/lend=profile",
    "altruistic/horizon=barrier/lend=profile",
)
LOADS = (1.0, 2.0, 4.0, 6.0)
ERRORS = (-0.5, -0.25, 0.0, 0.25, 0.5)
ALTRUISM = ("0.0", "0.25", "0.5", "0.75")

OFFLINE_TIMES = {
    "drf": "JCT 1224 s, makespan 5478 s, Jain .86",
    "tetris": "JCT 1123 s, makespan 4356 s, Jain .74",
    "altruistic": "JCT 814 s, makespan 4492 s, Jain .81",
    "sjf": "JCT 769 s, makespan 6210 s, Jain .64",
}
OFFLINE_BESTS = {
    "drf": "the fairest; JCT 1.50 × the altruistic, makespan 1.22 × that",
    "tetris": "the shortest makespan; JCT 1.38 × the altruistic; Jain 0.12 below DRF's",
    "altruistic": "JCT 1.06 × SJF's, makespan 1.03 × Tetris', Jain 0.05 below DRF's",
    "sjf": "the shortest JCT; makespan 1.38 × the altruistic; Jain 0.22 below DRF's",
}
TABLE_3 = {
    "tpcds": {"altruistic over drf": "1.36 mean, 1.88 p95"},
    "tpch": {"altruistic over drf": "about 1.36 mean; up to 1.62 p75, 1.96 p95"},
    "bigbench": {"altruistic over drf": "about as TPC-DS"},
}


WHY_OFFLINE = (
    "the paper's DRF is YARN's, on real machines; ours is in the same frame as the others, counts all six resources "
    "and leaves no machine idle that has room for a task, so less is left to win, and makespans differ little. What "
    "SRTF by work wins is the bound: where that is below a target, no order of jobs by work meets it."
)
WHY_ONLINE = (
    "as of figure 1; and each job that comes shrinks the shares of those that are there, whose targets then move back "
    "(`late`). The paper's SJF, by critical path, is no bound here: a path says little of how much work a job is."
)


def _all_online(scale: Scale) -> list[Case]:
    return [online(name, scale=scale) for name in (WORKLOADS[:1] if scale.is_short else WORKLOADS)]


def _beside_both(scale: Scale, workloads: Sequence[str], paper: Mapping[str, Mapping[str, str]]) -> list[Case]:
    """Over DRF, and over Tetris."""
    names = workloads[:1] if scale.is_short else workloads
    return [online(name, scale=scale, over=("drf", "tetris"), paper=paper.get(name)) for name in names]


FIGURES: dict[str, Figure] = {
    "1": Figure(
        "all jobs at once: completion times, makespan, fairness",
        "JCT: DRF 1224, Tetris 1123, Carbyne 814, SJF 769 s; makespan 5478, 4356, 4492, 6210 s; Jain .86 .74 .81 .64",
        lambda scale: [offline(scale=scale, paper=OFFLINE_TIMES)], OF_TIMES, of_offline, why=WHY_OFFLINE,
    ),
    "4": Figure(
        "the same runs: how far each is from the best; Jain's index of windows, its mean, least and most",
        "Carbyne 1.06 × SJF's JCT, 1.03 × Tetris' makespan, 0.05 below DRF's Jain",
        lambda scale: [offline(scale=scale, paper=OFFLINE_BESTS)], OF_BESTS,
    ),
    "5": Figure(
        "jobs that arrive 20 s apart (TPC-H: 3 s)",
        "over DRF 1.36 at the mean, 1.88 at p95; Jain 0.06 below DRF's, JCT 1.2 × SJF's, makespan 1.07 × Tetris'",
        _all_online, OF_ONLINE, of_online, why=WHY_ONLINE,
    ),
    "6": Figure(
        "the same runs: distribution of completion times",
        "only the two highest percentiles are worse than Tetris', by 1.1 at most",
        lambda scale: [online(scale=scale)], OF_DISTRIBUTION,
    ),
    "7": Figure(
        "the same runs: factors of single jobs",
        "16 % slower, the worst 0.62, at most 4 % below 0.8, half of these small",
        lambda scale: _beside_both(scale, ("tpcds",), {}), OF_SINGLE_JOBS, of_single_jobs,
        notes="`small_below_0.8`: of the jobs below 0.8, those with less work than half of all jobs.",
    ),
    "8": Figure(
        "tasks of one job that run, each minute from its arrival; `lent`: those of them that were lent room",
        "DRF up to 11 tasks while there is room and few when the cluster is full; Carbyne up to 5, then more than DRF",
        lambda scale: [online(scale=scale, seeds=1, schedulers=("drf", "altruistic"))], (), over_time=True,
        notes="The first job from 300 s on with more stages and more work than half of all, of the first seed.",
    ),
    "table3": Figure(
        "factors of improvement by workload (table 3)",
        "TPC-DS 1.36 at the mean, 1.88 at p95; TPC-H up to 1.62 at p75, 1.96 at p95; BigBench about the same",
        lambda scale: _beside_both(scale, WORKLOADS[:3], TABLE_3), OF_TABLES,
    ),
    "table4": Figure(
        "factors of improvement of larger clusters, scaled down (table 4)",
        "TPC-DS up to 1.59 at the mean, 7.67 at p95; map-reduce on 3,000 machines 2.85 and 8.88; production DAGs on "
        "10,000 machines 2.23 and 7.86 (the highest of those over DRF and over Tetris)",
        lambda scale: [
            *_beside_both(scale, ("tpcds",), {"tpcds": {"altruistic over drf": "up to 1.59 mean, 7.67 p95"}}),
            map_reduce(scale=scale),
            *_beside_both(scale, ("production",),
                          {"production": {"altruistic over drf": "up to 2.23 mean, 7.86 p95"}}),
        ], OF_TABLES,
        notes="Production: 250 jobs on 100 machines, a hundredth of the paper's. Map-reduce: 2,000 jobs of 186,000 "
        "tasks on 100 machines (the paper: 7,000 of 650,000 on 3,000), 1.2 s apart: spread over six hours, as in the "
        "paper, tasks of our durations would keep a thirtieth of its machines 1 % busy, and all schedulers would do "
        "alike.",
    ),
    "2.2": Figure(
        "what jobs could do without (§2.2)",
        "20 % at least, half of the time; of CPU, memory, disk in and out, network in and out 35, 43, 24, 21, 28, "
        "24 %; correlation with barriers 0.75, stages 0.66, path length 0.71",
        lambda scale: [
            online(name, scale=scale, seeds=scale.seeds_of_sweeps, schedulers=("drf", "altruistic"))
            for name in (("tpcds",) if scale.is_short else ("production", "tpcds"))
        ], OF_LEFTOVERS, of_leftovers,
        notes="Each minute: of what a job's share would have at work, the part that it could do without for as long as "
        "those tasks take, and end at the same time; the median over time. `leftover_20`: part of the time with at "
        "least 20 %. `could_wait`: what could wait at all. Correlations are over time, of what is left over, with the "
        "sums over jobs that are there.",
    ),
    "9": Figure(
        "the same with fewer machines (figure 9)", "at a load of 2: 1.76 to 1.91, flat from 4",
        lambda scale: [
            online(scale=scale, seeds=scale.seeds_of_sweeps, schedulers=("drf", "altruistic", "srtf"), load=load,
                   label=f"load {load:g}")
            for load in (LOADS[:2] if scale.is_short else LOADS)
        ], OF_FACTORS,
    ),
    "10": Figure(
        "estimates that are wrong by a part X (figure 10)", "X from −50 to 50 %: little is lost",
        lambda scale: [
            online(scale=scale, seeds=scale.seeds_of_sweeps, schedulers=("drf", "altruistic", "srtf"),
                   misestimate=error, label=f"X = {error:g}")
            for error in (ERRORS[1:4] if scale.is_short else ERRORS)
        ], (*OF_FACTORS, "kills"),
    ),
    "11": Figure(
        "jobs that yield only sometimes (figure 11)", "P = 0.5: 1.24; P = 1: 1.56",
        lambda scale: [
            online(scale=scale, seeds=scale.seeds_of_sweeps,
                   schedulers=("drf", *(f"altruistic/altruism={chance}" for chance in ALTRUISM), "altruistic", "srtf"))
        ], OF_FACTORS,
        notes="P = 0 is DRF, as in the paper; above it, jobs that do not yield take what they can use of their shares "
        "first, and what is left over goes by SRTF.",
    ),
    "12": Figure(
        "other orders of a job's tasks (figure 12)", "DAGPS 2.36, with Carbyne 3.41 for a quarter of jobs",
        lambda scale: [
            online("tpcds" if scale.is_short else "production", scale=scale, seeds=scale.seeds_of_sweeps, schedulers=(
                "drf", "altruistic", "altruistic/order=critical-path", "altruistic/order=troublesome",
                "tetris/order=troublesome", "srtf",
            ))
        ], OF_FACTORS,
    ),
    "fair": Figure(
        "Tetris that leaves out who has most (Tetris-fair)",
        "Carbyne's Jain .89 beside .84; over Tetris-fair 1.22 at the mean, 2.9 at p95, makespan 1.06",
        lambda scale: [
            online(scale=scale, seeds=scale.seeds_of_sweeps, over=("tetris-fair",),
                   schedulers=("drf", "tetris", "tetris-fair", "altruistic", "srtf"),
                   paper={"altruistic over tetris-fair": "1.22 mean, 2.9 p95; Jain .89 beside .84"})
        ], (*OF_TABLES, "makespan_s", "jain"), of_tetris_fair,
    ),
    "frontier": Figure(
        "completion time against fairness, by what the paper leaves open", "one setting: 1.50 and 0.05",
        lambda scale: [
            offline(scale=scale, seeds=scale.seeds_of_sweeps,
                    schedulers=("drf", "altruistic", *(FRONTIER[3::3] if scale.is_short else FRONTIER), "srtf"))
        ], OF_TIMES, of_frontier,
    ),
    "lending": Figure(
        "the same for what is lent: whatever is free, or only what nobody has planned", "whatever is free",
        lambda scale: [
            offline(scale=replace(QUICK, jobs=2, machines=1) if scale.is_short else QUICK,
                    seeds=1 if scale.is_short else 3,
                    schedulers=("drf", *(LENDING[::2] if scale.is_short else LENDING), "srtf"), label="tpcds, 10 jobs")
        ], OF_TIMES, of_frontier,
        notes="10 jobs on 4 machines: to keep clear of all that is planned takes some thirty times the CPU time, as "
        "each event has every job look again.",
    ),
}  # fmt: skip


def runs_of(names: Sequence[str], scale: Scale, seeds: int) -> list[Run]:
    """Of figures, the first seed of each first; none twice."""
    runs = [run for name in names for case in FIGURES[name].cases(scale) for run in case.runs() if run.seed < seeds]
    return list(dict.fromkeys(sorted(runs, key=lambda run: run.seed)))
