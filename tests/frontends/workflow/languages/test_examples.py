"""Each workflow of examples/workflow, in each of its languages, against the same computed in plain Python."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from frontends.workflow import example_data
from frontends.workflow.ir.reference import evaluate
from frontends.workflow.ir.tables import schema_of
from frontends.workflow.languages import beer, gas, lindi

EXAMPLES = Path(__file__).parents[4] / "examples" / "workflow"
PARSERS = {".beer": beer.parse, ".gas": gas.parse, ".py": lindi.parse}
SIZES = {
    "cross_community_pagerank": 60,
    "kmeans": 20,
    "netflix": 80,
    "pagerank": 60,
    "sssp": 60,
    "top_shopper": 600,
    "tpch17": 900,
}
Rows = list[tuple[object, ...]]


def rows(table: pa.Table) -> Rows:
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def ranked(edges: Rows, ranks: dict[int, float], iterations: int) -> dict[int, float]:
    degrees = Counter(source for source, _ in edges)
    for _ in range(iterations):
        sums: dict[int, float] = defaultdict(float)
        for source, destination in edges:
            if source in ranks:
                sums[destination] += ranks[source] / degrees[source]
        ranks = {vertex: 0.15 + 0.85 * total for vertex, total in sums.items()}
    return ranks


def page_rank(tables: example_data.Tables) -> Rows:
    return list(ranked(rows(tables["edges"]), dict(rows(tables["page_rank"])), 20).items())


def cross_community(tables: example_data.Tables) -> Rows:
    edges = sorted(set(rows(tables["community_a"])) & set(rows(tables["community_b"])))
    return list(ranked(edges, {source: 1.0 for source, _ in edges}, 5).items())


def shortest_paths(tables: example_data.Tables) -> Rows:
    """Bellman and Ford's."""
    distances = dict(rows(tables["distances"]))
    edges = rows(tables["edges"])
    for _ in edges:
        for source, destination, length in edges:
            if source in distances:
                found = distances[source] + length
                distances[destination] = min(found, distances.get(destination, math.inf))
    return list(distances.items())


def k_means(tables: example_data.Tables) -> Rows:
    centroids = rows(tables["centroids"])
    for _ in range(10):
        members: dict[int, Rows] = defaultdict(list)
        for _, x, y in rows(tables["points"]):
            nearest = min(centroids, key=lambda one: ((one[1] - x) ** 2 + (one[2] - y) ** 2, one[0]))
            members[nearest[0]].append((x, y))
        centroids = [
            (number, sum(x for x, _ in points) / len(points), sum(y for _, y in points) / len(points))
            for number, points in members.items()
        ]
    return centroids


def top_shopper(tables: example_data.Tables) -> Rows:
    spent: Counter[int] = Counter()
    for _, amount, user, country in rows(tables["purchases"]):
        spent[user] += amount if country == "USA" else 0
    return [(user, amount) for user, amount in spent.items() if amount > 12_000]


def netflix(tables: example_data.Tables) -> Rows:
    old = {movie for movie, year in rows(tables["movies"]) if year < 1970}
    rated = [one for one in rows(tables["ratings"]) if one[0] in old]
    agreement: Counter[tuple[int, int]] = Counter()
    for movie, user, rating in rated:
        for other, other_user, other_rating in rated:
            agreement[movie, other] += rating * other_rating if user == other_user else 0
    best: dict[int, int] = {}
    scores: Counter[tuple[int, int]] = Counter()
    for (movie, other), weight in agreement.items():
        for rated_movie, user, rating in rated:
            if rated_movie == other and weight:
                scores[movie, user] += weight * rating
    for (_, user), score in scores.items():
        best[user] = max(score, best.get(user, score))
    return list(best.items())


def small_orders(tables: example_data.Tables) -> Rows:
    boxes = {key for key, brand, container in rows(tables["part"]) if (brand, container) == ("Brand#23", "MED BOX")}
    sold = [one for one in rows(tables["lineitem"]) if one[0] in boxes]
    quantities: dict[int, list[float]] = defaultdict(list)
    for part, quantity, _ in sold:
        quantities[part].append(quantity)
    lost = [price for part, quantity, price in sold if quantity < 0.2 * sum(quantities[part]) / len(quantities[part])]
    return [(sum(lost) / 7.0 if lost else None,)]


ANSWERS: dict[str, Callable[[example_data.Tables], Rows]] = {
    "cross_community_pagerank": cross_community,
    "kmeans": k_means,
    "netflix": netflix,
    "pagerank": page_rank,
    "sssp": shortest_paths,
    "top_shopper": top_shopper,
    "tpch17": small_orders,
}
FILES = sorted(path for path in EXAMPLES.iterdir() if path.suffix in PARSERS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_an_example_gives_what_plain_python_gives(path: Path) -> None:
    name = path.stem.removesuffix("_settled")
    tables = example_data.tables(name, SIZES[name])
    schemas = {table: schema_of(one.schema, table) for table, one in tables.items()}
    dag = PARSERS[path.suffix](path.read_text(), schemas, str(path))
    (answer,) = evaluate(dag, tables).values()
    got, expected = sorted(rows(answer)), sorted(ANSWERS[name](tables))
    assert expected
    assert len(got) == len(expected)
    for row, right in zip(got, expected, strict=True):
        assert row == pytest.approx(right, rel=1e-12)


def test_every_workflow_is_there_in_beer_and_lindi_and_those_of_graphs_in_gas() -> None:
    there = {(path.stem, path.suffix) for path in FILES}
    assert there >= {(name, suffix) for name in ANSWERS for suffix in (".beer", ".py")}
    assert there >= {("pagerank", ".gas"), ("sssp", ".gas")}
    assert set(ANSWERS) == set(example_data.TABLES)


def test_made_up_tables_depend_on_the_seed_alone() -> None:
    for name, size in SIZES.items():
        one, same, other = (example_data.tables(name, size, seed) for seed in (3, 3, 4))
        assert one == same
        assert one != other


def test_r_mat_graphs_have_hubs_and_no_edge_twice() -> None:
    edges = rows(example_data.page_rank(4_000)["edges"])
    assert len(set(edges)) == len(edges) > 2_000
    assert all(source != destination for source, destination in edges)
    degrees = sorted(Counter(source for source, _ in edges).values())
    assert degrees[-1] > 8 * degrees[len(degrees) // 2]
