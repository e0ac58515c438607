"""The soak in small: some seconds of it with a fixed seed, in which nearly each kind of fault comes up.

`make soak MINUTES=10` is the real thing. What happens when depends on the machine; that nothing is lost does not.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.soak.plan import DECK

SECONDS = 8
NODES, SCHEDULERS = 5, 3
KINDS_MISSED_MAX = 2
"""Kinds of faults that a busy machine does not come to in that time."""
DAEMONS = ["--nodes", str(NODES), "--schedulers", str(SCHEDULERS)]
SHAPE = [*DAEMONS, "--clients", "3", "--heartbeat-s", "1.5", "--gap-s", "0.25"]


@pytest.mark.rest
@pytest.mark.timeout(300)
def test_everything_fails_and_nothing_is_lost(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.soak", "--minutes", str(SECONDS / 60), "--seed", "1", *SHAPE]
    done = subprocess.run(
        [*command, "--json", "--dir", str(tmp_path / "soak")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-6000:]
    details = json.loads(done.stdout)["details"]
    assert details["violations"] == []
    counts = details["counts"]
    assert counts["lost"] == counts["duplicated"] == 0
    assert counts["finished"] > 100 and counts["starts that tasks wrote down"] > 10
    assert details["faults"].pop("upgrade") == NODES + SCHEDULERS, "each daemon was upgraded, under load"
    assert set(details["faults"]) <= set(DECK) and len(details["faults"]) >= len(set(DECK)) - KINDS_MISSED_MAX
