"""The TPC-H tables as this framework keeps them: columns, keys, and how they are spread over nodes.

`lineitem` and `orders` are hash-partitioned by order key, so that a partition has an order with all its items. The
other tables are small, and every node that holds data of a dataset has them whole.

`denorm` is lineitem joined with all that its keys lead to, a row for each item, as the paper's Shark had it (§7.2).
It is what a partition keeps of lineitem: the base table is a view of its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PARTITIONS = 30
"""Partitions of a dataset, as in the paper (§7.2)."""
REPLICAS = 3
"""Nodes that hold each partition, as in the paper."""
DENORM, LINEITEM, ORDERS = "denorm", "lineitem", "orders"
PARTITION_KEYS: Mapping[str, tuple[str, ...]] = {
    DENORM: ("l_orderkey",),
    LINEITEM: ("l_orderkey",),
    ORDERS: ("o_orderkey",),
}
"""Partitioned tables to the columns that are the order key."""
STORED = (DENORM, ORDERS)
"""Tables of which each partition has a file."""

BASE_TABLES: Mapping[str, Mapping[str, str]] = {
    "lineitem": {
        "l_orderkey": "BIGINT",
        "l_partkey": "BIGINT",
        "l_suppkey": "BIGINT",
        "l_linenumber": "INTEGER",
        "l_quantity": "DECIMAL(15,2)",
        "l_extendedprice": "DECIMAL(15,2)",
        "l_discount": "DECIMAL(15,2)",
        "l_tax": "DECIMAL(15,2)",
        "l_returnflag": "VARCHAR",
        "l_linestatus": "VARCHAR",
        "l_shipdate": "DATE",
        "l_commitdate": "DATE",
        "l_receiptdate": "DATE",
        "l_shipinstruct": "VARCHAR",
        "l_shipmode": "VARCHAR",
    },
    "orders": {
        "o_orderkey": "BIGINT",
        "o_custkey": "BIGINT",
        "o_orderstatus": "VARCHAR",
        "o_totalprice": "DECIMAL(15,2)",
        "o_orderdate": "DATE",
        "o_orderpriority": "VARCHAR",
        "o_clerk": "VARCHAR",
        "o_shippriority": "INTEGER",
        "o_comment": "VARCHAR",
    },
    "customer": {
        "c_custkey": "BIGINT",
        "c_name": "VARCHAR",
        "c_address": "VARCHAR",
        "c_nationkey": "BIGINT",
        "c_phone": "VARCHAR",
        "c_acctbal": "DECIMAL(15,2)",
        "c_mktsegment": "VARCHAR",
        "c_comment": "VARCHAR",
    },
    "part": {
        "p_partkey": "BIGINT",
        "p_name": "VARCHAR",
        "p_mfgr": "VARCHAR",
        "p_brand": "VARCHAR",
        "p_type": "VARCHAR",
        "p_size": "INTEGER",
        "p_container": "VARCHAR",
        "p_retailprice": "DECIMAL(15,2)",
        "p_comment": "VARCHAR",
    },
    "supplier": {
        "s_suppkey": "BIGINT",
        "s_name": "VARCHAR",
        "s_address": "VARCHAR",
        "s_nationkey": "BIGINT",
        "s_phone": "VARCHAR",
        "s_acctbal": "DECIMAL(15,2)",
        "s_comment": "VARCHAR",
    },
    "partsupp": {
        "ps_partkey": "BIGINT",
        "ps_suppkey": "BIGINT",
        "ps_availqty": "INTEGER",
        "ps_supplycost": "DECIMAL(15,2)",
    },
    "nation": {"n_nationkey": "BIGINT", "n_name": "VARCHAR", "n_regionkey": "BIGINT", "n_comment": "VARCHAR"},
    "region": {"r_regionkey": "BIGINT", "r_name": "VARCHAR", "r_comment": "VARCHAR"},
}
"""Column to type, of TPC-H's tables. `l_comment` and `ps_comment` are left out: no query asks for them, and they would
be a sixth of all that a node has to hold."""


@dataclass(frozen=True, slots=True)
class Reach:
    """A table that lineitem's foreign keys lead to, in the denormalised table.

    keys: (column of the row before, column of this table) pairs, equal in every row.
    via: where the row before is, as a name in `REACHES`, or `LINEITEM`.
    columns: this table's columns that are kept, to their names in the denormalised table.
    """

    table: str
    via: str
    keys: tuple[tuple[str, str], ...]
    columns: Mapping[str, str]


def _same(*names: str) -> dict[str, str]:
    return {name: name for name in names}


REACHES: Mapping[str, Reach] = {
    "orders": Reach(
        "orders",
        LINEITEM,
        (("l_orderkey", "o_orderkey"),),
        {
            "o_orderkey": "l_orderkey",
            **_same("o_custkey", "o_orderstatus", "o_totalprice", "o_orderdate", "o_orderpriority", "o_shippriority"),
        },
    ),
    "customer": Reach(
        "customer",
        "orders",
        (("o_custkey", "c_custkey"),),
        {"c_custkey": "o_custkey", **_same("c_name", "c_nationkey", "c_acctbal", "c_mktsegment")},
    ),
    "customer_nation": Reach(
        "nation",
        "customer",
        (("c_nationkey", "n_nationkey"),),
        {"n_nationkey": "c_nationkey", "n_name": "cn_name", "n_regionkey": "cn_regionkey"},
    ),
    "customer_region": Reach(
        "region",
        "customer_nation",
        (("n_regionkey", "r_regionkey"),),
        {"r_regionkey": "cn_regionkey", "r_name": "cr_name"},
    ),
    "part": Reach(
        "part",
        LINEITEM,
        (("l_partkey", "p_partkey"),),
        {"p_partkey": "l_partkey", **_same("p_name", "p_mfgr", "p_brand", "p_type", "p_size", "p_container")},
    ),
    "supplier": Reach(
        "supplier",
        LINEITEM,
        (("l_suppkey", "s_suppkey"),),
        {"s_suppkey": "l_suppkey", **_same("s_name", "s_nationkey")},
    ),
    "supplier_nation": Reach(
        "nation",
        "supplier",
        (("s_nationkey", "n_nationkey"),),
        {"n_nationkey": "s_nationkey", "n_name": "sn_name", "n_regionkey": "sn_regionkey"},
    ),
    "supplier_region": Reach(
        "region",
        "supplier_nation",
        (("n_regionkey", "r_regionkey"),),
        {"r_regionkey": "sn_regionkey", "r_name": "sr_name"},
    ),
    "partsupp": Reach(
        "partsupp",
        LINEITEM,
        (("l_partkey", "ps_partkey"), ("l_suppkey", "ps_suppkey")),
        {"ps_partkey": "l_partkey", "ps_suppkey": "l_suppkey", **_same("ps_availqty", "ps_supplycost")},
    ),
}
"""The tables whose columns the denormalised table has, by the path of keys that leads there from lineitem."""


def _denorm_columns() -> dict[str, str]:
    columns = dict(BASE_TABLES[LINEITEM])
    for reach in REACHES.values():
        for column, name in reach.columns.items():
            columns.setdefault(name, BASE_TABLES[reach.table][column])
    return columns


TABLES: Mapping[str, Mapping[str, str]] = {DENORM: _denorm_columns(), **BASE_TABLES}
"""All tables that a query may name."""
REPLICATED = tuple(table for table in TABLES if table not in PARTITION_KEYS)
"""Tables that every node has whole."""


def denorm_select() -> str:
    """The SQL that makes the denormalised table of the base tables."""
    columns = [f"l.{name} AS {name}" for name in BASE_TABLES[LINEITEM]]
    joins = []
    for alias, reach in REACHES.items():
        before = "l" if reach.via == LINEITEM else reach.via
        keys = " AND ".join(f"{before}.{left} = {alias}.{right}" for left, right in reach.keys)
        joins.append(f"JOIN {reach.table} AS {alias} ON {keys}")
        columns += [
            f"{alias}.{column} AS {name}"
            for column, name in reach.columns.items()
            if name not in {entry.rpartition(" AS ")[2] for entry in columns}
        ]
    return f"SELECT {', '.join(columns)} FROM lineitem AS l {' '.join(joins)}"
