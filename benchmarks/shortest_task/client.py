"""The user of another system: submits the jobs when they are due, whether or not earlier ones have ended, and prints
their response times as JSON: `python -m benchmarks.shortest_task.client SYSTEM ADDRESS NODES SLOTS LOAD MS SECONDS`.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from benchmarks.shortest_task.load import TASKS, WAIT_MAX_S, Load
from benchmarks.shortest_task.peers import PEERS, Submit

WARM_UP_S = 1.0
WARM_UP_ROUNDS = 3
WARM_UP_TIMEOUT_S = 30.0
BEGIN_AFTER_S = 0.1
LOOK_EVERY_S = 0.02
"""After the last job has come: whether all have ended."""


class Responses:
    """When jobs end. Called by threads of the system's client."""

    def __init__(self, jobs: int) -> None:
        self.responses_s: list[float | None] = [None] * jobs
        self.all_ended = threading.Event()
        self._left = [TASKS] * jobs
        self._unended = jobs
        self._lock = threading.Lock()

    def task_ended(self, job: int, due_s: float) -> None:
        """One task of the job."""
        now_s = time.monotonic()
        with self._lock:
            self._left[job] -= 1
            if not self._left[job]:
                self.responses_s[job] = now_s - due_s
                self._unended -= 1
                if not self._unended:
                    self.all_ended.set()


def replay(
    submit: Submit, load: Load, wait_max_s: float = WAIT_MAX_S, pass_time: Callable[[float], object] = time.sleep
) -> list[float | None]:
    """The response time of each job, in order of arrival; None of those that did not end in time.

    wait_max_s: how long the last jobs are waited for, and how late the client itself may be. pass_time: waits for so
    many seconds; a client whose jobs end only while it looks for results looks for them meanwhile.
    """
    responses = Responses(load.jobs)
    begin_s = time.monotonic() + BEGIN_AFTER_S
    for job in range(load.jobs):
        due_s = begin_s + (job + 0.5) * load.interval_s
        pass_time(max(0.0, due_s - time.monotonic()))
        if time.monotonic() > begin_s + load.jobs * load.interval_s + wait_max_s:
            break  # The client itself does not keep up: the others are not even submitted.
        submit(load.duration_ms / 1000, TASKS, partial(responses.task_ended, job, due_s))
    until_s = time.monotonic() + wait_max_s
    while not responses.all_ended.is_set() and time.monotonic() < until_s:
        pass_time(LOOK_EVERY_S)
    return list(responses.responses_s)


def warm_up(submit: Submit, slots: int) -> None:
    """All slots run a task, so that processes that are started on demand are there."""
    for _ in range(WARM_UP_ROUNDS):
        ended = threading.Semaphore(0)
        submit(WARM_UP_S, slots, ended.release)
        for _ in range(slots):
            if not ended.acquire(timeout=WARM_UP_TIMEOUT_S):
                raise TimeoutError(f"{slots} tasks of {WARM_UP_S:g} s did not end in {WARM_UP_TIMEOUT_S:g} s")


def main() -> None:
    """Print the response times."""
    name, address = sys.argv[1:3]
    nodes, slots = map(int, sys.argv[3:5])
    load = Load(nodes, slots, *map(float, sys.argv[5:8]))
    with PEERS[name].client(address, nodes * slots) as submit:
        warm_up(submit, nodes * slots)
        print(json.dumps(replay(submit, load)), flush=True)


if __name__ == "__main__":
    main()
