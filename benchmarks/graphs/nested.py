"""A recursion whose calls are tasks (`functions.fib`), and the memory of the processes that wait."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass

import psutil

from benchmarks.graphs.work import Work

LOOK_EVERY_S = 0.1
"""How often processes and their memory are looked at."""


def calls(number: int) -> int:
    """How many tasks that takes."""
    return 1 if number < 2 else 1 + calls(number - 1) + calls(number - 2)


def recursion(number: int) -> Work:
    """fib(number). Systems that let no task wait for others have no part in it."""

    def run(system: object) -> int:
        by_tasks: Callable[[int], int] = system.fib  # type: ignore[attr-defined]
        return by_tasks(number)

    return Work(f"fib({number})", calls(number), run)


@dataclass
class Memory:
    """The most processes below this one, and the most memory of theirs that is shared with nobody, at a look."""

    processes: int = 0
    private_mb: float = 0.0

    def look(self) -> None:
        """As they are now."""
        processes = psutil.Process(os.getpid()).children(recursive=True)
        private = 0
        for process in processes:
            with contextlib.suppress(psutil.Error):
                private += process.memory_full_info().uss
        self.processes = max(self.processes, len(processes))
        self.private_mb = max(self.private_mb, private / 1e6)


def memory_of(run: Callable[[], object]) -> tuple[Memory, Memory]:
    """What there was before the run, and the most while it ran."""
    before, most, over = Memory(), Memory(), threading.Event()
    before.look()

    def watch() -> None:
        while not over.wait(LOOK_EVERY_S):
            most.look()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        over.set()
        watcher.join()
    most.look()
    return before, most
