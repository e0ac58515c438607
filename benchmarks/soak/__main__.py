"""`python -m benchmarks.soak --minutes 10`: a cluster under load in which everything that can fail does.

Three schedulers and fifty node monitors, each a process of its own, and four clients that submit jobs of all kinds.
Meanwhile node monitors, executors, schedulers and clients are killed, stopped for a shorter and a longer time than
the heartbeat has patience, cut off, moved to other ports and upgraded one by one. Then everything is mended, clients
finish what they have, and it is held against the guarantees of docs/reliability.md: what was lost or duplicated, and
what is left anywhere. It ends with 1 if anything is, and keeps its records then.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import click
from rich.console import Console

from benchmarks.laboratory.told import Event
from benchmarks.report import Report, Row, percentiles, progress
from benchmarks.soak.plan import Size
from benchmarks.soak.run import Soak, Soaked, counts

VETERANS_FROM_MINUTES = 4.0
"""Shorter soaks judge no memory: what daemons may keep is not full before."""

LOST = (
    "Lost: a task without an outcome, or lost while attempts remain. With max_attempts=1 tasks are lost when what runs "
    "them dies, or its scheduler and a node together; such are counted apart, and are no violation. Duplicated: an "
    "outcome that was told twice, or a task that was started more often than it may be, by its own account. A result "
    "by reference is lost with its node; those that were not fetched before are counted apart."
)
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
    size = Size(schedulers, nodes, clients, heartbeat_s, retention_s, judged)
    records = directory or Path(tempfile.mkdtemp(prefix="soak-"))
    progress(f"soaking for {minutes:g} min with seed {seed}; records are in {records}")
    soaked = Soak(size, 60 * minutes, seed, gap_s, records.absolute()).run()
    report = report_of(soaked, size, minutes, seed)
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


def report_of(soaked: Soaked, size: Size, minutes: float, seed: int) -> Report:
    """The tables."""
    numbers = counts(soaked.found)
    lasted = percentiles(_lasted_s(soaked) or [0.0])
    tables: dict[str, list[Row]] = {
        "Counts": [{"what": what, "how many": count} for what, count in numbers.items()],
        "Faults": [{"fault": fault, "times": times} for fault, times in sorted(soaked.faults.items())],
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
        + ("" if size.veterans else f"Memory is judged from {VETERANS_FROM_MINUTES:g} minutes on.")
        + ("" if soaked.judged else "Memory was not judged: veterans were not full by half of the time."),
        LOST,
    ]
    details = {"minutes": minutes, "seed": seed, "shape": vars(size), "counts": numbers, "faults": soaked.faults}
    return Report(
        "soak",
        len(soaked.violations),
        f"violations in {minutes:g} min: {size.schedulers} schedulers, {size.nodes} node monitors, seed {seed}",
        tables,
        [],
        notes,
        details | {"violations": soaked.violations},
    )


def _lasted_s(soaked: Soaked) -> list[float]:
    """Of each job of which anything was told: until its last outcome."""
    submitted = {line.job: line.at_ns for line in soaked.found.told(Event.SUBMITTED)}
    last = {line.job: line.at_ns for line in soaked.found.told(Event.OUTCOME, Event.MAPPED)}
    return [(at_ns - submitted[job]) / 1e9 for job, at_ns in last.items()]


if __name__ == "__main__":
    main()
