"""Small workflows that several tests use."""

from __future__ import annotations

from frontends.workflow.ir.dag import (
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
from frontends.workflow.ir.reading import read
from frontends.workflow.ir.scalars.expressions import Scalar
from frontends.workflow.ir.types import Schema, Type


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


NETFLIX = """
movies = SCAN 'movies' (movie INTEGER, year INTEGER, title STRING)
ratings = SCAN 'ratings' (viewer INTEGER, movie INTEGER, rating DOUBLE, day DATE)
chosen = SELECT movies WHERE {{year >= 1990}}
ids = PROJECT chosen TO (movie = {{movie}})
rated = PROJECT ratings TO (viewer = {{viewer}}, movie = {{movie}}, rating = {{rating}})
kept = JOIN INNER rated, ids ON (movie = movie) TO (viewer = LEFT viewer, movie = LEFT movie, rating = LEFT rating)
others = PROJECT rated TO (viewer = {{viewer}}, other = {{movie}}, other_rating = {{rating}})
pairs = JOIN INNER kept, others ON (viewer = viewer) TO (movie = LEFT movie, rating = LEFT rating, \
other = RIGHT other, other_rating = RIGHT other_rating)
products = ARITHMETIC pairs SET product = {{rating * other_rating}}
similar = AGGREGATE products BY (movie, other) TO (similarity = SUM product)
scored = JOIN INNER similar, rated ON (other = movie) TO (movie = LEFT movie, similarity = LEFT similarity, \
viewer = RIGHT viewer, rating = RIGHT rating)
weighted = ARITHMETIC scored SET score = {{similarity * rating}}
scores = AGGREGATE weighted BY (viewer, movie) TO (score = SUM score)
best = AGGREGATE scores BY (viewer) TO (best = MAX score)
recommended = JOIN INNER scores, best ON (viewer = viewer, score = best) TO (viewer = LEFT viewer, movie = LEFT movie, \
score = LEFT score)
{more}RESULTS {result}
"""
NETFLIX_MORE = """counts = AGGREGATE ratings BY (movie) TO (ratings = COUNT)
popular = SELECT counts WHERE {ratings >= 2}
liked = JOIN SEMI recommended, popular ON (movie = movie) TO (viewer = LEFT viewer, movie = LEFT movie, \
score = LEFT score)
named = JOIN INNER liked, chosen ON (movie = movie) TO (viewer = LEFT viewer, title = RIGHT title, score = LEFT score)
ranked = SORT named BY (viewer, title)
"""


def netflix(operators: int = 13) -> Dag:
    """The thesis's movie recommendations (figure 4.1), 13 operators beside the scans; or its extended version of 18.

    The figure has 11 of the 13: it leaves out the projection of the right side of the join of a viewer's ratings with
    each other, and the join that finds the movies whose score is a viewer's best. The extended version keeps movies
    that are rated often, and gives titles, in order. Fewer: the first so many operators (figure 4.12).
    """
    if operators > 13:
        dag = read(NETFLIX.format(more=NETFLIX_MORE, result="ranked"))
    else:
        dag = read(NETFLIX.format(more="", result="recommended"))
    leaves = [operator for operator in dag.operators if not operator.inputs]
    inner = [operator for operator in dag.operators if operator.inputs][:operators]
    used = {name for operator in inner for name in operator.inputs}
    return Dag.of_unread([*(leaf for leaf in leaves if leaf.name in used), *inner])
