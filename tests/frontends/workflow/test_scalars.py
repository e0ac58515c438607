"""The normal form of scalar expressions, their types, and exact arithmetic of constants."""

import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlglot import exp

from frontends.workflow.errors import (
    InvalidSyntax,
    InvalidWorkflow,
    NotSupported,
    TooLarge,
    TypeMismatch,
    UndecidableType,
    UnknownColumn,
)
from frontends.workflow.ir.scalars.expressions import SCALAR_CHARS_MAX, Scalar, all_of
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.positions import Position
from tests.support.workflow_dags import scalars, schemas

SCHEMA = Schema.of(n=Type.INTEGER, x=Type.DOUBLE, s=Type.STRING, b=Type.BOOLEAN, d=Type.DATE)


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("(n)", "n"),
        ("n - (n - n)", "n - (n - n)"),
        ("(n - n) - n", "n - n - n"),
        ("(n + n) * n", "(n + n) * n"),
        ("-(-x)", "-(-x)"),
        ("b AND (b AND (b AND b))", "b AND b AND b AND b"),
        ("(b OR b) AND NOT (b AND b)", "(b OR b) AND NOT (b AND b)"),
        ("(n = 1) = b", "(n = 1) = b"),
        ("n NOT IN (1, 2)", "NOT n IN (1, 2)"),
        ("s IS NOT NULL", "NOT s IS NULL"),
        ("n IS DISTINCT FROM 1", "NOT n IS NOT DISTINCT FROM 1"),
        ("IF(b, 1, 2)", "CASE WHEN b THEN 1 ELSE 2 END"),
        ("CASE n WHEN 1 THEN 'a' ELSE NULL END", "CASE WHEN n = 1 THEN 'a' END"),
        ("NULLIF(n, 0)", "CASE WHEN n = 0 THEN NULL ELSE n END"),
        ("YEAR(d)", "EXTRACT(YEAR FROM d)"),
        ("SUBSTR(s, 1, 2)", "SUBSTRING(s, 1, 2)"),
        ("CONCAT(s, 'a', s)", "s || 'a' || s"),
        ("TRY_CAST(s AS INT)", "CAST(s AS BIGINT)"),
        ("CAST(n AS DECIMAL(10, 2))", "CAST(n AS DOUBLE)"),
        ("d + INTERVAL '2' WEEK", "d + INTERVAL '14' DAY"),
        ("INTERVAL 1 YEAR + d", "d + INTERVAL '12' MONTH"),
        ('"order" + "Two Words"', '"order" + "Two Words"'),
        ("007", "7"),
        ("1.50", "1.5"),
        ("s NOT LIKE 'a%'", "NOT s LIKE 'a%'"),
    ],
)
def test_other_spellings_become_the_normal_form(text: str, normal: str) -> None:
    assert Scalar(text).text == normal


@pytest.mark.parametrize(
    ("text", "folded"),
    [
        ("0.06 + 0.01", "0.07"),  # The sum of the two doubles is 0.06999999999999999.
        ("x BETWEEN 0.06 - 0.01 AND 0.06 + 0.01", "x BETWEEN 0.05 AND 0.07"),
        ("(0.1 + 0.2) * 3", "0.9"),
        ("1 / 4 + 1", "1.25"),
        ("7 / 2", "3.5"),
        ("-7 % 3", "-1"),
        ("7 % -3", "1"),
        ("5.5 % 2", "1.5"),
        ("2 * 3 + n", "6 + n"),
        ("n + 2 * 3", "n + 6"),
        ("- - 5", "5"),
        ("ABS(-5)", "5"),
        ("CAST(3 AS DOUBLE)", "3.0"),
        ("CAST(-1.9 AS BIGINT)", "-1"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("1 / 0", "1 / 0"),
        ("1 % 0", "1 % 0"),
        ("1e300 * 1e300", "1e+300 * 1e+300"),
        ("DATE '1998-12-01' - INTERVAL '90' DAY", "CAST('1998-09-02' AS DATE)"),
        ("DATE '2020-01-31' + INTERVAL '1' MONTH", "CAST('2020-02-29' AS DATE)"),
        ("DATE '2020-02-29' - INTERVAL '1' YEAR + INTERVAL '1' DAY", "CAST('2019-03-01' AS DATE)"),
    ],
)
def test_constants_fold_exactly(text: str, folded: str) -> None:
    assert Scalar(text).text == folded


@given(st.fractions(-10, 10, max_denominator=1000), st.fractions(-10, 10, max_denominator=1000))
def test_a_sum_of_decimals_is_the_double_nearest_to_the_true_sum(left: object, right: object) -> None:
    one, other = (round(float(side), 4) for side in (left, right))  # type: ignore[arg-type]
    hundredths = round(one * 10_000) + round(other * 10_000)
    assert float(Scalar(f"{one:.4f} + {other:.4f}").text) == hundredths / 10_000


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("n + 1", Type.INTEGER),
        ("n + x", Type.DOUBLE),
        ("n / n", Type.DOUBLE),
        ("n % 2", Type.INTEGER),
        ("COALESCE(n, x)", Type.DOUBLE),
        ("CASE WHEN b THEN NULL ELSE n END", Type.INTEGER),
        ("CASE WHEN b THEN n ELSE 1.5 END", Type.DOUBLE),
        ("CAST(NULL AS DATE)", Type.DATE),
        ("d - INTERVAL '1' DAY", Type.DATE),
        ("EXTRACT(MONTH FROM d)", Type.INTEGER),
        ("n > x", Type.BOOLEAN),
        ("s = NULL", Type.BOOLEAN),
        ("s || 'a'", Type.STRING),
        ("d IN (DATE '2020-01-01')", Type.BOOLEAN),
        ("1e3", Type.DOUBLE),
    ],
)
def test_types(text: str, type_: Type) -> None:
    assert Scalar(text).type_in(SCHEMA) is type_


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("s + 1", "s + 1 needs numbers, and s is STRING"),
        ("-s", "needs a number, and s is STRING"),
        ("s = 1", "INTEGER and STRING"),
        ("d < '2020-01-01'", "DATE and STRING"),
        ("n AND b", "needs BOOLEAN, and n is INTEGER"),
        ("NOT n", "needs BOOLEAN, and n is INTEGER"),
        ("CASE WHEN n THEN 1 END", "needs BOOLEAN, and n is INTEGER"),
        ("n LIKE 'a'", "needs STRING, and n is INTEGER"),
        ("CAST(x AS TEXT)", "from DOUBLE to STRING"),
        ("s + INTERVAL '1' DAY", "needs a DATE, and s is STRING"),
        ("EXTRACT(YEAR FROM s)", "needs DATE, and s is STRING"),
        ("n IN (1, NULL)", "constants other than NULL"),
        ("n IN (1, n)", "constants other than NULL"),
        ("INTERVAL '1' DAY", "cannot stand alone"),
    ],
)
def test_types_that_do_not_fit(text: str, part: str) -> None:
    with pytest.raises(TypeMismatch) as caught:
        Scalar(text).type_in(SCHEMA)
    assert part in str(caught.value)


@pytest.mark.parametrize("text", ["NULL", "NULL = NULL", "NULL IS NULL", "COALESCE(NULL, NULL)"])
def test_a_null_needs_a_type(text: str) -> None:
    with pytest.raises(UndecidableType, match="CAST"):
        Scalar(text).type_in(SCHEMA)


def test_an_unknown_column_has_the_nearest_name_offered() -> None:
    with pytest.raises(UnknownColumn, match=r"no column l_quantty; is l_quantity meant\?"):
        Scalar("l_quantty > 1").type_in(Schema.of(l_quantity=Type.DOUBLE, l_tax=Type.DOUBLE))


@pytest.mark.parametrize(
    "text",
    [
        "ROW_NUMBER() OVER ()",
        "SUM(n)",
        "t.n",
        "(SELECT 1)",
        "n IN (SELECT 1)",
        "s LIKE s",
        "s LIKE 'a' ESCAPE '!'",
        "s ILIKE 'a'",
        "b IS TRUE",
        "SUBSTRING(s, n, 1)",
        "SUBSTRING(s, 0, 1)",
        "SUBSTRING(s, -1)",
        "CAST(s AS TIMESTAMP)",
        "CAST(s AS VARCHAR(3))",
        "EXTRACT(QUARTER FROM d)",
        "d + INTERVAL '1' HOUR",
        "d + INTERVAL '1.5' DAY",
        "RANDOM()",
        "CURRENT_DATE",
        "n AS m",
        "n & 1",
        "?",
    ],
)
def test_what_is_outside_the_subset_is_named(text: str) -> None:
    with pytest.raises(NotSupported, match="is not supported"):
        Scalar(text)


@pytest.mark.parametrize("text", ["", "1 +", "(n", "n n n", "'a"])
def test_what_does_not_parse(text: str) -> None:
    with pytest.raises(InvalidSyntax):
        Scalar(text)


@pytest.mark.parametrize(
    "text", ["DATE 'soon'", "DATE '2021-02-29'", "9223372036854775808", "9223372036854775807 + 1", "1e999"]
)
def test_constants_that_cannot_be(text: str) -> None:
    with pytest.raises(InvalidWorkflow) as caught:
        Scalar(text, Position(3, 7, "q.hql"))
    assert str(caught.value).startswith("q.hql:3:7: ")


def test_limits() -> None:
    with pytest.raises(TooLarge, match="characters of an expression"):
        Scalar("n" * (SCALAR_CHARS_MAX + 1))
    with pytest.raises(InvalidWorkflow):
        Scalar("-(" * 200 + "n" + ")" * 200)
    many = " AND ".join(f"n <> {number}" for number in range(300))
    assert Scalar(many).text == many
    assert len(Scalar(many).conjuncts()) == 300


def test_scalars_cannot_be_changed() -> None:
    scalar = Scalar("n + 1")
    tree = scalar.tree()
    tree.set("expression", exp.Literal.number(2))
    assert scalar.text == "n + 1" == scalar.tree().sql()
    with pytest.raises(AttributeError):
        scalar.text = "n"
    source = exp.Add(this=exp.column("n"), expression=exp.Literal.number(1))
    assert Scalar(source) == scalar
    assert source.sql() == "n + 1"


def test_columns_and_substitution() -> None:
    scalar = Scalar("n * x + n")
    assert scalar.columns == {"n", "x"}
    assert scalar.substituted({"n": Scalar("a + b"), "x": Scalar("n")}).text == "(a + b) * n + (a + b)"
    assert scalar.renamed({"n": "group"}).text == '"group" * x + "group"'
    assert Scalar.column("two words").as_column == "two words"
    assert Scalar("n + 1").as_column is None
    assert Scalar("1 / 0").constant
    assert all_of(Scalar("b OR c"), Scalar("d"), Scalar("e AND f")).text == "(b OR c) AND d AND e AND f"


def test_typed_trees_have_the_type_of_each_part() -> None:
    tree = Scalar("CASE WHEN n / 2 > x THEN d END").typed_tree(SCHEMA)
    types = {node.sql(): node.type.this for node in tree.walk() if node.type is not None}
    assert types["n"] is exp.DType.BIGINT
    assert types["n / 2"] is exp.DType.DOUBLE
    assert types["n / 2 > x"] is exp.DType.BOOLEAN
    assert tree.type is not None
    assert tree.type.this is exp.DType.DATE


@given(st.data())
def test_the_text_of_a_scalar_parses_back_to_an_equal_one(data: st.DataObject) -> None:
    schema = data.draw(schemas())
    type_ = data.draw(st.sampled_from(Type))
    scalar = data.draw(scalars(schema, type_, 3))
    again = Scalar(scalar.text)
    assert again == scalar
    assert again.tree() == scalar.tree()
    assert hash(again) == hash(scalar)
    assert again.type_in(schema) is scalar.type_in(schema) is type_
    assert Scalar(scalar.tree()) == scalar
    assert pickle.loads(pickle.dumps(scalar)) == scalar


WORDS = (
    "n x s b d ( ) , + - * / % = < AND OR NOT IS NULL IN LIKE BETWEEN CASE WHEN THEN END CAST AS BIGINT DATE 1 2.5 'a'"
)


@given(st.lists(st.sampled_from(WORDS.split()), min_size=1, max_size=9).map(" ".join))
def test_any_text_is_a_scalar_or_refused_in_words(text: str) -> None:
    try:
        scalar = Scalar(text)
        scalar.typed_tree(SCHEMA)
    except InvalidWorkflow:
        return
    assert Scalar(scalar.text) == scalar
