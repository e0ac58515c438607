"""Where the microseconds of one no-op go in the pure cores: client, scheduler and node monitor in one process, without
links, loops or executors.

Each call goes the whole way, step by step: a core's messages are handed to the next core by hand, so that only the
cores work. The node has said that it is idle, so the scheduler sends the task at once, as it does to nodes that wait.
Each column is the median over all calls of one step's wall time, warm; "CPU" is the process's CPU time per call, clocks
included. In daemons the same steps take about twice as long, as their caches are cold.
"""

from __future__ import annotations

import functools
import gc
import random
import statistics
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from benchmarks.functions import noop
from benchmarks.report import Report, Row, command, median_rows
from node_monitor.core import NodeMonitorCore
from node_monitor.executors.executor_state import AppPlan
from node_monitor.options import NodeMonitorOptions
from scheduler.core import SchedulerCore
from scheduler.options import SchedulerOptions
from simulator.soak.blobs import FakeBlobs
from sparrow_py import calls
from sparrow_py.call_jobs import CallOptions
from sparrow_py.client import Job, _Sink
from sparrow_py.executors import executor_protocol as x
from sparrow_py.job import FINISHED, TaskSpec, new_job_id
from sparrow_py.session.core import ClientCore
from sparrow_py.wire import messages as m

CALLS = 5_000
CALLS_WARM = 500
CLIENT, SCHEDULER, NODE, USER = "client", "scheduler", "node", "anna"
SLOTS = 4
STEPS = (
    "client pickles", "client job and future", "client submits", "client encodes", "scheduler SubmitJob, AddTasks",
    "node LaunchNow", "node Done", "scheduler Report", "client settles", "node ForgetJob",
)  # fmt: skip


class Sent:
    """An outbox of any core, which holds what was sent until it is taken."""

    def __init__(self) -> None:
        self._sent: list[Any] = []

    def _hold(self, to: str, message: Any) -> None:
        self._sent.append(message)

    to_node = to_client = to_scheduler = to_executor = _hold

    def take(self) -> list[Any]:
        """All that was sent, in order."""
        sent, self._sent = self._sent, []
        return sent

    def start_executor(self, app: str, places: int) -> None:
        """Executors come by hand."""

    def nothing(self, *_: object) -> None:
        """What no-ops have no use for."""

    fetch = give_up = kill_executor = offer_changed = solve = stream = upload_again = nothing


class Cores:
    """A client, a scheduler and a node monitor with free slots."""

    def __init__(self) -> None:
        self.sent: Any = Sent()
        self.client = ClientCore(random.Random(0), self.sent, submit_timeout_s=10.0)
        self.scheduler = SchedulerCore(SchedulerOptions(), random.Random(0), self.sent)
        options = NodeMonitorOptions()
        self.node = NodeMonitorCore(options, SLOTS, [AppPlan(calls.APP)], self.sent, cast(Any, FakeBlobs()))
        for number in range(SLOTS):
            self.node.executor_up(f"p{number}", calls.APP, 1, 0.0)
        self.client.scheduler_up(SCHEDULER, m.FRAME_BYTES_MAX, 0.0)
        self.node.scheduler_up(SCHEDULER)
        info = m.NodeInfo(SLOTS, {}, {}, {calls.APP: calls.RUNTIME}, memory="memory")
        self.scheduler.node_up(NODE, info, 0.0)
        self.scheduler.receive_from_node(NODE, m.Idle(SLOTS), 0.0)
        self.options = CallOptions()
        self.sent.take()

    def client_hears(self, messages: list[Any], now_s: float) -> None:
        """These came from the scheduler in one frame."""
        for message in messages:
            self.client.receive(SCHEDULER, message, now_s)

    def scheduler_hears_client(self, messages: list[Any], now_s: float) -> None:
        """These came from the client in one frame."""
        for message in messages:
            self.scheduler.receive_from_client(CLIENT, USER, message, now_s)
        self.scheduler.pump(now_s)

    def scheduler_hears_node(self, messages: list[Any], now_s: float) -> None:
        """These came from the node monitor in one frame."""
        for message in messages:
            self.scheduler.receive_from_node(NODE, message, now_s)
        self.scheduler.pump(now_s)

    def node_hears(self, messages: list[Any], now_s: float) -> None:
        """These came from the scheduler in one frame."""
        self.node.receive_frame(SCHEDULER, messages, now_s)

    def node_done(self, run: x.Run, executor: str, now_s: float) -> None:
        """The executor has ended the run."""
        self.node.done_together(executor, [x.Done(run.run, FINISHED, RESULT, "", now_s, 0.0)], now_s)
        self.node.pump(now_s)


RESULT = calls.encode_value(None)
"""Any pickle will do."""


class Stopwatch:
    """Notes how long each step of a call takes."""

    def __init__(self) -> None:
        self.taken_ns: dict[str, list[int]] = {step: [] for step in STEPS}

    def time(self, step: str, act: Callable[..., Any], *args: Any) -> Any:
        """What `act` returns."""
        began_ns = time.perf_counter_ns()
        found = act(*args)
        self.taken_ns[step].append(time.perf_counter_ns() - began_ns)
        return found


def pickled() -> tuple[bytes, bytes | TaskSpec]:
    """As `Client.submit` does."""
    return calls.encode_function(noop), calls.encode_arguments((), {})


def job_and_future(options: CallOptions, common: bytes, payload: bytes | TaskSpec) -> Job:
    """As `Client.submit` does."""
    nobody: Any = None
    spec = options.job(calls.function_name(noop), common, [])
    spec.job_id = new_job_id()
    job = Job(nobody, nobody, {}, spec, task_count=1)
    spec.tasks = [payload]
    return job


def submitted(core: ClientCore, options: CallOptions, job: Job, now_s: float) -> None:
    """As the client's loop does."""
    options.check_calls(job.spec)
    sink = _Sink(job)
    sink.begin(job.spec, cast(Any, None))
    core.submit(job.spec, sink, now_s)


def call(cores: Cores, watch: Stopwatch, buffer: bytearray, now_s: float) -> Future[Any]:
    """One no-op, all the way."""
    timed, take = watch.time, cores.sent.take
    common, payload = timed("client pickles", pickled)
    job = timed("client job and future", job_and_future, cores.options, common, payload)
    timed("client submits", submitted, cores.client, cores.options, job, now_s)
    messages = take()
    timed("client encodes", m.encode_into, messages, buffer)
    timed("scheduler SubmitJob, AddTasks", cores.scheduler_hears_client, messages, now_s)
    to_client, to_node = _apart(take())
    timed("node LaunchNow", cores.node_hears, to_node, now_s)
    run = next(message for message in take() if type(message) is x.Run)
    executor = next(name for name, one in cores.node.executors.items() if run.run in one.running)
    timed("node Done", cores.node_done, run, executor, now_s + 1e-4)
    timed("scheduler Report", cores.scheduler_hears_node, take(), now_s + 1e-4)
    later_to_client, to_node = _apart(take())
    timed("client settles", cores.client_hears, to_client + later_to_client, now_s + 1e-4)
    timed("node ForgetJob", cores.node_hears, to_node, now_s + 1e-4)
    cores.sent.take()
    future: Future[Any] = job.futures[0]
    return future


TO_CLIENT = (m.JobAccepted, m.Outcome, m.JobEnded)


def _apart(messages: list[Any]) -> tuple[list[Any], list[Any]]:
    """Those for the client, and those for the node monitor."""
    return [one for one in messages if type(one) in TO_CLIENT], [one for one in messages if type(one) not in TO_CLIENT]


def measure_steps() -> list[Row]:
    """All steps, once."""
    cores, buffer, watch = Cores(), bytearray(), Stopwatch()
    one_call = functools.partial(call, cores, buffer=buffer)
    for number in range(CALLS_WARM):
        one_call(watch=watch, now_s=number * 1e-3)
    watch = Stopwatch()
    gc.collect()
    gc.freeze()
    began_s = time.process_time()
    for number in range(CALLS):
        future = one_call(watch=watch, now_s=(CALLS_WARM + number) * 1e-3)
        assert future.done(), "the call came back"
    cpu_us = 1e6 * (time.process_time() - began_s) / CALLS
    gc.unfreeze()
    medians = {step: statistics.median(taken) / 1e3 for step, taken in watch.taken_ns.items()}
    rows: list[Row] = [{"step": step, "wall µs": us} for step, us in medians.items()]
    for end in ("client", "scheduler", "node"):
        rows.append({"step": f"all of the {end}", "wall µs": sum(us for s, us in medians.items() if s.startswith(end))})
    return [*rows, {"step": "all", "wall µs": sum(medians.values())}, {"step": "CPU", "wall µs": cpu_us}]


def measure(repeat: int) -> Report:
    """The table of the steps."""
    repetitions = [measure_steps() for _ in range(repeat)]
    rows = median_rows(repetitions)
    value = next(float(row["wall µs"]) for row in rows if row["step"] == "all")
    title = "one no-op function through the pure cores, warm"
    return Report("submit_path", value, "µs for a no-op in all cores", {title: rows}, repetitions)


main = command("submit_path", measure, repeat=5, help="What each step of a no-op takes in the pure cores.")

if __name__ == "__main__":
    main()
