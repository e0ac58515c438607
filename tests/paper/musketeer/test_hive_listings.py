"""The thesis's HiveQL, listings 3.1 and 4.1, as printed and corrected."""

from pathlib import Path

import pyarrow as pa
import pytest

from frontends.workflow.errors import InvalidWorkflow, UnknownRelation
from frontends.workflow.ir.dag import Aggregate, Join, Project, Scan, Select
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.types import Schema, Type
from frontends.workflow.languages.hive import parse

EXAMPLES = Path(__file__).parents[3] / "examples" / "workflow"

LISTING_3_1 = """SELECT id, street, town FROM properties AS locs;
locs JOIN prices ON locs.id = prices.id AS id_price;
SELECT street, town, MAX(price) FROM id_price
GROUP BY street AND town AS street_price;"""
PROPERTIES = {
    "properties": Schema.of(id=Type.INTEGER, street=Type.STRING, town=Type.STRING, rooms=Type.INTEGER),
    "prices": Schema.of(id=Type.INTEGER, price=Type.DOUBLE),
}

LISTING_4_1 = """SELECT purchase_id, amount, user_id
FROM shop_logs
WHERE country = 'USA'
AS usa_shop_logs;
SELECT user_id, SUM(amount) AS total_amount
FROM usa_shop_logs
GROUP BY user_id
AS usa_spenders;
SELECT user_id, total_amount
FROM usa_shoppers
WHERE total_amount > 12000
AS usa_big_spenders;"""
SHOP = Schema.of(purchase_id=Type.INTEGER, amount=Type.INTEGER, user_id=Type.INTEGER, country=Type.STRING)
PURCHASES = pa.table(
    {
        "purchase_id": [1, 2, 3, 4, 5],
        "amount": [7000, 6000, 12000, 20000, 11000],
        "user_id": [1, 1, 2, 3, 3],
        "country": ["USA", "USA", "USA", "UK", "USA"],
    }
)


def test_listing_3_1_is_a_projection_a_join_and_an_aggregate() -> None:
    dag = parse(LISTING_3_1, PROPERTIES)
    assert [type(operator) for operator in dag] == [Scan, Project, Scan, Join, Aggregate]
    assert dag.names == ("properties", "locs", "prices", "id_price", "street_price")
    assert dag.operator("id_price").schema.names == ("id", "street", "town", "price")


def test_listing_3_1_finds_the_dearest_property_of_each_street() -> None:
    tables = {
        "properties": pa.table(
            {"id": [1, 2, 3, 4], "street": list("aaab"), "town": list("xxyx"), "rooms": [1, 2, 3, 4]}
        ),
        "prices": pa.table({"id": [1, 2, 3, 9], "price": [10.0, 30.0, 20.0, 99.0]}),
    }
    (table,) = evaluate(parse(LISTING_3_1, PROPERTIES), tables).values()
    assert table.column_names == ["street", "town", "_c2"]
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == [("a", "x", 30.0), ("a", "y", 20.0)]


def test_the_example_of_listing_3_1_is_the_listing() -> None:
    text = (EXAMPLES / "max_property_price.hql").read_text("utf-8")
    assert parse(text, PROPERTIES) == parse(LISTING_3_1, PROPERTIES)


def test_listing_4_1_as_printed_fails_with_the_nearest_name() -> None:
    with pytest.raises(UnknownRelation, match="there is no relation usa_shoppers; is usa_spenders meant") as raised:
        parse(LISTING_4_1, {"shop_logs": SHOP}, "top_shopper.hql")
    assert str(raised.value).endswith("\nFROM usa_shoppers\n     ^")
    assert str(raised.value).startswith("top_shopper.hql:10:6: ")


def test_listing_4_1_corrected_finds_who_spent_most() -> None:
    dag = parse(LISTING_4_1.replace("usa_shoppers", "usa_spenders"), {"shop_logs": SHOP})
    assert [type(operator) for operator in dag] == [Scan, Select, Project, Aggregate, Select]
    (table,) = evaluate(dag, {"shop_logs": PURCHASES}).values()
    assert table.to_pylist() == [{"user_id": 1, "total_amount": 13000}]


def test_the_example_of_listing_4_1_is_the_listing_with_other_names() -> None:
    dag = parse((EXAMPLES / "top_shopper.hql").read_text("utf-8"), {"purchases": SHOP})
    (table,) = evaluate(dag, {"purchases": PURCHASES}).values()
    assert table.to_pylist() == [{"user_id": 1, "total_amount": 13000}]


@pytest.mark.parametrize("listing", [LISTING_3_1, LISTING_4_1.replace("usa_shoppers", "usa_spenders")])
def test_strict_hive_refuses_the_listings(listing: str) -> None:
    with pytest.raises(InvalidWorkflow):
        parse(listing, {**PROPERTIES, "shop_logs": SHOP}, strict=True)


def test_netflix_in_hiveql_has_the_eleven_operators_of_figure_4_1() -> None:
    schemas = {
        "movies": Schema.of(movie_id=Type.INTEGER, year=Type.INTEGER),
        "ratings": Schema.of(movie_id=Type.INTEGER, user_id=Type.INTEGER, rating=Type.INTEGER),
    }
    dag = parse((EXAMPLES / "netflix.hql").read_text("utf-8"), schemas)
    assert len(dag) == 11 + 2
    movies = pa.table({"movie_id": [1, 2, 3], "year": [1950, 1960, 1990]})
    ratings = pa.table({"movie_id": [1, 2, 1, 3], "user_id": [7, 7, 8, 8], "rating": [2, 3, 4, 5]})
    (table,) = evaluate(dag, {"movies": movies, "ratings": ratings}).values()
    # Agreement: (1, 1) 2·2 + 4·4 = 20, (1, 2) and (2, 1) 6, (2, 2) 9.
    assert sorted(tuple(row.values()) for row in table.to_pylist()) == [(7, 20 * 2 + 6 * 3), (8, 20 * 4)]
