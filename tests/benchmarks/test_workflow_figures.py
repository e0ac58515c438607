"""`benchmarks.workflow`: what decides its rows and verdicts, and the scripts by hand; no time is asserted."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from benchmarks.flow.outcome import MET, MISSED, NOT_AT_THIS_SCALE, Row
from benchmarks.flow.results import FigureResult, TargetResult, add, read
from benchmarks.workflow import beside, choosing, mapping, overhead, rules_off, tpch, workloads
from benchmarks.workflow.__main__ import main
from benchmarks.workflow.answers import OtherAnswerError, check_same, differing
from benchmarks.workflow.bench import Bench, Ran, Times, Tries, WayFailedError, interleaved, shortlisted
from benchmarks.workflow.catalogue import FIGURES
from benchmarks.workflow.decision_tree import LARGE_BYTES, Features, decided
from benchmarks.workflow.parts import Parts
from benchmarks.workflow.ways import Step, Way, at_loop, by_hand, choice_among, mixes_at, of_jobs, planned
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.tables import arrow_schema
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.mapping.rates import default_rates
from frontends.workflow.mapping.sizes import TableSize
from frontends.workflow.rewrites.rules import optimised
from sparrow_py import LocalCluster
from sparrow_py.errors import InvalidOption
from tests.support.workflow_by_hand import SCRIPTS_BY_HAND, check_by_hand
from tests.support.workflow_samples import netflix, page_rank


@pytest.fixture(autouse=True)
def tables_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(workloads.WORK_VARIABLE, str(tmp_path / "work"))


class Played(Bench):
    """Runs take as long as is listed for each way, the last number again and again; None fails."""

    def __init__(self, seconds: Mapping[str, Sequence[float | None]]) -> None:
        super().__init__(threads=1)
        self._seconds = {name: list(listed) for name, listed in seconds.items()}
        self.ran: list[str] = []

    def run(self, way: Way, *, cold: bool = False, limit_s: float = 100.0) -> Ran:
        self.ran.append(way.name)
        listed = self._seconds[way.name]
        took_s = listed.pop(0) if len(listed) > 1 else listed[0]
        if took_s is None or took_s > limit_s:
            raise WayFailedError(way.name)
        return Ran(took_s, took_s)


def way(name: str, *engines: str) -> Way:
    return Way(name, tuple(Step(engine, "", {}, {}) for engine in engines or (name,)), ())


# ---- ways ---------------------------------------------------------------------------------------


def test_jobs_hand_over_files_between_them(tmp_path: Path) -> None:
    dag = optimised(page_rank(5))
    before, loop = at_loop(dag)
    files = {"edges": tmp_path / "e", "page_rank": tmp_path / "p"}
    made = of_jobs("mix", dag, [(before, "duckdb"), (loop, "scipy")], files, tmp_path / "between")
    first, second = made.steps
    assert made.engines == ("duckdb", "scipy") and first.reads == {"edges": files["edges"]}
    assert second.reads["edges_cnt"] == first.makes["edges_cnt"] and made.results == tuple(second.makes.values())


def test_workflows_without_a_loop_at_the_end_are_not_cut_there() -> None:
    with pytest.raises(ValueError, match="this one has 0"):
        at_loop(netflix(3))


def test_the_cut_is_where_least_is_handed_over_or_before_the_loop() -> None:
    loop = optimised(page_rank(5))
    assert mapping.cut(loop, {}) == at_loop(loop)[0]
    dag = netflix(4)
    listed = {"chosen": 900, "ids": 10, "rated": 500, "kept": 400}
    assert mapping.cut(dag, {name: TableSize(1, size) for name, size in listed.items()}) == {"chosen", "ids"}
    assert mapping.cut(netflix(1), {}) == frozenset()


def test_engines_that_cannot_have_no_plan(tmp_path: Path) -> None:
    one = workloads.example("pagerank.gas", 60, iterations=2)
    assert choice_among(one, ["mapreduce"], Calibration()) is None
    choice = choice_among(one, ["duckdb"], Calibration())
    assert choice is not None and planned("it", one, choice, tmp_path).engines == ("duckdb",)
    dag = optimised(one.dag)
    made = mixes_at(one, dag, at_loop(dag)[0], ["duckdb", "mapreduce", "numba"], tmp_path)
    assert [mix.name for mix in made] == ["duckdb + numba", "mapreduce + duckdb", "mapreduce + numba"]


def test_workloads_say_how_large_they_are_and_keep_their_tables() -> None:
    one = workloads.example("top_shopper.hql", 500)
    assert (one.name, list(one.files)) == ("top_shopper, 500", ["purchases"]) and one.bytes > 500
    assert beside.size_of_name("pagerank, 2,000,000") == 2_000_000
    written = one.files["purchases"].stat().st_mtime_ns
    assert workloads.project(500).files["purchases"].stat().st_mtime_ns == written
    assert workloads.join(500).dag.results == ("joined",)
    with pytest.raises(AssertionError, match="has no 'iteration < 20'"):
        workloads.example("netflix.hql", 50, iterations=5)


def test_iterations_that_are_written_out_make_what_the_loop_makes() -> None:
    made = []
    for one in (workloads.unrolled_communities(80), workloads.example("cross_community_pagerank.beer", 80)):
        tables = {name: pq.read_table(path) for name, path in one.files.items()}
        made.append(next(iter(evaluate(one.dag, tables).values())))
    assert differing(*made) == "" and made[0].num_rows > 5


# ---- scripts by hand ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "script", [stem for stem in SCRIPTS_BY_HAND if not stem.endswith("mapreduce") and "pyspark" not in stem]
)
def test_scripts_by_hand_make_what_the_workflow_means(script: str, tmp_path: Path) -> None:
    check_by_hand(script, tmp_path)


@pytest.mark.processes
@pytest.mark.rest
def test_mapreduce_by_hand_makes_what_the_workflow_means(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARROW_SCHEDULER", ",".join(cluster.addresses))
    check_by_hand("netflix_mapreduce", tmp_path)


def test_engines_have_a_row_where_a_script_is_there() -> None:
    assert {"duckdb", "polars", "mapreduce"} <= set(overhead.engines_by_hand("netflix"))
    assert {"duckdb", "polars", "scipy"} <= set(overhead.engines_by_hand("pagerank"))
    assert by_hand("it", "netflix", "serial", {}, Path()) is None


# ---- running ------------------------------------------------------------------------------------


def test_ways_run_in_turn_after_a_run_that_does_not_count() -> None:
    bench = Played({"a": [9.0, 1.0], "b": [None], "c": [9.0, 2.0]})
    said: list[str] = []
    times = interleaved(bench, [way("a"), way("b"), way("c")], 8, said.append)
    assert bench.ran[:3] == ["a", "b", "c"] and said == ["left out: b"]
    rounds = [tuple(bench.ran[first : first + 2]) for first in range(3, 19, 2)]
    assert set(rounds) == {("a", "c"), ("c", "a")}, "in one order a way would always follow the same one"
    assert {name: each.wall_s for name, each in times.items()} == {"a": 1.0, "c": 2.0}


def test_slow_ways_are_not_run_again_and_again() -> None:
    bench = Played({"fast": [5.0, 1.0], "near": [1.3], "slow": [9.0, 8.0], "late": [31.0]})
    times = shortlisted(bench, [way(name) for name in ("fast", "near", "slow", "late")], 3)
    assert {name: len(each.runs) for name, each in times.items()} == {"fast": 3, "near": 3, "slow": 1}
    assert times["slow"].wall_s == 9.0 and bench.ran.count("late") == 1


def test_ways_are_short_listed_within_each_set_of_engines() -> None:
    bench = Played({"a": [1.0], "b": [4.0], "c": [4.5], "d": [7.0]})
    sets = [lambda way: True, lambda way: way.name != "a"]
    times = shortlisted(bench, [way(name) for name in "abcd"], 3, among=sets)
    assert {name: len(each.runs) for name, each in times.items()} == {"a": 3, "b": 3, "c": 3, "d": 1}


def test_the_middle_of_five_runs_leaves_out_one_at_each_end() -> None:
    assert Times([Ran(wall_s, 0.0) for wall_s in (5.0, 1.0, 3.0, 2.0, 4.0)]).middle_s == (2.0, 4.0)


@pytest.mark.processes
@pytest.mark.rest
def test_a_bench_runs_code_cold_and_warm() -> None:
    one = workloads.example("top_shopper.hql", 400)
    with Bench(threads=1) as bench:
        choice = choice_among(one, ["serial"], Calibration())
        assert choice is not None
        made = planned("serial", one, choice, bench.directory)
        cold, warm = bench.run(made, cold=True), bench.run(made)
        assert cold.cpu_s > 0 and warm.wall_s > 0
        (expected,) = evaluate(one.dag, {"purchases": pq.read_table(one.files["purchases"])}).values()
        assert differing(pq.read_table(made.results[0]), expected) == ""
        endless = Way("endless", (Step("serial", "def run(inputs, outputs):\n    while True: pass\n", {}, {}),), ())
        with pytest.raises(WayFailedError, match="took longer than"):
            bench.run(endless, limit_s=0.2)
        assert bench.run(made).wall_s > 0, "a process that was stopped is started again"


# ---- answers ------------------------------------------------------------------------------------


def test_answers_are_bags_of_rows_of_any_names(tmp_path: Path) -> None:
    one = pa.table({"k": [1, 2, None], "x": [0.1 + 0.2, None, float("nan")]})
    other = pa.table({"n": pa.array([None, 2, 1], pa.int32()), "y": [float("nan"), None, 0.3]})
    assert differing(one, other) == ""
    assert differing(one, other.slice(1)) == "3 rows of 2 columns, and 2 of 2"
    assert differing(one, other.set_column(1, "y", pa.array([1.0, None, 0.3]))) == "values of column 1"
    assert "column 0 is int64" in differing(one, other.set_column(0, "n", pa.array(["a", "b", "c"])))
    files = [tmp_path / "one.parquet", tmp_path / "other.parquet"]
    for path, table in zip(files, (one, other.slice(1)), strict=True):
        pq.write_table(table, path)
    with pytest.raises(OtherAnswerError, match="a and b differ"):
        check_same("a", files[:1], "b", files[1:])


def test_answers_of_duckdb_are_cast_to_what_the_workflow_makes() -> None:
    got = pa.table({"n": [3], "x": [1.5]})
    expected = pa.table(
        {"count": pa.array([3], pa.decimal128(38, 0)), "x": pa.array(["1.5"]).cast(pa.decimal128(9, 2))}
    )
    assert tpch.compared(got, expected) == ""
    assert tpch.compared(got, expected.set_column(0, "n", pa.array(["three"]))) != ""


# ---- verdicts -----------------------------------------------------------------------------------


def row_of(name: str, wall_s: float, runs: int = 5, low_s: float | None = None, high_s: float | None = None) -> Row:
    return {
        "case": "it", "way": name, "engines": name.split(" + "), "runs": runs, "wall_s": wall_s,
        "low_s": low_s or wall_s, "high_s": high_s or wall_s, "cpu_s": wall_s,
    }  # fmt: skip


def test_a_choice_is_good_near_the_best_or_where_runs_overlap() -> None:
    ways = {
        one["way"]: one
        for one in (
            row_of("a", 1.0, high_s=1.3), row_of("b", 1.09), row_of("c", 1.4, low_s=1.29), row_of("d", 1.28, runs=1),
            row_of("e", 2.0),
        )
    }  # fmt: skip
    verdicts = {name: mapping.judged(name, ways) for name in (*ways, "not run")}
    assert [name for name, one in verdicts.items() if one.good] == ["a", "b", "c"]
    assert [name for name, one in verdicts.items() if one.reasonable] == ["a", "b", "c", "d"]
    assert verdicts["e"].times == 2.0 and verdicts["not run"].times is None


def test_a_configuration_has_the_best_of_what_may_be_used() -> None:
    choices = [
        {"case": "it", "may use": label, "who": who, "way": chosen}
        for label, chosen in (("all", "duckdb"), ("no SQL engine, no Polars", "pandas + scipy"))
        for who in mapping.WHO
    ]
    ways = [row_of("duckdb", 1.0), row_of("pandas", 4.0), row_of("pandas + scipy", 3.0)]
    rows = mapping.configurations([*ways, *choices])
    assert [(row["may use"], row["best"]) for row in rows] == [
        ("all", "duckdb"), ("no SQL engine, no Polars", "pandas + scipy")
    ]  # fmt: skip
    tells = mapping.summary(rows)
    assert [row["good_%"] for row in tells] == [100.0] * 4 and tells[0]["configurations"] == 2
    verdicts = [target.verdict for target in mapping.targets([*tells, *rows])]
    assert verdicts == [MET, MET, MET, MISSED], "the decision tree is as good here"


def test_thirty_three_configurations_are_looked_at() -> None:
    assert len(mapping.CASES) * len(mapping.ENGINE_SETS) == 33


def test_partial_history_is_the_same_half_each_time() -> None:
    assert len(choosing.half("abcdef", "x")) == 3 and choosing.half("abcdef", "x") == choosing.half("abcdef", "x")


class Learning(Bench):
    """Runs make small files, and take as long as is said of their engines."""

    def __init__(self, seconds: Mapping[str, float]) -> None:
        super().__init__(threads=1)
        self._seconds = seconds

    def run(self, way: Way, *, cold: bool = False, limit_s: float = 100.0) -> Ran:
        steps = []
        for step in way.steps:
            job = way.dag.subset(step.operators) if way.dag else None
            for name, path in step.makes.items():
                assert job is not None
                pq.write_table(arrow_schema(job.operator(name).schema).empty_table(), path)
            steps.append((self._seconds[step.engine], 0.0))
        return Ran(sum(wall_s for wall_s, _ in steps), 0.0, tuple(steps))


def test_full_history_leads_to_what_was_measured_as_fastest(tmp_path: Path) -> None:
    """Costs believe in DuckDB, until runs say that it is slow."""
    one = workloads.example("top_shopper.hql", 500)
    bench = Learning({"duckdb": 5.0, "pandas": 1.0, "serial": 0.25})
    slow = replace(default_rates("duckdb"), start_warm_s=0.3)
    rates = Calibration({"duckdb": default_rates("duckdb"), "pandas": slow, "serial": slow})
    tries = Tries(bench)
    choices = {name: choice_among(one, [name], rates) for name in ("duckdb", "pandas", "serial")}
    tries.add(planned(name, one, choice, tmp_path / name) for name, choice in choices.items() if choice is not None)
    chooser = choosing.Chooser(one, (), rates, tmp_path, tries)
    chosen = chooser.chosen(["duckdb", "pandas", "serial"], "all")
    assert chosen[choosing.NONE].engines == ("duckdb",)
    assert chosen[choosing.FULL].engines == ("serial",)
    assert chosen[choosing.PARTIAL].engines in (("pandas",), ("serial",))
    assert chooser.chosen(["scipy"], "graphs") == {}


def test_the_decision_tree_goes_by_form_and_size() -> None:
    engines = ("duckdb", "pandas", "serial", "scipy", "numba", "mapreduce")
    assert decided(Features(1_000, has_loop=False, is_graph=False), engines) == ("serial",)
    assert decided(Features(LARGE_BYTES, has_loop=False, is_graph=False), engines) == ("duckdb",)
    assert decided(Features(LARGE_BYTES, has_loop=True, is_graph=True), engines) == ("duckdb", "numba")
    assert decided(Features(1_000, has_loop=True, is_graph=True), ("pandas", "scipy")) == ("pandas", "scipy")
    assert decided(Features(1_000, has_loop=True, is_graph=False), ("mapreduce",)) == ()


def test_features_of_workflows() -> None:
    graph, batch = (
        mapping.features_of(workloads.example(file, 60, **options))
        for file, options in (("pagerank.gas", {"iterations": 3}), ("top_shopper.hql", {}))
    )
    assert (graph.has_loop, graph.is_graph) == (True, True) and (batch.has_loop, batch.is_graph) == (False, False)


def test_where_a_mix_would_win_follows_from_the_last_two_sizes() -> None:
    assert beside.crossing([(10, 1.0, 2.0), (20, 2.0, 2.5)]).startswith("from about 30 edges on")
    assert beside.crossing([(10, 1.0, 2.0), (20, 2.0, 3.0)]) == "a mix costs more for each edge, too"
    assert beside.crossing([(10, 1.0, 2.0)]) == "one size says nothing about others"


def test_targets_of_mixes_say_from_which_size_one_wins() -> None:
    rows = [
        {"workflow": f"w, {size}", "way": name, "engines": name, "wall_s": wall_s}
        for size, single_s, mix_s in ((10, 1.0, 2.0), (20, 4.0, 3.0))
        for name, wall_s in (("duckdb", single_s), ("duckdb + scipy", mix_s))
    ]
    made = beside.targets_mixes(rows)
    assert [(one.ours, one.verdict) for one in made] == [
        ("0.5 ×", MISSED), ("1.333 ×", MET), ("from 20 edges on", MET)
    ]  # fmt: skip


def test_targets_of_rules_tell_what_is_not_installed() -> None:
    rows = [
        {"workflow": "w", "engine": "mapreduce", "switched off": off, "× all on": ratio}
        for off, ratio in (("none", 1.0), ("all three", 2.5), ("merging", 2.0))
    ]
    assert [one.verdict for one in rules_off.targets(rows)] == [MET, NOT_AT_THIS_SCALE]


def test_targets_of_overhead_hold_sql_beside_what_is_by_hand() -> None:
    rows = [{"workflow": "w", "engine": "polars", "generated × by hand": 1.2, "by hand × own SQL": 0.9}]
    assert [one.verdict for one in overhead.targets(rows)] == [MISSED, MET]


def test_engines_of_tpch_are_counted() -> None:
    rows = [
        {"query": 1, "rows": 2, "duckdb_s": 0.5, "serial_s": tpch.FAILED, "dask_s": tpch.DIFFERS},
        {"query": 2, "rows": 2, "duckdb_s": 0.25, "serial_s": 3.0, "dask_s": tpch.NOT_TAKEN},
    ]
    engines = {row["engine"]: row for row in tpch.by_engine(rows)}
    assert engines["duckdb"]["all of them, s"] == 0.75 and engines["serial"]["all of them, s"] is None
    assert (engines["dask"]["differs"], engines["dask"]["not taken"], engines["serial"]["failed"]) == (1, 1, 1)
    assert [one.verdict for one in tpch.targets([*engines.values(), *rows])] == [MISSED, MISSED]


# ---- what is told -------------------------------------------------------------------------------


def test_parts_of_an_interrupted_figure_are_not_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "parts.jsonl"
    measured: list[str] = []

    def measure(name: str) -> list[Row]:
        measured.append(name)
        return [{"name": name, "s": 1.23456789}]

    Parts(path).part("one", lambda: measure("one"))
    with path.open("ab") as file:
        file.write(b'{"name":"two","ro')  # It was interrupted as it wrote.
    again = Parts(path, resume=True)
    assert again.part("one", lambda: measure("one")) == [{"name": "one", "s": 1.23457}] and measured == ["one"]
    again.over()
    assert not path.exists()
    Parts(path).part("one", lambda: measure("one"))
    assert Parts(path).part("one", lambda: measure("one")) and measured == ["one", "one", "one"], "not without --resume"
    path.write_bytes(b"nothing\n")
    with pytest.raises(InvalidOption, match=r"parts\.jsonl:1"):
        Parts(path, resume=True)


def test_quick_takes_arguments_that_each_figure_has() -> None:
    assert list(FIGURES) == [*(f"4.{number}" for number in range(2, 13)), "tpch"]
    for name, figure in FIGURES.items():
        assert figure.quick and all(figure.takes(argument) for argument in figure.quick), name
        assert figure.takes("repeat"), name


def test_options_that_a_figure_does_not_take_are_refused() -> None:
    done = CliRunner().invoke(main, ["figure", "4.12", "--size", "3"])
    assert done.exit_code == 2 and "4.12 does not take --size" in done.output
    assert CliRunner().invoke(main, ["figure", "4.1"]).exit_code == 2


def test_a_figure_is_measured_kept_and_becomes_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "benchmarks.workflow.beside._mixes",
        lambda one, repeat: [
            {"workflow": one.name, "way": "duckdb", "engines": "duckdb", "wall_s": 1.0},
            {"workflow": one.name, "way": "duckdb + numba", "engines": "duckdb + numba", "wall_s": 0.5},
        ],
    )
    results, page = tmp_path / "results.jsonl", tmp_path / "page.md"
    command = ["figure", "4.9", "--quick", "--size", "100", "--json", "--results", str(results)]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert rows[1] == {
        "figure": "4.9", "workflow": "cross_community_pagerank, 100", "way": "duckdb + numba",
        "engines": "duckdb + numba", "wall_s": 0.5,
    }  # fmt: skip
    assert [result.figure for result in read(results)] == ["4.9"]
    busy = FigureResult("4.2", "full", [{"a": 1}], [TargetResult("t", "o", MET)], [], "c", "d", 2, 8, 4.0, 1.0, 1.0)
    add(results, busy)
    assert CliRunner().invoke(main, ["document", "--results", str(results), "--out", str(page)]).exit_code == 0
    text = page.read_text()
    assert "| 4.9 | a mix wins a workflow | from 100 edges on | met" in text and "met (busy cores)" in text
    assert "# Figures of workflows" in text and "## Not measured yet\n\n4.3, 4.4" in text
