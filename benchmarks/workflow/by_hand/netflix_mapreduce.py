"""Movie recommendations (examples/workflow/netflix.hql) by hand as MapReduce: three jobs of one shuffle each.

The few movies are joined by each mapper; a reducer sums what it has before it hands that on.
"""

import os
import tempfile
from collections.abc import Callable
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from sparrow_py import CallStage, Client, ResultOf

THREADS = int(os.environ.get("WORKFLOW_THREADS") or os.cpu_count() or 1)


def share(path: str, split: int) -> pa.Table:
    """A mapper's row groups of a file."""
    with pq.ParquetFile(path) as file:
        return file.read_row_groups(list(range(file.num_row_groups))[split::THREADS])


def query(text: str, **tables: pa.Table) -> pa.Table:
    """What DuckDB answers, in one thread."""
    with duckdb.connect(config={"threads": 1}) as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.sql(text).to_arrow_table()


def buckets(rows: pa.Table, key: str) -> list[pa.Table]:
    """The rows, cut by the hash of a column."""
    if THREADS == 1:
        return [rows]
    return [query(f"SELECT * FROM rows WHERE hash({key}) % {THREADS} = {n}", rows=rows) for n in range(THREADS)]


def of_bucket(mapped: list[Any], bucket: int) -> pa.Table:
    """A reducer's rows of all mappers."""
    return pa.concat_tables([one[bucket] for one in mapped])


def job(client: Client, mapper: Callable[..., Any], reducer: Callable[..., Any], files: tuple[str, ...]) -> list[Any]:
    """What the reducers of a job of two stages made."""
    stages = [
        CallStage("map", mapper, [(*files, split) for split in range(THREADS)]),
        CallStage("reduce", reducer, [(bucket, ResultOf("map")) for bucket in range(THREADS)]),
    ]
    submitted = client.submit_stages(stages, name="by hand")
    return [future.result() for future in submitted.stage("reduce")]


def map_ratings(ratings: str, movies: str, split: int) -> list[pa.Table]:
    old = query("SELECT movie_id FROM movies WHERE year < 1970", movies=pq.read_table(movies))
    rated = "SELECT movie_id, user_id, rating FROM ratings JOIN old USING (movie_id)"
    return buckets(query(rated, ratings=share(ratings, split), old=old), "user_id")


def reduce_users(bucket: int, mapped: list[Any]) -> tuple[pa.Table, pa.Table]:
    preferences = of_bucket(mapped, bucket)
    agreeing = """
        SELECT one.movie_id, other.movie_id AS other_id, SUM(one.rating * other.rating)::BIGINT AS agreement
        FROM preferences AS one JOIN preferences AS other USING (user_id) GROUP BY ALL"""
    return preferences, query(agreeing, preferences=preferences)


def map_movies(preferences: str, agreements: str, split: int) -> tuple[list[pa.Table], list[pa.Table]]:
    return buckets(share(preferences, split), "movie_id"), buckets(share(agreements, split), "other_id")


def reduce_movies(bucket: int, mapped: list[Any]) -> pa.Table:
    preferences, agreements = (of_bucket([one[place] for one in mapped], bucket) for place in range(2))
    scores = """
        WITH whole AS (SELECT movie_id, other_id, SUM(agreement)::BIGINT AS agreement FROM agreements GROUP BY ALL)
        SELECT whole.movie_id, user_id, SUM(agreement * rating)::BIGINT AS score
        FROM whole JOIN preferences ON other_id = preferences.movie_id GROUP BY ALL"""
    return query(scores, preferences=preferences, agreements=agreements)


def map_scores(scores: str, split: int) -> list[pa.Table]:
    return buckets(share(scores, split), "user_id")


def reduce_scores(bucket: int, mapped: list[Any]) -> pa.Table:
    best = """
        WITH predicted AS (SELECT movie_id, user_id, SUM(score)::BIGINT AS score FROM scores GROUP BY ALL)
        SELECT user_id, MAX(score) AS score FROM predicted GROUP BY user_id"""
    return query(best, scores=of_bucket(mapped, bucket))


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory(prefix="by-hand-") as directory, Client() as client:
        kept = {name: f"{directory}/{name}.parquet" for name in ("preferences", "agreements", "scores")}
        made = job(client, map_ratings, reduce_users, (inputs["ratings"], inputs["movies"]))
        pq.write_table(pa.concat_tables([one[0] for one in made]), kept["preferences"])
        pq.write_table(pa.concat_tables([one[1] for one in made]), kept["agreements"])
        made = job(client, map_movies, reduce_movies, (kept["preferences"], kept["agreements"]))
        pq.write_table(pa.concat_tables(made), kept["scores"])
        made = job(client, map_scores, reduce_scores, (kept["scores"],))
        pq.write_table(pa.concat_tables(made), outputs["result"])
