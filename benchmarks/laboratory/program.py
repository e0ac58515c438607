"""A user's program: submits the user's jobs through the public library, and writes down what it is told.

It runs in a process of its own: `python -m benchmarks.laboratory.program FILE`, where the file is an `Order`. One that
was killed may be started again; then it does its work again, under other names: the job `flat-0` is `flat-0~1` in its
second life.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import wait
from dataclasses import replace
from functools import partial
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.laboratory import work
from benchmarks.laboratory.interruption import interrupt
from benchmarks.laboratory.jobs import Job, Way
from benchmarks.laboratory.kinds import Draw
from benchmarks.laboratory.tap import listen_in
from benchmarks.laboratory.told import Event, Writer
from frontends.command.tasks import command_job, decode_result
from frontends.synthetic.tasks import sleep_job
from sparrow_py import CallOptions, CallStage, Client, JobSpec, ResultOf, Speculation, calls
from sparrow_py import client as client_module
from sparrow_py.errors import ResultLost, SparrowError, TaskLost
from sparrow_py.job import BlobRef

CONNECT_TIMEOUT_S = 30.0
SUBMIT_TIMEOUT_S = 40.0
WAIT_FOR_NODES_S = 60.0
"""Nodes that could run a job may be away when it is submitted."""
HTTP_TIMEOUT_S = 60.0
HTTP_TRIES = 100
HTTP_PAUSE_S = 0.1
PAUSE_S = 0.4
"""Mean time between the end of a job of a lane and the next, so that the machine is busy and not full."""
SPECULATION = Speculation(quantile=0.5, slowdown=3.0, copies_max=0.5, running_s_min=0.2)


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a program is to do. jobs: at their times. Then those that come as lines of JSON on standard input, and with
    `lanes` further ones, so many at a time, of kinds by their weights, drawn from `seed`; until standard input closes.

    The rest is filled in by who starts it. zoned: jobs go where their zone is, by the way in which they are submitted.
    """

    user: str
    jobs: tuple[Job, ...] = ()
    lanes: int = 0
    weights: dict[str, int] = {}
    seed: str = ""
    slots: int = 0
    zoned: bool = False
    submit_timeout_s: float = SUBMIT_TIMEOUT_S
    program: str = ""
    life: int = 0
    directory: str = ""
    schedulers: str = ""
    began_ns: int = 0
    heartbeat_s: float = 10.0


def run(order: Order) -> None:
    """From the first submission to the last outcome."""
    Program(order).run()


class Program:
    """See the module's docstring."""

    def __init__(self, order: Order) -> None:
        self._order = order
        self._life = order.life
        self._directory = Path(order.directory)
        # In a later life its work is all due at once, or in a moment.
        self._began_ns = order.began_ns if not order.life else time.monotonic_ns()
        self._waits: list[Callable[[], object]] = []
        """What waits for the end of what is under way; a lane waits for its own jobs."""
        self._told = Writer(self._directory / "told" / f"{order.program}.{order.life}")
        self._dismissed = threading.Event()

    def run(self) -> None:
        """See `run`."""
        order = self._order
        self._told.write(Event.LIFE)
        suppressed = listen_in(self._told)
        with Client(
            order.schedulers,
            user=order.user,
            connect_timeout_s=CONNECT_TIMEOUT_S,
            submit_timeout_s=order.submit_timeout_s,
            heartbeat_s=order.heartbeat_s,
        ) as self._client:
            print('{"ready": true}', flush=True)
            self._waits += [_start(partial(self._stream, lane)) for lane in range(order.lanes)]
            for job in sorted(order.jobs, key=lambda job: job.at_s):
                self._wait_until(job.at_s)
                self._waits += self._submit(job)
            self._hear()
            for all_told in self._waits:
                all_told()
        self._told.write(Event.OVER, suppressed=suppressed())

    def _hear(self) -> None:
        """Submit what standard input says, until it closes."""
        for line in sys.stdin:
            self._waits += self._submit(msgspec.json.decode(line, type=Job))
        self._dismissed.set()

    def _stream(self, lane: int) -> None:
        """Keep a job in flight until the program is dismissed."""
        order = self._order
        rng = random.Random(f"{order.seed} {order.life} {lane}")
        for job in Draw(rng, order.slots).stream(order.weights, order.user, f"{order.program}-{lane}"):
            if self._dismissed.is_set():
                return
            zone = {Way.COMMAND: "command", Way.BUILT_IN: ""}.get(job.way, "python") if order.zoned else job.zone
            for all_told in self._submit(msgspec.structs.replace(job, zone=zone)):
                all_told()
            self._dismissed.wait(rng.expovariate(1 / PAUSE_S))

    def _wait_until(self, at_s: float) -> None:
        time.sleep(max(0.0, (self._began_ns - time.monotonic_ns()) / 1e9 + at_s))

    # ---- submitting --------------------------------------------------------------------------

    def _submit(self, job: Job) -> list[Callable[[], object]]:
        """Submit a job; what waits until all of it has been told."""
        name = f"{job.name}~{self._life}" if self._life else job.name
        directory = self._directory / "runs" / name
        directory.mkdir()
        self._told.write(Event.SUBMITTED, name, spec=job)
        if job.way is Way.MAP:
            return [_start(partial(self._map, job, name, directory))]
        if job.way is Way.HTTP:
            return [_start(partial(self._over_http, job, name, directory))]
        if job.way is Way.SUBMIT:
            client = self._client.with_options(**self._options(job))
            return [self._watch(job, name, [client.submit(work.task, one, b"", ()) for one in _orders(job, directory)])]
        spec = replace(self._spec(job, directory), job_id=name)
        if job.stops_after is not None:
            interrupt(spec.job_id, job.stops_after, signal.SIGSTOP)
        if job.dies_after is not None and not self._life:
            interrupt(spec.job_id, job.dies_after, signal.SIGKILL)
        submitted = self._client.submit_job(spec, speculate=SPECULATION if job.speculate else None)
        waits = [self._watch(job, name, submitted.futures), _start(partial(self._accept, name, submitted))]
        if job.cancel is not None:
            waits.append(_start(partial(self._cancel, job, name, submitted)))
        return waits

    def _options(self, job: Job) -> dict[str, Any]:
        return {
            "max_attempts": job.max_attempts,
            "prefetch": job.prefetch,
            "retry_failed": job.retry_failed,
            "task_timeout_s": job.task_timeout_s,
            "expected_duration_s": job.expected_duration_s,
            "where": _where(job),
            "demand": {"gpu": 1} if job.gpu else None,
            "delay_s": job.delay_s,
            "capture_output": job.capture_output,
            "on_client_lost": job.on_client_lost,
            "wait_for_nodes_s": WAIT_FOR_NODES_S,
        }

    def _spec(self, job: Job, directory: Path) -> JobSpec:
        options = CallOptions(**self._options(job))
        orders = iter(_orders(job, directory))
        if job.way is Way.STAGES:
            return options.stages_job(job.name, list(_stages(job, orders)))
        common = {"max_attempts": job.max_attempts, "wait_for_nodes_s": WAIT_FOR_NODES_S,
                  "on_client_lost": job.on_client_lost, "where": _where(job)}  # fmt: skip
        if job.way is Way.COMMAND:
            argvs = [work.argv(str(directory), number, task.duration_s) for number, task in enumerate(job.tasks)]
            return command_job(argvs, prefetch=job.prefetch, **common)
        if job.way is Way.BUILT_IN:
            return sleep_job([task.duration_s for task in job.tasks], prefetch=job.prefetch, **common)
        payloads = [calls.encode_arguments((order, os.urandom(job.input_bytes), ()), {}) for order in orders]
        function = calls.encode_function(work.task, capture_output=job.capture_output)
        spec = options.job(job.name, function, payloads)
        if job.app:  # The same executor under another name, which says nothing of its interpreter.
            spec = replace(spec, app=job.app, runtime="")
        return replace(spec, probe_ratio=job.probe_ratio or spec.probe_ratio)

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

    def _watch(self, job: Job, name: str, futures: Sequence[Any]) -> Callable[[], object]:
        """Write down what is told; what waits for all of it."""
        for number, future in enumerate(futures):
            future.add_done_callback(partial(self._done, job, name, number))
        return partial(wait, futures)

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
            for value in client.map(work.chunked, _orders(job, directory)):
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
        addresses = Path(self._order.schedulers.removeprefix("file:")).read_text().split()
        body = {"user": self._order.user, "app": "command", "tasks": tasks, "max_attempts": job.max_attempts,
                "job_id": f"{name}-{os.getpid()}", "wait_for_nodes_s": WAIT_FOR_NODES_S}  # fmt: skip
        for address in itertools.islice(itertools.cycle(addresses), HTTP_TRIES):
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


def _start(work_: Callable[[], object]) -> Callable[[], object]:
    """In a thread; what waits for its end."""
    thread = threading.Thread(target=work_)
    thread.start()
    return thread.join


def _where(job: Job) -> list[str]:
    return [f"zone == {job.zone}"] if job.zone else []


def _orders(job: Job, directory: Path) -> list[work.Order]:
    return [
        (str(directory), number, task.duration_s, task.fails, task.result_bytes, job.gate, task.children)
        for number, task in enumerate(job.tasks)
    ]


def _stages(job: Job, orders: Iterator[work.Order]) -> Iterator[CallStage]:
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
    if job.way is Way.COMMAND:
        return decode_result(value).stdout.decode().strip()
    return work.mark(pickle.loads(value) if job.app else value)


if __name__ == "__main__":
    run(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Order))
