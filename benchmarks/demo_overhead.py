"""The demo's scheduling overhead: median job response over ideal.

Runs `python -m frontends.demo --json`, whose job really counts identifiers on 2 schedulers and 4 node monitors.
The ideal is what an omniscient scheduler at no cost would need for the same tasks' measured service times.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

from benchmarks.report import Report, Row, command

TIMEOUT_S = 300


def run_demo(repeat: int) -> dict[str, Any]:
    """What the demo prints."""
    argv = [sys.executable, "-m", "frontends.demo", "--json", "--repeat", str(repeat)]
    ran = subprocess.run(argv, stdout=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=True)
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def measure(repeat: int) -> Report:
    """The demo's own figures, as a table."""
    demo = run_demo(repeat)
    details = demo["details"]
    repetitions = details.pop("repetitions")
    columns = ("tasks", "response_s", "ideal_s", "overhead", "task_wait_p50_ms", "task_service_p50_ms")
    rows: list[Row] = [{column: run[column] for column in columns} for run in repetitions]
    return Report(
        "demo_overhead", demo["value"], demo["unit"], {"The demo's job, run by run": rows}, repetitions,
        details=details,
    )  # fmt: skip


main = command("demo_overhead", measure, repeat=3, help="The demo's job response time over the ideal.")

if __name__ == "__main__":
    main()
