"""Where results are kept, the document that is made of them, and how busy the machine was with other things."""

from __future__ import annotations

import os
import time

import psutil

from benchmarks.report import ROOT

RESULTS = ROOT / "benchmarks/workflow/results.jsonl"
DOCUMENT = ROOT / "docs/workflow-figures.md"


class Others:
    """The CPU time that other programs take from now on. The load average cannot tell: engines use all cores."""

    def __init__(self) -> None:
        self._began_s, self._before_s = time.monotonic(), _others_cpu_s()

    def load(self) -> float:
        """How many cores they used on average, and one for this program and what it has started and waited for."""
        return 1.0 + max(0.0, _others_cpu_s() - self._before_s) / max(1e-9, time.monotonic() - self._began_s)


def _others_cpu_s() -> float:
    of_all = psutil.cpu_times()
    idle_s = of_all.idle + getattr(of_all, "iowait", 0.0)
    guests_s = getattr(of_all, "guest", 0.0) + getattr(of_all, "guest_nice", 0.0)  # They are in `user`, too.
    return float(sum(of_all) - idle_s - guests_s - sum(os.times()[:4]))
