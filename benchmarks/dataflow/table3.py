"""Table 3 of the execution templates' paper: what installing templates costs a task, and the first iteration.

Two workers, iterations of no-ops. Templates are captured in the first iteration and installed in the second; what that
takes is the iteration's CPU time less that of one without. `none` is a first iteration of a controller that captures
nothing, in which workers bind single tasks for the first time, too. Central dispatch plans each task anyway; capturing
is what keeps the plan, so its share is small here, and the paper's 25 µs have a part in what `none` costs.
"""

from __future__ import annotations

import time
from collections import Counter
from statistics import median

from benchmarks.dataflow.pump import Pump, as_in_a_daemon
from benchmarks.dataflow.regression import no_ops
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Switches

PAPER_US = {"controller template": 25, "worker template, controller": 15, "worker template, workers": 9, "in all": 49}
AIM_US = 25
SLOWER_MAX_PERCENT = 39
ITERATIONS = 8
STEADY_FROM = 4


def iterations(tasks: int, switches: Switches) -> tuple[list[Counter[str]], int, int]:
    """CPU time by part of each iteration; of capturing; tasks of an iteration."""
    df, program = no_ops(max(tasks // 4, 1), ITERATIONS)
    pump = Pump(df, 2, switches)
    capturing = [0]
    capture = pump.controller._capture

    def timed(planner):  # type: ignore[no-untyped-def]
        then = time.thread_time_ns()
        plan = capture(planner)
        capturing[0] += time.thread_time_ns() - then
        return plan

    pump.controller._capture = timed  # type: ignore[method-assign]
    pump.run(program)
    return pump.by_block, capturing[0], 4 * max(tasks // 4, 1) + 1


def measured(tasks: int) -> dict[str, float]:
    """Per task in µs, and how much slower the first iteration is, in percent."""
    with as_in_a_daemon():
        none, _, count = iterations(tasks, CENTRAL)
    with as_in_a_daemon():
        made, capturing, _ = iterations(tasks, ALL_ON)
    second, later = made[1], made[STEADY_FROM:]
    controller = second["controller"] - median(block["controller"] for block in later)
    workers = second["workers"] - median(block["workers"] for block in later)
    first = sum(none[0].values())
    warm = median(sum(block.values()) for block in none[STEADY_FROM:])
    installing = capturing + controller + workers
    each = {
        "controller template": capturing,
        "worker template, controller": controller,
        "worker template, workers": workers,
        "in all": installing,
        "first iteration, none": first,
        "later iteration, none": warm,
    }
    return {
        **{name: spent / count / 1e3 for name, spent in each.items()},
        "first iteration slower": 100 * installing / first,
        "later iteration slower": 100 * installing / warm,
    }


def rows(repeat: int = 5, tasks: int = 8_000) -> list[dict[str, object]]:
    """Medians of runs."""
    runs = [measured(tasks) for _ in range(repeat)]
    made: list[dict[str, object]] = []
    for name in runs[0]:
        value = median(run[name] for run in runs)
        is_share = name.endswith("slower")
        aim = {"in all": AIM_US, "first iteration slower": SLOWER_MAX_PERCENT}.get(name)
        paper = SLOWER_MAX_PERCENT if is_share else PAPER_US.get(name)
        made.append(
            {
                "cost": name,
                "value": round(value, 2),
                "unit": "%" if is_share else "µs a task",
                "paper": paper if name != "later iteration slower" else None,
                "aim": aim,
            }
        )
    return made
