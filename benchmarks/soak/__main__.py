"""`python -m benchmarks.soak --minutes 10`: a cluster under load in which everything that can fail does.

Three schedulers and fifty node monitors, each a process of its own, and four clients that submit jobs of all kinds.
Meanwhile node monitors, executors, schedulers and clients are killed, stopped for a shorter and a longer time than
the heartbeat has patience, cut off, moved to other ports and upgraded one by one. Then everything is mended, clients
finish what they have, and it is counted: what was lost or duplicated, and what is left anywhere. It ends with 1 if
anything is, and keeps its records then. `checks.py` says what is meant by lost and duplicated.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.report import Report, Row, percentiles, progress
from benchmarks.soak import checks
from benchmarks.soak.cluster import Shape
from benchmarks.soak.run import Soak, Soaked
from sparrow_py.session.event_loop import new_event_loop

VETERANS_FROM_MINUTES = 4.0
"""Shorter soaks judge no memory: what daemons may keep is not full before."""

RETENTION_S = 15.0
SHORT_RETENTION_S = 3.0
"""Of large data in a soak that judges memory, and in a shorter one, which is to end soon."""


@click.command(help=(__doc__ or "").replace("\n\n", "\n\n\b\n", 1))
@click.option("--minutes", type=click.FloatRange(0.1), default=10.0, show_default=True, help="For how long.")
@click.option("--seed", type=int, default=7, show_default=True, help="Of the faults and the jobs.")
@click.option("--nodes", type=click.IntRange(4), default=50, show_default=True, help="Node monitors.")
@click.option("--schedulers", type=click.IntRange(2), default=3, show_default=True)
@click.option("--clients", type=click.IntRange(2), default=4, show_default=True)
@click.option("--gap-s", type=click.FloatRange(0.1), default=1.5, show_default=True, help="Mean time between faults.")
@click.option("--heartbeat-s", type=click.FloatRange(0.5), default=3.0, show_default=True, help="Of all daemons.")
@click.option("--dir", "directory", type=click.Path(path_type=Path), help="New directory for records; it is kept.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def main(
    minutes: float, seed: int, nodes: int, schedulers: int, clients: int, gap_s: float, heartbeat_s: float,
    directory: Path | None, as_json: bool,
) -> None:  # fmt: skip
    """Exit with 1 if anything is violated."""
    judged = minutes >= VETERANS_FROM_MINUTES
    retention_s = RETENTION_S if judged else SHORT_RETENTION_S
    shape = Shape(schedulers, nodes, clients, heartbeat_s, retention_s, judged)
    records = directory or Path(tempfile.mkdtemp(prefix="soak-"))
    progress(f"soaking for {minutes:g} min with seed {seed}; records are in {records}")
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        soaked = runner.run(Soak(shape, 60 * minutes, seed, gap_s, records.absolute()).run())
    report = report_of(soaked, shape, minutes, seed)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False))
    for violation in soaked.violations:
        progress(f"VIOLATED: {violation}")
    if soaked.violations:
        progress(f"records: {records}")
        sys.exit(1)
    if directory is None:
        shutil.rmtree(records)


def report_of(soaked: Soaked, shape: Shape, minutes: float, seed: int) -> Report:
    """The tables."""
    sums = soaked.tally
    counts = {
        "jobs": sums.jobs,
        "tasks": sums.tasks,
        "finished": sums.finished,
        "failed": sums.failed,
        "cancelled": sums.cancelled,
        "retries": sums.retries,
        "starts that tasks wrote down": sums.starts,
        "lost": sums.lost,
        "duplicated": sums.duplicated,
        "lost with max_attempts=1": sums.lost_at_most_once,
        "lost after max_attempts starts": sums.lost_out_of_attempts,
        "results by reference lost": sums.results_lost,
        "second outcomes suppressed": sums.suppressed,
        "jobs refused": sums.refused_jobs,
        "jobs of clients that were killed": sums.forsaken_jobs,
    }
    lasted = percentiles(sums.lasted_s or [0.0])
    tables: dict[str, list[Row]] = {
        "Counts": [{"what": what, "how many": count} for what, count in counts.items()],
        "Faults": [{"fault": fault, "times": times} for fault, times in soaked.faults.items()],
        "Jobs lasted": [{name: f"{value:.2f} s" for name, value in lasted.items()}],
        "Peaks": [{"process": kind, "largest resident set MB": mb} for kind, mb in soaked.peaks_mb.items()],
    }
    if soaked.kept:
        tables["Veterans over the last half"] = [
            {
                "process": kept.name,
                "RSS MB": kept.before_bytes / 1e6,
                "then": kept.after_bytes / 1e6,
                "growth %": 100 * kept.growth,
                "descriptors": kept.descriptors_before,
                "and then": kept.descriptors_after,
            }
            for kept in soaked.kept
        ]
    notes = [
        f"Nothing was left {soaked.quiet_after_s:.0f} s after the faults, retention of large data included.",
        f"{soaked.skipped} faults met nobody. "
        + ("" if shape.veterans else f"Memory is judged from {VETERANS_FROM_MINUTES:g} minutes on."),
        *(" ".join(part.split()) for part in (checks.__doc__ or "").split("\n\n")[1:]),
    ]
    details = {"minutes": minutes, "seed": seed, "shape": vars(shape), "counts": counts, "faults": soaked.faults}
    return Report(
        "soak",
        len(soaked.violations),
        f"violations in {minutes:g} min: {shape.schedulers} schedulers, {shape.nodes} node monitors, seed {seed}",
        tables,
        [],
        notes,
        details | {"violations": soaked.violations, "kinds": dict(sums.kinds)},
    )


if __name__ == "__main__":
    main()
