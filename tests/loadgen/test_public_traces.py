"""Readers of Google's and Alibaba's formats, on small files; and the commands that write our own from them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner

from loadgen.__main__ import main
from loadgen.google_trace import (
    MachineEventType,
    TaskEventType,
    jobs_of,
    read_google_trace,
    read_job_events,
    read_machine_events,
    read_task_events,
)
from loadgen.openb_trace import read_nodes, read_openb_trace, read_pods
from loadgen.traces import read_trace
from sparrow_py.errors import InvalidOption

TASKS = """\
0,2,7,0,11,0,alice,3,9,0.125,0.07,0.0004,1
600000000,,7,0,11,1,alice,3,9,0.125,0.07,0.0004,1
601000000,,8,0,,0,bob,0,1,,,,
602000000,,8,1,,0,bob,0,1,0.5,0.1,,0
603000000,,8,0,12,1,bob,0,1,,,,
604000000,,8,0,12,2,bob,0,1,,,,
604000000,,8,0,,0,bob,0,1,,,,
605000000,,8,0,11,1,bob,0,1,,,,
635500000,,8,0,11,4,bob,0,1,,,,
700000000,,7,0,11,8,alice,3,9,0.25,0.07,0.0004,1
9223372036854775807,,7,0,11,5,alice,3,9,0.25,0.07,0.0004,1
"""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
openb-pod-0000,12000,16384,1,1000,,LS,Running,0,500,0
openb-pod-0001,6000,12288,1,460,V100M16|V100M32,BE,Succeeded,10,40.5,12
openb-pod-0002,6000,12288,0,0,,Burstable,Pending,20,,
openb-pod-0003,6000,12288,0,,nan,Burstable,Running,5,,30
"""
NODES = "sn,cpu_milli,memory_mib,gpu,model\nopenb-node-0000,64000,262144,2,P100\nopenb-node-0001,32000,262144,0,nan\n"


def written(path: Path, text: str) -> Path:
    if path.name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text)
    return path


def test_googles_tasks_become_jobs(tmp_path: Path) -> None:
    """A task that was evicted lasts as long as its last run; one that still runs, until the last event; one that never
    started is no task; what came after the trace's end is unknown."""
    service, batch = read_google_trace(written(tmp_path / "t.csv.gz", TASKS))
    assert (service.number, service.user, service.label, service.arrival_s) == (0, "alice", "service", 0.0)
    assert list(service.durations_s) == [100.0]
    assert (batch.number, batch.user, batch.label, batch.arrival_s) == (1, "bob", "batch", 601.0)
    assert list(batch.durations_s) == [30.5]


def test_googles_other_tables(tmp_path: Path) -> None:
    machines = written(tmp_path / "m.csv", "0,5,0,HofL=,0.5,0.2493\n900000000,5,1,HofL=,,\n")
    first, second = read_machine_events(machines)
    assert (first.machine, first.type, first.cpus, first.memory) == (5, MachineEventType.ADD, 0.5, 0.2493)
    assert (second.at_s, second.type, second.cpus) == (900.0, MachineEventType.REMOVE, None)
    (job,) = read_job_events(written(tmp_path / "j.csv", "600000000,,3418309,0,70s3v5,3,IHgtoxEB,wAwsaQ==\n"))
    assert (job.at_s, job.job, job.type, job.user, job.scheduling_class) == (
        600.0, 3418309, TaskEventType.SUBMIT, "70s3v5", 3,
    )  # fmt: skip
    task = next(read_task_events(written(tmp_path / "t.csv", TASKS)))
    assert (task.machine, task.priority, task.cpus, task.memory) == (11, 9, 0.125, 0.07)


def test_a_directory_of_parts_is_read_in_order(tmp_path: Path) -> None:
    lines = TASKS.splitlines(keepends=True)
    written(tmp_path / "part-00001-of-00002.csv.gz", "".join(lines[5:]))
    written(tmp_path / "part-00000-of-00002.csv.gz", "".join(lines[:5]))
    assert len(jobs_of(read_task_events(tmp_path))) == 2


@pytest.mark.parametrize(
    "line, message",
    [
        ("x,,8,0,,0,bob,0,1,,,,", r"t\.csv:2 time: 'x' is not valid; allowed: a whole number from 0"),
        ("1,,8,0,,9,bob,0,1,,,,", r"t\.csv:2 event_type: '9'.*from 0 to 8"),
        ("1,,8,0,,0,bob,0,1,2.5,,,", r"t\.csv:2 cpu_request: '2.5'.*a number from 0 to 1"),
        ("1,,8,0,,0,bob,0,1,nope,,,", r"t\.csv:2 cpu_request: 'nope'"),
        ("1,,,0,,0,bob,0,1,,,,", r"t\.csv:2 job_id: ''"),
        ("1,,8,0", r"t\.csv:2: '4 fields'.*13 fields: time, missing_info"),
    ],
)
def test_errors_name_file_line_and_field(tmp_path: Path, line: str, message: str) -> None:
    path = written(tmp_path / "t.csv", TASKS.splitlines()[0] + "\n" + line + "\n")
    with pytest.raises(InvalidOption, match=message):
        read_google_trace(path)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="No such file"):
        read_google_trace(tmp_path / "none.csv")
    torn = tmp_path / "torn.csv.gz"
    torn.write_bytes(gzip.compress(TASKS.encode())[:-20])
    with pytest.raises(InvalidOption, match=r"torn\.csv\.gz"):
        read_google_trace(torn)
    with pytest.raises(InvalidOption, match="a directory with files"):
        read_google_trace(_empty(tmp_path))
    with pytest.raises(InvalidOption, match="at least one task that starts"):
        read_google_trace(written(tmp_path / "nothing.csv", ""))


def _empty(tmp_path: Path) -> Path:
    (tmp_path / "empty").mkdir()
    return tmp_path / "empty"


def test_openb_pods_become_jobs_of_one_task(tmp_path: Path) -> None:
    path = written(tmp_path / "pods.csv", PODS)
    first, third, second = read_openb_trace(path)
    assert [job.arrival_s for job in (first, third, second)] == [0.0, 5.0, 10.0]
    assert [list(job.durations_s) for job in (first, third, second)] == [[500.0], [470.0], [28.5]]
    assert [job.label for job in (first, third, second)] == ["LS", "Burstable", "BE"]
    pods = {pod.name: pod for pod in read_pods(path)}
    assert pods["openb-pod-0001"].models == ("V100M16", "V100M32") and pods["openb-pod-0003"].models == ()
    assert pods["openb-pod-0002"].scheduled_s is None and pods["openb-pod-0001"].gpu_milli == 460


def test_openb_nodes(tmp_path: Path) -> None:
    with_gpus, without = read_nodes(written(tmp_path / "nodes.csv", NODES))
    assert (with_gpus.name, with_gpus.cpu_milli, with_gpus.gpus, with_gpus.model) == (
        "openb-node-0000", 64_000, 2, "P100",
    )  # fmt: skip
    assert (without.gpus, without.model) == (0, "")


def test_openb_errors_name_file_line_and_field(tmp_path: Path) -> None:
    wrong = written(tmp_path / "p.csv", PODS.replace("40.5", "3"))
    with pytest.raises(InvalidOption, match=r"p\.csv:3 deletion_time: '3'.*from 12 on"):
        read_openb_trace(wrong)
    with pytest.raises(InvalidOption, match=r"q\.csv:1 gpu_spec: .*the columns name, cpu_milli"):
        read_openb_trace(written(tmp_path / "q.csv", PODS.replace("gpu_spec", "spec")))


def test_commands_write_traces_of_our_own_format(tmp_path: Path) -> None:
    def jobs(*words: str) -> int:
        out = str(tmp_path / "out.jsonl")
        done = CliRunner().invoke(main, ["trace", *words, "--out", out])
        assert done.exit_code == 0, done.output
        return read_trace(out).jobs

    assert jobs("google", str(written(tmp_path / "t.csv", TASKS))) == 2
    assert jobs("openb", str(written(tmp_path / "pods.csv", PODS))) == 3
    assert jobs("google-like", "--machines", "50", "--seconds", "120") > 3
