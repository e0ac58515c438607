"""A whole cluster under virtual time, whose parts fail: the real cores of schedulers, node monitors and clients.

Frames of different links overlap and overtake each other, as latencies are drawn at random from the world's seed.
Executors run a task for as long as its payload says, and may return a result that is too large for a message. What
may go wrong are methods, from `drop_link` to `clock_leaps`; `simulator.soak.faults` makes schedules of them.

A run is a function of the arguments, the seed and what is done to the world. After each event `oracles.check` asks the
cores concerned for their invariants and compares what a scheduler believes of a node with what the node has;
`oracles.check_end` holds a finished run against the guarantees of docs/reliability.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from simulator.soak import oracles
from simulator.soak.broken import Broken
from simulator.soak.clocks import HostClock
from simulator.soak.executors import VirtualExecutor
from simulator.soak.fallible_hosts import ClientHost, Dialler, NodeHost, SchedulerHost
from simulator.soak.host import Host
from simulator.soak.job_log import JobLog, Start
from simulator.soak.links import Link, Side
from simulator.soak.members import Members
from simulator.soak.task_client import TaskClientHost
from sparrow_py.errors import SparrowError
from sparrow_py.job import JobSpec, StageSpec, TaskResult, TaskSpec
from sparrow_py.wire import messages as m

__all__ = ["ClientHost", "JobLog", "Link", "NodeHost", "SchedulerHost", "Start", "VirtualExecutor", "World"]

EVENTS_MAX = 200_000
"""More events than any test has: a world that goes on and on is stuck in a loop."""
CLOSE_TIMEOUT_S = 0.5
"""A scheduler that ends waits no longer for its nodes to read what it has sent."""
PARTED_REDIAL_S = 0.2
"""Who cannot reach a scheduler tries again after so long."""


class World(Members):
    """See the module's docstring.

    nodes: slots of each node. users: of each client. latency: range of a frame's time on the way, in seconds.
    split: each message goes in a frame of its own, and each event is a turn of its own. checks: whether `check` runs
    after each event. results_differ: a task that runs again returns another large result than before. heartbeat_s: by
    which a silent peer is found. receipts: clients say what they have received, and schedulers keep outcomes until
    then; else what is sent counts as received. clock: makes the clock of each new host; by default all clocks agree.
    racks: values of the attribute `rack` of the nodes, in turn; a node whose value is empty has no such attribute.
    waiting_share: of the tasks in executors of one place, as many wait for a while in the middle, and give their slots
    back. nested_share: of the same, as many submit tasks of their own (`simulator.soak.nested_task`).
    """

    def __init__(
        self,
        seed: int = 0,
        *,
        nodes: Sequence[int] = (4,),
        schedulers: int = 1,
        users: Sequence[str] = ("anna",),
        latency: tuple[float, float] = (0.0005, 0.0005),
        split: bool = False,
        checks: bool = True,
        results_differ: bool = False,
        executor_start_s: float = 0.0,
        executor_start_fails: float = 0.0,
        warm: Iterable[str] = ("many", "pool"),
        submit_timeout_s: float = 60.0,
        frame_bytes_max: int = m.FRAME_BYTES_MAX,
        heartbeat_s: float = 10.0,
        receipts: bool = False,
        events_max: int = EVENTS_MAX,
        clock: Callable[[], HostClock] = HostClock,
        scheduler: dict[str, Any] | None = None,
        node: dict[str, Any] | None = None,
        resources: dict[str, float] | None = None,
        racks: Sequence[str] = (),
        waiting_share: float = 0.0,
        nested_share: float = 0.0,
    ) -> None:
        super().__init__(
            seed, latency=latency, split=split, checks=checks, results_differ=results_differ,
            executor_start_s=executor_start_s, executor_start_fails=executor_start_fails, warm=warm,
            submit_timeout_s=submit_timeout_s, frame_bytes_max=frame_bytes_max, heartbeat_s=heartbeat_s,
            receipts=receipts, clock=clock,
            scheduler=scheduler or {}, node=node or {}, resources=resources or {"cpu": 4.0},
            racks=racks, waiting_share=waiting_share, nested_share=nested_share,
        )  # fmt: skip
        self.engine.end_of_turn = self._end_turn  # Which sends what is unsent, too.
        self._events_max = events_max
        self.schedulers = [SchedulerHost(self, f"s{number}") for number in range(schedulers)]
        self._scheduler_names = {scheduler.name for scheduler in self.schedulers}
        self.nodes = [self._node(f"n{number}", slots) for number, slots in enumerate(nodes)]
        self.clients = [ClientHost(self, f"c{number}", user) for number, user in enumerate(users)]
        for one in self.schedulers:
            for peer in [*self.nodes, *self.clients]:
                self.connect(one, peer)
        self.run_for(1.5 * (latency[1] + executor_start_s))

    def _node(self, name: str, slots: int) -> NodeHost:
        node = NodeHost(self, name, slots)
        node.core.start(self.warm)
        return node

    # ---- time --------------------------------------------------------------------------------

    def run_for(self, seconds: float) -> None:
        """Let time pass."""
        self.run(self.now + seconds)

    def run(self, until_s: float = float("inf")) -> None:
        """Go on until then, or until nothing more will happen."""
        self.touched.update(dict.fromkeys(self.hosts()))  # Of what a test did from outside nothing is known.
        self._settle_turn()
        self.engine.run(until_s)

    def _end_turn(self) -> None:
        if self.engine.events > self._events_max:
            raise Broken("it goes on and on")
        if not self.split:
            next_s = self.engine.next_s()
            if next_s is not None and next_s <= self.engine.now_s:
                return  # What happens at the same time is one turn.
        self._settle_turn()

    def _settle_turn(self) -> None:
        touched = [host for host in self.touched if host.alive]
        self.touched.clear()
        for host in touched:
            if isinstance(host, NodeHost) and not host.stalled:
                host.core.pump(host.now_s)
        self.network.flush()
        for host in touched:
            host.arm()
        if self.checks:
            oracles.check(self, touched)

    # ---- users -------------------------------------------------------------------------------

    def submit(
        self,
        durations_s: Sequence[float],
        *,
        client: int = 0,
        failures: int = 0,
        job_id: str = "",
        preferred: Sequence[Sequence[str]] = ((),),
        awaits: Sequence[TaskResult] = (),
        **fields: Any,
    ) -> JobLog:
        """Submit a job whose tasks last so long; each fails `failures` times before it finishes.

        preferred: of the tasks, in turn. awaits: every other task asks for these results, from the second on for that
        of the task before, too.
        """
        job_id = job_id or f"j{self.number()}"
        tasks = _tasks(job_id, 0, durations_s, failures, preferred, (), large=False)
        for number in range(0, len(tasks), 2) if awaits else ():
            one = tasks[number]
            task = one if isinstance(one, TaskSpec) else TaskSpec(one)
            task.inputs = [*awaits, TaskResult(job_id, number - 1)] if number else awaits
            tasks[number] = task
        fields = {"app": "many", "common": job_id.encode(), **fields}
        return self._submit(JobSpec(tasks, job_id=job_id, **fields), client)

    def _submit(self, spec: JobSpec, client: int) -> JobLog:
        host = self.clients[client]
        log = self.logs[spec.job_id] = JobLog(self.engine, spec, host)
        for other_id in spec.avoid:
            other = self.logs[other_id]
            if other.accepted_count and other.client is host:
                log.avoids.append(other)
                other.avoided_by.append(log)
        for result in awaited_by(spec):
            log.awaits[result] = self.logs[result.job_id]

        def submit() -> None:  # Perhaps later: a client that stands still does nothing.
            if any(other.is_let_go for other in log.awaits.values()):
                log.refused(SparrowError("its inputs are another client's by now"))
                return
            ended = {result: how for result, other in log.awaits.items() if (how := other.how_ended(result.task))}
            host.core.submit(spec, log, host.now_s, ended=ended)

        host.event(submit)
        return log

    def submit_stages(self, *stages: tuple[Any, ...], client: int = 0, **fields: Any) -> JobLog:
        """Submit a job of stages; see `stages_job`."""
        return self._submit(self.stages_job(*stages, **fields), client)

    def stages_job(
        self, *stages: tuple[Any, ...], large: bool = False, ask: bool = True, job_id: str = "", **fields: Any
    ) -> JobSpec:
        """A job of stages (name, after, durations, and perhaps fields of `StageSpec`); each task asks for the results
        of all before it if `ask`, and returns a large one if `large`. A stage's fields may say `large`, `ask`,
        `failures` and `preferred`, too."""
        job_id = job_id or f"j{self.number()}"
        specs: list[StageSpec] = []
        number = 0
        for name, after, durations_s, *rest in stages:
            own = {"app": "many", "common": f"{job_id} {name}".encode(), **(rest[0] if rest else {})}
            inputs = list(after) if own.pop("ask", ask) else []
            failures, preferred = own.pop("failures", 0), own.pop("preferred", ((),))
            tasks = _tasks(job_id, number, durations_s, failures, preferred, inputs, large=own.pop("large", large))
            number += len(tasks)
            specs.append(StageSpec(tasks, name=name, after=list(after), **own))
        return JobSpec(stages=specs, job_id=job_id, **fields)

    def cancel(self, log: JobLog, *, running: bool = False) -> None:
        """The user, or the task that submitted it, cancels the job."""
        client = log.client
        if isinstance(client, ClientHost | TaskClientHost) and client.alive:
            log.cancelled_at_s = self.now if log.cancelled_at_s is None else log.cancelled_at_s
            log.running_too = log.running_too or running
            client.event(lambda: client.core.cancel_job(log.spec.job_id, client.now_s, running=running))

    def cancel_tasks(self, log: JobLog, tasks: Sequence[int], *, running: bool = False) -> None:
        """The user cancels some of the job's tasks."""
        client = log.client
        if not isinstance(client, ClientHost | TaskClientHost):
            return

        def cancel() -> None:
            if log.spec.job_id in client.core.jobs:
                log.asked_to_cancel = {**dict.fromkeys(tasks, self.now), **log.asked_to_cancel}
                log.running_too = log.running_too or running
                client.core.cancel_tasks(log.spec.job_id, list(tasks), client.now_s, running=running)

        client.event(cancel)

    def detach(self, log: JobLog, retention_s: float) -> None:
        """The job's client lets go of it, if it is connected."""
        client, sink = log.client, log.sink
        if not isinstance(client, ClientHost) or not client.alive or log.error is not None:
            return
        log.is_let_go = True

        def told(error: SparrowError | None) -> None:
            self.counts["detached" if error is None else "not detached"] += 1
            if error is None and log.sink is sink:
                log.let_go()

        def detach() -> None:
            if log.sink is sink and log.accepted_count:
                client.core.detach(log.spec, retention_s, lambda: list(log.outcomes), told, client.now_s, client.now_s)

        client.event(detach)

    def attach(self, log: JobLog, client: int) -> None:
        """The client attaches to the job, if it was let go of."""
        host = self.clients[client]
        if not host.alive or not log.is_let_go:
            return

        def told(error: SparrowError | None) -> None:
            self.counts["attached" if error is None else "not attached"] += 1

        host.event(lambda: host.core.attach(log.id, lambda *_: log.attached(host), told, host.now_s))

    # ---- links -------------------------------------------------------------------------------

    def connect(self, scheduler: Side, peer: Side) -> None:
        """The peer dials, unless it has a link."""
        assert isinstance(scheduler, SchedulerHost) and isinstance(peer, Dialler)
        if not peer.alive or scheduler in peer.dialled:
            return
        if not scheduler.alive:
            peer.unreachable(scheduler.name)
            return
        if self.parted(scheduler.name, peer.name):
            self.dial_later(scheduler, peer, PARTED_REDIAL_S)
            return
        link = Link(scheduler, peer, self.network, self.heartbeat_s)
        peer.dialled[scheduler] = link
        self.all_links.append(link)
        scheduler.event(partial(scheduler.up, link))

    def dial_later(self, scheduler: Side, peer: Side, after_s: float) -> None:
        """The peer dials after so long."""
        self.at(self.now + after_s, partial(peer.event, partial(self.connect, scheduler, peer)))

    def open_links(self, host: Side) -> list[Link]:
        """Those in which the host still believes."""
        return [link for link in self.all_links if host in link.open]

    # ---- what may go wrong: the network ------------------------------------------------------

    def drop_link(self, link: Link, back_after_s: float | None = 0.1) -> None:
        """The link breaks; each side sees it in its own time, then the peer dials again."""
        link.redial_after_s = back_after_s
        link.cut()

    def stall(self, link: Link, seconds: float) -> None:
        """What is sent from now on arrives late."""
        link.hold(seconds)

    def lose_frames(self, link: Link, *, forwards: bool, backwards: bool) -> None:
        """What is sent from now on to (forwards) or from the scheduler is lost, until heartbeats end the link."""
        link.go_silent(forwards=forwards, backwards=backwards)

    def part(self, names: Iterable[str], seconds: float, *, vanishing: bool) -> None:
        """These hosts and the others cannot reach each other for so long. Links that no heartbeat ends meanwhile go on
        where they were; what is under way on those that end arrives in the end, or never (vanishing)."""
        group = frozenset(names)
        self._partitions.append((group, self.now + seconds))
        for link in [link for link in self.all_links if link.open]:
            if (link.scheduler.name in group) == (link.peer.name in group):
                continue
            link.hold(seconds)
            for side in sorted(link.open, key=lambda host: host.name):
                after_s = link.detection_s()
                if after_s < seconds:
                    self.at(self.now + after_s, partial(self._give_up, link, side, vanishing))

    def given(self) -> list[tuple[dict[str, str], Start]]:
        """See `Surroundings`."""
        return [({**node.info().attributes, "node": node.name}, start) for node in self.nodes for start in node.given()]

    def _give_up(self, link: Link, side: Side, vanishing: bool) -> None:
        if vanishing:
            for pipe in link.pipes:
                pipe.vanishing = pipe.severed = True
        side.event(partial(link.end, side))

    # ---- what may go wrong: processes --------------------------------------------------------

    def crash_node(
        self, node: NodeHost, back_after_s: float | None = 0.5, *, flushed: bool = False, silent: bool = False
    ) -> None:
        """The node's machine is gone; later another process of its name comes, and remembers nothing."""
        for executor in node.executors.values():
            executor.die()
        self._die(node, flushed=flushed, silent=silent)
        self.nodes.remove(node)
        if back_after_s is not None:
            self.at(self._later_s(back_after_s), partial(self._come_back, node.name, node.slots))

    def _die(self, host: Host, *, flushed: bool, silent: bool) -> None:
        host.alive = False
        for link in self.open_links(host):
            link.died(host, flushed=flushed, silent=silent)

    def _later_s(self, after_s: float) -> float:
        return self.now + 2 * self.network.latency_range_s[1] + after_s

    def _come_back(self, name: str, slots: int) -> None:
        node = self._node(name, slots)
        self.nodes.append(node)
        self.touched[node] = None
        for scheduler in self.schedulers:
            self.connect(scheduler, node)

    def set_state(self, node: NodeHost, state: str) -> None:
        """As `sparrow cordon`, `uncordon` and `drain`."""
        change = {m.READY: node.core.uncordon, m.CORDONED: node.core.cordon, m.DRAINING: node.core.drain}[state]
        node.event(lambda: change(node.now_s))

    def drain_node(self, node: NodeHost, back_after_s: float = 0.5) -> None:
        """As SIGTERM: drain, end when drained, and come back as another process."""
        node.leaving = True
        self.set_state(node, m.DRAINING)

        def end_if_drained() -> None:
            if node.alive and node.core.drained:
                self.crash_node(node, back_after_s, flushed=True)
            elif node.alive:
                self.at(self.now + 0.01, end_if_drained)

        self.at(self.now, end_if_drained)

    def kill_executor(self, executor: VirtualExecutor, reaped_after_s: float = 0.01) -> None:
        """An executor process dies."""
        executor.be_killed(reaped_after_s)

    def kill_client(
        self, client: ClientHost, back_after_s: float | None = None, *, flushed: bool = False, silent: bool = False
    ) -> None:
        """A client process dies; perhaps another comes, which knows nothing of its jobs."""
        self._die(client, flushed=flushed, silent=silent)
        if back_after_s is not None:
            self.at(self._later_s(back_after_s), partial(self._new_client, client))

    def _new_client(self, before: ClientHost) -> None:
        client = ClientHost(self, before.name, before.user)
        self.clients[self.clients.index(before)] = client
        for scheduler in self.schedulers:
            self.connect(scheduler, client)

    def crash_scheduler(
        self, scheduler: SchedulerHost, back_after_s: float = 0.5, *, flushed: bool = False, silent: bool = False
    ) -> None:
        """A scheduler process dies; later another takes its place."""
        self._die(scheduler, flushed=flushed, silent=silent)
        self.schedulers.remove(scheduler)
        self.at(self._later_s(back_after_s), self._new_scheduler)

    def stop_scheduler(self, scheduler: SchedulerHost, drains_s: float, back_after_s: float = 0.5) -> None:
        """As SIGTERM: it drains for so long, hands over what it still has, and ends; later another takes its place."""

        def drain() -> None:
            scheduler.core.drain(scheduler.now_s)
            scheduler.to_clients(m.Draining())

        def hand_over() -> None:
            last_words = scheduler.core.hand_over(scheduler.now_s)
            self.at(self.now, partial(say, last_words, self.now + CLOSE_TIMEOUT_S))

        def say(last_words: list[tuple[str, m.Message]], until_s: float) -> None:
            """Tell the clients, once the nodes have read all that was sent to them."""
            if not scheduler.alive:
                return
            if self.now < until_s and not all(link.to_peer.empty for link in scheduler.links_to_nodes()):
                self.at(self.now + 0.001, partial(say, last_words, until_s))
                return
            scheduler.event(partial(scheduler.tell, last_words))
            scheduler.event(lambda: scheduler.to_clients(m.AllHandedOver()))
            self.at(self.now + 0.001, end)  # Another turn: what was said is under way.

        def end() -> None:
            if scheduler.alive:
                self.crash_scheduler(scheduler, back_after_s, flushed=True)

        scheduler.event(drain)
        self.at(self.now + drains_s, lambda: scheduler.event(hand_over) if scheduler.alive else None)

    def _new_scheduler(self) -> None:
        name = next(name for name in iter(lambda: f"s{self.number()}", "") if name not in self._scheduler_names)
        self._scheduler_names.add(name)
        scheduler = SchedulerHost(self, name)
        self.schedulers.append(scheduler)
        for peer in [*self.nodes, *self.clients]:
            self.connect(scheduler, peer)

    def stall_host(self, host: Host, seconds: float) -> None:
        """As SIGSTOP and, after so long, SIGCONT: the process does nothing, then everything. Executors go on."""
        until_s = self.now + seconds
        host.stalled_until_s = max(host.stalled_until_s, until_s)
        self.stalls.append((host, self.now, until_s))
        self.engine.at(until_s, host.go_on)
        for link in self.open_links(host):
            link.silent_for(link.peer if host is link.scheduler else link.scheduler, seconds)

    def clock_leaps(self, host: Host, seconds: float, rate: float) -> None:
        """The host's clock leaps ahead, and then runs at another rate."""
        self.leapt_s += seconds
        host.clock_leaps(seconds, rate)

    # ---- oracles -----------------------------------------------------------------------------

    def check(self) -> None:
        """What must hold after every event, of everything."""
        oracles.check(self, self.hosts())

    def check_end(self) -> None:
        """What must hold when nothing more happens."""
        oracles.check_end(self)


def awaited_by(spec: JobSpec) -> list[TaskResult]:
    """The results of other jobs that tasks of the job ask for."""
    tasks = (task for stage in spec.as_stages() for task in stage.tasks if isinstance(task, TaskSpec))
    return list(dict.fromkeys(name for task in tasks for name in task.inputs if isinstance(name, TaskResult)))


def _tasks(
    job_id: str,
    first: int,
    durations_s: Sequence[float],
    failures: int,
    preferred: Sequence[Sequence[str]],
    inputs: Sequence[str],
    *,
    large: bool,
) -> list[bytes | TaskSpec]:
    tasks: list[bytes | TaskSpec] = []
    for position, seconds in enumerate(durations_s):
        payload = f"{job_id} {first + position} {seconds:.6f} {failures}{' large' if large else ''}".encode()
        wanted = preferred[position % len(preferred)]
        tasks.append(TaskSpec(payload, preferred=wanted, inputs=inputs) if wanted or inputs else payload)
    return tasks
