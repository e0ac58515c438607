"""`sparrow workflow` where it starts no cluster: plans, scripts, what is refused."""

import json
import math
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from frontends.cli.__main__ import main
from frontends.cli.workflow import LANGUAGES, _print_results, named_tables
from frontends.workflow import sources
from frontends.workflow.api import RunOptions, Workflow
from frontends.workflow.running.errors import WorkflowFailed
from frontends.workflow.table_files import Unopened
from sparrow_py.errors import InvalidRequest

WORKFLOW = """t = SCAN 't' (k INTEGER, x DOUBLE)
kept = SELECT t WHERE {x > 1}
sums = AGGREGATE kept BY (k) TO (total = SUM x)
RESULTS sums
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A workflow, beside its table; history and calibration are there, too."""
    monkeypatch.setenv("SPARROW_WORKFLOW_STATE", str(tmp_path / "state"))
    (tmp_path / "w.ir").write_text(WORKFLOW)
    (tmp_path / "t.csv").write_text("k,x\n1,0.5\n2,1.5\n")
    return str(tmp_path / "w.ir")


def workflow(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["workflow", *arguments])


def data(file: str) -> str:
    return f"t={Path(file).parent / 't.csv'}"


def test_a_plan_has_jobs_costs_bounds_and_runners_up(file: str) -> None:
    ended = workflow("explain", file, "--data", data(file), "--engine", "serial", "--engine", "duckdb")
    assert ended.exit_code == 0, ended.output
    for part in (
        "1 job, ",
        "not calibrated, so planned with guesses: ",
        "  else ",
        "kept = SELECT t WHERE {x > 1}   [0 to 2 rows, likely 2]",
        "on one engine alone: ",
    ):
        assert part in ended.output


def test_a_dry_run_is_the_plan_and_runs_nothing(file: str) -> None:
    given = (file, "--data", data(file), "--engine", "serial", "--no-history")
    assert workflow("run", *given, "--dry-run").output == workflow("explain", *given).output


def test_how_each_engine_did_is_on_lines_of_their_own(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        reasons = ["job 1 on duckdb: it is\nfull", "job 2 on serial: it is slow"]
        raise WorkflowFailed("no engine can run SELECT kept (…)", reasons, resumable=True)

    monkeypatch.setattr(Workflow, "run", fails)
    ended = workflow("run", file, "-s", "127.0.0.1:1", "--data", data(file))
    assert ended.exit_code == 1
    assert ended.stderr.splitlines() == [
        "sparrow: the workflow failed: no engine can run SELECT kept (…)",
        "  before: job 1 on duckdb: it is\\nfull",
        "  before: job 2 on serial: it is slow",
        "with --resume it goes on after the jobs that are done",
    ]


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        (["5", "20000"], "5 is not in the range x>=1000"),
        (["20000"], "20000: two different numbers at least"),
        (["20000", "20000"], "20000: two different numbers at least"),
    ],
)
def test_sizes_that_measure_nothing_are_refused_before_anything_is_measured(
    file: str, sizes: list[str], reason: str
) -> None:
    ended = workflow("calibrate", "--engine", "serial", *[word for size in sizes for word in ("--rows", size)])
    assert ended.exit_code == 2
    assert reason in ended.output
    assert not Path(file).with_name("state").exists()


def test_code_is_the_script_of_each_job(file: str) -> None:
    ended = workflow("explain", file, "--data", data(file), "--engine", "serial", "--code")
    assert "# ---- job 1 on serial" in ended.output
    assert "def run(" in ended.output


def test_the_plan_as_a_page_and_as_dot(file: str, tmp_path: Path) -> None:
    page, dot = tmp_path / "plan.html", tmp_path / "plan.dot"
    workflow("explain", file, "--data", data(file), "--engine", "serial", "--html", str(page), "--dot", str(dot))
    assert "SELECT t WHERE {x &gt; 1}" in page.read_text()
    assert dot.read_text().startswith("digraph")


@pytest.mark.parametrize("option", ["--html", "--dot"])
@pytest.mark.parametrize("command", [("run",), ("run", "--dry-run"), ("explain",)], ids=" ".join)
def test_a_place_for_the_plan_that_cannot_be_is_told_before_anything_runs(
    file: str, tmp_path: Path, command: tuple[str, ...], option: str
) -> None:
    given = (*command, file, "--data", data(file), option)
    for path, message in ((tmp_path, "this is a directory"), (tmp_path / "none" / "x", "there is no directory ")):
        ended = workflow(*given, str(path))
        assert ended.exit_code == 2
        assert message in ended.stderr


def never_cluster(**_: object) -> ExitStack:
    """In the place of a cluster that no test here needs."""
    return ExitStack()


def test_results_are_printed_though_the_plan_cannot_be_written(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = SimpleNamespace(tables={"sums": pa.table({"k": [2]})}, dot=lambda: "digraph", jobs=(), seconds=0.0)
    monkeypatch.setattr("sparrow_py.LocalCluster", never_cluster)
    monkeypatch.setattr(Workflow, "run", lambda *_, **__: answer)
    ended = workflow("run", file, "--data", data(file), "--no-progress", "--dot", "/dev/full")
    assert ended.exit_code == 1
    assert ended.stdout == "k\n2\n"
    assert ended.stderr == "sparrow: --dot '/dev/full': No space left on device\n"
    ended = workflow("explain", file, "--data", data(file), "--engine", "serial", "--html", "/dev/full")
    assert ended.exit_code == 1
    assert ended.stdout.startswith("1 job, ")
    assert ended.stderr == "sparrow: --html '/dev/full': No space left on device\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--off", "speed"), "off: 'speed'"),
        (("--engine", "serail"), "is serial meant?"),
        (("--language", "beer"), "w.ir:1:"),
        (("--strict-hive",), "for HiveQL only"),
        (("--cpu-bias", "2"), "--cpu-bias"),
        (("--data", "t"), "NAME=PATH, or a directory"),
        (("--data", "t=elsewhere.csv"), "the table t is there already"),
    ],
)
def test_options_that_cannot_be(file: str, arguments: tuple[str, ...], message: str) -> None:
    ended = workflow("explain", file, "--data", data(file), *arguments)
    assert ended.exit_code == 2
    assert message in ended.output


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "k,y\n1,1\n", "0 columns are called x; it has k, y"),
        ("t.csv", "k,x\n1,a\n", "column x is string, and the workflow declares DOUBLE"),
        ("w.ir", WORKFLOW.replace("kept BY", "keft BY"), "is kept meant?"),
    ],
)
def test_what_does_not_fit_is_told_before_anything_runs(file: str, name: str, text: str, message: str) -> None:
    (Path(file).parent / name).write_text(text)
    ended = workflow("run", file, "--data", data(file))
    assert ended.exit_code != 0
    assert message in ended.output


@pytest.mark.parametrize("seconds", ["0", "-1", "nan"])
def test_no_job_is_stopped_before_it_has_begun(file: str, seconds: str) -> None:
    ended = workflow("run", file, "--data", data(file), "--task-timeout", seconds, "--dry-run")
    assert ended.exit_code == 2
    assert "--task-timeout" in ended.stderr
    with pytest.raises(InvalidRequest, match=r"task_timeout_s: .* a number above 0"):
        RunOptions(task_timeout_s=float(seconds)).check()


def test_a_place_for_results_that_cannot_be(file: str) -> None:
    ended = workflow("run", file, "--data", data(file), "--out", "/nowhere/out.parquet")
    assert ended.exit_code == 2
    assert "there is no directory /nowhere" in ended.output


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("t.csv", "t.csv' is not valid; allowed: a Parquet file, whose name"),
        ("r.TSV", "allowed: a Parquet file, whose name"),
        ("link", "allowed: a file other than that of the table t"),
        ("-", "without --out the results are printed"),
    ],
)
def test_a_result_is_written_over_no_table_and_not_as_if_it_were_csv(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("t.csv")
    ended = workflow("run", file, "--data", data(file), "--out", out, "--dry-run")
    assert ended.exit_code == 2
    assert message in ended.stderr


def test_none_of_several_results_is_written_over_a_table(file: str, tmp_path: Path) -> None:
    Path(file).write_text(WORKFLOW.replace("RESULTS sums", "RESULTS sums, kept"))
    pq.write_table(pa.table({"k": [1], "x": [0.5]}), tmp_path / "kept.parquet")
    table = f"t={tmp_path / 'kept.parquet'}"
    ended = workflow("run", file, "--data", table, "--out", str(tmp_path), "--dry-run")
    assert ended.exit_code == 2
    assert "a file other than that of the table t" in ended.stderr


def test_engines_of_this_machine_and_an_empty_history(file: str) -> None:
    assert "serial" in workflow("engines").output
    assert "sizes of 0 relations, times of 0 jobs" in workflow("history", "--clear").output


def test_what_an_engine_lacks_is_shown(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    shown = next(line for line in workflow("engines").output.split("\n") if line.startswith("pyspark_rdd "))
    assert "openjdk-17-jre-headless" in shown


def test_a_switch_without_effect_is_told(file: str) -> None:
    given = ("explain", file, "--data", data(file), "--engine", "duckdb", "--off", "infer-types", "--off", "merge")
    told = "infer-types is off, which changes nothing on duckdb: it decides by itself which form rows have"
    assert told in workflow(*given).output
    assert "merge is off" not in workflow(*given).output
    assert (
        "scipy takes nothing while the rule idioms is off"
        in workflow("explain", file, "--data", data(file), "--engine", "scipy", "--off", "idioms").output
    )


def test_a_directory_is_its_files_by_name(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.CSV", "notes.txt"):
        (tmp_path / name).write_text("")
    assert named_tables([str(tmp_path)]) == {
        "a": Unopened(tmp_path / "a.parquet"),
        "b": Unopened(tmp_path / "b.CSV"),
    }


@pytest.mark.parametrize("command", [("explain",), ("run", "--dry-run")], ids=" ".join)
@pytest.mark.parametrize(
    ("suffix", "text"),
    [
        (".ir", WORKFLOW),
        (".hql", "SELECT k FROM t"),
        (".beer", "CREATE RELATION t WITH COLUMNS (k INTEGER), DISTINCT FROM (t) AS x"),
        (".lindi", "def workflow(lindi):\n    lindi.table('t').distinct()\n"),
    ],
)
def test_files_of_a_directory_that_a_workflow_does_not_scan_are_not_opened(
    file: str, tmp_path: Path, command: tuple[str, ...], suffix: str, text: str
) -> None:
    (tmp_path / "headers.csv").write_text("a,b\n")
    (tmp_path / "broken.parquet").write_bytes(b"PAR1 or not")
    path = Path(file).with_suffix(suffix)
    path.write_text(text)
    ended = workflow(*command, str(path), "--data", str(tmp_path), "--engine", "serial")
    assert ended.exit_code == 0, ended.output


def test_a_result_may_be_written_anew_beside_the_tables(file: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").unlink()
    pq.write_table(pa.table({"k": [1], "x": [0.5]}), tmp_path / "t.parquet")
    (tmp_path / "sums.parquet").touch()
    for name, exit_code in (("sums", 0), ("t", 2)):
        given = ("--data", str(tmp_path), "--out", str(tmp_path / f"{name}.parquet"), "--engine", "serial")
        assert workflow("run", file, *given, "--dry-run").exit_code == exit_code


def test_a_file_of_a_directory_that_cannot_be_read_is_told_when_it_is_scanned(file: str, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("k,x\n")
    ended = workflow("explain", file, "--data", str(tmp_path))
    assert ended.exit_code == 1
    assert "sparrow: table t: no column is INTEGER" in ended.stderr


def test_two_files_of_a_directory_that_have_one_name_are_told(file: str, tmp_path: Path) -> None:
    (tmp_path / "t.parquet").touch()
    ended = workflow("explain", file, "--data", str(tmp_path))
    assert ended.exit_code == 2
    assert f"'{tmp_path}/t.parquet': the table t is there already, '{tmp_path}/t.csv'" in ended.stderr


def test_the_command_knows_all_languages() -> None:
    assert LANGUAGES == sources.LANGUAGES


def test_a_dry_run_shows_its_token(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret").write_text("s" * 64)
    (tmp_path / "secret").chmod(0o600)
    shown: dict[str, object] = {}

    def explain(_: Workflow, cluster: object, **given: object) -> None:
        shown.update(given, cluster=cluster)
        raise InvalidRequest("cluster", "x", "enough for this test")

    monkeypatch.setattr(Workflow, "explain", explain)
    workflow(
        "run", "-s", "127.0.0.1:1", "--token-file", str(tmp_path / "secret"), "--dry-run", file, "--data", data(file)
    )
    assert (shown["token"], shown["cluster"]) == ("s" * 64, ["127.0.0.1:1"])


def test_a_directory_for_results_that_cannot_be_made_is_told(file: str, tmp_path: Path) -> None:
    Path(file).write_text(WORKFLOW.replace("RESULTS sums", "RESULTS sums, kept"))
    ended = workflow("run", file, "--data", data(file), "--out", str(tmp_path / "t.csv" / "x"), "--dry-run")
    assert ended.exit_code == 2
    assert "Not a directory" in ended.output


def test_an_error_of_the_text_is_its_line_with_a_caret_below(file: str, tmp_path: Path) -> None:
    text = tmp_path / "w.hql"
    text.write_text("SELECT k\nFROM t\nWHERE x > /*\x1b[2J 表*/\n\tnosuch AS kept;\n")
    ended = workflow("explain", str(text), "--data", data(file))
    assert ended.exit_code == 2
    assert ended.stderr.splitlines() == [
        f"sparrow: {text}:4:2: there is no column nosuch; columns: k, x",
        "    nosuch AS kept;",
        "    ^",
    ]


@pytest.mark.parametrize("command", ["run", "explain"])
def test_a_table_without_a_file_is_given_by_data(file: str, command: str) -> None:
    text = Path(file).with_suffix(".hql")
    text.write_text("SELECT k FROM t")
    ended = workflow(command, str(text))
    assert ended.exit_code == 2
    assert "there is no relation t; there are no relations; give the table's file: --data t=PATH\n" in ended.stderr
    assert "--data" not in workflow(command, str(text.with_name("w.ir")), "--data", data(file), "--off", "x").stderr


def _no_json(constant: str) -> Any:
    raise AssertionError(f"{constant} is no JSON")


def test_nan_and_infinities_are_texts_in_json(capsys: pytest.CaptureFixture[str]) -> None:
    numbers = pa.table({"x": [math.nan, math.inf, -math.inf, None, 1.5]})
    _print_results({"r": numbers}, "json")
    rows = json.loads(capsys.readouterr().out, parse_constant=_no_json)
    assert [row["x"] for row in rows] == ["NaN", "Infinity", "-Infinity", None, 1.5]
    _print_results({"r": numbers, "s": numbers.slice(0, 1)}, "json")
    assert json.loads(capsys.readouterr().out, parse_constant=_no_json) == {"r": rows, "s": rows[:1]}
