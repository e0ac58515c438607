"""Where a microsecond of one no-op call goes: the hops of its critical path, and what each process spends on a call.

`python -m benchmarks.hops` runs `CALLS` calls, one at a time, on a cluster of one scheduler and one node monitor (in
processes of their own or, with `--processes one`, in one, as by default). All processes note each message that they say
or hear, and the path is traced back from the result. Notes make a call some per cent slower. The second table is of a
cluster without notes: the time of a call, and what each process spends on it. System calls are counted by `strace`;
without that program their column is empty.
"""

from __future__ import annotations

import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import psutil

from benchmarks.functions import noop
from benchmarks.hops import recorder
from benchmarks.hops.cluster import running_client
from benchmarks.hops.path import Event, Hop, calls, critical_path, hops
from benchmarks.report import ROOT, Report, Row, command_of_cluster, median_rows
from sparrow_py import Client

CALLS = 1000
STRACE_CALLS = 300
HOOK = Path(__file__).parent / "hook"


def noted_events(directory: Path) -> list[Event]:
    """What all processes noted there."""
    events = []
    for path in directory.glob("*.*"):
        if path.suffix == recorder.LABELS_SUFFIX:
            continue
        role, _, pid = path.name.rpartition(".")
        labels = path.with_name(path.name + recorder.LABELS_SUFFIX).read_text("utf-8").splitlines()
        for when_ns, cpu_ns, label in recorder.NOTE.iter_unpack(path.read_bytes()):
            if not label:
                break
            events.append(Event(when_ns, cpu_ns, role, int(pid), labels[label - 1]))
    return events


def traced_hops(directory: Path, processes: str) -> tuple[list[Hop], float]:
    """The hops of the calls of a client and a cluster that note them, and the share of calls that took that path."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(HOOK), str(ROOT)]),
        recorder.DIRECTORY_VARIABLE: str(directory),
    }
    command = [sys.executable, "-m", "benchmarks.hops.traced", processes, str(CALLS)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    return hops(critical_path(call) for call in calls(noted_events(directory)))


def process_rows(client: Client, processes: Mapping[str, int]) -> list[Row]:
    """A row for each process: per call, CPU time, wake-ups and system calls."""
    workers = psutil.Process(list(processes.values())[-1]).children(recursive=True)
    pids = {name: [pid] for name, pid in processes.items()} | {"workers": [worker.pid for worker in workers]}
    before = {name: _spent(pids[name]) for name in pids}
    took_s = [_call(client) for _ in range(CALLS)]
    spent = {name: [b - a for a, b in zip(before[name], _spent(pids[name]), strict=True)] for name in pids}
    system_calls = {name: _system_calls(client, pids[name]) for name in pids}
    rows: list[Row] = [
        {
            "process": name,
            "CPU µs": cpu_ns / CALLS / 1000,
            "wake-ups": wakes / CALLS,
            "system calls": system_calls[name],
        }
        for name, (cpu_ns, wakes) in spent.items()
    ]
    total: Row = {column: sum(row[column] for row in rows) for column in ("CPU µs", "wake-ups")}
    counted = [row["system calls"] for row in rows]
    total["system calls"] = "" if "" in counted else sum(counted)
    wall: Row = {"process": f"all; a call takes {1e6 * statistics.median(took_s):.0f} µs (p50)"}
    return [*rows, wall | total]


def _call(client: Client) -> float:
    started_s = time.perf_counter()
    client.submit(noop).result()
    return time.perf_counter() - started_s


def _spent(pids: list[int]) -> tuple[int, int]:
    """CPU time (ns) and wake-ups of all threads of these processes until now."""
    cpu_ns, wakes = 0, 0
    for pid in pids:
        for task in Path(f"/proc/{pid}/task").iterdir():
            cpu_ns += int((task / "schedstat").read_text().split()[0])
            status = (task / "status").read_text()
            wakes += int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])
    return cpu_ns, wakes


def _system_calls(client: Client, pids: list[int]) -> float | str:
    """Per call, of these processes; empty if they cannot be counted here."""
    if shutil.which("strace") is None:
        return ""
    with tempfile.NamedTemporaryFile("r") as table:
        arguments = [f"--attach={pid}" for pid in pids]
        strace = subprocess.Popen(
            ["strace", "-f", "-c", "-o", table.name, *arguments], stderr=subprocess.PIPE, text=True
        )
        assert strace.stderr is not None
        try:
            attached = sum("attached" in strace.stderr.readline() for _ in pids)
            for _ in range(STRACE_CALLS if attached == len(pids) else 0):
                client.submit(noop).result()
        finally:
            strace.send_signal(signal.SIGINT)
            strace.communicate()
        counted = [line.split() for line in table.read().splitlines() if line.endswith(" total")]
    return int(counted[-1][-2 if len(counted[-1]) < 6 else 3]) / STRACE_CALLS if counted else ""


def measure(repeat: int, arrangement: str) -> Report:
    """The tables, `repeat` times in turn: medians."""
    hop_rows, process_tables, shares = [], [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as directory:
            found, share = traced_hops(Path(directory), arrangement)
        rows: list[Row] = [
            {"hop": hop.name, "wall µs": hop.wall_us, "CPU µs": "" if hop.cpu_us is None else hop.cpu_us}
            for hop in found
        ]
        hop_rows.append([*rows, {"hop": "sum", "wall µs": sum(hop.wall_us for hop in found), "CPU µs": ""}])
        shares.append(share)
        with running_client(arrangement) as (client, processes):
            process_tables.append(process_rows(client, processes))
    same = [rows for rows in hop_rows if [row["hop"] for row in rows] == [row["hop"] for row in hop_rows[0]]]
    table = median_rows(same)
    return Report(
        "hops",
        table[-1]["wall µs"],
        "µs on the critical path of one no-op call, with notes being taken",
        {
            "The critical path of one no-op call": table,
            "What each process spends on a call (no notes taken)": median_rows(process_tables),
        },
        [{"hops": a, "processes": b} for a, b in zip(hop_rows, process_tables, strict=True)],
        [
            f"{100 * statistics.median(shares):.0f} % of {CALLS:,} calls took this path; {len(same)} of {repeat} "
            "repetitions had it as the usual one.",
            "Between processes: what the sender's write, the kernel, waking up and the receiving layer take.",
        ],
    )


main = command_of_cluster(
    "hops", measure, repeat=3, help="Where a microsecond of a call goes: hops, CPU, wake-ups, system calls."
)

if __name__ == "__main__":
    main()
