"""Start: from `Client()` in a fresh interpreter to the first result, in seconds.

Each sample is a new process that imports sparrow_py, takes the time, makes a `Client()` (which starts an embedded
cluster of this machine's cores), runs one function and takes the time again. Next to it: the whole life of that
process, imports and shutdown included. Files are in the page cache after the first sample, which is thrown away.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from benchmarks.report import Report, Row, command, median_row
from sparrow_py.wire.addresses import SCHEDULERS_VARIABLE

AIM_S = 1.0
TIMEOUT_S = 60
PROGRAM = """
import time
from sparrow_py import Client
started_s = time.perf_counter()
with Client() as client:
    assert client.submit(len, "four").result() == 4
    print(time.perf_counter() - started_s)
"""


def sample() -> Row:
    """One fresh interpreter."""
    started_s = time.perf_counter()
    environment = {name: value for name, value in os.environ.items() if name != SCHEDULERS_VARIABLE}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
        env=environment,
    )
    return {"Client() to first result, s": float(ran.stdout), "whole process, s": time.perf_counter() - started_s}


def measure(repeat: int) -> Report:
    """The median of `repeat` fresh interpreters."""
    sample()
    repetitions = [sample() for _ in range(repeat)]
    row = median_row(repetitions)
    return Report(
        "startup",
        row["Client() to first result, s"],
        "s from Client() in a fresh interpreter to the first result",
        {f"Start of an embedded cluster, median of {repeat}": [row]},
        repetitions,
        [f"Aim: under {AIM_S} s."],
    )


main = command("startup", measure, repeat=7, help="From Client() in a fresh interpreter to the first result.")

if __name__ == "__main__":
    main()
