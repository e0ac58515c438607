"""The audit log: what it says of jobs that ran, rotation, slow disks, and that there is none unless asked for."""

import asyncio
import errno
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from frontends.synthetic.tasks import noop_job, sleep_job
from scheduler import audit
from scheduler.audit import AuditFile, JobEnded
from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py import Client, ClusterError, JobSpec, LocalCluster
from sparrow_py.errors import InvalidOption, SparrowError
from sparrow_py.wire import messages as m

pytestmark = pytest.mark.processes

Lines = list[dict[str, Any]]


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(lines: Lines, *events: str) -> Lines:
    return [line for line in lines if line["event"] in events]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lines, dict[str, Any]]:
    """The log of a scheduler that ran three jobs and refused one, and the jobs' reports."""
    directory = tmp_path_factory.mktemp("audit")
    flags = ["--audit-log", f"{directory}/deep/audit-{{port}}.jsonl"]
    reports = {}
    with LocalCluster(1, 3, slots=2, node_options=["--warm", "noop"], scheduler_options=flags) as cluster:
        with Client(cluster, user="ann") as client:
            for name, spec in (("naps", sleep_job([0.01] * 8, name="naps")), ("noops", noop_job(20, name="noops"))):
                reports[name] = client.submit_job(spec).report()
            bad = client.submit_job(JobSpec([b"\xa1x"], app="sleep", name="bad", max_attempts=1))
            reports["bad"] = bad.report()
            with pytest.raises(SparrowError):
                client.submit_job(noop_job(1, where=["gpu exists"], name="refused")).results()
        port = cluster.addresses[0].rpartition(":")[2]
    return lines_of(directory / "deep" / f"audit-{port}.jsonl"), reports


def test_times_do_not_go_back(ran: tuple[Lines, dict[str, Any]]) -> None:
    """Of what comes in, and of what goes out: the times of one frame's events are that of its arrival."""
    comes_in = ("job_arrived", "get_task", "finished", "handed_back", "node_up", "node_down")
    for lines in (of(ran[0], *comes_in), [line for line in ran[0] if line["event"] not in comes_in]):
        times = [line["at_s"] for line in lines]
        assert times == sorted(times)


def test_it_begins_with_who_writes_it(ran: tuple[Lines, dict[str, Any]]) -> None:
    assert ran[0][0]["event"] == "started"
    assert {line["node"] for line in of(ran[0], "node_up")} == {"node-0", "node-1", "node-2"}


def test_every_job_arrives_and_ends_or_is_refused(ran: tuple[Lines, dict[str, Any]]) -> None:
    arrived = {line["name"]: line for line in of(ran[0], "job_arrived")}
    assert {name: line["tasks"] for name, line in arrived.items()} == {
        "naps": [8],
        "noops": [20],
        "bad": [1],
        "refused": [1],
    }
    assert {line["user"] for line in arrived.values()} == {"ann"}
    ended = {line["job"] for line in of(ran[0], "job_ended")}
    assert ended == {arrived[name]["job"] for name in ("naps", "noops", "bad")}
    (refused,) = of(ran[0], "job_refused")
    assert refused["job"] == arrived["refused"]["job"]
    assert "gpu" in refused["reason"]


def test_every_task_is_launched_finished_and_told_as_its_report_says(ran: tuple[Lines, dict[str, Any]]) -> None:
    lines, reports = ran
    for report in reports.values():
        own = [line for line in lines if line.get("job") == report.job_id]
        launched = {line["task"]: line for line in of(own, "launched")}
        finished = {line["task"]: line for line in of(own, "finished")}
        told = {line["task"]: line for line in of(own, "task_ended")}
        assert set(launched) == set(finished) == set(told) == {task.task for task in report.tasks}
        for task in report.tasks:
            assert launched[task.task]["node"] == finished[task.task]["node"] == task.node
            assert launched[task.task]["attempt"] == finished[task.task]["attempt"]
            assert finished[task.task]["started_at_s"] == task.started_at_s
            assert finished[task.task]["service_s"] == task.service_s
            assert told[task.task]["status"] == finished[task.task]["status"] == task.status.value
            assert told[task.task]["attempts"] == task.attempts


def test_a_failed_task_has_its_error(ran: tuple[Lines, dict[str, Any]]) -> None:
    (failed,) = [line for line in of(ran[0], "finished") if line["status"] == "failed"]
    assert "number of seconds" in failed["error"]


def test_every_launch_answers_an_ask_and_no_ask_gets_more_than_its_slots(ran: tuple[Lines, dict[str, Any]]) -> None:
    asks = {(line["node"], line["ask"]): line for line in of(ran[0], "get_task")}
    answered: Counter[tuple[str, int]] = Counter()
    for line in of(ran[0], "launched"):
        answered[line["node"], line["ask"]] += 1
    for line in of(ran[0], "no_op"):
        answered[line["node"], line["ask"]] += line["count"]
    assert set(answered) <= set(asks)
    assert all(answered[key] == ask["count"] for key, ask in asks.items())


def test_reservations_are_made_for_each_job(ran: tuple[Lines, dict[str, Any]]) -> None:
    names = {line["job"]: line["name"] for line in of(ran[0], "job_arrived")}
    reserved: Counter[str] = Counter()
    for line in of(ran[0], "reserved"):
        reserved[names[line["job"]]] += line["count"]
        assert line["user"] == "ann"
    assert reserved["naps"] >= 16
    assert reserved["noops"] >= 40
    assert of(ran[0], "reservations_cancelled")


def test_probes_for_the_length_of_queues_and_their_answers(tmp_path: Path) -> None:
    flags = ["--audit-log", f"{tmp_path}/audit.jsonl", "--placement", "batch"]
    with (
        LocalCluster(1, 3, slots=2, node_options=["--warm", "noop"], scheduler_options=flags) as cluster,
        Client(cluster) as client,
    ):
        client.submit_job(noop_job(4)).results()
    lines = lines_of(tmp_path / "audit.jsonl")
    asked = Counter((line["node"], line["probe"]) for line in of(lines, "length_asked"))
    told = Counter((line["node"], line["probe"]) for line in of(lines, "length_told"))
    assert asked == told
    assert set(asked.values()) == {1}
    assert len(asked) == 3  # Eight probes of three nodes are a question for each.
    assert all(line["length"] >= 0 for line in of(lines, "length_told"))
    assert len(of(lines, "launched")) == 4
    assert {line["ask"] for line in of(lines, "launched")} == {0}


def test_every_event_is_documented(ran: tuple[Lines, dict[str, Any]]) -> None:
    text = (Path(__file__).parents[2] / "docs" / "audit-log.md").read_text()
    tags = {
        kind.__struct_config__.tag
        for kind in vars(audit).values()
        if isinstance(kind, type) and issubclass(kind, audit._Line)
    }
    for tag in tags - {None, "_Line"}:
        assert f"`{tag}`" in text, tag
    for line in ran[0]:
        for field in set(line) - {"event", "at_s"}:
            assert f"`{field}`" in text, field


def test_without_the_option_nothing_is_between_the_core_and_its_driver() -> None:
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    assert daemon.core.to_node == daemon.to_node
    assert daemon.core.to_client == daemon.to_client


def test_a_scheduler_that_cannot_write_its_log_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="audit_log"):
        LocalCluster(1, 1, scheduler_options=["--audit-log", f"{tmp_path}/file/audit.jsonl"], log_dir=tmp_path / "logs")


# ---- the file --------------------------------------------------------------------------------


async def test_a_full_file_is_renamed_over_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    for number in range(4):
        file = AuditFile(str(path), bytes_max=150)
        file.add(JobEnded(float(number), "x" * 30))
        await file.close()
    kept = [*lines_of(tmp_path / "audit.jsonl.1"), *lines_of(path)]
    assert [line["at_s"] for line in kept] == [0.0, 1.0, 2.0, 3.0]


async def test_lines_are_written_without_being_asked(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=0.0)
    file.add(JobEnded(1.0, "job"))
    while not path.read_text():
        await asyncio.sleep(0)
    assert lines_of(path) == [{"event": "job_ended", "at_s": 1.0, "job": "job"}]
    await file.close()


async def test_what_does_not_fit_the_buffer_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "BUFFER_BYTES_MAX", 100)
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=3600.0)
    for number in range(10):
        file.add(JobEnded(float(number), "x" * 60))
    file._flush()
    file.add(JobEnded(10.0, "last"))
    await file.close()
    lines = lines_of(path)
    (dropped,) = of(lines, "dropped")
    assert len(of(lines, "job_ended")) + dropped["lines"] == 11
    assert lines[-1]["job"] == "last"


async def test_lines_missing_at_the_end_are_counted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "BUFFER_BYTES_MAX", 100)
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=3600.0)
    for number in range(10):
        file.add(JobEnded(float(number), "x" * 60))
    await file.close()
    assert len(of(lines_of(path), "job_ended")) + of(lines_of(path), "dropped")[0]["lines"] == 10


async def test_a_full_disk_leaves_whole_lines_and_what_is_missing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "audit.jsonl"
    file = AuditFile(str(path), 1 << 20, flush_s=3600.0)
    write, room = os.write, 200

    def write_as_far_as_there_is_room(descriptor: int, data: memoryview) -> int:
        nonlocal room
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = write(descriptor, data[:room])
        room -= written
        return written

    monkeypatch.setattr(audit.os, "write", write_as_far_as_there_is_room)
    for number in range(10):
        file.add(JobEnded(float(number), "x" * 30))
        file._flush()
        assert file._writing is not None
        await asyncio.wait([file._writing])
    assert caplog.text.count("the audit log misses lines: [Errno 28] No space left on device") == 1
    room = 1 << 20
    file.add(JobEnded(10.0, "last"))
    await file.close()
    lines = lines_of(path)
    dropped = sum(line["lines"] for line in of(lines, "dropped"))
    assert len(of(lines, "job_ended")) + dropped == 11
    assert 0 < dropped < 10 and of(lines, "job_ended")[-1]["job"] == "last"


def test_a_file_that_cannot_be_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="audit_log"):
        AuditFile(str(tmp_path), 1 << 20)


def test_a_limit_that_cannot_be_is_named() -> None:
    with pytest.raises(InvalidOption, match="audit_log_bytes_max"):
        SchedulerOptions(audit_log_bytes_max=10)


@pytest.mark.parametrize(
    ("line_of", "message"),
    [
        (audit._refused_reservations, m.ReservationsRefused(1, 1, "x" * 900_000)),
        (audit._hand_back, m.HandBack("j", 1, "x" * 900_000)),
    ],
)
def test_reasons_of_nodes_are_cut_in_it(line_of: Any, message: m.Message) -> None:
    assert len(line_of("a", message, 0.0).reason) == m.WITHDRAWN_CHARS_MAX
