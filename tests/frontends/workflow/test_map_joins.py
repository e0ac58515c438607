"""Which joins need no shuffle: which relations are surely small, what plans make of that, and what it costs."""

from dataclasses import replace

import pytest

from frontends.workflow import example_data
from frontends.workflow.engines import engine
from frontends.workflow.engines.base import ALL_RULES
from frontends.workflow.ir.dag import Dag, Side
from frontends.workflow.ir.reading import read
from frontends.workflow.jobs.graph import JobGraph
from frontends.workflow.jobs.map_joins import map_joins
from frontends.workflow.jobs.merging import unmergeable
from frontends.workflow.mapping.calibration import Calibration
from frontends.workflow.mapping.costs import EngineModel, JobCosts
from frontends.workflow.mapping.sizes import TableSize, relation_sizes
from frontends.workflow.mapping.small_relations import small_relations
from frontends.workflow.running.answers import Explained
from frontends.workflow.running.execution import Barred, Execution
from frontends.workflow.running.planning import CostPlanner, choose
from frontends.workflow.sources import source_of_file
from frontends.workflow.switches import Switches
from frontends.workflow.table_files import given_tables
from tests.frontends.workflow.test_shuffling import EXAMPLES
from tests.support.workflow_plans import anything, rates

SCANS = (
    "large = SCAN 'large' (k INTEGER, x DOUBLE)\nfew = SCAN 'few' (k INTEGER, s STRING)\n"
    "unknown = SCAN 'unknown' (k INTEGER)\n"
)
TABLES = {"large": TableSize(1_000_000, 16_000_000), "few": TableSize(100, 5_000, {"k": 800, "s": 4_200})}
BYTES_MAX = 5_000


def dag(*lines: str) -> Dag:
    return Dag.of_unread(read("\n".join([SCANS.strip(), *lines, "RESULTS large"])).operators)


# ---- what is surely small --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "is_small"),
    [
        ("r = SELECT few WHERE {k > 1}", True),
        ("r = PROJECT few TO (t = {s}, u = {s})", False),  # 8,400 bytes of texts
        ("r = PROJECT few TO (t = {s})", True),
        ("r = PROJECT few TO (t = {s || 'a'})", False),  # texts of any length
        ("r = AGGREGATE few BY (s) TO (n = COUNT)", True),
        ("r = AGGREGATE large TO (n = SUM x)", True),
        ("r = AGGREGATE large BY (k) TO (n = SUM x)", False),  # as many groups as rows, perhaps
        ("r = TOP 3 large BY (x)", True),
        ("r = SELECT large WHERE {k = 1}", False),
        ("r = JOIN SEMI large, few ON (k = k) TO (k = LEFT k)", False),
        ("r = CROSS JOIN few, few TO (k = LEFT k)", False),  # 80,000 bytes
        ("r = UNION ALL few, few", False),  # 1,600 of numbers, and texts that are not followed so far
        ("r = VALUES (n INTEGER, s STRING) ROWS (({1}, {'a'}))", True),
        ("r = SELECT unknown WHERE {k = 1}", False),
    ],
)
def test_a_relation_is_small_if_it_surely_is(line: str, is_small: bool) -> None:
    found = small_relations(dag(line), TABLES, {}, BYTES_MAX)
    assert ("r" in found) is is_small
    assert {"few", "large", "unknown"} & found == {"few"}


def test_a_relation_that_a_job_has_made_is_small_by_its_true_size() -> None:
    workflow = dag("r = AGGREGATE large BY (k) TO (n = SUM x)")
    for rows, found in ((100, {"few", "r"}), (1_000, {"few"})):
        assert small_relations(workflow, TABLES, {"r": TableSize(rows, 16 * rows)}, BYTES_MAX) == found


def test_texts_of_a_table_of_which_only_rows_are_known_may_be_of_any_length() -> None:
    assert small_relations(dag(), {"few": TableSize(100)}, {}, BYTES_MAX) == frozenset()
    assert small_relations(dag(), {"few": TableSize(0)}, {}, BYTES_MAX) == {"few"}
    assert small_relations(dag(), {"unknown": TableSize(100)}, {}, BYTES_MAX) == {"unknown"}


# ---- which joins, and which jobs -------------------------------------------------------------


def test_of_two_small_sides_the_right_one_is_read_whole() -> None:
    on = "ON (k = k) TO (k = LEFT k)"
    for line, side in (
        (f"r = JOIN INNER few, unknown {on}", Side.LEFT),
        (f"r = JOIN INNER unknown, few {on}", Side.RIGHT),
        (f"r = JOIN INNER few, few {on}", Side.RIGHT),
        ("r = CROSS JOIN few, large TO (k = LEFT k)", Side.LEFT),
    ):
        assert map_joins(dag(line).operators, {"few"}) == {"r": side}
    assert map_joins(dag(f"r = JOIN INNER few, large {on}").operators, ()) == {}


def test_joins_of_mappers_need_no_key_of_the_others() -> None:
    lines = (
        "i = JOIN INNER large, few ON (k = k) TO (k = RIGHT k, x = LEFT x, s = RIGHT s)",
        "j = JOIN LEFT i, few ON (s = s) TO (k = LEFT k, x = LEFT x, s = RIGHT s)",
        "r = AGGREGATE j BY (x) TO (n = COUNT)",
    )
    assert "by different keys" in (unmergeable(dag(*lines)) or "")
    assert unmergeable(dag(*lines), small={"few"}) is None
    assert unmergeable(dag(*lines, "d = DISTINCT i"), small={"few"}) is not None
    assert unmergeable(dag(*lines[:2], "d = DISTINCT j"), small={"few"}) is None


def test_keys_are_followed_through_joins_of_mappers() -> None:
    """The right key of an inner join is the left one; of a left join it may be null."""
    for kind, why in (("INNER", None), ("LEFT", "by different keys")):
        lines = (
            f"i = JOIN {kind} large, few ON (k = k) TO (k = RIGHT k, x = LEFT x)",
            "n = AGGREGATE i BY (k) TO (n = COUNT)",
            "m = AGGREGATE large BY (k) TO (m = COUNT)",
            "u = UNION ALL n, m",
            "r = AGGREGATE u BY (k) TO (n = MAX n)",
        )
        found = unmergeable(dag(*lines), small={"few"})
        assert (found is None) if why is None else (why in (found or ""))


def test_what_each_mapper_reads_costs_as_often_as_there_are_mappers() -> None:
    workflow = dag("r = JOIN INNER large, few ON (k = k) TO (k = LEFT k)")
    graph, mapreduce = JobGraph(workflow), engine("mapreduce")

    def seconds(cpus: float, small: frozenset[str]) -> float:
        model = EngineModel(
            "mapreduce", rates(cpus=cpus), anything, None,
            read_whole=lambda job: mapreduce.read_whole(job, ALL_RULES, small),
        )  # fmt: skip
        return JobCosts(graph, (model,), relation_sizes(workflow, TABLES)).explained(graph.all, 0, True).seconds

    once = seconds(1.0, frozenset({"few"}))
    assert once == seconds(4.0, frozenset())
    assert seconds(3.5, frozenset({"few"})) - once == pytest.approx(3 * 5_000 / 2**20)


# ---- plans -----------------------------------------------------------------------------------


def explained(*off: str) -> Explained:
    given = given_tables(example_data.tables("netflix", 5_000))
    workflow = source_of_file(EXAMPLES / "netflix.hql").dag({name: one.schema for name, one in given.items()})
    sizes, switches = {name: one.size for name, one in given.items()}, Switches.all_but(off)
    return Explained(choose(workflow, sizes, {"mapreduce": True}, switches, rates=Calibration()), sizes, switches)


def test_netflix_has_three_jobs_as_films_are_few() -> None:
    """As many as by hand: films are joined by mappers."""
    found = explained()
    assert [job.operators for job in found.plan.jobs] == [
        {"old_movies", "rated", "preferences", "transposed", "pairs", "entries"},
        {"agreements", "weighted", "scores"},
        {"predicted", "best"},
    ]
    assert "    without a shuffle: each mapper reads old_movies whole" in found.text()
    assert 'task.scan("movies_whole", inputs["movies"]' in found.code()[0][1]
    off = explained("map-joins")
    assert len(off.plan.jobs) == 4
    assert "without a shuffle" not in off.text()
    assert not any("movies_whole" in code for _, code in off.code())


def test_plans_go_by_what_is_there_not_by_what_earlier_runs_have_shown() -> None:
    workflow = dag(
        "d = AGGREGATE large BY (k) TO (n = COUNT)",
        "j = JOIN INNER large, d ON (k = k) TO (x = LEFT x, n = RIGHT n)",
        "r = AGGREGATE j BY (x) TO (n = MAX n)",
    )
    planner = CostPlanner(TABLES, {"mapreduce": True}, Calibration(), history_sizes={"d": TableSize(10, 160)})
    execution = Execution(workflow, planner)
    (first,) = execution.start()
    assert first.names == {"d", "j"}
    assert first.small == {"few"}
    # Had another engine made d alone, its true size would count.
    rest = workflow.subset({"j", "r"})
    for known, jobs in ((TableSize(10, 160), 1), (TableSize(10**6, 16 * 10**6), 2)):
        (planner := replace(planner)).plan(rest, {"d": known}, Barred())
        assert planner.last is not None
        assert len(planner.last.jobs) == jobs
