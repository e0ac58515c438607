"""`sparrow top` and `sparrow trace`: what they make of what schedulers answer."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from frontends.cli import watching
from frontends.cli.__main__ import main
from frontends.cli.chrome_trace import chrome_trace
from frontends.cli.top import key_pressed
from frontends.cli.top_view import JOBS, NODES, USERS, Choice, screen
from tests.support.pretended_cluster import PretendedCluster

JOB = {
    "id": "j1", "name": "", "user": "ada", "app": "noop", "state": "running", "tasks": 12_000, "unplaced": 11_000,
    "running": 40, "finished": 960, "failed": 1, "cancelled": 7, "lost": 2, "submitted_at_s": 100.0, "ended_at_s": None,
}  # fmt: skip
GONE = JOB | {
    "id": "j2",
    "name": "a [b]name[/b]\x1b[31m that is long",
    "user": "bob",
    "state": "ended",
    "ended_at_s": 103.0,
}
SPAN = {
    "job_s": {"p50": 1.25, "p90": 2.0, "p99": 130.0},
    "wait_s": {"p50": 0.0004, "p90": 0.02, "p99": 0.5},
    "service_s": None,
}
STATE = {
    "now_s": 110.0, "address": "127.0.0.1:1", "nodes": 3, "slots": 12, "busy": 5, "unplaced": 11_000, "jobs_here": 1,
    "rates": {"launched": 30.0, "noops": 10.0, "retries": 0.5}, "why_not": "", "span": SPAN,
    "users": [
        {"user": "ada", "weight": 3.0, "busy": 5, "due": 9.0, "waiting": 2},
        {"user": "", "weight": None, "busy": 1, "due": 3.0, "waiting": 7},
    ],
    "found": {"jobs": [JOB, GONE]},
}  # fmt: skip
NODE = {"id": "n1", "state": "ready", "slots": 4, "busy": 1, "reservations": 2}


def lines(
    *states: dict[str, Any], choice: Choice | None = None, nodes: Any = (), rows_max: int | None = None
) -> list[str]:
    console = Console(width=80, force_terminal=False, record=True, file=None, quiet=False)
    with console.capture() as captured:
        console.print(screen(states or (STATE,), nodes, choice or Choice(), rows_max))
    return captured.get().rstrip("\n").split("\n")


def test_all_of_it_fits_eighty_columns_and_names_are_text() -> None:
    shown = lines()
    assert max(map(len, shown)) <= 80
    assert shown[1].rstrip() == "3 nodes, slots 5 of 12, 11,000 tasks wait, 1 job"
    assert shown[2].rstrip() == "30.0 starts/s, no-ops 25 %, 0.5 retries/s"
    assert shown[3].rstrip() == "jobs:  p50 1.25 s, p90 2 s, p99 2 min"
    assert shown[4].rstrip() == "waits: p50 0.4 ms, p90 20 ms, p99 500 ms"
    assert shown[-2].split() == ["j1", "ada", "running", "12,000", "11,000", "40", "960", "3", "7", "10", "s"]
    assert shown[-1].startswith("a [b]name[/b]\\x1b[3…")


def test_schedulers_are_added_up() -> None:
    other = STATE | {"address": "127.0.0.1:2", "why_not": "draining", "found": {"jobs": []}, "span": None}
    shown = lines(STATE, other, choice=Choice(USERS))
    assert "2 schedulers: 127.0.0.1:1, 127.0.0.1:2" in shown[0]
    assert shown[1].rstrip() == "3 nodes, slots 10 of 12, 22,000 tasks wait, 2 jobs"
    assert "127.0.0.1:2 takes no jobs: draining" in [line.rstrip() for line in shown]
    assert [line.split() for line in shown[-2:]] == [
        ["ada", "10", "9", "4", "3"],
        ["(all", "others)", "2", "3", "14"],
    ]


@pytest.mark.parametrize(
    ("sent", "keys"),
    [(b"q", ["q"]), (b"ns", ["n", "s"]), (b"\x1b", ["\x1b"]), (b"\x1b[A", [""]), (b"\x1bOB", [""]), (b"", [""])],
)
def test_arrows_are_no_key_of_its_own(sent: bytes, keys: list[str]) -> None:
    """Their first byte is Escape's, which ends it."""
    reading, writing = os.pipe()
    try:
        os.write(writing, sent)
        assert [key_pressed(reading, 0.0) for _ in keys] == keys
    finally:
        os.close(reading)
        os.close(writing)


def test_keys_choose_view_and_order() -> None:
    choice = Choice()
    assert choice.pressed("n").view == NODES
    assert choice.pressed("x") is choice
    by_first = choice.pressed("s")
    assert by_first.sort[JOBS] == "label"
    assert [line.split()[0] for line in lines(choice=by_first)[-2:]] == ["a", "j1"]
    assert [line.split()[0] for line in lines(choice=by_first.pressed("r"))[-2:]] == ["j1", "a"]
    for _ in range(10):
        by_first = by_first.pressed("s")
    assert by_first.sort[JOBS] == ""
    nodes = [NODE, NODE | {"id": "n2", "busy": 4}]
    assert [line.split()[0] for line in lines(choice=Choice(NODES), nodes=nodes)[-2:]] == ["n2", "n1"]
    assert lines(choice=Choice(NODES), nodes=nodes, rows_max=1)[-1].strip() == "1 more"


TIMELINE = {
    "job": "j", "name": "", "user": "ada", "how": "", "tasks": 5, "more_runs": 0, "submitted_at_s": 100.0,
    "ended_at_s": None, "now_s": 104.0, "nodes": ["n1", "n2"],
    "stages": [
        {"name": "map", "first": 0, "tasks": 4, "reserved_at_s": 100.5},
        {"name": "reduce", "first": 4, "tasks": 1, "reserved_at_s": None},
    ],
    "runs": [[0, 0, 101.0, 2.0, "finished"], [1, 0, 101.5, 0.5, "failed"], [2, 0, 102.0, 1.0, "finished"]],
    "here": [[3, 1, 103.0], [1, 1, None]],
}  # fmt: skip


def test_a_trace_has_slots_waits_and_counts() -> None:
    trace = chrome_trace(TIMELINE)
    events = trace["traceEvents"]
    runs = {event["name"]: event for event in events if event["ph"] == "X" and event["cat"] != "stage"}
    assert {(name, run["pid"], run["tid"], run["ts"], run["dur"]) for name, run in runs.items()} == {
        ("map task 0", 1, 0, 1e6, 2e6),
        ("map task 2", 1, 1, 2e6, 1e6),  # In the slot that task 1 had before.
        ("map task 3", 2, 0, 3e6, 1e6),
        ("map task 1", 2, 0, 4e6, 0.0),  # It came after the last look.
    }
    assert runs["map task 2"]["args"] == {"task": 2, "status": "finished", "waited_s": 1.5}
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {0: "job j", 1: "n1", 2: "n2"}
    (stage,) = [event for event in events if event.get("cat") == "stage"]
    assert (stage["name"], stage["ts"], stage["dur"]) == ("map", 5e5, 3.5e6)
    counts = [(event["ts"], *event["args"].values()) for event in events if event["ph"] == "C"]
    assert counts[0] == (5e5, 5, 0)
    assert counts[-1][1] == 0


@pytest.fixture
async def cluster() -> AsyncIterator[PretendedCluster]:
    daemon = PretendedCluster()
    await daemon.start()
    yield daemon
    await daemon.stop()


async def sparrow(cluster: PretendedCluster, *words: str) -> Result:
    return await asyncio.to_thread(CliRunner().invoke, main, [*words, "-s", cluster.address])


async def test_the_commands_ask_a_scheduler(cluster: PretendedCluster, tmp_path: Path) -> None:
    cluster.submit(3, job="shown", name="sweep")
    await cluster.until(lambda: not cluster.core.jobs)
    once = await sparrow(cluster, "top", "--once")
    assert (once.exit_code, "sweep" in once.output) == (0, True)
    nodes = await sparrow(cluster, "top", "--once", "--view", "nodes", "--sort", "node")
    assert "node-0002:20504" in nodes.output
    assert "sweep" not in (await sparrow(cluster, "top", "--once", "--search", "other")).output
    wrong = await sparrow(cluster, "top", "--once", "--sort", "colour")
    assert wrong.exit_code == 2
    out = tmp_path / "job.json"
    assert (await sparrow(cluster, "trace", "shown", "--out", str(out))).exit_code == 0
    assert len([event for event in json.loads(out.read_text())["traceEvents"] if event["ph"] == "X"]) == 4
    gone = await sparrow(cluster, "trace", "never", "--out", str(tmp_path / "none.json"))
    assert (gone.exit_code, (tmp_path / "none.json").exists()) == (1, False)


async def test_a_table_is_printed_again_and_again(cluster: PretendedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if len(slept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(watching.time, "sleep", sleep)
    watched = await sparrow(cluster, "nodes", "--watch", "0.5")
    assert (watched.exit_code, watched.output.count("node-0001:20504"), slept) == (0, 3, [0.5, 0.5, 0.5])
    assert (await sparrow(cluster, "nodes", "--watch", "0")).exit_code == 2
