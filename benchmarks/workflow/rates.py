"""The rates with which the figures' plans are made: those of this machine, measured before the first of them.

`sparrow workflow calibrate` measures the same in the same way, but for MapReduce: here its jobs run on a cluster that
is there already, as in the figures. The user's own calibration is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.report import progress
from benchmarks.workflow.bench import ON_CLUSTER, Bench
from benchmarks.workflow.workloads import work_directory
from frontends.workflow.engines import engine as engine_of
from frontends.workflow.mapping.calibration import SIZES_ROWS, Calibration, load, save
from frontends.workflow.warm_engines.measuring import calibrated


def rates_of(
    engines: Iterable[str], sizes_rows: Sequence[int] = SIZES_ROWS, directory: Path | None = None
) -> Calibration:
    """The rates of these engines. Those that the file of these sizes lacks are measured, and added to it."""
    path = (directory or work_directory()) / f"calibration-{'-'.join(map(str, sizes_rows))}.json"
    found = load(path)
    for name in found.unmeasured(engines):
        with Bench() as bench:
            if name == ON_CLUSTER:
                bench.start_cluster()
            found = calibrated(
                [engine_of(name)], found, os.cpu_count() or 1, sizes_rows, progress, has_schedulers=name == ON_CLUSTER
            )
        save(found, path)
    return found
