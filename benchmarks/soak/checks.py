"""Checks of the clients' records, of what the cluster keeps, of its memory, its files and its logs.

Zero lost: every task of a job that a client submitted and that lived to hear of it has an outcome, and none is `lost`
while attempts remain. A task may end `lost` when it was started as often as its job allows: with `max_attempts=1`
when what runs it dies, or its scheduler and a node together (then it may not even have begun: nobody can know), with
three only if three deaths hit it. Such are counted apart, and are no violation (ARCHITECTURE.md, "Attempts, and
guarantee 3"; docs/reliability.md, guarantees 3 and 4).

Zero duplicated: no outcome was told twice, and no task was started more often than `max_attempts` allows, by its own
account: each start of a Python function or command writes a line. With a copy of a slow task (`speculate`) that is
allowed twice over.

A result by reference is lost with its node. Those that were not fetched before are counted apart.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHOWN_MAX = 5
"""Of one kind of evidence."""


@dataclass
class Tally:
    """What the records of all clients come to."""

    jobs: int = 0
    tasks: int = 0
    finished: int = 0
    failed: int = 0
    cancelled: int = 0
    retries: int = 0
    refused_jobs: int = 0
    forsaken_jobs: int = 0
    """Whose client was killed."""
    suppressed: int = 0
    """Outcomes that came to a client again, and were told to nobody."""
    lost_at_most_once: int = 0
    lost_out_of_attempts: int = 0
    lost: int = 0
    """While attempts remained, or without an outcome."""
    duplicated: int = 0
    results_lost: int = 0
    starts: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    lasted_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def violate(self, what: str, count: int = 1) -> None:
        """Something that must hold does not."""
        if count:
            self.violations.append(what)


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The lines of a file, without one that a killed process did not finish."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def tally(records: Iterable[Sequence[dict[str, Any]]], starts: Counter[tuple[str, int]]) -> Tally:
    """Judge the records, one of each client's; starts: how often each task wrote down that it started."""
    sums = Tally(starts=starts.total())
    limits: dict[str, tuple[str, int]] = {}
    for lines in records:
        _judge_client(sums, lines, limits)
    _judge_starts(sums, starts, limits)
    return sums


def _judge_client(sums: Tally, lines: Sequence[dict[str, Any]], limits: dict[str, tuple[str, int]]) -> None:
    open_jobs: dict[str, str] = {}
    over: set[str] = set()
    for line in lines:
        event, job = line["event"], line.get("job", "")
        if event == "life":  # Another process: what the one before had under way is nobody's any more.
            sums.forsaken_jobs += len(open_jobs)
            open_jobs.clear()
        elif event == "submitted":
            open_jobs[job] = line["kind"]
            limits[job] = line["kind"], line["max_attempts"]
        elif event == "refused":
            sums.refused_jobs += 1
            del open_jobs[job]
        elif event == "ended":
            open_jobs.pop(job, None)
            sums.violate(f"job {job} ended twice", job in over)
            over.add(job)
            _judge_job(sums, line)
        elif event == "ended twice":
            sums.duplicated += 1
            sums.violate(f"job {job} was said to have ended twice")
        elif event == "done":
            sums.suppressed += line["suppressed"]
    sums.lost += len(open_jobs)
    for job, kind in list(open_jobs.items())[:SHOWN_MAX]:
        sums.violate(f"job {job} ({kind}) has not ended")


def _judge_job(sums: Tally, line: dict[str, Any]) -> None:
    job = f"job {line['job']} ({line['kind']})"
    statuses = line["statuses"]
    sums.jobs += 1
    sums.tasks += line["tasks"]
    sums.kinds[line["kind"]] += 1
    sums.lasted_s.append(line["lasted_s"])
    for name in ("finished", "failed", "cancelled"):
        setattr(sums, name, getattr(sums, name) + statuses.get(name, 0))
    sums.retries += sum(max(0, attempts - 1) for attempts in line["attempts"])
    sums.results_lost += len(line["results_lost"])
    lost = statuses.get("lost", 0) - line["lost_early"]
    if line["max_attempts"] == 1:
        sums.lost_at_most_once += lost
    else:
        sums.lost_out_of_attempts += lost
    sums.lost += line["untold"] + line["lost_early"]
    sums.duplicated += len(line["told_again"])
    sums.violate(f"{job}: {line['untold']} tasks have no outcome", line["untold"])
    sums.violate(f"{job}: lost while attempts remain: {line['lost']}", line["lost_early"])
    sums.violate(f"{job}: outcomes told again: {line['told_again']}", len(line["told_again"]))
    sums.violate(f"{job}: accepted {line['accepted']} times", line["accepted"] > 1)
    for wrong in line["wrong"]:
        sums.violate(f"{job}: {wrong}")
    most = max(line["attempts"], default=0)
    sums.violate(f"{job}: {most} attempts", most > line["max_attempts"])


def _judge_starts(sums: Tally, starts: Counter[tuple[str, int]], limits: dict[str, tuple[str, int]]) -> None:
    for (job, task), times in starts.items():
        kind, limit = limits.get(job, ("", 0))
        if not kind:
            sums.violate(f"task {task} of job {job}, which nobody submitted, was started")
        elif times > (2 * limit if kind == "slow" else limit):
            sums.duplicated += 1
            sums.violate(f"job {job} ({kind}): task {task} was started {times} times, at most {limit} are allowed")


def read_starts(path: Path) -> Counter[tuple[str, int]]:
    """How often each task was started."""
    text = path.read_text() if path.exists() else ""
    return Counter((job, int(task)) for job, task in (line.split() for line in text.splitlines()))


# ---- what is left ----------------------------------------------------------------------------


SCHEDULER_GAUGES = ("sparrow_scheduler_jobs", "sparrow_scheduler_unplaced_tasks", "sparrow_scheduler_clients")
NODE_GAUGES = ("sparrow_node_monitor_queued_reservations", "sparrow_node_monitor_blobs")


def gauges(metrics: str) -> dict[str, float]:
    """The values without labels of a page of metrics."""
    return {name: float(value) for name, value in re.findall(r"^(\w+) (\S+)$", metrics, re.M)}


def left_at_scheduler(name: str, metrics: str, jobs: Sequence[Any], nodes: Sequence[dict[str, Any]]) -> list[str]:
    """What a scheduler has that it should not have when nothing is to do."""
    values = gauges(metrics)
    left = [f"{name}: {gauge} is {values[gauge]:g}" for gauge in SCHEDULER_GAUGES if values[gauge]]
    if jobs:
        left.append(f"{name}: {len(jobs)} jobs: {jobs[:SHOWN_MAX]}")
    for node in nodes:
        if node["busy"] or node["reservations"]:
            left.append(f"{name}: {node['busy']} busy and {node['reservations']} reservations at {node['id']}")
    return left


def left_at_node(
    name: str, metrics: str, nodes: Sequence[dict[str, Any]], schedulers: int | None, ignored: Container[str] = ()
) -> list[str]:
    """What a node monitor has that it should not have when nothing is to do, or lacks.

    schedulers: to how many it must be linked; None: to any number. ignored: gauges that may be what they are.
    """
    values = gauges(metrics)
    wrong = [gauge for gauge in NODE_GAUGES if values[gauge] and gauge not in ignored]
    left = [f"{name}: {gauge} is {values[gauge]:g}" for gauge in wrong]
    for node in nodes:
        if node["free_slots"] != node["slots"]:
            left.append(f"{name}: {node['free_slots']} of {node['slots']} slots are free")
        if node["queued_by_user"]:
            left.append(f"{name}: reservations of {node['queued_by_user']}")
        if schedulers is not None and len(node["schedulers"]) != schedulers:
            left.append(f"{name}: linked to {len(node['schedulers'])} of {schedulers} schedulers")
    return left


# ---- logs ------------------------------------------------------------------------------------


def tracebacks(log: Path) -> list[str]:
    """The last lines of the tracebacks in a daemon's log: a daemon does not raise what it does not handle."""
    found, within = [], False
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("Traceback "):
            within = True
        elif within and line and not line[0].isspace():
            found.append(f"{log.stem}: {line}")
            within = False
    return found
