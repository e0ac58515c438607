"""The rates with which the figures' plans are made: those of this machine, measured before the first of them.

`sparrow workflow calibrate` measures the same in the same way. Here MapReduce's jobs run on a cluster that is there
already, as in the figures; the user's own calibration is left alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from benchmarks.report import progress
from benchmarks.workflow.bench import ON_CLUSTER, Bench
from benchmarks.workflow.workloads import work_directory
from frontends.workflow.engines import engine as engine_of
from frontends.workflow.mapping.calibration import (
    NOTHING_WRITTEN,
    SIZES_ROWS,
    Calibration,
    calibration_job,
    load,
    save,
)
from frontends.workflow.warm_engines.measuring import calibrated


def rates_of(
    engines: Iterable[str], sizes_rows: Sequence[int] = SIZES_ROWS, directory: Path | None = None
) -> Calibration:
    """The rates of these engines. Those that the file of these sizes lacks are measured, and added to it.

    Engines of graphs alone cannot run the jobs that measure: they keep the default rates.
    """
    path = (directory or work_directory()) / f"calibration-{'-'.join(map(str, sizes_rows))}.json"
    found = load(path)
    no_work = calibration_job(NOTHING_WRITTEN)
    for name in found.unmeasured(name for name in engines if engine_of(name).inexpressible(no_work) is None):
        with Bench() as bench:
            if name == ON_CLUSTER:
                bench.start_cluster()
            found = calibrated([engine_of(name)], found, os.cpu_count() or 1, sizes_rows, progress)
        save(found, path)
    return found
