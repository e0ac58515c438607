"""Core events per second of the simulator on one core, and what a simulation at the paper's scale takes.

Each row is a simulation in a process of its own. A core event is a message that a core received or a task that ended at
a node monitor; CPU time is of the whole process but for its imports, setting up the cluster included.
`value` is the row of 1,000 nodes under the paper's load, with the daemons' default settings.
"""

from __future__ import annotations

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from heapq import heappop, heappush

from benchmarks.report import Report, Row, command, median_rows, progress
from loadgen.synthetic import Synthetic
from simulator.cluster import Cluster
from simulator.policies import Settings
from simulator.simulate import simulate

TARGET_PER_S = 150_000
LOAD = 0.95
HEAP_PAIRS, HEAP_LEN = 300_000, 10_000


@dataclass(frozen=True)
class Setting:
    """A row."""

    label: str
    nodes: int
    tasks: int
    jobs: int
    settings: Settings


AS_IN_THE_PAPER = Settings(
    order="reserved", report_idle=False, push_to_idle=False, probe_sharing=False, cancellation=False
)
SETTINGS = [
    Setting("defaults", 1000, 100, 2000, Settings()),
    Setting("as in the paper", 1000, 100, 2000, AS_IN_THE_PAPER),
    Setting("defaults", 10_000, 500, 3000, Settings()),
]


def heap_us() -> float:
    """Microseconds of CPU of a push and a pop on a heap of `HEAP_LEN` events: how fast this machine is just now."""
    heap: list[tuple[float, int, None]] = []
    began_s = time.process_time()
    for number in range(HEAP_PAIRS):
        heappush(heap, (number * 7919 % 100_003, number, None))
        if len(heap) > HEAP_LEN:
            heappop(heap)
    return 1e6 * (time.process_time() - began_s) / HEAP_PAIRS


def measure_row(setting: Setting) -> Row:
    """One setting, in this process."""
    heap = heap_us()
    workload = Synthetic(tasks=setting.tasks, load=LOAD, jobs=setting.jobs)
    began_s = time.process_time()
    result = simulate(Cluster(nodes=setting.nodes), workload, "sparrow", setting.settings)
    took_s = time.process_time() - began_s
    events = result.counts["core_events"]
    return {
        "settings": setting.label,
        "nodes": setting.nodes,
        "tasks per job": setting.tasks,
        "jobs": setting.jobs,
        "core events": events,
        "CPU s": took_s,
        "core events/s": events / took_s,
        "µs per task": 1e6 * took_s / (setting.tasks * setting.jobs),
        "peak MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6,
        "heap push and pop µs": heap,
    }


def measure(repeat: int) -> Report:
    """All rows, `repeat` times in turn."""
    repetitions = []
    for _ in range(repeat):
        rows = []
        for setting in SETTINGS:
            progress(f"{setting.nodes} nodes, {setting.jobs} jobs of {setting.tasks} tasks, {setting.label}")
            with ProcessPoolExecutor(1) as pool:
                rows.append(pool.submit(measure_row, setting).result())
        repetitions.append(rows)
    rows = median_rows(repetitions)
    return Report(
        "simulator",
        rows[0]["core events/s"],
        "core events per second on one core (1,000 nodes, 100-task jobs, 95 % load)",
        {"the simulator on one core, 95 % load, exponential tasks of 100 ms": rows},
        repetitions,
        [f"aims: {TARGET_PER_S:,} core events/s; the last row within 120 s and 1,000 MB."],
        {"load": LOAD},
    )


main = command("simulator", measure, repeat=1, help="Core events per second of the simulator.")

if __name__ == "__main__":
    main()
