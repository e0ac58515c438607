"""`python -m simulator soak`: many seeds, each a cluster, its users and what goes wrong; and what that brings to light.

A seed that fails is told with its problem, the command that replays it, and the history of the job concerned. The same
seeds give the same output; wall times go to standard error.
"""

from __future__ import annotations

import os
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

from scheduler.options import PLACEMENTS
from simulator.processes import side_by_side
from simulator.soak import faults, nested_task, scenarios
from simulator.soak.broken import Broken
from simulator.soak.fallible_hosts import NodeHost, SchedulerHost
from simulator.soak.host import Host
from simulator.soak.world import EVENTS_MAX, World
from sparrow_py.counted import counted
from sparrow_py.errors import InvalidOption, InvariantViolated

FAILED_EXIT = 1
HISTORY_LEN = 100_000
"""Events that each core remembers when a seed that failed is played again."""
STORY_LINES_MAX = 150
FAILURES_SHOWN_MAX = 10
"""Failures that are told with their history."""
FAILURES_NAMED_MAX = 100
SEEDS_PER_BATCH = 8


@dataclass
class Counts:
    """What happened in some seeds."""

    seeds: int = 0
    events: int = 0
    jobs: int = 0
    refused: int = 0
    tasks: int = 0
    starts: int = 0
    retries: int = 0
    """Starts of tasks beyond their first."""
    faults: Counter[str] = field(default_factory=Counter)
    """By kind."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """That clients were told, by status."""
    nested: Counter[str] = field(default_factory=Counter)
    """What tasks did that submit tasks of their own."""

    def add(self, other: Counts) -> None:
        """As if its seeds had been these, too."""
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)


@dataclass(frozen=True)
class Failure:
    """A seed that failed. story: what is known of how that came, by line."""

    seed: int
    problem: str
    story: tuple[str, ...] = ()


def run_seed(
    seed: int, kinds: Sequence[str], events_max: int = EVENTS_MAX, placement: str = "", *, nested: bool = False
) -> tuple[Counts, Failure | None]:
    """Play the seed's scenario with faults of these kinds, until nothing more happens.

    placement: that of its schedulers; empty for the seed's own. nested: whether tasks submit tasks of their own."""
    world, error = _play(seed, kinds, events_max, placement, nested=nested, history_len=0)
    failure = None
    if error is not None:
        # Again, with everything remembered: that changes nothing but the time it takes.
        world, error = _play(seed, kinds, events_max, placement, nested=nested, history_len=HISTORY_LEN)
        assert error is not None, f"seed {seed} is not the same twice"
        failure = Failure(seed, _one_line(error), tuple(_story(world, error)))
    return Counts(seeds=1) if world is None else _counts(world), failure


def _play(
    seed: int, kinds: Sequence[str], events_max: int, placement: str, *, nested: bool, history_len: int
) -> tuple[World | None, Exception | None]:
    history = {"history_len_max": history_len}
    scheduler = history | ({"placement": placement} if placement else {})
    world = None
    try:
        scenario = scenarios.draw(seed, kinds, nested=nested)
        world = scenario.begin(scheduler=scheduler, node=history, events_max=events_max)
        world.run()
        world.check_end()
    except Exception as error:  # Whatever a core raises is what is looked for.
        return world, error
    return world, None


def _counts(world: World) -> Counts:
    logs = world.logs.values()
    first = {(log.id, start.task) for log in logs for start in log.starts}
    return Counts(
        seeds=1,
        events=world.events,
        jobs=len(world.logs),
        refused=sum(log.error is not None for log in logs),
        tasks=sum(len(log.payloads) for log in logs),
        starts=len(world.starts),
        retries=len(world.starts) - len(first),
        faults=Counter({kind: count for kind, count in world.counts.items() if kind in faults.KINDS}),
        outcomes=Counter(outcome.status.value for log in logs for outcome in log.outcomes),
        nested=Counter({what: world.counts[what] for what in nested_task.COUNTED}) if world.nested_share else Counter(),
    )


# ---- what is told of a failure ---------------------------------------------------------------


def _one_line(error: Exception) -> str:
    text = str(error).split("\n", 1)[0]
    return text if isinstance(error, Broken) else f"{type(error).__name__}: {text}"


def _story(world: World | None, error: Exception) -> Iterator[str]:
    """What went wrong when, and of the job concerned all that clients, schedulers and nodes remember."""
    if not isinstance(error, Broken | InvariantViolated):
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        yield from (f"raised at {frame.filename.rpartition('/')[2]}:{frame.lineno} {frame.line}" for frame in frames)
    if world is None:
        return  # It did not even begin.
    lines = [(at_s, f"fault: {kind} of {whom}, {for_s:.3f} s") for at_s, kind, whom, for_s in world.faults]
    job_id = _job_concerned(world, error)
    if job_id:
        yield f"job {job_id}: {world.logs[job_id].spec.max_attempts} attempts, retry_failed " + str(
            world.logs[job_id].spec.retry_failed
        )
        lines += _of_job(world, job_id)
    for host in world.all_hosts:
        if isinstance(host, NodeHost | SchedulerHost):
            lines += _remembered(host, job_id)
    lines.sort(key=lambda line: line[0])
    yield from (f"{at_s:12.6f} {text}" for at_s, text in lines[-STORY_LINES_MAX:])


def _job_concerned(world: World, error: Exception) -> str:
    if isinstance(error, Broken):
        return error.job if error.job in world.logs else ""
    words = str(error).replace(":", " ").replace("'", " ").split()
    return next((word for word in words if word in world.logs), "")


def _of_job(world: World, job_id: str) -> Iterator[tuple[float, str]]:
    log = world.logs[job_id]
    yield (
        log.submitted_at_s,
        f"{log.client.name} submits it: {counted(len(log.payloads), 'task')}, {counted(len(log.stages), 'stage')}",
    )
    for epoch, at_s in log.submitted_last_s.items():
        yield at_s, f"{log.client.name} sends it to {log.submitted_last_to[epoch]} with epoch {epoch}"
    for start in log.starts:
        whom = f"task {start.task} as attempt {start.epoch}:{start.attempt & 0xFFFFFF} of {start.scheduler}"
        yield start.given_at_s, f"{start.node.name} is given {whom}"
        if start.ended_at_s is not None:
            yield start.ended_at_s, f"{start.node.name} ends {whom}{', which failed' if start.failed else ''}"
    for outcome in log.outcomes:
        yield world.now, f"outcome: task {outcome.task} {outcome.status.value} {outcome.error}"
    if log.error is not None:
        yield world.now, f"refused: {log.error}"


def _remembered(host: Host, job_id: str) -> Iterator[tuple[float, str]]:
    """What the host's core remembers of the job, by the time of the engine."""
    told = host.core.story(job_id) if not hasattr(host, "executors") else host.core.story()
    for line in told:
        own_s, _, text = line.partition(" ")
        yield host.clock.true_s(float(own_s)), f"{host.name}: {text}"


# ---- many seeds ------------------------------------------------------------------------------


def soak(
    seeds: Sequence[int],
    kinds: Sequence[str],
    events_max: int = EVENTS_MAX,
    processes: int | None = None,
    placement: str = "",
    *,
    nested: bool = False,
) -> tuple[Counts, list[Failure]]:
    """Play the seeds in so many processes (None: on all cores); failures are in order of their seeds."""
    counts, failures = Counts(), []
    batches = [seeds[at : at + SEEDS_PER_BATCH] for at in range(0, len(seeds), SEEDS_PER_BATCH)]
    columns = (
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TimeRemainingColumn()
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), disable=len(seeds) < SEEDS_PER_BATCH) as progress:
        bar = progress.add_task("seeds", total=len(seeds))
        work = partial(_run_batch, kinds=tuple(kinds), events_max=events_max, placement=placement, nested=nested)
        for batch, (counted, failed) in side_by_side(
            work, batches, min(processes or os.cpu_count() or 1, len(batches))
        ):
            counts.add(counted)
            failures += failed
            progress.advance(bar, len(batch))
            progress.update(bar, description=f"seeds, {len(failures)} failed" if failures else "seeds")
    return counts, sorted(failures, key=lambda failure: failure.seed)


Batch = Sequence[int]
Result = tuple[Counts, list[Failure]]


def _run_batch(batch: Batch, kinds: Sequence[str], events_max: int, placement: str, *, nested: bool) -> Result:
    counts, failures = Counts(), []
    for seed in batch:
        counted, failure = run_seed(seed, kinds, events_max, placement, nested=nested)
        counts.add(counted)
        if failure is not None:
            failures.append(failure)
    return counts, failures


# ---- the command -----------------------------------------------------------------------------


@click.command("soak")
@click.option("--seeds", default=1000, show_default=True, help="How many seeds to play.")
@click.option("--first", default=0, show_default=True, help="The first of them.")
@click.option("--seed", type=int, help="Play this one alone, as for a seed that failed.")
@click.option(
    "--events",
    default=EVENTS_MAX,
    show_default=True,
    help="A seed with more events than this goes on and on: it fails.",
)
@click.option(
    "--faults", "kinds", multiple=True, metavar="KIND,…",
    help=f"Only faults of these kinds; none, or some of: {', '.join(faults.KINDS)}. Default: all.",
)  # fmt: skip
@click.option("--placement", type=click.Choice(PLACEMENTS), help="Of all schedulers; default: each seed draws its own.")
@click.option("--nested", is_flag=True, help="Tasks submit tasks of their own, and wait for them without a slot.")
@click.option("--processes", type=int, help="Seeds played at a time; default: as many as there are cores.")
@click.pass_context
def soak_command(
    ctx: click.Context,
    seeds: int,
    first: int,
    seed: int | None,
    events: int,
    kinds: tuple[str, ...],
    placement: str | None,
    nested: bool,
    processes: int | None,
) -> None:
    """Play clusters with faults, and hold them against what sparrow-py guarantees.

    Each seed is a cluster of the daemons' own cores under virtual time, with options, jobs and faults of its own.
    Exits with 1 if a seed failed.
    """
    for name, value in (("seeds", seeds), ("events", events), ("processes", 1 if processes is None else processes)):
        if value < 1:
            raise InvalidOption(name, value, "a whole number from 1")
    chosen = faults.parse_kinds(kinds) if kinds else tuple(faults.KINDS)
    numbers = range(first, first + seeds) if seed is None else [seed]
    begin_s = time.perf_counter()
    counts, failures = soak(numbers, chosen, events, processes, placement or "", nested=nested)
    seconds = time.perf_counter() - begin_s
    console = Console(highlight=False, width=None if Console().is_terminal else 200)
    for failure in failures[:FAILURES_SHOWN_MAX]:
        _show(console, failure, replay(failure.seed, kinds, events, placement or "", nested=nested))
    for failure in failures[FAILURES_SHOWN_MAX:FAILURES_NAMED_MAX]:
        console.print(f"seed {failure.seed}: {failure.problem}", markup=False)
    if len(failures) > FAILURES_NAMED_MAX:
        console.print(f"and {len(failures) - FAILURES_NAMED_MAX} more, the last of which is seed {failures[-1].seed}")
    _summarise(console, counts, failures)
    click.echo(f"{seconds:.1f} s, {counts.events / seconds:,.0f} events/s", err=True)
    ctx.exit(FAILED_EXIT if failures else 0)


def replay(seed: int, kinds: Sequence[str], events_max: int, placement: str, *, nested: bool = False) -> str:
    """The command that plays the seed again."""
    words = ["python -m simulator soak --seed", str(seed)]
    if kinds:
        words += ["--faults", ",".join(kinds)]
    if events_max != EVENTS_MAX:
        words += ["--events", str(events_max)]
    if placement:
        words += ["--placement", placement]
    if nested:
        words.append("--nested")
    return " ".join(words)


def _show(console: Console, failure: Failure, command: str) -> None:
    console.print(f"seed {failure.seed}: {failure.problem}", markup=False, style="bold")
    console.print(f"  {command}", markup=False)
    for line in failure.story:
        console.print(f"    {line}", markup=False, soft_wrap=True)


def _summarise(console: Console, counts: Counts, failures: Sequence[Failure]) -> None:
    table = Table(box=box.SIMPLE_HEAD, show_header=False, pad_edge=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("seeds", f"{counts.seeds:,}")
    table.add_row("of which failed", f"{len(failures):,}", end_section=True)
    table.add_row("events", f"{counts.events:,}")
    table.add_row("jobs", f"{counts.jobs:,}")
    table.add_row("of which refused", f"{counts.refused:,}")
    table.add_row("tasks", f"{counts.tasks:,}")
    table.add_row("starts", f"{counts.starts:,}")
    table.add_row("of which again", f"{counts.retries:,}", end_section=True)
    for status, count in sorted(counts.outcomes.items()):
        table.add_row(f"outcomes: {status}", f"{count:,}")
    table.add_section()
    for what, count in sorted(counts.nested.items()):
        table.add_row(what, f"{count:,}")
    table.add_section()
    for kind in faults.KINDS:
        if counts.faults[kind]:
            table.add_row(f"faults: {kind}", f"{counts.faults[kind]:,}")
    console.print(table)
