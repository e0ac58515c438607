"""The command lines that start node monitors on other machines. Pure.

A node monitor that is started so reads the cluster's secret from the first line of its standard input, so that no list
of processes shows it, and ends when its standard input does: with the connection, and so with the program that has
started it, however that ends.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sparrow_py.counted import counted
from sparrow_py.errors import InvalidRequest
from sparrow_py.job import check_whole

HOSTS_MAX = 10_000
SLOTS = "slots="
HOSTS_ALLOWED = "a line for each host: HOST or USER@HOST, and slots=N after a blank if it is to have another number"
SSH = (
    "ssh", "-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15",
    "-o", "ServerAliveCountMax=3",
)  # fmt: skip
"""It asks nobody for a password, and ends when the other machine is gone for three quarters of a minute."""
SRUN = ("srun", "--ntasks-per-node=1", "--cpu-bind=none", "--kill-on-bad-exit=0", "--no-kill", "--overlap")
"""One node monitor on each machine; that of one may end, and those of others go on."""
JOB_ID, NODES, CPUS, NODE_NAME = "SLURM_JOB_ID", "SLURM_JOB_NUM_NODES", "SLURM_CPUS_ON_NODE", "SLURMD_NODENAME"
"""What Slurm's environment says in an allocation."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine, as ssh names it. slots: those of its node monitor; 0: as many as it has cores."""

    name: str
    slots: int = 0


def parse_hosts(text: str, source: str = "hosts", *, each_once: bool = False) -> list[Host]:
    """The hosts of a file: a line for each; # begins a comment, and a host that comes again as it was is the same (as
    in PBS's file of nodes), or with `each_once` one too many. `InvalidRequest` names `source` and what is wrong."""
    found: dict[str, Host] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if words:
            host = _host(words, source)
            if found.setdefault(host.name, host) != host:
                raise InvalidRequest(source, " ".join(words), f"{host.name!r} with one number of slots")
            if each_once and found[host.name] is not host:
                allowed = "each host once: it has one node monitor, of which slots=N after it gives the slots"
                raise InvalidRequest(source, host.name, allowed)
    if not found or len(found) > HOSTS_MAX:
        raise InvalidRequest(source, counted(len(found), "host"), f"1 to {HOSTS_MAX} hosts")
    return list(found.values())


def _host(words: Sequence[str], source: str) -> Host:
    name, *more = words
    number = more[0].removeprefix(SLOTS) if more else "0"
    known = not more or (len(more) == 1 and more[0].startswith(SLOTS) and number.isascii() and number.isdecimal())
    if not known or name.startswith("-") or not name.isprintable():
        raise InvalidRequest(source, " ".join(words), HOSTS_ALLOWED)
    slots = int(number)
    if more:
        check_whole("slots", slots, 1, 1 << 16)
    return Host(name, slots)


def shell_line(python: str, directory: str, flags: Sequence[str]) -> str:
    """What a shell (sh) on the other machine runs: a node monitor in this directory, if that is there, too. Its tasks
    look for modules there, after the places that the flags name."""
    own = ["-P", "-m", "node_monitor", "--exit-on-stdin-eof", "--host", "0.0.0.0", "--port", "0"]
    # With -P neither the node monitor nor, unless they are told, its tasks look into the current directory.
    started = shlex.join([python, *own, *flags, "--python-path", os.curdir])
    there = f"cd {shlex.quote(directory)} 2>/dev/null"
    return f"IFS= read -r SPARROW_TOKEN && export SPARROW_TOKEN && {{ {there}; exec {started}; }}"


def ssh_command(host: Host, line: str, options: Sequence[str] = ()) -> list[str]:
    """Runs the line there, whichever shell the user has."""
    return [*SSH, *options, host.name, f"sh -c {shlex.quote(line)}"]


@dataclass(frozen=True, slots=True)
class Allocation:
    """What Slurm has given to this job. cpus: of this machine; 0 if nobody says. here: this machine's name."""

    nodes: int
    cpus: int = 0
    here: str = ""


def allocation(environment: Mapping[str, str]) -> Allocation:
    """The allocation in which this process runs; `InvalidRequest` if it runs in none."""
    if not environment.get(JOB_ID):
        raise InvalidRequest(JOB_ID, "", "a job's id: start it inside an allocation, by sbatch or salloc")
    nodes, cpus = environment.get(NODES, ""), environment.get(CPUS, "")
    if not nodes.isdecimal() or not int(nodes):
        raise InvalidRequest(NODES, nodes, "the number of the allocation's nodes")
    return Allocation(int(nodes), int(cpus) if cpus.isdecimal() else 0, environment.get(NODE_NAME, ""))


def srun_command(allocated: Allocation, line: str, options: Sequence[str] = ()) -> list[str]:
    """Runs the line on each machine of the allocation, each with the standard input of this one command."""
    cpus = [f"--cpus-per-task={allocated.cpus}"] if allocated.cpus else []
    sizes = [f"--nodes={allocated.nodes}", f"--ntasks={allocated.nodes}", *cpus]
    return [*SRUN, *sizes, *options, "sh", "-c", line]


def step_command(allocated: Allocation, machine: int, line: str, options: Sequence[str] = ()) -> list[str]:
    """Runs the line on the allocation's machine of this number, counted from 0, as a job step of its own."""
    cpus = [f"--cpus-per-task={allocated.cpus}"] if allocated.cpus else []
    return [*SRUN, "--nodes=1", "--ntasks=1", f"--relative={machine}", *cpus, *options, "sh", "-c", line]
