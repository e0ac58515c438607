"""What an iteration costs the controller by the number of workers: messages, bytes and CPU time (the paper's §5.2)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from benchmarks.dataflow.pump import Pump, without_collector
from benchmarks.dataflow.regression import no_ops
from benchmarks.dataflow.table4 import PLANES

WORKERS = (1, 10, 100, 1_000)
PARTITIONS_A_WORKER = 2
AIM_US_A_WORKER = 20
ITERATIONS = 8
WARM_FROM = 3
OF_THE_CONTROLLER = ("Dispatch", "Completed", "Instantiate", "Finished", "Install", "Placed")
"""Between the controller and workers."""


def measured(workers: int, plane: str, *, iterations: int = ITERATIONS) -> dict[str, object]:
    """Messages between controller and workers in a warm iteration, and what the controller spends on it."""
    df, program = no_ops(workers * PARTITIONS_A_WORKER, iterations)
    pump = Pump(df, workers, PLANES[plane])
    counted: list[int] = []
    run_block = pump.run_block

    def counting(block):  # type: ignore[no-untyped-def]
        before = sum(pump.messages[kind] for kind in OF_THE_CONTROLLER)
        value = run_block(block)
        counted.append(sum(pump.messages[kind] for kind in OF_THE_CONTROLLER) - before)
        return value

    pump.run_block = counting  # type: ignore[method-assign]
    pump.run(program)
    spent_us = median(block["controller"] for block in pump.by_block[WARM_FROM:]) / 1e3
    tasks = 4 * workers * PARTITIONS_A_WORKER + 1
    kinds = ("Instantiate", "Finished")
    a_message = [round(pump.bytes[kind] / pump.frames[kind]) if pump.frames[kind] else None for kind in kinds]
    return {
        "workers": workers,
        "plane": plane,
        "tasks": tasks,
        "messages": counted[-1],
        "formula": 2 * workers if plane == "worker and controller template" else 2 * tasks,
        "controller_us": round(spent_us, 1),
        "us_a_worker": round(spent_us / workers, 2),
        "instantiate_bytes": a_message[0],
        "finished_bytes": a_message[1],
        "aim_us_a_worker": AIM_US_A_WORKER if plane == "worker and controller template" else None,
    }


def rows(repeat: int = 3, tasks: int = 0, workers: Sequence[int] = WORKERS) -> list[dict[str, object]]:
    """A row for each plane and number of workers, of the run that took least."""
    with without_collector():
        return [
            min((measured(count, plane) for _ in range(repeat)), key=lambda row: float(str(row["controller_us"])))
            for plane in PLANES
            for count in workers
        ]
