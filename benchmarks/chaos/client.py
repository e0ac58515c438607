"""A user's program: submits the user's jobs through the public library, and writes down what it is told.

It runs in a process of its own. One that was killed may be started again; then it does its work again, under other
names: the job `flat-0` is `flat-0~1` in its second life.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from benchmarks.chaos import work
from benchmarks.chaos.plan import Job, Plan, Task, Way
from benchmarks.chaos.told import Event, Writer
from benchmarks.interruption import interrupt
from frontends.command.tasks import command_job, decode_result
from frontends.synthetic.tasks import sleep_job
from sparrow_py import CallOptions, CallStage, Client, JobSpec, ResultOf, Speculation, calls
from sparrow_py import client as client_module
from sparrow_py.errors import ResultLost, SparrowError, TaskLost
from sparrow_py.job import BlobRef

CONNECT_TIMEOUT_S = 30.0
SUBMIT_TIMEOUT_S = 40.0
WAIT_FOR_NODES_S = 30.0
"""Nodes that could run a job may be away when it is submitted."""
HTTP_TIMEOUT_S = 60.0
HTTP_TRIES = 100
HTTP_PAUSE_S = 0.1
SPECULATION = Speculation(quantile=0.5, slowdown=3.0, copies_max=0.5, running_s_min=0.2)


def named(job: Job, life: int) -> str:
    """What a job is called in a life of its client."""
    return f"{job.name}~{life}" if life else job.name


class User:
    """See the module's docstring. schedulers: their addresses. began_ns: when the round did."""

    def __init__(
        self, plan: Plan, user: str, life: int, directory: Path, schedulers: Sequence[str], began_ns: int
    ) -> None:
        self._jobs = sorted((job for job in plan.jobs if job.user == user), key=lambda job: job.at_s)
        self._heartbeat_s = plan.heartbeat_s
        self._user = user
        self._life = life
        self._directory = directory
        self._schedulers = list(schedulers)
        # In a later life its work is all due at once, or in a moment.
        self._began_ns = began_ns if not life else time.monotonic_ns()
        self._threads: list[threading.Thread] = []
        self._waiting: list[Callable[[], object]] = []

    def run(self) -> None:
        """From the first submission to the last outcome."""
        self._told = Writer(self._directory / "told" / f"{self._user}.{self._life}")
        self._told.write(Event.LIFE)
        with Client(
            self._schedulers,
            user=self._user,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            submit_timeout_s=SUBMIT_TIMEOUT_S,
            heartbeat_s=self._heartbeat_s,
        ) as self._client:
            for job in self._jobs:
                self._wait_until(job.at_s)
                self._submit(job)
            for thread in self._threads:
                thread.join()
            for all_told in self._waiting:
                all_told()
        self._told.write(Event.OVER)

    def _wait_until(self, at_s: float) -> None:
        time.sleep(max(0.0, (self._began_ns - time.monotonic_ns()) / 1e9 + at_s))

    def _start(self, work_: Callable[[], object]) -> None:
        thread = threading.Thread(target=work_)
        thread.start()
        self._threads.append(thread)

    # ---- submitting --------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        name = named(job, self._life)
        directory = self._directory / "runs" / name
        directory.mkdir()
        self._told.write(Event.SUBMITTED, name)
        if job.way is Way.MAP:
            self._start(partial(self._map, job, name, directory))
        elif job.way is Way.HTTP:
            self._start(partial(self._over_http, job, name, directory))
        elif job.way is Way.SUBMIT:
            function, client = work.task, self._client.with_options(**self._options(job))
            orders = _orders(job.tasks, directory)
            self._watch(job, name, [client.submit(function, order, b"", ()) for order in orders])
        else:
            spec = self._spec(job, directory)
            if job.dies_after is not None and not self._life:
                spec = replace(spec, job_id=f"interrupted-{os.getpid()}")
                interrupt(spec.job_id, job.dies_after, signal.SIGKILL)
            submitted = self._client.submit_job(spec, speculate=SPECULATION if job.speculate else None)
            self._watch(job, name, submitted.futures)
            self._start(partial(self._accept, name, submitted))
            if job.cancel is not None:
                self._start(partial(self._cancel, job, name, submitted))

    def _options(self, job: Job) -> dict[str, Any]:
        return {
            "max_attempts": job.max_attempts,
            "prefetch": job.prefetch,
            "retry_failed": job.retry_failed,
            "task_timeout_s": job.task_timeout_s,
            "expected_duration_s": job.expected_duration_s,
            "where": [f"zone == {job.zone}"] if job.zone else (),
            "demand": {"gpu": 1} if job.gpu else None,
            "delay_s": job.delay_s,
            "capture_output": job.capture_output,
            "on_client_lost": job.on_client_lost,
            "wait_for_nodes_s": WAIT_FOR_NODES_S,
        }

    def _spec(self, job: Job, directory: Path) -> JobSpec:
        options = CallOptions(**self._options(job))
        orders = iter(_orders(job.tasks, directory))
        if job.way is Way.STAGES:
            return options.stages_job(job.name, list(_stages(job, orders)))
        common = {"max_attempts": job.max_attempts, "wait_for_nodes_s": WAIT_FOR_NODES_S,
                  "on_client_lost": job.on_client_lost}  # fmt: skip
        if job.way is Way.COMMAND:
            argvs = [work.argv(str(directory), number, task.duration_s) for number, task in enumerate(job.tasks)]
            return command_job(argvs, prefetch=job.prefetch, **common)
        if job.way is Way.BUILT_IN:
            return sleep_job([task.duration_s for task in job.tasks], prefetch=job.prefetch, **common)
        payloads = [calls.encode_arguments((order, os.urandom(job.input_bytes), ()), {}) for order in orders]
        function = calls.encode_function(work.task, capture_output=job.capture_output)
        return options.job(job.name, function, payloads)

    def _accept(self, name: str, submitted: client_module.Job) -> None:
        try:
            submitted.accepted()
        except SparrowError as error:
            self._told.write(Event.REFUSED, name, error=f"{type(error).__name__}: {error}")
        else:
            self._told.write(Event.ACCEPTED, name)

    def _cancel(self, job: Job, name: str, submitted: client_module.Job) -> None:
        assert job.cancel is not None
        time.sleep(job.cancel.after_s)
        self._told.write(Event.CANCELLED, name)
        chosen = [submitted.futures[task] for task in job.cancel.tasks]
        self._client.cancel(chosen or submitted, running=job.cancel.running)

    # ---- listening ---------------------------------------------------------------------------

    def _watch(self, job: Job, name: str, futures: Sequence[Any]) -> None:
        for number, future in enumerate(futures):
            future.add_done_callback(partial(self._done, job, name, number))
        self._waiting.append(partial(wait, futures))

    def _done(self, job: Job, name: str, number: int, future: Any) -> None:
        report = future.report
        error = None if future.cancelled() else future.exception()
        if report is None:  # The job was refused, which `_accept` writes down.
            return
        value = None if future.cancelled() or error is not None else future.result()
        self._told.write(
            Event.OUTCOME,
            name,
            task=number,
            status=report.status.value,
            attempts=report.attempts,
            node=report.node,
            error=report.error[-500:] or ("" if error is None else str(error)),
            mark=_mark(job, value),
            service_s=report.service_s,
            stdout=report.stdout,
            result_lost=isinstance(error, ResultLost),
        )

    def _map(self, job: Job, name: str, directory: Path) -> None:
        """`map` tells values in order, and of the first that it has not got why."""
        client = self._client.with_options(**self._options(job))
        number = 0
        try:
            for value in client.map(work.chunked, _orders(job.tasks, directory)):
                self._told.write(Event.MAPPED, name, task=number, mark=work.mark(value))
                number += 1
        except (SparrowError, work.PlannedFailure) as error:
            status = "lost" if isinstance(error, TaskLost) else type(error).__name__
            self._told.write(Event.MAPPED, name, task=number, status=status, error=str(error)[-500:])

    # ---- HTTP --------------------------------------------------------------------------------

    def _over_http(self, job: Job, name: str, directory: Path) -> None:
        """Post the job to the first scheduler that answers, and follow its results."""
        tasks = [
            {"payload": {"argv": work.argv(str(directory), number, task.duration_s)}}
            for number, task in enumerate(job.tasks)
        ]
        body = {"user": self._user, "app": "command", "tasks": tasks, "max_attempts": job.max_attempts,
                "job_id": f"{name}-{os.getpid()}", "wait_for_nodes_s": WAIT_FOR_NODES_S}  # fmt: skip
        for address in itertools.islice(itertools.cycle(self._schedulers), HTTP_TRIES):
            connection = HTTPConnection(address, timeout=HTTP_TIMEOUT_S)
            try:
                connection.connect()
            except OSError:
                time.sleep(HTTP_PAUSE_S)
                continue
            try:
                if self._post(connection, body):
                    self._told.write(Event.ACCEPTED, name)
                    self._follow(connection, str(body["job_id"]), name, len(tasks))
                    return
                time.sleep(HTTP_PAUSE_S)
            except (OSError, HTTPException, ValueError) as error:
                self._told.write(Event.GONE, name, error=repr(error))
                return
            finally:
                connection.close()
        self._told.write(Event.REFUSED, name, error="no scheduler takes it")

    @staticmethod
    def _post(connection: HTTPConnection, body: dict[str, Any]) -> bool:
        """Whether the job was taken; not, if the scheduler drains."""
        connection.request("POST", "/v1/jobs", json.dumps(body), {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer = response.read().decode()
        if response.status not in (202, 503):
            raise ValueError(f"{response.status}: {answer}")
        return response.status == 202

    def _follow(self, connection: HTTPConnection, job_id: str, name: str, tasks: int) -> None:
        connection.request("GET", f"/v1/jobs/{job_id}/results")
        response = connection.getresponse()
        if response.status != 200:
            raise ValueError(f"{response.status}: {response.read().decode()}")
        lines = 0
        while line := response.readline():
            told = json.loads(line)
            lines += 1
            self._told.write(
                Event.OUTCOME,
                name,
                **{field: told[field] for field in ("task", "status", "attempts", "node", "error", "service_s")},
                mark=told["result"]["stdout"].strip() if told.get("result") else None,
            )
        if lines < tasks:
            raise ValueError(f"the answer broke off after {lines} of {tasks} lines")


def _orders(tasks: Sequence[Task], directory: Path) -> list[tuple[str, int, float, int, int]]:
    return [
        (str(directory), number, task.duration_s, task.fails, task.result_bytes) for number, task in enumerate(tasks)
    ]


def _stages(job: Job, orders: Iterator[tuple[str, int, float, int, int]]) -> Iterator[CallStage]:
    for stage in job.stages:
        arguments = [
            (order, b"", [ResultOf(name, None if number < 0 else number) for name, number in task.inputs])
            for task, order in zip(stage.tasks, orders, strict=False)
        ]
        preferred = {number: task.preferred for number, task in enumerate(stage.tasks) if task.preferred}
        yield CallStage(stage.name, work.task, arguments, after=stage.after, preferred=preferred)


def _mark(job: Job, value: Any) -> Any:
    if value is None or job.way is Way.BUILT_IN:
        return None
    if isinstance(value, BlobRef):  # Of a stage that others come after.
        return ""
    return decode_result(value).stdout.decode().strip() if job.way is Way.COMMAND else work.mark(value)
