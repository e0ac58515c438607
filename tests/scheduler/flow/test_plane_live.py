"""A scheduler with policy flow, node monitors and clients, all of them real."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from click.testing import CliRunner

from frontends.cli.__main__ import main as sparrow
from scheduler.flow.dimacs import read_problem
from sparrow_py import Client
from tests.support import tasks
from tests.support.daemons import Daemon, clean_environment, http, node_of
from tests.support.waiting import TIMEOUT_S, wait_until

pytestmark = pytest.mark.processes
READY_S = 240.0
"""Where nobody has had the solvers compiled that takes a minute, and longer on a busy machine."""
SLOTS = 3


def run(*arguments: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(sparrow, arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def figures(address: str) -> dict[str, float]:
    """The metrics, by name and labels."""
    lines = http(address, "/metrics")[1].splitlines()
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if line[0] != "#")}


def explains_and_dumps(address: str, client: Client, gate: Path, nodes: Sequence[Daemon]) -> None:
    """While tasks wait for slots it is told why, and what was solved can be written down."""
    held = [client.submit(tasks.hold, gate, str(number)) for number in range(SLOTS * len(nodes) + 3)]
    wait_until(
        lambda: figures(address).get("sparrow_scheduler_launched_total", 0) >= SLOTS * len(nodes), "a full cluster"
    )
    (job,) = json.loads(run("jobs", "-s", address, "--json"))["jobs"]
    text = run("explain", "-s", address, job["id"])
    assert "tasks wait" in text and "to have it wait costs" in text and "; to place it costs:\n" in text
    assert f"the slots for placed tasks are taken at all {len(nodes)} nodes that may run it" in text
    (stage,) = json.loads(run("explain", "-s", address, "--json", job["id"]))["stages"]
    assert stage["waiting"] >= 3 and stage["waiting_cost"] > 0
    problem = read_problem(run("flow", "dump", "-s", address).encode())
    assert problem.supply.max() == 1 and problem.supply.sum() == 0
    gate.touch()
    for future in held:
        future.result(timeout=60)


@pytest.mark.rest
def test_every_job_ends_though_a_node_is_killed(tmp_path: Path) -> None:
    starts = tmp_path / "starts"
    flags = ("--policy", "flow", "--settling-s", "0.2")
    with ExitStack() as stack:
        scheduler = stack.enter_context(Daemon("scheduler", *flags, log=tmp_path / "scheduler.log"))
        address = scheduler.address
        nodes = [
            stack.enter_context(node_of(address, tmp_path / f"n{number}.log", name=f"n{number}", slots=SLOTS))
            for number in range(3)
        ]
        wait_until(lambda: http(address, "/readyz")[0] == 200, "the scheduler to lead, with its solvers", READY_S)
        client = stack.enter_context(Client(address, user="anna"))
        explains_and_dumps(address, client, tmp_path / "gate", nodes)
        futures = [client.submit(tasks.record_start, starts, number, 0.05) for number in range(200)]
        wait_until(lambda: sum(future.done() for future in futures) >= 40, "tasks to end")
        nodes[0].kill()
        assert [future.result(timeout=120) for future in futures] == list(range(200))
        shown = figures(address)
    assert shown["sparrow_scheduler_flow_rounds_failed_total"] == 0
    assert shown["sparrow_scheduler_reservations_total"] == 0
    assert shown["sparrow_scheduler_launched_total"] >= 200


def test_a_policy_that_is_none_is_one_line_at_start(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "scheduler", "--policy", "flow", "--port", "0", "--flow-policy", "fastest"]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=clean_environment(), timeout=TIMEOUT_S
    )
    assert ended.returncode != 0 and not ended.stdout
    assert "flow_policy: 'fastest' is not valid; allowed: quincy, " in ended.stderr and "Traceback" not in ended.stderr
    assert len(ended.stderr.splitlines()) == 1
