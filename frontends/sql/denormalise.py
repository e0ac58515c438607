"""Rewrites blocks so that they read the denormalised table in place of lineitem and the tables joined to it.

A row of `denorm` is an item with its order, the order's customer, and so on along foreign keys, each of which leads to
exactly one row. Joining lineitem to such a table by its whole key adds columns, and neither adds nor drops rows: the
join can be left out.
"""

from __future__ import annotations

from sqlglot import exp

from frontends.relational.blocks import (
    ColumnName,
    Equalities,
    Source,
    column,
    columns_of,
    conjuncts,
    equal_columns,
    free_columns,
    name_of,
    remove_source,
    rename_columns,
    selects,
    set_conjuncts,
    sources,
)
from frontends.sql.tpch import DENORM, LINEITEM, ORDERS, REACHES, Reach


def denormalise(tree: exp.Select) -> None:
    """Rewrite every block of the tree in which that can be done."""
    for select in selects(tree):
        for source in sources(select):
            if source.table == LINEITEM:
                source.node.set("this", exp.to_identifier(DENORM, quoted=True))
                _absorb_all(select, source)
        # Inner blocks come first: the columns that correlate them still have their old names, and are renamed here.
    for select in selects(tree):
        _orders_with_items(select)


def _absorb_all(select: exp.Select, item: Source) -> None:
    """Leave out the joins to tables that `denorm` contains, one after the other, until no further one can go."""
    reached = {LINEITEM: item.alias}
    names: dict[str, dict[str, str]] = {item.alias: {}}
    while _absorb_one(select, item, reached, names):
        pass


def _absorb_one(select: exp.Select, item: Source, reached: dict[str, str], names: dict[str, dict[str, str]]) -> bool:
    equalities = Equalities(conjuncts(select))
    for way, reach in REACHES.items():
        if way in reached or reach.via not in reached:
            continue
        for source in sources(select):
            if source.table == reach.table and _can_leave_out(select, source, item, reach, reached, equalities):
                reached[way] = way
                remove_source(select, source)
                rename_columns(select, {(source.alias, old): (item.alias, new) for old, new in reach.columns.items()})
                set_conjuncts(select, [one for one in conjuncts(select) if not _is_identity(one)])
                return True
    return False


def _can_leave_out(
    select: exp.Select, source: Source, item: Source, reach: Reach, reached: dict[str, str], equalities: Equalities
) -> bool:
    if source.optional or (source.join is None and all(other.optional for other in sources(select)[1:])):
        return False
    if any(found.name not in reach.columns for found in columns_of(select, source.alias)):
        return False
    before = {} if reach.via == LINEITEM else REACHES[reach.via].columns
    return all(
        equalities.same((item.alias, before.get(left, left)), (source.alias, right)) for left, right in reach.keys
    )


def _is_identity(condition: exp.Expr) -> bool:
    """Whether the condition says that a column equals itself. (Keys are never NULL.)"""
    pair = equal_columns(condition)
    return pair is not None and pair[0] == pair[1]


# ---- orders that have items such that … -------------------------------------------------------


def _orders_with_items(select: exp.Select) -> None:
    """`orders WHERE EXISTS (items of the order such that …)` are the different orders of such rows of `denorm`."""
    for source in sources(select):
        if source.table != ORDERS or source.optional:
            continue
        for condition in conjuncts(select):
            item = _items_of_exists(condition, source)
            if item is not None and _read_orders_from_items(select, source, condition, item):
                return


def _items_of_exists(condition: exp.Expr, order: Source) -> Source | None:
    """The denormalised table of the condition `EXISTS (SELECT … FROM denorm WHERE l_orderkey = o_orderkey AND …)`.

    None if the condition has another form.
    """
    inner = condition.this if isinstance(condition, exp.Exists) else None
    if not isinstance(inner, exp.Select) or len(sources(inner)) != 1 or inner.args.get("group"):
        return None
    item = sources(inner)[0]
    if item.table != DENORM or inner.args.get("limit") or any(alias != order.alias for alias, _ in free_columns(inner)):
        return None
    key: set[ColumnName] = {(item.alias, "l_orderkey"), (order.alias, "o_orderkey")}
    return item if any(set(equal_columns(one) or ()) == key for one in conjuncts(inner)) else None


def _read_orders_from_items(select: exp.Select, order: Source, condition: exp.Expr, item: Source) -> bool:
    inner = condition.this
    kept = REACHES[ORDERS].columns
    used = sorted({name_of(found)[1] for found in columns_of(select, order.alias)} | {"o_orderkey"})
    if any(name not in kept for name in used):
        return False
    own = [one for one in conjuncts(select) if one is not condition]
    pushed = [
        one for one in own if not one.find(exp.Select) and {found.table for found in columns_of(one)} == {order.alias}
    ]
    set_conjuncts(select, [one for one in own if all(one is not other for other in pushed)])
    wanted = exp.Select(
        expressions=[exp.alias_(column(item.alias, kept[name]), name, quoted=True) for name in used],
        distinct=exp.Distinct(),
    )
    wanted.set("from_", inner.args["from_"].copy())
    set_conjuncts(wanted, [*pushed, *conjuncts(inner)])
    rename_columns(wanted, {(order.alias, old): (item.alias, new) for old, new in kept.items()})
    set_conjuncts(wanted, [one for one in conjuncts(wanted) if not _is_identity(one)])
    order.node.replace(
        exp.Subquery(this=wanted, alias=exp.TableAlias(this=exp.to_identifier(order.alias, quoted=True)))
    )
    return True
