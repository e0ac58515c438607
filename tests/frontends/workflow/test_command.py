"""`sparrow workflow` where it starts no cluster: plans, scripts, what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from frontends.cli.__main__ import main
from frontends.cli.workflow import LANGUAGES, _print_results, named_tables
from frontends.workflow import sources
from frontends.workflow.api import Workflow
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


def test_code_is_the_script_of_each_job(file: str) -> None:
    ended = workflow("explain", file, "--data", data(file), "--engine", "serial", "--code")
    assert "# ---- job 1 on serial" in ended.output
    assert "def run(" in ended.output


def test_the_plan_as_a_page_and_as_dot(file: str, tmp_path: Path) -> None:
    page, dot = tmp_path / "plan.html", tmp_path / "plan.dot"
    workflow("explain", file, "--data", data(file), "--engine", "serial", "--html", str(page), "--dot", str(dot))
    assert "SELECT t WHERE {x &gt; 1}" in page.read_text()
    assert dot.read_text().startswith("digraph")


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


def test_a_place_for_results_that_cannot_be(file: str) -> None:
    ended = workflow("run", file, "--data", data(file), "--out", "/nowhere/out.parquet")
    assert ended.exit_code == 2
    assert "there is no directory /nowhere" in ended.output


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
    assert named_tables([str(tmp_path)]) == {"a": f"{tmp_path}/a.parquet", "b": f"{tmp_path}/b.CSV"}


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
