"""Clients that stand still while far more results wait for them than a link holds: nothing is lost, or runs twice."""

import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from sparrow_py import Client
from tests.support import tasks
from tests.support.daemons import Daemon, clean_environment, get_json, http, node_of
from tests.support.waiting import TIMEOUT_S, wait_until

TASKS = 800
RESULT_BYTES = 60_000
"""As large as a result may be that is not fetched. All together they are more than a node monitor remembers."""
FLAGS = ("--link-backlog-bytes-max", "1048576", "--client-grace-s", "60")
PATIENT, IMPATIENT = "60", "0.4"
"""Heartbeats: the client is found mute never, or soon."""

PROGRAM = """
import os, signal, sys
from collections import Counter
from sparrow_py import Client
from tests.support import tasks

addresses, starts, count, size, max_attempts = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
told = Counter()
with Client(addresses.split(",")) as client:
    arguments = [(starts, task, size) for task in range(count)]
    job = client.with_options(max_attempts=max_attempts).submit_calls(tasks.record_start_bytes, arguments)
    for future in job.futures:
        future.add_done_callback(lambda future: told.update([future.task]))
    job.futures[0].result()
    os.kill(os.getpid(), signal.SIGSTOP)
    results = job.results(60)
    report = job.report(60)
assert results == [tasks.own_bytes(task, size) for task in range(count)]
assert told == Counter(range(count)), told
assert {task.attempts for task in report.tasks} == {1}, Counter(task.attempts for task in report.tasks)
print("all results are here")
"""


@contextmanager
def client_process(addresses: list[str], starts: Path, max_attempts: int) -> Iterator[subprocess.Popen[str]]:
    """Submits the job, and stops as soon as it has a result."""
    numbers = map(str, (TASKS, RESULT_BYTES, max_attempts))
    command = [sys.executable, "-c", PROGRAM, ",".join(addresses), str(starts), *numbers]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=clean_environment()
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def clients_of(address: str) -> float:
    (line,) = [
        line for line in http(address, "/metrics")[1].splitlines() if line.startswith("sparrow_scheduler_clients ")
    ]
    return float(line.split()[1])


@pytest.mark.parametrize(
    ("heartbeat_s", "max_attempts", "schedulers"),
    [
        (IMPATIENT, 1, 2),
        pytest.param(PATIENT, 3, 1, marks=pytest.mark.rest),
        pytest.param(IMPATIENT, 3, 2, marks=pytest.mark.rest),
    ],
)
def test_a_client_that_was_stopped_has_every_result_and_no_task_ran_twice(
    tmp_path: Path, heartbeat_s: str, max_attempts: int, schedulers: int
) -> None:
    starts = tmp_path / "starts"
    with ExitStack() as stack:
        daemons = [
            stack.enter_context(
                Daemon("scheduler", *FLAGS, "--heartbeat-s", heartbeat_s, log=tmp_path / f"scheduler{number}")
            )
            for number in range(schedulers)
        ]
        addresses = [daemon.address for daemon in daemons]
        also = [flag for address in addresses[1:] for flag in ("--scheduler", address)]
        stack.enter_context(node_of(addresses[0], tmp_path / "node", *also, "--warm", "python"))
        wait_until(lambda: all(get_json(address, "/v1/nodes")["nodes"] for address in addresses), "the nodes")
        client = stack.enter_context(client_process(addresses, starts, max_attempts))
        wait_until(lambda: len(tasks.read_starts(starts)) == TASKS, "all tasks to run")
        wait_until(lambda: not any(get_json(address, "/v1/jobs")["jobs"] for address in addresses), "the job's end")
        if heartbeat_s == IMPATIENT:
            wait_until(lambda: not any(map(clients_of, addresses)), "the client to be found mute")
        client.send_signal(signal.SIGCONT)
        told, _ = client.communicate(timeout=TIMEOUT_S)
        assert told == "all results are here\n"
        assert Counter(task for task, _ in tasks.read_starts(starts)) == Counter(range(TASKS))
        assert "reads too slowly" not in "".join(log.read_text() for log in tmp_path.glob("scheduler*"))


@pytest.mark.rest
def test_the_smallest_backlog_does_not_cut_off_nodes_that_read(tmp_path: Path) -> None:
    """Each of their slots may be sent a task as large as a frame at the same time."""
    slots, size = 8, 900_000
    with (
        Daemon("scheduler", *FLAGS, log=tmp_path / "scheduler") as scheduler,
        node_of(scheduler.address, tmp_path / "node", *FLAGS[:2], slots=slots),
        Client(scheduler.address) as client,
    ):
        arguments = [(task.to_bytes(1, "big") * size,) for task in range(4 * slots)]
        job = client.with_options(max_attempts=1).submit_calls(len, arguments)
        assert job.results(TIMEOUT_S) == [size] * len(arguments)
        assert "node monitor n gone" not in (tmp_path / "scheduler").read_text()
    logs = "".join(log.read_text() for log in (tmp_path / "scheduler", tmp_path / "node"))
    assert "reads too slowly" not in logs
