"""What delay scheduling is worth (paper §8): jobs each of whose tasks prefers the three nodes that have its input.

*Random*: replicas are on random nodes, so that some nodes have more of what is asked for than others. *Striped*: those
of a job's tasks are on consecutive nodes, from a random one on, and no two tasks share one. *Skewed*: half of the tasks
have theirs on random nodes of a fifth of all, the others on those of the rest, so that from 40 % load on there is more
work for that fifth than it can do. *Firm*: a task runs on one
of its nodes or not at all (`delay_s=None`). Else it may run anywhere after so long without a place. *Remote* is what a
task takes on another node, over what it takes on one of its own: input that has to be fetched takes time.

Simulated by the daemons' cores, on the same jobs: 10 tasks each, of 100 ms on average (exponential), round trip 1 ms.
*Local*: tasks that ran on a node that they prefer. With `--live` a cluster of real processes on this machine, whose
tasks sleep, all as long wherever they run. `value` is the difference that delay scheduling makes at the highest load to
the mean response time of the first layout, in percent, with the first delay and remote.
"""

from __future__ import annotations

import random
import statistics
import tempfile
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np
from rich.console import Console

from benchmarks.report import Report, Row, progress
from frontends.synthetic.tasks import SLEEP_APP, encode_duration
from loadgen.durations import Durations
from loadgen.jobs import WorkloadJob
from loadgen.synthetic import Synthetic
from loadgen.targets import LocalTarget, Shape, Target
from simulator.cluster import Cluster
from simulator.hosts import NodeHost, payloads
from simulator.policies import POLICIES, Sparrow
from simulator.processes import side_by_side
from simulator.records import JobRecord
from simulator.simulate import COOL_DOWN, WARM_UP, simulate
from sparrow_py.client import Client
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import JobSpec, TaskSpec

LAYOUTS = ("random", "striped", "skewed")
LOADS = (0.3, 0.5, 0.7, 0.8, 0.9, 0.95)
DELAYS_MS = (20.0, 100.0)
REMOTES = (1.0, 2.0)
NODES, SLOTS, SCHEDULERS = 50, 4, 5
LIVE_NODES, LIVE_SLOTS, LIVE_SCHEDULERS = 20, 2, 2
TASKS, REPLICAS, MEAN_MS = 10, 3, 100.0
JOBS, QUICK_JOBS = 1000, 150
END_TIMEOUT_S = 120.0
NAME = "sparrow-with-inputs"


class Case(NamedTuple):
    """One run. delay_ms: None is firm."""

    layout: str
    load: float
    delay_ms: float | None
    remote: float
    jobs: int
    seed: int


class Replicated(Synthetic):
    """Jobs whose tasks prefer the nodes that have their input."""

    layout = "random"

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs in order of arrival."""
        places = random.Random(f"{seed} {self.layout}")
        for job in super().generate(seed, nodes, slots):
            job.preferred = tuple(self._inputs(places, nodes, len(job.durations_s)))
            yield job

    def _inputs(self, places: random.Random, nodes: int, tasks: int) -> Iterator[tuple[int, ...]]:
        first = places.randrange(nodes)
        for task in range(tasks):
            if self.layout == "random":
                yield tuple(places.sample(range(nodes), REPLICAS))
            elif self.layout == "skewed":
                hot = nodes // 5
                yield tuple(places.sample(range(hot) if places.random() < 0.5 else range(hot, nodes), REPLICAS))
            else:
                yield tuple((first + REPLICAS * task + replica) % nodes for replica in range(REPLICAS))


class Striped(Replicated):
    """The same on consecutive nodes."""

    layout = "striped"


class Skewed(Replicated):
    """The same, half of it on a fifth of the nodes."""

    layout = "skewed"


def workload(case: Case) -> Synthetic:
    """The jobs of a run."""
    kind = {"random": Replicated, "striped": Striped, "skewed": Skewed}[case.layout]
    return kind(tasks=TASKS, load=case.load, jobs=case.jobs, durations=Durations("exponential", mean_ms=MEAN_MS))


# ---- simulated -------------------------------------------------------------------------------


class _Node(NodeHost):
    """A node monitor on which tasks whose input is elsewhere take longer. Their job's number is its common input."""

    __slots__ = ("_jobs",)
    jobs: dict[int, WorkloadJob]
    remote: float

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._jobs: dict[int, WorkloadJob] = {}
        """By the number of their common input."""

    def to_executor(self, executor: str, message: x.ExecutorMessage) -> None:
        if type(message) is x.Common:
            assert isinstance(message.data, bytes)
            self._jobs[message.common] = self.jobs[int(message.data)]
        elif type(message) is x.ForgetCommon:
            del self._jobs[message.common]
        elif type(message) is x.Run:
            job = self._jobs[message.common]
            if int(self.name[1:]) not in job.preferred[message.task]:
                (longer,) = payloads(array("d", [job.durations_s[message.task] * self.remote]))
                message = x.Run(message.run, message.common, longer, user=message.user, task=message.task)
        super().to_executor(executor, message)


class _WithInputs(Sparrow):
    """Sparrow for jobs that wait for their nodes so long, and no longer."""

    node_host = _Node
    delay_s: float | None = None

    def submit(self, record: JobRecord) -> None:
        _Node.jobs[record.job.number] = record.job
        self.clients[record.job.user].submit(record, delay_s=self.delay_s, common=str(record.job.number).encode())


def simulated(case: Case) -> dict[str, float]:
    """What the simulation shows."""
    POLICIES[NAME] = _WithInputs
    _Node.jobs, _Node.remote = {}, case.remote
    _WithInputs.delay_s = None if case.delay_ms is None else case.delay_ms / 1000
    cluster = Cluster(nodes=NODES, slots=SLOTS, schedulers=SCHEDULERS)
    result = simulate(cluster, workload(case), NAME, seed=case.seed)
    count = len(result.records)
    measured = result.records[int(count * WARM_UP) : count - int(count * COOL_DOWN)]
    local, responses_ms = 0, []
    for record in measured:
        job = record.job
        ends_s = []
        for task, (started_s, node) in enumerate(zip(record.started_s, record.nodes, strict=True)):
            here = node in job.preferred[task]
            local += here
            ends_s.append(started_s + job.durations_s[task] * (1 if here else case.remote))
        responses_ms.append(1000 * (max(ends_s) - job.arrival_s))
    return _figures(responses_ms, local / (len(measured) * TASKS))


def _figures(responses_ms: list[float], local: float) -> dict[str, float]:
    p50, p95 = np.percentile(responses_ms, (50, 95))
    return {"mean_ms": statistics.fmean(responses_ms), "p50_ms": float(p50), "p95_ms": float(p95), "local": local}


# ---- live ------------------------------------------------------------------------------------


def live(case: Case, target: Target) -> dict[str, float]:
    """The same against real daemons. The jobs are submitted when they are due, whatever became of those before."""
    jobs = list(workload(case).generate(case.seed, LIVE_NODES, LIVE_SLOTS))
    delay_s = None if case.delay_ms is None else case.delay_ms / 1000
    local, responses_ms = 0, []
    with Client(target.addresses) as client:
        begun_s = time.monotonic()
        under_way = []
        for job in jobs:
            time.sleep(max(0.0, begun_s + job.arrival_s - time.monotonic()))
            names = [[target.nodes[node] for node in nodes] for nodes in job.preferred]
            tasks = [
                TaskSpec(encode_duration(duration_s), preferred=nodes)
                for duration_s, nodes in zip(job.durations_s, names, strict=True)
            ]
            under_way.append((client.submit_job(JobSpec(tasks, app=SLEEP_APP, delay_s=delay_s)), names))
        reports = [(job.report(timeout_s=END_TIMEOUT_S), names) for job, names in under_way]
    for report, names in reports[int(len(reports) * WARM_UP) : len(reports) - int(len(reports) * COOL_DOWN)]:
        response_s = report.response_s
        assert response_s is not None, f"no task of {report} ran"
        responses_ms.append(1000 * response_s)
        local += sum(task.node in names[task.task] for task in report.tasks)
    return _figures(responses_ms, local / (len(responses_ms) * TASKS))


def _live_runs(cases: list[Case]) -> Iterator[tuple[Case, dict[str, float]]]:
    shape = Shape(nodes=LIVE_NODES, slots=LIVE_SLOTS, schedulers=LIVE_SCHEDULERS)
    with tempfile.TemporaryDirectory() as directory, LocalTarget(shape, Path(directory)) as target:
        for case in cases:
            progress(f"{case}")
            yield case, live(case, target)


# ---- the tables ------------------------------------------------------------------------------


def rows(found: dict[Case, dict[str, float]], layout: str, loads: tuple[float, ...]) -> Iterator[Row]:
    """A row for each load and way of waiting: means over seeds."""
    for load in loads:
        ways = dict.fromkeys(
            (case.delay_ms, case.remote) for case in found if (case.layout, case.load) == (layout, load)
        )
        for delay_ms, remote in ways:
            runs = [found[case] for case in found if case[:4] == (layout, load, delay_ms, remote)]
            mean = {name: statistics.fmean(run[name] for run in runs) for name in runs[0]}
            yield {
                "load": load,
                "delay": "firm" if delay_ms is None else f"{delay_ms:g} ms",
                "remote": "" if delay_ms is None else f"{remote:g} ×",
                "local": f"{100 * mean['local']:.1f} %",
                "mean": f"{mean['mean_ms']:.0f} ms",
                "p50": f"{mean['p50_ms']:.0f} ms",
                "p95": f"{mean['p95_ms']:.0f} ms",
            }  # fmt: skip


def gain(found: dict[Case, dict[str, float]], cases: list[Case]) -> float:
    """What the first delay makes of the mean response time, in percent, by the cases that `value` is of."""
    soft = next(case for case in cases if case.delay_ms is not None)
    hardest = [case for case in cases if case.layout == soft.layout and case.load == max(one.load for one in cases)]
    pairs = [
        (found[_firm(case)]["mean_ms"], found[case]["mean_ms"])
        for case in hardest if (case.delay_ms, case.remote) == (soft.delay_ms, soft.remote)
    ]  # fmt: skip
    return statistics.fmean(100 * (after / before - 1) for before, after in pairs)


def _firm(case: Case) -> Case:
    """The same case without delay scheduling."""
    return case._replace(delay_ms=None, remote=1.0)


@click.command("locality", help=__doc__)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
@click.option("--live", "is_live", is_flag=True, help="Real daemons on this machine, whose tasks sleep.")
@click.option("--repeat", type=click.IntRange(1), default=2, show_default=True, help="Seeds.")
@click.option("--quick", is_flag=True, help=f"{QUICK_JOBS} jobs in place of {JOBS}, the highest load only.")
@click.option("--jobs", type=click.IntRange(20), default=JOBS, show_default=True, help="Jobs of a run.")
@click.option("--layout", multiple=True, type=click.Choice(LAYOUTS), default=LAYOUTS, show_default=True)
@click.option("--load", multiple=True, type=click.FloatRange(0.01, 0.99), default=LOADS, show_default=True)
@click.option("--delay-ms", multiple=True, type=click.FloatRange(0), default=DELAYS_MS, show_default=True)
@click.option("--remote", multiple=True, type=click.FloatRange(1, 100), default=REMOTES, show_default=True)
@click.option("--processes", type=click.IntRange(1), default=2, show_default=True, help="Simulations at a time.")
def main(
    as_json: bool,
    is_live: bool,
    repeat: int,
    quick: bool,
    jobs: int,
    layout: tuple[str, ...],
    load: tuple[float, ...],
    delay_ms: tuple[float, ...],
    remote: tuple[float, ...],
    processes: int,
) -> None:
    """Print the tables."""
    loads, jobs = (load[-1:], QUICK_JOBS) if quick else (load, jobs)
    remotes = (1.0,) if is_live else remote
    ways = [(None, 1.0), *((delay, factor) for factor in remotes for delay in delay_ms)]
    cases = [
        Case(name, one, *way, jobs, seed)
        for name in layout for one in loads for seed in range(1, repeat + 1) for way in ways
    ]  # fmt: skip
    found = dict(_live_runs(cases) if is_live else side_by_side(simulated, cases, processes))
    nodes, slots, schedulers = (LIVE_NODES, LIVE_SLOTS, LIVE_SCHEDULERS) if is_live else (NODES, SLOTS, SCHEDULERS)
    size = f"{nodes} × {slots} slots, {schedulers} schedulers, {'live' if is_live else 'simulated'}"
    in_order = {case: found[case] for case in cases}
    tables = {f"{name} replicas; {size}": list(rows(in_order, name, loads)) for name in layout}
    raw = [{**case._asdict(), **found[case]} for case in cases]
    report = Report("locality", gain(found, cases), f"% mean response at load {max(loads)}", tables, raw, [])
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False, width=120))


if __name__ == "__main__":
    main()
