"""A Redis server for a run: Celery's broker, and where Ray's head node may keep its state."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass

import psutil

from benchmarks.faults_peers.network import HEAD
from benchmarks.faults_peers.processes import Processes
from benchmarks.laboratory.network import Network


@dataclass
class Redis:
    """A server that has been started, with its command."""

    address: str
    process: psutil.Process
    command: Sequence[str]


def redis_missing() -> str:
    """What to do if there is no server to start; empty if there is."""
    return "" if shutil.which("redis-server") else "no redis-server on the PATH: apt-get install redis-server"


def start_redis(processes: Processes, network: Network, *flags: str) -> Redis:
    """Start one with the settings that it has without a configuration file, and further flags."""
    host, port = network.address(HEAD), network.free_port(HEAD)
    command = ["redis-server", "--port", str(port), "--bind", host, "--protected-mode", "no"]
    command += ["--dir", str(processes.directory), *flags]
    return Redis(f"{host}:{port}", processes.start("redis", command), command)
