"""Movie recommendations (examples/workflow/netflix.hql) by hand in DuckDB: one query."""

import os

import duckdb

THREADS = int(os.environ.get("WORKFLOW_THREADS") or os.cpu_count() or 1)
QUERY = """
WITH preferences AS MATERIALIZED (
    SELECT movie_id, user_id, rating
    FROM read_parquet('{ratings}') AS ratings JOIN read_parquet('{movies}') AS movies USING (movie_id)
    WHERE year < 1970
),
agreements AS (
    SELECT one.movie_id, other.movie_id AS other_id, SUM(one.rating * other.rating)::BIGINT AS agreement
    FROM preferences AS one JOIN preferences AS other USING (user_id)
    GROUP BY ALL
),
predicted AS (
    SELECT agreements.movie_id, user_id, SUM(agreement * rating)::BIGINT AS score
    FROM agreements JOIN preferences ON other_id = preferences.movie_id
    GROUP BY ALL
)
SELECT user_id, MAX(score) AS score FROM predicted GROUP BY user_id
"""


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    with duckdb.connect(config={"threads": THREADS}) as connection:
        connection.execute(f"COPY ({QUERY.format(**inputs)}) TO '{outputs['result']}' (FORMAT parquet)")
