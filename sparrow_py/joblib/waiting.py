"""In a task, a call of joblib gives the task's slot back while it waits for batches."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from joblib.parallel import TASK_PENDING

from sparrow_py.task_context import in_task, without_slot

LOOK_EVERY_S = 0.01
"""joblib itself looks so often whether there is a result."""


def wait_without_slot(parallel: Any) -> None:
    """Have this `joblib.Parallel` do so, if it is called in a task. It looks for results again and again, and waits in
    between (`_retrieve`); this waits first, until there is something to be looked at."""
    if not in_task() or isinstance(parallel._wait_retrieval, _Waiting):
        return
    parallel._wait_retrieval = _Waiting(parallel, parallel._wait_retrieval)


class _Waiting:
    """In place of `Parallel._wait_retrieval`, which says whether some results have yet to come."""

    def __init__(self, parallel: Any, some_to_come: Callable[[], bool]) -> None:
        self._parallel = parallel
        self._some_to_come = some_to_come

    def __call__(self) -> bool:
        if not self._some_to_come():
            return False
        if not self._is_ready():
            without_slot(self._until_ready)
        return True

    def _until_ready(self) -> bool:
        timeout_s = self._parallel.timeout  # joblib looks itself whether it is over.
        until_s = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._is_ready():
            if until_s is not None and time.monotonic() > until_s:
                return False
            time.sleep(LOOK_EVERY_S)
        return True

    def _is_ready(self) -> bool:
        """Whether joblib has something to do."""
        parallel = self._parallel
        if parallel._aborting or not self._some_to_come():
            return True
        jobs = parallel._jobs
        return bool(jobs) and (not parallel.return_ordered or jobs[0].status != TASK_PENDING)
