"""Jobs of HTTP: those of a core with one node, without HTTP, and a job that is posted to a real scheduler."""

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import aiohttp

from scheduler.http.job import ERROR_BYTES, ERRORS_WITH_ROOM, HttpJob
from scheduler.http.jobs import HttpJobs
from scheduler.http.result_lines import lines_from
from scheduler.http.submissions import read_submission
from scheduler.options import SchedulerOptions
from sparrow_py.job import TaskStatus
from sparrow_py.wire import messages as m
from tests.support.scheduler_rig import SchedulerRig, node_info
from tests.support.waiting import TIMEOUT_S

WAITING_JOB = {"job_id": "j", "app": "app", "tasks": [{}], "wait_for_nodes_s": 1000}
JOB_RESULTS = "/v1/jobs/j/results"
PAYLOAD_BYTES_MAX = 1000
TASK_BYTES = 81
"""What a task takes without its result."""
JOB_BYTES = 4318
"""What a job of one stage of the app takes without its tasks."""


def bytes_of_job(tasks: int) -> int:
    """What a job of so many tasks of the app takes without its results: some of their errors have room."""
    return JOB_BYTES + tasks * TASK_BYTES + min(tasks, ERRORS_WITH_ROOM) * ERROR_BYTES


def body(**job: Any) -> bytes:
    return json.dumps(job).encode()


class Scheduler(SchedulerRig):
    """A scheduler with one node that does as it is told, its HTTP jobs, and the time."""

    def __init__(self, **options: Any) -> None:
        super().__init__(outbox=self, **options)
        self.now_s = 1000.0
        self.options = SchedulerOptions(**options)
        self.jobs = HttpJobs(self.core, self.core, self.options, lambda: self.now_s, itertools.count(1))
        self.launched: list[m.Launch] = []
        self.cancelled: list[m.CancelAttempt] = []
        self.asks = itertools.count(1)
        self._reserved: list[m.Reserve] = []
        self.node_up("n", node_info(100, apps={"app": ""}), self.now_s)

    def to_node(self, node_id: str, message: m.Message) -> None:
        if isinstance(message, m.Launch):
            self.launched.append(message)
        elif isinstance(message, m.Reserve):
            self._reserved.append(message)
        elif isinstance(message, m.CancelAttempt):
            self.cancelled.append(message)

    def to_client(self, client: str, message: m.Message) -> None:
        self.jobs.told(client, message)

    def post(self, user: str = "u", **job: Any) -> HttpJob:
        """Submit a job, as a request does."""
        submission = read_submission(body(user=user, **job), PAYLOAD_BYTES_MAX)
        before = self.jobs.find_same(user, submission.job.id)
        if before is not None:
            return before
        http_job = self.jobs.begin(user, submission)
        for message in submission.job.messages(PAYLOAD_BYTES_MAX):
            self.jobs.add(http_job, message)
        self.core.check_invariants()
        return http_job

    def launch(self) -> None:
        """The node asks for all that it has reservations for."""
        reserved, self._reserved = self._reserved, []
        for reserve in reserved:
            self.node("n", m.GetTasks(next(self.asks), reserve.ticket, reserve.count), now_s=self.now_s)

    def report(
        self, result: m.Data = b"", status: TaskStatus = TaskStatus.FINISHED, error: str = "", **more: Any
    ) -> None:
        """The first task launched ends."""
        task = self.launched.pop(0)
        report = m.Report(task.job, task.task, task.attempt, status, result, error, 5.0, 0.25, **more)
        self.node("n", report, now_s=self.now_s)

    def finish(self, result: m.Data = b"") -> None:
        """All tasks there are run and end."""
        self.launch()
        while self.launched:
            self.report(result)
            self.launch()

    def at(self, now_s: float) -> None:
        """The time comes to `now_s`: the timer fires when it is due."""
        while (due_s := self.jobs.next_deadline_s()) is not None and due_s <= now_s:
            self.now_s = max(due_s, self.now_s)
            self.jobs.tick(self.now_s)
        self.now_s = now_s


def lines(job: HttpJob, position: int = 0) -> list[dict[str, Any]]:
    """All results so far, from a position."""
    read = []
    while True:
        batch, position = lines_from(job, position)
        if not batch:
            return read
        read += [json.loads(line) for line in batch.splitlines()]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():
            await asyncio.sleep(0.001)


async def post(http: aiohttp.ClientSession) -> None:
    async with http.post("/v1/jobs", json=WAITING_JOB) as response:
        assert response.status == 202


async def refusal(response: aiohttp.ClientResponse) -> str:
    return str((await response.json())["error"]["message"])
