"""k-means of points in the plane in Lindi, ten iterations; tables as for kmeans.beer."""

from frontends.workflow.ir.types import Type
from frontends.workflow.languages.lindi import Lindi, Query


def workflow(lindi: Lindi) -> Query:
    points = lindi.table("points", id=Type.INTEGER, x=Type.DOUBLE, y=Type.DOUBLE)
    centroids = lindi.table("centroids", centroid=Type.INTEGER, cx=Type.DOUBLE, cy=Type.DOUBLE)

    def iteration(current: Query) -> Query:
        pairs = points.select_many(current)
        square = "(cx - x) * (cx - x) + (cy - y) * (cy - y)"
        distances = pairs.select({"id": "id", "x": "x", "y": "y", "centroid": "centroid", "square": square})
        nearest = distances.min("id", "square")
        candidates = distances.join(nearest, ["id", "square"], ["id", "square"])
        assigned = candidates.min(["id", "x", "y"], "centroid")
        middles = assigned.group_by("centroid", "AVG", ["x", "y"])
        return middles.select({"centroid": "centroid", "cx": "x", "cy": "y"})

    return centroids.iterate(iteration, times=10, name="middles")
