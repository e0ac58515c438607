"""The soak's cluster: daemons as processes, each of which finds the schedulers through wires of its own.

Peers read the addresses of their wires from a file each, which is written anew when a scheduler moves to another port.
Of the node monitors every `EVERY`th has Python workers, and every `EVERY`th can run commands; the others have the
built-in apps alone, so that fifty of them fit one machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import psutil

from benchmarks.soak.network import Network

START_TIMEOUT_S = 60.0
DRAIN_TIMEOUT_S = 20.0
EVERY = 6
SLOTS = 2
BLOB_LEASE_S = 5.0
WEIGHTS = ("ada=2", "grace=0.5")
"""Of the clients' users; the third has the weight 1."""


@dataclass(frozen=True)
class Shape:
    """How many of what. retention_s: of large data that nobody needs. veterans: whether some daemons are spared from
    dying, so that their memory can be judged."""

    schedulers: int
    nodes: int
    clients: int
    heartbeat_s: float
    retention_s: float
    veterans: bool


@dataclass
class Daemon:
    """A scheduler, a node monitor or a client, in one process after another.

    veteran: whether it is spared from dying once it was upgraded. upgraded: whether it has been. busy: whether
    something fails here now.
    """

    name: str
    module: str
    flags: list[str]
    veteran: bool = False
    port: int = 0
    upgraded: bool = False
    busy: bool = False
    address: str = ""
    started_s: float = 0.0
    exit_codes: list[int] = field(default_factory=list)
    process: asyncio.subprocess.Process | None = None

    @property
    def up(self) -> bool:
        """Whether its process runs, as far as we know."""
        return self.process is not None and self.process.returncode is None

    @property
    def pid(self) -> int:
        """Of its last process."""
        assert self.process is not None
        return self.process.pid

    def executors(self) -> list[psutil.Process]:
        """The processes that it has started."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return list(psutil.Process(self.pid).children(recursive=True))
        return []

    def signal(self, number: int) -> None:
        """Send it a signal, if it is there."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    async def start(self, directory: Path, tmp: Path) -> None:
        """Start it with its log in `directory` and temporary files in `tmp`, and wait until it works."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARROW_")}
        path = os.pathsep.join(dict.fromkeys(entry or str(Path.cwd()) for entry in sys.path))
        # Daemons have one heap by themselves; in a client that is its program's business. With eight for each core, of
        # whose threads each fetches a large result now and then, its resident set says little about what it holds.
        environment |= {"PYTHONPATH": path, "TMPDIR": str(tmp), "MALLOC_ARENA_MAX": "1"}
        own = ["--life", str(len(self.exit_codes))]
        if self.module != CLIENT:
            own = ["--port", str(self.port), "--exit-on-stdin-eof"]
        with (directory / "logs" / f"{self.name}.log").open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", self.module, *own, *self.flags,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, env=environment,
                start_new_session=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        async with asyncio.timeout(START_TIMEOUT_S):
            line = await self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name} did not start; see {directory}/logs/{self.name}.log")
        self.address = orjson.loads(line).get("address", "")
        self.started_s = time.monotonic()

    async def kill(self) -> None:
        """SIGKILL."""
        self.signal(signal.SIGKILL)
        await self.ended()

    async def drain(self) -> int:
        """SIGTERM, as an operator would for an upgrade; its exit code."""
        self.signal(signal.SIGTERM)
        return await self.ended()

    async def ended(self) -> int:
        """Wait until it has ended, however long it takes: its options say how long that may be."""
        assert self.process is not None
        code = await self.process.wait()
        self.exit_codes.append(code)
        return code


CLIENT = "benchmarks.soak.client"


class Cluster:
    """All of them, and the network between."""

    def __init__(self, shape: Shape, directory: Path, seed: int) -> None:
        self.shape = shape
        self.directory = directory
        self.network = Network()
        self.tmp = Path(tempfile.mkdtemp(prefix="soak-tmp-"))
        """The daemons' temporary directory: with a short path, as those of sockets have to be."""
        for name in ("logs", "addresses", "records"):
            (directory / name).mkdir(parents=True)
        heartbeat = ["--heartbeat-s", str(shape.heartbeat_s), "--drain-timeout-s", str(DRAIN_TIMEOUT_S)]
        weights = [flag for weight in WEIGHTS for flag in ("--user-weight", weight)]
        self.schedulers = [
            Daemon(f"scheduler-{number}", "scheduler", [*heartbeat, *weights], veteran=shape.veterans and not number)
            for number in range(shape.schedulers)
        ]
        self.nodes = [
            Daemon(f"node-{number}", "node_monitor", [*heartbeat, *self._node_flags(number)],
                   veteran=shape.veterans and number in VETERANS)
            for number in range(shape.nodes)
        ]  # fmt: skip
        self.clients = [  # They are not upgraded: their veteran is spared from the start.
            Daemon(f"client-{number}", CLIENT, self._client_flags(number, seed),
                   veteran=shape.veterans and not number, upgraded=True)
            for number in range(shape.clients)
        ]  # fmt: skip

    @property
    def daemons(self) -> list[Daemon]:
        """Schedulers and node monitors."""
        return [*self.schedulers, *self.nodes]

    @property
    def starts(self) -> Path:
        """Where tasks write down that they start."""
        return self.directory / "starts"

    def _addresses(self, peer: str) -> Path:
        return self.directory / "addresses" / peer

    def _node_flags(self, number: int) -> list[str]:
        name = f"node-{number}"
        flags = ["--scheduler", f"file:{self._addresses(name)}", "--node-id", name, "--attr", f"name={name}"]
        flags += ["--slots", str(SLOTS), "--blob-retention-s", str(self.shape.retention_s)]
        flags += ["--blob-lease-s", str(BLOB_LEASE_S), "--attr", f"runs={runs(number)}"]
        flags += ["--warm", "python" if runs(number) == "python" else "noop"]
        return [*flags, *(["--enable-command"] if runs(number) == "command" else [])]

    def _client_flags(self, number: int, seed: int) -> list[str]:
        name = f"client-{number}"
        user = ("ada", "grace", "alan")[number % 3]
        flags = ["--schedulers", f"file:{self._addresses(name)}", "--user", user, "--starts", str(self.starts)]
        flags += ["--records", str(self.directory / "records" / f"{name}.jsonl"), "--seed", f"{seed} {number}"]
        return [*flags, "--heartbeat-s", str(self.shape.heartbeat_s)]

    # ---- life --------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all but the clients, and wait until all are linked."""
        await asyncio.gather(*(scheduler.start(self.directory, self.tmp) for scheduler in self.schedulers))
        peers = [daemon.name for daemon in (*self.nodes, *self.clients)]
        for scheduler in self.schedulers:
            await self._wire(scheduler, peers)
        for first in range(0, len(self.nodes), STARTS_AT_ONCE):
            await asyncio.gather(
                *(node.start(self.directory, self.tmp) for node in self.nodes[first : first + STARTS_AT_ONCE])
            )

    async def start_clients(self) -> None:
        """Start the load."""
        await asyncio.gather(*(client.start(self.directory, self.tmp) for client in self.clients))

    async def _wire(self, scheduler: Daemon, peers: Sequence[str]) -> None:
        """Lead peers to this scheduler, and tell them."""
        for peer in peers:
            await self.network.connect(peer, scheduler.name, scheduler.address)
            # Another file under the name, at once: one that is being written would name fewer schedulers.
            written = self._addresses(peer).with_suffix(".new")
            written.write_text("".join(f"{wire.address}\n" for wire in self.network.of(peer=peer)))
            written.rename(self._addresses(peer))

    async def restart(self, daemon: Daemon, *, move: bool = False) -> None:
        """Start it again: a scheduler at the port that it had, or at another."""
        if daemon in self.schedulers:
            daemon.port = 0 if move else int(daemon.address.rpartition(":")[2])
        await daemon.start(self.directory, self.tmp)
        if move:
            await self._wire(daemon, [peer.name for peer in (*self.nodes, *self.clients)])

    async def stop(self) -> list[str]:
        """Drain node monitors, then schedulers; what did not end as it should."""
        wrong = []
        for daemons in (self.nodes, self.schedulers):
            codes = await asyncio.gather(*(daemon.drain() for daemon in daemons if daemon.up))
            wrong += [
                f"{daemon.name} ended with code {code} when it was drained"
                for daemon, code in zip(daemons, codes, strict=False)
                if code
            ]
        return wrong

    async def destroy(self) -> None:
        """End whatever of it is left, stopped or not."""
        left: list[Any] = [daemon for daemon in (*self.clients, *self.nodes, *self.schedulers) if daemon.up]
        for daemon in left:
            for child in daemon.executors():
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
            await daemon.kill()
        await self.network.close()


STARTS_AT_ONCE = 4
VETERANS = (0, 1, 2, 3)
"""Numbers of the node monitors that are spared: two with Python workers or commands, two with the built-in apps."""


def runs(number: int) -> str:
    """What the node monitor of this number runs besides the built-in apps."""
    return {0: "python", EVERY // 2: "command"}.get(number % EVERY, "builtin")
