"""From a query to stages with joins: each an operator, with the SQL that computes it from the stages before it.

sqlglot's optimizer unnests subqueries and pushes conditions to the tables that they are of. A block of the tree that it
makes has a stage for each table that it reads, one for each join of two, one for its aggregate and one for its order.
Names, filters and limits cost no stage. A table that has the same few rows at every scale, or a subquery with a single
row, is sent to all tasks of the join before it, which joins it in passing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import sqlglot
from sqlglot import exp
from sqlglot.optimizer import optimize

from frontends.sql.parsing import DIALECT
from frontends.sql.tpch import BASE_TABLES
from loadgen.dags.operators import AGGREGATE, JOIN, SCAN, SORT
from sparrow_py.errors import InvalidOption

SAME_AT_EVERY_SCALE = frozenset({"nation", "region"})
LEFT, RIGHT = "l", "r"
"""What a stage's SQL calls its inputs."""


@dataclass(slots=True)
class PlanStage:
    """An operator of a plan. after: names of the stages whose rows it reads. sql: SELECT of its rows, from tables that
    have the names of these stages; base tables have their own."""

    name: str
    kind: str
    after: tuple[str, ...]
    sql: str
    table: str = ""
    """That a scan reads."""


@dataclass(frozen=True, slots=True)
class _Rows:
    """What a stage hands on. columns: (source, column) of the block to the name that it has there. few: whether there
    are as many at every scale."""

    stage: str
    columns: Mapping[tuple[str, str], str]
    few: bool = False


def stages_of(sql: str) -> list[PlanStage]:
    """The plan of a query over the tables of TPC-H, stages after those that they read; the last has the answer."""
    schema: dict[str, object] = {table: dict(columns) for table, columns in BASE_TABLES.items()}
    tree = optimize(sqlglot.parse_one(sql, dialect=DIALECT), schema=schema, dialect=DIALECT)
    if not isinstance(tree, exp.Select):
        raise InvalidOption("query", tree.key.upper(), "a SELECT")
    plan = _Plan()
    plan.add_query(tree)
    return plan.stages


class _Plan:
    """Collects the stages of a query."""

    def __init__(self) -> None:
        self.stages: list[PlanStage] = []
        self._named: dict[str, _Rows] = {}
        """Of WITH: the rows by their name; columns are those of any source."""

    def add_query(self, tree: exp.Select) -> None:
        with_ = tree.args.get("with_")
        if with_ is not None:
            with_.pop()
            for cte in with_.expressions:
                self._named[cte.alias] = self._add_block(cte.this)
        self._add_block(tree)

    def stage(self, name: str) -> PlanStage:
        return next(stage for stage in self.stages if stage.name == name)

    def _add(self, kind: str, after: Iterable[str], sql: str, table: str = "") -> str:
        name = f"{kind}{1 + sum(stage.kind == kind for stage in self.stages)}"
        self.stages.append(PlanStage(name, kind, tuple(dict.fromkeys(after)), sql, table))
        return name

    # ---- a block ------------------------------------------------------------------------------------

    def _add_block(self, select: exp.Select) -> _Rows:
        """The stages of one SELECT; its columns have their output names, under the source ""."""
        self._add_nested(select)
        block = _Block(select)
        rows = self._scan_or_named(block, block.sources[0])
        joined = [block.sources[0].alias]
        last = ""
        for source in block.in_order():
            other = self._scan_or_named(block, source)
            joined.append(source.alias)
            sql, columns = block.join(rows, other, source, joined)
            if other.few and last:
                stage = self._also_after(last, [other.stage])
                stage.sql = sql.replace(f"FROM {last} AS", f"FROM ({stage.sql}) AS", 1)
                rows = _Rows(last, columns)
            else:
                last = self._add(JOIN, (rows.stage, other.stage), sql)
                rows = _Rows(last, columns)
        for condition in list(block.nested):
            sql, columns = block.semi_join(rows, condition)
            last = self._add(JOIN, (rows.stage, *(table.name for table in condition.find_all(exp.Table))), sql)
            rows = _Rows(last, columns)
        if block.conditions:
            raise InvalidOption(
                "query", block.conditions[0].sql(DIALECT), "conditions on tables, or where they are joined"
            )
        return self._ordered(select, self._aggregated(select, block, rows))

    def _add_nested(self, select: exp.Select) -> None:
        """Stages for subqueries that are left in conditions, which then read what those hand on."""
        where = select.args.get("where")
        for inner in list(where.find_all(exp.Select)) if where is not None else []:
            if inner.parent_select is select:
                rows = self._add_block(inner.copy())
                inner.replace(exp.select("*").from_(exp.to_table(rows.stage, quoted=True)))

    def _also_after(self, name: str, others: list[str]) -> PlanStage:
        """The stage, that nothing reads yet, with further inputs; it stands after them."""
        stage = self.stage(name)
        if others:
            self.stages.remove(stage)
            self.stages.append(stage)
            stage.after = tuple(dict.fromkeys((*stage.after, *others)))
        return stage

    def _scan_or_named(self, block: _Block, source: _Source) -> _Rows:
        if source.table in self._named:
            named = self._named[source.table]
            return _Rows(
                named.stage, {(source.alias, name): name for name in named.columns.values()}, named.few
            )  # fmt: skip
        sql, columns = block.scan(source)
        return _Rows(self._add(SCAN, (), sql, source.table), columns, source.table in SAME_AT_EVERY_SCALE)

    def _aggregated(self, select: exp.Select, block: _Block, rows: _Rows) -> _Rows:
        """The block's columns, in a stage of their own if rows are put together for them."""
        group, having = select.args.get("group"), select.args.get("having")
        sums = any(one.find(exp.AggFunc) for one in select.expressions)
        outputs = [
            exp.alias_(_renamed(one.unalias(), rows, LEFT), one.alias_or_name, quoted=True)
            for one in select.expressions
        ]
        names = {("", one.alias): one.alias for one in outputs}
        made = exp.select(*outputs)
        if select.args.get("distinct"):
            made = made.distinct()
        if group is not None:
            made = made.group_by(*(_renamed(one, rows, LEFT) for one in group.expressions))
        if having is not None:
            made = made.having(_renamed(having.this, rows, LEFT))
        is_aggregate = sums or group is not None or bool(select.args.get("distinct"))
        if is_aggregate:
            sql = made.from_(exp.to_table(rows.stage, quoted=True).as_(LEFT)).sql(DIALECT)
            return _Rows(self._add(AGGREGATE, (rows.stage,), sql), names, few=sums and group is None)
        stage = self.stage(rows.stage)
        stage.sql = f"{made.sql(DIALECT)} FROM ({stage.sql}) AS {LEFT}"
        return _Rows(rows.stage, names)

    def _ordered(self, select: exp.Select, rows: _Rows) -> _Rows:
        order, limit = select.args.get("order"), select.args.get("limit")
        if order is None:
            return rows
        made = exp.select("*").from_(exp.to_table(rows.stage, quoted=True).as_(LEFT)).order_by(*order.expressions)
        if limit is not None:
            made = made.limit(limit.expression)
        return _Rows(self._add(SORT, (rows.stage,), made.sql(DIALECT)), rows.columns)


# ---- the sources of a block, and their joins ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Source:
    alias: str
    table: str
    left_on: exp.Expr | None = None
    """The condition, if rows without a partner are kept (LEFT JOIN)."""


class _Block:
    """One SELECT: its sources, the conditions that no source has met yet, and those that ask another SELECT."""

    def __init__(self, select: exp.Select) -> None:
        self._select = select
        self.conditions = list(_conjuncts(select.args["where"].this)) if select.args.get("where") else []
        self.sources = [_source(select.args["from_"].this)]
        for join in select.args.get("joins") or ():
            on = join.args.get("on")
            if join.side.upper() == "LEFT":
                self.sources.append(_source(join.this, on or exp.true()))
                continue
            self.sources.append(_source(join.this))
            self.conditions += _conjuncts(on) if on is not None else []
        self.nested = [condition for condition in self.conditions if condition.find(exp.Select)]
        self.conditions = [condition for condition in self.conditions if condition not in self.nested]
        self._left_to_join = self.sources[1:]

    def in_order(self) -> Iterator[_Source]:
        """The sources that are joined to the first one: the next that an equation, or its own condition, ties to those
        before, so that no product of tables is made but of single rows."""
        joined = [self.sources[0].alias]
        while left := self._left_to_join:
            source = next((one for one in left if self._is_tied(one, joined)), left[0])
            yield source
            joined.append(source.alias)

    def _is_tied(self, source: _Source, joined: list[str]) -> bool:
        if source.left_on is not None:
            return _aliases(source.left_on) <= {*joined, source.alias}
        return any(
            isinstance(condition, exp.EQ)
            and source.alias in _aliases(condition)
            and 1 < len(_aliases(condition) & {*joined, source.alias}) == len(_aliases(condition))
            for condition in self.conditions
        )

    def _needed(self) -> dict[tuple[str, str], None]:
        """The columns, by their sources, that the block's results and what is left of its conditions are made of."""
        parts = [self._select.args.get(name) for name in ("group", "having")]
        parts += [*self._select.expressions, *self.conditions, *self.nested]
        parts += [source.left_on for source in self._left_to_join]
        found = [part.find_all(exp.Column) for part in parts if part is not None]
        return {(column.table, column.name): None for columns in found for column in columns}

    def scan(self, source: _Source) -> tuple[str, Mapping[tuple[str, str], str]]:
        """The rows of a table that meet the conditions on it alone."""
        met = [one for one in self.conditions if source.left_on is None and _aliases(one) == {source.alias}]
        self.conditions = [one for one in self.conditions if one not in met]
        needed = [name for alias, name in self._needed() if alias == source.alias]
        columns = {(source.alias, name): f"{source.alias}__{name}" for name in needed}
        outputs = [
            exp.alias_(exp.column(name, source.alias, quoted=True), given, quoted=True)
            for (_, name), given in columns.items()
        ] or [exp.alias_(exp.Literal.number(1), f"{source.alias}__", quoted=True)]
        made = exp.select(*outputs).from_(exp.to_table(source.table).as_(source.alias, quoted=True))
        return made.where(*(condition.copy() for condition in met)).sql(DIALECT), columns

    def join(
        self, rows: _Rows, other: _Rows, source: _Source, joined: list[str]
    ) -> tuple[str, Mapping[tuple[str, str], str]]:
        """Rows of both, under all conditions that are on sources that are there now."""
        met = [condition for condition in self.conditions if _aliases(condition) <= set(joined)]
        self.conditions = [condition for condition in self.conditions if condition not in met]
        self._left_to_join.remove(source)
        needed = self._needed()
        columns: dict[tuple[str, str], str] = {}
        outputs = []
        for side, of in ((LEFT, rows), (RIGHT, other)):
            for (alias, name), given in of.columns.items():
                if (alias, name) in needed:
                    columns[alias, name] = f"{alias}__{name}"
                    outputs.append(exp.alias_(exp.column(given, side, quoted=True), f"{alias}__{name}", quoted=True))
        both = _both(rows, other)
        made = exp.select(*outputs).from_(exp.to_table(rows.stage, quoted=True).as_(LEFT))
        right = exp.to_table(other.stage, quoted=True).as_(RIGHT)
        if source.left_on is not None:
            made = made.join(right, on=_by_side(source.left_on, both), join_type="left")
            made = made.where(*(_by_side(condition, both) for condition in met))
        elif met:
            made = made.join(right, on=exp.and_(*(_by_side(condition, both) for condition in met)))
        else:
            made = made.join(right, join_type="cross")
        return made.sql(DIALECT), columns

    def semi_join(self, rows: _Rows, condition: exp.Expr) -> tuple[str, Mapping[tuple[str, str], str]]:
        """Those of the rows that meet a condition which asks another stage's."""
        self.nested.remove(condition)
        needed = self._needed()
        columns = {key: name for key, name in rows.columns.items() if key in needed}
        made = exp.select(*(exp.column(name, LEFT, quoted=True) for name in columns.values()))
        made = made.from_(exp.to_table(rows.stage, quoted=True).as_(LEFT)).where(_renamed(condition, rows, LEFT))
        return made.sql(DIALECT), columns


def _source(table: exp.Expr, left_on: exp.Expr | None = None) -> _Source:
    if not isinstance(table, exp.Table):
        raise InvalidOption("query", table.sql(DIALECT)[:80], "tables and names of WITH, in FROM")
    return _Source(table.alias_or_name, table.name, left_on)


def _conjuncts(condition: exp.Expr) -> Iterator[exp.Expr]:
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.left)
        yield from _conjuncts(condition.right)
    elif isinstance(condition, exp.Paren):
        yield from _conjuncts(condition.this)
    else:
        yield condition


def _aliases(expression: exp.Expr) -> set[str]:
    """The sources of which an expression has columns."""
    return {column.table for column in expression.find_all(exp.Column) if column.table}


def _both(rows: _Rows, other: _Rows) -> Mapping[tuple[str, str], tuple[str, str]]:
    """(source, column) to (side, name there)."""
    return {key: (side, name) for side, of in ((LEFT, rows), (RIGHT, other)) for key, name in of.columns.items()}


def _by_side(expression: exp.Expr, places: Mapping[tuple[str, str], tuple[str, str]]) -> exp.Expr:
    """The same over the columns as the inputs call them."""

    def named(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Column) and (node.table, node.name) in places:
            side, name = places[node.table, node.name]
            return exp.column(name, side, quoted=True)
        return node

    return expression.copy().transform(named)


def _renamed(expression: exp.Expr, rows: _Rows, side: str) -> exp.Expr:
    return _by_side(expression, {key: (side, name) for key, name in rows.columns.items()})
