"""Small workflows that several tests use."""

from __future__ import annotations

from frontends.workflow.ir import (
    Aggregate,
    Aggregation,
    Arithmetic,
    Carried,
    Dag,
    Function,
    Input,
    Join,
    LoopCondition,
    Output,
    Project,
    Scan,
    Values,
    While,
    joined_columns,
    loop_result,
)
from frontends.workflow.reading import read
from frontends.workflow.scalars import Scalar
from frontends.workflow.types import Schema, Type


def page_rank(iterations: int = 20) -> Dag:
    """The thesis's PageRank (listing 3.2) over `edges` and `page_rank`: 7 operators around the loop, 6 within it."""
    edges = Scan(name="edges", table="edges", columns=Schema.of(src=Type.INTEGER, dst=Type.INTEGER))
    ranks = Scan(name="page_rank", table="page_rank", columns=Schema.of(id=Type.INTEGER, rank=Type.DOUBLE))
    start = Values(name="iter", columns=Schema.of(iter=Type.INTEGER), rows=((Scalar("0"),),))
    counts = Aggregate(
        name="node_cnt",
        source=edges.relation,
        keys=("src",),
        aggregations=(Aggregation("degree", Function.COUNT, "dst"),),
    )
    weighted = Join(
        name="edges_cnt",
        left=edges.relation,
        right=counts.relation,
        on=(("src", "src"),),
        columns=joined_columns(edges.relation, counts.relation, without=["src"]),
    )
    loop = While(
        name="loop",
        read=(weighted.relation, ranks.relation, start.relation),
        body=_iteration(weighted.schema, ranks.schema, start.schema),
        carried=(Carried("page_rank", "page_rank2"), Carried("iter", "iter2")),
        condition=LoopCondition("iter", Scalar(f"iter < {iterations}")),
    )
    last = loop_result("ranks", loop, "page_rank")
    return Dag.of_unread((edges, ranks, start, counts, weighted, loop, last))


def _iteration(weighted: Schema, ranks: Schema, count: Schema) -> Dag:
    edges, before = Input(name="edges_cnt", columns=weighted), Input(name="page_rank", columns=ranks)
    done = Input(name="iter", columns=count)
    sent = Join(
        name="edges_pr",
        left=edges.relation,
        right=before.relation,
        on=(("src", "id"),),
        columns=joined_columns(edges.relation, before.relation, without=["id"]),
    )
    share = Arithmetic(name="rank_cnt", source=sent.relation, column="rank", value=Scalar('"rank" / degree'))
    links = Project(name="links", source=share.relation, columns=(Output.column("dst", "id"), Output.column("rank")))
    sums = Aggregate(
        name="page_rank1",
        source=links.relation,
        keys=("id",),
        aggregations=(Aggregation("rank", Function.SUM, "rank"),),
    )
    damped = Arithmetic(name="page_rank2", source=sums.relation, column="rank", value=Scalar('0.15 + 0.85 * "rank"'))
    more = Arithmetic(name="iter2", source=done.relation, column="iter", value=Scalar("iter + 1"))
    return Dag((edges, before, done, sent, share, links, sums, damped, more), ("page_rank2", "iter2"))


MAX_PROPERTY_PRICE = """\
properties = SCAN 'properties' (id INTEGER, street STRING, town STRING)
prices = SCAN 'prices' (id INTEGER, price DOUBLE)
locs = PROJECT properties TO (id = {id}, street = {street}, town = {town})
id_price = JOIN INNER locs, prices ON (id = id) TO (id = LEFT id, street = LEFT street, town = LEFT town, price = RIGHT price)
street_price = AGGREGATE id_price BY (street, town) TO (max_price = MAX price)
RESULTS street_price
"""  # noqa: E501


def max_property_price() -> Dag:
    """The thesis's max-property-price (listing 3.1), without places in a text."""
    return read(MAX_PROPERTY_PRICE)
