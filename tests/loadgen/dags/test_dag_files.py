"""Workloads of DAG jobs in files: what is written is read, and what cannot be is refused by line and field."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.dags import dag_files
from loadgen.dags.dag_files import read_dags, write_dags
from loadgen.dags.dag_job import DagJob
from sparrow_py.errors import InvalidOption
from tests.loadgen.dags.made_up import dag_jobs

STAGE = {"tasks": 1, "duration_s": 1.0, "demand": {"cpu": 1.0}}
JOB: dict[str, Any] = {"name": "j", "arrival_s": 0.0, "stages": [STAGE]}


@settings(max_examples=40)
@given(st.lists(dag_jobs(), max_size=3))
def test_what_is_written_is_read(tmp_path_factory: pytest.TempPathFactory, jobs: list[DagJob]) -> None:
    path = str(tmp_path_factory.getbasetemp() / "written.jsonl")
    jobs.sort(key=lambda job: job.arrival_s)
    assert write_dags(path, jobs) == len(jobs)
    assert list(read_dags(path)) == jobs


def read(path: Path, *lines: Any) -> list[DagJob]:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines))
    return list(read_dags(str(path)))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", r"jobs.jsonl:2: '\{' is not valid; allowed: a job as JSON"),
        ("[]", "allowed: a job as JSON"),
        (JOB | {"weight": 1}, "unknown field `weight`"),
        (JOB | {"stages": []}, "jobs.jsonl:2 stages: "),
        (JOB | {"stages": [STAGE | {"parents": [0]}]}, r"jobs.jsonl:2 stages\[0\] parents: "),
        (JOB | {"stages": [STAGE | {"demand": {"gpu": 1}}]}, r"jobs.jsonl:2 stages\[0\] demand: 'gpu'"),
        (JOB | {"stages": [STAGE | {"tasks": "3"}]}, r"Expected `int`, got `str` - at `\$.stages\[0\].tasks`"),
        (JOB | {"arrival_s": -1}, "jobs.jsonl:2 arrival_s: -1.0 is not valid"),
    ],
)
def test_what_cannot_be_is_refused_by_line_and_field(tmp_path: Path, line: Any, said: str) -> None:
    with pytest.raises(InvalidOption, match=said):
        read(tmp_path / "jobs.jsonl", JOB, line)


def test_jobs_stand_in_order_of_arrival(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match=r"jobs.jsonl:3 arrival_s"):
        read(tmp_path / "jobs.jsonl", JOB | {"arrival_s": 2.0}, "", JOB | {"arrival_s": 1.0})


def test_lines_and_files_have_a_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dag_files, "JOBS_MAX", 2)
    monkeypatch.setattr(dag_files, "LINE_BYTES_MAX", 200)
    assert len(read(tmp_path / "jobs.jsonl", JOB, JOB)) == 2
    with pytest.raises(InvalidOption, match="at most 2 lines"):
        read(tmp_path / "jobs.jsonl", JOB, JOB, JOB)
    with pytest.raises(InvalidOption, match=r"jobs.jsonl:1: .*200 bytes"):
        read(tmp_path / "jobs.jsonl", JOB | {"name": "j" * 200})


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from read(tmp_path / "one.jsonl", JOB)
        raise InvalidOption("jobs", 2, "one")

    with pytest.raises(InvalidOption, match="jobs"):
        write_dags(str(tmp_path / "out.jsonl"), broken())
    assert [path.name for path in tmp_path.iterdir()] == ["one.jsonl"]


def test_files_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption, match="workload"):
        list(read_dags(str(tmp_path / "none.jsonl")))
    with pytest.raises(InvalidOption, match="out"):
        write_dags(str(tmp_path / "none" / "out.jsonl"), [])
