"""Compiles a query into stages of fragments: SQL that a task can run over the tables and inputs that it has.

A block (one SELECT) is *spread* if it reads partitioned tables and *whole* if all it reads is at every node: small
tables, and results of earlier stages. A spread block can be run partition by partition if its partitioned
sources are joined on the partition key. Its result is then again spread, or, if it aggregates over more than the key,
has to be put together in stages of its own; their results are whole. So, from the inside out:

- a subquery that can stay in its block's fragment stays there, and DuckDB runs it;
- any other subquery becomes stages; if it is correlated, they compute it for all values at once;
- the outermost block becomes the last stages: scan with partial aggregates, group-by, order-by.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from frontends.relational.blocks import (
    ColumnName,
    Equalities,
    Source,
    aggregates,
    column,
    columns_of,
    conjuncts,
    conjuncts_of,
    equal_columns,
    free_columns,
    name_of,
    rename_columns,
    rename_source,
    selects,
    set_conjuncts,
    sources,
)
from frontends.sql import aggregation
from frontends.sql.denormalise import denormalise
from frontends.sql.errors import NotSupported
from frontends.sql.parsing import DIALECT, parse
from frontends.sql.plan import BUCKET, Outputs, Plan, Stage, input_table
from frontends.sql.tpch import PARTITION_KEYS, TABLES

GROUPS_PER_TASK = 50_000
"""The estimated number of groups for which a group-by stage has a task."""
GROUP_TASKS_MAX = 8
Keys = frozenset[ColumnName]
"""Columns of a block's sources that are the partition key. The set is empty if the block is whole."""
WHOLE: Keys = frozenset()


@dataclass(frozen=True, slots=True)
class Statistics:
    """What is known of the data. distinct: column to the number of its different values, if that is known."""

    distinct: Mapping[str, int] = field(default_factory=dict)


def compile_query(sql: str, statistics: Statistics | None = None) -> Plan:
    """The plan of a query; `InvalidQuery` if the text is not one, `NotSupported` for a construct, which it names."""
    tree, outputs = parse(sql)
    denormalise(tree)
    tables = frozenset(table.name for table in tree.find_all(exp.Table))
    compiler = _Compiler(statistics or Statistics())
    keys = compiler.place(tree)
    compiler.emit(tree, keys, "", outputs)
    return Plan(tuple(compiler.stages.values()), outputs, tables)


class _Compiler:
    """Collects the stages of one query."""

    def __init__(self, statistics: Statistics) -> None:
        self.stages: dict[str, Stage] = {}
        self._statistics = statistics
        self._results: dict[str, str] = {}
        """A block's SQL to the stage that has its result, so that a block that occurs twice is computed once."""
        self._subqueries = 0

    # ---- where a block can be answered -------------------------------------------------------

    def place(self, select: exp.Select, around: Keys = WHOLE) -> Keys:
        """Move parts of the block into stages until a fragment can run the block; returns its partition keys.

        around: the keys of the blocks around it, if it is a subquery that may be correlated by them.
        """
        spread: dict[str, Keys] = {}
        for source in sources(select):
            keys = self._source_keys(source)
            if keys:
                spread[source.alias] = keys
        keys = self._joined_on_keys(select, spread)
        for subquery in _subqueries_of(select):
            self._place_subquery(subquery, keys, around)
        return keys

    def _source_keys(self, source: Source) -> Keys:
        if isinstance(source.node, exp.Table):
            return frozenset((source.alias, name) for name in PARTITION_KEYS.get(source.table, ()))
        inner = source.node.this
        keys = self.place(inner)
        if not keys:
            return WHOLE
        kept = _kept_keys(inner, keys)
        if kept is None:
            source.node.replace(self._result_table(self._materialise(inner, keys), source.alias))
            return WHOLE
        return frozenset((source.alias, name) for name in kept) or frozenset([(source.alias, "")])

    def _joined_on_keys(self, select: exp.Select, spread: dict[str, Keys]) -> Keys:
        """The keys of the block with these partitioned sources; sources that are not joined on them are made whole."""
        inner = [source for source in sources(select) if not source.optional and source.alias in spread]
        equalities = Equalities(conjuncts(select))
        keys: Keys = WHOLE
        for source in sorted(inner, key=lambda source: -self._width(source)):
            if not keys:
                keys = spread[source.alias]
            elif any(equalities.same_as_any(key, keys) for key in spread[source.alias]):
                keys |= spread[source.alias]
            else:
                self._make_whole(select, source)
        for source in sources(select):
            if source.optional and source.alias in spread:
                assert source.join is not None
                on = Equalities(conjuncts_of(source.join.args.get("on")))
                if not any(on.same_as_any(key, keys) for key in spread[source.alias]):
                    self._make_whole(select, source)
        if not keys:
            return WHOLE
        same = {name_of(found) for found in columns_of(select) if equalities.same_as_any(name_of(found), keys)}
        return keys | same

    @staticmethod
    def _width(source: Source) -> int:
        """The number of a source's columns: it is best to leave the widest source partitioned."""
        return len(TABLES.get(source.table, ()))

    def _make_whole(self, select: exp.Select, source: Source) -> None:
        """Have a stage read the columns and rows of a partitioned source that the block needs."""
        if isinstance(source.node, exp.Subquery):
            inner = source.node.this
            source.node.replace(self._result_table(self._materialise(inner, self.place(inner)), source.alias))
            return
        own = _own_conditions(select, source)
        used = sorted({name_of(found)[1] for found in columns_of(select, source.alias)})
        wanted = exp.Select(expressions=[exp.alias_(column(source.alias, name), name, quoted=True) for name in used])
        wanted.set("from_", exp.From(this=source.node.copy()))
        set_conjuncts(wanted, own)
        keys = frozenset((source.alias, name) for name in PARTITION_KEYS[source.table])
        source.node.replace(self._result_table(self._materialise(wanted, keys), source.alias))

    # ---- subqueries in conditions ------------------------------------------------------------

    def _place_subquery(self, subquery: exp.Expr, keys: Keys, around: Keys) -> None:
        """Leave a subquery (EXISTS, IN or scalar) in its block if the fragment can run it, else move it into stages."""
        inner = _block_of(subquery)
        inner_keys = self.place(inner, keys | around)
        if not inner_keys:
            if not _in_where(subquery) and not free_columns(inner) and keys:
                self._replace_block(inner, self._materialise(inner, WHOLE))
            return
        if self._reads_own_partition(subquery, inner, inner_keys, keys | around):
            return
        if not free_columns(inner):
            self._replace_block(inner, self._materialise(inner, inner_keys))
        elif isinstance(subquery, exp.Exists):
            self._decorrelate_exists(inner, inner_keys)
        elif isinstance(subquery, exp.In):
            raise NotSupported("IN (a subquery that is correlated, but not by the order key)")
        else:
            self._decorrelate_scalar(inner, inner_keys)

    @staticmethod
    def _reads_own_partition(subquery: exp.Expr, inner: exp.Select, inner_keys: Keys, keys: Keys) -> bool:
        """Whether all rows that the subquery reads for a row are in that row's partition."""
        pairs = [pair for pair in map(equal_columns, conjuncts(inner)) if pair is not None]
        if any((one in inner_keys and other in keys) or (other in inner_keys and one in keys) for one, other in pairs):
            return True
        if not isinstance(subquery, exp.In) or not isinstance(subquery.this, exp.Column):
            return False
        kept = _kept_keys(inner, inner_keys)
        return name_of(subquery.this) in keys and kept is not None and inner.expressions[0].alias_or_name in kept

    def _replace_block(self, inner: exp.Select, stage: str) -> None:
        """Replace the block by one that reads the stage's result."""
        name = f"r{len(self._results)}_{self._next_number()}"
        outputs = [one.alias_or_name for one in inner.expressions]
        inner.replace(
            exp.Select(
                expressions=[exp.alias_(column(name, output), output, quoted=True) for output in outputs],
                from_=exp.From(this=self._result_table(stage, name)),
            )
        )

    def _decorrelate_exists(self, inner: exp.Select, keys: Keys) -> None:
        """Have a stage compute the different values that the correlation compares, and search those instead."""
        if aggregates(inner) or inner.args.get("limit"):
            raise NotSupported("EXISTS (a correlated subquery with GROUP BY, aggregates or LIMIT)")
        outer, tied = self._correlation(inner)
        compared = sorted({name_of(found) for one in tied for found in columns_of(one)} - outer)
        name = f"e{self._next_number()}"
        names = {old: (name, f"k{number}") for number, old in enumerate(compared)}
        wanted = exp.Select(
            expressions=[exp.alias_(column(*old), new, quoted=True) for old, (_, new) in names.items()],
            distinct=exp.Distinct(),
        )
        self._move_body(inner, wanted, tied)
        stage = self._materialise(wanted, keys)
        replaced = exp.Select(expressions=[exp.alias_(exp.Literal.number(1), "found", quoted=True)])
        replaced.set("from_", exp.From(this=self._result_table(stage, name)))
        set_conjuncts(replaced, tied)
        rename_columns(replaced, names)
        inner.replace(replaced)

    def _decorrelate_scalar(self, inner: exp.Select, keys: Keys) -> None:
        """Have a stage compute the subquery for all values that the correlation compares, and look a row's value up."""
        if inner.args.get("group") or inner.args.get("distinct") or not aggregates(inner):
            raise NotSupported("a correlated scalar subquery that is not one aggregate without GROUP BY")
        if inner.find(exp.Count):
            raise NotSupported("count in a correlated subquery")
        outer, tied = self._correlation(inner)
        name = f"s{self._next_number()}"
        groups, replaced_ties = [], []
        for number, tie in enumerate(tied):
            pair = equal_columns(tie)
            if pair is None:
                raise NotSupported(
                    f"a correlated subquery whose condition is not an equality of columns ({tie.sql(DIALECT)})"
                )
            own, other = pair if pair[1] in outer else pair[::-1]
            groups.append(exp.alias_(column(*own), f"k{number}", quoted=True))
            replaced_ties.append(exp.EQ(this=column(name, f"k{number}"), expression=column(*other)))
        value = exp.alias_(inner.expressions[0].unalias().copy(), "v", quoted=True)
        wanted = exp.Select(expressions=[*groups, value])
        self._move_body(inner, wanted, tied)
        wanted.set("group", exp.Group(expressions=[group.this.copy() for group in groups]))
        stage = self._materialise(wanted, keys)
        replaced = exp.Select(expressions=[column(name, "v")])
        replaced.set("from_", exp.From(this=self._result_table(stage, name)))
        set_conjuncts(replaced, replaced_ties)
        inner.replace(replaced)

    @staticmethod
    def _correlation(inner: exp.Select) -> tuple[set[ColumnName], list[exp.Expr]]:
        """The columns of surrounding blocks that the subquery uses, and its conditions that use them."""
        outer = free_columns(inner)
        tied = [one for one in conjuncts(inner) if any(name_of(found) in outer for found in columns_of(one))]
        inside = sum(name_of(found) in outer for one in tied for found in columns_of(one))
        if inside < sum(name_of(found) in outer for found in columns_of(inner)):
            raise NotSupported("a subquery that is correlated elsewhere than in its WHERE")
        if any(one.find(exp.Select) for one in tied):
            raise NotSupported("a subquery that is correlated from within another one")
        return outer, tied

    @staticmethod
    def _move_body(inner: exp.Select, wanted: exp.Select, tied: list[exp.Expr]) -> None:
        """Give `wanted` the sources of `inner`, and its conditions but those (`tied`) that correlate it."""
        for clause in ("from_", "joins"):
            wanted.set(clause, inner.args.get(clause))
        set_conjuncts(wanted, [one for one in conjuncts(inner) if all(one is not tie for tie in tied)])

    # ---- stages ------------------------------------------------------------------------------

    def _next_number(self) -> int:
        self._subqueries += 1
        return self._subqueries

    @staticmethod
    def _result_table(stage: str, alias: str) -> exp.Table:
        table = exp.Table(this=exp.to_identifier(input_table(stage), quoted=True))
        table.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
        return table

    def _materialise(self, select: exp.Select, keys: Keys) -> str:
        """Add stages that compute the block, unless there are such stages; returns the name of the last."""
        text = _normalised_sql(select)
        stage = self._results.get(text)
        if stage is None:
            number = 1 + len(self._results)
            stage = self._results[text] = self.emit(select, keys, f"subquery-{number}.", ())
        return stage

    def emit(self, select: exp.Select, keys: Keys, prefix: str, wanted: Outputs) -> str:
        """Add the stages of a placed block, named with the prefix, and return the name of the last.

        wanted: the names and types that the output columns are to have; empty: they stay as they are.
        """
        if not keys:
            return self._add_stage(prefix + "compute", _with_outputs(select, wanted))
        if aggregates(select):
            return self._emit_aggregation(select, prefix, wanted)
        order, limit = select.args.get("order"), select.args.get("limit")
        scan_select = select.copy()
        if order is not None and limit is None:
            scan_select.set("order", None)
        if select.args.get("offset"):
            # A partition cannot know which of its rows the offset skips.
            scan_select.set("offset", None)
            scan_select.set("limit", None)
            scan_select.set("order", None)
        outputs = [one.alias_or_name for one in select.expressions]
        terms = self._add_order_columns(select, scan_select)
        scan = self._add_stage(prefix + "scan", scan_select, partitioned=True)
        if prefix and order is None and limit is None:
            return scan  # Later stages read the results of all its tasks.
        name = prefix + ("order-by" if order is not None else "collect")
        return self._emit_last(name, scan, select, outputs, terms, wanted)

    @staticmethod
    def _add_order_columns(select: exp.Select, scan: exp.Select) -> list[exp.Ordered]:
        """The terms of ORDER BY over the scan's columns; the scan gets a column for each term that has none."""
        outputs = {one.alias_or_name for one in select.expressions}
        order = select.args.get("order")
        terms = []
        for number, given in enumerate(order.expressions if order is not None else ()):
            term = given.copy()
            if columns_of(term):
                name = f"__order{number}"
                scan.append("expressions", exp.alias_(term.this.copy(), name, quoted=True))
                term.set("this", exp.column(exp.to_identifier(name, quoted=True)))
            elif any(found.name not in outputs for found in term.find_all(exp.Column)):
                raise NotSupported(f"ORDER BY {term.this.sql(DIALECT)}")
            terms.append(term)
        return terms

    def _emit_aggregation(self, select: exp.Select, prefix: str, wanted: Outputs) -> str:
        split = aggregation.split(select)
        buckets = self._bucket_count(select)
        partial = split.partial
        if buckets > 1:
            partial = _with_buckets(partial, split.groups, buckets)
        scan = self._add_stage(prefix + "scan", partial, partitioned=True, buckets=buckets)
        split.final.args["from_"].this.replace(self._result_table(scan, aggregation.PARTIAL))
        limited = select.args.get("limit") or select.args.get("offset")
        last = not split.order and not limited and buckets == 1
        final = _with_outputs(split.final, wanted) if last else split.final
        group = self._add_stage(prefix + "group-by", final, tasks=buckets)
        if last or (prefix and not limited):
            return group
        name = prefix + ("order-by" if split.order else "collect")
        return self._emit_last(name, group, select, split.outputs, split.order, wanted)

    def _emit_last(
        self,
        name: str,
        before: str,
        select: exp.Select,
        outputs: list[str],
        order: list[exp.Ordered],
        wanted: Outputs,
    ) -> str:
        """Add a stage that sorts the rows of all tasks of the stage before, or only collects them."""
        last = exp.Select(
            expressions=[exp.alias_(column("r", output), output, quoted=True) for output in outputs],
            from_=exp.From(this=self._result_table(before, "r")),
        )
        typed = _with_outputs(last, wanted)
        if order:
            by_source = [_qualified(term, "r") for term in order]
            typed.set("order", exp.Order(expressions=by_source))
        for clause in ("limit", "offset"):
            if select.args.get(clause):
                typed.set(clause, select.args[clause].copy())
        return self._add_stage(name, typed)

    def _bucket_count(self, select: exp.Select) -> int:
        """The number of tasks that are to merge the groups, by an estimate of the number of groups."""
        group = select.args.get("group")
        grouped = list(group.expressions) if group is not None else [one.unalias() for one in select.expressions]
        known = self._statistics.distinct
        if not grouped or (group is None and not select.args.get("distinct")):
            return 1
        # The estimate is the column with the most values: it often determines the others, as a key does.
        groups = max(known.get(one.name, 1) if isinstance(one, exp.Column) else 1 for one in grouped)
        return max(1, min(GROUP_TASKS_MAX, -(-groups // GROUPS_PER_TASK)))

    def _add_stage(
        self, name: str, select: exp.Select, *, partitioned: bool = False, tasks: int = 1, buckets: int = 1
    ) -> str:
        read = {table.name for table in select.find_all(exp.Table)}
        after = tuple(stage for stage in self.stages if input_table(stage) in read)
        reads_tables = any(table in TABLES for table in read)
        self.stages[name] = Stage(name, select.sql(DIALECT), after, partitioned, reads_tables, tasks, buckets)
        return name


# ---- parts of blocks ---------------------------------------------------------------------------


def _normalised_sql(select: exp.Select) -> str:
    """The block's SQL with its sources renamed, so that equal blocks have equal texts."""
    select = select.copy()
    number = itertools.count()
    for inner in selects(select):
        for source in sources(inner):
            rename_source(inner, source, f"same {next(number)}")
    return select.sql(DIALECT)


def _subqueries_of(select: exp.Select) -> list[exp.Expr]:
    """The block's own EXISTS, IN and scalar subqueries, in all its clauses but FROM."""
    found: list[exp.Expr] = []
    for name, value in select.args.items():
        if name == "from_":
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, exp.Expr):
                continue
            root = node.args.get("on") if isinstance(node, exp.Join) else node
            for inner in root.walk(prune=lambda one: isinstance(one, exp.Select)) if root is not None else ():
                if isinstance(inner, exp.Select):
                    found.append(_subquery_around(inner))
    return found


def _subquery_around(inner: exp.Select) -> exp.Expr:
    """The EXISTS, IN or scalar subquery whose block this is."""
    parent = inner.parent
    if isinstance(parent, exp.Exists):
        return parent
    if isinstance(parent, exp.Subquery) and isinstance(parent.parent, exp.In | exp.Exists) and parent.arg_key != "this":
        return parent.parent
    if isinstance(parent, exp.In):
        return parent
    if isinstance(parent, exp.Subquery):
        if isinstance(parent.parent, exp.Any | exp.All):
            raise NotSupported("ANY or ALL (a subquery)")
        return parent
    raise NotSupported(f"a subquery in {parent.key.upper() if parent is not None else 'this place'}")


def _block_of(subquery: exp.Expr) -> exp.Select:
    inner = subquery.args["query"] if isinstance(subquery, exp.In) else subquery.this
    inner = inner.unnest()
    assert isinstance(inner, exp.Select)
    return inner


def _in_where(subquery: exp.Expr) -> bool:
    """Whether the subquery is in a WHERE or ON, and so decides which rows its block reads."""
    parent = subquery.parent
    while parent is not None and not isinstance(parent, exp.Where | exp.Join | exp.Select):
        parent = parent.parent
    return isinstance(parent, exp.Where | exp.Join)


def _kept_keys(inner: exp.Select, keys: Keys) -> set[str] | None:
    """The output columns of a spread block that are the key; None if its rows cannot be computed by partition."""
    kept = {
        one.alias_or_name
        for one in inner.expressions
        if isinstance(one.unalias(), exp.Column) and name_of(one.unalias()) in keys
    }
    if inner.args.get("limit") or inner.args.get("offset"):
        return None
    if inner.args.get("distinct"):
        return kept or None
    if aggregates(inner):
        group = inner.args.get("group")
        grouped = group.expressions if group is not None else []
        by_key = any(isinstance(one, exp.Column) and name_of(one) in keys for one in grouped)
        return kept if by_key else None
    return kept


def _own_conditions(select: exp.Select, source: Source) -> list[exp.Expr]:
    """Take the conditions on this source alone from the block, and return them."""

    def own(one: exp.Expr) -> bool:
        return not one.find(exp.Select) and {found.table for found in columns_of(one)} == {source.alias}

    if not source.optional:
        found = conjuncts(select)
        set_conjuncts(select, [one for one in found if not own(one)])
        return [one for one in found if own(one)]
    assert source.join is not None
    found = conjuncts_of(source.join.args.get("on"))
    rest = [one.copy() for one in found if not own(one)]
    if rest:
        source.join.set("on", exp.and_(*rest, copy=False))
        return [one for one in found if own(one)]
    return []


def _with_outputs(select: exp.Select, wanted: Outputs) -> exp.Select:
    """The block with its output columns renamed and cast: a sum of sums is wider than a sum."""
    if not wanted:
        return select
    select = select.copy()
    renamed = {}
    outputs = []
    for one, (name, type_) in zip(select.expressions, wanted, strict=True):
        renamed[one.alias_or_name] = name
        value = one.unalias()
        if isinstance(value, exp.Subquery):
            value.set("alias", None)  # Aggregation has named the subquery itself.
        outputs.append(exp.alias_(exp.cast(value, type_, dialect=DIALECT) if type_ else value, name, quoted=True))
    select.set("expressions", outputs)
    order = select.args.get("order")
    for found in order.find_all(exp.Column) if order is not None else ():
        if not found.table:
            found.set("this", exp.to_identifier(renamed.get(found.name, found.name), quoted=True))
    return select


def _with_buckets(partial: exp.Select, groups: list[str], buckets: int) -> exp.Select:
    """The block with a further column: the number of the next stage's task that gets the row's group."""
    hashed = exp.Anonymous(this="hash", expressions=[column("p", name) for name in groups])
    bucket = exp.Mod(this=hashed, expression=exp.Literal.number(buckets))
    outputs = [
        exp.alias_(column("p", one.alias_or_name), one.alias_or_name, quoted=True) for one in partial.expressions
    ]
    return exp.Select(
        expressions=[*outputs, exp.alias_(exp.cast(bucket, "UTINYINT", dialect=DIALECT), BUCKET, quoted=True)],
        from_=exp.From(this=exp.Subquery(this=partial, alias=exp.TableAlias(this=exp.to_identifier("p", quoted=True)))),
    )


def _qualified(term: exp.Ordered, source: str) -> exp.Ordered:
    """The term with its columns qualified by the source's name."""
    term = term.copy()
    for found in list(term.find_all(exp.Column)):
        found.set("table", exp.to_identifier(source, quoted=True))
    return term
