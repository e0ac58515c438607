"""Figures of paper 002, as tables of ours beside the paper's numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any

from benchmarks.altruistic.setups import Run
from benchmarks.flow.outcome import Target, at_least, at_most

Row = dict[str, Any]
Figures = Sequence[Mapping[str, float]]
"""Of one scheduler, by seed."""

SEEDS, SEEDS_OF_SWEEPS, QUICK_SEEDS = 20, 5, 1
FULL, QUICK = (250, 100), (25, 10)
"""Jobs and machines of the paper's cluster, and of a tenth of it."""
ONLINE_MEAN_S = 20.0
"""Between arrivals, on 100 machines."""
PEERS = ("drf", "tetris", "altruistic", "altruistic/horizon=barrier", "srtf", "sjf")
WORKLOADS = ("tpcds", "tpch", "bigbench", "production")


@dataclass(frozen=True)
class Case:
    """Runs that differ by their seeds, and what the paper says of them."""

    label: str
    run: Run
    seeds: int
    paper: Mapping[str, str] = field(default_factory=dict)
    """By scheduler."""

    def runs(self) -> list[Run]:
        return [replace(self.run, seed=seed) for seed in range(self.seeds)]


@dataclass(frozen=True)
class Figure:
    """columns: figures of a run that its table shows."""

    title: str
    paper: str
    cases: Callable[[bool], list[Case]]
    """From whether it is to be quick."""
    columns: tuple[str, ...]
    targets: Callable[[Mapping[str, Mapping[str, float]]], list[Target]] = lambda medians: []
    """From medians by `label/scheduler`."""


def offline(workload: str, *, quick: bool, seeds: int = SEEDS, schedulers: tuple[str, ...] = PEERS) -> Case:
    """All jobs at once."""
    jobs, machines = QUICK if quick else FULL
    run = Run(workload, jobs, machines, 0, 0.0, schedulers)
    return Case(workload, run, QUICK_SEEDS if quick else seeds)


def online(
    workload: str, *, quick: bool, seeds: int = SEEDS, schedulers: tuple[str, ...] = PEERS, load: float = 1.0,
    misestimate: float = 0.0, label: str = "",
) -> Case:  # fmt: skip
    """Jobs arrive, 20 s apart on 100 machines. `load`: on so many times fewer machines."""
    jobs, machines = QUICK if quick else FULL
    mean_s = ONLINE_MEAN_S * FULL[1] / machines
    run = Run(workload, jobs, max(1, round(machines / load)), 0, mean_s, schedulers, misestimate)
    return Case(label or workload, run, QUICK_SEEDS if quick else seeds)


OF_TIMES = ("mean_s", "p95_s", "makespan_s", "jain", "jain_raw", "factor_of_means", "below_0.8", "worst")
OF_FACTORS = ("factor", "factor_p50", "factor_p75", "factor_p95", "slower", "below_0.8", "worst", "jain", "late")


def _offline_targets(medians: Mapping[str, Mapping[str, float]]) -> list[Target]:
    ours, drf = medians.get("tpcds/altruistic", {}), medians.get("tpcds/drf", {})
    if not ours or not drf:
        return []
    return [
        at_least("mean completion time beside DRF's: 1.35 times as good", ours["factor_of_means"], 1.35, " ×"),
        at_most("makespan over DRF's: 1.0", ours["makespan_s"] / drf["makespan_s"], 1.0, " ×"),
        at_most("jobs below 0.8 of DRF's: 4 %", ours["below_0.8"], 0.04),
        at_most("Jain's index below DRF's by 0.05 at most", drf["jain"] - ours["jain"], 0.05),
    ]


FRONTIER = (
    "drf",
    *(
        f"altruistic/horizon={horizon}/lend={lend}/altruism={altruism}"
        for horizon in ("barrier", "dag")
        for lend in ("greedy", "profile")
        for altruism in ("1.0", "0.5")
    ),
)
LOADS = (1.0, 2.0, 4.0, 6.0)
ERRORS = (-0.5, -0.25, 0.0, 0.25, 0.5)
ALTRUISM = ("0.0", "0.25", "0.5", "0.75", "1.0")

FIGURES: dict[str, Figure] = {
    "1": Figure(
        "all jobs at once: completion times, makespan, fairness (figures 1 and 4)",
        "JCT: DRF 1224, Tetris 1123, Carbyne 814, SJF 769 s; makespan 5478, 4356, 4492, 6210 s; Jain .86 .74 .81 .64",
        lambda quick: [offline("tpcds", quick=quick)], OF_TIMES, _offline_targets,
    ),
    "5": Figure(
        "jobs that arrive 20 s apart: improvement over DRF (figures 5 to 7, tables 3 and 4)",
        "over DRF 1.36 at the mean, 1.88 at p95; TPC-H 1.62 at p75, 1.96 at p95; 16 % slower, worst 0.62, at most 4 % "
        "below 0.8; Jain 0.06 lower; up to 1.59 at the mean, 7.67 at p95 (table 4)",
        lambda quick: [online(name, quick=quick) for name in (WORKLOADS[:1] if quick else WORKLOADS)], OF_FACTORS,
    ),
    "9": Figure(
        "the same with fewer machines (figure 9)", "at a load of 2: 1.76 to 1.91, flat from 4",
        lambda quick: [
            online("tpcds", quick=quick, seeds=SEEDS_OF_SWEEPS, schedulers=("drf", "altruistic", "srtf"), load=load,
                   label=f"load {load:g}")
            for load in (LOADS[:2] if quick else LOADS)
        ], OF_FACTORS,
    ),
    "10": Figure(
        "estimates that are wrong by a part X (figure 10)", "X from −50 to 50 %: little is lost",
        lambda quick: [
            online("tpcds", quick=quick, seeds=SEEDS_OF_SWEEPS, schedulers=("drf", "altruistic"), misestimate=error,
                   label=f"X = {error:g}")
            for error in (ERRORS[1:4] if quick else ERRORS)
        ], (*OF_FACTORS, "kills"),
    ),
    "11": Figure(
        "jobs that yield only sometimes (figure 11)", "P = 0.5: 1.24; P = 1: 1.56",
        lambda quick: [
            online("tpcds", quick=quick, seeds=SEEDS_OF_SWEEPS,
                   schedulers=("drf", *(f"altruistic/altruism={chance}" for chance in ALTRUISM)))
        ], OF_FACTORS,
    ),
    "12": Figure(
        "other orders of a job's tasks (figure 12)", "DAGPS 2.36, with Carbyne 3.41 for a quarter of jobs",
        lambda quick: [
            online("production" if not quick else "tpcds", quick=quick, seeds=SEEDS_OF_SWEEPS, schedulers=(
                "drf", "altruistic", "altruistic/order=critical-path", "altruistic/order=troublesome",
                "tetris/order=troublesome",
            ))
        ], OF_FACTORS,
    ),
    "fair": Figure(
        "Tetris that leaves out who has most (Tetris-fair)", "Jain .89 beside .84, 1.22 at the mean, 2.9 at p95",
        lambda quick: [
            online("tpcds", quick=quick, seeds=SEEDS_OF_SWEEPS,
                   schedulers=("drf", "tetris", "tetris-fair", "altruistic"))
        ], OF_FACTORS,
    ),
    "frontier": Figure(
        "completion time against fairness, by what the paper leaves open", "one setting: 1.50 and 0.05",
        lambda quick: [offline("tpcds", quick=quick, seeds=SEEDS_OF_SWEEPS, schedulers=FRONTIER)], OF_TIMES,
    ),
}  # fmt: skip


def medians(figures: Figures) -> dict[str, float]:
    """Over seeds."""
    names = figures[0].keys() if figures else ()
    return {name: median(each[name] for each in figures if name in each) for name in names}
