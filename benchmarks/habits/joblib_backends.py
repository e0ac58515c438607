"""joblib's backends: sparrow beside loky (processes, joblib's default) and threading, with a worker for each core.

Measured: wall time of a call, and CPU time of all processes. Work: 2,000 calls that do nothing, which tells what a call
costs with batches that adapt; 64 calls of 10 ms of Python each; 40 calls that are given one array of 40 MB; and, where
scikit-learn is installed, a GridSearchCV over 8 candidates and 3 folds. All ways run in turns, and are warm.
`value`: our wall time to loky's, geometric mean over the work.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.functions import noop
from benchmarks.habits.turns import OURS, geometric_mean_of_ratios, in_turns
from benchmarks.report import Report, Row, command
from sparrow_py import Client, LocalCluster

LOKY, THREADS = "loky", "threading"
SHORT_CALLS, SPINS, ARRAY_CALLS = 2_000, 64, 40
SPIN_S = 0.01
ARRAY_NUMBERS = 5_000_000


def spin(seconds: float) -> None:
    """Python code that takes so long, whatever else runs."""
    until_s = time.thread_time() + seconds
    while time.thread_time() < until_s:
        pass


def part_sum(array: Any, part: int) -> float:
    """The sum of one of `ARRAY_CALLS` parts."""
    return float(array[part::ARRAY_CALLS].sum())


def _calls(function: Callable[..., Any], arguments: list[tuple[Any, ...]]) -> Callable[[], Any]:
    def run() -> Any:
        from joblib import Parallel, delayed

        return Parallel(n_jobs=os.cpu_count())(delayed(function)(*args) for args in arguments)

    return run


def _grid_search() -> Callable[[], Any]:
    from sklearn.datasets import make_classification
    from sklearn.model_selection import GridSearchCV
    from sklearn.svm import SVC

    data, labels = make_classification(1_500, 20, random_state=0)

    def run() -> Any:
        search = GridSearchCV(SVC(), {"C": [0.1, 1, 10, 100], "gamma": [0.01, 0.1]}, cv=3, n_jobs=os.cpu_count())
        return search.fit(data, labels).cv_results_["mean_test_score"].tolist()

    return run


def _work() -> tuple[dict[str, Callable[[], Any]], list[str]]:
    """What is run, and notes on what is not."""
    array = np.random.default_rng(0).random(ARRAY_NUMBERS)
    work = {
        f"{SHORT_CALLS} calls of nothing": _calls(noop, [(number,) for number in range(SHORT_CALLS)]),
        f"{SPINS} calls of 10 ms": _calls(spin, [(SPIN_S,)] * SPINS),
        f"{ARRAY_CALLS} calls with one array": _calls(part_sum, [(array, part) for part in range(ARRAY_CALLS)]),
    }
    if importlib.util.find_spec("sklearn") is None:
        return work, ["GridSearchCV: scikit-learn is not installed"]
    return work | {"GridSearchCV": _grid_search()}, []


def measure(repeat: int) -> Report:
    """All work in all ways."""
    import joblib

    import sparrow_py.joblib

    work, notes = _work()
    rows: list[Row] = []
    repetitions = []
    with LocalCluster() as cluster, Client(cluster) as client:
        backends: dict[str, dict[str, Any]] = {
            OURS: {"backend": sparrow_py.joblib.NAME, "client": client},
            LOKY: {"backend": LOKY},
            THREADS: {"backend": THREADS},
        }

        def under(backend: dict[str, Any], run: Callable[[], Any]) -> Any:
            with joblib.parallel_config(**backend):
                return run()

        for name, run in work.items():
            ways = {way: lambda b=backend, r=run: under(b, r) for way, backend in backends.items()}
            found, seconds = in_turns(name, ways, repeat, lambda one, other: bool(one == other))
            rows += found
            repetitions.append({name: seconds})
    with contextlib.suppress(ImportError):
        from joblib.externals.loky import get_reusable_executor

        get_reusable_executor().shutdown(kill_workers=True)
    value = geometric_mean_of_ratios(rows, LOKY)
    return Report("joblib", value, "of loky's wall time", {"joblib's backends": rows}, repetitions, notes)


main = command("joblib", measure, repeat=7, help="joblib's backends: sparrow beside loky and threading.")
