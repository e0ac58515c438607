"""The soak's own parts: its plan, its numbers, and the network that fails; its oracle is that of chaos."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from benchmarks.laboratory import cluster as checks
from benchmarks.laboratory.evidence import Evidence, Program, Run
from benchmarks.laboratory.faults import Happened, Kind
from benchmarks.laboratory.jobs import Job, Stage, Task, Way
from benchmarks.laboratory.told import Event, Told
from benchmarks.laboratory.wires import Wires
from benchmarks.soak import plan
from benchmarks.soak.run import counts
from benchmarks.soak.watch import Sample, Watch
from tests.support.waiting import TIMEOUT_S

SIZE = plan.Size(schedulers=3, nodes=12, clients=4, heartbeat_s=3.0, retention_s=3.0, veterans=False)


def job(name: str, max_attempts: int = 3) -> Job:
    tasks = tuple([Task(duration_s=0.1)] * 2)
    return Job(name=name, user="ada", way=Way.CALLS, at_s=0.0, stages=(Stage(tasks=tasks),), max_attempts=max_attempts)


def lost(name: str, task: int, attempts: int) -> Told:
    return Told(event=Event.OUTCOME, at_ns=9, job=name, task=task, status="lost", attempts=attempts, error="why")


def soaked(*lines: Told, over: bool = True, runs: tuple[Run, ...] = ()) -> Evidence:
    """One client with a job `j`, and one `once` that may start once."""
    jobs = {"j": job("j"), "once": job("once", 1)}
    submitted = [Told(event=Event.SUBMITTED, at_ns=1, job=name) for name in jobs]
    end = [Told(event=Event.OVER, at_ns=99, suppressed=2)] if over else []
    program = Program("client-0", 0, (*submitted, *lines, *end))
    return Evidence({"node-0": 2}, jobs, [program], list(runs), [Happened(2, Kind.KILL_NODE, "node-0")])


def test_tasks_that_were_lost_as_they_may_be_are_counted_apart() -> None:
    numbers = counts(soaked(lost("j", 0, 3), lost("j", 1, 3), lost("once", 0, 1), lost("once", 1, 1)))
    assert (numbers["lost"], numbers["lost with max_attempts=1"], numbers["lost after max_attempts starts"]) == (
        0,
        2,
        2,
    )
    assert numbers["second outcomes suppressed"] == 2
    assert counts(soaked(lost("j", 0, 3), lost("j", 1, 2), lost("once", 0, 1), lost("once", 1, 1)))["lost"] == 1
    assert counts(soaked(lost("j", 0, 3), lost("once", 0, 1), lost("once", 1, 1)))["lost"] == 1, "one has no outcome"


def test_what_comes_twice_is_counted() -> None:
    lines = [lost("j", 0, 3), lost("j", 1, 3), lost("once", 0, 1), lost("once", 1, 1)]
    assert counts(soaked(*lines, lines[0]))["duplicated"] == 1
    assert counts(soaked(*lines, Told(event=Event.TWICE, at_ns=9, job="j", error="ended, twice")))["duplicated"] == 1
    starts = [Run("once", 0, pid, pid, pid + 1, "node-0+0") for pid in (7, 8)]
    assert counts(soaked(*lines, runs=tuple(starts)))["duplicated"] == 1


def test_jobs_of_a_client_that_was_killed_are_nobodys() -> None:
    numbers = counts(soaked(lost("j", 0, 3), over=False))
    assert numbers["lost"] == 0 and numbers["jobs of clients that were killed"] == 2


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
    first, second = (plan.draw(7, 600, 1.5, SIZE) for _ in range(2))
    assert first == second != plan.draw(8, 600, 1.5, SIZE)
    *faults, upgrade = first
    assert upgrade.kind is Kind.UPGRADE and len(upgrade.targets) == SIZE.schedulers + SIZE.nodes
    assert 300 < len(faults) < 500 and all(0 < fault.at_s < 600 for fault in faults)
    kinds = Counter(fault.kind for fault in faults)
    assert set(kinds) == set(plan.DECK) and kinds[Kind.KILL_NODE] > 2 * kinds[Kind.KILL_SCHEDULER]
    for fault in faults:  # A peer that is silent for one and a half heartbeats is dead.
        if fault.kind.startswith(("stop-", "stall-", "isolate-")):
            assert fault.lasts_s > 4.5 or (fault.kind in plan.BRIEFLY and fault.lasts_s < 3.0)


def test_veterans_are_upgraded_first_and_once() -> None:
    size = plan.Size(**{**vars(SIZE), "veterans": True})
    first, second = [fault for fault in plan.draw(7, 600, 1.5, size) if fault.kind is Kind.UPGRADE]
    spared = plan.veterans(size)
    assert set(first.targets[:5]) == spared - {"client-0"} and not spared & set(second.targets)


async def test_a_network_that_fails() -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    network = Wires()
    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(TIMEOUT_S):
        (address,) = network.ways("n", {"s": f"127.0.0.1:{port}"})
        assert list(network.ways("n", {"s": f"127.0.0.1:{port}"})) == [address], "it has not moved"
        host, _, wire_port = address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(wire_port))
        writer.write(b"one")
        assert await reader.readexactly(3) == b"one"
        network.cut("n", "s")
        writer.write(b"two")
        late_reader, late_writer = await asyncio.open_connection(host, int(wire_port))
        late_writer.write(b"late")
        for read in (reader, late_reader):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(read.read(1), 0.05)
        network.heal("s")
        assert await reader.readexactly(3) == b"two", "what was held back comes"
        assert await late_reader.readexactly(4) == b"late"
        network.reset("n")
        with pytest.raises(ConnectionError):
            assert not await reader.read(1)
            raise ConnectionResetError
        network.close()
        with pytest.raises(OSError, match="Connect"):
            await asyncio.open_connection(host, int(wire_port))
        for each in (writer, late_writer):
            each.close()
        server.close()
        await server.wait_closed()
