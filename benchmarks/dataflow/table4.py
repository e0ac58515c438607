"""Table 4 of the execution templates' paper: an iteration without templates, with those of the controller, with both.

8,000 no-ops on two workers: what is measured is the CPU time of all parts, frames batched. Runs are interleaved.
"""

from __future__ import annotations

from statistics import median

from benchmarks.dataflow.pump import Pump, as_in_a_daemon
from benchmarks.dataflow.regression import no_ops
from frontends.dataflow.commanding_core import ALL_ON, CENTRAL, Switches

PLANES = {
    "no templates": CENTRAL,
    "controller template": Switches(worker_templates=False),
    "worker and controller template": ALL_ON,
}
PAPER_S = {"no templates": 1.07, "controller template": 0.49, "worker and controller template": 0.07}
AIM_RATIO = {"no templates": 10, "controller template": 5, "worker and controller template": 1}
CENTRAL_MAX_US = 40
"""What central dispatch may cost a task, for ratios to count."""
WARM_FROM = 3
ITERATIONS = 13


def measured(plane: str, tasks: int) -> tuple[float, dict[str, float]]:
    """CPU time of an iteration in ns: of all, and by part; medians of warm ones."""
    df, program = no_ops(max(tasks // 4, 1), ITERATIONS)
    pump = Pump(df, 2, PLANES[plane])
    pump.run(program)
    warm = pump.by_block[WARM_FROM:]
    parts = {part: median(block[part] for block in warm) for part in ("driver", "controller", "workers")}
    return median(sum(block.values()) for block in warm), parts


def rows(repeat: int = 10, tasks: int = 8_000) -> list[dict[str, object]]:
    """A row for each plane; medians of interleaved runs."""
    runs: dict[str, list[tuple[float, dict[str, float]]]] = {plane: [] for plane in PLANES}
    with as_in_a_daemon():
        for _ in range(repeat):
            for plane, each in runs.items():
                each.append(measured(plane, tasks))
    count = 4 * max(tasks // 4, 1) + 1
    of_both = [total for total, _ in runs["worker and controller template"]]
    made: list[dict[str, object]] = []
    for plane, each in runs.items():
        total = median(total for total, _ in each)
        ratio = median(total / both for (total, _), both in zip(each, of_both, strict=True))
        row: dict[str, object] = {"plane": plane, "cpu_ms": round(total / 1e6, 2)}
        for part in ("driver", "controller", "workers"):
            row[f"{part}_ns_a_task"] = round(median(parts[part] for _, parts in each) / count)
        row |= {
            "us_a_task": round(total / count / 1e3, 3),
            "ratio": round(ratio, 1),
            "aim_ratio": AIM_RATIO[plane],
            "paper_s": PAPER_S[plane],
            "paper_ratio": round(PAPER_S[plane] / PAPER_S["worker and controller template"], 1),
        }
        made.append(row)
    return made
