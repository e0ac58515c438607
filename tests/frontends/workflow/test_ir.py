"""Operators check themselves and derive their schemas; a DAG checks how they fit together."""

import dataclasses
import pickle
from collections.abc import Callable

import pytest
from hypothesis import given, settings

from frontends.workflow.errors import (
    EndlessLoop,
    InvalidWorkflow,
    NameTaken,
    TooLarge,
    TypeMismatch,
    UnknownColumn,
    UnknownRelation,
)
from frontends.workflow.ir.dag import (
    LOOP_DEPTH_MAX,
    OPERATORS_MAX,
    Aggregate,
    Aggregation,
    Arithmetic,
    BlackBox,
    Carried,
    Dag,
    Difference,
    Distinct,
    Function,
    Input,
    Join,
    JoinKind,
    JoinOutput,
    LoopCondition,
    LoopResult,
    Operator,
    Output,
    Project,
    Scan,
    Select,
    Side,
    Sort,
    SortKey,
    Top,
    Udf,
    Union,
    Values,
    While,
    free_name,
    joined_columns,
    loop_result,
)
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import COLUMNS_MAX, Column, Schema, Type
from frontends.workflow.positions import Position
from tests.support.workflow_dags import Case, cases
from tests.support.workflow_samples import page_rank

AT = Position(4, 2, "w.beer")
HOMES = Scan(name="homes", table="homes", columns=Schema.of(id=Type.INTEGER, town=Type.STRING, price=Type.DOUBLE))
TOWNS = Scan(name="towns", table="towns", columns=Schema.of(town=Type.STRING, people=Type.INTEGER))
H, T = HOMES.relation, TOWNS.relation
DEAR = Select(name="dear", source=H, condition=Scalar("price > 1000"))


def columns(operator: Operator) -> dict[str, Type]:
    return {column.name: column.type for column in operator.schema}


def test_schemas_follow_from_what_is_read() -> None:
    assert DEAR.schema == HOMES.schema
    project = Project(name="p", source=H, columns=(Output.column("town"), Output("k", Scalar("price / 1000"))))
    assert columns(project) == {"town": Type.STRING, "k": Type.DOUBLE}
    assert not project.only_columns
    aggregate = Aggregate(
        name="a",
        source=H,
        keys=("town",),
        aggregations=(
            Aggregation("n", Function.COUNT),
            Aggregation("ids", Function.SUM, "id"),
            Aggregation("mean", Function.AVG, "id"),
            Aggregation("last", Function.MAX, "town"),
            Aggregation("prices", Function.COUNT_DISTINCT, "price"),
        ),
    )
    assert columns(aggregate) == {
        "town": Type.STRING,
        "n": Type.INTEGER,
        "ids": Type.INTEGER,
        "mean": Type.DOUBLE,
        "last": Type.STRING,
        "prices": Type.INTEGER,
    }


def test_arithmetic_sets_a_column_in_its_place_or_adds_it() -> None:
    over = Arithmetic(name="a", source=H, column="id", value=Scalar("id * 0.5"))
    assert columns(over) == {"id": Type.DOUBLE, "town": Type.STRING, "price": Type.DOUBLE}
    new = Arithmetic(name="a", source=H, column="twice", value=Scalar("id * 2"))
    assert list(columns(new).items())[-1] == ("twice", Type.INTEGER)
    for arithmetic in (over, new):
        assert arithmetic.as_project().schema == arithmetic.schema


def test_the_usual_columns_of_a_join() -> None:
    join = Join(name="j", left=H, right=T, on=(("town", "town"),), columns=joined_columns(H, T, without=["town"]))
    assert join.schema.names == ("id", "town", "price", "people")
    assert join.left_keys == join.right_keys == ("town",)
    assert [one.name for one in joined_columns(H, T)] == ["id", "town", "price", "towns_town", "people"]
    assert [one.name for one in joined_columns(H, H)][3:] == ["homes_id", "homes_town", "homes_price"]
    assert [one.name for one in joined_columns(H, T, renamed={"people": "TOWN2", "town": "there"})][3:] == [
        "there",
        "TOWN2",
    ]
    assert free_name("a", ["A", "b", "a_2"]) == "a_3"


def select(condition: str) -> Select:
    return Select(name="s", source=H, condition=Scalar(condition), at=AT)


def join(left: str, right: str, kind: JoinKind = JoinKind.INNER, side: Side = Side.LEFT) -> Join:
    output = JoinOutput("x", side, "town")
    return Join(name="j", left=H, right=T, on=((left, right),), columns=(output,), kind=kind, at=AT)


def aggregate(*aggregations: Aggregation, keys: tuple[str, ...] = ()) -> Aggregate:
    return Aggregate(name="a", source=H, keys=keys, aggregations=aggregations, at=AT)


BAD: list[tuple[Callable[[], Operator], type[InvalidWorkflow], str]] = [
    (lambda: select("prize > 1"), UnknownColumn, "is price meant"),
    (lambda: select("price + 1"), TypeMismatch, "DOUBLE, not BOOLEAN"),
    (lambda: join("towm", "town"), UnknownColumn, "is town meant"),
    (lambda: join("town", "peple"), UnknownColumn, "is people meant"),
    (lambda: join("id", "town"), TypeMismatch, "JOIN on id, INTEGER, and town, STRING"),
    (lambda: join("town", "town", JoinKind.SEMI, Side.RIGHT), InvalidWorkflow, "no columns of its right side"),
    (lambda: dataclasses.replace(join("town", "town"), on=()), InvalidWorkflow, "CROSS JOIN"),
    (lambda: Union(name="u", left=H, right=T, at=AT), TypeMismatch, "UNION of relations whose columns differ"),
    (lambda: Difference(name="u", left=T, right=H, at=AT), TypeMismatch, "DIFFERENCE of relations"),
    (aggregate, InvalidWorkflow, "computes nothing"),
    (lambda: aggregate(Aggregation("a", Function.SUM, "town")), TypeMismatch, "SUM needs numbers, and town is STRING"),
    (lambda: aggregate(Aggregation("a", Function.MAX)), InvalidWorkflow, "MAX of no column"),
    (lambda: aggregate(Aggregation("TOWN", Function.COUNT), keys=("town",)), NameTaken, "differ only in case"),
    (lambda: aggregate(Aggregation("n", Function.COUNT), keys=("tow",)), UnknownColumn, "is town meant"),
    (lambda: Sort(name="s", source=H, keys=(), at=AT), InvalidWorkflow, "by no column"),
    (lambda: Sort(name="s", source=H, keys=(SortKey("id"), SortKey("id", True)), at=AT), InvalidWorkflow, "twice"),
    (lambda: Top(name="t", source=H, count=-1, at=AT), InvalidWorkflow, "0 to"),
    (lambda: Udf(name="u", read=(H,), columns=H.schema, function="f", at=AT), InvalidWorkflow, "path/to/file.py:name"),
    (lambda: Project(name="p", source=H, columns=(), at=AT), InvalidWorkflow, "at least one column"),
    (lambda: Scan(name="", table="t", columns=H.schema, at=AT), InvalidWorkflow, "name of a relation"),
    (lambda: Scan(name="a\n", table="t", columns=H.schema, at=AT), InvalidWorkflow, "name of a relation"),
    (lambda: Scan(name="n" * 256, table="t", columns=H.schema, at=AT), TooLarge, "256 characters"),
    (lambda: Scan(name="s", table="", columns=H.schema, at=AT), InvalidWorkflow, "name of a table"),
    (lambda: Values(name="v", columns=T.schema, rows=((Scalar("1"),),), at=AT), InvalidWorkflow, "1 values for 2"),
    (lambda: values("town", "1"), InvalidWorkflow, "no constant"),
    (lambda: values("'x'", "1.0"), TypeMismatch, "1.0 is not INTEGER"),
]


def values(*row: str) -> Values:
    return Values(name="v", columns=T.schema, rows=(tuple(map(Scalar, row)),), at=AT)


@pytest.mark.parametrize(("make", "kind", "part"), BAD, ids=[part for _, _, part in BAD])
def test_what_cannot_be_says_where_and_why(
    make: Callable[[], Operator], kind: type[InvalidWorkflow], part: str
) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert part in caught.value.reason
    assert caught.value.at in (AT, None)


def test_columns_that_differ_only_in_case_are_refused() -> None:
    with pytest.raises(NameTaken):
        Schema.of(town=Type.STRING, Town=Type.STRING)
    with pytest.raises(NameTaken):
        Schema((Column("straße", Type.STRING), Column("STRASSE", Type.STRING)))
    with pytest.raises(NameTaken):
        Schema((Column("a", Type.STRING), Column("a", Type.STRING)))
    wide = tuple(Column(f"c{number}", Type.INTEGER) for number in range(COLUMNS_MAX + 1))
    assert len(Schema(wide[:-1])) == COLUMNS_MAX
    with pytest.raises(TooLarge, match="columns of a relation"):
        Schema(wide)


def test_equal_operators_say_the_same_wherever_it_stands() -> None:
    assert select("price > 1") == dataclasses.replace(select("price > 1"), at=Position(9, 9))
    assert select("price > 1") != select("price > 2")
    assert Distinct(name="d", source=H) != Sort(name="d", source=H, keys=(SortKey("id"),))
    assert hash(select("price > 1")) == hash(select("price  >  1"))


def test_an_operator_over_another_relation_is_checked_anew() -> None:
    other = Scan(name="flats", table="flats", columns=Schema.of(price=Type.INTEGER))
    assert DEAR.over(other.relation).schema == other.schema
    with pytest.raises(UnknownColumn, match="price"):
        DEAR.over(T)
    assert DEAR.named("costly").inputs == ("homes",)


# ---- the DAG


def test_the_order_and_the_names_are_checked() -> None:
    with pytest.raises(UnknownRelation, match="homes"):
        Dag((DEAR, HOMES), ("dear",))
    with pytest.raises(NameTaken, match="relation"):
        Dag((HOMES, dataclasses.replace(TOWNS, name="Homes")), ("homes",))
    with pytest.raises(UnknownRelation, match="is dear meant"):
        Dag((HOMES, DEAR), ("deer",))
    with pytest.raises(InvalidWorkflow, match="twice"):
        Dag((HOMES,), ("homes", "homes"))
    with pytest.raises(InvalidWorkflow, match="without results"):
        Dag((HOMES,), ())
    changed = dataclasses.replace(HOMES, columns=Schema.of(price=Type.DOUBLE))
    with pytest.raises(TypeMismatch, match="other columns"):
        Dag((changed, DEAR), ("dear",))
    assert Dag.relinked((changed, DEAR), ("dear",)).operator("dear").schema == changed.schema


def test_the_number_of_operators_has_a_maximum() -> None:
    many = [dataclasses.replace(TOWNS, name=f"t{number}") for number in range(OPERATORS_MAX + 1)]
    with pytest.raises(TooLarge, match="operators"):
        Dag(tuple(many), ("t0",))


def test_who_reads_whom() -> None:
    dag = page_rank()
    assert dag.results == ("ranks",)
    assert [one.name for one in dag.consumers("edges")] == ["node_cnt", "edges_cnt"]
    assert dag.ancestors(["edges_cnt"]) == {"edges", "node_cnt"}
    assert [one.name for one in dag.leaves] == ["edges", "page_rank", "iter"]
    assert dag.is_downset(["edges", "node_cnt"])
    assert not dag.is_downset(["node_cnt"])
    assert dag.inseparable("ranks") == dag.inseparable("loop") == {"loop", "ranks"}
    assert dag.inseparable("edges") == {"edges"}
    assert dag.size == 16
    assert dag.loop_depth == 1


def test_a_job_is_a_dag_by_itself() -> None:
    dag = page_rank()
    before = dag.subset(["edges_cnt"])
    assert before.names == ("edges", "node_cnt", "edges_cnt")
    assert isinstance(before.operator("edges"), Scan)
    assert isinstance(before.operator("node_cnt"), Input)
    assert before.results == ("edges_cnt",)
    after = dag.subset(["loop", "ranks"])
    assert after.input_names == ("edges_cnt",)
    assert after.results == ("ranks",)
    assert dag.subset(["edges", "node_cnt"]).results == ("node_cnt",)
    assert dag.subset(dag.names) == dag
    with pytest.raises(InvalidWorkflow, match="of one job"):
        dag.subset(["loop"])


@settings(max_examples=50)
@given(cases())
def test_relinked_copied_and_cut_dags(case: Case) -> None:
    dag = case.dag
    assert Dag.relinked(dag.operators, dag.results) == dag
    assert pickle.loads(pickle.dumps(dag)) == dag
    assert Dag.of_unread(dag.operators) == dag
    half = {name for one in dag.names[: len(dag) // 2] for name in dag.inseparable(one)}
    rest = set(dag.names) - half
    leaves = {leaf.name for leaf in dag.leaves}
    jobs = [dag.subset(part) for part in (half, rest) if part - leaves]
    made = {name for job in jobs for name in job.results}
    assert made >= set(dag.results) - leaves
    assert made >= {name for job in jobs for name in job.input_names}


# ---- loops

ROWS = Scan(name="rows", table="rows", columns=Schema.of(n=Type.INTEGER))
GIVEN = Input(name="now", columns=ROWS.schema)
FIXED = Input(name="fixed", columns=ROWS.schema)
NEXT = Arithmetic(name="later", source=GIVEN.relation, column="n", value=Scalar("n + 1"))
BODY = Dag((GIVEN, FIXED, NEXT), ("later",))
GROWN = Arithmetic(name="grown", source=GIVEN.relation, column="m", value=Scalar("n"))


def loop(
    body: Dag = BODY,
    carried: tuple[Carried, ...] = (Carried("now", "later"),),
    condition: LoopCondition | None = None,
    iterations_max: int = 3,
) -> While:
    read = (ROWS.relation,) * len(body.input_names)
    return While(
        name="loop", read=read, body=body, carried=carried, condition=condition, iterations_max=iterations_max, at=AT
    )


def test_a_loop_is_a_relation_and_what_it_leaves_are_others() -> None:
    made = loop(condition=LoopCondition("now", Scalar("n < 5")))
    assert made.schema.names == ("iterations",)
    assert made.carries("now")
    assert not made.carries("fixed")
    assert made.first_value("now") == ROWS.relation
    left = loop_result("left", made, "now", AT)
    assert left.schema == ROWS.schema
    assert Dag((ROWS, made, left), ("left",)).operator("left") == left
    with pytest.raises(UnknownRelation, match="is now meant"):
        loop_result("left", made, "nou")
    wrong = LoopResult(name="left", source=made.relation, carried="now", columns=TOWNS.schema)
    with pytest.raises(TypeMismatch, match="other columns"):
        Dag((ROWS, made, wrong), ("left",))
    no_loop = LoopResult(name="left", source=ROWS.relation, carried="now", columns=ROWS.schema)
    with pytest.raises(InvalidWorkflow, match="no WHILE"):
        Dag((ROWS, no_loop), ("left",))


BAD_LOOPS: list[tuple[Callable[[], While], type[InvalidWorkflow], str]] = [
    (lambda: loop(carried=()), EndlessLoop, "changes no relation"),
    (lambda: loop(condition=LoopCondition("fixed", Scalar("n < 5"))), EndlessLoop, "does not change"),
    (lambda: loop(condition=LoopCondition("later", Scalar("n < 5"))), InvalidWorkflow, "no value before"),
    (lambda: loop(condition=LoopCondition("nou", Scalar("n < 5"))), UnknownRelation, "is now meant"),
    (lambda: loop(condition=LoopCondition("now", Scalar("n + 5"))), TypeMismatch, "not BOOLEAN"),
    (lambda: loop(iterations_max=0), InvalidWorkflow, "iterations at most"),
    (lambda: loop(carried=(Carried("later", "now"),)), InvalidWorkflow, "no input of the body"),
    (lambda: loop(carried=(Carried("now", "later"),) * 2), InvalidWorkflow, "carried twice"),
    (lambda: loop(Dag((GIVEN, GROWN), ("grown",)), (Carried("now", "grown"),)), TypeMismatch, "change in the loop"),
    (lambda: loop(Dag((GIVEN, FIXED, NEXT), ("fixed",))), InvalidWorkflow, "among its results"),
    (lambda: loop(Dag((GIVEN, ROWS, NEXT), ("later",))), InvalidWorkflow, "scan before the loop"),
    (lambda: dataclasses.replace(loop(), read=(ROWS.relation,)), InvalidWorkflow, "2 inputs"),
    (lambda: dataclasses.replace(loop(), read=(ROWS.relation, T)), TypeMismatch, "not those of fixed"),
]


@pytest.mark.parametrize(("make", "kind", "part"), BAD_LOOPS, ids=[part for _, _, part in BAD_LOOPS])
def test_loops_that_cannot_be(make: Callable[[], While], kind: type[InvalidWorkflow], part: str) -> None:
    with pytest.raises(kind) as caught:
        make()
    assert part in caught.value.reason
    assert caught.value.at == AT


def test_loops_within_loops_have_a_maximum() -> None:
    body = BODY
    for depth in range(LOOP_DEPTH_MAX):
        inner = While(
            name="inner",
            read=(GIVEN.relation, FIXED.relation),
            body=body,
            carried=(Carried("now", "later"),),
            condition=None,
            iterations_max=2,
        )
        after = loop_result("later", inner, "now")
        body = Dag((GIVEN, FIXED, inner, after), ("later",))
        assert body.loop_depth == depth + 1
    with pytest.raises(TooLarge, match="loops within each other"):
        loop(body)


def test_opaque_operators_read_as_many_relations_as_before() -> None:
    box = BlackBox(name="b", engine="duckdb", code="SELECT 1", read=(H, T), columns=T.schema)
    assert box.inputs == ("homes", "towns")
    assert box.over(T, H).inputs == ("towns", "homes")
    with pytest.raises(InvalidWorkflow, match="reads 2 relations, not 1"):
        box.over(H)
