"""Overload: one user offers ten times what the cluster can do, while two others stay within their shares.

`NODES` node monitors × `SLOTS` slots behind one scheduler, and tasks that sleep for `TASK_S`: what the cluster can do
is set by its slots (`SUSTAINABLE_PER_S` tasks a second), not by the machine. Ada and Grace offer half of their equal
shares, open loop, all the time; Mallory offers `OVERLOAD` times what the whole cluster can do, for `--seconds`, and
takes every refusal at once (`submit_timeout_s=0`), so each is counted with the time that it said to wait. Each user
is a process. With `--patient` Mallory's client library offers what is refused again by itself, for `PATIENT_S`, as
clients do unless they are told not to: what that does to the scheduler shows in its CPU time. Latency is a job's
response less what its tasks last. Recovered is when nothing is queued any more, and from when on the median latency
of Ada and Grace, over `WINDOW_S`, is within `NORMAL` times what it was before.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import re
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import click
import numpy as np
from rich.console import Console

from benchmarks.report import Report, Row, cpu_s, progress, rss_mb
from frontends.synthetic.tasks import sleep_job
from sparrow_py import LocalCluster
from sparrow_py.errors import Refused, SparrowError
from sparrow_py.session.event_loop import new_event_loop
from sparrow_py.session.job_sink import JobSink
from sparrow_py.session.session import Session
from sparrow_py.wire.http_get import http_get_text
from sparrow_py.wire.messages import Outcome

NODES = 4
SLOTS = 4
TASK_S = 0.1
JOB_TASKS = 4
"""So that a polite job fits the slots that are its user's share."""
GREEDY_JOB_TASKS = 20
SUSTAINABLE_PER_S = NODES * SLOTS / TASK_S
OVERLOAD = 10
POLITE = ("ada", "grace")
GREEDY = "mallory"
WITHIN = 0.5
"""Of its share (a third of the cluster) each polite user offers so much."""
BEFORE_S = 10.0
AFTER_S = 15.0
UNPLACED_TASKS_MAX = 500
"""What is accepted has to be done: this many tasks are how long the recovery takes."""
RESERVATIONS_PER_USER_MAX = 150
SPREAD = 0.5
"""Mallory's tasks last from half as long to one and a half times: else all slots would be free at the same moments."""
PATIENT_S = 20.0
SAMPLE_S = 0.5
WINDOW_S = 2.0
NORMAL = 1.25


@dataclass(frozen=True)
class Offered:
    """A job that was offered. due_s: when, by the machine's monotonic clock. latency_s: its response less what its
    tasks last, None if it was refused. retry_after_s: what the refusal said."""

    due_s: float
    latency_s: float | None
    retry_after_s: float | None
    finished: int


class _Job(JobSink):
    """A sink that keeps what became of a job."""

    def __init__(self, due_s: float, offered: list[Offered]) -> None:
        self._due_s = due_s
        self._offered = offered
        self._finished = 0

    def refused(self, error: SparrowError) -> None:
        if not isinstance(error, Refused):
            raise error
        self._offered.append(Offered(self._due_s, None, error.retry_after_s, 0))

    def settle(self, outcome: Outcome, lost: SparrowError | None = None) -> None:
        self._finished += outcome.status == "finished"

    def finish(self) -> None:
        latency_s = time.monotonic() - self._due_s - TASK_S
        self._offered.append(Offered(self._due_s, latency_s, None, self._finished))


@dataclass(frozen=True)
class User:
    """Who offers what. spread: of the tasks' durations. patient_s: how long its client offers what is refused."""

    name: str
    tasks_per_s: float
    job_tasks: int
    spread: float = 0.0
    patient_s: float = 0.0


def offer(address: str, user: User, start_s: float, end_s: float) -> list[Offered]:
    """One user's jobs from `start_s` to `end_s`, each when it is due; what became of all of them."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_offer(address, user, start_s, end_s))


async def _offer(address: str, user: User, start_s: float, end_s: float) -> list[Offered]:
    session = Session(address, user=user.name, submit_timeout_s=user.patient_s)
    await session.start()
    rng = random.Random(user.name)
    offered: list[Offered] = []
    every_s = user.job_tasks / user.tasks_per_s
    jobs = max(1, int((end_s - start_s) / every_s))
    for number in range(jobs):
        due_s = start_s + number * every_s
        await asyncio.sleep(max(0.0, due_s - time.monotonic()))
        spread = user.spread
        spec = sleep_job([TASK_S * rng.uniform(1 - spread, 1 + spread) for _ in range(user.job_tasks)])
        spec.job_id = f"{user.name}-{number}"
        session.submit(spec, _Job(due_s, offered))
    while len(offered) < jobs:
        await asyncio.sleep(SAMPLE_S)
    await session.stop()
    return offered


def gauge(address: str, name: str) -> float:
    """A metric without labels."""
    found = re.search(rf"^{name} (\S+)$", http_get_text(address, "/metrics"), re.M)
    assert found is not None, name
    return float(found[1])


@dataclass
class Samples:
    """The daemons, now and then. Each is (time, unplaced tasks, queued reservations, RSS of the scheduler, of all node
    monitors)."""

    rows: list[tuple[float, float, float, float, float]]

    def take(self, cluster: LocalCluster, until_s: float) -> None:
        """Until then."""
        nodes = cluster.node_processes
        while time.monotonic() < until_s:
            at_s = time.monotonic()
            unplaced = gauge(cluster.addresses[0], "sparrow_scheduler_unplaced_tasks")
            queued = sum(gauge(node.address, "sparrow_node_monitor_queued_reservations") for node in nodes)
            schedulers_mb = rss_mb([process.pid for process in cluster.scheduler_processes])
            self.rows.append((at_s, unplaced, queued, schedulers_mb, rss_mb([node.pid for node in nodes])))
            time.sleep(SAMPLE_S)

    def between(self, start_s: float, end_s: float) -> list[tuple[float, float, float, float, float]]:
        """Those of this time."""
        return [row for row in self.rows if start_s <= row[0] < end_s]


def measure(seconds: float, *, patient: bool) -> Report:
    """The three phases, and the tables."""
    flags = ["--unplaced-tasks-max", str(UNPLACED_TASKS_MAX)]
    node_flags = ["--warm", "noop", "--reservations-per-user-max", str(RESERVATIONS_PER_USER_MAX)]
    with LocalCluster(1, NODES, slots=SLOTS, scheduler_options=flags, node_options=node_flags) as cluster:
        address = cluster.addresses[0]
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(len(POLITE) + 1, mp_context=spawn) as users:
            list(users.map(time.sleep, [0.5] * (len(POLITE) + 1)))  # The processes are up.
            began_s = time.monotonic() + 1.0
            over_from_s = began_s + BEFORE_S
            over_until_s = over_from_s + seconds
            end_s = over_until_s + AFTER_S
            share = SUSTAINABLE_PER_S / (len(POLITE) + 1)
            polite = [
                users.submit(offer, address, User(name, WITHIN * share, JOB_TASKS), began_s, end_s) for name in POLITE
            ]
            rate = OVERLOAD * SUSTAINABLE_PER_S
            mallory = User(GREEDY, rate, GREEDY_JOB_TASKS, SPREAD, PATIENT_S if patient else 0.0)
            greedy = users.submit(offer, address, mallory, over_from_s, over_until_s)
            progress(f"{rate:g} tasks a second are offered to {NODES * SLOTS} slots for {seconds:g} s")
            samples = Samples([])
            scheduler = [cluster.scheduler_processes[0].pid]
            cpu_before_s = cpu_s(scheduler)
            samples.take(cluster, end_s)
            scheduler_cpu_s = cpu_s(scheduler) - cpu_before_s
            offers = {user: offered.result() for user, offered in zip(POLITE, polite, strict=True)}
            offers[GREEDY] = greedy.result()
            refused = gauge(address, "sparrow_scheduler_jobs_refused_total")
    details = {"refusals that the scheduler sent": int(refused), "scheduler CPU s": scheduler_cpu_s}
    return _report(seconds, offers, samples, details, began_s, over_from_s, over_until_s, end_s)


def _report(
    seconds: float,
    offers: dict[str, list[Offered]],
    samples: Samples,
    scheduler: Row,
    began_s: float,
    over_from_s: float,
    over_until_s: float,
    end_s: float,
) -> Report:
    phases = {
        "before": (began_s + WINDOW_S, over_from_s),
        "during": (over_from_s, over_until_s),
        "after": (over_until_s, end_s),
    }
    polite = [one for user in POLITE for one in offers[user]]
    rows = [_phase_row(name, polite, samples, *span) for name, span in phases.items()]
    refusals = [one for one in offers[GREEDY] if one.latency_s is None]
    waits_s = [one.retry_after_s for one in refusals if one.retry_after_s is not None]
    finished = sum(one.finished for one in offers[GREEDY])
    empty_s = next((row[0] for row in samples.rows if row[0] >= over_until_s and not row[1] and not row[2]), None)
    normal_s = _normal_from_s(polite, rows[0]["latency p50 ms"] / 1000, over_until_s, end_s)
    greedy_row: Row = {
        "jobs offered": len(offers[GREEDY]),
        "refused": len(refusals),
        "of them with retry-after": len(waits_s),
        "retry-after p50 s": float(np.median(waits_s)) if waits_s else float("nan"),
        "max s": max(waits_s, default=float("nan")),
        "tasks finished": finished,
        "a second": finished / ((empty_s or end_s) - over_from_s),
    }
    recovery: Row = {
        "until nothing is queued s": float("nan") if empty_s is None else empty_s - over_until_s,
        "until latency is normal s": float("nan") if normal_s is None else normal_s - over_until_s,
        "polite jobs refused": sum(one.latency_s is None for one in polite),
        "polite tasks without result": JOB_TASKS * len(polite) - sum(one.finished for one in polite),
    }
    return Report(
        "overload",
        rows[1]["p95 ms"],
        f"ms of latency, p95, of users within their share while another offers {OVERLOAD} times the cluster's rate",
        {
            f"Users within their share ({WITHIN * SUSTAINABLE_PER_S / 3:.0f} tasks a second each), and daemons": rows,
            f"The user beyond its share ({OVERLOAD * SUSTAINABLE_PER_S:.0f} tasks a second)": [greedy_row],
            "Recovery": [recovery],
            "The scheduler": [scheduler],
        },
        [],
        [
            f"{NODES} × {SLOTS} slots, tasks of {1000 * TASK_S:g} ms, for {seconds:g} s. Limits for each user: "
            f"unplaced_tasks_max {UNPLACED_TASKS_MAX}; reservations_per_user_max {RESERVATIONS_PER_USER_MAX}.",
            "Running tasks are not interrupted: a user within its share waits for the next slot that is free, no more.",
        ],
        {"samples": samples.rows, "over_from_s": over_from_s, "over_until_s": over_until_s},
    )


def _phase_row(name: str, polite: Sequence[Offered], samples: Samples, start_s: float, end_s: float) -> Row:
    waits_ms = [1000 * one.latency_s for one in polite if one.latency_s is not None and start_s <= one.due_s < end_s]
    p50, p95, p99 = np.percentile(waits_ms, (50, 95, 99))
    seen: list[Any] = samples.between(start_s, end_s)
    return {
        "phase": name,
        "jobs": len(waits_ms),
        "latency p50 ms": float(p50),
        "p95 ms": float(p95),
        "p99 ms": float(p99),
        "unplaced tasks at most": max(int(row[1]) for row in seen),
        "reservations at most": max(int(row[2]) for row in seen),
        "scheduler MB": max(row[3] for row in seen),
        "node monitors MB": max(row[4] for row in seen),
    }


def _normal_from_s(polite: Sequence[Offered], before_s: float, from_s: float, end_s: float) -> float | None:
    """The beginning of the first window after the overload in which the median is as before, or nearly."""
    for start_s in np.arange(from_s, end_s - WINDOW_S, SAMPLE_S / 5):
        window = [one.latency_s for one in polite if start_s <= one.due_s < start_s + WINDOW_S]
        found = [latency_s for latency_s in window if latency_s is not None]
        if found and np.median(found) <= NORMAL * before_s:
            return float(start_s)
    return None


@click.command(help="One user beyond its share, two within theirs: refusals, memory, latency, recovery.")
@click.option("--seconds", type=click.FloatRange(1.0), default=60.0, show_default=True, help="Of overload.")
@click.option("--patient", is_flag=True, help="Have the refused jobs be offered again by the client library.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of tables.")
def main(seconds: float, patient: bool, as_json: bool) -> None:
    """Measure it."""
    report = measure(seconds, patient=patient)
    if as_json:
        click.echo(report.as_json())
    else:
        report.show(Console(highlight=False))


if __name__ == "__main__":
    main()
