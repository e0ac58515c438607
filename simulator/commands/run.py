"""`python -m simulator run`: a workload on a simulated cluster, under one policy or several."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import click

from loadgen.durations import KINDS as SERVICE_KINDS
from loadgen.durations import PER, Durations
from loadgen.synthetic import Synthetic
from loadgen.traces import Trace, read_trace
from node_monitor.options import QUEUE_POLICIES
from scheduler.options import SchedulerOptions
from simulator.cluster import Cluster
from simulator.commands import output
from simulator.commands.field_options import FlagCommand, made, options_of
from simulator.network import KINDS as DELAY_KINDS
from simulator.network import Delay
from simulator.policies import POLICIES, ROOMS, Settings
from simulator.simulate import Result, simulate
from sparrow_py.daemon.options import given as stated
from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT, PROFILES, completed

CLUSTER = {
    "nodes": "Node monitors.",
    "slots": "Tasks that each runs at a time.",
    "schedulers": "Schedulers; each job goes to one of them.",
    "zones": "Node i is in zone i mod ZONES, and each job asks for a zone at random; 0: no zones.",
    "queue": f"Policy of the node monitors' queues: {', '.join(QUEUE_POLICIES)}.",
}
WORKLOAD = {
    "tasks": "Tasks of each job.",
    "load": "Work that arrives over what the slots can do, above 0 and below 1. "
    "With --trace: stretches its arrivals to this load, if given.",
    "jobs": "Jobs that arrive; the first tenth and the last twentieth are not measured.",
    "constrained": "Share of jobs whose tasks each prefer REPLICAS random nodes and run nowhere else.",
    "replicas": "How many nodes a constrained task prefers.",
    "large": "Share of jobs that have LARGE_TASKS tasks instead.",
    "large_tasks": "Tasks of a large job.",
    "state_duration": "Jobs state the mean duration of their tasks.",
}
SERVICE = {
    "mean_ms": "Mean service time of tasks, in milliseconds.",
    "alpha": "Tail index of Pareto service times, above 1; the smaller, the heavier the tail.",
    "per": f"Service times are drawn per {' or per '.join(PER)}.",
}
SETTINGS = {"probe_ratio": "d: reservations (probes) per task, from 1."}
OF_SYNTHETIC = ("tasks", "jobs", "service", "user", *WORKLOAD, *SERVICE)
"""Options that mean nothing with a trace."""


def _options() -> list[click.Parameter]:
    delay, service = Delay(), Durations()
    return [
        *options_of(Cluster, CLUSTER),
        click.Option(
            ["--rtt-ms"], type=float, default=2 * delay.one_way_ms, help="Mean round trip of the network, in ms."
        ),
        click.Option(
            ["--delay"], default=delay.kind, help=f"How the network's delay is distributed: {', '.join(DELAY_KINDS)}."
        ),
        *options_of(Synthetic, WORKLOAD, skip=("zones",)),
        click.Option(
            ["--service"], default=service.kind, help=f"Distribution of service times: {', '.join(SERVICE_KINDS)}."
        ),
        *options_of(Durations, SERVICE, skip=("kind",)),
        click.Option(
            ["--user"], multiple=True, metavar="NAME[=WEIGHT]",
            help="A user with this share under fair queueing (default 1); jobs are of one of them at random. Repeat.",
        ),
        click.Option(["--trace"], metavar="FILE", help="Take the jobs from this file (docs/simulator.md)."),
        click.Option(
            ["--policy"], default="sparrow",
            help=f"{', '.join(POLICIES)}; several, separated by commas, meet the same jobs.",
        ),
        click.Option(
            ["--profile"], default=DEFAULT,
            help=f"Settings that the following options start from: {' or '.join(PROFILES)}. "
            "Another than default allows no others.",
        ),
        *options_of(Settings, SETTINGS),
        click.Option(["--seed"], type=int, default=1, help="The same seed gives the same run."),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object a run instead of a table."),
        click.Option(["--out"], metavar="FILE", help="Write a row for each task to this Parquet file."),
    ]  # fmt: skip


@click.pass_context
def _run(ctx: click.Context, /, **values: Any) -> None:
    policies = _policies(values["policy"])
    users, weights = _users(values["user"])
    delay = Delay(values["delay"], values["rtt_ms"] / 2)
    cluster = made(Cluster, values, delay=delay, weights=weights)
    given = stated(ctx, values)
    settings = made(Settings, values | completed(values["profile"], ROOMS, given))
    workload = _trace(values, given, cluster) if values["trace"] else _synthetic(values, users)
    results: list[Result] = []
    with ExitStack() as stack:
        tasks = stack.enter_context(output.TaskTable(values["out"])) if values["out"] else None
        for result in _results(cluster, workload, policies, settings, values["seed"]):
            if tasks is not None:
                tasks.add(result)
            if values["as_json"]:
                click.echo(output.as_json(result))
            results.append(_without_records(result))
    if not values["as_json"]:
        output.show(results)


def _results(
    cluster: Cluster, workload: Synthetic | Trace, policies: list[str], settings: Settings, seed: int
) -> Iterator[Result]:
    """A run per policy; what it cost goes to standard error, so that equal seeds give equal output."""
    for policy in policies:
        started_s = time.perf_counter()
        result = simulate(cluster, workload, policy, settings, seed=seed)
        took_s = time.perf_counter() - started_s
        events = result.figures()["events"]
        click.echo(
            f"{policy}: {took_s:.1f} s, {events:,} events, {events / took_s:,.0f} events/s, "
            f"at most {_memory_mb():,.0f} MB so far",
            err=True,
        )
        yield result


def _without_records(result: Result) -> Result:
    """What the table needs: the jobs of several runs at a time would take much memory."""
    result.records.clear()
    return result


def _memory_mb() -> float:
    """The largest resident set of this process so far, in megabytes (10^6 bytes)."""
    unit_bytes = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit_bytes / 1e6


def _policies(text: str) -> list[str]:
    policies = text.split(",")
    for policy in policies:
        if policy not in POLICIES:
            raise InvalidOption("policy", policy, ", ".join(POLICIES))
    return policies


def _users(texts: tuple[str, ...]) -> tuple[tuple[str, ...], dict[str, float]]:
    """The users, and the weights of those that have one."""
    weights: dict[str, float] = {}
    users: list[str] = []
    for text in texts:
        user, equals, _ = text.partition("=")
        if not user or user in users:
            raise InvalidOption("user", text, "NAME or NAME=WEIGHT, each name once")
        users.append(user)
        if equals:
            try:
                weights |= SchedulerOptions(user_weight=(text,)).weights
            except InvalidOption as error:
                raise InvalidOption("user", text, f"NAME=WEIGHT with a weight that is {error.allowed}") from None
    return tuple(users), weights


def _synthetic(values: dict[str, Any], users: tuple[str, ...]) -> Synthetic:
    durations = made(Durations, values, kind=values["service"])
    more = {"users": users} if users else {}
    return made(Synthetic, values, durations=durations, **more)  # type: ignore[no-any-return]


def _trace(values: dict[str, Any], given: dict[str, Any], cluster: Cluster) -> Trace:
    for name in OF_SYNTHETIC:
        if name in given and name not in ("load", "user"):
            raise InvalidOption(name, values[name], "nothing with --trace, whose jobs are what they are")
    trace = read_trace(values["trace"])
    if "load" in given:
        if not 0 < values["load"] < 1:
            raise InvalidOption("load", values["load"], "above 0 and below 1: from 1 on queues grow without end")
        trace = trace.at_load(values["load"], cluster.nodes, cluster.slots)
    return trace


run_command = FlagCommand(
    "run",
    callback=_run,
    params=_options(),
    help="Simulate a workload on a cluster, and print how long its jobs took.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True},
)
