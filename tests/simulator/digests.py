"""Digests of runs in both simulators: a change that only moves code leaves every one of them as it is.

A run has a transcript: each effect of the cores of clients, schedulers and node monitors, in order, with all fields of
its message, then what became of the jobs, and the counters. It also has the bytes of its schedulers' audit logs.
`testdata/digests.txt` has the SHA-256 of both, in the format of sha256sum. From the root of the repository:

    python -m tests.simulator.digests                   plays all runs and names those that differ
    python -m tests.simulator.digests --write           writes the file anew, after a change of behaviour that is meant
    python -m tests.simulator.digests --show soak/12    prints what is hashed, for a diff between two versions
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import click

from loadgen.durations import Durations
from loadgen.synthetic import Synthetic
from scheduler.audit.audited_core import AuditedCore
from simulator import hosts
from simulator.cluster import Cluster
from simulator.engine import Engine
from simulator.network import Delay
from simulator.policies import Settings
from simulator.simulate import simulate
from simulator.soak import fallible_hosts, faults, job_log, links, scenarios

DIGESTS = Path(__file__).parent / "testdata/digests.txt"
AUDIT_BYTES_MAX = 1 << 40
"""No log of these runs is renamed for its size."""

# ---- the runs --------------------------------------------------------------------------------

LEAN_SEEDS = (1, 2, 3)
RARE_SEEDS = (336, 400, 449, 469, 513, 531, 566, 650, 741, 799, 926, 936)
"""Of scenarios in which a core does what it does in none of the first 300: a result that was lost is produced again."""
SOAK_SEEDS = (*range(300), *RARE_SEEDS)
CALM_SEEDS = range(60)
"""Of scenarios in which nothing fails."""


@dataclass(frozen=True)
class Lean:
    """Arguments of `simulate`. job: further fields of the jobs' `JobSpec`."""

    policy: str = "sparrow"
    cluster: dict[str, Any] = field(default_factory=dict)
    workload: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    job: dict[str, Any] = field(default_factory=dict)


USERS = ("anna", "bert", "carl")
MIXED = {"users": USERS, "large": 0.1, "large_tasks": 20, "state_duration": True}
"""Jobs of several users, a few of them large, that say how long their tasks take."""

LEAN = {
    "sparrow": Lean(),
    "sparrow-one-scheduler": Lean(cluster={"schedulers": 1}),
    "sparrow-many-slots": Lean(cluster={"nodes": 3, "slots": 8}),
    "sparrow-no-delay": Lean(cluster={"delay": Delay("fixed", 0.0)}),
    "sparrow-uniform-delay": Lean(cluster={"delay": Delay("uniform", 5.0)}),
    "sparrow-exponential-delay": Lean(cluster={"delay": Delay("exponential", 5.0)}),
    "sparrow-slow-network": Lean(cluster={"delay": Delay("fixed", 60.0)}),
    "sparrow-low-load": Lean(workload={"load": 0.3}),
    "sparrow-shortest": Lean(workload=MIXED),
    "sparrow-shortest-overtaken": Lean(workload=MIXED, settings={"overtaken_max": 5}),
    "sparrow-oldest": Lean(workload=MIXED, settings={"order": "oldest"}),
    "sparrow-reserved": Lean(workload=MIXED, settings={"order": "reserved"}),
    "sparrow-weights": Lean(cluster={"weights": {"anna": 3.0, "bert": 0.5}}, workload=MIXED),
    "sparrow-fifo": Lean(cluster={"queue": "fifo"}, workload=MIXED),
    "sparrow-priority": Lean(cluster={"queue": "priority"}, workload=MIXED),
    "sparrow-probe-ratio-1": Lean(settings={"probe_ratio": 1.0}),
    "sparrow-probe-ratio-1.2": Lean(settings={"probe_ratio": 1.2}),
    "sparrow-probe-ratio-5": Lean(settings={"probe_ratio": 5.0}),
    "sparrow-adaptive": Lean(settings={"probe_ratio_max": 6.0, "probe_ratio": 1.5}),
    "sparrow-no-sharing": Lean(workload=MIXED, settings={"probe_sharing": False}),
    "sparrow-no-cancellation": Lean(settings={"cancellation": False}),
    "sparrow-no-sharing-no-cancellation": Lean(settings={"probe_sharing": False, "cancellation": False}),
    "sparrow-no-idle-reports": Lean(settings={"report_idle": False}),
    "sparrow-zones": Lean(cluster={"zones": 3}, workload={"zones": 3}),
    "sparrow-preferred": Lean(workload={"constrained": 0.5, "replicas": 2}),
    "sparrow-preferred-delay": Lean(workload={"constrained": 1.0, "replicas": 1}, job={"delay_s": 0.02}),
    "sparrow-preferred-zones": Lean(cluster={"zones": 2}, workload={"zones": 2, "users": USERS}, job={"delay_s": 0.0}),
    "sparrow-prefetch": Lean(workload=MIXED, job={"prefetch": 2}),
    "sparrow-prefetch-placed": Lean(job={"prefetch": 1, "report_placed": True}),
    "batch": Lean("batch"),
    "batch-mixed": Lean("batch", workload=MIXED, settings={"probe_ratio": 1.3}),
    "batch-zones": Lean("batch", cluster={"zones": 3}, workload={"zones": 3}),
    "per-task": Lean("per-task"),
    "per-task-mixed": Lean("per-task", workload=MIXED, settings={"probe_ratio": 3.0}),
    "per-task-preferred": Lean("per-task", workload={"constrained": 0.5}),
    "random": Lean("random"),
    "random-mixed": Lean("random", workload=MIXED),
    "random-preferred": Lean("random", workload={"constrained": 0.5}, job={"delay_s": 0.02}),
    "central": Lean("central-daemon"),
    "central-weights": Lean("central-daemon", cluster={"weights": {"anna": 3.0, "bert": 0.5}}, workload=MIXED),
    "central-preferred": Lean("central-daemon", workload={"constrained": 0.5}, job={"delay_s": 0.02}),
}

ALL_RUNS = [
    *(f"lean/{name}/{seed}" for name in LEAN for seed in LEAN_SEEDS),
    *(f"soak/{seed}" for seed in SOAK_SEEDS),
    *(f"calm/{seed}" for seed in CALM_SEEDS),
]
FEW_RUNS = [
    *(f"lean/{name}/{LEAN_SEEDS[0]}" for name in LEAN),
    *(f"soak/{seed}" for seed in (*SOAK_SEEDS[:20], *RARE_SEEDS)),
    *(f"calm/{seed}" for seed in CALM_SEEDS[:6]),
]
"""Of these a test is made."""


# ---- what is recorded ------------------------------------------------------------------------

LEAN_EFFECTS = {
    hosts.SchedulerHost: ("to_node", "to_client"),
    hosts.NodeHost: ("to_scheduler", "to_executor"),
    hosts.ClientHost: ("to_scheduler", "stream"),
}
SOAK_EFFECTS = {
    fallible_hosts.SchedulerHost: ("to_node",),  # `to_client` calls it.
    fallible_hosts.NodeHost: (
        "to_scheduler", "to_executor", "start_executor", "kill_executor", "fetch", "offer_changed",
    ),
    fallible_hosts.ClientHost: ("to_scheduler", "stream", "upload_again"),
    job_log.JobLog: ("accepted", "refused", "placed", "outcome", "not_cancelled", "ended"),
    links.Pipe: ("dispatch",),
}  # fmt: skip
LATER_FIELDS = re.compile(
    ", lease_s=None|, cancelled=False, running=False|, data_bytes=None|(?<=stderr=''), used=None|, measure=False"
    r"|, retry=None|, retry=False|, failures={}|, earlier_errors=\(\)|, no_room=''|, awaited=\(\)"
)
"""As messages show fields that came after the digests, and that nothing here uses: left out, so that these stay."""
LATER_COUNTERS = ("yields", "yields_late", "failures_retried")
"""The same of what node monitors and schedulers count."""
HISTOGRAMS = {"get_task_s", "task_times"}
"""Of what they count those that say less than the outcomes and messages from which they follow: left out."""
EVENTS = ("node_up", "node_down", "receive_from_node", "receive_from_client", "cancel_job")
"""What the audit log is told of, besides the messages that its scheduler sends."""


class Recorder:
    """Watches the hosts of one run. `lines`: its transcript."""

    def __init__(self, directory: Path) -> None:
        self.lines: list[str] = []
        self._engine: Engine
        self._hosts: list[Any] = []
        self._audited: dict[Any, AuditedCore] = {}
        self._directory = directory

    @contextlib.contextmanager
    def watching(self, effects: dict[type, tuple[str, ...]]) -> Iterator[None]:
        """While this lasts, whatever hosts do goes into the transcript."""
        with contextlib.ExitStack() as stack:

            def replace(of: type, name: str, with_: Callable[..., Any]) -> None:
                stack.enter_context(mock.patch.object(of, name, with_))

            replace(Engine, "__init__", self._noting_engine(Engine.__init__))
            for kind, names in effects.items():
                for name in names:
                    replace(kind, name, self._noting_effect(name, getattr(kind, name)))
                if "to_node" in names or "to_scheduler" in names:
                    replace(kind, "__init__", self._noting_host(kind.__init__, audited="to_node" in names))
            yield

    def _noting_engine(self, inner: Callable[..., None]) -> Callable[..., None]:
        def begin(engine: Engine, *arguments: Any) -> None:
            inner(engine, *arguments)
            self._engine = engine

        return begin

    def _noting_host(self, inner: Callable[..., None], *, audited: bool) -> Callable[..., None]:
        def begin(host: Any, *arguments: Any) -> None:
            inner(host, *arguments)
            self._hosts.append(host)
            if audited:
                audit = self._audited[host] = AuditedCore(_Nowhere(), lambda: self._now_s(host))
                audit.of(_Listener(host.core))  # type: ignore[arg-type]
                audit.open(f"{self._directory}/{len(self._audited)}", AUDIT_BYTES_MAX, host.name, "127.0.0.1:1")
                host.core = _AuditedEvents(host.core, audit)

        return begin

    def _noting_effect(self, name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def effect(subject: Any, *arguments: Any) -> Any:
            words = ", ".join(map(_text, arguments))
            self.lines.append(f"{self._engine.now_s!r} {_name(subject)} {name}({words})")
            if subject in self._audited:
                getattr(self._audited[subject], name)(*arguments)
            return inner(subject, *arguments)

        return effect

    def _now_s(self, host: Any) -> float:
        """By the host's clock, if it has one of its own."""
        return getattr(host, "now_s", self._engine.now_s)

    def end(self) -> None:
        """The run is over: what is counted."""
        self.lines.append(f"{self._engine.events} events, the last at {self._engine.now_s!r}")
        for host in self._hosts:
            counters = getattr(host.core, "counters", None)
            if counters is not None:
                counts = {name: getattr(counters, name) for name in sorted({*counters.__slots__} - HISTOGRAMS)}
                counts = {name: count for name, count in counts.items() if count or name not in LATER_COUNTERS}
                self.lines.append(f"{host.name} counted {counts}")

    async def audit_lines(self) -> list[str]:
        """Of all schedulers, in the order in which they began."""
        lines: list[str] = []
        for number, audited in enumerate(self._audited.values(), start=1):
            await audited.close()
            lines += (self._directory / str(number)).read_text().splitlines()
        return lines


class _Nowhere:
    """The outbox of an audit log that only listens."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class _Listener(_Nowhere):
    """Its core: it has the jobs of the real one, which gets events by itself."""

    def __init__(self, core: Any) -> None:
        self._core = core

    @property
    def jobs(self) -> Any:
        return self._core.jobs


class _AuditedEvents:
    """A core whose events are told to the audit log first."""

    def __init__(self, core: Any, audited: AuditedCore) -> None:
        self._core = core
        for name in EVENTS:
            setattr(self, name, self._both(getattr(audited, name), getattr(core, name)))

    @staticmethod
    def _both(first: Callable[..., Any], then: Callable[..., Any]) -> Callable[..., Any]:
        def event(*arguments: Any, **more: Any) -> Any:
            first(*arguments, **more)
            return then(*arguments, **more)

        return event

    def __getattr__(self, name: str) -> Any:
        return getattr(self._core, name)


def _name(subject: Any) -> str:
    if isinstance(subject, links.Pipe):
        link = subject.sender
        return f"{link.name} {'to peer' if link.to_peer is subject else 'to scheduler'}"
    return str(subject.id if isinstance(subject, job_log.JobLog) else subject.name)


def _text(argument: Any) -> str:
    """Of an argument; what has no text of its own (a client's job) is known by its id."""
    return str(argument.id) if type(argument).__repr__ is object.__repr__ else LATER_FIELDS.sub("", repr(argument))


# ---- playing them ----------------------------------------------------------------------------


def play(run: str) -> dict[str, list[str]]:
    """What the run brings forth, by name: its transcript has the run's own."""
    with tempfile.TemporaryDirectory() as directory:
        lines, audit_lines = asyncio.run(_play(run, Path(directory)))
    return {run: lines, f"{run}/audit": audit_lines}


async def _play(run: str, directory: Path) -> tuple[list[str], list[str]]:
    """A coroutine, as an audit log is for the thread of an event loop."""
    kind, *rest = run.split("/")
    recorder = Recorder(directory)
    if kind == "lean":
        with recorder.watching(LEAN_EFFECTS):
            _play_lean(LEAN[rest[0]], int(rest[1]), recorder)
    else:
        with recorder.watching(SOAK_EFFECTS):
            _play_soak(int(rest[0]), () if kind == "calm" else tuple(faults.KINDS), recorder)
    return recorder.lines, await recorder.audit_lines()


def _play_lean(lean: Lean, seed: int, recorder: Recorder) -> None:
    cluster = Cluster(**{"nodes": 10, "slots": 2, "schedulers": 2, **lean.cluster})
    workload = Synthetic(**{"tasks": 4, "jobs": 40, "load": 0.85, "durations": Durations("pareto"), **lean.workload})
    submit = hosts.ClientHost.submit

    def submit_with_fields(client: Any, record: Any, **fields: Any) -> None:
        submit(client, record, **fields, **lean.job)

    with mock.patch.object(hosts.ClientHost, "submit", submit_with_fields):
        result = simulate(cluster, workload, lean.policy, Settings(**lean.settings), seed=seed)
    for record in result.records:
        recorder.lines.append(f"{record.job} started {list(record.started_s)} on {list(record.nodes)}")
    recorder.lines.append(f"counts {result.counts}")
    recorder.end()


def _play_soak(seed: int, kinds: tuple[str, ...], recorder: Recorder) -> None:
    nothing = {"history_len_max": 0}
    without = dict.fromkeys(("leases", "retries", "futures", "waiting", "detached"), False)
    world = scenarios.draw(seed, kinds, **without).begin(scheduler=nothing, node=nothing, checks=False)
    world.run()
    for at_s, kind, whom, for_s in world.faults:
        recorder.lines.append(f"fault {kind} of {whom} at {at_s!r} for {for_s!r}")
    for start in world.starts:
        recorder.lines.append(
            f"{start.log.id} task {start.task} as {start.name} of {start.scheduler} on {start.node.name} "
            f"given {start.given_at_s!r} started {start.started_at_s!r} ended {start.ended_at_s!r}"
        )
    recorder.lines.append(f"counts {dict(sorted(world.counts.items()))}")
    recorder.lines.append(f"next draw {world.rng.random()!r}")
    recorder.end()


# ---- digests ---------------------------------------------------------------------------------


def digests(run: str) -> dict[str, str]:
    """Of what the run brings forth, by name."""
    return {name: _digest(lines) for name, lines in play(run).items()}


def _digest(lines: list[str]) -> str:
    return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def read() -> dict[str, str]:
    """The digests of the file, by name."""
    return {name: digest for digest, name in (line.split() for line in DIGESTS.read_text().splitlines())}


def write(found: dict[str, str]) -> None:
    """Into the file."""
    DIGESTS.write_text("".join(f"{digest}  {name}\n" for name, digest in found.items()))


def differing(run: str, wanted: dict[str, str]) -> list[str]:
    """Names of what is not as wanted, of this run; each can be shown."""
    return [name for name, digest in digests(run).items() if wanted.get(name) != digest]


def advice(name: str) -> str:
    """How to see the first difference."""
    return f"{name} differs: diff `python -m tests.simulator.digests --show {name}` here and in the version before"


@click.command()
@click.option("--write", "to_write", is_flag=True, help="Write the file of digests anew.")
@click.option("--show", metavar="NAME", help="Print what is hashed for this name: a run, or RUN/audit.")
def main(to_write: bool, show: str | None) -> None:
    """Play all runs and compare their digests with those of the file."""
    if show is not None:
        for line in play(show.removesuffix("/audit"))[show]:
            click.echo(line)
        return
    if to_write:
        write({name: digest for run in ALL_RUNS for name, digest in digests(run).items()})
        return
    wanted = read()
    names = [name for run in ALL_RUNS for name in differing(run, wanted)]
    for name in names:
        click.echo(advice(name))
    click.echo(f"{len(ALL_RUNS)} runs, {len(names)} digests differ")
    sys.exit(1 if names else 0)


if __name__ == "__main__":
    main()
