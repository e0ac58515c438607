"""`python -m simulator run`: its output, its bytes, and what it says of bad input."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

from scheduler.options import SchedulerOptions
from simulator.__main__ import main
from simulator.commands import run as run_module
from simulator.hosts import SimulationError
from simulator.policies import POLICIES, Settings
from simulator.simulate import simulate
from tests.support.commands import run_main
from tests.support.suites import rest_after

SMALL = ["--nodes", "20", "--tasks", "4", "--jobs", "30"]
TRACE = """\
{"arrival_s": 0, "durations_s": [0.1, 0.2], "user": "ann"}
{"arrival_s": 0.5, "durations_s": [0.1, 0.3], "user": "bob"}
{"arrival_s": 2, "durations_s": [0.4], "user": "ann"}
"""


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, standard output and standard error."""
    return run_main(main, capsys, "run", *arguments)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text(TRACE)
    return path


# ---- output ----------------------------------------------------------------------------------


def test_a_table_with_a_row_for_each_policy(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SMALL, "--policy", "sparrow,batch,per-task,random,central-daemon,central")
    assert code == 0
    for policy in POLICIES:
        if policy in ("sparrow", "batch", "per-task", "random", "central-daemon", "central"):
            assert f" {policy} " in out
            assert f"{policy}: " in err
    assert "events/s" in err


def test_json_is_one_object_a_run_with_figures_and_settings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SMALL, "--policy", "sparrow,central", "--json", "--load", "0.6", "--seed", "3")
    sparrow, central = (json.loads(line) for line in out.splitlines())
    assert code == 0
    for name in (
        "response_p5_ms", "response_p50_ms", "response_p95_ms", "response_p99_ms", "wait_p50_ms", "noop_asks", "events",
    ):  # fmt: skip
        assert name in sparrow
    assert (sparrow["settings"]["policy"], central["settings"]["policy"]) == ("sparrow", "central")
    assert sparrow["settings"]["load"] == 0.6
    assert sparrow["ideal_p50_ms"] == central["ideal_p50_ms"], "policies meet the same jobs"
    assert "wall" not in out


def test_options_reach_the_simulation(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(
        capsys, *SMALL, "--json", "--slots", "2", "--schedulers", "3", "--rtt-ms", "4", "--delay", "uniform",
        "--service", "pareto", "--alpha", "2.5", "--mean-ms", "50", "--per", "job", "--user", "ann=2", "--user", "bob",
        "--constrained", "0.5", "--replicas", "2", "--probe-ratio", "3", "--no-cancellation", "--no-probe-sharing",
        "--queue", "fifo",
    )  # fmt: skip
    settings = json.loads(out)["settings"]
    assert code == 0
    assert settings | {
        "slots": 2, "schedulers": 3, "delay": {"kind": "uniform", "one_way_ms": 2.0}, "users": ["ann", "bob"],
        "durations": {"kind": "pareto", "mean_ms": 50.0, "alpha": 2.5, "per": "job"}, "weights": {"ann": 2.0},
        "constrained": 0.5, "replicas": 2, "probe_ratio": 3.0, "cancellation": False, "probe_sharing": False,
        "queue": "fifo",
    } == settings  # fmt: skip


@pytest.mark.parametrize("policy", ["sparrow", "per-task", "batch", "random"])
def test_jobs_of_zones_run_in_their_zones(capsys: pytest.CaptureFixture[str], tmp_path: Path, policy: str) -> None:
    path = tmp_path / "tasks.parquet"
    code, _, _ = run(capsys, *SMALL, "--zones", "5", "--policy", policy, "--out", str(path))
    zones: dict[int, set[int]] = {}
    for row in pyarrow.parquet.read_table(path).to_pylist():
        zones.setdefault(row["job"], set()).add(row["node"] % 5)
    assert code == 0
    assert all(len(zone) == 1 for zone in zones.values())
    assert set().union(*zones.values()) == set(range(5))


def test_every_setting_of_policies_is_an_option() -> None:
    flags = {name for parameter in run_module.run_command.params for name in [parameter.name]}
    assert set(Settings.__dataclass_fields__) <= flags


def test_settings_that_daemons_have_are_explained_in_the_same_words() -> None:
    helps = {parameter.name: getattr(parameter, "help", "") for parameter in run_module.run_command.params}
    assert helps["cancellation"] == SchedulerOptions.__dataclass_fields__["cancellation"].metadata["help"]


@pytest.mark.parametrize("policy", rest_after(1, "sparrow", "batch"))
def test_equal_seeds_give_equal_bytes_whatever_the_hash_seed(policy: str) -> None:
    outputs = set()
    for hash_seed in ("0", "1"):
        done = subprocess.run(
            [sys.executable, "-m", "simulator", "run", *SMALL, "--json", "--policy", policy, "--user", "a", "--user",
             "b=3", "--zones", "4", "--delay", "exponential", "--schedulers", "2"],
            env=os.environ | {"PYTHONHASHSEED": hash_seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            check=True,
        )  # fmt: skip
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert json.loads(outputs.pop())["settings"]["policy"] == policy


# ---- Parquet ---------------------------------------------------------------------------------


def test_out_has_a_row_for_each_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tasks.parquet"
    code, out, _ = run(capsys, *SMALL, "--policy", "sparrow,central", "--out", str(path), "--json")
    table = pyarrow.parquet.read_table(path)
    assert code == 0
    assert table.num_rows == 2 * 30 * 4
    rows = table.to_pylist()
    for row in rows:
        assert row["wait_s"] == pytest.approx(row["started_s"] - row["job_arrival_s"])
        assert row["job_response_s"] >= row["wait_s"] + row["service_s"] - 1e-9
        assert (row["node"] >= 0) == (row["policy"] == "sparrow")
    assert [(row["job"], row["task"]) for row in rows[:5]] == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 0)]
    measured = {row["job"] for row in rows if row["measured"]}
    assert len(measured) == json.loads(out.splitlines()[0])["jobs_measured"]
    assert [path.name for path in tmp_path.iterdir()] == ["tasks.parquet"]


def test_what_failed_leaves_no_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, _, _ = run(capsys, *SMALL, "--zones", "2", "--policy", "central", "--out", str(tmp_path / "tasks.parquet"))
    assert code == 2
    assert not list(tmp_path.iterdir())


def test_without_pyarrow_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    code, _, err = run(capsys, *SMALL, "--out", str(tmp_path / "tasks.parquet"))
    assert code == 2
    assert err.count("\n") == 1
    assert "sparrow-py[simulator]" in err


# ---- traces ----------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["sparrow", "per-task", "central"])
def test_a_trace_runs_as_it_is(capsys: pytest.CaptureFixture[str], trace: Path, policy: str) -> None:
    code, out, _ = run(capsys, "--nodes", "10", "--trace", str(trace), "--json", "--policy", policy)
    found = json.loads(out)
    assert code == 0
    assert found["jobs_measured"] == 3
    assert (found["settings"]["trace"], found["settings"]["stretch"]) == (str(trace), 1.0)


def test_a_trace_is_stretched_to_a_load_that_is_given(capsys: pytest.CaptureFixture[str], trace: Path) -> None:
    _, out, _ = run(capsys, "--nodes", "10", "--trace", str(trace), "--json", "--load", "0.5")
    # 1.1 s of tasks in 2 s on ten slots is a load of 0.055.
    assert json.loads(out)["settings"]["stretch"] == pytest.approx(0.055 / 0.5)


# ---- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--load", "1"], ("--load", "1.0", "below 1")),
        (["--load", "nan"], ("--load", "nan")),
        (["--nodes", "0"], ("--nodes", "0", "from 1")),
        (["--nodes", "many"], ("--nodes", "many")),
        (["--slots", "0"], ("--slots",)),
        (["--schedulers", "0"], ("--schedulers",)),
        (["--tasks", "0"], ("--tasks",)),
        (["--jobs", "0"], ("--jobs",)),
        (["--probe-ratio", "0.5"], ("--probe-ratio", "0.5", "from 1")),
        (["--probe-ratio", "nan"], ("--probe-ratio",)),
        (["--policy", "lucky"], ("--policy", "lucky", "sparrow, batch")),
        (["--policy", "sparrow,"], ("--policy",)),
        (["--rtt-ms", "-1"], ("--rtt-ms", "-1")),
        (["--delay", "none"], ("--delay", "exponential")),
        (["--service", "normal"], ("--service", "pareto")),
        (["--alpha", "1"], ("--alpha",)),
        (["--mean-ms", "0"], ("--mean-ms",)),
        (["--per", "user"], ("--per",)),
        (["--queue", "lifo"], ("--queue", "fair")),
        (["--zones", "-1"], ("--zones",)),
        (["--constrained", "2"], ("--constrained",)),
        (["--replicas", "0"], ("--replicas",)),
        (["--user", "a=0"], ("--user", "a=0")),
        (["--user", "a", "--user", "a"], ("--user",)),
        (["--trace", "/nowhere/trace"], ("--trace", "/nowhere/trace")),
        (["--out", "/nowhere/tasks.parquet"], ("--out", "/nowhere/tasks.parquet")),
        (["--zones", "2", "--policy", "central"], ("--policy", "central")),
        (["--colour", "red"], ("--colour",)),
    ],
)
def test_bad_input_is_one_line_that_names_it(
    capsys: pytest.CaptureFixture[str], arguments: list[str], named: tuple[str, ...]
) -> None:
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert all(name in err for name in named), err


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"arrival_s": -1, "durations_s": [1]}\n', "trace.jsonl:1"),
        ("0 1 0.1 0.1\n1 1 0.1 -0.1\n", "trace.jsonl:2"),
        ('{"arrival_s": 5, "durations_s": [1]}\n{"arrival_s": 4, "durations_s": [1]}\n', "trace.jsonl:2"),
        ("", "at least one job"),
        ("abc\n", "trace.jsonl:1"),
    ],
)
def test_a_bad_trace_is_one_line_that_names_its_line(
    capsys: pytest.CaptureFixture[str], trace: Path, content: str, named: str
) -> None:
    trace.write_text(content)
    code, _, err = run(capsys, "--trace", str(trace))
    assert code == 2
    assert err.count("\n") == 1
    assert named in err


@pytest.mark.parametrize("extra", [["--tasks", "5"], ["--jobs", "5"], ["--service", "pareto"], ["--mean-ms", "5"]])
def test_what_a_trace_says_itself_cannot_be_set(
    capsys: pytest.CaptureFixture[str], trace: Path, extra: list[str]
) -> None:
    code, _, err = run(capsys, "--trace", str(trace), *extra)
    assert code == 2
    assert extra[0] in err


@pytest.mark.parametrize("load", ["0", "1"])
def test_a_trace_cannot_be_stretched_to_any_load(capsys: pytest.CaptureFixture[str], trace: Path, load: str) -> None:
    code, _, err = run(capsys, "--trace", str(trace), "--load", load)
    assert code == 2
    assert "--load" in err


def test_a_simulation_that_cannot_go_on_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise SimulationError("job 7 was refused: too many tasks")

    monkeypatch.setattr(run_module, "simulate", fails)
    code, out, err = run(capsys, *SMALL)
    assert (code, out, err) == (1, "", "simulator: job 7 was refused: too many tasks\n")


def test_the_figures_are_those_of_the_python_api(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "--nodes", "50", "--tasks", "5", "--jobs", "20", "--json")
    from simulator import Cluster, Synthetic

    figures = simulate(Cluster(nodes=50), Synthetic(tasks=5, jobs=20)).figures()
    assert figures.items() <= json.loads(out).items()
