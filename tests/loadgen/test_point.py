"""Points against live daemons: counts, outcomes, the record of each task, and the audit log that the record is from."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from loadgen.__main__ import main
from loadgen.durations import Durations
from loadgen.mix import Mix, UserLoad
from loadgen.point import PointPlan, PointResult, run_point
from loadgen.recorded import EVENTS, JOBS, TASKS, read_run
from loadgen.targets import LocalTarget, Shape
from loadgen.traces import Trace, parse_lines
from sparrow_py.errors import InvalidOption
from tests.support.commands import run_main

SHAPE = Shape(nodes=4, slots=2, schedulers=2)
USERS = tuple(
    UserLoad(user=user, load=0.2, tasks=4, durations=Durations("constant", 20.0), constrained=constrained)
    for user, constrained in (("ann", 0.0), ("bob", 0.5))
)
STAGED = [
    '{"arrival_s": 0, "label": "q1", "stages": [{"name": "a", "durations_s": [0.02, 0.05], "preferred": [[0], [1, 2]]},'
    ' {"name": "b", "after": ["a"], "durations_s": [0.03]}]}',
    '{"arrival_s": 0.1, "durations_s": [0.01, 0.01, 0.01]}',
    # No node has an attribute of this name, so that the job is refused.
    '{"arrival_s": 0.2, "durations_s": [0.01], "where": ["gpu exists"]}',
]


@pytest.fixture(scope="module")
def mixed() -> PointResult:
    """Two users, two generators, two schedulers."""
    return run_point(3, PointPlan(workload=Mix(USERS, 2.0), load=0.4, shape=SHAPE, generators=2, label="mixed"))


def test_every_job_and_task_is_recorded(mixed: PointResult) -> None:
    jobs = list(Mix(USERS, 2.0).generate(1, SHAPE.nodes, SHAPE.slots))
    rows = mixed.jobs.to_pylist()
    assert mixed.jobs.schema.equals(JOBS)
    assert mixed.tasks.schema.equals(TASKS)
    assert mixed.events.schema.equals(EVENTS)
    assert [row["job"] for row in rows] == [job.number for job in jobs]
    assert [row["user"] for row in rows] == [job.user for job in jobs]
    assert Counter(row["job"] for row in mixed.tasks.to_pylist()) == {job.number: 4 for job in jobs}
    assert mixed.point.counts["jobs"] == len(jobs)
    assert mixed.point.counts["tasks"] == 4 * len(jobs)
    assert {row["status"] for row in rows} == {"finished"}
    assert mixed.point.counts["refused_jobs"] == 0


def test_no_job_is_faster_than_its_ideal(mixed: PointResult) -> None:
    for row in mixed.jobs.to_pylist():
        assert 0.018 < row["ideal_s"] <= row["response_s"]  # A sleep may be a millisecond short: the timers' grain.
        assert row["submitted_s"] >= row["due_s"]
        assert row["response_s"] == pytest.approx(row["ended_s"] - row["due_s"])


def test_the_events_of_a_task_are_in_order(mixed: PointResult) -> None:
    due_s = {row["job"]: row["due_s"] for row in mixed.jobs.to_pylist()}
    schedulers = set()
    for row in mixed.tasks.to_pylist():
        events = [row[name] for name in ("arrived_s", "reserved_s", "asked_s", "launched_s")]
        assert events == sorted(events)
        assert due_s[row["job"]] <= row["arrived_s"]
        assert row["finished_s"] == pytest.approx(row["started_s"] + row["service_s"])
        assert row["attempts"] == 1
        schedulers.add(row["scheduler"])
    assert len(schedulers) == SHAPE.schedulers


def test_the_ends_of_the_run_are_not_measured(mixed: PointResult) -> None:
    measured = mixed.jobs["measured"].to_pylist()
    jobs = len(measured)
    first, last = int(jobs * 0.1), jobs - int(jobs * 0.05)
    assert measured == [first <= index < last for index in range(jobs)]
    assert mixed.point.figures["jobs_measured"] == last - first


def test_the_schedulers_counts_agree_with_their_audit_logs(mixed: PointResult) -> None:
    counts, events = mixed.point.counts, mixed.events.to_pylist()
    noops = sum(row["count"] for row in events if row["kind"] == "noop")
    cancelled = sum(row["count"] for row in events if row["kind"] == "cancelled")
    # The logs go on until the cluster ends, a moment after the counts were read.
    assert 0 < counts["noops"] <= noops
    assert min(cancelled, counts["cancelled_reservations"]) > 0
    assert {row["user"] for row in events} <= {"ann", "bob"}
    assert counts["reservations"] + counts["pushes"] >= counts["tasks"]


def test_settings_and_processor_time(mixed: PointResult) -> None:
    point = mixed.point
    assert (point.point, point.label) == (3, "mixed")
    assert {"placement": "sparrow", "nodes": 4, "slots": 2, "schedulers": 2, "generators": 2}.items() <= (
        point.settings.items()
    )
    assert point.settings["tasks_sleep"] is True
    assert set(point.cpu_s) == {"schedulers", "node_monitors", "generators"}


@pytest.mark.rest
def test_the_paper_s_profile_is_that_of_the_daemons() -> None:
    """Two reservations for each task, all of them asked for, and nothing that came after the paper."""
    shape = Shape(nodes=4, slots=2, schedulers=2, profile="paper")
    result = run_point(0, PointPlan(workload=Mix(USERS[:1], 1.0), load=0.2, shape=shape))
    counts = result.point.counts
    assert result.point.settings["profile"] == "paper"
    assert (counts["pushes"], counts["cancelled_reservations"]) == (0, 0)
    assert counts["reservations"] == 2 * counts["tasks"] == 2 * len(result.tasks)
    assert {row["kind"] for row in result.events.to_pylist()} == {"noop"}


@pytest.mark.rest
def test_stages_and_refusals() -> None:
    trace = Trace("t", tuple(parse_lines("t", STAGED)))
    result = run_point(0, PointPlan(workload=trace, load=0.1, shape=SHAPE))
    staged, plain, refused = result.jobs.to_pylist()
    assert (staged["status"], staged["label"], staged["stages"], staged["after"]) == ("finished", "q1", 2, [[], [0]])
    assert staged["response_s"] >= staged["ideal_s"] > 0.07
    assert plain["status"] == "finished"
    assert (refused["status"], result.point.counts["refused_jobs"]) == ("refused", 1)
    rows = [row for row in result.tasks.to_pylist() if row["job"] == 0]
    assert [(row["stage"], row["stage_name"], row["task"], row["constrained"]) for row in rows] == [
        (0, "a", 0, True), (0, "a", 1, True), (1, "b", 0, False),
    ]  # fmt: skip
    nodes = ("node-0", "node-1") if rows[0]["node"].count("/") == 0 else ("node-0/0", "node-0/1")
    assert rows[0]["node"] == nodes[0], "the only node that it prefers"
    assert rows[2]["started_s"] >= max(row["finished_s"] for row in rows[:2])
    assert [row["status"] for row in result.tasks.to_pylist() if row["job"] == 2] == ["refused"]


def test_a_stage_wider_than_the_cluster_starts_no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadgen.point.LocalTarget", None)
    mix = Mix((UserLoad(load=0.5, tasks=9),), 5.0)
    with pytest.raises(InvalidOption, match="at least 9 slots"):
        run_point(0, PointPlan(workload=mix, load=0.5, shape=SHAPE))


# ---- the command -----------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    return run_main(main, capsys, "run", *arguments)


@pytest.mark.rest
def test_a_run_is_recorded_and_printed(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, printed, _ = run(
        capsys, "--preset", "fig13", "--duration", "20,10", "--jobs", "10", "--nodes", "4", "--schedulers", "2",
        "--seed", "5", "--json", "--report", str(out),
    )  # fmt: skip
    assert code == 0
    points: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines()]
    varied = ("duration_ms", "placement", "schedulers")
    assert [tuple(point["settings"][name] for name in varied) for point in points] == [
        (20.0, "sparrow", 2), (20.0, "central", 1), (10.0, "sparrow", 2), (10.0, "central", 1),
    ]  # fmt: skip
    for point in points:
        assert point["value"] >= 1
        assert point["p5"] <= point["p50"] <= point["p95"] <= point["p99"]
        assert point["settings"] | {"load": 0.25, "seed": 5, "nodes": 4, "workload": "fig13"} == point["settings"]
    recorded = read_run(out)
    assert recorded.header.preset == "fig13"
    assert recorded.header.title.endswith("; profile default")
    assert len(recorded.jobs) == 40
    assert [point.settings for point in recorded.header.points] == [point["settings"] for point in points]
    assert (out / "report.html").exists()


@pytest.mark.rest
@pytest.mark.timeout(300)  # Where nobody has compiled what the plane decides with.
def test_the_altruistic_plane_beside_drf(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Jobs of several stages end at both, and the record says which is which."""
    out = tmp_path / "out"
    flags = ("--preset", "dags", "--nodes", "5", "--slots", "2", "--jobs", "4", "--duration", "10")
    code, printed, _ = run(capsys, *flags, "--json", "--report", str(out))
    assert code == 0
    points = [json.loads(line) for line in printed.splitlines()]
    assert [point["settings"]["policy"] for point in points] == ["drf", "altruistic"]
    recorded = read_run(out)
    assert set(recorded.jobs["status"].to_pylist()) == {"finished"} and max(recorded.jobs["stages"].to_pylist()) > 1
    assert all(point["counts"]["reservations"] == 0 for point in points), "nothing is sampled"
    assert "Job by job" in (out / "report.html").read_text()


@pytest.mark.rest
def test_a_cluster_that_runs_already(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    trace.write_text("\n".join(STAGED[:2]))
    with LocalTarget(Shape(nodes=3, slots=2, schedulers=2, profile="paper"), tmp_path) as target:
        flags = [str(trace), "--scheduler", ",".join(target.addresses), "--json"]
        code, printed, _ = run(capsys, *flags)
        assert run(capsys, *flags, "--profile", "default")[0] == 2
    assert code == 0
    (point,) = [json.loads(line) for line in printed.splitlines()]
    assert point["counts"]["jobs"] == 2
    assert (point["settings"]["nodes"], point["settings"]["slots"]) == (3, 2)
    assert point["settings"]["existing_cluster"] == target.addresses
    assert point["settings"]["profile"] == "paper"
    assert set(point["cpu_s"]) == {"generators"}


BAD = [
    ([], "file"),
    (["--preset", "fig8"], "--preset: 'fig8'"),
    (["--preset", "fig9", "trace.jsonl"], "file"),
    (["--preset", "fig9", "--nodes", "2"], "at least 10 slots"),
    (["--preset", "fig9", "--load", "1.5"], "--load: 1.5"),
    (["--preset", "fig9", "--load", "x"], "--load"),
    (["--preset", "fig9", "--probe-ratio", "0.5"], "--probe-ratio: 0.5"),
    (["--preset", "fig9", "--placement", "best"], "--placement: 'best'"),
    (["--preset", "fig9", "--profile", "best"], "--profile: 'best'"),
    (["--preset", "fig9", "--scheduler", "127.0.0.1:1", "--profile", "paper,default"], "--profile"),
    (["--preset", "fig9", "--duration", "0"], "--duration: 0"),
    (["--preset", "fig9", "--generators", "0"], "--generators: 0"),
    (["--preset", "fig9", "--schedulers", "0"], "--schedulers: 0"),
    (["--preset", "fig9", "--jobs", "0"], "--jobs: 0"),
    (["--preset", "fig9", "--seconds", "-1"], "--seconds: -1"),
    (["--preset", "fig9", "--scheduler", "here"], "--scheduler: 'here'"),
    (["--preset", "fig9", "--scheduler", "127.0.0.1:1", "--placement", "batch,random"], "--placement"),
    (["--preset", "fig12", "--load", "0.5"], "--load: 0.5"),
    (["--preset", "fig9", "--report", "{tmp}/file"], "--report"),
    (["--preset", "fig9", "--report", "{tmp}"], "--report"),
    (["{tmp}/missing.jsonl"], "missing.jsonl"),
    (["{tmp}/file"], "file:2:"),
    (["{tmp}/back"], "back:2"),
    (["{tmp}/good", "--duration", "5"], "--duration: 5"),
    (["{tmp}/far"], "preferred: 7"),
]


@pytest.mark.parametrize(("arguments", "named"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_bad_input_is_one_line_and_nothing_is_started(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    named: str,
) -> None:
    monkeypatch.setattr("loadgen.point.LocalTarget", None)
    files = {
        "file": "0 1 1 1\n{",
        "back": "1 1 1 1\n0 1 1 1",
        "good": "0 1 1 1",
        "far": '{"arrival_s": 0, "durations_s": [1], "preferred": [[7]]}',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = [argument.replace("{tmp}", str(tmp_path)) for argument in arguments]
    code, out, err = run(capsys, *given, *(["--nodes", "5"] if "far" in given[0] else []) if given else ())
    assert code == 2
    assert out == ""
    assert err.startswith("loadgen: ")
    assert len(err.splitlines()) == 1
    assert named in err
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(files)


def test_a_missing_profile_is_an_error_of_one_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("loadgen.tpch.PROFILE", tmp_path / "tpch.json")
    code, _, err = run(capsys, "--preset", "fig10")
    assert code == 2
    assert "tpch.json" in err
    assert len(err.splitlines()) == 1
