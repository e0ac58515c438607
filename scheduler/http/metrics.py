"""The scheduler's metrics, read from its core when scraped."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from scheduler.plane import LendingFigures, RoundFigures
from scheduler.solving import BOUNDS_S, Times
from sparrow_py.daemon.histogram_metrics import by_app, cumulative
from sparrow_py.timing.histogram import EndedTasks

COUNTERS = {
    "jobs_accepted": "Jobs accepted.",
    "jobs_refused": "Jobs refused.",
    "jobs_ended": "Jobs whose every task has an outcome.",
    "reservations": "Reservations sent to node monitors.",
    "reservations_cancelled": "Surplus reservations cancelled.",
    "reservations_shared": "Surplus reservations passed to another job.",
    "reservations_idle": "Reservations on nodes that had said that they were idle.",
    "reservations_refused": "Reservations that node monitors refused.",
    "probes": "Node monitors asked for the length of their queue (placement without late binding).",
    "asks": "getTask messages from node monitors.",
    "noops": "Slots that asked and got no task.",
    "pushes": "Tasks sent to slots of which node monitors had said that they are free, without being asked for.",
    "pushes_handed_back": "Of these those that came back, as a rule since the slot was free no more.",
    "launched": "Task starts sent to node monitors.",
    "adopted": "Running tasks and outcomes taken over from another scheduler.",
    "jobs_fenced": "Jobs given up because another scheduler has them, or because they came again.",
    "jobs_handed_over": "Jobs that were left when the scheduler ended, for their clients to take to another.",
    "retries": "Tasks put back to be started again.",
    "attempts_lost": "Starts whose node or executor was lost.",
    "failures_retried": "Failures after which a task waits for a while and is started again, by its retry policy.",
    "handed_back": "Tasks that a node monitor handed back unstarted.",
    "preempted": "Starts that node monitors stopped to make room, and which do not count.",
    "finished_elsewhere": "Tasks of inner stages that a client's copy of them finished (speculation).",
    "stale_reports": "Reports on unknown or settled attempts, ignored.",
}


def collect(
    core: SchedulerCore,
    clients: int,
    options: SchedulerOptions,
    times: Times | None = None,
    now_s: float = 0.0,
    audit_lines_lost: int = 0,
    *,
    exemplars: bool = False,
) -> Iterator[Metric]:
    """All metrics, in base units. `times`: of the problems that were solved. `exemplars`: whether buckets of histograms
    name jobs."""
    yield InfoMetricFamily(
        "sparrow_scheduler",
        "How tasks are placed: placement, profile, and the options that profiles set.",
        value={"policy": options.policy, "placement": options.placement} | options.of_profile(),
    )
    for name, help_text in COUNTERS.items():
        yield CounterMetricFamily(f"sparrow_scheduler_{name}", help_text, value=getattr(core.counters, name))
    outcomes = CounterMetricFamily("sparrow_scheduler_outcomes", "Task outcomes by status.", labels=["status"])
    for status, count in core.counters.settled.items():
        outcomes.add_metric([status.value], count)
    yield outcomes
    help_text = "Lines that the audit log misses: its disk was full or slow, or its file could not be rotated."
    yield CounterMetricFamily("sparrow_scheduler_audit_lines_dropped", help_text, value=audit_lines_lost)
    yield from _of_tasks(core.counters.task_times, exemplars=exemplars)
    yield GaugeMetricFamily("sparrow_scheduler_jobs", "Jobs not ended.", value=len(core.jobs))
    help_text = "Jobs kept for whoever attaches, running or over, those to which a client is attached included."
    yield GaugeMetricFamily("sparrow_scheduler_detached_jobs", help_text, value=core.book.detachment.count())
    yield GaugeMetricFamily("sparrow_scheduler_nodes", "Node monitors connected.", value=len(core.nodes))
    yield GaugeMetricFamily("sparrow_scheduler_clients", "Clients connected.", value=clients)
    help_text = "Whether jobs are for this scheduler: it leads its plane, or that has no leader."
    yield GaugeMetricFamily("sparrow_scheduler_leads", help_text, value=core.leads)
    help_text = "Lead epoch with which this scheduler claims or leads its plane; 0 while it does neither."
    epoch = 0 if core.leading is None else core.leading.epoch
    yield GaugeMetricFamily("sparrow_scheduler_lead_epoch", help_text, value=epoch)
    unplaced = sum(core.admission.unplaced.values())
    yield GaugeMetricFamily("sparrow_scheduler_unplaced_tasks", "Tasks accepted and not placed.", value=unplaced)
    undelivered = sum(core.book.deliveries.counted_bytes().values())
    if core.plane.rounds is not None:
        yield from _of_rounds(core.plane.rounds, times or Times(), core.plane.oldest_wait_s(now_s))
    if core.plane.lending is not None:
        yield from _of_lending(core.plane.lending)
    help_text = "Bytes of outcomes and messages that clients were not sent yet, or have not said to have."
    yield GaugeMetricFamily("sparrow_scheduler_undelivered_bytes", help_text, value=undelivered)


def _of_tasks(ended: EndedTasks, *, exemplars: bool) -> Iterator[Metric]:
    """How long tasks wait and run."""
    help_text = "Seconds from when nodes were sought for tasks to their starts, by app."
    times = ended.apps
    waits = {app: one.wait for app, one in times.items()}
    yield by_app("sparrow_scheduler_task_wait_seconds", help_text, waits, exemplars=exemplars)
    services = {app: one.service for app, one in times.items()}
    help_text = "Seconds that tasks ran, by app."
    yield by_app("sparrow_scheduler_task_service_seconds", help_text, services, exemplars=exemplars)


def _of_lending(lending: LendingFigures) -> Iterator[Metric]:
    """Of a plane on which jobs yield."""
    prefix = "sparrow_scheduler_altruistic"
    help_text = "Tasks started: since they had to (must), or with what jobs had yielded or nobody needed (lent)."
    started = CounterMetricFamily(f"{prefix}_started", help_text, labels=["as"])
    started.add_metric(["must"], lending.must)
    started.add_metric(["lent"], lending.lent)
    yield started
    help_text = "How often the time at which a job is to end has moved back."
    yield CounterMetricFamily(f"{prefix}_late", help_text, value=lending.late)
    help_text = "How often tasks that had to start fitted on no node."
    yield CounterMetricFamily(f"{prefix}_unfit", help_text, value=lending.unfit)
    yield GaugeMetricFamily(f"{prefix}_jobs", "Jobs among which the cluster is shared out.", value=lending.jobs)
    help_text = "Those of them that yielded what they did not need when it was shared out last."
    yield GaugeMetricFamily(f"{prefix}_yielding_jobs", help_text, value=lending.yielding)


def _of_rounds(rounds: RoundFigures, times: Times, oldest_wait_s: float) -> Iterator[Metric]:
    """Of a plane that has problems solved."""
    prefix = "sparrow_scheduler_flow"
    buckets = cumulative(BOUNDS_S, times.counts)
    help_text = "Seconds that rounds took: changes to the network, its solution, and what that means."
    yield HistogramMetricFamily(f"{prefix}_round_seconds", help_text, buckets=buckets, sum_value=times.sum_s)
    yield CounterMetricFamily(f"{prefix}_rounds_failed", "Rounds without an answer.", value=rounds.failed)
    help_text = "Placements that did not stand when the answer came, and were offered again."
    yield CounterMetricFamily(f"{prefix}_stale", help_text, value=rounds.stale)
    wins = CounterMetricFamily(f"{prefix}_wins", "Rounds by the solver that found the answer.", labels=["solver"])
    for solver, count in sorted(rounds.wins.items()):
        wins.add_metric([solver], count)
    yield wins
    yield GaugeMetricFamily(f"{prefix}_nodes", "Nodes of the network in the last round.", value=rounds.nodes)
    yield GaugeMetricFamily(f"{prefix}_arcs", "Its arcs.", value=rounds.arcs)
    help_text = "Seconds for which the task has waited that has waited for longest."
    yield GaugeMetricFamily(f"{prefix}_oldest_wait_seconds", help_text, value=oldest_wait_s)
