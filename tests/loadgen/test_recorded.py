"""The files of a load run are read as they were written, and other files are refused in one line."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadgen.recorded import EVENTS, FILES, JOBS, TASKS, Header, Point, Run, read_run, table, write_run
from sparrow_py.errors import InvalidOption
from tests.support.recorded_runs import queries_run, sweep_run

SETTINGS = {"placement": "sparrow", "load": 0.5, "probe_ratio": 2, "nodes": 1, "slots": 1}


@cache
def recorded() -> Run:
    """Made once, and not at import: a process that runs other tests needs none of this."""
    return queries_run(jobs=20, failing=frozenset({7}))


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """A directory with a run."""
    write_run(tmp_path, recorded())
    return tmp_path


def refusal(directory: Path) -> str:
    """The reader's error for this directory, which is one line."""
    with pytest.raises(InvalidOption) as caught:
        read_run(directory)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_a_run_is_read_as_it_was_written(written: Path) -> None:
    found = read_run(written)
    assert found.header == recorded().header
    for name, schema in FILES.items():
        assert getattr(found, name).schema.equals(schema)
        # Not ==, by which a NaN differs from any other.
        assert str(getattr(found, name).to_pylist()) == str(getattr(recorded(), name).to_pylist())


def test_the_simulators_points_and_an_empty_run_are_read_too(tmp_path: Path) -> None:
    swept = sweep_run(jobs=5)
    write_run(tmp_path / "deeper" / "swept", swept)
    assert read_run(tmp_path / "deeper" / "swept").header.simulated == swept.header.simulated
    header = Header(title="nothing ran", command="true", points=[Point(point=0, settings=SETTINGS)])
    write_run(tmp_path, Run(header, table(JOBS), table(TASKS), table(EVENTS)))
    assert read_run(tmp_path).jobs.num_rows == 0


def test_a_run_has_the_rows_of_its_points() -> None:
    of_points = [recorded().of(point.point) for point in recorded().header.points]
    assert [own.jobs.num_rows for own in of_points] == [20, 20, 20]
    assert sum(own.tasks.num_rows for own in of_points) == recorded().tasks.num_rows
    assert set(of_points[1].events["point"].to_pylist()) == {1}


def test_a_directory_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    assert "a directory that a load run wrote" in refusal(tmp_path / "none")


@pytest.mark.parametrize("name", ["points.json", "jobs.parquet", "tasks.parquet", "events.parquet"])
def test_a_missing_file_and_a_file_of_another_kind_are_refused(written: Path, name: str) -> None:
    (written / name).write_text("?")
    assert name in refusal(written)
    (written / name).unlink()
    assert name in refusal(written)


def test_a_run_of_another_version_is_refused(written: Path) -> None:
    header = written / "points.json"
    header.write_text(header.read_text().replace('"version": 1', '"version": 2'))
    assert "version: 2 is not valid; allowed: 1" in refusal(written)


def test_a_header_with_a_field_of_another_type(written: Path) -> None:
    header = written / "points.json"
    header.write_text(header.read_text().replace('"valid": true', '"valid": 3'))
    assert "$.points[0].valid" in refusal(written)


@pytest.mark.parametrize("name", FILES)
def test_missing_columns_and_columns_of_another_type_or_name_are_refused(written: Path, name: str) -> None:
    path, whole = written / f"{name}.parquet", getattr(recorded(), name)
    column = whole.column_names[-1]
    pq.write_table(whole.drop_columns(column), path)
    assert f"'{column}' is not valid; allowed: each column once" in refusal(written)
    pq.write_table(whole.append_column("colour", whole["point"]), path)
    assert "'colour' is not valid; allowed: the columns point" in refusal(written)
    pq.write_table(whole.set_column(0, "point", whole["point"].cast(pa.float64())), path)
    assert "column point: 'double' is not valid; allowed: int32" in refusal(written)


def test_null_is_refused_where_a_value_must_be_known(written: Path) -> None:
    jobs = recorded().jobs
    users = pa.array([None] * jobs.num_rows, pa.string())
    pq.write_table(jobs.set_column(jobs.column_names.index("user"), "user", users), written / "jobs.parquet")
    assert "column user: None is not valid" in refusal(written)


def test_rows_of_a_point_that_is_not_in_the_header_are_refused(tmp_path: Path) -> None:
    run = replace(recorded(), header=Header(title="", command="", points=recorded().header.points[:2]))
    with pytest.raises(InvalidOption, match=r"jobs.parquet: \[2\] is not valid"):
        write_run(tmp_path / "out", run)
    assert not (tmp_path / "out").exists()


def test_points_with_one_number_and_no_points(tmp_path: Path) -> None:
    for points, message in ((recorded().header.points[:1] * 2, "a number of its own"), ([], "1 to 1000 points")):
        with pytest.raises(InvalidOption, match=message):
            write_run(tmp_path, replace(recorded(), header=Header(title="", command="", points=points)))


@pytest.mark.parametrize("name", SETTINGS)
def test_points_without_a_required_setting_are_refused(tmp_path: Path, name: str) -> None:
    point = Point(point=0, settings={key: value for key, value in SETTINGS.items() if key != name})
    run = Run(Header(title="", command="", points=[point]), table(JOBS), table(TASKS), table(EVENTS))
    with pytest.raises(InvalidOption, match=f"settings of point 0.*`{name}`"):
        write_run(tmp_path, run)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidOption, match="can be written to"):
        write_run(tmp_path / "file", recorded())
