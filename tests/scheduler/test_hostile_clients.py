"""Clients that send what they like, in any order: what is wrong ends their link, and whatever is counted is counted
right; once they are gone nothing is left of them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from sparrow_py.errors import LinkError
from sparrow_py.job import BlobRef, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.recorder import Recorder, submission
from tests.support.scheduler_rig import SchedulerRig, node_info

FINISHED, FAILED, CANCELLED, LOST = TaskStatus.FINISHED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.LOST
CLIENTS = {"c": "anna", "d": "anna", "e": "bert"}
"""Clients and their users."""
JOBS = "abcd"
ROUNDS_MAX = 60
"""In which all jobs end once their clients are gone."""


class Counting(Recorder):
    """Counts what clients are sent."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = dict.fromkeys(CLIENTS, 0)
        """Of messages, since each client connected."""
        self.detached: list[str] = []
        """Jobs that clients have let go of."""

    def to_client(self, to: str, message: Any) -> None:
        self.counts[to] = self.counts.get(to, 0) + 1
        if type(message) is m.Detached:
            self.detached.append(message.job)
        self._record(to, message)


class HostileClients:
    """A scheduler with a node, and clients that send what `rng` says."""

    def __init__(self, held_bytes_max: int, settling_s: float) -> None:
        self.outbox = Counting()
        options: dict[str, Any] = {"held_bytes_max": held_bytes_max, "settling_s": settling_s}
        self.rig = SchedulerRig("n", outbox=self.outbox, client_grace_s=5.0, link_backlog_bytes_max=1 << 20, **options)
        self.now_s = 0.0
        self.launched: dict[tuple[str, int], m.Launch] = {}
        self.received = dict.fromkeys(CLIENTS, 0)
        for client, user in CLIENTS.items():
            self.rig.core.client_up(client, user)

    # ---- what happens ------------------------------------------------------------------------

    def do(self, kind: str, rng: random.Random) -> None:
        """Something of this kind happens."""
        make: Callable[[random.Random], Any] | None = getattr(self, f"message_{kind}", None)
        if make is None:
            getattr(self, kind)(rng)
        elif (message := make(rng)) is not None:
            self.send(message, rng)

    def send(self, message: Any, rng: random.Random) -> None:
        """A client sends this, as a rule the job's own; if that is wrong its link ends, and it comes back."""
        name = message.submission.job if type(message) is m.Detach else message.job
        job = self.rig.core.jobs.get(name) if type(message) is not m.SubmitJob else None
        client = rng.choice(list(CLIENTS))
        if job is not None and rng.random() < 0.9:
            client = job.client or client
        try:
            self.rig.client(message, client=client, user=CLIENTS[client], now_s=self.now_s)
        except LinkError:
            self.comes_back(client, said_goodbye=False)

    def comes_back(self, client: str, *, said_goodbye: bool) -> None:
        """The client's link ends, and it connects again."""
        core = self.rig.core
        core.client_down(client, self.now_s, said_goodbye=said_goodbye)
        core.pump(self.now_s)
        core.check_invariants()
        core.client_up(client, CLIENTS[client])
        self.outbox.counts[client] = self.received[client] = 0

    # ---- messages ----------------------------------------------------------------------------

    def message_submits(self, rng: random.Random) -> m.SubmitJob:
        stages = [self.stage(rng.randint(0, 4), "x")]
        if rng.random() < 0.5:
            stages.append(self.stage(2, "y", ("x",)))
        if rng.random() < 0.3:
            stages.append(self.stage(1, "z"))
        return m.SubmitJob(
            rng.choice(JOBS), rng.choice([0, 0, 1, 2, 3]), "", stages, max_attempts=rng.choice([1, 2]),
            retry_failed=rng.random() < 0.2, queue_timeout_s=rng.choice([None, 1.0]), report_placed=False,
            on_client_lost=rng.choice(["finish", "cancel"]), acknowledges=rng.random() < 0.5,
        )  # fmt: skip

    @staticmethod
    def stage(tasks: int, name: str, after: tuple[str, ...] = ()) -> m.Stage:
        (stage,) = submission(tasks=tasks, common=b"cc", after=after, probe_ratio=1.0).stages
        return msgspec.structs.replace(stage, name=name)

    def message_adds(self, rng: random.Random) -> m.AddTasks | None:
        job = self.rig.core.jobs.get(rng.choice(JOBS))
        if job is None:
            return None
        first, count = (
            job.received,
            rng.choice([job.task_count - job.received, rng.randint(0, job.task_count - job.received)]),
        )
        awaited = tuple((rng.choice(JOBS + "z"), rng.randint(0, 5)) for _ in range(rng.choice([0, 0, 1, 3])))
        end = job.task_count + job.given_count + len(awaited)
        details = {
            first + task: m.TaskDetail(
                inputs=tuple((rng.randrange(job.task_count, end), 1) for _ in range(rng.randint(0, 3)))
            )
            for task in range(count)
            if end > job.task_count and rng.random() < 0.7
        }
        return m.AddTasks(job.id, first, [bytes(rng.randint(0, 20))] * count, details or None, awaited=awaited)

    def message_gives(self, rng: random.Random) -> m.GiveResults | None:
        job = self.rig.core.jobs.get(rng.choice(JOBS))
        if job is None:
            return None
        numbers = [job.task_count + rng.randint(0, max(0, job.given_count - 1)) for _ in range(rng.randint(0, 3))]
        kinds: list[m.Data] = [b"x", bytes(20_000), BlobRef("f" * 64, 1 << 20, ("n:1",))]
        results = {one: rng.choice(kinds) for one in numbers}
        ends = [FAILED, CANCELLED, LOST]
        failures: dict[int, tuple[TaskStatus, m.Data, str]] = {
            one: (rng.choice(ends), b"x", "why") for one in numbers if rng.random() < 0.5
        }
        return m.GiveResults(job.id, results, failures)

    def message_knows(self, rng: random.Random) -> m.Known | None:
        job = self.rig.core.jobs.get(rng.choice(JOBS))
        if job is None or job.received >= job.task_count:
            return None
        task = rng.randrange(job.received, job.task_count)
        outcome = m.KnownOutcome(task, rng.choice([FINISHED, FINISHED, FAILED, CANCELLED]), rng.choice([b"kn", b""]))
        starts = {task: rng.randint(0, 2)} if rng.random() < 0.3 else {}
        return m.Known(job.id, [outcome] if rng.random() < 0.8 else [], starts)

    def message_cancels(self, rng: random.Random) -> Any:
        job = self.rig.core.jobs.get(rng.choice(JOBS))
        if job is None or not job.received or rng.random() < 0.5:
            return m.CancelJob(rng.choice(JOBS), rng.random() < 0.5)
        return m.CancelTasks(job.id, [rng.randrange(job.received)], rng.random() < 0.5)

    def message_counts(self, rng: random.Random) -> Any:
        number, job = rng.randint(0, 5), rng.choice(JOBS)
        return rng.choice([m.CountKnown(job, {number: rng.randint(0, 2)}), m.UsingKnown(job, number)])

    def message_finishes(self, rng: random.Random) -> m.FinishedElsewhere | None:
        job = self.rig.core.jobs.get(rng.choice(JOBS))
        return None if job is None else m.FinishedElsewhere(job.id, rng.randint(0, 5), bytes(rng.choice([1, 20_000])))

    def message_gives_back(self, rng: random.Random) -> m.GiveBack:
        job = rng.choice(JOBS)
        return m.GiveBack(job, [self.outcome(job, rng, rng.randint(-1, 6)) for _ in range(rng.randint(0, 5))])

    @staticmethod
    def outcome(job: str, rng: random.Random, task: int) -> m.Outcome:
        result = bytes(rng.choice([1, 1, 20_000]))
        return m.Outcome(job, task, rng.choice([FINISHED, FAILED]), result, "", 1, "n", None, None, None)

    def message_detaches(self, rng: random.Random) -> m.Detach:
        job = self.rig.core.jobs.get(rng.choice(JOBS))
        submission = self.message_submits(rng)
        if job is not None and rng.random() < 0.9:
            stages = [stage.spec for stage in job.stages]
            submission = msgspec.structs.replace(submission, job=job.id, stages=stages)
        if rng.random() < 0.9:
            stages = [msgspec.structs.replace(stage, common=b"") for stage in submission.stages]
            submission = msgspec.structs.replace(submission, stages=stages)
        return m.Detach(submission, rng.choice([0.0, 5.0, 2000.0, 2000.0, 1e9]))

    def message_attaches(self, rng: random.Random) -> m.Attach:
        return m.Attach(rng.choice(self.outbox.detached or JOBS), rng.randint(0, 1))

    # ---- the rest ----------------------------------------------------------------------------

    def reads(self, rng: random.Random) -> None:
        """A client says that it has received some, or all, or more than it was sent."""
        client = rng.choice(list(CLIENTS))
        sent = self.outbox.counts[client]
        count = self.received[client] = rng.choice([self.received[client], self.received[client] + 1, sent, sent, sent])
        try:
            self.rig.client(m.Received(count), client=client, user=CLIENTS[client], now_s=self.now_s)
        except LinkError:
            self.comes_back(client, said_goodbye=False)

    def rests(self, rng: random.Random) -> None:
        """Nothing happens."""

    def runs(self, rng: random.Random) -> None:
        """The node asks for all that is reserved, and some of what it has ends."""
        self.node_works()
        for job, task in list(self.launched):
            if rng.random() < 0.6:
                status = rng.choice([FINISHED, FINISHED, FINISHED, FAILED, LOST])
                self.report(job, task, status, bytes(rng.choice([2, 5000])))

    def node_works(self) -> None:
        rig = self.rig
        while reserves := rig.outbox.take(m.Reserve):
            for node, reserve in reserves:
                rig.node(node, m.GetTasks(1, reserve.ticket, reserve.count), now_s=self.now_s)
            for launch in rig.take(m.Launch):
                self.launched[launch.job, launch.task] = launch
        for claim in rig.take(m.Claim):
            rig.node("n", m.Claimed(claim.job, claim.epoch, []), now_s=self.now_s)

    def report(self, job: str, task: int, status: TaskStatus = FINISHED, result: bytes = b"r") -> None:
        launch = self.launched.pop((job, task))
        self.rig.node("n", m.Report(job, task, launch.attempt, status, result, "", 0.0, 1.0), now_s=self.now_s)

    def loses_its_node(self, rng: random.Random) -> None:
        self.rig.node_down("n", self.now_s)
        self.launched.clear()
        self.rig.node_up("n", node_info(), self.now_s)

    def waits(self, rng: random.Random) -> None:
        self.now_s += rng.choice([0.1, 6.0])
        self.rig.tick(self.now_s)

    def leaves(self, rng: random.Random) -> None:
        self.comes_back(rng.choice(list(CLIENTS)), said_goodbye=rng.random() < 0.5)

    def all_go(self) -> None:
        """All clients go for good: their jobs end."""
        for number, client in enumerate(CLIENTS):
            self.rig.core.client_down(client, self.now_s, said_goodbye=number % 2 > 0)
        for _ in range(ROUNDS_MAX):
            self.now_s += 1000.0
            self.rig.tick(self.now_s)
            self.node_works()
            for job, task in list(self.launched):
                self.report(job, task)


KINDS = ["rests", "submits", "adds", "adds", "gives", "knows", "cancels", "counts", "finishes", "reads", "runs", "runs",
         "detaches", "detaches", "attaches", "gives_back", "waits", "leaves", "loses_its_node"]  # fmt: skip


@given(
    held_bytes_max=st.sampled_from([4 << 30, 200_000, 30_000]),
    settling_s=st.sampled_from([0.0, 5.0]),
    actions=st.lists(st.tuples(st.sampled_from(KINDS), st.integers(0, 1 << 20)), min_size=25, max_size=60),
)
@settings(max_examples=150)
def test_whatever_clients_send_counts_add_up_and_nothing_is_left_of_them(
    held_bytes_max: int, settling_s: float, actions: list[tuple[str, int]]
) -> None:
    clients = HostileClients(held_bytes_max, settling_s)
    for kind, seed in actions:
        clients.do(kind, random.Random(seed))
    clients.all_go()
    core = clients.rig.core
    assert not core.jobs
    assert not core.admission.held_bytes
    assert not core.admission.unplaced
