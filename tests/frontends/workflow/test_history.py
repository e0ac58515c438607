"""What a history keeps of earlier runs, and its file."""

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings

from frontends.workflow.ir.dag import Dag
from frontends.workflow.ir.fingerprints import fingerprints
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.mapping.costs import JobRun
from frontends.workflow.mapping.history import History
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.rewrites.rules import Rewrite, optimised
from sparrow_py.errors import InvalidOption
from tests.support.workflow_dags import Case, cases
from tests.support.workflow_samples import netflix, page_rank

RUN = JobRun(1.5, 2.5, 1000.0)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "history.sqlite")


@pytest.fixture
def history(path: str) -> Iterator[History]:
    with History(path) as opened:
        yield opened


def workflow(condition: str = "x > 1", table: str = "a", name: str = "f", more: str = "") -> Dag:
    return read(
        f"t = SCAN '{table}' (k INTEGER, x DOUBLE{more})\n{name} = SELECT t WHERE {{{condition}}}\n"
        f"r = AGGREGATE {name} BY (k) TO (n = COUNT)\nRESULTS r"
    )


def test_sizes_are_known_again(history: History, path: str) -> None:
    history.add_sizes(workflow(), {"f": TableSize(10, 160), "r": TableSize(3, 48)})
    with History(path) as other:
        assert other.known_sizes(workflow()) == {"f": TableSize(10, 160), "r": TableSize(3, 48)}
        assert other.known_rows(workflow()) == {"f": 10.0, "r": 3.0}
    history.add_sizes(workflow(), {"f": TableSize(20, 320)})
    assert history.known_sizes(workflow())["f"] == TableSize(20, 320)
    history.clear()
    assert history.known_sizes(workflow()) == {}


def test_names_do_not_count_and_literals_and_tables_do(history: History) -> None:
    history.add_sizes(workflow(), {"f": TableSize(10, 160)})
    assert history.known_sizes(workflow(name="other")) == {"other": TableSize(10, 160)}
    assert history.known_sizes(workflow("x > 2")) == {}
    assert history.known_sizes(workflow(table="b")) == {}


def test_of_other_columns_the_rows_are_known(history: History) -> None:
    history.add_sizes(workflow(), {"f": TableSize(10, 160)})
    assert history.known_sizes(workflow(more=", s STRING")) == {"f": TableSize(10, None)}


def test_a_workflow_is_known_again_when_columns_are_pruned() -> None:
    dag = netflix(18)
    pruned = optimised(dag, {Rewrite.COLUMNS_PRUNED})
    assert pruned != dag
    before, after = fingerprints(dag), fingerprints(pruned)
    assert {name: one.rows for name, one in before.items()} == {name: after[name].rows for name in dag.names}


@settings(max_examples=50)
@given(case=cases(steps_max=6))
def test_relations_of_equal_fingerprints_have_as_many_rows(case: Case) -> None:
    everything = Dag(case.dag.operators, case.dag.names)
    made = evaluate(everything, case.tables)
    rows: dict[str, int] = {}
    columns: dict[str, object] = {}
    for name, one in fingerprints(everything).items():
        assert rows.setdefault(one.rows, made[name].num_rows) == made[name].num_rows
        for column, of in one.columns.items():
            values = sorted(map(repr, made[name].column(column).to_pylist()))
            assert columns.setdefault(one.rows + of, values) == values


def test_runs_of_jobs_are_known_again(history: History) -> None:
    dag = netflix()
    history.add_run(dag, ["chosen", "ids"], "duckdb", JobRun(9.0, 9.0, 1.0))
    history.add_run(dag, ["ids", "chosen"], "duckdb", RUN)
    history.add_run(dag, ["chosen"], "polars", RUN)
    assert history.runs(dag) == {
        frozenset({"chosen", "ids"}): {"duckdb": RUN},
        frozenset({"chosen"}): {"polars": RUN},
    }
    assert history.runs(page_rank()) == {}
    assert history.counts() == {"relations": 0, "runs": 2}


def test_only_the_newest_are_kept(path: str) -> None:
    with History(path, relations_max=3, runs_max=2) as history:
        for number in range(5):
            dag = workflow(f"x > {number}")
            history.add_sizes(dag, {"f": TableSize(number, 8)})
            history.add_run(dag, ["f"], "duckdb", RUN)
        assert history.counts() == {"relations": 3, "runs": 2}
        assert [bool(history.known_sizes(workflow(f"x > {number}"))) for number in range(5)] == [0, 0, 1, 1, 1]
        assert [bool(history.runs(workflow(f"x > {number}"))) for number in range(5)] == [0, 0, 0, 1, 1]


def test_a_dag_of_many_operators_is_looked_up(history: History) -> None:
    lines = [f"o{number} = DISTINCT o{number - 1}" for number in range(1, 600)]
    dag = read("\n".join(["o0 = SCAN 't' (a INTEGER)", *lines, "RESULTS o599"]))
    history.add_sizes(dag, {name: TableSize(7, 56) for name in dag.names})
    assert len(history.known_sizes(dag)) == 600


KILLED = """
import os, signal, sys
from frontends.workflow.mapping.history import History
from frontends.workflow.ir.reading import read
from frontends.workflow.mapping.sizes import TableSize
dag = read("t = SCAN 'a' (k INTEGER)\\nRESULTS t")
History(sys.argv[1]).add_sizes(dag, {"t": TableSize(10, 160)})
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_is_written_survives_a_kill(path: str) -> None:
    done = subprocess.run([sys.executable, "-c", KILLED, path], check=False)
    assert done.returncode == -signal.SIGKILL
    with History(path) as history:
        assert history.known_sizes(read("t = SCAN 'a' (k INTEGER)\nRESULTS t")) == {"t": TableSize(10, 160)}


def test_a_file_that_is_none_of_ours_is_named_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.sqlite"
    database = sqlite3.connect(other)
    database.execute("CREATE TABLE mine (a)")
    database.commit()
    database.close()
    text = tmp_path / "text"
    text.write_text("no database, but long enough to be taken for one " * 100)
    for path, why in ((other, "another program's"), (text, "not damaged"), (tmp_path / "no" / "where", "directory")):
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(InvalidOption, match=why) as error:
            History(str(path))
        assert error.value.value == str(path)
        assert (path.read_bytes() if path.exists() else None) == before


def test_a_damaged_file_is_named(history: History, path: str) -> None:
    history.add_sizes(workflow(), {"f": TableSize(10, 160)})
    history.add_run(workflow(), ["f"], "duckdb", RUN)
    database = sqlite3.connect(path)
    database.execute("UPDATE relations SET row_count = 'many'")
    database.execute("UPDATE runs SET operators = '{'")
    database.commit()
    with pytest.raises(InvalidOption, match=r"history\.sqlite.*not damaged.*Move it away"):
        history.known_sizes(workflow())
    database.execute("DELETE FROM relations")
    database.execute("PRAGMA user_version = 7")
    database.commit()
    database.close()
    assert history.known_sizes(workflow()) == {}
    with pytest.raises(InvalidOption, match="version 1; this one is of version 7"):
        History(path)


def test_a_locked_file_is_named(path: str) -> None:
    with History(path, lock_timeout_s=0.0) as history:
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(InvalidOption, match="no other program keeps locked"):
            history.add_sizes(workflow(), {"f": TableSize(10, 160)})
        other.execute("ROLLBACK")
        other.close()
        history.add_sizes(workflow(), {"f": TableSize(10, 160)})
