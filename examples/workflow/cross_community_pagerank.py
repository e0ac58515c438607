"""PageRank in Lindi, five iterations, of those links that two communities of the web have in common."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    one = lindi.table("community_a", src=Type.INTEGER, dst=Type.INTEGER)
    other = lindi.table("community_b", src=Type.INTEGER, dst=Type.INTEGER)
    edges = one.intersect(other)
    degrees = edges.group_by("src", "COUNT", "dst")
    weighted = edges.join(degrees, "src", "src")
    start = degrees.select({"id": "src", "value": "1.0"})

    def iteration(ranks: Query) -> Query:
        sent = weighted.join(ranks, "src", "id")
        links = sent.select({"id": "dst", "value": "value / count"})
        return links.group_by("id", "SUM", "value").select({"id": "id", "value": "0.15 + 0.85 * value"})

    return start.iterate(iteration, times=5, name="ranks")
