"""A job's tasks in Chrome's trace format (JSON), which Perfetto and chrome://tracing open. Pure.

Each node is a process and each of its slots that the job has used a thread of it, numbered by what ran at the same
time: schedulers do not know which slot of a node a task has had. How many tasks waited and ran at a time are counters.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from typing import Any

Event = dict[str, Any]
JOB_PID = 0
"""The process that stands for the job itself."""


def chrome_trace(timeline: dict[str, Any]) -> dict[str, Any]:
    """The trace of what `/v1/jobs/{job}/timeline` has answered. Times are µs since the job was submitted."""
    begin_s = timeline["submitted_at_s"]
    runs = [*_ended(timeline), *_at_nodes(timeline)]
    runs.sort(key=lambda run: (run["start_s"], run["task"]))
    events: list[Event] = [_named("process_name", JOB_PID, 0, f"job {timeline['job']}")]
    for number, node in enumerate(timeline["nodes"], 1):
        events.append(_named("process_name", number, 0, node))
        events.append(
            {"ph": "M", "name": "process_sort_index", "pid": number, "tid": 0, "args": {"sort_index": number}}
        )
    for run, slot in _in_slots(runs):
        events.append(_event(run, slot, begin_s))
    events += _stages(timeline, begin_s)
    events += _counters(runs, begin_s)
    about = {key: timeline[key] for key in ("job", "name", "user", "how", "tasks", "more_runs")}
    return {"traceEvents": events, "displayTimeUnit": "ms", "otherData": about}


def _named(what: str, pid: int, tid: int, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _ended(timeline: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for task, node, started_at_s, service_s, status in timeline["runs"]:
        end_s = started_at_s + service_s
        yield _run(timeline, task, node, started_at_s, end_s, status)


def _at_nodes(timeline: dict[str, Any]) -> Iterator[dict[str, Any]]:
    now_s = timeline["now_s"]
    for task, node, since_s in timeline["here"]:
        yield _run(timeline, task, node, now_s if since_s is None else since_s, now_s, "at its node")


def _run(timeline: dict[str, Any], task: int, node: int, start_s: float, end_s: float, status: str) -> dict[str, Any]:
    stage = next((one for one in timeline["stages"] if 0 <= task - one["first"] < one["tasks"]), None)
    reserved_at_s = stage["reserved_at_s"] if stage is not None else None
    return {
        "task": task, "node": node, "stage": stage["name"] if stage is not None else "", "status": status,
        "reserved_s": start_s if reserved_at_s is None else min(reserved_at_s, start_s),
        "start_s": start_s, "end_s": max(start_s, end_s),
    }  # fmt: skip


def _in_slots(runs: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """Each run, in the order of their starts, with the lowest number that no other at its node has at the time."""
    busy: dict[int, list[tuple[float, int]]] = {}
    free: dict[int, list[int]] = {}
    for run in runs:
        ends, slots = busy.setdefault(run["node"], []), free.setdefault(run["node"], [])
        while ends and ends[0][0] <= run["start_s"]:
            heapq.heappush(slots, heapq.heappop(ends)[1])
        slot = heapq.heappop(slots) if slots else len(ends)
        heapq.heappush(ends, (run["end_s"], slot))
        yield run, slot


def _event(run: dict[str, Any], slot: int, begin_s: float) -> Event:
    stage, waited_s = f"{run['stage']} " if run["stage"] else "", round(run["start_s"] - run["reserved_s"], 6)
    return {
        "ph": "X", "name": f"{stage}task {run['task']}", "cat": run["status"], "pid": run["node"] + 1, "tid": slot,
        "ts": _us(run["start_s"] - begin_s), "dur": _us(run["end_s"] - run["start_s"]),
        "args": {"task": run["task"], "status": run["status"], "waited_s": waited_s},
    }  # fmt: skip


def _stages(timeline: dict[str, Any], begin_s: float) -> Iterator[Event]:
    """From the time that nodes were sought for a stage to the end of the job, or now: their order shows."""
    end_s = timeline["ended_at_s"] if timeline["ended_at_s"] is not None else timeline["now_s"]
    for number, stage in enumerate(timeline["stages"]):
        if stage["reserved_at_s"] is not None:
            yield {
                "ph": "X", "name": stage["name"] or "reserved", "cat": "stage", "pid": JOB_PID, "tid": number,
                "ts": _us(stage["reserved_at_s"] - begin_s), "dur": _us(max(0.0, end_s - stage["reserved_at_s"])),
                "args": {"tasks": stage["tasks"]},
            }  # fmt: skip


def _counters(runs: list[dict[str, Any]], begin_s: float) -> Iterator[Event]:
    changes: dict[float, list[int]] = {}
    for run in runs:
        for at_s, waiting, running in ((run["reserved_s"], 1, 0), (run["start_s"], -1, 1), (run["end_s"], 0, -1)):
            change = changes.setdefault(at_s, [0, 0])
            change[0] += waiting
            change[1] += running
    waiting = running = 0
    for at_s in sorted(changes):
        waiting += changes[at_s][0]
        running += changes[at_s][1]
        counts = {"waiting": waiting, "at nodes": running}
        yield {"ph": "C", "name": "tasks", "pid": JOB_PID, "tid": 0, "ts": _us(at_s - begin_s), "args": counts}


def _us(seconds: float) -> float:
    return round(1e6 * seconds, 3)
