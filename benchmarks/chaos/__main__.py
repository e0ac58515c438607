"""`python -m benchmarks.chaos --rounds 200 --seed 1`: rounds of random jobs against random kills and stops.

Each round is a cluster of real processes of its own: 1 to 3 schedulers, 2 to 5 node monitors, 1 to 3 users with 2 to 5
jobs of all kinds, and up to 14 faults at random moments: daemons, executors and users' programs are killed, stopped and
drained, and wall clocks jump. Three rounds of ten are quiet: one without faults, one for shares, one for newcomers.
Then it is judged by the guarantees of docs/reliability.md (oracle.py, shares.py). It ends with 1 if anything is
violated; the round's directory is kept then, and the command that plays it again is told. The same seed and number give
the same plan; what the machine makes of it differs from time to time.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import click
from rich.console import Console

from benchmarks.chaos.journal import Journal, Key
from benchmarks.chaos.plan import CENTRAL, PLACEMENTS, placement_of
from benchmarks.chaos.player import Played, play
from benchmarks.report import Report, Row, progress

ROUNDS_PER_PROCESS = 20
"""Then a fresh process plays on: those that it forks get no larger."""


@click.command(help=(__doc__ or "").replace("\n\n", "\n\n\b\n", 1))
@click.option("--rounds", type=click.IntRange(1), default=10, show_default=True, help="How many, from number 0 on.")
@click.option("--seed", type=int, default=1, show_default=True, help="Of the plans.")
@click.option("--round", "number", type=click.IntRange(0), help="Play this round alone.")
@click.option("--placement", type=click.Choice([*PLACEMENTS, CENTRAL, "all"]), default="all", show_default=True,
              help="Of the schedulers; all: one after the other, but central.")  # fmt: skip
@click.option("--jobs", "at_once", type=click.IntRange(1), default=1, show_default=True, help="Rounds at a time.")
@click.option("--journal", "path", type=click.Path(path_type=Path, dir_okay=False),
              help="File of rounds played, a line of JSON each; those that it has are not played again.")  # fmt: skip
@click.option("--keep", type=click.Path(path_type=Path, file_okay=False),
              help="Where rounds with violations are kept. Default: the temporary directory.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def main(
    rounds: int, seed: int, number: int | None, placement: str, at_once: int, path: Path | None, keep: Path | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Exit with 1 if anything is violated."""
    journal = Journal(path)
    numbers = range(rounds) if number is None else [number]
    wanted = [(seed, one, placement_of(one) if placement == "all" else placement) for one in numbers]
    missing = [key for key in wanted if key not in journal.played]
    if len(missing) < len(wanted):
        progress(f"{len(wanted) - len(missing)} rounds are in the journal")
    _play_all(missing, journal, at_once, keep)
    report = report_of([journal.played[key] for key in wanted], seed)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False))
    sys.exit(bool(report.value))


def _play_all(keys: Sequence[Key], journal: Journal, at_once: int, keep: Path | None) -> None:
    context = multiprocessing.get_context("spawn")
    size = at_once * ROUNDS_PER_PROCESS
    for first in range(0, len(keys), size):
        # Not by `max_tasks_per_child`, with which a pool of Python 3.11 stands still when it should replace a process.
        with ProcessPoolExecutor(at_once, context) as pool:
            for done in as_completed([pool.submit(play, *key, keep) for key in keys[first : first + size]]):
                played = done.result()
                journal.add(played)
                _tell(played)


def _tell(played: Played) -> None:
    tasks, starts = played.counts["tasks"], played.counts["starts"]
    progress(
        f"round {played.number} ({played.scene}, {played.placement}): {tasks} tasks, {starts} starts, "
        f"{sum(played.faults.values())} faults, {played.lasted_s:.1f} s, {len(played.violations)} violations"
    )
    for violation in played.violations:
        progress(f"    VIOLATED: {violation}")
    if played.violations:
        progress(f"    {played.replay}    records: {played.kept}")


def report_of(rounds: list[Played], seed: int) -> Report:
    """The tables."""
    counts: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for played in rounds:
        counts.update(played.counts)
        faults.update(played.faults)
    wrong = [played for played in rounds if played.violations]
    placements = Counter(played.placement for played in rounds)
    tables: dict[str, list[Row]] = {
        "Rounds": [
            {
                "placement": placement,
                "rounds": times,
                "with violations": sum(played.placement == placement for played in wrong),
            }
            for placement, times in placements.items()
        ],
        "Counts": [{"what": what, "how many": count} for what, count in counts.items()],
    }
    if faults:
        tables["Faults"] = [{"fault": fault, "times": times} for fault, times in sorted(faults.items())]
    violations = sum(len(played.violations) for played in wrong)
    lasted_s = [played.lasted_s for played in rounds]
    notes = [f"A round took {sum(lasted_s) / len(lasted_s):.1f} s on average, {max(lasted_s):.1f} s at most."]
    details = {"seed": seed, "counts": counts, "faults": faults}
    return Report("chaos", violations, f"violations in {len(rounds)} rounds, seed {seed}", tables, [], notes, details)


if __name__ == "__main__":
    main()
