"""Distances from one vertex in Lindi, until none changes; tables as for sssp.gas."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    edges = lindi.table("edges", src=Type.INTEGER, dst=Type.INTEGER, value=Type.DOUBLE)
    vertices = lindi.table("vertices", id=Type.INTEGER, value=Type.DOUBLE)
    hops = edges.select({"src": "src", "dst": "dst", "length": "value"})

    def iteration(distances: Query) -> tuple[Query, Query]:
        arrivals = hops.join(distances, "src", "id").select({"id": "dst", "value": "value + length"})
        nearest = arrivals.concat(distances).min("id", "value")
        return nearest, nearest.except_(distances)

    return vertices.iterate(iteration, "id IS NOT NULL", name="distances")
