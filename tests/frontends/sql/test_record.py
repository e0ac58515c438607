"""Profiles of real runs, and the one from which traces are made."""

import itertools
import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from frontends.sql.compiler import compile_query
from frontends.sql.record import Profile, main
from frontends.sql.tpch_queries import QUERIES, tpch_query

SHIPPED = Path(__file__).parents[3] / "loadgen" / "profiles" / "tpch.json"
SIZE_MAX = 300_000


def check(profile: Profile, runs: int) -> None:
    """Check that every query has its stages in order, and for each run a duration of each task."""
    for query in profile.queries.values():
        before: set[str] = set()
        for stage in query.stages:
            assert before.issuperset(stage.after)
            before.add(stage.name)
            assert len(stage.durations_s) == runs
            assert len({len(durations) for durations in stage.durations_s}) == 1
            assert all(0 < duration_s < 60 for duration_s in itertools.chain(*stage.durations_s))
            assert stage.constrained == (stage.name.endswith("scan"))


@pytest.mark.rest
def test_a_profile_is_recorded(tpch_few: Path, tmp_path: Path) -> None:
    out = tmp_path / "profile.json"
    arguments = ["--dir", str(tpch_few), "--out", str(out), "--runs", "2", "--nodes", "1", "--query", "6"]
    ended = CliRunner().invoke(main, [*arguments, "--query", "15", "--note", "a test"])
    assert ended.exit_code == 0, ended.output
    profile = msgspec.json.decode(out.read_bytes(), type=Profile)
    assert set(profile.queries) == {"q6", "q15"}
    assert (profile.source["scale"], profile.source["runs"], profile.source["note"]) == (0.01, 2, "a test")
    assert [(stage.name, stage.after) for stage in profile.queries["q6"].stages] == [
        ("scan", ()),
        ("group-by", ("scan",)),
    ]
    assert len(profile.queries["q6"].stages[0].durations_s[0]) == 6
    check(profile, 2)


def test_a_dataset_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    ended = CliRunner().invoke(main, ["--dir", str(tmp_path), "--out", str(tmp_path / "p.json")])
    assert ended.exit_code == 2
    assert ended.output.startswith("record: data: ")
    assert not (tmp_path / "p.json").exists()


def test_the_shipped_profile_is_of_all_queries_at_scale_1() -> None:
    assert SHIPPED.stat().st_size < SIZE_MAX
    profile = msgspec.json.decode(SHIPPED.read_bytes(), type=Profile)
    assert profile.source["scale"] == 1
    assert set(profile.queries) == {f"q{number}" for number in range(1, QUERIES + 1)}
    check(profile, int(profile.source["runs"]))
    assert json.loads(SHIPPED.read_bytes())["queries"]["q3"]["stages"][1]["after"] == ["scan"]


@pytest.mark.parametrize("number", range(1, QUERIES + 1))
def test_the_shipped_profile_has_the_stages_that_the_compiler_makes(number: int) -> None:
    profile = msgspec.json.decode(SHIPPED.read_bytes(), type=Profile)
    stages = [stage.name for stage in profile.queries[f"q{number}"].stages]
    assert stages == [stage.name for stage in compile_query(tpch_query(number)).stages]
