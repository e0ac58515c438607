"""PageRank in Lindi, 20 iterations; tables as for pagerank.gas."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    edges = lindi.table("edges", src=Type.INTEGER, dst=Type.INTEGER)
    vertices = lindi.table("vertices", id=Type.INTEGER, value=Type.DOUBLE)
    degrees = edges.group_by("src", "COUNT", "dst")
    weighted = edges.join(degrees, "src", "src")

    def iteration(ranks: Query) -> Query:
        sent = weighted.join(ranks, "src", "id")
        links = sent.select({"id": "dst", "value": "value / count"})
        return links.group_by("id", "SUM", "value").select({"id": "id", "value": "0.15 + 0.85 * value"})

    return vertices.iterate(iteration, times=20, name="ranks")
