"""Kinds of operators, of which each stage of a query is one."""

SCAN, JOIN, AGGREGATE, SORT = "scan", "join", "aggregate", "sort"
KINDS = (SCAN, JOIN, AGGREGATE, SORT)
