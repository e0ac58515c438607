"""What it is worth to push tasks to idle slots (`push_to_idle`): paired simulations.

For each cluster, number of schedulers and load the daemons' cores run without and with pushing, on the same jobs: 10
tasks each, of 100 ms on average (exponential), of four users, with a round trip of 1 ms. *Over ideal*: a job's response
time over its longest task. *Handed back*: of the tasks that were pushed. *Messages*: those that all daemons and clients
get, and ends of tasks, for each task. *Fairness*: the highest over the lowest of the users' means over ideal.
`value` is the difference of the mean response time in percent, over all rows of the highest load.
"""

from __future__ import annotations

import statistics
from typing import NamedTuple

import click
import numpy as np
from rich.console import Console

from benchmarks.report import Report, Row
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.policies import Settings
from simulator.processes import side_by_side
from simulator.simulate import COOL_DOWN, WARM_UP, simulate

CLUSTERS = {"100x4": (100, 4), "4x4": (4, 4)}
LOADS = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
USERS = ("user0", "user1", "user2", "user3")
TASKS = 10
PERCENTS = (50, 95, 99)
JOBS, QUICK_JOBS = 1500, 200


class Case(NamedTuple):
    """One simulation."""

    cluster: str
    schedulers: int
    load: float
    jobs: int
    seed: int
    pushes: bool


def played(case: Case) -> dict[str, float]:
    """What the simulation shows."""
    nodes, slots = CLUSTERS[case.cluster]
    workload = Synthetic(load=case.load, jobs=case.jobs, tasks=TASKS, users=USERS)
    result = simulate(
        Cluster(nodes=nodes, slots=slots, schedulers=case.schedulers),
        workload,
        settings=Settings(push_to_idle=case.pushes),
        seed=case.seed,
    )
    over = result.response_ms / result.ideal_ms
    count = len(result.records)
    measured = result.records[int(count * WARM_UP) : count - int(count * COOL_DOWN)]
    of_users: dict[str, list[float]] = {}
    for record, ratio in zip(measured, over, strict=True):
        of_users.setdefault(record.job.user, []).append(float(ratio))
    means = [statistics.fmean(ratios) for ratios in of_users.values()]
    pushes = result.counts.get("pushes", 0)
    return {
        **{f"p{percent}": float(np.percentile(over, percent)) for percent in PERCENTS},
        "mean_ms": float(np.mean(result.response_ms)),
        "pushed": pushes / (case.jobs * TASKS),
        "handed_back": result.counts.get("pushes_handed_back", 0) / max(1, pushes),
        "messages": result.counts["core_events"] / (case.jobs * TASKS),
        "fairness": max(means) / min(means),
    }


def row(without: list[dict[str, float]], with_: list[dict[str, float]]) -> Row:
    """Means over seeds: without pushing → with it."""

    def both(name: str, digits: int) -> str:
        before, after = (statistics.fmean(one[name] for one in runs) for runs in (without, with_))
        return f"{before:.{digits}f} → {after:.{digits}f}"

    return {
        **{f"over ideal p{percent}": both(f"p{percent}", 3) for percent in PERCENTS},
        "mean response": f"{difference(without, with_):+.2f} %",
        "pushed": f"{100 * statistics.fmean(one['pushed'] for one in with_):.0f} %",
        "handed back": f"{100 * statistics.fmean(one['handed_back'] for one in with_):.1f} %",
        "messages": both("messages", 1),
        "fairness": both("fairness", 2),
    }


def difference(without: list[dict[str, float]], with_: list[dict[str, float]]) -> float:
    """Of the mean response time, in percent; the mean over seeds."""
    pairs = zip(without, with_, strict=True)
    return statistics.fmean(100 * (after["mean_ms"] / before["mean_ms"] - 1) for before, after in pairs)


@click.command("pushing", help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--repeat", type=click.IntRange(1), default=3, show_default=True, help="Seeds.")
@click.option("--quick", is_flag=True, help=f"{QUICK_JOBS} jobs in place of {JOBS}, the highest load only.")
@click.option("--cluster", multiple=True, type=click.Choice(list(CLUSTERS)), default=list(CLUSTERS), show_default=True)
@click.option("--load", multiple=True, type=float, default=LOADS, show_default=True)
@click.option("--schedulers", multiple=True, type=int, default=(1, 3, 10), show_default=True)
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Simulations at a time.")
def main(
    as_json: bool,
    repeat: int,
    quick: bool,
    cluster: tuple[str, ...],
    load: tuple[float, ...],
    schedulers: tuple[int, ...],
    processes: int,
) -> None:
    """Print the tables."""
    loads, jobs = (load[-1:], QUICK_JOBS) if quick else (load, JOBS)
    kinds = [(name, count, one) for name in cluster for count in schedulers for one in loads]
    cases = [
        Case(*kind, jobs, seed, pushes) for kind in kinds for seed in range(1, repeat + 1) for pushes in (False, True)
    ]
    found = dict(side_by_side(played, cases, processes))
    tables: dict[str, list[Row]] = {name: [] for name in cluster}
    hardest = []
    for name, count, one in kinds:
        without, with_ = (
            [found[Case(name, count, one, jobs, seed, pushes)] for seed in range(1, repeat + 1)]
            for pushes in (False, True)
        )
        tables[name].append({"schedulers": count, "load": one, **row(without, with_)})
        if one == loads[-1]:
            hardest.append(difference(without, with_))
    raw = [{**case._asdict(), **found[case]} for case in cases]
    report = Report("pushing", statistics.fmean(hardest), f"% mean response at load {loads[-1]}", tables, raw, [])
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, width=200))


if __name__ == "__main__":
    main()
