"""Clients of two users submit, cancel, read when they like, vanish and come back, in any order: each task is told to
its client once, none is lost, and nothing is held when all is over. One client never reads before the end."""

from __future__ import annotations

import random
from typing import Any

import pytest

from scheduler.book.footprint import OUTCOME_BYTES
from sparrow_py.job import CANCELLED, FAILED, FINISHED, LOST, TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig
from tests.support.suites import rest_after

NODES = ("n0", "n1")
GRACE_S = 5.0
WINDOW = 6 * OUTCOME_BYTES


class Job:
    """As its client knows it."""

    def __init__(self, message: m.SubmitJob) -> None:
        self.message = message
        self.tasks = sum(stage.task_count for stage in message.stages)
        self.status: dict[int, TaskStatus] = {}
        self.cancelled: set[int] = set()
        """Tasks that were cancelled before they started."""
        self.over = False


class Client:
    """A client, whose link is named anew each time it connects."""

    def __init__(self, name: str, user: str) -> None:
        self.name, self.user, self.links, self.up = name, user, 0, True
        self.jobs: dict[str, Job] = {}
        self.mail: list[Any] = []
        self.read_count = 0

    @property
    def link(self) -> str:
        return f"{self.name}{self.links}"


class Cluster:
    """A scheduler, two nodes, three clients, and what may happen to them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.rig = SchedulerRig(NODES, seed=seed, client_grace_s=GRACE_S, settling_s=0.0)
        self.rig.core.book.deliveries._window_bytes = WINDOW
        self.now_s, self.asks, self.numbers = 0.0, 0, 0
        self.clients = [Client("reader", "anna"), Client("silent", "anna"), Client("other", "bob")]
        self.runs: dict[tuple[str, int], tuple[str, int]] = {}
        """(job, attempt) to (node, task)."""
        for client in self.clients:
            self.rig.core.client_up(client.link, client.user)

    # ---- what peers hear ---------------------------------------------------------------------

    def collect(self) -> None:
        """Peers act on what they are sent."""
        while self.rig.outbox.sent:
            sent, self.rig.outbox.sent = self.rig.outbox.sent, []
            for to, message in sent:
                if to in NODES:
                    self.node_hears(to, message)
                for client in self.clients:
                    if client.up and to == client.link:
                        client.mail.append(message)

    def node_hears(self, node: str, message: Any) -> None:
        if type(message) is m.Reserve and self.rng.random() < 0.5:
            self.asks += 1
            self.rig.node(node, m.GetTasks(self.asks, message.ticket, self.rng.randint(1, message.count)))
        elif type(message) in (m.Launch, m.LaunchNow):
            for client in self.clients:
                job = client.jobs.get(message.job)
                assert job is None or message.task not in job.cancelled, "it was cancelled before it started"
            self.runs[message.job, message.attempt] = node, message.task
        elif type(message) is m.CancelAttempt and (message.job, message.attempt) in self.runs:
            if message.running:
                self.ends(message.job, message.attempt, CANCELLED)
            else:
                self.rig.node(node, m.AttemptRuns(message.job, message.attempt), now_s=self.now_s)
        elif type(message) is m.Claim:
            running = [(t, a) for (job, a), (at, t) in self.runs.items() if job == message.job and at == node]
            self.rig.node(node, m.Claimed(message.job, message.epoch, running), now_s=self.now_s)

    def ends(self, job: str, attempt: int, status: TaskStatus) -> None:
        node, task = self.runs.pop((job, attempt))
        self.rig.node(node, m.Report(job, task, attempt, status, b"r", "", 0.0, 0.1), now_s=self.now_s)

    # ---- what may happen ---------------------------------------------------------------------

    def says(self, client: Client, *messages: Any) -> None:
        self.rig.client(*messages, client=client.link, user=client.user, now_s=self.now_s)

    def submits(self, client: Client) -> None:
        self.numbers += 1
        rng, name = self.rng, f"j{self.numbers}"
        stages = [
            m.Stage("many", rng.randint(1, 25), b"", "", 1.0, 0, None, name=f"s{i}", after=(f"s{i - 1}",) if i else ())
            for i in range(rng.randint(1, 3))
        ]
        message = m.SubmitJob(
            name, 0, "", stages, max_attempts=rng.randint(1, 2), retry_failed=False, report_placed=False,
            queue_timeout_s=rng.choice([None, 0.5]), on_client_lost=rng.choice(["cancel", "finish"]),
        )  # fmt: skip
        job = client.jobs[name] = Job(message)
        self.says(client, message, m.AddTasks(name, 0, [b"p"] * job.tasks, None))

    def cancels_some(self, client: Client, name: str, job: Job, *, whole: bool) -> None:
        some = list(range(job.tasks)) if whole else self.rng.sample(range(job.tasks), self.rng.randint(1, job.tasks))
        running = {task for (one, _), (_, task) in self.runs.items() if one == name}
        job.cancelled.update(task for task in some if task not in running)
        self.says(client, m.CancelJob(name) if whole else m.CancelTasks(name, some))

    def has_elsewhere(self, client: Client, name: str, job: Job) -> None:
        task = self.rng.randrange(job.tasks)
        told = {message.task for message in client.mail if type(message) is m.Outcome and message.job == name}
        if task not in job.status and task not in told:
            self.says(client, m.FinishedElsewhere(name, task, b"r"))
            kept = self.rig.core.book.deliveries._by_key.get((client.user, name, 0))
            if kept is None or task not in kept.outcomes:  # Else its outcome waits to be sent.
                job.status[task] = FINISHED

    def reads(self, client: Client, count: int) -> None:
        batch, client.mail = client.mail[:count], client.mail[count:]
        for message in batch:
            job = client.jobs.get(getattr(message, "job", ""))
            if type(message) is m.Outcome and job is not None:
                # Of tasks that are not to run it may be told again what it said to know when it brought the job back.
                again = job.message.epoch and message.status is CANCELLED
                assert again or message.task not in job.status, f"task {message.task} of {message.job} is told twice"
                job.status.setdefault(message.task, message.status)
            elif type(message) is m.JobEnded and job is not None:
                assert set(job.status) == set(range(job.tasks))
                job.over = True
            else:
                assert type(message) is not m.JobRefused
        client.read_count += len(batch)
        self.says(client, m.Received(client.read_count))

    def leaves(self, client: Client) -> None:
        client.up, client.mail = False, []
        self.rig.core.client_down(client.link, self.now_s, said_goodbye=self.rng.random() < 0.2)
        self.rig.core.check_invariants()

    def comes_back(self, client: Client) -> None:
        client.links += 1
        client.up, client.read_count = True, 0
        self.rig.core.client_up(client.link, client.user)
        for name, job in client.jobs.items():
            if job.over:
                continue
            job.message.epoch += self.rng.choice([1, 1, 2])
            known = m.Known(name, [m.KnownOutcome(task, status, b"") for task, status in job.status.items()], {})
            self.says(client, job.message, known, m.AddTasks(name, 0, [b"p"] * job.tasks, None))
            if name in self.rig.core.jobs:
                self.says(client, m.CancelTasks(name, sorted(job.cancelled - set(job.status))))

    def passes(self, seconds: float) -> None:
        self.now_s += seconds
        self.rig.tick(self.now_s)

    def step(self) -> None:
        rng, client = self.rng, self.rng.choice(self.clients)
        open_jobs = [(name, job) for name, job in client.jobs.items() if not job.over]
        what = rng.random()
        if what < 0.15 and self.runs:
            self.ends(*rng.choice(sorted(self.runs)), rng.choice([FINISHED, FINISHED, FAILED, LOST]))
        elif what < 0.3:
            self.passes(rng.choice([0.001, 0.1, 1.0, 6.0]))
        elif not client.up:
            self.comes_back(client)
        elif what < 0.4:
            self.leaves(client)
        elif what < 0.5 or not open_jobs:
            self.submits(client)
        elif what < 0.75:
            if client.name != "silent":
                self.reads(client, rng.randint(0, 8))
        else:
            name, job = rng.choice(open_jobs)
            if what < 0.85:
                self.cancels_some(client, name, job, whole=rng.random() < 0.5)
            elif what < 0.9:
                self.has_elsewhere(client, name, job)
            else:
                self.rig.core.cancel_job(name, self.now_s, running=rng.random() < 0.3)
        self.collect()

    def ends_well(self) -> None:
        """All clients come and read, all jobs are cancelled, and then nothing is left."""
        for client in self.clients:
            if not client.up:
                self.comes_back(client)
        for name in list(self.rig.core.jobs):
            self.rig.core.cancel_job(name, self.now_s, running=True)
        for _ in range(2000):
            self.collect()
            self.passes(0.5)
            for client in self.clients:
                self.reads(client, 5)
            self.collect()
            if not self.rig.core.jobs and not any(client.mail for client in self.clients):
                break
        for client in self.clients:
            left = {name: set(range(job.tasks)) - set(job.status) for name, job in client.jobs.items() if not job.over}
            assert not left, f"{client.name} has not heard of them"
        core, deliveries = self.rig.core, self.rig.core.book.deliveries
        self.passes(2 * GRACE_S)
        assert not core.jobs and core.is_done and not deliveries._by_key and not deliveries._stages_waiting
        assert core.admission.held_bytes == {} and core.admission.unplaced == {} and not core.book.outcomes._leaving


@pytest.mark.parametrize("seed", rest_after(5, *range(15)))
def test_each_task_is_told_once_and_nothing_is_left(seed: int) -> None:
    cluster = Cluster(seed)
    for _ in range(120):
        cluster.step()
    cluster.ends_well()
