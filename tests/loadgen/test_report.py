"""The report is one self-contained page, has all the figures, and shows users' text as text."""

import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from loadgen import report_plots
from loadgen.recorded import EXECUTED, REPLAYED, Run, Simulated, SimulatedPoint, write_run
from loadgen.report import write_report
from loadgen.report_content import all_shown, ms, text
from loadgen.report_figures import sweeps
from loadgen.report_page import DETAILED_GROUPS_MAX, render
from loadgen.report_plots import Curve
from sparrow_py.distribution import install_command
from sparrow_py.errors import InvalidOption
from tests.support.recorded_runs import PLAIN, Made, durations_run, made_run, queries_run, sweep_run
from tests.support.suites import rest_after

VOID = {"meta", "br", "hr", "img", "input", "link"}
HOSTILE = "<script>alert(1)</script>"


class Page(HTMLParser):
    """The tags, texts and ids of a page; closing tags have to match."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.headings: list[str] = []
        self.texts: list[str] = []
        self.drawn: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_startendtag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("h1", "h2", "h3", "h4", "summary"):
            self.headings.append(data.strip())
        if self.open and self.open[-1] != "style" and data.strip():
            self.texts.append(data.strip())
        if "svg" in self.open:
            self.drawn.append(data)
        if {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data

    def has(self, words: str) -> bool:
        """Whether the page has these words."""
        return any(words in found for found in self.texts)


def page_of(run: Run | str) -> Page:
    """The parsed report."""
    page = Page(run if isinstance(run, str) else render(run))
    assert page.open == []
    return page


def with_column(run: Run, table: str, column: str, value: str) -> Run:
    """The run with the same text in all rows of a column."""
    own: pa.Table = getattr(run, table)
    values = pa.array([value] * own.num_rows, pa.string())
    changed = own.set_column(own.column_names.index(column), column, values)
    changes: dict[str, Any] = {table: changed}
    return replace(run, **changes)


@cache
def queries_of_all() -> Run:
    """Made once, and not at import: a process that runs other tests needs none of this."""
    return queries_run()


@pytest.fixture(scope="module")
def queries() -> str:
    """The report of placements, users and queries."""
    return render(queries_of_all())


@pytest.fixture(scope="module")
def sweep() -> str:
    """The report of loads and probe ratios."""
    return render(sweep_run(jobs=20, users=("only",)))


@pytest.fixture
def undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page with its words, but empty drawings: these take ten times as long as everything else."""
    for draw in ("ranges", "cdf", "over_time", "lines"):
        monkeypatch.setattr(report_plots, draw, lambda *_, **__: "<svg></svg>")


@pytest.mark.rest
def test_the_report_of_queries_has_its_sections(queries: str) -> None:
    page = page_of(queries)
    for heading in (
        "A made-up run", "Points", "Response time by query", "Waits of tasks", "All tasks", "Stage group-by", "Stages",
        "Tasks by user over time", "Running tasks: Sparrow", "Queued tasks: random", "Utilisation over time",
        "No-ops and cancellations over time", "Counts",
    ):  # fmt: skip
        assert heading in page.headings
    assert "Response time against settings" not in page.headings
    assert page.has("python -m loadgen run --preset made-up --report out/")
    assert page.has("the generator kept its times at all 3 points")


def test_the_table_has_the_figures_of_each_point(queries: str) -> None:
    page = page_of(queries)
    for point, name in zip(queries_of_all().header.points, ("Sparrow", "batch sampling", "random"), strict=True):
        found = point.figures
        wanted = [ms(found[key]) for key in ("p5", "p50", "p95", "p99", "ideal_p50")]
        wanted += [
            f"{found['value']:.2f}",
            ms(found["over_ideal_p50_ms"]),
            ms(found["wait_p50"]),
            ms(found["wait_p95"]),
        ]
        wanted += [
            f"{found['utilisation'] * 100:.1f} %",
            f"{found['p95_later_over_earlier']:.2f}",
            "0.50",
            "0.25",
            "210",
            str(found["jobs_measured"]),
            "1",
        ]
        assert [name, *wanted] in page.rows
        q3 = found["by_label"]["q3"]
        assert ["q3", name, str(q3["jobs_measured"]), *(ms(q3[key]) for key in ("p5", "p50", "p95", "p99"))] in [
            row[:7] for row in page.rows
        ]
        stage = found["by_stage"]["q12"]["join"]
        assert ["q12", "join", name, str(stage["stages_measured"]), ms(stage["p5"]), ms(stage["p50"])] in [
            row[:6] for row in page.rows
        ]
    times = queries_of_all().header.points[2].figures["p95"] / queries_of_all().header.points[0].figures["p95"]
    assert page.has(f"{times:.1f} × that of Sparrow")


@pytest.mark.rest
def test_points_of_many_settings_are_curves_with_the_simulators_over_them(sweep: str) -> None:
    page = page_of(sweep)
    assert "Median response time against load" in page.headings
    assert "p95 of response times against probe ratio d" in page.headings
    assert not {"Response time by query", "Tasks by user over time"} & set(page.headings)
    for words in ("d = 1.5", "load = 0.9", "simulated", "python -m simulator run --load 0.5"):
        assert page.has(words)
    assert page.has(f"The first {DETAILED_GROUPS_MAX} of 20 are drawn.")
    assert len([heading for heading in page.headings if heading.startswith("load = ")]) == DETAILED_GROUPS_MAX


@pytest.mark.usefixtures("undrawn")
def test_points_of_many_durations_are_a_curve_and_one_of_its_difference_to_the_ideal() -> None:
    page = page_of(durations_run(jobs=20, users=("only",)))
    assert "Median response time against duration of a task" in page.headings
    assert "Median response time over ideal against duration of a task" in page.headings
    assert "Tasks by user over time" not in page.headings
    assert not page.has("simulated")


@pytest.mark.usefixtures("undrawn")
def test_random_placement_stands_beside_each_probe_ratio() -> None:
    plain: dict[str, Any] = {"queries": PLAIN, "jobs": 20, "failing": frozenset()}
    points = [Made(probe_ratio=d, **plain) for d in (1.0, 2.0)]
    page = page_of(made_run([*points, Made(placement="random", probe_ratio=1.0, **plain)]))
    groups = [heading for heading in page.headings if heading.startswith("d = ")]
    assert groups == ["d = 1", "d = 2"]
    assert [row[0] for row in page.rows if row[0] == "random"] == [
        "random"
    ] * 5  # Twice in both groups, and in the counts.


@pytest.mark.usefixtures("undrawn")
def test_both_profiles_stand_in_one_table_beside_the_placements_that_have_none() -> None:
    points = [Made(jobs=20, profile=profile) for profile in ("paper", "default")]
    page = page_of(made_run([*points, Made(jobs=20, placement="random", profile="paper")]))
    for place in ("Running tasks", "Queued tasks"):
        assert {f"{place}: Sparrow (paper)", f"{place}: Sparrow (default)", f"{place}: random"} <= set(page.headings)
    assert not [heading for heading in page.headings if heading.startswith("profile")]
    names = ["Sparrow (paper)", "Sparrow (default)", "random"]
    assert [row[0] for row in page.rows if row[0] in names] == 3 * names  # Points, job by job, and counts.
    assert [row[1] for row in page.rows if row[0] == "q3"][:3] == names
    assert page.has("× that of Sparrow (paper)")


@pytest.mark.usefixtures("undrawn")
def test_the_same_jobs_of_two_policies_stand_in_one_table() -> None:
    page = page_of(made_run([Made(jobs=20, policy=policy) for policy in ("sparrow", "auto")]))
    names = ["sampling", "long jobs by policy flow"]
    assert [row[0] for row in page.rows if row[0] in names] == 3 * names  # Points, job by job, and counts.
    assert [row[1] for row in page.rows if row[0] == "user0"][:2] == names
    assert page.has("× that of sampling")


@pytest.mark.usefixtures("undrawn")
def test_schedulers_of_the_altruistic_plane_are_named_and_compared_job_by_job() -> None:
    policies = ("drf", "altruistic", "altruistic/horizon=barrier")
    run = made_run([Made(jobs=20, policy=policy) for policy in policies])
    names = ["DRF", "policy altruistic", "policy altruistic, horizon=barrier"]
    shown = all_shown(run)
    assert [one.name for one in shown] == names
    assert len({one.colour for one in shown}) == len(names)
    page = page_of(run)
    assert page.has("How many times as long each job took with DRF")
    assert [row[0] for row in page.rows if row[0] in names] == 3 * names  # Points, job by job, and counts.


@pytest.mark.usefixtures("undrawn")
def test_a_run_of_the_paper_s_profile_alone_says_so() -> None:
    page = page_of(made_run([Made(jobs=20, profile="paper")]))
    assert page.has("Sparrow (paper)")
    assert page.has("profile")


def test_each_curve_has_the_simulator_s_of_its_own_way(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[list[Curve]] = []

    def recorded(curves: list[Curve], *_: Any, **__: Any) -> str:
        drawn.append(curves)
        return ""

    monkeypatch.setattr(report_plots, "lines", recorded)
    plain: dict[str, Any] = {"queries": PLAIN, "jobs": 20, "failing": frozenset()}
    ways = [("sparrow", "paper"), ("sparrow", "default"), ("random", "paper")]
    run = made_run([Made(load=load, placement=a, profile=b, **plain) for a, b in ways for load in (0.3, 0.5)])
    simulated = Simulated(
        [
            SimulatedPoint(load, 2.0, 100.0 + place, placement=a, profile=b)
            for place, (a, b) in enumerate(ways)
            for load in (0.3, 0.5)
        ]
    )
    (first, *_) = sweeps(all_shown(run), simulated)
    dashed = {curve.name: list(curve.ys) for curve in drawn[0] if curve.dashed}
    assert dashed == {"Sparrow (paper)": [100.0] * 2, "Sparrow (default)": [101.0] * 2, "random": [102.0] * 2}
    assert [key.name for key in first.legend] == [*dashed, "simulated", "ideal"]
    assert len({curve.colour for curve in drawn[0] if curve.dashed}) == 3


@pytest.mark.usefixtures("undrawn")
def test_points_with_the_same_settings_have_different_names() -> None:
    page = page_of(made_run([Made(jobs=20), Made(jobs=20)]))
    assert page.has("Sparrow, point 0")
    assert page.has("Sparrow, point 1")


@pytest.mark.usefixtures("undrawn")
def test_a_run_whose_generator_was_late_is_loudly_invalid() -> None:
    page = page_of(made_run([Made(jobs=20, load=0.5), Made(jobs=20, load=0.7, valid=False)]))
    assert page.has("INVALID: 1 of 2 points")
    assert page.has("point 1 (sparrow): the generator was 250 ms late with job 12")
    assert page.has("× marks points that are not valid.")
    assert ("tr", "class", "invalid-row") in page.attributes
    assert not page.has("the generator kept its times")


@pytest.mark.usefixtures("undrawn")
def test_the_report_says_when_tasks_slept() -> None:
    assert page_of(queries_run(jobs=20, tasks_sleep=True)).has("Tasks slept.")
    assert not page_of(queries_run(jobs=20)).has("Tasks slept.")


@pytest.mark.usefixtures("undrawn")
def test_a_run_in_which_nothing_finished_has_a_report() -> None:
    run = with_column(queries_run(jobs=20), "jobs", "status", "lost")
    page = page_of(run)
    assert "Waits of tasks" not in page.headings
    assert "Response time by query" not in page.headings
    assert ["Sparrow", *["–"] * 9] in [row[:10] for row in page.rows]


@pytest.mark.usefixtures("undrawn")
def test_a_run_without_jobs_has_a_report() -> None:
    run = queries_run(jobs=20)
    page = page_of(replace(run, jobs=run.jobs[:0], tasks=run.tasks[:0], events=run.events[:0]))
    assert "Counts" in page.headings
    assert "No-ops and cancellations over time" not in page.headings


# ---- the page stands alone -------------------------------------------------------------------


@pytest.mark.parametrize("report", rest_after(1, "queries", "sweep"))
def test_the_page_loads_nothing_and_has_no_script(report: str, request: pytest.FixtureRequest) -> None:
    html = request.getfixturevalue(report)
    page = Page(html)
    references = [value for _, name, value in page.attributes if name in ("src", "href", "xlink:href", "data")]
    assert references  # Those of markers within a drawing.
    assert all(value.startswith("#") for value in references)
    assert all(target.startswith("#") for target in re.findall(r"url\(\s*['\"]?([^)]*)", html))
    assert not {tag for tag, _, _ in page.attributes} & {"script", "link", "img", "iframe", "object", "embed"}
    assert not [name for _, name, _ in page.attributes if name.startswith("on")]
    assert "@import" not in html
    for found in re.findall(r"\S*https?://\S*", html):
        assert found.startswith(("xmlns=", "xmlns:xlink="))


def test_each_id_is_there_once_and_each_reference_has_one(queries: str) -> None:
    ids = [value for _, name, value in Page(queries).attributes if name == "id"]
    assert len(ids) == len(set(ids))
    assert set(re.findall(r"(?:href=\"|url\()#([^\")]+)", queries)) <= set(ids)


def test_drawings_take_the_colours_of_the_page(queries: str) -> None:
    drawings = re.findall(r"<svg.*?</svg>", queries, re.S)
    assert len(drawings) > 10
    for drawing in drawings:
        assert "var(--ink)" in drawing
        assert "var(--s0)" in drawing
        assert not re.search(r"(fill|stroke): #", drawing)


@pytest.mark.parametrize(
    "value", rest_after(1, HOSTILE, "_hidden $\\frac{1}{0}$ 名前", '"><img src=x onerror=alert(1)>&lt;')
)
def test_text_of_users_is_shown_as_text(value: str) -> None:
    run = made_run([Made(jobs=20, seed=seed) for seed in (1, 2)])
    for table, column in (("jobs", "label"), ("jobs", "user"), ("tasks", "stage_name")):
        run = with_column(run, table, column, value)
    header = run.header
    header.title, header.command, header.preset = value, value, value
    header.points[0].why_invalid, header.points[0].valid = value, False
    header.points[0].label = value
    header.points[1].settings |= {"placement": value, value: value}
    header.points[1].counts |= {value: 1}
    header.points[1].cpu_s |= {value: 1.0}
    html = render(run)
    page = page_of(html)
    assert "<script" not in html
    assert not {tag for tag, _, _ in page.attributes} & {"script", "img"}
    assert value in page.headings
    assert [row[0] for row in page.rows].count(value) == 4  # The label of each point; the second point twice.
    assert value in page.drawn


def test_names_are_printable_and_not_too_long() -> None:
    assert text("a\x00b\u202ec") == "a\ufffdb\ufffdc"
    assert text("x" * 50) == "x" * 39 + "…"
    assert text("q3") == "q3"


@pytest.mark.rest
def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    write_run(tmp_path, made_run([Made(jobs=20, failing=frozenset({3}))]))
    first = write_report(tmp_path).read_bytes()
    # Another process hashes strings otherwise.
    command = [sys.executable, "-m", "loadgen.report", str(tmp_path)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert printed.stdout.strip() == str(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_bytes() == first


@pytest.mark.rest
def test_the_command_refuses_a_directory_without_a_run_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadgen.report", str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.fullmatch(
        r"loadgen\.report: directory: .* is not valid; allowed: one with a points\.json .*\n", done.stderr
    )


@pytest.mark.parametrize("module", ["jinja2", "matplotlib"])
def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    for name in ("report_page", "report_plots", "report_figures"):
        monkeypatch.delitem(sys.modules, f"loadgen.{name}", raising=False)
    monkeypatch.setitem(sys.modules, module, None)
    said = re.escape(f"nothing without {module}: {install_command('loadgen')}")
    with pytest.raises(InvalidOption, match=said):
        write_report(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_a_report_that_cannot_be_written(tmp_path: Path) -> None:
    write_run(tmp_path, queries_run(jobs=20))
    (tmp_path / "report.html").mkdir()
    with pytest.raises(InvalidOption, match="can be written to"):
        write_report(tmp_path)


def test_ids_in_users_text_stay_as_they_are() -> None:
    drawing = '<svg><g id="a"/><use xlink:href="#a" style="clip-path: url(#a)"/><text> id="a" #010101</text></svg>'
    assert report_plots.with_own_ids(drawing, "p-") == (
        '<svg><g id="p-a"/><use xlink:href="#p-a" style="clip-path: url(#p-a)"/><text> id="a" #010101</text></svg>'
    )


@pytest.mark.rest
@pytest.mark.usefixtures("undrawn")
def test_points_that_differ_in_their_number_of_jobs_are_of_one_curve() -> None:
    run = sweep_run()
    before = [plot.legend for plot in sweeps(all_shown(run), None)]
    for number, point in enumerate(run.header.points):
        point.settings |= {"jobs": 100 + number, "service": f"constant, mean {number} ms"}
    assert before == [plot.legend for plot in sweeps(all_shown(run), None)] != []


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"execution": EXECUTED}, "Queries executed, for as long as they took."),
        ({"execution": REPLAYED, "stretch": 16.97}, "Recorded durations, replayed as sleeps, stretched 17 times."),
        ({"execution": REPLAYED, "stretch": 1.0}, "Recorded durations, replayed as sleeps, not stretched."),
    ],
)
@pytest.mark.usefixtures("undrawn")
def test_figures_of_queries_say_what_their_tasks_did(settings: dict[str, Any], sentence: str) -> None:
    run = queries_run()
    for point in run.header.points:
        point.settings |= settings
    assert render(run).count(sentence) == 3, "by query, waits and stages"


@pytest.mark.usefixtures("undrawn")
def test_figures_of_other_jobs_do_not_speak_of_queries() -> None:
    assert "replayed as sleeps" not in render(queries_run())
