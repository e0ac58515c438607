"""Whatever happens, whenever answers come: nothing is placed twice, no node gets more than it has, every job ends."""

from __future__ import annotations

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.flow_rig import FlowRig
from tests.support.recorder import submission
from tests.support.scheduler_rig import node_info

NODES = ("n1", "n2", "n3")
GPU = 1.0
statuses = st.sampled_from([TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.LOST])
limits = st.fixed_dictionaries(
    {},
    optional={
        "gang": st.booleans(),
        "max_per_node": st.integers(1, 2),
        "max_per_rack": st.integers(1, 3),
        "demand": st.just({"gpu": 0.4}),
        "queue_timeout_s": st.sampled_from([0.5, 3.0]),
        "max_attempts": st.integers(1, 3),
        "retry_failed": st.booleans(),
        "priority": st.integers(0, 2),
    },
)


class Planes(RuleBasedStateMachine):
    """Events by chance, with answers at once or later."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = FlowRig(inline=False, flow_tasks_max=8, wait_for_nodes_s=20.0, flow_gang_wait_s=0.5)
        self.now_s = 0.0
        self.jobs: dict[str, int] = {}
        self.ended: Counter[tuple[str, int]] = Counter()

    @initialize(slots=st.integers(1, 3))
    def one_node(self, slots: int) -> None:
        """There is one at the beginning."""
        self.node_up("n1", slots)

    @rule(node=st.sampled_from(NODES), slots=st.integers(1, 3))
    def node_up(self, node: str, slots: int) -> None:
        """A node comes."""
        if node not in self.rig.core.nodes:
            info = node_info(slots, resources={"gpu": GPU}, attributes={"rack": f"r{node[1:]}"})
            self.rig.node_up(node, info, self.now_s)

    @rule(node=st.sampled_from(NODES))
    def node_down(self, node: str) -> None:
        """A node goes."""
        if node in self.rig.core.nodes:
            self.rig.node_down(node, self.now_s)

    @rule(node=st.sampled_from(NODES), state=st.sampled_from([m.READY, m.CORDONED]))
    def node_state(self, node: str, state: str) -> None:
        """A node is cordoned, or ready again."""
        if node in self.rig.core.nodes:
            self.rig.node(node, m.NodeState(state, "an operator"), now_s=self.now_s)

    @rule(node=st.sampled_from(NODES), free=st.integers(0, 3))
    def load(self, node: str, free: int) -> None:
        """A node says what its lane has; what it runs it has not forgotten."""
        if node in self.rig.core.nodes:
            self.rig.note_launches()
            slots = self.rig.core.nodes[node].info.slots
            free = min(free, slots - len(self.rig.running[node]))
            if free >= 0:
                self.rig.node(node, m.NodeLoad(free, slots, 0, 0, {}), now_s=self.now_s)

    @rule(tasks=st.integers(1, 6), fields=limits)
    def submit(self, tasks: int, fields: dict[str, object]) -> None:
        """A job comes."""
        job = f"j{len(self.jobs)}"
        self.jobs[job] = tasks
        self.rig.client(submission(job, tasks, **fields), now_s=self.now_s)
        if self.rig.take(m.JobRefused):  # While no node is here it leads nothing.
            self.jobs[job] = 0
            return
        self.rig.client(m.AddTasks(job, 0, [b"p"] * tasks), now_s=self.now_s)

    @rule(which=st.integers(0, 100), status=statuses)
    def end(self, which: int, status: TaskStatus) -> None:
        """An attempt ends."""
        found = self._running(which)
        if found is not None:
            self.rig.end(*found, status=status, now_s=self.now_s)

    @rule(which=st.integers(0, 100))
    def hand_back(self, which: int) -> None:
        """A node does not start a task."""
        found = self._running(which)
        if found is not None:
            self.rig.hand_back(*found, now_s=self.now_s)

    @rule(which=st.integers(0, 100), task=st.integers(0, 5))
    def cancel(self, which: int, task: int) -> None:
        """A client cancels a task, or a job."""
        if self.jobs:
            job = f"j{which % len(self.jobs)}"
            message = m.CancelTasks(job, [task]) if task < self.jobs[job] else m.CancelJob(job)
            self.rig.client(message, now_s=self.now_s)
            self._answer_cancels()

    @rule(seconds=st.sampled_from([0.01, 0.6, 2.5]))
    def time_passes(self, seconds: float) -> None:
        """Timers run."""
        self.now_s += seconds
        self.rig.tick(self.now_s)

    @rule()
    def solve(self) -> None:
        """An answer comes."""
        self.rig.solve(self.now_s)

    @invariant()
    def nothing_is_overfull(self) -> None:
        """`note_launches` looks at slots; tasks that run twice `placed` finds."""
        self.rig.note_launches()
        for node, launches in self.rig.running.items():
            demand = sum((launch.demand or {}).get("gpu", 0.0) for launch in launches.values())
            assert demand <= GPU + 1e-9, f"{node} has tasks that demand {demand}"
        for job in self.jobs:
            self.rig.placed(job)
        for outcome in self.rig.take(m.Outcome):
            self.ended[outcome.job, outcome.task] += 1
            assert self.ended[outcome.job, outcome.task] == 1
        assert len(self.rig.outbox.problems) <= 1

    def _running(self, which: int) -> tuple[str, int] | None:
        self.rig.note_launches()
        running = [(node, attempt) for node, launches in self.rig.running.items() for attempt in launches]
        return running[which % len(running)] if running else None

    def _answer_cancels(self) -> None:
        self.rig.note_launches()
        for node, cancel in self.rig.outbox.take(m.CancelAttempt):
            if cancel.attempt in self.rig.running.get(node, {}):
                self.rig.end(node, cancel.attempt, TaskStatus.CANCELLED, self.now_s)

    def teardown(self) -> None:
        """With all nodes there every job ends."""
        for node in NODES:
            if node in self.rig.core.nodes:
                self.node_state(node, m.READY)
                self.rig.node_down(node, self.now_s)
            self.node_up(node, 3)
        for _ in range(400):
            if not self.rig.core.jobs:
                break
            while self.rig.solve(self.now_s):
                pass
            self.rig.note_launches()
            found = self._running(0)
            if found is not None:
                self.rig.end(*found, now_s=self.now_s)
            else:
                self.now_s += 0.5
                self.rig.tick(self.now_s)
        self.nothing_is_overfull()
        assert not self.rig.core.jobs, "jobs have not ended"
        assert not self.rig.plane.left_over()
        missing = [
            (job, task) for job, tasks in self.jobs.items() for task in range(tasks) if not self.ended[job, task]
        ]
        assert not missing, f"tasks {missing} have no outcome"


TestPlanes = Planes.TestCase
TestPlanes.settings = settings(max_examples=50, stateful_step_count=40, deadline=None)
