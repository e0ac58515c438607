"""Figure 6.7 live: daemons in network namespaces whose links are narrow, tasks that read input beside other traffic.

A small version of what `contention` models, at a hundredth of its rates: some node monitors, each in a namespace of its
own with a link of 100 Mbit/s in (`tc tbf`); a store with a wide one, which also runs scheduler and client. One node
receives background traffic of 80 % of its link in datagrams that give way to nobody. Tasks that come at random read 16
to 32 MB each. First the network-aware flow places them, then sampling does, with the same sizes at the same times. What
has not ended when time is up counts as long as it has taken by then, so that the ratio is no larger than it would be.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.flow.live_traffic import NET
from benchmarks.flow.outcome import Outcome, Scale, at_least
from benchmarks.laboratory.network import NAMESPACES, Namespaces, why_no_namespaces
from benchmarks.report import ROOT, Row, progress
from sparrow_py.errors import SparrowError

STORE = "store"
MEGABIT = 125_000
SCHEDULER_PORT = 20_503
READY_S = 300.0
"""Where nobody has had the solvers compiled that takes a minute, and longer on a busy machine."""
POLL_S = 0.1
QUIET_S = 3.0
"""Nodes measure the background for so long before the first task comes."""
FLOW, SAMPLING = "network-aware flow", "sampling"
BETTER_MIN = 3.0


class NotHere(SparrowError):
    """This machine does not let us make such a network."""


@dataclass(frozen=True, slots=True)
class Live:
    """What is run."""

    nodes: int = 6
    slots: int = 4
    link: float = 100.0 * MEGABIT
    background: float = 80.0 * MEGABIT
    """Into the first node."""
    size_min: float = 16e6
    size_max: float = 32e6
    utilisation: float = 0.7
    """Of all links together, by tasks and background."""
    arrivals_s: float = 24.0
    """Tasks come for so long."""
    within_s: float = 40.0
    """So long after the first one came time is up."""
    request: float = 40.0 * MEGABIT
    """What tasks demand of a link under the flow; they take what they can get."""

    @property
    def rate(self) -> float:
        """Tasks a second that come."""
        wanted = self.utilisation * self.nodes * self.link - self.background
        return wanted / ((self.size_min + self.size_max) / 2)

    @property
    def tasks(self) -> int:
        """That come in all."""
        return max(2, round(self.rate * self.arrivals_s))


LIVE = {
    Scale.TINY: Live(nodes=2, size_min=1e6, size_max=2e6, background=50.0 * MEGABIT, arrivals_s=2.0, within_s=10.0),
    Scale.QUICK: Live(),
    Scale.FULL: Live(nodes=12, arrivals_s=120.0, within_s=240.0),
}


def why_not_here() -> str:
    """Why there can be no such network here; empty if there can."""
    if shutil.which("tc") is None:
        return "tc is not installed"
    return why_no_namespaces()


class Links(Namespaces):
    """Namespaces of which some have narrow links."""

    def narrow(self, machine: str, bytes_per_s: float) -> None:
        """What the machine receives comes no faster than that; it waits for 50 ms at most, then it is lost."""
        hub = NAMESPACES / self._name("hub")
        rate = ["rate", f"{int(8 * bytes_per_s)}bit", "burst", "32kb", "latency", "50ms"]
        command = ["nsenter", f"--net={hub}", "tc", "qdisc", "add", "dev", machine, "root", "tbf", *rate]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as error:
            raise NotHere(f"links cannot be made narrow here: {error.stderr.strip()}") from None


class Programs:
    """What runs in the namespaces, and ends with the block."""

    def __init__(self, network: Links, directory: Path, stack: contextlib.ExitStack) -> None:
        self._network = network
        self._directory = directory
        self._stack = stack
        names = ("PATH", "HOME", "LANG", "TMPDIR")
        self._environment = {name: os.environ[name] for name in names if name in os.environ}
        self._environment |= {"PYTHONPATH": str(ROOT), "SPARROW_TOKEN": secrets.token_hex(16)}

    def start(self, machine: str, *arguments: str, **more: Any) -> subprocess.Popen[bytes]:
        """`python -m …` on the machine."""
        log = self._stack.enter_context((self._directory / f"{machine}-{arguments[0]}.log").open("ab"))
        command = [*self._network.within(machine), sys.executable, "-m", *arguments]
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "stderr": log, **more}
        process = subprocess.Popen(command, cwd=self._directory, env=self._environment, **streams)
        self._stack.callback(_end, process)
        return process

    def ask(self, machine: str, *arguments: str, timeout_s: float) -> dict[str, Any]:
        """The JSON object that it prints."""
        process = self.start(machine, *arguments, stdout=subprocess.PIPE)
        try:
            said, _ = process.communicate(timeout=timeout_s)
            return dict(json.loads(said))
        except (subprocess.TimeoutExpired, ValueError) as error:
            log = self._directory / f"{machine}-{arguments[0]}.log"
            raise SparrowError(f"readers did not end: {error}; {log.read_text()[-1000:]}") from None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


def placed_by(name: str, live: Live, seed: int) -> dict[str, Any]:
    """Response times, in order of arrival, and how many tasks had not ended."""
    nodes = [f"n{number}" for number in range(live.nodes)]
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="live-")))
        network = stack.enter_context(contextlib.closing(Links([STORE, *nodes])))
        for node in nodes:
            network.narrow(node, live.link)
        programs = Programs(network, directory, stack)
        store, traffic = network.address(STORE), "benchmarks.flow.live_traffic"
        plane = ("--policy", "flow", "--flow-policy", "network-aware") if name == FLOW else ()
        programs.start(
            STORE, "scheduler", "--host", store, "--port", str(SCHEDULER_PORT), "--exit-on-stdin-eof", *plane
        )
        for node in nodes:
            programs.start(
                node, "node_monitor", "--host", network.address(node), "--scheduler", f"{store}:{SCHEDULER_PORT}",
                "--node-id", node, "--slots", str(live.slots), "--resource", f"{NET}={live.link}",
                "--attr", f"{NET}={live.link}", "--python-path", str(ROOT), "--exit-on-stdin-eof",
            )  # fmt: skip
        _wait_until_ready(network, name)
        programs.start(STORE, traffic, "serve", store)
        programs.start(STORE, traffic, "send", network.address(nodes[0]), str(live.background))
        time.sleep(QUIET_S)
        options: dict[str, Any] = {"policy": "flow", "demand": {NET: live.request}} if name == FLOW else {}
        plan = {**asdict(live), "tasks": live.tasks, "rate": live.rate, "seed": seed, "options": options}
        address = f"{store}:{SCHEDULER_PORT}"
        return programs.ask(STORE, traffic, "read", address, store, json.dumps(plan), timeout_s=live.within_s + 120)


def _wait_until_ready(network: Links, name: str) -> None:
    deadline_s = time.monotonic() + READY_S
    while network.ask(STORE, SCHEDULER_PORT, "/readyz")[0] != 200:
        if time.monotonic() > deadline_s:
            raise SparrowError(f"the scheduler of {name} was not ready within {READY_S:g} s")
        time.sleep(POLL_S)


def row_of(name: str, found: dict[str, Any]) -> Row:
    """Percentiles of response times."""
    p50, p99 = (float(value) for value in np.percentile(found["taken_s"], (50, 99)))
    row = {"placed by": name, "tasks": len(found["taken_s"]), "p50 s": p50, "p99 s": p99}
    return {**row, "not ended": found["unfinished"]}


def compared(scale: Scale, seed: int = 1) -> Outcome:
    """Both ways of placing; `NotHere` if this machine does not let us."""
    if reason := why_not_here():
        raise NotHere(reason)
    live, rows = LIVE[scale], list[Row]()
    for name in (FLOW, SAMPLING):
        progress(f"{name}, {live.utilisation:.0%} of the network in use")
        rows.append(row_of(name, placed_by(name, live, seed)))
    return outcome(live, rows, tells=scale is not Scale.TINY)


def outcome(live: Live, rows: Sequence[Row], *, tells: bool) -> Outcome:
    """The rows, and how much better the flow does."""
    flow, sampling = rows
    ratios = {which: sampling[which] / flow[which] for which in ("p50 s", "p99 s")}
    text = f"p99 of sampling at least {BETTER_MIN:g} × that of the flow"
    notes = [
        f"{live.nodes} nodes with links of {live.link / MEGABIT:g} Mbit/s, the first with "
        f"{live.background / MEGABIT:g} Mbit/s of background; inputs of {live.size_min / 1e6:g} to "
        f"{live.size_max / 1e6:g} MB.",
        f"p50 of sampling is {ratios['p50 s']:.2f} × that of the flow. Wall times, which count on quiet cores.",
    ]
    return Outcome(list(rows), [at_least(text, ratios["p99 s"], BETTER_MIN, " ×", tells=tells)], notes)
