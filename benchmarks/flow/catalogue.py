"""All figures, by their names."""

from __future__ import annotations

from benchmarks.flow import by_load, by_size, contention, early, events, locality, mixed, nodes, rounds, simulated, warm
from benchmarks.flow.outcome import Figure

FIGURES = {
    figure.name: figure
    for figure in (
        Figure(
            "2.19", "Cost scaling from nothing, by cluster size", "median 64 s, p99 83 s at 12,500 machines",
            by_size.cost_scaling_alone,
        ),
        Figure(
            "5.5", "All solvers from nothing, by cluster size",
            "relaxation below 0.2 s, cost scaling two orders slower, successive paths over 100 s at 1,250 machines",
            by_size.all_solvers,
        ),
        Figure(
            "5.6", "A job makes the cluster full", "relaxation slower than cost scaling from 93 %, over 400 s beyond "
            "100 %", by_load.utilisation,
        ),
        Figure(
            "5.8", "One large job, load spreading", "relaxation slower from 3,000 tasks on, 20 s and more at 5,000",
            by_load.large_job, wall=True,
        ),
        Figure("5.9", "Events in windows of time", "under 10 in 60 % of half seconds, over 500 in half of all 20 s",
               events.windows),
        Figure("5.10", "Misplaced tasks when stopped early", "thousands until shortly before the end",
               early.stopped_early),
        Figure("5.11", "Warm against cold", "cost scaling −25 % (Quincy), −50 % (load spreading); relaxation may lose",
               warm.incremental),
        Figure("5.12", "Arc prioritisation; removal of tasks", "−45 %; −10 %", warm.heuristics),
        Figure("5.14", "Price refine", "4 × as fast", warm.price_refine),
        Figure("6.2", "Placement latency at 90 %", "hundreds of ms, above 1 s only from p97; 20 × better than Quincy",
               simulated.placement),
        Figure("6.3", "A burst above 100 %", "10 to 15 s a round, half of cost scaling alone; back to normal 500 s "
               "sooner", simulated.bursts),
        Figure("6.4", "Breaking point", "tasks of 5 ms, 375 ms and 5 s at 100, 1,000 and 10,000 machines",
               simulated.short_tasks),
        Figure("6.5", "Accelerated workload", "75 % under 1 s at 300 ×; cost scaling above 30 s at 50 ×",
               simulated.accelerated),
        locality.FIGURE,
        contention.FIGURE,
        Figure("rounds", "Rounds of a cluster with all running tasks in the graph", "none", rounds.rounds),
        nodes.FIGURE,
        mixed.FIGURE,
    )
}  # fmt: skip
