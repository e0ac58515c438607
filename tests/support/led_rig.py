"""A scheduler that leads its plane, whose problems the test has solved, at once or later. What is placed is held
against what the nodes have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder
from tests.support.scheduler_rig import CLIENT, USER, SchedulerRig, node_info


class SolvingRecorder(Recorder):
    """An outbox that keeps problems until they are to be solved."""

    def __init__(self) -> None:
        super().__init__()
        self.problems: list[tuple[int, Any]] = []

    def solve(self, number: int, problem: Any) -> None:
        self.problems.append((number, problem))


class LedRig(SchedulerRig):
    """See the module's docstring. `inline`: problems are solved as soon as they are there."""

    def __init__(self, nodes: Any = (), *, policy: str, inline: bool = True, **options: Any) -> None:
        self.inline = False
        self.job_policy = policy
        self.accepted: dict[str, int] = {}
        """The lead epoch of each node."""
        self.running: dict[str, dict[int, m.LaunchPlaced]] = {}
        """What nodes have been sent and have not ended: node to attempt to launch."""
        super().__init__((), outbox=SolvingRecorder(), policy=policy, **{"settling_s": 0.0, **options})
        self.plane: Any = self.core.plane
        self.prepare()
        self.inline = inline
        infos = nodes if isinstance(nodes, Mapping) else {node: node_info() for node in nodes}
        for node, info in infos.items():
            self.node_up(node, info)

    def prepare(self) -> None:
        """Before the first node comes."""

    # ---- rounds ------------------------------------------------------------------------------

    def solve(self, now_s: float = 0.0) -> bool:
        """The oldest problem that is open has its answer now; False if there is none."""
        if not self.outbox.problems:
            return False
        number, problem = self.outbox.problems.pop(0)
        try:
            answer = problem()
        except Exception:
            answer = None
        self.core.solved(number, answer, now_s)
        self.core.pump(now_s)
        self.core.check_invariants()
        return True

    def after(self, now_s: float) -> None:
        """An event is over."""
        self.accept(now_s)
        rounds = 0
        while self.inline and self.solve(now_s):
            rounds += 1
            assert rounds < 50, "rounds do not end"
        self.note_launches()

    def accept(self, now_s: float) -> None:
        """Nodes accept the scheduler as the leader of its plane, as nobody else claims that."""
        while leads := self.outbox.take(m.Lead):
            for node, lead in leads:
                epoch = self.accepted[node] = max(lead.epoch, self.accepted.get(node, 0))
                leader = self.core.leading.name if epoch else ""
                super().node(node, m.Leading(lead.plane, epoch, leader, linked=epoch > 0), now_s=now_s)
                if lead.epoch:
                    super().node(node, m.Inventory(lead.plane, epoch, [], complete=True), now_s=now_s)
            super().tick(now_s)

    def node_up(self, node: str, info: m.NodeInfo | None = None, now_s: float = 0.0) -> None:
        super().node_up(node, info, now_s)
        self.running.setdefault(node, {})
        self.after(now_s)

    def node_down(self, node: str, now_s: float = 0.0) -> None:
        self.note_launches()
        self.running.pop(node, None)
        super().node_down(node, now_s)
        self.after(now_s)

    def node(self, node: str, *messages: Any, now_s: float = 0.0) -> None:
        super().node(node, *messages, now_s=now_s)
        self.after(now_s)

    def client(self, *messages: Any, now_s: float = 0.0, client: str = CLIENT, user: str = USER) -> None:
        for message in messages:
            if type(message) is m.SubmitJob:
                message.policy = self.job_policy
        super().client(*messages, now_s=now_s, client=client, user=user)
        self.after(now_s)

    def tick(self, now_s: float) -> None:
        super().tick(now_s)
        self.after(now_s)

    # ---- what nodes have ---------------------------------------------------------------------

    def note_launches(self) -> None:
        """Nodes have what they were sent."""
        for node, launch in self.outbox.take(m.LaunchPlaced):
            self.running[node][launch.attempt] = launch
            slots = self.core.nodes[node].info.slots if node in self.core.nodes else 1 << 31
            assert len(self.running[node]) <= slots, f"{node} has {len(self.running[node])} tasks in {slots} slots"

    def placed(self, job: str = "") -> dict[int, str]:
        """Task to node, of all that runs, or of what runs of a job."""
        found: dict[int, str] = {}
        for node, launches in self.running.items():
            for launch in launches.values():
                if job in ("", launch.job):
                    assert launch.task not in found, f"task {launch.task} runs twice"
                    found[launch.task] = node
        return found

    def end(
        self,
        node: str,
        attempt: int,
        status: TaskStatus = TaskStatus.FINISHED,
        now_s: float = 0.0,
        *,
        used: m.Used | None = None,
    ) -> None:
        """The node reports that, and what it used."""
        launch = self.running[node].pop(attempt)
        report = m.Report(launch.job, launch.task, attempt, status, b"r", "", now_s, 1.0, used=used)
        self.node(node, report, now_s=now_s)

    def hand_back(self, node: str, attempt: int, now_s: float = 0.0, *, lasting: bool = False) -> None:
        """The node does not start it; `lasting`: nor would it start others of its stage."""
        launch = self.running[node].pop(attempt)
        self.node(node, m.HandBack(launch.job, attempt, "it waited for too long", lasting=lasting), now_s=now_s)

    def end_all(self, now_s: float = 0.0) -> int:
        """All that runs ends, until nothing does; how many that were."""
        ended = 0
        while any(self.running.values()):
            node = next(one for one, launches in self.running.items() if launches)
            self.end(node, next(iter(self.running[node])), now_s=now_s)
            ended += 1
        return ended
