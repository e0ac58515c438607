"""The paper's figures, at a tiny scale: which simulations they need, what is computed and what is written."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from simulator.commands.figure import COLUMNS, figure_command, make
from simulator.figures import catalogue
from simulator.figures.catalogue import FIGURES, Figure, Panel, Samples, Scale
from simulator.figures.intervals import interval
from simulator.figures.sweep import Figures, Point
from sparrow_py.errors import InvalidOption
from tests.support.suites import rest_after

TINY = Scale(nodes=40, jobs=20, seeds=2, few_points=True)


def made_up(figure: Figure) -> dict[str, Figures]:
    """Results without simulation: plausible numbers that differ by seed."""
    return {
        point.key: {
            "response_p5_ms": 100.0 + point.seed, "response_p50_ms": 200.0 + point.seed,
            "response_p95_ms": 300.0 + point.seed, "zero_wait": 0.5 + point.seed / 100, "asking_over_service": 0.01,
        }
        for point in figure.points
    }  # fmt: skip


@pytest.mark.parametrize("name", FIGURES)
@pytest.mark.parametrize("scale", [TINY, Scale()], ids=["tiny", "the paper's"])
def test_each_panel_has_its_curves_and_each_curve_its_seeds(name: str, scale: Scale) -> None:
    figure = FIGURES[name](scale)
    found = catalogue.rows(figure, made_up(figure))
    assert {row.panel for row in found} == {panel.title for panel in figure.panels}
    assert all(len(row.by_seed) == scale.seeds for row in found)
    assert {samples.group for samples in figure.samples} == {panel.group for panel in figure.panels}
    assert {line.of for line in figure.lines} <= {row.curve for row in found} | {""}
    assert all(0 <= y <= 1 for line in figure.lines for y in line.ys)


def test_the_defaults_are_the_paper_s_cluster_and_jobs() -> None:
    points = FIGURES["5"](Scale()).points
    assert {point.cluster.nodes for point in points} == {10_000}
    assert {point.workload.tasks for point in points} == {500}  # type: ignore[attr-defined]
    ratios = {point.settings.probe_ratio for point in points if point.settings.cancellation is False}
    assert ratios == {1.0, 1.2, 1.5, 2.0, 3.0, 4.0}


@pytest.mark.parametrize("name", ["5", "6", "7"])
def test_both_profiles_are_in_one_figure_or_one_alone(name: str) -> None:
    both = FIGURES[name](TINY)
    assert both.profiles == ["paper", "default"]
    assert both.profiles_text == "profiles paper and default"
    for profile in ("paper", "default"):
        alone = FIGURES[name](replace(TINY, profiles=(profile,)))
        assert alone.profiles == [profile]
        assert alone.profiles_text == f"profile {profile}"
        assert {point.key for point in alone.points} < {point.key for point in both.points}
        assert not any(samples.like for samples in alone.samples)
    curves = {samples.curve for samples in both.samples}
    assert {samples.like for samples in both.samples} - {""} <= curves
    sparrow = [sample for sample in both.samples if sample.points[0].policy == "sparrow"]
    drawn = {(sample.points[0].settings.profile, sample.curve) for sample in sparrow}
    assert len({curve for _, curve in drawn}) == len(drawn), "a curve of its own for each profile"


@pytest.mark.parametrize("name", ["3", "4", "4.3", "6-alpha"])
def test_what_is_about_the_paper_s_algorithm_has_its_profile_in_any_case(name: str) -> None:
    for profile in ("paper", "default"):
        assert FIGURES[name](replace(TINY, profiles=(profile,))).profiles[0] == "paper"


def test_policies_are_paired() -> None:
    figure = FIGURES["6"](TINY)
    arrivals: dict[str, set[str]] = {}
    for samples in figure.samples:
        for point in samples.points:
            arrivals.setdefault(f"{point.workload} {point.seed}", set()).add(point.policy)
    assert all(len(policies) == len(catalogue.POLICY_NAMES) for policies in arrivals.values())


def test_total_cores_stay_the_same_in_figure_7() -> None:
    scale = Scale(nodes=160, jobs=20)
    assert {point.cluster.nodes * point.cluster.slots for point in FIGURES["7"](scale).points} == {160}


def test_a_ratio_is_taken_seed_by_seed() -> None:
    def point(policy: str, seed: int) -> Point:
        return (
            FIGURES["5"](TINY)
            .points[0]
            .__class__(cluster=catalogue.Cluster(nodes=40), workload=catalogue.Synthetic(), policy=policy, seed=seed)
        )

    above, below = (tuple(point(policy, seed) for seed in (1, 2)) for policy in ("sparrow", "central"))
    panel = Panel("", "g", "response_p50_ms", "")
    figure = Figure("x", "", "", "", (panel,), (Samples("g", "curve", 1.0, above, below),))
    values = dict(zip([one.key for one in (*above, *below)], (10.0, 30.0, 5.0, 10.0), strict=True))
    (row,) = catalogue.rows(figure, {key: {"response_p50_ms": value} for key, value in values.items()})
    assert row.by_seed == (2.0, 3.0)
    assert row.value == interval([2.0, 3.0])


def written(name: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The files of a figure with made-up results."""
    figure = FIGURES[name](TINY)
    monkeypatch.setattr("simulator.figures.sweep.run", lambda *_, **__: made_up(figure))
    monkeypatch.setattr("simulator.figures.plots.PNG_DPI", 40)
    directory.mkdir()
    make(figure, directory)
    return {path.name: path.read_bytes() for path in directory.iterdir()}


@pytest.mark.parametrize("name", rest_after(1, *FIGURES))
def test_plots_and_tables_are_written(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    files = written(name, tmp_path / "one", monkeypatch)
    assert set(files) == {f"figure-{name}.{kind}" for kind in ("png", "svg", "csv", "json")}
    rows = list(csv.DictReader(files[f"figure-{name}.csv"].decode().splitlines()))
    assert tuple(rows[0]) == COLUMNS
    assert len(json.loads(files[f"figure-{name}.json"])["rows"]) == len(rows)


def test_they_are_the_same_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With several panels."""
    one, two = (written("6", tmp_path / directory, monkeypatch) for directory in ("one", "two"))
    assert one == two


@pytest.mark.rest
def test_the_command_simulates_draws_and_resumes(tmp_path: Path) -> None:
    arguments = ["4.3", "--nodes", "40", "--jobs", "20", "--seeds", "1", "--quick", "--processes", "1"]
    first = CliRunner().invoke(figure_command, [*arguments, "--out-dir", str(tmp_path)], catch_exceptions=False)
    assert first.exit_code == 0
    assert "d = 2" in first.output
    assert "profiles paper and default" in first.output
    kinds = {path.suffix for path in tmp_path.iterdir()}
    assert kinds == {".png", ".svg", ".csv", ".json", ".jsonl"}
    results = (tmp_path / "results.jsonl").read_bytes()
    again = CliRunner().invoke(figure_command, [*arguments, "--out-dir", str(tmp_path)], catch_exceptions=False)
    assert again.stdout == first.stdout
    assert (tmp_path / "results.jsonl").read_bytes() == results


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["8"], "figure"),
        (["3", "--nodes", "10"], "nodes"),
        (["3", "--seeds", "0"], "seeds"),
        (["3", "--jobs", "1"], "jobs"),
        (["5", "--profile", "papers"], "profile"),
        (["5", "--profile", ","], "profile"),
    ],
)
def test_what_cannot_be_is_named(tmp_path: Path, arguments: list[str], named: str) -> None:
    with pytest.raises(InvalidOption, match=named):
        CliRunner().invoke(figure_command, [*arguments, "--out-dir", str(tmp_path)], catch_exceptions=False)


def test_all_is_all_and_no_figure_is_made_twice() -> None:
    assert catalogue.named(["5", "all"]) == ["5", *(name for name in FIGURES if name != "5")]
