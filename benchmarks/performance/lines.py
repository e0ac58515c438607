"""The rows of the table of docs/performance.md: their words, where their numbers are, and what is aimed at."""

# ruff: noqa: E501  (a cell of a document is one line)

from __future__ import annotations

from benchmarks.performance.figures import VALUE, Aim, Figure, Line

MS = Figure(("p50 ms", "p95 ms", "p99 ms"), "ms")
POOL = "process pool"
OF_POOL = {POOL: {"": "ProcessPoolExecutor"}}
ONE_CALL, SLEEPS = "One no-op Python function", "10 parallel sleeps"
BOTH, CALLS_PER_S, CPU = "both ms per task", "tasks/s", "CPU ms/task"
SECONDS, UPLOADED, FETCHED = "seconds", "copies uploaded", "copies fetched"
EVENTS, PER_TASK, SIMULATED_S, PEAK = "core events/s", "µs per task", "CPU s", "peak MB"
HEAP = Figure(("heap push and pop µs",), "µs a push and pop of a heap (how fast the core was)")


def _cpu(what: str, tasks: int, cluster: str, in_flight: int, *aims: Aim) -> Line:
    row = {"tasks per job": tasks, "nodes × slots": cluster, "jobs in flight": in_flight, "prefetch": 0}
    return Line(what, "cpu_per_task", "CPU time of scheduler", row, (Figure((BOTH,), "ms"),), aims=aims)


def _latency(what: str, table: str, who: str, *aims: Aim) -> Line:
    return Line(what, "latency", table, {"": who}, (MS,), OF_POOL, aims)


def _actor(what: str, who: str) -> Line:
    beside = {**OF_POOL, "`submit`": {"": "submit"}}
    return Line(what, "actor_calls", "No-op calls", {"": who}, (MS, Figure(("calls/s",), "calls/s")), beside)


def _throughput(what: str, who: str, how: str, *aims: Aim) -> Line:
    figures = (Figure((CALLS_PER_S,), "/s"), Figure((CPU,), "CPU ms a call"))
    beside = {POOL: {"": "ProcessPoolExecutor", "how": "submit, as_completed"}} if aims else {}
    return Line(what, "throughput", "20,000 no-op", {"": who, "how": how}, figures, beside, aims)


def _memory(what: str, process: str, *aims: Aim) -> Line:
    return Line(what, "memory", "Resident sets", {"process": process}, (Figure(("RSS MB",), "MB"),), aims=aims)


def _simulator(what: str, settings: str, nodes: int, figures: tuple[Figure, ...], *aims: Aim) -> Line:
    row = {"settings": settings, "nodes": nodes}
    return Line(what, "simulator", "the simulator on one core", row, (*figures, HEAP), aims=aims)


LINES = (
    _cpu("CPU time of scheduler and node monitor per no-op task, 100-task jobs, 1 node × 16 slots, prefetch 0, 4 jobs at a time", 100, "1×16", 4, Aim(BOTH, 0.024)),
    _cpu("the same, 4 nodes × 4 slots", 100, "4×4", 4, Aim(BOTH, 0.036)),
    _cpu("the same, 10-task jobs, 100 nodes × 4 slots", 10, "100×4", 4, Aim(BOTH, 0.07)),
    _cpu("the same, one job at a time", 10, "100×4", 1),
    _latency("one no-op call, submission to result, p50 / p95 / p99, prefetch 0: client, scheduler and node monitor in a process each", ONE_CALL, "sparrow-py", Aim("p50 ms", 0.5, label="p50"), Aim("p99 ms", 1.0, label="p99")),
    _latency("the same with scheduler and node monitor in one process, the default of `Client()`", ONE_CALL, "embedded default", Aim("p50 ms", 0.4, label="p50")),
    _latency("the same with the scheduler in the client's process", ONE_CALL, "scheduler here"),
    _latency("10 parallel 10 ms sleeps on 16 slots, response beyond 10 ms, p50 / p95 / p99, prefetch 0, a process each", SLEEPS, "sparrow-py", Aim("p50 ms", 2.4, label="p50"), Aim("p95 ms", 3.0, label="p95")),
    _latency("the same with scheduler and node monitor in one process", SLEEPS, "embedded default", Aim("p50 ms", 2.0, label="p50"), Aim("p95 ms", 2.6, label="p95")),
    _actor("a no-op method of an actor, call to result, p50 / p95 / p99, one after the other", "actor"),
    _actor("the same, called from a task", "actor, from a task"),
    Line("a job of one no-op task, with 1,000 node monitors that two processes host, p50 / p95 / p99", "hosted", "1,000 jobs", {"": "job on one of 1,000 node monitors"}, (MS,), OF_POOL, (Aim("p50 ms", 0.6, label="p50"),)),
    _throughput("20,000 no-op calls, 4 workers, prefetch 32", "sparrow-py", "submit_calls, prefetch 32", Aim(CALLS_PER_S, 40_000, at_least=True), Aim(CALLS_PER_S, 4, at_least=True, times=POOL)),
    _throughput("the same, prefetch 0", "sparrow-py", "submit_calls, prefetch 0", Aim(CALLS_PER_S, 9_500, at_least=True), Aim(CALLS_PER_S, 1.1, at_least=True, times=POOL)),
    _throughput("the same by `Client.map`, prefetch 32", "sparrow-py", "map, prefetch 32"),
    _throughput("the same, `map` of a process pool, chunks of one", "ProcessPoolExecutor", "map, chunksize 1"),
    Line("what two users who take turns at 10 ms tasks get done on 2 slots, against one user alone", "turns", None, {}, (Figure((VALUE,), "%"),), aims=(Aim(VALUE, 90, at_least=True),)),
    Line("a no-op in the pure cores of client, scheduler and node monitor, without links and workers", "submit_path", None, {}, (Figure((VALUE,), "µs"),)),
    Line("a job of 5 stages of 10 no-op tasks, per stage, p50 / p95 / p99", "dag", "5 stages", {"ms per stage": "one job of 5 stages"}, (Figure(("p50", "p95", "p99"), "ms"),), {"a client in the loop": {"ms per stage": "5 jobs, client in the loop"}}, (Aim("p50", 1.0, label="p50"),)),
    Line("SIGKILL of a job's scheduler to the job's last result, beyond what its tasks need", "failover", "SIGKILL", {"scheduler": "killed"}, (Figure(("beyond s",), "s"),), {"without a kill": {"scheduler": "left alone"}}, (Aim("beyond s", 1.0),)),
    Line("a result of 100 MB, from submission until its client has it", "blobs", "100 MB", {"": "(a) result to its client"}, (Figure((SECONDS,), "s"),)),
    Line("an input of 100 MB that tasks on 8 nodes need", "blobs", "100 MB", {"": "(b) input of 8 tasks"}, (Figure((SECONDS,), "s"), Figure((UPLOADED,), "copies uploaded"), Figure((FETCHED,), "fetched"))),
    Line("`Client()` in a fresh interpreter to the first result", "startup", "Start of an embedded cluster", {}, (Figure(("Client() to first result, s",), "s"), Figure(("whole process, s",), "s with start and end of the interpreter")), aims=(Aim("Client() to first result, s", 1.0),)),
    _memory("resident set of an idle scheduler", "idle scheduler", Aim("RSS MB", 46)),
    _memory("of an idle node monitor", "idle node monitor", Aim("RSS MB", 46)),
    _memory("of both in one process", "idle scheduler and node monitor in one process", Aim("RSS MB", 55)),
    _memory("of a scheduler with 1,000 node monitors and 1,000,000 queued tasks", "scheduler with 1,000 node monitors and 1,000,000 queued tasks"),
    _simulator("core events per second of the simulator on one core, 1,000 nodes, 95 % load; CPU time of a task", "defaults", 1000, (Figure((EVENTS,), "/s"), Figure((PER_TASK,), "µs a task")), Aim(EVENTS, 200_000, at_least=True)),
    _simulator("the same with the paper's settings, which have fewer and heavier events", "as in the paper", 1000, (Figure((EVENTS,), "/s"), Figure((PER_TASK,), "µs a task"))),
    _simulator("10,000 nodes, 3,000 jobs of 500 tasks at 95 % load", "defaults", 10_000, (Figure((SIMULATED_S,), "s of CPU"), Figure((PEAK,), "MB")), Aim(SIMULATED_S, 120), Aim(PEAK, 1000)),
    Line("response over ideal of the demo's job, prefetch 0", "demo_overhead", None, {}, (Figure((VALUE,)),)),
)  # fmt: skip
