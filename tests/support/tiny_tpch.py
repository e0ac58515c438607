"""A TPC-H dataset of a few hundred made-up rows, in which each of the 22 queries finds something."""

from __future__ import annotations

import datetime
import random
from collections.abc import Iterable, Iterator
from decimal import Decimal

import duckdb
import pyarrow as pa

from frontends.sql.tpch import BASE_TABLES
from frontends.workflow.ir.types import Column, Schema, Type

REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
NATIONS = (
    ("FRANCE", 3), ("GERMANY", 3), ("BRAZIL", 1), ("CANADA", 1), ("INDIA", 2), ("JAPAN", 2), ("SAUDI ARABIA", 4),
)  # fmt: skip
PARTS = (
    ("Brand#12", "SM CASE", "ECONOMY ANODIZED STEEL", 5),
    ("Brand#23", "MED BOX", "STANDARD POLISHED BRASS", 15),
    ("Brand#23", "MED BOX", "PROMO BRUSHED COPPER", 9),
    ("Brand#34", "LG PKG", "PROMO PLATED BRASS", 15),
    ("Brand#45", "SM BOX", "MEDIUM POLISHED TIN", 49),
)
MONTHS = ((1993, 8), (1993, 11), (1994, 3), (1995, 2), (1995, 8), (1996, 1))
SUPPLIERS, PARTS_COUNT, CUSTOMERS, ORDERS = 8, 20, 24, 110

_TYPES = {"BIGINT": pa.int64(), "INTEGER": pa.int32(), "VARCHAR": pa.string(), "DATE": pa.date32()}
Row = tuple[object, ...]


def tables() -> dict[str, pa.Table]:
    """The tables, as Arrow, with decimals: the same each time."""
    made = _Made(random.Random(4))
    rows: dict[str, Iterable[Row]] = {
        "region": [(number, name, "") for number, name in enumerate(REGIONS)],
        "nation": [(number, name, region, "") for number, (name, region) in enumerate(NATIONS)],
        "supplier": made.suppliers(),
        "part": made.parts(),
        "partsupp": made.part_suppliers(),
        "customer": made.customers(),
    }
    rows["orders"], rows["lineitem"] = made.orders()
    return {table: _table(table, list(rows[table])) for table in BASE_TABLES}


def _table(table: str, rows: list[Row]) -> pa.Table:
    columns = BASE_TABLES[table]
    arrays = [
        pa.array(values, type=_TYPES.get(type_, pa.decimal128(15, 2)))
        for values, type_ in zip(zip(*rows, strict=True), columns.values(), strict=True)
    ]
    return pa.table(arrays, names=list(columns))


def schemas() -> dict[str, Schema]:
    """What a workflow declares of the tables."""
    types = {"BIGINT": Type.INTEGER, "INTEGER": Type.INTEGER, "VARCHAR": Type.STRING, "DATE": Type.DATE}
    return {
        table: Schema(tuple(Column(name, types.get(type_, Type.DOUBLE)) for name, type_ in columns.items()))
        for table, columns in BASE_TABLES.items()
    }


def database(data: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """DuckDB with these tables."""
    connection = duckdb.connect()
    for name, table in data.items():
        connection.register(name, table)
    return connection


class _Made:
    """Draws rows."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def _money(self, least: int, most: int) -> Decimal:
        return Decimal(self._chance.randint(least * 100, most * 100)) / 100

    def suppliers(self) -> Iterator[Row]:
        for key in range(SUPPLIERS):
            comment = "Customer has Complaints" if key == 3 else "fine"
            nation = key % len(NATIONS)
            yield key, f"Supplier#{key}", f"street {key}", nation, f"{10 + nation}-1", self._money(-100, 900), comment

    def parts(self) -> Iterator[Row]:
        for key in range(PARTS_COUNT):
            brand, container, kind, size = PARTS[key % len(PARTS)]
            name = ("forest green", "blue", "red")[key % 3]
            yield key, f"{name} {key}", "Manufacturer#1", brand, kind, size, container, self._money(1, 90), ""

    def part_suppliers(self) -> Iterator[Row]:
        for part in range(PARTS_COUNT):
            for place in range(3):
                supplier = (part + 2 * place) % SUPPLIERS
                yield part, supplier, self._chance.randint(20, 900), self._money(1, 20)

    def customers(self) -> Iterator[Row]:
        for key in range(CUSTOMERS):
            segment = ("BUILDING", "MACHINERY")[key % 2]
            phone = f"{(13, 31, 29, 11)[key % 4]}-{key}"
            nation = key % len(NATIONS)
            yield key, f"Customer#{key}", "road", nation, phone, self._money(-100, 900), segment, ""

    def orders(self) -> tuple[list[Row], list[Row]]:
        """Orders, of which each tenth is large and each third customer has none, and their items."""
        orders: list[Row] = []
        items: list[Row] = []
        for key in range(ORDERS):
            customer = self._chance.choice([one for one in range(CUSTOMERS) if one % 3])
            day = datetime.date(*self._chance.choice(MONTHS), self._chance.randint(1, 28))
            count = 7 if key % 10 == 0 else self._chance.randint(1, 4)
            orders.append(
                (
                    key, customer, self._chance.choice("FFO"), self._money(100, 900), day,
                    self._chance.choice(("1-URGENT", "2-HIGH", "5-LOW")), "Clerk#1", 0,
                    self._chance.choice(("very special requests", "usual")),
                )
            )  # fmt: skip
            items += [self._item(key, number, day, large=count == 7) for number in range(count)]
        return orders, items

    def _item(self, order: int, number: int, day: datetime.date, *, large: bool) -> Row:
        chance = self._chance
        part = chance.randrange(PARTS_COUNT)
        supplier = (part + 2 * chance.randrange(3)) % SUPPLIERS
        quantity = Decimal(50 if large else chance.choice((1, 2, 5, 12, 22)))
        ship, commit = (day + datetime.timedelta(chance.randint(1, most)) for most in (50, 80))
        receipt = ship + datetime.timedelta(chance.randint(1, 30))
        return (
            order, part, supplier, number, quantity, self._money(10, 900), Decimal(chance.randint(4, 8)) / 100,
            Decimal(chance.randint(0, 8)) / 100, chance.choice("RAN"), chance.choice("OF"), ship, commit, receipt,
            "DELIVER IN PERSON", chance.choice(("AIR", "MAIL", "SHIP")),
        )  # fmt: skip
