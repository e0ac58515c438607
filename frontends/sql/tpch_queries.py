"""The 22 queries of TPC-H with its default parameters, as text."""

from __future__ import annotations

from importlib import resources

from sparrow_py.job import check_whole

QUERIES = 22


def tpch_query(number: int) -> str:
    """The SQL of a query, by its number in the specification; `InvalidRequest` if there is no such query."""
    check_whole("tpch", number, 1, QUERIES)
    return (resources.files("frontends.sql") / "queries" / f"q{number:02}.sql").read_text("utf-8")
