"""A workload like that of Google's cluster of May 2011, made up from what is published of it (paper 004, §5.2.2, §6.2).

A cluster of 12,500 machines runs 135,000 tasks of 1,800 jobs. Some of them are of batch jobs, whose tasks last for a
time of median 420 s (lognormal, σ 1.65: the published 90th and 99th percentiles are an hour and five hours); all others
are services, which outlast every run. Of all jobs 1.2 % have more than 1,000 tasks, and some more than 20,000.

What is not published is fitted to what is: in half a second fewer than 10 events (submissions, starts, ends) come in
60 % of all cases and fewer than 100 in 95 %; in 20 s more than 500 in half of all cases, and about 5,000 in 5 %. That
needs bursts on both scales: large jobs, and jobs whose tasks end together. It also needs a quarter of the tasks to be
batch tasks: with 20,000 of them, the median of 20 s would be 350 events.

A smaller cluster has as many jobs, and each is smaller.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loadgen.jobs import WorkloadJob
from sparrow_py.errors import InvalidOption

Reals = NDArray[np.float64]
Numbers = NDArray[np.int64]

MACHINES = 12_500
"""Of the cluster that was traced."""
TASKS_PER_MACHINE = 10.8
JOBS = 1_800
BATCH_SHARE = 0.26

MEDIAN_S = 420.0
SIGMA = 1.65
OF_JOB_SIGMA = 1.0
"""The part of σ that all tasks of a job have in common; the squares of both parts add up."""
ENDING_TOGETHER = 0.3
"""Of batch jobs: all of their tasks last equally long."""
SUBMITTED_PER_S = 1_000.0
"""Tasks of a job are submitted one after the other."""

LARGE_SHARE = 0.012
LARGE, LARGEST = 1_000, 40_000
"""Tasks of the least and of the largest of the large jobs, whose sizes are as 1/size."""
SINGLE_SHARE = 0.74
"""Jobs of one task."""
BODY_EXPONENT = 1.3
SIZE_LARGEST_MIN = 40
"""However small the cluster is."""

MACHINES_MAX = 1_000_000
SPEEDUP_MAX = 10_000.0
TASKS_MAX = 20_000_000
"""Of one run."""


@dataclass(frozen=True, slots=True)
class Running:
    """What runs at the beginning, by task: its job's number, and how long it still runs, infinite for services."""

    job: Numbers
    left_s: Reals


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What comes, by task in order of arrival: its job's number (from 0), when, and how long it takes."""

    job: Numbers
    at_s: Reals
    duration_s: Reals


@dataclass(frozen=True, kw_only=True)
class GoogleLike:
    """See the module's docstring.

    speedup: batch tasks are so many times as short, and come so many times as fast; services stay (§6.2.4).
    """

    machines: int = MACHINES
    speedup: float = 1.0
    seconds: float = 3600.0
    jobs_running: int = JOBS
    tasks_per_machine: float = TASKS_PER_MACHINE
    batch_share: float = BATCH_SHARE

    def __post_init__(self) -> None:
        for name, least, most in (
            ("machines", 1, MACHINES_MAX),
            ("speedup", 0.001, SPEEDUP_MAX),
            ("seconds", 0.001, 1e7),
            ("jobs_running", 1, 1_000_000),
            ("tasks_per_machine", 0.01, 1_000),
            ("batch_share", 0, 1),
        ):
            if not least <= getattr(self, name) <= most:
                raise InvalidOption(name, getattr(self, name), f"a number from {least:,} to {most:,}")
        if self.tasks_per_s * self.seconds > TASKS_MAX:
            raise InvalidOption("seconds", self.seconds, f"so many that fewer than {TASKS_MAX:,} tasks come in them")

    # ---- rates

    @property
    def tasks_running(self) -> int:
        """On average."""
        return max(1, round(self.machines * self.tasks_per_machine))

    @property
    def tasks_per_s(self) -> float:
        """That come, and that end."""
        mean_s = MEDIAN_S * float(np.exp(SIGMA**2 / 2))
        return self.tasks_running * self.batch_share / mean_s * self.speedup

    @property
    def users(self) -> tuple[str, ...]:
        """Who submits."""
        return ("batch",)

    # ---- what there is, and what comes

    def running(self, seed: int) -> Running:
        """The tasks that run when the run begins, as if all had been so for ever."""
        chance = np.random.default_rng([seed, 0])
        sizes = self._sizes((chance.permutation(self.jobs_running) + 0.5) / self.jobs_running)
        sizes = _with_sum(sizes, max(self.tasks_running, self.jobs_running))
        is_batch = _within(sizes, int(self.batch_share * sizes.sum()))
        together = chance.random(len(sizes)) < ENDING_TOGETHER
        job = np.repeat(np.arange(len(sizes)), sizes)
        # Of tasks that run at some moment, those of duration d are as many as d times those that come.
        lasting = self._durations(chance, sizes, together, longer=True)
        left = np.where(together[job], chance.random(len(sizes))[job], chance.random(len(job)))
        return Running(job, np.where(is_batch[job], lasting * left, np.inf))

    def arrivals(self, seed: int) -> Arrivals:
        """The batch tasks that come in `seconds`."""
        chance = np.random.default_rng([seed, 1])
        mean = float(self._sizes((np.arange(100_000) + 0.5) / 100_000).mean())
        count = int(chance.poisson(self.tasks_per_s / mean * self.seconds))
        sizes = self._sizes(chance.random(count))
        job_at_s = np.sort(chance.random(count)) * self.seconds
        before = np.repeat(np.cumsum(sizes) - sizes, sizes)
        job = np.repeat(np.arange(count), sizes)
        at_s = job_at_s[job] + (np.arange(len(job)) - before) / (SUBMITTED_PER_S * self.speedup)
        together = chance.random(count) < ENDING_TOGETHER
        duration_s = self._durations(chance, sizes, together, longer=False)
        order = np.argsort(at_s, kind="stable")
        return Arrivals(job[order], at_s[order].round(9), duration_s[order].round(9))

    def generate(self, seed: int, nodes: int, slots: int) -> Iterator[WorkloadJob]:
        """The jobs that come, in order, each with all of its tasks at once."""
        found = self.arrivals(seed)
        by_job = np.argsort(found.job, kind="stable")
        jobs, first, counts = np.unique(found.job[by_job], return_index=True, return_counts=True)
        for number, start, count in zip(jobs.tolist(), first.tolist(), counts.tolist(), strict=True):
            tasks = by_job[start : start + count]
            yield WorkloadJob(
                number, float(found.at_s[tasks[0]]), "batch", array("d", found.duration_s[tasks].tolist()),
                mean_s=float(found.duration_s[tasks].mean()),
            )  # fmt: skip

    # ---- inside

    def _sizes(self, share: Reals) -> Numbers:
        """Of jobs, by where they stand among all jobs in order of size, from 0 to 1."""
        scale = min(1.0, self.machines / MACHINES)
        largest = max(SIZE_LARGEST_MIN, LARGEST * scale)
        large = largest * LARGE / LARGEST
        body = np.clip((share - SINGLE_SHARE) / (1 - LARGE_SHARE - SINGLE_SHARE), 0, 1)
        above = np.clip((share - (1 - LARGE_SHARE)) / LARGE_SHARE, 0, 1)
        sizes = np.where(above > 0, large / (1 - above * (1 - large / largest)), large ** (body**BODY_EXPONENT))
        return np.maximum(sizes, 1).astype(np.int64)

    def _durations(
        self, chance: np.random.Generator, sizes: Numbers, together: NDArray[np.bool_], *, longer: bool
    ) -> Reals:
        """Of the tasks of jobs. `together`: all of a job's last equally long. `longer`: each as often as it is long."""
        of_job = np.repeat(chance.standard_normal(len(sizes)), sizes)
        of_task = chance.standard_normal(len(of_job))
        own_sigma = float(np.sqrt(SIGMA**2 - OF_JOB_SIGMA**2))
        exponent = np.where(np.repeat(together, sizes), SIGMA * of_job, OF_JOB_SIGMA * of_job + own_sigma * of_task)
        if longer:
            exponent = exponent + SIGMA**2
        found: Reals = MEDIAN_S / self.speedup * np.exp(exponent)
        return found


def _within(sizes: Numbers, total: int) -> NDArray[np.bool_]:
    """Which to take, from the first on, so that their sum is at most `total`, and near."""
    taken, left = np.zeros(len(sizes), np.bool_), total
    for number, size in enumerate(sizes.tolist()):
        if size <= left:
            taken[number] = True
            left -= size
    return taken


def _with_sum(sizes: Numbers, total: int) -> Numbers:
    """The sizes made larger or smaller alike, none below 1, so that they add up to `total`, which is at least one for
    each."""
    scaled: Numbers = np.maximum(1, sizes * (total / sizes.sum())).astype(np.int64)
    while (lacking := total - int(scaled.sum())) != 0:
        order = np.argsort(-scaled, kind="stable")
        change = order[: abs(lacking)] if lacking > 0 else order[scaled[order] > 1][: abs(lacking)]
        scaled[change] += 1 if lacking > 0 else -1
    return scaled


# ---- what is published of it -----------------------------------------------------------------------------------------


def event_times_s(workload: GoogleLike, seed: int) -> Reals:
    """When tasks come, start and end, if each starts at once: in order, until the workload's end."""
    arrivals, running = workload.arrivals(seed), workload.running(seed)
    ends_s = np.concatenate([arrivals.at_s + arrivals.duration_s, running.left_s])
    times_s = np.concatenate([arrivals.at_s, arrivals.at_s, ends_s])
    return np.sort(times_s[times_s < workload.seconds])


def events_in_windows(times_s: Reals, window_s: float, seconds: float) -> Numbers:
    """How many events each window has; what is left after the last whole one is not looked at."""
    windows = int(seconds / window_s)
    if windows < 1:
        raise InvalidOption("seconds", seconds, f"at least one window of {window_s:g} s")
    counts: Any = np.bincount((times_s / window_s).astype(np.int64), minlength=windows)
    found: Numbers = np.asarray(counts[:windows], np.int64)
    return found
