"""docs/performance.md is written of what benchmarks print: its rows find their numbers in what they print today."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from click.testing import CliRunner

from benchmarks import (
    actor_calls,
    blobs,
    cpu_per_task,
    dag,
    demo_overhead,
    failover,
    hosted,
    latency,
    memory,
    simulator,
    startup,
    submit_path,
    throughput,
    turns,
)
from benchmarks import all as running
from benchmarks.hops import __main__ as hops
from benchmarks.hops.path import Hop
from benchmarks.performance import __main__ as command
from benchmarks.performance import results
from benchmarks.performance.catalogue import BENCHMARKS
from benchmarks.performance.document import NOT_MEASURED, RUNS_MAX, cells, newest, span, text
from benchmarks.performance.figures import VALUE, Aim, Figure, Line, found
from benchmarks.performance.lines import LINES
from benchmarks.performance.results import DOCUMENT, RESULTS, Recorded, printed, read, recorded
from benchmarks.report import Report, Row
from sparrow_py.errors import InvalidOption

CLUSTERS = ("ProcessPoolExecutor", "LocalCluster", "Client", "wait", "wait_for_workers", "client_with_scheduler")
"""What starts processes, or waits for them: in these benchmarks, nothing is behind it."""
PERCENTILES = {"p50": 0.1, "p95": 0.2, "p99": 0.3}


# ---- what benchmarks print, with nothing behind them -----------------------------------------


def cpu_per_task_report(patch: Any) -> Report:
    patch(start_cluster=MagicMock(), run_jobs=lambda *_: 10, cpu_s=lambda _: 1.0)
    return cpu_per_task.measure(1, "separate")


def latency_report(patch: Any) -> Report:
    patch(interleaved=lambda submitters, *_: [PERCENTILES for _ in submitters])
    return latency.measure(1)


def actor_calls_report(patch: Any) -> Report:
    client = MagicMock()
    client.__enter__.return_value.submit.return_value.result.return_value = [0.001]
    patch(seconds_of=lambda *_: [0.001], Client=lambda _: client)
    return actor_calls.measure(1)


def hosted_report(patch: Any) -> Report:
    patch(job=lambda _: 0.001, call=lambda _: 0.001)
    return hosted.measure(1)


def throughput_report(patch: Any) -> Report:
    patch(
        **{way: lambda *_: None for way in ("by_map", "by_job", "by_pool_submit", "by_pool_map")},
        cpu_s=lambda *_, **__: 1.0,
    )
    return throughput.measure(1, "separate")


def startup_report(patch: Any) -> Report:
    patch(subprocess=SimpleNamespace(run=lambda *_, **__: SimpleNamespace(stdout="0.5\n")))
    return startup.measure(1)


def turns_report(patch: Any) -> Report:
    patch(tasks_per_s=lambda _: 100.0)
    return turns.measure(1)


def submit_path_report(patch: Any) -> Report:
    patch(CALLS=2, CALLS_WARM=1, gc=MagicMock())
    return submit_path.measure(1)


def memory_report(patch: Any) -> Report:
    patch(rss_mb=lambda _: 50.0, queue_tasks=lambda *_: None, time=MagicMock())
    return memory.measure(1)


def dag_report(patch: Any) -> Report:
    patch(one_job=lambda _: None, five_jobs=lambda _: None)
    return dag.measure(1)


def failover_report(patch: Any) -> Report:
    """A quarter of the tasks ends before the kill, the others when the report is asked for."""
    told: list[Callable[[object], None]] = []
    early, late = (
        SimpleNamespace(add_done_callback=lambda tell: tell(None)),
        SimpleNamespace(add_done_callback=told.append),
    )
    ended = failover.TASKS // 4

    def report() -> Any:
        while told:
            told.pop()(None)
        return SimpleNamespace(count=lambda _: 0, tasks=[SimpleNamespace(attempts=2)])

    job = SimpleNamespace(results=list, futures=[early] * ended + [late] * (failover.TASKS - ended), report=report)
    client = MagicMock()
    client.__enter__.return_value.submit_calls.return_value = job
    patch(Client=lambda _: client, busy_scheduler=MagicMock(), SETTLED_S=0.0)
    return failover.measure(1)


def blobs_report(patch: Any) -> Report:
    tasks = [SimpleNamespace(node=f"n{number}") for number in range(blobs.NODES)]
    client = MagicMock()
    entered = client.__enter__.return_value
    entered.submit.return_value.result.return_value = range(blobs.SIZE)
    entered.submit_calls.return_value = MagicMock(
        results=lambda: [blobs.SIZE] * blobs.NODES, report=lambda: SimpleNamespace(tasks=tasks)
    )
    patch(Client=lambda _: client, rss_mb=lambda _: 1.0, counters=lambda _: dict.fromkeys(blobs.COUNTERS, 1.0))
    patch(bytes=lambda _: b"")  # Not 100 MB.
    return blobs.measure(1)


def demo_overhead_report(patch: Any) -> Report:
    columns = ("tasks", "response_s", "ideal_s", "overhead", "task_wait_p50_ms", "task_service_p50_ms")
    details = {"repetitions": [dict.fromkeys(columns, 1.0)]}
    patch(run_demo=lambda _: {"value": 1.1, "unit": "job response time / ideal", "details": details})
    return demo_overhead.measure(1)


def simulator_report(patch: Any) -> Report:
    pool = MagicMock()
    pool.__enter__.return_value.submit = lambda measure, setting: SimpleNamespace(result=lambda: measure(setting))
    ran = SimpleNamespace(counts={"core_events": 1000})
    patch(ProcessPoolExecutor=lambda _: pool, simulate=lambda *_: ran, heap_us=lambda: 1.0, progress=lambda _: None)
    patch(Synthetic=MagicMock(), Cluster=MagicMock(), time=SimpleNamespace(process_time=iter(range(100)).__next__))
    return simulator.measure(1)


def hops_report(patch: Any) -> Report:
    process: Row = {"process": "client", "CPU µs": 1.0, "wake-ups": 2.0, "system calls": ""}
    client = MagicMock()
    client.__enter__.return_value = (None, {})
    found_hops = [Hop("client: submits → Run", 10.0, None), Hop("client → worker", 20.0, None)]
    patch(traced_hops=lambda *_: (found_hops, 1.0), running_client=lambda _: client, process_rows=lambda *_: [process])
    return hops.measure(1, "separate")


REPORTS: dict[str, tuple[ModuleType, Callable[[Any], Report]]] = {
    "cpu_per_task": (cpu_per_task, cpu_per_task_report), "latency": (latency, latency_report),
    "actor_calls": (actor_calls, actor_calls_report), "hosted": (hosted, hosted_report),
    "throughput": (throughput, throughput_report), "startup": (startup, startup_report),
    "turns": (turns, turns_report), "submit_path": (submit_path, submit_path_report),
    "memory": (memory, memory_report), "dag": (dag, dag_report), "failover": (failover, failover_report),
    "blobs": (blobs, blobs_report), "demo_overhead": (demo_overhead, demo_overhead_report),
    "simulator": (simulator, simulator_report), "hops": (hops, hops_report),
}  # fmt: skip


@pytest.fixture(params=list(REPORTS))
def sample(request: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Recorded]:
    """What a benchmark prints, as it is recorded."""
    module, make = REPORTS[request.param]

    def patch(**names: Any) -> None:
        for name, stand_in in names.items():
            monkeypatch.setattr(module, name, stand_in, raising=name != "bytes")

    monkeypatch.setattr(results, "commit_of_code", lambda _: "c")
    patch(**{name: MagicMock() for name in CLUSTERS if hasattr(module, name)})
    yield recorded(request.param, printed(make(patch).as_json()), 60.0)


def test_each_row_finds_its_numbers_in_what_its_benchmark_prints(sample: Recorded) -> None:
    own = [line for line in LINES if line.benchmark == sample.benchmark]
    assert own or sample.benchmark == "hops"
    for line in own:
        numbers = found(line, sample)
        assert list(numbers.ours) == line.columns and list(numbers.beside) == list(line.beside)
    assert (f"| {sample.benchmark} | 1 | {sample.date}, {sample.commit} | 1 | 60 s |") in text([sample])


def test_every_row_is_of_a_benchmark_whose_print_is_tried() -> None:
    assert {line.benchmark for line in LINES} <= set(REPORTS) <= set(BENCHMARKS)


# ---- the page --------------------------------------------------------------------------------

COLUMN = "p50 ms"
LINE = Line(
    "a call", "latency", "Calls", {"": "ours"}, (Figure((COLUMN, "p95 ms"), "ms"), Figure(("calls/s",), "/s")),
    {"pool": {"": "pool"}}, (Aim(COLUMN, 0.5, label="p50"), Aim("calls/s", 2, at_least=True, times="pool")),
)  # fmt: skip


def run(p50: float = 0.4, per_s: float = 2500, title: str = "Calls in sequence", **changes: Any) -> Recorded:
    """Of `LINE`'s benchmark."""
    rows = [
        {"": "ours", COLUMN: p50, "p95 ms": 2 * p50, "calls/s": per_s},
        {"": "pool", COLUMN: 0.2, "p95 ms": 0.25, "calls/s": 1000.0},
    ]
    details = {"cores": 2, "python": "3.11", "load_average_1_min": 0.5, "tables": {title: rows}, "repetitions": [1, 2]}
    own: dict[str, Any] = {"benchmark": "latency", "commit": "c", "date": "2026-01-01", "took_s": 30.0}
    return Recorded(name="latency", value=p50, unit="ms", details=details, **own | changes)


@pytest.mark.skipif(not RESULTS.exists(), reason="nothing has been recorded")
def test_the_page_is_what_the_command_writes_from_the_kept_results() -> None:
    """`python -m benchmarks.performance` writes it anew."""
    known = read(RESULTS)
    assert DOCUMENT.read_text("utf-8") == text(known)
    assert {result.benchmark for result in known} <= set(BENCHMARKS)


def test_what_was_not_measured_is_said() -> None:
    page = text([])
    assert not re.search(r"^\[\[", page, re.MULTILINE)
    for line in LINES:
        assert f"| {line.what} |" in page
    assert page.count(NOT_MEASURED) == len(LINES) + len(BENCHMARKS) + 2  # Both tables of hops.


def test_one_run_has_its_pool_beside_it_and_aims_are_judged() -> None:
    assert cells(LINE, [run()]) == (
        "0.4 / 0.8 ms, 2,500/s (pool: 0.2 / 0.25 ms, 1,000/s)", "",
        "p50 at most 0.5 ms: met; at least 2 × pool: met (2.5 ×)",
    )  # fmt: skip
    assert cells(LINE, [run(0.6, 1500)])[2] == ("p50 at most 0.5 ms: **missed**; at least 2 × pool: **missed** (1.5 ×)")


def test_an_aim_that_one_of_several_runs_missed_is_missed() -> None:
    value, several, aims = cells(LINE, [run(0.4), run(0.6), run(0.5)])
    assert value.startswith("0.4 / 0.8 ms")
    assert several == "0.4–0.6 / 0.8–1.2 ms, 2,500/s (pool: 0.2 / 0.25 ms, 1,000/s), 3 runs"
    assert aims == "p50 at most 0.5 ms: **missed** in 1 of 3 runs; at least 2 × pool: met (2.5 ×)"


def test_the_newest_runs_are_told_of() -> None:
    runs = newest(run(number / 10) for number in range(1, RUNS_MAX + 3))["latency"]
    assert [one.value for one in runs] == [0.7, 0.6, 0.5, 0.4, 0.3]


def test_a_newest_run_without_the_row_is_no_measurement_of_it() -> None:
    """Older runs, of another shape, do not stand for it."""
    assert cells(LINE, [run(title="Other"), run()])[0] == NOT_MEASURED
    assert cells(LINE, [run(), run(title="Other"), run(9.0)])[1] == ""


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"table": "Sleeps"}, "latency: 0 tables of ['Calls in sequence'] begin with 'Sleeps'"),
        ({"row": {"": "theirs"}}, "latency: 0 rows of 'Calls' have {'': 'theirs'}"),
        ({"row": {}}, "latency: 2 rows of 'Calls' have {}"),
        ({"figures": (Figure(("p99 ms",), "ms"),)}, "latency: 'Calls' has no column 'p99 ms' but"),
    ],
)
def test_what_a_benchmark_no_longer_has_is_named(changes: dict[str, Any], said: str) -> None:
    own: dict[str, Any] = {"what": "", "benchmark": "latency", "table": "Calls", "row": {"": "ours"}, "figures": ()}
    with pytest.raises(LookupError) as error:
        found(Line(**own | changes), run())
    assert said in str(error.value)


def test_a_benchmarks_value_needs_no_table() -> None:
    assert cells(Line("", "turns", None, {}, (Figure((VALUE,), "%"),)), [run(90.0)])[0] == "90 %"


def test_hops_are_as_their_benchmark_printed_them_without_empty_columns() -> None:
    rows = [{"hop": "client → worker", "wall µs": 20.5, "CPU µs": ""}, {"hop": "sum", "wall µs": 20.5, "CPU µs": ""}]
    first, second = (run(sum_us, benchmark="hops-one") for sum_us in (18.0, 20.5))
    second.details["tables"] = {"The critical path": rows}
    second.details["notes"] = ["96 % took this path."]
    page = text([first, second])
    assert (
        "(`python -m benchmarks.hops --processes one`)\n\n| hop | wall µs |\n| --- | --- |\n| client → worker | 20.5 |"
        in page
    )
    assert "\n96 % took this path.\n" in page
    assert "The sum in the last 2 runs, of which the tables show the newest: 18–20.5 µs." in page


def test_a_span_that_reads_the_same_is_one_number() -> None:
    assert (span([1.0001, 1.0002]), span([2, 1, 3])) == ("1", "1–3")


# ---- recording -------------------------------------------------------------------------------


@pytest.fixture
def benchmarks_run(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands that `benchmarks.all` starts; each prints an object, and `dag` fails."""
    started: list[list[str]] = []

    def ran(words: list[str], **_: Any) -> Any:
        started.append(words[2:])
        details = {"system": socket.gethostname(), "cores": 2, "ratio": 1 / 3}
        line = json.dumps({"name": "n", "value": 2 / 3, "unit": "ms", "details": details})
        failed = "benchmarks.dag" in words
        return SimpleNamespace(returncode=int(failed), stdout=b"" if failed else line.encode())

    monkeypatch.setattr(running, "subprocess", SimpleNamespace(run=ran, PIPE=-1))
    return started


def test_each_benchmark_that_ran_is_recorded(benchmarks_run: list[list[str]], tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    words = ["--results", str(path), "--repeat", "1", "--only", "hops-one", "--only", "dag", "--only", "latency"]
    ended = CliRunner().invoke(running.main, words)
    assert ended.exit_code == 1 and "error: failed: dag" in ended.output
    flags = ["--json", "--repeat", "1"]
    assert benchmarks_run == [
        ["benchmarks.latency", *flags], ["benchmarks.dag", *flags],
        ["benchmarks.hops", "--processes", "one", *flags],
    ]  # fmt: skip
    kept = read(path)
    assert [(one.benchmark, one.value) for one in kept] == [("latency", 0.666667), ("hops-one", 0.666667)]
    assert kept[0].details == {"cores": 2, "ratio": 0.333333}  # Nothing of whose machine it was.
    assert CliRunner().invoke(running.main, words).exit_code == 1 and len(read(path)) == 4


def test_all_run_without_a_file(benchmarks_run: list[list[str]]) -> None:
    CliRunner().invoke(running.main, [])
    assert benchmarks_run == [[one.module, *one.arguments] for one in BENCHMARKS.values()]


def test_a_benchmark_that_is_not_there_is_refused(benchmarks_run: list[list[str]]) -> None:
    ended = CliRunner().invoke(running.main, ["--only", "nothing"])
    assert ended.exit_code == 2 and "'nothing' is not one of" in ended.output and not benchmarks_run


def test_a_line_that_is_no_result_is_named(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text('{"benchmark": "latency"}\n')
    with pytest.raises(InvalidOption, match=r"r\.jsonl:1"):
        read(tmp_path / "r.jsonl")


def test_the_command_writes_no_page_of_nothing(benchmarks_run: list[list[str]], tmp_path: Path) -> None:
    kept, page = tmp_path / "r.jsonl", tmp_path / "p.md"
    words = ["--results", str(kept), "--out", str(page)]
    ended = CliRunner().invoke(command.main, words)
    assert ended.exit_code == 1 and "Error: nothing is recorded in" in ended.output and not page.exists()
    CliRunner().invoke(running.main, ["--results", str(kept), "--only", "turns"])
    kept.write_bytes(kept.read_bytes().replace(b'"cores":2', b'"cores":2,"python":"3"'))
    assert CliRunner().invoke(command.main, words).exit_code == 0
    assert page.read_text("utf-8") == text(read(kept)) and "| 0.667 % |" in page.read_text("utf-8")
