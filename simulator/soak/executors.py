"""Executors under virtual time: each task runs for as long as its payload says, and what it is given is checked.

A payload is the text "job task seconds failures", and " large" if the result is too large for a message. The task fails
so many times before it finishes; its result is its payload. Failures of stages with a retry policy may pass.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppPlan
from simulator.soak.broken import Broken
from simulator.soak.clocks import HostClock
from simulator.soak.job_log import Start
from simulator.soak.links import Link
from simulator.soak.nested_task import NestedTask, is_nested
from simulator.soak.surroundings import Surroundings
from simulator.soak.task_client import TaskClientHost
from sparrow_py import constraints
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import TaskResult, TaskStatus
from sparrow_py.wire import messages as m

if TYPE_CHECKING:
    from node_monitor.task_relay import TaskRelay

PLANS = (AppPlan("many", one_process=True), AppPlan("pool"))
"""An app of one process with a place per slot, and one whose processes have one place and one user each."""
FORKING_PLANS = (PLANS[0], AppPlan("pool", forks=True))
"""The same where the processes of the second are forked. Of a cluster's nodes every other one is such."""
HEARS_OF_YIELD = 0.7
"""Share of the tasks that do anything about it when they are to yield."""
YIELDING_TAKES_MAX = 1.5
"""How long that takes them, at most: times what they may take."""
WAITS_MAX_S = 0.5
"""Tasks that wait for others do so for this long at most."""
CLOCKS_DIFFER = 0.05
"""Clocks of hosts run apart by no more than this share: what one took for a time limit may be so much less."""


class Node(Protocol):
    """The node monitor process that an executor belongs to."""

    name: str
    slots: int
    slowness: float
    core: NodeMonitorCore
    relay: TaskRelay
    clock: HostClock
    world: Surroundings
    links: dict[str, Link]
    executors: dict[str, VirtualExecutor]

    @property
    def now_s(self) -> float:
        """By its own clock."""

    @property
    def running(self) -> int:
        """Tasks that run there."""

    def given(self) -> list[Start]:
        """What its executors have been given and have not ended."""

    def info(self) -> m.NodeInfo:
        """What it says of itself."""

    def event(self, action: Callable[[], None]) -> None:
        """Something happens to the process."""


class VirtualExecutor:
    """An executor process. It goes on while its node monitor is stalled."""

    def __init__(self, node: Node, executor_id: str, app: str, places: int) -> None:
        self.node = node
        self.id = executor_id
        self.app = app
        self.places = places
        self.alive = True
        self.leaving = False
        """Whether its node monitor has decided to end it."""
        self.users: set[str] = set()
        """Whose tasks it was given."""
        self.commons: dict[int, x.Data] = {}
        self.waiting: list[tuple[x.Run, Start]] = []
        self.running: dict[int, Start] = {}
        self.rest_s: dict[int, float] = {}
        """What those that wait in the middle take afterwards."""
        self.ends: dict[int, Callable[[], None]] = {}
        """How each of these ends."""
        self.asked: set[int] = set()
        """Those of these that are to yield."""
        self.paused: dict[int, float] = {}
        """Those that wait and have no slot, and since when."""
        self.nested: dict[int, NestedTask] = {}
        """Those that submit tasks of their own."""
        self.left_clients: list[TaskClientHost] = []
        """Of tasks that have ended without closing them."""

    def received(self, message: x.ExecutorMessage) -> None:
        """A message of its node monitor."""
        if isinstance(message, x.Run):
            self._given(message)
        elif isinstance(message, x.Common):
            self.commons[message.common] = message.data
        elif isinstance(message, x.ForgetCommon):
            del self.commons[message.common]
        elif isinstance(message, x.Revoke):
            returned = [(run, start) for run, start in self.waiting if run.run in message.runs]
            self.waiting = [pair for pair in self.waiting if pair not in returned]
            for _, start in returned:
                start.returned = True
            self.later(0.0, partial(self._say_returned, [run.run for run, _ in returned]))
        elif isinstance(message, x.Kill):
            for run in message.runs:
                self.later(0.0, partial(self._killed, run))
        elif isinstance(message, x.Yield):
            self._to_yield(message)
        elif isinstance(message, x.MayWait):
            self._may_wait(message)
        elif isinstance(message, x.HasSlot):
            self._has_slot(message)

    def _say_returned(self, runs: list[int]) -> None:
        node = self.node
        node.event(lambda: node.core.returned(self.id, x.Returned(runs), node.now_s))

    def _given(self, run: x.Run) -> None:
        world = self.node.world
        assert isinstance(run.payload, bytes)
        job_id, number = run.payload.decode().split()[:2]
        log, task = world.logs[job_id], int(number)
        held = self.node.core.executors[self.id].running[run.run]
        start = Start(log, task, (held.job.id, held.number), self.node, held.job.scheduler)
        log.starts.append(start)
        world.starts.append(start)
        self.users.add(log.user)
        if len(self.users) > 1 and self.app == "pool":
            raise Broken(f"executor {self.id} was given tasks of {', '.join(sorted(self.users))}", log.id)
        if self.leaving:
            raise Broken(f"executor {self.id}, which is being ended, was given a task", log.id)
        self._check_given(start, run)
        self.waiting.append((run, start))
        for name, amount in world.resources.items():
            taken = sum(other.demand.get(name, 0.0) for other in self.node.given())
            if taken > amount + 1e-6:
                raise Broken(f"{taken} {name} of {amount} are taken", log.id)
        if self.places > 1 and len(self.running) + len(self.waiting) > self.places:
            raise Broken("a slot is to run two tasks", log.id)
        self._start_next()

    def _check_given(self, start: Start, run: x.Run) -> None:
        log, stage = start.log, start.log.stage(start.task)
        if (self.commons[run.common] if run.common else b"") != stage.common:
            raise Broken("not the stage's common bytes", log.id)
        if not all(log.finished(name) for name in stage.after):
            raise Broken("a stage began before those that it comes after", log.id)
        wanted = log.details[start.task].inputs if start.task in log.details else ()
        if [content(data) for data in run.inputs] != log.inputs(wanted):
            raise Broken(f"task {start.task} was not given the inputs that it asked for", log.id)
        if not all(log.awaits[name].has_finished(name.task) for name in wanted if isinstance(name, TaskResult)):
            raise Broken(f"task {start.task} began before a task whose result it asks for has finished", log.id)
        twin = next((one for one in log.starts if one is not start and one.name == start.name), None)
        if twin is not None and not twin.returned:
            raise Broken(f"attempt {start.attempt} of task {start.task} was started twice", log.id)
        _check_place(self.node, start)
        _check_delay(self.node, start)

    def _start_next(self) -> None:
        world = self.node.world
        while self.waiting and len(self.running) < self.places:
            run, start = self.waiting.pop(0)
            self.running[run.run] = start
            start.started_at_s, start.started_own_s = world.now, self.node.now_s
            if self.node.running > self.node.slots:
                raise Broken("a slot runs two tasks", start.log.id)
            _check_neighbours(self.node, start)
            assert isinstance(run.payload, bytes)
            seconds, failures = run.payload.decode().split()[2:4]
            earlier = sum(1 for other in start.log.starts if other.task == start.task) - 1
            fails = earlier < int(failures)
            end = self.ends[run.run] = partial(self._ended, run, fails)
            takes_s = float(seconds) * self.node.slowness
            if world.nested_share and is_nested(self, start):
                self.later(takes_s / 2, partial(self._nest, run, start))
                self.rest_s[run.run] = takes_s / 2
            elif self.places == 1 and world.waiting_share and world.waiting_rng.random() < world.waiting_share:
                self.later(takes_s / 2, partial(self.wait, run.run))
                self.rest_s[run.run] = takes_s / 2
            else:
                self.later(takes_s, end)

    # ---- tasks that wait for others ----------------------------------------------------------

    def _nest(self, run: x.Run, start: Start) -> None:
        """The task has a client from now on, if it has not ended."""
        if run.run in self.running:
            task = self.nested[run.run] = NestedTask(self, run, start)
            task.begin()

    def wait(self, run: int) -> None:
        """The task is about to wait, if it has not ended."""
        node = self.node
        if run in self.running:
            node.event(lambda: node.core.waits(self.id, x.Waits(run), node.now_s))

    def _may_wait(self, message: x.MayWait) -> None:
        run, world = message.run, self.node.world
        if run not in self.running:
            return  # It was killed.
        nested = self.nested.get(run)
        if message.why_not:
            if nested is None:
                self.go_on(run)
            else:
                self.later(0.0, partial(nested.may_wait, message.why_not))
            return
        if self.waiting:
            raise Broken(f"run {run} waits, and others behind it were not asked back", self.running[run].log.id)
        world.counts["tasks waited without a slot"] += 1
        self.paused[run] = world.now
        if nested is None:
            self.later(world.waiting_rng.uniform(0.0, WAITS_MAX_S), partial(self.want_slot, run))
        else:
            self.later(0.0, partial(nested.may_wait, ""))

    def want_slot(self, run: int) -> None:
        """The task is about to go on, if it has not ended."""
        node = self.node
        if run in self.running:
            node.event(lambda: node.core.wants_slot(self.id, x.WantsSlot(run), node.now_s))

    def _has_slot(self, message: x.HasSlot) -> None:
        run, node = message.run, self.node
        if run not in self.running:
            return
        if run not in self.paused:
            raise Broken(f"run {run} was given a slot, and had one", self.running[run].log.id)
        self.running[run].waited_s += node.world.now - self.paused.pop(run)
        if node.running > node.slots:
            raise Broken("a slot runs two tasks that do not wait", self.running[run].log.id)
        nested = self.nested.get(run)
        if nested is None:
            self.go_on(run)
        else:
            self.later(0.0, nested.has_slot)

    def go_on(self, run: int) -> None:
        """What is left of the task comes now, and then its end."""
        self.later(self.rest_s[run], self.ends[run])

    def fail(self, run: x.Run) -> None:
        """The task ends with an error."""
        self._ended(run, True)

    def _nested_over(self, run: int, *, died: bool) -> None:
        nested = self.nested.pop(run, None)
        if nested is not None:
            nested.over(died=died)
            self.left_clients = [client for client in (*self.left_clients, nested.client) if client.alive]

    # ---- tasks yield, and end ----------------------------------------------------------------

    def _to_yield(self, message: x.Yield) -> None:
        """A task has its time to end: it uses some of that, or too much, or does not hear."""
        start, world = self.running.get(message.run), self.node.world
        if start is None:
            return  # It has just ended.
        if start.log.stage(start.task).lease_s is None:
            raise Broken(f"task {start.task} has no lease, and is to yield", start.log.id)
        if any(run in other.running for other in self.node.executors.values() for run in other.asked):
            raise Broken("two tasks of a node are to yield at the same time", start.log.id)
        self.asked.add(message.run)
        if world.rng.random() < HEARS_OF_YIELD:
            self.later(world.rng.uniform(0.0, YIELDING_TAKES_MAX * message.within_s), self.ends[message.run])

    def _ended(self, run: x.Run, fails: bool) -> None:
        if run.run not in self.running:
            return  # It was killed.
        start = self.running.pop(run.run)
        del self.ends[run.run]
        self._nested_over(run.run, died=False)
        world, node = self.node.world, self.node
        assert start.started_at_s is not None
        start.ended_at_s, start.ended_own_s, start.failed = world.now, node.now_s, fails
        start.may_pass = fails and start.log.stage(start.task).retry is not None
        key = (node.name, start.log.user)
        world.service_s[key] = world.service_s.get(key, 0.0) + world.now - start.started_at_s - start.waited_s
        payload = run.payload
        assert isinstance(payload, bytes)
        result: x.Data = payload
        if payload.endswith(b"large") and not fails:
            other = f"{world.number()}" if world.results_differ else ""
            hash_ = payload.hex() + other.rjust(64 - 2 * len(payload), "0")
            result = x.File(f"/results/{hash_}", len(payload), hash_)
        self._done(run.run, TaskStatus.FAILED if fails else TaskStatus.FINISHED, result, "", start)
        self._start_next()

    def _killed(self, run: int) -> None:
        start = self.running.pop(run, None)
        if start is None:
            return
        self.paused.pop(run, None)
        del self.ends[run]
        self._nested_over(run, died=True)
        start.killed = True
        start.executor_died = run in self.asked  # Late with that, which is as if it had.
        self._done(run, TaskStatus.FAILED, b"", "it was killed", start)
        self._start_next()

    def _done(self, run: int, status: TaskStatus, result: x.Data, error: str, start: Start) -> None:
        node = self.node
        done = x.Done(run, status, result, error, start.started_own_s, node.now_s - start.started_own_s)
        done.retry = start.may_pass
        node.event(lambda: node.core.done(self.id, done, node.now_s))

    def later(self, delay_s: float, action: Callable[[], None]) -> None:
        """Do it then, if the process is there."""

        def act() -> None:
            if self.alive:
                action()

        self.node.world.at(self.node.world.now + delay_s, act)

    def held(self) -> list[Start]:
        """What it has been given and has not ended."""
        return [*self.running.values(), *(start for _, start in self.waiting)]

    def die(self) -> None:
        """The process is gone."""
        self.alive = False
        for run in list(self.nested):
            self._nested_over(run, died=True)
        for client in self.left_clients:
            client.die()
        for start in self.held():
            start.executor_died = True

    def be_killed(self, reaped_after_s: float = 0.01) -> None:
        """The process dies: its connection closes, and in a while its exit code is there."""
        node = self.node
        self.die()

        def leaving() -> None:
            del node.executors[self.id]
            node.core.executor_leaving(self.id, node.now_s)

        def reaped() -> None:
            node.core.executor_down(self.id, f"executor {self.id} died", node.now_s)

        node.event(leaving)
        node.world.at(node.world.now + reaped_after_s, partial(node.event, reaped))


def content(data: x.Data) -> bytes:
    """What an input holds: the payload of the task that produced it."""
    return data if isinstance(data, bytes) else bytes.fromhex(data.hash[: 2 * data.size])


def _check_place(node: Node, start: Start) -> None:
    """The task may run on this node: what its constraints say."""
    log, stage = start.log, start.log.stage(start.task)
    attributes = _attributes(node)
    for text in stage.where:
        if not constraints.holds(constraints.parse("where", text), attributes):
            raise Broken(f"task {start.task} runs on {node.name}, which is not {text}", log.id)
    preferred = log.details[start.task].preferred if start.task in log.details else ()
    if not preferred or node.name in preferred:
        return
    if stage.delay_s is None:
        raise Broken(f"task {start.task} runs on {node.name}, which is none of {preferred}", log.id)
    if node.world.now < log.submitted_at_s + (1 - CLOCKS_DIFFER) * stage.delay_s - node.world.leapt_s:
        raise Broken(f"task {start.task} runs on {node.name} before its preferred nodes had their time", log.id)


def _check_delay(node: Node, start: Start) -> None:
    """A task whose failure is retried waits before the same scheduler starts it again."""
    log, retry = start.log, start.log.stage(start.task).retry
    if retry is None:
        return
    least_s = (1 - CLOCKS_DIFFER) * retry.first_delay_s * (1 - retry.jitter) - node.world.leapt_s - 1e-6
    for before in log.starts:
        if before.task != start.task or not before.may_pass or before.epoch != start.epoch or before.lost:
            continue
        if before.ended_at_s is not None and node.world.now < before.ended_at_s + least_s:
            raise Broken(f"task {start.task} was started again before its delay was over", log.id)


def _check_neighbours(node: Node, start: Start) -> None:
    """No job that its own avoids runs on the node, or on another that has the same value of the attribute by which they
    avoid each other, as far as one scheduler knew of both all the time (§8)."""
    log, here = start.log, _attributes(node)
    if log.spec.avoid_by and log.spec.avoid_by not in here:
        raise Broken(f"task {start.task} runs on {node.name}, which has no {log.spec.avoid_by}", log.id)
    if not (log.avoids or log.avoided_by):
        return
    for there, other in node.world.given():
        pairs = ((log, other.log), (other.log, log))
        by = {one.spec.avoid_by or "node" for one, avoided in pairs if avoided in one.avoids}
        same = [
            attribute for attribute in sorted(by | {"node"}) if by and here.get(attribute, "") == there.get(attribute)
        ]
        if not same or not other.runs or other.scheduler != start.scheduler:
            continue
        if all(len(one.submitted_to) == 1 for one in (log, other.log)) and not start.lost and not other.lost:
            raise Broken(f"it and {other.log.id} avoid each other, and run where {same[0]} is {here[same[0]]}", log.id)


def _attributes(node: Node) -> dict[str, str]:
    return {**node.info().attributes, "node": node.name}
