"""`benchmarks.additions`: its changes are those between the profiles, its daemons have them, and a run goes on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks import additions
from benchmarks.additions import ADDITIONS, FURTHER, Case, Scale, live_point, main, measure_live, variants
from loadgen.targets import Shape, option_flags
from node_monitor.options import NodeMonitorOptions
from scheduler.options import SchedulerOptions
from simulator.policies import ROOMS, Settings
from sparrow_py.daemon.options import parse
from sparrow_py.errors import InvalidOption
from sparrow_py.profiles import DEFAULT, NODE_MONITOR, PAPER, SCHEDULER, settings

CASE = Case("constant", 0.5, 1, 1)
SCALE = Scale(nodes=4, slots=2, tasks_per_slot=5, seeds=range(1, 3))
ALL = variants((PAPER, DEFAULT))


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["--nodes", "5", "--quick", "--schedulers", "1", "--processes", "1", *arguments])


def test_the_additions_are_the_differences_between_the_profiles() -> None:
    paper, default = settings(PAPER, *ROOMS), settings(DEFAULT, *ROOMS)
    differing = {name for name, value in paper.items() if value != default[name]}
    assert {name for options in ADDITIONS.values() for name in options} == differing


def test_each_variant_is_its_base_with_one_thing_changed() -> None:
    bases = {variant.name: variant.settings for variant in ALL if variant.name == variant.base}
    assert bases == {PAPER: Settings.of(PAPER), DEFAULT: Settings()}
    assert len(ALL) == 2 * (1 + len(ADDITIONS))
    assert len({variant.settings for variant in ALL}) == len(ALL)
    for variant in ALL:
        before, after = asdict(bases[variant.base]), asdict(variant.settings)
        changed = {name for name, value in before.items() if after[name] != value}
        wanted = {PAPER: "+", DEFAULT: "-"}[variant.base]
        if variant.name != variant.base:
            assert variant.name.startswith(wanted)
            assert len(changed) == (2 if "(and idle reports)" in variant.name else 1)


@pytest.mark.parametrize("variant", ALL, ids=lambda variant: str(variant.name))
def test_its_daemons_have_the_settings_that_are_simulated(variant: additions.Variant) -> None:
    shape = live_point(CASE, variant, SCALE, 1).shape
    scheduler = parse(SchedulerOptions, option_flags(shape, SCHEDULER))
    node_monitor = parse(NodeMonitorOptions, option_flags(shape, NODE_MONITOR))
    wanted = asdict(variant.settings)
    assert {name: getattr(scheduler, name) for name in settings(DEFAULT, SCHEDULER)}.items() <= wanted.items()
    assert {name: getattr(node_monitor, name) for name in settings(DEFAULT, NODE_MONITOR)}.items() <= wanted.items()


def test_a_shape_s_options_are_held_to_its_profile() -> None:
    with pytest.raises(InvalidOption, match=r"order: 'oldest' .* with profile 'paper'"):
        Shape(profile=PAPER, options=(("order", "oldest"),))
    with pytest.raises(InvalidOption, match=r"options: 'slots' .* order, "):
        Shape(options=(("slots", 3),))


def test_one_load_is_a_table_of_measures_and_the_run_goes_on(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    arguments = ["--load", "0.5", "--json", "--further", "central", "--further", "d = 3", "--results", str(results)]
    first = run(*arguments)
    assert first.exit_code == 0, first.output
    ((title, rows),) = json.loads(first.stdout)["details"]["tables"].items()
    assert title == "small, schedulers: 1, users: 1 (5 x 4 slots, 2 seeds), load 0.5"
    assert [row["what"] for row in rows] == [*(variant.name for variant in ALL), "central", "d = 3"]
    assert set(rows[0]) == {"what", "mean", "p95", "messages"}
    assert rows[0]["mean"].endswith(" ms")
    assert all("±" in row["mean"] for row in rows if row["what"] not in (PAPER, DEFAULT))
    before = results.read_bytes()
    again = run(*arguments)  # The machine of a run is told, too, and its load differs.
    assert json.loads(again.stdout)["details"]["tables"] == {title: rows}
    assert results.read_bytes() == before


@pytest.mark.rest
def test_several_loads_are_a_table_for_each_measure() -> None:
    found = run("--load", "0.3", "--load", "0.5", "--json", "--base", "paper", "--measure", "p50", "--measure", "p99")
    tables = json.loads(found.stdout)["details"]["tables"]
    assert [title.partition(":")[0] for title in tables] == ["p50", "p99"]
    assert all(set(row) == {"what", "0.3", "0.5"} for rows in tables.values() for row in rows)


def test_live_points_are_in_tables_with_those_that_are_no_measurement_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = []

    def run_live(one: additions.LivePoint) -> dict[str, Any]:
        played.append(one)
        pushes = dict(one.shape.options)["push_to_idle"]
        return {"p50": 100.0 + one.seed + 10 * pushes, "p95": 200.0, "valid": one.seed == 1 or not pushes}

    monkeypatch.setattr(additions, "run_live", run_live)
    report = measure_live([CASE], SCALE, variants((PAPER,)), tmp_path / "r.jsonl")
    assert len(played) == 2 * 6
    (rows,) = report.tables.values()
    cells = {row["what"]: row["live p50"] for row in rows}
    assert cells["paper"] == "101.5 ms"
    assert cells["+ pushing (and idle reports)"].startswith("* +9.9")
    assert cells["+ sharing"] == "+0.0 ± 0.0"
    measure_live([CASE], SCALE, variants((PAPER,)), tmp_path / "r.jsonl")
    assert len(played) == 12, "none is played twice"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["--live", "--further", "central"], "further: 'central'"),
        (["--load", "1.5"], "load: 1.5"),
        (["--nodes", "0"], "nodes: 0"),
        (["--base", "papers"], "papers"),
    ],
)
def test_what_cannot_be_is_said(arguments: list[str], named: str) -> None:
    found = run(*arguments)
    assert found.exit_code != 0
    assert named in found.output


def test_further_changes_keep_to_no_profile_or_change_the_probe_ratio() -> None:
    for changes in FURTHER.values():
        changed = Settings(**changes)
        assert changed != Settings()
        assert changed.profile == ("" if "probe_ratio" not in changes else DEFAULT)
