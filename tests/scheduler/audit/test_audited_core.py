"""What the audit log says of jobs that ran, and that there is no log unless one is asked for."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from frontends.synthetic.tasks import noop_job, sleep_job
from scheduler.daemon import SchedulerDaemon
from scheduler.options import SchedulerOptions
from sparrow_py import Client, ClusterError, JobSpec, LocalCluster
from sparrow_py.errors import SparrowError

pytestmark = pytest.mark.processes

Lines = list[dict[str, Any]]


def lines_of(path: Path) -> Lines:
    return [json.loads(line) for line in path.read_text().splitlines()]


def of(lines: Lines, *events: str) -> Lines:
    return [line for line in lines if line["event"] in events]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lines, dict[str, Any]]:
    """The log of a scheduler that ran three jobs, with probes for each task, and refused one; and the jobs' reports."""
    directory = tmp_path_factory.mktemp("audit")
    flags = ["--audit-log", f"{directory}/audit-{{port}}.jsonl", "--no-push-to-idle"]
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
    return lines_of(directory / f"audit-{port}.jsonl"), reports


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


def test_of_tasks_that_come_one_after_the_other_to_an_idle_node_each_but_perhaps_the_first_is_pushed(
    tmp_path: Path,
) -> None:
    flags = ["--audit-log", f"{tmp_path}/audit.jsonl"]
    with (
        LocalCluster(1, 1, slots=2, node_options=["--warm", "noop"], scheduler_options=flags) as cluster,
        Client(cluster) as client,
    ):
        reports = [client.submit_job(noop_job(1)).report() for _ in range(5)]
    lines = lines_of(tmp_path / "audit.jsonl")
    pushed = {line["job"]: line for line in of(lines, "pushed")}
    assert set(pushed) >= {report.job_id for report in reports[1:]}
    finished = {line["job"]: line["attempt"] for line in of(lines, "finished")}
    assert all(finished[job] == line["attempt"] for job, line in pushed.items())
    assert not {line["attempt"] for line in of(lines, "handed_back")} & set(finished.values())


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


def test_without_the_option_nothing_is_between_the_core_and_its_driver() -> None:
    daemon = SchedulerDaemon(SchedulerOptions(port=0))
    assert daemon.core.book.ledger.to_node == daemon.to_node
    assert daemon.core.book.deliveries._send == daemon.to_client


def test_a_scheduler_that_cannot_write_its_log_does_not_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ClusterError, match="audit_log"):
        LocalCluster(1, 1, scheduler_options=["--audit-log", f"{tmp_path}/file/audit.jsonl"], log_dir=tmp_path / "logs")
