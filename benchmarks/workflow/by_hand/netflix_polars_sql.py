"""Movie recommendations (examples/workflow/netflix.hql) in Polars' own SQL."""

import polars as pl

QUERY = """
WITH preferences AS (
    SELECT ratings.movie_id AS movie_id, user_id, rating
    FROM ratings JOIN movies ON ratings.movie_id = movies.movie_id
    WHERE year < 1970
),
others AS (SELECT movie_id AS other_id, user_id, rating AS other_rating FROM preferences),
agreements AS (
    SELECT preferences.movie_id AS movie_id, others.other_id AS other_id, SUM(rating * other_rating) AS agreement
    FROM preferences JOIN others ON preferences.user_id = others.user_id
    GROUP BY preferences.movie_id, others.other_id
),
rated AS (SELECT movie_id AS rated_id, user_id, rating FROM preferences),
predicted AS (
    SELECT agreements.movie_id AS movie_id, rated.user_id AS user_id, SUM(agreement * rating) AS score
    FROM agreements JOIN rated ON agreements.other_id = rated.rated_id
    GROUP BY agreements.movie_id, rated.user_id
)
SELECT user_id, MAX(score) AS score FROM predicted GROUP BY user_id
"""


def run(inputs: dict[str, str], outputs: dict[str, str]) -> None:
    frames = {name: pl.scan_parquet(path) for name, path in inputs.items()}
    pl.SQLContext(frames).execute(QUERY, eager=True).write_parquet(outputs["result"])
