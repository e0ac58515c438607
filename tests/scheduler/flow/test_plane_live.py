"""A scheduler with policy flow, node monitors and clients, all of them real."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sparrow_py import Client
from tests.support import tasks
from tests.support.daemons import Daemon, http, node_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.processes
READY_S = 240.0
"""Where nobody has had the solvers compiled that takes a minute, and longer on a busy machine."""


@pytest.fixture
def flow_scheduler(tmp_path: Path) -> Iterator[Daemon]:
    """It leads as soon as nodes are there."""
    with Daemon("scheduler", "--policy", "flow", "--settling-s", "0.2", log=tmp_path / "scheduler.log") as daemon:
        yield daemon


def ready(scheduler: Daemon) -> None:
    """It leads, and has its solvers."""
    wait_until(lambda: http(scheduler.address, "/readyz")[0] == 200, "the scheduler to be ready", READY_S)


def test_every_job_ends_though_a_node_is_killed(flow_scheduler: Daemon, tmp_path: Path) -> None:
    address = flow_scheduler.address
    starts = tmp_path / "starts"
    with ExitStack() as stack:
        nodes = [
            stack.enter_context(node_of(address, tmp_path / f"n{number}.log", name=f"n{number}", slots=3))
            for number in range(3)
        ]
        ready(flow_scheduler)
        client = stack.enter_context(Client(address, user="anna"))
        futures = [client.submit(tasks.record_start, starts, number, 0.05) for number in range(200)]
        wait_until(lambda: sum(future.done() for future in futures) >= 40, "tasks to end")
        nodes[0].kill()
        assert [future.result(timeout=120) for future in futures] == list(range(200))
        shown = http(address, "/metrics")[1]
    figures = dict(line.rsplit(" ", 1) for line in shown.splitlines() if not line.startswith("#"))
    assert float(figures["sparrow_scheduler_flow_rounds_failed_total"]) == 0
    assert float(figures["sparrow_scheduler_reservations_total"]) == 0
    assert float(figures["sparrow_scheduler_launched_total"]) >= 200
