"""Executors of daemons that tests fork are forked, too: tasks cannot tell, and nothing of it is left."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from sparrow_py import Client, LocalCluster, TaskLost
from tests.support import executor_starts, forked_starts, probe
from tests.support.daemons import FORK_SERVER, gone, workers_of
from tests.support.waiting import wait_until

DIFFERENT = {*probe.DIFFERENT, "parent", "flags"}
"""The flag `-s`, of which only the path tells, is the daemon's."""
OF_ONE = {"SPARROW_EXECUTOR_ID", "SPARROW_EXECUTOR_SOCKET", "SPARROW_EXECUTOR_FILES"}


@contextmanager
def cluster(forked: bool, log_dir: Path) -> Iterator[tuple[psutil.Process, Client]]:
    """The node monitor and a client of a cluster whose executors are forked, or executed."""
    forked_starts.executors_chosen = forked
    with LocalCluster(slots=1, log_dir=log_dir) as cluster, Client(cluster) as client:
        yield psutil.Process(cluster.node_processes[0].pid), client


def was_forked(client: Client) -> bool:
    """Whether a worker has the daemons' modules, before a task imports one of the tests'."""
    return bool(client.submit(eval, "'aiohttp' in __import__('sys').modules").result())


def start_server_of(monitor: psutil.Process) -> psutil.Process | None:
    return next((child for child in monitor.children() if executor_starts.NAME in child.cmdline()), None)


def fork_server_of(monitor: psutil.Process) -> psutil.Process:
    there = (child for child in monitor.children() if child.status() != psutil.STATUS_ZOMBIE)
    (server,) = (child for child in there if FORK_SERVER in child.cmdline())
    return server


def seen(forked: bool, log_dir: Path) -> dict[str, Any]:
    """What a task finds, and how /proc lists its fork server."""
    with cluster(forked, log_dir) as (monitor, client):
        assert was_forked(client) == forked
        found = client.submit(probe.observed).result()
        command = fork_server_of(monitor).cmdline()
        assert workers_of(monitor.pid) >= {found["pid"]}
    environment = {name: value for name, value in found["environ"].items() if name not in OF_ONE}
    kinds = {number: (of.partition(":")[0], passed_on) for number, (of, passed_on) in found["descriptors"].items()}
    others = {name: value for name, value in found.items() if name not in DIFFERENT}
    return {**others, "descriptors": kinds, "environment": environment, "server": [word for word in command if word]}


def test_a_task_cannot_tell_that_its_executor_was_forked(tmp_path: Path) -> None:
    executed, forked = (seen(choice, tmp_path / str(choice)) for choice in (False, True))
    assert forked == executed


def test_ends_of_executors_and_their_servers_are_heard(tmp_path: Path) -> None:
    with cluster(True, tmp_path) as (monitor, client):
        with pytest.raises(TaskLost, match="exited with code 3"):
            client.submit(os._exit, 3).result()
        fork_server_of(monitor).kill()
        assert was_forked(client)


@pytest.mark.rest
def test_a_node_monitor_whose_start_server_was_killed_executes(tmp_path: Path) -> None:
    with cluster(True, tmp_path) as (monitor, client):
        assert was_forked(client)
        server = start_server_of(monitor)
        assert server is not None
        server.kill()
        wait_until(lambda: gone(server.pid))
        fork_server_of(monitor).kill()
        wait_until(lambda: not was_forked(client), "a worker that was executed")


@pytest.mark.real_executors
def test_executors_of_a_marked_test_are_executed(tmp_path: Path) -> None:
    with cluster(forked_starts.executors_chosen, tmp_path) as (monitor, client):
        assert start_server_of(monitor) is None
        assert not was_forked(client)


def test_the_start_server_does_not_outlive_its_node_monitor(tmp_path: Path) -> None:
    with cluster(True, tmp_path) as (monitor, client):
        was_forked(client)
        children = monitor.children(recursive=True)
        assert start_server_of(monitor) in children
        monitor.send_signal(signal.SIGKILL)
        for child in children:
            wait_until(lambda child=child: gone(child.pid))  # type: ignore[misc]
