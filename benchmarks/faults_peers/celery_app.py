"""The Celery app of `on_celery`, which workers and user import: broker and settings come from the environment."""

from __future__ import annotations

import json
import os
from typing import Any

from celery import Celery

from benchmarks.faults_peers import work as calls

BROKER = "FAULTS_PEERS_BROKER"
SETTINGS = "FAULTS_PEERS_CELERY"

app = Celery("faults", broker=f"redis://{os.environ[BROKER]}/0", backend=f"redis://{os.environ[BROKER]}/1")
app.conf.update(json.loads(os.environ.get(SETTINGS, "{}")))


@app.task  # type: ignore[untyped-decorator]
def warm_up(number: int) -> int:
    """As `work.warm_up`."""
    return calls.warm_up(number)


@app.task  # type: ignore[untyped-decorator]
def work(number: int, fault: str, starts: str) -> Any:
    """As `work.work`."""
    return calls.work(number, fault, starts)
