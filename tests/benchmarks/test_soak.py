"""The soak's own parts: what it takes for a violation, its plan, and the network that fails."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from benchmarks.soak import checks, plan
from benchmarks.soak.network import Network
from benchmarks.soak.watch import Sample, Watch
from tests.support.waiting import TIMEOUT_S

LIFE = {"event": "life"}
DONE = {"event": "done", "suppressed": 0}


def submitted(job: str = "j", kind: str = "work", max_attempts: int = 3) -> dict[str, Any]:
    return {"event": "submitted", "job": job, "kind": kind, "max_attempts": max_attempts}


def ended(job: str = "j", kind: str = "work", **changes: Any) -> dict[str, Any]:
    line = {
        "event": "ended", "job": job, "kind": kind, "lasted_s": 1.0, "max_attempts": 3, "tasks": 2, "untold": 0,
        "told_again": {}, "accepted": 1, "statuses": {"finished": 2}, "attempts": [1, 1], "lost": [], "lost_early": 0,
        "wrong": [], "results_lost": [],
    }  # fmt: skip
    return {**line, **changes}


def test_what_went_well_is_no_violation() -> None:
    lines = [LIFE, submitted(), ended(attempts=[1, 2]), submitted("k"), {"event": "refused", "job": "k"}, DONE]
    sums = checks.tally([lines], Counter({("j", 0): 1, ("j", 1): 2}))
    assert not sums.violations
    assert (sums.jobs, sums.tasks, sums.retries, sums.refused_jobs, sums.lost) == (1, 2, 1, 1, 0)


@pytest.mark.parametrize(
    ("lines", "violation"),
    [
        ([submitted()], "has not ended"),
        ([submitted(), ended(), ended()], "ended twice"),
        ([submitted(), ended(), {"event": "ended twice", "job": "j"}], "said to have ended twice"),
        ([submitted(), ended(untold=1)], "1 tasks have no outcome"),
        ([submitted(), ended(told_again={"0": 2})], "told again"),
        ([submitted(), ended(accepted=2)], "accepted 2 times"),
        ([submitted(), ended(statuses={"lost": 1}, lost=[[0, 1, "why"]], lost_early=1)], "lost while attempts remain"),
        ([submitted(), ended(attempts=[4, 1])], "4 attempts"),
        ([submitted(), ended(wrong=["task 0 has a wrong result"])], "wrong result"),
    ],
)
def test_what_must_not_be_is_found(lines: list[dict[str, Any]], violation: str) -> None:
    (found,) = checks.tally([[LIFE, *lines, DONE]], Counter()).violations
    assert violation in found


def test_jobs_of_a_client_that_was_killed_are_nobodys() -> None:
    sums = checks.tally([[LIFE, submitted(), LIFE, submitted("k"), ended("k"), DONE]], Counter())
    assert not sums.violations and sums.forsaken_jobs == 1


def test_tasks_that_were_lost_as_they_may_be_are_counted_apart() -> None:
    once = ended("k", max_attempts=1, statuses={"finished": 1, "lost": 1}, lost=[[0, 1, "node n was lost"]])
    often = ended(statuses={"lost": 2}, attempts=[3, 3], lost=[[0, 3, "why"], [1, 3, "why"]])
    sums = checks.tally([[LIFE, submitted("k", max_attempts=1), once, submitted(), often, DONE]], Counter())
    assert not sums.violations
    assert (sums.lost_at_most_once, sums.lost_out_of_attempts, sums.lost) == (1, 2, 0)


def test_starts_beyond_what_is_allowed() -> None:
    lines = [LIFE, submitted(), ended(), submitted("once", max_attempts=1), ended("once"), submitted("s", "slow"),
             ended("s", "slow"), DONE]  # fmt: skip
    assert not checks.tally([lines], Counter({("j", 0): 3, ("s", 0): 6})).violations
    for starts in ({("once", 0): 2}, {("j", 0): 4}):
        sums = checks.tally([lines], Counter(starts))
        assert len(sums.violations) == 1 and sums.duplicated == 1
    (found,) = checks.tally([lines], Counter({("unknown", 0): 1})).violations
    assert "which nobody submitted" in found


def test_what_is_left_at_daemons() -> None:
    metrics = (
        "# HELP\nsparrow_scheduler_jobs 1.0\nsparrow_scheduler_unplaced_tasks 0.0\nsparrow_scheduler_clients 0.0\n"
    )
    node = {"id": "n", "busy": 0, "reservations": 3}
    left = checks.left_at_scheduler("s", metrics, [{"id": "j"}], [node])
    assert [line.partition(": ")[2][:12] for line in left] == ["sparrow_sche", "1 jobs: [{'i", "0 busy and 3"]
    metrics = "sparrow_node_monitor_queued_reservations 0.0\nsparrow_node_monitor_blobs 2.0\n"
    node = {"slots": 2, "free_slots": 1, "queued_by_user": {"ada": 1}, "schedulers": ["s"]}
    assert len(checks.left_at_node("n", metrics, [node], 2)) == 4
    idle = {"slots": 2, "free_slots": 2, "queued_by_user": {}, "schedulers": ["s", "t"]}
    assert checks.left_at_node("n", metrics.replace("2.0", "0.0"), [idle], 2) == []


def test_tracebacks_in_logs(tmp_path: Path) -> None:
    log = tmp_path / "node-1.log"
    log.write_text('INFO fine\nTraceback (most recent call last):\n  File "x", line 1\nValueError: no\nINFO fine\n')
    assert checks.tracebacks(log) == ["node-1: ValueError: no"]


@pytest.mark.parametrize(
    ("rss", "descriptors", "violations"),
    [((100, 104), (20, 20), 0), ((100, 106), (20, 20), 1), ((100, 90), (20, 40), 1), ((100, 100), (20, 30), 0)],
)
def test_memory_that_is_not_flat(rss: tuple[int, int], descriptors: tuple[int, int], violations: int) -> None:
    watch = Watch()
    for at_s in range(200):
        late = at_s >= 150
        watch.samples["n"].append(Sample(at_s, 7, rss[late], descriptors[late]))
    kept = watch.kept("n", 200.0)
    assert kept is not None and len(kept.violations()) == violations
    watch.samples["n"].append(Sample(199.5, 7, 100, 20))
    kept = watch.kept("n", 200.0)
    assert kept is not None and not any("descriptors" in found for found in kept.violations()), "they come and go"
    watch.samples["n"].append(Sample(199.7, 8, 100, 20))
    assert watch.kept("n", 200.0) is None, "it was another process meanwhile"


def test_a_seed_is_a_plan() -> None:
    first, second = (plan.draw(7, 600, 1.5, 3.0) for _ in range(2))
    assert first == second != plan.draw(8, 600, 1.5, 3.0)
    assert 300 < len(first) < 500 and all(0 < fault.at_s < 600 for fault in first)
    counts = Counter(fault.kind for fault in first)
    assert set(counts) == set(plan.DECK) and counts["kill-node"] > 2 * counts["kill-scheduler"]
    for fault in first:  # A peer that is silent for one and a half heartbeats is dead.
        if fault.kind.endswith("-briefly"):
            assert fault.lasts_s < 3.0
        elif fault.kind.startswith(("stop-", "stall-", "isolate-")):
            assert fault.lasts_s > 4.5


async def test_a_network_that_fails() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    network = Network()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(TIMEOUT_S):
        host, _, wire_port = (await network.connect("n", "s", f"127.0.0.1:{port}")).rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(wire_port))
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        (wire,) = network.of(peer="n")
        wire.stall()
        writer.write(b"two")
        late_reader, late_writer = await asyncio.open_connection(host, int(wire_port))
        late_writer.write(b"late")
        for read in (reader, late_reader):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read.read(1), 0.05)
        network.heal()
        assert await reader.readexactly(3) == b"two", "what was held back comes"
        assert await late_reader.readexactly(4) == b"late"
        wire.drop()
        with pytest.raises(ConnectionError):
            assert not await reader.read(1)
            raise ConnectionResetError
        await network.close()
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection(host, int(wire_port))
        for each in (writer, late_writer):
            each.close()
        server.close()
        await server.wait_closed()
